//! The working memory of a batch, handed out as limb vectors.

use lockstep_vault::{OnFork, Slice, Zeroable};

use crate::secret::wipe;
use crate::simd::{Plain, words_mut};

/// One cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u64; 8]);

impl Line {
    pub(crate) const ZERO: Line = Line([0; 8]);
}

// SAFETY: 512 bits of `u64` without padding, 64-byte aligned.
unsafe impl Plain for Line {}

// SAFETY: all zero is a valid value of an array of integers.
unsafe impl Zeroable for Line {}

/// Cache-line aligned memory that is wiped when it is dropped. Core dumps do not contain it, and a
/// forked child reads zeros.
pub(crate) struct Memory(Slice<Line>);

impl Memory {
    /// Allocates `bytes` zero bytes, rounded up to cache lines. Returns `None` if that fails.
    pub(crate) fn try_new(bytes: usize) -> Option<Self> {
        Some(Self(Slice::try_zeroed(bytes.div_ceil(64), OnFork::Wipe)?))
    }

    /// Allocates as [`try_new`](Self::try_new) does, but ends the process if that fails.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Slice::zeroed(bytes.div_ceil(64), OnFork::Wipe))
    }

    /// Returns an arena over the whole memory.
    pub(crate) fn arena(&mut self) -> Arena<'_> {
        Arena(&mut self.0)
    }

    /// Overwrites the first `bytes` with zeros.
    pub(crate) fn wipe(&mut self, bytes: usize) {
        let lines = bytes.div_ceil(64).min(self.0.len());
        wipe(words_mut(&mut self.0[..lines]));
    }
}

/// The part of a [`Memory`] that is not yet handed out.
pub(crate) struct Arena<'a>(&'a mut [Line]);

impl<'a> Arena<'a> {
    /// Takes `count` limb vectors with unspecified contents.
    pub(crate) fn slice<L: Plain>(&mut self, count: usize) -> &'a mut [L] {
        let lines = (count * size_of::<L>()).div_ceil(64);
        let (piece, rest) = core::mem::take(&mut self.0).split_at_mut(lines);
        self.0 = rest;
        const { assert!(align_of::<L>() <= 64) };
        // SAFETY: `piece` is at least `count` vectors long, aligned to 64 bytes, and borrowed for
        // 'a here alone; every bit pattern is a valid `L`.
        unsafe { core::slice::from_raw_parts_mut(piece.as_mut_ptr().cast(), count) }
    }

    /// Takes `N` limb vectors with unspecified contents.
    pub(crate) fn array<L: Plain, const N: usize>(&mut self) -> &'a mut [L; N] {
        self.slice(N).try_into().expect("N vectors")
    }

    /// Takes one limb vector with unspecified contents.
    pub(crate) fn one<L: Plain>(&mut self) -> &'a mut L {
        &mut self.slice(1)[0]
    }

    /// Borrows the remaining memory, which is free again when the returned arena is dropped.
    pub(crate) fn rest(&mut self) -> Arena<'_> {
        Arena(self.0)
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn bytes_left(&self) -> usize {
        64 * self.0.len()
    }
}
