//! Cycles a byte for whole messages of AES-GCM: initialisation vector, additional data, data, tag.

use std::hint::black_box;

use lockstep_common::{Failure, out, outln};
use lockstep_kernels::InOut;
use lockstep_kernels::aes_gcm::{Key, Lanes, Message, TAG_BYTES};

use super::bench::{Bench, insist};

const SIZES: [usize; 6] = [16, 64, 256, 1350, 4096, 16384];

/// As in a record of TLS 1.2.
const ADDITIONAL: [u8; 13] = [3; 13];

/// Measures AES-GCM.
pub fn run(bench: &Bench, lanes: Lanes) -> Result<(), Failure> {
    outln!("AES-GCM on {}: cycles a byte", lanes.name());
    out!("{:18}", "bytes");
    SIZES.iter().for_each(|size| out!("{size:>10}"));
    out!("\n");
    for bytes in [16, 24, 32] {
        let mut key = Key::new(lanes);
        key.set(&vec![1; bytes]).expect("a length of AES");
        for encrypts in [true, false] {
            let name = if encrypts { "encryption" } else { "decryption" };
            out!("{:18}", format!("{} {name}", 8 * bytes));
            for size in SIZES {
                let (from, mut to) = (vec![2; size], vec![0; size]);
                // Enough messages that what stands around them does not count.
                let messages = SIZES[5] / size;
                let figure = bench.measure(|| {
                    for _ in 0..messages {
                        black_box(message(&key, encrypts, &from, &mut to));
                    }
                });
                is_undone(&key, encrypts, &from)?;
                let mark = if figure.is_quiet() { "" } else { "*" };
                let shown = figure.cycles_per_op / (messages * size) as f64;
                out!("{:>10}", format!("{shown:.3}{mark}"));
            }
            out!("\n");
        }
    }
    Ok(())
}

fn message(key: &Key, encrypts: bool, from: &[u8], to: &mut [u8]) -> [u8; TAG_BYTES] {
    let mut message = Message::default();
    message.begin(key, &[4; 12]);
    let data = InOut::separate(from, to).expect("equally long");
    message
        .authenticate(key, &ADDITIONAL)
        .and_then(|()| match encrypts {
            true => message.encrypt(key, data),
            false => message.decrypt(key, data),
        })
        .expect("short");
    message.tag(key)
}

/// Refuses if the opposite operation does not give the same bytes and the same tag.
fn is_undone(key: &Key, encrypts: bool, from: &[u8]) -> Result<(), Failure> {
    let (mut there, mut back) = (vec![0; from.len()], vec![0; from.len()]);
    let tag = message(key, encrypts, from, &mut there);
    let other = message(key, !encrypts, &there, &mut back);
    insist(tag == other && back == from && there != from, "AES-GCM")
}
