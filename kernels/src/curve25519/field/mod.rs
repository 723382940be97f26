//! Arithmetic modulo p = 2^255 − 19 in every lane.
//!
//! A number is five limbs of 52 bits, x = Σ x_i·2^(52·i). Its limbs can be larger than 52 bits, and
//! their bound is part of the type:
//!
//! | type | limbs | can be |
//! |---|---|---|
//! | [`Factor`] | only the low 52 bits of a limb count, and the top one is below 2^47 + 2^9 | multiplied |
//! | [`Product`] | below 11·2^52 | added, subtracted, carried |
//! | [`Pair`] | below 22·2^52 | carried, or subtracted from a [`Biased`] |
//! | [`Biased`] | from 22·2^52 to 2^59 | added, subtracted from, carried |
//! | [`Sum`] | below 2^60 | carried |
//!
//! The lanes' multiplication reads only the low 52 bits of a limb. So a carry does not clear the
//! bits that it has passed on: [`Sum::carry`] is five shifts, four additions, one mask and one
//! multiply. The high bits of the result are meaningless, so `Factor` has no addition.
//!
//! In a subtraction, no limb of the minuend may be smaller than the same limb of the subtrahend: a
//! multiple of p is added to the minuend first. A biased product contains that multiple at no cost,
//! as its sums begin with the multiple instead of with zero.
//!
//! Products are folded by 2^260 ≡ 32·19 = 608 as soon as they exist; carries fold by 2^255 ≡ 19,
//! which leaves a top limb of 47 bits. The five free bits make the highest column of a product so
//! small that folding it cannot overflow again, and no second round is needed.
//!
//! After D. J. Bernstein, "Curve25519: new Diffie-Hellman speed records" (PKC 2006), section 4, in
//! the radix of N. Drucker and S. Gueron, "Fast modular squaring with AVX512IFMA" (ITNG 2019).

mod constants;
pub(crate) mod mul;
mod mul26;
#[cfg(test)]
mod tests;

pub(crate) use constants::{LIMBS, ONE, limbs};

use core::ops::{Add, Mul, Sub};

use crate::simd::{Plain, Simd, words};
use crate::unroll::five_limbs;
use constants::{
    BIAS, BIASED_BOUND, FOLD, MASK, PRODUCT_BOUND, SUBTRAHEND, SUM_BOUND, TOP_BITS, TOP_FOLD,
};
use mul::{multiply_by, multiply_by_call, multiply_where, square_where};
use mul26::{HALF_BITS, HALF_MASK, halves};

/// A number that can be multiplied. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Factor<S: Simd> {
    s: S,
    pub(super) limbs: [S::Limb; LIMBS],
}

/// The result of a multiplication. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Product<S: Simd> {
    pub(super) s: S,
    pub(super) limbs: [S::Limb; LIMBS],
}

/// A product plus a multiple of p, from which products can be subtracted. See the module
/// documentation.
#[derive(Clone, Copy)]
pub(crate) struct Biased<S: Simd> {
    pub(super) s: S,
    pub(super) limbs: [S::Limb; LIMBS],
}

