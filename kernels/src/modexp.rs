//! Exponentiation with a fixed window, each lane its own base, exponent and modulus.

use crate::arena::Arena;
use crate::fault::{self, Point};
use crate::montgomery::{Work, multiply, square, square_with};
use crate::simd::{Simd, inlined, words_mut};

/// All that an exponentiation works on. Memory only; the caller fills the operands.
pub(crate) struct Power<'a, S: Simd, const N: usize> {
    /// The moduli.
    pub(crate) n: &'a mut [S::Limb; N],
    /// −1/n mod 2^52.
    pub(crate) k0: &'a mut S::Limb,
    /// R mod n.
    pub(crate) one: &'a mut [S::Limb; N],
    /// In: the base in Montgomery form, below 4n.
    pub(crate) base: &'a mut [S::Limb; N],
    /// The exponents in 60-bit words, lowest first.
    pub(crate) exponent: &'a mut [S::Limb],
    /// Out: the power in Montgomery form, below 2n.
    pub(crate) power: &'a mut [S::Limb; N],
    pub(crate) spare: &'a mut [S::Limb; N],
    /// The table entry chosen last.
    entry: &'a mut [S::Limb; N],
    pub(crate) product: &'a mut [S::Limb],
    /// Powers 0 to 2^window − 1 of the base: limb i of power e at `i·2^window + e`.
    table: &'a mut [S::Limb],
}

/// The window that suits a half of `limbs` limbs best; by measurement, see docs/measurements.
pub(crate) const fn window(limbs: usize) -> usize {
    match limbs {
        10 => 4,
        _ => 5,
    }
}

impl<'a, S: Simd, const N: usize> Power<'a, S, N> {
    const WINDOW: usize = window(N);
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
            product: arena.slice(2 * N),
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
                for (limb, column) in self
                    .spare
                    .iter_mut()
                    .zip(self.table.chunks_exact(Self::ENTRIES))
                {
                    *limb = column[e / 2];
                }
                square(s, self.power, self.product, self.spare, self.n, self.k0);
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
        for (limb, column) in from.iter().zip(self.table.chunks_exact_mut(Self::ENTRIES)) {
            column[e] = *limb;
        }
    }

    /// entry = the table entry that each lane's digit `digit` names.
    #[inline(never)]
    fn choose(&mut self, s: S, digit: usize) {
        s.enter(
            #[inline(always)]
            || {
                let masks = digit_masks(s, self.exponent, Self::WINDOW, digit);
                let mut choice = Choice::<S, N>::new(self.table, masks, self.entry, 0, 1);
                for _ in 0..N {
                    choice.step(s);
                }
            },
        );
    }

    /// power = power^(2^window); meanwhile entry = the table entry that digit `digit` names.
    #[inline(never)]
    fn square_and_choose(&mut self, s: S, digit: usize) {
        s.enter(
            #[inline(always)]
            || {
                let masks = digit_masks(s, self.exponent, Self::WINDOW, digit);
                for part in 0..Self::WINDOW {
                    let (spare, power) = (&mut *self.spare, &*self.power);
                    let entry = &mut *self.entry;
                    let mut choice =
                        Choice::<S, N>::new(self.table, masks, entry, part, Self::WINDOW);
                    square_with(s, spare, self.product, power, self.n, self.k0, &mut choice);
                    debug_assert!(choice.next == choice.end);
                    core::mem::swap(&mut self.spare, &mut self.power);
                }
            },
        );
    }
}

/// One mask for each bit of an exponent digit of every lane, lowest first.
#[inline(always)]
fn digit_masks<S: Simd>(s: S, exponent: &[S::Limb], window: usize, digit: usize) -> [S::Mask; 6] {
    let bit = window * digit;
    let (word, shift) = (exponent[bit / 60], bit % 60);
    let mut masks = [s.any_bit(word, s.zero()); 6];
    for (k, mask) in masks.iter_mut().enumerate().take(window) {
        *mask = s.any_bit(word, s.splat(1 << (shift + k)));
    }
    masks
}

/// The choice of table entries, a limb at a time: all entries are read.
struct Choice<'a, S: Simd, const N: usize> {
    table: &'a [S::Limb],
    masks: [S::Mask; 6],
    entry: &'a mut [S::Limb; N],
    next: usize,
    end: usize,
}

impl<'a, S: Simd, const N: usize> Choice<'a, S, N> {
    const WINDOW: usize = window(N);

    /// The limbs of the `part`th of `parts` parts.
    #[inline(always)]
    fn new(
        table: &'a [S::Limb],
        masks: [S::Mask; 6],
        entry: &'a mut [S::Limb; N],
        part: usize,
        parts: usize,
    ) -> Self {
        assert!(table.len() == N << Self::WINDOW);
        Self {
            table,
            masks,
            entry,
            next: N * part / parts,
            end: N * (part + 1) / parts,
        }
    }

    /// One limb, by a tree: each level halves the entries by one bit of the digit.
    #[inline(always)]
    fn limb(&self, s: S, limb: usize) -> S::Limb {
        let column = &self.table[limb << Self::WINDOW..(limb + 1) << Self::WINDOW];
        let four = inlined(
            #[inline(always)]
            |i: usize| {
                let even = s.select(self.masks[0], column[4 * i + 1], column[4 * i]);
                let odd = s.select(self.masks[0], column[4 * i + 3], column[4 * i + 2]);
                s.select(self.masks[1], odd, even)
            },
        );
        let sixteen = inlined(
            #[inline(always)]
            |i: usize| {
                let even = s.select(self.masks[2], four(4 * i + 1), four(4 * i));
                let odd = s.select(self.masks[2], four(4 * i + 3), four(4 * i + 2));
                s.select(self.masks[3], odd, even)
            },
        );
        match Self::WINDOW {
            4 => sixteen(0),
            5 => s.select(self.masks[4], sixteen(1), sixteen(0)),
            6 => {
                let even = s.select(self.masks[4], sixteen(1), sixteen(0));
                let odd = s.select(self.masks[4], sixteen(3), sixteen(2));
                s.select(self.masks[5], odd, even)
            }
            _ => unreachable!("windows have four to six bits"),
        }
    }
}

impl<S: Simd, const N: usize> Work<S> for Choice<'_, S, N> {
    #[inline(always)]
    fn step(&mut self, s: S) {
        if self.next < self.end {
            self.entry[self.next] = self.limb(s, self.next);
            self.next += 1;
        }
    }
}
