//! The check s^e mod n = c: the only place where a result becomes [`Verified`].
//!
//! It shares with the computation only code and the prepared key: it loads the result from the very
//! bytes that would be returned, the key anew, and the input from an independent copy. So it also
//! finds a fault in the conversion to bytes, between lanes, or in the input.
//!
//! The check is computed modulo p and q, in two lanes of half as many limbs, which takes about a
//! third of the time of a check modulo n. As p ≠ q are primes whose product *is* n, which is
//! checked too, both checks are equivalent: s^e − c is a multiple of n if it is one of p and of q.
//! A result for a wrong p would be right modulo that p, but the product would not be n.

pub(super) mod on_words;
#[cfg(test)]
mod tests;

use core::fmt;

use zeroize::Zeroize;

use super::key::{PrivateKey, PublicKey};
use super::modulus::less_than;
use crate::arena::Arena;
use crate::fault;
use crate::layout::{lane_from_bytes, limbs_from_bytes, to_lane};
use crate::montgomery::{Modulus, from_montgomery, multiply, multiply_add, square, to_montgomery};
use crate::simd::{Simd, enter, words_mut};
use crate::taint::disclosed;

/// A value that has passed its check. Only this module can make one.
#[derive(Clone, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl Verified<Signature> {
    /// Returns the bytes, big-endian, as many as the modulus has.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// [`as_bytes`](Self::as_bytes), owned.
    pub fn into_bytes(mut self) -> Vec<u8> {
        core::mem::take(&mut self.0.0)
    }
}

impl<T> fmt::Debug for Verified<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verified([redacted])")
    }
}

/// The result of a private operation. Wiped when dropped, as it may be a decrypted message.
#[derive(Clone, PartialEq, Eq)]
pub struct Signature(Vec<u8>);

impl Drop for Signature {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature([redacted])")
    }
}

/// The claim that `output` is the e-th root of `input` modulo n.
pub(super) struct Claim<'a> {
    key: &'a PrivateKey,
    input: &'a [u8],
    output: Signature,
    holds: bool,
}

impl<'a> Claim<'a> {
    /// Returns an unchecked claim.
    pub(super) fn new(key: &'a PrivateKey, input: &'a [u8], output: Vec<u8>) -> Self {
        Self {
            key,
            input,
            output: Signature(output),
            holds: false,
        }
    }

    /// Decides whether the claim holds, from the bits in which s^e and c, or p·q and n, differ.
    fn decide(&mut self, different: u64) {
        let public = self.key.public();
        self.holds = fault::checks_are_skipped()
            || self.input.len() == public.size().bytes()
                && disclosed(different) == 0
                && below_modulus(&self.output.0, public);
    }

    /// Returns the output, if a check found it right.
    pub(super) fn verdict(self) -> Option<Verified<Signature>> {
        self.holds.then_some(Verified(self.output))
    }
}

/// Returns the number of bytes that [`check`] takes from the arena.
pub(super) const fn bytes<S: Simd, const N: usize>() -> usize {
    (18 * N + 3) * size_of::<S::Limb>() + 64 * 17
}

/// Returns whether big-endian `bytes`, as long as the modulus, are below it. Constant time.
pub(super) fn below_modulus(bytes: &[u8], key: &PublicKey) -> bool {
    let mut limbs = [0; 80];
    let limbs = &mut limbs[..key.size().limbs()];
    limbs_from_bytes(limbs, 1, bytes);
    let below = disclosed(less_than(limbs, &key.modulus.limbs)) == 1;
    crate::secret::wipe(limbs);
    below
}

