//! Modular arithmetic with words of 64 bits in ordinary registers, one number at a time: for CPUs
//! whose lanes have no multiply for long limbs.
//!
//! # Numbers
//!
//! A number consists of [`Block`]s of eight words, the lowest first, and R = 2^(512·blocks). A
//! modulus has its top bit set. So there are no spare bits, and products are below R rather than
//! below n: from a, b < R and m < R follows
//!
//! > (a·b + m·n)/R < R + n,
//!
//! and if a bit overflows, n is subtracted once, which leaves less than R.
//!
//! # Order of work
//!
//! A product is computed completely and reduced afterwards, both in rows of blocks: a block of one
//! factor times the whole other factor, with the sums of eight columns in registers. In a square
//! each mixed product is computed once, and all are doubled while the squares of words are added.
//!
//! No row overflows: eight words, one more and the product of one by eight words are at most
//!
//! > 2^512 − 1 + 2^64 − 1 + (2^64 − 1)·(2^512 − 1) = 2^576 − 1.
//!
//! Sources: P. Montgomery, "Modular multiplication without trial division" (1985); E. Ozturk, J.
//! Guilford, V. Gopal, W. Feghali, "New instructions supporting large integer arithmetic on Intel
//! architecture processors" (2012) for two chains of carries at a time. The order of work is our
//! own.

#[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
mod adx;
mod multiplier;
mod plain;
#[cfg(test)]
mod tests;

#[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
pub(crate) use adx::Adx;
pub(crate) use multiplier::{BLOCK_BITS, Block, Multiplier};
pub(crate) use plain::Plain;

use crate::arena::Arena;
use crate::fault::{self, Point};
use crate::montgomery::negative_inverse;
use crate::simd::{inlined, opaque_word};
use crate::taint::whole;
use multiplier::add;

/// Computes product = product + a·b, which must fit. The blocks of `product` above those of b must
/// be zero before.
#[inline(never)]
pub(crate) fn multiply_add(m: impl Multiplier, product: &mut [Block], a: &[Block], b: &[Block]) {
    for (i, a) in a.iter().enumerate() {
        let (lower, upper) = product[i..].split_at_mut(b.len());
        m.multiply_add(lower, &mut upper[0], a, b);
    }
}

/// Arithmetic modulo n, with its memory. The caller sets the modulus.
pub(crate) struct Field<'a, M: Multiplier> {
    pub(crate) m: M,
    /// The modulus.
    pub(crate) n: &'a mut [Block],
    /// −1/n mod 2^64.
    pub(crate) k0: &'a mut u64,
    /// Number of bits by which a number in lanes is longer than n.
    excess: usize,
    product: &'a mut [Block],
    spare: &'a mut [Block],
    /// The modulus, or zero: see [`mask_modulus`](Self::mask_modulus).
    masked: &'a mut [Block],
}

impl<'a, M: Multiplier> Field<'a, M> {
    /// Returns the number of bytes that it takes from the arena, its pieces rounded up to cache
    /// lines.
    pub(crate) const fn bytes(blocks: usize) -> usize {
        (5 * blocks + 1) * size_of::<Block>()
    }

    /// Takes memory from `arena` for numbers of `blocks` blocks.
    pub(crate) fn new(m: M, arena: &mut Arena<'a>, blocks: usize) -> Self {
        Self {
            m,
            n: arena.slice(blocks),
            k0: arena.one(),
            excess: 0,
            product: arena.slice(2 * blocks),
            spare: arena.slice(blocks),
            masked: arena.slice(blocks),
        }
    }

    /// Sets the modulus from limbs of 52 bits, as lanes have it.
    pub(crate) fn set_modulus(&mut self, limbs: &[u64]) {
        repack(self.n.as_flattened_mut(), 64, limbs, 52);
        *self.k0 = negative_inverse(self.n[0][0]);
        self.excess = 52 * limbs.len() - BLOCK_BITS * self.n.len();
    }

    /// Computes a = a·b/R mod n, below R.
    #[inline(never)]
    pub(crate) fn multiply(&mut self, a: &mut [Block], b: &[Block]) {
        self.product.fill([0; 8]);
        multiply_add(self.m, self.product, a, b);
        self.reduce(a);
    }

