//! Points of −x² + y² = 1 + d·x²·y², the Edwards form of the curve.
//!
//! Extended coordinates X : Y : Z : T with x = X/Z, y = Y/Z, x·y = T/Z. The formulas are from
//! H. Hisil, K. Wong, G. Carter and E. Dawson, "Twisted Edwards curves revisited" (ASIACRYPT 2008),
//! with a = −1. Since −1 is a square and d is not, they are complete: they hold for every pair of
//! points of the curve, so there is no case to branch on.

use super::batch_inverse::powers_for_root;
use super::convert::Limbs;
use super::field::{Biased, Factor, LIMBS, ONE, Product, limbs};
use crate::simd::{Simd, enter};

/// d = −121665 / 121666.
const D: [u64; LIMBS] = limbs([
    0x75eb_4dca_1359_78a3,
    0x0070_0a4d_4141_d8ab,
    0x8cc7_4079_7779_e898,
    0x5203_6cee_2b6f_fe73,
]);

/// 1/2.
const HALF: [u64; LIMBS] = limbs([
    0xffff_ffff_ffff_fff7,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
    0x3fff_ffff_ffff_ffff,
]);

/// 2·d.
const D2: [u64; LIMBS] = limbs([
    0xebd6_9b94_26b2_f159,
    0x00e0_149a_8283_b156,
    0x198e_80f2_eef3_d130,
    0x2406_d9dc_56df_fce7,
]);

/// A square root of −1: 2^((p − 1) / 4).
const ROOT: [u64; LIMBS] = limbs([
    0xc4ee_1b27_4a0e_a0b0,
    0x2f43_1806_ad2f_e478,
    0x2b4d_0099_3dfb_d7a7,
    0x2b83_2480_4fc1_df0b,
]);

const BASE_X: [u64; LIMBS] = limbs([
    0xc956_2d60_8f25_d51a,
    0x692c_c760_9525_a7b2,
    0xc0a4_e231_fdd6_dc5c,
    0x2169_36d3_cd6e_53fe,
]);

/// 4 / 5.
const BASE_Y: [u64; LIMBS] = limbs([
    0x6666_6666_6666_6658,
    0x6666_6666_6666_6666,
    0x6666_6666_6666_6666,
    0x6666_6666_6666_6666,
]);

/// A point X : Y : Z : T.
#[derive(Clone, Copy)]
pub(super) struct Point<S: Simd> {
    pub(super) x: Product<S>,
    pub(super) y: Biased<S>,
    pub(super) z: Biased<S>,
    pub(super) t: Product<S>,
}

/// A point with Z = 1, prepared for addition: (y + x)/2, (y − x)/2, d·x·y. Each number is half of
/// the number in the formula, which saves doubling Z.
#[derive(Clone, Copy)]
pub(super) struct Affine<S: Simd> {
    pub(super) plus: Factor<S>,
    pub(super) minus: Factor<S>,
    pub(super) dt: Factor<S>,
}

/// A point prepared for addition: Y + X, Y − X, Z, 2·d·T.
#[derive(Clone, Copy)]
pub(super) struct Cached<S: Simd> {
    pub(super) plus: Factor<S>,
    pub(super) minus: Factor<S>,
    pub(super) z: Factor<S>,
    pub(super) dt: Factor<S>,
}

impl<S: Simd> Point<S> {
    /// Returns the point with these coordinates.
    #[inline(always)]
    pub(super) fn new(s: S, x: &Factor<S>, y: &Factor<S>) -> Self {
        let z = Factor::splat(s, ONE).to_product().biased();
        Self {
            x: x.to_product(),
            y: y.to_product().biased(),
            z,
            t: *x * *y,
        }
    }

    /// Returns the point with these coordinates, whose limbs can be multiplied.
    #[inline(never)]
    pub(super) fn from_limbs(s: S, [x, y]: &[Limbs<S>; 2]) -> Self {
        enter!(
            s,
            Self::new(s, &Factor::from_limbs(s, *x), &Factor::from_limbs(s, *y))
        )
    }

    /// Returns the point X : Y : Z, whose limbs can be multiplied.
    #[inline(never)]
    pub(super) fn from_projective(s: S, [x, y, z]: &[Limbs<S>; 3]) -> Self {
        enter!(s, {
            let (x, y) = (Factor::from_limbs(s, *x), Factor::from_limbs(s, *y));
            let z = Factor::from_limbs(s, *z);
            Self {
                x: x * z,
                y: y.times_biased(&z),
                z: z.square_biased(),
                t: x * y,
            }
        })
    }