/// The sum of two products, which can be carried, or subtracted from a [`Biased`].
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
    /// Returns the same number in every lane. Its limbs must be below 2^52, the top one below 2^47.
    #[inline(always)]
    pub(crate) fn splat(s: S, limbs: [u64; LIMBS]) -> Self {
        debug_assert!(limbs[..4].iter().all(|&x| x <= MASK) && limbs[4] >> TOP_BITS == 0);
        Self {
            s,
            limbs: five_limbs!(i => s.splat(limbs[i])),
        }
    }

    /// Returns the number with these limbs.
    ///
    /// The limbs must be below 2^52 (higher bits are ignored), the top one below 2^47 + 2^9.
    #[inline(always)]
    pub(crate) fn from_limbs(s: S, limbs: [S::Limb; LIMBS]) -> Self {
        Self { s, limbs }
    }

    /// Returns a², see [`square`](mul::square).
    #[inline(always)]
    pub(crate) fn square(&self) -> Product<S> {
        let limbs = square_where::<S, false>(self.s, &self.limbs);
        debug_assert!(below(&limbs, PRODUCT_BOUND));
        Product { s: self.s, limbs }
    }

    /// Returns a², biased.
    #[inline(always)]
    pub(crate) fn square_biased(&self) -> Biased<S> {
        let limbs = square_where::<S, true>(self.s, &self.limbs);
        Biased { s: self.s, limbs }
    }

    /// Returns a·b, biased.
    #[inline(always)]
    pub(crate) fn times_biased(&self, other: &Self) -> Biased<S> {
        let limbs = multiply_where::<S, true>(self.s, &self.limbs, &other.limbs);
        Biased { s: self.s, limbs }
    }

    /// Returns `a` where the mask is set, else `b`.
    #[inline(always)]
    pub(crate) fn select(mask: S::Mask, a: &Self, b: &Self) -> Self {
        let s = a.s;
        Self {
            s,
            limbs: five_limbs!(i => s.select(mask, a.limbs[i], b.limbs[i])),
        }
    }

    /// Returns the limbs, of which only the low 52 bits count.
    #[inline(always)]
    pub(crate) fn limbs(&self) -> [S::Limb; LIMBS] {
        self.limbs
    }

    /// Returns the number itself as a product: clears the high bits.
    #[inline(always)]
    pub(crate) fn to_product(self) -> Product<S> {
        let s = self.s;
        Product {
            s,
            limbs: five_limbs!(i => s.low_bits(self.limbs[i])),
        }
    }

    /// Returns the only representative below p. Limbs are below 2^52, the top one below 2^47.
    ///
    /// A factor is below 2^255 + 2^218 < 2·p, so p must be subtracted once or not at all. It must
    /// be subtracted if adding 19 carries into bit 255; then adding 19 and dropping that bit
    /// subtracts p.
    #[inline(always)]
    pub(crate) fn canonical(&self) -> [S::Limb; LIMBS] {
        let s = self.s;
        let mut x = self.to_product().limbs;
        let mut carry = s.splat(TOP_FOLD);
        for limb in &x[..LIMBS - 1] {
            carry = s.carry(s.add(*limb, carry));
        }
        let over = s.shift_right::<TOP_BITS>(s.add(x[LIMBS - 1], carry));
        x[0] = s.mul_short(x[0], over, s.splat(TOP_FOLD));
        for i in 0..LIMBS - 1 {
            x[i + 1] = s.add(x[i + 1], s.carry(x[i]));
            x[i] = s.low_bits(x[i]);
        }
        x[LIMBS - 1] = s.and(x[LIMBS - 1], s.splat((1 << TOP_BITS) - 1));
        x
    }

    /// Returns the lanes whose number is not 0 mod p.
    #[inline(always)]
    pub(crate) fn is_nonzero(&self) -> S::Mask {
        let s = self.s;
        let x = self.canonical();
        let mut some = s.zero();
        for limb in x {
            some = s.or_xor(some, limb, s.zero());
        }
        s.any_bit(some, s.splat(MASK))
    }

    /// Returns e·`small` + a: a step of the ladder's doubling. `small` must be below 2^26.
    ///
    /// Output: limbs less than 3·2^52 above those of a.
    #[inline(always)]
    pub(crate) fn mul_small_add(&self, small: u64, a: &Biased<S>) -> Sum<S> {
        debug_assert!(small < 1 << 26);
        let (s, e, mut c) = (self.s, &self.limbs, a.limbs);
        let small = s.splat(small);
        if S::HALVES {
            let (e, mask) = (halves(s, e), s.splat(HALF_MASK));
            let mut carry = s.zero();
            for i in 0..LIMBS {
                let odd = s.mul_short(s.zero(), e[2 * i + 1], small);
                c[i] = s.mul_short(s.add(c[i], carry), e[2 * i], small);
                c[i] = s.mul_short(c[i], s.and(odd, mask), s.splat(1 << HALF_BITS));
                carry = s.shift_right::<HALF_BITS>(odd);
            }
            c[0] = s.mul_short(c[0], carry, s.splat(FOLD));
            return Sum { s, limbs: c };
        }
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

impl<S: Simd> Mul for Factor<S> {
    type Output = Product<S>;

    /// Returns a·b, see [`multiply`](mul::multiply).
    #[inline(always)]
    fn mul(self, other: Self) -> Product<S> {
        let limbs = multiply_where::<S, false>(self.s, &self.limbs, &other.limbs);
        debug_assert!(below(&limbs, PRODUCT_BOUND));
        Product { s: self.s, limbs }
    }
}

/// A number that is multiplied by many others: b·2^(52·i) in row i.
///
/// With it a product has only one column above the limbs, that of the high halves. Folding it takes
/// 2 multiplies and no carry, instead of 9 multiplies and 4 carries.
pub(crate) struct Multiplier<S: Simd>([[S::Limb; LIMBS]; LIMBS]);

impl<S: Simd> Multiplier<S> {
    /// Prepares multiplications by `number`.
    #[inline(always)]
    pub(crate) fn new(number: Factor<S>) -> Self {
        let s = number.s;
        let mut rows = [number.limbs; LIMBS];
        for i in 1..LIMBS {
            let [x0, x1, x2, x3, x4] = Factor::from_limbs(s, rows[i - 1]).to_product().limbs;
            let fold = s.splat(FOLD);
            let limbs = [
                s.mul_lo(s.zero(), x4, fold),
                s.mul_hi(x0, x4, fold),
                x1,
                x2,
                x3,
            ];
            rows[i] = Product { s, limbs }.carry().limbs;
        }
        Self(rows)
    }
}

impl<S: Simd> Mul<&Multiplier<S>> for Factor<S> {
    type Output = Product<S>;

    /// Returns a·b: 50 multiplies and 2 to fold.
    #[inline(always)]
    fn mul(self, multiplier: &Multiplier<S>) -> Product<S> {
        let s = self.s;
        if S::HALVES {
            return self * Factor::from_limbs(s, multiplier.0[0]);
        }
        let limbs = if !S::INLINE {
            multiply_by_call(s, &self.limbs, &multiplier.0)
        } else {
            multiply_by(s, &self.limbs, &multiplier.0)
        };
        debug_assert!(below(&limbs, PRODUCT_BOUND));
        Product { s, limbs }
    }
}

impl<S: Simd> Product<S> {
    #[inline(always)]
    pub(crate) fn lanes(&self) -> S {
        self.s
    }

    /// See [`Sum::carry`].
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        self.to_sum().carry()
    }

    /// Returns the same number, biased.
    #[inline(always)]
    pub(crate) fn biased(self) -> Biased<S> {
        let s = self.s;
        Biased {
            s,
            limbs: five_limbs!(i => s.add(self.limbs[i], s.splat(BIAS[i]))),
        }
    }

    #[inline(always)]
    fn to_sum(self) -> Sum<S> {
        Sum {
            s: self.s,
            limbs: self.limbs,
        }
    }
}

