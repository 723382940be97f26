//! Products and squares from halves of limbs, for lanes that have only a 32-bit multiply.

use super::constants::{BIAS, FOLD, LIMBS};
use crate::simd::{Simd, inlined, opaque};
use crate::unroll::unrolled;

/// Number of 26-bit limbs of a number.
const HALVES: usize = 2 * LIMBS;

pub(super) const HALF_BITS: u32 = 26;

pub(super) const HALF_MASK: u64 = (1 << HALF_BITS) - 1;

/// [`multiply`](super::mul::multiply) from halves of limbs: 100 multiplies, 10 to fold and 6 to
/// recombine halves.
#[inline(always)]
pub(super) fn multiply_halves<S: Simd, const BIASED: bool>(
    s: S,
    a: &[S::Limb; LIMBS],
    b: &[S::Limb; LIMBS],
) -> [S::Limb; LIMBS] {
    let (a, b) = (halves(s, a), halves(s, b));
    fold_halves::<S, BIASED>(
        s,
        inlined!(|k: usize| {
            let b = opaque(&b);
            let mut column = s.zero();
            for i in 0..HALVES {
                if i <= k && k < i + HALVES {
                    column = s.optimisation_barrier(s.mul_short(column, a[i], b[k - i]));
                }
            }
            column
        }),
    )
}

/// [`square`](super::mul::square) from halves of limbs: 55 multiplies, 10 to fold and 6 to
/// recombine halves.
#[inline(always)]
pub(super) fn square_halves<S: Simd, const BIASED: bool>(
    s: S,
    a: &[S::Limb; LIMBS],
) -> [S::Limb; LIMBS] {
    let a = halves(s, a);
    fold_halves::<S, BIASED>(
        s,
        inlined!(|k: usize| {
            let b = opaque(&a);
            let mut column = s.zero();
            for i in 0..HALVES {
                if 2 * i < k && k < i + HALVES {
                    column = s.optimisation_barrier(s.mul_short(column, a[i], b[k - i]));
                }
            }
            column = s.add(column, column);
            if k.is_multiple_of(2) {
                column = s.mul_short(column, a[k / 2], a[k / 2]);
            }
            column
        }),
    )
}

/// Returns the 26-bit limbs of a [`Factor`](super::Factor).
#[inline(always)]
pub(super) fn halves<S: Simd>(s: S, a: &[S::Limb; LIMBS]) -> [S::Limb; HALVES] {
    let mask = s.splat(HALF_MASK);
    let mut halves = [s.zero(); HALVES];
    for i in 0..LIMBS {
        halves[2 * i] = s.and(a[i], mask);
        halves[2 * i + 1] = s.and(s.shift_right::<HALF_BITS>(a[i]), mask);
    }
    halves
}

/// Returns Σ column(k)·2^(26·k) for k < 20, folded to five limbs by 2^260 ≡ 608, plus [`BIAS`]
/// where `BIASED`.
///
/// The columns must be those of a product: at most 10 products below 2^52, and 9 in an even column
/// below 2^260. The limbs are below 11·2^52: these 9 products, the low half of an odd column, and
/// small numbers. The sums are computed column by column, so that they need few registers.
#[inline(always)]
fn fold_halves<S: Simd, const BIASED: bool>(
    s: S,
    column: impl Fn(usize) -> S::Limb,
) -> [S::Limb; LIMBS] {
    // Opaque, because a multiply by a constant would become three shifts and two additions.
    let (mask, fold) = (s.splat(HALF_MASK), s.splat(*opaque(&FOLD)));
    let mut high = [s.zero(); HALVES];
    let mut carry = s.zero();
    let mut reduce = inlined!(|k: usize| {
        let sum = s.add(column(HALVES + k), carry);
        carry = s.shift_right::<HALF_BITS>(sum);
        high[k] = s.and(sum, mask);
    });
    unrolled::<LIMBS>(inlined!(|i| {
        reduce(2 * i);
        reduce(2 * i + 1);
    }));
    let mut limbs = [s.zero(); LIMBS];
    let mut carry = s.zero();
    unrolled::<LIMBS>(inlined!(|k| {
        let even = s.mul_short(column(2 * k), high[2 * k], fold);
        let odd = s.mul_short(column(2 * k + 1), high[2 * k + 1], fold);
        let odd_low = s.and(odd, mask);
        limbs[k] = s.mul_short(s.add(even, carry), odd_low, s.splat(1 << HALF_BITS));
        if BIASED {
            limbs[k] = s.add(limbs[k], s.splat(BIAS[k]));
        }
        carry = s.shift_right::<HALF_BITS>(odd);
    }));
    // The carry out of the highest column goes to the lowest.
    limbs[0] = s.mul_short(limbs[0], carry, fold);
    limbs
}

const _: () = {
    // A column of ten products and a carry. Its upper half must fit a short multiply.
    assert!((11_u64 << 52) >> HALF_BITS < 1 << 32);
    // The highest column after folding: a carry and the product of two upper halves of top limbs.
    assert!((FOLD << 32) < 1 << 52);
};
