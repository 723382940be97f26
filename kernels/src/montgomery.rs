//! Almost-Montgomery arithmetic in every lane.
//!
//! Numbers have `N` limbs of 52 bits and R = 2^(52·N). Each lane has its own odd modulus n and k0 =
//! −1/n mod 2^52. Lanes whose products are not split ([`Simd::SPLIT`]) have twice as many limbs of
//! 26 bits, and so the same R; what differs there is under *Whole products*.
//!
//! # Bounds
//!
//! *Almost* Montgomery means that nobody subtracts n at the end. From a·b + m·n with m < R follows
//!
//! > result = (a·b + m·n)/R < a·b/R + n,
//!
//! so with R ≥ 2^8·n operands below 4n give a result below 16n²/R + n < 2n, and operands below R
//! and n give one below 2n too. The sizes used have 8, 16, 24 and 32 spare bits for halves and
//! twice as many for moduli ([`check_slack`]).
//!
//! A column sums at most 4·N products' halves below 2^52, a start value and a carry; for N ≤ 80
//! that is below 2^61 ([`check_columns`]). So nothing is normalised before a column retires.
//!
//! # Loose limbs
//!
//! A multiply reads the low 52 bits of its factors only. So results are left *loose*: bits 52 and
//! up of a limb hold what has already been carried into the next limb, and code that does more than
//! multiply with a result makes it [`tidy`] first. That saves an operation per limb.
//!
//! # Order of work
//!
//! Both products, a·b and m·n, are taken in square blocks of [`BLOCK`] limbs, one column of blocks
//! after the other (product scanning). A column of blocks spans 2·`BLOCK` columns of limbs, whose
//! sums stay in registers: with a row of one factor and a single limb of the other that is 31 of
//! the 32. A block costs 2·`BLOCK`² multiplies and 2·`BLOCK` loads, so that multiplies alone limit
//! it, and when a column of blocks is complete its lower half retires: into limbs of m, later into
//! the result.
//!
//! Four details matter as much, each measured (docs/lab/rsa-intel.md, rsa-zen5.md):
//!
//! * all low halves of a row come before its high halves, so that no multiply stands next to one
//!   whose sum it waits for: waiting instructions would fill the scheduler;
//! * the next limb of m comes before the bulk of the row that the last one allows, and where code
//!   is written out a reduction has the last product of its column beside it, row by row: a limb of
//!   m waits for the one before it for half as long as their rows take, and other work fills that
//!   time;
//! * a lower column starts at 2^52 − 1 rather than at zero. Reduction makes its low 52 bits vanish
//!   and carries ⌈sum/2^52⌉; with this start that is a mere shift, and the lowest product of each
//!   row of m·n need not be computed. m itself corrects for it: −(sum+1)/n = sum'·k0 + k0.
//!
//! # Whole products
//!
//! Without a multiply that splits products, a whole one goes into its lower column: 2·N products
//! below 2^52. Such a multiply reads 32 bits, so limbs are masked when a column retires rather than
//! left loose. A column that vanishes needs all of its product with m, since its carry is more than
//! a rounded quotient; so columns start at zero. And 2a needs no carries, as its limbs of 27 bits
//! may be factors.
//!
//! # Squares
//!
//! A square needs each mixed product twice. Rows are multiplied by 2a, carried from limb to limb
//! once before the start; see [`Square`].
//!
//! Source of the method: S. Gueron, V. Krasnov, "Software implementation of modular exponentiation,
//! using advanced vector instructions architectures" (2012) for the almost-Montgomery form; B.
//! Buhrow, B. Gilbert, C. Haider, "Parallel modular multiplication using 512-bit advanced vector
//! instructions" (2021) for scanning products in blocks. The order inside of the blocks is ours.

#[cfg(test)]
mod tests;

use crate::simd::{Simd, inlined, opaque, words_mut};
use crate::unroll::unroll;

/// Limbs on a side of a block.
pub(crate) const BLOCK: usize = 10;

