//! Conversion between big-endian bytes, limbs, and lanes.
//!
//! In lanes, limb `i` of lane `l` is word `lanes·i + l`. Limbs have 52 bits. The time of every
//! function here depends on lengths only.

use crate::simd::{MAX_LANES, Simd, enter, inlined, words, words_mut};
use crate::unroll::unrolled;

/// Returns 52 bits, from bit `bit` upwards, of a big-endian number of any length.
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
/// The number must fit; the limbs above it become zero.
#[inline(never)]
pub(crate) fn limbs_from_bytes(words: &mut [u64], stride: usize, bytes: &[u8]) {
    let (mut at, mut bit) = (0, 0);
    while at < words.len() {
        words[at] = limb(bytes, bit);
        at += stride;
        bit += 52;
    }
}

/// [`limbs_from_bytes`], into lane `lane` of a number.
pub(crate) fn lane_from_bytes<S: Simd>(number: &mut [S::Limb], lane: usize, bytes: &[u8]) {
    limbs_from_bytes(&mut words_mut(number)[lane..], S::LANES, bytes);
}

/// Writes the number in every `stride`th word as big-endian bytes. Limbs are below 2^52.
#[inline(never)]
pub(crate) fn bytes_from_limbs(bytes: &mut [u8], words: &[u64], stride: usize) {
    let mut at = 0;
    // Two limbs are thirteen bytes.
    for chunk in bytes.rchunks_mut(13) {
        let mut value = 0;
        for half in 0..2 {
            let limb = words.get(at).copied().unwrap_or(0);
            value |= u128::from(limb) << (52 * half);
            at += stride;
        }
        chunk.copy_from_slice(&value.to_be_bytes()[16 - chunk.len()..]);
    }
}

/// Writes lane `lane` of a number as big-endian bytes. Limbs are below 2^52.
pub(crate) fn bytes_from_lane<S: Simd>(bytes: &mut [u8], number: &[S::Limb], lane: usize) {
    bytes_from_limbs(bytes, &words(number)[lane..], S::LANES);
}

/// Writes the big-endian number `bytes` as words of 64 bits, modulo 2^(64·`words.len()`).
#[inline(never)]
pub(crate) fn words_from_bytes(words: &mut [u64], bytes: &[u8]) {
    words.fill(0);
    for (word, bytes) in words.iter_mut().zip(bytes.rchunks(8)) {
        *word = bytes
            .iter()
            .fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
}

/// Writes words of 64 bits as a big-endian number of the same length.
#[inline(never)]
pub(crate) fn bytes_from_words(bytes: &mut [u8], words: &[u64]) {
    for (bytes, word) in bytes.as_rchunks_mut().1.iter_mut().rev().zip(words) {
        *bytes = word.to_be_bytes();
    }
}

/// Writes the big-endian number `bytes` as 60-bit words, the lowest first.
///
/// Sixty is a multiple of each window width in use, so that no window spans two words.
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

/// Copies `count` words of one lane into another. `from` and `to` come with the number of lanes and
/// the lane.
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

/// Copies words unchanged into one lane.
pub(crate) fn words_to_lane<S: Simd>(number: &mut [S::Limb], lane: usize, from: &[u64]) {
    let to = words_mut(number);
    between_lanes(to, (S::LANES, lane), from, (1, 0), from.len());
}

/// Copies a number into one lane.
#[inline(never)]
pub(crate) fn to_lane<S: Simd>(number: &mut [S::Limb], lane: usize, limbs: &[u64]) {
    assert!(lane < S::LANES);
    for (vector, &limb) in number.iter_mut().zip(limbs) {
        words_mut(core::slice::from_mut(vector))[lane] = limb;
    }
}

/// Copies a number out of one lane.
pub(crate) fn from_lane<S: Simd>(limbs: &mut [u64], number: &[S::Limb], lane: usize) {
    between_lanes(limbs, (1, 0), words(number), (S::LANES, lane), number.len());
}

/// Returns the number of bits of a big-endian number.
pub(crate) fn bit_length(bytes: &[u8]) -> usize {
    match bytes.iter().position(|&byte| byte != 0) {
        Some(i) => 8 * (bytes.len() - i) - bytes[i].leading_zeros() as usize,
        None => 0,
    }
}

/// Returns the number without leading zero bytes.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    &bytes[zeros..]
}

/// Reads a row of words, at least eight, in each lane: limb i has word i of `rows[l]` in lane l.
/// The rows are as long as `limbs`; rows beyond the last lane are ignored. The addresses of the
/// rows are public.
#[inline(never)]
pub(crate) fn rows_to_lanes<S: Simd>(s: S, limbs: &mut [S::Limb], rows: &[&[u64]; MAX_LANES]) {
    enter!(s, [limbs], {
        let mut first = [&[0; 8]; MAX_LANES];
        let mut last = first;
        for ((first, last), row) in first.iter_mut().zip(&mut last).zip(rows) {
            *first = row.first_chunk().expect("eight words");
            *last = row.last_chunk().expect("eight words");
        }
        // The first eight words and the last eight may overlap.
        let from = limbs.len() - 8;
        limbs[from..].copy_from_slice(&s.join_rows(&last));
        if from > 0 {
            limbs[..8].copy_from_slice(&s.join_rows(&first));
        }
    });
}

/// Copies words of one lane to a row until the row is full.
#[inline(always)]
pub(crate) fn row_of_lane<S: Simd>(row: &mut [u64], limbs: &[S::Limb], lane: usize) {
    let words = words(limbs);
    for (to, word) in row.iter_mut().zip(words[lane..].iter().step_by(S::LANES)) {
        *to = *word;
    }
}

/// Returns a number, limbs below 2^52, in words of 64 bits; words above it are zero.
#[inline(always)]
pub(crate) fn pack<S: Simd, const N: usize>(s: S, limbs: &[S::Limb; N]) -> [S::Limb; N] {
    let mut out = [s.zero(); N];
    unrolled::<N>(inlined!(|k| {
        let (limb, shift) = (64 * k / 52, (64 * k % 52) as u32);
        if limb < N {
            let mut word = s.shift_right_by(limbs[limb], shift);
            if limb + 1 < N {
                word = s.xor(word, s.shift_left_by(limbs[limb + 1], 52 - shift));
            }
            if shift > 40 && limb + 2 < N {
                word = s.xor(word, s.shift_left_by(limbs[limb + 2], 104 - shift));
            }
            out[k] = word;
        }
    }));
    out
}

/// The reverse of [`pack`], from the words of a number.
#[inline(always)]
pub(crate) fn unpack<S: Simd, const N: usize>(s: S, packed: &[S::Limb]) -> [S::Limb; N] {
    let mut out = [s.zero(); N];
    unrolled::<N>(inlined!(|i| {
        let (word, shift) = (52 * i / 64, (52 * i % 64) as u32);
        let mut limb = s.shift_right_by(packed[word], shift);
        if shift > 12 && word + 1 < packed.len() {
            limb = s.xor(limb, s.shift_left_by(packed[word + 1], 64 - shift));
        }
        out[i] = s.and(limb, s.splat((1 << 52) - 1));
    }));
    out
}
