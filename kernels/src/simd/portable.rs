//! Lanes in plain Rust: the bit-exact oracle of every other backend. With one lane, they prepare
//! keys.

use super::{Plain, Simd, opaque_words};
use crate::order::Beside;
use crate::taint::whole;

/// `L` lanes in ordinary registers; they need no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Portable<const L: usize>;

/// One limb of `L` lanes.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Limbs<const L: usize>([u64; L]);

// SAFETY: a transparent array of `u64`.
unsafe impl<const L: usize> Plain for Limbs<L> {}

/// Returns the product of the bits that a multiply reads of two factors.
#[inline(always)]
fn product(a: u64, b: u64) -> u128 {
    let [a, b] = [a, b].map(|factor| whole(factor & ((1 << 52) - 1)));
    u128::from(a) * u128::from(b)
}

#[inline(always)]
fn per_lane<const L: usize>(lane: impl FnMut(usize) -> u64) -> Limbs<L> {
    Limbs(core::array::from_fn(lane))
}

/// Returns zero or all ones in every lane, hidden from the optimiser.
#[inline(always)]
fn mask<const L: usize>(lane: impl FnMut(usize) -> u64) -> Limbs<L> {
    Limbs(opaque_words(core::array::from_fn(lane)))
}

impl<const L: usize> Simd for Portable<L> {
    type Limb = Limbs<L>;
    /// All ones in the selected lanes, zero in the others.
    type Mask = Limbs<L>;
    type Order = Beside;
    type Lower = Self;

    const LANES: usize = L;
    const INLINE: bool = false;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(always)]
    fn splat(self, value: u64) -> Limbs<L> {
        Limbs([value; L])
    }

    #[inline(always)]
    fn mul_lo(self, acc: Limbs<L>, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        per_lane(|l| acc.0[l].wrapping_add(product(a.0[l], b.0[l]) as u64 & Self::LIMB_MASK))
    }

    #[inline(always)]
    fn mul_hi(self, acc: Limbs<L>, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        per_lane(|l| acc.0[l].wrapping_add((product(a.0[l], b.0[l]) >> Self::LIMB_BITS) as u64))
    }

    #[inline(always)]
    fn add(self, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        per_lane(|l| a.0[l].wrapping_add(b.0[l]))
    }

    #[inline(always)]
    fn sub(self, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        per_lane(|l| a.0[l].wrapping_sub(b.0[l]))
    }

    #[inline(always)]
    fn and(self, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        per_lane(|l| a.0[l] & b.0[l])
    }

    #[inline(always)]
    fn xor(self, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        per_lane(|l| a.0[l] ^ b.0[l])
    }

    #[inline(always)]
    fn halve(self, a: Limbs<L>) -> Limbs<L> {
        per_lane(|l| whole(a.0[l]) >> 1)
    }

    #[inline(always)]
    fn or_xor(self, a: Limbs<L>, b: Limbs<L>, c: Limbs<L>) -> Limbs<L> {
        per_lane(|l| a.0[l] | (b.0[l] ^ c.0[l]))
    }

    #[inline(always)]
    fn shift_right<const COUNT: u32>(self, a: Limbs<L>) -> Limbs<L> {
        per_lane(|l| whole(a.0[l]) >> COUNT)
    }

    #[inline(always)]
    fn rotate_right<const COUNT: i32>(self, a: Limbs<L>) -> Limbs<L> {
        per_lane(|l| a.0[l].rotate_right(COUNT as u32))
    }

    #[inline(always)]
    fn ternary<const TABLE: i32>(self, a: Limbs<L>, b: Limbs<L>, c: Limbs<L>) -> Limbs<L> {
        per_lane(|l| {
            (0..8)
                .filter(|row| TABLE >> row & 1 == 1)
                .fold(0, |out, row| {
                    let same = |x: u64, bit: u32| if row >> bit & 1 == 1 { x } else { !x };
                    out | (same(a.0[l], 2) & same(b.0[l], 1) & same(c.0[l], 0))
                })
        })
    }

    #[inline(always)]
    fn shift_right_by(self, a: Limbs<L>, count: u32) -> Limbs<L> {
        per_lane(|l| whole(a.0[l]) >> count)
    }

    #[inline(always)]
    fn shift_left_by(self, a: Limbs<L>, count: u32) -> Limbs<L> {
        per_lane(|l| a.0[l] << count)
    }

    #[inline(always)]
    fn carry(self, a: Limbs<L>) -> Limbs<L> {
        per_lane(|l| whole(a.0[l]) >> Self::LIMB_BITS)
    }

    #[inline(always)]
    fn spread(self, bit: Limbs<L>) -> Limbs<L> {
        mask(|l| bit.0[l].wrapping_neg())
    }

    #[inline(always)]
    fn any_bit(self, a: Limbs<L>, bits: Limbs<L>) -> Limbs<L> {
        mask(|l| {
            let x = a.0[l] & bits.0[l];
            // The top bit of x | −x shows whether x is zero, without a comparison.
            (((x | x.wrapping_neg()) as i64) >> 63) as u64
        })
    }

    #[inline(always)]
    fn equal(self, a: Limbs<L>, b: Limbs<L>) -> Limbs<L> {
        let different = self.any_bit(per_lane(|l| a.0[l] ^ b.0[l]), Limbs([u64::MAX; L]));
        per_lane(|l| !different.0[l])
    }

    #[inline(always)]
    fn select(self, mask: Limbs<L>, set: Limbs<L>, clear: Limbs<L>) -> Limbs<L> {
        per_lane(|l| clear.0[l] ^ (mask.0[l] & (set.0[l] ^ clear.0[l])))
    }

    #[inline(always)]
    fn choose_in(
        self,
        mask: Limbs<L>,
        chooser: Limbs<L>,
        clear: Limbs<L>,
        set: Limbs<L>,
    ) -> Limbs<L> {
        self.select(mask, self.select(chooser, set, clear), chooser)
    }

    #[inline(always)]
    fn look_up_16(self, table: &[u64; 16], index: Limbs<L>) -> Limbs<L> {
        (0..).zip(table).fold(Limbs([0; L]), |picked, (i, &word)| {
            // The top bit of x − 1 shows whether x < 16 is zero.
            let hit: Limbs<L> =
                mask(|l| ((((index.0[l] & 15) ^ i).wrapping_sub(1) as i64) >> 63) as u64);
            per_lane(|l| picked.0[l] | (word & hit.0[l]))
        })
    }
}
