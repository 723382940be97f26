//! Cycles for one operation on P-256 and P-384, for full and for nearly empty batches.
//!
//! `cargo run --release --example bench_nist [backend]`. The figures are those of slices in which
//! the core was undisturbed: see `common/quiet.rs`.

#[path = "common/quiet.rs"]
mod quiet;

use std::hint::black_box;
use std::time::Instant;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::nist::{Wide, p256, p384};
use quiet::cycles;

macro_rules! bench_curve {
    ($curve:ident, $backend:expr) => {{
        const FILLS: [usize; 7] = [1, 2, 3, 4, 8, 32, 64];
        let backend = $backend;
        let wide = |i: usize| {
            let mut bytes = [0x5a; 64];
            bytes[..8].copy_from_slice(&(i as u64 * 0x9e37_79b9_7f4a_7c15).to_be_bytes());
            bytes[24] = i as u8;
            Wide::from_bytes(&bytes)
        };
        let seeds: Vec<Wide> = (0..64).map(wide).collect();
        let nonces: Vec<Wide> = (64..128).map(wide).collect();
        let mut made: Vec<_> = seeds.iter().map($curve::KeypairJob::new).collect();
        let start = Instant::now();
        $curve::keypair(backend, &mut made);
        let first = start.elapsed();
        let keys: Vec<_> = made
            .iter()
            .map(|job| job.result.clone().unwrap().unwrap())
            .collect();
        let digest = [0xa5; $curve::BYTES];
        let signatures: Vec<_> = {
            let mut jobs: Vec<_> = keys
                .iter()
                .zip(&nonces)
                .map(|((key, _), nonce)| $curve::SignJob::new(key, &digest, nonce))
                .collect();
            $curve::ecdsa_sign(backend, &mut jobs);
            jobs.iter()
                .map(|job| job.result.unwrap().unwrap())
                .collect()
        };

        println!(
            "{} on {}: first batch, with the table, in {first:?}; then cycles for one operation",
            stringify!($curve),
            backend.name()
        );
        print!("{:10}", "requests");
        FILLS.iter().for_each(|fill| print!("{fill:>10}"));
        println!();
        let row = |name: &str, run: &mut dyn FnMut(usize) -> f64| {
            print!("{name:10}");
            for fill in FILLS {
                print!("{:>10.0}", run(fill) / fill as f64);
            }
            println!();
        };
        row("keypair", &mut |fill| {
            let mut jobs: Vec<_> = seeds[..fill].iter().map($curve::KeypairJob::new).collect();
            cycles(|| {
                $curve::keypair(backend, &mut jobs);
                black_box(&jobs);
            })
        });
        row("sign", &mut |fill| {
            let mut jobs: Vec<_> = keys[..fill]
                .iter()
                .zip(&nonces)
                .map(|((key, _), nonce)| $curve::SignJob::new(key, &digest, nonce))
                .collect();
            cycles(|| {
                $curve::ecdsa_sign(backend, &mut jobs);
                black_box(&jobs);
            })
        });
        row("verify", &mut |fill| {
            let mut jobs: Vec<_> = keys[..fill]
                .iter()
                .zip(&signatures)
                .map(|((_, key), signature)| $curve::VerifyJob::new(key, &digest, signature))
                .collect();
            let figure = cycles(|| {
                $curve::ecdsa_verify_vartime(backend, &mut jobs);
                black_box(&jobs);
            });
            assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
            figure
        });
        row("ecdh", &mut |fill| {
            let mut jobs: Vec<_> = keys[..fill]
                .iter()
                .zip(keys.iter().rev())
                .map(|((key, _), (_, peer))| $curve::EcdhJob::new(key, peer))
                .collect();
            cycles(|| {
                $curve::ecdh(backend, &mut jobs);
                black_box(&jobs);
            })
        });
    }};
}

fn main() {
    let backend = match std::env::args().nth(1) {
        Some(name) => Backend::from_name(&name).expect("a backend of this CPU"),
        None => Backend::available()[0],
    };
    bench_curve!(p256, backend);
    bench_curve!(p384, backend);
}
