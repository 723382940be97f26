//! The radix, the modulus, and the bounds of limbs.

/// Number of limbs of a number.
pub(crate) const LIMBS: usize = 5;

/// The number 1.
pub(crate) const ONE: [u64; LIMBS] = [1, 0, 0, 0, 0];

/// 2^260 mod p.
pub(super) const FOLD: u64 = 608;

/// 2^255 mod p.
pub(super) const TOP_FOLD: u64 = 19;

/// Number of bits of the top limb of a number below 2^255.
pub(super) const TOP_BITS: u32 = 47;

pub(super) const MASK: u64 = (1 << 52) - 1;

/// The limbs of p.
pub(super) const MODULUS: [u64; LIMBS] = [MASK - 18, MASK, MASK, MASK, (1 << TOP_BITS) - 1];

/// 2^10·p with limbs close to 2^57, so that subtracting up to [`SUBTRAHEND`] leaves no limb
/// negative.
pub(super) const BIAS: [u64; LIMBS] = {
    let mut bias = [0; LIMBS];
    let mut i = 0;
    while i < LIMBS {
        // Limb i of 2^10·p. Every limb but the top one is close to 2^62, and becomes close to 2^57
        // by carrying 2^10 − 2^5 units of 2^52 to the next limb.
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

/// Upper bound on the limbs that may be subtracted: two products.
pub(super) const SUBTRAHEND: u64 = 2 * PRODUCT_BOUND;

/// Upper bound on the limbs of a [`Product`](super::Product). Limb 4 has the most: five low halves,
/// four high halves, one low and one small high half from the fold. The other limbs have fewer
/// halves of columns and two of the fold.
pub(super) const PRODUCT_BOUND: u64 = 11 << 52;

/// Upper bound on the limbs of a [`Biased`](super::Biased) product, also after it is doubled.
pub(super) const BIASED_BOUND: u64 = 1 << 59;

/// Upper bound on the limbs of a [`Sum`](super::Sum).
pub(super) const SUM_BOUND: u64 = 1 << 60;

/// Returns the limbs of a number below 2^255, given as words of 64 bits.
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
        // A squaring starts with half of each limb.
        assert!(i == 0 || BIAS[i].is_multiple_of(2));
        i += 1;
    }
    // Bound on a carried top limb: 47 bits and the carry of the limb below.
    let top = (1u128 << TOP_BITS) + (SUM_BOUND as u128 >> 52) + 1;
    // The highest column of a product of two such numbers, and its fold, which must fit in the low
    // half.
    let column = ((top * top) >> 52) + 16;
    assert!(column * (FOLD as u128) < 1 << 52);
    // The carry out of the top limb, times 19, must fit in the low half.
    assert!((SUM_BOUND as u128 >> TOP_BITS) * (TOP_FOLD as u128) < 1 << 52);
};
