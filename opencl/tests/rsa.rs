//! RSA on a device against num-bigint.

mod common;

use lockstep_opencl::{Device, Error, PrivateParts, PublicParts};
use lockstep_testkit::{Random, RsaParts, rsa_keys};
use num_bigint::BigUint;

const SIZES: [usize; 4] = [1024, 2048, 3072, 4096];

/// Returns inputs below a modulus: edges, then random ones.
fn inputs(random: &mut Random, modulus: &[u8], count: usize) -> Vec<Vec<u8>> {
    let n = BigUint::from_bytes_be(modulus);
    let mut numbers: Vec<BigUint> = [0_u8, 1, 2].map(BigUint::from).to_vec();
    // The middle, where one half is all ones.
    let half = BigUint::from(1_u8) << (4 * modulus.len());
    numbers.extend([
        &half - 1_u8,
        half.clone(),
        &half + 1_u8,
        &n - 1_u8,
        &n - 2_u8,
    ]);
    while numbers.len() < count {
        numbers.push(BigUint::from_bytes_be(&random.vec(modulus.len())) % &n);
    }
    numbers.truncate(count);
    numbers
        .iter()
        .map(|number| bytes(number, modulus.len()))
        .collect()
}

fn bytes(number: &BigUint, length: usize) -> Vec<u8> {
    let bytes = number.to_bytes_be();
    [vec![0; length - bytes.len()], bytes].concat()
}

fn assert_public(
    device: &Device,
    random: &mut Random,
    bits: usize,
    keys: &[RsaParts],
    count: usize,
) {
    let mut items = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        let inputs = inputs(random, &key.parts[0], count);
        items.extend(inputs.into_iter().map(|input| (place, input)));
    }
    // Neighbours with other keys.
    items.sort_by_key(|(_, input)| input[bits / 16]);
    let parts = keys.iter().map(|key| PublicParts {
        modulus: &key.parts[0],
        exponent: key.parts[1]
            .iter()
            .fold(0, |e, byte| e << 8 | u32::from(*byte)),
    });
    let parts: Vec<_> = parts.collect();
    let borrowed: Vec<_> = items
        .iter()
        .map(|(place, input)| (*place, &input[..]))
        .collect();
    let results = device.rsa_public(bits, &parts, &borrowed).expect("results");
    assert_eq!(results.len(), items.len() * bits / 8);
    for ((place, input), result) in items.iter().zip(results.chunks(bits / 8)) {
        let [n, e, ..] = keys[*place]
            .parts
            .each_ref()
            .map(|part| BigUint::from_bytes_be(part));
        let expected = BigUint::from_bytes_be(input).modpow(&e, &n);
        assert_eq!(result, bytes(&expected, bits / 8), "{}", keys[*place].name);
    }
}

fn assert_private(
    device: &Device,
    random: &mut Random,
    bits: usize,
    keys: &[RsaParts],
    count: usize,
) {
    let mut items = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        let inputs = inputs(random, &key.parts[0], count);
        items.extend(inputs.into_iter().map(|input| (place, input)));
    }
    items.sort_by_key(|(_, input)| input[bits / 16]);
    let parts = keys.iter().map(|key| {
        let [_, _, p, q, dp, dq, qinv] = &key.parts;
        device.rsa_key(bits, PrivateParts { p, q, dp, dq, qinv })
    });
    let on_device: Vec<_> = parts.collect::<Result<_, _>>().expect("keys");
    let borrowed: Vec<_> = items
        .iter()
        .map(|(place, input)| (*place, &input[..]))
        .collect();
    let results = device
        .rsa_private(bits, &on_device, &borrowed)
        .expect("results");
    assert_eq!(results.len(), items.len() * bits / 8);
    for ((place, input), result) in items.iter().zip(results.chunks(bits / 8)) {
        let [_, _, p, q, dp, dq, qinv] = keys[*place]
            .parts
            .each_ref()
            .map(|part| BigUint::from_bytes_be(part));
        let c = BigUint::from_bytes_be(input);
        let (m_p, m_q) = (c.modpow(&dp, &p), c.modpow(&dq, &q));
        let h = (m_p + &p - &m_q % &p) * qinv % &p;
        assert_eq!(
            result,
            bytes(&(m_q + q * h), bits / 8),
            "{}",
            keys[*place].name
        );
    }
}

