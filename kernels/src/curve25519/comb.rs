//! Multiples of the base point from a table, without doublings.
//!
//! The scalar minus a multiple of the order is written as an odd digit from −255 to 255 and 35 odd
//! digits of radix 128 above it, each from −127 to 127. For the first digit the table holds the
//! 128 odd multiples 1, 3, … 255 of B, and for every further place j the 64 odd multiples 1, 3, …
//! 127 of 256·128^j·B. So the product is a point of the table and 35 additions. All lanes share the
//! table; digits and look-up are like those of [`scalar_mul`](crate::nist::scalar_mul). The table
//! has 273 KiB and is computed at its first use.

use once_cell::race::OnceBox;

use super::batch::VECTORS;
use super::batch_inverse::invert_all;
use super::convert::Limbs;
use super::edwards::{Affine, Cached, Point, scaled};
use super::field::{Factor, LIMBS};
use super::scalar::Order;
use crate::modular::Modulus;
use crate::secret::wipe;
use crate::simd::{Simd, enter, inlined, opaque, prefetch, words, words_mut};
use crate::unroll::five_limbs;

/// Number of bits of the first digit.
const FIRST_WINDOW: usize = 8;
/// Number of odd multiples of the base point for the first digit.
const FIRST_ENTRIES: usize = 1 << (FIRST_WINDOW - 1);
/// Number of limbs of a first digit's entry: two coordinates.
const FIRST_ENTRY: usize = 2 * LIMBS;

/// Number of bits of every other digit.
const WINDOW: usize = 7;
/// Number of digits after the first.
const PLACES: usize = 35;
/// Number of odd multiples for each of these digits.
const ENTRIES: usize = 1 << (WINDOW - 1);
/// Number of limbs of an entry for these digits: three numbers.
const ENTRY: usize = 3 * LIMBS;

/// Number of bits of all digits: they represent every odd number between −2^`BITS` and 2^`BITS`.
const BITS: usize = FIRST_WINDOW + WINDOW * PLACES;

/// Number of candidates in one look-up.
const QUARTER: usize = 16;

/// A table of multiples of the base point.
pub(super) struct Table {
    first: Box<First>,
    places: Box<[Place]>,
}

/// The entries of the first digit: 2 coordinates of 5 limbs, x and y, each limb with its
/// candidates.
#[repr(C, align(64))]
struct First([[u64; FIRST_ENTRIES]; FIRST_ENTRY]);

/// The entries of one place: the 3 numbers of an [`Affine`], of 5 limbs, each limb with its
/// candidates.
#[derive(Clone)]
#[repr(C, align(64))]
struct Place([[u64; ENTRIES]; ENTRY]);

/// Returns the table, computed on the lanes of its first caller. Threads that come at the same time
/// each compute one, and all but one drop theirs. If they waited for one thread instead, a child
/// forked meanwhile would wait forever.
pub(super) fn table<S: Simd>(s: S) -> &'static Table {
    static TABLE: OnceBox<Table> = OnceBox::new();
    TABLE.get_or_init(|| Box::new(build(s)))
}

/// The digits of a scalar: the first digit and eight others in the first word, nine digits in each
/// of the other three words. Bits above a word's last digit repeat digits of the next word.
#[derive(Clone, Copy)]
pub(super) struct Digits<S: Simd>(pub(super) [S::Limb; 4]);

/// A digit: ±(2·index + 1).
struct Digit<S: Simd> {
    /// Only the bits below the digit's sign bit count.
    index: S::Limb,
    negative: S::Mask,
}

impl<S: Simd> Digits<S> {
    #[inline(always)]
    fn first(&self, s: S) -> Digit<S> {
        Digit::new(s, self.0[0], FIRST_WINDOW)
    }

    /// Returns digit `j` after the first.
    #[inline(always)]
    fn after_first(&self, s: S, j: usize) -> Digit<S> {
        const IN_WORD: usize = 64 / WINDOW;
        const { assert!(4 * IN_WORD == 1 + PLACES && FIRST_WINDOW == 1 + WINDOW) };
        let (word, at) = ((j + 1) / IN_WORD, (j + 1) % IN_WORD);
        let shift = WINDOW * at + usize::from(word == 0);
        let bits = s.shift_right_by(self.0[word % 4], shift as u32);
        Digit::new(s, bits, WINDOW)
    }
}

