//! The radix, the modulus, and the bounds of limbs.

/// Limbs of a number.
pub(crate) const LIMBS: usize = 5;

/// The number 1.
pub(crate) const ONE: [u64; LIMBS] = [1, 0, 0, 0, 0];

/// 2^260 mod p.
pub(super) const FOLD: u64 = 608;

/// 2^255 mod p.
pub(super) const TOP_FOLD: u64 = 19;

/// Bits of the top limb of a number below 2^255.
pub(super) const TOP_BITS: u32 = 47;

pub(super) const MASK: u64 = (1 << 52) - 1;

/// The limbs of p.
pub(super) const MODULUS: [u64; LIMBS] = [MASK - 18, MASK, MASK, MASK, (1 << TOP_BITS) - 1];

/// 2^10·p with limbs close to 2^57, so that subtracting up to [`SUBTRAHEND`] leaves none negative.
pub(super) const BIAS: [u64; LIMBS] = {
    let mut bias = [0; LIMBS];
    let mut i = 0;
    while i < LIMBS {
        // Limb i of 2^10·p, in which every limb but the top one is close to 2^62, brought
        // to 2^57 by carrying 2^10 − 2^5 units of 2^52 to the next limb.
        let wide = (MODULUS[i] as u128) << 10;
        let given = if i < LIMBS - 1 {
            (1u128 << 10) - (1 << 5)
        } else {
            0
        };
        let taken = if i > 0 { (1u128 << 10) - (1 << 5) } else { 0 };
        bias[i] = (wide + taken - (given << 52)) as u64;
        i += 1;
    }
    bias
};

/// What may be subtracted: two products.
pub(super) const SUBTRAHEND: u64 = 2 * PRODUCT_BOUND;

/// Bound of the limbs of a [`Product`](super::Product): five low halves, four high halves, one low
/// and one small high half from the fold (limb 4); the other limbs have fewer halves of columns and
/// two of the fold.
pub(super) const PRODUCT_BOUND: u64 = 11 << 52;

/// Bound of the limbs of a [`Biased`](super::Biased) product and of twice one.
pub(super) const BIASED_BOUND: u64 = 1 << 59;

/// Bound of the limbs of a [`Sum`](super::Sum).
pub(super) const SUM_BOUND: u64 = 1 << 60;

/// The limbs of a number below 2^255, given as words of 64 bits.
pub(crate) const fn limbs(w: [u64; 4]) -> [u64; LIMBS] {
    assert!(w[3] >> 63 == 0);
    [
        w[0] & MASK,
        (w[0] >> 52 | w[1] << 12) & MASK,
        (w[1] >> 40 | w[2] << 24) & MASK,
        (w[2] >> 28 | w[3] << 36) & MASK,
        w[3] >> 16,
    ]
}

const _: () = {
    let mut i = 0;
    while i < LIMBS {
        assert!(BIAS[i] >= SUBTRAHEND);
        assert!(2 * (BIAS[i] + PRODUCT_BOUND) <= BIASED_BOUND);
        assert!(BIASED_BOUND + 9 * PRODUCT_BOUND <= SUM_BOUND);
        // A squaring starts with half of it.
        assert!(i == 0 || BIAS[i].is_multiple_of(2));
        i += 1;
    }
    // A carried top limb: 47 bits and the carry of the limb below.
    let top = (1u128 << TOP_BITS) + (SUM_BOUND as u128 >> 52) + 1;
    // The highest column of a product of two such, and its fold, which must fit the low half.
    let column = ((top * top) >> 52) + 16;
    assert!(column * (FOLD as u128) < 1 << 52);
    // The carry out of the top limb, times 19, must fit the low half.
    assert!((SUM_BOUND as u128 >> TOP_BITS) * (TOP_FOLD as u128) < 1 << 52);
};