#[test]
fn public_operations_of_all_sizes_and_keys() {
    let Some(device) = common::device() else {
        return;
    };
    for bits in SIZES {
        let mut keys = rsa_keys(bits);
        // Devices have exponents of 32 bits.
        keys.retain(|key| key.parts[1].len() <= 4);
        assert!(!keys.is_empty());
        assert_public(&device, &mut Random(1), bits, &keys, 40);
    }
}

#[test]
fn public_operations_of_any_number() {
    let Some(device) = common::device() else {
        return;
    };
    for count in [1, 2, 63, 64, 65, 1000, 10_000] {
        let keys = [RsaParts::ordinary(1024)];
        assert_public(&device, &mut Random(1), 1024, &keys, count);
    }
}

#[test]
fn private_operations_of_all_sizes_and_keys() {
    let Some(device) = common::device() else {
        return;
    };
    for bits in SIZES {
        assert_private(&device, &mut Random(2), bits, &rsa_keys(bits), 9);
    }
}

#[test]
fn private_operations_of_any_number() {
    let Some(device) = common::device() else {
        return;
    };
    for count in [1, 2, 31, 32, 33, 500] {
        let keys = [RsaParts::ordinary(1024)];
        assert_private(&device, &mut Random(2), 1024, &keys, count);
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let Some(device) = common::device() else {
        return;
    };
    let [n, _, p, q, dp, dq, qinv] = &RsaParts::ordinary(1024).parts;
    let (good, input) = (
        PublicParts {
            modulus: n,
            exponent: 65537,
        },
        vec![1; 128],
    );
    let is_refused = |bits, key: PublicParts<'_>, item: (usize, &[u8])| {
        device.rsa_public(bits, &[key], &[item]) == Err(Error::Input)
    };
    assert!(!is_refused(1024, good, (0, &input)));
    assert!(is_refused(1024, good, (1, &input)));
    assert!(is_refused(1024, good, (0, &input[1..])));
    assert!(is_refused(2048, good, (0, &input)));
    assert!(is_refused(1088, good, (0, &input)));
    for exponent in [0, 1, 2, 65536] {
        assert!(is_refused(
            1024,
            PublicParts { exponent, ..good },
            (0, &input)
        ));
    }
    let even = [&n[..127], &[n[127] ^ 1]].concat();
    for modulus in [&even, &n[1..], &[&[1], &n[..]].concat()] {
        assert!(is_refused(
            1024,
            PublicParts { modulus, ..good },
            (0, &input)
        ));
    }
    let parts = PrivateParts { p, q, dp, dq, qinv };
    let short = PrivateParts {
        p: &p[1..],
        ..parts
    };
    assert_eq!(device.rsa_key(1024, short).err(), Some(Error::Input));
    let key = [device.rsa_key(1024, parts).expect("a key")];
    let refused = device.rsa_private(2048, &key, &[(0, &input)]);
    assert_eq!(refused, Err(Error::Input));
    let none = device.rsa_private(1024, &key, &[]).expect("no results");
    assert!(none.is_empty());
}

/// Number of operations in a piece of the long tests.
const PIECE: usize = 1000;

#[test]
#[ignore = "takes minutes: `cargo xtask nightly devices`"]
fn rsa_of_random_numbers_for_long() {
    let device = common::device().expect("`cargo xtask setup` installs one");
    let mut random = Random(common::seed());
    for (bits, pieces) in [(1024, 90), (2048, 8), (3072, 1), (4096, 1)] {
        let keys = [RsaParts::ordinary(bits)];
        for _ in 0..pieces {
            assert_public(&device, &mut random, bits, &keys, PIECE);
            assert_private(&device, &mut random, bits, &keys, PIECE);
        }
    }
}