type Block<S> = [<S as Simd>::Limb; BLOCK];

/// The spare bits that the bounds above need: R ≥ 2^8·n.
pub(crate) const fn check_slack(limbs: usize, modulus_bits: usize) {
    assert!(limbs * 52 >= modulus_bits + 8);
}

/// No column overflows 64 bits, and numbers are made of whole blocks.
const fn check_columns<S: Simd>(limbs: usize) {
    // Products or halves of them, each below 2^52.
    let terms = if S::SPLIT { 4 * limbs } else { 2 * limbs };
    assert!(terms + 2 < 1 << 9);
    assert!(S::LIMB_BITS <= if S::SPLIT { 52 } else { 26 });
    assert!(limbs > 0 && limbs.is_multiple_of(BLOCK));
}

#[inline(always)]
fn blocks<S: Simd>(limbs: &[S::Limb]) -> &[Block<S>] {
    limbs.as_chunks().0
}

#[inline(always)]
fn blocks_mut<S: Simd>(limbs: &mut [S::Limb]) -> &mut [Block<S>] {
    limbs.as_chunks_mut().0
}

/// The sums of the columns that a column of blocks spans.
struct Window<S: Simd> {
    sums: [S::Limb; 2 * BLOCK],
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
    fn add_product(&mut self, s: S, x: &Block<S>, y: &Block<S>) {
        if S::SHARES_BLOCKS {
            return self.add_product_shared(s, x, y);
        }
        self.add_product_here(s, x, y);
    }

    #[inline(never)]
    fn add_product_shared(&mut self, s: S, x: &Block<S>, y: &Block<S>) {
        s.enter(
            #[inline(always)]
            || self.add_product_here(s, x, y),
        );
    }

