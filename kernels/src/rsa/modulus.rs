//! A modulus with its Montgomery constants, as limbs of one lane.

use crate::montgomery::{self, canonical, mask_limbs, multiply, negative_inverse, normalise};
use crate::secret::{SecretWords, key_words};
use crate::simd::portable::{Limbs, Portable};
use crate::simd::{opaque_word, words, words_mut};

/// The single lane in which keys are prepared.
pub(crate) const LANE: Portable<1> = Portable;
/// A number in that lane.
pub(crate) type Number<const N: usize> = [Limbs<1>; N];

pub(crate) fn zero<const N: usize>() -> Number<N> {
    [crate::simd::Simd::zero(LANE); N]
}

/// An odd modulus n of exactly `bits` bits, and the constants of Montgomery arithmetic with R =
/// 2^(52·limbs).
#[derive(Clone, Debug)]
pub(crate) struct Modulus {
    pub(crate) limbs: SecretWords,
    /// −1/n mod 2^52.
    pub(crate) k0: u64,
    /// R mod n.
    pub(crate) one: SecretWords,
    /// R² mod n.
    pub(crate) r2: SecretWords,
    /// R³ mod n.
    pub(crate) r3: SecretWords,
}

impl Modulus {
    /// Prepares n in constant time. `n` must be odd, with bit `bits − 1` set and no bit above it.
    pub(crate) fn new<const N: usize>(n: &Number<N>, bits: usize) -> Self {
        let k0 = negative_inverse(words(n)[0]) & ((1 << 52) - 1);
        let mut modulus = Self {
            limbs: key_words(N),
            k0,
            one: key_words(N),
            r2: key_words(N),
            r3: key_words(N),
        };
        modulus.limbs.copy_from_slice(words(n));

        // 2^(bits−1) < n. Doublings give R mod n, and then R·2^s. Each squaring doubles s, until s
        // is 52·N.
        let mut power = zero::<N>();
        words_mut(&mut power)[(bits - 1) / 52] = 1 << ((bits - 1) % 52);
        for _ in bits - 1..52 * N {
            double_mod(&mut power, n);
        }
        modulus.one.copy_from_slice(words(&power));
        let squarings = (52 * N).trailing_zeros();
        for _ in 0..(52 * N) >> squarings {
            double_mod(&mut power, n);
        }
        for _ in 0..squarings {
            power = multiply_mod(&power, &power, n, k0);
        }
        modulus.r2.copy_from_slice(words(&power));
        power = multiply_mod(&power, &power, n, k0);
        modulus.r3.copy_from_slice(words(&power));
        crate::secret::wipe(words_mut(&mut power));
        modulus
    }
}

/// Computes a ← 2·a mod n for a < n.
fn double_mod<const N: usize>(a: &mut Number<N>, n: &Number<N>) {
    for word in words_mut(a) {
        *word <<= 1;
    }
    normalise(LANE, a);
    let mut difference = zero::<N>();
    canonical(LANE, a, &mut difference, n);
}

/// Returns a·b/R mod n, canonical, for operands as in [`multiply`].
pub(crate) fn multiply_mod<const N: usize>(
    a: &Number<N>,
    b: &Number<N>,
    n: &Number<N>,
    k0: u64,
) -> Number<N> {
    let mut result = zero::<N>();
    let k0 = crate::simd::Simd::splat(LANE, k0);
    multiply(LANE, &mut result, a, b, montgomery::Modulus::new(n, &k0));
    mask_limbs(LANE, &mut result);
    let mut difference = zero::<N>();
    canonical(LANE, &mut result, &mut difference, n);
    result
}

/// Returns whether a < b, as 0 or 1, for limbs below 2^52.
pub(crate) fn less_than(a: &[u64], b: &[u64]) -> u64 {
    let mut borrow = 0;
    for (a, b) in a.iter().zip(b) {
        borrow = opaque_word(a.wrapping_sub(*b).wrapping_sub(borrow) >> 63);
    }
    borrow
}

/// Returns whether a = b, as 0 or 1; the time depends on lengths only.
pub(crate) fn equal(a: &[u64], b: &[u64]) -> u64 {
    if a.len() != b.len() {
        return 0;
    }
    let bits = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    // The top bit of x | −x shows whether x is zero, without a comparison.
    opaque_word(1 ^ (bits | bits.wrapping_neg()) >> 63)
}
