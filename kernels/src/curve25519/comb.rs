//! Multiples of the base point from a table, without doublings.
//!
//! The scalar is written with 37 odd digits of radix 128, each from −127 to 127. For every
//! place j the table holds the 64 odd multiples 1, 3, … 127 of 128^j·B, so that the product is a sum of 37
//! entries. All lanes share the table; digits and look-up are those of [`multiple`](crate::nist::multiple). The table,
//! 278 KiB, is computed at its first use.

use std::sync::OnceLock;

use super::convert::{Fraction, Limbs, lane};
use super::edwards::{Affine, Point};
use super::field::{Factor, LIMBS, each, invert_all};
use super::scalar::Order;
use crate::nist::field::{Field, Modulus, Tight};
use crate::nist::multiple::{FIXED_ENTRIES, FIXED_WINDOW, digit, look_up_shared};
use crate::secret::wipe;
use crate::simd::Simd;
use crate::simd::{inlined, words_mut};

/// Digits of a scalar: 37·7 = 259 bits.
const PLACES: usize = 37;
/// Limbs of an entry: three coordinates.
const ENTRY: usize = 3 * LIMBS;

/// The entries of one place: 3 coordinates of 5 limbs, each with its 64 candidates.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Place([[u64; FIXED_ENTRIES]; ENTRY]);

/// The table, computed on the lanes of whoever asks first.
pub(super) fn table<S: Simd>(s: S) -> &'static [Place] {
    static TABLE: OnceLock<Box<[Place]>> = OnceLock::new();
    TABLE.get_or_init(|| build(s))
}

/// A scalar below 2^256 to an odd one that gives the same multiple, ready for its digits.
#[inline(always)]
fn odd<S: Simd>(s: S, scalar: &Limbs<S>) -> Limbs<S> {
    let f = Field::<S, Order, LIMBS>::new(s);
    let sum = f.tight(f.add(&Tight(*scalar), &f.constant(&Order::VALUE)));
    let mut odd = f.select(s.any_bit(scalar[0], s.splat(1)), scalar, &sum.0);
    // A bit above the last digit makes its sign positive.
    const TOP: usize = PLACES * FIXED_WINDOW;
    odd[TOP / 52] = s.add(odd[TOP / 52], s.splat(1 << (TOP % 52)));
    odd
}

/// The x-coordinate on Montgomery's curve of the scalar times the base point: `fraction`.
///
/// u = (1 + y) / (1 − y) = (Z + Y) / (Z − Y) (RFC 7748, section 4.1). Both parts are fit to be
/// multiplied.
#[inline(never)]
pub(super) fn multiply_montgomery<S: Simd>(
    s: S,
    table: &[Place],
    scalar: &Limbs<S>,
    fraction: Fraction<'_, S>,
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let Fraction {
                numerator,
                denominator,
            } = fraction;
            let point = multiply(s, table, scalar);
            *numerator = (point.z + point.y).carry().limbs();
            *denominator = (point.z - point.y).carry().limbs();
        },
    ))
}

/// The scalar times the base point as X, Y and Z, fit to be multiplied.
#[inline(never)]
pub(super) fn multiply_edwards<S: Simd>(
    s: S,
    table: &[Place],
    scalar: &Limbs<S>,
    out: [&mut Limbs<S>; 3],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let [x, y, z] = out;
            let point = multiply(s, table, scalar);
            *x = point.x.carry().limbs();
            *y = point.y.carry().limbs();
            *z = point.z.carry().limbs();
        },
    ))
}

#[inline(always)]
fn multiply<S: Simd>(s: S, table: &[Place], scalar: &Limbs<S>) -> Point<S> {
    let mut k = odd(s, scalar);
    let (entry, negative) = look_up(s, &table[0], &k, 0);
    let first = Point::from_affine(s, &entry, negative);
    let point = add_places(s, first, table, &k, 1);
    wipe(words_mut(&mut k));
    point
}

/// `point` and the scalar, below 2^256, times the base point.
#[inline(always)]
pub(super) fn add_multiple<S: Simd>(
    s: S,
    point: Point<S>,
    table: &[Place],
    scalar: &Limbs<S>,
) -> Point<S> {
    add_places(s, point, table, &odd(s, scalar), 0)
}

