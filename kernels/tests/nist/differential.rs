//! Each backend against the crates p256 and p384: random scalars, edge scalars, all fills.

use lockstep_kernels::nist::{Error, nonce, p256 as ours256, p384 as ours384};
use num_bigint::BigUint;

use super::common::{Random, every_lane_and_fill, from_big, nist_backends, refused, secret, wide};

/// Returns scalars for which a multiplication may go wrong: next to 0 and n, next to powers of two,
/// scalars with an exceptional addition in the last window, and long runs of equal bits.
fn edge_scalars<const BYTES: usize>(n: &BigUint) -> Vec<[u8; BYTES]> {
    let one = BigUint::from(1_u8);
    let bits = 8 * BYTES;
    let mut scalars: Vec<BigUint> = (1..=70_u8).map(BigUint::from).collect();
    scalars.extend((1..=70_u8).map(|i| n - i));
    for bit in (2..bits)
        .step_by(5)
        .chain([51, 52, 53, 103, 104, 155, 156, bits - 1])
    {
        let power = &one << bit;
        scalars.extend([&power - &one, power.clone(), &power + &one]);
    }
    // k = 2D − n for an odd multiple D of 2^t near n: the sum below bit t is D − n, so D is added
    // to D. It is the last window of k·G, the upper half of k·P in parts, and the upper parts of
    // k·G in two parts or more.
    let window = (bits.div_ceil(7) - 1) * 7;
    let parts = [2, 4, 8].map(|parts| bits.div_ceil(7).div_ceil(parts) * 7 * parts / 2);
    for lowest in [window, bits / 2].into_iter().chain(parts) {
        let odd = (n >> lowest) | &one;
        for odd in [&odd - 2_u8, odd.clone(), odd + 2_u8] {
            let doubled: BigUint = odd << (lowest + 1);
            if doubled > *n && &doubled - n < *n {
                scalars.push(&doubled - n);
                scalars.push(n - (&doubled - n));
            }
        }
    }
    let mut random = Random(7);
    scalars.extend((0..60).map(|_| BigUint::from_bytes_be(&random.runs::<BYTES>())));
    scalars.retain(|k| *k >= one && k < n);
    scalars.iter().map(from_big).collect()
}

