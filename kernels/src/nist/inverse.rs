//! Inverses by divsteps in every lane. All vectors of a group share one inversion.
//!
//! D. Bernstein, B.-Y. Yang, "Fast constant-time gcd computation and modular inversion" (2019),
//! with δ = 1/2 at the start, as P. Wuille proposed it for libsecp256k1. Every step is the same few
//! additions under masks, so all lanes run the same instructions for all numbers.

use crate::modular::{Factor, Field, Loose, Modulus};
use crate::simd::{CHOOSE, Simd, enter, inlined, words, words_mut};
use crate::unroll::unrolled;

/// Replaces each number (Montgomery form, not zero, below 2.4·n) by its inverse (Montgomery form,
/// below (1.95 + `PAD`)·n).
///
/// Montgomery's trick: one inversion, and three multiplications a vector. `prefixes` is working
/// memory.
#[inline(never)]
pub(crate) fn invert_all<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    numbers: &mut [[S::Limb; N]],
    prefixes: &mut [[S::Limb; N]],
) {
    if let Some(product) = multiply_up::<S, M, N>(s, numbers, prefixes) {
        let inverse = invert::<S, M, N>(s, &product);
        multiply_down::<S, M, N>(s, numbers, prefixes, inverse);
    }
}

/// [`invert_all`] for numbers modulo two moduli of the same length at once.
///
/// The lower half of the lanes is multiplied by the upper half. Then one half of the lanes holds
/// the products modulo `P`, the other half those modulo `O`, and one inversion serves both.
#[inline(never)]
pub(crate) fn invert_all_of_both<S: Simd, P: Modulus<N>, O: Modulus<N>, const N: usize>(
    s: S,
    of_p: &mut [[S::Limb; N]],
    of_o: &mut [[S::Limb; N]],
    prefixes: [&mut [[S::Limb; N]]; 2],
) {
    debug_assert!(of_p.len() == of_o.len());
    let [prefixes_p, prefixes_o] = prefixes;
    let products = (
        multiply_up::<S, P, N>(s, of_p, prefixes_p),
        multiply_up::<S, O, N>(s, of_o, prefixes_o),
    );
    let (Some(p), Some(o)) = products else { return };
    let (p, o) = if S::LANES == 1 {
        (invert::<S, P, N>(s, &p), invert::<S, O, N>(s, &o))
    } else {
        invert_both::<S, P, O, N>(s, &p, &o)
    };
    multiply_down::<S, P, N>(s, of_p, prefixes_p, p);
    multiply_down::<S, O, N>(s, of_o, prefixes_o, o);
}

/// Inverts one vector of numbers modulo `P` and one modulo `O`; see [`invert_all_of_both`].
#[inline(never)]
fn invert_both<S: Simd, P: Modulus<N>, O: Modulus<N>, const N: usize>(
    s: S,
    p: &Factor<S::Limb, N>,
    o: &Factor<S::Limb, N>,
) -> (Factor<S::Limb, N>, Factor<S::Limb, N>) {
    const { assert!(bits(&P::VALUE) == bits(&O::VALUE)) };
    let lower = enter!(s, {
        let mut half = [s.zero()];
        words_mut(&mut half)[..S::LANES / 2].fill(1);
        s.any_bit(half[0], s.splat(1))
    });
    let (other_p, other_o) = (halves_swapped(s, p), halves_swapped(s, o));
    let inverse = enter!(s, {
        let (fp, fo) = (Field::<S, P, N>::new(s), Field::<S, O, N>::new(s));
        let products = fp.select(
            lower,
            &reduced::<S, P, N>(s, &fp.factor(fp.mul(p, &other_p))),
            &reduced::<S, O, N>(s, &fo.factor(fo.mul(o, &other_o))),
        );
        let moduli = Moduli::all::<S, P>(s).or::<S, P>(s, lower, Moduli::all::<S, O>(s));
        divsteps::<S, P, N>(s, products, &moduli)
    });
    let swapped = halves_swapped(s, &Factor(inverse)).0;
    enter!(s, {
        let (fp, fo) = (Field::<S, P, N>::new(s), Field::<S, O, N>::new(s));
        let of_p = in_montgomery_form::<S, P, N>(s, &fp.select(lower, &inverse, &swapped));
        let of_o = in_montgomery_form::<S, O, N>(s, &fo.select(lower, &swapped, &inverse));
        (
            fp.factor(fp.mul(&of_p, &other_p)),
            fo.factor(fo.mul(&of_o, &other_o)),
        )
    })
}

