//! The file that a server reads in the place of a key's file: a reference, and the certificates
//! that were beside the key.
//!
//! Everybody may read this file, but only root may read the key's file. So bytes get from the key's
//! file to this one in one way only: a block with a public label is decoded, its DER must have the
//! structure that the label promises, and the DER is encoded again. If the key's file has anything
//! else, or a line that begins or ends no whole block, no file is written.

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

/// Label of a block that only describes the next key.
const ABOUT_A_KEY: &str = "EC PARAMETERS";
const CERTIFICATE: &str = "CERTIFICATE";
const DH_PARAMETERS: &str = "DH PARAMETERS";

/// Makes the file in the place of a key's file: the reference, then the other blocks of the file in
/// their order. The reference comes first, because behind a certificate OpenSSL 3.0.2 finds only
/// private keys.
pub fn make(path: &Path, reference: &Reference) -> Result<String, String> {
    make_from(&key::text(path)?, reference)
}

/// Makes the same file from the text of a key's file.
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

/// Returns the blocks of a file that has only certificates and DH parameters, and the public half
/// of its first certificate, which may be empty.
pub fn public_text(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let blocks = blocks(text).ok()?;
    let blocks: Vec<String> = blocks
        .iter()
        .map(|block| encoded_again(block).ok())
        .collect::<Option<_>>()?;
    let public = certificate_key(blocks.first()?).unwrap_or_default();
    Some((blocks.concat(), public))
}

/// Returns whether a text has only a reference, certificates and DH parameters.
fn is_public(text: &str) -> bool {
    let Ok(blocks) = blocks(text.as_bytes()) else {
        return false;
    };
    let is_public = |block: &Block<'_>| block.label == LABEL || encoded_again(block).is_ok();
    blocks.iter().all(is_public)
}

/// Returns a block as OpenSSL writes it, if its label is public and its contents are as the label
/// says.
fn encoded_again(block: &Block<'_>) -> Result<String, String> {
    let decoded = block.decoded();
    let bytes = decoded.as_deref().map(Vec::as_slice);
    let (label, kind, bytes) = match block.label {
        // OpenSSL still reads this older label.
        CERTIFICATE | "X509 CERTIFICATE" => (CERTIFICATE, "certificate", bytes),
        // A trusted certificate ends with its purposes, for programs that verify it.
        "TRUSTED CERTIFICATE" => (CERTIFICATE, "certificate", bytes.and_then(key::first)),
        DH_PARAMETERS => (DH_PARAMETERS, "set of DH parameters", bytes),
        // The label may be a part of a secret and must not appear in a message.
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

/// Returns the blocks of a text. A stray line that begins or ends a block is an error, since nobody
/// can say which lines belong to the block.
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

/// Returns whether these bytes have the structure of a certificate, which no format of a private
/// key has.
fn is_certificate(bytes: &[u8]) -> bool {
    tags(bytes).is_some_and(|parts| {
        let tags: Vec<Tag> = parts.iter().map(|(tag, _)| *tag).collect();
        tags == [Tag::Sequence, Tag::Sequence, Tag::BitString]
    })
}

/// Returns whether these bytes are a prime, a generator, and perhaps a length of exponents. An RSA
/// key is a list of nine numbers.
fn is_dh_parameters(bytes: &[u8]) -> bool {
    tags(bytes).is_some_and(|parts| {
        let are_numbers = parts.iter().all(|(tag, _)| *tag == Tag::Integer);
        let is_short = |length: &(Tag, usize)| length.1 <= 4;
        are_numbers && matches!(parts.len(), 2 | 3) && parts.get(2).is_none_or(is_short)
    })
}

/// Returns the tags and lengths of the parts of a sequence; `None` if this is not one sequence.
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

/// The contents of a PEM file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// A private key, encrypted or not.
    pub key: bool,
    /// A reference to a key.
    pub reference: bool,
    /// A certificate.
    pub certificate: bool,
}

/// Returns the contents of a file; nothing if it cannot be read.
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
