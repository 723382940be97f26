//! The two curves y² = x³ − 3x + b: constants, and the fast reductions that their primes allow.

use once_cell::race::OnceBox;

use crate::modular::{Field, Loose, Modulus, Product, S_MASK, Tight, hex};
use crate::simd::Simd;

/// A curve y² = x³ − 3x + b of prime order over a prime field.
pub(crate) trait Curve<const N: usize>: Copy + 'static {
    /// The field of the coordinates, modulo p.
    type Field: Modulus<N>;
    /// The field of the scalars, modulo the order n.
    type Order: Modulus<N>;
    /// Number of bits of p and of n.
    const BITS: usize;
    /// The coefficient b, not in Montgomery form; neither is `G`.
    const B: [u64; N];
    /// The base point.
    const G: ([u64; N], [u64; N]);
    /// Multiple of p from which the x of a point may be subtracted: x < (`PAD_X` − 0.89)·p.
    const PAD_X: usize;
    /// Multiple of p from which the y of a point may be subtracted: y < (`PAD_Y` − 2.1)·p.
    const PAD_Y: usize;
    /// Lengths of the runs of equal bits in (p + 1)/4 from the top: ones, zeros, ones and so on.
    const ROOT_RUNS: [usize; 6];
    /// Returns the place of the fixed-base table.
    fn table() -> &'static OnceBox<Box<[u64]>>;
}

/// P-256 (SEC 2: secp256r1).
#[derive(Clone, Copy)]
pub(crate) struct P256;

impl Curve<5> for P256 {
    type Field = P256Field;
    type Order = P256Order;
    const BITS: usize = 256;
    const B: [u64; 5] = hex("5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b");
    const G: ([u64; 5], [u64; 5]) = (
        hex("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"),
        hex("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
    );
    const PAD_X: usize = 2;
    const PAD_Y: usize = 4;
    const ROOT_RUNS: [usize; 6] = [32, 31, 1, 95, 1, 94];

    fn table() -> &'static OnceBox<Box<[u64]>> {
        static TABLE: OnceBox<Box<[u64]>> = OnceBox::new();
        &TABLE
    }
}

/// The field of P-256: p = 2^256 − 2^224 + 2^192 + 2^96 − 1.
#[derive(Clone, Copy)]
pub(crate) struct P256Field;

impl Modulus<5> for P256Field {
    const VALUE: [u64; 5] = hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
    const START: ([u64; 5], [u64; 5]) = ([0; 5], [0; 5]);

    /// k0 = 1, so m is the column itself; (t + m·p)/2^52 = ⌊t/2^52⌋ + m·(p + 1)/2^52, and
    /// p + 1 = 2^44·2^52 + 2^36·2^156 + (2^48 − 2^16)·2^208: six multiplies.
    #[inline(always)]
    fn row<S: Simd>(s: S, t: &mut Product<S::Limb, 5>, i: usize) {
        let m = *t.column(i);
        let (by_44, by_36) = (s.splat(1 << 44), s.splat(1 << 36));
        let top = s.splat((1 << 48) - (1 << 16));
        let sum = s.add(*t.column(i + 1), s.carry(m));
        *t.column(i + 1) = s.mul_lo(sum, m, by_44);
        *t.column(i + 2) = s.mul_hi(*t.column(i + 2), m, by_44);
        *t.column(i + 3) = s.mul_lo(*t.column(i + 3), m, by_36);
        *t.column(i + 4) = s.mul_lo(s.mul_hi(*t.column(i + 4), m, by_36), m, top);
        *t.column(i + 5) = s.mul_hi(*t.column(i + 5), m, top);
    }

    /// With h = ⌊a/2^256⌋ as estimated from the top column, a − h·p = (a mod 2^256) + h·(2^224 −
    /// 2^192 − 2^96 + 1) < 2^256 + 2^228. Columns 1 and 3 have borrowed 2^60, so they stay
    /// positive.
    #[inline(always)]
    fn weak<S: Simd>(s: S, a: Loose<S::Limb, 5>) -> Tight<S::Limb, 5> {
        let zero = s.zero();
        let mut a = a.0;
        let h = s.mul_hi(zero, a[4], s.splat(1 << 4));
        a[0] = s.add(a[0], h);
        a[1] = s.sub(a[1], s.mul_lo(zero, h, s.splat(1 << 44)));
        a[3] = s.sub(a[3], s.mul_lo(zero, h, s.splat(1 << 36)));
        a[4] = s.mul_lo(s.and(a[4], s.splat((1 << 48) - 1)), h, s.splat(1 << 16));
        Field::<S, Self, 5, true>::new(s).tight(Loose(a))
    }
}