    #[inline(always)]
    fn add_product_here(&mut self, s: S, x: &Block<S>, y: &Block<S>) {
        let (x, y) = (opaque(x), *opaque(y));
        unroll!(S, row => {
            self.add_row(s, row, x[row], &y);
        });
        s.hold(&mut self.sums);
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

    /// [`add_product`](Self::add_product), after which the lower columns are complete, and
    /// [`retire`](Self::retire).
    #[inline(always)]
    fn add_product_and_retire(&mut self, s: S, x: &Block<S>, y: &Block<S>, result: &mut Block<S>) {
        if S::SHARES_BLOCKS {
            self.add_product(s, x, y);
            return self.retire(s, result);
        }
        let (x, y) = (opaque(x), *opaque(y));
        unroll!(S, row => {
            self.add_row(s, row, x[row], &y);
            result[row] = self.retire_column(s, row);
        });
        s.hold(&mut self.sums);
    }

    /// Adds the square of the block `a`; `doubled` is 2a as in [`Square`].
    #[inline(always)]
    fn add_square(&mut self, s: S, a: &Block<S>, doubled: &Block<S>) {
        if S::SHARES_BLOCKS {
            return self.add_square_shared(s, a, doubled);
        }
        self.add_square_here(s, a, doubled);
    }

    #[inline(never)]
    fn add_square_shared(&mut self, s: S, a: &Block<S>, doubled: &Block<S>) {
        s.enter(
            #[inline(always)]
            || self.add_square_here(s, a, doubled),
        );
    }

    #[inline(always)]
    fn add_square_here(&mut self, s: S, a: &Block<S>, doubled: &Block<S>) {
        let (a, doubled) = (opaque(a), *doubled);
        unroll!(S, row => {
            self.add_square_row(s, row, a, &doubled);
        });
        self.subtract_excess(s, a);
        s.hold(&mut self.sums);
    }

    /// Takes off what the next block will add too much: its 2a holds the bit that the last limb of
    /// this one carries, and meets that limb there.
    #[inline(always)]
    fn subtract_excess(&mut self, s: S, a: &Block<S>) {
        if !S::SPLIT {
            return;
        }
        let last = a[BLOCK - 1];
        let carries = s.any_bit(last, s.splat(1 << (S::LIMB_BITS - 1)));
        let excess = s.select(carries, s.low_bits(last), s.zero());
        self.sums[2 * BLOCK - 1] = s.sub(self.sums[2 * BLOCK - 1], excess);
    }

    #[inline(always)]
    fn add_square_row(&mut self, s: S, row: usize, a: &Block<S>, doubled: &Block<S>) {
        let x = a[row];
        // Next to the diagonal 2a comes without the bit that x itself carries.
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

    /// Chooses the limbs `m` that make the lower columns vanish, adds m·n for the lowest block of
    /// n, and carries into the upper columns.
    #[inline(always)]
    fn reduce(&mut self, s: S, n: &Block<S>, k0: &S::Limb, m: &mut Block<S>) {
        if S::SHARES_BLOCKS {
            return self.reduce_shared(s, n, k0, m);
        }
        self.reduce_here(s, n, k0, m);
    }

    #[inline(never)]
    fn reduce_shared(&mut self, s: S, n: &Block<S>, k0: &S::Limb, m: &mut Block<S>) {
        s.enter(
            #[inline(always)]
            || self.reduce_here(s, n, k0, m),
        );
    }

    #[inline(always)]
    fn reduce_here(&mut self, s: S, n: &Block<S>, k0: &S::Limb, m: &mut Block<S>) {
        let n = *opaque(n);
        m[0] = self.next_m(s, 0, k0);
        unroll!(S, row => {
            let next = self.reduce_row(s, row, m[row], [&n, &n], k0);
            if let Some(next) = next {
                m[row + 1] = next;
            }
        });
        s.hold(&mut self.sums);
    }

    /// [`reduce`](Self::reduce), row by row beside what `add` adds: its row `r` completes column
    /// `r`.
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
            // Rows of a product keep its other factor in registers, so that n is read from memory,
            // twice.
            let next = self.reduce_row(s, row, m[row], [opaque(n), opaque(n)], k0);
            if let Some(next) = next {
                m[row + 1] = next;
            }
        });
    }

    /// [`add_product`](Self::add_product) and [`reduce`](Self::reduce).
    #[inline(always)]
    fn add_product_and_reduce(
        &mut self,
        s: S,
        (x, y): (&Block<S>, &Block<S>),
        (n, k0): (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    ) {
        let (x, y) = (opaque(x), *opaque(y));
        let add_row = inlined(
            #[inline(always)]
            |window: &mut Self, row| window.add_row(s, row, x[row], &y),
        );
        self.reduce_beside(s, n, k0, m, add_row);
    }

    /// [`add_square`](Self::add_square) and [`reduce`](Self::reduce).
    #[inline(always)]
    fn add_square_and_reduce(
        &mut self,
        s: S,
        (a, doubled): (&Block<S>, &Block<S>),
        (n, k0): (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    ) {
        let (a, doubled) = (opaque(a), *doubled);
        let add_row = inlined(
            #[inline(always)]
            |window: &mut Self, row| {
                window.add_square_row(s, row, a, &doubled);
                if row + 1 == BLOCK {
                    window.subtract_excess(s, a);
                }
            },
        );
        self.reduce_beside(s, n, k0, m, add_row);
    }

    /// The limb of m that makes a complete column vanish.
    #[inline(always)]
    fn next_m(&self, s: S, column: usize, k0: &S::Limb) -> S::Limb {
        let k0 = *opaque(k0);
        if S::SPLIT {
            s.mul_lo(k0, self.sums[column], k0)
        } else {
            s.factor(s.mul_lo(s.zero(), self.sums[column], k0))
        }
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
        let carry = if S::SPLIT {
            s.mul_hi(s.carry(self.sums[row]), m, n[0])
        } else {
            s.carry(s.mul_lo(self.sums[row], m, n[0]))
        };
        self.low(s, row + 1, m, n[1]);
        self.sums[row + 1] = s.add(self.sums[row + 1], carry);
        let next = (row + 1 < BLOCK).then(
            #[inline(always)]
            || self.next_m(s, row + 1, k0),
        );
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

    /// The limb of a column that is complete; carries into the next one.
    #[inline(always)]
    fn retire_column(&mut self, s: S, column: usize) -> S::Limb {
        let sum = self.sums[column];
        self.sums[column + 1] = s.add(self.sums[column + 1], s.carry(sum));
        s.factor(sum)
    }

    /// The limbs of the lower columns, which are complete; carries into the upper ones.
    #[inline(always)]
    fn retire(&mut self, s: S, result: &mut Block<S>) {
        unroll!(S, column => {
            result[column] = self.retire_column(s, column);
        });
    }

    /// On to the next column of blocks, whose upper half starts at `start`.
    #[inline(always)]
    fn advance(&mut self, start: S::Limb) {
        unroll!(S, j => {
            self.sums[j] = self.sums[j + BLOCK];
            self.sums[j + BLOCK] = start;
        });
    }
}

/// What is reduced: a product, a block at a time.
trait Factors<S: Simd> {
    /// Comes before the first block of column `k` < `count`.
    fn prepare(&mut self, s: S, k: usize);

    /// Adds the blocks of column `k`.
    fn add(&self, s: S, window: &mut Window<S>, count: usize, k: usize);

    /// Adds the block of column 0, and reduces the column by n and k0.
    fn add_first_and_reduce(
        &self,
        s: S,
        window: &mut Window<S>,
        by: (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    );
}

/// a·b.
struct Product<'a, S: Simd> {
    a: &'a [Block<S>],
    b: &'a [Block<S>],
}

impl<S: Simd> Factors<S> for Product<'_, S> {
    #[inline(always)]
    fn prepare(&mut self, _s: S, _k: usize) {}

    #[inline(always)]
    fn add(&self, s: S, window: &mut Window<S>, count: usize, k: usize) {
        for i in (k + 1).saturating_sub(count)..count.min(k + 1) {
            window.add_product(s, &self.a[i], &self.b[k - i]);
        }
    }

    #[inline(always)]
    fn add_first_and_reduce(
        &self,
        s: S,
        window: &mut Window<S>,
        by: (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    ) {
        window.add_product_and_reduce(s, (&self.a[0], &self.b[0]), by, m);
    }
}

/// a².
///
/// `doubled` is 2a in limbs of 52 bits. Multiplied by limb i of a it stands for both mixed products
/// with the limbs above. Only what limb i itself carries into limb i + 1 of 2a must not meet limb i
/// again: blocks on the diagonal leave it out, or subtract it where another block has to add it.
struct Square<'a, S: Simd> {
    a: &'a [Block<S>],
    doubled: &'a mut [Block<S>],
}

impl<S: Simd> Factors<S> for Square<'_, S> {
    #[inline(always)]
    fn prepare(&mut self, s: S, k: usize) {
        let two = s.splat(2);
        let a = opaque(&self.a[k]);
        let doubled = &mut self.doubled[k];
        if !S::SPLIT {
            unroll!(S, j => {
                doubled[j] = s.add(a[j], a[j]);
            });
            return;
        }
        let below = if k == 0 {
            s.zero()
        } else {
            self.a[k - 1][BLOCK - 1]
        };
        unroll!(S, j => {
            let below = if j == 0 { below } else { a[j - 1] };
            doubled[j] = s.mul_hi(s.add(a[j], a[j]), below, two);
        });
    }

    #[inline(always)]
    fn add(&self, s: S, window: &mut Window<S>, count: usize, k: usize) {
        for i in (k + 1).saturating_sub(count)..k.div_ceil(2) {
            window.add_product(s, &self.a[i], &self.doubled[k - i]);
        }
        if k.is_multiple_of(2) {
            window.add_square(s, &self.a[k / 2], &self.doubled[k / 2]);
        }
    }

    #[inline(always)]
    fn add_first_and_reduce(
        &self,
        s: S,
        window: &mut Window<S>,
        by: (&Block<S>, &S::Limb),
        m: &mut Block<S>,
    ) {
        window.add_square_and_reduce(s, (&self.a[0], &self.doubled[0]), by, m);
    }
}

