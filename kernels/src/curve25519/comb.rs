//! Multiples of the base point from a table, without doublings.
//!
//! The scalar is written with 37 odd digits of radix 128, each from −127 to 127. For every
//! place j the table holds the 64 odd multiples 1, 3, … 127 of 128^j·B, so that the product is a sum of 37
//! entries. All lanes share the table; digits and look-up are those of [`multiple`](crate::nist::multiple). The table,
//! 278 KiB, is computed at its first use.

use std::sync::OnceLock;

use super::batch::VECTORS;
use super::convert::Limbs;
use super::edwards::{Affine, Point, scaled};
use super::field::{Factor, LIMBS, each, invert_all};
use super::scalar::Order;
use crate::nist::field::{Field, Modulus, Tight};
use crate::nist::multiple::{FIXED_ENTRIES, FIXED_WINDOW, digit, look_up_shared};
use crate::secret::wipe;
use crate::simd::{Simd, inlined, words, words_mut};

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

/// The scalars of at most [`VECTORS`] vectors, below 2^256, times the base point as X, Y and Z, fit to be
/// multiplied.
///
/// Many vectors go through a place of the table before the next: it comes out of the second-level cache once for
/// all of them. Of few each goes its own way, its point in registers.
pub(super) fn multiply<S: Simd>(
    s: S,
    table: &[Place],
    scalars: &[Limbs<S>],
    products: &mut [[Limbs<S>; 3]],
) {
    const FEW: usize = 2;
    // Without a wide multiply the table is the least of the work.
    if scalars.len() > FEW && !S::HALVES {
        return multiply_together(s, table, scalars, products);
    }
    for (product, scalar) in products.iter_mut().zip(scalars) {
        *product = add_multiple(s, &Point::neutral(s), table, scalar).factors();
    }
}

/// [`multiply`], place by place.
#[inline(never)]
fn multiply_together<S: Simd>(
    s: S,
    table: &[Place],
    scalars: &[Limbs<S>],
    products: &mut [[Limbs<S>; 3]],
) {
    debug_assert!(scalars.len() <= VECTORS && scalars.len() == products.len());
    let mut odds = [[s.zero(); LIMBS]; VECTORS];
    let mut points = [Point::neutral(s); VECTORS];
    let (all_odds, all_points) = (&mut odds, &mut points);
    s.enter(inlined(
        #[inline(always)]
        move || {
            let (odds, points) = (all_odds, all_points);
            for (odd_scalar, scalar) in odds.iter_mut().zip(scalars) {
                *odd_scalar = odd(s, scalar);
            }
            // The next entry is looked up while the products of the first half are under way.
            let (mut entry, mut negative) = look_up(s, &table[0], &odds[0], 0);
            for j in 0..PLACES {
                let after = (j + 1).min(PLACES - 1);
                let (place, place_after) = (&table[j], &table[after]);
                for v in 0..scalars.len() {
                    let v = v % VECTORS;
                    let half_sum = points[v].begin_add_affine(&entry, negative);
                    let (v_next, j_next, next) = match v + 1 < scalars.len() {
                        true => ((v + 1) % VECTORS, j, place),
                        false => (0, after, place_after),
                    };
                    (entry, negative) = look_up(s, next, &odds[v_next], j_next);
                    points[v] = half_sum.finish();
                }
            }
            for (product, point) in products.iter_mut().zip(&*points) {
                *product = point.carried();
            }
        },
    ));
    wipe(words_mut(odds.as_flattened_mut()));
    // A point's Z tells something about its scalar.
    points.fill(Point::neutral(s));
    zeroize::optimization_barrier(&points);
}

/// `point` and the scalar, below 2^256, times the base point.
#[inline(never)]
pub(super) fn add_multiple<S: Simd>(
    s: S,
    point: &Point<S>,
    table: &[Place],
    scalar: &Limbs<S>,
) -> Point<S> {
    let mut sum = *point;
    let out = &mut sum;
    s.enter(inlined(
        #[inline(always)]
        move || {
            let out = out;
            let mut k = odd(s, scalar);
            let mut point = *out;
            // The next entry is looked up while the products of the first half are under way.
            let (mut entry, mut negative) = look_up(s, &table[0], &k, 0);
            for j in 1..=PLACES {
                let half_sum = point.begin_add_affine(&entry, negative);
                let j = j.min(PLACES - 1);
                (entry, negative) = look_up(s, &table[j], &k, j);
                point = half_sum.finish();
            }
            *out = point;
            wipe(words_mut(&mut k));
        },
    ));
    sum
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
fn build<S: Simd>(s: S) -> Box<[Place]> {
    let mut table = vec![Place([[0; FIXED_ENTRIES]; ENTRY]); PLACES];
    let mut base = Point::base(s);
    for places in table.chunks_mut(S::LANES) {
        // Lane l: 128^l·base.
        let mut bases = [[s.zero(); LIMBS]; 2];
        for l in 0..places.len() {
            let [point] = affine(s, [base]);
            let to = words_mut(bases.as_flattened_mut());
            for (i, word) in words(point.as_flattened())
                .iter()
                .enumerate()
                .step_by(S::LANES)
            {
                to[i + l] = *word;
            }
            base.double_assign(FIXED_WINDOW);
        }
        let mut point = Point::from_limbs(s, &bases);
        let mut twice = point;
        twice.double_assign(1);
        let twice = twice.to_cached();
        let mut odd = [point; FIXED_ENTRIES];
        for entry in &mut odd {
            *entry = point;
            point.add_assign(&twice);
        }
        for (entry, [x, y]) in affine(s, odd).iter().enumerate() {
            let coordinates = Affine::limbs(s, x, y);
            let limbs = words(coordinates.as_flattened()).chunks(S::LANES);
            for (limb, lanes) in limbs.enumerate() {
                for (place, word) in places.iter_mut().zip(lanes) {
                    place.0[limb][entry] = *word;
                }
            }
        }
    }
    table.into_boxed_slice()
}

/// x and y of points.
fn affine<S: Simd, const COUNT: usize>(s: S, points: [Point<S>; COUNT]) -> [[Limbs<S>; 2]; COUNT] {
    let factors = points.map(|point| point.factors());
    let mut inverses = factors.map(|[_, _, z]| z);
    invert_all(s, &mut inverses, &mut [[s.zero(); LIMBS]; COUNT]);
    let mut affine = [[[s.zero(); LIMBS]; 2]; COUNT];
    for (i, [x, y, _]) in factors.iter().enumerate() {
        affine[i] = scaled(s, x, y, &inverses[i]);
    }
    affine
}
