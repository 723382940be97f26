//! Inverses, shared by all vectors of a batch, by divsteps in every lane.
//!
//! D. Bernstein, B.-Y. Yang, "Fast constant-time gcd computation and modular inversion" (2019), in the form
//! with δ = 1/2 at the start that P. Wuille gave for libsecp256k1. Every step is the same few additions
//! under masks, so all lanes go through the same instructions whatever their numbers.

use super::field::{Factor, Field, Loose, Modulus, each};
use crate::simd::{Simd, inlined};

/// Replaces each number (Montgomery form, not zero, below 2.4·n) by its inverse (Montgomery form, below
/// (1.4 + `PAD`)·n).
///
/// Montgomery's trick: one inversion and three multiplications a vector. `prefixes` is working memory.
#[inline(never)]
pub(crate) fn invert_all<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    numbers: &mut [Factor<S::Limb, N>],
    prefixes: &mut [Factor<S::Limb, N>],
) {
    s.enter(
        #[inline(always)]
        || {
            let f = Field::<S, M, N>::new(s);
            let Some(first) = numbers.first() else { return };
            let mut product = *first;
            for (number, prefix) in numbers.iter().zip(prefixes.iter_mut()).skip(1) {
                *prefix = product;
                product = f.factor(f.mul(&product, number));
            }
            let mut inverse = invert::<S, M, N>(s, &product);
            for (number, prefix) in numbers.iter_mut().zip(prefixes.iter()).skip(1).rev() {
                let rest = f.factor(f.mul(&inverse, number));
                *number = f.factor(f.mul(&inverse, prefix));
                inverse = rest;
            }
            numbers[0] = inverse;
        },
    );
}

/// Steps between two updates of the long numbers. Entries of the matrix are at most 2^50 in size, so they
/// fit into 52 bits with a sign.
const STEPS: usize = 50;

/// Batches of [`STEPS`] after which g is zero, for moduli of `bits` bits.
///
/// Wuille's bound for 0 ≤ g ≤ f < 2^bits, as rounded up in crypto-bigint: (45907·bits + 30179)/19929 steps;
/// 591 for 256 bits and 886 for 384.
const fn batches(bits: usize) -> usize {
    ((45907 * bits + 30179) / 19929).div_ceil(STEPS)
}

/// Bits of a modulus.
const fn bits<const N: usize>(n: &[u64; N]) -> usize {
    52 * (N - 1) + (64 - n[N - 1].leading_zeros() as usize)
}

/// By how many multiples of n the last d may differ from zero: it starts below n, and a batch adds at
/// most n/2.
const fn spread(bits: usize) -> usize {
    1 + batches(bits).div_ceil(2)
}

/// 2^STEPS times what a batch of steps does: f ← (u·f + v·g)/2^STEPS, g ← (q·f + r·g)/2^STEPS.
struct Matrix<S: Simd> {
    u: S::Limb,
    v: S::Limb,
    q: S::Limb,
    r: S::Limb,
}

/// 1/a in Montgomery form, below (1.1 + `PAD`)·n, for any a of a vector that is not zero modulo n.
///
/// f = n and g = a·R; throughout d·a·R ≡ f·R² and e·a·R ≡ g·R². In the end g = 0 and f = ±1, so
/// ±d ≡ R/a. Long numbers are two's complement in 52·N bits.
#[inline(never)]
fn invert<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    a: &Factor<S::Limb, N>,
) -> Factor<S::Limb, N> {
    s.enter(
        #[inline(always)]
        || {
            let field = Field::<S, M, N>::new(s);
            let n = field.constant(&M::VALUE).0;
            let mut f = n;
            let mut g = field.reduced(field.tight(field.mul(a, &field.one()))).0;
            let mut d = [s.zero(); N];
            let mut e = field.constant(&M::R2).0;
            // −(δ + 1/2): negative when δ is positive.
            let mut zeta = s.splat(u64::MAX);
            for _ in 0..const { batches(bits(&M::VALUE)) } {
                let matrix = steps(s, &mut zeta, f[0], g[0]);
                (f, g) = (
                    combine::<S, M, N, false>(s, &f, &g, matrix.u, matrix.v),
                    combine::<S, M, N, false>(s, &f, &g, matrix.q, matrix.r),
                );
                (d, e) = (
                    combine::<S, M, N, true>(s, &d, &e, matrix.u, matrix.v),
                    combine::<S, M, N, true>(s, &d, &e, matrix.q, matrix.r),
                );
            }

            // ±d + spread·n + n: positive, and below LIMIT·n.
            let negative = s.any_bit(f[N - 1], s.splat(1 << 51));
            let pad = &M::PADS[const { spread(bits(&M::VALUE)) + 1 }];
            let mut sum = d;
            each::<N>(inlined(
                #[inline(always)]
                |i| {
                    let pad = s.splat(pad[i]);
                    sum[i] = s.select(negative, s.sub(pad, d[i]), s.add(pad, d[i]));
                },
            ));
            field.factor(field.mul(&field.factor(Loose(sum)), &field.one()))
        },
    )
}