/// A Montgomery reduction on its way; limbs of m are kept where the result will be.
struct Reduction<'a, S: Simd, F> {
    factors: F,
    n: &'a [Block<S>],
    k0: &'a S::Limb,
    out: &'a mut [Block<S>],
    window: Window<S>,
}

impl<S: Simd, F: Factors<S>> Reduction<'_, S, F> {
    /// Column `k` < `count`.
    #[inline(always)]
    fn lower(&mut self, s: S, count: usize, k: usize) {
        self.factors.prepare(s, k);
        for i in 0..k {
            self.window.add_product(s, &self.out[i], &self.n[k - i]);
        }
        self.factors.add(s, &mut self.window, count, k);
        self.window.reduce(s, &self.n[0], self.k0, &mut self.out[k]);
        self.window.advance(start(s, count, k + 2));
    }

    /// [`lower`](Self::lower), with the last product beside the reduction.
    #[inline(always)]
    fn lower_written_out(&mut self, s: S, count: usize, k: usize) {
        let window = &mut self.window;
        let by = (&self.n[0], self.k0);
        self.factors.prepare(s, k);
        let (done, m) = self.out.split_at_mut(k);
        match done.split_last() {
            None => self.factors.add_first_and_reduce(s, window, by, &mut m[0]),
            Some((last, before)) => {
                for (i, m) in before.iter().enumerate() {
                    window.add_product(s, m, &self.n[k - i]);
                }
                self.factors.add(s, window, count, k);
                window.add_product_and_reduce(s, (last, &self.n[1]), by, &mut m[0]);
            }
        }
        window.advance(start(s, count, k + 2));
    }

    /// Column `k` ≥ `count`.
    #[inline(always)]
    fn upper(&mut self, s: S, count: usize, k: usize) {
        self.factors.add(s, &mut self.window, count, k);
        let first = k + 1 - count;
        for i in first + 1..count {
            self.window.add_product(s, &self.out[i], &self.n[k - i]);
        }
        let (result, m) = self.out.split_at_mut(first);
        let result = &mut result[first - 1];
        self.window
            .add_product_and_retire(s, &m[0], &self.n[count - 1], result);
        self.window.advance(s.zero());
    }

    /// All columns; `written_out`, a constant, as [`written_out`] has it.
    #[inline(always)]
    fn run(&mut self, s: S, written_out: bool) {
        let count = self.out.len();
        if written_out {
            // A loop would stay one.
            self.lower_written_out(s, count, 0);
            if count == 2 {
                self.lower_written_out(s, count, 1);
                self.upper(s, count, 2);
            }
        } else {
            for k in 0..count {
                self.lower(s, count, k);
            }
            for k in count..2 * count - 1 {
                self.upper(s, count, k);
            }
        }
        self.window.retire(s, &mut self.out[count - 1]);
    }
}

