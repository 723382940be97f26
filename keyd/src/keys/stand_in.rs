//! The file that stands where a server expects that of a key: a reference, and the certificates
//! that were beside the key.
//!
//! Everybody may read this file, and the file of the key only root. So bytes of the second come
//! into the first by one way alone: a block with the label of something public is decoded, its DER
//! must have the shape of that thing, and the DER is encoded again. Whatever else stands in the
//! file, and any line that is not where PEM has it, is a reason to write nothing.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

use der::asn1::AnyRef;
use der::pem::LineEnding;
use der::{Decode as _, Reader as _, Tag, Tagged as _};
use lockstep_engine::Engine;
use lockstep_remote::reference::LABEL;
use lockstep_remote::{CERTIFICATE_LABELS, Reference, certificate_key};
use pkcs8::PrivateKeyInfo;
use zeroize::Zeroizing;

use crate::keys::key::{self, Key};
use crate::keys::pem::{self, Block, PRIVATE};

/// Parts of a file that say something of the key that follows, and nothing without it.
const ABOUT_A_KEY: &str = "EC PARAMETERS";
const CERTIFICATE: &str = "CERTIFICATE";
const DH_PARAMETERS: &str = "DH PARAMETERS";

/// What stands for the file of a key: the reference, and behind it the other blocks of the file in
/// their order. OpenSSL 3.0.2 looks behind a certificate for private keys alone.
pub fn stand_in(path: &Path, reference: &Reference) -> Result<String, String> {
    from_text(&key::text(path)?, reference)
}

/// The same for the text of the file.
pub(crate) fn from_text(text: &[u8], reference: &Reference) -> Result<String, String> {
    let mut made = reference
        .to_file()
        .ok_or("the key cannot be written as a reference")?;
    let mut key: Option<Zeroizing<Vec<u8>>> = None;
    for block in blocks(text)? {
        match block.label {
            ABOUT_A_KEY => {}
            label if label.ends_with(PRIVATE) && key.is_some() => {
                return Err("the file holds more than one private key".to_owned());
            }
            label if label.ends_with(PRIVATE) => {
                let bytes = block.decoded();
                key = Some(bytes.ok_or("the private key is damaged")?);
            }
            _ => made += &encoded_again(&block)?,
        }
    }
    let key = key.ok_or("there is no private key in the file, in PEM")?;
    let hasher = RandomState::new();
    let secrets = Secrets::of(parts(&key, &reference.public, &hasher).into_iter(), &hasher);
    match is_public(&made) && !secrets.are_in(made.as_bytes()) {
        true => Ok(made),
        false => Err(
            "a certificate in the file is damaged: it holds a part of the private key".to_owned(),
        ),
    }
}

/// The blocks of a file that has certificates and DH parameters, and nothing else; and the public
/// half of its first certificate, or nothing.
pub fn public_text(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let blocks = blocks(text).ok()?;
    let blocks: Vec<String> = blocks
        .iter()
        .map(|block| encoded_again(block).ok())
        .collect::<Option<_>>()?;
    let public = certificate_key(blocks.first()?).unwrap_or_default();
    Some((blocks.concat(), public))
}

/// Whether a text holds a reference and what may stand beside it, and nothing else.
fn is_public(text: &str) -> bool {
    let Ok(blocks) = blocks(text.as_bytes()) else {
        return false;
    };
    let is_public = |block: &Block<'_>| block.label == LABEL || encoded_again(block).is_ok();
    blocks.iter().all(is_public)
}

/// Number of bytes that are the same by chance in no two files; fewer are no key.
const PART: usize = 16;

/// Number of bits of a [`mark`].
const MARK: u32 = 20;

/// The parts of private keys, for a look at texts that everybody may read. They are hashed with a
/// secret of this process.
#[derive(Default)]
pub struct Secrets {
    parts: HashSet<u64>,
    /// A bit for each mark that a part has; nothing without parts.
    marks: Vec<u64>,
    hasher: RandomState,
}

impl Secrets {
    /// Of these parts, which this has hashed.
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

    /// Returns whether there is no part.
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

