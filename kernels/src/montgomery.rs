//! Almost-Montgomery arithmetic in every lane.
//!
//! Numbers have `N` limbs of 52 bits and R = 2^(52·N). Each lane has its own odd modulus n and
//! k0 = −1/n mod 2^52.
//!
//! # Bounds
//!
//! *Almost* Montgomery means that nobody subtracts n at the end. From a·b + m·n with m < R follows
//!
//! > result = (a·b + m·n)/R < a·b/R + n,
//!
//! so with R ≥ 2^8·n operands below 4n give a result below 16n²/R + n < 2n, and operands below R and
//! n give one below 2n too. The sizes used have 8, 16, 24 and 32 spare bits for halves and twice as
//! many for moduli ([`check_slack`]).
//!
//! A column sums at most 4·N products' halves below 2^52 and a carry; for N ≤ 80 that is below
//! 2^61 ([`check_columns`]). So nothing is normalised before a column retires.
//!
//! # Order of work
//!
//! Accumulators do not fit into registers for N > 20, so rows are taken [`ROWS`] at a time: one sweep
//! over the columns adds `ROWS` rows of a·b and `ROWS` rows of m·n, 4·`ROWS` multiplies for three loads
//! and a store. The columns that decide the next rows' m come first in a sweep and the m chain
//! starts at once, so that it is over before the sweep is: the core overlaps both. Carries are
//! propagated in the last sweep, behind the multiplies.
//!
//! Source of the method: S. Gueron, V. Krasnov, "Software implementation of modular exponentiation,
//! using advanced vector instructions architectures" (2012) for the almost-Montgomery form; the
//! blocking is ours.

use crate::simd::{Simd, inlined, opaque};

/// Rows of a multiplication taken in one sweep.
const ROWS: usize = 2;

/// The spare bits that the bounds above need: R ≥ 2^8·n.
pub(crate) const fn check_slack(limbs: usize, modulus_bits: usize) {
    assert!(limbs * 52 >= modulus_bits + 8);
}

/// No column overflows 64 bits, and rows come in whole blocks.
const fn check_columns(limbs: usize) {
    assert!(4 * limbs + 1 <= 1 << 12);
    assert!(limbs % ROWS == 0 && limbs >= 2 * ROWS);
}

/// Where the columns of a multiplication or reduction live between sweeps.
trait Columns<S: Simd> {
    /// Column `c` of the rows of `block`, as the rows before left it.
    fn load(&self, s: S, block: usize, c: usize) -> S::Limb;
    /// Puts it back.
    fn store(&mut self, block: usize, c: usize, value: S::Limb);
    /// Stores limb `i` of the result.
    fn finish(&mut self, i: usize, value: S::Limb);
}

/// Columns of a multiplication: the window of `N` columns slides down by `ROWS` with each block, in
/// the result's own memory. Columns above the window are still empty.
struct Sliding<'a, S: Simd, const N: usize> {
    window: &'a mut [S::Limb; N],
}

impl<S: Simd, const N: usize> Columns<S> for Sliding<'_, S, N> {
    #[inline(always)]
    fn load(&self, s: S, _block: usize, c: usize) -> S::Limb {
        if c < N { self.window[c] } else { s.zero() }
    }

    #[inline(always)]
    fn store(&mut self, _block: usize, c: usize, value: S::Limb) {
        self.window[c - ROWS] = value;
    }

    #[inline(always)]
    fn finish(&mut self, i: usize, value: S::Limb) {
        self.window[i] = value;
    }
}

/// Columns of a reduction: the product's 2·`N` columns, in place.
struct InPlace<'a, S: Simd, const N: usize> {
    product: &'a mut [S::Limb],
    result: &'a mut [S::Limb; N],
}

impl<S: Simd, const N: usize> Columns<S> for InPlace<'_, S, N> {
    #[inline(always)]
    fn load(&self, _s: S, block: usize, c: usize) -> S::Limb {
        debug_assert!(ROWS * block + c < 2 * N);
        // SAFETY: `reduce` asserts 2·N columns; block < N/ROWS and c < N + ROWS.
        unsafe { *self.product.get_unchecked(ROWS * block + c) }
    }

    #[inline(always)]
    fn store(&mut self, block: usize, c: usize, value: S::Limb) {
        debug_assert!(ROWS * block + c < 2 * N);
        // SAFETY: as in `load`.
        unsafe { *self.product.get_unchecked_mut(ROWS * block + c) = value }
    }

    #[inline(always)]
    fn finish(&mut self, i: usize, value: S::Limb) {
        self.result[i] = value;
    }
}

