//! Multiples of the base point from a table, without doublings.
//!
//! The scalar is written with 37 odd digits of radix 128, each from −127 to 127. For every
//! place j the table holds the 64 odd multiples 1, 3, … 127 of 128^j·B, so that the product is a sum of 37
//! entries. All lanes share the table: 64 candidates of a limb lie in eight registers, and two permutations
//! of two registers (`pick`) with selections between them give each lane its own, whatever the
//! indices are. The table, 278 KiB, is computed at its first use.

use std::sync::OnceLock;

use super::convert::{Fraction, Limbs, bits, lane};
use super::edwards::{Affine, Point};
use super::field::{Factor, LIMBS, each, invert_all};
use super::scalar::ORDER;
use crate::simd::Simd;
use crate::simd::{inlined, words_mut};

/// Bits of a digit.
const WIDTH: usize = 7;
/// Digits of a scalar: 37·7 = 259 bits.
const PLACES: usize = 37;
/// Entries of a place.
const ENTRIES: usize = 1 << (WIDTH - 1);
/// Digits in a word of [`windows`].
const PER_WORD: usize = 8;

/// The entries of one place: 3 coordinates of 5 limbs, each with its 64 candidates.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct Place([[[u64; 16]; ENTRIES / 16]; 3 * LIMBS]);

/// The table, computed on the lanes of whoever asks first.
pub(super) fn table<S: Simd>(s: S) -> &'static [Place] {
    static TABLE: OnceLock<Box<[Place]>> = OnceLock::new();
    TABLE.get_or_init(|| build(s))
}

/// The digits of a scalar below 2^256, seven bits each, eight in a word: w stands for 2·w − 127.
///
/// The digits are odd, so the scalar must be: the order is added to an even one. Then
/// Σ (2·w_j − 127)·128^j = 2·W − (2^259 − 1) for W = Σ w_j·128^j, which is the scalar for
/// W = ⌊scalar / 2⌋ + 2^258.
pub(super) fn windows(scalar: &[u64; 4]) -> [u64; PLACES.div_ceil(PER_WORD)] {
    let even = (scalar[0] & 1).wrapping_sub(1);
    let mut odd = [0; 5];
    let mut carry = 0;
    for i in 0..4 {
        let sum = u128::from(scalar[i]) + u128::from(ORDER[i] & even) + carry;
        odd[i] = sum as u64;
        carry = sum >> 64;
    }
    odd[4] = carry as u64;
    let mut half: [u64; 5] =
        core::array::from_fn(|i| odd[i] >> 1 | if i < 4 { odd[i + 1] << 63 } else { 0 });
    half[4] |= 1 << (258 - 256);
    core::array::from_fn(|i| bits(&half, WIDTH * PER_WORD * i, WIDTH * PER_WORD))
}

/// The x-coordinate on Montgomery's curve of the scalar times the base point: `fraction`.
///
/// u = (1 + y) / (1 − y) = (Z + Y) / (Z − Y) (RFC 7748, section 4.1). Both parts are fit to be
/// multiplied.
#[inline(never)]
pub(super) fn multiply_montgomery<S: Simd>(
    s: S,
    table: &[Place],
    windows: &Limbs<S>,
    fraction: Fraction<'_, S>,
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let Fraction {
                numerator,
                denominator,
            } = fraction;
            let point = multiply(s, table, windows);
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
    windows: &Limbs<S>,
    out: [&mut Limbs<S>; 3],
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let [x, y, z] = out;
            let point = multiply(s, table, windows);
            *x = point.x.carry().limbs();
            *y = point.y.carry().limbs();
            *z = point.z.carry().limbs();
        },
    ))
}

#[inline(always)]
fn multiply<S: Simd>(s: S, table: &[Place], windows: &Limbs<S>) -> Point<S> {
    let (entry, negative) = look_up(s, &table[0], windows[0]);
    let first = Point::from_affine(s, &entry, negative);
    add_places(s, first, table, windows, 1)
}