/// Swaps the lower and the upper half of the lanes.
fn halves_swapped<S: Simd, const N: usize>(s: S, a: &Factor<S::Limb, N>) -> Factor<S::Limb, N> {
    let mut out = [s.zero(); N];
    let half = S::LANES / 2;
    for (to, from) in words_mut(&mut out)
        .chunks_exact_mut(S::LANES)
        .zip(words(&a.0).chunks_exact(S::LANES))
    {
        to[..half].copy_from_slice(&from[half..]);
        to[half..].copy_from_slice(&from[..half]);
    }
    Factor(out)
}

/// Returns the product of all numbers; `prefixes[i]` becomes the product of the numbers before the
/// i-th.
fn multiply_up<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    numbers: &[[S::Limb; N]],
    prefixes: &mut [[S::Limb; N]],
) -> Option<Factor<S::Limb, N>> {
    enter!(s, {
        let f = Field::<S, M, N>::new(s);
        let mut product = Factor(*numbers.first()?);
        for (number, prefix) in numbers.iter().zip(prefixes).skip(1) {
            *prefix = product.0;
            product = f.factor(f.mul(&product, &Factor(*number)));
        }
        Some(product)
    })
}

/// Computes each number's inverse from the inverse of their product.
fn multiply_down<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    numbers: &mut [[S::Limb; N]],
    prefixes: &[[S::Limb; N]],
    mut inverse: Factor<S::Limb, N>,
) {
    enter!(s, {
        let f = Field::<S, M, N>::new(s);
        for (number, prefix) in numbers.iter_mut().zip(prefixes).skip(1).rev() {
            let rest = f.factor(f.mul(&inverse, &Factor(*number)));
            *number = f.factor(f.mul(&inverse, &Factor(*prefix))).0;
            inverse = rest;
        }
        numbers[0] = inverse.0;
    });
}

/// Number of steps between two updates of the long numbers. Entries of the matrix are at most 2^50
/// in absolute value, so they fit into 52 bits with a sign.
const STEPS: usize = 50;

/// Returns the number of batches of [`STEPS`] steps after which g is zero, for moduli of `bits`
/// bits.
///
/// Wuille's bound for 0 ≤ g ≤ f < 2^bits, as rounded up in crypto-bigint: (45907·bits +
/// 30179)/19929 steps; 591 for 256 bits and 886 for 384.
const fn batches(bits: usize) -> usize {
    ((45907 * bits + 30179) / 19929).div_ceil(STEPS)
}

/// Returns the number of bits of a modulus.
const fn bits<const N: usize>(n: &[u64; N]) -> usize {
    52 * (N - 1) + (64 - n[N - 1].leading_zeros() as usize)
}

/// Returns a bound on the last |d|, in units of n: d and e start below n, and a batch adds at most
/// n/2.
const fn spread(bits: usize) -> usize {
    1 + batches(bits).div_ceil(2)
}

/// A modulus in every lane; lanes can have different moduli.
#[derive(Clone, Copy)]
pub(crate) struct Moduli<L, const N: usize> {
    n: [L; N],
    /// −1/n mod 2^52.
    k0: L,
    /// R² mod n.
    r2: [L; N],
    /// `spread` + 1 times n, with columns that have borrowed.
    pad: [L; N],
}

impl<L: Copy, const N: usize> Moduli<L, N> {
    #[inline(always)]
    pub(crate) fn all<S: Simd<Limb = L>, M: Modulus<N>>(s: S) -> Self {
        let f = Field::<S, M, N>::new(s);
        let pad = &M::PADS[const { spread(bits(&M::VALUE)) + 1 }];
        Self {
            n: f.constant(&M::VALUE).0,
            k0: s.splat(M::K0),
            r2: f.constant(&M::R2).0,
            pad: f.constant(pad).0,
        }
    }

    /// Returns `self` in the lanes of `mask`, `other` in the rest.
    #[inline(always)]
    fn or<S: Simd<Limb = L>, M: Modulus<N>>(self, s: S, mask: S::Mask, other: Self) -> Self {
        let f = Field::<S, M, N>::new(s);
        Self {
            n: f.select(mask, &self.n, &other.n),
            k0: s.select(mask, self.k0, other.k0),
            r2: f.select(mask, &self.r2, &other.r2),
            pad: f.select(mask, &self.pad, &other.pad),
        }
    }
}

/// The effect of a batch of steps, times 2^STEPS: f ← (u·f + v·g)/2^STEPS, g ← (q·f + r·g)/2^STEPS.
/// Only the low 52 bits of each entry count, as two's complement.
struct Matrix<S: Simd> {
    u: S::Limb,
    v: S::Limb,
    q: S::Limb,
    r: S::Limb,
}