/// One factor x of a sweep, and the rows it is multiplied by.
struct Term<S: Simd> {
    rows: [S::Limb; ROWS],
    /// x[c], x[c−1], … for the column c last taken.
    window: [S::Limb; ROWS + 1],
}

impl<S: Simd> Term<S> {
    /// Ready for column `ROWS`.
    #[inline(always)]
    fn new<const N: usize>(s: S, x: &[S::Limb; N], rows: [S::Limb; ROWS]) -> Self {
        let mut window = [s.zero(); ROWS + 1];
        for i in 0..ROWS {
            window[i] = x[ROWS - 1 - i];
        }
        Self { rows, window }
    }

    /// Moves on to the next column, whose limb is `x`, and adds its products to `sum`.
    #[inline(always)]
    fn column(&mut self, s: S, mut sum: S::Limb, x: S::Limb) -> S::Limb {
        for r in (0..ROWS).rev() {
            self.window[r + 1] = self.window[r];
        }
        self.window[0] = x;
        for r in 0..ROWS {
            sum = s.mul_lo(sum, self.window[r], self.rows[r]);
            sum = s.mul_hi(sum, self.window[r + 1], self.rows[r]);
        }
        sum
    }

    /// Adds the products of column N + `t`; the window stays at column N − 1.
    #[inline(always)]
    fn tail(&self, s: S, mut sum: S::Limb, t: usize) -> S::Limb {
        for r in t..ROWS {
            if r > t {
                sum = s.mul_lo(sum, self.window[r - t - 1], self.rows[r]);
            }
            sum = s.mul_hi(sum, self.window[r - t], self.rows[r]);
        }
        sum
    }
}

/// The reduction rows m of a block and the carry into its column `ROWS`.
struct Head<S: Simd> {
    m: [S::Limb; ROWS],
    carry: S::Limb,
}

/// Completes columns 0 to `ROWS` of a block and makes them vanish modulo 2^52 by choosing m.
///
/// `sums` are the columns as earlier rows left them; `a` is multiplied by `rows` where there is one.
#[inline(always)]
fn head<S: Simd, const N: usize>(
    s: S,
    sums: [S::Limb; ROWS],
    a: Option<(&[S::Limb; N], &[S::Limb; ROWS])>,
    n: &[S::Limb; N],
    k0: S::Limb,
) -> Head<S> {
    let mut m = [s.zero(); ROWS];
    let mut carry = s.zero();
    for c in 0..ROWS {
        let mut sum = sums[c];
        if let Some((a, rows)) = a {
            for r in 0..=c {
                sum = s.mul_lo(sum, a[c - r], rows[r]);
            }
            for r in 0..c {
                sum = s.mul_hi(sum, a[c - 1 - r], rows[r]);
            }
        }
        for r in 0..c {
            sum = s.mul_lo(sum, n[c - r], m[r]);
            sum = s.mul_hi(sum, n[c - 1 - r], m[r]);
        }
        sum = s.add(sum, carry);
        m[c] = s.mul_lo(s.zero(), sum, k0);
        carry = s.carry(s.mul_lo(sum, n[0], m[c]));
    }
    Head { m, carry }
}

