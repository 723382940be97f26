//! Faults while signing.

use lockstep_kernels::curve25519::Error;
use lockstep_kernels::curve25519::ed25519::{SecretKey, Seed, SignJob, sign};
use lockstep_kernels::fault::{Fault, Point, arm, disarm};

use super::common::{Random, backends};

/// A fault in the point R or in the nonce withholds its own signature and no other.
#[test]
fn no_fault_yields_a_signature() {
    let mut random = Random(8);
    for backend in backends() {
        let keys: Vec<SecretKey> = (0..75)
            .map(|_| SecretKey::from_seed(backend, &Seed::from_bytes(&random.bytes())))
            .collect();
        let signed = || {
            let mut jobs: Vec<_> = keys
                .iter()
                .map(|key| SignJob::new(key, b"message"))
                .collect();
            sign(backend, &mut jobs);
            jobs.iter()
                .map(|job| job.result.unwrap())
                .collect::<Vec<_>>()
        };
        let good = signed();
        assert!(good.iter().all(Result::is_ok));
        for point in [Point::Accumulator, Point::Exponent] {
            for request in 0..keys.len() {
                arm(Fault {
                    point,
                    request,
                    half: 0,
                    limb: random.word() as usize % 5,
                    bit: random.word() as u32 % 44,
                });
                let struck = signed();
                disarm();
                for (i, (good, struck)) in good.iter().zip(&struck).enumerate() {
                    let expected = if i == request {
                        &Err(Error::Fault)
                    } else {
                        good
                    };
                    assert_eq!(struck, expected, "{backend:?}, {point:?} in {request}");
                }
            }
        }
    }
}
