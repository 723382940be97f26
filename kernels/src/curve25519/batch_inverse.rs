//! Inverses of many numbers by one inversion, and powers for square roots.

use super::convert::{load, store};
use super::field::{Factor, LIMBS, ONE};
use super::inverse;
use crate::simd::{Simd, enter, rotate_lanes};

/// Inverts all of `numbers` with one inversion; the inverse of 0 is 0.
///
/// P. Montgomery's trick in each lane: products of the numbers upwards, the inverse of the last
/// product, and downwards again. It takes three multiplications a number. A zero is replaced by 1
/// so that it cannot spoil the others, and its own result is cleared. `running` must be as long as
/// `numbers`.
#[inline(never)]
pub(crate) fn invert_all<S: Simd>(
    s: S,
    numbers: &mut [[S::Limb; LIMBS]],
    running: &mut [[S::Limb; LIMBS]],
) {
    enter!(s, [numbers, running], {
        let mut inverse = products(s, numbers, running).limbs;
        invert_all_lanes(s, &mut inverse);
        divide(s, Factor::from_limbs(s, inverse), numbers, running);
    });
}

/// Writes to `running`, for each number, the product of all numbers before it. Returns the product
/// of all numbers.
#[inline(always)]
pub(super) fn products<S: Simd>(
    s: S,
    numbers: &[[S::Limb; LIMBS]],
    running: &mut [[S::Limb; LIMBS]],
) -> Factor<S> {
    let mut product = Factor::splat(s, ONE);
    for (number, before) in numbers.iter().zip(running.iter_mut()) {
        *before = product.limbs;
        product = (product * nonzero(s, number).1).carry();
    }
    product
}

/// Replaces each number by its inverse, the last number first. `inverse` is the inverse of the
/// product of all numbers.
#[inline(always)]
pub(super) fn divide<S: Simd>(
    s: S,
    mut inverse: Factor<S>,
    numbers: &mut [[S::Limb; LIMBS]],
    running: &[[S::Limb; LIMBS]],
) {
    for (number, before) in numbers.iter_mut().zip(running.iter()).rev() {
        let (mask, x) = nonzero(s, number);
        let result = (inverse * Factor::from_limbs(s, *before)).carry();
        *number = Factor::select(mask, &result, &Factor::splat(s, [0; LIMBS])).limbs;
        inverse = (inverse * x).carry();
    }
}

/// Replaces a number by its inverse. No lane may have 0. One inversion serves all lanes.
#[inline(never)]
fn invert_all_lanes<S: Simd>(s: S, number: &mut [S::Limb; LIMBS]) {
    const { assert!(S::LANES <= 8 && S::LANES.is_power_of_two()) };
    // In pairs, of which the second is ignored: a multiplication of one number would need code of
    // its own and would not be faster.
    let pair = |limbs| [Factor::from_limbs(s, limbs); 2];
    // Products of two lanes each, then of four, until each lane has the product of all.
    let mut product = pair(*number);
    let mut others = [*number; 3];
    let others = &mut others[..S::LANES.ilog2() as usize];
    for (level, other) in others.iter_mut().enumerate() {
        rotate_lanes(other, &product[0].limbs, S::LANES, 1 << level);
        square_times_and_multiply(s, &mut product, 0, &pair(*other));
    }
    enter!(s, *number = product[0].canonical());
    let inverse = inverse::invert(&store::<S>(number, 0));
    let mut product = pair(load(s, |_| inverse));
    for other in others.iter().rev() {
        square_times_and_multiply(s, &mut product, 0, &pair(*other));
    }
    *number = product[0].limbs;
}

/// Computes a^((p − 5) / 8) = a^(2^252 − 3) of each of `P` numbers, for a square root.
///
/// 251 squarings, 11 multiplications. A single number waits for its own results half of the time;
/// two numbers fill the gaps.
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

/// Replaces each x by x^(2^`times`)·y.
#[inline(never)]
pub(super) fn square_times_and_multiply<S: Simd, const P: usize>(
    s: S,
    x: &mut [Factor<S>; P],
    times: usize,
    y: &[Factor<S>; P],
) {
    enter!(s, [x], {
        for _ in 0..times {
            for x in x.iter_mut() {
                *x = x.square().carry();
            }
        }
        for (x, y) in x.iter_mut().zip(y) {
            *x = (*x * *y).carry();
        }
    });
}

/// Returns the lanes in which `number` is not zero, and `number` with 1 for every zero.
#[inline(always)]
fn nonzero<S: Simd>(s: S, number: &[S::Limb; LIMBS]) -> (S::Mask, Factor<S>) {
    let number = Factor::from_limbs(s, *number);
    let mask = number.is_nonzero();
    (mask, Factor::select(mask, &number, &Factor::splat(s, ONE)))
}
