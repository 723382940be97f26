//! NIST's own vectors (ACVP), in every lane and fill. Long results are kept as hashes: the
//! independent crate computes the bytes, their hash must match, and all lanes must give the same
//! bytes.

use lockstep_testkit::hex_array;
use sha2::{Digest as _, Sha256};

use super::*;

/// The fields of all lines of a kind, after the kind itself.
fn lines<const FIELDS: usize>(kind: &str) -> Vec<[&'static str; FIELDS]> {
    let lines = include_str!("acvp.txt").lines();
    let fields = lines.filter_map(|line| line.strip_prefix(kind));
    let fields = fields.map(|line| Vec::from_iter(line.split_whitespace()));
    fields
        .map(|fields| fields.try_into().expect("as many fields as that"))
        .collect()
}

fn assert_hash(bytes: &[u8], hash: &str) {
    assert_eq!(Sha256::digest(bytes)[..], hex_array::<32>(hash));
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
            let key = EncapsulationKey768::new(&public_key.into()).expect("a valid key");
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
