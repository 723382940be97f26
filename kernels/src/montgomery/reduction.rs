//! The columns of blocks of a product or a square, one after the other, reduced as soon as they are
//! complete.

use super::limbs::{BLOCK, Block, blocks, blocks_mut, mask_limbs};
use super::window::Window;
use crate::order::Order;
use crate::simd::{Simd, enter, opaque};
use crate::unroll::unroll;

/// A product to reduce, a block at a time.
trait Factors<S: Simd> {
    /// Whether [`add`](Self::add) may subtract more from a column than the column holds so far.
    const LENDS: bool = false;

    /// Prepares column `k` < `count` before its first block.
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
/// `doubled` is 2a in limbs of 52 bits. Limb i of a times `doubled` gives both mixed products with
/// the limbs above. But the bit that limb i carries into limb i + 1 of 2a must not be multiplied by
/// limb i again. Blocks on the diagonal leave this product out. Where another block adds it, the
/// block on the diagonal subtracts it.
pub(super) struct Square<'a, S: Simd> {
    a: &'a [Block<S>],
    doubled: &'a mut [Block<S>],
}

impl<S: Simd> Factors<S> for Square<'_, S> {
    const LENDS: bool = true;

    #[inline(always)]
    fn prepare(&mut self, s: S, k: usize) {
        let two = s.splat(2);
        let a = opaque(&self.a[k]);
        let doubled = &mut self.doubled[k];
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

/// A Montgomery reduction in progress; limbs of m are stored in the place of the result.
struct Reduction<'a, S: Simd, F> {
    factors: F,
    n: &'a [Block<S>],
    k0: &'a S::Limb,
    out: &'a mut [Block<S>],
    window: Window<S>,
}

impl<S: Simd, F: Factors<S>> Reduction<'_, S, F> {
    /// Returns whether the columns above those of m start as high as the columns of m. With the 1
    /// that [`lower`](Self::lower) adds, these start values are R² as a number, so the result is
    /// too large by R until its top limb is corrected. With two blocks only the lower block
    /// subtracts something, and from a column of m.
    #[inline(always)]
    fn lends(count: usize) -> bool {
        F::LENDS && count > 2
    }

    /// Computes column `k` < `count`.
    #[inline(always)]
    fn lower(&mut self, s: S, count: usize, k: usize) {
        self.factors.prepare(s, k);
        for i in 0..k {
            self.window.add_product(s, &self.out[i], &self.n[k - i]);
        }
        self.factors.add(s, &mut self.window, count, k);
        self.window.reduce(s, &self.n[0], self.k0, &mut self.out[k]);
        self.window.advance(self.start(s, count, k + 2));
        if Self::lends(count) && k + 2 == count {
            let lowest = &mut self.window.sums[BLOCK];
            *lowest = s.add(*lowest, s.splat(1));
        }
    }

    /// [`start`]; if columns lend, the columns above those of m have the same start value.
    #[inline(always)]
    fn start(&self, s: S, count: usize, k: usize) -> S::Limb {
        start(s, count, if Self::lends(count) { 0 } else { k })
    }

    /// [`lower`](Self::lower), with the last product beside the reduction.
    #[inline(always)]
    fn lower_beside(&mut self, s: S, count: usize, k: usize) {
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

    /// [`lower`](Self::lower) in the lanes' order of work.
    #[inline(always)]
    fn lower_written_out(&mut self, s: S, count: usize, k: usize) {
        if S::Order::BESIDE {
            self.lower_beside(s, count, k);
        } else {
            self.lower(s, count, k);
        }
    }

    /// Computes column `k` ≥ `count`.
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
        self.window.advance(self.start(s, count, count));
    }

    /// Computes all columns; `written_out` is the constant value of [`written_out`].
    #[inline(always)]
    fn reduce_columns(&mut self, s: S, written_out: bool) {
        let count = self.out.len();
        if written_out {
            // The compiler would not unroll a loop.
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
        if Self::lends(count) {
            let top = &mut self.out[count - 1][BLOCK - 1];
            *top = s.sub(*top, s.splat(1 << S::LIMB_BITS));
        }
    }
}

/// Returns whether a multiplication of `limbs` limbs is unrolled, column of blocks by column of
/// blocks. All longer ones share a loop, since unrolled they would not fit into a cache.
pub(super) const fn written_out<S: Simd>(limbs: usize) -> bool {
    limbs <= 2 * BLOCK && !S::SHORT_CODE
}

/// Returns the start value of column of blocks `k` of `count`.
#[inline(always)]
fn start<S: Simd>(s: S, count: usize, k: usize) -> S::Limb {
    s.splat(if k < count { S::LIMB_MASK } else { 0 })
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
    .reduce_columns(s, written_out);
}

/// Computes out = a·b/R mod n for numbers of equal length; see [`multiply`](super::multiply).
#[inline(always)]
pub(super) fn multiply_slices<S: Simd>(
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

/// Computes out = a²/R mod n for numbers of equal length; see [`square`](super::square).
#[inline(always)]
pub(super) fn square_slices<S: Simd>(
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

/// Computes out = a·b + c, masked. `out` is twice as long as the others. Compiled once for all
/// lengths.
#[inline(never)]
pub(super) fn multiply_add_slices<S: Simd>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb],
    b: &[S::Limb],
    c: &[S::Limb],
) {
    enter!(s, {
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
        mask_limbs(s, out);
    });
}