    /// Returns the neutral element (0, 1).
    #[inline(never)]
    pub(super) fn neutral(s: S) -> Self {
        enter!(
            s,
            Self::new(s, &Factor::splat(s, [0; LIMBS]), &Factor::splat(s, ONE))
        )
    }

    /// Overwrites these points with the neutral element, since Z depends on a secret scalar.
    #[inline(never)]
    pub(super) fn wipe(s: S, points: &mut [Self]) {
        points.fill(Self::neutral(s));
        zeroize::optimization_barrier(points);
    }

    /// Returns the base point of RFC 8032.
    #[inline(never)]
    pub(super) fn base(s: S) -> Self {
        enter!(
            s,
            Self::new(s, &Factor::splat(s, BASE_X), &Factor::splat(s, BASE_Y))
        )
    }

    /// Returns X, Y and Z with limbs that can be multiplied.
    #[inline(never)]
    pub(super) fn factors(&self) -> [Limbs<S>; 3] {
        enter!(self.x.lanes(), self.carried())
    }

    /// [`factors`](Self::factors), inlined.
    #[inline(always)]
    pub(super) fn carried(&self) -> [Limbs<S>; 3] {
        [
            self.x.carry().limbs(),
            self.y.carry().limbs(),
            self.z.carry().limbs(),
        ]
    }

    /// [`cached`](Self::cached), outlined.
    #[inline(never)]
    pub(super) fn to_cached(self) -> Cached<S> {
        let s = self.x.lanes();
        enter!(s, self.cached(s))
    }

    /// Returns this point, prepared for addition.
    #[inline(always)]
    pub(super) fn cached(&self, s: S) -> Cached<S> {
        Cached {
            plus: (self.y + self.x).carry(),
            minus: (self.y - self.x).carry(),
            z: self.z.carry(),
            dt: (self.t.carry() * Factor::splat(s, D2)).carry(),
        }
    }

    /// Adds `other`; outlined.
    #[inline(never)]
    pub(super) fn add_assign(&mut self, other: &Cached<S>) {
        let s = self.x.lanes();
        enter!(s, [], {
            let this = self;
            *this = this.add_cached::<true>(other, s.any_bit(s.zero(), s.zero()));
        });
    }

    /// Multiplies by 2^`times`, `times` ≥ 1; outlined.
    #[inline(never)]
    pub(super) fn double_assign(&mut self, times: usize) {
        enter!(self.x.lanes(), [], {
            let this = self;
            for _ in 1..times {
                *this = this.double::<false>();
            }
            *this = this.double::<true>();
        });
    }

    /// Returns 2P: 3 multiplications, 4 squarings ("dbl-2008-hwcd", all signs changed), and one
    /// multiplication for T. Without `T`, the old T is kept, since another doubling does not read
    /// it.
    #[inline(always)]
    pub(super) fn double<const T: bool>(&self) -> Self {
        let xx = self.x.carry().square();
        let yy = self.y.carry().square();
        let zz = self.z.carry().square_biased();
        let both = (self.y + self.x).carry().square_biased();
        let h = (yy + xx).carry();
        let g = (yy - xx).carry();
        let e = (both - (yy + xx)).carry();
        let f = (zz.double() - yy + xx).carry();
        Self {
            x: e * f,
            y: h.times_biased(&g),
            z: g.times_biased(&f),
            t: if T { e * h } else { self.t },
        }
    }

    /// Computes the first half of P + `other`, or of P − `other` where `negative`: 7
    /// multiplications ("madd-2008-hwcd-3").
    ///
    /// −Q is Q with y + x and y − x exchanged and 2·d·x·y negated. Only F and G depend on 2·d·x·y,
    /// so this code exchanges F and G instead of negating 2·d·x·y.
    #[inline(always)]
    pub(super) fn begin_add_affine(&self, other: &Affine<S>, negative: S::Mask) -> HalfSum<S> {
        let (plus, minus) = other.signed(negative);
        self.begin_add(&plus, &minus, &other.dt, self.z, negative)
    }

