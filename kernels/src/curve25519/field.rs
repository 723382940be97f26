//! Arithmetic modulo p = 2^255 − 19 in every lane.
//!
//! A number is five limbs of 52 bits, x = Σ x_i·2^(52·i). Its limbs are allowed to
//! overlap, and how far is part of the type:
//!
//! | type | limbs | can be |
//! |---|---|---|
//! | [`Factor`] | only the low 52 bits of a limb count, and the top one is below 2^47 + 2^9 | multiplied |
//! | [`Product`] | below 11·2^52 | added, subtracted, carried |
//! | [`Biased`] | from 22·2^52 to 2^59 | added, subtracted from, carried |
//! | [`Sum`] | below 2^60 | carried |
//!
//! The lanes' multiplication reads the low 52 bits of a limb and nothing else. So a carry need not
//! clear what it has carried on: [`Sum::carry`] is five shifts and four additions, and the
//! result, whose high bits are rubbish, is fit for nothing but to be multiplied. That is
//! why `Factor` has no addition.
//!
//! What is subtracted from is to have no limb smaller than its counterpart: a multiple of p is
//! added to it first. A biased product has that multiple in it from the start, as its sums begin
//! with it instead of with zero, and costs nothing.
//!
//! Products are folded by 2^260 ≡ 32·19 = 608 as soon as they exist; carries fold by
//! 2^255 ≡ 19, which leaves a top limb of 47 bits. The five bits of room make the highest column
//! of a product so small that folding it cannot overflow again, and no second round is needed.
//!
//! After D. J. Bernstein, "Curve25519: new Diffie-Hellman speed records" (PKC 2006), section 4, in
//! the radix of N. Drucker and S. Gueron, "Fast modular squaring with AVX512IFMA" (ITNG 2019).

use core::ops::{Add, Mul, Sub};

use super::convert::{load, store};
use super::inverse;
use crate::simd::Simd;
use crate::simd::{Plain, inlined, opaque, rotate_lanes, words};
use crate::unroll::{five_limbs, unrolled};

/// Limbs of a number.
pub(crate) const LIMBS: usize = 5;

/// The number 1.
pub(crate) const ONE: [u64; LIMBS] = [1, 0, 0, 0, 0];

/// 2^260 mod p.
const FOLD: u64 = 608;

/// 2^255 mod p.
const TOP_FOLD: u64 = 19;

/// Bits of the top limb of a number below 2^255.
const TOP_BITS: u32 = 47;

const MASK: u64 = (1 << 52) - 1;

/// The limbs of p.
pub(crate) const MODULUS: [u64; LIMBS] = [MASK - 18, MASK, MASK, MASK, (1 << TOP_BITS) - 1];

/// 2^10·p with limbs close to 2^57, so that subtracting up to [`SUBTRAHEND`] leaves none negative.
const BIAS: [u64; LIMBS] = {
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
const SUBTRAHEND: u64 = 2 * PRODUCT_BOUND;
/// Bound of the limbs of a [`Product`]: five low halves, four high halves, one low and one small
/// high half from the fold (limb 4); the other limbs have fewer halves of columns and two of the
/// fold.
const PRODUCT_BOUND: u64 = 11 << 52;
/// Bound of the limbs of a [`Biased`] product and of twice one.
const BIASED_BOUND: u64 = 1 << 59;
/// Bound of the limbs of a [`Sum`].
const SUM_BOUND: u64 = 1 << 60;

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

/// A number that can be multiplied. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Factor<S: Simd> {
    s: S,
    limbs: [S::Limb; LIMBS],
}

/// The result of a multiplication. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Product<S: Simd> {
    s: S,
    limbs: [S::Limb; LIMBS],
}

