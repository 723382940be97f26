//! Between big-endian bytes, limbs, and lanes.
//!
//! In lanes, limb `i` of lane `l` is word `lanes·i + l`. Outside of lanes, limbs have 52 bits;
//! lanes with shorter limbs have several for each. All functions here run in a time that depends on
//! lengths only.

use crate::simd::{Simd, words, words_mut};

/// 52 bits, from bit `bit` on, of a big-endian number of any length.
fn limb(bytes: &[u8], bit: usize) -> u64 {
    let (start, shift) = (bit / 8, bit % 8);
    let word = match bytes.len().checked_sub(start + 8) {
        Some(at) => u64::from_be_bytes(*bytes[at..].first_chunk().expect("eight bytes")),
        None => bytes
            .iter()
            .rev()
            .skip(start)
            .take(8)
            .enumerate()
            .fold(0, |word, (k, &byte)| word | u64::from(byte) << (8 * k)),
    };
    (word >> shift) & ((1 << 52) - 1)
}

/// Writes the big-endian number `bytes` as limbs to every `stride`th word.
///
/// `bytes` must fit; what lies above is zero.
pub(crate) fn limbs_from_bytes(words: &mut [u64], stride: usize, bytes: &[u8]) {
    unpack(words, stride, bytes, 52);
}

/// [`limbs_from_bytes`], into lane `lane` of a number.
pub(crate) fn lane_from_bytes<S: Simd>(number: &mut [S::Limb], lane: usize, bytes: &[u8]) {
    let words = &mut words_mut(number)[lane..];
    unpack(words, S::LANES, bytes, S::LIMB_BITS);
}

/// Writes the number in every `stride`th word, limbs below 2^52, as big-endian bytes.
pub(crate) fn bytes_from_limbs(bytes: &mut [u8], words: &[u64], stride: usize) {
    pack(bytes, words, stride, 52);
}

/// Writes lane `lane` of a number, limbs below the radix, as big-endian bytes.
pub(crate) fn bytes_from_lane<S: Simd>(bytes: &mut [u8], number: &[S::Limb], lane: usize) {
    const { assert!(52 % S::LIMB_BITS == 0) };
    pack(bytes, &words(number)[lane..], S::LANES, S::LIMB_BITS);
}

/// Bytes to limbs of `bits` bits, at most 52.
#[inline(never)]
fn unpack(words: &mut [u64], stride: usize, bytes: &[u8], bits: u32) {
    let (mut at, mut bit) = (0, 0);
    while at < words.len() {
        words[at] = limb(bytes, bit) & ((1 << bits) - 1);
        at += stride;
        bit += bits as usize;
    }
}

/// Limbs of `bits` bits, which divides 52, to bytes.
#[inline(never)]
fn pack(bytes: &mut [u8], words: &[u64], stride: usize, bits: u32) {
    let mut at = 0;
    // Two limbs of 52 bits are thirteen bytes.
    for chunk in bytes.rchunks_mut(13) {
        let (mut value, mut shift) = (0, 0);
        while shift < 104 {
            let limb = words.get(at).copied().unwrap_or(0);
            value |= u128::from(limb) << shift;
            at += stride;
            shift += bits;
        }
        chunk.copy_from_slice(&value.to_be_bytes()[16 - chunk.len()..]);
    }
}

/// Writes the big-endian number `bytes` as 60-bit words, the lowest first.
///
/// Sixty is a multiple of the exponent windows in use, so that no window spans two words.
pub(crate) fn exponent_words(words: &mut [u64], bytes: &[u8]) {
    for (i, word) in words.iter_mut().enumerate() {
        let (bit, mut value) = (60 * i, 0);
        let (start, shift) = (bit / 8, bit % 8);
        for (k, &byte) in bytes.iter().rev().skip(start).take(8).enumerate() {
            value |= u64::from(byte) << (8 * k);
        }
        *word = (value >> shift) & ((1 << 60) - 1);
    }
}

/// Copies `count` words of one lane into another; each is given as the number of lanes and the
/// lane.
#[inline(never)]
pub(crate) fn between_lanes(
    to: &mut [u64],
    (to_lanes, to_lane): (usize, usize),
    from: &[u64],
    (from_lanes, from_lane): (usize, usize),
    count: usize,
) {
    let (mut write, mut read) = (to_lane, from_lane);
    for _ in 0..count {
        to[write] = from[read];
        write += to_lanes;
        read += from_lanes;
    }
}

/// Copies words as they are into one lane.
pub(crate) fn words_to_lane<S: Simd>(number: &mut [S::Limb], lane: usize, from: &[u64]) {
    let to = words_mut(number);
    between_lanes(to, (S::LANES, lane), from, (1, 0), from.len());
}

/// Copies a number into one lane.
#[inline(never)]
pub(crate) fn to_lane<S: Simd>(number: &mut [S::Limb], lane: usize, limbs: &[u64]) {
    const { assert!(52 % S::LIMB_BITS == 0) };
    if S::LIMB_BITS != 52 {
        return split(words_mut(number), (S::LANES, lane), limbs, S::LIMB_BITS);
    }
    assert!(lane < S::LANES);
    for (vector, &limb) in number.iter_mut().zip(limbs) {
        words_mut(core::slice::from_mut(vector))[lane] = limb;
    }
}

/// Copies a number, limbs below the radix, out of one lane.
pub(crate) fn from_lane<S: Simd>(limbs: &mut [u64], number: &[S::Limb], lane: usize) {
    const { assert!(52 % S::LIMB_BITS == 0) };
    join(limbs, words(number), (S::LANES, lane), S::LIMB_BITS);
}

/// [`to_lane`] for shorter limbs: `bits` divides 52.
#[inline(never)]
fn split(words: &mut [u64], (lanes, lane): (usize, usize), limbs: &[u64], bits: u32) {
    let (mut at, mut limb, mut shift) = (lane, 0, 0);
    while at < words.len() {
        words[at] = limbs[limb] >> shift & ((1 << bits) - 1);
        at += lanes;
        shift += bits;
        if shift == 52 {
            (limb, shift) = (limb + 1, 0);
        }
    }
}

/// [`from_lane`], one body for all lanes: `bits` divides 52.
#[inline(never)]
fn join(limbs: &mut [u64], words: &[u64], (lanes, lane): (usize, usize), bits: u32) {
    limbs.fill(0);
    let (mut at, mut limb, mut shift) = (lane, 0, 0);
    while at < words.len() {
        limbs[limb] |= words[at] << shift;
        at += lanes;
        shift += bits;
        if shift == 52 {
            (limb, shift) = (limb + 1, 0);
        }
    }
}

/// Number of bits of a big-endian number.
pub(crate) fn bit_length(bytes: &[u8]) -> usize {
    match bytes.iter().position(|&byte| byte != 0) {
        Some(i) => 8 * (bytes.len() - i) - bytes[i].leading_zeros() as usize,
        None => 0,
    }
}

/// Without leading zero bytes.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    &bytes[zeros..]
}
