//! Parts of private keys, which must not occur in public texts.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use lockstep_engine::Engine;
use pkcs8::PrivateKeyInfo;
use pkcs8::der::Decode as _;

use crate::keys::key::{self, Key};
use crate::keys::pem;

/// Length of a part in bytes. Such parts are never equal by chance, and a shorter part does not
/// give a key away.
const PART: usize = 16;

/// Number of bits of a [`mark`].
const MARK: u32 = 20;

/// Parts of private keys, hashed with a secret of this process, to search for them in public texts.
#[derive(Default)]
pub struct Secrets {
    parts: HashSet<u64>,
    /// Bitmap of the marks of all parts; empty without parts.
    marks: Vec<u64>,
    hasher: RandomState,
}

impl Secrets {
    /// Collects parts that were hashed with this hasher.
    pub(crate) fn of(parts: impl Iterator<Item = u64>, hasher: &RandomState) -> Secrets {
        let mut secrets = Secrets {
            hasher: hasher.clone(),
            ..Secrets::default()
        };
        parts.for_each(|part| secrets.insert(part));
        secrets
    }

    fn insert(&mut self, part: u64) {
        self.marks.resize(1 << (MARK - 6), 0);
        self.marks[(part >> 6) as usize % (1 << (MARK - 6))] |= 1 << (part % 64);
        self.parts.insert(part);
    }

    /// Returns whether there are no parts.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Adds the first private key of a file, if it can be served.
    pub fn add(&mut self, file: &Path, engine: &Engine) {
        let text = key::text_of_any(file);
        if let Ok(key) = Key::from_pem(&text, engine) {
            let parts = parts_of(&text, &key.public, &self.hasher);
            parts.into_iter().for_each(|part| self.insert(part));
        }
    }

    /// Returns whether a PEM block of a text has a part of a key, for example in a field of a
    /// certificate: as bytes, base64 or hexadecimal digits, and in either order of bytes.
    pub fn are_in(&self, text: &[u8]) -> bool {
        let blocks = pem::blocks(text);
        let mut decoded = blocks.filter_map(|block| block.decoded());
        decoded.any(|bytes| {
            let mut forms = DIGITS.map(|digits| written(&bytes, digits)).to_vec();
            forms.push(bytes.to_vec());
            // A digit of base64 has six bits, so bytes may begin at each even bit.
            let mut shifted = forms
                .iter()
                .flat_map(|form| [0, 2, 4, 6].map(|by| shifted(form, by)));
            shifted.any(|mut bytes| {
                let is_there = self.has(&bytes);
                bytes.reverse();
                is_there || self.has(&bytes)
            })
        })
    }

    fn has(&self, bytes: &[u8]) -> bool {
        let has_mark = |mark: u64| {
            let word = self.marks.get((mark >> 6) as usize);
            word.is_some_and(|word| word >> (mark % 64) & 1 == 1)
        };
        let mut parts = bytes.windows(PART).filter(|part| has_mark(mark(part)));
        parts.any(|part| self.parts.contains(&hash(part, &self.hasher)))
    }
}

/// Returns the low bits of a part's hash, which cost much less than the others.
fn mark(part: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let whole = u128::from_le_bytes(part.try_into().unwrap_or_default());
    let mixed = (whole as u64).wrapping_mul(ODD) ^ (whole >> 64) as u64;
    mixed.wrapping_mul(ODD) >> (64 - MARK)
}

fn hash(part: &[u8], hasher: &RandomState) -> u64 {
    hasher.hash_one(part) << MARK | mark(part)
}

/// Returns the parts of the first private key in a text; `public` is its public half.
pub(crate) fn parts_of(text: &[u8], public: &[u8], hasher: &RandomState) -> Vec<u64> {
    let bytes = key::block(text).ok().and_then(|block| block.decoded());
    bytes.map_or_else(Vec::new, |bytes| parts(&bytes, public, hasher))
}

/// Returns the parts of a key without those of its public half.
pub(crate) fn parts(private: &[u8], public: &[u8], hasher: &RandomState) -> Vec<u64> {
    let hashes = |bytes| <[u8]>::windows(bytes, PART).map(|part| hash(part, hasher));
    let known: HashSet<u64> = hashes(public).collect();
    // All keys of one kind have the same first bytes in PKCS#8, and certificates may have them,
    // too.
    let head = PrivateKeyInfo::from_der(private).map_or(0, |own| {
        own.private_key.as_ptr().addr() - private.as_ptr().addr()
    });
    let secret = hashes(private).skip((head + 1).saturating_sub(PART));
    secret.filter(|part| !known.contains(part)).collect()
}

/// Alphabets in which bytes may be written.
const DIGITS: [&str; 4] = [
    "0123456789abcdef",
    "0123456789ABCDEF",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
];

