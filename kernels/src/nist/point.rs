//! Points in Jacobian coordinates: x = X/Z², y = Y/Z³; infinity has Z = 0.
//!
//! Formulas are incomplete and fast. *The caller* proves that no exception occurs, or uses the
//! complete form. See docs/design/nist-curves.md.
//!
//! A point that a formula here returns has X < `PAD_X` − 0.89 and Y < `PAD_Y` − 2.1 in units of p,
//! and Z < 2.7 (P-256) or 5 (P-384). Bounds in comments are for P-256; for P-384 every product is
//! below 2.01 and R is 2^32·p.

use super::curve::Curve;
use crate::modular::{Factor, Field, Tight};
use crate::secret::wipe;
use crate::simd::{Plain, Simd, enter, inlined, words, words_mut};
use crate::unroll::unrolled;

/// A point. At infinity, `z` is zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Point<L, const N: usize> {
    pub(crate) x: Tight<L, N>,
    pub(crate) y: Tight<L, N>,
    pub(crate) z: Factor<L, N>,
}

impl<L: Plain, const N: usize> Point<L, N> {
    /// Returns infinity with all limbs zero.
    pub(crate) fn infinity<S: Simd<Limb = L>>(s: S) -> Self {
        Self {
            x: Tight([s.zero(); N]),
            y: Tight([s.zero(); N]),
            z: Factor([s.zero(); N]),
        }
    }

    /// Copies lane `from` of `other` to lane `to`.
    pub(super) fn copy_lane(&mut self, to: usize, other: &Self, from: usize) {
        for (own, other) in [
            (&mut self.x.0, &other.x.0),
            (&mut self.y.0, &other.y.0),
            (&mut self.z.0, &other.z.0),
        ] {
            let (own, other) = (words_mut(own), words(other));
            let lanes = own.len() / N;
            for limb in (0..own.len()).step_by(lanes) {
                own[limb + to] = other[limb + from];
            }
        }
    }

    pub(super) fn wipe(&mut self) {
        for limbs in [&mut self.x.0, &mut self.y.0, &mut self.z.0] {
            wipe(words_mut(limbs));
        }
    }
}

/// The coordinates x and y of an affine point, below 1.01·p; or X and Y as in [`Point`], of a
/// point whose denominator is stored elsewhere.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Affine<L, const N: usize> {
    pub(crate) x: Tight<L, N>,
    pub(crate) y: Tight<L, N>,
}

impl<L: Plain, const N: usize> Affine<L, N> {
    /// Returns coordinates that are not a point yet.
    pub(crate) fn empty<S: Simd<Limb = L>>(s: S) -> Self {
        Self {
            x: Tight([s.zero(); N]),
            y: Tight([s.zero(); N]),
        }
    }

    pub(super) fn wipe(&mut self) {
        for limbs in [&mut self.x.0, &mut self.y.0] {
            wipe(words_mut(limbs));
        }
    }
}

/// Z, Z² and Z³, shared by several points.
#[derive(Clone, Copy)]
pub(crate) struct Denominator<L, const N: usize> {
    pub(crate) z: Factor<L, N>,
    pub(crate) zz: Factor<L, N>,
    pub(crate) zzz: Factor<L, N>,
}

/// The coordinate field of `C` in the lanes of `S`.
pub(crate) type FieldOf<S, C, const N: usize, const HOT: bool = false> =
    Field<S, <C as Curve<N>>::Field, N, HOT>;

/// H and r of an addition: both are zero if the operands were equal, only H if they were opposite.
pub(crate) struct Differences<L, const N: usize> {
    pub(crate) h: Factor<L, N>,
    pub(crate) r: Factor<L, N>,
}

