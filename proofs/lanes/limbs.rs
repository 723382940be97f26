//! Lanes that hold terms instead of numbers: the computation of a kernel, written down for all
//! inputs at once.
//!
//! A limb is the place of a [`Term`] in a list that the thread keeps. No algorithm over lanes
//! branches on its data, so one run lists the whole computation. The prover in `proofs/src` reads
//! such lists.

use core::cell::RefCell;
use core::hash::{BuildHasherDefault, Hasher};
use core::marker::PhantomData;
use std::collections::HashMap;

use super::portable::Portable;
use super::{CHOOSE, Simd, words};
use crate::order::{Beside, Order};

/// The place of a term in its list.
pub type Place = u32;

/// The term of one limb. All sums are modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// A number.
    Constant(u64),
    /// An input.
    Input(u32),
    /// [`acc`, `a`, `b`]: acc + (a·b mod 2^52), from the low 52 bits of both.
    Low([Place; 3]),
    /// [`acc`, `a`, `b`]: acc + ⌊a·b / 2^52⌋, from the low 52 bits of both.
    High([Place; 3]),
    /// [`acc`, `a`, `b`]: acc + a·b, from the low 32 bits of both.
    Short([Place; 3]),
    /// a + b.
    Add([Place; 2]),
    /// a − b.
    Sub([Place; 2]),
    /// a & b.
    And([Place; 2]),
    /// a | b.
    Or([Place; 2]),
    /// a ^ b.
    Xor([Place; 2]),
    /// a / 2^count.
    Right(Place, u32),
    /// a·2^count.
    Left(Place, u32),
    /// a, its bits moved down in a circle.
    Rotate(Place, u32),
    /// Whether a bit of b is set in a.
    AnyBit([Place; 2]),
    /// Whether a and b are equal.
    Equal([Place; 2]),
    /// [`mask`, `set`, `clear`].
    Select([Place; 3]),
    /// By a table, bit by bit.
    Ternary(i32, [Place; 3]),
    /// A word of a table, which the list knows by its number, and the index.
    LookUp(u32, Place),
}

/// Terms that the thread has recorded.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// In the order of their computation.
    pub list: Vec<Term>,
    /// The tables that were looked into.
    pub tables: Vec<[u64; 16]>,
    places: HashMap<Term, Place, BuildHasherDefault<Mixed>>,
}

/// A hash of a term. With the standard one, hashing is half of the work for millions of terms.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

impl Terms {
    /// The place of `term`, which may be there already.
    pub fn place(&mut self, term: Term) -> Place {
        *self.places.entry(term).or_insert_with(|| {
            self.list.push(term);
            self.list.len() as Place - 1
        })
    }

    /// The same terms but for one.
    pub fn changed(&self, place: Place, term: Term) -> Self {
        let (mut list, tables) = (self.list.clone(), self.tables.clone());
        list[place as usize] = term;
        let mut places = HashMap::default();
        for (place, term) in list.iter().enumerate() {
            places.entry(*term).or_insert(place as Place);
        }
        Self {
            list,
            tables,
            places,
        }
    }

