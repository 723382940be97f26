//! ML-DSA (FIPS 204): signatures, several requests at once, each of which is verified before it
//! leaves.
//!
//! Keccak runs in lanes; polynomials lie along vectors of words of 32 bits. A private key is
//! [prepared](PrivateKey) once: its matrix is expanded, its secret polynomials are transformed.
//!
//! A signature takes rounds, most of which are rejected: four to five on average. So rounds of
//! several requests are computed side by side, and several rounds of a request where there are few
//! requests. The result is always that of the first round that passes, as if they had been computed
//! one by one.
//!
//! How many rounds there are and which check rejects one may show in the time: both are independent
//! of the key, as FIPS 204's security proof has it. All else about secrets does not.

mod arithmetic;
mod coding;
mod hashing;
mod key;
mod sign;
#[cfg(test)]
mod tests;
mod verify;

use core::fmt;

use crate::arena::Memory;
use crate::keccak::sponge::{self, Function};
use crate::keccak::{Form, States, WORDS};
use crate::secret::{secret_bytes, wipe};
use crate::simd::portable::Portable;
use crate::simd::words32::Q;
use crate::simd::{Simd, words_mut};
use coding::length;
use hashing::Representatives;
pub use key::{KeyError, PrivateKey, PublicKey, generate};
pub use sign::{SignError, SignJob, sign};
pub use verify::{Signature, VerifyJob, verify};

/// A parameter set (section 4).
///
/// Within this module a set is its K and L: the rows and the columns of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterSet {
    /// ML-DSA-44.
    MlDsa44,
    /// ML-DSA-65.
    MlDsa65,
    /// ML-DSA-87.
    MlDsa87,
}

impl ParameterSet {
    /// Every set.
    pub const ALL: [ParameterSet; 3] = [Self::MlDsa44, Self::MlDsa65, Self::MlDsa87];

    const fn k_and_l(self) -> (usize, usize) {
        match self {
            ParameterSet::MlDsa44 => (4, 4),
            ParameterSet::MlDsa65 => (6, 5),
            ParameterSet::MlDsa87 => (8, 7),
        }
    }

    /// Bytes of a public key.
    pub const fn public_key_bytes(self) -> usize {
        let (k, _) = self.k_and_l();
        32 + k * length(10)
    }

    /// Bytes of a private key that is not a seed.
    pub const fn private_key_bytes(self) -> usize {
        let (k, l) = self.k_and_l();
        32 + 32 + 64 + (k + l) * length(coding::small_bits(k)) + k * length(13)
    }

    /// Bytes of a signature.
    pub const fn signature_bytes(self) -> usize {
        let (k, l) = self.k_and_l();
        let (_, hints) = coding::places(k, l);
        hints + omega(k) + k
    }
}

/// The largest absolute value of a coefficient of a secret polynomial (η).
const fn eta(k: usize) -> i32 {
    if k == 6 { 4 } else { 2 }
}

/// Coefficients of a challenge that are not zero (τ).
const fn tau(k: usize) -> usize {
    match k {
        4 => 39,
        6 => 49,
        _ => 60,
    }
}

/// The largest absolute value of a coefficient of the product of both (β).
const fn beta(k: usize) -> i32 {
    tau(k) as i32 * eta(k)
}

/// Bits of a coefficient of a mask.
const fn mask_bits(k: usize) -> usize {
    if k == 4 { 18 } else { 20 }
}

/// The largest coefficient of a mask (γ₁).
const fn gamma_1(k: usize) -> i32 {
    1 << (mask_bits(k) - 1)
}

/// The largest lower part of a commitment (γ₂).
const fn gamma_2(k: usize) -> i32 {
    if k == 4 { (Q - 1) / 88 } else { (Q - 1) / 32 }
}

/// Bits of a higher part.
const fn high_bits(k: usize) -> usize {
    if k == 4 { 6 } else { 4 }
}

/// Hints that a signature has at most (ω).
const fn omega(k: usize) -> usize {
    match k {
        4 => 80,
        6 => 55,
        _ => 75,
    }
}

/// Bytes of the hash of a commitment (λ/4).
const fn challenge_bytes(k: usize) -> usize {
    8 * k
}

/// Bytes of a commitment.
const fn commitment_bytes(k: usize) -> usize {
    k * length(high_bits(k))
}

/// Bytes of a polynomial of a response.
const fn response_bytes(k: usize) -> usize {
    length(mask_bits(k))
}

/// Bytes of the longest signature, in cache lines.
const LONGEST_SIGNATURE: usize = 4672;

const _: () = assert!(ParameterSet::MlDsa87.signature_bytes() <= LONGEST_SIGNATURE);

/// Requests that are computed together.
const GROUP: usize = 8;

/// 32 bytes, as all seeds have.
type Bytes = [u8; 32];

/// 64 bytes, as most hashes have.
type Hash = [u8; 64];

secret_bytes!(
    /// What a key pair is made of: 32 uniformly random bytes.
    Seed, 32
);
secret_bytes!(
    /// With what a signature is hedged: 32 uniformly random bytes, or zeros for a deterministic one.
    Randomness, 32
);