/// Decodes a text from these digits. Ignores all other characters.
fn written(bytes: &[u8], digits: &str) -> Vec<u8> {
    let (mut made, mut waiting, mut count) = (Vec::new(), 0, 0);
    let mut numbers = [None; 256];
    for (number, digit) in digits.bytes().enumerate() {
        numbers[usize::from(digit)] = Some(number);
    }
    for digit in bytes.iter().filter_map(|byte| numbers[usize::from(*byte)]) {
        waiting = waiting << digits.len().ilog2() | digit;
        count += digits.len().ilog2();
        if count >= 8 {
            count -= 8;
            made.push((waiting >> count) as u8);
        }
    }
    made
}

/// Shifts bytes left by a number of bits.
fn shifted(bytes: &[u8], by: u32) -> Vec<u8> {
    let pairs = bytes.iter().zip(bytes.iter().skip(1).chain(&[0]));
    let shift = |(&first, &second)| (u16::from_be_bytes([first, second]) << by).to_be_bytes()[0];
    pairs.map(shift).collect()
}

#[cfg(test)]
mod tests {
    use base64ct::Encoding as _;
    use der::asn1::{BitStringRef, OctetStringRef, UintRef};
    use der::{Decode as _, Encode as _, Reader as _, SliceReader};
    use lockstep_testkit::{TempDir, command};

    use super::*;
    use crate::keys::reference_file::tests::{block, sequence};

    /// The secret is in a field of a certificate, in each usual form.
    #[test]
    fn no_form_of_a_secret_number_passes_in_a_certificate() {
        let directory = TempDir::new("secrets");
        let engine = crate::engine(lockstep_engine::Config::default());
        let openssl = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            let output = command("openssl", &words).current_dir(&*directory).output();
            let output = output.expect("openssl");
            assert!(output.status.success(), "{words:?}");
            output.stdout
        };
        let mut secrets = Secrets::default();
        let (mut numbers, mut publics) = (Vec::new(), Vec::new());
        // Position of the scalar or seed in the octets of PKCS#8.
        for (made_by, secret) in [
            ("RSA -pkeyopt rsa_keygen_bits:2048", 0..0),
            ("EC -pkeyopt ec_paramgen_curve:P-256", 7..39),
            ("EC -pkeyopt ec_paramgen_curve:P-384", 8..56),
            ("ed25519", 2..34),
        ] {
            openssl(&format!("genpkey -out key -algorithm {made_by}"));
            secrets.add(&directory.join("key"), &engine);
            publics.push(openssl("req -x509 -new -key key -subj /CN=localhost"));
            let info = openssl("pkcs8 -topk8 -nocrypt -in key -outform DER");
            let info = PrivateKeyInfo::from_der(&info).unwrap();
            if !secret.is_empty() {
                numbers.push(info.private_key[secret].to_vec());
                continue;
            }
            let mut reader = SliceReader::new(info.private_key).unwrap();
            let read: der::Result<Vec<Vec<u8>>> = reader.sequence(|reader| {
                (0..9)
                    .map(|_| Ok(UintRef::decode(reader)?.as_bytes().to_vec()))
                    .collect()
            });
            // d, p, q, d mod (p - 1), d mod (q - 1), and the coefficient.
            numbers.extend(read.unwrap().split_off(3));
        }
        assert_eq!(numbers.len(), 9);
        for number in &numbers {
            let reversed: Vec<u8> = number.iter().rev().copied().collect();
            for bytes in [number, &reversed] {
                let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let base64 = base64ct::Base64::encode_string(bytes);
                let lines: Vec<_> = base64.as_bytes().chunks(20).map(<[u8]>::to_vec).collect();
                for form in [
                    bytes.clone(),
                    digits.concat().into_bytes(),
                    digits.join(":").to_uppercase().into_bytes(),
                    base64.replace('+', "-").replace('/', "_").into_bytes(),
                    lines.join(&b'\n'),
                    base64.into_bytes(),
                ] {
                    for before in 0..4 {
                        let field = [&vec![b'x'; before][..], &form].concat();
                        let field = OctetStringRef::new(&field).unwrap().to_der().unwrap();
                        let signature = BitStringRef::from_bytes(&[7; 64]).unwrap();
                        let signature = signature.to_der().unwrap();
                        let whole = sequence(&[sequence(&[field]), sequence(&[]), signature]);
                        let text = block("CERTIFICATE", &whole);
                        assert!(secrets.are_in(text.as_bytes()), "{before}: {form:?}");
                    }
                }
            }
        }
        // The keys' own certificates have none.
        assert!(publics.iter().all(|text| !secrets.are_in(text)));
    }
}