/// Whether a multiplication of so many limbs is written out, column of blocks by column of blocks.
/// All others share a loop: written out, longer ones would not fit into a cache.
const fn written_out<S: Simd>(limbs: usize) -> bool {
    limbs <= 2 * BLOCK && !S::SHORT_CODE
}

/// Where column of blocks `k` of `count` starts.
#[inline(always)]
fn start<S: Simd>(s: S, count: usize, k: usize) -> S::Limb {
    s.splat(if S::SPLIT && k < count {
        S::LIMB_MASK
    } else {
        0
    })
}

#[inline(always)]
fn reduce<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    factors: impl Factors<S>,
    n: &[S::Limb],
    k0: &S::Limb,
    written_out: bool,
) {
    let (out, n) = (blocks_mut::<S>(out), blocks::<S>(n));
    let count = out.len();
    let mut window = Window {
        sums: [start(s, count, 0); 2 * BLOCK],
    };
    window.sums[BLOCK..].fill(start(s, count, 1));
    Reduction {
        factors,
        n,
        k0,
        out,
        window,
    }
    .run(s, written_out);
}

/// out = a·b/R mod n.
///
/// Operands: values as under *Bounds* in the module documentation, limbs may be loose. Result:
/// below 2n for operands below 4n, loose.
#[inline(never)]
pub(crate) fn multiply<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    n: &[S::Limb; N],
    k0: &S::Limb,
) {
    const { check_columns::<S>(N) };
    if const { !written_out::<S>(N) } {
        return multiply_long(s, out, a, b, n, k0);
    }
    s.enter(
        #[inline(always)]
        || multiply_slices(s, out, a, b, n, k0, true),
    );
}

