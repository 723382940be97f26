//! Arithmetic modulo a field prime or a group order, in every lane.
//!
//! Numbers have `N` limbs of 52 bits, in Montgomery form with R = 2^(52·N). No number is reduced
//! fully; three types state the permitted uses of a number:
//!
//! * [`Loose`]: columns below 2^62 that overlap: may be a *term*, of a sum or difference;
//! * [`Factor`]: the low 52 bits of the columns are the limbs: may be a *factor*;
//! * [`Tight`]: limbs below 2^52: may be both.
//!
//! A multiplication reads 52 bits of a limb, so a number that is only multiplied needs no mask
//! after its carries. Products stay loose, sums are formed on loose columns, and each number needs
//! one chain of carries, just before it becomes a factor.
//!
//! # Bounds
//!
//! A product of a < α·p and b < β·p is below (αβ·p/R + 1 + [`Modulus::PAD`])·p. For P-256, R is
//! 16·p: every value must stay below 16·p ([`Modulus::LIMIT`]), and [`Field::weak`] reduces a value
//! to below 1.01·p. For P-384, R is 2^32·p and products are below 2.01·p for all factors. Comments
//! give bounds in units of p.

use crate::montgomery::canonical;
use crate::simd::{Simd, enter, inlined};
use crate::unroll::unrolled;

/// A term: columns below 2^62, not negative.
#[derive(Clone, Copy)]
pub(crate) struct Loose<L, const N: usize>(pub(crate) [L; N]);

/// A factor: limbs in the low 52 bits of each column.
#[derive(Clone, Copy)]
pub(crate) struct Factor<L, const N: usize>(pub(crate) [L; N]);

/// A factor and a term: limbs below 2^52.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Tight<L, const N: usize>(pub(crate) [L; N]);

/// A number that may be multiplied.
pub(crate) trait AsFactor<L, const N: usize> {
    /// Returns the limbs, in the low 52 bits of each word.
    fn limbs(&self) -> &[L; N];
}

/// A number that may be added and subtracted.
pub(crate) trait AsTerm<L, const N: usize> {
    /// Returns the columns, which are not negative.
    fn columns(&self) -> &[L; N];
}

impl<L, const N: usize> AsFactor<L, N> for Factor<L, N> {
    #[inline(always)]
    fn limbs(&self) -> &[L; N] {
        &self.0
    }
}

impl<L, const N: usize> AsFactor<L, N> for Tight<L, N> {
    #[inline(always)]
    fn limbs(&self) -> &[L; N] {
        &self.0
    }
}

impl<L, const N: usize> AsTerm<L, N> for Tight<L, N> {
    #[inline(always)]
    fn columns(&self) -> &[L; N] {
        &self.0
    }
}

impl<L, const N: usize> AsTerm<L, N> for Loose<L, N> {
    #[inline(always)]
    fn columns(&self) -> &[L; N] {
        &self.0
    }
}

/// The 2·`N` columns of a product, while it is reduced.
pub(crate) struct Product<L, const N: usize> {
    low: [L; N],
    high: [L; N],
}

impl<L: Copy, const N: usize> Product<L, N> {
    #[inline(always)]
    pub(crate) fn column(&mut self, k: usize) -> &mut L {
        if k < N {
            &mut self.low[k]
        } else {
            &mut self.high[k - N]
        }
    }
}

