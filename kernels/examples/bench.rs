//! Quiet cycles per RSA private operation, blinding and check included.
//!
//! `cargo run --release -p lockstep-kernels --example bench [-- backend [bits…]]`
//!
//! Slices are short; the clock is measured before and after each, and the lower quartile of all
//! slices is printed with the best one.

#[path = "common/quiet.rs"]
#[allow(dead_code, reason = "this one needs the clock only")]
mod quiet;

use std::time::Instant;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::{
    Blinding, Components, PrivateJob, PrivateKey, Scratch, Size, private_batch,
};

/// Cycles per nanosecond.
fn clock() -> f64 {
    quiet::clock() / 1e9
}

/// The committed test key of a size.
fn key(size: Size) -> PrivateKey {
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex"))
            .collect()
    };
    let bits = size.bits().to_string();
    let line = include_str!("../tests/data/rsa_keys.txt")
        .lines()
        .find(|line| line.split(' ').next() == Some(&bits))
        .expect("a key of each size");
    let parts: Vec<_> = line.split(' ').skip(2).map(hex).collect();
    let [n, e, p, q, dp, dq, qinv] = &parts[..] else {
        unreachable!("seven parts")
    };
    PrivateKey::new(&Components {
        n,
        e,
        p,
        q,
        dp,
        dq,
        qinv,
    })
    .expect("supported")
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let backend = match arguments.next() {
        Some(name) => Backend::from_name(&name).expect("a backend of this machine"),
        None => Backend::available()[0],
    };
    let bits: Vec<usize> = arguments
        .map(|bits| bits.parse().expect("a size in bits"))
        .collect();
    let mut scratch = Scratch::new();
    println!(
        "{:>6} {:>5} {:>12} {:>12} {:>9}",
        "bits", "fill", "quartile", "best", "GHz"
    );
    for size in Size::ALL {
        if !bits.is_empty() && !bits.contains(&size.bits()) {
            continue;
        }
        let mut best = [u128::MAX; 2];
        for _ in 0..20 {
            let start = Instant::now();
            let key = key(size);
            best[0] = best[0].min(start.elapsed().as_nanos());
            let random = vec![0x5a; Blinding::random_bytes(size)];
            let start = Instant::now();
            assert!(Blinding::new(key.public(), &random).is_some());
            best[1] = best[1].min(start.elapsed().as_nanos());
        }
        println!(
            "{:>6} {} us per key, {} us per new blinding pair",
            size.bits(),
            best[0] / 1000,
            best[1] / 1000
        );
        let key = key(size);
        let mut random = 1u64;
        let mut bytes = |count: usize| -> Vec<u8> {
            (0..count)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (random >> 56) as u8
                })
                .collect()
        };
        let mut pairs: Vec<_> = (0..8)
            .map(|_| {
                Blinding::new(key.public(), &bytes(Blinding::random_bytes(size)))
                    .expect("invertible")
            })
            .collect();
        let mut input = bytes(size.bytes());
        input[0] = 0;
        for fill in [1, 2, 4, 8] {
            let mut slices = Vec::new();
            let begun = Instant::now();
            while slices.len() < 9 || (begun.elapsed().as_millis() < 1500 && slices.len() < 400) {
                let before = clock();
                let start = Instant::now();
                let mut jobs: Vec<_> = pairs[..fill]
                    .iter_mut()
                    .map(|blinding| PrivateJob {
                        key: &key,
                        input: &input,
                        check_input: &input,
                        blinding,
                        result: None,
                    })
                    .collect();
                private_batch(backend, &mut scratch, &mut jobs);
                let nanoseconds = start.elapsed().as_nanos() as f64;
                assert!(jobs.iter().all(|job| matches!(job.result, Some(Ok(_)))));
                let after = clock();
                // A slice with different clocks before and after was disturbed.
                if (before - after).abs() < 0.03 * before {
                    slices.push((nanoseconds * before.max(after) / fill as f64, before));
                } else if begun.elapsed().as_millis() > 3000 {
                    break;
                }
            }
            slices.sort_by(|a, b| a.0.total_cmp(&b.0));
            let Some(best) = slices.first() else { continue };
            let quartile = slices[slices.len() / 4];
            println!(
                "{:>6} {fill:>5} {:>12.0} {:>12.0} {:>9.2}",
                size.bits(),
                quartile.0,
                best.0,
                quartile.1
            );
        }
    }
}