impl<S: Simd> Digit<S> {
    /// Decodes the digit in the low `width` bits.
    #[inline(always)]
    fn new(s: S, bits: S::Limb, width: usize) -> Self {
        let sign = s.splat(1 << (width - 1));
        let negative = s.any_bit(s.sub(sign, s.and(bits, sign)), sign);
        let complement = s.xor(bits, s.splat((1 << (width - 1)) - 1));
        Self {
            index: s.select(negative, complement, bits),
            negative,
        }
    }
}

/// Computes the digits of a scalar below 2^256.
///
/// With L = 2^252 + c and the scalar h·2^252 + l, the digits represent x = l − h·c, or x − L if x
/// is even: an odd number between −2^252 − 2^130 and 2^252. The sum of this number and 2^[`BITS`]
/// is halved and rounded down. From w bits b of the result, a digit is 2·b − 2^w + 1.
#[inline(always)]
pub(super) fn digits<S: Simd>(s: S, scalar: &Limbs<S>) -> Digits<S> {
    const TOP_BITS: u32 = 252 - 4 * 52;
    const L: [u64; LIMBS] = Order::VALUE;
    const { assert!(L[4] == 1 << TOP_BITS && L[3] == 0 && L[2] >> 48 == 0) };
    // Lent to every limb by the limb above, so that none is negative.
    const LOAN: u64 = 4;
    const { assert!(BITS == 253) };
    let top = s.splat((1 << TOP_BITS) - 1);
    let h = s.shift_right::<TOP_BITS>(scalar[4]);
    let c = |i: usize| s.splat(L[i]);
    let hc = [
        s.mul_lo(s.zero(), h, c(0)),
        s.mul_lo(s.mul_hi(s.zero(), h, c(0)), h, c(1)),
        s.mul_lo(s.mul_hi(s.zero(), h, c(1)), h, c(2)),
    ];
    let mut x = [
        s.add(scalar[0], s.splat(LOAN << 52)),
        s.add(scalar[1], s.splat((LOAN << 52) - LOAN)),
        s.add(scalar[2], s.splat((LOAN << 52) - LOAN)),
        s.add(scalar[3], s.splat((LOAN << 52) - LOAN)),
        s.add(s.and(scalar[4], top), s.splat((2 << TOP_BITS) - LOAN)),
    ];
    for i in 0..3 {
        x[i] = s.sub(x[i], hc[i]);
    }
    let is_odd = s.any_bit(x[0], s.splat(1));
    for i in 0..LIMBS {
        x[i] = s.sub(x[i], s.select(is_odd, s.zero(), s.splat(L[i])));
    }
    for i in 0..LIMBS - 1 {
        x[i + 1] = s.add(x[i + 1], s.carry(x[i]));
        x[i] = s.low_bits(x[i]);
    }
    let [x0, x1, x2, x3, x4] = x;
    let join = inlined!(|low, high, count| s.or_xor(low, s.shift_left_by(high, count), s.zero()));
    // From bits 1, 65, 65 + 63 and 65 + 2·63 upwards.
    Digits([
        join(s.shift_right::<1>(x0), x1, 51),
        join(s.shift_right::<13>(x1), x2, 39),
        join(s.shift_right::<24>(x2), x3, 28),
        join(s.shift_right::<35>(x3), x4, 17),
    ])
}

/// Multiplies the base point by the scalars of at most [`VECTORS`] vectors, below 2^256, and calls
/// `take` with the number of each vector and its products.
///
/// Several vectors go through a place of the table before the next place, so the place is loaded
/// from the second-level cache once for all of them. A single vector keeps its point in registers.
pub(super) fn multiply<S: Simd>(
    s: S,
    table: &Table,
    scalars: &[Limbs<S>],
    mut take: impl FnMut(usize, &Point<S>),
) {
    // Without a wide multiply, reading the table takes the smallest part of the time.
    if scalars.len() == 1 || S::HALVES {
        for (v, scalar) in scalars.iter().enumerate() {
            take(v, &multiple_of_base(s, table, scalar));
        }
        return;
    }
    let mut points = [Point::neutral(s); VECTORS];
    let points = &mut points[..scalars.len()];
    multiply_together(s, table, scalars, points);
    for (v, point) in points.iter().enumerate() {
        take(v, point);
    }
    Point::wipe(s, points);
}