/// An odd modulus, and the reduction of a product by it.
pub(crate) trait Modulus<const N: usize>: Copy + 'static {
    /// The modulus n, the lowest limb first.
    const VALUE: [u64; N];
    /// −1/n mod 2^52.
    const K0: u64 = negated_inverse(Self::VALUE[0]);
    /// R² mod n.
    const R2: [u64; N] = power_of_two::<N>(&Self::VALUE, 2 * 52 * N);
    /// Start values of the columns; see the implementations. As a number they are `PAD`·n·R, plus
    /// amounts that make carries round up.
    const START: ([u64; N], [u64; N]) = ([S_MASK; N], [0; N]);
    /// Number of multiples of the modulus by which [`START`](Self::START) increases a product.
    const PAD: u64 = 0;
    /// R ≥ `LIMIT`·n: the bound of every value, in units of n.
    const LIMIT: u64 = 16;
    /// Multiples of n, with columns that have borrowed [`LEND`] from the next.
    const PADS: [[u64; N]; 16] = pads(&Self::VALUE);

    /// Adds a multiple of n·2^(52·i) that makes column `i` vanish modulo 2^52, and carries the rest
    /// of that column into the next.
    ///
    /// The default is for any odd n: 2·N multiplies. With l the low half of n₀·m, l + t ≡ 0 mod
    /// 2^52 leaves a carry of ⌈t/2^52⌉ for every m, so l is not computed: columns start 2^52 − 1
    /// too large, which rounds the carry up, and m = (t + 1)·k0 for such a t.
    #[inline(always)]
    fn row<S: Simd>(s: S, t: &mut Product<S::Limb, N>, i: usize) {
        let k0 = s.splat(Self::K0);
        let lowest = *t.column(i);
        let m = s.mul_lo(k0, lowest, k0);
        *t.column(i + 1) = s.add(*t.column(i + 1), s.carry(lowest));
        unrolled::<N>(inlined!(|j| {
            let n = s.splat(Self::VALUE[j]);
            if j > 0 {
                *t.column(i + j) = s.mul_lo(*t.column(i + j), m, n);
            }
            *t.column(i + j + 1) = s.mul_hi(*t.column(i + j + 1), m, n);
        }));
    }

    /// Returns a tight number below 1.01·n from a padded difference; see [`Field::weak`].
    #[inline(always)]
    fn weak<S: Simd>(s: S, a: Loose<S::Limb, N>) -> Tight<S::Limb, N> {
        Field::<S, Self, N, true>::new(s).tight(a)
    }
}

/// A limb with all its 52 bits set.
pub(crate) const S_MASK: u64 = (1 << 52) - 1;

/// Amount that each column of a padded difference borrows from the next. Columns of subtrahends
/// must be below it.
const LEND: u64 = 1 << 60;

/// Returns `count`·n, with columns that have borrowed [`LEND`] from the next.
const fn pad<const N: usize>(n: &[u64; N], count: u64) -> [u64; N] {
    let mut out = [0; N];
    let (mut i, mut carry) = (0, 0);
    while i < N {
        let sum = n[i] * count + carry;
        carry = sum >> 52;
        out[i] = sum & S_MASK;
        if i < N - 1 {
            out[i] += LEND;
        } else {
            // The top column keeps its carry.
            out[i] += carry << 52;
        }
        if i > 0 {
            out[i] -= LEND >> 52;
        }
        i += 1;
    }
    out
}

const fn pads<const N: usize>(n: &[u64; N]) -> [[u64; N]; 16] {
    let mut out = [[0; N]; 16];
    let mut k = 1;
    while k < 16 {
        out[k] = pad(n, k as u64);
        k += 1;
    }
    out
}

/// Arithmetic modulo `M` in the lanes of `S`.
///
/// `HOT` arithmetic is inlined where it is used, so that independent multiplications overlap; the
/// other arithmetic calls functions, which keeps the code small.
pub(crate) struct Field<S: Simd, M: Modulus<N>, const N: usize, const HOT: bool = false> {
    pub(crate) s: S,
    modulus: core::marker::PhantomData<M>,
}

impl<S: Simd, M: Modulus<N>, const N: usize, const HOT: bool> Clone for Field<S, M, N, HOT> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Simd, M: Modulus<N>, const N: usize, const HOT: bool> Copy for Field<S, M, N, HOT> {}

impl<S: Simd, M: Modulus<N>, const N: usize, const HOT: bool> Field<S, M, N, HOT> {
    #[inline(always)]
    pub(crate) fn new(s: S) -> Self {
        Self {
            s,
            modulus: core::marker::PhantomData,
        }
    }

    /// Returns a·b/R. Bound: see the module documentation.
    #[inline(always)]
    pub(crate) fn mul(
        self,
        a: &impl AsFactor<S::Limb, N>,
        b: &impl AsFactor<S::Limb, N>,
    ) -> Loose<S::Limb, N> {
        if const { HOT && S::INLINE } {
            self.mul_inlined(a.limbs(), b.limbs())
        } else {
            mul_outlined::<S, M, N>(self.s, a.limbs(), b.limbs())
        }
    }

