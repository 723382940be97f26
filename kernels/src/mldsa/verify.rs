//! Verification (FIPS 204, algorithm 8): the only place where bytes become a [`Signature`].
//!
//! The check of a new signature shares with signing only code and the prepared public key, which
//! has none of the secret polynomials. It begins with the very bytes that would be returned.

use core::fmt;

use super::coding::{Ball, Hints, decode_hints};
use super::hashing::Challenges;
use super::key::PublicKey;
use super::lanes::{Lanes, on};
use super::message::{Message, representatives};
use super::parameters::{
    GROUP, Hash, MOST_ROWS, Scratch, challenge_bytes, high_bits, length, omega, places,
    response_bytes,
};
use crate::backend::Backend;
use crate::fault;
use crate::simd::words32::{AlignedBytes, LongPolynomial};

/// A signature that has passed its check. Only this module can make one.
#[derive(Clone, PartialEq, Eq)]
pub struct Signature(Vec<u8>);

impl Signature {
    /// Returns the signature's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// [`as_bytes`](Self::as_bytes), owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature")
    }
}

/// The claim that bytes are a signature of a message.
pub(super) struct Claim<'a> {
    key: &'a PublicKey,
    mu: &'a Hash,
    bytes: Vec<u8>,
    holds: bool,
}

