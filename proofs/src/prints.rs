//! Fingerprints of terms: two terms with the same fingerprint are the same function of the inputs.
//!
//! A fingerprint is three words. The fingerprints of inputs, products and bits are random, as a
//! hash of their parts. The fingerprints of sums, differences and short shifts to the left are sums
//! modulo 2^64, so that a compiler may choose the order of a sum. A fingerprint that is multiplied
//! by a power of two keeps fewer bits. So each has a weight: an upper bound on the factors in its
//! sum. A term is a hash instead if its weight would be too large, or if too few bits of it would
//! be read. So at least [`LEFT`] bits of each word stay, and two different terms have the same
//! fingerprint with a probability of about 2^−63 at most for each pair.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use lockstep_kernels::proved::{Place, Term, Terms};

use crate::ranges::MASK;
use crate::terms::{Look, most, parts, with};

pub type Print = [u64; 3];

/// The fingerprint of an input, which may depend on the fingerprints and weights of earlier terms.
pub type Input<'a> = dyn Fn(u32, &[Print], &[u64]) -> Print + 'a;

pub struct Prints<'a> {
    terms: &'a Terms,
    prints: Vec<Print>,
    /// Upper bounds on the factors in their sums.
    weights: Vec<u64>,
    /// Upper bounds of the terms, for all inputs: a compiler knows as much.
    most: Vec<u64>,
    /// How many of its lowest bits are zero.
    zeros: Vec<u32>,
    /// Fingerprints that sums have where inputs are not masked.
    unmasked: Vec<(Print, u32)>,
    /// Masks, and words that are all ones in the lanes of one; whether they are turned round.
    masks: HashMap<Place, (Print, bool)>,
    words: HashMap<Place, (Print, bool)>,
}

/// The fingerprints of terms, given the fingerprints of their inputs.
pub fn prints(terms: &Terms, input: &Input<'_>) -> Vec<Print> {
    let mut all = Prints {
        terms,
        prints: Vec::with_capacity(terms.list.len()),
        weights: Vec::with_capacity(terms.list.len()),
        most: Vec::with_capacity(terms.list.len()),
        zeros: Vec::with_capacity(terms.list.len()),
        unmasked: Vec::with_capacity(terms.list.len()),
        masks: HashMap::new(),
        words: HashMap::new(),
    };
    for place in 0..terms.list.len() as Place {
        let (print, weight) = all.print(place, input);
        all.prints.push(print);
        all.weights.push(weight);
        all.unmasked.push(all.unmasked(place));
        let most = most(terms.term(place), |part| all.most[part as usize]);
        all.most.push(most);
        all.zeros.push(all.zeros_of(terms.term(place)));
    }
    all.prints
}

/// A random fingerprint for a list of words.
pub fn hash(kind: u64, words: &[u64]) -> Print {
    let mut state = [
        kind ^ 0x1f83_d9ab_fb41_bd6b,
        !kind,
        kind.rotate_left(32) ^ 0x5be0_cd19_137e_2179,
    ];
    for (i, word) in words.iter().chain([&(words.len() as u64)]).enumerate() {
        for (channel, state) in state.iter_mut().enumerate() {
            let mut z = *state ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * channel as u64);
            z = z.wrapping_add((i as u64 + 1) << 8 | channel as u64);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *state = (z ^ (z >> 31)).rotate_left(23);
        }
    }
    state
}

const ONE: Print = [
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
];

fn number(value: u64) -> Print {
    ONE.map(|one| one.wrapping_mul(value))
}

/// How many bits a weight takes.
fn length(weight: u64) -> u32 {
    64 - weight.leading_zeros()
}

/// Bits of a number, of which they are what depends on its bits up to the last of them. Of the
/// number's own fingerprint as many bits are read, and not fewer than leave room for no accident:
/// of a multiple of a power of two these are above the zeros.
fn field((print, weight): Weighed, from: u32, to: u32, zeros: u32) -> Weighed {
    let read = to.max(LEAST + zeros).max(LEFT + length(weight)).min(64);
    let read = print.map(|word| word & (u64::MAX >> (64 - read)));
    let print = hash(6, &[&read[..], &[u64::from(from), u64::from(to)]].concat());
    (print, 1)
}

/// A number times a power of two.
fn shifted((print, weight): Weighed, count: u32) -> Weighed {
    match length(weight) + count {
        _ if print == number(0) => (print, 0),
        // Of the fingerprint enough bits must stay.
        ..=MOST_LENGTH => (print.map(|word| word << count), weight << count),
        _ => (hash(14, &[&print[..], &[u64::from(count)]].concat()), 1),
    }
}

/// Bits of each word that are read at least.
const LEAST: u32 = 38;
/// Bits of each word that say something at least.
const LEFT: u32 = 21;
/// How many bits a weight may have.
const MOST_LENGTH: u32 = 64 - LEFT;