/// A product with a multiple of p added, fit to be subtracted from. See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Biased<S: Simd> {
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
        Self {
            s,
            limbs: five_limbs!(i => s.splat(limbs[i])),
        }
    }

    /// The number of these limbs.
    ///
    /// The limbs must be below 2^52 (higher bits are ignored), the top one below 2^47 + 2^9.
    #[inline(always)]
    pub(crate) fn from_limbs(s: S, limbs: [S::Limb; LIMBS]) -> Self {
        Self { s, limbs }
    }

    /// a², see [`square`].
    #[inline(always)]
    pub(crate) fn square(&self) -> Product<S> {
        let limbs = square_where::<S, false>(self.s, &self.limbs);
        debug_assert!(below(&limbs, PRODUCT_BOUND));
        Product { s: self.s, limbs }
    }

    /// a², biased.
    #[inline(always)]
    pub(crate) fn square_biased(&self) -> Biased<S> {
        let limbs = square_where::<S, true>(self.s, &self.limbs);
        Biased { s: self.s, limbs }
    }

    /// a·b, biased.
    #[inline(always)]
    pub(crate) fn times_biased(&self, other: &Self) -> Biased<S> {
        let limbs = multiply_where::<S, true>(self.s, &self.limbs, &other.limbs);
        Biased { s: self.s, limbs }
    }

    /// `a` where the mask is set, else `b`.
    #[inline(always)]
    pub(crate) fn select(mask: S::Mask, a: &Self, b: &Self) -> Self {
        let s = a.s;
        Self {
            s,
            limbs: five_limbs!(i => s.select(mask, a.limbs[i], b.limbs[i])),
        }
    }

    /// The limbs, of which only the low 52 bits count.
    #[inline(always)]
    pub(crate) fn limbs(&self) -> [S::Limb; LIMBS] {
        self.limbs
    }

    /// The number itself as a product: clears the high bits.
    #[inline(always)]
    pub(crate) fn to_product(self) -> Product<S> {
        let s = self.s;
        Product {
            s,
            limbs: five_limbs!(i => s.low_bits(self.limbs[i])),
        }
    }

    /// The only representative below p; limbs below 2^52, the top one below 2^47.
    ///
    /// A factor is below 2^255 + 2^218 < 2·p. So p is to be subtracted once or not at all: once
    /// when adding 19 carries into bit 255, and then adding 19 and dropping that bit subtracts p.
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

    /// Lanes whose number is not 0 mod p.
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

    /// e·`small` + a: a step of the ladder's doubling. `small` must be below 2^26.
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

    /// a·b, see [`multiply`].
    #[inline(always)]
    fn mul(self, other: Self) -> Product<S> {
        let limbs = multiply_where::<S, false>(self.s, &self.limbs, &other.limbs);
        debug_assert!(below(&limbs, PRODUCT_BOUND));
        Product { s: self.s, limbs }
    }
}

/// A number to multiply by again and again: b·2^(52·i) in row i.
///
/// With it no column of a product lies above the limbs but the one of the high halves: 2 multiplies
/// and no carry to fold it, instead of 9 and 4.
pub(crate) struct Multiplier<S: Simd>([[S::Limb; LIMBS]; LIMBS]);

impl<S: Simd> Multiplier<S> {
    /// Multiplies by `number`.
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