/// All rows of a Montgomery multiplication (`a` given) or reduction (`a` absent).
#[inline(always)]
fn rows<S: Simd, const N: usize>(
    s: S,
    mut columns: impl Columns<S>,
    a: Option<&[S::Limb; N]>,
    row: impl Fn(usize) -> S::Limb,
    n: &[S::Limb; N],
    k0: S::Limb,
) {
    const { check_columns(N) };
    let block_rows = |block: usize| -> [S::Limb; ROWS] {
        core::array::from_fn(
            #[inline(always)]
            |r| {
                if a.is_some() {
                    row(ROWS * block + r)
                } else {
                    s.zero()
                }
            },
        )
    };

    let mut b = block_rows(0);
    let first = core::array::from_fn(
        #[inline(always)]
        |c| columns.load(s, 0, c),
    );
    let mut head_now = head(s, first, a.map(|a| (a, &b)), n, k0);

    for block in 0..N / ROWS - 1 {
        let (n, a) = (opaque(n), a.map(opaque));
        let mut nm = Term::<S>::new(s, n, head_now.m);
        let mut ab = a.map(|a| Term::<S>::new(s, a, b));

        // The columns that decide the next rows' m come first.
        let mut sums = [s.zero(); ROWS];
        for (i, sum) in sums.iter_mut().enumerate() {
            let c = ROWS + i;
            *sum = columns.load(s, block, c);
            if i == 0 {
                *sum = s.add(*sum, head_now.carry);
            }
            if let (Some(ab), Some(a)) = (&mut ab, a) {
                *sum = ab.column(s, *sum, a[c]);
            }
            *sum = nm.column(s, *sum, n[c]);
        }
        b = block_rows(block + 1);
        head_now = head(s, sums, a.map(|a| (a, &b)), n, k0);

        let mut column = inlined(
            #[inline(always)]
            |c: usize| {
                let mut sum = columns.load(s, block, c);
                if let (Some(ab), Some(a)) = (&mut ab, a) {
                    sum = ab.column(s, sum, a[c]);
                }
                sum = nm.column(s, sum, n[c]);
                columns.store(block, c, sum);
            },
        );
        unrolled::<8>(2 * ROWS, N, &mut column);

        for t in 0..ROWS {
            let mut sum = columns.load(s, block, N + t);
            if let Some(ab) = &ab {
                sum = ab.tail(s, sum, t);
            }
            sum = nm.tail(s, sum, t);
            columns.store(block, N + t, sum);
        }
    }

    // The last rows: columns retire for good, so carries go along.
    let block = N / ROWS - 1;
    let (n, a) = (opaque(n), a.map(opaque));
    let mut nm = Term::<S>::new(s, n, head_now.m);
    let mut ab = a.map(|a| Term::<S>::new(s, a, b));
    let mut carry = head_now.carry;
    let mut column = inlined(
        #[inline(always)]
        |c: usize| {
            let mut sum = columns.load(s, block, c);
            if let (Some(ab), Some(a)) = (&mut ab, a) {
                sum = ab.column(s, sum, a[c]);
            }
            sum = nm.column(s, sum, n[c]);
            sum = s.add(sum, carry);
            columns.finish(c - ROWS, s.low_bits(sum));
            carry = s.carry(sum);
        },
    );
    unrolled::<8>(ROWS, N, &mut column);
    for t in 0..ROWS {
        let mut sum = columns.load(s, block, N + t);
        if let Some(ab) = &ab {
            sum = ab.tail(s, sum, t);
        }
        sum = nm.tail(s, sum, t);
        sum = s.add(sum, carry);
        columns.finish(N - ROWS + t, s.low_bits(sum));
        carry = s.carry(sum);
    }
}

/// Calls `body` for `from..to`, `U` calls to a turn of the loop.
#[inline(always)]
fn unrolled<const U: usize>(from: usize, to: usize, body: &mut impl FnMut(usize)) {
    let odd = (to - from) % U;
    for c in from..from + odd {
        body(c);
    }
    let mut c = from + odd;
    while c < to {
        for u in 0..U {
            body(c + u);
        }
        c += U;
    }
}

/// out = a·b/R mod n.
///
/// Operands: limbs below 2^52, values as under *Bounds* in the module documentation. Result: below
/// 2n for operands below 4n, limbs below 2^52.
#[inline(never)]
pub(crate) fn multiply<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    n: &[S::Limb; N],
    k0: &S::Limb,
) {
    s.enter(
        #[inline(always)]
        || {
            let row = inlined(
                #[inline(always)]
                |i: usize| b[i],
            );
            multiply_by_rows(s, out, a, row, n, k0);
        },
    );
}

/// out = a·b/R mod n, where `row(i)` is limb i of b, asked for once, in ascending order.
///
/// Operands and result as in [`multiply`].
#[inline(always)]
pub(crate) fn multiply_by_rows<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    a: &[S::Limb; N],
    row: impl Fn(usize) -> S::Limb,
    n: &[S::Limb; N],
    k0: &S::Limb,
) {
    out.fill(s.zero());
    rows(s, Sliding { window: out }, Some(a), row, n, *k0);
}

/// out = a²/R mod n; `product` is working memory of 2·`N` limbs.
///
/// Operand and result as in [`multiply`].
#[inline(never)]
pub(crate) fn square<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    product: &mut [S::Limb],
    a: &[S::Limb; N],
    n: &[S::Limb; N],
    k0: &S::Limb,
) {
    s.enter(
        #[inline(always)]
        || {
            square_columns(s, product, a);
            reduce(s, out, product, n, k0);
        },
    );
}

