//! Arithmetic modulo the order L of the base point, in every lane.
//!
//! Montgomery's multiplication with R = 2^260 (P. Montgomery, "Modular multiplication without trial
//! division", Math. Comp. 44, 1985), row by row in five limbs of 52 bits.

use super::convert::Limbs;
use super::field::{LIMBS, each, limbs};
use crate::simd::Simd;
use crate::simd::inlined;

/// The order of the base point, L = 2^252 + 27742317777372353535851937790883648493.
pub(super) const ORDER: [u64; 4] = [0x5812_631a_5cf5_d3ed, 0x14de_f9de_a2f7_9cd6, 0, 1 << 60];

/// −1 / L mod 2^52.
const MINUS_INVERSE: u64 = 0x0005_1da3_1254_7e1b;

/// R mod L.
const R1: [u64; LIMBS] = limbs([
    0x45af_48bd_6721_e6ed,
    0x35e5_1b3b_ab5a_c67e,
    0xffff_ffff_ffff_ffeb,
    0x0fff_ffff_ffff_ffff,
]);

/// R² mod L.
const R2: [u64; LIMBS] = limbs([
    0x69f9_d265_e952_d13b,
    0x6876_04d6_3c71_5bea,
    0xec73_d217_f5be_65cb,
    0x0941_1b7c_309a_3dce,
]);

/// R³ mod L.
const R3: [u64; LIMBS] = limbs([
    0x5534_f516_a4e3_0429,
    0x3c59_3ad7_1e63_305a,
    0x5dc6_c04e_c5b6_514d,
    0x00b7_7359_9cec_7806,
]);

const _: () = {
    let (order, mask) = (limbs(ORDER), (1 << 52) - 1);
    assert!(order[0].wrapping_mul(MINUS_INVERSE) & mask == mask);
};

/// A number of 512 bits: the limbs of its low 260 bits and of the rest.
pub(super) type Wide<S> = [Limbs<S>; 2];

/// `out` ≡ `wide` modulo L, below 3·L < 2^254; limbs below 2^52.
///
/// wide = low + R·high, and M(a, b) = a·b/R: M(low, R) + M(high, R²).
#[inline(never)]
pub(super) fn reduce<S: Simd>(s: S, wide: &Wide<S>, out: &mut Limbs<S>) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let out = out;
            *out = sum(s, wide, &R1, &R2);
        },
    ));
}

/// `out` ≡ `r` + `k`·`a` modulo L, below 2^255; limbs below 2^52, as those of `r` and `a` must be. `r` must
/// be below 3·L, `a` below 2^256.
///
/// k·R = M(low, R²) + M(high, R³) < 3·L, so M(k·R, a) < 3·L·2^256/R + L < 2·L.
#[inline(never)]
pub(super) fn multiply_add<S: Simd>(
    s: S,
    k: &Wide<S>,
    a: &Limbs<S>,
    r: &Limbs<S>,
    out: &mut Limbs<S>,
) {
    s.enter(inlined(
        #[inline(always)]
        move || {
            let out = out;
            let k = sum(s, k, &R2, &R3);
            let ka = multiply(s, &k, a);
            *out = carried(s, each!(i => s.add(ka[i], r[i])));
        },
    ));
}

/// `number` modulo L, by subtracting 4·L, 2·L and L where that leaves no borrow. `number` must be
/// below 8·L.
pub(super) fn canonical(mut number: [u64; 4]) -> [u64; 4] {
    for shift in [2, 1, 0] {
        let mut less = [0; 4];
        let mut borrow = false;
        for i in 0..4 {
            let below = if i > 0 && shift > 0 {
                ORDER[i - 1] >> (64 - shift)
            } else {
                0
            };
            let (x, first) = number[i].overflowing_sub(ORDER[i] << shift | below);
            let (x, second) = x.overflowing_sub(u64::from(borrow));
            (less[i], borrow) = (x, first | second);
        }
        let keep = u64::from(borrow).wrapping_neg();
        for (x, less) in number.iter_mut().zip(less) {
            *x = less ^ (keep & (*x ^ less));
        }
    }
    number
}

/// Whether `number` is below L, as the second half of a signature must be. Variable time.
pub(super) fn is_canonical_vartime(number: &[u64; 4]) -> bool {
    number.iter().rev().lt(ORDER.iter().rev())
}

/// M(low, by_low) + M(high, by_high).
///
/// Either is below L·(1 + 2^260/R) = 2·L in general, and below 1.2·L for the constants at hand, which are
/// below L, and a high part below 2^252.
#[inline(always)]
fn sum<S: Simd>(s: S, wide: &Wide<S>, by_low: &[u64; LIMBS], by_high: &[u64; LIMBS]) -> Limbs<S> {
    let low = multiply(s, &wide[0], &each!(i => s.splat(by_low[i])));
    let high = multiply(s, &wide[1], &each!(i => s.splat(by_high[i])));
    carried(s, each!(i => s.add(low[i], high[i])))
}

/// M(a, b) = a·b / R modulo L, below a·b/R + L; of the operands only the low 52 bits of a limb count.
///
/// Output: limbs below 2^52.
#[inline(always)]
fn multiply<S: Simd>(s: S, a: &Limbs<S>, b: &Limbs<S>) -> Limbs<S> {
    let order = limbs(ORDER);
    let mut c = [s.zero(); LIMBS + 1];
    for &a in a {
        for j in 0..LIMBS {
            c[j] = s.mul_lo(c[j], a, b[j]);
            c[j + 1] = s.mul_hi(c[j + 1], a, b[j]);
        }
        let m = s.mul_lo(s.zero(), c[0], s.splat(MINUS_INVERSE));
        for j in 0..LIMBS {
            c[j] = s.mul_lo(c[j], m, s.splat(order[j]));
            c[j + 1] = s.mul_hi(c[j + 1], m, s.splat(order[j]));
        }
        c[1] = s.add(c[1], s.carry(c[0]));
        c = [c[1], c[2], c[3], c[4], c[5], s.zero()];
    }
    carried(s, each!(i => c[i]))
}

/// The same number with limbs below 2^52.
#[inline(always)]
fn carried<S: Simd>(s: S, mut x: Limbs<S>) -> Limbs<S> {
    for i in 0..LIMBS - 1 {
        x[i + 1] = s.add(x[i + 1], s.carry(x[i]));
        x[i] = s.low_bits(x[i]);
    }
    x
}
