//! 1/x modulo p = 2^255 − 19 of one number, by divsteps on scalar registers, in constant time.
//!
//! D. Bernstein, B.-Y. Yang, "Fast constant-time gcd computation and modular inversion" (2019),
//! with δ = 1/2 at the start, as P. Wuille proposed it for libsecp256k1. Each step waits for the
//! one before, and a vector instruction takes twice as long as a scalar one until its result is
//! ready. So the lanes multiply all their numbers into one product, which is inverted here.
//!
//! Numbers have five signed limbs of 62 bits; all but the top one are below 2^62 and not negative,
//! unless stated otherwise.

use crate::simd::opaque_word;
use crate::taint::whole;

/// Number of bits of a limb.
const BITS: u32 = 62;
const MASK: i64 = (1 << BITS) - 1;

/// Number of steps between two updates of the long numbers.
const STEPS: u32 = 59;
/// Number of updates after which g is zero: (45907·255 + 30179)/19929 steps, rounded up, suffice
/// for a modulus of 255 bits.
const UPDATES: u32 = 10;
const _: () = assert!(STEPS * UPDATES >= (45907 * 255 + 30179_u32).div_ceil(19929));

/// The lowest limb of p and the highest one; the limbs between them are zero.
const P_LOWEST: i64 = -19;
const P_HIGHEST: i64 = 1 << (255 - 4 * BITS);
/// 1/p mod 2^62. Newton's iteration doubles the number of right bits, three at first.
const P_INVERSE: u64 = {
    let p = P_LOWEST as u64;
    let mut x = p;
    let mut right = 3;
    while right < BITS {
        x = x.wrapping_mul(2_u64.wrapping_sub(p.wrapping_mul(x)));
        right *= 2;
    }
    x
};
const _: () = assert!(P_INVERSE.wrapping_mul(P_LOWEST as u64) == 1);

type Number = [i64; 5];

/// The effect of [`STEPS`] steps, times 2^62: f ← (u·f + v·g)/2^62, g ← (q·f + r·g)/2^62.
struct Matrix {
    u: i64,
    v: i64,
    q: i64,
    r: i64,
}

/// Returns 1/x for 0 < x < p, in words of 64 bits, the lowest first.
#[inline(never)]
pub(super) fn invert(x: &[u64; 4]) -> [u64; 4] {
    let mut g = limbs(x);
    let mut f: Number = [P_LOWEST, 0, 0, 0, P_HIGHEST];
    // Invariant: d·x ≡ f and e·x ≡ g. In the end f = ±1.
    let (mut d, mut e): (Number, Number) = ([0; 5], [1, 0, 0, 0, 0]);
    // −(δ + 1/2): negative when δ is positive.
    let mut zeta = -1;
    for _ in 0..UPDATES {
        let Matrix { u, v, q, r } = steps(&mut zeta, f[0], g[0]);
        (d, e) = (
            combine_modulo_p(&d, &e, u, v),
            combine_modulo_p(&d, &e, q, r),
        );
        (f, g) = (combine(&f, &g, u, v), combine(&f, &g, q, r));
    }
    let sign = sign(f[4]);
    add_p_to_negative(&mut d);
    for limb in &mut d {
        *limb = (*limb ^ sign) - sign;
    }
    carry(&mut d);
    add_p_to_negative(&mut d);
    carry(&mut d);
    words(&d)
}

/// Computes the steps on the lowest limbs of f (odd) and g.
///
/// One step: if δ > 0 and g is odd, (δ, f, g) ← (1 − δ, g, (g − f)/2), else (1 + δ, f, (g + (g mod
/// 2)·f)/2). Rows of the matrix begin as 2^3, so that the [`STEPS`] doublings make them 2^62.
#[inline(always)]
fn steps(zeta: &mut i64, f: i64, g: i64) -> Matrix {
    let (mut f, mut g) = (f as u64, g as u64);
    let one = 1 << (BITS - STEPS);
    let (mut u, mut v, mut q, mut r) = (one, 0_u64, 0_u64, one);
    for _ in 0..STEPS {
        let positive_delta = sign(*zeta) as u64;
        let odd = opaque_word((g & 1).wrapping_neg());
        let swap = positive_delta & odd;
        let signed = |x: u64| (x ^ positive_delta).wrapping_sub(positive_delta) & odd;
        g = g.wrapping_add(signed(f));
        q = q.wrapping_add(signed(u));
        r = r.wrapping_add(signed(v));
        // f + (g − f) where f and g are exchanged.
        f = f.wrapping_add(g & swap);
        u = u.wrapping_add(q & swap);
        v = v.wrapping_add(r & swap);
        g >>= 1;
        u <<= 1;
        v <<= 1;
        // −ζ − 2 or ζ − 1.
        *zeta = (*zeta ^ swap as i64) - 1;
    }
    let [u, v, q, r] = [u, v, q, r].map(|entry| entry as i64);
    Matrix { u, v, q, r }
}