    /// Returns a²/R. Bound: as [`mul`](Self::mul).
    #[inline(always)]
    pub(crate) fn sqr(self, a: &impl AsFactor<S::Limb, N>) -> Loose<S::Limb, N> {
        if const { HOT && S::INLINE } {
            self.sqr_inlined(a.limbs())
        } else {
            sqr_outlined::<S, M, N>(self.s, a.limbs())
        }
    }

    #[inline(always)]
    fn mul_inlined(self, a: &[S::Limb; N], b: &[S::Limb; N]) -> Loose<S::Limb, N> {
        let s = self.s;
        let mut t = Product {
            low: [s.zero(); N],
            high: [s.zero(); N],
        };
        unrolled::<N>(inlined!(|i| {
            t.low[i] = s.splat(M::START.0[i]);
            t.high[i] = s.splat(M::START.1[i]);
        }));
        unrolled::<N>(inlined!(|i| {
            let row = b[i];
            unrolled::<N>(inlined!(
                |j| *t.column(i + j) = s.mul_lo(*t.column(i + j), a[j], row)
            ));
            unrolled::<N>(inlined!(
                |j| *t.column(i + j + 1) = s.mul_hi(*t.column(i + j + 1), a[j], row)
            ));
            M::row(s, &mut t, i);
        }));
        Loose(t.high)
    }

    /// Computes N·(N−1)/2 products off the diagonal, which are doubled by an addition for each
    /// column.
    #[inline(always)]
    fn sqr_inlined(self, a: &[S::Limb; N]) -> Loose<S::Limb, N> {
        let s = self.s;
        let mut t = Product {
            low: [s.zero(); N],
            high: [s.zero(); N],
        };
        unrolled::<N>(inlined!(|i| {
            let row = a[i];
            unrolled::<N>(inlined!(|j| {
                if j > i {
                    *t.column(i + j) = s.mul_lo(*t.column(i + j), a[j], row);
                }
            }));
            unrolled::<N>(inlined!(|j| {
                if j > i {
                    *t.column(i + j + 1) = s.mul_hi(*t.column(i + j + 1), a[j], row);
                }
            }));
            // Columns 2i and 2i+1 have all their products off the diagonal.
            let double = inlined!(|c, start: u64| {
                let twice = s.add(c, c);
                if start == 0 {
                    twice
                } else {
                    s.add(twice, s.splat(start))
                }
            });
            let even = double(*t.column(2 * i), Self::start_of(2 * i));
            *t.column(2 * i) = s.mul_lo(even, row, row);
            let odd = double(*t.column(2 * i + 1), Self::start_of(2 * i + 1));
            *t.column(2 * i + 1) = s.mul_hi(odd, row, row);
        }));
        unrolled::<N>(inlined!(|i| M::row(s, &mut t, i)));
        Loose(t.high)
    }

    #[inline(always)]
    fn start_of(k: usize) -> u64 {
        if k < N {
            M::START.0[k]
        } else {
            M::START.1[k - N]
        }
    }

    /// Returns a + b.
    #[inline(always)]
    pub(crate) fn add(
        self,
        a: &impl AsTerm<S::Limb, N>,
        b: &impl AsTerm<S::Limb, N>,
    ) -> Loose<S::Limb, N> {
        let (mut out, b) = (*a.columns(), b.columns());
        unrolled::<N>(inlined!(|i| out[i] = self.s.add(out[i], b[i])));
        Loose(out)
    }

    /// Returns 2·a.
    #[inline(always)]
    pub(crate) fn double(self, a: &impl AsTerm<S::Limb, N>) -> Loose<S::Limb, N> {
        self.add(a, a)
    }

    /// Returns a + k·n − b, for b < (k − 0.01)·n. `k` is a constant below 16.
    #[inline(always)]
    pub(crate) fn sub(
        self,
        k: usize,
        a: &impl AsTerm<S::Limb, N>,
        b: &impl AsTerm<S::Limb, N>,
    ) -> Loose<S::Limb, N> {
        let s = self.s;
        let (mut out, b) = (*a.columns(), b.columns());
        unrolled::<N>(inlined!(|i| {
            out[i] = s.add(out[i], s.sub(s.splat(M::PADS[k][i]), b[i]));
        }));
        Loose(out)
    }

