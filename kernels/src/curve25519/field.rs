//! Arithmetic modulo p = 2^255 − 19 in every lane.
//!
//! A number is five limbs of 52 bits, x = Σ x_i·2^(52·i). Its limbs are allowed to
//! overlap, and how far is part of the type:
//!
//! | type | limbs | can be |
//! |---|---|---|
//! | [`Factor`] | only the low 52 bits of a limb count, and the top one is below 2^47 + 2^9 | multiplied |
//! | [`Product`] | below 11·2^52 | added, subtracted, carried |
//! | [`Sum`] | below 2^60 | carried |
//!
//! The lanes' multiplication reads the low 52 bits of a limb and nothing else. So a carry need not
//! clear what it has carried on: [`Sum::carry`] is five shifts and four additions, and the
//! result, whose high bits are rubbish, is fit for nothing but to be multiplied. That is
//! why `Factor` has no addition.
//!
//! Products are folded by 2^260 ≡ 32·19 = 608 as soon as they exist; carries fold by
//! 2^255 ≡ 19, which leaves a top limb of 47 bits. The five bits of room make the highest column
//! of a product so small that folding it cannot overflow again, and no second round is needed.
//!
//! After D. J. Bernstein, "Curve25519: new Diffie-Hellman speed records" (PKC 2006), section 4, in
//! the radix of N. Drucker and S. Gueron, "Fast modular squaring with AVX512IFMA" (ITNG 2019).

use core::ops::{Add, Mul, Sub};

use crate::simd::{Plain, Simd, words, words_mut};

/// Limbs of a number.
pub(crate) const LIMBS: usize = 5;

/// 2^260 mod p.
const FOLD: u64 = 608;

/// 2^255 mod p.
const TOP_FOLD: u64 = 19;

/// Bits of the top limb of a number below 2^255.
const TOP_BITS: u32 = 47;

const MASK: u64 = (1 << 52) - 1;

/// The limbs of p.
pub(crate) const MODULUS: [u64; LIMBS] = [MASK - 18, MASK, MASK, MASK, (1 << TOP_BITS) - 1];

/// 2^12·p with limbs of 2^58 or 2^59, so that subtracting up to [`SUBTRAHEND`] leaves none negative.
const BIAS: [u64; LIMBS] = {
    let mut bias = [0; LIMBS];
    let mut i = 0;
    while i < LIMBS {
        // Limb i of 2^12·p, in which every limb but the top one is close to 2^64, brought
        // to 2^58 by carrying 2^12 − 2^6 units of 2^52 to the next limb.
        let wide = (MODULUS[i] as u128) << 12;
        let given = if i < LIMBS - 1 { (1u128 << 12) - (1 << 6) } else { 0 };
        let taken = if i > 0 { (1u128 << 12) - (1 << 6) } else { 0 };
        bias[i] = (wide + taken - (given << 52)) as u64;
        i += 1;
    }
    bias
};

/// What may be subtracted: two products.
const SUBTRAHEND: u64 = 2 * PRODUCT_BOUND;
/// Bound of the limbs of a [`Product`]: five low halves, four high halves, one low and one small high
/// half from the fold (limb 4); the other limbs have fewer halves of columns and two of the fold.
const PRODUCT_BOUND: u64 = 11 << 52;
/// Bound of the limbs of a [`Sum`].
const SUM_BOUND: u64 = 1 << 60;

const _: () = {
    let mut i = 0;
    while i < LIMBS {
        assert!(BIAS[i] >= SUBTRAHEND);
        assert!(BIAS[i] <= SUM_BOUND - 9 * PRODUCT_BOUND);
        i += 1;
    }
    // A carried top limb: 47 bits and the carry of the limb below.
    let top = (1u128 << TOP_BITS) + (SUM_BOUND as u128 >> 52) + 1;
    // The highest column of a product of two such, and its fold, which must fit the low half.
    let column = (top * top >> 52) + 16;
    assert!(column * (FOLD as u128) < 1 << 52);
    // The carry out of the top limb, times 19, must fit the low half.
    assert!((SUM_BOUND as u128 >> TOP_BITS) * (TOP_FOLD as u128) < 1 << 52);
};

/// A number that can be multiplied. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Factor<S: Simd> {
    s: S,
    pub limbs: [S::Limb; LIMBS],
}

/// The result of a multiplication. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Product<S: Simd> {
    s: S,
    limbs: [S::Limb; LIMBS],
}

/// The sum of two products. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Pair<S: Simd> {
    s: S,
    limbs: [S::Limb; LIMBS],
}

