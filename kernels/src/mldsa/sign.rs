//! Signatures (FIPS 204, algorithm 7).

use core::fmt;

use super::coding::{Ball, Hints, Mask, encode_hints};
use super::hashing::{Challenges, MaskSeeds, Masks};
use super::key::PrivateKey;
use super::lanes::{Lanes, on};
use super::message::{Message, representatives};
use super::parameters::{
    GROUP, Hash, LONGEST_SIGNATURE, MOST_ROWS, Randomness, Scratch, challenge_bytes, high_bits,
    length, omega, places, response_bytes, signing_bytes,
};
use super::verify::{self, Claim, Signature};
use crate::backend::Backend;
use crate::mlkem::transform::Multiplier;
use crate::secret::wipe;
use crate::simd::words16::Polynomial;
use crate::simd::words32::{AlignedBytes, LongPolynomial};
use crate::taint::disclosed;

/// Number of rounds after which signing gives up. Without a fault, fewer than one of 2^128
/// signatures takes as many.
const MOST_ROUNDS: u16 = 1024;

#[cfg(test)]
thread_local! {
    /// Number of rounds that signatures of this thread took.
    pub(super) static ROUNDS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// A signature to make.
#[derive(Debug)]
pub struct SignJob<'a> {
    /// The key.
    pub key: &'a PrivateKey,
    /// The message.
    pub message: Message<'a>,
    /// The randomness, which hedges the signature.
    pub randomness: &'a Randomness,
    /// Result, set by [`sign`].
    pub result: Option<Result<Signature, SignError>>,
}

/// The reason why there is no signature. Neither happens unless the machine is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignError {
    /// The signature was wrong, so it is withheld.
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

/// Signs all messages, eight at a time, and verifies each signature before it becomes the result.
/// The jobs may have different keys of the parameter set.
///
/// # Panics
/// If the parameter set of a key is not that of the memory.
///
/// # Examples
///
/// ```
/// use lockstep_kernels::backend::Backend;
/// use lockstep_kernels::mldsa::{
///     Message, ParameterSet, PrivateKey, Randomness, Scratch, Seed, SignJob, VerifyJob, sign,
///     verify,
/// };
///
/// let (backend, set) = (Backend::PORTABLE, ParameterSet::MlDsa65);
/// let seed = Seed::from_bytes(&[1; 32]); // from a generator
/// let key = PrivateKey::from_seed(set, backend, &seed).expect("memory");
/// let prefix = Message::prefix(false, b"").expect("a short context");
/// let message = [&prefix[..], b"message"].concat();
/// let mut scratch = Scratch::try_new(set).expect("memory");
/// let mut jobs = [SignJob {
///     key: &key,
///     message: Message::Whole(&message),
///     randomness: &Randomness::from_bytes(&[2; 32]), // from a generator
///     result: None,
/// }];
/// sign(backend, &mut scratch, &mut jobs);
/// let [signature] = jobs.map(|job| job.result.expect("set").expect("a correct signature"));
///
/// let mut jobs = [VerifyJob {
///     key: key.public(),
///     message: Message::Whole(&message),
///     signature: signature.as_bytes(),
///     result: None,
/// }];
/// verify(backend, &mut scratch, &mut jobs);
/// assert_eq!(jobs[0].result, Some(true));
/// ```
pub fn sign(backend: Backend, scratch: &mut Scratch, jobs: &mut [SignJob<'_>]) {
    let set = scratch.set;
    for job in &*jobs {
        assert_eq!(job.key.public().set(), set);
    }
    on(backend, |lanes| {
        for jobs in jobs.chunks_mut(GROUP) {
            sign_group(lanes, scratch, jobs);
        }
    });
}

struct Round<'a> {
    masks: &'a [Mask],
    /// The lower parts of the commitment.
    low: &'a mut [LongPolynomial],
    /// The higher parts of the commitment.
    high: &'a mut AlignedBytes<1024>,
}

