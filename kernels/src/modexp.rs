//! Exponentiation with a fixed window, each lane its own base, exponent and modulus.

use crate::arena::Arena;
use crate::fault::{self, Point};
use crate::montgomery::{multiply, multiply_by_rows, square};
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
        self.start(s, digit);
        while digit > 0 {
            digit -= 1;
            for _ in 0..Self::WINDOW {
                square(s, self.spare, self.product, self.power, self.n, self.k0);
                core::mem::swap(&mut self.spare, &mut self.power);
            }
            self.multiply_by_entry(s, digit);
            core::mem::swap(&mut self.spare, &mut self.power);
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

    /// power = the entry that each lane's digit `digit` names.
    #[inline(never)]
    fn start(&mut self, s: S, digit: usize) {
        s.enter(
            #[inline(always)]
            || {
                let masks = digit_masks(s, self.exponent, Self::WINDOW, digit);
                for (limb, column) in self
                    .power
                    .iter_mut()
                    .zip(self.table.chunks_exact(Self::ENTRIES))
                {
                    *limb = entry(s, column, &masks, Self::WINDOW);
                }
            },
        );
    }

    /// spare = power · the entry that each lane's digit `digit` names.
    #[inline(never)]
    pub(crate) fn multiply_by_entry(&mut self, s: S, digit: usize) {
        s.enter(
            #[inline(always)]
            || {
                let masks = digit_masks(s, self.exponent, Self::WINDOW, digit);
                let table = &*self.table;
                assert!(table.len() == N << Self::WINDOW);
                let row = inlined(
                    #[inline(always)]
                    |i: usize| {
                        let column = &table[i << Self::WINDOW..(i + 1) << Self::WINDOW];
                        entry(s, column, &masks, Self::WINDOW)
                    },
                );
                multiply_by_rows(s, self.spare, self.power, row, self.n, self.k0);
            },
        );
    }
}

/// One mask for each bit of the exponent digits, lowest first.
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

/// The entry of `column` that the masks name, lane by lane; reads all entries.
///
/// A tree: each level halves the entries by one bit of the index.
#[inline(always)]
fn entry<S: Simd>(s: S, column: &[S::Limb], masks: &[S::Mask; 6], window: usize) -> S::Limb {
    let pair = inlined(
        #[inline(always)]
        |i: usize| s.select(masks[0], column[2 * i + 1], column[2 * i]),
    );
    let four = inlined(
        #[inline(always)]
        |i: usize| s.select(masks[1], pair(2 * i + 1), pair(2 * i)),
    );
    let eight = inlined(
        #[inline(always)]
        |i: usize| s.select(masks[2], four(2 * i + 1), four(2 * i)),
    );
    let sixteen = inlined(
        #[inline(always)]
        |i: usize| s.select(masks[3], eight(2 * i + 1), eight(2 * i)),
    );
    let thirty_two = inlined(
        #[inline(always)]
        |i: usize| s.select(masks[4], sixteen(2 * i + 1), sixteen(2 * i)),
    );
    match window {
        4 => sixteen(0),
        5 => thirty_two(0),
        6 => s.select(masks[5], thirty_two(1), thirty_two(0)),
        _ => unreachable!("windows have four to six bits"),
    }
}
