//! Almost-Montgomery arithmetic in every lane.
//!
//! Numbers have `N` limbs of 52 bits and R = 2^(52·N). Each lane has its own odd modulus n and k0 =
//! −1/n mod 2^52.
//!
//! # Bounds
//!
//! *Almost* Montgomery means that n is not subtracted at the end. The result is (a·b + m·n)/R. As m
//! is below R,
//!
//! > result < a·b/R + n.
//!
//! With R ≥ 2^8·n, the result is below 2n in two cases:
//!
//! * both operands are below 4n: 16n²/R + n < 2n;
//! * one operand is below R and the other one below n: R·n/R + n = 2n.
//!
//! The 52·`N` bits of R are more than those of n ([`check_slack`]). For RSA's primes of 512, 1024,
//! 1536 and 2048 bits the difference is 8, 16, 24 and 32 bits, and for their moduli twice as many.
//!
//! A column sums at most 4·N halves of products, each below 2^52, a start value and a carry; for N
//! ≤ 80 that is below 2^61 ([`check_columns`]). So carries wait until a column is complete.
//!
//! # Loose limbs
//!
//! A multiply reads only the low 52 bits of its factors. So results are left *loose*: the bits of a
//! limb from 52 upwards hold a carry that the next limb has already received, and code that does
//! more than multiply with a result calls [`mask_limbs`] first. That saves an operation per limb.
//!
//! # Order of work
//!
//! Both products, a·b and m·n, are computed in square blocks of [`BLOCK`] limbs, one column of
//! blocks after the other (product scanning). A column of blocks spans 2·`BLOCK` columns of limbs.
//! 31 of the 32 registers are in use: 20 hold the sums of these columns, 10 hold the limbs of one
//! factor in the block (a row), and one holds a limb of the other factor. A block needs 2·`BLOCK`²
//! multiplies and 2·`BLOCK` loads, so that only multiplies limit its speed. When a column of blocks
//! is complete, its lower half becomes limbs of m, and later limbs of the result.
//!
//! Four more details matter for the speed, each measured (docs/lab/rsa.md):
//!
//! * all low halves of a row come before its high halves, so that no multiply follows the one whose
//!   sum it waits for: waiting instructions would fill the scheduler;
//! * the next limb of m is computed before most products of the row of the limb before it;
//! * where columns are written out and the lanes' [`Order`](crate::order::Order) says so, the
//!   reduction of a column takes turns, row by row, with the last product of the column: a limb of
//!   m waits for the limb before it for half as long as their rows take, and the product fills that
//!   time. The multiplies of the reduction then read n from memory. On some cores this costs
//!   nothing; on the others, the reduction follows the product;
//! * a lower column starts at 2^52 − 1 rather than at zero. Reduction makes its low 52 bits vanish
//!   and carries ⌈sum/2^52⌉. With this start that is only a shift, and the lowest half product of
//!   each row of m·n need not be computed. m corrects for the start: if a column has the value c,
//!   the sum is c + 1 modulo 2^52, and m is −(c + 1)/n = c·k0 + k0.
//!
//! # Squares
//!
//! A square needs each mixed product twice. Rows are multiplied by 2a, carried from limb to limb
//! once before the start; see [`Square`](reduction::Square). Some products are subtracted from a
//! column before it holds as much, and a column must never be negative. So where numbers have more
//! than two blocks, the columns above those of m start as high as the columns of m, and the top
//! limb of the result is corrected in the end. The top limb of a is below 2^51.
//!
//! Sources: S. Gueron, V. Krasnov, "Software implementation of modular exponentiation, using
//! advanced vector instructions architectures" (2012) for the almost-Montgomery form; B. Buhrow, B.
//! Gilbert, C. Haider, "Parallel modular multiplication using 512-bit advanced vector instructions"
//! (2021) for scanning products in blocks. The order inside the blocks is our own.

mod limbs;
mod reduction;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use limbs::{
    BLOCK, Modulus, canonical, check_slack, mask_limbs, negative_inverse, normalise, subtract_mod,
};

use crate::simd::{Simd, enter, words_mut};
use limbs::check_columns;
use reduction::{multiply_add_slices, multiply_slices, square_slices, written_out};

/// Computes out = a·b/R mod n.
///
/// Operands: values as under *Bounds* in the module documentation; limbs may be loose. Result:
/// below 2n for operands below 4n, loose.
#[inline(never)]
pub(crate) fn multiply<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    Modulus { n, k0 }: Modulus<'_, S, N>,
) {
    const { check_columns::<S>(N) };
    if const { !written_out::<S>(N) } {
        return multiply_long(s, out, a, b, n, k0);
    }
    enter!(s, multiply_slices(s, out, a, b, n, k0, true));
}

/// [`multiply`] for numbers of equal length, which the caller has checked.
#[inline(never)]
fn multiply_long<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb],
    b: &[S::Limb],
    n: &[S::Limb],
    k0: &S::Limb,
) {
    enter!(s, multiply_slices(s, out, a, b, n, k0, false));
}

/// Computes out = a²/R mod n; `doubled` is working memory.
///
/// Operand and result as in [`multiply`].
#[inline(never)]
pub(crate) fn square<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    doubled: &mut [S::Limb; N],
    a: &[S::Limb; N],
    Modulus { n, k0 }: Modulus<'_, S, N>,
) {
    const { check_columns::<S>(N) };
    if const { !written_out::<S>(N) } {
        return square_long(s, out, doubled, a, n, k0);
    }
    enter!(s, square_slices(s, out, doubled, a, n, k0, true));
}

/// [`square`] for numbers of a length that the caller has checked.
#[inline(never)]
fn square_long<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    doubled: &mut [S::Limb],
    a: &[S::Limb],
    n: &[S::Limb],
    k0: &S::Limb,
) {
    enter!(s, square_slices(s, out, doubled, a, n, k0, false));
}

/// Computes out = x·R mod n for x of 2·`N` limbs. `out` is below 4n, and its limbs are below the
/// radix. `roots` are R² and R³ mod n.
pub(crate) fn to_montgomery<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    spare: &mut [S::Limb; N],
    x: &[S::Limb],
    roots: (&[S::Limb; N], &[S::Limb; N]),
    modulus: Modulus<'_, S, N>,
) {
    // x = high·R + low, so x·R is high·R² + low·R, each below 2n.
    let (low, high) = x.split_first_chunk().expect("2·N limbs");
    let high = high.first_chunk().expect("2·N limbs");
    multiply(s, out, high, roots.1, modulus);
    multiply(s, spare, low, roots.0, modulus);
    enter!(s, {
        for i in 0..N {
            out[i] = s.add(s.low_bits(out[i]), s.low_bits(spare[i]));
        }
        normalise(s, out);
    });
}

/// Computes out = a/R mod n, fully reduced, for an `a` as in [`multiply`].
pub(crate) fn from_montgomery<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    spare: &mut [S::Limb; N],
    a: &[S::Limb; N],
    modulus: Modulus<'_, S, N>,
) {
    spare.fill(s.zero());
    words_mut(spare)[..S::LANES].fill(1);
    multiply(s, out, a, spare, modulus);
    enter!(s, {
        mask_limbs(s, out);
        canonical(s, out, spare, modulus.n);
    });
}

/// Computes out = a·b + c, `out` of 2·`N` limbs, masked. The result must fit. `c` is masked.
pub(crate) fn multiply_add<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    c: &[S::Limb; N],
) {
    const { check_columns::<S>(N) };
    assert!(out.len() == 2 * N);
    multiply_add_slices(s, out, a, b, c);
}