impl<S: Simd> Add for Product<S> {
    type Output = Pair<S>;

    #[inline(always)]
    fn add(self, other: Self) -> Pair<S> {
        Pair {
            s: self.s,
            limbs: add(self.s, &self.limbs, &other.limbs),
        }
    }
}

impl<S: Simd> Sub for Product<S> {
    type Output = Sum<S>;

    /// Returns a − b + 2^10·p.
    #[inline(always)]
    fn sub(self, other: Self) -> Sum<S> {
        self.biased() - other
    }
}

impl<S: Simd> Biased<S> {
    /// See [`Sum::carry`].
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        self.to_sum().carry()
    }

    /// Returns 2·a; may be called once.
    #[inline(always)]
    pub(crate) fn double(self) -> Self {
        let limbs = add(self.s, &self.limbs, &self.limbs);
        debug_assert!(below(&limbs, BIASED_BOUND));
        Self { s: self.s, limbs }
    }

    #[inline(always)]
    fn to_sum(self) -> Sum<S> {
        Sum {
            s: self.s,
            limbs: self.limbs,
        }
    }
}

impl<S: Simd> Add<Product<S>> for Biased<S> {
    type Output = Sum<S>;

    #[inline(always)]
    fn add(self, other: Product<S>) -> Sum<S> {
        self.to_sum() + other
    }
}

