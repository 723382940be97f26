//! The state of a key and of a message.

use core::fmt;

use super::lanes::Lanes;
use crate::secret::wipe;
use crate::simd::blocks::{BLOCK_BYTES, Block, MOST_LANES};

/// Number of rounds with a key of 256 bits.
pub(super) const MOST_ROUNDS: usize = 14;

/// Number of vectors encrypted side by side in a short message, and at the beginning and the end of
/// a long one.
pub(super) const SHORT: usize = 4;

/// Number of vectors encrypted side by side in the middle of a long message.
pub(super) const LONG: usize = 8;

/// Number of consecutive powers of H in a key: one for each block that is hashed at once.
pub(super) const POWERS: usize = SHORT * MOST_LANES;

/// Number of places for the powers and for zeros behind them, so that a vector can be loaded from
/// the place of each power.
pub(super) const PLACES: usize = POWERS + MOST_LANES - 1;

/// A power of H by which all blocks of a vector are multiplied.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Stride {
    pub(super) power: Block,
    /// The sum of both halves.
    pub(super) halves: [u8; 8],
}

/// A key: its round keys and powers of H. It has no `Clone`, since a clone passes through the
/// stack: see [`copy_from`](Key::copy_from).
#[repr(C, align(64))]
pub struct Key {
    /// H^16 to H, and zeros.
    pub(super) powers: [Block; PLACES],
    /// H^(8n) to H^n, where n is the number of lanes.
    pub(super) strides: [Stride; LONG],
    pub(super) round_keys: [Block; MOST_ROUNDS + 1],
    pub(super) rounds: usize,
    pub(super) lanes: Lanes,
}

impl Key {
    /// Copies `from` in place, without a copy on the stack.
    pub fn copy_from(&mut self, from: &Key) {
        let Key {
            powers,
            strides,
            round_keys,
            rounds,
            lanes,
        } = from;
        self.powers.copy_from_slice(powers);
        self.strides.copy_from_slice(strides);
        self.round_keys.copy_from_slice(round_keys);
        self.rounds = *rounds;
        self.lanes = *lanes;
    }

    pub(super) fn wipe(&mut self) {
        wipe(self.powers.as_flattened_mut());
        wipe(&mut self.strides);
        wipe(self.round_keys.as_flattened_mut());
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key([redacted])")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// A message in progress. Every call takes the key that the message began with.
#[derive(Default)]
#[repr(C)]
pub struct Message {
    /// The first counter block.
    pub(super) counter: Block,
    /// The mask of the tag, added to the hash: the first counter block, encrypted.
    pub(super) mask: Block,
    /// The hash so far, with the bytes of an incomplete block added to it.
    pub(super) hash: Block,
    /// Number of bytes of additional data.
    pub(super) additional: u64,
    /// Number of bytes of data.
    pub(super) data: u64,
}

impl Message {
    /// Copies `from` in place, without a copy on the stack.
    pub fn copy_from(&mut self, from: &Message) {
        let Message {
            counter,
            mask,
            hash,
            additional,
            data,
        } = from;
        self.counter.copy_from_slice(counter);
        self.mask.copy_from_slice(mask);
        self.hash.copy_from_slice(hash);
        self.additional = *additional;
        self.data = *data;
    }

    pub(super) fn wipe(&mut self) {
        wipe(&mut self.counter);
        wipe(&mut self.mask);
        wipe(&mut self.hash);
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Message([redacted])")
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Returns the number of bytes in an incomplete last block, or 0.
pub(super) fn position(length: u64) -> usize {
    length as usize % BLOCK_BYTES
}