/// Computes the multiples of several vectors, place by place.
#[inline(never)]
fn multiply_together<S: Simd>(s: S, table: &Table, scalars: &[Limbs<S>], points: &mut [Point<S>]) {
    debug_assert!(scalars.len() <= VECTORS && scalars.len() == points.len());
    let mut numbers = [Digits([s.zero(); 4]); VECTORS];
    let all_numbers = &mut numbers;
    enter!(s, [], {
        let (numbers, points) = (all_numbers, points);
        for ((number, point), scalar) in numbers.iter_mut().zip(&mut *points).zip(scalars) {
            *number = digits(s, scalar);
            *point = first_multiple(s, &table.first, number);
        }
        for (j, place) in table.places.iter().enumerate() {
            let next = table.places.get(j + 1).unwrap_or(place);
            for (v, (point, number)) in points.iter_mut().zip(&*numbers).enumerate() {
                // A few rows before each addition: all rows at once would delay it.
                const ROWS: usize = ENTRY.div_ceil(VECTORS);
                next.0.iter().skip(ROWS * v).take(ROWS).for_each(prefetch);
                add_entry(s, point, place, number, j);
            }
        }
    });
    for number in &mut numbers {
        wipe(words_mut(&mut number.0));
    }
}

/// Adds the entry of digit `j` after the first.
///
/// A function of its own, because a key pair takes 2 % longer with this code in the loop above.
#[inline(never)]
fn add_entry<S: Simd>(s: S, point: &mut Point<S>, place: &Place, digits: &Digits<S>, j: usize) {
    enter!(s, [point], {
        let digit = digits.after_first(s, j);
        let halves = Halves::new(s, digit.index);
        let coordinate = inlined!(|k: usize| {
            let candidates = &place.0;
            let limbs = five_limbs!(i => halves.look_up(s, &candidates[LIMBS * k + i]));
            Factor::from_limbs(s, limbs)
        });
        let entry = Affine {
            plus: coordinate(0),
            minus: coordinate(1),
            dt: coordinate(2),
        };
        *point = point.begin_add_affine(&entry, digit.negative).finish();
    });
}

/// Multiplies the base point by the scalar, which is below 2^256.
#[inline(never)]
pub(super) fn multiple_of_base<S: Simd>(s: S, table: &Table, scalar: &Limbs<S>) -> Point<S> {
    let mut product = Point::neutral(s);
    let out = &mut product;
    enter!(s, [out], {
        let mut number = digits(s, scalar);
        let mut point = first_multiple(s, &table.first, &number);
        // The next entry is looked up while the products of the first half are computed.
        let mut entry = [s.zero(); ENTRY];
        let mut negative = look_up(s, &mut entry, &table.places[0], &number, 0);
        for j in 1..=PLACES {
            let half_sum = point.begin_add_affine(&affine_entry(s, &entry), negative);
            let j = j.min(PLACES - 1);
            negative = look_up(s, &mut entry, &table.places[j], &number, j);
            point = half_sum.finish();
        }
        *out = point;
        wipe(words_mut(&mut number.0));
        wipe(words_mut(&mut entry));
    });
    product
}

/// Returns the multiple for the first digit.
#[inline(never)]
fn first_multiple<S: Simd>(s: S, first: &First, digits: &Digits<S>) -> Point<S> {
    enter!(s, {
        let digit = digits.first(s);
        let mut entry = [s.zero(); FIRST_ENTRY];
        let upper = s.any_bit(digit.index, s.splat(4 * QUARTER as u64));
        let halves = Halves::new(s, digit.index);
        for (out, candidates) in entry.iter_mut().zip(&first.0) {
            let (low, high) = candidates.split_at(FIRST_ENTRIES / 2);
            *out = s.select(upper, halves.look_up(s, high), halves.look_up(s, low));
        }
        let x = Factor::from_limbs(s, five_limbs!(i => entry[i]));
        let y = Factor::from_limbs(s, five_limbs!(i => entry[LIMBS + i]));
        let minus_x = (Factor::splat(s, [0; LIMBS]).to_product() - x.to_product()).carry();
        wipe(words_mut(&mut entry));
        Point::new(s, &Factor::select(digit.negative, &minus_x, &x), &y)
    })
}