    /// Whether a text has a part of a key: in a block or in a certificate's field, as bytes, base64
    /// or hexadecimal digits, and in either order of bytes.
    pub fn are_in(&self, text: &[u8]) -> bool {
        let blocks = pem::blocks(text);
        let mut decoded = blocks.filter_map(|block| block.decoded());
        decoded.any(|bytes| {
            let mut forms = DIGITS.map(|digits| written(&bytes, digits)).to_vec();
            forms.push(bytes.to_vec());
            // A letter of base64 has six bits, so bytes may begin at each second bit.
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

/// Returns some bits of a part's hash, which cost far less than the others.
fn mark(part: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let whole = u128::from_le_bytes(part.try_into().unwrap_or_default());
    let mixed = (whole as u64).wrapping_mul(ODD) ^ (whole >> 64) as u64;
    mixed.wrapping_mul(ODD) >> (64 - MARK)
}

fn hash(part: &[u8], hasher: &RandomState) -> u64 {
    hasher.hash_one(part) << MARK | mark(part)
}

/// Returns the parts of the first private key in a text, whose public half is this.
pub(crate) fn parts_of(text: &[u8], public: &[u8], hasher: &RandomState) -> Vec<u64> {
    let bytes = key::block(text).ok().and_then(|block| block.decoded());
    bytes.map_or_else(Vec::new, |bytes| parts(&bytes, public, hasher))
}

/// Returns the parts of a key that are not in its public half.
fn parts(private: &[u8], public: &[u8], hasher: &RandomState) -> Vec<u64> {
    let hashes = |bytes| <[u8]>::windows(bytes, PART).map(|part| hash(part, hasher));
    let known: HashSet<u64> = hashes(public).collect();
    // All keys of a kind begin alike in PKCS#8, and certificates may have these bytes.
    let head = PrivateKeyInfo::from_der(private).map_or(0, |own| {
        own.private_key.as_ptr().addr() - private.as_ptr().addr()
    });
    let secret = hashes(private).skip((head + 1).saturating_sub(PART));
    secret.filter(|part| !known.contains(part)).collect()
}

/// The digits by which bytes may be written.
const DIGITS: [&str; 4] = [
    "0123456789abcdef",
    "0123456789ABCDEF",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
];

/// Returns the bytes that the digits among these bytes write.
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

/// Bytes that begin this many bits later.
fn shifted(bytes: &[u8], by: u32) -> Vec<u8> {
    let pairs = bytes.iter().zip(bytes.iter().skip(1).chain(&[0]));
    let shift = |(&first, &second)| (u16::from_be_bytes([first, second]) << by).to_be_bytes()[0];
    pairs.map(shift).collect()
}

/// A block in the form that OpenSSL writes, if it holds what its label says, and that is public.
fn encoded_again(block: &Block<'_>) -> Result<String, String> {
    let decoded = block.decoded();
    let bytes = decoded.as_deref().map(Vec::as_slice);
    let (label, kind, bytes) = match block.label {
        // OpenSSL still reads this older label.
        CERTIFICATE | "X509 CERTIFICATE" => (CERTIFICATE, "certificate", bytes),
        // Its purposes stand behind the certificate, and are for programs that verify it.
        "TRUSTED CERTIFICATE" => (CERTIFICATE, "certificate", bytes.and_then(key::first)),
        DH_PARAMETERS => (DH_PARAMETERS, "set of DH parameters", bytes),
        // The label may be a part of something else, and is not shown.
        _ => {
            return Err(format!(
                "the block that begins in line {} is neither a certificate nor DH parameters, and \
                 nothing else may stand beside a reference",
                block.number
            ));
        }
    };
    let bytes = bytes.filter(|bytes| match label {
        CERTIFICATE => is_certificate(bytes),
        _ => is_dh_parameters(bytes),
    });
    let encoded =
        bytes.and_then(|bytes| der::pem::encode_string(label, LineEnding::LF, bytes).ok());
    encoded.ok_or_else(|| {
        format!(
            "the block that begins in line {} is damaged, or holds no {kind}",
            block.number
        )
    })
}

/// The blocks of a text, in their order. An error where a line looks like the first or the last
/// one of a block, and is none: then it cannot be told what is in which block.
fn blocks(text: &[u8]) -> Result<Vec<Block<'_>>, String> {
    let blocks: Vec<Block<'_>> = pem::blocks(text).collect();
    let whole = blocks.iter().filter(|own| own.is_whole);
    let whole = whole.flat_map(|own| [own.number, own.number + own.lines.len() + 1]);
    let known: HashSet<usize> = whole.collect();
    let has = |line: &[u8], mark: &str| line.windows(mark.len()).any(|own| own == mark.as_bytes());
    let is_marked = |line: &[u8]| has(line, "-----BEGIN") || has(line, "-----END");
    let mut lines = pem::lines(text).filter(|(number, _)| !known.contains(number));
    let Some((number, _)) = lines.find(|(_, line)| is_marked(line)) else {
        return Ok(blocks);
    };
    let begins = blocks.iter().any(|own| own.number == number);
    Err(match begins {
        true => format!("the block that begins in line {number} has no end"),
        false => format!(
            "line {number} begins or ends a block where none can: a line before it may be missing, \
             or be joined with another"
        ),
    })
}

/// Whether this is a certificate, by its parts: no form of a private key has these.
fn is_certificate(bytes: &[u8]) -> bool {
    tags(bytes).is_some_and(|parts| {
        let tags: Vec<Tag> = parts.iter().map(|(tag, _)| *tag).collect();
        tags == [Tag::Sequence, Tag::Sequence, Tag::BitString]
    })
}

/// Whether these are the prime, the generator and perhaps the length of exponents. An RSA key is
/// a list of nine numbers.
fn is_dh_parameters(bytes: &[u8]) -> bool {
    tags(bytes).is_some_and(|parts| {
        let are_numbers = parts.iter().all(|(tag, _)| *tag == Tag::Integer);
        let is_short = |length: &(Tag, usize)| length.1 <= 4;
        are_numbers && matches!(parts.len(), 2 | 3) && parts.get(2).is_none_or(is_short)
    })
}

/// The tags and lengths of the parts of a sequence, if that is all there is.
fn tags(bytes: &[u8]) -> Option<Vec<(Tag, usize)>> {
    let parts = AnyRef::from_der(bytes).and_then(|whole| {
        whole.sequence(|reader| {
            let mut parts = Vec::new();
            while !reader.is_finished() {
                let part = AnyRef::decode(reader)?;
                parts.push((part.tag(), part.value().len()));
            }
            Ok(parts)
        })
    });
    parts.ok()
}

/// What is in a file in PEM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// A private key, encrypted or not.
    pub key: bool,
    /// A reference to a key.
    pub reference: bool,
    /// A certificate.
    pub certificate: bool,
}

/// What is in a file; nothing if it cannot be read.
pub fn contents(path: &Path) -> Contents {
    let text = key::text_of_any(path);
    let mut found = Contents::default();
    for block in pem::blocks(&text) {
        found.key |= block.label.ends_with(PRIVATE);
        found.reference |= block.label == LABEL;
        found.certificate |= CERTIFICATE_LABELS.contains(&block.label);
    }
    found
}

#[cfg(test)]
mod tests {
    use base64ct::Encoding as _;
    use der::asn1::{BitStringRef, OctetStringRef, UintRef};
    use der::{Encode as _, SliceReader};
    use lockstep_testkit::{Random, TempDir, command, run};
    use rustix::fs::inotify;

    use super::*;

    fn reference() -> Reference {
        Reference {
            name: "www".to_owned(),
            socket: None,
            public: vec![0x30, 0],
        }
    }

    fn of(text: &str) -> Result<String, String> {
        from_text(text.as_bytes(), &reference())
    }

    fn block(label: &str, bytes: &[u8]) -> String {
        der::pem::encode_string(label, LineEnding::LF, bytes).unwrap()
    }

    fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
        AnyRef::new(Tag::Sequence, &parts.concat())
            .unwrap()
            .to_der()
            .unwrap()
    }

    fn number(bytes: &[u8]) -> Vec<u8> {
        UintRef::new(bytes).unwrap().to_der().unwrap()
    }

    /// As long as a certificate, and of its shape.
    fn certificate(seed: u8) -> Vec<u8> {
        let signed = OctetStringRef::new(&[seed; 300]).unwrap().to_der().unwrap();
        let signature = BitStringRef::from_bytes(&[seed; 64])
            .unwrap()
            .to_der()
            .unwrap();
        sequence(&[sequence(&[signed]), sequence(&[]), signature])
    }

    /// A key of ML-DSA begins as a certificate does whose serial number is 0, and whose issuer has
    /// a key of the same set; and both as nothing that is secret.
    #[test]
    fn what_all_keys_of_a_kind_begin_with_is_no_part_of_a_key() {
        let head = [
            &[2, 1, 0, 0x30, 11, 6, 9][..],
            &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 17],
        ];
        let head = head.concat();
        let secret: Vec<u8> = (0..34).map(|at| at ^ 0x80).collect();
        let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
        let pkcs8 = field(0x30, &[&head[..], &field(4, &secret)].concat());
        let certificate = |serial: &[u8]| {
            let signature = sequence(&[number(b"algorithm")]);
            let body = field(0x30, serial);
            field(
                0x30,
                &[&body[..], &signature, &field(3, b"\0signature")].concat(),
            )
        };
        let made = |serial: &[u8]| {
            of(&(block("PRIVATE KEY", &pkcs8) + &block(CERTIFICATE, &certificate(serial))))
        };
        assert!(made(&head).is_ok());
        // As soon as a byte of the key itself follows, with what stands before it, it is a leak.
        for (from, is_taken) in [(1, true), (2, true), (5, false), (20, false), (36, false)] {
            let leak = made(&pkcs8[from..from + 16]);
            assert_eq!(leak.is_ok(), is_taken, "{from}");
        }
    }

