//! SHA-512 (FIPS 180-4) of several messages at once, one in each lane, and its [compression
//! function](single) for one message.

pub(crate) mod constants;
#[cfg(vectors)]
mod single;

use sha2::block_api::compress512;
use sha2::{Digest, Sha512};

use crate::backend::Backend;
#[cfg(vectors)]
use crate::backend::Kind;
use crate::secret::wipe;
#[cfg(vectors)]
use crate::simd::pairs::Pairs;
use crate::simd::{CHOOSE, Simd, enter, inlined, words, words_mut};
use crate::unroll::unrolled;
pub(crate) use constants::{BLOCK_BYTES, Words};
use constants::{INITIAL, ROUND};

/// Number of bytes after a message: a bit, and its length in bits.
const TRAILER_BYTES: usize = 1 + 16;

/// A message in three pieces.
pub(crate) type Message<'a> = [&'a [u8]; 3];

/// Hashes up to as many messages as there are lanes.
pub(crate) fn hash<S: Simd>(s: S, messages: &[Message<'_>], digests: &mut [Words]) {
    debug_assert!(messages.len() == digests.len());
    let mut state = hash_to_lanes(s, messages);
    for (lane, digest) in digests.iter_mut().enumerate() {
        let lane = words(&state)[lane..].iter().step_by(S::LANES);
        for (to, word) in digest.iter_mut().zip(lane) {
            *to = *word;
        }
    }
    wipe(words_mut(&mut state));
}

/// [`hash`], but leaves a digest in the lane of its message, word by word. The contents of the
/// other lanes are unspecified.
///
/// Lanes work until the longest message is done, and take twice as long for a block as a single
/// message does. So they are used where on average at least two are busy; otherwise each message is
/// hashed on its own.
pub(crate) fn hash_to_lanes<S: Simd>(s: S, messages: &[Message<'_>]) -> [S::Limb; 8] {
    debug_assert!(messages.len() <= S::LANES);
    let blocks = |message| (length(message) + TRAILER_BYTES).div_ceil(BLOCK_BYTES);
    let longest = messages.iter().map(blocks).max().unwrap_or(0);
    if messages.iter().map(blocks).sum::<usize>() >= 2 * longest {
        return hash_in_lanes(s, messages, longest);
    }
    let mut state = [s.zero(); 8];
    for (lane, message) in messages.iter().enumerate() {
        let mut hash = Sha512::new();
        message.iter().for_each(|piece| hash.update(piece));
        let mut bytes: [u8; 64] = hash.finalize().into();
        let lane = words_mut(&mut state)[lane..].iter_mut().step_by(S::LANES);
        for (word, bytes) in lane.zip(bytes.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        wipe(&mut bytes);
    }
    state
}

fn length(message: &Message<'_>) -> usize {
    message.iter().map(|piece| piece.len()).sum()
}

/// Returns whether [`compress_each`] is faster for three or four states together than one by one.
pub(crate) fn has_lanes(backend: Backend) -> bool {
    backend != Backend::PORTABLE
}

/// Applies the compression function to each state with its block. With vector instructions, two or
/// more states run in lanes.
pub(crate) fn compress_each(backend: Backend, states: &mut [Words], blocks: &[[u8; BLOCK_BYTES]]) {
    match backend.kind(1) {
        #[cfg(vectors)]
        Kind::Avx512Ifma256 { narrow, .. } if states.len() > 1 => {
            compress_in_lanes(narrow, states, blocks);
        }
        #[cfg(vectors)]
        Kind::Avx2(lanes) if states.len() > 1 => compress_in_lanes(lanes, states, blocks),
        _ => {
            for (state, block) in states.iter_mut().zip(blocks) {
                compress_one(state, block);
            }
        }
    }
}

/// Applies the compression function to one state, without lanes.
fn compress_one(state: &mut Words, block: &[u8; BLOCK_BYTES]) {
    #[cfg(vectors)]
    if let Some(pairs) = Pairs::detect() {
        return single::compress(pairs, state, block);
    }
    compress512(state, core::slice::from_ref(block));
}

/// [`compress_each`], in passes of all lanes.
#[cfg(vectors)]
fn compress_in_lanes<S: Simd>(s: S, states: &mut [Words], blocks: &[[u8; BLOCK_BYTES]]) {
    let mut lanes = [s.zero(); 8];
    let mut schedule = [s.zero(); 16];
    for (states, blocks) in states.chunks_mut(S::LANES).zip(blocks.chunks(S::LANES)) {
        let mut busy = s.zero();
        for (lane, (state, block)) in states.iter().zip(blocks).enumerate() {
            words_mut(core::slice::from_mut(&mut busy))[lane] = 1;
            for (to, word) in words_mut(&mut lanes).chunks_exact_mut(S::LANES).zip(state) {
                to[lane] = *word;
            }
            let to = words_mut(&mut schedule).chunks_exact_mut(S::LANES);
            for (to, word) in to.zip(block.as_chunks().0) {
                to[lane] = u64::from_be_bytes(*word);
            }
        }
        compress(s, &mut lanes, &mut schedule, busy);
        for (lane, state) in states.iter_mut().enumerate() {
            for (word, from) in state.iter_mut().zip(words(&lanes).chunks_exact(S::LANES)) {
                *word = from[lane];
            }
        }
    }
    wipe(words_mut(&mut lanes));
    wipe(words_mut(&mut schedule));
}

/// [`hash_to_lanes`] in all lanes; `longest` is the number of blocks of the longest message.
fn hash_in_lanes<S: Simd>(s: S, messages: &[Message<'_>], longest: usize) -> [S::Limb; 8] {
    let mut state = [s.zero(); 8];
    for (lanes, word) in words_mut(&mut state).chunks_mut(S::LANES).zip(INITIAL) {
        lanes.fill(word);
    }
    let mut schedule = [s.zero(); 16];
    let mut bytes = [0; BLOCK_BYTES];
    for block in 0..longest {
        let mut busy = s.zero();
        for (lane, message) in messages.iter().enumerate() {
            if !fill(&mut bytes, message, block) {
                continue;
            }
            words_mut(core::slice::from_mut(&mut busy))[lane] = 1;
            let lanes = words_mut(&mut schedule).chunks_exact_mut(S::LANES);
            for (to, word) in lanes.zip(bytes.as_chunks().0) {
                to[lane] = u64::from_be_bytes(*word);
            }
        }
        compress(s, &mut state, &mut schedule, busy);
    }
    wipe(&mut bytes);
    wipe(words_mut(&mut schedule));
    state
}

/// Writes block number `block` of the padded message (section 5.1.2); false if there is no such
/// block.
fn fill(bytes: &mut [u8; BLOCK_BYTES], message: &Message<'_>, block: usize) -> bool {
    let (start, length) = (block * BLOCK_BYTES, length(message));
    let end = start + BLOCK_BYTES;
    if start >= length + TRAILER_BYTES {
        return false;
    }
    bytes.fill(0);
    let mut at = 0;
    for piece in message {
        let (from, to) = (at.max(start), (at + piece.len()).min(end));
        if from < to {
            bytes[from - start..to - start].copy_from_slice(&piece[from - at..to - at]);
        }
        at += piece.len();
    }
    if (start..end).contains(&length) {
        bytes[length - start] = 0x80;
    }
    if length + TRAILER_BYTES <= end {
        bytes[BLOCK_BYTES - 16..].copy_from_slice(&(8 * length as u128).to_be_bytes());
    }
    true
}

/// Applies the compression function (section 6.4.2) in the lanes in which `busy` is 1. `schedule`
/// holds the message block and is overwritten.
#[inline(never)]
fn compress<S: Simd>(s: S, state: &mut [S::Limb; 8], schedule: &mut [S::Limb; 16], busy: S::Limb) {
    enter!(s, [state, schedule], {
        let mut w = *schedule;
        let mut v = *state;
        unrolled::<8>(inlined!(|j| round(s, &mut v, j, w[j], ROUND[j])));
        unrolled::<8>(inlined!(|j| round(s, &mut v, j, w[8 + j], ROUND[8 + j])));
        for constants in ROUND[16..].chunks_exact(16) {
            unrolled::<8>(inlined!(|j| round(
                s,
                &mut v,
                j,
                extend(s, &mut w, j),
                constants[j]
            )));
            unrolled::<8>(inlined!(|j| round(
                s,
                &mut v,
                j,
                extend(s, &mut w, 8 + j),
                constants[8 + j]
            )));
        }
        let busy = s.any_bit(busy, s.splat(1));
        unrolled::<8>(inlined!(
            |i| state[i] = s.select(busy, s.add(state[i], v[i]), state[i])
        ));
        *schedule = w;
    });
}

/// Computes round j of eight. The variables stay in place: a is `v[(8 − j) mod 8]`, and so on
/// upwards.
#[inline(always)]
fn round<S: Simd>(s: S, v: &mut [S::Limb; 8], j: usize, word: S::Limb, constant: u64) {
    const MAJORITY: i32 = 0xe8;
    let at = |i: usize| (8 + i - j) % 8;
    let [a, b, c, e, f, g] = [v[at(0)], v[at(1)], v[at(2)], v[at(4)], v[at(5)], v[at(6)]];
    let sum_1 = xor_3(
        s,
        s.rotate_right::<14>(e),
        s.rotate_right::<18>(e),
        s.rotate_right::<41>(e),
    );
    let sum_0 = xor_3(
        s,
        s.rotate_right::<28>(a),
        s.rotate_right::<34>(a),
        s.rotate_right::<39>(a),
    );
    // Operands are added in the order in which they are known, because e of the next round waits
    // for the sum.
    let input = s.optimisation_barrier(s.add(s.add(v[at(7)], word), s.splat(constant)));
    let input = s.optimisation_barrier(s.add(input, s.ternary::<CHOOSE>(e, f, g)));
    let t1 = s.add(input, sum_1);
    let t2 = s.add(sum_0, s.ternary::<MAJORITY>(a, b, c));
    v[at(3)] = s.add(v[at(3)], t1);
    v[at(7)] = s.add(t1, t2);
}

/// Computes the next word of the schedule, in place of the word sixteen places before.
#[inline(always)]
fn extend<S: Simd>(s: S, w: &mut [S::Limb; 16], j: usize) -> S::Limb {
    let (old, late) = (w[(j + 1) % 16], w[(j + 14) % 16]);
    let sigma_0 = xor_3(
        s,
        s.rotate_right::<1>(old),
        s.rotate_right::<8>(old),
        s.shift_right::<7>(old),
    );
    let sigma_1 = xor_3(
        s,
        s.rotate_right::<19>(late),
        s.rotate_right::<61>(late),
        s.shift_right::<6>(late),
    );
    w[j] = s.add(s.add(w[j], sigma_0), s.add(w[(j + 9) % 16], sigma_1));
    w[j]
}

#[inline(always)]
fn xor_3<S: Simd>(s: S, a: S::Limb, b: S::Limb, c: S::Limb) -> S::Limb {
    s.ternary::<0x96>(a, b, c)
}

#[cfg(test)]
mod tests {
    use lockstep_testkit::Random;

    use super::*;
    use crate::backend::{Backend, on_all_lanes};

    /// Compares messages with lengths around the ends of blocks, in pieces, next to messages of
    /// other lengths.
    fn check<S: Simd>(s: S) {
        let text: Vec<u8> = (0..1000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for length in (0..300).chain([383, 384, 640, 1000]) {
            let messages: Vec<Message<'_>> = (0..S::LANES)
                .map(|lane| {
                    let text = &text[..length * (8 - lane % 3) / 8];
                    let (a, rest) = text.split_at(text.len().min(32));
                    let (b, c) = rest.split_at(rest.len() * lane / 8);
                    [a, b, c]
                })
                .collect();
            for count in [1, S::LANES / 2, S::LANES - 1, S::LANES] {
                let mut digests = vec![[0; 8]; count];
                hash(s, &messages[..count], &mut digests);
                for (digest, message) in digests.iter().zip(&messages) {
                    let bytes = digest.map(u64::to_be_bytes);
                    assert_eq!(bytes.as_flattened(), &Sha512::digest(message.concat())[..]);
                }
            }
        }
    }

    #[test]
    fn states_are_those_of_an_independent_crate() {
        let mut random = Random(512);
        let backends = Backend::available();
        for count in [1, 2, 3, 4, 5, 9] {
            for _ in 0..if cfg!(miri) { 3 } else { 3_000 } {
                let states: Vec<Words> = (0..count)
                    .map(|_| core::array::from_fn(|_| random.word()))
                    .collect();
                let blocks: Vec<[u8; BLOCK_BYTES]> = (0..count).map(|_| random.bytes()).collect();
                let mut expected = states.clone();
                for (state, block) in expected.iter_mut().zip(&blocks) {
                    compress512(state, &[*block]);
                }
                for &backend in &backends {
                    let mut states = states.clone();
                    compress_each(backend, &mut states, &blocks);
                    assert_eq!(states, expected, "{backend:?}");
                }
            }
        }
    }

    #[test]
    fn digests_are_those_of_an_independent_crate() {
        on_all_lanes!(check);
    }
}