/// `point` and the places from `from` on of the scalar times the base point.
#[inline(always)]
pub(super) fn add_places<S: Simd>(
    s: S,
    mut point: Point<S>,
    table: &[Place],
    windows: &Limbs<S>,
    from: usize,
) -> Point<S> {
    let mut words = *windows;
    if from > 0 {
        words[0] = s.shift_right::<{ WIDTH as u32 }>(words[0]);
    }
    for (j, place) in table.iter().enumerate().skip(from) {
        let word = &mut words[j / PER_WORD];
        let (entry, negative) = look_up(s, place, *word);
        *word = s.shift_right::<{ WIDTH as u32 }>(*word);
        point = point.add_affine(&entry, negative);
    }
    point
}

/// The entry of the digit in the lowest bits of `window`, and the lanes where it is to be subtracted.
///
/// w ≥ 64 is the digit 2·(w − 64) + 1, w < 64 is −(2·(63 − w) + 1).
#[inline(always)]
fn look_up<S: Simd>(s: S, place: &Place, window: S::Limb) -> (Affine<S>, S::Mask) {
    let positive = s.any_bit(window, s.splat(ENTRIES as u64));
    let flip = s.select(positive, s.zero(), s.splat(ENTRIES as u64 - 1));
    let index = s.or_xor(s.zero(), window, flip);
    let (bit_4, bit_5) = (s.any_bit(index, s.splat(16)), s.any_bit(index, s.splat(32)));
    let mut limbs = [s.zero(); 3 * LIMBS];
    for (limb, candidates) in limbs.iter_mut().zip(&place.0) {
        let a = s.look_up_16(&candidates[0], index);
        let b = s.look_up_16(&candidates[1], index);
        let c = s.look_up_16(&candidates[2], index);
        let d = s.look_up_16(&candidates[3], index);
        *limb = s.select(bit_5, s.select(bit_4, d, c), s.select(bit_4, b, a));
    }
    let entry = Affine {
        plus: Factor::from_limbs(s, each!(i => limbs[i])),
        minus: Factor::from_limbs(s, each!(i => limbs[LIMBS + i])),
        dt: Factor::from_limbs(s, each!(i => limbs[2 * LIMBS + i])),
    };
    let negative = s.any_bit(flip, s.splat(1));
    (entry, negative)
}

/// Computes the table: lanes are places here, vector by vector.
#[inline(never)]
fn build<S: Simd>(s: S) -> Box<[Place]> {
    let table = vec![Place([[[0; 16]; ENTRIES / 16]; 3 * LIMBS]); PLACES];
    s.enter(inlined(
        #[inline(always)]
        move || {
            let mut table = table;
            let vectors = PLACES.div_ceil(S::LANES);
            let count = vectors * ENTRIES;
            let zero = [s.zero(); LIMBS];
            let (mut x, mut y) = (vec![zero; count], vec![zero; count]);
            let (mut z, mut running) = (vec![zero; count], vec![zero; count]);
            let place_points = place_points(s, vectors);
            for (v, [x0, y0]) in place_points.iter().enumerate() {
                let mut point =
                    Point::new(s, &Factor::from_limbs(s, *x0), &Factor::from_limbs(s, *y0));
                let twice = point.double().cached(s);
                let plus = s.any_bit(s.zero(), s.zero());
                for i in v * ENTRIES..(v + 1) * ENTRIES {
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
                let (vector, entry) = (i / ENTRIES, i % ENTRIES);
                for (c, limbs) in coordinates.iter().enumerate() {
                    for (l, place) in table[vector * S::LANES..]
                        .iter_mut()
                        .take(S::LANES)
                        .enumerate()
                    {
                        for (k, limb) in lane::<S, LIMBS>(limbs, l).into_iter().enumerate() {
                            place.0[c * LIMBS + k][entry / 16][entry % 16] = limb;
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
        for _ in 0..WIDTH {
            point = point.double();
        }
    }
    places
}
