//! Exponentiation with a fixed window, each lane its own base, exponent and modulus.

use crate::arena::Arena;
use crate::fault::{self, Point};
use crate::montgomery::{BLOCK, each, multiply, square};
use crate::simd::{Simd, words_mut};

/// All that an exponentiation works on. Memory only; the caller fills the operands.
pub(crate) struct Power<'a, S: Simd, const N: usize> {
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
    /// The table entry chosen last.
    entry: &'a mut [S::Limb; N],
    pub(crate) doubled: &'a mut [S::Limb; N],
    /// Powers 0 to 2^window − 1 of the base, in the order in which [`choose`] reads them: see [`place`].
    table: &'a mut [S::Limb],
}

/// The window that suits a half of about `bits` bits best; by measurement, see docs/measurements. At 1,536 bits
/// a table of half the size fits into the first-level cache; at 2,048 neither does.
pub(crate) const fn window(bits: usize) -> usize {
    match bits / 512 {
        2 | 4 => 5,
        _ => 4,
    }
}

impl<'a, S: Simd, const N: usize> Power<'a, S, N> {
    pub(crate) const WINDOW: usize = window(N * S::LIMB_BITS as usize);
    const ENTRIES: usize = 1 << Self::WINDOW;

    /// Memory from `arena`.
    pub(crate) fn new(arena: &mut Arena<'a>, exponent_words: usize) -> Self {
        Self {
            n: arena.array(),
            k0: arena.one(),
            one: arena.array(),
            base: arena.array(),
            exponent: arena.slice(exponent_words),
            power: arena.array(),
            spare: arena.array(),
            entry: arena.array(),
            doubled: arena.array(),
            table: arena.slice(N << Self::WINDOW),
        }
    }

    /// power = base^exponent for exponents below 2^`bits`.
    ///
    /// The sequence of operations and addresses depends on `bits` only.
    pub(crate) fn run(&mut self, s: S, bits: usize) {
        self.fill_table(s);
        let mut digit = bits.div_ceil(Self::WINDOW) - 1;
        self.choose(s, digit);
        self.power.copy_from_slice(self.entry);
        while digit > 0 {
            digit -= 1;
            self.step(s, digit);
            if digit == 1 {
                fault::touch(
                    Point::Accumulator,
                    words_mut(self.power),
                    S::LANES,
                    S::LIMB_BITS,
                    fault::half_lane,
                );
            }
        }
    }

    /// power = power^(2^window) · base^digit for the exponents' digit `digit`.
    pub(crate) fn step(&mut self, s: S, digit: usize) {
        for _ in 0..Self::WINDOW {
            let (spare, power) = (&mut *self.spare, &*self.power);
            square(s, spare, self.doubled, power, self.n, self.k0);
            core::mem::swap(&mut self.spare, &mut self.power);
        }
        self.choose(s, digit);
        multiply(s, self.spare, self.power, self.entry, self.n, self.k0);
        core::mem::swap(&mut self.spare, &mut self.power);
    }

    /// Fills the table: even powers are squares, odd ones products.
    pub(crate) fn fill_table(&mut self, s: S) {
        self.put(0, true);
        self.power.copy_from_slice(self.base);
        self.put(1, false);
        for e in 2..Self::ENTRIES {
            if e % 2 == 0 {
                take_entry::<S>(self.spare, self.table, Self::WINDOW, e / 2);
                square(s, self.power, self.doubled, self.spare, self.n, self.k0);
            } else {
                multiply(s, self.spare, self.power, self.base, self.n, self.k0);
                core::mem::swap(&mut self.spare, &mut self.power);
            }
            self.put(e, false);
        }
    }

    /// Table entry `e` from `power`, or from `one`.
    fn put(&mut self, e: usize, one: bool) {
        let from: &[S::Limb; N] = if one { self.one } else { self.power };
        put_entry::<S>(self.table, Self::WINDOW, e, from);
    }

    /// entry = the table entry that each lane's digit `digit` names.
    fn choose(&mut self, s: S, digit: usize) {
        let bit = Self::WINDOW * digit;
        choose(s, self.entry, self.table, Self::WINDOW, self.exponent, bit);
    }
}

/// Where limb `i` of power `e` is in a table of 2^`window` powers: a block of limbs after the other, in each
/// one pair of powers after the other, and in each pair the two powers limb by limb.
fn place(e: usize, i: usize, window: usize) -> usize {
    let pairs = 1 << (window - 1);
    2 * ((i / BLOCK * pairs + e / 2) * BLOCK + i % BLOCK) + e % 2
}

/// Writes power `e` to the table: one body for all lengths.
#[inline(never)]
fn put_entry<S: Simd>(table: &mut [S::Limb], window: usize, e: usize, from: &[S::Limb]) {
    for (i, limb) in from.iter().enumerate() {
        table[place(e, i, window)] = *limb;
    }
}

/// Reads power `e` of the table, which is no secret: one body for all lengths.
#[inline(never)]
fn take_entry<S: Simd>(to: &mut [S::Limb], table: &[S::Limb], window: usize, e: usize) {
    for (i, limb) in to.iter_mut().enumerate() {
        *limb = table[place(e, i, window)];
    }
}

/// entry = the power that the `window` bits from `bit` on of each lane's exponent name. All of the table is
/// read, in the order in which it lies: one body for all lengths.
///
/// Each bit of a limb starts as the lowest bit of the digit. Where the other bits of the digit name a pair
/// of powers it picks its own successor from one of the two: one operation for both.
#[inline(never)]
fn choose<S: Simd>(
    s: S,
    entry: &mut [S::Limb],
    table: &[S::Limb],
    window: usize,
    exponent: &[S::Limb],
    bit: usize,
) {
    s.enter(
        #[inline(always)]
        || {
            let word = s.shift_right_by(exponent[bit / 60], (bit % 60) as u32);
            let digit = s.and(word, s.splat((1 << window) - 1));
            let pair = s.halve(digit);
            let lowest = s.sub(s.zero(), s.and(digit, s.splat(1)));
            let mut pieces = table.as_chunks::<{ 2 * BLOCK }>().0.iter();
            for block in entry.as_chunks_mut::<BLOCK>().0 {
                let mut limbs = [lowest; BLOCK];
                for (at, piece) in (0..1 << (window - 1)).zip(&mut pieces) {
                    let here = s.equal(pair, s.splat(at));
                    each!(S, i => {
                        limbs[i] = s.choose_in(here, limbs[i], piece[2 * i], piece[2 * i + 1]);
                    });
                }
                *block = limbs;
            }
        },
    );
}