impl<S: Simd> Sub<Product<S>> for Biased<S> {
    type Output = Sum<S>;

    #[inline(always)]
    fn sub(self, other: Product<S>) -> Sum<S> {
        Sum {
            s: self.s,
            limbs: sub(self.s, &self.limbs, &other.limbs),
        }
    }
}

impl<S: Simd> Sub<Pair<S>> for Biased<S> {
    type Output = Sum<S>;

    #[inline(always)]
    fn sub(self, other: Pair<S>) -> Sum<S> {
        Sum {
            s: self.s,
            limbs: sub(self.s, &self.limbs, &other.limbs),
        }
    }
}

impl<S: Simd> Pair<S> {
    /// See [`Sum::carry`].
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        Sum {
            s: self.s,
            limbs: self.limbs,
        }
        .carry()
    }
}

impl<S: Simd> Add<Product<S>> for Sum<S> {
    type Output = Sum<S>;

    /// Returns a + b. Of all the terms of a sum, at most one may be a difference.
    #[inline(always)]
    fn add(self, other: Product<S>) -> Sum<S> {
        Sum {
            s: self.s,
            limbs: add(self.s, &self.limbs, &other.limbs),
        }
    }
}

#[inline(always)]
fn add<S: Simd>(s: S, a: &[S::Limb; LIMBS], b: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    five_limbs!(i => s.add(a[i], b[i]))
}

/// Returns a − b. No limb is negative if those of b are at most [`SUBTRAHEND`] and those of a are
/// biased.
#[inline(always)]
fn sub<S: Simd>(s: S, a: &[S::Limb; LIMBS], b: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    debug_assert!(below(a, BIASED_BOUND) && below(b, SUBTRAHEND));
    five_limbs!(i => s.sub(a[i], b[i]))
}

impl<S: Simd> Sum<S> {
    /// Returns the same number with limbs that can be multiplied.
    ///
    /// The bits from 2^255 upwards are folded to the bottom by 19, then one carry runs upwards.
    /// Limb i keeps the bits that it has carried, in its bits from 52 upwards.
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        debug_assert!(below(&self.limbs, SUM_BOUND));
        let limbs = if !S::INLINE {
            carry_call(self.s, self.limbs)
        } else {
            carry(self.s, self.limbs)
        };
        Factor { s: self.s, limbs }
    }
}

#[inline(always)]
fn carry<S: Simd>(s: S, mut x: [S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    let top = s.shift_right::<TOP_BITS>(x[4]);
    x[4] = s.and(x[4], s.splat((1 << TOP_BITS) - 1));
    x[0] = s.mul_short(x[0], top, s.splat(TOP_FOLD));
    for i in 0..LIMBS - 1 {
        x[i + 1] = s.add(x[i + 1], s.carry(x[i]));
    }
    x
}

#[inline(never)]
fn carry_call<S: Simd>(s: S, x: [S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    carry(s, x)
}

/// Returns whether every limb of every lane is below `bound`.
#[inline(never)]
fn below<L: Plain>(limbs: &[L], bound: u64) -> bool {
    words(limbs).iter().all(|&x| x < bound)
}
