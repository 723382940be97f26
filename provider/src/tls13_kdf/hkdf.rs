//! HKDF as TLS 1.3 uses it (RFC 8446, 7.1).

use lockstep_kernels::backend::Backend;
use lockstep_kernels::hmac::{Hash, Keyed, TAG_BYTES, Tag};
use lockstep_kernels::wipe;

use super::kept::{EXPANSIONS, Kept, is_equal};

const PREFIX: &[u8] = b"tls13 ";
const DERIVED: &[u8] = b"derived";
const RESUMPTION: &[u8] = b"resumption";

/// Maximum length of a prefix and a label together.
pub const LONGEST_LABEL: usize = 144;
/// Maximum length of data.
pub const LONGEST_DATA: usize = 64;

/// Expansions of a traffic secret with SHA-384, in the order in which libssl derives them: labels,
/// and lengths in bytes.
const TRAFFIC: [(&[u8], usize); EXPANSIONS] = [(b"key", 32), (b"iv", 12), (b"finished", TAG_BYTES)];

/// Prefix, label and data of an expansion.
pub type Texts<'a> = [&'a [u8]; 3];

/// HKDF with a hash function, computed on these lanes.
#[derive(Clone, Copy)]
pub struct Hkdf {
    pub hash: Hash,
    pub backend: Backend,
}

/// Values that are the same in all handshakes without a pre-shared key (RFC 8448, 3, has them for
/// SHA-256).
pub struct Known {
    /// The digest of no messages.
    no_messages: Tag,
    /// The early secret.
    early: Tag,
    /// The secret derived from it, as the key of the next extraction.
    derived: Keyed,
}

impl Hkdf {
    pub fn known(self) -> Known {
        let mut known = Known {
            no_messages: self.hash.digest_of_nothing(),
            early: [0; TAG_BYTES],
            derived: Keyed::default(),
        };
        let mut keyed = Keyed::default();
        let zeros = self.digest(&[0; TAG_BYTES]);
        self.hash.key(self.backend, zeros, &mut keyed);
        self.authenticate(&keyed, zeros, &mut known.early);
        let info = Info::new(
            zeros.len(),
            [PREFIX, DERIVED, self.digest(&known.no_messages)],
        );
        self.hash
            .key(self.backend, self.digest(&known.early), &mut keyed);
        let mut derived = [0; TAG_BYTES];
        self.authenticate(&keyed, info.as_slice(), &mut derived[..zeros.len()]);
        self.hash
            .key(self.backend, self.digest(&derived), &mut known.derived);
        known
    }

    /// HKDF-Expand-Label, for no more bytes than the digest has, and texts no longer than
    /// [`LONGEST_LABEL`] and [`LONGEST_DATA`].
    pub fn expand(self, kept: &mut Kept, secret: &[u8], texts: Texts<'_>, out: &mut [u8]) {
        if self.expand_traffic(kept, secret, texts, out) {
            return;
        }
        kept.traffic.clear();
        let keyed = match kept.keyed.of(secret) {
            Some(keyed) => keyed,
            None => {
                let keyed = kept.keyed.replace(secret);
                self.hash.key(self.backend, secret, keyed);
                keyed
            }
        };
        self.authenticate(keyed, Info::new(out.len(), texts).as_slice(), out);
        // This is the last derivation of a handshake.
        if texts[1] == RESUMPTION {
            kept.keyed.clear();
        }
    }