    /// a·b: 50 multiplies and 2 to fold.
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

/// Σ a_i·rows_i. The column above the limbs is less than five high halves of top limbs.
///
/// Output: limbs below 11·2^52.
#[inline(always)]
fn multiply_by<S: Simd>(
    s: S,
    a: &[S::Limb; LIMBS],
    rows: &[[S::Limb; LIMBS]; LIMBS],
) -> [S::Limb; LIMBS] {
    let mut c = [s.zero(); LIMBS + 1];
    for (a, row) in a.iter().zip(rows) {
        for j in 0..LIMBS {
            c[j] = s.mul_lo(c[j], *a, row[j]);
        }
        for j in 0..LIMBS {
            c[j + 1] = s.mul_hi(c[j + 1], *a, row[j]);
        }
    }
    let fold = s.splat(FOLD);
    c[0] = s.mul_lo(c[0], c[LIMBS], fold);
    c[1] = s.mul_hi(c[1], c[LIMBS], fold);
    [c[0], c[1], c[2], c[3], c[4]]
}

#[inline(never)]
fn multiply_by_call<S: Simd>(
    s: S,
    a: &[S::Limb; LIMBS],
    rows: &[[S::Limb; LIMBS]; LIMBS],
) -> [S::Limb; LIMBS] {
    multiply_by(s, a, rows)
}

/// Inverts all of `numbers`, the inverse of 0 being 0, with one inversion.
///
/// P. Montgomery's trick lane by lane: running products upwards, their inverse, and downwards
/// again, three multiplications a number. A zero is replaced by 1 so that it cannot spoil the
/// others, and its own result is cleared. `running` must be as long as `numbers`.
#[inline(never)]
pub(crate) fn invert_all<S: Simd>(
    s: S,
    numbers: &mut [[S::Limb; LIMBS]],
    running: &mut [[S::Limb; LIMBS]],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let (numbers, running) = (numbers, running);
            let one = Factor::splat(s, ONE);
            let mut product = one;
            for (number, before) in numbers.iter().zip(running.iter_mut()) {
                *before = product.limbs;
                product = (product * nonzero(s, number).1).carry();
            }
            let mut inverse = product.limbs;
            invert_all_lanes(s, &mut inverse);
            let mut inverse = Factor::from_limbs(s, inverse);
            for (number, before) in numbers.iter_mut().zip(running.iter()).rev() {
                let (mask, x) = nonzero(s, number);
                let result = (inverse * Factor::from_limbs(s, *before)).carry();
                *number = Factor::select(mask, &result, &Factor::splat(s, [0; LIMBS])).limbs;
                inverse = (inverse * x).carry();
            }
        },
    ));
}

/// Replaces a number by its inverse, if no lane has 0; one inversion serves all lanes.
#[inline(never)]
fn invert_all_lanes<S: Simd>(s: S, number: &mut [S::Limb; LIMBS]) {
    const { assert!(S::LANES <= 8 && S::LANES.is_power_of_two()) };
    // In pairs, of which one is for nothing: what multiplies one would be code of its own, and not
    // faster.
    let pair = |limbs| [Factor::from_limbs(s, limbs); 2];
    // Products of two lanes each, then of four, until each lane has that of all.
    let mut product = pair(*number);
    let mut others = [*number; 3];
    let others = &mut others[..S::LANES.ilog2() as usize];
    for (level, other) in others.iter_mut().enumerate() {
        rotate_lanes(other, &product[0].limbs, S::LANES, 1 << level);
        square_times_and_multiply(s, &mut product, 0, &pair(*other));
    }
    s.enter(|| *number = product[0].canonical());
    let inverse = inverse::invert(&store::<S>(number, 0));
    let mut product = pair(load(s, |_| inverse));
    for other in others.iter().rev() {
        square_times_and_multiply(s, &mut product, 0, &pair(*other));
    }
    *number = product[0].limbs;
}

/// a^((p − 5) / 8) = a^(2^252 − 3) of each of `P` numbers, for a square root.
///
/// 251 squarings, 11 multiplications. A number alone waits for itself half of the time; two fill
/// the gaps.
pub(crate) fn powers_for_root<S: Simd, const P: usize>(s: S, a: &[Factor<S>; P]) -> [Factor<S>; P] {
    let x = |mut chain: [Factor<S>; P], times, by: &[Factor<S>; P]| {
        square_times_and_multiply(s, &mut chain, times, by);
        chain
    };
    // bn = a^(2^n − 1).
    let b2 = x(*a, 1, a);
    let b4 = x(b2, 2, &b2);
    let b5 = x(b4, 1, a);
    let b10 = x(b5, 5, &b5);
    let b20 = x(b10, 10, &b10);
    let b40 = x(b20, 20, &b20);
    let b50 = x(b40, 10, &b10);
    let b100 = x(b50, 50, &b50);
    let b200 = x(b100, 100, &b100);
    let b250 = x(b200, 50, &b50);
    x(b250, 2, a)
}

/// Each x becomes x^(2^`times`)·y.
#[inline(never)]
fn square_times_and_multiply<S: Simd, const P: usize>(
    s: S,
    x: &mut [Factor<S>; P],
    times: usize,
    y: &[Factor<S>; P],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let x = x;
            for _ in 0..times {
                for x in x.iter_mut() {
                    *x = x.square().carry();
                }
            }
            for (x, y) in x.iter_mut().zip(y) {
                *x = (*x * *y).carry();
            }
        },
    ));
}

