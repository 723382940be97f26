//! The equation of an Ed25519 signature, in variable time: all that it works on is public.

use super::comb::{Place, add_multiple};
use super::convert::Limbs;
use super::edwards::{Cached, Point, x_of};
use super::field::{Factor, LIMBS};
use crate::simd::Simd;
use crate::simd::inlined;

/// Digits of a scalar below 2^256, four bits each.
pub(super) const DIGITS: usize = 64;

/// A digit is from −8 to 7: its absolute value in bits 0 to 3, then whether it is negative.
const NEGATIVE: u64 = 16;

/// The digits of a scalar below 2^255, the lowest first.
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

/// What is to be checked in each lane.
pub(super) struct Equation<'a, S: Simd> {
    /// The y-coordinate of the public key A, below 2^255.
    pub(super) y: &'a Limbs<S>,
    /// The sign of its x-coordinate: 0 or 1.
    pub(super) sign: S::Limb,
    /// The digits of the hash k.
    pub(super) k: &'a [S::Limb; DIGITS],
    /// The signature's second half S, below 2^256.
    pub(super) second: &'a Limbs<S>,
    /// Becomes X, Y and Z of S·B − k·A, fit to be multiplied.
    pub(super) out: [&'a mut Limbs<S>; 3],
    /// Becomes 1 where there is a point A, else 0.
    pub(super) valid: &'a mut S::Limb,
}

/// S·B − k·A: 64 windows of four doublings and an addition, then the comb.
#[inline(never)]
pub(super) fn combine<S: Simd>(s: S, table: &[Place], equation: Equation<'_, S>) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let Equation {
                y,
                sign,
                k,
                second,
                out,
                valid,
            } = equation;
            let minus_a = minus_point(s, y, sign, valid);
            let multiples = multiples(s, &minus_a);
            let mut point = Point::neutral(s);
            for digit in k.iter().rev() {
                for _ in 0..4 {
                    point = point.double();
                }
                let negative = s.any_bit(*digit, s.splat(NEGATIVE));
                point = point.add_cached(&look_up(s, &multiples, *digit), negative);
            }
            let point = add_multiple(s, point, table, second);
            let [x, y, z] = out;
            *x = point.x.carry().limbs();
            *y = point.y.carry().limbs();
            *z = point.z.carry().limbs();
        },
    ));
}

/// −A for the public key A; where there is none, a point that does not matter.
#[inline(always)]
fn minus_point<S: Simd>(s: S, y: &Limbs<S>, sign: S::Limb, valid: &mut S::Limb) -> Point<S> {
    let y = Factor::from_limbs(s, *y);
    let (x, found) = x_of(s, &y);
    *valid = found;
    let parity = s.and(x.canonical()[0], s.splat(1));
    let same_sign = s.equal(parity, sign);
    let minus_x = (Factor::splat(s, [0; LIMBS]).to_product() - x.to_product()).carry();
    let y = y.to_product().carry();
    Point::new(s, &Factor::select(same_sign, &minus_x, &x), &y)
}

/// 1, 2, … 8 times the point.
#[inline(always)]
fn multiples<S: Simd>(s: S, point: &Point<S>) -> [Cached<S>; 8] {
    let one = point.cached(s);
    let mut multiples = [one; 8];
    let mut last = *point;
    let plus = s.any_bit(s.zero(), s.zero());
    for multiple in &mut multiples[1..] {
        last = last.add_cached(&one, plus);
        *multiple = last.cached(s);
    }
    multiples
}

/// The multiple that the digit's absolute value names.
#[inline(always)]
fn look_up<S: Simd>(s: S, multiples: &[Cached<S>; 8], digit: S::Limb) -> Cached<S> {
    let digit = s.and(digit, s.splat(NEGATIVE - 1));
    let mut found = Cached::neutral(s);
    for (i, multiple) in (1_u64..).zip(multiples) {
        found = Cached::select(s.equal(digit, s.splat(i)), multiple, &found);
    }
    found
}
