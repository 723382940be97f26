//! Nonces for ECDSA.
//!
//! A server should use [`hedged`]. Its nonces are safe if the random bytes are secret and fresh,
//! and also if only the key is secret. [`rfc6979`] uses no randomness; it exists for test vectors.

use sha2::{Digest, Sha512};
use zeroize::Zeroize;

use super::types::{SecretKey, WIDE_BYTES, Wide};
use crate::backend::{Backend, dispatch};
use crate::secret::wipe;
use crate::sha512::{self, Message, Words};
use crate::simd::{MAX_LANES, Simd};

/// Number of bytes of a block of SHA-512.
const BLOCK_BYTES: usize = 128;

/// Number of random bytes that [`hedged`] takes.
pub const RANDOM_BYTES: usize = 32;

/// Returns SHA-512(key ‖ 0… ‖ random ‖ digest), to be taken modulo n; key and zeros fill one block
/// of 128 bytes.
///
/// Two different digests give unrelated nonces even if the randomness repeats, and the nonce is
/// uniform even if the key is weak. The key comes first, like the prefix in RFC 8032 and the key in
/// BoringSSL's derivation, and has a block of its own.
pub fn hedged<const BYTES: usize>(
    key: &SecretKey<BYTES>,
    random: &[u8; RANDOM_BYTES],
    digest: &[u8],
) -> Wide {
    let mut block = [0; BLOCK_BYTES];
    block[..BYTES].copy_from_slice(key.as_bytes());
    let mut hash = Sha512::new();
    hash.update(&block[..]);
    block.zeroize();
    hash.update(random);
    hash.update(digest);
    let mut output = hash.finalize();
    let wide = Wide(output[..].try_into().expect("64 bytes"));
    output.zeroize();
    const { assert!(WIDE_BYTES == size_of::<Words>()) };
    wide
}

/// A nonce to make by [`hedged_batch`].
#[derive(Debug)]
pub struct HedgedJob<'a, const BYTES: usize> {
    /// The secret key d.
    pub key: &'a SecretKey<BYTES>,
    /// Random bytes, which should be fresh.
    pub random: &'a [u8; RANDOM_BYTES],
    /// The digest to sign.
    pub digest: &'a [u8],
    /// Result, set by [`hedged_batch`].
    pub result: Option<Wide>,
}

impl<'a, const BYTES: usize> HedgedJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(
        key: &'a SecretKey<BYTES>,
        random: &'a [u8; RANDOM_BYTES],
        digest: &'a [u8],
    ) -> Self {
        Self {
            key,
            random,
            digest,
            result: None,
        }
    }
}

