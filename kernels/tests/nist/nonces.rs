//! Nonces that are computed side by side equal nonces computed one by one.

use lockstep_kernels::nist::SecretKey;
use lockstep_kernels::nist::nonce::{self, HedgedJob, RANDOM_BYTES};

use super::common::{Random, every_lane_and_fill, nist_backends, secret};

#[test]
fn a_batch_makes_the_nonces_that_each_request_would_get_alone() {
    batches::<32>();
    batches::<48>();
}

fn batches<const BYTES: usize>() {
    let mut random = Random(11);
    // Repeated keys and digests of many lengths: some need a block more than others.
    let keys: [SecretKey<BYTES>; 3] = [
        secret(&random.bytes()),
        secret(&random.runs()),
        secret(&[0xff; BYTES]),
    ];
    let cases: Vec<_> = [0, 1, 20, 32, 48, 64, 78, 79, 80, 96, 200, 300]
        .into_iter()
        .enumerate()
        .map(|(number, length)| {
            let digest: Vec<u8> = (0..length).map(|_| random.word() as u8).collect();
            let random: [u8; RANDOM_BYTES] = random.bytes();
            (&keys[number % 3], random, digest)
        })
        .collect();
    for backend in nist_backends() {
        every_lane_and_fill(backend, &cases, |cases| {
            let mut jobs: Vec<_> = cases
                .iter()
                .map(|(key, random, digest)| HedgedJob::new(key, random, digest))
                .collect();
            nonce::hedged_batch(backend, &mut jobs);
            for (job, (key, random, digest)) in jobs.iter().zip(cases) {
                let alone = nonce::hedged(key, random, digest);
                let made = job.result.as_ref().unwrap();
                assert_eq!(made.as_bytes(), alone.as_bytes(), "{}", digest.len());
            }
        });
    }
}
