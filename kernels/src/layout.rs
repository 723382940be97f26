//! Between big-endian bytes, limbs, and lanes.
//!
//! In lanes, limb `i` of lane `l` is word `lanes·i + l`. All functions here run in a time that depends on
//! lengths only.

/// Limb `i` (52 bits) of a big-endian number of any length.
fn limb(bytes: &[u8], i: usize) -> u64 {
    let bit = 52 * i;
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
    for (i, word) in words.iter_mut().step_by(stride).enumerate() {
        *word = limb(bytes, i);
    }
}

/// Writes the number in every `stride`th word, limbs below 2^52, as big-endian bytes.
pub(crate) fn bytes_from_limbs(bytes: &mut [u8], words: &[u64], stride: usize) {
    let mut limbs = words.iter().step_by(stride);
    // Two limbs are thirteen bytes.
    for chunk in bytes.rchunks_mut(13) {
        let low = limbs.next().copied().unwrap_or(0);
        let high = limbs.next().copied().unwrap_or(0);
        let pair = u128::from(low) | u128::from(high) << 52;
        chunk.copy_from_slice(&pair.to_be_bytes()[16 - chunk.len()..]);
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

/// Copies a number into one lane: word `i` to word `lanes·i + lane`.
pub(crate) fn to_lane(words: &mut [u64], lanes: usize, lane: usize, limbs: &[u64]) {
    between_lanes(words, (lanes, lane), limbs, (1, 0), limbs.len());
}

/// Copies a number out of one lane.
pub(crate) fn from_lane(limbs: &mut [u64], words: &[u64], lanes: usize, lane: usize) {
    let count = limbs.len();
    between_lanes(limbs, (1, 0), words, (lanes, lane), count);
}

/// Copies `count` limbs of one lane into another; each is given as the number of lanes and the lane.
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
