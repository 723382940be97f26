//! Conversion between bytes and polynomials (FIPS 204, sections 7.1 to 7.4).
//!
//! The time of no function here depends on a secret. [`sample_vartime`] is for the matrix, [`Ball`]
//! for a challenge, and the encoding of hints for a signature: these are public.

use super::arithmetic::canonical;
use super::parameters::{MASK, eta, gamma_2, high_bits, length, omega, small_bits, tau};
use crate::keccak::sponge::{Block, Function};
use crate::simd::enter;
use crate::simd::words16::{COEFFICIENTS, Polynomial};
use crate::simd::words32::{AlignedBytes, LongPolynomial, LongSampled, LongWords, Q};
use crate::taint::disclosed;

/// Number of bits by which a public key is rounded (d).
pub(super) const DROPPED: u32 = 13;

/// Number of blocks in a polynomial of a mask.
pub(super) const MASK_BLOCKS: usize = 5;

/// The bytes of a polynomial of a mask, and some unused ones.
pub(super) type Mask = AlignedBytes<MASK>;

const _: () = assert!(MASK_BLOCKS * Function::Shake256.rate() <= MASK);

/// A bit for each coefficient of a polynomial: whether it has a hint.
pub(super) type Hints = [u64; 4];

/// Writes a polynomial of numbers of `BITS` bits, at most 16, the lowest bits first (algorithm 16).
pub(super) fn pack<const BITS: usize>(numbers: impl Fn(usize) -> i32, bytes: &mut [u8]) {
    for (group, to) in bytes[..length(BITS)].chunks_exact_mut(BITS).enumerate() {
        let eight = (0..8).fold(0, |eight, i| {
            eight | u128::from(numbers(8 * group + i) as u32) << (BITS * i)
        });
        to.copy_from_slice(&eight.to_le_bytes()[..BITS]);
    }
}

/// The inverse of [`pack`] (algorithm 18).
pub(super) fn unpack<const BITS: usize>(bytes: &[u8], mut number: impl FnMut(usize, i32)) {
    for (group, from) in bytes[..length(BITS)].chunks_exact(BITS).enumerate() {
        let mut eight = [0; 16];
        eight[..BITS].copy_from_slice(from);
        let eight = u128::from_le_bytes(eight);
        for i in 0..8 {
            let mask = const { (1 << BITS) - 1 };
            number(8 * group + i, (eight >> (BITS * i)) as i32 & mask);
        }
    }
}

/// Writes a secret polynomial.
pub(super) fn encode_small(k: usize, polynomial: &Polynomial, bytes: &mut [u8]) {
    let number = |i: usize| eta(k) - i32::from(polynomial.0[i]);
    match small_bits(k) {
        3 => pack::<3>(number, bytes),
        _ => pack::<4>(number, bytes),
    }
}

/// Reads a secret polynomial; returns whether all coefficients are small enough.
pub(super) fn decode_small(k: usize, bytes: &[u8], polynomial: &mut Polynomial) -> bool {
    let mut room = 0;
    let coefficient = |i: usize, number: i32| {
        let coefficient = eta(k) - number;
        room |= coefficient + eta(k);
        polynomial.0[i] = coefficient as i16;
    };
    match small_bits(k) {
        3 => unpack::<3>(bytes, coefficient),
        _ => unpack::<4>(bytes, coefficient),
    }
    room >= 0
}

/// Splits numbers into a multiple of 2^13 and a rest (algorithm 35), after adding q to negative
/// ones.
pub(super) fn round(t: &mut LongPolynomial, rest: &mut LongPolynomial) {
    for (t, rest) in t.0.iter_mut().zip(&mut rest.0) {
        let number = *t + (*t >> 31 & Q);
        *t = (number + (1 << (DROPPED - 1)) - 1) >> DROPPED;
        *rest = number - (*t << DROPPED);
    }
}

/// Reads a polynomial of t₀, the part of t that a public key lacks.
pub(super) fn decode_rest(bytes: &[u8], rest: &mut LongPolynomial) {
    unpack::<13>(bytes, |i, number| rest.0[i] = (1 << (DROPPED - 1)) - number);
}

/// Writes a polynomial of t₀, the part of t that a public key lacks.
pub(super) fn encode_rest(rest: &LongPolynomial, bytes: &mut [u8]) {
    pack::<13>(|i| (1 << (DROPPED - 1)) - rest.0[i], bytes);
}

