//! The file that stands where a server expects that of a key: a reference, and the certificates
//! that were beside the key.
//!
//! Everybody may read this file, and the file of the key only root. So bytes of the second come
//! into the first by one way alone: a block with the label of something public is decoded, its DER
//! must have the shape of that thing, and the DER is encoded again. Whatever else stands in the
//! file, and any line that is not where PEM has it, is a reason to write nothing.

use std::collections::HashSet;
use std::path::Path;

use der::asn1::AnyRef;
use der::pem::LineEnding;
use der::{Decode as _, Encode as _, Reader as _, SliceReader, Tag, Tagged as _};
use lockstep_remote::reference::LABEL;
use lockstep_remote::{Reference, certificate_key};
use pkcs8::PrivateKeyInfo;
use zeroize::Zeroizing;

use crate::key::{self, Unusable};

/// Parts of a file that say something of the key that follows, and nothing without it.
const ABOUT_A_KEY: &str = "EC PARAMETERS";
/// What every label of a private key ends with.
const PRIVATE: &str = "PRIVATE KEY";
const CERTIFICATE: &str = "CERTIFICATE";
const DH_PARAMETERS: &str = "DH PARAMETERS";

/// What stands for the file of a key: the reference, and behind it the other blocks of the file in
/// their order. OpenSSL 3.0.2 looks behind a certificate for private keys alone.
pub fn stand_in(path: &Path, reference: &Reference) -> Result<String, Unusable> {
    from_text(&key::text(path)?, reference)
}

/// The same for the text of the file.
pub(crate) fn from_text(text: &[u8], reference: &Reference) -> Result<String, Unusable> {
    let text = str::from_utf8(text).map_err(|_| key::unusable("the file is not text"))?;
    let mut made = reference
        .to_file()
        .ok_or_else(|| key::unusable("the key cannot be written as a reference"))?;
    let mut key: Option<Zeroizing<Vec<u8>>> = None;
    for block in blocks(text)? {
        match block.label {
            ABOUT_A_KEY => {}
            label if label.ends_with(PRIVATE) && key.is_some() => {
                return Err(key::unusable("the file holds more than one private key"));
            }
            label if label.ends_with(PRIVATE) => {
                let bytes = block.decoded();
                key = Some(bytes.ok_or_else(|| key::unusable("the private key is damaged"))?);
            }
            _ => made += &block.encoded_again()?,
        }
    }
    let key = key.ok_or_else(|| key::unusable("there is no private key in the file, in PEM"))?;
    match is_public(&made) && !shares(&made, &key, &reference.public) {
        true => Ok(made),
        false => Err(key::unusable(
            "a certificate in the file is damaged: it holds a part of the private key",
        )),
    }
}

/// The blocks of a file that has certificates and DH parameters, and nothing else; and the public
/// half of its first certificate, or nothing.
pub fn public_text(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let blocks = blocks(str::from_utf8(text).ok()?).ok()?;
    let blocks: Vec<String> = blocks
        .iter()
        .map(|block| block.encoded_again().ok())
        .collect::<Option<_>>()?;
    let public = certificate_key(blocks.first()?).unwrap_or_default();
    Some((blocks.concat(), public))
}

/// Whether a text holds a reference and what may stand beside it, and nothing else.
fn is_public(text: &str) -> bool {
    let Ok(blocks) = blocks(text) else {
        return false;
    };
    let is_public = |block: &Block<'_>| block.label == LABEL || block.encoded_again().is_ok();
    blocks.iter().all(is_public)
}

/// Whether a text has bytes of a private key that are not those of its public half. A line of the
/// key may have come into a certificate, whose parts still look as they should.
fn shares(text: &str, private: &[u8], public: &[u8]) -> bool {
    /// As many bytes are the same by chance in no two files, and fewer are no key.
    const PART: usize = 16;
    fn parts(bytes: &[u8]) -> impl Iterator<Item = [u8; PART]> {
        bytes.windows(PART).filter_map(|part| part.try_into().ok())
    }
    let blocks = blocks(text).unwrap_or_default();
    let decoded = blocks.iter().filter_map(Block::decoded);
    // Six bits are a letter in base64.
    let shifted = decoded.flat_map(|bytes| [0, 2, 4, 6].map(|by| shifted(&bytes, by)));
    let mut written = HashSet::new();
    shifted.for_each(|bytes| written.extend(parts(&bytes)));
    let known: HashSet<[u8; PART]> = parts(public).collect();
    // What PKCS#8 has before the key itself is the same in all keys of a kind, and certificates may
    // have it.
    let head = PrivateKeyInfo::from_der(private).map_or(0, |own| {
        own.private_key.as_ptr().addr() - private.as_ptr().addr()
    });
    let mut secret = private.windows(PART).skip((head + 1).saturating_sub(PART));
    secret.any(|part| written.contains(part) && !known.contains(part))
}

/// Bytes that begin this many bits later.
fn shifted(bytes: &[u8], by: u32) -> Vec<u8> {
    let pairs = bytes.iter().zip(bytes.iter().skip(1).chain(&[0]));
    let shift = |(&first, &second)| (u16::from_be_bytes([first, second]) << by).to_be_bytes()[0];
    pairs.map(shift).collect()
}

/// A block of a file in PEM.
struct Block<'a> {
    label: &'a str,
    /// The number of its first line.
    number: usize,
    /// The lines between its first and its last one.
    lines: Vec<&'a str>,
}

