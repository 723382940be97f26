//! Invalid inputs, by category: each gets its own error, none changes a neighbour's result.

use lockstep_kernels::nist::{Error, PublicKey, p256, p384};

use super::common::{from_big, hex, nist_backends, secret, wide};

macro_rules! inputs {
    ($name:ident, $curve:ident, $p:literal, $n:literal) => {
        mod $name {
            use super::super::common::Random;
            use super::*;

            const BYTES: usize = $curve::BYTES;

            fn number(digits: &str) -> num_bigint::BigUint {
                num_bigint::BigUint::parse_bytes(digits.as_bytes(), 16).unwrap()
            }

            fn bad_scalars() -> Vec<[u8; BYTES]> {
                vec![
                    [0; BYTES],
                    hex($n),
                    from_big(&(number($n) + 1_u8)),
                    hex($p),
                    [0xff; BYTES],
                ]
            }

            fn good_scalars() -> Vec<[u8; BYTES]> {
                let mut one = [0; BYTES];
                one[BYTES - 1] = 1;
                vec![one, from_big(&(number($n) - 1_u8)), [0x17; BYTES]]
            }

            fn pair(scalar: &[u8]) -> ($curve::SecretKey, $curve::PublicKey) {
                let seed = wide(scalar);
                let mut jobs = [$curve::KeypairJob::new(&seed)];
                $curve::keypair(lockstep_kernels::backend::Backend::PORTABLE, &mut jobs);
                jobs[0].result.clone().unwrap().unwrap()
            }

            fn bad_points() -> Vec<$curve::PublicKey> {
                let (_, good) = pair(&[0x29; BYTES]);
                let mut random = Random(5);
                let mut points = vec![
                    PublicKey {
                        x: [0; BYTES],
                        y: [0; BYTES],
                    },
                    PublicKey {
                        x: good.y,
                        y: good.x,
                    },
                    PublicKey {
                        x: hex($p),
                        y: good.y,
                    },
                    PublicKey {
                        x: good.x,
                        y: hex($p),
                    },
                    PublicKey {
                        x: [0xff; BYTES],
                        y: [0xff; BYTES],
                    },
                    PublicKey {
                        x: random.bytes(),
                        y: random.bytes(),
                    },
                ];
                let mut off = good;
                off.y[BYTES - 1] ^= 1;
                points.push(off);
                // The right residue, but not the canonical number. x = 0 is on neither curve with
                // this y, so the test takes a small x of a point.
                for x in 0..200_u32 {
                    let x = num_bigint::BigUint::from(x);
                    let p = number($p);
                    let b = curve_b(&p);
                    let right = (&x * &x * &x + &p * 3_u8 - &x * 3_u8 + b) % &p;
                    let y = right.modpow(&((&p + 1_u8) >> 2), &p);
                    if &y * &y % &p == right && (&x + &p).bits() as usize <= 8 * BYTES {
                        points.push(PublicKey {
                            x: from_big(&(&x + &p)),
                            y: from_big(&y),
                        });
                        break;
                    }
                }
                points
            }

            fn curve_b(p: &num_bigint::BigUint) -> num_bigint::BigUint {
                let (_, g) = pair(&[1]);
                let x = num_bigint::BigUint::from_bytes_be(&g.x);
                let y = num_bigint::BigUint::from_bytes_be(&g.y);
                (&y * &y + p * p * p - &x * &x * &x + &x * 3_u8) % p
            }

            /// Returns good and bad inputs in turn, starting at every offset, so that each
            /// reaches each lane.
            fn mixed<T: Clone>(good: &[T], bad: &[T]) -> Vec<Vec<(T, bool)>> {
                let length = 2 * good.len().max(bad.len()) + 1;
                let all: Vec<_> = (0..length)
                    .map(|i| match i % 3 {
                        0 => (good[i % good.len()].clone(), true),
                        _ => (bad[i % bad.len()].clone(), false),
                    })
                    .collect();
                (0..length)
                    .map(|start| {
                        all.iter()
                            .cycle()
                            .skip(start)
                            .take(length)
                            .cloned()
                            .collect()
                    })
                    .collect()
            }

            #[test]
            fn scalars() {
                let (_, peer) = pair(&[0x31; BYTES]);
                for backend in nist_backends() {
                    for batch in mixed(&good_scalars(), &bad_scalars()) {
                        let keys: Vec<_> = batch.iter().map(|(bytes, _)| secret(bytes)).collect();
                        let mut jobs: Vec<_> = keys
                            .iter()
                            .map(|key| $curve::EcdhJob::new(key, &peer))
                            .collect();
                        $curve::ecdh(backend, &mut jobs);
                        for (job, (bytes, good)) in jobs.iter().zip(&batch) {
                            let result = job.result.as_ref().unwrap();
                            assert_eq!(result.is_ok(), *good, "{bytes:02x?}");
                            match result {
                                Ok(shared) => {
                                    let alone = secret(bytes);
                                    let mut job = [$curve::EcdhJob::new(&alone, &peer)];
                                    $curve::ecdh(backend, &mut job);
                                    let [job] = job;
                                    let alone = job.result.unwrap().unwrap();
                                    assert_eq!(alone.as_bytes(), shared.as_bytes());
                                }
                                Err(error) => assert_eq!(*error, Error::Scalar),
                            }
                        }

                        let nonce = wide(&[0x77; 32]);
                        let digest = [9; 32];
                        let mut jobs: Vec<_> = keys
                            .iter()
                            .map(|key| $curve::SignJob::new(key, &digest, &nonce))
                            .collect();
                        $curve::ecdsa_sign(backend, &mut jobs);
                        for (job, (_, good)) in jobs.iter().zip(&batch) {
                            assert_eq!(job.result.unwrap().err(), (!good).then_some(Error::Scalar));
                        }
                    }
                }
            }

            #[test]
            fn nonces() {
                // Multiples of n count as zero.
                let bad: Vec<Vec<u8>> = vec![
                    vec![0; 64],
                    hex::<BYTES>($n).to_vec(),
                    from_big::<64>(&(number($n) * 12_345_678_u32)).to_vec(),
                ];
                let good: Vec<Vec<u8>> = good_scalars()
                    .iter()
                    .map(|scalar| scalar.to_vec())
                    .collect();
                let key = secret(&[0x42; BYTES]);
                let digest = [0x55; BYTES];
                for backend in nist_backends() {
                    for batch in mixed(&good, &bad) {
                        let nonces: Vec<_> = batch.iter().map(|(bytes, _)| wide(bytes)).collect();
                        let mut jobs: Vec<_> = nonces
                            .iter()
                            .map(|nonce| $curve::SignJob::new(&key, &digest, nonce))
                            .collect();
                        $curve::ecdsa_sign(backend, &mut jobs);
                        for (job, (_, good)) in jobs.iter().zip(&batch) {
                            assert_eq!(job.result.unwrap().err(), (!good).then_some(Error::Nonce));
                        }
                        let mut jobs: Vec<_> = nonces.iter().map($curve::KeypairJob::new).collect();
                        $curve::keypair(backend, &mut jobs);
                        for (job, (_, good)) in jobs.iter().zip(&batch) {
                            let error = job.result.as_ref().unwrap().as_ref().err();
                            assert_eq!(error, (!good).then_some(&Error::Scalar));
                        }
                    }
                }
            }

            #[test]
            fn s_of_zero() {
                // e = −r·d makes s zero.
                let backend = lockstep_kernels::backend::Backend::available()[0];
                let n = number($n);
                let key = secret(&[0x42; BYTES]);
                let nonce = wide(&[0x24; BYTES]);
                let digest = [0; BYTES];
                let mut jobs = [$curve::SignJob::new(&key, &digest, &nonce)];
                $curve::ecdsa_sign(backend, &mut jobs);
                let r = num_bigint::BigUint::from_bytes_be(&jobs[0].result.unwrap().unwrap().r);
                let d = num_bigint::BigUint::from_bytes_be(key.as_bytes());
                let e = from_big::<BYTES>(&(&n - r * d % &n));
                for backend in nist_backends() {
                    let mut jobs = [
                        $curve::SignJob::new(&key, &digest, &nonce),
                        $curve::SignJob::new(&key, &e, &nonce),
                        $curve::SignJob::new(&key, &digest, &nonce),
                    ];
                    $curve::ecdsa_sign(backend, &mut jobs);
                    let errors = jobs.map(|job| job.result.unwrap().err());
                    assert_eq!(errors, [None, Some(Error::Nonce), None]);
                }
            }

            #[test]
            fn points() {
                let good: Vec<_> = [1, 2, 3].iter().map(|&d| pair(&[d; BYTES]).1).collect();
                let key = secret(&[0x42; BYTES]);
                let signature = $curve::Signature {
                    r: [1; BYTES],
                    s: [1; BYTES],
                };
                for backend in nist_backends() {
                    for batch in mixed(&good, &bad_points()) {
                        let mut jobs: Vec<_> = batch
                            .iter()
                            .map(|(peer, _)| $curve::EcdhJob::new(&key, peer))
                            .collect();
                        $curve::ecdh(backend, &mut jobs);
                        for (job, (peer, good)) in jobs.iter().zip(&batch) {
                            let error = job.result.as_ref().unwrap().as_ref().err();
                            assert_eq!(error, (!good).then_some(&Error::Point), "{peer:02x?}");
                        }
                        let digest = [1; 20];
                        let mut jobs: Vec<_> = batch
                            .iter()
                            .map(|(key, _)| $curve::VerifyJob::new(key, &digest, &signature))
                            .collect();
                        $curve::ecdsa_verify_vartime(backend, &mut jobs);
                        for (job, (_, good)) in jobs.iter().zip(&batch) {
                            let expected = if *good {
                                Error::Signature
                            } else {
                                Error::Point
                            };
                            assert_eq!(job.result, Some(Err(expected)));
                        }
                    }
                }
            }

            #[test]
            fn signature_ranges() {
                let (key, public) = pair(&[0x42; BYTES]);
                let digest = [0x33; BYTES];
                let nonce = wide(&[0x24; BYTES]);
                for backend in nist_backends() {
                    let mut jobs = [$curve::SignJob::new(&key, &digest, &nonce)];
                    $curve::ecdsa_sign(backend, &mut jobs);
                    let good = jobs[0].result.unwrap().unwrap();
                    let mut bad: Vec<_> = bad_scalars()
                        .into_iter()
                        .flat_map(|scalar| {
                            [
                                $curve::Signature { r: scalar, ..good },
                                $curve::Signature { s: scalar, ..good },
                                $curve::Signature {
                                    r: scalar,
                                    s: scalar,
                                },
                            ]
                        })
                        .collect();
                    // s + n where it fits. It would satisfy the equation.
                    let more = number($n) + num_bigint::BigUint::from_bytes_be(&good.s);
                    if more.bits() as usize <= 8 * BYTES {
                        bad.push($curve::Signature {
                            s: from_big(&more),
                            ..good
                        });
                    }
                    for batch in mixed(&[good], &bad) {
                        let mut jobs: Vec<_> = batch
                            .iter()
                            .map(|(signature, _)| {
                                $curve::VerifyJob::new(&public, &digest, signature)
                            })
                            .collect();
                        $curve::ecdsa_verify_vartime(backend, &mut jobs);
                        for (job, (_, good)) in jobs.iter().zip(&batch) {
                            assert_eq!(job.result.unwrap().is_ok(), *good);
                        }
                    }
                }
            }

            #[test]
            fn encodings() {
                let (_, public) = pair(&[0x42; BYTES]);
                let good = public.to_sec1();
                assert_eq!($curve::PublicKey::from_sec1(&good), Ok(public));
                let mut compressed = good[..BYTES + 1].to_vec();
                compressed[0] = 2;
                let mut hybrid = good.clone();
                hybrid[0] = 6;
                let longer = [&good[..], &[0]].concat();
                for bad in [
                    &[][..],
                    &[0],
                    &good[..2 * BYTES],
                    &longer,
                    &compressed,
                    &hybrid,
                ] {
                    assert_eq!($curve::PublicKey::from_sec1(bad), Err(Error::Point));
                }
            }

            #[test]
            fn empty_batches() {
                for backend in nist_backends() {
                    $curve::keypair(backend, &mut []);
                    $curve::ecdsa_sign(backend, &mut []);
                    $curve::ecdsa_verify_vartime(backend, &mut []);
                    $curve::ecdh(backend, &mut []);
                }
            }
        }
    };
}

inputs!(
    on_p256,
    p256,
    "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
    "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"
);
inputs!(
    on_p384,
    p384,
    "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"
);

#[test]
fn secrets_are_not_printed() {
    let key = secret(&[0xab; 32]);
    assert_eq!(format!("{key:?}"), "SecretKey([redacted])");
    let nonce = wide(&[0xab; 32]);
    assert!(!format!("{:?}", p256::SignJob::new(&key, &[], &nonce)).contains("171"));
}
