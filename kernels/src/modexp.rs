//! Exponentiation with a fixed window, each lane its own base, exponent and modulus.

use crate::arena::Arena;
use crate::fault::{self, Point};
use crate::montgomery::{BLOCK, Work, blocks_of_square, multiply, square, square_with};
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
    /// Powers 0 to 2^window − 1 of the base in pairs: limb i of power e at `2·(e/2·N + i) + e mod 2`.
    table: &'a mut [S::Limb],
}

/// The window that suits a half of about `bits` bits best; by measurement, see docs/measurements.
pub(crate) const fn window(bits: usize) -> usize {
    if bits < 1024 { 4 } else { 5 }
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
        self.square_and_choose(s, digit);
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
                take_entry::<S>(self.spare, self.table, e / 2);
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
        put_entry::<S>(self.table, e, from);
    }

    /// entry = the table entry that each lane's digit `digit` names.
    #[inline(never)]
    fn choose(&mut self, s: S, digit: usize) {
        s.enter(
            #[inline(always)]
            || {
                let digits = digits(s, self.exponent, Self::WINDOW, digit);
                let mut choice = Choice::<S, N>::new(s, self.table, digits, self.entry);
                for _ in 0..Choice::<S, N>::PIECES {
                    choice.begin(s);
                    for row in 0..BLOCK {
                        choice.row(s, row);
                    }
                }
            },
        );
    }

    /// power = power^(2^window), and entry = the table entry that digit `digit` names.
    fn square_and_choose(&mut self, s: S, digit: usize) {
        if !S::SHORT_CODE {
            return self.square_while_choosing(s, digit);
        }
        self.choose(s, digit);
        for _ in 0..Self::WINDOW {
            let (spare, power) = (&mut *self.spare, &*self.power);
            square(s, spare, self.doubled, power, self.n, self.k0);
            core::mem::swap(&mut self.spare, &mut self.power);
        }
    }

    /// [`square_and_choose`](Self::square_and_choose), both at the same time.
    #[inline(never)]
    fn square_while_choosing(&mut self, s: S, digit: usize) {
        s.enter(
            #[inline(always)]
            || {
                let digits = digits(s, self.exponent, Self::WINDOW, digit);
                let mut choice = Choice::<S, N>::new(s, self.table, digits, self.entry);
                for turn in 0..Self::WINDOW {
                    let (spare, power) = (&mut *self.spare, &*self.power);
                    if turn < Choice::<S, N>::SQUARES {
                        square_with(s, spare, self.doubled, power, self.n, self.k0, &mut choice);
                    } else {
                        square(s, spare, self.doubled, power, self.n, self.k0);
                    }
                    core::mem::swap(&mut self.spare, &mut self.power);
                }
            },
        );
    }
}

/// Where the first limb of power `e` is in a table of powers of `count` limbs; the others are in every second place.
fn place(e: usize, count: usize) -> usize {
    2 * (e / 2 * count) + e % 2
}

/// Writes power `e` to the table: one body for all lengths.
#[inline(never)]
fn put_entry<S: Simd>(table: &mut [S::Limb], e: usize, from: &[S::Limb]) {
    let mut at = place(e, from.len());
    for limb in from {
        table[at] = *limb;
        at += 2;
    }
}

/// Reads power `e` of the table, which is no secret: one body for all lengths.
#[inline(never)]
fn take_entry<S: Simd>(to: &mut [S::Limb], table: &[S::Limb], e: usize) {
    let mut at = place(e, to.len());
    for limb in to {
        *limb = table[at];
        at += 2;
    }
}

/// The digit `digit` of every lane's exponent.
#[inline(always)]
fn digits<S: Simd>(s: S, exponent: &[S::Limb], window: usize, digit: usize) -> S::Limb {
    let bit = window * digit;
    let word = s.shift_right_by(exponent[bit / 60], (bit % 60) as u32);
    s.and(word, s.splat((1 << window) - 1))
}

/// The choice of table entries, a block of limbs of two of them at a time: all are read.
///
/// Each bit of a limb starts as the lowest bit of the digit. Where the other bits of the digit name a pair
/// of entries it picks its own successor from one of the two: one operation for both.
struct Choice<'a, S: Simd, const N: usize> {
    table: &'a [[S::Limb; 2 * BLOCK]],
    /// The digits without their lowest bit.
    pair: S::Limb,
    entry: &'a mut [S::Limb; N],
    /// The piece at hand, or the last one again and again,
    piece: usize,
    /// and its place in the table.
    from: &'a [S::Limb; 2 * BLOCK],
    /// The next piece.
    next: usize,
    /// The lanes whose digit names the pair at hand; none when all pieces are done.
    here: S::Mask,
}

impl<'a, S: Simd, const N: usize> Choice<'a, S, N> {
    const WINDOW: usize = window(N * S::LIMB_BITS as usize);
    /// A piece is done beside a block of a squaring.
    const PIECES: usize = (N / BLOCK) << (Self::WINDOW - 1);
    /// The squarings of a window that have pieces done beside them; the others run without. By
    /// measurement: changing between two copies of the code may cost more than pieces done in vain.
    const SQUARES: usize = match N {
        30 => 4,
        _ => Self::WINDOW,
    };

    #[inline(always)]
    fn new(s: S, table: &'a [S::Limb], digits: S::Limb, entry: &'a mut [S::Limb; N]) -> Self {
        const { assert!(Self::PIECES <= Self::SQUARES * blocks_of_square(N / BLOCK)) };
        entry.fill(s.sub(s.zero(), s.and(digits, s.splat(1))));
        let table = table.as_chunks().0;
        Self {
            table,
            pair: s.halve(digits),
            entry,
            piece: 0,
            from: &table[0],
            next: 0,
            here: s.equal(digits, digits),
        }
    }
}

impl<S: Simd, const N: usize> Work<S> for Choice<'_, S, N> {
    #[inline(always)]
    fn begin(&mut self, s: S) {
        let pair = self.next / (N / BLOCK);
        // No digit names a pair beyond the last.
        self.here = s.equal(self.pair, s.splat(pair as u64));
        self.piece = self.next.min(Self::PIECES - 1);
        self.from = &self.table[self.piece];
        self.next += 1;
    }

    #[inline(always)]
    fn row(&mut self, s: S, row: usize) {
        let limb = &mut self.entry[self.piece % (N / BLOCK) * BLOCK + row];
        let [even, odd] = [self.from[2 * row], self.from[2 * row + 1]];
        *limb = s.choose_in(self.here, *limb, even, odd);
    }
}
