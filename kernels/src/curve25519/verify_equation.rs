//! The equation of an Ed25519 signature, in variable time: all its inputs are public.
//!
//! With the [halves](super::half_size) v and u of the hash k it is (u·S mod L)·B = v·A + u·R. The
//! two products on the right share their doublings; the one on the left has none.

use super::comb::{Table, multiple_of_base};
use super::convert::Limbs;
use super::edwards::{Cached, Point, are_equal, x_of};
use super::field::{Factor, LIMBS};
use super::half_size::Halves;
use super::scalar::multiply_add;
use crate::simd::{Simd, enter, words};

/// Number of bits of a digit. A digit is from −8 to 7.
const DIGIT: usize = 4;
/// Number of digits of a limb.
pub(super) const IN_LIMB: usize = 52 / DIGIT;
/// Digits of zero as they are stored: digit + 8.
const ZEROS: u64 = 0x8_8888_8888_8888;

/// Returns the digits of a number modulo 2^260, each with 8 added to it. The digits represent the
/// number itself if it is from −2^258 to 2^258.
#[inline(never)]
fn digits<S: Simd>(s: S, number: &Limbs<S>) -> Limbs<S> {
    enter!(s, {
        let mut digits = *number;
        let mut carry = s.zero();
        for limb in &mut digits {
            let sum = s.add(s.add(*limb, s.splat(ZEROS)), carry);
            (*limb, carry) = (s.low_bits(sum), s.carry(sum));
        }
        digits
    })
}

/// Returns the number of digits up to the highest one that is not zero in some lane.
fn digits_in_use<S: Simd>(digits: &[Limbs<S>; 2]) -> usize {
    let in_limb = |limb: &S::Limb| {
        let lanes = words(core::slice::from_ref(limb)).iter();
        let differences = lanes.fold(0, |all, word| all | (word ^ ZEROS));
        (u64::BITS - differences.leading_zeros()).div_ceil(DIGIT as u32) as usize
    };
    let of_limbs = digits.as_flattened().iter().enumerate();
    let ends = of_limbs.map(|(i, limb)| match in_limb(limb) {
        0 => 0,
        count => IN_LIMB * (i % LIMBS) + count,
    });
    ends.fold(0, usize::max)
}

/// Returns 1 in the lanes in which S·B = k·A + R, else 0, for −A, −R, the halves v and u of k, and
/// S below 2^256.
pub(super) fn holds<S: Simd>(
    s: S,
    table: &Table,
    points: &[Point<S>; 2],
    halves: &Halves<S>,
    second: &Limbs<S>,
) -> S::Limb {
    let zero = [s.zero(); LIMBS];
    let scalar = multiply_add(s, &[halves[1], zero], second, &zero);
    let left = multiple_of_base(s, table, &scalar);
    let digits = halves.each_ref().map(|half| digits(s, half));
    let right = combine(s, points, &digits, digits_in_use::<S>(&digits));
    are_equal(s, &left.factors(), &right.factors())
}

/// Returns −(v·P + u·Q), without T, from P, Q and the lowest `count` digits of v and u. A pair of
/// digits takes four doublings and two additions.
pub(super) fn combine<S: Simd>(
    s: S,
    points: &[Point<S>; 2],
    digits: &[Limbs<S>; 2],
    count: usize,
) -> Point<S> {
    let multiples = points.each_ref().map(multiples);
    let mut sum = Point::neutral(s);
    for i in (0..count).rev() {
        let [v, u] = digits.each_ref().map(|digits| digits[i / IN_LIMB]);
        let shift = (DIGIT * (i % IN_LIMB)) as u32;
        subtract_digit::<S, true>(s, &mut sum, &multiples[0], v, shift);
        subtract_digit::<S, false>(s, &mut sum, &multiples[1], u, shift);
        if i > 0 {
            sum.double_assign(DIGIT);
        }
    }
    sum
}

