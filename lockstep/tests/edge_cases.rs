//! The 914 edge cases of Ed25519 from the Community Cryptography Test Vectors (C2SP/CCTV, directory
//! `ed25519`): keys A and first halves R of small order or with a part of small order, in each of
//! their encodings.
//!
//! The file of the vectors is long, and not part of this repository. This program computes the
//! cases from the description of their classes; the hash of all of them is that of the file.

mod common;

use std::collections::BTreeMap;
use std::iter;

use common::workers;
use lockstep::{Algorithm, Key, PrivateKey, PublicKey, Scheme, ToSign, ToVerify, Workers};
use lockstep_testkit::{Edwards, little_endian, to_hex};
use num_bigint::BigUint;
use openssl::pkey::{Id, PKey};
use openssl::sign::Verifier;
use sha2::{Digest, Sha256, Sha512};

/// A signature to check.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    key: [u8; 32],
    signature: [u8; 64],
    message: Vec<u8>,
}

/// How A or R is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A point of small order.
    Small,
    /// The same in an encoding that is not canonical.
    Reencoded,
    /// A point of small order and a multiple of the base point.
    Mixed,
}

/// A or R.
struct Half {
    form: Form,
    encoding: [u8; 32],
    canonical: [u8; 32],
    /// Its part of small order, as a multiple of the point of order 8.
    small: u8,
    /// Its other part, as a multiple of the base point.
    large: BigUint,
}

/// Returns each form of a point with each part of small order.
fn halves(curve: &Edwards, scalar: &BigUint) -> Vec<Half> {
    let of_order_8 = curve.of_order_8();
    let multiple = curve.multiply(scalar, &curve.base());
    let all = (0..8).flat_map(|small: u8| {
        let point = curve.multiply(&small.into(), &of_order_8);
        let canonical = curve.encode(&point);
        let mixed = curve.encode(&curve.add(&multiple, &point));
        let others = curve.other_encodings(&point).into_iter();
        let forms = others.map(|encoding| (Form::Reencoded, encoding, canonical));
        let forms = forms.chain([
            (Form::Small, canonical, canonical),
            (Form::Mixed, mixed, mixed),
        ]);
        let half = |(form, encoding, canonical)| Half {
            form,
            encoding,
            canonical,
            small,
            large: match form {
                Form::Mixed => scalar.clone(),
                _ => BigUint::ZERO,
            },
        };
        forms.map(half).collect::<Vec<_>>()
    });
    all.collect()
}

/// Returns the cases, sorted.
fn cases() -> Vec<Case> {
    let curve = Edwards::new();
    let order = curve.order();
    // The scalars of the published cases: of the key, clamped, and of R.
    let mut key = [0x42; 32];
    key[0] &= 0xf8;
    let key = BigUint::from_bytes_le(&key) % order;
    let nonce = BigUint::from_bytes_le(&[0x13, 0x37].repeat(32)) % order;
    let mut all = Vec::new();
    for a in &halves(&curve, &key) {
        for r in &halves(&curve, &nonce) {
            let [encoded, canonical] = [[r.encoding, a.encoding], [r.canonical, a.canonical]];
            all.extend(signed(order, a, r, encoded));
            // Some verifier may hash the canonical encodings instead.
            if matches!(
                (a.form, r.form),
                (Form::Reencoded, Form::Mixed) | (Form::Mixed, Form::Reencoded)
            ) {
                all.extend(signed(order, a, r, canonical));
            }
        }
    }
    all.sort();
    all
}

