//! AES: the round keys, and the encryption of several blocks side by side.

use super::state::Key;
use crate::simd::blocks::{BLOCK_BYTES, Block, Blocks};
use crate::simd::{enter, inlined};
use crate::unroll::unrolled;

/// Returns the number of rounds for a key of `bytes` bytes (FIPS 197, figure 4).
pub(super) fn rounds(bytes: usize) -> Option<usize> {
    matches!(bytes, 16 | 24 | 32).then_some(bytes / 4 + 6)
}

/// Encrypts each block with AES.
#[inline(always)]
pub(super) fn encipher<B: Blocks, const N: usize>(b: B, key: &Key, states: &mut [B::Vector; N]) {
    let round_key = b.broadcast(&key.round_keys[0]);
    unrolled::<N>(inlined!(|i: usize| states[i] = b.xor(states[i], round_key)));
    for round_key in &key.round_keys[1..key.rounds] {
        let round_key = b.broadcast(round_key);
        unrolled::<N>(inlined!(
            |i: usize| states[i] = b.round(states[i], round_key)
        ));
    }
    let last = b.broadcast(&key.round_keys[key.rounds]);
    unrolled::<N>(inlined!(
        |i: usize| states[i] = b.last_round(states[i], last)
    ));
}

/// Shuffle that copies the last word of a block to all four words.
const LAST_WORD: Block = [
    12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15,
];
/// The same, with each word rotated by a byte (RotWord).
const ROTATED: Block = [
    13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12,
];
/// The same with the second word, which is the last one in `high` for a key of 192 bits.
const SECOND_ROTATED: Block = [5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4];

/// The number one in each word.
const ONES: u128 = u128::MAX / 0xffff_ffff;

/// KeyExpansion (FIPS 197, section 5.2). Each turn of the loop computes as many words as the key
/// has: four in `low`, the others in `high`.
#[inline(never)]
pub(super) fn expand<B: Blocks>(b: B, key: &mut Key, bytes: &[u8]) {
    enter!(b, [key, bytes], {
        let end = (key.rounds + 1) * BLOCK_BYTES;
        let keys = key.round_keys.as_flattened_mut();
        let (low, high) = bytes.split_at(BLOCK_BYTES);
        let (mut low, mut high) = (b.load_at(0, low), b.load_at(0, high));
        let (mut at, mut constant) = (0, 1_u8);
        loop {
            *keys[at..].first_chunk_mut().expect("a round") = b.first(low);
            if let Some(to) = keys[at + BLOCK_BYTES..].first_chunk_mut()
                && bytes.len() > BLOCK_BYTES
            {
                *to = b.first(high);
            }
            at += bytes.len();
            if at >= end {
                return;
            }
            let last = match bytes.len() {
                16 => b.shuffle(low, &ROTATED),
                24 => b.shuffle(high, &SECOND_ROTATED),
                _ => b.shuffle(high, &ROTATED),
            };
            let word = b.broadcast(&(ONES * u128::from(constant)).to_le_bytes());
            low = b.xor(sums(b, low), b.last_round(last, word));
            constant = (constant << 1) ^ ((constant >> 7) * 0x1b);
            let last = b.shuffle(low, &LAST_WORD);
            high = b.xor(
                sums(b, high),
                match bytes.len() {
                    32 => b.last_round(last, b.broadcast(&[0; BLOCK_BYTES])),
                    _ => last,
                },
            );
        }
    });
}

/// Replaces each word by the sum of itself and all words before it.
#[inline(always)]
fn sums<B: Blocks>(b: B, a: B::Vector) -> B::Vector {
    const NONE: u8 = 128;
    let one = [NONE, NONE, NONE, NONE, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    let two = [
        NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 0, 1, 2, 3, 4, 5, 6, 7,
    ];
    let a = b.xor(a, b.shuffle(a, &one));
    b.xor(a, b.shuffle(a, &two))
}
