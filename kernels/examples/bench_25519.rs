//! Cycles for one operation of X25519 and Ed25519, for full and for nearly empty batches.
//!
//! `cargo run --release --example bench_25519 [backend]`. The figures are those of slices in which
//! the core was undisturbed: see `common/quiet.rs`.

#[path = "common/quiet.rs"]
mod quiet;

use std::hint::black_box;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::{ed25519, x25519};
use quiet::cycles;

const FILLS: [usize; 5] = [1, 4, 8, 32, 64];

fn row(name: &str, mut run: impl FnMut(usize) -> f64) {
    print!("{name:16}");
    for fill in FILLS {
        print!("{:>10.0}", run(fill) / fill as f64);
    }
    println!();
}

fn main() {
    let backend = match std::env::args().nth(1) {
        Some(name) => Backend::from_name(&name).expect("a backend of this CPU"),
        None => Backend::available()[0],
    };
    let bytes = |i: usize| {
        let mut bytes = [0x5a; 32];
        bytes[8..16].copy_from_slice(&(i as u64 * 0x9e37_79b9_7f4a_7c15).to_le_bytes());
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

    println!("{}: cycles for one operation", backend.name());
    print!("{:16}", "requests");
    FILLS.iter().for_each(|fill| print!("{fill:>10}"));
    println!();
    row("X25519 keypair", |fill| {
        let mut jobs: Vec<_> = secrets[..fill]
            .iter()
            .map(x25519::KeypairJob::new)
            .collect();
        cycles(|| {
            x25519::keypair(backend, &mut jobs);
            black_box(&jobs);
        })
    });
    row("X25519 agree", |fill| {
        let mut jobs: Vec<_> = secrets[..fill]
            .iter()
            .zip(&peers)
            .map(|(secret, peer)| x25519::AgreeJob::new(secret, peer))
            .collect();
        cycles(|| {
            x25519::agree(backend, &mut jobs);
            black_box(&jobs);
        })
    });
    row("Ed25519 keypair", |fill| {
        let mut jobs: Vec<_> = seeds[..fill].iter().map(ed25519::KeypairJob::new).collect();
        cycles(|| {
            ed25519::keypair(backend, &mut jobs);
            black_box(&jobs);
        })
    });
    row("Ed25519 sign", |fill| {
        let mut jobs: Vec<_> = keys[..fill]
            .iter()
            .map(|key| ed25519::SignJob::new(key, &message))
            .collect();
        cycles(|| {
            ed25519::sign(backend, &mut jobs);
            black_box(&jobs);
        })
    });
    row("Ed25519 verify", |fill| {
        let mut jobs: Vec<_> = keys[..fill]
            .iter()
            .zip(&signatures)
            .map(|(key, signature)| ed25519::VerifyJob::new(key.public(), &message, signature))
            .collect();
        let figure = cycles(|| {
            ed25519::verify_vartime(backend, &mut jobs);
            black_box(&jobs);
        });
        assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
        figure
    });
    row("Ed25519 check", |fill| {
        let mut jobs: Vec<_> = keys[..fill]
            .iter()
            .zip(&signatures)
            .map(|(key, signature)| ed25519::CheckJob::new(key, &message, signature))
            .collect();
        let figure = cycles(|| {
            ed25519::check(backend, &mut jobs);
            black_box(&jobs);
        });
        assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
        figure
    });
}