/// A sum or difference of a few products. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Sum<S: Simd> {
    s: S,
    limbs: [S::Limb; LIMBS],
}

impl<S: Simd> Factor<S> {
    /// The same number in every lane; its limbs must be below 2^52, the top one below 2^47.
    #[inline(always)]
    pub(crate) fn splat(s: S, limbs: [u64; LIMBS]) -> Self {
        debug_assert!(limbs[..4].iter().all(|&x| x <= MASK) && limbs[4] >> TOP_BITS == 0);
        Self { s, limbs: limbs.map(|x| s.splat(x)) }
    }

    /// The number of these limbs.
    ///
    /// The limbs must be below 2^52 (higher bits are ignored), the top one below 2^47 + 2^9.
    #[inline(always)]
    pub(crate) fn from_limbs(s: S, limbs: [S::Limb; LIMBS]) -> Self {
        Self { s, limbs }
    }

    /// a² as columns of products, folded: 30 multiplies and 9 to fold.
    ///
    /// Output: limbs below 11·2^52.
    #[inline(always)]
    pub(crate) fn square(&self) -> Product<S> {
        let (s, a) = (self.s, &self.limbs);
        let zero = s.zero();
        let mut c = [zero; 2 * LIMBS];
        for i in 0..LIMBS {
            for j in i + 1..LIMBS {
                c[i + j] = s.mul_lo(c[i + j], a[i], a[j]);
                c[i + j + 1] = s.mul_hi(c[i + j + 1], a[i], a[j]);
            }
        }
        for column in &mut c[1..9] {
            *column = s.add(*column, *column);
        }
        for i in 0..LIMBS {
            c[2 * i] = s.mul_lo(c[2 * i], a[i], a[i]);
            c[2 * i + 1] = s.mul_hi(c[2 * i + 1], a[i], a[i]);
        }
        fold(s, c)
    }

    /// `a` where the mask is set, else `b`.
    #[inline(always)]
    pub(crate) fn select(mask: S::Mask, a: &Self, b: &Self) -> Self {
        let s = a.s;
        Self { s, limbs: core::array::from_fn(|i| s.select(mask, a.limbs[i], b.limbs[i])) }
    }

    /// The number itself as a product: clears the high bits.
    #[inline(always)]
    pub(crate) fn to_product(self) -> Product<S> {
        let s = self.s;
        Product { s, limbs: self.limbs.map(|x| s.low_bits(x)) }
    }

    /// e·`small` + a: a step of the ladder's doubling. `small` must be below 2^32.
    ///
    /// Output: limbs below 13·2^52 but for the lowest, below 14·2^52.
    #[inline(always)]
    pub(crate) fn mul_small_add(&self, small: u64, a: &Product<S>) -> Sum<S> {
        debug_assert!(small < 1 << 32);
        let (s, e, mut c) = (self.s, &self.limbs, a.limbs);
        let small = s.splat(small);
        for i in 0..LIMBS {
            c[i] = s.mul_lo(c[i], e[i], small);
        }
        for i in 0..LIMBS - 1 {
            c[i + 1] = s.mul_hi(c[i + 1], e[i], small);
        }
        let top = s.mul_hi(s.zero(), e[LIMBS - 1], small);
        c[0] = s.mul_lo(c[0], top, s.splat(FOLD));
        Sum { s, limbs: c }
    }
}

impl<S: Simd> Mul for &Factor<S> {
    type Output = Product<S>;

    /// a·b as columns of products, folded: 50 multiplies and 9 to fold.
    ///
    /// Output: limbs below 11·2^52.
    #[inline(always)]
    fn mul(self, other: Self) -> Product<S> {
        let (s, a, b) = (self.s, &self.limbs, &other.limbs);
        let mut c = [s.zero(); 2 * LIMBS];
        for i in 0..LIMBS {
            for j in 0..LIMBS {
                c[i + j] = s.mul_lo(c[i + j], a[i], b[j]);
            }
            for j in 0..LIMBS {
                c[i + j + 1] = s.mul_hi(c[i + j + 1], a[i], b[j]);
            }
        }
        fold(s, c)
    }
}

impl<S: Simd> Mul for Factor<S> {
    type Output = Product<S>;

    #[inline(always)]
    fn mul(self, other: Self) -> Product<S> {
        &self * &other
    }
}

