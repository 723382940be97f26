//! Speed of operations on large arrays: the variants of each take turns in one process.
//!
//! ```text
//! cargo test --release -p lockstep-kernels --test bulk_speed -- --ignored --nocapture
//! ```

mod common;

use std::time::{Duration, Instant};

use common::{Random, below};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::{PublicJob, PublicKey, Scratch, Size, public_batch_vartime};

/// Number of rounds, in each of which every variant runs once.
const ROUNDS: usize = 15;
/// Time of a variant in a round.
const SLICE: Duration = Duration::from_millis(12);

/// A way to compute a number of items.
struct Variant<'a> {
    name: String,
    items: usize,
    run: Box<dyn FnMut() + 'a>,
}

impl<'a> Variant<'a> {
    fn new(name: impl Into<String>, items: usize, run: impl FnMut() + 'a) -> Self {
        Self {
            name: name.into(),
            items,
            run: Box::new(run),
        }
    }
}

/// Prints the median time of each variant, the least, and the quarters around the median, in
/// nanoseconds an item.
fn measure(mut variants: Vec<Variant<'_>>) {
    let mut times = vec![Vec::new(); variants.len()];
    for round in 0..=ROUNDS {
        for (variant, times) in variants.iter_mut().zip(&mut times) {
            let (start, mut runs) = (Instant::now(), 0);
            while start.elapsed() < SLICE || runs == 0 {
                (variant.run)();
                runs += 1;
            }
            // The first round fills caches and makes tables.
            if round > 0 {
                times.push(start.elapsed().as_nanos() as f64 / (runs * variant.items) as f64);
            }
        }
    }
    for (variant, mut times) in variants.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let at = |share: usize| times[share * (times.len() - 1) / 4];
        println!(
            "{:44} {:6} items: {:9.0} ns ({:.0} least, {:.0} to {:.0})",
            variant.name,
            variant.items,
            at(2),
            at(0),
            at(1),
            at(3)
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn rsa_public() {
    let mut random = Random(1);
    let backend = Backend::available()[0];
    for size in Size::ALL {
        let keys: Vec<_> = common::keys(size)
            .into_iter()
            .map(|key| {
                let e = [1, 0, 1];
                (PublicKey::new(&key.parts[0], &e).unwrap(), key.n)
            })
            .collect();
        let parts = lockstep_testkit::RsaParts::ordinary(size.bits()).parts;
        let mut variants = Vec::new();
        variants.push(Variant::new(format!("{size:?}, prepare"), 1, move || {
            assert!(PublicKey::new(&parts[0], &parts[1]).is_ok());
        }));
        for items in [1, 2, 3, 4, 8, 64, 1024] {
            let inputs: Vec<_> = (0..items)
                .map(|i| {
                    let (key, n) = &keys[i % keys.len()];
                    let bytes = below(&mut random, n).to_bytes_be();
                    let padding = vec![0; size.bytes() - bytes.len()];
                    (key, [padding, bytes].concat())
                })
                .collect();
            let mut scratch = Scratch::new();
            let run = move || {
                let mut jobs: Vec<_> = inputs
                    .iter()
                    .map(|(key, input)| PublicJob::new(key, input))
                    .collect();
                public_batch_vartime(backend, &mut scratch, &mut jobs);
                assert!(jobs.iter().all(|job| matches!(job.result, Some(Ok(_)))));
            };
            variants.push(Variant::new(format!("{size:?}"), items, run));
        }
        measure(variants);
    }
}

/// Number of keys: few, whose tables stay in the second-level cache, and many.
const KEYS: [usize; 2] = [8, 256];

macro_rules! ecdsa {
    ($curve:ident) => {
        use lockstep_kernels::nist::{Wide, $curve};

        let mut random = Random(2);
        let backend = Backend::available()[0];
        let seeds: Vec<_> = (0..1024)
            .map(|_| Wide::from_bytes(&random.bytes()))
            .collect();
        let mut jobs: Vec<_> = seeds.iter().map($curve::KeypairJob::new).collect();
        $curve::keypair(backend, &mut jobs);
        let pairs = jobs.into_iter().map(|job| job.result.unwrap().unwrap());
        let (secrets, keys): (Vec<_>, Vec<_>) = pairs.unzip();
        let mut jobs: Vec<_> = keys[..KEYS[1]]
            .iter()
            .map($curve::PrepareJob::new)
            .collect();
        $curve::prepare(backend, &mut jobs);
        let prepared: Vec<_> = jobs
            .into_iter()
            .map(|job| job.result.unwrap().unwrap())
            .collect();
        let digests: Vec<_> = (0..1024).map(|_| random.vec($curve::BYTES)).collect();
        let nonces: Vec<_> = (0..1024)
            .map(|_| Wide::from_bytes(&random.bytes()))
            .collect();
        // Signature i is by key i modulo `KEYS[1]`.
        let sign = |count: usize| {
            let mut jobs: Vec<_> = (0..1024)
                .map(|i| $curve::SignJob::new(&secrets[i % count], &digests[i], &nonces[i]))
                .collect();
            $curve::ecdsa_sign(backend, &mut jobs);
            let signatures: Vec<_> = jobs
                .iter()
                .map(|job| job.result.unwrap().unwrap())
                .collect();
            signatures
        };
        let signatures = KEYS.map(sign);
        let mut variants = Vec::new();
        for items in [1, 8, 64] {
            let keys = &keys;
            variants.push(Variant::new("prepare", items, move || {
                let mut jobs: Vec<_> = keys[..items].iter().map($curve::PrepareJob::new).collect();
                $curve::prepare(backend, &mut jobs);
                assert!(jobs.iter().all(|job| matches!(job.result, Some(Ok(_)))));
            }));
            variants.push(Variant::new("decompress", items, move || {
                let mut jobs: Vec<_> = keys[..items]
                    .iter()
                    .map(|key| $curve::DecompressJob::new(&key.x, false))
                    .collect();
                $curve::decompress(backend, &mut jobs);
                assert!(jobs.iter().all(|job| matches!(job.result, Some(Ok(_)))));
            }));
        }
        for items in [1, 8, 64, 1024] {
            for (count, signatures) in KEYS.into_iter().zip(&signatures) {
                let (keys, digests) = (&keys, &digests);
                let plain = move || {
                    let mut jobs: Vec<_> = (0..items)
                        .map(|i| {
                            $curve::VerifyJob::new(&keys[i % count], &digests[i], &signatures[i])
                        })
                        .collect();
                    $curve::ecdsa_verify_vartime(backend, &mut jobs);
                    assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
                };
                if count == KEYS[0] {
                    variants.push(Variant::new("plain", items, plain));
                }
                let prepared = &prepared;
                let run = move || {
                    let mut jobs: Vec<_> = (0..items)
                        .map(|i| {
                            let key = &prepared[i % count];
                            $curve::PreparedVerifyJob::new(key, &digests[i], &signatures[i])
                        })
                        .collect();
                    $curve::ecdsa_verify_prepared_vartime(backend, &mut jobs);
                    assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
                };
                variants.push(Variant::new(format!("prepared, {count} keys"), items, run));
            }
        }
        measure(variants);
    };
}

#[test]
#[ignore = "a measurement"]
fn ecdsa_p256() {
    ecdsa!(p256);
}

#[test]
#[ignore = "a measurement"]
fn ecdsa_p384() {
    ecdsa!(p384);
}

#[test]
#[ignore = "a measurement"]
fn ed25519() {
    use lockstep_kernels::curve25519::ed25519::{
        KeypairJob, Seed, SignJob, VerifyJob, keypair, sign, verify_vartime,
    };
    use lockstep_kernels::curve25519::prepared::{
        PrepareJob, PreparedVerifyJob, prepare, verify_prepared_vartime,
    };

    let mut random = Random(3);
    let backend = Backend::available()[0];
    let seeds: Vec<_> = (0..1024)
        .map(|_| Seed::from_bytes(&random.bytes()))
        .collect();
    let mut jobs: Vec<_> = seeds.iter().map(KeypairJob::new).collect();
    keypair(backend, &mut jobs);
    let secrets: Vec<_> = jobs.into_iter().map(|job| job.result.unwrap()).collect();
    let keys: Vec<_> = secrets.iter().map(|key| *key.public()).collect();
    let mut jobs: Vec<_> = keys[..KEYS[1]].iter().map(PrepareJob::new).collect();
    prepare(backend, &mut jobs);
    let prepared: Vec<_> = jobs
        .into_iter()
        .map(|job| job.result.unwrap().unwrap())
        .collect();
    let messages: Vec<_> = (0..1024).map(|_| random.vec(64)).collect();
    let signatures = KEYS.map(|count| {
        let mut jobs: Vec<_> = (0..1024)
            .map(|i| SignJob::new(&secrets[i % count], &messages[i]))
            .collect();
        sign(backend, &mut jobs);
        let signatures: Vec<_> = jobs
            .iter()
            .map(|job| job.result.unwrap().unwrap())
            .collect();
        signatures
    });
    let mut variants = Vec::new();
    for items in [1, 8, 64] {
        let keys = &keys;
        variants.push(Variant::new("prepare", items, move || {
            let mut jobs: Vec<_> = keys[..items].iter().map(PrepareJob::new).collect();
            prepare(backend, &mut jobs);
            assert!(jobs.iter().all(|job| matches!(job.result, Some(Ok(_)))));
        }));
    }
    for items in [1, 8, 64, 1024] {
        for (count, signatures) in KEYS.into_iter().zip(&signatures) {
            let (keys, messages) = (&keys, &messages);
            let plain = move || {
                let mut jobs: Vec<_> = (0..items)
                    .map(|i| VerifyJob::new(&keys[i % count], &messages[i], &signatures[i]))
                    .collect();
                verify_vartime(backend, &mut jobs);
                assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
            };
            if count == KEYS[0] {
                variants.push(Variant::new("plain", items, plain));
            }
            let prepared = &prepared;
            let run = move || {
                let mut jobs: Vec<_> = (0..items)
                    .map(|i| {
                        let key = &prepared[i % count];
                        PreparedVerifyJob::new(key, &messages[i], &signatures[i])
                    })
                    .collect();
                verify_prepared_vartime(backend, &mut jobs);
                assert!(jobs.iter().all(|job| job.result == Some(Ok(()))));
            };
            variants.push(Variant::new(format!("prepared, {count} keys"), items, run));
        }
    }
    measure(variants);
}