/// The lanes in which `number` is not zero, and `number` with 1 for every zero.
#[inline(always)]
fn nonzero<S: Simd>(s: S, number: &[S::Limb; LIMBS]) -> (S::Mask, Factor<S>) {
    let number = Factor::from_limbs(s, *number);
    let mask = number.is_nonzero();
    (mask, Factor::select(mask, &number, &Factor::splat(s, ONE)))
}

/// a·b as columns of products, folded: 50 multiplies and 9 to fold.
///
/// Output: limbs below 11·2^52, and [`BIAS`] where `BIASED`.
#[inline(always)]
fn multiply<S: Simd, const BIASED: bool>(
    s: S,
    a: &[S::Limb; LIMBS],
    b: &[S::Limb; LIMBS],
) -> [S::Limb; LIMBS] {
    let mut c = [s.zero(); 2 * LIMBS];
    if BIASED {
        for (column, bias) in c.iter_mut().zip(BIAS) {
            *column = s.splat(bias);
        }
    }
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

/// [`multiply`], in place or called.
#[inline(always)]
fn multiply_where<S: Simd, const BIASED: bool>(
    s: S,
    a: &[S::Limb; LIMBS],
    b: &[S::Limb; LIMBS],
) -> [S::Limb; LIMBS] {
    if S::INLINE && !S::HALVES {
        return multiply::<S, BIASED>(s, a, b);
    }
    let mut product = [s.zero(); LIMBS];
    multiply_call::<S, BIASED>(s, &mut product, a, b);
    product
}

#[inline(never)]
fn multiply_call<S: Simd, const BIASED: bool>(
    s: S,
    out: &mut [S::Limb; LIMBS],
    a: &[S::Limb; LIMBS],
    b: &[S::Limb; LIMBS],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let out = out;
            *out = if S::HALVES {
                multiply_halves::<S, BIASED>(s, a, b)
            } else {
                multiply::<S, BIASED>(s, a, b)
            };
        },
    ));
}

/// a² as columns of products, folded: 30 multiplies and 9 to fold.
///
/// Output: limbs below 11·2^52, and [`BIAS`] where `BIASED`.
#[inline(always)]
fn square<S: Simd, const BIASED: bool>(s: S, a: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    let mut c = [s.zero(); 2 * LIMBS];
    if BIASED {
        c[0] = s.splat(BIAS[0]);
        for (column, bias) in c.iter_mut().zip(BIAS).skip(1) {
            *column = s.splat(bias / 2);
        }
    }
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

/// [`square`], in place or called.
#[inline(always)]
fn square_where<S: Simd, const BIASED: bool>(s: S, a: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    if S::INLINE && !S::HALVES {
        return square::<S, BIASED>(s, a);
    }
    let mut product = [s.zero(); LIMBS];
    square_call::<S, BIASED>(s, &mut product, a);
    product
}

#[inline(never)]
fn square_call<S: Simd, const BIASED: bool>(
    s: S,
    out: &mut [S::Limb; LIMBS],
    a: &[S::Limb; LIMBS],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let out = out;
            *out = if S::HALVES {
                square_halves::<S, BIASED>(s, a)
            } else {
                square::<S, BIASED>(s, a)
            };
        },
    ));
}

/// Limbs of 26 bits of a number.
const HALVES: usize = 2 * LIMBS;
const HALF_BITS: u32 = 26;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;

/// [`multiply`] from halves of limbs: 100 multiplies, 10 to fold and 6 to put halves together.
#[inline(always)]
fn multiply_halves<S: Simd, const BIASED: bool>(
    s: S,
    a: &[S::Limb; LIMBS],
    b: &[S::Limb; LIMBS],
) -> [S::Limb; LIMBS] {
    let (a, b) = (halves(s, a), halves(s, b));
    fold_halves::<S, BIASED>(
        s,
        inlined(
            #[inline(always)]
            |k: usize| {
                let b = opaque(&b);
                let mut column = s.zero();
                for i in 0..HALVES {
                    if i <= k && k < i + HALVES {
                        column = s.settle(s.mul_short(column, a[i], b[k - i]));
                    }
                }
                column
            },
        ),
    )
}