/// A fingerprint for two things whose order does not matter.
fn unordered(kind: u64, mut both: [Print; 2]) -> Print {
    both.sort_unstable();
    hash(kind, &both.concat())
}

/// A fingerprint and its weight.
pub type Weighed = (Print, u64);

/// The fingerprint of a factor of a product that is called: 52 bits, if they are enough.
pub fn factor((print, weight): Weighed) -> Print {
    match length(weight) + LEFT {
        ..=52 => print.map(|word| word & MASK),
        _ => print,
    }
}

/// A sum or a difference of weighed fingerprints; none if it is too heavy.
fn sum((a, more): Weighed, (b, weight): Weighed) -> Option<Weighed> {
    let weight = more + weight;
    (length(weight) <= MOST_LENGTH).then(|| (add(a, b), weight))
}

fn minus((a, weight): Weighed) -> Weighed {
    (a.map(u64::wrapping_neg), weight)
}

fn add(a: Print, b: Print) -> Print {
    std::array::from_fn(|i| a[i].wrapping_add(b[i]))
}

/// clear + mask·(set − clear), in which the sign may stand before the product.
fn chosen(mask: Print, (set, _): Weighed, (clear, weight): Weighed) -> Weighed {
    let more = add(set, clear.map(u64::wrapping_neg));
    let less = more.map(u64::wrapping_neg);
    if more == number(0) {
        return (clear, weight);
    }
    let product = match more <= less {
        true => hash(10, &[mask, more].concat()),
        false => hash(10, &[mask, less].concat()).map(u64::wrapping_neg),
    };
    (add(clear, product), weight + 1)
}

/// Bits of a word with this fingerprint, which is not above `most` and a multiple of 2^zeros. The
/// other fingerprint is that of a word with the same bits up to `to`, of the same weight.
fn bits(
    (print, weight): Weighed,
    low: Print,
    most: u64,
    zeros: u32,
    [from, to]: [u32; 2],
) -> Weighed {
    let length = 64 - most.leading_zeros();
    // Of a multiple of a power of two the same bits of the quotient.
    let all = zeros.min(64 - LEAST);
    let zeros = all.min(from);
    match (from, to) {
        _ if from >= to.min(length) => (number(0), 0),
        (0, to) if length <= to => (print, weight),
        (from, to) if length <= to => {
            let print = hash(4, &[&print[..], &[u64::from(from)]].concat());
            (print, 1)
        }
        (from, to) => {
            let quotient = low.map(|word| word >> zeros);
            let weight = (weight >> zeros).max(1);
            field((quotient, weight), from - zeros, to - zeros, all - zeros)
        }
    }
}