/// The order of P-256.
#[derive(Clone, Copy)]
pub(crate) struct P256Order;

impl Modulus<5> for P256Order {
    const VALUE: [u64; 5] = hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");
}

/// P-384 (SEC 2: secp384r1).
#[derive(Clone, Copy)]
pub(crate) struct P384;

impl Curve<8> for P384 {
    type Field = P384Field;
    type Order = P384Order;
    const BITS: usize = 384;
    const B: [u64; 8] = hex(
        "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef",
    );
    const G: ([u64; 8], [u64; 8]) = (
        hex(
            "aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7",
        ),
        hex(
            "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f",
        ),
    );
    const PAD_X: usize = 12;
    const PAD_Y: usize = 10;
    const ROOT_RUNS: [usize; 6] = [255, 1, 32, 63, 1, 30];

    fn table() -> &'static OnceBox<Box<[u64]>> {
        static TABLE: OnceBox<Box<[u64]>> = OnceBox::new();
        &TABLE
    }
}

/// The field of P-384: p = 2^384 − 2^128 − 2^96 + 2^32 − 1.
#[derive(Clone, Copy)]
pub(crate) struct P384Field;

impl P384Field {
    const P: [u64; 8] = hex(
        "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff",
    );
    /// Amount that a column borrows from the next, so that [`row`](Modulus::row) may subtract: at
    /// most four halves of products from each column.
    const LEND: u64 = 1 << 54;
}

impl Modulus<8> for P384Field {
    const VALUE: [u64; 8] = Self::P;
    const PAD: u64 = 1;
    const LIMIT: u64 = 1 << 32;

    /// p·R in columns that have borrowed; low columns are rounded up as in the default.
    const START: ([u64; 8], [u64; 8]) = {
        let (mut low, mut high) = ([S_MASK + Self::LEND; 8], Self::P);
        let mut i = 0;
        while i < 8 {
            if i > 0 {
                low[i] -= Self::LEND >> 52;
            }
            high[i] -= Self::LEND >> 52;
            if i < 7 {
                high[i] += Self::LEND;
            }
            i += 1;
        }
        (low, high)
    };

    /// k0 = 2^32 + 1 and p = 2^20·2^364 − 2^24·2^104 − 2^44·2^52 + (2^32 − 1): eight multiplies.
    /// The low half of m·(2^32 − 1) cancels the column, as in the default.
    #[inline(always)]
    fn row<S: Simd>(s: S, t: &mut Product<S::Limb, 8>, i: usize) {
        let zero = s.zero();
        let k0 = s.splat(Self::K0);
        let lowest = *t.column(i);
        let m = s.mul_lo(k0, lowest, k0);
        let (by_96, by_128, by_384) = (s.splat(1 << 44), s.splat(1 << 24), s.splat(1 << 20));
        let sum = s.add(*t.column(i + 1), s.carry(lowest));
        let sum = s.sub(sum, s.mul_lo(zero, m, by_96));
        *t.column(i + 1) = s.mul_hi(sum, m, s.splat((1 << 32) - 1));
        let less = s.mul_lo(s.mul_hi(zero, m, by_96), m, by_128);
        *t.column(i + 2) = s.sub(*t.column(i + 2), less);
        *t.column(i + 3) = s.sub(*t.column(i + 3), s.mul_hi(zero, m, by_128));
        *t.column(i + 7) = s.mul_lo(*t.column(i + 7), m, by_384);
        *t.column(i + 8) = s.mul_hi(*t.column(i + 8), m, by_384);
    }
}

/// The order of P-384.
#[derive(Clone, Copy)]
pub(crate) struct P384Order;

impl Modulus<8> for P384Order {
    const VALUE: [u64; 8] = hex(
        "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
    );
    const LIMIT: u64 = 1 << 32;
}