/// `point` and the places from `from` on of k times the base point.
#[inline(always)]
fn add_places<S: Simd>(
    s: S,
    mut point: Point<S>,
    table: &[Place],
    k: &Limbs<S>,
    from: usize,
) -> Point<S> {
    for (j, place) in table.iter().enumerate().skip(from) {
        let (entry, negative) = look_up(s, place, k, j);
        point = point.add_affine(&entry, negative);
    }
    point
}

/// The entry of digit `j` of k, and the lanes where it is to be subtracted.
#[inline(always)]
fn look_up<S: Simd>(s: S, place: &Place, k: &Limbs<S>, j: usize) -> (Affine<S>, S::Mask) {
    let digit = digit(s, k, FIXED_WINDOW * j + 1, FIXED_WINDOW);
    let mut limbs = [s.zero(); ENTRY];
    look_up_shared(s, &mut limbs, place.0.as_flattened(), digit.index);
    let entry = Affine {
        plus: Factor::from_limbs(s, each!(i => limbs[i])),
        minus: Factor::from_limbs(s, each!(i => limbs[LIMBS + i])),
        dt: Factor::from_limbs(s, each!(i => limbs[2 * LIMBS + i])),
    };
    (entry, digit.negative)
}

/// Computes the table: lanes are places here, vector by vector.
#[inline(never)]
fn build<S: Simd>(s: S) -> Box<[Place]> {
    let table = vec![Place([[0; FIXED_ENTRIES]; ENTRY]); PLACES];
    s.enter(inlined(
        #[inline(always)]
        move || {
            let mut table = table;
            let vectors = PLACES.div_ceil(S::LANES);
            let count = vectors * FIXED_ENTRIES;
            let zero = [s.zero(); LIMBS];
            let (mut x, mut y) = (vec![zero; count], vec![zero; count]);
            let (mut z, mut running) = (vec![zero; count], vec![zero; count]);
            let place_points = place_points(s, vectors);
            for (v, [x0, y0]) in place_points.iter().enumerate() {
                let mut point =
                    Point::new(s, &Factor::from_limbs(s, *x0), &Factor::from_limbs(s, *y0));
                let twice = point.double().cached(s);
                let plus = s.any_bit(s.zero(), s.zero());
                for i in v * FIXED_ENTRIES..(v + 1) * FIXED_ENTRIES {
                    x[i] = point.x.carry().limbs();
                    y[i] = point.y.carry().limbs();
                    z[i] = point.z.carry().limbs();
                    point = point.add_cached(&twice, plus);
                }
            }
            invert_all(s, &mut z, &mut running);
            for i in 0..count {
                let inverse = Factor::from_limbs(s, z[i]);
                let x = (Factor::from_limbs(s, x[i]) * inverse).carry();
                let y = (Factor::from_limbs(s, y[i]) * inverse).carry();
                let coordinates = Affine::limbs(s, &x, &y);
                let (vector, entry) = (i / FIXED_ENTRIES, i % FIXED_ENTRIES);
                for (c, limbs) in coordinates.iter().enumerate() {
                    for (l, place) in table[vector * S::LANES..]
                        .iter_mut()
                        .take(S::LANES)
                        .enumerate()
                    {
                        for (k, limb) in lane::<S, LIMBS>(limbs, l).into_iter().enumerate() {
                            place.0[c * LIMBS + k][entry] = limb;
                        }
                    }
                }
            }
            table.into_boxed_slice()
        },
    ))
}

/// The coordinates of 128^j·B in lane j mod `LANES` of vector j / `LANES`; unused lanes repeat the last.
#[inline(always)]
fn place_points<S: Simd>(s: S, vectors: usize) -> Vec<[Limbs<S>; 2]> {
    let mut places = vec![[[s.zero(); LIMBS]; 2]; vectors];
    let mut point = Point::base(s);
    for j in 0..vectors * S::LANES {
        let inverse = point.z.carry().invert();
        for (c, coordinate) in [point.x, point.y].into_iter().enumerate() {
            let limbs = (coordinate.carry() * inverse).carry().canonical();
            let all = words_mut(&mut places[j / S::LANES][c]);
            for (k, limb) in lane::<S, LIMBS>(&limbs, 0).into_iter().enumerate() {
                all[S::LANES * k + j % S::LANES] = limb;
            }
        }
        for _ in 0..FIXED_WINDOW {
            point = point.double();
        }
    }
    places
}
