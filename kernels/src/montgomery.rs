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

use crate::simd::{Simd, inlined, opaque, opaque_count};

/// Rows of a multiplication taken in one sweep.
const ROWS: usize = 2;

/// Columns in a turn of the inner loop.
const TURN: usize = 8;

/// The spare bits that the bounds above need: R ≥ 2^8·n.
pub(crate) const fn check_slack(limbs: usize, modulus_bits: usize) {
    assert!(limbs * 52 >= modulus_bits + 8);
}

/// No column overflows 64 bits, and rows come in whole blocks.
const fn check_columns(limbs: usize) {
    assert!(4 * limbs < 1 << 12);
    assert!(limbs.is_multiple_of(ROWS) && limbs >= 2 * ROWS);
}

/// Other work that hides in a reduction: its sweeps have loads and additions to spare.
pub(crate) trait Work<S: Simd> {
    /// Does the next piece, if any is left.
    fn step(&mut self, s: S);
}

/// Nothing to do.
struct Idle;

impl<S: Simd> Work<S> for Idle {
    #[inline(always)]
    fn step(&mut self, _s: S) {}
}

/// Where the columns of a multiplication or reduction live between sweeps.
trait Columns<S: Simd> {
    /// Column `c` < N of the rows of `block`, as the rows before left it.
    fn load(&self, block: usize, c: usize) -> S::Limb;
    /// The same for column N + `t`, `t` < 2.
    fn load_above(&self, s: S, block: usize, t: usize) -> S::Limb;
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
    fn load(&self, _block: usize, c: usize) -> S::Limb {
        debug_assert!(c < N);
        // SAFETY: the trait asks for c < N.
        unsafe { *self.window.get_unchecked(c) }
    }

    #[inline(always)]
    fn load_above(&self, s: S, _block: usize, _t: usize) -> S::Limb {
        s.zero()
    }