    /// Computes a = a²/R mod n, below R.
    #[inline(never)]
    pub(crate) fn square(&mut self, a: &mut [Block]) {
        self.product.fill([0; 8]);
        for (i, block) in a.iter().enumerate() {
            // Row i ends below a block that no earlier row has reached.
            let (lower, upper) = self.product[2 * i..].split_at_mut(a.len() - i);
            let (diagonal, others) = lower.split_first_mut().expect("a block for each of a");
            self.m.triangle(diagonal, &mut upper[0], block);
            if !others.is_empty() {
                let above = &a[i + 1..];
                self.m.multiply_add(others, &mut upper[0], block, above);
            }
        }
        self.m.double(self.product, a);
        self.reduce(a);
    }

    /// Computes a = a/2^(times·excess) mod n, below 2n, for a number with `times` factors R of
    /// lanes.
    #[inline(never)]
    pub(crate) fn remove_excess(&mut self, a: &mut [Block], times: usize) {
        // Computes a·2^bit/R, where 2^bit is below n.
        let bit = BLOCK_BITS * a.len() - times * self.excess;
        self.spare.fill([0; 8]);
        self.spare.as_flattened_mut()[bit / 64] = 1 << (bit % 64);
        self.product.fill([0; 8]);
        multiply_add(self.m, self.product, a, self.spare);
        self.reduce(a);
    }

    /// Computes out = x·R mod n, below R, for an x of twice as many blocks; `r3` is R³ mod n.
    #[inline(never)]
    pub(crate) fn montgomery_form(&mut self, out: &mut [Block], x: &[Block], r3: &[Block]) {
        self.product.copy_from_slice(x);
        self.reduce(out);
        self.multiply(out, r3);
    }

    /// Computes a = a/R mod n, fully reduced.
    #[inline(never)]
    pub(crate) fn value(&mut self, a: &mut [Block]) {
        let (lower, upper) = self.product.split_at_mut(a.len());
        lower.copy_from_slice(a);
        upper.fill([0; 8]);
        // At most n, because the number divided by R is below R.
        self.reduce(a);
        self.canonical(a);
    }

    /// Computes out = product/R mod n, below R; overwrites the product.
    #[inline(never)]
    fn reduce(&mut self, out: &mut [Block]) {
        let mut carry = false;
        for rows in 0..self.n.len() {
            let part = &mut self.product[rows..=rows + self.n.len()];
            carry = self.m.reduce(part, self.n, *self.k0, carry);
        }
        self.mask_modulus(carry);
        subtract(out, &self.product[self.n.len()..], self.masked);
    }

    /// Computes masked = n if the condition holds, else 0. This step is apart from the subtraction,
    /// since `and` changes the flag that holds the borrow. `masked` is not on the stack, as n may
    /// be a prime of a key.
    fn mask_modulus(&mut self, condition: bool) {
        let mask = opaque_word(u64::from(condition).wrapping_neg());
        let words = self.masked.as_flattened_mut().iter_mut();
        for (masked, word) in words.zip(self.n.as_flattened()) {
            *masked = word & mask;
        }
    }

    /// Computes a = a mod n for a < 2n.
    #[inline(never)]
    pub(crate) fn canonical(&mut self, a: &mut [Block]) {
        self.spare.copy_from_slice(a);
        let is_below = subtract(a, self.spare, self.n);
        self.mask_modulus(!is_below);
        subtract(a, self.spare, self.masked);
    }

    /// Computes a = a − b mod n, for a and b below n.
    #[inline(never)]
    pub(crate) fn subtract(&mut self, a: &mut [Block], b: &[Block]) {
        self.spare.copy_from_slice(a);
        let is_negative = subtract(a, self.spare, b);
        self.mask_modulus(is_negative);
        let mut carry = false;
        for (a, n) in a.iter_mut().zip(&*self.masked) {
            carry = add(a, n, carry);
        }
    }
}

/// Computes out = a − b; returns whether that is negative.
#[inline(never)]
fn subtract(out: &mut [Block], a: &[Block], b: &[Block]) -> bool {
    let mut borrow = false;
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            let (difference, above) = whole(*a).overflowing_sub(whole(*b));
            let (difference, again) = difference.overflowing_sub(whole(u64::from(borrow)));
            (*out, borrow) = (difference, above | again);
        }
    }
    borrow
}

/// Converts words of `from_bits` bits to words of `to_bits` bits with the same number. Missing
/// words are zero.
#[inline(never)]
pub(crate) fn repack(to: &mut [u64], to_bits: u32, from: &[u64], from_bits: u32) {
    let mut from = from.iter();
    let (mut value, mut bits) = (0_u128, 0);
    for to in to {
        while bits < to_bits {
            value |= u128::from(from.next().copied().unwrap_or(0)) << bits;
            bits += from_bits;
        }
        *to = value as u64 & u64::MAX >> (64 - to_bits);
        value >>= to_bits;
        bits -= to_bits;
    }
}