    /// Returns k·n − a, for a ≤ k·n with limbs below 2^52 or a < (k − 0.01)·n. `k` is a constant
    /// below 16.
    #[inline(always)]
    pub(crate) fn negate(self, k: usize, a: &impl AsTerm<S::Limb, N>) -> Loose<S::Limb, N> {
        let s = self.s;
        let mut out = *a.columns();
        unrolled::<N>(inlined!(|i| {
            out[i] = s.sub(s.splat(M::PADS[k][i]), out[i]);
        }));
        Loose(out)
    }

    /// Carries; the value must be below `LIMIT`·n.
    #[inline(always)]
    pub(crate) fn factor(self, a: Loose<S::Limb, N>) -> Factor<S::Limb, N> {
        let s = self.s;
        let mut a = a.0;
        unrolled::<N>(inlined!(|i| {
            if i > 0 {
                a[i] = s.add(a[i], s.carry(a[i - 1]));
            }
        }));
        Factor(a)
    }

    /// Carries and masks; the value must be below `LIMIT`·n.
    #[inline(always)]
    pub(crate) fn tight(self, a: Loose<S::Limb, N>) -> Tight<S::Limb, N> {
        let s = self.s;
        let mut a = self.factor(a).0;
        unrolled::<N>(inlined!(|i| {
            if i < N - 1 {
                a[i] = s.low_bits(a[i]);
            }
        }));
        Tight(a)
    }

    /// Carries, masks and, where [`Modulus::LIMIT`] is small, reduces a padded difference to below
    /// 1.01·n.
    #[inline(always)]
    pub(crate) fn weak(self, a: Loose<S::Limb, N>) -> Tight<S::Limb, N> {
        M::weak(self.s, a)
    }

    /// Returns `set` in the lanes of `mask`, `clear` in the others.
    #[inline(always)]
    pub(crate) fn select(
        self,
        mask: S::Mask,
        set: &[S::Limb; N],
        clear: &[S::Limb; N],
    ) -> [S::Limb; N] {
        let mut out = *clear;
        unrolled::<N>(inlined!(|i| out[i] = self.s.select(mask, set[i], clear[i])));
        out
    }

    /// Returns a constant in every lane.
    #[inline(always)]
    pub(crate) fn constant(self, value: &[u64; N]) -> Tight<S::Limb, N> {
        let mut out = [self.s.zero(); N];
        unrolled::<N>(inlined!(|i| out[i] = self.s.splat(value[i])));
        Tight(out)
    }

    /// Returns R mod n: one, in Montgomery form.
    #[inline(always)]
    pub(crate) fn one(self) -> Tight<S::Limb, N> {
        self.constant(const { &power_of_two::<N>(&M::VALUE, 52 * N) })
    }

    /// Returns a·R, tight, for a below R.
    #[inline(always)]
    pub(crate) fn encode(self, a: &impl AsFactor<S::Limb, N>) -> Tight<S::Limb, N> {
        self.tight(self.mul(a, &self.constant(&M::R2)))
    }

    /// Returns a/R mod n, fully reduced.
    #[inline(always)]
    pub(crate) fn decode(self, a: &impl AsFactor<S::Limb, N>) -> Tight<S::Limb, N> {
        let mut one = [0; N];
        one[0] = 1;
        self.reduced(self.tight(self.mul(a, &self.constant(&one))))
    }

    /// Returns a mod n for a < (2 + `PAD`)·n.
    #[inline(always)]
    pub(crate) fn reduced(self, a: Tight<S::Limb, N>) -> Tight<S::Limb, N> {
        reduced::<S, M, N>(self.s, a)
    }

    /// Returns a number that is not zero in the lanes in which a ≢ 0.
    #[inline(always)]
    pub(crate) fn is_nonzero(self, a: &impl AsFactor<S::Limb, N>) -> S::Limb {
        any(self.s, &self.decode(a).0)
    }

