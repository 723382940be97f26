//! Blocks of words, and the trait that multiplies them.

use crate::taint::whole;

/// Eight words of 64 bits.
pub(crate) type Block = [u64; 8];

/// Bits of a block.
pub(crate) const BLOCK_BITS: usize = 512;

/// What multiplies words. A value proves that the CPU has the instructions.
pub(crate) trait Multiplier: Copy {
    /// What `body` gives, computed with the instruction set of the multiplier switched on.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// (c, t) = a·b + c + t, for a block a and as many blocks of b as of t; c is above t.
    fn multiply_add(self, t: &mut [Block], c: &mut Block, a: &Block, b: &[Block]);

    /// t = t + m·n + carry·2^(512·blocks) for an m with which the lowest block of t becomes zero; m
    /// itself takes its place. `k0` is −1/n mod 2^64. Returns what is carried out of t, which has
    /// one block more than n.
    fn reduce(self, t: &mut [Block], n: &[Block], k0: u64, carry: bool) -> bool;

    /// (c, t) = the products of each two different words of a, plus t.
    fn triangle(self, t: &mut Block, c: &mut Block, a: &Block);

    /// t = 2t + the squares of a's words, which must fit: a², if t was all mixed products.
    fn double(self, t: &mut [Block], a: &[Block]);
}

/// a = a + b + carry; returns the carry.
#[inline(always)]
pub(super) fn add(a: &mut Block, b: &Block, mut carry: bool) -> bool {
    for (a, b) in a.iter_mut().zip(b) {
        let (sum, above) = whole(*a).overflowing_add(whole(*b));
        let (sum, again) = sum.overflowing_add(whole(u64::from(carry)));
        (*a, carry) = (sum, above | again);
    }
    carry
}