/// Checks up to half as many claims as there are lanes, each modulo p in one lane and modulo q in
/// the next.
///
/// Time and addresses depend only on the public exponents.
#[inline(never)]
pub(super) fn check<S: Simd, const N: usize, const M: usize>(
    s: S,
    mut arena: Arena<'_>,
    claims: &mut [Claim<'_>],
) {
    let n: &mut [S::Limb; N] = arena.array();
    let k0: &mut S::Limb = arena.one();
    let one: &mut [S::Limb; N] = arena.array();
    let r2: &mut [S::Limb; N] = arena.array();
    let r3: &mut [S::Limb; N] = arena.array();
    let other: &mut [S::Limb; N] = arena.array();
    let product: &mut [S::Limb; M] = arena.array();
    let public: &mut [S::Limb; M] = arena.array();
    let output: &mut [S::Limb; M] = arena.array();
    let input: &mut [S::Limb; M] = arena.array();
    let base: &mut [S::Limb; N] = arena.array();
    let mut power: &mut [S::Limb; N] = arena.array();
    let mut spare: &mut [S::Limb; N] = arena.array();
    let factor: &mut [S::Limb; N] = arena.array();
    let doubled: &mut [S::Limb; N] = arena.array();
    let chosen: &mut S::Limb = arena.one();
    let different: &mut S::Limb = arena.one();

    let last = claims.len() - 1;
    for lane in 0..S::LANES {
        let claim = &claims[(lane / 2).min(last)];
        let (key, half) = (claim.key, lane % 2);
        let modulus = &key.half(half).modulus;
        to_lane::<S>(n, lane, &modulus.limbs);
        to_lane::<S>(core::slice::from_mut(k0), lane, &[modulus.k0]);
        to_lane::<S>(one, lane, &modulus.one);
        to_lane::<S>(r2, lane, &modulus.r2);
        to_lane::<S>(r3, lane, &modulus.r3);
        to_lane::<S>(other, lane, &key.half(1 - half).modulus.limbs);
        to_lane::<S>(public, lane, &key.public().modulus.limbs);
        lane_from_bytes::<S>(output, lane, &claim.output.0);
        lane_from_bytes::<S>(input, lane, claim.input);
    }

    let modulus = Modulus::new(n, k0);
    // From the top bit of e downwards: square, and multiply by s·R or by R.
    let roots = (&*r2, &*r3);
    to_montgomery(s, base, spare, output, roots, modulus);
    power.copy_from_slice(one);
    let bits = claims
        .iter()
        .map(|claim| claim.key.public().exponent_bits())
        .max()
        .unwrap_or(0);
    let mut squared = false;
    for i in (0..bits).rev() {
        if squared {
            square(s, spare, doubled, power, modulus);
            core::mem::swap(&mut spare, &mut power);
        }
        let mut any = false;
        for lane in 0..S::LANES {
            let claim = &claims[(lane / 2).min(last)];
            let bit = claim.key.public().exponent_bit(i);
            any |= bit;
            words_mut(core::slice::from_mut(chosen))[lane] = u64::from(bit);
        }
        if any {
            select_factor(s, factor, chosen, base, one);
            if squared {
                multiply(s, spare, power, factor, modulus);
            } else {
                spare.copy_from_slice(factor);
            }
            core::mem::swap(&mut spare, &mut power);
            squared = true;
        }
    }
    to_montgomery(s, base, spare, input, roots, modulus);
    compare(s, different, [power, base], [spare, factor], modulus);
    compare_product(s, different, product, (n, other), public);

    let different = words_mut(core::slice::from_mut(different));
    for (claim, different) in claims.iter_mut().zip(different.chunks_exact(2)) {
        claim.decide(different[0] | different[1]);
    }
}

/// Computes out = base where chosen, one elsewhere.
#[inline(never)]
pub(super) fn select_factor<S: Simd, const N: usize>(
    s: S,
    out: &mut [S::Limb; N],
    chosen: &S::Limb,
    base: &[S::Limb; N],
    one: &[S::Limb; N],
) {
    enter!(s, {
        let mask = s.any_bit(*chosen, s.splat(1));
        for i in 0..N {
            out[i] = s.select(mask, base[i], one[i]);
        }
    });
}

/// Computes different = 0 in the lanes where both `numbers`, in Montgomery form, are the same
/// modulo n; overwrites them.
#[inline(never)]
fn compare<S: Simd, const N: usize>(
    s: S,
    different: &mut S::Limb,
    numbers: [&mut [S::Limb; N]; 2],
    [out, spare]: [&mut [S::Limb; N]; 2],
    modulus: Modulus<'_, S, N>,
) {
    let [a, b] = numbers;
    for number in [&mut *a, &mut *b] {
        from_montgomery(s, out, spare, number, modulus);
        number.copy_from_slice(out);
    }
    enter!(s, {
        let mut bits = s.zero();
        for i in 0..N {
            bits = s.or_xor(bits, a[i], b[i]);
        }
        *different = bits;
    });
}

/// Adds bits to `different` in the lanes where p·q is not n.
#[inline(never)]
fn compare_product<S: Simd, const N: usize, const M: usize>(
    s: S,
    different: &mut S::Limb,
    product: &mut [S::Limb; M],
    (p, q): (&[S::Limb; N], &[S::Limb; N]),
    n: &[S::Limb; M],
) {
    multiply_add(s, product, p, q, &[s.zero(); N]);
    enter!(s, {
        for i in 0..M {
            *different = s.or_xor(*different, product[i], n[i]);
        }
    });
}
