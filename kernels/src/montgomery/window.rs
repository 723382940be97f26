//! The sums of the columns of limbs that a column of blocks spans, and the operations that form
//! and complete these sums.

use super::limbs::{BLOCK, Block};
use crate::order::Order;
use crate::simd::{Simd, inlined, opaque};
use crate::unroll::unroll;

/// The sums of the columns that a column of blocks spans.
pub(super) struct Window<S: Simd> {
    pub(super) sums: [S::Limb; 2 * BLOCK],
}

impl<S: Simd> Window<S> {
    /// sums[column] += the low half of x·y.
    #[inline(always)]
    fn low(&mut self, s: S, column: usize, x: S::Limb, y: S::Limb) {
        self.sums[column] = s.mul_lo(self.sums[column], x, y);
    }

    /// sums[column] += the high half of x·y.
    #[inline(always)]
    fn high(&mut self, s: S, column: usize, x: S::Limb, y: S::Limb) {
        self.sums[column] = s.mul_hi(self.sums[column], x, y);
    }

    /// Adds the product of two blocks.
    #[inline(always)]
    pub(super) fn add_product(&mut self, s: S, x: &Block<S>, y: &Block<S>) {
        let (x, y) = (opaque(x), *opaque(y));
        unroll!(S, row => {
            self.add_row(s, row, x[row], &y);
        });
        s.pin_registers(&mut self.sums);
    }

    /// Adds x·y, where x is limb `row` of its block.
    #[inline(always)]
    fn add_row(&mut self, s: S, row: usize, x: S::Limb, y: &Block<S>) {
        unroll!(S, j => {
            self.low(s, row + j, x, y[j]);
        });
        unroll!(S, j => {
            self.high(s, row + j + 1, x, y[j]);
        });
    }

    /// Adds the product of two blocks, after which the lower columns are complete, and retires them
    /// as [`retire`](Self::retire) does.
    #[inline(always)]
    pub(super) fn add_product_and_retire(
        &mut self,
        s: S,
        x: &Block<S>,
        y: &Block<S>,
        result: &mut Block<S>,
    ) {
        let (x, y) = (opaque(x), *opaque(y));
        unroll!(S, row => {
            self.add_row(s, row, x[row], &y);
            result[row] = self.retire_column(s, row);
        });
        s.pin_registers(&mut self.sums);
    }

    /// Adds the square of the block `a`; `doubled` is 2a as in
    /// [`Square`](super::reduction::Square).
    #[inline(always)]
    pub(super) fn add_square(&mut self, s: S, a: &Block<S>, doubled: &Block<S>) {
        // With `BESIDE`, 2a stays in registers between doubling and squaring.
        let doubled = *if S::Order::BESIDE {
            doubled
        } else {
            opaque(doubled)
        };
        let a = opaque(a);
        unroll!(S, row => {
            self.add_square_row(s, row, a, &doubled);
        });
        self.subtract_excess(s, a);
        s.pin_registers(&mut self.sums);
    }

    /// Subtracts an excess in advance. The next block of 2a holds the bit that the last limb of
    /// `a` carries, and the product of `a` and that block will multiply this bit by this limb.
    #[inline(always)]
    fn subtract_excess(&mut self, s: S, a: &Block<S>) {
        let last = a[BLOCK - 1];
        let carries = s.any_bit(last, s.splat(1 << (S::LIMB_BITS - 1)));
        let excess = s.select(carries, s.low_bits(last), s.zero());
        self.sums[2 * BLOCK - 1] = s.sub(self.sums[2 * BLOCK - 1], excess);
    }

    #[inline(always)]
    fn add_square_row(&mut self, s: S, row: usize, a: &Block<S>, doubled: &Block<S>) {
        let x = a[row];
        // Next to the diagonal, 2a is taken without the bit that x itself carries.
        let next = a[(row + 1) % BLOCK];
        let next = s.add(next, next);
        self.low(s, 2 * row, x, x);
        if row + 1 < BLOCK {
            self.low(s, 2 * row + 1, x, next);
        }
        unroll!(S, j => {
            if j >= row + 2 {
                self.low(s, row + j, x, doubled[j]);
            }
        });
        self.high(s, 2 * row + 1, x, x);
        if row + 1 < BLOCK {
            self.high(s, 2 * row + 2, x, next);
        }
        unroll!(S, j => {
            if j >= row + 2 {
                self.high(s, row + j + 1, x, doubled[j]);
            }
        });
    }

