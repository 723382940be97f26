//! HKDF as TLS 1.3 uses it (RFC 8446, 7.1).

use sha2::Digest;
use sha2::digest::block_api::BlockSizeUser;
use sha2::digest::{FixedOutputReset, Output};
use zeroize::{Zeroize as _, Zeroizing};

/// What HMAC needs of a digest; the two here wipe their state when they are dropped.
pub trait Hasher: Digest + BlockSizeUser + FixedOutputReset {}

impl<H: Digest + BlockSizeUser + FixedOutputReset> Hasher for H {}

/// What is the same in all handshakes without a pre-shared key (RFC 8448, 3, has it for SHA-256).
pub struct Known<const N: usize> {
    /// The digest of no messages.
    pub no_messages: [u8; N],
    /// The early secret.
    pub early: [u8; N],
    /// What the handshake secret is extracted with.
    pub derived: [u8; N],
}

impl<const N: usize> Known<N> {
    const PREFIX: &[u8] = b"tls13 ";
    const LABEL: &[u8] = b"derived";

    pub fn new<H: Hasher>() -> Known<N> {
        let mut known = Known {
            no_messages: [0; N],
            early: [0; N],
            derived: [0; N],
        };
        known.no_messages.copy_from_slice(&H::digest(b""));
        authenticate::<H>(&[0; N], &[&[0; N]], &mut known.early);
        let parts = [Self::PREFIX, Self::LABEL, &known.no_messages];
        expand::<H>(&known.early, parts, &mut known.derived);
        known
    }

    /// Whether [`derived`](Self::derived) is derived from this secret. The comparison is in
    /// constant time, because it may be another one.
    pub fn derives(&self, early: &[u8], prefix: &[u8], label: &[u8]) -> bool {
        let difference = early
            .iter()
            .zip(&self.early)
            .fold(0, |all, (a, b)| all | (a ^ b));
        difference == 0 && prefix == Self::PREFIX && label == Self::LABEL
    }
}

/// HKDF-Expand-Label of RFC 8446, 7.1, for no more bytes than the digest has, and texts whose
/// lengths fit a byte.
pub fn expand<H: Hasher>(secret: &[u8], [prefix, label, data]: [&[u8]; 3], out: &mut [u8]) {
    let parts: [&[u8]; 7] = [
        &(out.len() as u16).to_be_bytes(),
        &[(prefix.len() + label.len()) as u8],
        prefix,
        label,
        &[data.len() as u8],
        data,
        // HKDF-Expand numbers its blocks from one.
        &[1],
    ];
    authenticate::<H>(secret, &parts, out);
}

/// The first bytes of HMAC(key, the parts in a row), RFC 2104, for a key no longer than a block.
/// All that depends on the key is wiped.
pub fn authenticate<H: Hasher>(key: &[u8], parts: &[&[u8]], out: &mut [u8]) {
    const INNER: u8 = 0x36;
    const OUTER: u8 = 0x5c;
    let mut block = Zeroizing::new([0; 128]);
    let block = &mut block[..H::block_size()];
    block[..key.len()].copy_from_slice(key);
    block.iter_mut().for_each(|byte| *byte ^= INNER);
    let mut hash = H::new();
    Digest::update(&mut hash, &block);
    parts
        .iter()
        .for_each(|part| Digest::update(&mut hash, part));
    // In place: a move would leave a copy behind.
    let mut digest = Output::<H>::default();
    Digest::finalize_into_reset(&mut hash, &mut digest);
    block.iter_mut().for_each(|byte| *byte ^= INNER ^ OUTER);
    Digest::update(&mut hash, &block);
    Digest::update(&mut hash, &digest);
    Digest::finalize_into_reset(&mut hash, &mut digest);
    out.copy_from_slice(&digest[..out.len()]);
    digest.as_mut_slice().zeroize();
}