/// Appends small coefficients to a secret polynomial that has `count` of them, from the nibbles of
/// a block (algorithm 31). Returns the new count.
///
/// The time depends only on which nibbles are rejected. An attacker learns about those nibbles
/// alone, which are no part of the secret. Nibbles are independent of each other.
#[inline(never)]
pub(super) fn sample_small(
    k: usize,
    block: &Block,
    polynomial: &mut Polynomial,
    mut count: usize,
) -> usize {
    let block = &block[..Function::Shake256.rate()];
    for nibble in block.iter().flat_map(|&byte| [byte & 15, byte >> 4]) {
        let nibble = i32::from(nibble);
        let (limit, coefficient) = match eta(k) {
            2 => (15, 2 - (nibble - 5 * ((205 * nibble) >> 10))),
            _ => (9, 4 - nibble),
        };
        if count < COEFFICIENTS {
            polynomial.0[count] = coefficient as i16;
            count += disclosed((nibble - limit) as u32 >> 31) as usize;
        }
    }
    count
}

/// Appends coefficients to a uniformly random polynomial that has `count` of them: the numbers of
/// 23 bits below q in a block (algorithm 30). Returns the new count. The time depends on the
/// numbers.
#[inline(never)]
pub(super) fn sample_vartime<W: LongWords>(
    w: W,
    block: &Block,
    polynomial: &mut LongSampled,
    count: usize,
) -> usize {
    enter!(w, [polynomial], w.sift_vartime(block, polynomial, count))
}

/// Decodes −t₁·2^13, from the higher part t₁ in a public key.
#[inline(never)]
pub(super) fn decode_public<W: LongWords>(w: W, bytes: &[u8], polynomial: &mut LongPolynomial) {
    let words = &mut polynomial.0;
    enter!(w, [words], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let t1 = w.unpack::<10>(&bytes[length(10) * at / COEFFICIENTS..]);
            let shifted = w.shift_left::<DROPPED>(t1);
            w.store(&mut words[at..], w.sub(w.splat(0), shifted));
        }
    });
}

/// A challenge, while it is sampled (algorithm 29) and afterwards.
///
/// The time depends on the hash from which it is sampled. That hash is a part of the signature. The
/// hash of a rejected round is not published, but reveals nothing secret: nobody can guess the
/// commitment that was hashed (section 5.5 of the specification of Dilithium, round 3).
#[derive(Clone, Copy)]
pub(super) struct Ball {
    pub(super) challenge: Polynomial,
    signs: u64,
    /// Index i of the loop in algorithm 29, once sampling has begun; 0 before.
    next: usize,
}

impl Ball {
    /// A challenge whose sampling has not begun.
    pub(super) const EMPTY: Self = Self {
        challenge: Polynomial::ZERO,
        signs: 0,
        next: 0,
    };

    /// Takes a block; returns whether the challenge is complete.
    pub(super) fn take(&mut self, k: usize, block: &Block) -> bool {
        let (signs, candidates) = block[..Function::Shake256.rate()]
            .split_first_chunk()
            .expect("eight bytes");
        let is_begun = self.next != 0;
        if !is_begun {
            self.signs = u64::from_le_bytes(*signs);
            self.next = COEFFICIENTS - tau(k);
        }
        let first = if is_begun { &signs[..] } else { &[] };
        for &candidate in first.iter().chain(candidates) {
            let (place, i) = (usize::from(candidate), self.next);
            if i < COEFFICIENTS && place <= i {
                self.challenge.0[i] = self.challenge.0[place];
                self.challenge.0[place] = 1 - 2 * (self.signs & 1) as i16;
                self.signs >>= 1;
                self.next += 1;
            }
        }
        self.next == COEFFICIENTS
    }
}

/// Returns numbers that are negative where the absolute value of a is not below `bound`.
#[inline(always)]
fn room<W: LongWords>(w: W, a: W::Vector, bound: i32) -> W::Vector {
    let most = w.splat(bound - 1);
    w.or(w.sub(most, a), w.add(most, a))
}

