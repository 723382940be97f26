//! Arithmetic of ML-KEM on all vectors of this CPU: exhaustively where there are few numbers,
//! against the definitions of FIPS 203 otherwise.

use lockstep_testkit::Random;

use super::coding::{
    add_message, compress, decode, decompress, encode, message, noise, wide_noise,
};
use super::field::{Factor, Q_INVERSE, canonical, canonical_of_any, multiply, power, reduce};
use super::transform::{add_product, forward, inverse, multiplier, product};
use crate::simd::enter;
use crate::simd::words16::tests::on_all_words;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Q, Words};

/// Returns the number in 0..q.
fn residue(a: i64) -> i64 {
    a.rem_euclid(i64::from(Q))
}

/// Applies `function` to all numbers of 16 bits; returns each number with its result.
fn on_all_numbers<W: Words>(w: W, function: impl Fn(W, W::Vector) -> W::Vector) -> Vec<(i16, i16)> {
    let numbers: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    let mut results = vec![0; numbers.len()];
    for (from, to) in numbers.chunks(W::LANES).zip(results.chunks_mut(W::LANES)) {
        let function = &function;
        enter!(w, [to], w.store(to, function(w, w.load(from))));
    }
    numbers.into_iter().zip(results).collect()
}

fn products<W: Words>(w: W) {
    let factors = if cfg!(miri) { 0..2 } else { 0..i64::from(Q) };
    for constant in factors {
        let factor = Factor::of(constant);
        assert!(factor.by_r.abs() <= Q / 2);
        for (a, product) in on_all_numbers(w, |w, a| multiply(w, a, factor.splat(w))) {
            // R·product = a·(R·constant) modulo q, and the product is near zero.
            let sum = i32::from(a) * i32::from(factor.by_r);
            let quotient = sum as i16;
            let quotient = quotient.wrapping_mul(Q_INVERSE);
            assert_eq!(
                i32::from(product),
                (sum - i32::from(quotient) * i32::from(Q)) >> 16
            );
            let bound = (i32::from(a).abs() + (1 << 16)) * i32::from(Q / 2 + 1);
            assert!(i32::from(product).abs() << 16 <= bound, "{a} {constant}");
        }
        // The shift is an exact division by R, so this is a multiplication by the constant.
        let one = on_all_numbers(w, |w, a| multiply(w, a, factor.splat(w)))[1 << 15 | 1];
        assert_eq!((one.0, residue(i64::from(one.1))), (1, constant));
    }
}

#[test]
fn every_product_with_every_constant_is_right() {
    on_all_words!(products);
}

fn reductions<W: Words>(w: W) {
    for (a, canonical) in on_all_numbers(w, canonical_of_any) {
        assert_eq!(i64::from(canonical), residue(i64::from(a)));
    }
    for (a, canonical) in on_all_numbers(w, canonical) {
        assert!(a.unsigned_abs() >= Q as u16 || i64::from(canonical) == residue(i64::from(a)));
    }
    let r = power(2, 16);
    for high in [0, 1, -1, 800, -800, i32::from(Q) / 2 - 1, -i32::from(Q) / 2] {
        for (low, reduced) in on_all_numbers(w, |w, low| reduce(w, [low, w.splat(high as i16)])) {
            let sum = i64::from(high << 16 | i32::from(low as u16));
            assert_eq!(residue(i64::from(reduced) * r), residue(sum));
            assert!(i64::from(reduced).abs() <= (sum.abs() >> 16) + i64::from(Q) / 2 + 1);
        }
    }
}

#[test]
fn every_number_is_reduced() {
    on_all_words!(reductions);
}

fn compression<W: Words>(w: W) {
    fn check<W: Words, const BITS: usize>(w: W, start: i64) {
        let q = i64::from(Q);
        // Sums of two polynomials whose numbers are not reduced.
        let number = |i: usize| residue(start + i as i64);
        let a = Polynomial(core::array::from_fn(|i| (number(i) - q) as i16));
        let b = Polynomial(core::array::from_fn(|i| [Q, 2 * Q, -Q][i % 3]));
        let mut bytes = vec![0; COEFFICIENTS * BITS / 8];
        compress::<W, BITS>(w, &a, &b, &mut bytes);
        let mut found = Polynomial::ZERO;
        decompress::<W, BITS>(w, &bytes, &mut found);
        for (i, &found) in found.0.iter().enumerate() {
            let compressed = (2 * (number(i) << BITS) + q) / (2 * q) % (1 << BITS);
            let expected = (((2 * q * compressed) >> BITS) + 1) / 2;
            assert_eq!(i64::from(found), expected, "{} in {BITS} bits", number(i));
        }
    }
    for start in (0..i64::from(Q)).step_by(COEFFICIENTS) {
        check::<W, 4>(w, start);
        check::<W, 5>(w, start);
        check::<W, 10>(w, start);
        check::<W, 11>(w, start);
    }
}