/// [`hedged`] for many requests, hashed side by side.
pub fn hedged_batch<const BYTES: usize>(backend: Backend, jobs: &mut [HedgedJob<'_, BYTES>]) {
    dispatch!(backend, jobs, hedged_in_lanes);
}

fn hedged_in_lanes<S: Simd, const BYTES: usize>(s: S, jobs: &mut [HedgedJob<'_, BYTES>]) {
    let mut blocks = [[0; BLOCK_BYTES]; MAX_LANES];
    let mut digests: [Words; MAX_LANES] = [[0; 8]; MAX_LANES];
    for jobs in jobs.chunks_mut(S::LANES) {
        // Written in place: a moved copy would stay behind in memory.
        for (block, job) in blocks.iter_mut().zip(&*jobs) {
            block[..BYTES].copy_from_slice(job.key.as_bytes());
        }
        let mut messages: [Message<'_>; MAX_LANES] = [[&[]; 3]; MAX_LANES];
        for ((message, block), job) in messages.iter_mut().zip(&blocks).zip(&*jobs) {
            *message = [block, job.random, job.digest];
        }
        let count = jobs.len();
        sha512::hash(s, &messages[..count], &mut digests[..count]);
        for (job, digest) in jobs.iter_mut().zip(&digests) {
            let mut nonce = Wide([0; WIDE_BYTES]);
            for (bytes, word) in nonce.0.as_chunks_mut().0.iter_mut().zip(digest) {
                *bytes = word.to_be_bytes();
            }
            job.result = Some(nonce);
        }
    }
    wipe(blocks.as_flattened_mut());
    wipe(digests.as_flattened_mut());
}

/// A curve of RFC 6979: its order, big-endian.
pub trait Order<const BYTES: usize> {
    /// The order n.
    const ORDER: [u8; BYTES];
}

/// The orders of [`p256`](super::p256) and [`p384`](super::p384).
#[derive(Debug)]
pub enum Nist {}

impl Order<32> for Nist {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
        0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
}

impl Order<48> for Nist {
    const ORDER: [u8; 48] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xc7, 0x63, 0x4d, 0x81, 0xf4, 0x37,
        0x2d, 0xdf, 0x58, 0x1a, 0x0d, 0xb2, 0x48, 0xb0, 0xa7, 0x7a, 0xec, 0xec, 0x19, 0x6a, 0xcc,
        0xc5, 0x29, 0x73,
    ];
}

/// Returns the deterministic nonce of RFC 6979, 3.2, with HMAC over `H`, for a digest of any
/// length.
///
/// `key` must lie in 1..n. The time depends on the digest and on the number of candidates that are
/// at least n (none, except in one case of 2^32).
pub fn rfc6979<H, const BYTES: usize>(key: &SecretKey<BYTES>, digest: &[u8]) -> Wide
where
    H: Digest + Clone,
    Nist: Order<BYTES>,
{
    let order = Nist::ORDER;
    let reduced = digest_below(digest, &order);
    let length = <H as Digest>::output_size();
    let mut k = vec![0; length];
    let mut v = vec![1; length];
    for step in [0, 1] {
        k = hmac::<H>(&k, &[&v, &[step], key.as_bytes(), &reduced]);
        v = hmac::<H>(&k, &[&v]);
    }
    loop {
        let mut candidate = Vec::with_capacity(BYTES + length);
        while candidate.len() < BYTES {
            v = hmac::<H>(&k, &[&v]);
            candidate.extend_from_slice(&v);
        }
        candidate[BYTES..].zeroize();
        candidate.truncate(BYTES);
        let usable = candidate.iter().any(|&byte| byte != 0) && candidate[..] < order[..];
        let wide = Wide::from_scalar(&candidate);
        candidate.zeroize();
        if let (true, Some(wide)) = (usable, wide) {
            k.zeroize();
            v.zeroize();
            return wide;
        }
        k = hmac::<H>(&k, &[&v, &[0]]);
        v = hmac::<H>(&k, &[&v]);
    }
}

/// Returns bits2octets of RFC 6979, 2.3.4: the leftmost bits of the digest, modulo n.
fn digest_below<const BYTES: usize>(digest: &[u8], order: &[u8; BYTES]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    let taken = digest.len().min(BYTES);
    out[BYTES - taken..].copy_from_slice(&digest[..taken]);
    if out >= *order {
        let mut borrow = 0;
        for (byte, &n) in out.iter_mut().zip(order).rev() {
            let difference = i16::from(*byte) - i16::from(n) - borrow;
            *byte = difference as u8;
            borrow = i16::from(difference < 0);
        }
    }
    out
}

/// Computes HMAC (RFC 2104), for keys not longer than the digest.
fn hmac<H: Digest + Clone>(key: &[u8], message: &[&[u8]]) -> Vec<u8> {
    // Blocks have 64 bytes in SHA-256, and 128 in SHA-384 and SHA-512.
    let block = if <H as Digest>::output_size() <= 32 {
        64
    } else {
        128
    };
    let mut padded = vec![0; block];
    padded[..key.len()].copy_from_slice(key);
    let pass = |pad: u8, parts: &[&[u8]]| {
        let mut hash = H::new();
        let mut mixed: Vec<u8> = padded.iter().map(|byte| byte ^ pad).collect();
        hash.update(&mixed);
        mixed.zeroize();
        for part in parts {
            hash.update(part);
        }
        hash.finalize().to_vec()
    };
    let inner = pass(0x36, message);
    let outer = pass(0x5c, &[&inner]);
    padded.zeroize();
    outer
}