    /// Makes one of the expansions in [`TRAFFIC`]. The first one computes and keeps all of them,
    /// and the others take their bytes from there. Returns false for another expansion, if tags are
    /// not faster together, and if the bytes are not kept.
    fn expand_traffic(
        self,
        kept: &mut Kept,
        secret: &[u8],
        texts: Texts<'_>,
        out: &mut [u8],
    ) -> bool {
        const INFOS: [Info; EXPANSIONS] = [
            Info::new(TRAFFIC[0].1, [PREFIX, TRAFFIC[0].0, &[]]),
            Info::new(TRAFFIC[1].1, [PREFIX, TRAFFIC[1].0, &[]]),
            Info::new(TRAFFIC[2].1, [PREFIX, TRAFFIC[2].0, &[]]),
        ];
        let is_it =
            |&(label, bytes): &(&[u8], usize)| bytes == out.len() && texts == [PREFIX, label, &[]];
        let Some(place) = TRAFFIC.iter().position(is_it) else {
            return false;
        };
        if !self.hash.is_faster_together(self.backend) {
            return false;
        }
        if place == 0 {
            let mut keyed = Keyed::default();
            self.hash.key(self.backend, secret, &mut keyed);
            let tags = kept.traffic.replace(secret);
            let messages = INFOS.each_ref().map(Info::as_slice);
            self.hash.authenticate(self.backend, &keyed, messages, tags);
            wipe(keyed.as_flattened_mut());
        }
        let Some(tags) = kept.traffic.of(secret) else {
            return false;
        };
        out.copy_from_slice(&tags[place][..out.len()]);
        // The key is derived only once, and nothing follows the last expansion.
        match place {
            0 => wipe(&mut tags[0]),
            _ if place == EXPANSIONS - 1 => kept.traffic.clear(),
            _ => {}
        }
        true
    }

    /// HKDF-Extract of a secret, with a salt from the secret before; either may be empty.
    pub fn extract(
        self,
        known: &Known,
        kept: &mut Kept,
        [before, secret]: [&[u8]; 2],
        [prefix, label]: [&[u8]; 2],
        out: &mut [u8],
    ) {
        let zeros = self.digest(&[0; TAG_BYTES]);
        if before.is_empty() && secret.is_empty() {
            return out.copy_from_slice(self.digest(&known.early));
        }
        let mut keyed = Keyed::default();
        if before.is_empty() {
            self.hash.key(self.backend, zeros, &mut keyed);
        } else if is_equal(before, &known.early) && [prefix, label] == [PREFIX, DERIVED] {
            keyed = known.derived;
        } else {
            // RFC 8446, 7.1: derived from the secret of the last stage, with no messages.
            let mut salt = [0; TAG_BYTES];
            let salt = &mut salt[..zeros.len()];
            let texts = [prefix, label, self.digest(&known.no_messages)];
            self.expand(kept, before, texts, salt);
            self.hash.key(self.backend, salt, &mut keyed);
            wipe(salt);
        }
        let secret = if secret.is_empty() { zeros } else { secret };
        self.authenticate(&keyed, secret, out);
        wipe(keyed.as_flattened_mut());
    }

    /// Fills `out` with the first bytes of the tag of a message.
    fn authenticate(self, keyed: &Keyed, message: &[u8], out: &mut [u8]) {
        let mut tags = [[0; TAG_BYTES]];
        self.hash
            .authenticate(self.backend, keyed, [message], &mut tags);
        out.copy_from_slice(&tags[0][..out.len()]);
        wipe(tags.as_flattened_mut());
    }

    /// Returns the first bytes of a tag, as many as the digest has.
    fn digest(self, tag: &Tag) -> &[u8] {
        &tag[..self.hash.tag_bytes()]
    }
}

/// The structure HkdfLabel, and the number of the only block of HKDF-Expand.
struct Info {
    bytes: [u8; 2 + 1 + LONGEST_LABEL + 1 + LONGEST_DATA + 1],
    length: usize,
}

impl Info {
    /// Returns the structure for an expansion to `size` bytes.
    const fn new(size: usize, [prefix, label, data]: Texts<'_>) -> Info {
        let mut info = Info {
            bytes: [0; _],
            length: 0,
        };
        info.push(&(size as u16).to_be_bytes());
        info.push(&[(prefix.len() + label.len()) as u8]);
        info.push(prefix);
        info.push(label);
        info.push(&[data.len() as u8]);
        info.push(data);
        info.push(&[1]);
        info
    }

    const fn push(&mut self, bytes: &[u8]) {
        let (_, rest) = self.bytes.split_at_mut(self.length);
        rest.split_at_mut(bytes.len()).0.copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