/// Returns a point's multiples by 1 to 8.
fn multiples<S: Simd>(point: &Point<S>) -> [Cached<S>; 8] {
    let one = point.to_cached();
    let mut multiples = [one; 8];
    let mut last = *point;
    for multiple in &mut multiples[1..] {
        last.add_assign(&one);
        *multiple = last.to_cached();
    }
    multiples
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

/// Returns the negative of the point of a public key with this y and this sign of x. `x` is either
/// of the two roots.
#[inline(never)]
pub(super) fn minus_point<S: Simd>(s: S, x: &Factor<S>, y: &Factor<S>, sign: S::Limb) -> Point<S> {
    enter!(s, {
        let y = y.to_product().carry();
        let parity = s.and(x.canonical()[0], s.splat(1));
        let minus_x = (Factor::splat(s, [0; LIMBS]).to_product() - x.to_product()).carry();
        Point::new(s, &Factor::select(s.equal(parity, sign), &minus_x, x), &y)
    })
}

/// Subtracts the multiple that the digit at bit `shift` selects. Without `T`, the T of `point` is
/// wrong afterwards.
#[inline(never)]
fn subtract_digit<S: Simd, const T: bool>(
    s: S,
    point: &mut Point<S>,
    multiples: &[Cached<S>; 8],
    digits: S::Limb,
    shift: u32,
) {
    enter!(s, [point], {
        // A stored 0 is the digit −8, a stored 8 is the digit 0.
        let digit = s.and(s.shift_right_by(digits, shift), s.splat(15));
        let positive = s.any_bit(digit, s.splat(8));
        let minus = s.sub(s.splat(8), digit);
        let absolute = s.select(positive, s.and(digit, s.splat(7)), minus);
        let mut found = Cached::neutral(s);
        for (i, multiple) in (1_u64..).zip(multiples) {
            found = Cached::select(s.equal(absolute, s.splat(i)), multiple, &found);
        }
        *point = point.add_cached::<T>(&found, positive);
    });
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::{Edwards, Random, little_endian};
    use num_bigint::BigUint;

    use super::super::comb;
    use super::super::convert::{load, load_limbs, words_of};
    use super::super::half_size::reduce;
    use super::*;
    use crate::simd::portable::Portable;

    const LANES: usize = 4;

    /// Returns scalars k. The first ones are special, unlike hashes of messages: the halves of some
    /// are as long as k. The last ten are random.
    fn scalars(curve: &Edwards) -> Vec<BigUint> {
        let mut random = Random(5);
        let one = BigUint::from(1_u8);
        let mut scalars: Vec<_> = [0_u8, 1, 2, 3, 8].map(BigUint::from).into();
        scalars.extend([0, 1, 2].map(|i| curve.order() - 1_u8 - i as u8));
        scalars.extend([100, 127, 200, 251].map(|i| &one << i));
        scalars.push((curve.order() * 3_u8) >> 2);
        scalars.push((curve.order() >> 3) + (&one << 60));
        for _ in 0..10 {
            scalars.push(BigUint::from_bytes_le(&random.bytes::<32>()) % curve.order());
        }
        scalars
    }

    /// Tries all 64 pairs of small-order parts of A and R, with the right S and with S + 1.
    #[test]
    fn the_equation_holds_if_parts_of_small_order_cancel_out() {
        let s = Portable::<LANES>;
        let curve = Edwards::new();
        let mut random = Random(6);
        let [a, r] = [(); 2].map(|()| BigUint::from_bytes_le(&random.bytes::<32>()));
        let small = (0..8_u8).map(|i| curve.multiply(&i.into(), &curve.of_order_8()));
        let small: Vec<_> = small.collect();
        let parts = |scalar: &BigUint| -> Vec<[u64; 4]> {
            let point = curve.multiply(scalar, &curve.base());
            let sums = small.iter().map(|small| curve.add(&point, small));
            sums.map(|sum| words_of(&curve.encode(&sum))).collect()
        };
        let (keys, firsts) = (parts(&a), parts(&r));
        for k in scalars(&curve) {
            let scalar = [load(s, |_| words_of(&little_endian(&k)))];
            let mut halves = [[[s.zero(); LIMBS]; 2]];
            reduce(s, &scalar, LANES, &mut halves);
            let second = (&r + &k * &a) % curve.order();
            for (i, key) in keys.iter().enumerate() {
                // Each lane has another small-order part of R.
                for upper in [0, LANES] {
                    let encodings = |l: usize| [*key, firsts[upper + l]];
                    let y = [0, 1].map(|j| {
                        load(s, |l| {
                            let [a, b, c, d] = encodings(l)[j];
                            [a, b, c, d & (u64::MAX >> 1)]
                        })
                    });
                    let sign = [0, 1].map(|j| load_limbs(s, |l| [encodings(l)[j][3] >> 63])[0]);
                    let (points, _) = minus_points(s, &y, &sign);
                    for excess in [0_u8, 1] {
                        let second = words_of(&little_endian(&(&second + excess)));
                        let second = load(s, |_| second);
                        let table = comb::table(s);
                        let holds = [holds(s, table, &points, &halves[0], &second)];
                        let cancels = |l: usize| {
                            let sum = &k * i + (upper + l);
                            excess == 0 && !(sum.bit(0) || sum.bit(1) || sum.bit(2))
                        };
                        let expected: [_; LANES] = core::array::from_fn(|l| u64::from(cancels(l)));
                        assert_eq!(words(&holds), expected, "{k:x}, {i}, {upper}, {excess}");
                    }
                }
            }
        }
    }
}