/// Working memory whose contents are not needed after a round.
struct Work<'a> {
    vector: &'a mut [LongPolynomial],
    challenge: &'a mut LongPolynomial,
    added: &'a mut LongPolynomial,
    multiplier: &'a mut [Multiplier; 1],
    small: &'a mut Polynomial,
    signature: &'a mut AlignedBytes<LONGEST_SIGNATURE>,
}

/// Returns the number of rounds that are computed side by side for a number of requests. Two rounds
/// of a request take less time side by side than one after the other, as long as lanes are free,
/// but rounds after the one that passes are wasted.
fn rounds_at_once(requests: usize) -> usize {
    match requests {
        0 => 0,
        1 => 4,
        2 => 6,
        _ => GROUP,
    }
}

fn sign_group(lanes: &dyn Lanes, scratch: &mut Scratch, jobs: &mut [SignJob<'_>]) {
    let (k, l) = scratch.set.k_and_l();
    let mut found: [Option<Vec<u8>>; GROUP] = [const { None }; GROUP];
    let messages = jobs.iter().map(|job| (job.key.public(), job.message));
    let mus = representatives(lanes, messages);
    // Seeds and checks use one copy, challenges the other. If a fault strikes one copy, a signature
    // fails its check. With a single copy the signature would pass, and two signatures of a message
    // with the same mask and different challenges would reveal the key.
    let committed = core::hint::black_box(mus);
    let mut seeds = [[0; 64]; GROUP];
    let mut inputs = [None; GROUP];
    for ((input, job), mu) in inputs.iter_mut().zip(&*jobs).zip(&mus) {
        let key = job.key.seed.first_chunk().expect("32 bytes");
        *input = Some((key, &job.randomness.0, mu));
    }
    lanes.hash(&mut MaskSeeds {
        inputs,
        seeds: &mut seeds,
        next: 0,
    });

    let mut arena = scratch.memory.arena();
    let masks: &mut [Mask] = arena.slice(GROUP * l);
    let low: &mut [LongPolynomial] = arena.slice(GROUP * k);
    let high: &mut [AlignedBytes<1024>] = arena.slice(GROUP);
    let mut work = Work {
        vector: arena.slice(l),
        challenge: arena.one(),
        added: arena.one(),
        multiplier: arena.slice(2).as_chunks_mut().0.try_into().expect("one"),
        small: arena.one(),
        signature: arena.one(),
    };
    // Next round of each request.
    let mut next = [0; GROUP];
    loop {
        let open = |i: &usize| found[*i].is_none() && next[*i] < MOST_ROUNDS;
        let requests = (0..jobs.len()).filter(open).count();
        // Request and round: the next round of each request, then the rounds after them.
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
            *counter = (&seeds[i], round * l as u16);
        }
        lanes.hash(&mut Masks {
            rounds: &counters[..count],
            l,
            masks,
            next: [0; 3],
            blocks: [0; _],
        });
        for (slot, &(i, _)) in rounds.iter().enumerate() {
            let round = Round {
                masks: &masks[l * slot..][..l],
                low: &mut low[k * slot..][..k],
                high: &mut high[slot],
            };
            commit(lanes, jobs[i].key, round, work.vector);
        }
        let mut hashes = [[0; 64]; GROUP];
        let mut balls = [Ball::EMPTY; GROUP];
        let mut messages = [&committed[0]; GROUP];
        for (message, &(i, _)) in messages.iter_mut().zip(rounds) {
            *message = &committed[i];
        }
        lanes.hash(&mut Challenges {
            k,
            messages: &messages[..count],
            commitments: &*high,
            hashes: &mut hashes,
            balls: Some(&mut balls),
            next: 0,
            ready: 0,
        });
        for (slot, &(i, _)) in rounds.iter().enumerate() {
            next[i] += 1;
            if found[i].is_some() {
                continue;
            }
            let round = Round {
                masks: &masks[l * slot..][..l],
                low: &mut low[k * slot..][..k],
                high: &mut high[slot],
            };
            let (key, ball, hash) = (jobs[i].key, &balls[slot], &hashes[slot]);
            if respond_to(lanes, key, round, &mut work, ball, hash) {
                let count = jobs[i].key.public().set().signature_bytes();
                // All checks have passed: these bytes will be published.
                let bytes = work.signature.0[..count].iter();
                let bytes = bytes.map(|&byte| disclosed(byte)).collect();
                #[cfg(test)]
                ROUNDS.set(ROUNDS.get() + u32::from(next[i]));
                found[i] = Some(bytes);
            }
        }
    }
    wipe(seeds.as_flattened_mut());
    scratch.memory.wipe(signing_bytes(k, l));

    let mut claims: Vec<Claim<'_>> = Vec::with_capacity(jobs.len());
    for ((job, found), mu) in jobs.iter().zip(&mut found).zip(&mus) {
        let bytes = found.take().unwrap_or_default();
        claims.push(Claim::new(job.key.public(), mu, bytes));
    }
    verify::check(lanes, scratch, &mut claims);
    for (job, claim) in jobs.iter_mut().zip(claims) {
        job.result = Some(match claim.is_empty() {
            true => Err(SignError::NoRound),
            false => claim.verdict().ok_or(SignError::CheckFailed),
        });
    }
}