/// Reads a polynomial of a mask or of a response (algorithm 19), whose coefficients have `BITS`
/// bits. Returns whether all coefficients are below γ₁ − β in absolute value, as in a valid
/// response.
#[inline(never)]
pub(super) fn decode_response<W: LongWords, const BITS: usize>(
    w: W,
    bytes: &[u8],
    polynomial: &mut LongPolynomial,
    beta: i32,
) -> bool {
    let gamma_1 = const { 1 << (BITS - 1) };
    let words = &mut polynomial.0;
    enter!(w, [words], {
        let mut all = w.splat(0);
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let number = w.unpack::<BITS>(&bytes[BITS * at / 8..]);
            let a = w.sub(w.splat(gamma_1), number);
            all = w.or(all, room(w, a, gamma_1 - beta));
            w.store(&mut words[at..], a);
        }
        w.signs(all) == 0
    })
}

/// Writes a polynomial of a response, the sum of a mask and a small polynomial; returns whether it
/// is valid. `BITS` and `beta` are as in [`decode_response`].
#[inline(never)]
pub(super) fn respond<W: LongWords, const BITS: usize>(
    w: W,
    mask: &Mask,
    small: &Polynomial,
    bytes: &mut [u8],
    beta: i32,
) -> bool {
    let gamma_1 = const { 1 << (BITS - 1) };
    enter!(w, [bytes], {
        let mut all = w.splat(0);
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            // The mask is γ₁ minus this number.
            let number = w.unpack::<BITS>(&mask.0[BITS * at / 8..]);
            let sum = w.sub(number, w.widen(&small.0[at..]));
            let response = w.sub(w.splat(gamma_1), sum);
            all = w.or(all, room(w, response, gamma_1 - beta));
            // An invalid response may have more bits.
            let sum = w.and(sum, w.splat((1 << BITS) - 1));
            w.pack::<BITS>(&mut bytes[BITS * at / 8..], sum);
        }
        w.signs(all) == 0
    })
}

/// Subtracts a small polynomial from lower parts. Returns whether the results are below `bound` in
/// absolute value.
#[inline(never)]
pub(super) fn subtract<W: LongWords>(
    w: W,
    low: &mut LongPolynomial,
    small: &Polynomial,
    bound: i32,
) -> bool {
    let words = &mut low.0;
    enter!(w, [words], {
        let mut all = w.splat(0);
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let a = w.sub(w.load(&words[at..]), w.widen(&small.0[at..]));
            all = w.or(all, room(w, a, bound));
            w.store(&mut words[at..], a);
        }
        w.signs(all) == 0
    })
}

/// Returns the higher and the lower part (algorithm 36) of numbers in 0..q.
#[inline(always)]
pub(super) fn parts<W: LongWords, const K: usize>(w: W, a: W::Vector) -> [W::Vector; 2] {
    // The nearest integer to a / 2γ₂, halves rounded down, by a multiplication that is exact
    // enough; the tests try all numbers. 2γ₂ is 93·2^11 or 1023·2^9.
    let a_by_128 = w.shift_right::<7>(w.add(a, w.splat(127)));
    let (high, multiple) = if K == 4 {
        let scaled = w.mul_short_high(a_by_128, w.splat(11275));
        let nearest = w.shift_right::<8>(w.add(scaled, w.splat(128)));
        // 44 becomes 0.
        let high = w.min_unsigned(nearest, w.sub(nearest, w.splat(44)));
        (high, w.shift_left::<11>(w.mul_short(high, w.splat(93))))
    } else {
        let scaled = w.mul_short_high(a_by_128, w.splat(1025));
        let nearest = w.shift_right::<6>(w.add(scaled, w.splat(32)));
        let high = w.and(nearest, w.splat(15));
        (high, w.shift_left::<9>(w.mul_short(high, w.splat(1023))))
    };
    let low = w.sub(a, multiple);
    // Where the higher part became 0, q is subtracted from the lower one.
    let is_long = w.negative(w.sub(w.splat(Q / 2), low));
    [high, w.sub(low, w.and(is_long, w.splat(Q)))]
}

#[inline(always)]
fn pack_high<W: LongWords, const K: usize>(w: W, at: usize, high: W::Vector, bytes: &mut [u8]) {
    let bytes = &mut bytes[high_bits(K) * at / 8..];
    if K == 4 {
        w.pack::<6>(bytes, high);
    } else {
        w.pack::<4>(bytes, high);
    }
}

