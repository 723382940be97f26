//! Products and squares, from whole limbs of 52 bits.

use super::constants::{BIAS, FOLD, LIMBS};
use super::mul26::{multiply_halves, square_halves};
use crate::simd::{Simd, enter};

/// [`multiply`], inlined or called.
#[inline(always)]
pub(crate) fn multiply_where<S: Simd, const BIASED: bool>(
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
    enter!(s, [out], {
        *out = if S::HALVES {
            multiply_halves::<S, BIASED>(s, a, b)
        } else {
            multiply::<S, BIASED>(s, a, b)
        };
    });
}

/// Returns a·b as columns of products, folded: 50 multiplies and 9 to fold.
///
/// Output: limbs below 11·2^52, plus [`BIAS`] where `BIASED`.
#[inline(always)]
pub(super) fn multiply<S: Simd, const BIASED: bool>(
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

/// [`square`], inlined or called.
#[inline(always)]
pub(crate) fn square_where<S: Simd, const BIASED: bool>(
    s: S,
    a: &[S::Limb; LIMBS],
) -> [S::Limb; LIMBS] {
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
    enter!(s, [out], {
        *out = if S::HALVES {
            square_halves::<S, BIASED>(s, a)
        } else {
            square::<S, BIASED>(s, a)
        };
    });
}

/// Returns a² as columns of products, folded: 30 multiplies and 9 to fold.
///
/// Output: limbs below 11·2^52, plus [`BIAS`] where `BIASED`.
#[inline(always)]
pub(super) fn square<S: Simd, const BIASED: bool>(s: S, a: &[S::Limb; LIMBS]) -> [S::Limb; LIMBS] {
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

/// Returns Σ a_i·rows_i. The column above the limbs is a sum of five high halves of products with
/// a top limb.
///
/// Output: limbs below 11·2^52.
#[inline(always)]
pub(crate) fn multiply_by<S: Simd>(
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
pub(super) fn multiply_by_call<S: Simd>(
    s: S,
    a: &[S::Limb; LIMBS],
    rows: &[[S::Limb; LIMBS]; LIMBS],
) -> [S::Limb; LIMBS] {
    multiply_by(s, a, rows)
}

/// Returns Σ c_i·2^(52·i) for i < 10, folded to five limbs by 2^260 ≡ 608.
///
/// The columns must be below 10·2^52. The top column must be the high half of a product of two
/// carried top limbs. Then the top column is below 2^52 / 608, also with the carry into it.
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