#[test]
fn every_number_is_compressed_and_decompressed() {
    on_all_words!(compression);
}

fn messages<W: Words>(w: W) {
    let q = i64::from(Q);
    for start in (0..q).step_by(COEFFICIENTS) {
        let number = |i: usize| residue(start + i as i64);
        let a = Polynomial(core::array::from_fn(|i| (number(i) + q) as i16));
        let b = Polynomial(core::array::from_fn(|i| [0, Q, 2 * Q][i % 3]));
        let mut bits = [0x5a; 32];
        message(w, &a, &b, &mut bits);
        for i in 0..COEFFICIENTS {
            let expected = (4 * number(i) + q) / (2 * q) % 2;
            assert_eq!(
                i64::from(bits[i / 8] >> (i % 8) & 1),
                expected,
                "{}",
                number(i)
            );
        }
        let mut sum = b;
        add_message(w, &bits, &mut sum);
        for i in 0..COEFFICIENTS {
            let bit = i16::from(bits[i / 8] >> (i % 8) & 1);
            assert_eq!(sum.0[i], b.0[i] + 1665 * bit);
        }
    }
}

#[test]
fn every_number_is_nearest_to_one_bit() {
    on_all_words!(messages);
}

fn small_numbers<W: Words>(w: W) {
    let bytes = core::array::from_fn(|i| (i as u8).wrapping_mul(0x1b));
    let mut found = Polynomial::ZERO;
    noise(w, &bytes, &mut found);
    let mut seen = [false; 16];
    for (i, &found) in found.0.iter().enumerate() {
        let bits = bytes[i / 2] >> (4 * (i % 2)) & 15;
        seen[usize::from(bits)] = true;
        let ones = |bits: u8| bits.count_ones() as i16;
        assert_eq!(found, ones(bits & 3) - ones(bits >> 2));
    }
    assert_eq!(seen, [true; 16]);
}

#[test]
fn every_four_bits_give_their_difference() {
    on_all_words!(small_numbers);
}

fn wide_small_numbers<W: Words>(w: W) {
    let bytes: [u8; 192] = core::array::from_fn(|i| (i as u8).wrapping_mul(0x5b));
    let mut found = Polynomial::ZERO;
    wide_noise(w, &bytes, &mut found);
    let mut seen = [false; 64];
    for (i, &found) in found.0.iter().enumerate() {
        let bit = |j: usize| i16::from(bytes[(6 * i + j) / 8] >> ((6 * i + j) % 8) & 1);
        seen[(0..6).map(|j| (bit(j) as usize) << j).sum::<usize>()] = true;
        assert_eq!(found, bit(0) + bit(1) + bit(2) - bit(3) - bit(4) - bit(5));
    }
    assert_eq!(seen, [true; 64]);
}

#[test]
fn every_six_bits_give_their_difference() {
    on_all_words!(wide_small_numbers);
}

/// Applies algorithm 9.
fn naive_forward(polynomial: &[i64; COEFFICIENTS]) -> [i64; COEFFICIENTS] {
    let mut f = *polynomial;
    let (mut i, mut length) = (1_u8, 128);
    while length >= 2 {
        for start in (0..COEFFICIENTS).step_by(2 * length) {
            let zeta = power(17, u32::from(i.reverse_bits() >> 1));
            i += 1;
            for j in start..start + length {
                let t = zeta * f[j + length];
                (f[j + length], f[j]) = (residue(f[j] - t), residue(f[j] + t));
            }
        }
        length /= 2;
    }
    f
}

/// Returns a·b modulo x^256 + 1.
fn naive_product(a: &[i64; COEFFICIENTS], b: &[i64; COEFFICIENTS]) -> [i64; COEFFICIENTS] {
    let mut product = [0; COEFFICIENTS];
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            let sign = if i + j < COEFFICIENTS { 1 } else { -1 };
            let to = &mut product[(i + j) % COEFFICIENTS];
            *to = residue(*to + sign * a * b);
        }
    }
    product
}

fn residues(polynomial: &Polynomial) -> [i64; COEFFICIENTS] {
    polynomial.0.map(|a| residue(i64::from(a)))
}

/// Returns numbers up to q: random, or as large as allowed.
fn polynomial(random: &mut Random, kind: usize) -> Polynomial {
    Polynomial(core::array::from_fn(|_| match kind % 4 {
        0 => Q,
        1 => -Q,
        2 if random.word().is_multiple_of(2) => Q,
        2 => -Q,
        _ => (random.word() % (2 * Q as u64 + 1)) as i16 - Q,
    }))
}