impl<'a> Claim<'a> {
    /// Returns an unchecked claim.
    pub(super) fn new(key: &'a PublicKey, mu: &'a Hash, bytes: Vec<u8>) -> Self {
        Self {
            key,
            mu,
            bytes,
            holds: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the signature, if a check found it right.
    pub(super) fn verdict(self) -> Option<Signature> {
        self.holds.then_some(Signature(self.bytes))
    }
}

/// A signature to verify.
#[derive(Debug)]
pub struct VerifyJob<'a> {
    /// The signer's public key.
    pub key: &'a PublicKey,
    /// The message.
    pub message: Message<'a>,
    /// The bytes received.
    pub signature: &'a [u8],
    /// Result, set by [`verify`]: whether the bytes are a signature of the message.
    pub result: Option<bool>,
}

/// Verifies all signatures, eight at a time. The jobs may have different keys of the parameter set.
///
/// # Panics
/// If the parameter set of a key is not that of the memory.
pub fn verify(backend: Backend, scratch: &mut Scratch, jobs: &mut [VerifyJob<'_>]) {
    let set = scratch.set;
    for job in &*jobs {
        assert_eq!(job.key.set(), set);
    }
    on(backend, |lanes| {
        for jobs in jobs.chunks_mut(GROUP) {
            verify_group(lanes, scratch, jobs);
        }
    });
}

fn verify_group(lanes: &dyn Lanes, scratch: &mut Scratch, jobs: &mut [VerifyJob<'_>]) {
    let mus = representatives(lanes, jobs.iter().map(|job| (job.key, job.message)));
    let mut checks = [const { None }; GROUP];
    for ((check, job), mu) in checks.iter_mut().zip(&*jobs).zip(&mus) {
        *check = Some((job.key, mu, job.signature));
    }
    let mut holds = [false; GROUP];
    check_all(lanes, scratch, &checks[..jobs.len()], &mut holds);
    for (job, holds) in jobs.iter_mut().zip(holds) {
        job.result = Some(holds);
    }
}

/// Checks up to eight claims.
pub(super) fn check(lanes: &dyn Lanes, scratch: &mut Scratch, claims: &mut [Claim<'_>]) {
    let mut holds = [false; GROUP];
    let mut checks = [const { None }; GROUP];
    for (check, claim) in checks.iter_mut().zip(&*claims) {
        *check = Some((claim.key, claim.mu, &claim.bytes[..]));
    }
    check_all(lanes, scratch, &checks[..claims.len()], &mut holds);
    for (claim, holds) in claims.iter_mut().zip(holds) {
        claim.holds = holds || fault::checks_are_skipped();
    }
}

/// A key, the representative of a message, and bytes that may be its signature.
type Check<'a> = Option<(&'a PublicKey, &'a Hash, &'a [u8])>;

/// Checks up to eight signatures; `holds` tells which are right.
fn check_all(
    lanes: &dyn Lanes,
    scratch: &mut Scratch,
    checks: &[Check<'_>],
    holds: &mut [bool; GROUP],
) {
    let (k, l) = scratch.set.k_and_l();
    let mut arena = scratch.memory.arena();
    let vector: &mut [LongPolynomial] = arena.slice(l);
    let challenge: &mut LongPolynomial = arena.one();
    let results: &mut [LongPolynomial] = arena.slice(k);
    let commitments: &mut [AlignedBytes<1024>] = arena.slice(GROUP);

    let mut hashes = [[0; 64]; GROUP];
    let mut balls = [Ball::EMPTY; GROUP];
    // Checks whose bytes have the length of a signature.
    let mut checked = [const { None }; GROUP];
    let mut count = 0;
    for (i, check) in checks.iter().enumerate() {
        let &(key, mu, signature) = check.as_ref().expect("as many as that");
        if signature.len() == key.set().signature_bytes() {
            hashes[count][..challenge_bytes(k)].copy_from_slice(&signature[..challenge_bytes(k)]);
            checked[count] = Some((i, key, mu, signature));
            count += 1;
        }
    }
    lanes.hash(&mut Challenges {
        k,
        messages: &[],
        commitments: &[],
        hashes: &mut hashes,
        balls: Some(&mut balls),
        next: 0,
        ready: (1 << count) - 1,
    });
    let mut messages = [&[0; 64]; GROUP];
    for (slot, checked) in checked.iter().flatten().enumerate() {
        let &(i, key, mu, signature) = checked;
        messages[slot] = mu;
        lanes.widen(&balls[slot].challenge.0, challenge);
        lanes.forward(challenge);
        let commitment = &mut commitments[slot].0;
        holds[i] = recommit(
            lanes, key, signature, vector, challenge, results, commitment,
        );
    }
    let mut again = [[0; 64]; GROUP];
    lanes.hash(&mut Challenges {
        k,
        messages: &messages[..count],
        commitments: &*commitments,
        hashes: &mut again,
        balls: None,
        next: 0,
        ready: 0,
    });
    for (slot, &(i, ..)) in checked.iter().flatten().enumerate() {
        holds[i] &= again[slot][..challenge_bytes(k)] == hashes[slot][..challenge_bytes(k)];
    }
}

/// Computes the commitment of a signature (lines 2 to 10) from the transform of its challenge;
/// returns whether the signature is well-formed.
fn recommit(
    lanes: &dyn Lanes,
    key: &PublicKey,
    signature: &[u8],
    vector: &mut [LongPolynomial],
    challenge: &LongPolynomial,
    results: &mut [LongPolynomial],
    commitment: &mut [u8],
) -> bool {
    let (k, l) = key.set().k_and_l();
    let (response, hints_at) = places(k, l);
    let mut hints: [Hints; MOST_ROWS] = [[0; 4]; _];
    let hints = &mut hints[..k];
    let mut is_valid = decode_hints(k, &signature[hints_at..][..omega(k) + k], hints);
    for (i, polynomial) in vector.iter_mut().enumerate() {
        let bytes = &signature[response + response_bytes(k) * i..];
        is_valid &= lanes.decode_response(k, bytes, polynomial);
        lanes.forward(polynomial);
    }
    if !is_valid {
        return false;
    }
    lanes.product(&key.matrix, vector, Some((&key.t1, challenge)), results);
    for (i, (result, hints)) in results.iter_mut().zip(hints).enumerate() {
        lanes.inverse(result);
        let bytes = &mut commitment[length(high_bits(k)) * i..];
        lanes.use_hints(k, result, hints, bytes);
    }
    true
}
