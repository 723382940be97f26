//! Exponentiation with a fixed window; each lane has its own base, exponent and modulus.

use crate::arena::Arena;
use crate::fault::{self, Point};
use crate::montgomery::{BLOCK, Modulus, canonical, mask_limbs, multiply, square};
use crate::simd::{Simd, enter};
use crate::unroll::unroll;

/// The memory of an exponentiation. The caller fills the operands.
pub(crate) struct Power<'a, S: Simd, const N: usize> {
    /// The request in the first two lanes; the next two lanes have the next one.
    pub(crate) first: usize,
    /// The moduli.
    pub(crate) n: &'a mut [S::Limb; N],
    /// −1/n mod 2^LIMB_BITS.
    pub(crate) k0: &'a mut S::Limb,
    /// R mod n.
    pub(crate) one: &'a mut [S::Limb; N],
    /// In: the base in Montgomery form, below 4n.
    pub(crate) base: &'a mut [S::Limb; N],
    /// The exponents in 60-bit words, lowest first.
    pub(crate) exponent: &'a mut [S::Limb],
    /// Out: the power in Montgomery form, below 2n, loose.
    pub(crate) power: &'a mut [S::Limb; N],
    pub(crate) spare: &'a mut [S::Limb; N],
    /// The table entry selected last.
    entry: &'a mut [S::Limb; N],
    pub(crate) doubled: &'a mut [S::Limb; N],
    /// Powers 0 to 2^`WINDOW` − 1 of the base: see [`store_entry`].
    table: &'a mut [S::Limb],
}

/// Number of bits of an exponent's digit, chosen by measurement (docs/lab/rsa.md). With 5 bits the
/// tables of long numbers do not fit into the first-level cache.
pub(crate) const WINDOW: usize = 4;

/// Number of pairs of powers in a table.
const PAIRS: usize = 1 << (WINDOW - 1);

impl<'a, S: Simd, const N: usize> Power<'a, S, N> {
    /// Number of 64-bit words of a number below n.
    pub(crate) const WORDS: usize = N * S::LIMB_BITS as usize / 64;

    /// Maximum number of exponentiations that take turns: see [`exponentiate`](Self::exponentiate).
    /// An operation on longer numbers keeps the multipliers busy alone, and two tables of longer
    /// numbers do not fit into the first-level cache.
    pub(crate) const PASSES: usize = if N <= BLOCK { 2 } else { 1 };

    pub(crate) fn new(arena: &mut Arena<'a>, first: usize, exponent_words: usize) -> Self {
        // Only whole chunks, and only as many as `for_chunk` has.
        const { assert!(N.is_multiple_of(BLOCK) && N <= 4 * BLOCK) };
        Self {
            first,
            n: arena.array(),
            k0: arena.one(),
            one: arena.array(),
            base: arena.array(),
            exponent: arena.slice(exponent_words),
            power: arena.array(),
            spare: arena.array(),
            entry: arena.array(),
            doubled: arena.array(),
            table: arena.slice(Self::WORDS << WINDOW),
        }
    }

    /// Computes power = base^exponent for exponents below 2^`bits`, of each of `powers`. They take
    /// turns, operation by operation: every operation needs the result of the one before, and
    /// meanwhile the CPU computes another power.
    ///
    /// The sequence of operations and addresses depends only on `bits` and the number of powers.
    pub(crate) fn exponentiate(powers: &mut [Self], s: S, bits: usize) {
        let mut digit = bits.div_ceil(WINDOW) - 1;
        Self::fill_tables(powers, s);
        for power in &mut *powers {
            fault::touch_pass::<S>(Point::Table, power.table, power.first);
            power.select_entry(s, digit);
            power.power.copy_from_slice(power.entry);
        }
        while digit > 0 {
            digit -= 1;
            Self::step(powers, s, digit);
            if digit == 1 {
                for power in &mut *powers {
                    fault::touch_pass::<S>(Point::Accumulator, power.power, power.first);
                }
            }
        }
    }

    /// Computes power = power^(2^`WINDOW`) · base^digit for the exponents' digit `digit`.
    pub(crate) fn step(powers: &mut [Self], s: S, digit: usize) {
        for _ in 0..WINDOW {
            for p in &mut *powers {
                square(s, p.spare, p.doubled, p.power, Modulus::new(p.n, p.k0));
                core::mem::swap(&mut p.spare, &mut p.power);
            }
        }
        for p in &mut *powers {
            p.select_entry(s, digit);
        }
        for p in powers {
            multiply(s, p.spare, p.power, p.entry, Modulus::new(p.n, p.k0));
            core::mem::swap(&mut p.spare, &mut p.power);
        }
    }

    pub(crate) fn fill_tables(powers: &mut [Self], s: S) {
        for p in &mut *powers {
            p.power.copy_from_slice(p.one);
            p.store_entry(s, 0);
        }
        for e in 1..1 << WINDOW {
            for p in &mut *powers {
                multiply(s, p.spare, p.power, p.base, Modulus::new(p.n, p.k0));
                core::mem::swap(&mut p.spare, &mut p.power);
            }
            for p in &mut *powers {
                p.store_entry(s, e);
            }
        }
    }

    /// Stores `power`, which is below 2n, as table entry `e`.
    #[inline(never)]
    fn store_entry(&mut self, s: S, e: usize) {
        enter!(s, {
            mask_limbs(s, self.power);
            canonical(s, self.power, self.spare, self.n);
        });
        store_entry(s, self.table, e, self.power);
    }