/// [`multiply`] for numbers of equal length, which was checked.
#[inline(never)]
fn multiply_long<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb],
    b: &[S::Limb],
    n: &[S::Limb],
    k0: &S::Limb,
) {
    s.enter(
        #[inline(always)]
        || multiply_slices(s, out, a, b, n, k0, false),
    );
}

#[inline(always)]
fn multiply_slices<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb],
    b: &[S::Limb],
    n: &[S::Limb],
    k0: &S::Limb,
    written_out: bool,
) {
    let factors = Product {
        a: blocks::<S>(a),
        b: blocks::<S>(b),
    };
    reduce(s, out, factors, n, k0, written_out);
}

/// out = a²/R mod n; `doubled` is working memory.
///
/// Operand and result as in [`multiply`].
#[inline(never)]
pub(crate) fn square<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    doubled: &mut [S::Limb; N],
    a: &[S::Limb; N],
    n: &[S::Limb; N],
    k0: &S::Limb,
) {
    const { check_columns::<S>(N) };
    if const { !written_out::<S>(N) } {
        return square_long(s, out, doubled, a, n, k0);
    }
    s.enter(
        #[inline(always)]
        || square_slices(s, out, doubled, a, n, k0, true),
    );
}

/// [`square`] for numbers of a length that was checked.
#[inline(never)]
fn square_long<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    doubled: &mut [S::Limb],
    a: &[S::Limb],
    n: &[S::Limb],
    k0: &S::Limb,
) {
    s.enter(
        #[inline(always)]
        || square_slices(s, out, doubled, a, n, k0, false),
    );
}

#[inline(always)]
fn square_slices<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    doubled: &mut [S::Limb],
    a: &[S::Limb],
    n: &[S::Limb],
    k0: &S::Limb,
    written_out: bool,
) {
    let factors = Square {
        a: blocks::<S>(a),
        doubled: blocks_mut::<S>(doubled),
    };
    reduce(s, out, factors, n, k0, written_out);
}

/// out = x·R mod n for x of twice as many limbs, tidy: below 4n, limbs below the radix. `roots` are
/// R² and R³ mod n.
pub(crate) fn enter_form<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    spare: &mut [S::Limb; N],
    x: &[S::Limb],
    roots: (&[S::Limb; N], &[S::Limb; N]),
    (n, k0): (&[S::Limb; N], &S::Limb),
) {
    // x = high·R + low; so that is high·R² + low·R, each below 2n.
    let (low, high) = x.split_first_chunk().expect("2·N limbs");
    let high = high.first_chunk().expect("2·N limbs");
    multiply(s, out, high, roots.1, n, k0);
    multiply(s, spare, low, roots.0, n, k0);
    s.enter(
        #[inline(always)]
        || {
            for i in 0..N {
                out[i] = s.add(s.low_bits(out[i]), s.low_bits(spare[i]));
            }
            normalise(s, out);
        },
    );
}