/// [`square`] from halves of limbs: 55 multiplies, 10 to fold and 6 to put halves together.
#[inline(always)]
fn square_halves<S: Simd, const BIASED: bool>(s: S, a: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    let a = halves(s, a);
    fold_halves::<S, BIASED>(
        s,
        inlined(
            #[inline(always)]
            |k: usize| {
                let b = opaque(&a);
                let mut column = s.zero();
                for i in 0..HALVES {
                    if 2 * i < k && k < i + HALVES {
                        column = s.settle(s.mul_short(column, a[i], b[k - i]));
                    }
                }
                column = s.add(column, column);
                if k.is_multiple_of(2) {
                    column = s.mul_short(column, a[k / 2], a[k / 2]);
                }
                column
            },
        ),
    )
}

/// The limbs of 26 bits of a [`Factor`].
#[inline(always)]
fn halves<S: Simd>(s: S, a: &[S::Limb; LIMBS]) -> [S::Limb; HALVES] {
    let mask = s.splat(HALF_MASK);
    let mut halves = [s.zero(); HALVES];
    for i in 0..LIMBS {
        halves[2 * i] = s.and(a[i], mask);
        halves[2 * i + 1] = s.and(s.shift_right::<HALF_BITS>(a[i]), mask);
    }
    halves
}

/// Σ column(k)·2^(26·k) for k < 20, folded to five limbs by 2^260 ≡ 608, and [`BIAS`] where
/// `BIASED`.
///
/// The columns must be those of a product: at most 10 products below 2^52, and 9 in an even one
/// below 2^260. The limbs are below 11·2^52: those 9, the low half of an odd column, and small
/// numbers. Column by column, so that the sums need few registers.
#[inline(always)]
fn fold_halves<S: Simd, const BIASED: bool>(
    s: S,
    column: impl Fn(usize) -> S::Limb,
) -> [S::Limb; LIMBS] {
    // Opaque, or a multiply by a constant becomes three shifts and two additions.
    let (mask, fold) = (s.splat(HALF_MASK), s.splat(*opaque(&FOLD)));
    let mut high = [s.zero(); HALVES];
    let mut carry = s.zero();
    let mut reduce = inlined(
        #[inline(always)]
        |k: usize| {
            let sum = s.add(column(HALVES + k), carry);
            carry = s.shift_right::<HALF_BITS>(sum);
            high[k] = s.and(sum, mask);
        },
    );
    unrolled::<LIMBS>(inlined(
        #[inline(always)]
        |i| {
            reduce(2 * i);
            reduce(2 * i + 1);
        },
    ));
    let mut limbs = [s.zero(); LIMBS];
    let mut carry = s.zero();
    unrolled::<LIMBS>(inlined(
        #[inline(always)]
        |k| {
            let even = s.mul_short(column(2 * k), high[2 * k], fold);
            let odd = s.mul_short(column(2 * k + 1), high[2 * k + 1], fold);
            let odd_low = s.and(odd, mask);
            limbs[k] = s.mul_short(s.add(even, carry), odd_low, s.splat(1 << HALF_BITS));
            if BIASED {
                limbs[k] = s.add(limbs[k], s.splat(BIAS[k]));
            }
            carry = s.shift_right::<HALF_BITS>(odd);
        },
    ));
    // What the highest column carries is that of the lowest.
    limbs[0] = s.mul_short(limbs[0], carry, fold);
    limbs
}

const _: () = {
    // A column of ten products and a carry; its upper half is to be read by a short multiply.
    assert!((11_u64 << 52) >> HALF_BITS < 1 << 32);
    // The highest column, a carry after the product of two upper halves of top limbs, folded.
    assert!((FOLD << 32) < 1 << 52);
};

/// Σ c_i·2^(52·i) for i < 10, folded to five limbs by 2^260 ≡ 608.
///
/// The columns must be below 10·2^52, and the top one must have been the high half of a product of
/// two carried top limbs: with the carry into it, it is below 2^52 / 608.
#[inline(always)]
fn fold<S: Simd>(s: S, mut c: [S::Limb; 2 * LIMBS]) -> [S::Limb; LIMBS] {
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
    [c[0], c[1], c[2], c[3], c[4]]
}

