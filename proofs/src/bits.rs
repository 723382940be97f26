//! Terms bit by bit, where some bits of inputs are known: the chosen entry, for each choice.
//!
//! A bit is zero, one, a bit of an input, or unknown. Masks, shifts, choices and comparisons of
//! known bits are exact. So a function that picks an entry of a table is tried for every index, and
//! each resulting bit must be the entry's, for every entry.

use std::collections::HashMap;

use lockstep_kernels::proved::{Place, Term, Terms};

use crate::ranges::MASK;
use crate::terms::{Look, parts};

/// A bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bit {
    Known(bool),
    /// Bit of an input.
    Of(u32, u8),
    Unknown,
}

/// A word's bits, from the lowest.
pub type Word = [Bit; 64];

const ZERO: Bit = Bit::Known(false);
const UNKNOWN: Word = [Bit::Unknown; 64];

/// A number.
pub fn known(value: u64) -> Word {
    std::array::from_fn(|i| Bit::Known(value >> i & 1 == 1))
}

/// The number that bits are, if all are known.
pub fn value(word: &[Bit]) -> Option<u64> {
    let mut bits = word.iter().rev();
    bits.try_fold(0, |value, bit| match bit {
        Bit::Known(bit) => Some(value << 1 | u64::from(*bit)),
        _ => None,
    })
}

/// The words of terms, with given words for the inputs.
pub struct Bits<'a> {
    terms: &'a Terms,
    input: &'a dyn Fn(u32) -> Word,
    words: HashMap<Place, Word>,
    depth: usize,
}

/// Depth below which terms are not looked at: their bits are unknown.
const DEEPEST: usize = 500;

impl<'a> Bits<'a> {
    pub fn new(terms: &'a Terms, input: &'a dyn Fn(u32) -> Word) -> Self {
        let words = HashMap::new();
        Self {
            terms,
            input,
            words,
            depth: 0,
        }
    }

    /// The bits of a term.
    pub fn of(&mut self, place: Place) -> Word {
        if let Some(word) = self.words.get(&place) {
            return *word;
        }
        if self.depth == DEEPEST {
            return UNKNOWN;
        }
        self.depth += 1;
        let word = self.computed(place);
        self.depth -= 1;
        self.words.insert(place, word);
        word
    }

    /// Follows choices whose conditions are known, to the chosen term.
    pub fn chosen(&mut self, mut place: Place) -> Place {
        while let Term::Select([mask, set, clear]) = self.terms.term(place)
            && let Bit::Known(bit) = self.of(mask)[0]
        {
            place = if bit { set } else { clear };
        }
        place
    }

    fn computed(&mut self, place: Place) -> Word {
        // A choice that is not taken may be unknown.
        let chosen = self.chosen(place);
        if chosen != place {
            return self.of(chosen);
        }
        let term = self.terms.term(place);
        let all: Vec<Word> = parts(term).into_iter().map(|part| self.of(part)).collect();
        let by_table = |table: i32| -> Word {
            let bit = |part: usize, i: usize| all.get(part).map_or(ZERO, |word| word[i]);
            std::array::from_fn(|i| by_table(table as u8, [0, 1, 2].map(|part| bit(part, i))))
        };
        let moved = |from: &dyn Fn(usize) -> Option<usize>| -> Word {
            std::array::from_fn(|i| from(i).map_or(ZERO, |i| all[0][i]))
        };
        let any = |word: Word, of_any: bool| match word.contains(&Bit::Known(true)) {
            true => [Bit::Known(of_any); 64],
            false if word == known(0) => [Bit::Known(!of_any); 64],
            false => UNKNOWN,
        };
        match term {
            Term::Constant(value) => known(value),
            Term::Input(input) => (self.input)(input),
            Term::And(_) => by_table(0x88),
            Term::Or(_) => by_table(0xee),
            Term::Xor(_) => by_table(0x66),
            Term::AnyBit(_) => any(by_table(0x88), true),
            Term::Equal(_) => any(by_table(0x66), false),
            // Here the first part is the highest bit of the index.
            Term::Ternary(table, _) => {
                let turned = |row: i32| (row & 1) << 2 | row & 2 | row >> 2;
                by_table((0..8).fold(0, |sum, row| sum | (table >> turned(row) & 1) << row))
            }
            Term::Right(_, count) => moved(&|i| Some(i + count as usize).filter(|&i| i < 64)),
            Term::Left(_, count) => moved(&|i| i.checked_sub(count as usize)),
            Term::Rotate(_, count) => moved(&|i| Some((i + count as usize) % 64)),
            Term::Add(_) => sum(&all[0], &all[1]),
            Term::Sub(_) => match (value(&all[0]), value(&all[1])) {
                (Some(a), Some(b)) => known(a.wrapping_sub(b)),
                _ => UNKNOWN,
            },
            // By a power of two, which is a shift of the low 52 bits.
            Term::Low(_) | Term::High(_) => match value(&all[2]).map(|times| times & MASK) {
                Some(times) if times.is_power_of_two() => {
                    let by = times.trailing_zeros() as usize;
                    let product: Word = match term {
                        Term::Low(_) => std::array::from_fn(|i| match (by..52).contains(&i) {
                            true => all[1][i - by],
                            false => ZERO,
                        }),
                        _ => std::array::from_fn(|i| match i < by {
                            true => all[1][i + 52 - by],
                            false => ZERO,
                        }),
                    };
                    sum(&all[0], &product)
                }
                _ => UNKNOWN,
            },
            // Only the low bits of the index count.
            Term::LookUp(table, _) => value(&all[0][..4]).map_or(UNKNOWN, |index| {
                known(self.terms.tables[table as usize][index as usize])
            }),
            Term::Select(_) | Term::Short(_) => UNKNOWN,
        }
    }
}

/// a + b, where both are known, or nothing carries because one of each two bits is zero.
fn sum(a: &Word, b: &Word) -> Word {
    if let (Some(a), Some(b)) = (value(a), value(b)) {
        return known(a.wrapping_add(b));
    }
    match a.iter().zip(b).all(|(a, b)| *a == ZERO || *b == ZERO) {
        true => std::array::from_fn(|i| if a[i] == ZERO { b[i] } else { a[i] }),
        false => UNKNOWN,
    }
}

/// Returns the bit that a table gives for these bits; the first is the lowest bit of the table's
/// index. If it is the same for all values of the unknown bits, it is that value, or one of the
/// bits.
fn by_table(table: u8, bits: [Bit; 3]) -> Bit {
    // The rows in which each of them is set.
    const SET: [u8; 3] = [0xaa, 0xcc, 0xf0];
    let mut rows = u8::MAX;
    for (i, bit) in bits.iter().enumerate() {
        match bit {
            Bit::Known(true) => rows &= SET[i],
            Bit::Known(false) => rows &= !SET[i],
            // An unknown one is equal to no other.
            Bit::Unknown => {}
            Bit::Of(..) => {
                let equal = (0..i).filter(|&j| bits[j] == *bit);
                rows = equal.fold(rows, |rows, j| rows & !(SET[i] ^ SET[j]));
            }
        }
    }
    match table & rows {
        0 => ZERO,
        set if set == rows => Bit::Known(true),
        set => {
            let same = (0..3).find(|&i| SET[i] & rows == set);
            same.map_or(Bit::Unknown, |i| bits[i])
        }
    }
}
