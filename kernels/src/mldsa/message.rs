//! The message to sign, and its representative (FIPS 204, algorithms 2 to 5 and 7).

use core::fmt;

use super::hashing::Representatives;
use super::key::PublicKey;
use super::lanes::Lanes;
use super::parameters::{GROUP, Hash};
use crate::keccak::sponge::Function;
use crate::keccak::{Form, States, WORDS};
use crate::secret::wipe;
use crate::simd::portable::Portable;
use crate::simd::{Simd, words_mut};

/// A message to sign or to verify.
#[derive(Clone, Copy)]
pub enum Message<'a> {
    /// M′ of algorithm 7, the bytes that follow the hash of the public key: the
    /// [prefix](Self::prefix), the context and the message. Hashed in lanes, with other messages.
    Whole(&'a [u8]),
    /// The [representative](Mu) of a message.
    Representative(&'a [u8; 64]),
}

impl Message<'_> {
    /// Returns the first two bytes of a message, which come before the context; None if the context
    /// has more than 255 bytes. If the message was hashed before, the object identifier of the hash
    /// function follows the context, and then the hash (algorithm 4, line 23).
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

/// Computes the representatives of up to eight messages, each with the public key of its signer.
pub(super) fn representatives<'a>(
    lanes: &dyn Lanes,
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
    lanes.hash(&mut Representatives {
        inputs,
        mus: &mut mus,
        next: 0,
    });
    mus
}

/// Computes the hash of an encoded public key (tr), in one lane.
pub fn hash(public_key: &[u8]) -> [u8; 64] {
    let mut hash = Mu::empty();
    hash.update(public_key);
    hash.finish()
}

/// Computes the representative µ of a message (algorithm 7, line 6), for a message that comes in
/// pieces. The representative is signed and verified in place of the message.
///
/// The hashed bytes begin with the hash of the public key and a prefix. For a message that was
/// hashed before, the encoded object identifier of the hash function and the hash follow (algorithm
/// 4, line 23).
#[derive(Clone)]
pub struct Mu {
    states: States<Portable<1>>,
    /// Number of bytes in the current block.
    filled: usize,
}

impl Mu {
    const RATE: usize = Function::Shake256.rate();

    /// Begins without a prefix: for the internal interface (algorithms 7 and 8).
    pub fn internal(key: &PublicKey) -> Self {
        Self::of_hash(key.hash())
    }

    /// Begins without a prefix, with the [hash] of a public key.
    pub fn of_hash(hash: &[u8; 64]) -> Self {
        let mut mu = Self::empty();
        mu.update(hash);
        mu
    }

    fn empty() -> Self {
        Self {
            states: [Portable::<1>.zero(); WORDS],
            filled: 0,
        }
    }

    /// Begins a message that was not hashed before; None if the context has more than 255 bytes.
    pub fn pure(key: &PublicKey, context: &[u8]) -> Option<Self> {
        Self::with_prefix(key, false, context)
    }

    /// Begins a message that was hashed before; None if the context has more than 255 bytes.
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
    pub fn update(&mut self, mut piece: &[u8]) {
        while let Some((&byte, rest)) = piece.split_first() {
            match piece.split_first_chunk() {
                Some((word, rest)) if self.filled.is_multiple_of(8) => {
                    words_mut(&mut self.states)[self.filled / 8] ^= u64::from_le_bytes(*word);
                    (self.filled, piece) = (self.filled + 8, rest);
                }
                _ => {
                    self.add(self.filled, byte);
                    (self.filled, piece) = (self.filled + 1, rest);
                }
            }
            if self.filled == Self::RATE {
                self.permute();
            }
        }
    }

    /// Returns the representative.
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