    /// Sets `entry` to the table entry of each lane's digit `digit`.
    fn select_entry(&mut self, s: S, digit: usize) {
        select_entry(s, self.entry, self.table, self.exponent, WINDOW * digit);
    }
}

/// Number of 64-bit words that are selected together. `BLOCK` limbs have eight bits more, so the
/// limbs of chunk c begin at bit 8·c of its words.
const CHUNK: usize = 8;

/// Calls `$function` with the number `$chunk` of a chunk as its const parameter, since shifts by
/// constants are faster.
macro_rules! for_chunk {
    ($chunk:expr, $function:ident($($argument:expr),*)) => {
        match $chunk {
            0 => $function::<S, 0>($($argument),*),
            1 => $function::<S, 1>($($argument),*),
            2 => $function::<S, 2>($($argument),*),
            _ => $function::<S, 3>($($argument),*),
        }
    };
}

/// Returns the word of chunk `chunk` in which a limb begins, and the bit.
#[inline(always)]
fn place_of_limb<S: Simd>(limb: usize, chunk: usize) -> (usize, u32) {
    let bit = limb * S::LIMB_BITS as usize + 8 * chunk;
    (bit / 64, (bit % 64) as u32)
}

/// Packs the limbs of a chunk into words that hold zero, or bits of the limbs below. The last word
/// belongs to the next chunk.
#[inline(always)]
fn pack<S: Simd, const AT: usize>(s: S, words: &mut [S::Limb; CHUNK + 1], limbs: &[S::Limb]) {
    unroll!(S, limb => {
        let bits = limbs[limb];
        let (word, shift) = place_of_limb::<S>(limb, AT);
        words[word] = s.xor(words[word], s.shift_left_by(bits, shift));
        if shift + S::LIMB_BITS > 64 {
            words[word + 1] = s.shift_right_by(bits, 64 - shift);
        }
    });
}

/// Unpacks the limbs, loose, of a chunk from its words. The last word is the first one of the next
/// chunk.
#[inline(always)]
fn unpack<S: Simd, const AT: usize>(s: S, limbs: &mut [S::Limb], words: &[S::Limb; CHUNK + 1]) {
    unroll!(S, limb => {
        let (word, shift) = place_of_limb::<S>(limb, AT);
        let mut bits = s.shift_right_by(words[word], shift);
        if shift + S::LIMB_BITS > 64 {
            bits = s.xor(bits, s.shift_left_by(words[word + 1], 64 - shift));
        }
        limbs[limb] = bits;
    });
}

/// A chunk of words of each pair of powers, word by word. A table has the highest chunk first.
type Pairs<S> = [[<S as Simd>::Limb; 2 * CHUNK]; PAIRS];

/// Writes power `e`, below n and masked, to a table; compiled once for all lengths.
#[inline(never)]
fn store_entry<S: Simd>(s: S, table: &mut [S::Limb], e: usize, power: &[S::Limb]) {
    enter!(s, {
        let table: &mut [Pairs<S>] = table.as_chunks_mut().0.as_chunks_mut().0;
        let mut words = [s.zero(); CHUNK + 1];
        let limbs = power.chunks_exact(BLOCK);
        for ((chunk, limbs), pairs) in limbs.enumerate().zip(table.iter_mut().rev()) {
            for_chunk!(chunk, pack(s, &mut words, limbs));
            unroll!(S, i in [0, 1, 2, 3, 4, 5, 6, 7] => {
                pairs[e / 2][2 * i + e % 2] = words[i];
            });
            let below = words[CHUNK];
            words.fill(s.zero());
            words[0] = below;
        }
    });
}

/// Selects, in each lane, the power for the `WINDOW` bits of the exponent from `bit` upwards. It
/// reads the whole table in the order of its addresses; compiled once for all lengths.
///
/// Each bit of a word starts as the lowest bit of the digit. At the pair of powers that the other
/// bits of the digit select, this bit picks its new value from one of the two powers. So one
/// operation selects both the pair and the power.
#[inline(never)]
fn select_entry<S: Simd>(
    s: S,
    power: &mut [S::Limb],
    table: &[S::Limb],
    exponent: &[S::Limb],
    bit: usize,
) {
    enter!(s, {
        let table: &[Pairs<S>] = table.as_chunks().0.as_chunks().0;
        let word = s.shift_right_by(exponent[bit / 60], (bit % 60) as u32);
        let digit = s.and(word, s.splat((1 << WINDOW) - 1));
        let pair = s.halve(digit);
        let lowest = s.spread(s.and(digit, s.splat(1)));
        let mut above = s.zero();
        let limbs = power.chunks_exact_mut(BLOCK);
        for ((chunk, limbs), pairs) in limbs.enumerate().rev().zip(table) {
            let mut words = [lowest; CHUNK + 1];
            for (at, both) in (0..).zip(pairs) {
                let here = s.equal(pair, s.splat(at));
                unroll!(S, i in [0, 1, 2, 3, 4, 5, 6, 7] => {
                    words[i] = s.choose_in(here, words[i], both[2 * i], both[2 * i + 1]);
                });
            }
            words[CHUNK] = above;
            above = words[0];
            for_chunk!(chunk, unpack(s, limbs, &words));
        }
    });
}
