//! Cycles for one operation of X25519 and Ed25519.

use std::hint::black_box;

use lockstep_common::Failure;
use lockstep_kernels::curve25519::{ed25519, x25519};

use super::bench::{Bench, insist};

const FILLS: [usize; 5] = [1, 4, 8, 32, 64];

/// Measures X25519 and Ed25519.
pub fn run(bench: &Bench) -> Result<(), Failure> {
    let backend = bench.backend;
    let bytes = |i: usize| {
        let mut bytes = [0x5a; 32];
        bytes[8..16]
            .copy_from_slice(&((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        bytes
    };
    let secrets: Vec<_> = (0..64)
        .map(|i| x25519::SecretKey::from_bytes(&bytes(i)))
        .collect();
    let peers: Vec<_> = (64..128).map(bytes).collect();
    let seeds: Vec<_> = (0..64)
        .map(|i| ed25519::Seed::from_bytes(&bytes(i)))
        .collect();
    let keys: Vec<_> = seeds
        .iter()
        .map(|seed| ed25519::SecretKey::from_seed(backend, seed))
        .collect();
    let message = [0xa5; 32];
    let mut signed: Vec<_> = keys
        .iter()
        .map(|key| ed25519::SignJob::new(key, &message))
        .collect();
    ed25519::sign(backend, &mut signed);
    let signatures: Vec<_> = signed
        .iter()
        .map(|job| job.result.unwrap().unwrap())
        .collect();

    bench.head(&format!("Curve25519 on {}", backend.name()), &FILLS);
    bench.row("X25519 keypair", &FILLS, |fill| {
        let mut jobs: Vec<_> = secrets[..fill]
            .iter()
            .map(x25519::KeypairJob::new)
            .collect();
        Ok(bench.measure(|| {
            x25519::keypair(backend, &mut jobs);
            black_box(&jobs);
        }))
    })?;
    bench.row("X25519 agree", &FILLS, |fill| {
        let mut jobs: Vec<_> = secrets[..fill]
            .iter()
            .zip(&peers)
            .map(|(secret, peer)| x25519::AgreeJob::new(secret, peer))
            .collect();
        Ok(bench.measure(|| {
            x25519::agree(backend, &mut jobs);
            black_box(&jobs);
        }))
    })?;
    bench.row("Ed25519 keypair", &FILLS, |fill| {
        let mut jobs: Vec<_> = seeds[..fill].iter().map(ed25519::KeypairJob::new).collect();
        Ok(bench.measure(|| {
            ed25519::keypair(backend, &mut jobs);
            black_box(&jobs);
        }))
    })?;
    bench.row("Ed25519 sign", &FILLS, |fill| {
        let mut jobs: Vec<_> = keys[..fill]
            .iter()
            .map(|key| ed25519::SignJob::new(key, &message))
            .collect();
        Ok(bench.measure(|| {
            ed25519::sign(backend, &mut jobs);
            black_box(&jobs);
        }))
    })?;
    bench.row("Ed25519 verify", &FILLS, |fill| {
        let mut jobs: Vec<_> = keys[..fill]
            .iter()
            .zip(&signatures)
            .map(|(key, signature)| ed25519::VerifyJob::new(key.public(), &message, signature))
            .collect();
        let figure = bench.measure(|| {
            ed25519::verify_vartime(backend, &mut jobs);
            black_box(&jobs);
        });
        let right = jobs.iter().all(|job| job.result == Some(Ok(())));
        insist(right, "verification").map(|()| figure)
    })?;
    bench.row("Ed25519 check", &FILLS, |fill| {
        let mut jobs: Vec<_> = keys[..fill]
            .iter()
            .zip(&signatures)
            .map(|(key, signature)| ed25519::CheckJob::new(key, &message, signature))
            .collect();
        let figure = bench.measure(|| {
            ed25519::check(backend, &mut jobs);
            black_box(&jobs);
        });
        let right = jobs.iter().all(|job| job.result == Some(Ok(())));
        insist(right, "checks").map(|()| figure)
    })
}
