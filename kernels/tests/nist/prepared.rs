//! Signatures checked with prepared keys: the verdicts are those of plain keys.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::nist::{Error, p256, p384};
use num_bigint::BigUint;

use super::common::{
    Random, every_fill, every_lane_and_fill, from_big, hex, nist_backends, secret, wide,
};

macro_rules! prepared {
    ($name:ident, $curve:ident, $p:literal, $n:literal) => {
        mod $name {
            use super::*;

            const BYTES: usize = $curve::BYTES;

            struct Case {
                key: $curve::PublicKey,
                prepared: Option<Rc<$curve::PreparedKey>>,
                digest: Vec<u8>,
                signature: $curve::Signature,
            }

            /// Returns cases with prepared keys.
            fn cases(
                backend: Backend,
                cases: Vec<($curve::PublicKey, Vec<u8>, $curve::Signature)>,
            ) -> Vec<Case> {
                let keys: HashSet<_> = cases.iter().map(|(key, ..)| *key).collect();
                let mut jobs: Vec<_> = keys.iter().map($curve::PrepareJob::new).collect();
                $curve::prepare(backend, &mut jobs);
                let prepared: HashMap<_, _> = jobs
                    .into_iter()
                    .map(|job| match job.result.unwrap() {
                        Ok(prepared) => {
                            assert_eq!(prepared.key(), job.key);
                            (job.key, Some(Rc::new(prepared)))
                        }
                        Err(error) => {
                            assert_eq!(error, Error::Point);
                            (job.key, None)
                        }
                    })
                    .collect();
                cases
                    .into_iter()
                    .map(|(key, digest, signature)| Case {
                        key,
                        prepared: prepared[&key].clone(),
                        digest,
                        signature,
                    })
                    .collect()
            }

            /// Checks cases with plain and with prepared keys, in one batch each; returns the
            /// verdicts, which must agree.
            fn verdicts(backend: Backend, cases: &[&Case]) -> Vec<Result<(), Error>> {
                let mut plain: Vec<_> = cases
                    .iter()
                    .map(|case| $curve::VerifyJob::new(&case.key, &case.digest, &case.signature))
                    .collect();
                $curve::ecdsa_verify_vartime(backend, &mut plain);
                let plain: Vec<_> = plain.iter().map(|job| job.result.unwrap()).collect();
                let (on_curve, off): (Vec<_>, Vec<_>) = cases
                    .iter()
                    .zip(&plain)
                    .partition(|(case, _)| case.prepared.is_some());
                for (case, verdict) in off {
                    assert_eq!(*verdict, Err(Error::Point), "{:?}", case.key);
                }
                let mut jobs: Vec<_> = on_curve
                    .iter()
                    .map(|(case, _)| {
                        let key = case.prepared.as_ref().unwrap();
                        $curve::PreparedVerifyJob::new(key, &case.digest, &case.signature)
                    })
                    .collect();
                $curve::ecdsa_verify_prepared_vartime(backend, &mut jobs);
                for (job, (_, verdict)) in jobs.iter().zip(&on_curve) {
                    assert_eq!(job.result, Some(**verdict), "{backend:?} {job:?}");
                }
                plain
            }

            fn number(digits: &str) -> BigUint {
                BigUint::parse_bytes(digits.as_bytes(), 16).unwrap()
            }

            /// Returns k·G for each k in 1..n.
            fn multiples(scalars: &[BigUint]) -> Vec<$curve::PublicKey> {
                let seeds: Vec<_> = scalars.iter().map(|k| wide(&k.to_bytes_be())).collect();
                let mut jobs: Vec<_> = seeds.iter().map($curve::KeypairJob::new).collect();
                $curve::keypair(Backend::available()[0], &mut jobs);
                let results = jobs.into_iter().map(|job| job.result.unwrap().unwrap());
                results.map(|(_, public)| public).collect()
            }

            /// Good signatures, and some that are spoilt in each way.
            #[test]
            fn random_signatures() {
                use ::$curve::ecdsa::signature::hazmat::PrehashSigner;
                let mut random = Random(51);
                let mut all = Vec::new();
                for i in 0..90 {
                    let mut scalar = random.bytes::<BYTES>();
                    scalar[0] &= 0x7f;
                    let signing = ::$curve::ecdsa::SigningKey::from_slice(&scalar).unwrap();
                    let mut digest = random.vec(BYTES + i % 3 * 8);
                    let signature: ::$curve::ecdsa::Signature =
                        signing.sign_prehash(&digest).unwrap();
                    let (r, s) = signature.split_bytes();
                    let mut signature = $curve::Signature {
                        r: r.into(),
                        s: s.into(),
                    };
                    let point = signing.verifying_key().to_encoded_point(false);
                    let mut key = $curve::PublicKey::from_sec1(point.as_bytes()).unwrap();
                    let at = i % BYTES;
                    match i % 9 {
                        0 => digest[at] ^= 1,
                        1 => signature.r[at] ^= 0x10,
                        2 => signature.s[at] ^= 0x80,
                        3 => key.y[at] ^= 2,
                        4 => {
                            signature.s =
                                from_big(&(number($n) - BigUint::from_bytes_be(&signature.s)))
                        }
                        _ => {}
                    }
                    all.push((key, digest, signature));
                }
                for backend in nist_backends() {
                    let cases = cases(backend, all.clone());
                    assert_eq!(
                        cases.iter().filter(|case| case.prepared.is_none()).count(),
                        10
                    );
                    let right = |cases: &[&Case]| {
                        let results = verdicts(backend, cases);
                        assert_eq!(results.len(), cases.len());
                    };
                    every_lane_and_fill(backend, &cases, right);
                    every_fill(&cases, right);
                    let results = verdicts(backend, &cases.iter().collect::<Vec<_>>());
                    for (i, result) in results.iter().enumerate() {
                        assert_eq!(result.is_ok(), i % 9 >= 4, "{i}");
                    }
                }
            }

            /// Many signatures with one key, so that each entry of its table is read.
            #[test]
            fn one_key_many_signatures() {
                let key = secret(&[0x3b; BYTES]);
                let public = multiples(&[BigUint::from_bytes_be(&[0x3b; BYTES])])[0];
                let mut random = Random(52);
                for backend in nist_backends() {
                    let count = if backend == Backend::PORTABLE {
                        150
                    } else {
                        700
                    };
                    let digests: Vec<Vec<u8>> = (0..count).map(|_| random.vec(BYTES)).collect();
                    let nonces: Vec<_> = (0..count).map(|_| wide(&random.bytes::<64>())).collect();
                    let mut jobs: Vec<_> = digests
                        .iter()
                        .zip(&nonces)
                        .map(|(digest, nonce)| $curve::SignJob::new(&key, digest, nonce))
                        .collect();
                    $curve::ecdsa_sign(backend, &mut jobs);
                    let signatures: Vec<_> = jobs
                        .iter()
                        .map(|job| job.result.unwrap().unwrap())
                        .collect();
                    let mut job = [$curve::PrepareJob::new(&public)];
                    $curve::prepare(backend, &mut job);
                    let prepared = job[0].result.take().unwrap().unwrap();
                    let mut jobs: Vec<_> = digests
                        .iter()
                        .zip(&signatures)
                        .map(|(digest, signature)| {
                            $curve::PreparedVerifyJob::new(&prepared, digest, signature)
                        })
                        .collect();
                    $curve::ecdsa_verify_prepared_vartime(backend, &mut jobs);
                    assert!(
                        jobs.iter().all(|job| job.result == Some(Ok(()))),
                        "{backend:?}"
                    );
                    // Each digest with the signature of the next one.
                    let mut jobs: Vec<_> = digests
                        .iter()
                        .zip(signatures.iter().cycle().skip(1))
                        .map(|(digest, signature)| {
                            $curve::PreparedVerifyJob::new(&prepared, digest, signature)
                        })
                        .collect();
                    $curve::ecdsa_verify_prepared_vartime(backend, &mut jobs);
                    let wrong = Some(Err(Error::Signature));
                    assert!(jobs.iter().all(|job| job.result == wrong), "{backend:?}");
                }
            }

            /// Signatures whose u1·G and u2·Q have partial sums that are equal or opposite, or
            /// infinity. Their signers know how Q = c·G was made.
            #[test]
            fn exceptional_sums() {
                let n = number($n);
                let one = BigUint::from(1_u8);
                let inverse = |a: &BigUint| a.modpow(&(&n - 2_u8), &n);
                let mut small: Vec<BigUint> = [1_u32, 2, 3, 5, 16, 31, 32, 33, 127, 129, 1024]
                    .map(BigUint::from)
                    .into();
                small.push(&one << 128);
                let mut scalars = small.clone();
                scalars.extend(small.iter().map(|k| &n - k));
                scalars.push((&n + 1_u8) >> 1);
                let mut factors: Vec<BigUint> = [1_u32, 2, 3, 32].map(BigUint::from).into();
                factors.push(&n - 1_u8);
                factors.push(&n - 2_u8);
                factors.push((&n + 1_u8) >> 1);
                factors.push(inverse(&BigUint::from(31_u8)));

                let mut wanted = Vec::new();
                for c in &factors {
                    for u2 in &scalars {
                        for u1 in scalars.iter().chain([&BigUint::ZERO]) {
                            wanted.push((c, u1, u2, (u1 + u2 * c) % &n));
                        }
                    }
                }
                let sums: Vec<_> = wanted
                    .iter()
                    .map(|(.., sum)| {
                        if *sum == BigUint::ZERO {
                            one.clone()
                        } else {
                            sum.clone()
                        }
                    })
                    .collect();
                let points = multiples(&sums);
                let keys = multiples(&factors);
                let mut all = Vec::new();
                let mut good = Vec::new();
                for ((c, u1, u2, sum), point) in wanted.iter().zip(&points) {
                    let r = BigUint::from_bytes_be(&point.x) % &n;
                    let s = &r * inverse(u2) % &n;
                    let key = keys[factors.iter().position(|f| f == *c).unwrap()];
                    all.push((
                        key,
                        from_big::<BYTES>(&(*u1 * &s % &n)).to_vec(),
                        $curve::Signature {
                            r: from_big(&r),
                            s: from_big(&s),
                        },
                    ));
                    good.push(*sum != BigUint::ZERO);
                }
                assert!(good.contains(&false));
                for backend in nist_backends() {
                    let step = if backend == Backend::PORTABLE { 7 } else { 1 };
                    let all = all.iter().step_by(step).cloned().collect();
                    let cases = cases(backend, all);
                    let results = verdicts(backend, &cases.iter().collect::<Vec<_>>());
                    for (i, (result, good)) in
                        results.iter().zip(good.iter().step_by(step)).enumerate()
                    {
                        assert_eq!(result.is_ok(), *good, "{backend:?}, {i}");
                    }
                    if step == 1 {
                        every_lane_and_fill(backend, &cases[..120], |cases| {
                            verdicts(backend, cases);
                        });
                    }
                }
            }

            /// r and s at and beyond the ends of their range, and keys that are no points.
            #[test]
            fn ranges() {
                let n = number($n);
                let good = multiples(&[BigUint::from(7_u8)])[0];
                let ends = [
                    BigUint::ZERO,
                    BigUint::from(1_u8),
                    &n - 1_u8,
                    n.clone(),
                    &n + 1_u8,
                    number($p),
                    BigUint::from_bytes_be(&[0xff; BYTES]),
                ];
                let mut keys = vec![good; 3];
                keys[1].x = hex($p);
                keys[2].y[0] ^= 1;
                let mut all = Vec::new();
                for key in &keys {
                    for r in &ends {
                        for s in &ends {
                            let signature = $curve::Signature {
                                r: from_big(r),
                                s: from_big(s),
                            };
                            for digest in [vec![], vec![0; BYTES], n.to_bytes_be(), vec![9; 70]] {
                                all.push((*key, digest, signature));
                            }
                        }
                    }
                }
                for backend in nist_backends() {
                    let cases = cases(backend, all.clone());
                    every_fill(&cases, |cases| {
                        for result in verdicts(backend, cases) {
                            assert!(result.is_err());
                        }
                    });
                }
            }

            #[test]
            fn nothing_to_do() {
                for backend in nist_backends() {
                    $curve::prepare(backend, &mut []);
                    $curve::ecdsa_verify_prepared_vartime(backend, &mut []);
                }
            }
        }
    };
}

prepared!(
    on_p256,
    p256,
    "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff",
    "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"
);
prepared!(
    on_p384,
    p384,
    "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"
);