/// Returns 1/a in Montgomery form, below (1.95 + `PAD`)·n, for a vector of any a that are not zero
/// modulo n.
#[inline(never)]
fn invert<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    a: &Factor<S::Limb, N>,
) -> Factor<S::Limb, N> {
    enter!(s, {
        let inverse = divsteps::<S, M, N>(s, reduced::<S, M, N>(s, a), &Moduli::all::<S, M>(s));
        in_montgomery_form::<S, M, N>(s, &inverse)
    })
}

/// Returns a, fully reduced.
#[inline(always)]
fn reduced<S: Simd, M: Modulus<N>, const N: usize>(s: S, a: &Factor<S::Limb, N>) -> [S::Limb; N] {
    let f = Field::<S, M, N>::new(s);
    f.reduced(f.tight(f.mul(a, &f.one()))).0
}

/// Reduces the result of [`divsteps`], which is below (2·`spread` + 1)·n, to below
/// (1.95 + `PAD`)·n.
#[inline(always)]
fn in_montgomery_form<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    inverse: &[S::Limb; N],
) -> Factor<S::Limb, N> {
    let f = Field::<S, M, N>::new(s);
    f.factor(f.mul(&Factor(*inverse), &f.one()))
}

/// Returns R²/g modulo each lane's n, below (2·`spread` + 1)·n, for 0 < g < n. All moduli are as
/// long as `M`'s.
///
/// f starts as n. Invariant: d·g₀ ≡ f·R² and e·g₀ ≡ g·R². In the end g = 0 and f = ±1, so ±d ≡
/// R²/g₀. Long numbers are two's complement in 52·N bits.
#[inline(never)]
pub(crate) fn divsteps<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    mut g: [S::Limb; N],
    moduli: &Moduli<S::Limb, N>,
) -> [S::Limb; N] {
    enter!(s, {
        const { assert!(2 * spread(bits(&M::VALUE)) as u64 + 1 < M::LIMIT) };
        let field = Field::<S, M, N>::new(s);
        let mut f = moduli.n;
        let mut d = [s.zero(); N];
        let mut e = moduli.r2;
        // −(δ + 1/2): negative when δ is positive.
        let mut zeta = s.splat(u64::MAX);
        for _ in 0..const { batches(bits(&M::VALUE)) } {
            let matrix = steps(s, &mut zeta, f[0], g[0]);
            (f, g) = (
                combine::<S, N, false>(s, &f, &g, matrix.u, matrix.v, moduli),
                combine::<S, N, false>(s, &f, &g, matrix.q, matrix.r, moduli),
            );
            (d, e) = (
                combine::<S, N, true>(s, &d, &e, matrix.u, matrix.v, moduli),
                combine::<S, N, true>(s, &d, &e, matrix.q, matrix.r, moduli),
            );
        }

        // (spread + 1)·n ± d is positive.
        let negative = s.any_bit(f[N - 1], s.splat(1 << 51));
        let mut sum = d;
        unrolled::<N>(inlined!(|i| {
            let pad = moduli.pad[i];
            sum[i] = s.select(negative, s.sub(pad, d[i]), s.add(pad, d[i]));
        }));
        field.factor(Loose(sum)).0
    })
}

/// Computes [`STEPS`] divsteps on the low limbs of f (odd) and g, in two halves.
#[inline(never)]
fn steps<S: Simd>(s: S, zeta: &mut S::Limb, f: S::Limb, g: S::Limb) -> Matrix<S> {
    enter!(s, {
        let mut low = (f, g);
        let first = half_steps(s, zeta, &mut low);
        let second = half_steps(s, zeta, &mut low);
        let entry = inlined!(|a: S::Limb, b: S::Limb, c: S::Limb, d: S::Limb| {
            s.mul_lo(s.mul_lo(s.zero(), a, b), c, d)
        });
        Matrix {
            u: entry(second.u, first.u, second.v, first.q),
            v: entry(second.u, first.v, second.v, first.r),
            q: entry(second.q, first.u, second.r, first.q),
            r: entry(second.q, first.v, second.r, first.r),
        }
    })
}