/// [`STEPS`] divsteps on the low limbs of f (odd) and g.
///
/// One step: if δ > 0 and g is odd, (δ, f, g) ← (1 − δ, g, (g − f)/2), else (1 + δ, f, (g + (g mod 2)·f)/2).
/// Here g is never halved; f, u, v and the position of g's lowest bit are doubled instead.
#[inline(never)]
fn steps<S: Simd>(s: S, zeta: &mut S::Limb, f: S::Limb, g: S::Limb) -> Matrix<S> {
    s.enter(
        #[inline(always)]
        || {
            let (zero, one) = (s.zero(), s.splat(1));
            let (minus_two, sign) = (s.splat(2_u64.wrapping_neg()), s.splat(1 << 63));
            let mut upper = [f, one, zero];
            let mut lower = [g, zero, one];
            let mut bit = one;
            let mut zeta_now = *zeta;
            for _ in 0..STEPS {
                let odd = s.any_bit(lower[0], bit);
                let swap = s.any_bit(s.select(odd, zeta_now, zero), sign);
                for i in 0..3 {
                    let (old_upper, old_lower) = (upper[i], lower[i]);
                    let twice = s.add(old_upper, old_upper);
                    let sum = s.select(odd, s.add(old_lower, old_upper), old_lower);
                    lower[i] = s.select(swap, s.sub(sum, twice), sum);
                    upper[i] = s.select(swap, s.add(old_lower, old_lower), twice);
                }
                let next = s.sub(zeta_now, one);
                zeta_now = s.select(swap, s.sub(minus_two, zeta_now), next);
                bit = s.add(bit, bit);
            }
            *zeta = zeta_now;
            Matrix { u: upper[1], v: upper[2], q: lower[1], r: lower[2] }
        },
    )
}

/// (u·a + v·b)/2^STEPS, or with `REDUCE` (u·a + v·b + m·n)/2^STEPS for the m in −2^49..2^49 that makes it whole.
///
/// |u| + |v| ≤ 2^STEPS. A factor is read as its residue modulo 2^52, so for a negative u there is
/// 2^52·a too much; it is subtracted. Columns have lent 2^58 to stay positive.
#[inline(never)]
fn combine<S: Simd, M: Modulus<N>, const N: usize, const REDUCE: bool>(
    s: S,
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    u: S::Limb,
    v: S::Limb,
) -> [S::Limb; N] {
    const LEND: u64 = 1 << 58;
    s.enter(
        #[inline(always)]
        || {
            let zero = s.zero();
            let sign = s.splat(1 << 63);
            let mut low = [s.splat(LEND - (LEND >> 52)); N];
            low[0] = s.splat(LEND);
            let mut high = s.splat(LEND - (LEND >> 52));

            let mut add = inlined(
                #[inline(always)]
                |low: &mut [S::Limb; N], x: &[S::Limb; N], by: S::Limb| {
                    let negative = s.any_bit(by, sign);
                    for k in 0..N {
                        low[k] = s.mul_lo(low[k], x[k], by);
                        let next = if k + 1 < N { &mut low[k + 1] } else { &mut high };
                        let sum = s.mul_hi(*next, x[k], by);
                        *next = s.select(negative, s.sub(sum, s.low_bits(x[k])), sum);
                    }
                },
            );
            add(&mut low, a, u);
            add(&mut low, b, v);
            if REDUCE {
                let product = s.mul_lo(zero, low[0], s.splat(M::K0));
                let m = s.and(product, s.splat((1 << STEPS) - 1));
                let half = s.splat(1 << (STEPS - 1));
                let m = s.sub(s.or_xor(zero, m, half), half);
                add(&mut low, &Field::<S, M, N>::new(s).constant(&M::VALUE).0, m);
            }
            // The limbs above, all ones, of negative a and b.
            for (x, by) in [(a, u), (b, v)] {
                let negative = s.any_bit(x[N - 1], s.splat(1 << 51));
                high = s.select(negative, s.sub(high, s.low_bits(by)), high);
            }

            let mut out = [zero; N];
            let four = s.splat(1 << (52 - STEPS));
            for k in 0..N {
                let carry = s.carry(low[k]);
                let next = if k + 1 < N { &mut low[k + 1] } else { &mut high };
                *next = s.add(*next, carry);
                let next = *next;
                out[k] = s.mul_lo(s.mul_hi(zero, low[k], four), next, four);
            }
            out
        },
    )
}
