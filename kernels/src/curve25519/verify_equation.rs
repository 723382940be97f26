//! The equation of an Ed25519 signature, in variable time: all its inputs are public.

use super::comb::{Table, multiple_of_base};
use super::convert::Limbs;
use super::edwards::{Cached, Point, x_of};
use super::field::{Factor, LIMBS};
use crate::simd::{Simd, enter};

/// Number of digits of a scalar below 2^256, four bits each.
pub(super) const DIGITS: usize = 64;

/// Sign bit of a digit. A digit is from −8 to 7: its absolute value in bits 0 to 3, then its sign.
const NEGATIVE: u64 = 16;

/// Returns the digits of a scalar below 2^255, the lowest first.
pub(super) fn digits(scalar: &[u64; 4]) -> [u64; DIGITS] {
    let mut carry = 0;
    core::array::from_fn(|i| {
        let digit = (scalar[i / 16] >> (4 * (i % 16)) & 15) + carry;
        carry = u64::from(digit >= 8);
        if digit >= 8 {
            (16 - digit) | NEGATIVE
        } else {
            digit
        }
    })
}

/// The equation to check in each lane.
pub(super) struct Equation<'a, S: Simd> {
    /// −A, for the public key A.
    pub(super) minus_a: &'a Point<S>,
    /// The digits of the hash k.
    pub(super) k: &'a [S::Limb; DIGITS],
    /// The signature's second half S, below 2^256.
    pub(super) second: &'a Limbs<S>,
}

/// Returns X, Y and Z of S·B − k·A, with limbs that can be multiplied: 64 windows of four doublings
/// and an addition, then the comb.
pub(super) fn combine<S: Simd>(s: S, table: &Table, equation: &Equation<'_, S>) -> [Limbs<S>; 3] {
    let one = equation.minus_a.to_cached();
    let mut multiples = [one; 8];
    let mut last = *equation.minus_a;
    for multiple in &mut multiples[1..] {
        last.add_assign(&one);
        *multiple = last.to_cached();
    }
    let mut point = Point::neutral(s);
    for digit in equation.k.iter().rev() {
        point.double_assign(4);
        add_digit(s, &mut point, &multiples, *digit);
    }
    point.add_assign(&multiple_of_base(s, table, equation.second).to_cached());
    point.factors()
}

/// Returns −A and 1 for each of `P` vectors of public keys, given as y, below 2^255, and the sign
/// of x, 0 or 1. In the lanes without a point it returns 0 and an arbitrary point.
pub(super) fn minus_points<S: Simd, const P: usize>(
    s: S,
    y: &[Limbs<S>; P],
    sign: &[S::Limb; P],
) -> ([Point<S>; P], [S::Limb; P]) {
    let mut points = [Point::neutral(s); P];
    let y = y.map(|y| Factor::from_limbs(s, y));
    let (x, found) = x_of(s, &y);
    for (i, point) in points.iter_mut().enumerate() {
        *point = minus_point(s, &x[i], &y[i], sign[i]);
    }
    (points, found)
}

/// Returns −(±x, y), for the sign of the public key.
#[inline(never)]
pub(super) fn minus_point<S: Simd>(s: S, x: &Factor<S>, y: &Factor<S>, sign: S::Limb) -> Point<S> {
    enter!(s, {
        let y = y.to_product().carry();
        let parity = s.and(x.canonical()[0], s.splat(1));
        let minus_x = (Factor::splat(s, [0; LIMBS]).to_product() - x.to_product()).carry();
        Point::new(s, &Factor::select(s.equal(parity, sign), &minus_x, x), &y)
    })
}

/// Adds the multiple that the digit selects.
#[inline(never)]
fn add_digit<S: Simd>(s: S, point: &mut Point<S>, multiples: &[Cached<S>; 8], digit: S::Limb) {
    enter!(s, [point], {
        let absolute = s.and(digit, s.splat(NEGATIVE - 1));
        let mut found = Cached::neutral(s);
        for (i, multiple) in (1_u64..).zip(multiples) {
            found = Cached::select(s.equal(absolute, s.splat(i)), multiple, &found);
        }
        *point = point.add_cached(&found, s.any_bit(digit, s.splat(NEGATIVE)));
    });
}