/// Looks up the entry of digit `j` after the first; returns the lanes in which it must be
/// subtracted.
#[inline(always)]
fn look_up<S: Simd>(
    s: S,
    entry: &mut [S::Limb; ENTRY],
    place: &Place,
    number: &Digits<S>,
    j: usize,
) -> S::Mask {
    let digit = number.after_first(s, j);
    let halves = Halves::new(s, digit.index);
    for (out, candidates) in entry.iter_mut().zip(&place.0) {
        *out = halves.look_up(s, candidates);
    }
    digit.negative
}

/// Returns the entry, which is read from memory where it is used: in registers it would be spilled.
#[inline(always)]
fn affine_entry<S: Simd>(s: S, entry: &[S::Limb; ENTRY]) -> Affine<S> {
    let limbs = opaque(entry);
    Affine {
        plus: Factor::from_limbs(s, five_limbs!(i => limbs[i])),
        minus: Factor::from_limbs(s, five_limbs!(i => limbs[LIMBS + i])),
        dt: Factor::from_limbs(s, five_limbs!(i => limbs[2 * LIMBS + i])),
    }
}

/// Selects one of 64 candidates.
struct Halves<S: Simd> {
    index: S::Limb,
    bit4: S::Mask,
    bit5: S::Mask,
}

impl<S: Simd> Halves<S> {
    #[inline(always)]
    fn new(s: S, index: S::Limb) -> Self {
        // Opaque, because the compiler would otherwise compute the mask again for each limb.
        let bit = inlined!(|bit: u64| *opaque(&s.any_bit(index, s.splat(bit))));
        Self {
            index,
            bit4: bit(QUARTER as u64),
            bit5: bit(2 * QUARTER as u64),
        }
    }

    /// Returns `candidates[index mod 64]`. The addresses do not depend on the index.
    #[inline(always)]
    fn look_up(&self, s: S, candidates: &[u64]) -> S::Limb {
        let (quarters, _) = candidates.as_chunks::<QUARTER>();
        let quarter = inlined!(|q: usize| s.look_up_16(&quarters[q], self.index));
        let low = s.select(self.bit4, quarter(1), quarter(0));
        let high = s.select(self.bit4, quarter(3), quarter(2));
        s.select(self.bit5, high, low)
    }
}

#[cfg(feature = "proofs")]
impl Table {
    /// Returns the words of the first digit's entries, and of all other entries.
    pub(super) fn words(&self) -> [Vec<u64>; 2] {
        let places = self.places.iter().flat_map(|place| place.0.as_flattened());
        [
            self.first.0.as_flattened().to_vec(),
            places.copied().collect(),
        ]
    }
}

fn build<S: Simd>(s: S) -> Table {
    let mut base = Point::base(s);
    base.double_assign(FIRST_WINDOW);
    let mut table = vec![Place([[0; ENTRIES]; ENTRY]); PLACES];
    for places in table.chunks_mut(S::LANES) {
        // Lanes are places here.
        let mut point = each_lane(s, places.len(), &mut base, |base| {
            base.double_assign(WINDOW)
        });
        let mut twice = point;
        twice.double_assign(1);
        let twice = twice.to_cached();
        for (entry, [x, y]) in progression::<S, ENTRIES>(s, &mut point, &twice)
            .iter()
            .enumerate()
        {
            let coordinates = Affine::limbs(s, x, y);
            let limbs = words(coordinates.as_flattened()).chunks(S::LANES);
            for (limb, lanes) in limbs.enumerate() {
                for (place, word) in places.iter_mut().zip(lanes) {
                    place.0[limb][entry] = *word;
                }
            }
        }
    }
    Table {
        first: build_first(s),
        places: table.into_boxed_slice(),
    }
}

/// Computes the entries of the first digit.
fn build_first<S: Simd>(s: S) -> Box<First> {
    let mut first = Box::new(First([[0; FIRST_ENTRIES]; FIRST_ENTRY]));
    let mut base = Point::base(s);
    let twice = {
        let mut twice = base;
        twice.double_assign(1);
        twice.to_cached()
    };
    // Each lane has the next odd multiple; a step leads to the next vector.
    let mut step = base;
    step.double_assign((2 * S::LANES).ilog2() as usize);
    let step = step.to_cached();
    let mut point = each_lane(s, S::LANES, &mut base, |base| base.add_assign(&twice));
    for entries in (0..FIRST_ENTRIES).step_by(ENTRIES * S::LANES) {
        // With many lanes, these are more points than the table has entries left.
        let points = progression::<S, ENTRIES>(s, &mut point, &step);
        let left = (FIRST_ENTRIES - entries) / S::LANES;
        for (i, coordinates) in points.iter().take(left).enumerate() {
            let limbs = words(coordinates.as_flattened()).chunks(S::LANES);
            for (limb, lanes) in limbs.enumerate() {
                first.0[limb][entries + S::LANES * i..][..S::LANES].copy_from_slice(lanes);
            }
        }
    }
    first
}