    /// Computes the limbs `m` that make the lower columns vanish, adds m·n for the lowest block of
    /// n, and carries into the upper columns.
    #[inline(always)]
    pub(super) fn reduce(&mut self, s: S, n: &Block<S>, k0: &S::Limb, m: &mut Block<S>) {
        let n = *opaque(n);
        m[0] = self.next_m(s, 0, k0);
        unroll!(S, row => {
            let next = self.reduce_row(s, row, m[row], [&n, &n], k0);
            if let Some(next) = next {
                m[row + 1] = next;
            }
        });
        s.pin_registers(&mut self.sums);
    }

    /// [`reduce`](Self::reduce), row by row beside the rows that `add` adds: row `r` of `add`
    /// completes column `r`.
    #[inline(always)]
    fn reduce_beside(
        &mut self,
        s: S,
        n: &Block<S>,
        k0: &S::Limb,
        m: &mut Block<S>,
        add: impl Fn(&mut Self, usize),
    ) {
        add(self, 0);
        m[0] = self.next_m(s, 0, k0);
        unroll!(S, row => {
            if row + 1 < BLOCK {
                add(self, row + 1);
            }
            // Rows of a product keep its other factor in registers. So n is read from memory,
            // twice.
            let next = self.reduce_row(s, row, m[row], [opaque(n), opaque(n)], k0);
            if let Some(next) = next {
                m[row + 1] = next;
            }
        });
    }

    /// [`add_product`](Self::add_product) and [`reduce`](Self::reduce).
    #[inline(always)]
    pub(super) fn add_product_and_reduce(
        &mut self,
        s: S,
        (x, y): (&Block<S>, &Block<S>),
        (n, k0): (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    ) {
        let (x, y) = (opaque(x), *opaque(y));
        let add_row = inlined!(|window: &mut Self, row| window.add_row(s, row, x[row], &y));
        self.reduce_beside(s, n, k0, m, add_row);
    }

    /// [`add_square`](Self::add_square) and [`reduce`](Self::reduce).
    #[inline(always)]
    pub(super) fn add_square_and_reduce(
        &mut self,
        s: S,
        (a, doubled): (&Block<S>, &Block<S>),
        (n, k0): (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    ) {
        let (a, doubled) = (opaque(a), *doubled);
        let add_row = inlined!(|window: &mut Self, row| {
            window.add_square_row(s, row, a, &doubled);
            if row + 1 == BLOCK {
                window.subtract_excess(s, a);
            }
        });
        self.reduce_beside(s, n, k0, m, add_row);
    }

    /// Returns the limb of m that makes a complete column vanish.
    #[inline(always)]
    fn next_m(&self, s: S, column: usize, k0: &S::Limb) -> S::Limb {
        let k0 = *opaque(k0);
        s.mul_lo(k0, self.sums[column], k0)
    }

    /// Adds m·n, where m is limb `row` of its block, and carries; n comes twice, for low and for
    /// high halves. Returns the next limb of m, if the block has one.
    #[inline(always)]
    fn reduce_row(
        &mut self,
        s: S,
        row: usize,
        m: S::Limb,
        [n, n_for_high]: [&Block<S>; 2],
        k0: &S::Limb,
    ) -> Option<S::Limb> {
        let carry = s.mul_hi(s.carry(self.sums[row]), m, n[0]);
        self.low(s, row + 1, m, n[1]);
        self.sums[row + 1] = s.add(self.sums[row + 1], carry);
        let next = (row + 1 < BLOCK).then(inlined!(|| self.next_m(s, row + 1, k0)));
        unroll!(S, j => {
            if j >= 2 {
                self.low(s, row + j, m, n[j]);
            }
        });
        unroll!(S, j => {
            if j >= 1 {
                self.high(s, row + j + 1, m, n_for_high[j]);
            }
        });
        next
    }

    /// Returns the limb of a complete column, and carries into the next one.
    #[inline(always)]
    fn retire_column(&mut self, s: S, column: usize) -> S::Limb {
        let sum = self.sums[column];
        self.sums[column + 1] = s.add(self.sums[column + 1], s.carry(sum));
        sum
    }

    /// Stores the limbs of the lower columns, which are complete, and carries into the upper ones.
    #[inline(always)]
    pub(super) fn retire(&mut self, s: S, result: &mut Block<S>) {
        unroll!(S, column => {
            result[column] = self.retire_column(s, column);
        });
    }

    /// Continues with the next column of blocks, whose upper half starts at `start`.
    #[inline(always)]
    pub(super) fn advance(&mut self, start: S::Limb) {
        unroll!(S, j => {
            self.sums[j] = self.sums[j + BLOCK];
            self.sums[j + BLOCK] = start;
        });
    }
}