/// Returns 2P, also for infinity.
///
/// 4M + 4S. D. Bernstein, T. Lange, EFD, shortw/jacobian-3, "dbl-2001-b" with Z3 = 2YZ and Y²
/// doubled before it is squared: M = 3(X − Z²)(X + Z²), S = 4XY², X' = M² − 2S, Y' = M(S − X') −
/// 8Y⁴, Z' = 2YZ.
#[inline(always)]
pub(crate) fn double<S: Simd, C: Curve<N>, const N: usize, const HOT: bool>(
    f: FieldOf<S, C, N, HOT>,
    p: &Point<S::Limb, N>,
) -> Point<S::Limb, N> {
    let zz = f.sqr(&p.z); // < 1.4
    let plus = f.factor(f.add(&p.x, &zz)); // < 2.5
    let minus = f.factor(f.sub(3, &p.x, &zz)); // < 4.1
    let yy = f.sqr(&p.y); // < 1.1
    let yy2 = f.factor(f.double(&yy)); // < 2.2
    let u = f.mul(&plus, &minus); // < 1.7
    let m = f.factor(f.add(&f.double(&u), &u)); // < 5.1
    let half_s = f.mul(&p.x, &yy2); // < 1.2
    let mm = f.sqr(&m); // < 2.7
    let z = f.factor(f.double(&f.mul(&p.y, &p.z))); // < 2.7
    let s = f.double(&half_s); // < 2.4
    let x = f.weak(f.sub(9, &mm, &f.double(&s))); // < 11.7
    let yyyy4 = f.sqr(&yy2); // < 1.4
    let e = f.factor(f.sub(C::PAD_X, &s, &x)); // < 4.4
    let y = f.weak(f.sub(5, &f.mul(&m, &e), &f.double(&yyyy4))); // < 7.5
    Point { x, y, z }
}

/// Returns P ± Q for an affine Q, minus in the lanes of `negative`. P ≠ ±Q, and neither is
/// infinity.
///
/// 8M + 3S. EFD, "madd": H = x2·Z² − X, r = ±y2·Z³ − Y, V = X·H², X' = r² − H³ − 2V, Y' = r(V − X')
/// − Y·H³, Z' = Z·H.
#[inline(always)]
pub(crate) fn add_mixed<S: Simd, C: Curve<N>, const N: usize, const HOT: bool>(
    f: FieldOf<S, C, N, HOT>,
    p: &Point<S::Limb, N>,
    q: &Affine<S::Limb, N>,
    negative: S::Mask,
) -> (Point<S::Limb, N>, Differences<S::Limb, N>) {
    let zz = f.factor(f.sqr(&p.z)); // < 1.4
    let u2 = f.mul(&q.x, &zz); // < 1.1
    let zzz = f.factor(f.mul(&p.z, &zz)); // < 1.3
    let h = f.factor(f.sub(C::PAD_X, &u2, &p.x)); // < 3.1
    let s2 = f.mul(&q.y, &zzz); // < 1.1
    let r = difference::<S, C, N, HOT>(f, C::PAD_Y, &s2, &p.y, negative); // < 5.1
    let hh = f.factor(f.sqr(&h)); // < 1.7
    let z = f.factor(f.mul(&p.z, &h)); // < 1.5
    finish::<S, C, N, HOT>(f, &p.x, &p.y, z, h, hh, r)
}

/// Returns P ± Q for a Q whose denominator is a separate argument. Conditions as in [`add_mixed`].
///
/// 11M + 3S. EFD, "add-2007-bl" without its replacement of a product by a square.
#[inline(always)]
pub(crate) fn add_shared<S: Simd, C: Curve<N>, const N: usize, const HOT: bool>(
    f: FieldOf<S, C, N, HOT>,
    p: &Point<S::Limb, N>,
    q: &Affine<S::Limb, N>,
    q_z: &Denominator<S::Limb, N>,
    negative: S::Mask,
) -> (Point<S::Limb, N>, Differences<S::Limb, N>) {
    let zz = f.factor(f.sqr(&p.z)); // < 1.4
    let u1 = f.tight(f.mul(&p.x, &q_z.zz)); // < 1.3
    let u2 = f.mul(&q.x, &zz); // < 1.3
    let zzz = f.factor(f.mul(&p.z, &zz)); // < 1.3
    let s1 = f.tight(f.mul(&p.y, &q_z.zzz)); // < 1.3
    let h = f.factor(f.sub(3, &u2, &u1)); // < 4.3
    let s2 = f.mul(&q.y, &zzz); // < 1.3
    let r = difference::<S, C, N, HOT>(f, 5, &s2, &s1, negative); // < 6.3
    let zz2 = f.factor(f.mul(&p.z, &q_z.z)); // < 1.4
    let hh = f.factor(f.sqr(&h)); // < 2.2
    let z = f.factor(f.mul(&zz2, &h)); // < 1.4
    finish::<S, C, N, HOT>(f, &u1, &s1, z, h, hh, r)
}