/// Computes half of the [`STEPS`] divsteps.
///
/// One step: if δ > 0 and g is odd, (δ, f, g) ← (1 − δ, g, (g − f)/2), else (1 + δ, f, (g + (g mod
/// 2)·f)/2). Masks are ordinary vectors, because comparisons into mask registers have a longer
/// latency.
///
/// A row of the matrix is one number, u + 2^32·v, as its entries are small enough. One instruction
/// then applies the operation on f to both entries.
#[inline(always)]
fn half_steps<S: Simd>(s: S, zeta: &mut S::Limb, (f, g): &mut (S::Limb, S::Limb)) -> Matrix<S> {
    let one = s.splat(1);
    let (mut f_now, mut g_now, mut zeta_now) = (*f, *g, *zeta);
    let (mut upper, mut lower) = (one, s.splat(1 << ROW_SHIFT));
    for _ in 0..STEPS / 2 {
        let odd = s.spread(s.and(g_now, one));
        let positive_delta = s.spread(s.shift_right::<63>(zeta_now));
        let swap = s.and(odd, positive_delta);
        let step = inlined!(|upper: S::Limb, lower: S::Limb| {
            // ±upper where g is odd; −x = (x ^ −1) + 1.
            let addend = s.and(s.xor(upper, positive_delta), odd);
            let sum = s.add(s.sub(lower, swap), addend);
            (s.ternary::<CHOOSE>(swap, lower, upper), sum)
        });
        (f_now, g_now) = step(f_now, g_now);
        (upper, lower) = step(upper, lower);
        g_now = s.halve(g_now);
        upper = s.add(upper, upper);
        // −ζ − 2 or ζ − 1.
        zeta_now = s.sub(s.xor(zeta_now, swap), one);
    }
    (*f, *g, *zeta) = (f_now, g_now, zeta_now);
    let (u, v) = entries(s, upper);
    let (q, r) = entries(s, lower);
    Matrix { u, v, q, r }
}

/// Bit of a row of the matrix where its second entry begins. |u| + |v| ≤ 2^25 after half of the
/// steps, and |q| + |r| too.
const ROW_SHIFT: u32 = 32;
const _: () = assert!(STEPS.is_multiple_of(2) && STEPS / 2 < ROW_SHIFT as usize - 1);

/// Returns the two entries of a row, with their signs.
#[inline(always)]
fn entries<S: Simd>(s: S, row: S::Limb) -> (S::Limb, S::Limb) {
    let sign = s.splat(1 << (ROW_SHIFT - 1));
    let signed = inlined!(|entry: S::Limb| s.sub(s.xor(entry, sign), sign));
    let first = signed(s.and(row, s.splat((1 << ROW_SHIFT) - 1)));
    let second = signed(s.shift_right::<ROW_SHIFT>(s.sub(row, first)));
    (first, second)
}

/// Returns (u·a + v·b)/2^STEPS, or with `REDUCE` (u·a + v·b + m·n)/2^STEPS for the m in −2^49..2^49
/// that makes it an integer.
///
/// The entries have |u| + |v| ≤ 2^STEPS, and limbs of a and b are below 2^52. A factor is read as
/// its residue modulo 2^52, so for a negative u the product is too large by 2^52·a, which is
/// subtracted. Each column has borrowed 2^58 from the next to stay positive.
#[inline(never)]
fn combine<S: Simd, const N: usize, const REDUCE: bool>(
    s: S,
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    u: S::Limb,
    v: S::Limb,
    moduli: &Moduli<S::Limb, N>,
) -> [S::Limb; N] {
    const LEND: u64 = 1 << 58;
    enter!(s, {
        let zero = s.zero();
        let sign = s.splat(1 << 51);
        let mut low = [s.splat(LEND - (LEND >> 52)); N];
        low[0] = s.splat(LEND);
        let mut high = s.splat(LEND - (LEND >> 52));

        let mut add = inlined!(|low: &mut [S::Limb; N], x: &[S::Limb; N], by: S::Limb| {
            let negative = s.any_bit(by, sign);
            for k in 0..N {
                low[k] = s.mul_lo(low[k], x[k], by);
                let next = if k + 1 < N {
                    &mut low[k + 1]
                } else {
                    &mut high
                };
                let sum = s.mul_hi(*next, x[k], by);
                *next = s.select(negative, s.sub(sum, x[k]), sum);
            }
        });
        add(&mut low, a, u);
        add(&mut low, b, v);
        if REDUCE {
            let product = s.mul_lo(zero, low[0], moduli.k0);
            let m = s.and(product, s.splat((1 << STEPS) - 1));
            let half = s.splat(1 << (STEPS - 1));
            let m = s.sub(s.or_xor(zero, m, half), half);
            add(&mut low, &moduli.n, m);
        }
        // The limbs above negative a and b are all ones.
        for (x, by) in [(a, u), (b, v)] {
            let negative = s.any_bit(x[N - 1], s.splat(1 << 51));
            high = s.select(negative, s.sub(high, s.low_bits(by)), high);
        }

        let mut out = [zero; N];
        let four = s.splat(1 << (52 - STEPS));
        for k in 0..N {
            let carry = s.carry(low[k]);
            let next = if k + 1 < N {
                &mut low[k + 1]
            } else {
                &mut high
            };
            *next = s.add(*next, carry);
            let next = *next;
            out[k] = s.mul_lo(s.mul_hi(zero, low[k], four), next, four);
        }
        out
    })
}