/// Computes the commitment of a round (lines 11 to 13).
fn commit(lanes: &dyn Lanes, key: &PrivateKey, round: Round<'_>, vector: &mut [LongPolynomial]) {
    let k = round.low.len();
    for (mask, transformed) in round.masks.iter().zip(&mut *vector) {
        lanes.decode_response(k, &mask.0, transformed);
        lanes.forward(transformed);
    }
    lanes.product(&key.public().matrix, vector, None, round.low);
    for (i, low) in round.low.iter_mut().enumerate() {
        lanes.inverse(low);
        let bytes = &mut round.high.0[length(high_bits(k)) * i..];
        lanes.decompose(k, low, bytes);
    }
}

/// Computes the rest of a round; returns whether it passes, and writes the signature then (lines 16
/// to 33).
///
/// The first polynomial that fails a check ends the round, and the check that fails most often
/// comes first. The time may reveal the polynomial and the check, and a rejected response tells no
/// more about the key (section 5.5 of the specification of Dilithium, round 3).
fn respond_to(
    lanes: &dyn Lanes,
    key: &PrivateKey,
    round: Round<'_>,
    work: &mut Work<'_>,
    ball: &Ball,
    hash: &Hash,
) -> bool {
    let (k, l) = key.public().set().k_and_l();
    let (s1, s2) = key.small.split_at(l);
    *work.small = ball.challenge;
    lanes.multiplier(work.small, work.multiplier);
    for (low, s2) in round.low.iter_mut().zip(s2) {
        lanes.multiply_small(s2, work.multiplier, work.small);
        if !disclosed(lanes.subtract(k, low, work.small)) {
            return false;
        }
    }
    let (response, hints_at) = places(k, l);
    let bytes = &mut work.signature.0;
    for (i, (mask, s1)) in round.masks.iter().zip(s1).enumerate() {
        lanes.multiply_small(s1, work.multiplier, work.small);
        let bytes = &mut bytes[response + response_bytes(k) * i..];
        if !disclosed(lanes.respond(k, mask, work.small, bytes)) {
            return false;
        }
    }

    lanes.widen(&ball.challenge.0, work.challenge);
    lanes.forward(work.challenge);
    let mut found: [Hints; MOST_ROWS] = [[0; 4]; _];
    for (i, (low, t0)) in round.low.iter().zip(key.t0.iter()).enumerate() {
        lanes.single_product(work.challenge, t0, work.added);
        lanes.inverse(work.added);
        let high = &round.high.0[length(high_bits(k)) * i..];
        if !disclosed(lanes.hints(k, low, work.added, high, &mut found[i])) {
            return false;
        }
    }
    // From here on the signature counts as published: a reader with the signature and the public
    // key can compute these hints.
    let found = &disclosed(found)[..k];
    let words = found.as_flattened().iter();
    let count: u32 = words.map(|word| word.count_ones()).sum();
    if count as usize > omega(k) {
        return false;
    }
    bytes[..response].copy_from_slice(&hash[..challenge_bytes(k)]);
    encode_hints(found, &mut bytes[hints_at..hints_at + omega(k) + k]);
    true
}