/// Σ c_i·2^(52·i) for i < 10, folded to five limbs by 2^260 ≡ 608.
///
/// The columns must be below 10·2^52, and the top one must have been the high half of a product of
/// two carried top limbs: with the carry into it, it is below 2^52 / 608.
#[inline(always)]
fn fold<S: Simd>(s: S, mut c: [S::Limb; 2 * LIMBS]) -> Product<S> {
    for k in LIMBS..2 * LIMBS - 1 {
        c[k + 1] = s.add(c[k + 1], s.carry(c[k]));
    }
    let fold = s.splat(FOLD);
    for k in 0..LIMBS {
        c[k] = s.mul_lo(c[k], c[k + LIMBS], fold);
    }
    for k in 0..LIMBS - 1 {
        c[k + 1] = s.mul_hi(c[k + 1], c[k + LIMBS], fold);
    }
    let limbs = [c[0], c[1], c[2], c[3], c[4]];
    debug_assert!(below(&limbs, PRODUCT_BOUND));
    Product { s, limbs }
}

impl<S: Simd> Product<S> {
    /// See [`Sum::carry`].
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        self.to_sum().carry()
    }

    /// 2·a.
    #[inline(always)]
    pub(crate) fn double(self) -> Pair<S> {
        self + self
    }

    #[inline(always)]
    fn to_sum(self) -> Sum<S> {
        Sum { s: self.s, limbs: self.limbs }
    }
}

impl<S: Simd> Add for Product<S> {
    type Output = Pair<S>;

    #[inline(always)]
    fn add(self, other: Self) -> Pair<S> {
        Pair { s: self.s, limbs: add(self.s, &self.limbs, &other.limbs) }
    }
}

impl<S: Simd> Sub for Product<S> {
    type Output = Sum<S>;

    /// a − b + 2^12·p.
    #[inline(always)]
    fn sub(self, other: Self) -> Sum<S> {
        Sum { s: self.s, limbs: sub(self.s, &self.limbs, &other.limbs) }
    }
}

impl<S: Simd> Sub<Pair<S>> for Product<S> {
    type Output = Sum<S>;

    /// a − b + 2^12·p.
    #[inline(always)]
    fn sub(self, other: Pair<S>) -> Sum<S> {
        Sum { s: self.s, limbs: sub(self.s, &self.limbs, &other.limbs) }
    }
}

impl<S: Simd> Pair<S> {
    /// See [`Sum::carry`].
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        Sum { s: self.s, limbs: self.limbs }.carry()
    }
}

impl<S: Simd> Add<Product<S>> for Pair<S> {
    type Output = Sum<S>;

    #[inline(always)]
    fn add(self, other: Product<S>) -> Sum<S> {
        Sum { s: self.s, limbs: add(self.s, &self.limbs, &other.limbs) }
    }
}

impl<S: Simd> Sub<Product<S>> for Pair<S> {
    type Output = Sum<S>;

    /// a − b + 2^12·p.
    #[inline(always)]
    fn sub(self, other: Product<S>) -> Sum<S> {
        Sum { s: self.s, limbs: sub(self.s, &self.limbs, &other.limbs) }
    }
}

#[inline(always)]
fn add<S: Simd>(s: S, a: &[S::Limb; LIMBS], b: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    core::array::from_fn(|i| s.add(a[i], b[i]))
}

/// a − b + 2^12·p, without a negative limb while those of b are at most [`SUBTRAHEND`].
#[inline(always)]
fn sub<S: Simd>(s: S, a: &[S::Limb; LIMBS], b: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    debug_assert!(below(b, SUBTRAHEND));
    core::array::from_fn(|i| s.sub(s.add(a[i], s.splat(BIAS[i])), b[i]))
}

impl<S: Simd> Sum<S> {
    /// The same number with limbs that can be multiplied.
    ///
    /// The bits from 2^255 on are folded to the bottom by 19, then one carry runs upwards:
    /// limb i keeps what it carried on in its bits from 52 on.
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        let (s, mut x) = (self.s, self.limbs);
        debug_assert!(below(&x, SUM_BOUND));
        let top = s.shift_right(x[4], TOP_BITS);
        x[4] = s.and(x[4], s.splat((1 << TOP_BITS) - 1));
        x[0] = s.mul_lo(x[0], top, s.splat(TOP_FOLD));
        for i in 0..LIMBS - 1 {
            x[i + 1] = s.add(x[i + 1], s.carry(x[i]));
        }
        Factor { s, limbs: x }
    }
}

/// Whether every limb of every lane is below `bound`.
#[inline(always)]
fn below<L: Plain>(limbs: &[L], bound: u64) -> bool {
    words(limbs).iter().all(|&x| x < bound)
}