impl<S: Simd> Product<S> {
    /// Its lanes.
    #[inline(always)]
    pub(crate) fn lanes(&self) -> S {
        self.s
    }

    /// See [`Sum::carry`].
    #[inline(always)]
    pub(crate) fn carry(&self) -> Factor<S> {
        self.to_sum().carry()
    }

    /// The same, biased.
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

    /// a − b + 2^10·p.
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

    /// 2·a, once.
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

    /// a + b: of all that a sum is made of, at most one may have been a difference.
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

/// a − b, without a negative limb while those of b are at most [`SUBTRAHEND`] and those of a are
/// biased.
#[inline(always)]
fn sub<S: Simd>(s: S, a: &[S::Limb; LIMBS], b: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
    debug_assert!(below(a, BIASED_BOUND) && below(b, SUBTRAHEND));
    five_limbs!(i => s.sub(a[i], b[i]))
}

impl<S: Simd> Sum<S> {
    /// The same number with limbs that can be multiplied.
    ///
    /// The bits from 2^255 on are folded to the bottom by 19, then one carry runs upwards:
    /// limb i keeps what it carried on in its bits from 52 on.
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

/// Whether every limb of every lane is below `bound`.
#[inline(never)]
fn below<L: Plain>(limbs: &[L], bound: u64) -> bool {
    words(limbs).iter().all(|&x| x < bound)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use super::*;
    use crate::simd::{Simd, inlined, portable::Portable, words_mut};
    #[cfg(target_arch = "x86_64")]
    use crate::simd::{avx2::Avx2, avx512ifma::Avx512Ifma, avx512ifma256::Avx512Ifma256};

    const TOP: u64 = (1 << TOP_BITS) + 256;

    /// The inverse in each lane, and 0 for 0.
    fn inverses<S: Simd>(s: S, number: &Factor<S>) -> Factor<S> {
        let mut numbers = [number.limbs()];
        invert_all(s, &mut numbers, &mut [[s.zero(); LIMBS]]);
        Factor::from_limbs(s, numbers[0])
    }

    /// Limbs that carry far, and random ones.
    fn operands() -> Vec<[u64; LIMBS]> {
        let mut operands = vec![
            [0; LIMBS],
            ONE,
            MODULUS,
            [MASK - 19, MASK, MASK, MASK, MASK >> 5],
            [MASK - 17, MASK, MASK, MASK, MASK >> 5],
            [MASK, MASK, MASK, MASK, MASK >> 5],
            [MASK, MASK, MASK, MASK, TOP],
            [MASK, 0, MASK, 0, TOP],
            [0, 0, 0, 0, TOP],
        ];
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state ^ state >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12
        };
        for _ in 0..200 {
            operands.push(core::array::from_fn(|i| {
                if i < 4 { random() } else { random() % TOP }
            }));
        }
        operands
    }

    /// All operations on one lane's worth of operands in every lane, as limbs of lane 0; lanes must
    /// agree.
    fn results<S: Simd>(s: S, a: [u64; LIMBS], b: [u64; LIMBS]) -> Vec<[u64; LIMBS]> {
        let out = s.enter(inlined(
            #[inline(always)]
            move || {
                // Rubbish above 52 bits must not matter.
                let high = s.splat(0xabc << 52);
                let number = |x: [u64; LIMBS]| {
                    Factor::from_limbs(s, five_limbs!(i => s.add(s.splat(x[i]), high)))
                };
                let (a, b) = (number(a), number(b));
                let (ab, aa) = (a * b, a.square());
                let biased = (a.times_biased(&b), a.square_biased());
                vec![
                    ab.limbs,
                    aa.limbs,
                    (ab + aa).limbs,
                    (ab - aa).limbs,
                    biased.0.limbs,
                    biased.1.limbs,
                    (a * &Multiplier::new(b)).limbs,
                    (biased.1 - ab).carry().canonical(),
                    (biased.0 - (aa + aa)).carry().canonical(),
                    (biased.0.double() - aa + ab).carry().canonical(),
                    a.mul_small_add(121_665, &biased.0).carry().canonical(),
                    a.canonical(),
                    inverses(s, &a).canonical(),
                ]
            },
        ));
        out.iter()
            .map(|limbs| {
                let all = words(limbs);
                for (i, limb) in all.iter().enumerate() {
                    assert_eq!(
                        *limb,
                        all[i / S::LANES * S::LANES],
                        "a lane of its own opinion"
                    );
                }
                core::array::from_fn(|i| all[i * S::LANES])
            })
            .collect()
    }

