//! Conversion between the bytes of requests and limbs in lanes.

use super::field::LIMBS;
use crate::simd::Simd;
use crate::simd::{words, words_mut};

/// `N` limb vectors.
pub(crate) type Limbs<S, const N: usize = LIMBS> = [<S as crate::simd::Simd>::Limb; N];

const MASK: u64 = (1 << 52) - 1;

/// Returns the little-endian words of a string of 32 bytes.
#[inline(always)]
pub(crate) fn words_of(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// Returns the string of 32 bytes with these little-endian words.
#[inline(always)]
pub(crate) fn bytes_of(words: &[u64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    bytes
}

/// Loads numbers of 256 bits as limbs of 52 bits: limb i has the bits from 52·i upwards, lane l has
/// the number `lane(l)`.
#[inline(always)]
pub(crate) fn load<S: Simd>(s: S, mut lane: impl FnMut(usize) -> [u64; 4]) -> Limbs<S> {
    load_limbs(s, |l| {
        let w = lane(l);
        [
            w[0] & MASK,
            (w[0] >> 52 | w[1] << 12) & MASK,
            (w[1] >> 40 | w[2] << 24) & MASK,
            (w[2] >> 28 | w[3] << 36) & MASK,
            w[3] >> 16,
        ]
    })
}

/// Loads `N` limbs of every lane.
#[inline(always)]
pub(crate) fn load_limbs<S: Simd, const N: usize>(
    s: S,
    mut lane: impl FnMut(usize) -> [u64; N],
) -> Limbs<S, N> {
    let mut limbs = [s.zero(); N];
    let all = words_mut(&mut limbs);
    for l in 0..S::LANES {
        for (i, limb) in lane(l).into_iter().enumerate() {
            all[S::LANES * i + l] = limb;
        }
    }
    limbs
}

/// Returns the limbs of one lane.
#[inline(always)]
pub(crate) fn lane<S: Simd, const N: usize>(limbs: &Limbs<S, N>, l: usize) -> [u64; N] {
    let all = words(limbs);
    core::array::from_fn(|i| all[S::LANES * i + l])
}

/// Returns the number in one lane. Its limbs must be below 2^52 and the top one below 2^48.
#[inline(always)]
pub(crate) fn store<S: Simd>(limbs: &Limbs<S>, l: usize) -> [u64; 4] {
    let x = lane::<S, LIMBS>(limbs, l);
    [
        x[0] | x[1] << 52,
        x[1] >> 12 | x[2] << 40,
        x[2] >> 24 | x[3] << 28,
        x[3] >> 36 | x[4] << 16,
    ]
}
