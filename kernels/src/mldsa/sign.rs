//! Signatures (FIPS 204, algorithm 7).

use core::fmt;

use super::arithmetic::{forward, inverse, product, single_product, widen};
use super::coding::{
    Ball, Hints, Mask, decode_response, decompose, encode_hints, hints, respond, subtract,
};
use super::hashing::{Challenges, MaskSeeds, Masks};
use super::key::PrivateKey;
use super::message::{Message, representatives};
use super::parameters::{
    GROUP, Hash, LONGEST_SIGNATURE, Randomness, Scratch, beta, challenge_bytes, for_set, high_bits,
    length, omega, places, response_bytes, signing_bytes,
};
use super::verify::{self, Claim, Signature};
use crate::arena::Memory;
use crate::backend::Backend;
use crate::keccak::sponge;
use crate::mlkem::transform::{self as small_transform, Multiplier};
use crate::mlkem::{self, dispatch};
use crate::secret::wipe;
use crate::simd::Simd;
use crate::simd::words16::{Polynomial, Words};
use crate::simd::words32::{AlignedBytes, LongPolynomial, LongWords};
use crate::taint::disclosed;

/// Rounds after which there is no signature. Of 2^128 signatures not one takes as many, if nothing
/// is broken.
const MOST_ROUNDS: u16 = 1024;

#[cfg(test)]
thread_local! {
    /// Rounds that signatures of this thread took.
    pub(super) static ROUNDS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// A signature to make.
#[derive(Debug)]
pub struct SignJob<'a> {
    /// With which key.
    pub key: &'a PrivateKey,
    /// What is to be signed.
    pub message: Message<'a>,
    /// With what it is hedged.
    pub randomness: &'a Randomness,
    /// Left here by [`sign`].
    pub result: Option<Result<Signature, SignError>>,
}

/// Why there is no signature. Neither happens unless the machine is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignError {
    /// The signature was wrong, so it is not given out.
    CheckFailed,
    /// All rounds were rejected.
    NoRound,
}

impl fmt::Display for SignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SignError::CheckFailed => "the ML-DSA signature failed its check",
            SignError::NoRound => "no round gave an ML-DSA signature",
        })
    }
}

impl core::error::Error for SignError {}

/// Signs all messages, eight at a time, and verifies each signature before it is in its result. The
/// jobs may have different keys of the parameter set.
///
/// # Panics
/// If a key is of another parameter set than the memory.
pub fn sign(backend: Backend, scratch: &mut Scratch, jobs: &mut [SignJob<'_>]) {
    let set = scratch.set;
    for job in &*jobs {
        assert_eq!(job.key.public().set(), set);
    }
    for jobs in jobs.chunks_mut(GROUP) {
        for_set!(set, sign_on, (backend, &mut scratch.memory, jobs));
    }
}

fn sign_on<const K: usize, const L: usize>(
    backend: Backend,
    memory: &mut Memory,
    jobs: &mut [SignJob<'_>],
) {
    dispatch!(backend, sign_group::<_, _, K, L>, memory, jobs);
}

/// What a round works on.
struct Round<'a, const K: usize, const L: usize> {
    masks: &'a [Mask; L],
    /// The lower parts of the commitment.
    low: &'a mut [LongPolynomial; K],
    /// The higher ones.
    high: &'a mut AlignedBytes<1024>,
}

/// What is of no use after a round.
struct Work<'a, const L: usize> {
    vector: &'a mut [LongPolynomial; L],
    challenge: &'a mut LongPolynomial,
    added: &'a mut LongPolynomial,
    multiplier: &'a mut [Multiplier; 1],
    small: &'a mut Polynomial,
    signature: &'a mut AlignedBytes<LONGEST_SIGNATURE>,
}

/// How many rounds of so many requests are computed side by side. Two rounds of a request take less
/// time than one after the other, as long as lanes are free; a round after the one that passes is
/// lost.
fn rounds_at_once(requests: usize) -> usize {
    match requests {
        0 => 0,
        1 => 4,
        2 => 6,
        _ => GROUP,
    }
}