/// out = a/R mod n, fully reduced, for an `a` as [`multiply`] takes it.
pub(crate) fn leave_form<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    spare: &mut [S::Limb; N],
    a: &[S::Limb; N],
    (n, k0): (&[S::Limb; N], &S::Limb),
) {
    spare.fill(s.zero());
    words_mut(spare)[..S::LANES].fill(1);
    multiply(s, out, a, spare, n, k0);
    s.enter(
        #[inline(always)]
        || {
            tidy(s, out);
            canonical(s, out, spare, n);
        },
    );
}

/// out = a·b + c, `out` of 2·`N` limbs, tidy: for numbers that fit. `c` is tidy.
pub(crate) fn multiply_add<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    c: &[S::Limb; N],
) {
    const { check_columns::<S>(N) };
    assert!(out.len() == 2 * N);
    multiply_add_slices(s, out, a, b, c);
}

/// [`multiply_add`], one body for all lengths.
#[inline(never)]
fn multiply_add_slices<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb],
    b: &[S::Limb],
    c: &[S::Limb],
) {
    s.enter(
        #[inline(always)]
        || {
            let factors = Product {
                a: blocks::<S>(a),
                b: blocks::<S>(b),
            };
            let (count, c) = (factors.a.len(), blocks::<S>(c));
            let mut window = Window {
                sums: [s.zero(); 2 * BLOCK],
            };
            for (k, result) in blocks_mut::<S>(out).iter_mut().enumerate() {
                if k < count {
                    unroll!(S, j => {
                        window.sums[j] = s.add(window.sums[j], c[k][j]);
                    });
                }
                factors.add(s, &mut window, count, k);
                window.retire(s, result);
                window.advance(s.zero());
            }
            tidy(s, out);
        },
    );
}

/// Clears the bits above the radix in every limb: see *Loose limbs* in the module documentation.
#[inline(always)]
pub(crate) fn tidy<S: Simd>(s: S, limbs: &mut [S::Limb]) {
    for limb in limbs {
        *limb = s.low_bits(*limb);
    }
}

/// Propagates carries so that all limbs are below the radix. The value must fit.
#[inline(always)]
pub(crate) fn normalise<S: Simd>(s: S, limbs: &mut [S::Limb]) {
    let mut carry = s.zero();
    for limb in limbs {
        let sum = s.add(*limb, carry);
        *limb = s.low_bits(sum);
        carry = s.carry(sum);
    }
}

/// out = a + 2·n − b, limbs below the radix. The value must not be negative and must fit.
#[inline(always)]
pub(crate) fn subtract_mod<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    n: &[S::Limb; N],
) {
    // Every column lends 2 from the one above, so that it stays positive without signed shifts.
    let lend = s.splat(2 << S::LIMB_BITS);
    let repay = s.splat(2);
    let mut carry = repay;
    for i in 0..N {
        let sum = s.add(s.add(a[i], s.add(n[i], n[i])), lend);
        let sum = s.sub(s.sub(s.add(sum, carry), repay), b[i]);
        out[i] = s.low_bits(sum);
        carry = s.carry(sum);
    }
}

/// a ← a mod n for a < 2n, limbs below the radix. `difference` is working memory.
#[inline(always)]
pub(crate) fn canonical<S: Simd, const N: usize>(
    s: S,
    a: &mut [S::Limb; N],
    difference: &mut [S::Limb; N],
    n: &[S::Limb; N],
) {
    let one = s.splat(1);
    let lend = s.splat(1 << S::LIMB_BITS);
    // `carry` is 1 as long as nothing was borrowed.
    let mut carry = one;
    for i in 0..N {
        let sum = s.sub(s.add(s.add(a[i], lend), carry), s.add(n[i], one));
        difference[i] = s.low_bits(sum);
        carry = s.carry(sum);
    }
    let not_below = s.any_bit(carry, one);
    for i in 0..N {
        a[i] = s.select(not_below, difference[i], a[i]);
    }
}
