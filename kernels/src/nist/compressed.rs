//! Points given by x and the parity of y, as SEC 1 compresses them. All values are public.
//!
//! p ≡ 3 mod 4 on both curves, so the roots of a square c are ±c^((p + 1)/4).

use super::batch::{load, right_side, store, word};
use super::curve::Curve;
use super::point::FieldOf;
use super::types::{DecompressJob, Error, PublicKey};
use crate::modular::Factor;
use crate::simd::{Simd, enter, words_mut};

pub(super) fn decompress<S: Simd, C: Curve<N>, const N: usize, const BYTES: usize>(
    s: S,
    jobs: &mut [DecompressJob<'_, BYTES>],
) {
    for jobs in jobs.chunks_mut(S::LANES) {
        let x = load::<S, N>(s, jobs.iter().map(|job| &job.x[..]));
        let mut odd = s.zero();
        for (odd, job) in words_mut(core::slice::from_mut(&mut odd))
            .iter_mut()
            .zip(&*jobs)
        {
            *odd = u64::from(job.is_odd);
        }
        let (y, bad) = y_of::<S, C, N>(s, &x, odd);
        for (lane, job) in jobs.iter_mut().enumerate() {
            job.result = Some(match word::<S>(&bad, lane) {
                0 => {
                    let mut point = PublicKey {
                        x: *job.x,
                        y: [0; BYTES],
                    };
                    store::<S, N>(&mut point.y, &y, lane);
                    Ok(point)
                }
                _ => Err(Error::Point),
            });
        }
    }
}

/// Returns the y with the lowest bit `odd` that belongs to x, and a flag that is not zero where no
/// point has this x: x is not below p, or x³ − 3x + b is not a square.
#[inline(never)]
fn y_of<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &[S::Limb; N],
    odd: S::Limb,
) -> ([S::Limb; N], S::Limb) {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let square = right_side::<S, C, N>(s, &f.encode(&Factor(*x))); // < 2.4 (P-384: 4.1)
        let root = root::<S, C, N>(s, &f.factor(square)); // < 1.4 (2.01)
        let off = f.is_nonzero(&f.factor(f.sub(3, &square, &f.sqr(&root))));
        let y = f.decode(&root);
        // The order is odd, so no point has y = 0, and −y has the other parity.
        let minus_y = f.reduced(f.tight(f.negate(2, &y)));
        let differs = s.any_bit(s.xor(y.0[0], odd), s.splat(1));
        let bad = s.or_xor(f.is_not_below(x), off, s.zero());
        (f.select(differs, &minus_y.0, &y.0), bad)
    })
}

/// Returns a^((p + 1)/4), in Montgomery form like a.
///
/// 253 squarings and 7 multiplications for P-256; 412 and 21 for P-384.
#[inline(always)]
pub(crate) fn root<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    a: &Factor<S::Limb, N>,
) -> Factor<S::Limb, N> {
    let [first, rest @ ..] = C::ROOT_RUNS;
    let mut power = power_of_ones::<S, C, N>(s, a, first);
    for [zeros, ones] in [[rest[0], rest[1]], [rest[2], rest[3]], [rest[4], 0]] {
        square_times::<S, C, N>(s, &mut power, zeros + ones);
        if ones > 0 {
            let ones = power_of_ones::<S, C, N>(s, a, ones);
            multiply::<S, C, N>(s, &mut power, &ones);
        }
    }
    power
}

/// Returns a^(2^count − 1), for a `count` ≥ 1.
#[inline(always)]
fn power_of_ones<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    a: &Factor<S::Limb, N>,
    count: usize,
) -> Factor<S::Limb, N> {
    // From the top bit of `count` downwards: `ones` is the number that the bits so far form.
    let (mut power, mut ones) = (*a, 1);
    for bit in (0..count.ilog2()).rev() {
        let before = power;
        square_times::<S, C, N>(s, &mut power, ones);
        multiply::<S, C, N>(s, &mut power, &before);
        ones *= 2;
        if count >> bit & 1 == 1 {
            square_times::<S, C, N>(s, &mut power, 1);
            multiply::<S, C, N>(s, &mut power, a);
            ones += 1;
        }
    }
    power
}

/// Replaces x by x^(2^times).
#[inline(never)]
fn square_times<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &mut Factor<S::Limb, N>,
    times: usize,
) {
    enter!(s, [x], {
        let f = FieldOf::<S, C, N, true>::new(s);
        for _ in 0..times {
            *x = f.factor(f.sqr(x));
        }
    });
}

/// Replaces x by x·y.
#[inline(always)]
fn multiply<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    x: &mut Factor<S::Limb, N>,
    y: &Factor<S::Limb, N>,
) {
    let f = FieldOf::<S, C, N>::new(s);
    *x = f.factor(f.mul(x, y));
}
