//! Fingerprints of terms: two terms with the same fingerprint are the same function of the inputs.
//!
//! A fingerprint is three words. Those of inputs, products and bits are random, as a hash of their
//! parts; those of sums, differences and shifts to the left are sums modulo
//! 2^64. So the order of a sum does not matter, as a compiler chooses it. Two different terms have
//! the same fingerprint with a probability of about 2^−192 for each pair.

use std::cmp::Ordering;
use std::collections::HashMap;

use lockstep_kernels::proved::{Place, Term, Terms};

use crate::ranges::MASK;

pub type Print = [u64; 3];

/// A function of bits: what it reads, at most six things, and its table.
#[derive(Clone)]
struct Logic {
    reads: Vec<Print>,
    table: u64,
}

pub struct Prints<'a> {
    terms: &'a Terms,
    prints: Vec<Print>,
    /// What no term is above, whatever the inputs: a compiler knows as much.
    most: Vec<u64>,
    logic: HashMap<Place, Logic>,
    /// Masks, and words that are all ones in the lanes of one; whether they are turned round.
    masks: HashMap<Place, (Print, bool)>,
    words: HashMap<Place, (Print, bool)>,
}

/// The fingerprints of terms, with those of their inputs.
pub fn prints(terms: &Terms, input: &dyn Fn(u32) -> Print) -> Vec<Print> {
    let mut all = Prints {
        terms,
        prints: Vec::with_capacity(terms.list.len()),
        most: Vec::with_capacity(terms.list.len()),
        logic: HashMap::new(),
        masks: HashMap::new(),
        words: HashMap::new(),
    };
    for place in 0..terms.list.len() as Place {
        let print = all.print(place, input);
        all.prints.push(print);
        all.most.push(all.most_of(place));
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

fn add(a: Print, b: Print) -> Print {
    std::array::from_fn(|i| a[i].wrapping_add(b[i]))
}

impl Prints<'_> {
    fn constant(&self, place: Place) -> Option<u64> {
        match self.terms.list[place as usize] {
            Term::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn of(&self, place: Place) -> Print {
        self.prints[place as usize]
    }

    /// What a multiply reads of a factor.
    fn read(&self, place: Place, mask: u64) -> Print {
        if let Term::And(both) = self.terms.list[place as usize] {
            for [a, b] in [both, [both[1], both[0]]] {
                if self.constant(b).is_some_and(|b| b & mask == mask) {
                    return self.read(a, mask);
                }
            }
        }
        self.of(place).map(|word| word & mask)
    }

    fn most_of(&self, place: Place) -> u64 {
        let of = |place: Place| self.most[place as usize];
        match self.terms.list[place as usize] {
            Term::Constant(value) => value,
            Term::Low([acc, ..]) | Term::High([acc, ..]) => of(acc).saturating_add(MASK),
            Term::Add([a, b]) => of(a).saturating_add(of(b)),
            Term::Short([acc, a, b]) => {
                let half = (1 << 32) - 1;
                of(acc).saturating_add(of(a).min(half) * of(b).min(half))
            }
            Term::And([a, b]) => of(a).min(of(b)),
            Term::Right(a, count) => of(a) >> count,
            _ => u64::MAX,
        }
    }

    fn product(&self, kind: u64, [acc, a, b]: [Place; 3], mask: u64) -> Print {
        if let (Some(a), Some(b)) = (self.constant(a), self.constant(b)) {
            let product = u128::from(a & mask) * u128::from(b & mask);
            let part = match kind {
                1 => product as u64 & MASK,
                2 => (product >> 52) as u64,
                _ => product as u64,
            };
            return add(self.of(acc), number(part));
        }
        if [a, b]
            .iter()
            .any(|&factor| self.constant(factor).is_some_and(|c| c & mask == 0))
        {
            return self.of(acc);
        }
        for (a, b) in [(a, b), (b, a)] {
            if let (3, Some(times), true) = (kind, self.constant(b), self.most[a as usize] <= mask)
            {
                let product = self.of(a).map(|word| word.wrapping_mul(times & mask));
                return add(self.of(acc), product);
            }
        }
        let mut factors = [self.read(a, mask), self.read(b, mask)];
        factors.sort_unstable();
        add(self.of(acc), hash(kind, &factors.concat()))
    }

    fn print(&mut self, place: Place, input: &dyn Fn(u32) -> Print) -> Print {
        match self.terms.list[place as usize] {
            Term::Constant(value) => number(value),
            Term::Input(i) => input(i),
            Term::Low(places) => self.product(1, places, MASK),
            Term::High(places) => self.product(2, places, MASK),
            Term::Short(places) => self.product(3, places, (1 << 32) - 1),
            Term::Add([a, b]) => add(self.of(a), self.of(b)),
            Term::Sub([a, b]) => add(self.of(a), self.of(b).map(u64::wrapping_neg)),
            Term::Left(a, count) => self.of(a).map(|word| word << count),
            Term::Right(..) => self.bits(place),
            Term::Rotate(a, count) => self.shifted(5, a, count),
            Term::And(both) => {
                for [a, b] in [both, [both[1], both[0]]] {
                    match self.constant(b) {
                        Some(u64::MAX) => return self.of(a),
                        Some(mask) if mask & mask.wrapping_add(1) == 0 => {
                            return self.bits(place);
                        }
                        Some(mask) => {
                            if let Term::Left(a, count) = self.terms.list[a as usize]
                                && mask.trailing_zeros() >= count
                                && (mask >> count) & (mask >> count).wrapping_add(1) == 0
                            {
                                let bits = self.bits_of(a, 0, (mask >> count).count_ones());
                                return bits.map(|word| word << count);
                            }
                        }
                        None => {}
                    }
                }
                self.logic(place, 0x8, &both)
            }
            Term::Or(both) => self.logic(place, 0xe, &both),
            Term::Xor(both) => {
                for [a, b] in [both, [both[1], both[0]]] {
                    if let (Some((mask, turned)), Some(u64::MAX)) =
                        (self.words.get(&a).copied(), self.constant(b))
                    {
                        return self.word_of_mask(place, mask, !turned);
                    }
                }
                self.logic(place, 0x6, &both)
            }
            Term::Ternary(table, [a, b, c]) => self.logic(place, table as u64, &[c, b, a]),
            Term::AnyBit(both) => {
                for [a, b] in [both, [both[1], both[0]]] {
                    if let (Some(known), Some(1..)) = (self.words.get(&a), self.constant(b)) {
                        self.masks.insert(place, *known);
                        return known.0;
                    }
                }
                let [a, b] = both;
                let read = match (self.constant(a), self.constant(b)) {
                    (Some(u64::MAX), _) => self.of(b),
                    (_, Some(u64::MAX)) => self.of(a),
                    _ => {
                        let mut read = [self.of(a), self.of(b)];
                        read.sort_unstable();
                        hash(7, &read.concat())
                    }
                };
                self.mask(place, hash(8, &read), false)
            }
            Term::Equal([a, b]) => match (self.constant(a), self.constant(b)) {
                (_, Some(0)) => {
                    let read = match self.terms.list[a as usize] {
                        // As a mask has it.
                        Term::And([x, y]) => {
                            let mut read = [self.of(x), self.of(y)];
                            read.sort_unstable();
                            hash(7, &read.concat())
                        }
                        _ => self.of(a),
                    };
                    self.mask(place, hash(8, &read), true)
                }
                _ => {
                    let mut read = [self.of(a), self.of(b)];
                    read.sort_unstable();
                    self.mask(place, hash(9, &read.concat()), true)
                }
            },
            Term::Select([mask, mut set, mut clear]) => {
                let Some(&(print, turned)) = self.masks.get(&mask) else {
                    let words = [self.of(mask), self.of(set), self.of(clear)].concat();
                    return hash(10, &words);
                };
                match (self.constant(set), self.constant(clear)) {
                    (Some(u64::MAX), Some(0)) => return self.word_of_mask(place, print, turned),
                    (Some(0), Some(u64::MAX)) => return self.word_of_mask(place, print, !turned),
                    _ => {}
                }
                if turned {
                    (set, clear) = (clear, set);
                }
                // clear + mask·(set − clear), in which the sign may stand before the product.
                let clear = self.of(clear);
                let more = add(self.of(set), clear.map(u64::wrapping_neg));
                let less = more.map(u64::wrapping_neg);
                let product = match more.cmp(&less) {
                    Ordering::Less => hash(10, &[print, more].concat()),
                    Ordering::Equal => return clear,
                    Ordering::Greater => hash(10, &[print, less].concat()).map(u64::wrapping_neg),
                };
                add(clear, product)
            }
            Term::LookUp(table, index) => {
                let index = self.of(index).map(|word| word & 15);
                hash(
                    11,
                    &[&self.terms.tables[table as usize][..], &index].concat(),
                )
            }
        }
    }

    /// Bits of a term: a mask and a shift may come in either order.
    fn bits(&self, place: Place) -> Print {
        self.bits_of(place, 0, 64)
    }

    fn bits_of(&self, mut of: Place, mut from: u32, mut to: u32) -> Print {
        loop {
            match self.terms.list[of as usize] {
                Term::Right(a, count) => {
                    (of, from, to) = (a, from + count, (to + count).min(64));
                }
                Term::And([a, b]) => {
                    let low = |mask: &u64| mask & mask.wrapping_add(1) == 0;
                    let (a, mask) =
                        match (self.constant(a).filter(low), self.constant(b).filter(low)) {
                            (_, Some(mask)) => (a, mask),
                            (Some(mask), None) => (b, mask),
                            _ => break,
                        };
                    (of, to) = (a, to.min(mask.count_ones()));
                }
                _ => break,
            }
        }
        let length = 64 - self.most[of as usize].leading_zeros();
        match (from, to) {
            _ if from >= to.min(length) => number(0),
            (0, to) if length <= to => self.of(of),
            (from, to) if length <= to => hash(4, &[&self.of(of)[..], &[u64::from(from)]].concat()),
            (from, to) => {
                let read = self.of(of).map(|word| word & ((1 << to) - 1));
                hash(6, &[&read[..], &[u64::from(from), u64::from(to)]].concat())
            }
        }
    }

    fn shifted(&self, kind: u64, place: Place, count: u32) -> Print {
        hash(kind, &[&self.of(place)[..], &[u64::from(count)]].concat())
    }

    fn mask(&mut self, place: Place, print: Print, turned: bool) -> Print {
        self.masks.insert(place, (print, turned));
        print
    }

    fn word_of_mask(&mut self, place: Place, mask: Print, turned: bool) -> Print {
        self.words.insert(place, (mask, turned));
        hash(12, &[&mask[..], &[u64::from(turned)]].concat())
    }

    /// A function of bits of two or three terms, the first of which is the lowest bit of its table.
    fn logic(&mut self, place: Place, table: u64, places: &[Place]) -> Print {
        let parts: Vec<Logic> = places.iter().map(|&place| self.reads(place)).collect();
        let mut reads: Vec<Print> = parts.iter().flat_map(|part| part.reads.clone()).collect();
        reads.sort_unstable();
        reads.dedup();
        let parts = match reads.len() {
            0..=6 => parts,
            _ => {
                let whole: Vec<Logic> = places.iter().map(|&place| self.whole(place)).collect();
                reads = whole.iter().flat_map(|part| part.reads.clone()).collect();
                reads.sort_unstable();
                reads.dedup();
                whole
            }
        };
        let mut combined = 0_u64;
        for row in 0..1_u64 << reads.len() {
            let mut index = 0;
            for (at, part) in parts.iter().enumerate() {
                let mut inner = 0;
                for (bit, read) in part.reads.iter().enumerate() {
                    let from = reads
                        .iter()
                        .position(|other| other == read)
                        .expect("a read");
                    inner |= (row >> from & 1) << bit;
                }
                index |= (part.table >> inner & 1) << at;
            }
            combined |= (table >> index & 1) << row;
        }
        let mut logic = Logic {
            reads,
            table: combined,
        };
        logic.drop_unread();
        let print = match (&logic.reads[..], logic.table) {
            ([], 0) => number(0),
            ([], _) => number(u64::MAX),
            ([one], 2) => *one,
            (reads, table) => hash(13, &[&reads.concat()[..], &[table]].concat()),
        };
        self.logic.insert(place, logic);
        print
    }

    fn whole(&self, place: Place) -> Logic {
        Logic {
            reads: vec![self.of(place)],
            table: 2,
        }
    }

    fn reads(&self, place: Place) -> Logic {
        match self.constant(place) {
            Some(0) => Logic {
                reads: Vec::new(),
                table: 0,
            },
            Some(u64::MAX) => Logic {
                reads: Vec::new(),
                table: 1,
            },
            _ => self
                .logic
                .get(&place)
                .cloned()
                .unwrap_or_else(|| self.whole(place)),
        }
    }
}

impl Logic {
    /// Forgets what the table does not depend on.
    fn drop_unread(&mut self) {
        let mut at = 0;
        while at < self.reads.len() {
            let rows = 1_u64 << (self.reads.len() - 1);
            let row = |row: u64, bit: u64| {
                let low = row & ((1 << at) - 1);
                let full = low | bit << at | (row >> at) << (at + 1);
                self.table >> full & 1
            };
            if (0..rows).all(|i| row(i, 0) == row(i, 1)) {
                self.table = (0..rows).fold(0, |table, i| table | row(i, 0) << i);
                self.reads.remove(at);
            } else {
                at += 1;
            }
        }
    }
}