/// Returns a case in which the parts of small order cancel out, and one in which they do not, if
/// there are such ones. `hashed` has the encodings of which k is the hash.
fn signed(order: &BigUint, a: &Half, r: &Half, hashed: [[u8; 32]; 2]) -> Vec<Case> {
    // The first message for each k modulo 8.
    let mut first = BTreeMap::new();
    for number in 0.. {
        let message = match number {
            0 => "ed25519vectors".to_owned(),
            _ => format!("ed25519vectors {number}"),
        };
        let hash = Sha512::new().chain_update(hashed.as_flattened());
        let hash = hash.chain_update(&message).finalize();
        let k = BigUint::from_bytes_le(&hash) % order;
        let low = little_endian(&k)[0] % 8;
        first.entry(low).or_insert((message, k));
        if first.len() == 8 {
            break;
        }
    }
    let mut found: BTreeMap<bool, Case> = BTreeMap::new();
    for (low, (message, k)) in first {
        let cancels = (low * a.small + r.small).is_multiple_of(8);
        let second = little_endian(&((&k * &a.large + &r.large) % order));
        found.entry(cancels).or_insert(Case {
            key: a.encoding,
            signature: [r.encoding, second].concat().try_into().expect("halves"),
            message: message.into_bytes(),
        });
    }
    found.into_values().collect()
}

#[test]
fn the_cases_are_the_published_ones() {
    let cases = cases();
    let mut hash = Sha256::new();
    for case in &cases {
        hash.update(case.key);
        hash.update(case.signature);
        hash.update(&case.message);
    }
    let published = "0f8abbe73764ca02be427df22580b377ff9e115c6b621bfe513deae6b7c01e23";
    assert_eq!(
        (cases.len(), to_hex(&hash.finalize())),
        (914, published.to_owned())
    );
}

fn openssl_accepts(case: &Case) -> bool {
    let key = PKey::public_key_from_raw_bytes(&case.key, Id::ED25519).expect("32 bytes");
    let mut verifier = Verifier::new_without_digest(&key).expect("a verifier");
    let verdict = verifier.verify_oneshot(&case.signature, &case.message);
    verdict.unwrap_or(false)
}

/// Each case alone, next to other cases, and next to ordinary signatures, with keys that are
/// prepared, that are not, and with both in turn.
#[test]
fn edge_cases_have_the_verdicts_of_openssl() {
    let cases = cases();
    let expected: Vec<bool> = cases.iter().map(openssl_accepts).collect();
    assert!(expected.contains(&true) && expected.contains(&false));
    let keys: BTreeMap<_, _> = cases
        .iter()
        .map(|case| {
            let key = PublicKey::from_raw(Algorithm::Ed25519, &case.key).expect("32 bytes");
            key.prepare();
            (case.key, key)
        })
        .collect();
    let signer = PrivateKey::from_raw(Algorithm::Ed25519, &[7; 32]).expect("a seed");
    let items = [ToSign::new(&signer, b"neighbour")];
    let signed = Workers::new().sign_many(Scheme::ED25519, &items);
    let signed = signed.expect("a scheme");
    let own = signer.public();
    let neighbour = ToVerify::new(&own, b"neighbour", signed.get(0).expect("a signature"));
    for workers in workers() {
        let check = |items: &[ToVerify<'_>], expected: &[bool], what: &str| {
            let found = workers.verify_many(Scheme::ED25519, items);
            for (number, found) in found.expect("a scheme").iter().enumerate() {
                let ToVerify { key, signature, .. } = &items[number];
                assert_eq!(
                    found.is_ok(),
                    expected[number],
                    "{what} on {}: {found:?}, {key:02x?}, {signature:02x?}",
                    workers.lanes()
                );
            }
        };
        for prepared_of in [0, 1, 2] {
            let item = |number: usize| {
                let case = &cases[number];
                let key = match prepared_of {
                    0 => Key::Raw(&case.key),
                    of if number.is_multiple_of(of) => Key::Object(&keys[&case.key]),
                    _ => Key::Raw(&case.key),
                };
                ToVerify::new(key, &case.message, &case.signature)
            };
            if prepared_of < 2 {
                for (number, expected) in expected.iter().enumerate() {
                    check(&[item(number)], &[*expected], "alone");
                }
            }
            let all: Vec<_> = (0..cases.len()).map(item).collect();
            check(&all, &expected, "together");
            let with = |item| iter::once(item).chain(iter::repeat_n(neighbour, 3));
            let items: Vec<_> = all.iter().copied().flat_map(with).collect();
            let with = |item| iter::once(item).chain(iter::repeat_n(true, 3));
            let expected: Vec<_> = expected.iter().copied().flat_map(with).collect();
            check(&items, &expected, "beside ordinary ones");
        }
    }
}