fn sign_group<S: Simd, W: Words + LongWords, const K: usize, const L: usize>(
    s: S,
    w: W,
    memory: &mut Memory,
    jobs: &mut [SignJob<'_>],
) {
    let mut found: [Option<Vec<u8>>; GROUP] = [const { None }; GROUP];
    let messages = jobs.iter().map(|job| (job.key.public(), job.message));
    let mus = representatives(s, messages);
    // Seeds and checks have one copy, commitments another one. If a fault strikes either, a
    // signature fails its check: without it, two signatures of a message by the same mask and
    // different challenges would give the key away.
    let committed = core::hint::black_box(mus);
    let mut seeds = [[0; 64]; GROUP];
    let mut inputs = [None; GROUP];
    for ((input, job), mu) in inputs.iter_mut().zip(&*jobs).zip(&mus) {
        let key = job.key.seed.first_chunk().expect("32 bytes");
        *input = Some((key, &job.randomness.0, mu));
    }
    sponge::hash(
        s,
        &mut MaskSeeds {
            inputs,
            seeds: &mut seeds,
            next: 0,
        },
    );

    let mut arena = memory.arena();
    let masks: &mut [[Mask; L]] = arena.slice(GROUP * L).as_chunks_mut().0;
    let low: &mut [[LongPolynomial; K]] = arena.slice(GROUP * K).as_chunks_mut().0;
    let high: &mut [AlignedBytes<1024>] = arena.slice(GROUP);
    let mut work = Work {
        vector: arena.array(),
        challenge: arena.one(),
        added: arena.one(),
        multiplier: arena.slice(2).as_chunks_mut().0.try_into().expect("one"),
        small: arena.one(),
        signature: arena.one(),
    };
    // The next round of each request.
    let mut next = [0; GROUP];
    loop {
        let open = |i: &usize| found[*i].is_none() && next[*i] < MOST_ROUNDS;
        let requests = (0..jobs.len()).filter(open).count();
        // Request and round: the next one of each request, then those after them.
        let mut rounds = [(0, 0); GROUP];
        let rounds = &mut rounds[..rounds_at_once(requests)];
        let each = (0..).flat_map(|later| (0..jobs.len()).filter(open).map(move |i| (i, later)));
        for (to, (i, later)) in rounds.iter_mut().zip(each) {
            *to = (i, next[i] + later);
        }
        let (rounds, count) = (&*rounds, rounds.len());
        if count == 0 {
            break;
        }

        let mut counters = [(&seeds[0], 0); GROUP];
        for (counter, &(i, round)) in counters.iter_mut().zip(rounds) {
            *counter = (&seeds[i], round * L as u16);
        }
        sponge::hash(
            s,
            &mut Masks {
                rounds: &counters[..count],
                l: L,
                masks: masks.as_flattened_mut(),
                next: 0,
                blocks: [0; _],
            },
        );
        for (slot, &(i, _)) in rounds.iter().enumerate() {
            let round = Round {
                masks: &masks[slot],
                low: &mut low[slot],
                high: &mut high[slot],
            };
            commit(w, jobs[i].key, round, work.vector);
        }
        let mut hashes = [[0; 64]; GROUP];
        let mut balls = [Ball::EMPTY; GROUP];
        let mut messages = [&committed[0]; GROUP];
        for (message, &(i, _)) in messages.iter_mut().zip(rounds) {
            *message = &committed[i];
        }
        sponge::hash(
            s,
            &mut Challenges {
                k: K,
                messages: &messages[..count],
                commitments: &*high,
                hashes: &mut hashes,
                balls: Some(&mut balls),
                next: 0,
                ready: 0,
            },
        );
        for (slot, &(i, _)) in rounds.iter().enumerate() {
            next[i] += 1;
            if found[i].is_some() {
                continue;
            }
            let round = Round {
                masks: &masks[slot],
                low: &mut low[slot],
                high: &mut high[slot],
            };
            let signature = &hashes[slot];
            if respond_to(w, jobs[i].key, round, &mut work, &balls[slot], signature) {
                let count = jobs[i].key.public().set().signature_bytes();
                // All checks have passed: this is what will be published.
                let bytes = work.signature.0[..count].iter();
                let bytes = bytes.map(|&byte| disclosed(byte)).collect();
                #[cfg(test)]
                ROUNDS.set(ROUNDS.get() + u32::from(next[i]));
                found[i] = Some(bytes);
            }
        }
    }
    wipe(seeds.as_flattened_mut());
    memory.wipe(signing_bytes(K, L));

    let mut claims: Vec<Claim<'_>> = Vec::with_capacity(jobs.len());
    for ((job, found), mu) in jobs.iter().zip(&mut found).zip(&mus) {
        let bytes = found.take().unwrap_or_default();
        claims.push(Claim::new(job.key.public(), mu, bytes));
    }
    verify::check::<S, W, K, L>(s, w, memory, &mut claims);
    for (job, claim) in jobs.iter_mut().zip(claims) {
        job.result = Some(match claim.is_empty() {
            true => Err(SignError::NoRound),
            false => claim.verdict().ok_or(SignError::CheckFailed),
        });
    }
}

/// The commitment of a round (lines 11 to 13).
fn commit<W: LongWords, const K: usize, const L: usize>(
    w: W,
    key: &PrivateKey,
    round: Round<'_, K, L>,
    vector: &mut [LongPolynomial; L],
) {
    for (mask, transformed) in round.masks.iter().zip(&mut *vector) {
        decode_response::<W, K>(w, &mask.0, transformed);
        forward(w, transformed);
    }
    product(w, &key.public().matrix, vector, None, round.low);
    let bytes = round.high.0.chunks_exact_mut(length(high_bits(K)));
    for (low, bytes) in round.low.iter_mut().zip(bytes) {
        inverse(w, low);
        decompose::<W, K>(w, low, bytes);
    }
}

/// The rest of a round: whether it passes, and the signature then (lines 16 to 33).
///
/// A check of a polynomial that fails ends the round, the one that fails most often first. That may
/// show, as may which check it was: a rejected response depends on the key no more than that
/// (section 5.5 of the specification of Dilithium, round 3).
fn respond_to<W: Words + LongWords, const K: usize, const L: usize>(
    w: W,
    key: &PrivateKey,
    round: Round<'_, K, L>,
    work: &mut Work<'_, L>,
    ball: &Ball,
    hash: &Hash,
) -> bool {
    let (s1, s2) = key.small.split_at(L);
    // Coefficients of c·s₁ and c·s₂ are at most β, which is so much less than half of ML-KEM's
    // modulus that the inverse transform gives them as they are.
    const { assert!(beta(K) < mlkem::MODULUS / 4) };
    *work.small = ball.challenge;
    small_transform::forward(w, work.small);
    small_transform::multiplier(w, work.small, &mut work.multiplier[0]);
    let multiply = |polynomial: &Polynomial, small: &mut Polynomial| {
        small_transform::product(w, [&polynomial.0], work.multiplier, small);
        small_transform::inverse(w, small);
    };
    for (low, s2) in round.low.iter_mut().zip(s2) {
        multiply(s2, work.small);
        if !disclosed(subtract::<W, K>(w, low, work.small)) {
            return false;
        }
    }
    let (response, hints_at) = places(K, L);
    let bytes = &mut work.signature.0;
    let parts = bytes[response..hints_at].chunks_exact_mut(response_bytes(K));
    for ((mask, s1), bytes) in round.masks.iter().zip(s1).zip(parts) {
        multiply(s1, work.small);
        if !disclosed(respond::<W, K>(w, mask, work.small, bytes)) {
            return false;
        }
    }

    widen(w, &ball.challenge.0, work.challenge);
    forward(w, work.challenge);
    let mut found: [Hints; K] = [[0; 4]; K];
    let high = round.high.0.chunks_exact(length(high_bits(K)));
    for (((low, t0), high), found) in round
        .low
        .iter()
        .zip(key.t0.iter())
        .zip(high)
        .zip(&mut found)
    {
        single_product(w, work.challenge, t0, work.added);
        inverse(w, work.added);
        if !disclosed(hints::<W, K>(w, low, work.added, high, found)) {
            return false;
        }
    }
    // From here on the signature is as good as published: a reader of it who has the public key
    // can compute these hints.
    let found = disclosed(found);
    let count: u32 = found
        .as_flattened()
        .iter()
        .map(|word| word.count_ones())
        .sum();
    if count as usize > omega(K) {
        return false;
    }
    bytes[..response].copy_from_slice(&hash[..challenge_bytes(K)]);
    encode_hints(&found, &mut bytes[hints_at..hints_at + omega(K) + K]);
    true
}
