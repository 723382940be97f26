//! Keys, data and paddings that are odd, malformed or hostile: each gets the result of OpenSSL
//! alone or a clear error, and none a wrong signature.

use openssl::bn::BigNum;
use openssl::hash::{MessageDigest, hash};

use crate::common::{Place, key};
use crate::keys::{
    Parts, coprime_prime, copy, minus_one, number, power_of_two, prime, product, sum,
};
use crate::worker::{Answer, Job, Jobs, Operation};

/// Expected result of a private operation with a key. OpenSSL alone does the same in every case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// The right signature.
    Right,
    /// An error.
    Error,
    /// Something, though the key is none: its private exponent does not belong to it.
    Nonsense,
}

/// Expected counters.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Lanes did it, as this shape.
    Lanes(&'static str),
    /// Lanes tried, saw that the result was wrong, and OpenSSL computed.
    Rescued(&'static str),
    /// The key was left to OpenSSL for this reason.
    Stock(&'static str),
}

use Outcome::{Error, Nonsense, Right};
use Way::{Lanes, Rescued, Stock};

#[test]
fn odd_keys() {
    let good = Parts::from_pem(&key("rsa2048")).ordered(true);
    let e = number(65537);
    let (p, q) = (prime(1024), prime(1024));
    let changed = |change: &dyn Fn(&mut Parts)| {
        let mut parts = good.duplicate();
        change(&mut parts);
        parts
    };
    let plus = |a: &BigNum, b: u32| sum(a, &number(b));
    let with_e = |bits: i32, e: &BigNum| {
        Parts::new(&coprime_prime(bits / 2, e), &coprime_prime(bits / 2, e), e)
    };
    let wide = |bits: i32| plus(&power_of_two(bits - 1), 1);
    // To look for such large primes takes OpenSSL a minute, now and then.
    let known = [
        BigNum::get_rfc3526_prime_6144(),
        BigNum::get_rfc3526_prime_2048(),
    ];
    let known = known.map(|prime| prime.expect("memory"));
    let beyond_n = sum(&e, &product(&minus_one(&good.p), &minus_one(&good.q)));
    #[rustfmt::skip]
    let table: Vec<(&str, Parts, Outcome, Way)> = vec![
        ("p > q", good.duplicate(), Right, Lanes("rsa2048")),
        ("p < q", good.duplicate().ordered(false), Right, Lanes("rsa2048")),
        ("p = q", Parts::new(&p, &p, &e), Nonsense, Stock("inconsistent")),
        ("unequal halves", Parts::new(&prime(1000), &prime(1048), &e), Right, Stock("unequal_halves")),
        ("very unequal halves", Parts::new(&prime(128), &prime(1920), &e), Right, Stock("unequal_halves")),
        ("even modulus", changed(&|k| k.n = minus_one(&k.n)), Error, Stock("even_modulus")),
        ("even prime", changed(&|k| k.p = minus_one(&k.p)), Error, Stock("even_modulus")),
        ("e = 0", changed(&|k| k.e = number(0)), Nonsense, Stock("exponent")),
        ("e = 1", Parts::new(&p, &q, &number(1)), Right, Stock("exponent")),
        ("e = 2", changed(&|k| k.e = number(2)), Nonsense, Stock("exponent")),
        ("e = 3", with_e(2048, &number(3)), Right, Lanes("rsa2048")),
        ("e = 3, 1024 bits", with_e(1024, &number(3)), Right, Lanes("rsa1024")),
        ("e of 64 bits", with_e(2048, &wide(64)), Right, Lanes("rsa2048")),
        ("e of 65 bits", with_e(2048, &wide(65)), Right, Lanes("rsa2048_wide_exponent")),
        ("e of 2047 bits", with_e(2048, &wide(2047)), Right, Lanes("rsa2048_wide_exponent")),
        ("e of 3000 bits", with_e(3072, &wide(3000)), Right, Lanes("rsa3072_wide_exponent")),
        ("e of 64 bits, 4096 bits", with_e(4096, &wide(64)), Right, Lanes("rsa4096")),
        ("e of 65 bits, 4096 bits", with_e(4096, &wide(65)), Right, Stock("exponent")),
        ("e > n", changed(&|k| k.e = sum(&beyond_n, &beyond_n)), Nonsense, Stock("exponent")),
        ("e = 65537 + phi(n) < n", changed(&|k| k.e = copy(&beyond_n)), Right, Lanes("rsa2048_wide_exponent")),
        ("wrong iqmp", changed(&|k| k.qinv = plus(&k.qinv, 1)), Right, Stock("inconsistent")),
        ("iqmp = 0", changed(&|k| k.qinv = number(0)), Right, Stock("inconsistent")),
        // No wider than p: beyond that, OpenSSL alone fails or not, by the top bits of a random
        // key.
        ("iqmp > p", changed(&|k| k.qinv = plus(&k.p, 1)), Right, Stock("inconsistent")),
        ("wrong dp", changed(&|k| k.dp = minus_one(&k.dp)), Right, Rescued("rsa2048")),
        ("wrong dq", changed(&|k| k.dq = minus_one(&k.dq)), Right, Rescued("rsa2048")),
        ("dp = 1", changed(&|k| k.dp = number(1)), Right, Rescued("rsa2048")),
        ("dp = 0", changed(&|k| k.dp = number(0)), Right, Stock("inconsistent")),
        ("dp > p", changed(&|k| k.dp = sum(&k.dp, &minus_one(&k.p))), Right, Stock("inconsistent")),
        ("wrong d", changed(&|k| k.d = plus(&k.d, 2)), Right, Lanes("rsa2048")),
        ("wrong d and dp", changed(&|k| { k.d = plus(&k.d, 2); k.dp = minus_one(&k.dp); }), Nonsense, Rescued("rsa2048")),
        ("wrong p", changed(&|k| k.p = plus(&k.p, 2)), Right, Stock("inconsistent")),
        ("wrong q", changed(&|k| k.q = plus(&k.q, 2)), Right, Stock("inconsistent")),
        ("wrong n", changed(&|k| k.n = plus(&k.n, 2)), Nonsense, Stock("inconsistent")),
        ("p = 0", changed(&|k| k.p = number(0)), Error, Stock("inconsistent")),
        ("p = 1", changed(&|k| k.p = number(1)), Right, Stock("unequal_halves")),
        ("p = n, q = 1", changed(&|k| { k.p = copy(&k.n); k.q = number(1); }), Right, Stock("unequal_halves")),
        ("n = 0", changed(&|k| k.n = number(0)), Error, Stock("key_size")),
        ("512 bits", with_e(512, &e), Right, Stock("key_size")),
        ("1536 bits", with_e(1536, &e), Right, Stock("key_size")),
        ("2047 bits", Parts::with_bits(2047, &e), Right, Stock("key_size")),
        ("2049 bits", Parts::with_bits(2049, &e), Right, Stock("key_size")),
        ("8192 bits", Parts::new(&known[0], &known[1], &e), Right, Stock("key_size")),
    ];
    let mut wrong = Vec::new();
    for (name, parts, outcome, way) in &table {
        let mut jobs = Jobs::default();
        jobs.keys.push(parts.der());
        wrong.extend(try_key(name, jobs, parts, *outcome, *way));
    }
    let mut jobs = Jobs::default();
    jobs.keys
        .push(std::fs::read(key("three-primes")).expect("a key"));
    let three = Parts::public_of(&key("three-primes"));
    wrong.extend(try_key(
        "three primes",
        jobs,
        &three,
        Right,
        Stock("multi_prime"),
    ));
    let mut jobs = Jobs::default();
    jobs.without_crt.push(good.duplicate());
    wrong.extend(try_key(
        "no CRT parts",
        jobs,
        &good,
        Right,
        Stock("missing_crt"),
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Makes one raw private operation with a key, on lanes and by OpenSSL alone; returns the
/// differences from the expectation.
fn try_key(
    name: &str,
    mut jobs: Jobs,
    parts: &Parts,
    outcome: Outcome,
    way: Way,
) -> Option<String> {
    let place = Place::new();
    // As long as n and below it.
    let mut input = vec![0x5c; parts.n.num_bytes().max(64) as usize];
    input[0] = 0;
    jobs.jobs.push(Job {
        key: 0,
        operation: Operation::Raw,
        input: input.clone(),
    });
    let (_, stock) = jobs.answer_all(&place, 1, false);
    let (ours, answers) = jobs.answer_all(&place, 1, true);
    let counters = ours.try_counters();
    let count = |of: &dyn Fn(&crate::common::Counters) -> u64| counters.as_ref().map_or(0, of);
    let (operations, fallbacks) = (count(&|c| c.operations()), count(&|c| c.fallbacks()));
    let right = |answer: &Answer| answer.as_ref().is_some_and(|s| parts.public(s) == input);
    let as_expected = match outcome {
        Right => right(&answers[0]),
        Error => answers[0].is_none(),
        Nonsense => answers[0].is_some(),
    };
    let counted = match way {
        Lanes(shape) => (operations, fallbacks) == (1, 0) && count(&|c| c.of(shape)) == 1,
        Rescued(shape) => {
            (operations, fallbacks) == (1, 1)
                && count(&|c| c.of(shape)) == 1
                && count(&|c| c.fallback("check_failed")) == 1
                && count(&|c| c.failed_checks) == 1
        }
        Stock(reason) => (operations, fallbacks) == (0, 1) && count(&|c| c.fallback(reason)) == 1,
    };
    let problem = format!(
        "{name}: expected {outcome:?} by {way:?}; answer {}, stock {}, {operations} on lanes, fallbacks {:?}",
        if right(&answers[0]) {
            "right"
        } else if answers[0].is_some() {
            "not right"
        } else {
            "an error"
        },
        if right(&stock[0]) {
            "right"
        } else if stock[0].is_some() {
            "not right"
        } else {
            "an error"
        },
        counters.as_ref().map(|c| c.reasons()),
    );
    // Wrong results are random, because blinding does not cancel out.
    let as_stock = answers == stock
        || outcome == Nonsense && stock[0].is_some() && !right(&stock[0]) && !right(&answers[0]);
    (!as_stock || !as_expected || !counted).then_some(problem)
}

#[test]
fn odd_data() {
    for name in ["rsa1024", "rsa2048", "rsa3072", "rsa4096"] {
        let parts = Parts::from_pem(&key(name));
        let length = parts.bytes();
        let mut jobs = Jobs::default();
        jobs.add_key(&key(name));
        let mut valid = 0;
        let mut add = |input: Vec<u8>, fits: bool| {
            valid += u64::from(fits);
            jobs.jobs.push(Job {
                key: 0,
                operation: Operation::Raw,
                input,
            });
        };
        let below_n = [
            number(0),
            number(1),
            number(2),
            minus_one(&parts.n),
            copy(&parts.p),
            copy(&parts.q),
            product(&parts.p, &number(3)),
            product(&parts.q, &minus_one(&minus_one(&parts.p))),
            // The highest limb of 52 bits, and more, is zero.
            power_of_two(8 * length as i32 - 60),
            power_of_two(4 * length as i32),
            minus_one(&power_of_two(4 * length as i32)),
            minus_one(&power_of_two(8 * length as i32 - 1)),
        ];
        for number in &below_n {
            add(parts.block(number), true);
        }
        // Results with leading zero bytes: the power of a short number.
        for bits in [
            1,
            8,
            51,
            52,
            53,
            64,
            4 * length as i32,
            8 * length as i32 - 9,
            8 * length as i32 - 65,
        ] {
            add(parts.public(&minus_one(&power_of_two(bits)).to_vec()), true);
        }
        for number in [
            copy(&parts.n),
            sum(&parts.n, &number(1)),
            minus_one(&power_of_two(8 * length as i32)),
        ] {
            add(parts.block(&number), false);
        }
        add(vec![0; length + 1], false);
        add(Vec::new(), false);
        add(vec![1; length - 1], false);
        check_jobs(&mut jobs, &format!("odd data for {name}"), name, valid);
    }
}

#[test]
fn odd_paddings() {
    for name in ["rsa1024", "rsa2048", "rsa4096"] {
        let parts = Parts::from_pem(&key(name));
        let length = parts.bytes();
        let mut jobs = Jobs::default();
        jobs.add_key(&key(name));
        let mut add = |block: &[u8], operation: Operation| {
            jobs.jobs.push(Job {
                key: 0,
                operation,
                input: parts.public(block),
            });
        };
        let step = length / 64;
        let pkcs1 = |change: &dyn Fn(&mut [u8])| {
            let mut block = vec![0x77; length];
            block[..2].copy_from_slice(&[0, 2]);
            change(&mut block);
            block
        };
        // The separating zero byte in every place (and so every length of the padding), and
        // nowhere.
        for at in (0..16)
            .chain((16..length).step_by(step))
            .chain([length - 2, length - 1])
        {
            add(&pkcs1(&|block| block[at] = 0), Operation::DecryptPkcs1);
        }
        add(&pkcs1(&|_| ()), Operation::DecryptPkcs1);
        for header in [[0, 0], [0, 1], [0, 3], [1, 2], [1, 1]] {
            let block = pkcs1(&|block| {
                block[..2].copy_from_slice(&header);
                block[length / 2] = 0;
            });
            add(&block, Operation::DecryptPkcs1);
        }
        for label in [&b""[..], b"label"] {
            let operation = || Operation::DecryptOaep {
                digest: "sha1".into(),
                mgf: "sha1".into(),
                label: b"label".to_vec(),
            };
            let digest = hash(MessageDigest::sha1(), label)
                .expect("a digest")
                .to_vec();
            let good = |message: &[u8]| {
                let mut data = vec![0; length - 21];
                data[..20].copy_from_slice(&digest);
                let start = data.len() - message.len();
                data[start..].copy_from_slice(message);
                data[start - 1] = 1;
                data
            };
            let longest = vec![9; length - 42];
            for message in [&b""[..], b"m", &longest] {
                add(&oaep(&good(message), 0), operation());
            }
            add(&oaep(&good(b"m"), 1), operation());
            // One wrong byte everywhere: in the digest, the padding, the mark.
            for at in (0..20)
                .chain((20..length - 21).step_by(step))
                .chain([length - 23])
            {
                let mut data = good(b"m");
                data[at] ^= 2;
                add(&oaep(&data, 0), operation());
            }
            let mut unmarked = good(b"");
            *unmarked.last_mut().expect("not empty") = 0;
            add(&oaep(&unmarked, 0), operation());
        }
        // OpenSSL's own code does all of PKCS#1 v1.5.
        let oaep = jobs.jobs.iter().filter(|job| !job.is_pkcs1_decryption());
        let on_lanes = oaep.count() as u64;
        check_jobs(
            &mut jobs,
            &format!("odd paddings for {name}"),
            name,
            on_lanes,
        );
    }
}

/// Two signatures of one message, each with one of the two public keys, would reveal the scalar.
#[test]
fn an_ed25519_key_with_another_public_key_is_left_to_openssl() {
    let place = Place::new();
    let program = place.compile("mismatched");
    let key = place.key("ed25519");
    let finished = place.program(&program, &key).with_lockstep().succeed();
    let counters = finished.counters();
    // The engine is asked for each, and declines all but the first.
    assert_eq!(counters.of("ed25519-sign"), 11, "{finished}");
    assert_eq!(counters.fallback("inconsistent"), 10, "{finished}");
    assert_eq!(counters.fallbacks(), 10, "{finished}");
}

/// An OAEP block (SHA-1) with these unmasked data and first byte.
fn oaep(data: &[u8], first: u8) -> Vec<u8> {
    let seed = [0x3c; 20];
    let masked: Vec<u8> = xor(data, &mgf1(&seed, data.len()));
    let masked_seed = xor(&seed, &mgf1(&masked, seed.len()));
    [&[first][..], &masked_seed, &masked].concat()
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// MGF1 with SHA-1 (RFC 8017, B.2.1).
fn mgf1(seed: &[u8], length: usize) -> Vec<u8> {
    let block = |counter: u32| {
        hash(
            MessageDigest::sha1(),
            &[seed, &counter.to_be_bytes()].concat(),
        )
        .expect("a digest")
        .to_vec()
    };
    (0..).flat_map(block).take(length).collect()
}

/// Runs jobs by OpenSSL alone and, by many threads, on lanes: equal answers, and this many
/// operations.
#[track_caller]
fn check_jobs(jobs: &mut Jobs, what: &str, shape: &str, operations: u64) {
    let place = Place::new();
    let (_, stock) = jobs.answer_all(&place, 1, false);
    let (ours, answers) = jobs.answer_all(&place, 8, true);
    for (index, (ours, stock)) in answers.iter().zip(&stock).enumerate() {
        assert_eq!(
            ours, stock,
            "{what}, number {index}: {:?}",
            jobs.jobs[index]
        );
    }
    assert!(stock.iter().any(Option::is_some));
    let counters = ours.counters();
    assert_eq!(counters.of(shape), operations, "{counters:?}");
    assert_eq!(counters.operations(), operations, "{counters:?}");
    let pkcs1 = jobs.jobs.iter().filter(|job| job.is_pkcs1_decryption());
    let by_stock = pkcs1.count() as u64;
    assert_eq!(counters.fallback("pkcs1_decryption"), by_stock);
    assert_eq!(counters.fallbacks(), by_stock, "{counters:?}");
}