    #[test]
    fn every_backend_agrees_limb_for_limb_with_the_portable_one() {
        #[cfg(target_arch = "x86_64")]
        let Some((wide, narrow)) = Avx512Ifma::detect().zip(Avx512Ifma256::detect()) else {
            return eprintln!("skipped: this CPU has no AVX-512 IFMA");
        };
        #[cfg(target_arch = "x86_64")]
        for (a, b) in operands().into_iter().zip(operands().into_iter().rev()) {
            let oracle = results(Portable::<1>, a, b);
            assert_eq!(results(wide, a, b), oracle);
            assert_eq!(results(narrow, a, b), oracle);
        }
    }

    #[test]
    fn the_portable_backend_agrees_with_an_independent_library() {
        compare(Portable::<1>);
    }

    /// Their limbs are others, as products of halves are carried otherwise.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn products_of_halves_agree_with_an_independent_library() {
        match Avx2::detect() {
            Some(lanes) => compare(lanes.long()),
            None => eprintln!("skipped: this CPU has no AVX2"),
        }
    }

    fn compare<S: Simd>(s: S) {
        let number = |x: &[u64; LIMBS]| {
            x.iter().rev().fold(BigUint::ZERO, |sum, limb| {
                (sum << 52) + BigUint::from(*limb)
            })
        };
        let p = number(&MODULUS);
        for (a, b) in operands().into_iter().zip(operands().into_iter().rev()) {
            let results = results(s, a, b);
            let (a, b) = (number(&a), number(&b));
            let (ab, aa) = (&a * &b, &a * &a);
            let minus_aa = &p * &p - &aa % &p;
            let expected = [
                ab.clone(),
                aa.clone(),
                &ab + &aa,
                &ab + &minus_aa,
                ab.clone(),
                aa.clone(),
                ab.clone(),
                &aa + (&p * &p - &ab % &p),
                &ab + &minus_aa + &minus_aa,
                &ab * 3_u32 + &minus_aa,
                &a * 121_665_u32 + &ab,
                a.clone(),
                a.modpow(&(&p - 2_u32), &p),
            ];
            for (i, (result, expected)) in results.iter().zip(expected).enumerate() {
                assert_eq!(number(result) % &p, expected % &p, "result {i}");
                // From the eighth on they are canonical.
                assert!(i < 7 || number(result) < p, "result {i}");
            }
        }
    }

    #[test]
    fn zeros_do_not_spoil_a_shared_inversion() {
        let s = Portable::<4>;
        let mut numbers = [[s.zero(); LIMBS]; 3];
        // 1, 2, 3, … with zeros in between, one of them p.
        for (i, number) in numbers.iter_mut().enumerate() {
            let lanes = words_mut(number);
            for (l, lane) in lanes[..4].iter_mut().enumerate() {
                *lane = if (i + l) % 3 == 0 {
                    0
                } else {
                    (4 * i + l) as u64
                };
            }
        }
        for (i, limb) in words_mut(&mut numbers[0]).chunks_mut(4).enumerate() {
            limb[0] = MODULUS[i];
        }
        let before = numbers;
        invert_all(s, &mut numbers, &mut [[s.zero(); LIMBS]; 3]);
        for (number, inverse) in before.iter().zip(&numbers) {
            let one = (Factor::from_limbs(s, *number) * Factor::from_limbs(s, *inverse)).carry();
            let (one, inverse) = (one.canonical(), words(inverse));
            for l in 0..4 {
                let zero = words(number)[l] == 0 || words(number)[l] == MODULUS[0];
                assert_eq!(words(&one)[l], u64::from(!zero));
                assert!(!zero || (0..LIMBS).all(|i| inverse[4 * i + l] & MASK == 0));
            }
        }
    }
}