fn transforms<W: Words>(w: W) {
    transforms_of::<W, 2>(w);
    transforms_of::<W, 3>(w);
    transforms_of::<W, 4>(w);
}

fn transforms_of<W: Words, const K: usize>(w: W) {
    let mut random = Random(256);
    for kind in 0..if cfg!(miri) { 1 } else { 24 } {
        let small: [Polynomial; K] = core::array::from_fn(|i| polynomial(&mut random, kind + i));
        let mut transformed = small;
        let mut multipliers = [[Polynomial::ZERO; 2]; K];
        for (transformed, to) in transformed.iter_mut().zip(&mut multipliers) {
            let expected = naive_forward(&residues(transformed));
            forward(w, transformed);
            assert_eq!(residues(transformed), expected);
            assert!(transformed.0.iter().all(|a| a.abs() <= 6 * Q));
            multiplier(w, transformed, to);
        }
        assert!(
            multipliers
                .as_flattened()
                .iter()
                .all(|p| p.0.iter().all(|a| 4 * a.abs() < 3 * Q))
        );
        // Transformed polynomials: as large as 12 bits allow, or random.
        let others: [Polynomial; K] = core::array::from_fn(|i| {
            Polynomial(core::array::from_fn(|_| match (kind + i) % 3 {
                0 => 4095,
                _ => (random.word() % 4096) as i16,
            }))
        });
        let mut sum = Polynomial::ZERO;
        product(
            w,
            core::array::from_fn(|i| &others[i].0),
            &multipliers,
            &mut sum,
        );
        assert!(
            sum.0
                .iter()
                .all(|a| 10 * i32::from(a.abs()) < 9 * i32::from(Q))
        );
        let in_transform = sum;
        inverse(w, &mut sum);
        assert!(sum.0.iter().all(|a| a.abs() < Q));
        let mut expected = [0; COEFFICIENTS];
        for (small, other) in small.iter().zip(&others) {
            let other = naive_inverse(&residues(other));
            let product = naive_product(&residues(small), &other);
            for (to, a) in expected.iter_mut().zip(product) {
                *to = residue(*to + a);
            }
        }
        assert_eq!(residues(&sum), expected);
        // The same by adding the product to a transform.
        let mut total = transformed[0];
        add_product(w, &mut total, &in_transform);
        let expected = naive_forward(&expected);
        for (i, &total) in residues(&total).iter().enumerate() {
            let first = i64::from(transformed[0].0[i]);
            assert_eq!(total, residue(first + expected[i]));
        }
    }
}

/// Applies algorithm 10, the inverse of [`naive_forward`].
fn naive_inverse(transformed: &[i64; COEFFICIENTS]) -> [i64; COEFFICIENTS] {
    let mut f = *transformed;
    let (mut i, mut length) = (127_u8, 2);
    while length <= 128 {
        for start in (0..COEFFICIENTS).step_by(2 * length) {
            let zeta = power(17, u32::from(i.reverse_bits() >> 1));
            i -= 1;
            for j in start..start + length {
                let t = f[j];
                f[j] = residue(t + f[j + length]);
                f[j + length] = residue(zeta * (f[j + length] - t));
            }
        }
        length *= 2;
    }
    f.map(|a| residue(a * 3303))
}

#[test]
fn transforms_and_products_are_those_of_the_definitions() {
    on_all_words!(transforms);
}

fn encodings<W: Words>(w: W) {
    let mut random = Random(12);
    for place in 0..if cfg!(miri) { 2 } else { COEFFICIENTS } {
        let numbers: [i16; COEFFICIENTS] =
            core::array::from_fn(|_| (random.word() % Q as u64) as i16);
        let mut loose = Polynomial(numbers);
        for (i, a) in loose.0.iter_mut().enumerate() {
            *a += [0, -Q, 4 * Q, -8 * Q][i % 4];
        }
        let mut bytes = [0; 384];
        encode(w, &loose, &mut bytes);
        let mut found = Polynomial::ZERO;
        assert!(decode(w, &bytes, &mut found));
        assert_eq!(found.0, numbers);
        // One number is too large.
        let bad = (Q + (random.word() % 767) as i16) as u16;
        let (at, shift) = (place / 2 * 3, 4 * (place % 2));
        let pair = &mut bytes[at + place % 2..][..2];
        let keep = if shift == 0 { 0xf000 } else { 0x000f };
        let old = u16::from_le_bytes([pair[0], pair[1]]);
        pair.copy_from_slice(&(old & keep | bad << shift).to_le_bytes());
        assert!(!decode(w, &bytes, &mut found));
        assert_eq!(found.0[place], bad as i16);
    }
}

#[test]
fn a_number_above_q_is_found_in_every_place() {
    on_all_words!(encodings);
}