    /// Returns the lanes in which a ≡ 0.
    #[inline(always)]
    pub(crate) fn is_zero(self, a: &impl AsFactor<S::Limb, N>) -> S::Mask {
        none(self.s, self.is_nonzero(a))
    }

    /// Returns all ones in the lanes in which the limbs of a, below 2^52, are a number of at least
    /// n.
    #[inline(always)]
    pub(crate) fn is_not_below(self, a: &[S::Limb; N]) -> S::Limb {
        let s = self.s;
        let one = s.splat(1);
        let mut carry = one;
        for (&limb, n) in a.iter().zip(M::VALUE) {
            carry = s.carry(s.add(s.add(limb, s.splat(S_MASK - n)), carry));
        }
        s.select(s.any_bit(carry, one), s.splat(u64::MAX), s.zero())
    }
}

#[inline(never)]
fn reduced<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    mut a: Tight<S::Limb, N>,
) -> Tight<S::Limb, N> {
    enter!(s, {
        let n = Field::<S, M, N>::new(s).constant(&M::VALUE).0;
        let mut difference = [s.zero(); N];
        for _ in 0..=M::PAD {
            canonical(s, &mut a.0, &mut difference, &n);
        }
        a
    })
}

#[inline(never)]
fn mul_outlined<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    a: &[S::Limb; N],
    b: &[S::Limb; N],
) -> Loose<S::Limb, N> {
    enter!(s, Field::<S, M, N, true>::new(s).mul_inlined(a, b))
}

#[inline(never)]
fn sqr_outlined<S: Simd, M: Modulus<N>, const N: usize>(
    s: S,
    a: &[S::Limb; N],
) -> Loose<S::Limb, N> {
    enter!(s, Field::<S, M, N, true>::new(s).sqr_inlined(a))
}

/// Returns a number that is not zero in the lanes in which a limb is not zero.
#[inline(always)]
pub(crate) fn any<S: Simd>(s: S, limbs: &[S::Limb]) -> S::Limb {
    let zero = s.zero();
    limbs
        .iter()
        .fold(zero, inlined!(|sum, &limb| s.or_xor(sum, limb, zero)))
}

/// Returns the lanes in which `a` is zero.
#[inline(always)]
pub(crate) fn none<S: Simd>(s: S, a: S::Limb) -> S::Mask {
    let ones = s.splat(u64::MAX);
    let zero_where_set = s.select(s.any_bit(a, ones), s.zero(), ones);
    s.any_bit(zero_where_set, ones)
}

/// Returns −1/n mod 2^52 for odd n, by Newton's iteration.
pub(crate) const fn negated_inverse(n: u64) -> u64 {
    let mut x: u64 = 1;
    let mut i = 0;
    while i < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(x)));
        i += 1;
    }
    x.wrapping_neg() & S_MASK
}

/// Returns 2^e mod n, by doubling; n needs at least one spare bit in its top limb.
pub(crate) const fn power_of_two<const N: usize>(n: &[u64; N], e: usize) -> [u64; N] {
    let mut a = [0; N];
    a[0] = 1;
    let mut k = 0;
    while k < e {
        // a ← 2a, then a − n if that is not negative.
        let mut i = N;
        while i > 0 {
            i -= 1;
            a[i] = (a[i] << 1) & S_MASK | if i > 0 { a[i - 1] >> 51 } else { 0 };
        }
        let mut difference = [0; N];
        let (mut i, mut borrow) = (0, 0);
        while i < N {
            let d = a[i].wrapping_sub(n[i]).wrapping_sub(borrow);
            borrow = d >> 63;
            difference[i] = d & S_MASK;
            i += 1;
        }
        if borrow == 0 {
            a = difference;
        }
        k += 1;
    }
    a
}

/// Returns the limbs of a hexadecimal number, for constants.
pub(crate) const fn hex<const N: usize>(digits: &str) -> [u64; N] {
    let digits = digits.as_bytes();
    let mut out = [0; N];
    let mut i = 0;
    while i < digits.len() {
        let digit = digits[digits.len() - 1 - i];
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => panic!("not a hexadecimal digit"),
        } as u64;
        out[4 * i / 52] |= value << (4 * i % 52);
        i += 1;
    }
    out
}
