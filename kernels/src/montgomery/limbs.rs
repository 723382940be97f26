//! Numbers of many limbs in every lane: blocks of limbs, and the operations limb by limb.

use crate::simd::Simd;

/// Number of limbs on a side of a block.
pub(crate) const BLOCK: usize = 10;

pub(super) type Block<S> = [<S as Simd>::Limb; BLOCK];

/// Checks the spare bits that the bounds of `montgomery` need: R ≥ 2^8·n.
pub(crate) const fn check_slack(limbs: usize, modulus_bits: usize) {
    assert!(limbs * 52 >= modulus_bits + 8);
}

/// Checks that no column overflows 64 bits, and that numbers consist of whole blocks.
pub(super) const fn check_columns<S: Simd>(limbs: usize) {
    // Halves of products, a start value and a carry, each below 2^52.
    assert!(4 * limbs + 2 < 1 << 9);
    assert!(S::LIMB_BITS <= 52);
    assert!(limbs > 0 && limbs.is_multiple_of(BLOCK));
}

#[inline(always)]
pub(super) fn blocks<S: Simd>(limbs: &[S::Limb]) -> &[Block<S>] {
    limbs.as_chunks().0
}

#[inline(always)]
pub(super) fn blocks_mut<S: Simd>(limbs: &mut [S::Limb]) -> &mut [Block<S>] {
    limbs.as_chunks_mut().0
}

/// The modulus n, and k0 = −1/n mod 2^LIMB_BITS, in every lane.
#[derive(Clone, Copy)]
pub(crate) struct Modulus<'a, S: Simd, const N: usize> {
    pub(crate) n: &'a [S::Limb; N],
    pub(crate) k0: &'a S::Limb,
}

impl<'a, S: Simd, const N: usize> Modulus<'a, S, N> {
    #[inline(always)]
    pub(crate) fn new(n: &'a [S::Limb; N], k0: &'a S::Limb) -> Self {
        Self { n, k0 }
    }
}

/// Returns −1/n mod 2^64 for odd n, by Newton's iteration: each step doubles the number of right
/// bits.
pub(crate) fn negative_inverse(n: u64) -> u64 {
    let mut inverse = n;
    for _ in 0..5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg()
}

/// Clears the bits of every limb from `LIMB_BITS` upwards: see *Loose limbs* in the documentation
/// of `montgomery`.
#[inline(always)]
pub(crate) fn mask_limbs<S: Simd>(s: S, limbs: &mut [S::Limb]) {
    for limb in limbs {
        *limb = s.low_bits(*limb);
    }
}

/// Propagates carries so that all limbs are below the radix. The value must fit.
#[inline(always)]
pub(crate) fn normalise<S: Simd>(s: S, limbs: &mut [S::Limb]) {
    let mut carry = s.zero();
    for limb in limbs {
        let sum = s.add(*limb, carry);
        *limb = s.low_bits(sum);
        carry = s.carry(sum);
    }
}

/// Computes out = a + 2·n − b, with limbs below the radix. The value must not be negative and must
/// fit.
#[inline(always)]
pub(crate) fn subtract_mod<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    n: &[S::Limb; N],
) {
    // Every column borrows 2 from the one above, so that it stays positive without signed shifts.
    let lend = s.splat(2 << S::LIMB_BITS);
    let repay = s.splat(2);
    let mut carry = repay;
    for i in 0..N {
        let sum = s.add(s.add(a[i], s.add(n[i], n[i])), lend);
        let sum = s.sub(s.sub(s.add(sum, carry), repay), b[i]);
        out[i] = s.low_bits(sum);
        carry = s.carry(sum);
    }
}

/// Computes a ← a mod n for a < 2n, with limbs below the radix. `difference` is working memory.
#[inline(always)]
pub(crate) fn canonical<S: Simd, const N: usize>(
    s: S,
    a: &mut [S::Limb; N],
    difference: &mut [S::Limb; N],
    n: &[S::Limb; N],
) {
    let one = s.splat(1);
    let lend = s.splat(1 << S::LIMB_BITS);
    // `carry` is 1 as long as there is no borrow.
    let mut carry = one;
    for i in 0..N {
        let sum = s.sub(s.add(s.add(a[i], lend), carry), s.add(n[i], one));
        difference[i] = s.low_bits(sum);
        carry = s.carry(sum);
    }
    let not_below = s.any_bit(carry, one);
    for i in 0..N {
        a[i] = s.select(not_below, difference[i], a[i]);
    }
}
