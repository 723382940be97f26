//! Blocks of words, and the trait that multiplies them.

use crate::taint::whole;

/// Eight words of 64 bits.
pub(crate) type Block = [u64; 8];

/// Number of bits of a block.
pub(crate) const BLOCK_BITS: usize = 512;

/// A multiplier of words. A value proves that the CPU has the instructions.
pub(crate) trait Multiplier: Copy {
    /// Runs `body` with the instruction set of the multiplier enabled.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// Computes (c, t) = a·b + c + t, for a block a and as many blocks of b as of t; the new c is
    /// above t.
    fn multiply_add(self, t: &mut [Block], c: &mut Block, a: &Block, b: &[Block]);

    /// Computes t = t + m·n + carry·2^(512·blocks) for an m that makes the lowest block of t zero;
    /// m is stored in its place. `k0` is −1/n mod 2^64. Returns the carry out of t, which has one
    /// block more than n.
    fn reduce(self, t: &mut [Block], n: &[Block], k0: u64, carry: bool) -> bool;

    /// Computes (c, t) = the sum of the products of every two different words of a, plus t.
    fn triangle(self, t: &mut Block, c: &mut Block, a: &Block);

    /// Computes t = 2t + the squares of a's words, which must fit. The result is a², if t was the
    /// sum of all mixed products.
    fn double(self, t: &mut [Block], a: &[Block]);
}

/// Computes a = a + b + carry; returns the carry.
#[inline(always)]
pub(super) fn add(a: &mut Block, b: &Block, mut carry: bool) -> bool {
    for (a, b) in a.iter_mut().zip(b) {
        let (sum, above) = whole(*a).overflowing_add(whole(*b));
        let (sum, again) = sum.overflowing_add(whole(u64::from(carry)));
        (*a, carry) = (sum, above | again);
    }
    carry
}