/// Returns the point whose lane l, for l < `count`, is `base` (the same in all lanes) after l
/// steps.
fn each_lane<S: Simd>(
    s: S,
    count: usize,
    base: &mut Point<S>,
    step: impl Fn(&mut Point<S>),
) -> Point<S> {
    let mut lanes = [[s.zero(); LIMBS]; 2];
    for l in 0..count {
        let [point] = affine(s, [*base]);
        let to = words_mut(lanes.as_flattened_mut());
        for (i, word) in words(point.as_flattened())
            .iter()
            .enumerate()
            .step_by(S::LANES)
        {
            to[i + l] = *word;
        }
        step(base);
    }
    Point::from_limbs(s, &lanes)
}

/// Returns x and y of `COUNT` points from `point` upwards, `step` apart.
fn progression<S: Simd, const COUNT: usize>(
    s: S,
    point: &mut Point<S>,
    step: &Cached<S>,
) -> [[Limbs<S>; 2]; COUNT] {
    let mut points = [*point; COUNT];
    for entry in &mut points {
        *entry = *point;
        point.add_assign(step);
    }
    affine(s, points)
}

/// Returns x and y of points.
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

#[cfg(test)]
impl Table {
    /// Returns a table in which the entries of one place belong to other digits: points of the
    /// curve, but wrong ones.
    pub(super) fn damaged<S: Simd>(s: S) -> Table {
        let mut table = build(s);
        table.places[20]
            .0
            .iter_mut()
            .for_each(|limb| limb.reverse());
        table
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::{BigInt, BigUint};

    use super::super::convert::load;
    use super::*;
    use crate::simd::portable::Portable;

    fn number(limbs: &[u64; LIMBS]) -> BigInt {
        let words = limbs.iter().rev();
        words.fold(BigInt::ZERO, |sum, limb| (sum << 52) + *limb)
    }

    #[test]
    fn digits_make_the_scalar() {
        let s = Portable::<1>;
        let order = number(&Order::VALUE);
        let power = |n: u32| BigInt::from(1) << n;
        let mut scalars = vec![power(256) - 1, power(252) * 15 + 1];
        for around in [
            power(0) + 1,
            order.clone(),
            power(252),
            power(253),
            power(255),
        ] {
            scalars.extend(
                (-2..3)
                    .map(|i| &around + i)
                    .filter(|scalar| *scalar >= BigInt::ZERO),
            );
        }
        let mut random: BigInt = power(251) + 12345;
        for _ in 0..200 {
            random = &random * &random * 5 % (power(256) - 189);
            scalars.push(random.clone());
        }
        for scalar in scalars {
            let mut words = [0; 4];
            let digits_of: BigUint = scalar.to_biguint().expect("not negative");
            for (word, digit) in words.iter_mut().zip(digits_of.iter_u64_digits()) {
                *word = digit;
            }
            let digits = digits(s, &load(s, |_| words));
            let value = |digit: Digit<Portable<1>>, width: usize| {
                let index = words_of_one(&digit.index) % (1 << (width - 1));
                let sign = words_of_one(&s.select(digit.negative, s.splat(1), s.zero()));
                BigInt::from(2 * index + 1) * if sign == 1 { -1 } else { 1 }
            };
            let mut sum = value(digits.first(s), FIRST_WINDOW);
            for j in 0..PLACES {
                sum += value(digits.after_first(s, j), WINDOW) << (FIRST_WINDOW + WINDOW * j);
            }
            assert_eq!((&sum - &scalar) % &order, BigInt::ZERO, "{scalar:x}");
        }
    }

    fn words_of_one(limb: &<Portable<1> as Simd>::Limb) -> u64 {
        words(core::slice::from_ref(limb))[0]
    }
}