macro_rules! differential {
    ($name:ident, $ours:ident, $theirs:ident, $order:literal) => {
        mod $name {
            use super::*;
            use ::$theirs::ecdsa::signature::hazmat::PrehashVerifier;

            const BYTES: usize = $ours::BYTES;

            fn order() -> BigUint {
                BigUint::parse_bytes($order, 16).unwrap()
            }

            fn their_public(secret: &::$theirs::SecretKey) -> $ours::PublicKey {
                use ::$theirs::elliptic_curve::sec1::ToEncodedPoint;
                let point = secret.public_key().to_encoded_point(false);
                $ours::PublicKey::from_sec1(point.as_bytes()).unwrap()
            }

            /// Returns secret bytes, our public key, and the crate's secret key.
            fn keys() -> Vec<([u8; BYTES], $ours::PublicKey, ::$theirs::SecretKey)> {
                let mut random = Random(1);
                let mut scalars = edge_scalars::<BYTES>(&order());
                scalars.extend((0..40).map(|_| {
                    let wide = BigUint::from_bytes_be(&random.bytes::<64>());
                    from_big(&(wide % order()))
                }));
                scalars
                    .into_iter()
                    .map(|bytes| {
                        let theirs = ::$theirs::SecretKey::from_slice(&bytes).unwrap();
                        (bytes, their_public(&theirs), theirs)
                    })
                    .collect()
            }

            #[test]
            fn key_pairs() {
                let keys = keys();
                for backend in nist_backends() {
                    every_lane_and_fill(backend, &keys, |keys| {
                        let seeds: Vec<_> = keys.iter().map(|(bytes, ..)| wide(bytes)).collect();
                        let mut jobs: Vec<_> = seeds.iter().map($ours::KeypairJob::new).collect();
                        $ours::keypair(backend, &mut jobs);
                        for (job, (bytes, public, _)) in jobs.iter().zip(keys) {
                            let (secret, made) = job.result.as_ref().unwrap().as_ref().unwrap();
                            assert_eq!((secret.as_bytes(), made), (bytes, public), "{bytes:02x?}");
                        }
                    });
                }
            }

            #[test]
            fn wide_seeds() {
                let mut random = Random(2);
                let seeds: Vec<[u8; 64]> = (0..50)
                    .map(|i| {
                        if i % 2 == 0 {
                            random.bytes()
                        } else {
                            random.runs()
                        }
                    })
                    .chain([[0xff; 64]])
                    .collect();
                for backend in nist_backends() {
                    let wides: Vec<_> = seeds
                        .iter()
                        .map(lockstep_kernels::nist::Wide::from_bytes)
                        .collect();
                    let mut jobs: Vec<_> = wides.iter().map($ours::KeypairJob::new).collect();
                    $ours::keypair(backend, &mut jobs);
                    for (job, seed) in jobs.iter().zip(&seeds) {
                        let expected: [u8; BYTES] =
                            from_big(&(BigUint::from_bytes_be(seed) % order()));
                        let (secret, _) = job.result.as_ref().unwrap().as_ref().unwrap();
                        assert_eq!(secret.as_bytes(), &expected);
                    }
                }
            }

            #[test]
            fn agreements() {
                let keys = keys();
                let expected: Vec<_> = keys
                    .iter()
                    .zip(keys.iter().rev())
                    .map(|((mine, _, theirs), (_, public, other))| {
                        let secret = ::$theirs::ecdh::diffie_hellman(
                            theirs.to_nonzero_scalar(),
                            other.public_key().as_affine(),
                        );
                        (
                            secret_bytes(mine),
                            *public,
                            secret.raw_secret_bytes().to_vec(),
                        )
                    })
                    .collect();
                for backend in nist_backends() {
                    every_lane_and_fill(backend, &expected, |cases| {
                        let mut jobs: Vec<_> = cases
                            .iter()
                            .map(|(key, peer, _)| $ours::EcdhJob::new(key, peer))
                            .collect();
                        $ours::ecdh(backend, &mut jobs);
                        for (job, (key, _, expected)) in jobs.iter().zip(cases) {
                            let shared = job.result.as_ref().unwrap().as_ref().unwrap();
                            assert_eq!(&shared.as_bytes()[..], expected, "{:02x?}", key.as_bytes());
                        }
                    });
                }
            }

            fn secret_bytes(bytes: &[u8; BYTES]) -> $ours::SecretKey {
                secret(bytes)
            }

            #[test]
            fn signatures() {
                let keys = keys();
                let mut random = Random(3);
                let cases: Vec<_> = keys
                    .iter()
                    .map(|(bytes, public, theirs)| {
                        let length = [20, 28, 32, 48, 64][random.word() as usize % 5];
                        let digest = match random.word() % 4 {
                            0 => vec![0; length],
                            1 => vec![0xff; length],
                            _ => random.bytes::<64>()[..length].to_vec(),
                        };
                        let key = secret_bytes(bytes);
                        let nonce = match random.word() % 4 {
                            // The nonce is an edge scalar as well.
                            0 => wide(&keys[random.word() as usize % keys.len()].0),
                            _ => nonce::hedged(&key, &random.bytes(), &digest),
                        };
                        (key, *public, theirs.public_key(), digest, nonce)
                    })
                    .collect();
                for backend in nist_backends() {
                    every_lane_and_fill(backend, &cases, |cases| {
                        let mut jobs: Vec<_> = cases
                            .iter()
                            .map(|(key, _, _, digest, nonce)| {
                                $ours::SignJob::new(key, digest, nonce)
                            })
                            .collect();
                        $ours::ecdsa_sign(backend, &mut jobs);
                        let signatures: Vec<_> = jobs
                            .iter()
                            .map(|job| job.result.unwrap().unwrap())
                            .collect();

                        // Every other signature is changed, each in its own way.
                        let spoilt: Vec<_> = signatures
                            .iter()
                            .zip(cases)
                            .enumerate()
                            .map(|(i, (signature, case))| {
                                let (mut signature, mut digest) = (*signature, case.3.clone());
                                match i % 6 {
                                    1 => signature.r[BYTES - 1] ^= 1,
                                    3 => signature.s[0] ^= 0x10,
                                    5 => digest[3] ^= 0x80,
                                    _ => {}
                                }
                                (signature, digest, i % 2 == 1)
                            })
                            .collect();
                        let mut jobs: Vec<_> = spoilt
                            .iter()
                            .zip(cases)
                            .map(|((signature, digest, _), case)| {
                                $ours::VerifyJob::new(&case.1, digest, signature)
                            })
                            .collect();
                        $ours::ecdsa_verify_vartime(backend, &mut jobs);
                        for (job, (_, _, bad)) in jobs.iter().zip(&spoilt) {
                            let result = job.result.unwrap();
                            assert!(if *bad {
                                refused(result)
                            } else {
                                result.is_ok()
                            });
                        }
                    });
                    // The independent crate accepts our signatures.
                    let mut jobs: Vec<_> = cases
                        .iter()
                        .map(|(key, _, _, digest, nonce)| $ours::SignJob::new(key, digest, nonce))
                        .collect();
                    $ours::ecdsa_sign(backend, &mut jobs);
                    for (job, (_, _, public, digest, _)) in jobs.iter().zip(&cases) {
                        let ours = job.result.unwrap().unwrap();
                        let theirs =
                            ::$theirs::ecdsa::Signature::from_scalars(ours.r, ours.s).unwrap();
                        let verifier = ::$theirs::ecdsa::VerifyingKey::from(public);
                        // It refuses digests of less than half the order's length.
                        if digest.len() >= BYTES / 2 {
                            verifier.verify_prehash(digest, &theirs).unwrap();
                        }
                    }
                }
            }

            #[test]
            fn signatures_with_small_and_large_parts() {
                // u1 = 0, u1·G = ±u2·Q and r near its bounds: the exceptions of the last addition.
                let n = order();
                let one = secret_bytes(&from_big(&BigUint::from(1_u8)));
                let seed = wide(one.as_bytes());
                for backend in nist_backends() {
                    let mut jobs = [$ours::KeypairJob::new(&seed)];
                    $ours::keypair(backend, &mut jobs);
                    let (_, generator) = jobs[0].result.clone().unwrap().unwrap();
                    let minus_generator = {
                        let seed = wide(&from_big::<BYTES>(&(&n - 1_u8)));
                        let mut jobs = [$ours::KeypairJob::new(&seed)];
                        $ours::keypair(backend, &mut jobs);
                        jobs[0].result.clone().unwrap().unwrap().1
                    };
                    let zero_digest = vec![0; BYTES];
                    let r = from_big::<BYTES>(&(BigUint::from_bytes_be(&generator.x) % &n));
                    // With r = e: u1 = u2, so u1·G + u2·G is a doubling, u1·G − u2·G infinity.
                    let equal = r.to_vec();
                    let double = (&BigUint::from(2_u8)).clone();
                    let two = {
                        let seed = wide(&from_big::<BYTES>(&double));
                        let mut jobs = [$ours::KeypairJob::new(&seed)];
                        $ours::keypair(backend, &mut jobs);
                        jobs[0].result.clone().unwrap().unwrap().1
                    };
                    let r2 = BigUint::from_bytes_be(&two.x) % &n;
                    let r2_bytes = from_big::<BYTES>(&r2);
                    // s = e = r: u1 = u2 = 1, the sum is 2G, whose x must be r.
                    let doubling = $ours::Signature {
                        r: r2_bytes,
                        s: r2_bytes,
                    };
                    // u1 = 0 and u2 = 1: the sum is Q = G.
                    let lone = $ours::Signature { r, s: r };
                    let cases = [
                        ($ours::VerifyJob::new(&generator, &zero_digest, &lone), true),
                        (
                            $ours::VerifyJob::new(&generator, &r2_bytes, &doubling),
                            true,
                        ),
                        (
                            $ours::VerifyJob::new(&minus_generator, &r2_bytes, &doubling),
                            false,
                        ),
                        (
                            $ours::VerifyJob::new(&minus_generator, &equal, &lone),
                            false,
                        ),
                        (
                            $ours::VerifyJob::new(&minus_generator, &zero_digest, &lone),
                            true,
                        ),
                    ];
                    let (mut jobs, good): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
                    // All together, in pairs and alone.
                    for fill in [5, 2, 1] {
                        for (jobs, good) in jobs.chunks_mut(fill).zip(good.chunks(fill)) {
                            $ours::ecdsa_verify_vartime(backend, jobs);
                            for (job, good) in jobs.iter_mut().zip(good) {
                                let expected = if *good { Ok(()) } else { Err(Error::Signature) };
                                assert_eq!(job.result.take(), Some(expected));
                            }
                        }
                    }
                }
            }
        }
    };
}

differential!(
    on_p256,
    ours256,
    p256,
    b"ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"
);
differential!(
    on_p384,
    ours384,
    p384,
    b"ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"
);
