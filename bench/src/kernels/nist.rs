//! Cycles for one operation on P-256 and P-384.

use std::hint::black_box;
use std::time::Instant;

use lockstep_common::Failure;
use lockstep_kernels::nist::{Wide, p256, p384};

use super::bench::{Bench, insist};

const FILLS: [usize; 7] = [1, 2, 3, 4, 8, 32, 64];

macro_rules! bench_curve {
    ($curve:ident, $bench:expr) => {{
        let bench: &Bench = $bench;
        let backend = bench.backend;
        let wide = |i: usize| {
            let mut bytes = [0x5a; 64];
            bytes[..8]
                .copy_from_slice(&((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes());
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

        let curve = stringify!($curve);
        let heading = format!(
            "{curve} on {}, first batch with its table in {first:?}",
            backend.name()
        );
        bench.head(&heading, &FILLS);
        bench.row("keypair", &FILLS, |fill| {
            let mut jobs: Vec<_> = seeds[..fill].iter().map($curve::KeypairJob::new).collect();
            Ok(bench.measure(|| {
                $curve::keypair(backend, &mut jobs);
                black_box(&jobs);
            }))
        })?;
        bench.row("sign", &FILLS, |fill| {
            let mut jobs: Vec<_> = keys[..fill]
                .iter()
                .zip(&nonces)
                .map(|((key, _), nonce)| $curve::SignJob::new(key, &digest, nonce))
                .collect();
            Ok(bench.measure(|| {
                $curve::ecdsa_sign(backend, &mut jobs);
                black_box(&jobs);
            }))
        })?;
        bench.row("verify", &FILLS, |fill| {
            let mut jobs: Vec<_> = keys[..fill]
                .iter()
                .zip(&signatures)
                .map(|((_, key), signature)| $curve::VerifyJob::new(key, &digest, signature))
                .collect();
            let figure = bench.measure(|| {
                $curve::ecdsa_verify_vartime(backend, &mut jobs);
                black_box(&jobs);
            });
            let right = jobs.iter().all(|job| job.result == Some(Ok(())));
            insist(right, "verification").map(|()| figure)
        })?;
        bench.row("ecdh", &FILLS, |fill| {
            let mut jobs: Vec<_> = keys[..fill]
                .iter()
                .zip(keys.iter().rev())
                .map(|((key, _), (_, peer))| $curve::EcdhJob::new(key, peer))
                .collect();
            Ok(bench.measure(|| {
                $curve::ecdh(backend, &mut jobs);
                black_box(&jobs);
            }))
        })?;
    }};
}

/// Measures P-256 and P-384.
pub fn run(bench: &Bench) -> Result<(), Failure> {
    bench_curve!(p256, bench);
    bench_curve!(p384, bench);
    Ok(())
}
