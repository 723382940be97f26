//! The file that stands where a server expects that of a key: a reference, and the certificates
//! that were beside the key.
//!
//! Everybody may read this file, and the file of the key only root. So bytes of the second come
//! into the first by one way alone: a block with the label of something public is decoded, its DER
//! must have the shape of that thing, and the DER is encoded again. Whatever else stands in the
//! file, and any line that is not where PEM has it, is a reason to write nothing.

use std::collections::HashSet;
use std::hash::RandomState;
use std::path::Path;

use der::asn1::AnyRef;
use der::pem::LineEnding;
use der::{Decode as _, Reader as _, Tag, Tagged as _};
use lockstep_remote::reference::LABEL;
use lockstep_remote::{CERTIFICATE_LABELS, Reference, certificate_key};
use zeroize::Zeroizing;

use crate::keys::key;
use crate::keys::pem::{self, Block, PRIVATE};
use crate::keys::secrets::{Secrets, parts};

/// Parts of a file that say something of the key that follows, and nothing without it.
const ABOUT_A_KEY: &str = "EC PARAMETERS";
const CERTIFICATE: &str = "CERTIFICATE";
const DH_PARAMETERS: &str = "DH PARAMETERS";

/// What stands for the file of a key: the reference, and behind it the other blocks of the file in
/// their order. OpenSSL 3.0.2 looks behind a certificate for private keys alone.
pub fn make(path: &Path, reference: &Reference) -> Result<String, String> {
    make_from(&key::text(path)?, reference)
}

/// The same for the text of the file.
pub(crate) fn make_from(text: &[u8], reference: &Reference) -> Result<String, String> {
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
pub(crate) mod tests;
