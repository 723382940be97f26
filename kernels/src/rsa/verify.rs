//! The check s^e mod n = c: the only place where a result becomes [`Verified`].
//!
//! It shares nothing with the computation but code: it loads the result from the very bytes that
//! would leave, the modulus from the request's own public key, and the input from an independent
//! copy. So it also finds what went wrong on the way to bytes, between lanes, or in the input.

use core::fmt;

use zeroize::Zeroize;

use super::PublicKey;
use crate::arena::Arena;
use crate::layout::{lane_from_bytes, limbs_from_bytes, to_lane};
use crate::montgomery::{canonical, multiply, square, tidy};
use crate::simd::{Simd, words_mut};

/// A value that has passed its check. Nothing outside this module can make one.
#[derive(Clone, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl Verified<Signature> {
    /// Big-endian, as long as the modulus.
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

/// That `output` is the e-th root of `input` modulo n.
pub(super) struct Claim<'a> {
    key: &'a PublicKey,
    input: &'a [u8],
    output: Signature,
    holds: bool,
}

impl<'a> Claim<'a> {
    /// Not checked yet.
    pub(super) fn new(key: &'a PublicKey, input: &'a [u8], output: Vec<u8>) -> Self {
        Self {
            key,
            input,
            output: Signature(output),
            holds: false,
        }
    }

    /// The output, if [`check`] found the claim to hold.
    pub(super) fn verdict(self) -> Option<Verified<Signature>> {
        self.holds.then_some(Verified(self.output))
    }
}

/// Bytes that [`check`] takes from the arena.
pub(super) const fn bytes<S: Simd, const M: usize>() -> usize {
    (11 * M + 3) * size_of::<S::Limb>() + 64 * 12
}

/// Whether big-endian `bytes`, as long as the modulus, are below it. Constant time.
pub(super) fn below_modulus(bytes: &[u8], key: &PublicKey) -> bool {
    let mut limbs = [0; 80];
    let limbs = &mut limbs[..key.size().limbs()];
    limbs_from_bytes(limbs, 1, bytes);
    let below = super::modulus::less_than(limbs, &key.modulus.limbs) == 1;
    crate::secret::wipe(limbs);
    below
}

/// Checks one claim per lane.
///
/// Time and addresses depend on the public exponents and on nothing else.
#[inline(never)]
pub(super) fn check<S: Simd, const M: usize>(
    s: S,
    mut arena: Arena<'_>,
    claims: &mut [Option<Claim<'_>>],
) {
    let n: &mut [S::Limb; M] = arena.array();
    let k0: &mut S::Limb = arena.one();
    let one: &mut [S::Limb; M] = arena.array();
    let r2: &mut [S::Limb; M] = arena.array();
    let output: &mut [S::Limb; M] = arena.array();
    let base: &mut [S::Limb; M] = arena.array();
    let input: &mut [S::Limb; M] = arena.array();
    let mut power: &mut [S::Limb; M] = arena.array();
    let mut spare: &mut [S::Limb; M] = arena.array();
    let factor: &mut [S::Limb; M] = arena.array();
    let doubled: &mut [S::Limb; M] = arena.array();
    let chosen: &mut S::Limb = arena.one();
    let same: &mut S::Limb = arena.one();

    let claim_of = |lane: usize, claims: &[Option<Claim<'_>>]| lane.min(claims.len() - 1);
    for lane in 0..S::LANES {
        let Some(claim) = &claims[claim_of(lane, claims)] else {
            continue;
        };
        let modulus = &claim.key.modulus;
        to_lane::<S>(n, lane, &modulus.limbs);
        to_lane::<S>(core::slice::from_mut(k0), lane, &[modulus.k0]);
        to_lane::<S>(one, lane, &modulus.one);
        to_lane::<S>(r2, lane, &modulus.r2);
        lane_from_bytes::<S>(output, lane, &claim.output.0);
        lane_from_bytes::<S>(input, lane, claim.input);
    }

    // base = s·R; power = R. From the top bit down: square, and multiply by base or by R. The lowest bit of
    // e is always set: its multiplication, by s itself, leaves Montgomery form at the same time.
    multiply(s, base, output, r2, n, k0);
    power.copy_from_slice(one);
    let bits = claims
        .iter()
        .flatten()
        .map(|claim| claim.key.exponent_bits())
        .max()
        .unwrap_or(0);
    let mut squared = false;
    for i in (1..bits).rev() {
        if squared {
            square(s, spare, doubled, power, n, k0);
            core::mem::swap(&mut spare, &mut power);
        }
        let mut any = false;
        for lane in 0..S::LANES {
            let claim = &claims[claim_of(lane, claims)];
            let bit = claim
                .as_ref()
                .is_some_and(|claim| claim.key.exponent_bit(i));
            any |= bit;
            words_mut(core::slice::from_mut(chosen))[lane] = u64::from(bit);
        }
        if any {
            choose(s, factor, chosen, base, one);
            if squared {
                multiply(s, spare, power, factor, n, k0);
            } else {
                spare.copy_from_slice(factor);
            }
            core::mem::swap(&mut spare, &mut power);
            squared = true;
        }
    }
    square(s, spare, doubled, power, n, k0);
    multiply(s, power, spare, output, n, k0);
    compare(s, same, power, spare, input, n);

    for (lane, claim) in claims.iter_mut().enumerate() {
        if let Some(claim) = claim {
            let right_length = claim.input.len() == claim.key.size().bytes();
            claim.holds = right_length && words_mut(core::slice::from_mut(same))[lane] == 0;
        }
    }
}

/// out = base where chosen, one elsewhere.
#[inline(never)]
fn choose<S: Simd, const M: usize>(
    s: S,
    out: &mut [S::Limb; M],
    chosen: &S::Limb,
    base: &[S::Limb; M],
    one: &[S::Limb; M],
) {
    s.enter(
        #[inline(always)]
        || {
            let mask = s.any_bit(*chosen, s.splat(1));
            for i in 0..M {
                out[i] = s.select(mask, base[i], one[i]);
            }
        },
    );
}

/// different = 0 in the lanes where a mod n equals b, for a < 2n; uses up `a`.
#[inline(never)]
fn compare<S: Simd, const M: usize>(
    s: S,
    different: &mut S::Limb,
    a: &mut [S::Limb; M],
    spare: &mut [S::Limb; M],
    b: &[S::Limb; M],
    n: &[S::Limb; M],
) {
    s.enter(
        #[inline(always)]
        || {
            tidy(s, a);
            canonical(s, a, spare, n);
            let mut bits = s.zero();
            for i in 0..M {
                bits = s.or_xor(bits, a[i], b[i]);
            }
            *different = bits;
        },
    );
}