/// Writes the higher parts of a polynomial, whose coefficients are below q in absolute value, and
/// leaves the lower parts in it.
#[inline(never)]
pub(super) fn decompose<W: LongWords, const K: usize>(
    w: W,
    polynomial: &mut LongPolynomial,
    bytes: &mut [u8],
) {
    let words = &mut polynomial.0;
    enter!(w, [words, bytes], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let [high, low] = parts::<W, K>(w, canonical(w, w.load(&words[at..])));
            w.store(&mut words[at..], low);
            pack_high::<W, K>(w, at, high, bytes);
        }
    });
}

/// Computes the hints (algorithm 39): the coefficients whose higher part changes if c·t₀ is added.
/// `low` has the lower parts, `high` the higher parts as bytes. Returns whether `added`, which is
/// c·t₀, is below γ₂ in absolute value.
#[inline(never)]
pub(super) fn hints<W: LongWords, const K: usize>(
    w: W,
    low: &LongPolynomial,
    added: &LongPolynomial,
    high: &[u8],
    hints: &mut Hints,
) -> bool {
    enter!(w, [hints], {
        let mut all = w.splat(0);
        *hints = [0; 4];
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let added = w.load(&added.0[at..]);
            all = w.or(all, room(w, added, gamma_2(K)));
            let sum = w.add(w.load(&low.0[at..]), added);
            let bytes = &high[high_bits(K) * at / 8..];
            let high = if K == 4 {
                w.unpack::<6>(bytes)
            } else {
                w.unpack::<4>(bytes)
            };
            // The higher part stays if the sum is from −γ₂ to γ₂, except for −γ₂ itself if the
            // higher part is not 0.
            let lowest = w.sub(
                w.add(sum, w.splat(gamma_2(K))),
                w.min_unsigned(high, w.splat(1)),
            );
            let changes = w.signs(w.or(lowest, w.sub(w.splat(gamma_2(K)), sum)));
            hints[at / 64] |= u64::from(changes) << (at % 64);
        }
        w.signs(all) == 0
    })
}

/// Writes the higher parts of numbers, whose absolute value is below q, after applying hints
/// (algorithm 40).
#[inline(never)]
pub(super) fn use_hints<W: LongWords, const K: usize>(
    w: W,
    polynomial: &LongPolynomial,
    hints: &Hints,
    bytes: &mut [u8],
) {
    enter!(w, [bytes], {
        for at in (0..COEFFICIENTS).step_by(W::LANES) {
            let a = canonical(w, w.load(&polynomial.0[at..]));
            let [high, low] = parts::<W, K>(w, a);
            // A hint adds 1 to the higher part if the lower part is positive, else −1.
            let is_positive = w.negative(w.sub(w.splat(0), low));
            let step = w.sub(w.splat(-1), w.add(is_positive, is_positive));
            let hinted = w.add(high, w.spread((hints[at / 64] >> (at % 64)) as u32, step));
            let high = if K == 4 {
                let hinted = w.min_unsigned(hinted, w.add(hinted, w.splat(44)));
                w.min_unsigned(hinted, w.sub(hinted, w.splat(44)))
            } else {
                w.and(hinted, w.splat(15))
            };
            pack_high::<W, K>(w, at, high, bytes);
        }
    });
}

/// Writes hints (algorithm 20), of which there are at most ω.
pub(super) fn encode_hints(hints: &[Hints], bytes: &mut [u8]) {
    let (places, counts) = bytes.split_at_mut(bytes.len() - hints.len());
    places.fill(0);
    let mut count = 0;
    for (hints, to) in hints.iter().zip(counts) {
        for (i, &word) in hints.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                places[count] = (64 * i) as u8 + word.trailing_zeros() as u8;
                word &= word - 1;
                count += 1;
            }
        }
        *to = count as u8;
    }
}

/// Reads hints (algorithm 21); returns whether they are encoded as by [`encode_hints`].
pub(super) fn decode_hints(k: usize, bytes: &[u8], hints: &mut [Hints]) -> bool {
    let (places, counts) = bytes.split_at(omega(k));
    let mut start = 0;
    for (hints, &end) in hints.iter_mut().zip(counts) {
        *hints = [0; 4];
        let end = usize::from(end);
        if end < start || end > omega(k) {
            return false;
        }
        let places = &places[start..end];
        if !places.is_sorted_by(|a, b| a < b) {
            return false;
        }
        for &place in places {
            hints[usize::from(place) / 64] |= 1 << (place % 64);
        }
        start = end;
    }
    places[start..].iter().all(|&place| place == 0)
}