/// Calls `$function` with the K and the L of a parameter set after `$generic`.
macro_rules! for_set {
    ($set:expr, $function:ident, ($($argument:expr),*)) => {
        match $set {
            $crate::mldsa::ParameterSet::MlDsa44 => $function::<4, 4>($($argument),*),
            $crate::mldsa::ParameterSet::MlDsa65 => $function::<6, 5>($($argument),*),
            $crate::mldsa::ParameterSet::MlDsa87 => $function::<8, 7>($($argument),*),
        }
    };
}
use for_set;

/// The working memory of batches of one parameter set. Allocated once; wiped after every batch.
pub struct Scratch {
    memory: Memory,
    set: ParameterSet,
}

impl Scratch {
    /// Allocates; None without memory.
    pub fn try_new(set: ParameterSet) -> Option<Self> {
        let (k, l) = set.k_and_l();
        let bytes = sign::work_bytes(k, l).max(verify::work_bytes(k, l));
        let memory = Memory::try_new(bytes)?;
        Some(Self { memory, set })
    }

    /// The parameter set of its batches.
    pub fn set(&self) -> ParameterSet {
        self.set
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// What is signed.
#[derive(Clone, Copy)]
pub enum Message<'a> {
    /// A message that is hashed with others in lanes: all that follows the hash of the public key
    /// (M′ of algorithm 7), which is a [prefix](Self::prefix) and the message.
    Whole(&'a [u8]),
    /// The [representative](Mu) of a message.
    Representative(&'a [u8; 64]),
}

impl Message<'_> {
    /// The two bytes that a message begins with, before the context; None if the context has more
    /// than 255 bytes. If the message was hashed before, the object identifier of the hash function
    /// follows the context, and then the hash (algorithm 4, line 23).
    pub fn prefix(is_hashed: bool, context: &[u8]) -> Option<[u8; 2]> {
        let length = u8::try_from(context.len()).ok()?;
        Some([u8::from(is_hashed), length])
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Message([redacted])")
    }
}

/// The representatives of up to eight messages, each with the public key that it is signed with.
fn representatives<'a, S: Simd>(
    s: S,
    messages: impl Iterator<Item = (&'a PublicKey, Message<'a>)>,
) -> [Hash; GROUP] {
    let mut mus = [[0; 64]; GROUP];
    let mut inputs = [None; GROUP];
    for ((mu, input), (key, message)) in mus.iter_mut().zip(&mut inputs).zip(messages) {
        match message {
            Message::Whole(bytes) => *input = Some((key.hash(), bytes)),
            Message::Representative(given) => *mu = *given,
        }
    }
    sponge::hash(
        s,
        &mut Representatives {
            inputs,
            mus: &mut mus,
            next: 0,
        },
    );
    mus
}

/// A message on its way to 64 bytes, its representative µ (algorithm 7, line 6), which is signed
/// and verified in its place: for a message that comes in pieces.
///
/// It begins with the hash of the public key and a prefix. For a message that was hashed before,
/// the encoded object identifier of the hash function and the hash follow (algorithm 4, line 23).
#[derive(Clone)]
pub struct Mu {
    states: States<Portable<1>>,
    /// Bytes of the block that there are.
    filled: usize,
}

impl Mu {
    const RATE: usize = Function::Shake256.rate();

    /// Without a prefix: for the internal interface (algorithms 7 and 8).
    pub fn internal(key: &PublicKey) -> Self {
        let mut mu = Self {
            states: [Portable::<1>.zero(); WORDS],
            filled: 0,
        };
        mu.update(key.hash());
        mu
    }

    /// For a message that is signed itself; None if the context has more than 255 bytes.
    pub fn pure(key: &PublicKey, context: &[u8]) -> Option<Self> {
        Self::with_prefix(key, false, context)
    }

    /// For a message that was hashed before; None if the context has more than 255 bytes.
    pub fn pre_hashed(key: &PublicKey, context: &[u8]) -> Option<Self> {
        Self::with_prefix(key, true, context)
    }

    fn with_prefix(key: &PublicKey, is_hashed: bool, context: &[u8]) -> Option<Self> {
        let prefix = Message::prefix(is_hashed, context)?;
        let mut mu = Self::internal(key);
        mu.update(&prefix);
        mu.update(context);
        Some(mu)
    }

    /// Takes a piece of the message.
    pub fn update(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.add(self.filled, byte);
            self.filled += 1;
            if self.filled == Self::RATE {
                self.permute();
            }
        }
    }

    /// The representative.
    pub fn finish(mut self) -> [u8; 64] {
        self.add(self.filled, 0x1f);
        self.add(Self::RATE - 1, 0x80);
        self.permute();
        let mut bytes = [0; 64];
        for (to, word) in bytes
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(words_mut(&mut self.states))
        {
            *to = word.to_le_bytes();
        }
        bytes
    }

    fn add(&mut self, at: usize, byte: u8) {
        words_mut(&mut self.states)[at / 8] ^= u64::from(byte) << (8 * (at % 8));
    }

    fn permute(&mut self) {
        Form::Rows.permute(Portable::<1>, &mut self.states, 1);
        self.filled = 0;
    }
}

impl fmt::Debug for Mu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mu([redacted])")
    }
}

impl Drop for Mu {
    fn drop(&mut self) {
        wipe(words_mut(&mut self.states));
    }
}
