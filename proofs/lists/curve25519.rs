//! Points of the Edwards form as arrays of limbs, for the statements of [`proved`](crate::proved).

use super::batch_inverse::{self, square_times_and_multiply};
use super::comb::{digits, multiply, table};
use super::edwards::{self, Affine, Cached, Point};
use super::field::{Biased, Factor, LIMBS, Product};
use super::verify_equation::{self, IN_LIMB, combine, minus_points};
use super::x25519;
use crate::simd::Simd;
use crate::simd::portable::Portable;

/// Reads numbers, one after the other.
struct Read<'a, S: Simd>(S, &'a [S::Limb]);

impl<S: Simd> Read<'_, S> {
    fn limbs<const N: usize>(&mut self) -> [S::Limb; N] {
        let (limbs, rest) = self.1.split_first_chunk().expect("all operands");
        self.1 = rest;
        *limbs
    }

    fn factor(&mut self) -> Factor<S> {
        Factor::from_limbs(self.0, self.limbs::<LIMBS>())
    }

    fn product(&mut self) -> Product<S> {
        let (s, limbs) = (self.0, self.limbs());
        Product { s, limbs }
    }

    fn biased(&mut self) -> Biased<S> {
        let (s, limbs) = (self.0, self.limbs());
        Biased { s, limbs }
    }

    fn point(&mut self) -> Point<S> {
        Point {
            x: self.product(),
            y: self.biased(),
            z: self.biased(),
            t: self.product(),
        }
    }

    fn cached(&mut self) -> Cached<S> {
        Cached {
            plus: self.factor(),
            minus: self.factor(),
            z: self.factor(),
            dt: self.factor(),
        }
    }

    fn affine(&mut self) -> Affine<S> {
        Affine {
            plus: self.factor(),
            minus: self.factor(),
            dt: self.factor(),
        }
    }

    fn negative(&mut self) -> S::Mask {
        let [limb] = self.limbs();
        self.0.any_bit(limb, self.0.splat(1))
    }
}

fn limbs_of<S: Simd>(p: &Point<S>) -> Vec<S::Limb> {
    [p.x.limbs, p.y.limbs, p.z.limbs, p.t.limbs].concat()
}

/// 2P, with T or with another number instead.
pub(crate) fn double<S: Simd, const T: bool>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    limbs_of(&Read(s, x).point().double::<T>())
}

/// 16P, by one call.
pub(crate) fn double_four_times<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut p = Read(s, x).point();
    p.double_assign(4);
    limbs_of(&p)
}

/// P ± Q, with T or with another number instead.
pub(crate) fn add_cached<S: Simd, const T: bool>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(s, x);
    limbs_of(&x.point().add_cached::<T>(&x.cached(), x.negative()))
}

/// P + Q.
pub(crate) fn add<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(s, x);
    let mut sum = x.point();
    sum.add_assign(&x.cached());
    limbs_of(&sum)
}

/// P ± Q for Z = 1 of Q.
pub(crate) fn add_affine<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut x = Read(s, x);
    let sum = x.point().begin_add_affine(&x.affine(), x.negative());
    limbs_of(&sum.finish())
}

/// A point made ready to be added.
pub(crate) fn cached<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let q = Read(s, x).point().cached(s);
    [q.plus, q.minus, q.z, q.dt].map(|a| a.limbs()).concat()
}

/// A point as a table has it.
pub(crate) fn affine<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    Affine::limbs(s, &read.limbs(), &read.limbs()).concat()
}

/// The point (±x, y).
pub(crate) fn signed<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let (x, y, negative) = (read.factor(), read.factor(), read.negative());
    let minus_x = (Factor::splat(s, [0; LIMBS]).to_product() - x.to_product()).carry();
    limbs_of(&Point::new(s, &Factor::select(negative, &minus_x, &x), &y))
}

/// The point (x, y).
pub(crate) fn new<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    limbs_of(&Point::new(s, &read.factor(), &read.factor()))
}

/// The point X : Y : Z.
pub(crate) fn from_projective<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let numbers = [read.limbs(), read.limbs(), read.limbs()];
    limbs_of(&Point::from_projective(s, &numbers))
}

/// X, Y and Z, fit to be multiplied.
pub(crate) fn factors<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    Read(s, x).point().factors().concat()
}

/// u·v⁷ for a y.
pub(crate) fn root_base<S: Simd, const ANY: usize>(s: S, y: &[S::Limb]) -> Vec<S::Limb> {
    edwards::root_base(s, &Read(s, y).factor()).limbs().to_vec()
}

/// x, and whether there is one, from a power.
pub(crate) fn root<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let (x, found) = edwards::root(s, &read.factor(), &read.factor());
    [&x.limbs()[..], &[found]].concat()
}

/// −(±x, y), for the parity of ±x.
pub(crate) fn minus_point<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let (x, y, [sign]) = (read.factor(), read.factor(), read.limbs());
    limbs_of(&verify_equation::minus_point(s, &x, &y, sign))
}

/// −A of a public key, and whether there is a point.
pub(crate) fn minus_key<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let ([point], [found]) = minus_points(s, &[read.limbs()], &read.limbs());
    [limbs_of(&point), vec![found]].concat()
}

/// a·b, canonical.
pub(crate) fn quotient<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    x25519::product(s, &read.limbs(), &read.limbs()).to_vec()
}

/// X and Y of a point by 1/Z, canonical.
pub(crate) fn scaled<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    edwards::scaled(s, &read.limbs(), &read.limbs(), &read.limbs()).concat()
}

/// x^(2^`TIMES`)·y of two numbers.
pub(crate) fn times_squares<S: Simd, const TIMES: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let mut out = [read.factor(), read.factor()];
    square_times_and_multiply(s, &mut out, TIMES, &[read.factor(), read.factor()]);
    out.map(|number| number.limbs()).concat()
}

/// The inverses of three numbers from that of the product, and the product.
pub(crate) fn inverses<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let mut numbers: [[_; LIMBS]; 3] = [read.limbs(), read.limbs(), read.limbs()];
    let mut running = [[s.zero(); LIMBS]; 3];
    let product = batch_inverse::products(s, &numbers, &mut running);
    batch_inverse::divide(s, read.factor(), &mut numbers, &running);
    [&numbers.concat()[..], &product.limbs()].concat()
}

/// The words of two scalars' digits; the multiples of the base point by the first, and by both.
pub(crate) fn comb<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let both = [read.limbs(), read.limbs()];
    let mut all = both.map(|scalar| digits(s, &scalar).0).concat();
    for scalars in [&both[..1], &both] {
        multiply(s, table(Portable::<1>), scalars, |_, point| {
            all.extend(limbs_of(point));
        });
    }
    all
}

/// −(v·P + u·Q) for two points, from all digits of v and u.
pub(crate) fn equation<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let points = [read.point(), read.point()];
    let digits = [read.limbs(), read.limbs()];
    let sum = combine(s, &points, &digits, IN_LIMB * LIMBS);
    [sum.x.limbs, sum.y.limbs, sum.z.limbs].concat()
}

/// Whether two points X : Y : Z are equal.
pub(crate) fn are_equal<S: Simd, const ANY: usize>(s: S, x: &[S::Limb]) -> Vec<S::Limb> {
    let mut read = Read(s, x);
    let mut point = || [read.limbs(), read.limbs(), read.limbs()];
    vec![edwards::are_equal(s, &point(), &point())]
}

/// The comb's table as it lies in memory: of the first digit, and of all others.
pub fn comb_table() -> [Vec<u64>; 2] {
    table(Portable::<1>).words()
}