    #[inline(always)]
    fn store(&mut self, _block: usize, c: usize, value: S::Limb) {
        debug_assert!((ROWS..N + ROWS).contains(&c));
        // SAFETY: callers store the columns from 2 to N + 1.
        unsafe { *self.window.get_unchecked_mut(c - ROWS) = value }
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
    fn load(&self, block: usize, c: usize) -> S::Limb {
        debug_assert!(ROWS * block + c < 2 * N);
        // SAFETY: `square_columns` asserts 2·N columns; block < N/2 and c < N + 2.
        unsafe { *self.product.get_unchecked(ROWS * block + c) }
    }

    #[inline(always)]
    fn load_above(&self, _s: S, block: usize, t: usize) -> S::Limb {
        self.load(block, N + t)
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

/// Two rows r0, r1 of a product x·r, taken column by column.
#[derive(Clone, Copy)]
struct Term<S: Simd> {
    r0: S::Limb,
    r1: S::Limb,
    /// `x[c]` and `x[c−1]` for the column c last taken.
    last: S::Limb,
    before: S::Limb,
}

impl<S: Simd> Term<S> {
    /// Ready for column 2.
    #[inline(always)]
    fn new<const N: usize>(x: &[S::Limb; N], rows: [S::Limb; 2]) -> Self {
        Self {
            r0: rows[0],
            r1: rows[1],
            last: x[1],
            before: x[0],
        }
    }

    /// Adds the products of the next column, whose limb is `x`, to `sum`.
    #[inline(always)]
    fn column(&mut self, s: S, sum: S::Limb, x: S::Limb) -> S::Limb {
        let sum = s.mul_hi(sum, self.before, self.r1);
        let sum = s.mul_hi(sum, self.last, self.r0);
        let sum = s.mul_lo(sum, self.last, self.r1);
        let sum = s.mul_lo(sum, x, self.r0);
        self.before = self.last;
        self.last = x;
        sum
    }

    /// The same for column N, which has no limb.
    #[inline(always)]
    fn column_n(&self, s: S, sum: S::Limb) -> S::Limb {
        let sum = s.mul_hi(sum, self.before, self.r1);
        let sum = s.mul_hi(sum, self.last, self.r0);
        s.mul_lo(sum, self.last, self.r1)
    }

    /// The same for column N + 1.
    #[inline(always)]
    fn column_above_n(&self, s: S, sum: S::Limb) -> S::Limb {
        s.mul_hi(sum, self.last, self.r1)
    }
}

/// The reduction rows m of a block and the carry into its column 2.
struct Head<S: Simd> {
    m: [S::Limb; 2],
    carry: S::Limb,
}

/// Completes columns 0 and 1 of a block and makes them vanish modulo 2^52 by choosing m.
///
/// `sums` are the columns as earlier rows left them; `a`, where there is one, is multiplied by `b`.
#[inline(always)]
fn head<S: Simd, const N: usize>(
    s: S,
    sums: [S::Limb; 2],
    a: Option<&[S::Limb; N]>,
    b: [S::Limb; 2],
    n: &[S::Limb; N],
    k0: S::Limb,
) -> Head<S> {
    let [mut sum0, mut sum1] = sums;
    if let Some(a) = a {
        sum0 = s.mul_lo(sum0, a[0], b[0]);
        sum1 = s.mul_hi(sum1, a[0], b[0]);
        sum1 = s.mul_lo(sum1, a[1], b[0]);
        sum1 = s.mul_lo(sum1, a[0], b[1]);
    }
    // m0·n0 turns the low 52 bits of sum0 into 2^52, or leaves them zero: the carry is known without it.
    let round_up = s.splat(S::LIMB_MASK);
    let m0 = s.mul_lo(s.zero(), sum0, k0);
    let carry = s.carry(s.add(sum0, round_up));
    sum1 = s.add(sum1, carry);
    let high = s.mul_hi(s.zero(), n[0], m0);
    sum1 = s.mul_lo(sum1, n[1], m0);
    sum1 = s.add(sum1, high);
    let m1 = s.mul_lo(s.zero(), sum1, k0);
    let carry = s.carry(s.add(sum1, round_up));
    Head { m: [m0, m1], carry }
}

/// Both products of a sweep: m·n, and a·b where there is one.
struct Sweep<'a, S: Simd, const N: usize> {
    n: &'a [S::Limb; N],
    a: Option<&'a [S::Limb; N]>,
    nm: Term<S>,
    ab: Term<S>,
}

impl<'a, S: Simd, const N: usize> Sweep<'a, S, N> {
    #[inline(always)]
    fn new(
        n: &'a [S::Limb; N],
        a: Option<&'a [S::Limb; N]>,
        m: [S::Limb; 2],
        b: [S::Limb; 2],
    ) -> Self {
        let n = opaque(n);
        let a = match a {
            Some(a) => Some(opaque(a)),
            None => None,
        };
        Self {
            n,
            a,
            nm: Term::new(n, m),
            ab: Term::new(a.unwrap_or(n), b),
        }
    }

    #[inline(always)]
    fn column(&mut self, s: S, mut sum: S::Limb, c: usize) -> S::Limb {
        debug_assert!(c < N);
        if let Some(a) = self.a {
            // SAFETY: callers take columns below N.
            sum = self.ab.column(s, sum, unsafe { *a.get_unchecked(c) });
        }
        // SAFETY: as above.
        self.nm.column(s, sum, unsafe { *self.n.get_unchecked(c) })
    }

    #[inline(always)]
    fn column_n(&self, s: S, mut sum: S::Limb) -> S::Limb {
        if self.a.is_some() {
            sum = self.ab.column_n(s, sum);
        }
        self.nm.column_n(s, sum)
    }

    #[inline(always)]
    fn column_above_n(&self, s: S, mut sum: S::Limb) -> S::Limb {
        if self.a.is_some() {
            sum = self.ab.column_above_n(s, sum);
        }
        self.nm.column_above_n(s, sum)
    }
}

/// All rows of a Montgomery multiplication (of `factors`) or reduction (without), with `work` in between.
#[inline(always)]
fn rows<S: Simd, const N: usize>(
    s: S,
    mut columns: impl Columns<S>,
    factors: Option<[&[S::Limb; N]; 2]>,
    work: &mut impl Work<S>,
    n: &[S::Limb; N],
    k0: S::Limb,
) {
    const { check_columns(N) };
    let block_rows = inlined(
        #[inline(always)]
        |block: usize| match factors {
            Some([_, b]) => [b[2 * block], b[2 * block + 1]],
            None => [s.zero(); 2],
        },
    );
    let a = factors.map(
        #[inline(always)]
        |[a, _]| a,
    );
    // Unrolled further than written, longer sweeps would spill.
    let end = if N <= 20 || factors.is_none() {
        N
    } else {
        opaque_count(N)
    };
    let mut b = block_rows(0);
    let sums = [columns.load(0, 0), columns.load(0, 1)];
    let mut head_now = head(s, sums, a, b, n, k0);

    for block in 0..N / 2 - 1 {
        let mut sweep = Sweep::<S, N>::new(n, a, head_now.m, b);
        // The columns that decide the next rows' m come first.
        let sum = s.add(columns.load(block, 2), head_now.carry);
        let sum2 = sweep.column(s, sum, 2);
        let sum = columns.load(block, 3);
        let sum3 = sweep.column(s, sum, 3);
        b = block_rows(block + 1);
        head_now = head(s, [sum2, sum3], sweep.a, b, sweep.n, k0);
        work.step(s);

        for c in 4..4 + (N - 4) % TURN {
            let sum = sweep.column(s, columns.load(block, c), c);
            columns.store(block, c, sum);
        }
        let mut c = 4 + (N - 4) % TURN;
        while c < end {
            for c in c..c + TURN {
                let sum = sweep.column(s, columns.load(block, c), c);
                columns.store(block, c, sum);
            }
            c += TURN;
        }
        let sum = columns.load_above(s, block, 0);
        columns.store(block, N, sweep.column_n(s, sum));
        let sum = columns.load_above(s, block, 1);
        columns.store(block, N + 1, sweep.column_above_n(s, sum));
    }

    // The last rows: columns retire for good, so carries go along.
    let block = N / 2 - 1;
    let mut sweep = Sweep::<S, N>::new(n, a, head_now.m, b);
    let mut carry = head_now.carry;
    let mut c = 2;
    while c < end {
        for u in 0..2 {
            let sum = columns.load(block, c + u);
            let sum = s.add(sweep.column(s, sum, c + u), carry);
            columns.finish(c + u - 2, s.low_bits(sum));
            carry = s.carry(sum);
        }
        c += 2;
    }
    let sum = columns.load_above(s, block, 0);
    let sum = s.add(sweep.column_n(s, sum), carry);
    columns.finish(N - 2, s.low_bits(sum));
    carry = s.carry(sum);
    let sum = columns.load_above(s, block, 1);
    let sum = s.add(sweep.column_above_n(s, sum), carry);
    columns.finish(N - 1, s.low_bits(sum));
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
            out.fill(s.zero());
            rows(s, Sliding { window: out }, Some([a, b]), &mut Idle, n, *k0);
        },
    );
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
        || square_with(s, out, product, a, n, k0, &mut Idle),
    );
}

/// [`square`], with N/2 − 1 steps of `work` in between.
#[inline(always)]
pub(crate) fn square_with<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    product: &mut [S::Limb],
    a: &[S::Limb; N],
    n: &[S::Limb; N],
    k0: &S::Limb,
    work: &mut impl Work<S>,
) {
    square_columns(s, product, a);
    rows(
        s,
        InPlace {
            product,
            result: out,
        },
        None,
        work,
        n,
        *k0,
    );
}

/// The 2·`N` columns of a²: N² + N multiplies.
///
/// Two rows `x = a[i]` and `y = a[i+1]` at a time are multiplied by the limbs above them; when a column has
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
