//! ML-DSA's functions of words, for `cargo xtask prove`.

use super::lanes::{Lanes, of_words};
use super::parameters::{MASK, high_bits, mask_bits};
use crate::simd::words16::symbolic::{Function, functions, give_bits, polynomials, take_signs};
use crate::simd::words16::{COEFFICIENTS, Words};
use crate::simd::words32::symbolic::{long_polynomials, long_sampled, long_words};
use crate::simd::words32::{AlignedBytes, LongPolynomial, LongWords};

/// Numbers of `bits` bits as bytes, which stay where they are: terms are found by the address.
fn packed<W: LongWords>(w: W, bits: usize, x: &[i32]) -> Box<AlignedBytes<MASK>> {
    let mut bytes = Box::new(AlignedBytes([0; MASK]));
    let polynomial = long_polynomials(x);
    for at in (0..COEFFICIENTS).step_by(W::LANES) {
        let a = w.load(&polynomial[0].0[at..]);
        let to = &mut bytes.0[bits * at / 8..];
        match bits {
            4 => w.pack::<4>(to, a),
            6 => w.pack::<6>(to, a),
            10 => w.pack::<10>(to, a),
            18 => w.pack::<18>(to, a),
            _ => w.pack::<20>(to, a),
        }
    }
    bytes
}

fn unpacked<W: LongWords>(w: W, bits: usize, bytes: &[u8]) -> Vec<i32> {
    let mut polynomial = LongPolynomial::ZERO;
    for at in (0..COEFFICIENTS).step_by(W::LANES) {
        let from = &bytes[bits * at / 8..];
        let a = match bits {
            4 => w.unpack::<4>(from),
            6 => w.unpack::<6>(from),
            18 => w.unpack::<18>(from),
            _ => w.unpack::<20>(from),
        };
        w.store(&mut polynomial.0[at..], a);
    }
    polynomial.0.to_vec()
}

/// Room for a result.
fn room(count: usize) -> Vec<LongPolynomial> {
    long_polynomials(&vec![0; count * COEFFICIENTS])
}

/// Whether something is refused. Portable words give one answer. Terms give one for each place of a
/// vector, after the answers to earlier questions.
fn refused(is_accepted: bool) -> Vec<i32> {
    let mut signs = take_signs();
    let places = signs.len() / COEFFICIENTS * COEFFICIENTS + 16;
    signs.resize(places, i32::from(is_accepted) - 1);
    signs
}

fn forward<W: Words + LongWords, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = long_polynomials(x);
    of_words(w).forward(&mut a[0]);
    long_words(&a)
}

fn inverse<W: Words + LongWords, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = long_polynomials(x);
    of_words(w).inverse(&mut a[0]);
    long_words(&a)
}

/// Of two rows.
fn product<W: Words + LongWords, const L: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let (matrix, vector) = x.split_at(2 * L * COEFFICIENTS);
    let (matrix, vector) = (long_sampled(matrix), long_polynomials(vector));
    let mut out = room(2);
    of_words(w).product(&matrix, &vector, None, &mut out);
    long_words(&out)
}

/// The same with another vector, of two entries, and a number.
fn long_product<W: Words + LongWords, const L: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let (matrix, rest) = x.split_at(2 * L * COEFFICIENTS);
    let (matrix, rest) = (long_sampled(matrix), long_polynomials(rest));
    let mut out = room(2);
    let other = Some((&rest[L..L + 2], &rest[L + 2]));
    of_words(w).product(&matrix, &rest[..L], other, &mut out);
    long_words(&out)
}

fn single_product<W: Words + LongWords, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let a = long_polynomials(x);
    let mut out = room(1);
    of_words(w).single_product(&a[0], &a[1], &mut out[0]);
    long_words(&out)
}

fn widen<W: Words + LongWords, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut out = room(1);
    of_words(w).widen(&polynomials(x)[0].0, &mut out[0]);
    long_words(&out)
}

