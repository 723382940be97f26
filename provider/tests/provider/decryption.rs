//! RSA decryption: the results of OpenSSL alone for messages that start with zero bytes, and where
//! the bytes of a decrypted message must not go.

use crate::common::{Counters, Place, key};
use crate::keys::Parts;
use lockstep_testkit::to_hex;

/// How many zero bytes a message starts with.
const ZEROS: [usize; 7] = [0, 1, 2, 8, 9, 16, 100];

/// The one decryption that `programs/decrypt_trace.c` makes by itself.
const FIRST_USE: u64 = 1;

/// Messages of this length that start with so many zero bytes.
fn messages(length: usize) -> impl Iterator<Item = Vec<u8>> {
    ZEROS.into_iter().map(move |zeros| {
        let mut message = vec![0x5b; length];
        message[..zeros.min(length)].fill(0);
        message
    })
}

/// Decrypts with OpenSSL alone and with lanes: the results are equal. Returns them, one for each
/// ciphertext, and the counters with lanes.
#[track_caller]
fn decrypted(name: &str, mode: &str, ciphertexts: &[Vec<u8>]) -> (Vec<String>, Counters) {
    let place = Place::new();
    let program = place.compile("decrypt_trace");
    let mut arguments = format!("{} {mode}", place.key(name));
    for (number, ciphertext) in ciphertexts.iter().enumerate() {
        let file = format!("sealed{number:02}");
        place.write(&file, ciphertext);
        arguments = format!("{arguments} {file}");
    }
    let stock = place.program(&program, &arguments).succeed();
    let ours = place.program(&program, &arguments).with_lockstep();
    let ours = ours.succeed();
    assert_eq!(ours.text(), stock.text(), "{ours}");
    let results: Vec<String> = ours.text().lines().map(str::to_owned).collect();
    assert_eq!(results.len(), ciphertexts.len(), "{ours}");
    (results, ours.counters())
}

/// Blocks raised to the public exponent.
fn sealed(name: &str, blocks: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let parts = Parts::from_pem(&key(name));
    blocks.iter().map(|block| parts.public(block)).collect()
}

/// 00 02 PS 00 and the message: a block of PKCS#1 v1.5 for decryption.
fn pkcs1(length: usize, message: &[u8]) -> Vec<u8> {
    let mut block = vec![0x77; length];
    block[..2].copy_from_slice(&[0, 2]);
    let start = length - message.len();
    block[start - 1] = 0;
    block[start..].copy_from_slice(message);
    block
}

#[test]
fn leading_zero_bytes_without_padding() {
    for (name, length) in [("rsa2048", 256), ("rsa3072", 384), ("rsa4096", 512)] {
        let mut blocks: Vec<_> = messages(length).collect();
        // Below the modulus.
        blocks[0][0] = 1;
        blocks.push(vec![0; length]);
        let (results, counters) = decrypted(name, "none", &sealed(name, &blocks));
        let expected: Vec<_> = blocks.iter().map(|block| to_hex(block)).collect();
        assert_eq!(results, expected);
        counters.expect(name, blocks.len() as u64 + FIRST_USE, "");
    }
}

#[test]
fn leading_zero_bytes_under_oaep() {
    for (name, length) in [("rsa2048", 256), ("rsa4096", 512)] {
        // Messages that OpenSSL pads, and blocks that are no padding at all, whatever they start
        // with.
        let place = Place::new();
        place.key(name);
        let mut ciphertexts = Vec::new();
        for message in messages(130) {
            place.write("message", &message);
            place
                .stock(&format!(
                    "pkeyutl -encrypt -pubin -inkey {name}.pub.pem -in message -out sealed \
                     -pkeyopt rsa_padding_mode:oaep"
                ))
                .succeed();
            ciphertexts.push(place.read("sealed"));
        }
        let good = ciphertexts.len();
        let blocks: Vec<_> = messages(length).skip(1).collect();
        ciphertexts.extend(sealed(name, &blocks));
        let (results, counters) = decrypted(name, "oaep", &ciphertexts);
        let expected: Vec<_> = messages(130).map(|message| to_hex(&message)).collect();
        assert_eq!(results[..good], expected);
        assert!(results[good..].iter().all(|result| result == "error"));
        counters.expect(name, ciphertexts.len() as u64 + FIRST_USE, "");
    }
}

