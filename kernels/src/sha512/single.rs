//! SHA-512's compression function for one message: the schedule in vectors, two words at a time,
//! beside the rounds in ordinary registers.

use super::constants::{BLOCK_BYTES, ROUND, Words};
use crate::secret::wipe;
use crate::simd::pairs::{Pair, Pairs};
use crate::simd::{inlined, opaque_word, words, words_mut};
use crate::unroll::unrolled;

/// Applies the compression function (FIPS 180-4, section 6.4.2).
#[inline(never)]
pub(super) fn compress(pairs: Pairs, state: &mut Words, block: &[u8; BLOCK_BYTES]) {
    pairs.enter(inlined!(move || {
        let zero = pairs.pair(&[0; 2]);
        let (mut w, mut sums) = ([zero; 8], [zero; 8]);
        let constants = ROUND.as_chunks().0;
        let bytes = block.as_chunks().0;
        unrolled::<8>(inlined!(|j| {
            w[j] = pairs.load(&bytes[j]);
            sums[j] = pairs.add(w[j], pairs.pair(&constants[j]));
        }));
        let mut v = *state;
        let mut b_c = v[1] ^ v[2];
        for constants in constants[8..].as_chunks::<8>().0 {
            unrolled::<8>(inlined!(|j| {
                extend(pairs, &mut w, j);
                two_rounds(&mut v, &mut b_c, j, &sums);
                sums[j] = pairs.add(w[j], pairs.pair(&constants[j]));
            }));
        }
        unrolled::<8>(inlined!(|j| two_rounds(&mut v, &mut b_c, j, &sums)));
        for (to, word) in state.iter_mut().zip(v) {
            *to = to.wrapping_add(word);
        }
        wipe(words_mut(&mut sums));
    }));
}

/// Computes rounds 2·j and 2·j + 1 of sixteen; `sums` are words of the schedule plus constants.
#[inline(always)]
fn two_rounds(v: &mut Words, b_c: &mut u64, j: usize, sums: &[Pair; 8]) {
    let sums = words(sums);
    round(v, b_c, 2 * j % 8, sums[2 * j]);
    round(v, b_c, (2 * j + 1) % 8, sums[2 * j + 1]);
}

/// Computes round j of eight. The variables stay in place: a is `v[(8 − j) mod 8]`, and so on
/// upwards. `b_c` is b ⊕ c, which equals a ⊕ b of the round before.
#[inline(always)]
fn round(v: &mut Words, b_c: &mut u64, j: usize, sum: u64) {
    let at = |i: usize| (8 + i - j) % 8;
    let [a, b, e, f, g] = [v[at(0)], v[at(1)], v[at(4)], v[at(5)], v[at(6)]];
    let sum_1 = e.rotate_right(14) ^ e.rotate_right(18) ^ e.rotate_right(41);
    let sum_0 = a.rotate_right(28) ^ a.rotate_right(34) ^ a.rotate_right(39);
    let a_b = a ^ b;
    let majority = b ^ a_b & *b_c;
    *b_c = a_b;
    // Operands are added in the order in which they are known, because e of the next round waits
    // for the sum. The two parts of the choice have no bit in common, so adding both gives their
    // union.
    let input = opaque_word(v[at(7)].wrapping_add(sum));
    let input = opaque_word(input.wrapping_add(!e & g));
    let input = opaque_word(input.wrapping_add(e & f));
    let t1 = input.wrapping_add(sum_1);
    v[at(3)] = v[at(3)].wrapping_add(t1);
    v[at(7)] = opaque_word(t1.wrapping_add(sum_0)).wrapping_add(majority);
}

/// Computes the next two words of the schedule, in place of the two words sixteen places before.
#[inline(always)]
fn extend(pairs: Pairs, w: &mut [Pair; 8], j: usize) {
    let at = |i: usize| w[(j + i) % 8];
    let old = pairs.sigma::<1, 63, 8, 56, 7>(pairs.across(at(0), at(1)));
    let late = pairs.sigma::<19, 45, 61, 3, 6>(at(7));
    let middle = pairs.add(at(0), pairs.across(at(4), at(5)));
    w[j] = pairs.add(middle, pairs.add(old, late));
}
