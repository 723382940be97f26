//! The state of a key and of a message.

use core::fmt;

use super::lanes::Lanes;
use crate::secret::wipe;
use crate::simd::blocks::{BLOCK_BYTES, Block, MOST_LANES};

/// Rounds with a key of 256 bits.
pub(super) const MOST_ROUNDS: usize = 14;

/// Vectors that are encrypted side by side where a message is short, begins or ends.
pub(super) const SHORT: usize = 4;

/// Vectors that are encrypted side by side in the middle of a long message.
pub(super) const LONG: usize = 8;

/// Consecutive powers of H that a key holds: as many as blocks are hashed at once.
pub(super) const POWERS: usize = SHORT * MOST_LANES;

/// Places for them, and for zeros, so that a vector can be loaded from each place.
pub(super) const PLACES: usize = POWERS + MOST_LANES - 1;

/// A power of H by which all blocks of a vector are multiplied.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Stride {
    pub(super) power: Block,
    /// Both halves, added.
    pub(super) halves: [u8; 8],
}

/// A key: that of each round, and powers of H. It cannot be cloned, since a clone passes through
/// the stack: see [`copy_from`](Key::copy_from).
#[repr(C, align(64))]
pub struct Key {
    /// H^16 to H, and zeros.
    pub(super) powers: [Block; PLACES],
    /// H^8n to H^n, n being the lanes.
    pub(super) strides: [Stride; LONG],
    pub(super) round_keys: [Block; MOST_ROUNDS + 1],
    pub(super) rounds: usize,
    pub(super) lanes: Lanes,
}

impl Key {
    /// Copies `from` in place: nothing of it is left on the stack.
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

/// A message on its way. Every call takes the key that it began with.
#[derive(Default)]
#[repr(C)]
pub struct Message {
    /// The first block of the counter.
    pub(super) counter: Block,
    /// What is added to the hash to make the tag: the first block of the counter, encrypted.
    pub(super) mask: Block,
    /// The hash so far, with what is there of a block added to it.
    pub(super) hash: Block,
    /// Bytes of additional data.
    pub(super) additional: u64,
    /// Bytes of data.
    pub(super) data: u64,
}

impl Message {
    /// Copies `from` in place: nothing of it is left on the stack.
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

/// Bytes that are there of the last block.
pub(super) fn position(length: u64) -> usize {
    length as usize % BLOCK_BYTES
}