    /// Values of the terms for these inputs, computed by the portable lanes.
    pub fn values(&self, inputs: &[u64]) -> Vec<u64> {
        let s = Portable::<1>;
        let mut values = Vec::with_capacity(self.list.len());
        for term in &self.list {
            let of = |place: Place| values[place as usize];
            let all = |places: [Place; 3]| places.map(of);
            let both = |places: [Place; 2]| places.map(of);
            let value = match *term {
                Term::Constant(value) => s.splat(value),
                Term::Input(input) => s.splat(inputs[input as usize]),
                Term::Low(places) => {
                    let [acc, a, b] = all(places);
                    s.mul_lo(acc, a, b)
                }
                Term::High(places) => {
                    let [acc, a, b] = all(places);
                    s.mul_hi(acc, a, b)
                }
                Term::Short(places) => {
                    let [acc, a, b] = all(places).map(|limb| words(&[limb])[0]);
                    let product = (a & 0xffff_ffff) * (b & 0xffff_ffff);
                    s.splat(acc.wrapping_add(product))
                }
                Term::Add(places) => {
                    let [a, b] = both(places);
                    s.add(a, b)
                }
                Term::Sub(places) => {
                    let [a, b] = both(places);
                    s.sub(a, b)
                }
                Term::And(places) => {
                    let [a, b] = both(places);
                    s.and(a, b)
                }
                Term::Or(places) => {
                    let [a, b] = both(places);
                    s.or_xor(a, b, s.zero())
                }
                Term::Xor(places) => {
                    let [a, b] = both(places);
                    s.xor(a, b)
                }
                Term::Right(a, count) => s.shift_right_by(of(a), count),
                Term::Left(a, count) => s.shift_left_by(of(a), count),
                Term::Rotate(a, count) => s.splat(words(&[of(a)])[0].rotate_right(count)),
                Term::AnyBit(places) => {
                    let [a, b] = both(places);
                    s.any_bit(a, b)
                }
                Term::Equal(places) => {
                    let [a, b] = both(places);
                    s.equal(a, b)
                }
                Term::Select(places) => {
                    let [mask, set, clear] = all(places);
                    s.select(mask, set, clear)
                }
                Term::Ternary(table, places) => {
                    let [a, b, c] = all(places);
                    (0..8)
                        .filter(|row| table >> row & 1 == 1)
                        .fold(s.zero(), |sum, row| {
                            let bit = |x, at: i32| match row >> at & 1 {
                                1 => x,
                                _ => s.xor(x, s.splat(u64::MAX)),
                            };
                            s.xor(sum, s.and(bit(a, 2), s.and(bit(b, 1), bit(c, 0))))
                        })
                }
                Term::LookUp(table, index) => s.look_up_16(&self.tables[table as usize], of(index)),
            };
            values.push(value);
        }
        words(&values).to_vec()
    }
}

thread_local! {
    static TERMS: RefCell<Terms> = RefCell::default();
}

/// Records the terms of `work`; returns them with its result.
pub(crate) fn record<R>(work: impl FnOnce() -> R) -> (Terms, R) {
    let mut terms = Terms::default();
    // All limbs that are nothing but zeros are the first, and words that are written as one are
    // the second.
    terms.place(Term::Constant(0));
    terms.place(Term::Constant(1));
    TERMS.set(terms);
    let result = work();
    (TERMS.take(), result)
}

/// A limb that holds `term`.
#[inline(never)]
pub(crate) fn limb(term: Term) -> u64 {
    TERMS.with_borrow_mut(|terms| u64::from(terms.place(term)))
}

/// One lane of terms, which works in the order `O`, with code that is `SHORT` or written out, on
/// whole limbs or on `HALVES`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbolic<O, const SHORT: bool, const HALVES: bool>(pub(crate) PhantomData<O>);

impl<O, const SHORT: bool, const HALVES: bool> Symbolic<O, SHORT, HALVES> {
    /// The halves of a limb, their products for two limbs, and the sums as the lanes of AVX2 form
    /// them.
    fn products(a: u64, b: u64) -> [u64; 3] {
        let half = |x, count| {
            let shifted = if count > 0 {
                limb(Term::Right(place(x), count))
            } else {
                x
            };
            two(Term::And, shifted, limb(Term::Constant((1 << 26) - 1)))
        };
        let ([a0, a1], [b0, b1]) = ([half(a, 0), half(a, 26)], [half(b, 0), half(b, 26)]);
        let middle = three(Term::Short, three(Term::Short, 0, a0, b1), a1, b0);
        [
            three(Term::Short, 0, a0, b0),
            middle,
            three(Term::Short, 0, a1, b1),
        ]
    }
}

fn place(limb: u64) -> Place {
    Place::try_from(limb).expect("the place of a term")
}

fn two(term: fn([Place; 2]) -> Term, a: u64, b: u64) -> u64 {
    limb(term([a, b].map(place)))
}

