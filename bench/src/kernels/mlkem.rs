//! Cycles for one operation of ML-KEM-768.

use std::hint::black_box;

use lockstep_common::Failure;
use lockstep_kernels::mlkem::{
    CIPHERTEXT, Coins, DecapsulateJob, EncapsulateJob, GenerateJob, PUBLIC_KEY, SECRET_KEY,
    Scratch, SecretKey, Seed, decapsulate, encapsulate, generate,
};

use super::bench::{Bench, insist};

const FILLS: [usize; 5] = [1, 2, 4, 8, 32];
const MOST: usize = 32;

/// Measures ML-KEM-768.
pub fn run(bench: &Bench) -> Result<(), Failure> {
    let backend = bench.backend;
    let mut scratch = Scratch::try_new().ok_or_else(|| Failure::new("out of memory"))?;
    let seeds: Vec<_> = (0..MOST)
        .map(|i| Seed::from_bytes(&[i as u8; 64]))
        .collect();
    let coins: Vec<_> = (0..MOST)
        .map(|i| Coins::from_bytes(&[i as u8; 32]))
        .collect();
    let mut public_keys = vec![[0; PUBLIC_KEY]; MOST];
    let mut secret_keys = vec![SecretKey::from_bytes(&[0; SECRET_KEY]); MOST];
    let mut ciphertexts = vec![[0; CIPHERTEXT]; MOST];
    let mut sent = Vec::new();

    bench.head(&format!("ML-KEM-768 on {}", backend.name()), &FILLS);
    bench.row("keys", &FILLS, |fill| {
        let keys = seeds.iter().zip(&mut public_keys).zip(&mut secret_keys);
        let mut jobs: Vec<_> = keys
            .take(fill)
            .map(|((seed, public_key), secret_key)| GenerateJob {
                seed,
                public_key,
                secret_key,
            })
            .collect();
        Ok(bench.measure(|| {
            generate(backend, &mut scratch, &mut jobs);
            black_box(&jobs);
        }))
    })?;
    bench.row("encapsulation", &FILLS, |fill| {
        let inputs = public_keys.iter().zip(&coins).zip(&mut ciphertexts);
        let mut jobs: Vec<_> = inputs
            .take(fill)
            .map(|((public_key, coins), ciphertext)| EncapsulateJob {
                public_key,
                coins,
                ciphertext,
                result: None,
            })
            .collect();
        let figure = bench.measure(|| {
            encapsulate(backend, &mut scratch, &mut jobs);
            black_box(&jobs);
        });
        let secrets = jobs.into_iter().map(|job| job.result.and_then(Result::ok));
        sent = secrets.collect();
        insist(sent.iter().all(Option::is_some), "keys").map(|()| figure)
    })?;
    bench.row("decapsulation", &FILLS, |fill| {
        let inputs = secret_keys.iter().zip(&ciphertexts);
        let mut jobs: Vec<_> = inputs
            .take(fill)
            .map(|(secret_key, ciphertext)| DecapsulateJob {
                secret_key,
                ciphertext,
                result: None,
            })
            .collect();
        let figure = bench.measure(|| {
            decapsulate(backend, &mut scratch, &mut jobs);
            black_box(&jobs);
        });
        let right = jobs.iter().zip(&sent).all(|(job, sent)| {
            let found = job.result.as_ref().zip(sent.as_ref());
            found.is_some_and(|(found, sent)| found.as_bytes() == sent.as_bytes())
        });
        insist(right, "shared secrets").map(|()| figure)
    })
}