impl Prints<'_> {
    fn constant(&self, place: Place) -> Option<u64> {
        self.terms.constant(place)
    }

    fn zeros_of(&self, term: Term) -> u32 {
        let of = |place: Place| self.zeros[place as usize];
        match term {
            Term::Constant(value) => value.trailing_zeros(),
            Term::Left(a, count) => of(a) + count,
            Term::Add([a, b]) | Term::Sub([a, b]) | Term::Or([a, b]) | Term::Xor([a, b]) => {
                of(a).min(of(b))
            }
            Term::And([a, b]) => of(a).max(of(b)),
            Term::Short([acc, a, b]) => of(acc).min(of(a) + of(b)),
            _ => 0,
        }
        .min(64)
    }

    fn of(&self, place: Place) -> Print {
        self.prints[place as usize]
    }

    fn weighed(&self, place: Place) -> Weighed {
        (self.of(place), self.weights[place as usize])
    }

    /// acc and a product of so many low bits of both factors.
    fn product(&self, kind: u64, [acc, a, b]: [Place; 3], bits: u32) -> Weighed {
        let mut product = None;
        for (a, b) in [(a, b), (b, a)] {
            match self
                .constant(b)
                .map(|times| times & (u64::MAX >> (64 - bits)))
            {
                Some(0) => return self.weighed(acc),
                Some(times) if kind == 3 => {
                    let (low, weight) = self.bits_of(a, 0, bits);
                    let print = low.map(|word| word.wrapping_mul(times));
                    let weight = weight.saturating_mul(times);
                    if length(weight) <= MOST_LENGTH {
                        product = Some((print, weight));
                    }
                }
                _ => {}
            }
        }
        let low = |place| match length(self.weights[place as usize]) + LEFT <= bits {
            true => self.of(place).map(|word| word & (u64::MAX >> (64 - bits))),
            // Too few bits would stay.
            false => self.bits_of(place, 0, bits).0,
        };
        let product = product.unwrap_or_else(|| (unordered(kind, [a, b].map(low)), 1));
        self.sum(acc, product)
    }

    /// The sum of a word and another one.
    fn sum(&self, a: Place, b: Weighed) -> Weighed {
        let a = self.weighed(a);
        sum(a, b).unwrap_or_else(|| (unordered(16, [a.0, b.0]), 1))
    }

    fn left(&self, mut a: Place, count: u32) -> Weighed {
        // Bits that leave need not be masked before.
        while let Some((of, bits)) = self.terms.masked(self.terms.term(a))
            && bits + count >= 64
        {
            a = of;
        }
        let (print, weight) = self.weighed(a);
        let zeros = self.zeros[a as usize];
        match self.constant(a) {
            Some(value) => (number(value << count), 0),
            _ if length(weight) + count <= MOST_LENGTH => shifted((print, weight), count),
            _ => {
                let (print, _) = self.bits_of(a, zeros, 64 - count);
                let by = u64::from(zeros + count);
                match print == number(0) {
                    true => (print, 0),
                    false => (hash(14, &[&print[..], &[by]].concat()), 1),
                }
            }
        }
    }

    fn print(&mut self, place: Place, input: &Input<'_>) -> Weighed {
        let atom = |print: Print| (print, 1);
        match self.terms.term(place) {
            Term::Constant(value) => (number(value), 0),
            Term::Input(i) => atom(input(i, &self.prints, &self.weights)),
            Term::Low(places) => self.product(1, places, 52),
            Term::High(places) => self.product(2, places, 52),
            Term::Short(places) => self.product(3, places, 32),
            // A sum with itself loses a bit, as a shift does.
            Term::Add([a, b]) if self.of(a) == self.of(b) => self.left(a, 1),
            Term::Add([a, b]) => self.sum(a, self.weighed(b)),
            Term::Sub([a, b]) => self.sum(a, minus(self.weighed(b))),
            Term::Left(a, count) => self.left(a, count),
            Term::Right(..) => self.bits_of(place, 0, 64),
            // Bits of a term, at their places.
            Term::And(both)
                if let Some((a, mask @ 1..)) = self.terms.beside(both)
                    && let from = mask.trailing_zeros()
                    && let bits = mask >> from
                    && bits & bits.wrapping_add(1) == 0 =>
            {
                let bits = self.bits_of(a, from, from + bits.count_ones());
                shifted(bits, from)
            }
            Term::Or([a, b]) | Term::Xor([a, b]) if self.is_apart(a, b) || self.is_apart(b, a) => {
                self.sum(a, self.weighed(b))
            }
            // In any order.
            Term::Or(_) => {
                let mut all = Vec::new();
                self.any_of(place, &mut all);
                all.sort_unstable();
                all.dedup();
                atom(hash(15, all.as_flattened()))
            }
            // All bits turned are −1 − x.
            Term::Xor(both) if let Some((a, u64::MAX)) = self.terms.beside(both) => {
                let (print, weight) = minus(self.weighed(a));
                (add(number(u64::MAX), print), weight)
            }
            Term::AnyBit(both) => {
                let beside = self.terms.beside(both);
                let (print, turned) = match beside {
                    Some((a, 1..)) if let Some(known) = self.words.get(&a) => *known,
                    Some((a, bit)) if let Some(a) = self.turned(a, bit) => {
                        (hash(8, &self.tested(a)), true)
                    }
                    _ => (hash(8, &self.tested(both)), false),
                };
                self.masks.insert(place, (print, turned));
                atom(hash(13, &[&print[..], &[u64::from(turned)]].concat()))
            }
            Term::Select([mask, _, clear]) if self.is_never(mask) => self.weighed(clear),
            Term::Select([mask, mut set, mut clear])
                if let Some(&(print, turned)) = self.masks.get(&mask) =>
            {
                match (self.constant(set), self.constant(clear)) {
                    (Some(u64::MAX), Some(0)) => {
                        return atom(self.word_of_mask(place, print, turned));
                    }
                    (Some(0), Some(u64::MAX)) => {
                        return atom(self.word_of_mask(place, print, !turned));
                    }
                    _ => {}
                }
                if turned {
                    (set, clear) = (clear, set);
                }
                // Both are masked, or the choice is masked.
                let masked = [set, clear].map(|part| self.terms.masked(self.terms.term(part)));
                if let [Some((a, to)), Some((b, end))] = masked
                    && to == end
                {
                    let most = self.most[a as usize].max(self.most[b as usize]);
                    let choice = chosen(print, self.weighed(a), self.weighed(b));
                    return bits(choice, choice.0, most, 0, [0, to]);
                }
                chosen(print, self.weighed(set), self.weighed(clear))
            }
            // Bit by bit of the index, as choices between words.
            Term::LookUp(table, index) => {
                let words = self.terms.tables[table as usize];
                let mut words = words.map(|word| (number(word), 0)).to_vec();
                for bit in 0..4 {
                    let mask = hash(8, &self.bits_of(index, bit, bit + 1).0);
                    let pairs = words.chunks(2);
                    words = pairs.map(|pair| chosen(mask, pair[1], pair[0])).collect();
                }
                words[0]
            }
            // All else is known by its parts alone.
            term => {
                let mut hasher = DefaultHasher::new();
                with(term, |_| 0).hash(&mut hasher);
                let parts: Vec<Print> = parts(term).into_iter().map(|part| self.of(part)).collect();
                atom(hash(hasher.finish(), parts.as_flattened()))
            }
        }
    }

    /// Of which numbers this is one bit turned round: bit − (x & bit).
    fn turned(&self, place: Place, bit: u64) -> Option<[Place; 2]> {
        match self.terms.term(place) {
            Term::Sub([one, of]) if bit.is_power_of_two() && self.terms.is(one, bit) => {
                match self.terms.term(of) {
                    Term::And(both) if self.terms.beside(both)?.1 == bit => Some(both),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether all bits that can be set in `a` are below those in `b`.
    fn is_apart(&self, a: Place, b: Place) -> bool {
        u64::BITS - self.most[a as usize].leading_zeros() <= self.zeros[b as usize]
    }

    /// The words any bit of which is in a word.
    fn any_of(&self, place: Place, all: &mut Vec<Print>) {
        match self.terms.term(place) {
            Term::Constant(0) => {}
            Term::Or(both) => both.iter().for_each(|&part| self.any_of(part, all)),
            Term::Xor([a, zero]) if self.terms.is(zero, 0) => self.any_of(a, all),
            _ => all.push(self.of(place)),
        }
    }

    /// Whether a mask asks for no bit.
    fn is_never(&self, mask: Place) -> bool {
        match self.terms.term(mask) {
            Term::AnyBit(both) => both.iter().any(|&part| self.terms.is(part, 0)),
            _ => false,
        }
    }

    /// Bits of a term: a mask and a shift may come in either order.
    fn bits_of(&self, mut of: Place, mut from: u32, mut to: u32) -> Weighed {
        loop {
            let term = self.terms.term(of);
            (of, from, to) = match (term, self.terms.masked(term)) {
                (Term::Right(a, count), _) => (a, from + count, (to + count).min(64)),
                (_, Some((a, count))) => (a, from, to.min(count)),
                _ => break,
            };
        }
        let low = match self.unmasked[of as usize] {
            (more, same) if to <= same => add(self.of(of), more),
            _ => self.of(of),
        };
        bits(
            self.weighed(of),
            low,
            self.most[of as usize],
            self.zeros[of as usize],
            [from, to],
        )
    }

    /// The difference between the fingerprint of a sum and of the same sum of unmasked inputs, and
    /// the number of low bits that both have in common.
    fn unmasked(&self, place: Place) -> (Print, u32) {
        let of = |place: Place| self.unmasked[place as usize];
        let term = self.terms.term(place);
        match (term, self.terms.masked(term)) {
            (Term::Add([a, b]), _) if self.of(a) == self.of(b) => (number(0), 64),
            (Term::Add([a, b]), _) => {
                let ((a, to), (b, end)) = (of(a), of(b));
                (add(a, b), to.min(end))
            }
            (Term::Sub([a, b]), _) => {
                let ((a, to), (b, end)) = (of(a), of(b));
                (add(a, b.map(u64::wrapping_neg)), to.min(end))
            }
            (Term::Low([acc, ..]) | Term::High([acc, ..]) | Term::Short([acc, ..]), _) => of(acc),
            // A mask that does nothing.
            (_, Some((a, count))) if self.most[a as usize] >> count.min(63) == 0 => of(a),
            (_, Some((a, count))) if matches!(self.terms.term(a), Term::Input(_)) => {
                let masked = self.of(place).map(u64::wrapping_neg);
                (add(self.of(a), masked), count)
            }
            _ => (number(0), 64),
        }
    }

    /// The condition that a mask tests: a bit, or common bits of both.
    fn tested(&self, both: [Place; 2]) -> Print {
        match self.terms.beside(both) {
            Some((a, bit)) if bit.is_power_of_two() => {
                let from = bit.trailing_zeros();
                self.bits_of(a, from, from + 1).0
            }
            Some((a, u64::MAX)) if let Term::And(both) = self.terms.term(a) => self.tested(both),
            _ => unordered(7, both.map(|part| self.of(part))),
        }
    }

    fn word_of_mask(&mut self, place: Place, mask: Print, turned: bool) -> Print {
        self.words.insert(place, (mask, turned));
        hash(12, &[&mask[..], &[u64::from(turned)]].concat())
    }
}
