//! Numbers modulo q = 3329 in signed words of 16 bits, and their Montgomery product with R = 2^16.

use crate::simd::words16::{Q, Words};

/// 1 / q modulo R.
pub(super) const Q_INVERSE: i16 = {
    // Each step doubles the number of right bits.
    let (mut inverse, mut step) = (Q, 0);
    while step < 4 {
        inverse = inverse.wrapping_mul(2_i16.wrapping_sub(Q.wrapping_mul(inverse)));
        step += 1;
    }
    assert!(inverse.wrapping_mul(Q) == 1);
    inverse
};

/// A constant factor c, stored as c·R modulo q, at most q/2, and as this number divided by q modulo
/// R.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    pub(super) by_r: i16,
    pub(super) by_q: i16,
}

impl Factor {
    /// 1: a product with it is reduced.
    pub(super) const ONE: Self = Self::of(1);
    /// R: a product with it cancels the division by R.
    pub(super) const R: Self = Self::of(1 << 16);

    /// Returns the factor for any constant.
    pub(super) const fn of(constant: i64) -> Self {
        let q = Q as i64;
        let by_r = (constant % q * (1 << 16)).rem_euclid(q);
        let by_r = if by_r > q / 2 { by_r - q } else { by_r } as i16;
        Self {
            by_r,
            by_q: by_r.wrapping_mul(Q_INVERSE),
        }
    }

    /// Returns the factor in all words of a vector.
    #[inline(always)]
    pub(super) fn splat<W: Words>(self, w: W) -> [W::Vector; 2] {
        [w.splat(self.by_r), w.splat(self.by_q)]
    }
}

/// Returns `base` to the power `exponent` modulo q.
pub(super) const fn power(mut base: i64, mut exponent: u32) -> i64 {
    let mut power = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * base % Q as i64;
        }
        base = base * base % Q as i64;
        exponent >>= 1;
    }
    power
}

/// Returns a·c modulo q, for any a: its absolute value is at most (|a| + R)·q / 2R, below q.
#[inline(always)]
pub(super) fn multiply<W: Words>(w: W, a: W::Vector, [by_r, by_q]: [W::Vector; 2]) -> W::Vector {
    let quotient = w.mul_low(a, by_q);
    w.sub(w.mul_high(a, by_r), w.mul_high(quotient, w.splat(Q)))
}

/// Returns sum / R modulo q, for sums below 2^15·q, given as two halves. Its absolute value is at
/// most |sum| / R + q / 2.
#[inline(always)]
pub(super) fn reduce<W: Words>(w: W, [low, high]: [W::Vector; 2]) -> W::Vector {
    let quotient = w.mul_low(low, w.splat(Q_INVERSE));
    w.sub(high, w.mul_high(quotient, w.splat(Q)))
}

/// Returns the same number in 0..q, for a number whose absolute value is below q.
#[inline(always)]
pub(super) fn canonical<W: Words>(w: W, a: W::Vector) -> W::Vector {
    w.min_unsigned(a, w.add(a, w.splat(Q)))
}

/// Returns the same number in 0..q, for any number.
#[inline(always)]
pub(super) fn canonical_of_any<W: Words>(w: W, a: W::Vector) -> W::Vector {
    canonical(w, multiply(w, a, Factor::ONE.splat(w)))
}