fn three(term: fn([Place; 3]) -> Term, a: u64, b: u64, c: u64) -> u64 {
    limb(term([a, b, c].map(place)))
}

impl<O: Order, const SHORT: bool, const HALVES: bool> Simd for Symbolic<O, SHORT, HALVES> {
    type Limb = u64;
    type Mask = u64;
    type Order = O;
    type Lower = Symbolic<Beside, SHORT, HALVES>;

    const LANES: usize = 1;
    const INLINE: bool = false;
    const SHORT_CODE: bool = SHORT;
    const HALVES: bool = HALVES;

    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    fn splat(self, value: u64) -> u64 {
        limb(Term::Constant(value))
    }

    fn mul_lo(self, acc: u64, a: u64, b: u64) -> u64 {
        if HALVES {
            let [low, middle, _] = Self::products(a, b);
            let sum = self.add(low, self.shift_left_by(middle, 26));
            return self.add(acc, self.low_bits(sum));
        }
        three(Term::Low, acc, a, b)
    }

    fn mul_hi(self, acc: u64, a: u64, b: u64) -> u64 {
        if HALVES {
            let [low, middle, high] = Self::products(a, b);
            let middle = self.add(middle, self.shift_right_by(low, 26));
            return self.add(self.add(acc, high), self.shift_right_by(middle, 26));
        }
        three(Term::High, acc, a, b)
    }

    fn mul_short(self, acc: u64, a: u64, b: u64) -> u64 {
        three(if HALVES { Term::Short } else { Term::Low }, acc, a, b)
    }

    fn add(self, a: u64, b: u64) -> u64 {
        two(Term::Add, a, b)
    }

    fn sub(self, a: u64, b: u64) -> u64 {
        two(Term::Sub, a, b)
    }

    fn and(self, a: u64, b: u64) -> u64 {
        two(Term::And, a, b)
    }

    fn xor(self, a: u64, b: u64) -> u64 {
        two(Term::Xor, a, b)
    }

    fn or_xor(self, a: u64, b: u64, c: u64) -> u64 {
        two(Term::Or, a, two(Term::Xor, b, c))
    }

    fn halve(self, a: u64) -> u64 {
        self.shift_right_by(a, 1)
    }

    fn shift_right<const COUNT: u32>(self, a: u64) -> u64 {
        self.shift_right_by(a, COUNT)
    }

    fn rotate_right<const COUNT: i32>(self, a: u64) -> u64 {
        limb(Term::Rotate(place(a), COUNT as u32))
    }

    fn ternary<const TABLE: i32>(self, a: u64, b: u64, c: u64) -> u64 {
        limb(Term::Ternary(TABLE, [a, b, c].map(place)))
    }

    fn shift_right_by(self, a: u64, count: u32) -> u64 {
        limb(Term::Right(place(a), count))
    }

    fn shift_left_by(self, a: u64, count: u32) -> u64 {
        limb(Term::Left(place(a), count))
    }

    fn carry(self, a: u64) -> u64 {
        self.shift_right_by(a, Self::LIMB_BITS)
    }

    fn any_bit(self, a: u64, bits: u64) -> u64 {
        two(Term::AnyBit, a, bits)
    }

    fn equal(self, a: u64, b: u64) -> u64 {
        two(Term::Equal, a, b)
    }

    fn select(self, mask: u64, set: u64, clear: u64) -> u64 {
        three(Term::Select, mask, set, clear)
    }

    fn choose_in(self, mask: u64, chooser: u64, clear: u64, set: u64) -> u64 {
        let chosen = self.ternary::<CHOOSE>(chooser, set, clear);
        self.select(mask, chosen, chooser)
    }

    fn look_up_16(self, table: &[u64; 16], index: u64) -> u64 {
        TERMS.with_borrow_mut(|terms| {
            let known = terms.tables.iter().position(|known| known == table);
            let number = known.unwrap_or_else(|| {
                terms.tables.push(*table);
                terms.tables.len() - 1
            });
            u64::from(terms.place(Term::LookUp(number as u32, place(index))))
        })
    }
}