    /// In a field of a certificate, as somebody may write them.
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
        // Where its scalar or seed stands in PKCS#8's octets.
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
                        let text = block(CERTIFICATE, &whole);
                        assert!(secrets.are_in(text.as_bytes()), "{before}: {form:?}");
                    }
                }
            }
        }
        // Their own certificates have none.
        assert!(publics.iter().all(|text| !secrets.are_in(text)));
    }

    #[test]
    fn the_key_goes_and_the_certificates_stay() {
        let own = reference().to_file().unwrap();
        let [first, second] = [1, 2].map(|seed| block(CERTIFICATE, &certificate(seed)));
        let key = block("EC PRIVATE KEY", b"secret");
        let about = block(ABOUT_A_KEY, &[6, 1, 8]);
        let dh = block(DH_PARAMETERS, &sequence(&[number(&[7; 40]), number(&[2])]));
        let text = format!("# mine\n{first}{about}Key:\n{key}{second}{dh}---- end ----\n");
        assert_eq!(of(&text).unwrap(), format!("{own}{first}{second}{dh}"));
        // As other systems end lines and break them, and with a line without an end.
        let foreign = format!("{first}{key}").replace('\n', "\r\n");
        assert_eq!(of(foreign.trim_end()).unwrap(), format!("{own}{first}"));
        let body = first.lines().filter(|line| !line.starts_with('-'));
        let broken: String = body
            .map(|line| format!("{}\n{} \n", &line[..5], &line[5..]))
            .collect();
        let broken =
            format!("-----BEGIN X509 CERTIFICATE-----\n{broken}-----END X509 CERTIFICATE-----\n");
        assert_eq!(
            of(&format!("{broken}{key}")).unwrap(),
            format!("{own}{first}")
        );
        // Without what says whom it is trusted for.
        let trusted = [certificate(1), sequence(&[number(&[1; 30])])].concat();
        let trusted = block("TRUSTED CERTIFICATE", &trusted);
        assert_eq!(
            of(&format!("{trusted}{key}")).unwrap(),
            format!("{own}{first}")
        );
    }

    #[test]
    fn what_may_not_stand_beside_a_reference_is_refused() {
        let certificate = block(CERTIFICATE, &certificate(1));
        let rsa = sequence(&vec![number(&[0x7F; 32]); 9]);
        let octets = OctetStringRef::new(&[4; 32]).unwrap().to_der().unwrap();
        let pkcs8 = sequence(&[number(&[0]), sequence(&[]), octets]);
        let key = block("PRIVATE KEY", &pkcs8);
        let long = sequence(&[number(&[7; 40]), number(&[2]), number(&[7; 40])]);
        let cases = [
            (certificate.clone(), "no private key"),
            (format!("{key}{key}"), "more than one"),
            (
                format!("{key}{}", block("OPENSSH KEY", b"x")),
                "neither a certificate",
            ),
            (
                format!("{key}{}", block("PKCS7", b"x")),
                "neither a certificate",
            ),
            (
                format!("{key}{}", block(CERTIFICATE, &pkcs8)),
                "holds no certificate",
            ),
            (
                format!("{key}{}", block(CERTIFICATE, &rsa)),
                "holds no certificate",
            ),
            (
                format!("{key}{}", block(DH_PARAMETERS, &rsa)),
                "holds no set of DH parameters",
            ),
            (
                format!("{key}{}", block(DH_PARAMETERS, &long)),
                "holds no set of DH parameters",
            ),
            // Marks that belong to no block, and an end that is not its own.
            (format!("{certificate}{key}x-----BEGIN\n"), "line 14 begins"),
            (format!("{key}{certificate}x-----END\n"), "line 14 begins"),
            (
                key.clone() + &certificate.replace("END CERTIFICATE", "END CERTIFICATES"),
                "begins in line 4 has no end",
            ),
            (
                "-----BEGIN X-----\n".to_owned(),
                "begins in line 1 has no end",
            ),
            // The two that were seen: no END, and no line break.
            (
                certificate.replace("-----END CERTIFICATE-----\n", "") + &key,
                "line ",
            ),
            (format!("{}{key}", certificate.trim_end()), "line "),
            (format!("{certificate}{}", &key[..key.len() - 20]), "line "),
            (
                certificate.clone() + &key.replace("-----END PRIVATE KEY-----\n", ""),
                "no end",
            ),
            (
                key.replace("-----BEGIN", " -----BEGIN") + &certificate,
                "line ",
            ),
            (format!("{certificate}{key}").replace('\n', "\r"), "line "),
            (
                certificate.replacen("\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1) + &key,
                "is damaged",
            ),
        ];
        for (text, expected) in cases {
            let error = of(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{error}: {text}");
            // No message has bytes of the file.
            let lines = text
                .lines()
                .filter(|line| line.len() >= 16 && !line.contains(' '));
            for line in lines.map(|line| line.trim_matches('-')) {
                assert!(!error.contains(line), "{error}: {text}");
            }
        }
        assert!(!is_public(&key) && is_public(&certificate));
    }

    /// Bundles of all kinds, mangled in all ways: nothing that is made of one has a part of its
    /// key.
    #[test]
    fn no_mangled_bundle_gives_bytes_of_its_key_away() {
        let mut random = Random(39);
        let mut made = [0_u32; 2];
        for _ in 0..6_000 {
            let mut below = |bound: usize| random.word() as usize % bound;
            let secret: Vec<u8> = (0..96).map(|_| below(256) as u8).collect();
            let octets = OctetStringRef::new(&secret).unwrap().to_der().unwrap();
            let secret = sequence(&[number(&[0]), sequence(&[]), octets]);
            let key = block(["PRIVATE KEY", "RSA PRIVATE KEY"][below(2)], &secret);
            let parts = [
                block(CERTIFICATE, &certificate(1)),
                key.clone(),
                block("TRUSTED CERTIFICATE", &certificate(2)),
                "some text of the administrator\n".to_owned(),
                block(DH_PARAMETERS, &sequence(&[number(&[7; 40]), number(&[2])])),
            ];
            let mut text: String = (0..below(4)).map(|_| parts[below(5)].as_str()).collect();
            text = [text, key.clone(), parts[below(5)].clone()].concat();
            let labels = [
                CERTIFICATE,
                "PRIVATE KEY",
                DH_PARAMETERS,
                "TRUSTED CERTIFICATE",
            ];
            for _ in 0..below(5) {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                let at = below(lines.len());
                match below(11) {
                    // Lines get lost, are joined, doubled, swapped and cut,
                    0 => drop(lines.remove(at)),
                    1 if at > 0 => {
                        let line = lines.remove(at);
                        lines[at - 1] += &line;
                    }
                    2 => lines.insert(at, lines[at].clone()),
                    3 => {
                        let other = below(lines.len());
                        lines.swap(at, other);
                    }
                    4 => {
                        let end = below(lines[at].len() + 1);
                        lines[at].truncate(end);
                    }
                    // labels change, blocks begin in others, and there is text and a header,
                    5 | 6 => {
                        let (from, to) = (labels[below(4)], labels[below(4)]);
                        lines[at] = lines[at].replace(from, to);
                    }
                    7 => {
                        let word = ["BEGIN", "END"][below(2)];
                        lines.insert(at, format!("-----{word} {}-----", labels[below(4)]));
                    }
                    8 => lines.insert(
                        at,
                        ["Proc-Type: 4,ENCRYPTED", "", "-----"][below(3)].to_owned(),
                    ),
                    // a piece of a line comes over a piece of another,
                    9 => {
                        let from = lines[below(lines.len())].clone();
                        let length = below(from.len().min(lines[at].len()) + 1);
                        let (start, to) = (
                            below(from.len() - length + 1),
                            below(lines[at].len() - length + 1),
                        );
                        let piece = &from[start..start + length];
                        lines[at].replace_range(to..to + length, piece);
                    }
                    // and all of it ends early.
                    _ => lines.truncate(at + 1),
                }
                text = lines.join(["\n", "\r\n"][below(2)]);
                if text.is_empty() {
                    text.push('\n');
                }
            }
            let made_of = of(&text);
            made[usize::from(made_of.is_ok())] += 1;
            let Ok(output) = made_of else { continue };
            assert!(is_public(&output) && !output.contains("PRIVATE"), "{text}");
            // By its base64, wherever it stands, and by its bytes.
            let joined: String = output.lines().collect();
            let body: String = key.lines().filter(|line| !line.starts_with('-')).collect();
            let windows = body.as_bytes().windows(24).skip(16);
            for window in windows {
                let window = str::from_utf8(window).unwrap();
                assert!(!joined.contains(window), "{window} of {text} in {output}");
            }
            for block in blocks(output.as_bytes()).unwrap() {
                let bytes = block.decoded().unwrap();
                let leaks = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
                assert!(
                    !secret[16..].windows(16).any(leaks),
                    "{text} gives {output}"
                );
            }
        }
        assert!(made.iter().all(|&count| count > 200), "{made:?}");
    }

    #[test]
    fn what_is_in_a_file_is_told_by_its_labels() {
        let place = TempDir::new("contents");
        let path = place.join("file");
        let own = reference().to_file().unwrap();
        let nothing = Contents::default();
        for (text, expected) in [
            ("", nothing),
            (&block("PKCS7", b"x"), nothing),
            (
                &block("PRIVATE KEY", b"x"),
                Contents {
                    key: true,
                    ..nothing
                },
            ),
            (
                &block("ENCRYPTED PRIVATE KEY", b"x"),
                Contents {
                    key: true,
                    ..nothing
                },
            ),
            (
                &own,
                Contents {
                    reference: true,
                    ..nothing
                },
            ),
            (
                &block(CERTIFICATE, b"x").repeat(2),
                Contents {
                    certificate: true,
                    ..nothing
                },
            ),
            (
                &block("TRUSTED CERTIFICATE", b"x").replace('\n', "\r\n"),
                Contents {
                    certificate: true,
                    ..nothing
                },
            ),
            (
                &[
                    &own,
                    &block(CERTIFICATE, b"x"),
                    &block("EC PRIVATE KEY", b"x"),
                    &block("PKCS7", b"x"),
                ]
                .map(String::as_str)
                .concat(),
                Contents {
                    key: true,
                    reference: true,
                    certificate: true,
                },
            ),
            (" -----BEGIN PRIVATE KEY-----\n", nothing),
            ("-----BEGIN PRIVATE KEY\n", nothing),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(contents(&path), expected, "{text}");
        }
        assert_eq!(contents(&place.join("none")), nothing);
        // Nobody writes to it, and nobody waits for that. As a device, it is not even opened.
        let pipe = place.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let told = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&told, &pipe, inotify::WatchFlags::OPEN).unwrap();
        assert_eq!(contents(&pipe), nothing);
        assert!(
            rustix::io::read(&told, &mut [0; 64]).is_err(),
            "it was opened"
        );
    }

    /// Their public half stands in the key and in the certificate, too.
    #[test]
    fn bundles_of_openssls_keys_are_taken() {
        let directory = TempDir::new("bundles");
        let engine = crate::engine(lockstep_engine::Config::default());
        let make = |words: &str| {
            let words: Vec<&str> = words.split(' ').collect();
            let (code, made, stderr) = run(command("openssl", &words).current_dir(&*directory));
            assert_eq!(code, 0, "{stderr}");
            made
        };
        for words in [
            "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048",
            "genrsa -traditional 2048",
            "ecparam -name prime256v1 -genkey",
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384",
            "genpkey -algorithm ED25519",
        ] {
            let path = directory.join("key");
            let key = make(words);
            std::fs::write(&path, &key).unwrap();
            let certificate = make("req -x509 -new -key key -subj /CN=localhost");
            let public = key::Key::read(&path, &engine).unwrap().public;
            let reference = Reference {
                public,
                ..reference()
            };
            let own = reference.to_file().unwrap();
            let text = format!("{key}{certificate}");
            std::fs::write(&path, text).unwrap();
            assert_eq!(stand_in(&path, &reference).unwrap(), own + &certificate);
        }
    }

    #[test]
    fn a_huge_file_of_many_blocks_is_read_in_time() {
        let key = block("PRIVATE KEY", b"secret");
        let text = block(CERTIFICATE, &certificate(1)).repeat(400) + &key;
        assert_eq!(of(&text).unwrap().matches("BEGIN CERTIFICATE").count(), 400);
        let begins = "-----BEGIN CERTIFICATE-----\n".repeat(9000) + &key;
        assert!(of(&begins).is_err() && of(&"-".repeat(200_000)).is_err());
    }
}