/// out = t/R mod n for the 2·`N` columns t, which are used up.
#[inline(always)]
fn reduce<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    product: &mut [S::Limb],
    n: &[S::Limb; N],
    k0: &S::Limb,
) {
    assert!(product.len() == 2 * N);
    let columns = InPlace {
        product,
        result: out,
    };
    let none = inlined(
        #[inline(always)]
        |_: usize| s.zero(),
    );
    rows(s, columns, None, none, n, *k0);
}

/// The 2·`N` columns of a²: N² + N multiplies.
///
/// Two rows x = a[i] and y = a[i+1] at a time are multiplied by the limbs above them; when a column has
/// seen its last row it is doubled and the square on the diagonal is added.
#[inline(always)]
pub(crate) fn square_columns<S: Simd, const N: usize>(s: S, t: &mut [S::Limb], a: &[S::Limb; N]) {
    const { check_columns(N) };
    assert!(t.len() == 2 * N);
    for column in &mut t[..N] {
        *column = s.zero();
    }
    let double = inlined(
        #[inline(always)]
        |v: S::Limb| s.add(v, v),
    );

    for i in (0..N - 2).step_by(2) {
        let a = opaque(a);
        let (x, y) = (a[i], a[i + 1]);
        let t = &mut t[i..i + N + 2];
        let a = &a[i..];

        t[i] = s.mul_lo(double(t[i]), x, x);
        let sum = s.mul_lo(t[i + 1], x, y);
        t[i + 1] = s.mul_hi(double(sum), x, x);

        let (a2, a3) = (a[2], a[3]);
        let sum = s.mul_lo(s.mul_hi(t[i + 2], x, y), x, a2);
        t[i + 2] = s.mul_lo(double(sum), y, y);
        let sum = s.mul_lo(s.mul_lo(s.mul_hi(t[i + 3], x, a2), x, a3), y, a2);
        t[i + 3] = s.mul_hi(double(sum), y, y);

        let (mut before, mut last) = (a2, a3);
        let mut j = 4;
        while j + i < N {
            for u in 0..2 {
                let limb = a[j + u];
                let mut sum = t[i + j + u];
                sum = s.mul_lo(sum, x, limb);
                sum = s.mul_hi(sum, x, last);
                sum = s.mul_lo(sum, y, last);
                sum = s.mul_hi(sum, y, before);
                t[i + j + u] = sum;
                (before, last) = (last, limb);
            }
            j += 2;
        }
        let sum = s.mul_lo(s.mul_hi(s.zero(), x, last), y, last);
        t[N] = s.mul_hi(sum, y, before);
        t[N + 1] = s.mul_hi(s.zero(), y, last);
    }

    let (x, y) = (a[N - 2], a[N - 1]);
    t[2 * N - 4] = s.mul_lo(double(t[2 * N - 4]), x, x);
    let sum = s.mul_lo(t[2 * N - 3], x, y);
    t[2 * N - 3] = s.mul_hi(double(sum), x, x);
    t[2 * N - 2] = s.mul_lo(double(s.mul_hi(s.zero(), x, y)), y, y);
    t[2 * N - 1] = s.mul_hi(s.zero(), y, y);
}

/// out = a·b + c, all limbs below 2^52, `out` of 2·`N` limbs: for numbers that fit.
#[inline(always)]
pub(crate) fn multiply_add<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb],
    a: &[S::Limb; N],
    b: &[S::Limb; N],
    c: &[S::Limb; N],
) {
    assert!(out.len() == 2 * N);
    out[..N].copy_from_slice(c);
    out[N..].fill(s.zero());
    for (i, &row) in b.iter().enumerate() {
        let out = &mut out[i..i + N + 1];
        for (j, &limb) in a.iter().enumerate() {
            out[j] = s.mul_lo(out[j], limb, row);
        }
        for (j, &limb) in a.iter().enumerate() {
            out[j + 1] = s.mul_hi(out[j + 1], limb, row);
        }
    }
    normalise(s, out);
}

/// Propagates carries so that all limbs are below 2^52. The value must fit.
#[inline(always)]
pub(crate) fn normalise<S: Simd>(s: S, limbs: &mut [S::Limb]) {
    let mut carry = s.zero();
    for limb in limbs {
        let sum = s.add(*limb, carry);
        *limb = s.low_bits(sum);
        carry = s.carry(sum);
    }
}

/// out = a + 2·n − b, limbs below 2^52. The value must not be negative and must fit.
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

/// a ← a mod n for a < 2n, limbs below 2^52. `difference` is working memory.
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
