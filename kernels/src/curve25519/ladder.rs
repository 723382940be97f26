//! The Montgomery ladder on y² = x³ + 486662·x² + x, x-coordinates only (RFC 7748, section 5).

use super::convert::Limbs;
use super::field::{Biased, Factor, LIMBS, Multiplier, ONE, Product};
use crate::simd::{Simd, enter};

/// (486662 − 2) / 4.
const A24: u64 = 121_665;

/// A point with the x-coordinate X / Z. The point at infinity has Z = 0.
#[derive(Clone, Copy)]
struct Point<S: Simd> {
    x: Biased<S>,
    z: Product<S>,
}

/// Multiplies the point with x-coordinate `u` of every lane by the scalar that `swaps` encodes.
///
/// `swaps` has the result of [`swaps`] for the scalar of each lane; `u` is below 2^255 and need not
/// be reduced. Returns X and Z of the product's x-coordinate X / Z, with limbs that can be
/// multiplied.
#[inline(never)]
pub(crate) fn multiple_of_u<S: Simd>(s: S, swaps: &Limbs<S, 4>, u: &Limbs<S>) -> [Limbs<S>; 2] {
    let mut fraction = [[s.zero(); LIMBS]; 2];
    let out = &mut fraction;
    enter!(s, [out], {
        let point = Factor::from_limbs(s, *u);
        // Bit 254 is one: from (infinity, P) to (P, 2P), a doubling of P.
        let mut sum = Point {
            x: point.to_product().biased(),
            z: Factor::splat(s, ONE).to_product(),
        };
        let mut doubled = double(&sum.sum(), &sum.difference());
        let point = Multiplier::new(point);
        let top = s.splat(1 << 63);
        let mut word = s.zero();
        for (i, steps) in [(3, 64), (2, 64), (1, 64), (0, 59)] {
            word = swaps[i];
            for _ in 0..steps {
                (doubled, sum) = step(&doubled, &sum, &point, s.any_bit(word, top));
                word = s.add(word, word);
            }
        }
        // The last three bits are zero: doublings of the point that bit 2 selects.
        let swap = s.any_bit(word, top);
        let mut result = double(
            &Factor::select(swap, &sum.sum(), &doubled.sum()),
            &Factor::select(swap, &sum.difference(), &doubled.difference()),
        );
        for _ in 0..2 {
            result = double(&result.sum(), &result.difference());
        }
        *out = [result.x.carry().limbs(), result.z.carry().limbs()];
    });
    fraction
}

/// Returns a bit for each step of the ladder, 1 if the step exchanges: bit i of the clamped scalar
/// `k` xor bit i + 1, for i from 253 down, beginning at bit 63 of word 3.
///
/// The step of bit i doubles one of two points and adds both. The next step doubles the result of
/// that doubling again, unless its bit differs.
pub(super) fn swaps(k: &[u64; 4]) -> [u64; 4] {
    let differ: [u64; 4] =
        core::array::from_fn(|i| k[i] ^ (k[i] >> 1 | if i < 3 { k[i + 1] << 63 } else { 0 }));
    core::array::from_fn(|i| differ[i] << 2 | if i > 0 { differ[i - 1] >> 62 } else { 0 })
}

impl<S: Simd> Point<S> {
    #[inline(always)]
    fn sum(&self) -> Factor<S> {
        (self.x + self.z).carry()
    }

    #[inline(always)]
    fn difference(&self) -> Factor<S> {
        (self.x - self.z).carry()
    }
}

/// Maps (P, Q) with Q − P = ± the point to (2P, P + Q), or to (2Q, P + Q) where `swap`.
///
/// RFC 7748, section 5. P + Q does not depend on the order of P and Q, so only the operand of the
/// doubling is exchanged, not the points. 5 multiplications, 4 squarings, 11 carries.
///
/// Doubling and addition are interleaved, so that a core that looks some 500 instructions ahead
/// finds independent work. This saves a tenth of the time.
#[inline(always)]
fn step<S: Simd>(
    p: &Point<S>,
    q: &Point<S>,
    point: &Multiplier<S>,
    swap: S::Mask,
) -> (Point<S>, Point<S>) {
    let a = p.sum();
    let b = p.difference();
    let c = q.sum();
    let d = q.difference();
    let aa = Factor::select(swap, &c, &a).square_biased();
    let bb = Factor::select(swap, &d, &b).square();
    let da = d.times_biased(&a);
    let cb = c * b;
    let e = (aa - bb).carry();
    let x = (da + cb).carry().square_biased();
    let difference = (da - cb).carry().square().carry();
    let doubled = double_products(&aa, &bb, &e);
    let z = difference * point;
    (doubled, Point { x, z })
}

/// Returns 2P from X + Z and X − Z: 2 multiplications, 2 squarings, one multiplication by a small
/// number.
#[inline(always)]
fn double<S: Simd>(sum: &Factor<S>, difference: &Factor<S>) -> Point<S> {
    let aa = sum.square_biased();
    let bb = difference.square();
    double_products(&aa, &bb, &(aa - bb).carry())
}

/// Computes the multiplications that end a doubling: aa·bb and e·(a24·e + aa), for aa = (X + Z)²,
/// bb = (X − Z)² and e = aa − bb.
#[inline(always)]
fn double_products<S: Simd>(aa: &Biased<S>, bb: &Product<S>, e: &Factor<S>) -> Point<S> {
    let more = e.mul_small_add(A24, aa).carry();
    Point {
        x: aa.carry().times_biased(&bb.carry()),
        z: *e * more,
    }
}