impl Block<'_> {
    /// The block in the form that OpenSSL writes, if it holds what its label says, and that is
    /// public.
    fn encoded_again(&self) -> Result<String, Unusable> {
        let decoded = self.decoded();
        let (label, kind, bytes) = match self.label {
            // OpenSSL still reads this older label.
            CERTIFICATE | "X509 CERTIFICATE" => {
                let bytes = decoded.filter(|bytes| is_certificate(bytes));
                (CERTIFICATE, "certificate", bytes)
            }
            // What says whom it is trusted for stands behind the certificate, and is for those who
            // verify it.
            "TRUSTED CERTIFICATE" => {
                let certificate = decoded.and_then(|bytes| first(&bytes));
                let bytes = certificate.filter(|bytes| is_certificate(bytes));
                (CERTIFICATE, "certificate", bytes)
            }
            DH_PARAMETERS => {
                let bytes = decoded.filter(|bytes| is_dh_parameters(bytes));
                (DH_PARAMETERS, "set of DH parameters", bytes)
            }
            // The label may be a part of something else, and is not shown.
            _ => {
                return Err(key::unusable(format!(
                    "the block that begins in line {} is neither a certificate nor DH parameters, \
                     and nothing else may stand beside a reference",
                    self.number
                )));
            }
        };
        let encode =
            |bytes: Zeroizing<Vec<u8>>| der::pem::encode_string(label, LineEnding::LF, &bytes).ok();
        bytes.and_then(encode).ok_or_else(|| {
            key::unusable(format!(
                "the block that begins in line {} is damaged, or holds no {kind}",
                self.number
            ))
        })
    }

    /// The bytes that the block holds.
    fn decoded(&self) -> Option<Zeroizing<Vec<u8>>> {
        // Others break lines elsewhere than the decoder expects.
        let text: Zeroizing<String> = Zeroizing::new(self.lines.concat());
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        if !text.bytes().all(is_plain) {
            return None;
        }
        let mut block = Zeroizing::new(String::with_capacity(text.len() + text.len() / 64 + 64));
        block.push_str("-----BEGIN BLOCK-----\n");
        for start in (0..text.len()).step_by(64) {
            block.push_str(&text[start..text.len().min(start + 64)]);
            block.push('\n');
        }
        block.push_str("-----END BLOCK-----\n");
        let (_, bytes) = der::pem::decode_vec(block.as_bytes()).ok()?;
        Some(Zeroizing::new(bytes))
    }
}

/// The blocks of a text, in their order. An error where a line looks like the first or the last
/// one of a block, and does not stand where such a line may be: then it cannot be told what is in
/// which block.
fn blocks(text: &str) -> Result<Vec<Block<'_>>, Unusable> {
    let mut found = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.trim_end();
        match (open.as_mut(), Mark::of(line)) {
            (None, Mark::Nothing) => {}
            (Some(block), Mark::Nothing) => block.lines.push(line),
            (None, Mark::Begin(label)) => {
                open = Some(Block {
                    label,
                    number,
                    lines: Vec::new(),
                });
            }
            (Some(block), Mark::End(label)) if block.label == label => found.extend(open.take()),
            _ => {
                return Err(key::unusable(format!(
                    "line {number} begins or ends a block where none can: a line before it may be \
                     missing, or be joined with another"
                )));
            }
        }
    }
    match open {
        None => Ok(found),
        Some(Block { number, .. }) => Err(key::unusable(format!(
            "the block that begins in line {number} has no end"
        ))),
    }
}

/// What a line is in PEM.
enum Mark<'a> {
    Begin(&'a str),
    End(&'a str),
    /// It has the mark of one of both, and is neither.
    Odd,
    Nothing,
}

impl Mark<'_> {
    fn of(line: &str) -> Mark<'_> {
        const DASHES: &str = "-----";
        let inner = line
            .strip_prefix(DASHES)
            .and_then(|rest| rest.strip_suffix(DASHES))
            .filter(|inner| !inner.contains(DASHES));
        let label = |word| inner.and_then(|inner| inner.strip_prefix(word));
        let is_marked = |word: &str| line.contains(&format!("{DASHES}{word}"));
        match (label("BEGIN "), label("END ")) {
            (Some(label), _) => Mark::Begin(label),
            (_, Some(label)) => Mark::End(label),
            _ if is_marked("BEGIN") || is_marked("END") => Mark::Odd,
            _ => Mark::Nothing,
        }
    }
}

/// The first structure of these bytes.
fn first(bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut reader = SliceReader::new(bytes).ok()?;
    let first = AnyRef::decode(&mut reader).ok()?;
    Some(Zeroizing::new(first.to_der().ok()?))
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
    let mut reader = SliceReader::new(bytes).ok()?;
    let parts = reader.sequence(|reader| {
        let mut parts = Vec::new();
        while !reader.is_finished() {
            let part = AnyRef::decode(reader)?;
            parts.push((part.tag(), part.value().len()));
        }
        Ok(parts)
    });
    reader.finish(parts.ok()?).ok()
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
    for label in str::from_utf8(&text)
        .unwrap_or_default()
        .lines()
        .filter_map(label)
    {
        found.key |= label.ends_with("PRIVATE KEY");
        found.reference |= label == LABEL;
        found.certificate |= label == "CERTIFICATE" || label == "TRUSTED CERTIFICATE";
    }
    found
}

/// What a line says that begins a block.
fn label(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("-----BEGIN ")?;
    rest.trim_end().strip_suffix("-----")
}

#[cfg(test)]
mod tests {
    use der::asn1::{BitStringRef, OctetStringRef, UintRef};
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

    fn of(text: &str) -> Result<String, Unusable> {
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
            // Marks that belong to no block, and an end that is that of another one.
            (format!("{certificate}{key}x-----BEGIN\n"), "line 14 begins"),
            (format!("{key}{certificate}x-----END\n"), "line 14 begins"),
            (
                key.clone() + &certificate.replace("END CERTIFICATE", "END CERTIFICATES"),
                "line 13 begins or ends",
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
            for block in blocks(&output).unwrap() {
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