    /// Returns P + `other`, or P − `other` where `negative`: 8 multiplications ("add-2008-hwcd-3").
    /// Without `T`, the result's T is wrong, and there is one multiplication less.
    #[inline(always)]
    pub(super) fn add_cached<const T: bool>(&self, other: &Cached<S>, negative: S::Mask) -> Self {
        let plus = Factor::select(negative, &other.minus, &other.plus);
        let minus = Factor::select(negative, &other.plus, &other.minus);
        let zz = self.z.carry().times_biased(&other.z);
        self.begin_add(&plus, &minus, &other.dt, zz.double(), negative)
            .finish_with::<T>()
    }

    /// Computes the part that both additions share; `d` is the number D of the formula.
    #[inline(always)]
    fn begin_add(
        &self,
        plus: &Factor<S>,
        minus: &Factor<S>,
        dt: &Factor<S>,
        d: Biased<S>,
        negative: S::Mask,
    ) -> HalfSum<S> {
        let a = (self.y - self.x).carry() * *minus;
        let b = (self.y + self.x).carry().times_biased(plus);
        let c = self.t.carry() * *dt;
        HalfSum {
            a,
            b,
            c,
            d,
            negative,
        }
    }
}

/// Half of an addition: the numbers A, B, C, D of the formula, and whether it is a subtraction.
pub(super) struct HalfSum<S: Simd> {
    a: Product<S>,
    b: Biased<S>,
    c: Product<S>,
    d: Biased<S>,
    negative: S::Mask,
}

impl<S: Simd> HalfSum<S> {
    /// Computes the second half.
    #[inline(always)]
    pub(super) fn finish(self) -> Point<S> {
        self.finish_with::<true>()
    }

    /// Computes the second half. Without `T`, the result's T is wrong.
    #[inline(always)]
    fn finish_with<const T: bool>(self) -> Point<S> {
        let Self {
            a,
            b,
            c,
            d,
            negative,
        } = self;
        let e = (b - a).carry();
        let h = (b + a).carry();
        let less = (d - c).carry();
        let more = (d + c).carry();
        let f = Factor::select(negative, &more, &less);
        let g = Factor::select(negative, &less, &more);
        // T before Y: the fastest order.
        let x = e * f;
        let t = if T { e * h } else { x };
        let y = g.times_biased(&h);
        let z = f.times_biased(&g);
        Point { x, y, z, t }
    }
}

impl<S: Simd> Affine<S> {
    /// Returns canonical limbs of (y + x)/2, (y − x)/2 and d·x·y, from the canonical coordinates of
    /// a point.
    #[inline(never)]
    pub(super) fn limbs(s: S, x: &Limbs<S>, y: &Limbs<S>) -> [Limbs<S>; 3] {
        enter!(s, {
            let (x, y) = (Factor::from_limbs(s, *x), Factor::from_limbs(s, *y));
            let xy = (x * y).carry();
            let (x, y, half) = (x.to_product(), y.to_product(), Factor::splat(s, HALF));
            [
                ((y + x).carry() * half).carry().canonical(),
                ((y - x).carry() * half).carry().canonical(),
                (xy * Factor::splat(s, D)).carry().canonical(),
            ]
        })
    }

    /// Returns (y + x)/2 and (y − x)/2 of the point, or of its negative.
    #[inline(always)]
    fn signed(&self, negative: S::Mask) -> (Factor<S>, Factor<S>) {
        let plus = Factor::select(negative, &self.minus, &self.plus);
        let minus = Factor::select(negative, &self.plus, &self.minus);
        (plus, minus)
    }
}

impl<S: Simd> Cached<S> {
    #[inline(always)]
    pub(super) fn neutral(s: S) -> Self {
        let one = Factor::splat(s, ONE);
        Self {
            plus: one,
            minus: one,
            z: one,
            dt: Factor::splat(s, [0; LIMBS]),
        }
    }

    /// Returns `a` where the mask is set, else `b`.
    #[inline(always)]
    pub(super) fn select(mask: S::Mask, a: &Self, b: &Self) -> Self {
        Self {
            plus: Factor::select(mask, &a.plus, &b.plus),
            minus: Factor::select(mask, &a.minus, &b.minus),
            z: Factor::select(mask, &a.z, &b.z),
            dt: Factor::select(mask, &a.dt, &b.dt),
        }
    }
}