fn decode_public<W: Words + LongWords, const ANY: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut out = room(1);
    of_words(w).decode_public(&packed(w, 10, x).0, &mut out[0]);
    long_words(&out)
}

fn decode_response<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut out = room(1);
    let bytes = packed(w, mask_bits(K), x);
    let is_valid = of_words(w).decode_response(K, &bytes.0, &mut out[0]);
    [long_words(&out), refused(is_valid)].concat()
}

fn respond<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let (mask, small) = x.split_at(COEFFICIENTS);
    let (mask, small) = (packed(w, mask_bits(K), mask), polynomials(small));
    let mut bytes = [0; MASK];
    let is_valid = of_words(w).respond(K, &mask, &small[0], &mut bytes);
    [unpacked(w, mask_bits(K), &bytes), refused(is_valid)].concat()
}

fn subtract<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let (low, small) = x.split_at(COEFFICIENTS);
    let (mut low, small) = (long_polynomials(low), polynomials(small));
    let is_valid = of_words(w).subtract(K, &mut low[0], &small[0]);
    [long_words(&low), refused(is_valid)].concat()
}

/// Higher parts, then lower ones.
fn decompose<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let mut a = long_polynomials(x);
    let mut bytes = [0; MASK];
    of_words(w).decompose(K, &mut a[0], &mut bytes);
    [unpacked(w, high_bits(K), &bytes), long_words(&a)].concat()
}

/// For lower parts, added numbers and higher parts: −1 for each hint, and for a refusal.
fn hints_and_refusal<W: Words + LongWords>(w: W, k: usize, x: &[i32]) -> [Vec<i32>; 2] {
    let (numbers, high) = x.split_at(2 * COEFFICIENTS);
    let (numbers, high) = (long_polynomials(numbers), packed(w, high_bits(k), high));
    let mut hints = [0; 4];
    let is_valid = of_words(w).hints(k, &numbers[0], &numbers[1], &high.0, &mut hints);
    let mut all = refused(is_valid);
    if all.len() < COEFFICIENTS {
        let hint = |i: usize| -((hints[i / 64] >> (i % 64) & 1) as i32);
        all.splice(..0, (0..COEFFICIENTS).map(hint));
    }
    let refused = all.split_off(COEFFICIENTS);
    [all, refused]
}

fn hints<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let [hints, _] = hints_and_refusal(w, K, x);
    hints
}

/// Whether the added number is refused.
fn added<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let [_, refused] = hints_and_refusal(w, K, x);
    refused
}

/// A hint is a word that is 0 or −1.
fn use_hints<W: Words + LongWords, const K: usize>(w: W, x: &[i32]) -> Vec<i32> {
    let (a, bits) = x.split_at(COEFFICIENTS);
    give_bits(bits);
    let mut hints = [0; 4];
    for (i, bit) in bits.iter().enumerate() {
        hints[i / 64] |= u64::from(bit & 1 != 0) << (i % 64);
    }
    let mut bytes = [0; MASK];
    of_words(w).use_hints(K, &long_polynomials(a)[0], &hints, &mut bytes);
    unpacked(w, high_bits(K), &bytes)
}

/// All functions. A function with a parameter set's K is listed once for each set that differs.
pub(crate) fn functions() -> Vec<Function> {
    functions! { "mldsa":
        forward 0 1; inverse 0 1; single_product 0 2; widen 0 1;
        product 4 12; product 5 15; product 7 21;
        long_product 4 15; long_product 5 18; long_product 7 24;
        decode_public 0 1;
        decode_response 4 1; decode_response 6 1; decode_response 8 1;
        respond 4 2; respond 6 2; respond 8 2;
        subtract 4 2; subtract 6 2; subtract 8 2;
        decompose 4 1; decompose 6 1;
        hints 4 3; hints 6 3; added 4 3; added 6 3;
        use_hints 4 2; use_hints 6 2;
    }
}
