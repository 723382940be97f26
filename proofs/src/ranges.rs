//! The least and the greatest value of every term, from the ranges of the inputs.
//!
//! A term stands for an integer, and its range is the range of that integer, without any reduction
//! modulo 2^64. A sum may be negative on its way, but nothing looks at the upper bits of a limb
//! that could be negative or above 2^64. So each term that anything but sums and multiplies reads
//! is that integer itself.

use lockstep_kernels::proved::{Place, Term, Terms};

use crate::terms::Look;

/// A limb with all its bits set.
pub const MASK: u64 = (1 << 52) - 1;

/// Where an integer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub least: i128,
    pub most: i128,
    /// The greatest value of its low 52 bits.
    pub low: u64,
}

impl Range {
    pub fn new(least: i128, most: i128) -> Self {
        let low = match least >= 0 && most <= i128::from(MASK) {
            true => most as u64,
            false => MASK,
        };
        Self { least, most, low }
    }

    pub fn is_word(self) -> bool {
        self.least >= 0 && self.most <= i128::from(u64::MAX)
    }

    /// The greatest value of bits `from` up to `to`.
    pub fn most_of(self, from: u32, to: u32) -> u128 {
        let bits = (1_u128 << (to - from)) - 1;
        let whole = match self.is_word() {
            true => (self.most as u128) >> from,
            false => bits,
        };
        let low = match to <= 52 {
            true => u128::from(self.low) >> from,
            false => bits,
        };
        bits.min(whole).min(low)
    }
}

/// The ranges of all terms.
pub fn ranges(terms: &Terms, inputs: &[Range]) -> Result<Vec<Range>, String> {
    let mut ranges: Vec<Range> = Vec::with_capacity(terms.list.len());
    for (place, term) in terms.list.iter().enumerate() {
        let of = |place: Place| ranges[place as usize];
        let fails = |why| Err(format!("term {place}: {why}"));
        let product = |a, b| u128::from(of(a).low) * u128::from(of(b).low);
        let word = |places: &[Place]| places.iter().all(|&place| of(place).is_word());
        let any = Range::new(0, i128::from(u64::MAX));
        let range = match *term {
            Term::Constant(value) => Range::new(i128::from(value), i128::from(value)),
            Term::Input(input) => inputs[input as usize],
            Term::Low([acc, a, b]) => plus(of(acc), product(a, b).min(u128::from(MASK))),
            Term::High([acc, a, b]) => plus(of(acc), product(a, b) >> 52),
            Term::Short([acc, a, b]) => {
                let (a, b) = (of(a), of(b));
                if !a.is_word() || !b.is_word() || a.most >> 32 != 0 || b.most >> 32 != 0 {
                    return fails("a factor of a short multiply may have more than 32 bits");
                }
                plus(of(acc), (a.most * b.most) as u128)
            }
            Term::Add([a, b]) => Range::new(of(a).least + of(b).least, of(a).most + of(b).most),
            Term::Sub([a, b]) => Range::new(of(a).least - of(b).most, of(a).most - of(b).least),
            // The low bits of the word equal the low bits of the integer, for each sign.
            Term::And(both) => match terms.masked(*term) {
                Some((a, count @ ..64)) => Range::new(0, of(a).most_of(0, count) as i128),
                Some((a, _)) if word(&[a]) => of(a),
                None if word(&both) => Range::new(0, of(both[0]).most.min(of(both[1]).most)),
                _ => return fails("a limb whose bits are read may be negative or too large"),
            },
            Term::Right(a, count) => match word(&[a]) {
                true => Range::new(of(a).least >> count, of(a).most >> count),
                false => return fails("a limb that carries may be negative or above 2^64"),
            },
            Term::Left(a, count) => {
                let times = |end: i128| end.saturating_mul(1 << count);
                Range::new(times(of(a).least), times(of(a).most))
            }
            Term::AnyBit([a, bits]) => {
                let bits = terms.constant(bits).filter(|bits| *bits <= MASK);
                let never = bits.is_some_and(|bits| of(a).low < bits & bits.wrapping_neg());
                Range::new(0, i128::from(!never))
            }
            Term::Select([mask, set, clear]) => match of(mask).most {
                0 => of(clear),
                _ => Range {
                    low: of(set).low.max(of(clear).low),
                    ..Range::new(
                        of(set).least.min(of(clear).least),
                        of(set).most.max(of(clear).most),
                    )
                },
            },
            Term::Or(both) | Term::Xor(both) if !word(&both) => {
                return fails("a limb whose bits are read may be negative or too large");
            }
            Term::Or([a, b]) | Term::Xor([a, b]) => {
                let bits = 128 - (of(a).most | of(b).most).leading_zeros();
                Range::new(0, ((1_u128 << bits) - 1) as i128)
            }
            Term::Equal(_) => Range::new(0, 1),
            Term::Ternary(..) | Term::Rotate(..) | Term::LookUp(..) => any,
        };
        // A word that is doubled again and again has no bounds, nor have the terms above it.
        let end = 1_i128 << 100;
        ranges.push(match range.least > -end && range.most < end {
            true => range,
            false => Range::new(-end * (1 << 20), end * (1 << 20)),
        });
    }
    Ok(ranges)
}

fn plus(acc: Range, most: u128) -> Range {
    Range::new(acc.least, acc.most + most as i128)
}