/// Returns (u·a + v·b)/2^62, which is an integer.
#[inline(always)]
fn combine(a: &Number, b: &Number, u: i64, v: i64) -> Number {
    let mut out = [0; 5];
    let mut sum = (product(u, a[0]) + product(v, b[0])) >> BITS;
    for i in 1..5 {
        sum += product(u, a[i]) + product(v, b[i]);
        out[i - 1] = sum as i64 & MASK;
        sum >>= BITS;
    }
    out[4] = sum as i64;
    out
}

/// Returns (u·a + v·b)/2^62 modulo p, between −2p and p if a and b are.
///
/// p is added to each of a and b that is negative; |u| + |v| ≤ 2^62 then bounds the sum by 2^62·p.
/// Adding a multiple of p from −2^62·p to 0 makes it divisible by 2^62.
#[inline(always)]
fn combine_modulo_p(a: &Number, b: &Number, u: i64, v: i64) -> Number {
    let mut out = [0; 5];
    let mut sum = product(u, a[0]) + product(v, b[0]);
    let mut m = (u & sign(a[4])) + (v & sign(b[4]));
    m -= (P_INVERSE.wrapping_mul(sum as u64).wrapping_add(m as u64) & MASK as u64) as i64;
    sum = (sum + product(m, P_LOWEST)) >> BITS;
    for i in 1..4 {
        sum += product(u, a[i]) + product(v, b[i]);
        out[i - 1] = sum as i64 & MASK;
        sum >>= BITS;
    }
    sum += product(u, a[4]) + product(v, b[4]) + product(m, P_HIGHEST);
    out[3] = sum as i64 & MASK;
    out[4] = (sum >> BITS) as i64;
    out
}

#[inline(always)]
fn product(a: i64, b: i64) -> i128 {
    i128::from(whole(a)) * i128::from(whole(b))
}

/// Returns all ones if x is negative, else zero.
#[inline(always)]
fn sign(x: i64) -> i64 {
    opaque_word((x >> 63) as u64) as i64
}

/// Adds p to a negative number, and leaves the carries to the caller.
#[inline(always)]
fn add_p_to_negative(x: &mut Number) {
    let negative = sign(x[4]);
    x[0] += P_LOWEST & negative;
    x[4] += P_HIGHEST & negative;
}

#[inline(always)]
fn carry(x: &mut Number) {
    for i in 0..4 {
        x[i + 1] += x[i] >> BITS;
        x[i] &= MASK;
    }
}

fn limbs(w: &[u64; 4]) -> Number {
    let limbs = [
        w[0],
        w[0] >> 62 | w[1] << 2,
        w[1] >> 60 | w[2] << 4,
        w[2] >> 58 | w[3] << 6,
        w[3] >> 56,
    ];
    limbs.map(|limb| limb as i64 & MASK)
}

fn words(x: &Number) -> [u64; 4] {
    let x = x.map(|limb| limb as u64);
    [
        x[0] | x[1] << 62,
        x[1] >> 2 | x[2] << 60,
        x[2] >> 4 | x[3] << 58,
        x[3] >> 6 | x[4] << 56,
    ]
}

#[cfg(test)]
mod tests {
    use crypto_bigint::{Odd, U256};

    use super::invert;

    const P: [u64; 4] = [u64::MAX - 18, u64::MAX, u64::MAX, u64::MAX >> 1];

    /// Compares with another implementation: small numbers, powers of two, their neighbours and
    /// negatives, and other numbers.
    #[test]
    fn inverses_are_those_of_crypto_bigint() {
        let p = U256::from_words(P);
        let modulus = Odd::new(p).expect("p is odd");
        let mut numbers: Vec<U256> = (1..20).map(U256::from_u64).collect();
        for bit in 0..255 {
            let power = U256::ONE.shl(bit);
            numbers.extend([
                power,
                power.wrapping_sub(&U256::ONE),
                power.wrapping_add(&U256::ONE),
            ]);
        }
        let mut random = 1_u64;
        for _ in 0..2000 {
            numbers.push(U256::from_words(core::array::from_fn(|i| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (random ^ random >> 29) >> usize::from(i == 3)
            })));
        }
        let negatives: Vec<_> = numbers
            .iter()
            .map(|number| p.wrapping_sub(number))
            .collect();
        let mut count = 0;
        for number in numbers.into_iter().chain(negatives) {
            if number == U256::ZERO || number >= p {
                continue;
            }
            let expected: Option<U256> = number.invert_odd_mod(&modulus).into();
            let inverse = invert(&number.to_words());
            assert_eq!(
                Some(inverse),
                expected.map(|inverse| inverse.to_words()),
                "{number}"
            );
            count += 1;
        }
        assert!(count > 5000, "{count}");
    }
}