/// Returns X/Z and Y/Z, canonical, from 1/Z.
#[inline(never)]
pub(super) fn scaled<S: Simd>(
    s: S,
    x: &Limbs<S>,
    y: &Limbs<S>,
    inverse: &Limbs<S>,
) -> [Limbs<S>; 2] {
    enter!(s, {
        let inverse = Factor::from_limbs(s, *inverse);
        [
            (Factor::from_limbs(s, *x) * inverse).carry().canonical(),
            (Factor::from_limbs(s, *y) * inverse).carry().canonical(),
        ]
    })
}

/// Returns 1 in the lanes in which two points X : Y : Z are equal, else 0.
#[inline(never)]
pub(super) fn are_equal<S: Simd>(s: S, a: &[Limbs<S>; 3], b: &[Limbs<S>; 3]) -> S::Limb {
    enter!(s, {
        let [[x1, y1, z1], [x2, y2, z2]] =
            [a, b].map(|point| point.map(|limbs| Factor::from_limbs(s, limbs)));
        let x = (x1.times_biased(&z2) - x2 * z1).carry();
        let y = (y1.times_biased(&z2) - y2 * z1).carry();
        let same_y = s.select(y.is_nonzero(), s.zero(), s.splat(1));
        s.select(x.is_nonzero(), s.zero(), same_y)
    })
}

/// Returns 1 in the lanes in which (x, y) is a point of the curve, else 0.
#[inline(never)]
pub(super) fn is_on_curve<S: Simd>(s: S, x: &Limbs<S>, y: &Limbs<S>) -> S::Limb {
    enter!(s, {
        let one = Factor::splat(s, ONE).to_product();
        let xx = Factor::from_limbs(s, *x).square();
        let yy = Factor::from_limbs(s, *y).square();
        let xxyy = (xx.carry() * yy.carry()).carry();
        let difference = xxyy.times_biased(&Factor::splat(s, D)) - yy + xx + one;
        s.select(difference.carry().is_nonzero(), s.zero(), s.splat(1))
    })
}

/// Returns an x-coordinate for each of `P` vectors of y, and 1 in the lanes in which y has one,
/// else 0. The x-coordinate can be either of the two roots.
///
/// RFC 8032, section 5.1.3: x² = u/v with u = y² − 1 and v = d·y² + 1. The candidate is
/// u·v³·(u·v⁷)^((p − 5) / 8). If its square is −u/v, the root is the candidate times √−1.
pub(super) fn x_of<S: Simd, const P: usize>(
    s: S,
    y: &[Factor<S>; P],
) -> ([Factor<S>; P], [S::Limb; P]) {
    let (mut x, mut found) = (*y, [s.zero(); P]);
    let base = y.map(|y| root_base(s, &y));
    let powers = powers_for_root(s, &base);
    for i in 0..P {
        (x[i], found[i]) = root(s, &y[i], &powers[i]);
    }
    (x, found)
}

/// Returns u, v, v³ for a y.
#[inline(always)]
fn square_of_x<S: Simd>(s: S, y: &Factor<S>) -> (Factor<S>, Factor<S>, Factor<S>) {
    let one = Factor::splat(s, ONE).to_product();
    let yy = y.square();
    let u = (yy - one).carry();
    let v = ((yy.carry() * Factor::splat(s, D)) + one).carry();
    let v3 = (v.square().carry() * v).carry();
    (u, v, v3)
}

/// Returns u·v⁷.
#[inline(never)]
pub(super) fn root_base<S: Simd>(s: S, y: &Factor<S>) -> Factor<S> {
    enter!(s, {
        let (u, v, v3) = square_of_x(s, y);
        ((v3.square().carry() * v).carry() * u).carry()
    })
}

/// Returns x, and whether it exists, from (u·v⁷)^((p − 5) / 8).
#[inline(never)]
pub(super) fn root<S: Simd>(s: S, y: &Factor<S>, power: &Factor<S>) -> (Factor<S>, S::Limb) {
    enter!(s, {
        let (u, v, v3) = square_of_x(s, y);
        let x = ((u * v3).carry() * *power).carry();
        let vxx = x.square().carry().times_biased(&v);
        let is_not_root = (vxx - u.to_product()).carry().is_nonzero();
        let is_not_other = (vxx + u.to_product()).carry().is_nonzero();
        let other = (x * Factor::splat(s, ROOT)).carry();
        let root = Factor::select(is_not_root, &other, &x);
        let neither = s.select(is_not_other, s.zero(), s.splat(1));
        (root, s.select(is_not_root, neither, s.splat(1)))
    })
}
