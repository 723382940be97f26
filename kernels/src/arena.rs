//! The working memory of a batch, handed out as limb vectors.

use lockstep_vault::{OnFork, Slice, Zeroable};

use crate::secret::wipe;
use crate::simd::{Plain, words_mut};

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u64; 8]);

// SAFETY: 512 bits of `u64` without padding, 64-byte aligned.
unsafe impl Plain for Line {}

// SAFETY: integers.
unsafe impl Zeroable for Line {}

/// Owned, cache-line aligned memory, wiped when it is dropped. No core dump and no forked child has
/// it.
pub(crate) struct Memory(Slice<Line>);

impl Memory {
    /// `bytes`, rounded up to cache lines, all zero; None without memory.
    pub(crate) fn try_new(bytes: usize) -> Option<Self> {
        Some(Self(Slice::try_zeroed(bytes.div_ceil(64), OnFork::Wipe)?))
    }

    /// The same; without memory the process ends.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Slice::zeroed(bytes.div_ceil(64), OnFork::Wipe))
    }

    /// All of it, to take pieces from.
    pub(crate) fn arena(&mut self) -> Arena<'_> {
        Arena(&mut self.0)
    }

    /// Overwrites the first `bytes` with zeros.
    pub(crate) fn wipe(&mut self, bytes: usize) {
        let lines = bytes.div_ceil(64).min(self.0.len());
        wipe(words_mut(&mut self.0[..lines]));
    }
}

/// What is left of a [`Memory`].
pub(crate) struct Arena<'a>(&'a mut [Line]);

impl<'a> Arena<'a> {
    /// `count` limb vectors; what they hold is unspecified.
    pub(crate) fn slice<L: Plain>(&mut self, count: usize) -> &'a mut [L] {
        let lines = (count * size_of::<L>()).div_ceil(64);
        let (piece, rest) = core::mem::take(&mut self.0).split_at_mut(lines);
        self.0 = rest;
        const { assert!(align_of::<L>() <= 64) };
        // SAFETY: `piece` is at least `count` vectors long, aligned to 64 bytes, borrowed for 'a
        // and nowhere else; every bit pattern is an `L`.
        unsafe { core::slice::from_raw_parts_mut(piece.as_mut_ptr().cast(), count) }
    }

    /// One number.
    pub(crate) fn array<L: Plain, const N: usize>(&mut self) -> &'a mut [L; N] {
        self.slice(N).try_into().expect("N vectors")
    }

    /// One limb vector.
    pub(crate) fn one<L: Plain>(&mut self) -> &'a mut L {
        &mut self.slice(1)[0]
    }

    /// The rest, to be taken again and again.
    pub(crate) fn rest(&mut self) -> Arena<'_> {
        Arena(self.0)
    }

    /// How many bytes are left.
    pub(crate) fn bytes_left(&self) -> usize {
        64 * self.0.len()
    }
}