/// Returns ±s2 + k·p − s1.
#[inline(always)]
fn difference<S: Simd, C: Curve<N>, const N: usize, const HOT: bool>(
    f: FieldOf<S, C, N, HOT>,
    k: usize,
    s2: &crate::modular::Loose<S::Limb, N>,
    s1: &Tight<S::Limb, N>,
    negative: S::Mask,
) -> Factor<S::Limb, N> {
    let s = f.s;
    let minuend = f.negate(k, s1).0;
    let mut out = minuend;
    unrolled::<N>(inlined!(|i| {
        let (plus, minus) = (s.add(minuend[i], s2.0[i]), s.sub(minuend[i], s2.0[i]));
        out[i] = s.select(negative, minus, plus);
    }));
    f.factor(crate::modular::Loose(out))
}

/// Computes the second half of an addition.
#[inline(always)]
fn finish<S: Simd, C: Curve<N>, const N: usize, const HOT: bool>(
    f: FieldOf<S, C, N, HOT>,
    u1: &Tight<S::Limb, N>,
    s1: &Tight<S::Limb, N>,
    z: Factor<S::Limb, N>,
    h: Factor<S::Limb, N>,
    hh: Factor<S::Limb, N>,
    r: Factor<S::Limb, N>,
) -> (Point<S::Limb, N>, Differences<S::Limb, N>) {
    let hhh = f.tight(f.mul(&h, &hh)); // < 1.6
    let v = f.mul(u1, &hh); // < 1.2
    let rr = f.sqr(&r); // < 3.5
    let x = f.weak(f.sub(7, &rr, &f.add(&hhh, &f.double(&v)))); // < 10.5
    let e = f.factor(f.sub(C::PAD_X, &v, &x)); // < 3.2
    let s1_hhh = f.mul(s1, &hhh); // < 1.2
    let y = f.weak(f.sub(3, &f.mul(&r, &e), &s1_hhh)); // < 5.3
    (Point { x, y, z }, Differences { h, r })
}

/// Computes p ← 2^count·p.
#[inline(never)]
pub(crate) fn double_times<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    p: &mut Point<S::Limb, N>,
    count: usize,
) {
    enter!(s, {
        for _ in 0..count {
            *p = double::<S, C, N, true>(Field::new(s), p);
        }
    });
}

/// Computes p ← p ± q, for p ≠ ±q and neither infinity.
#[inline(never)]
pub(crate) fn add_assign_mixed<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    p: &mut Point<S::Limb, N>,
    q: &Affine<S::Limb, N>,
    negative: S::Mask,
) {
    enter!(
        s,
        *p = add_mixed::<S, C, N, true>(Field::new(s), p, q, negative).0
    );
}

/// Computes p ← p ± q, for any finite p and q: also if they are equal or opposite.
#[inline(never)]
pub(crate) fn add_assign_mixed_complete<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    p: &mut Point<S::Limb, N>,
    q: &Affine<S::Limb, N>,
    negative: S::Mask,
) {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let (sum, differences) = add_mixed::<S, C, N, false>(f, p, q, negative);
        *p = or_double::<S, C, N>(f, p, sum, differences);
    });
}

/// Computes p ← p ± q, for p ≠ ±q and neither infinity.
#[inline(never)]
pub(crate) fn add_assign<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    p: &mut Point<S::Limb, N>,
    q: &Affine<S::Limb, N>,
    q_z: &Denominator<S::Limb, N>,
    negative: S::Mask,
) {
    enter!(
        s,
        *p = add_shared::<S, C, N, true>(Field::new(s), p, q, q_z, negative).0
    );
}

/// Computes p ← p ± q, for any finite p and q: also if they are equal or opposite.
#[inline(never)]
pub(crate) fn add_assign_complete<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    p: &mut Point<S::Limb, N>,
    q: &Affine<S::Limb, N>,
    q_z: &Denominator<S::Limb, N>,
    negative: S::Mask,
) {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        let (sum, differences) = add_shared::<S, C, N, false>(f, p, q, q_z, negative);
        *p = or_double::<S, C, N>(f, p, sum, differences);
    });
}

/// Returns 2p in the lanes in which both differences vanish, `sum` in the others.
#[inline(always)]
fn or_double<S: Simd, C: Curve<N>, const N: usize>(
    f: FieldOf<S, C, N>,
    p: &Point<S::Limb, N>,
    sum: Point<S::Limb, N>,
    differences: Differences<S::Limb, N>,
) -> Point<S::Limb, N> {
    let s = f.s;
    let different = s.or_xor(
        f.is_nonzero(&differences.h),
        f.is_nonzero(&differences.r),
        s.zero(),
    );
    let equal = crate::modular::none(s, different);
    select(f, equal, &double::<S, C, N, false>(f, p), &sum)
}