#[test]
fn premaster_secrets_of_tls() {
    let blocks: Vec<_> = messages(46)
        .map(|rest| pkcs1(256, &[&[3, 3][..], &rest].concat()))
        .collect();
    let (results, counters) = decrypted("rsa2048", "tls", &sealed("rsa2048", &blocks));
    let expected: Vec<_> = blocks.iter().map(|block| to_hex(&block[208..])).collect();
    assert_eq!(results, expected);
    counters.expect("rsa2048", blocks.len() as u64 + FIRST_USE, "");
}

/// Only OpenSSL's own code hides whether the padding was right, so all of it is OpenSSL's.
#[test]
fn pkcs1_decryption_is_left_to_openssl() {
    for (name, length) in [("rsa2048", 256), ("rsa4096", 512)] {
        let mut blocks: Vec<_> = messages(101)
            .map(|message| pkcs1(length, &message))
            .collect();
        let good = blocks.len();
        // No padding: no zero byte behind it, one too early, another type, or a first byte that is
        // not zero.
        let block = || pkcs1(length, &[0x5b; 8]);
        for (at, byte) in [(length - 9, 1), (5, 0), (1, 1), (1, 0), (0, 1)] {
            let mut bad = block();
            bad[at] = byte;
            blocks.push(bad);
        }
        blocks.extend(messages(length).skip(1));
        let (results, counters) = decrypted(name, "pkcs1", &sealed(name, &blocks));
        let expected: Vec<_> = messages(101).map(|message| to_hex(&message)).collect();
        assert_eq!(results[..good], expected);
        let times = blocks.len() as u64 + FIRST_USE;
        assert_eq!(counters.operations(), 0, "{counters:?}");
        assert_eq!(counters.reasons(), [("pkcs1_decryption", times)]);
    }
}

/// A number of libcrypto shows in its time how many zero bytes it starts with, unless it is marked
/// as secret.
#[test]
fn no_decrypted_message_becomes_a_number_of_libcrypto() {
    let place = Place::new();
    let library = place.compile_library("bignums");
    let key = place.key("rsa2048");
    place.write("block", &[0; 256]);
    place.write("message", b"premaster");
    let none = "-pkeyopt rsa_padding_mode:none";
    let oaep = "-pkeyopt rsa_padding_mode:oaep";
    let numbers = |command: &str, alone: &str| -> u64 {
        let finished = place
            .lockstep(command)
            .env("LD_PRELOAD", &library)
            .env("LOCKSTEP_LONE", alone)
            .succeed();
        let counters = finished.counters();
        assert_eq!(counters.operations() + counters.fallbacks(), 1);
        let count = finished.stderr.lines().find_map(|line| {
            let number = line.strip_prefix("numbers made of bytes: ")?;
            number.parse().ok()
        });
        count.unwrap_or_else(|| panic!("{finished}"))
    };
    for (options, message) in [(none, "block"), (oaep, "message"), ("", "message")] {
        place
            .stock(&format!(
                "pkeyutl -encrypt -pubin -inkey rsa2048.pub.pem -in {message} -out sealed {options}"
            ))
            .succeed();
        for alone in ["lanes", "stock"] {
            let decrypt = format!("pkeyutl -decrypt -inkey {key} -in sealed {options}");
            assert_eq!(numbers(&decrypt, alone), 0, "{decrypt}, {alone}");
        }
    }
    // The count works: EC keys are made of such numbers, which are marked as secret.
    let generate = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out new";
    assert!(numbers(generate, "lanes") > 0);
}