/// Several lanes of terms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes<const L: usize>;

/// Each of them.
const LANE: Symbolic<Beside, true, false> = Symbolic(PhantomData);

fn each<const L: usize>(lane: impl FnMut(usize) -> u64) -> [u64; L] {
    core::array::from_fn(lane)
}

impl<const L: usize> Simd for Lanes<L> {
    type Limb = [u64; L];
    type Mask = [u64; L];
    type Order = Beside;
    type Lower = Self;

    const LANES: usize = L;
    const INLINE: bool = false;

    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(never)]
    fn splat(self, value: u64) -> [u64; L] {
        [LANE.splat(value); L]
    }

    #[inline(never)]
    fn mul_lo(self, acc: [u64; L], a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.mul_lo(acc[l], a[l], b[l]))
    }

    #[inline(never)]
    fn mul_hi(self, acc: [u64; L], a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.mul_hi(acc[l], a[l], b[l]))
    }

    #[inline(never)]
    fn add(self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.add(a[l], b[l]))
    }

    #[inline(never)]
    fn sub(self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.sub(a[l], b[l]))
    }

    #[inline(never)]
    fn and(self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.and(a[l], b[l]))
    }

    #[inline(never)]
    fn xor(self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.xor(a[l], b[l]))
    }

    #[inline(never)]
    fn or_xor(self, a: [u64; L], b: [u64; L], c: [u64; L]) -> [u64; L] {
        each(|l| LANE.or_xor(a[l], b[l], c[l]))
    }

    #[inline(never)]
    fn halve(self, a: [u64; L]) -> [u64; L] {
        each(|l| LANE.halve(a[l]))
    }

    #[inline(never)]
    fn shift_right<const COUNT: u32>(self, a: [u64; L]) -> [u64; L] {
        each(|l| LANE.shift_right::<COUNT>(a[l]))
    }

    #[inline(never)]
    fn rotate_right<const COUNT: i32>(self, a: [u64; L]) -> [u64; L] {
        each(|l| LANE.rotate_right::<COUNT>(a[l]))
    }

    #[inline(never)]
    fn ternary<const TABLE: i32>(self, a: [u64; L], b: [u64; L], c: [u64; L]) -> [u64; L] {
        each(|l| LANE.ternary::<TABLE>(a[l], b[l], c[l]))
    }

    #[inline(never)]
    fn shift_right_by(self, a: [u64; L], count: u32) -> [u64; L] {
        each(|l| LANE.shift_right_by(a[l], count))
    }

    #[inline(never)]
    fn shift_left_by(self, a: [u64; L], count: u32) -> [u64; L] {
        each(|l| LANE.shift_left_by(a[l], count))
    }

    #[inline(never)]
    fn carry(self, a: [u64; L]) -> [u64; L] {
        each(|l| LANE.carry(a[l]))
    }

    #[inline(never)]
    fn any_bit(self, a: [u64; L], bits: [u64; L]) -> [u64; L] {
        each(|l| LANE.any_bit(a[l], bits[l]))
    }

    #[inline(never)]
    fn equal(self, a: [u64; L], b: [u64; L]) -> [u64; L] {
        each(|l| LANE.equal(a[l], b[l]))
    }

    #[inline(never)]
    fn select(self, mask: [u64; L], set: [u64; L], clear: [u64; L]) -> [u64; L] {
        each(|l| LANE.select(mask[l], set[l], clear[l]))
    }

    #[inline(never)]
    fn choose_in(
        self,
        mask: [u64; L],
        chooser: [u64; L],
        clear: [u64; L],
        set: [u64; L],
    ) -> [u64; L] {
        each(|l| LANE.choose_in(mask[l], chooser[l], clear[l], set[l]))
    }

    #[inline(never)]
    fn look_up_16(self, table: &[u64; 16], index: [u64; L]) -> [u64; L] {
        each(|l| LANE.look_up_16(table, index[l]))
    }
}