/// Number of bits of an exponent's digit. The table of a number of 2048 bits has 8 KiB.
pub(crate) const WINDOW: usize = 5;

/// The memory of an exponentiation. The caller fills the operands.
pub(crate) struct Power<'a, M: Multiplier> {
    pub(crate) field: Field<'a, M>,
    /// In: the base in Montgomery form. Later, the table entry selected last.
    pub(crate) base: &'a mut [Block],
    /// The exponent in 60-bit words, the lowest first.
    pub(crate) exponent: &'a mut [u64],
    /// Powers 0 to 2^`WINDOW` − 1 of the base. In: the first of them, R mod n.
    pub(crate) table: &'a mut [Block],
}

impl<'a, M: Multiplier> Power<'a, M> {
    /// Returns the number of bytes that it takes from the arena, its pieces rounded up to cache
    /// lines.
    pub(crate) const fn bytes(blocks: usize, exponent_words: usize) -> usize {
        let numbers = (1 + (1 << WINDOW)) * blocks * size_of::<Block>();
        Field::<M>::bytes(blocks) + numbers + 8 * exponent_words + 64
    }

    /// Takes memory from `arena` for numbers of `blocks` blocks.
    pub(crate) fn new(m: M, arena: &mut Arena<'a>, blocks: usize, exponent_words: usize) -> Self {
        Self {
            field: Field::new(m, arena, blocks),
            base: arena.slice(blocks),
            exponent: arena.slice(exponent_words),
            table: arena.slice(blocks << WINDOW),
        }
    }

    /// Computes power = base^exponent mod n, fully reduced, for an exponent below 2^`bits`.
    ///
    /// The sequence of operations and addresses depends only on `bits` and the number of blocks.
    #[inline(never)]
    pub(crate) fn exponentiate(&mut self, power: &mut [Block], bits: usize, half: usize) {
        let field = &mut self.field;
        let count = power.len();
        power.copy_from_slice(&self.table[..count]);
        for e in 1..1 << WINDOW {
            field.multiply(power, self.base);
            self.table[e * count..][..count].copy_from_slice(power);
        }
        fault::touch_words(Point::Table, self.table.as_flattened_mut(), half);

        let mut digit = bits.div_ceil(WINDOW) - 1;
        select(field.m, power, self.table, self.exponent, digit);
        while digit > 0 {
            digit -= 1;
            for _ in 0..WINDOW {
                field.square(power);
            }
            select(field.m, self.base, self.table, self.exponent, digit);
            field.multiply(power, self.base);
            if digit == 1 {
                fault::touch_words(Point::Accumulator, power.as_flattened_mut(), half);
            }
        }
        field.value(power);
    }
}

/// Sets `entry` to the table entry for digit `digit` of the exponent. It reads the whole table.
#[inline(never)]
fn select<M: Multiplier>(
    m: M,
    entry: &mut [Block],
    table: &[Block],
    exponent: &[u64],
    digit: usize,
) {
    let bit = WINDOW * digit;
    let digit = exponent[bit / 60] >> (bit % 60) & ((1 << WINDOW) - 1);
    let count = entry.len();
    let (pairs, rest) = entry.as_chunks_mut::<2>();
    for (i, pair) in pairs.iter_mut().enumerate() {
        m.enter(inlined!(move || choose(
            pair,
            table[2 * i..].chunks(count),
            digit
        )));
    }
    if let [last] = rest {
        let last = core::array::from_mut(last);
        m.enter(inlined!(move || choose(
            last,
            table[count - 1..].chunks(count),
            digit
        )));
    }
}

/// Sets `chosen` to the first blocks of power number `digit`.
#[inline(always)]
fn choose<'a, const N: usize>(
    chosen: &mut [Block; N],
    powers: impl Iterator<Item = &'a [Block]>,
    digit: u64,
) {
    let mut sums = [[0; 8]; N];
    for (e, power) in (0..).zip(powers) {
        let power = power
            .first_chunk::<N>()
            .expect("as many blocks as an entry");
        // The top bit of x − 1 is set only for x = 0.
        let mask = opaque_word(((digit ^ e).wrapping_sub(1) >> 63).wrapping_neg());
        for (sum, word) in sums.as_flattened_mut().iter_mut().zip(power.as_flattened()) {
            *sum |= word & mask;
        }
    }
    *chosen = sums;
}