/// Returns `set` in the lanes of `mask`, `clear` in the others.
#[inline(always)]
pub(crate) fn select<S: Simd, M: crate::modular::Modulus<N>, const N: usize>(
    f: Field<S, M, N>,
    mask: S::Mask,
    set: &Point<S::Limb, N>,
    clear: &Point<S::Limb, N>,
) -> Point<S::Limb, N>
where
    S::Mask: Copy,
{
    Point {
        x: Tight(f.select(mask, &set.x.0, &clear.x.0)),
        y: Tight(f.select(mask, &set.y.0, &clear.y.0)),
        z: Factor(f.select(mask, &set.z.0, &clear.z.0)),
    }
}

impl<L: Plain, const N: usize> Denominator<L, N> {
    pub(super) fn wipe(&mut self) {
        for limbs in [&mut self.z.0, &mut self.zz.0, &mut self.zzz.0] {
            wipe(words_mut(limbs));
        }
    }

    /// Computes the powers of a Z < 2.7.
    #[inline(always)]
    pub(crate) fn new<S: Simd<Limb = L>, M: crate::modular::Modulus<N>>(
        f: Field<S, M, N>,
        z: Factor<L, N>,
    ) -> Self {
        let zz = f.factor(f.sqr(&z));
        let zzz = f.factor(f.mul(&z, &zz));
        Self { z, zz, zzz }
    }
}

/// Computes the odd multiples P, 3P, 5P, … over one denominator, which it returns. `ratios` is
/// working memory, as long as the table.
///
/// N. Meloni, "New point addition formulae for ECC applications" (2007): two points with the same Z
/// are added by 5M + 2S, which also brings one of them to the new Z. Here that point is 2P, so each
/// entry is the one before plus 2P. Then each entry is scaled by the ratio of the last Z to its
/// own. No exception: the order of P is a large prime, so (2j+1)·P ≠ ±2P.
#[inline(never)]
pub(crate) fn odd_multiples<S: Simd, C: Curve<N>, const N: usize>(
    s: S,
    table: &mut [Affine<S::Limb, N>],
    ratios: &mut [Factor<S::Limb, N>],
    p: &Point<S::Limb, N>,
) -> Denominator<S::Limb, N> {
    enter!(s, {
        let f = FieldOf::<S, C, N>::new(s);
        // P over 2P's denominator, which is 2Y times its own: (X·4Y², Y·8Y³).
        let doubled = double::<S, C, N, false>(f, p);
        let ratio = f.factor(f.double(&p.y)); // < 3.8
        let zz = f.factor(f.sqr(&ratio)); // < 2
        let zzz = f.factor(f.mul(&ratio, &zz));
        let (mut x2, mut y2, mut z) = (doubled.x, doubled.y, doubled.z);
        table[0] = Affine {
            x: f.tight(f.mul(&p.x, &zz)),
            y: f.tight(f.mul(&p.y, &zzz)),
        };

        for j in 1..table.len() {
            let (last, next) = (table[j - 1], &mut table[j]);
            let d = f.factor(f.sub(C::PAD_X, &x2, &last.x));
            let c = f.factor(f.sqr(&d));
            let w1 = f.tight(f.mul(&x2, &c));
            let w2 = f.mul(&last.x, &c);
            let dy = f.factor(f.sub(C::PAD_X, &y2, &last.y));
            let dw = f.factor(f.sub(3, &w1, &w2));
            let a1 = f.tight(f.mul(&y2, &dw));
            let x3 = f.weak(f.sub(5, &f.sqr(&dy), &f.add(&w1, &w2)));
            let e = f.factor(f.sub(C::PAD_X, &w1, &x3));
            let y3 = f.weak(f.sub(3, &f.mul(&dy, &e), &a1));
            z = f.factor(f.mul(&z, &d));
            *next = Affine { x: x3, y: y3 };
            ratios[j] = d;
            (x2, y2) = (w1, a1);
        }

        let last = table.len() - 1;
        let mut ratio = ratios[last];
        for j in (0..last).rev() {
            let square = f.factor(f.sqr(&ratio));
            let cube = f.factor(f.mul(&ratio, &square));
            let entry = &mut table[j];
            entry.x = f.tight(f.mul(&entry.x, &square));
            entry.y = f.tight(f.mul(&entry.y, &cube));
            if j > 0 {
                ratio = f.factor(f.mul(&ratio, &ratios[j]));
            }
        }
        Denominator::new(f, z)
    })
}
