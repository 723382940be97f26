//! Arithmetic of ML-DSA on all vectors of this CPU: exhaustively where there are few numbers,
//! against the definitions of FIPS 204 otherwise. Also faults, and the number of rejected rounds.

use lockstep_testkit::Random;

use super::arithmetic::{Factor, canonical, forward, inverse, product, single_product, widen};
use super::coding::{
    Ball, DROPPED, Hints, Mask, decode_hints, decode_small, encode_hints, encode_small, pack,
    parts, round, sample_small, unpack,
};
use super::lanes::{Lanes, of_words};
use super::parameters::*;
use super::sign::ROUNDS;
use super::*;
use crate::backend::Backend;
use crate::mlkem::transform as small_transform;
use crate::simd::enter;
use crate::simd::words16::tests::on_all_words;
use crate::simd::words16::{COEFFICIENTS, Polynomial, Words};
use crate::simd::words32::{AlignedBytes, LongPolynomial, LongSampled, LongWords, Q, Q_INVERSE};

/// Returns the number in 0..q.
fn residue(a: i64) -> i64 {
    a.rem_euclid(i64::from(Q))
}

/// Returns `base` to the power `exponent` modulo q.
fn power(base: i64, exponent: u32) -> i64 {
    (0..exponent).fold(1, |power, _| residue(power * base))
}

/// Returns a vector as words.
fn words<W: LongWords>(w: W, vector: impl FnOnce(W) -> W::Vector) -> Vec<i32> {
    let mut words = vec![0; W::LANES];
    let to = &mut words[..];
    enter!(w, [to], w.store(to, vector(w)));
    words
}

/// Applies `function` to numbers; returns each number with its result.
fn on_numbers<W: LongWords, const N: usize>(
    w: W,
    mut numbers: impl Iterator<Item = i32>,
    function: impl Fn(W, W::Vector) -> [W::Vector; N],
    mut check: impl FnMut(i32, [i32; N]),
) {
    const COUNT: usize = 1 << 12;
    loop {
        let mut from: Vec<i32> = numbers.by_ref().take(COUNT).collect();
        let count = from.len();
        if count == 0 {
            return;
        }
        from.resize(COUNT, 0);
        let mut results = [const { Vec::new() }; N];
        results.fill_with(|| vec![0; COUNT]);
        let (to, from, function) = (&mut results, &from, &function);
        enter!(w, [to, from, function], {
            for at in (0..COUNT).step_by(W::LANES) {
                let found = function(w, w.load(&from[at..]));
                for (to, found) in to.iter_mut().zip(found) {
                    w.store(&mut to[at..], found);
                }
            }
        });
        for (i, &number) in from[..count].iter().enumerate() {
            check(number, core::array::from_fn(|j| results[j][i]));
        }
    }
}

fn operations<W: LongWords>(w: W) {
    let mut random = Random(32);
    for _ in 0..if cfg!(miri) { 3 } else { 1000 } {
        let mut word = || match random.word() % 8 {
            0 => i32::MIN,
            1 => i32::MAX,
            2 => 0,
            3 => -1,
            _ => random.word() as i32,
        };
        let a: Vec<i32> = (0..W::LANES).map(|_| word()).collect();
        let b: Vec<i32> = (0..W::LANES).map(|_| word()).collect();
        let each = |f: fn(i32, i32) -> i32| -> Vec<i32> {
            a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect()
        };
        let two = |f: fn(W, W::Vector, W::Vector) -> W::Vector| {
            words(w, |w| f(w, w.load(&a), w.load(&b)))
        };
        assert_eq!(two(|w, a, b| w.add(a, b)), each(i32::wrapping_add));
        assert_eq!(two(|w, a, b| w.sub(a, b)), each(i32::wrapping_sub));
        assert_eq!(two(|w, a, b| w.and(a, b)), each(|a, b| a & b));
        assert_eq!(two(|w, a, b| w.or(a, b)), each(|a, b| a | b));
        let min = |a: i32, b: i32| (a as u32).min(b as u32) as i32;
        assert_eq!(two(|w, a, b| w.min_unsigned(a, b)), each(min));
        assert_eq!(two(|w, a, _| w.shift_left::<9>(a)), each(|a, _| a << 9));
        let right = |a: i32, _| (a as u32 >> 7) as i32;
        assert_eq!(two(|w, a, _| w.shift_right::<7>(a)), each(right));
        assert_eq!(two(|w, a, _| w.negative(a)), each(|a, _| a >> 31));
        let short = two(|w, a, b| w.mul_short(w.shift_right::<17>(a), w.shift_right::<17>(b)));
        let expected = |a: i32, b: i32| ((a as u32 >> 17) * (b as u32 >> 17)) as i32;
        assert_eq!(short, each(expected));
        let high = two(|w, a, b| w.mul_short_high(w.shift_right::<16>(a), w.shift_right::<16>(b)));
        let expected = |a: i32, b: i32| (((a as u32 >> 16) * (b as u32 >> 16)) >> 16) as i32;
        assert_eq!(high, each(expected));

        // Sums of two products whose factors are below 2^30.
        let sum = words(w, |w| {
            let [a, b] = [w.load(&a), w.load(&b)];
            let half = |a| w.sub(w.shift_right::<3>(a), w.splat(1 << 28));
            let (a, b) = (half(a), half(b));
            let sums = w.add_products(w.no_sums(), a, w.factor(b));
            w.reduce(w.add_products(sums, a, w.factor(a)))
        });
        for i in 0..W::LANES {
            let half = |a: i32| i64::from(a as u32 >> 3) - (1 << 28);
            let expected = half(a[i]) * half(b[i]) + half(a[i]) * half(a[i]);
            assert_eq!(residue(i64::from(sum[i]) << 32), residue(expected));
            assert!(i64::from(sum[i]).abs() <= (expected.abs() >> 32) + i64::from(Q) / 2 + 1);
        }

        let bits = random.word() as u32;
        let spread = words(w, |w| w.spread(bits, w.load(&a)));
        let signs = enter!(w, w.signs(w.load(&a)));
        for i in 0..W::LANES {
            assert_eq!(spread[i], if bits >> i & 1 == 1 { a[i] } else { 0 });
            assert_eq!(signs >> i & 1 == 1, a[i] < 0);
        }
        assert!(signs >> W::LANES == 0);
        let shorts: Vec<i16> = a.iter().map(|&a| a as i16).collect();
        let widened = words(w, |w| w.widen(&shorts));
        assert!(shorts.iter().zip(widened).all(|(&a, b)| i32::from(a) == b));
    }
}

#[test]
fn operations_are_what_they_say() {
    on_all_words!(operations);
}

fn places<W: LongWords>(w: W) {
    let both: Vec<i32> = (0..2 * W::LANES as i32).collect();
    let (a, b) = both.split_at(W::LANES);
    fn exchanged<W: LongWords, const WORDS: usize>(w: W, a: &[i32], b: &[i32]) {
        let found = [0, 1].map(|i| words(w, |w| w.exchange::<WORDS>(w.load(a), w.load(b))[i]));
        for i in 0..W::LANES {
            let expected = match i & WORDS {
                0 => [a[i], a[i + WORDS]],
                _ => [b[i - WORDS], b[i]],
            };
            assert_eq!([found[0][i], found[1][i]], expected);
        }
    }
    exchanged::<W, 1>(w, a, b);
    exchanged::<W, 2>(w, a, b);
    exchanged::<W, 4>(w, a, b);
    if W::LANES == 16 {
        exchanged::<W, 8>(w, a, b);
    }
    let unzipped = [0, 1].map(|i| words(w, |w| w.unzip(w.load(a), w.load(b))[i]));
    for (odd, unzipped) in unzipped.iter().enumerate() {
        let expected: Vec<i32> = both.iter().copied().skip(odd).step_by(2).collect();
        assert_eq!(*unzipped, expected);
    }
    let [even, odd] = &unzipped;
    let zipped = [0, 1].map(|i| words(w, |w| w.zip(w.load(even), w.load(odd))[i]));
    assert_eq!(zipped.concat(), both);
}

#[test]
fn words_change_places() {
    on_all_words!(places);
}

/// Returns number `i` of `bits` bits.
fn number(bytes: &[u8], bits: usize, i: usize) -> i32 {
    (0..bits).fold(0, |number, bit| {
        let at = i * bits + bit;
        number | i32::from(bytes[at / 8] >> (at % 8) & 1) << bit
    })
}

fn packing<W: LongWords>(w: W) {
    fn check<W: LongWords, const BITS: usize>(w: W, random: &mut Random) {
        // The last bytes may be the last bytes of a page.
        let bytes = random.vec(W::LANES * BITS / 8).into_boxed_slice();
        let unpacked = words(w, |w| w.unpack::<BITS>(&bytes));
        for (i, &word) in unpacked.iter().enumerate() {
            assert_eq!(word, number(&bytes, BITS, i), "{BITS} bits");
        }
        let mut packed = vec![0x5a; bytes.len() + 1];
        let to = &mut packed[..];
        enter!(w, [to], w.pack::<BITS>(to, w.load(&unpacked)));
        assert_eq!(packed[..bytes.len()], bytes[..]);
        assert_eq!(packed[bytes.len()], 0x5a);
    }
    let mut random = Random(18);
    for _ in 0..if cfg!(miri) { 3 } else { 1000 } {
        check::<W, 4>(w, &mut random);
        check::<W, 6>(w, &mut random);
        check::<W, 18>(w, &mut random);
        check::<W, 20>(w, &mut random);
    }
}

#[test]
fn numbers_are_packed_and_unpacked() {
    on_all_words!(packing);
    fn check<const BITS: usize>(random: &mut Random) {
        let bytes = random.vec(length(BITS));
        let mut numbers = [0; COEFFICIENTS];
        unpack::<BITS>(&bytes, |i, number| numbers[i] = number);
        for (i, &found) in numbers.iter().enumerate() {
            assert_eq!(found, number(&bytes, BITS, i));
        }
        let mut packed = vec![0; bytes.len()];
        pack::<BITS>(|i| numbers[i], &mut packed);
        assert_eq!(packed, bytes);
    }
    let mut random = Random(13);
    check::<3>(&mut random);
    check::<4>(&mut random);
    check::<10>(&mut random);
    check::<13>(&mut random);
}

fn sifting<W: LongWords>(w: W) {
    let mut random = Random(23);
    for length in [0, 3, 24, 45, 48, 51, 144, 168] {
        for start in (0..=COEFFICIENTS).step_by(if cfg!(miri) { 64 } else { 1 }) {
            let mut bytes = random.vec(length);
            // The largest number kept, the smallest number rejected, and the largest number.
            for three in bytes.chunks_exact_mut(3).step_by(4) {
                let number = [Q - 1, Q, (1 << 24) - 1, 1 << 23][random.word() as usize % 4];
                three.copy_from_slice(&number.to_le_bytes()[..3]);
            }
            let numbers = (0..length / 3).map(|i| number(&bytes, 24, i) & ((1 << 23) - 1));
            let kept: Vec<i32> = numbers.filter(|&number| number < Q).collect();
            let mut to = LongSampled::ZERO;
            let out = &mut to;
            let count = enter!(w, [out], w.sift_vartime(&bytes, out, start));
            assert_eq!(count, (start + kept.len()).min(COEFFICIENTS));
            let found = to.coefficients();
            assert!(found[..start].iter().all(|&word| word == 0));
            assert_eq!(found[start..count], kept[..count - start]);
        }
    }
}

#[test]
fn numbers_below_q_are_kept() {
    on_all_words!(sifting);
}

fn products<W: LongWords>(w: W) {
    let step = if cfg!(miri) { 40_000_001 } else { 4099 };
    for constant in [
        1,
        2,
        1753,
        8_380_416,
        4_190_208,
        4_190_209,
        1 << 24,
        3_073_009,
    ] {
        let factor = Factor::of(constant);
        assert!(factor.by_r.abs() <= Q / 2);
        assert_eq!(factor.by_r.wrapping_mul(Q_INVERSE), factor.by_q);
        let mut check = |a: i32, [product]: [i32; 1]| {
            assert_eq!(
                residue(i64::from(product)),
                residue(i64::from(a) * constant)
            );
            let bound = i64::from(a).abs() * i64::from(Q / 2) + (i64::from(Q) << 31);
            assert!(i64::from(product).abs() << 32 <= bound, "{a} {constant}");
        };
        let multiply = |w: W, a| [w.multiply(a, factor.splat(w))];
        on_numbers(w, (i32::MIN..i32::MAX).step_by(step), multiply, &mut check);
        let borders = [i32::MIN, i32::MAX, 0, 1, -1, Q, -Q, 6 * Q, -6 * Q, 255 * Q];
        on_numbers(w, borders.into_iter(), multiply, &mut check);
    }
}

#[test]
fn products_with_constants_are_right() {
    on_all_words!(products);
}

fn splitting<W: LongWords>(w: W) {
    let step = if cfg!(miri) { 40_009 } else { 1 };
    let sums = |w: W, a| [canonical(w, a)];
    on_numbers(w, (1 - Q..Q).step_by(step), sums, |a, [found]| {
        assert_eq!(i64::from(found), residue(i64::from(a)));
    });
    on_numbers(w, (0..Q).step_by(step), parts::<W, 4>, |a, [high, low]| {
        assert_eq!([high, low], decomposed(4, a));
    });
    on_numbers(w, (0..Q).step_by(step), parts::<W, 6>, |a, [high, low]| {
        assert_eq!([high, low], decomposed(6, a));
    });
}

/// Applies algorithm 36.
fn decomposed(k: usize, a: i32) -> [i32; 2] {
    let double = 2 * gamma_2(k);
    let rest = a % double;
    let low = if rest > gamma_2(k) {
        rest - double
    } else {
        rest
    };
    match a - low == Q - 1 {
        true => [0, low - 1],
        false => [(a - low) / double, low],
    }
}

#[test]
fn every_number_is_split() {
    on_all_words!(splitting);
    let numbers: Vec<i32> = (0..Q).collect();
    for chunk in numbers.chunks(COEFFICIENTS) {
        let mut t = LongPolynomial::ZERO;
        let mut rest = LongPolynomial::ZERO;
        for (i, (t, &number)) in t.0.iter_mut().zip(chunk).enumerate() {
            *t = number - if i % 2 == 0 || number == 0 { 0 } else { Q };
        }
        round(&mut t, &mut rest);
        for (i, &number) in chunk.iter().enumerate() {
            assert_eq!((t.0[i] << DROPPED) + rest.0[i], number);
            assert!(rest.0[i] > -(1 << 12) && rest.0[i] <= 1 << 12);
        }
    }
}

/// Applies algorithm 41 to any numbers.
fn transformed(polynomial: &[i32; COEFFICIENTS]) -> Vec<i64> {
    let mut v: Vec<i64> = polynomial.iter().map(|&a| residue(i64::from(a))).collect();
    let (mut block, mut reach) = (0_u8, 128);
    while reach >= 1 {
        for start in (0..COEFFICIENTS).step_by(2 * reach) {
            block += 1;
            let zeta = power(1753, u32::from(block.reverse_bits()));
            for j in start..start + reach {
                let product = zeta * v[j + reach];
                v[j + reach] = residue(v[j] - product);
                v[j] = residue(v[j] + product);
            }
        }
        reach /= 2;
    }
    v
}

fn assert_bounded(polynomial: &LongPolynomial, bound: i64) {
    assert!(polynomial.0.iter().all(|&a| i64::from(a).abs() <= bound));
}

/// Returns polynomials whose numbers are at most `bound` and make sums as large as possible.
fn extremes(bound: i32) -> Vec<LongPolynomial> {
    let mut random = Random(256);
    let patterns: [&dyn Fn(usize) -> bool; 7] = [
        &|_| true,
        &|_| false,
        &|i| i % 2 == 0,
        &|i| i % 4 < 2,
        &|i| i < 128,
        &|i| i.count_ones() % 2 == 0,
        &|i| i % 16 < 8,
    ];
    let polynomial =
        |number: &mut dyn FnMut(usize) -> i32| LongPolynomial(core::array::from_fn(number));
    let mut all: Vec<_> = patterns
        .iter()
        .map(|pattern| polynomial(&mut |i| if pattern(i) { bound } else { -bound }))
        .collect();
    for _ in 0..20 {
        let number = |random: &mut Random| (random.word() % (2 * bound as u64 + 1)) as i32 - bound;
        all.push(polynomial(&mut |_| number(&mut random)));
        all.push(polynomial(&mut |_| {
            [bound, -bound][random.word() as usize % 2]
        }));
    }
    all
}

fn transforms<W: LongWords>(w: W) {
    let q = i64::from(Q);
    for polynomial in extremes(Q) {
        let expected = transformed(&polynomial.0);
        let mut found = polynomial;
        forward(w, &mut found);
        assert_bounded(&found, 6 * q);
        for (&found, &expected) in found.0.iter().zip(&expected) {
            assert_eq!(residue(i64::from(found)), expected);
        }
        // Back, with numbers that are at most q: the result is R times the original.
        for found in &mut found.0 {
            *found %= Q;
        }
        inverse(w, &mut found);
        assert_bounded(&found, 3 * q / 4);
        for (&found, &a) in found.0.iter().zip(&polynomial.0) {
            assert_eq!(residue(i64::from(found)), residue(i64::from(a) << 32));
        }
    }
    // These polynomials would overflow first.
    for polynomial in extremes(Q) {
        let mut found = polynomial;
        inverse(w, &mut found);
        assert_bounded(&found, 3 * q / 4);
        let again = transformed(&found.0);
        for (&again, &a) in again.iter().zip(&polynomial.0) {
            assert_eq!(again, residue(i64::from(a) << 32));
        }
    }
}

#[test]
fn transforms_are_those_of_the_standard_without_overflow() {
    on_all_words!(transforms);
}

fn matrices<W: LongWords>(w: W) {
    let matrix = [LongSampled::filled(Q - 1); 14];
    for (i, number) in extremes(6 * Q).iter().enumerate() {
        let vector = [*number; 7];
        let others = [*number, extremes(6 * Q)[(i + 1) % 7]];
        let mut results = [LongPolynomial::ZERO; 2];
        product::<W, 7>(w, &matrix, &vector, Some((&others, number)), &mut results);
        for (result, other) in results.iter().zip(&others) {
            assert_bounded(result, i64::from(Q) * 7 / 10);
            for j in 0..COEFFICIENTS {
                let (result, a) = (i64::from(result.0[j]), i64::from(number.0[j]));
                let sum = 7 * i64::from(Q - 1) * a + a * i64::from(other.0[j]);
                assert_eq!(residue(result << 32), residue(sum));
            }
        }
        let mut result = LongPolynomial::ZERO;
        single_product(w, number, &others[1], &mut result);
        assert_bounded(&result, i64::from(Q) * 6 / 10);
        for j in 0..COEFFICIENTS {
            let product = i64::from(number.0[j]) * i64::from(others[1].0[j]);
            assert_eq!(residue(i64::from(result.0[j]) << 32), residue(product));
        }
    }
}

#[test]
fn products_of_transforms_stay_in_their_bounds() {
    on_all_words!(matrices);
}

/// Returns the product modulo X^256 + 1.
fn school(a: &[i16; COEFFICIENTS], b: &[i32; COEFFICIENTS]) -> Vec<i64> {
    let mut sums = vec![0; COEFFICIENTS];
    for (i, &a) in a.iter().enumerate().filter(|(_, a)| **a != 0) {
        for (j, &b) in b.iter().enumerate() {
            let product = i64::from(a) * i64::from(b);
            match i + j {
                at if at < COEFFICIENTS => sums[at] += product,
                at => sums[at - COEFFICIENTS] -= product,
            }
        }
    }
    sums
}

/// Products with challenges are exact, both of secret polynomials, whose products reach β, and of
/// t₀.
fn challenges<W: Words + LongWords>(w: W) {
    let mut random = Random(49);
    for round in 0..if cfg!(miri) { 1 } else { 40 } {
        let k = [4, 6, 8][round % 3];
        let mut challenge = Polynomial::ZERO;
        let mut left = tau(k);
        while left > 0 {
            let at = random.word() as usize % COEFFICIENTS;
            left -= usize::from(challenge.0[at] == 0);
            challenge.0[at] = if random.word().is_multiple_of(2) || round < 6 {
                1
            } else {
                -1
            };
        }
        let largest = |bound: i32, i: usize| match round % 4 {
            0 => bound,
            1 => -bound,
            // The first coefficient of the product is the largest one.
            2 => {
                i32::from(challenge.0[(COEFFICIENTS - i) % COEFFICIENTS])
                    * bound
                    * if i == 0 { 1 } else { -1 }
            }
            _ => (random.clone().word() as i32 + i as i32) % (bound + 1),
        };
        let small = Polynomial(core::array::from_fn(|i| largest(eta(k), i) as i16));
        let mut multiplier = [[Polynomial::ZERO; 2]];
        let mut c = challenge;
        small_transform::forward(w, &mut c);
        small_transform::multiplier(w, &c, &mut multiplier[0]);
        let mut s = small;
        small_transform::forward_canonical(w, &mut s);
        let mut found = Polynomial::ZERO;
        small_transform::product(w, [&s.0], &multiplier, &mut found);
        small_transform::inverse(w, &mut found);
        let expected = school(&challenge.0, &small.0.map(i32::from));
        for (&found, &expected) in found.0.iter().zip(&expected) {
            assert_eq!(i64::from(found), expected);
        }
        if round % 4 == 2 {
            assert_eq!(expected[0], i64::from(beta(k)));
        }

        let t0 = LongPolynomial(core::array::from_fn(|i| largest(1 << 12, i)));
        let (mut transformed, mut c) = (t0, LongPolynomial::ZERO);
        forward(w, &mut transformed);
        widen(w, &challenge.0, &mut c);
        forward(w, &mut c);
        let mut found = LongPolynomial::ZERO;
        single_product(w, &c, &transformed, &mut found);
        inverse(w, &mut found);
        let expected = school(&challenge.0, &t0.0);
        for (&found, &expected) in found.0.iter().zip(&expected) {
            assert_eq!(i64::from(found), expected);
        }
    }
}

#[test]
fn products_with_challenges_are_exact() {
    on_all_words!(challenges);
}

/// [`pack`], for any number of bits.
fn pack_bits(bits: usize, numbers: impl Fn(usize) -> i32, bytes: &mut [u8]) {
    for at in 0..COEFFICIENTS * bits {
        bytes[at / 8] |= ((numbers(at / bits) >> (at % bits) & 1) as u8) << (at % 8);
    }
}

/// Returns a polynomial of zeros with `number` at `place`.
fn single(place: usize, number: i32) -> LongPolynomial {
    let mut polynomial = LongPolynomial::ZERO;
    polynomial.0[place] = number;
    polynomial
}

fn borders<W: Words + LongWords>(w: W) {
    fn check<const K: usize>(lanes: &dyn Lanes) {
        let step = if cfg!(miri) { 85 } else { 1 };
        for place in (0..COEFFICIENTS).step_by(step) {
            // Responses: of a signature, and the sum of a mask and a small polynomial.
            let bound = gamma_1(K) - beta(K);
            for (number, is_valid) in [
                (bound - 1, true),
                (bound, false),
                (1 - bound, true),
                (-bound, false),
                (gamma_1(K), false),
                (1 - gamma_1(K), false),
                (0, true),
            ] {
                let mut bytes = [0; 640];
                let polynomial = single(place, number);
                pack_bits(mask_bits(K), |i| gamma_1(K) - polynomial.0[i], &mut bytes);
                let mut found = LongPolynomial::ZERO;
                let bytes = &bytes[..response_bytes(K)];
                assert_eq!(lanes.decode_response(K, bytes, &mut found), is_valid);
                assert_eq!(found.0, polynomial.0);

                let small = number.clamp(-beta(K), beta(K));
                let mut mask: Mask = AlignedBytes([0; 704]);
                let masked = single(place, number - small);
                pack_bits(
                    mask_bits(K),
                    |i| gamma_1(K) - masked.0[i],
                    &mut mask.0[..response_bytes(K)],
                );
                let mut polynomial = Polynomial::ZERO;
                polynomial.0[place] = small as i16;
                let mut again = [0; 640];
                let passes = lanes.respond(K, &mask, &polynomial, &mut again);
                assert_eq!(passes, is_valid);
                assert!(!is_valid || again[..response_bytes(K)] == *bytes);
            }
            // Lower parts.
            let bound = gamma_2(K) - beta(K);
            for (number, is_valid) in [
                (bound - 1, true),
                (bound, false),
                (1 - bound, true),
                (-bound, false),
                (gamma_2(K) + beta(K), false),
                (-gamma_2(K) - beta(K), false),
            ] {
                let mut small = Polynomial::ZERO;
                small.0[place] = -beta(K) as i16;
                let mut low = single(place, number - beta(K));
                assert_eq!(lanes.subtract(K, &mut low, &small), is_valid);
                assert_eq!(low.0, single(place, number).0);
            }
            // Products with t₀, and hints.
            let gamma = gamma_2(K);
            for high in [0, 1, 15] {
                for (low, added, is_valid) in [
                    (0, gamma - 1, true),
                    (0, gamma, false),
                    (0, 1 - gamma, true),
                    (0, -gamma, false),
                    (100, gamma - 100, true),
                    (100, gamma - 99, true),
                    (-100, 100 - gamma, true),
                    (-100, 99 - gamma, true),
                    (-100, 101 - gamma, true),
                    (gamma - 101, 100, true),
                ] {
                    let mut bytes = [0; 192];
                    let bits = high_bits(K);
                    pack_bits(
                        bits,
                        |i| if i == place { high } else { 0 },
                        &mut bytes[..32 * bits],
                    );
                    let mut found: Hints = [0; 4];
                    let (low, added) = (single(place, low), single(place, added));
                    let is_short = lanes.hints(K, &low, &added, &bytes[..32 * bits], &mut found);
                    assert_eq!(is_short, is_valid);
                    // By definition: whether the higher part changes.
                    let sum = 2 * gamma * high + low.0[place];
                    let before = decomposed(K, residue(i64::from(sum)) as i32)[0];
                    let sum = sum + added.0[place];
                    let after = decomposed(K, residue(i64::from(sum)) as i32)[0];
                    let mut expected: Hints = [0; 4];
                    expected[place / 64] |= u64::from(before != after) << (place % 64);
                    assert_eq!(
                        found, expected,
                        "{high} {} {}",
                        low.0[place], added.0[place]
                    );
                }
            }
        }
    }
    check::<4>(&of_words(w));
    check::<6>(&of_words(w));
    check::<8>(&of_words(w));
}

#[test]
fn norms_and_hints_are_right_at_their_borders() {
    on_all_words!(borders);
}

fn used_hints<W: Words + LongWords>(w: W) {
    fn check<const K: usize>(lanes: &dyn Lanes) {
        let double = 2 * gamma_2(K);
        let highs = (Q - 1) / double;
        let near = [
            -gamma_2(K),
            1 - gamma_2(K),
            -1,
            0,
            1,
            gamma_2(K),
            gamma_2(K) - 1,
        ];
        let number = |i: usize| {
            let a = (i / 7) as i32 % highs * double + near[i % 7];
            // Numbers as inverse transforms leave them.
            let a = residue(i64::from(a)) as i32;
            if i.is_multiple_of(2) && a != 0 {
                a - Q
            } else {
                a
            }
        };
        for start in (0..7 * highs as usize).step_by(COEFFICIENTS) {
            let polynomial = LongPolynomial(core::array::from_fn(|i| number(start + i)));
            let hints = [0x5555_5555_5555_5555, !0, 0, 0x1234_5678_9abc_def0];
            let mut bytes = vec![0; length(high_bits(K))];
            lanes.use_hints(K, &polynomial, &hints, &mut bytes);
            for (i, &a) in polynomial.0.iter().enumerate() {
                let [high, low] = decomposed(K, residue(i64::from(a)) as i32);
                let hint = hints[i / 64] >> (i % 64) & 1 == 1;
                let step = match (hint, low > 0) {
                    (false, _) => 0,
                    (true, true) => 1,
                    (true, false) => -1,
                };
                let expected = (high + step).rem_euclid(highs);
                assert_eq!(number_of(&bytes, K, i), expected);
            }
        }
    }
    fn number_of(bytes: &[u8], k: usize, i: usize) -> i32 {
        super::tests::number(bytes, high_bits(k), i)
    }
    check::<4>(&of_words(w));
    check::<6>(&of_words(w));
    check::<8>(&of_words(w));
}

#[test]
fn hints_are_used_as_the_standard_says() {
    on_all_words!(used_hints);
}

#[test]
fn only_one_encoding_of_hints_is_read() {
    fn check<const K: usize>() {
        let mut random = Random(K as u64);
        let decoded = |bytes: &[u8]| {
            let mut hints = [[0; 4]; K];
            decode_hints(K, bytes, &mut hints).then_some(hints)
        };
        for count in (0..=omega(K)).cycle().take(500) {
            let mut hints: [Hints; K] = [[0; 4]; K];
            let mut left = count;
            while left > 0 {
                let word = &mut hints[random.word() as usize % K][random.word() as usize % 4];
                let bit = 1 << (random.word() % 64);
                left -= usize::from(*word & bit == 0);
                *word |= bit;
            }
            let mut bytes = vec![0xff; omega(K) + K];
            encode_hints(&hints, &mut bytes);
            assert_eq!(decoded(&bytes), Some(hints));
            // A changed byte makes the encoding invalid, or the encoding of other hints.
            let at = random.word() as usize % bytes.len();
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(1 + (random.word() % 255) as u8);
            if let Some(found) = decoded(&changed) {
                let mut again = vec![0; bytes.len()];
                encode_hints(&found, &mut again);
                assert_eq!(again, changed);
            }
        }
        let with = |places: &[u8], counts: &[u8]| {
            let mut bytes = vec![0; omega(K) + K];
            bytes[..places.len()].copy_from_slice(places);
            let last = *counts.last().unwrap_or(&0);
            bytes[omega(K)..].fill(last);
            bytes[omega(K)..][..counts.len()].copy_from_slice(counts);
            decoded(&bytes).is_some()
        };
        assert!(with(&[], &[]));
        assert!(with(&[0], &[1]));
        assert!(with(&[255], &[1]));
        assert!(with(&[1, 2], &[2]));
        assert!(with(&[2, 1], &[1, 2]));
        assert!(!with(&[2, 1], &[2]), "not sorted");
        assert!(!with(&[1, 1], &[2]), "twice");
        assert!(!with(&[1, 2], &[1]), "one more");
        assert!(!with(&[1, 2], &[2, 1]), "counts that decrease");
        let all: Vec<u8> = (0..omega(K) as u8).collect();
        assert!(with(&all, &[omega(K) as u8]));
        assert!(
            !with(&all, &[omega(K) as u8 + 1]),
            "more than there is room for"
        );
        assert!(!with(&all, &[255]));
    }
    check::<4>();
    check::<6>();
    check::<8>();
}

/// Returns a block that begins with these bytes.
fn block(bytes: &[u8]) -> [u8; 168] {
    let mut block = [0; 168];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

#[test]
fn challenges_and_secrets_are_sampled_as_the_standard_says() {
    let mut random = Random(204);
    for round in 0..300 {
        let k = [4, 6, 8][round % 3];
        let mut bytes = random.vec(20 * 136);
        // So many of them too large that more than one block is needed.
        for byte in bytes[8..][..round.min(200)].iter_mut() {
            *byte = if random.word().is_multiple_of(8) {
                *byte
            } else {
                255
            };
        }
        let mut ball = Ball::EMPTY;
        let mut blocks = bytes.chunks_exact(136);
        while !ball.take(k, &block(blocks.next().expect("enough"))) {}
        // Algorithm 29.
        let (mut expected, mut rest) = ([0; COEFFICIENTS], bytes[8..].iter());
        for i in COEFFICIENTS - tau(k)..COEFFICIENTS {
            let place = rest
                .find(|&&place| usize::from(place) <= i)
                .expect("enough");
            let bit = i + tau(k) - COEFFICIENTS;
            expected[i] = expected[usize::from(*place)];
            expected[usize::from(*place)] = 1 - 2 * i16::from(bytes[bit / 8] >> (bit % 8) & 1);
        }
        assert_eq!(ball.challenge.0, expected);

        // Algorithm 31.
        let bytes = random.vec(5 * 136);
        let mut small = Polynomial::ZERO;
        let (mut count, mut blocks) = (0, bytes.chunks_exact(136));
        while count < COEFFICIENTS {
            count = sample_small(k, &block(blocks.next().expect("enough")), &mut small, count);
        }
        let nibbles = bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        let numbers = nibbles.filter_map(|nibble| match (eta(k), i16::from(nibble)) {
            (2, nibble) if nibble < 15 => Some(2 - nibble % 5),
            (4, nibble) if nibble < 9 => Some(4 - nibble),
            _ => None,
        });
        assert!(numbers.take(COEFFICIENTS).eq(small.0.iter().copied()));

        let mut encoded = vec![0; length(small_bits(k))];
        encode_small(k, &small, &mut encoded);
        let mut decoded = Polynomial::ZERO;
        assert!(decode_small(k, &encoded, &mut decoded));
        assert_eq!(decoded.0, small.0);
        let at = round % COEFFICIENTS;
        let larger = |i: usize| match i == at {
            true => 2 * eta(k) + 1 + (round as i32 / 3) % (7 - 2 * eta(k) % 8).max(1),
            false => eta(k),
        };
        encoded.fill(0);
        pack_bits(small_bits(k), larger, &mut encoded);
        assert!(!decode_small(k, &encoded, &mut decoded));
    }
}

fn signed(key: &PrivateKey, mus: &[[u8; 64]]) -> Vec<Result<Signature, SignError>> {
    let set = key.public().set();
    let randomness = Randomness::from_bytes(&[0; 32]);
    let mut jobs: Vec<_> = mus
        .iter()
        .map(|mu| SignJob {
            key,
            message: Message::Representative(mu),
            randomness: &randomness,
            result: None,
        })
        .collect();
    let backend = Backend::available()[0];
    sign(
        backend,
        &mut Scratch::try_new(set).expect("memory"),
        &mut jobs,
    );
    jobs.into_iter()
        .map(|job| job.result.expect("a result"))
        .collect()
}

/// The expectations are from the specification of Dilithium, round 3, table 1, and from FIPS 204,
/// table 1. The mean of a thousand signatures is mostly within 3 % of them.
#[test]
fn as_many_rounds_are_rejected_as_expected() {
    let backend = Backend::available()[0];
    for (set, expected) in ParameterSet::ALL.into_iter().zip([4.25, 5.1, 3.85]) {
        let key = PrivateKey::from_seed(set, backend, &Seed::from_bytes(&[1; 32])).expect("memory");
        let mut random = Random(425);
        let count = if cfg!(miri) { 2 } else { 1000 };
        for fill in [1, 8] {
            ROUNDS.set(0);
            for _ in 0..count / fill {
                let mus: Vec<[u8; 64]> = (0..fill).map(|_| random.bytes()).collect();
                assert!(signed(&key, &mus).iter().all(Result::is_ok));
            }
            let mean = f64::from(ROUNDS.get()) / count as f64;
            assert!(
                cfg!(miri) || (mean / expected - 1.0).abs() < 0.15,
                "{set:?}: {mean}"
            );
        }
    }
}

/// A flipped bit in a prepared key gives no signature or a right one. Where it could give a wrong
/// one, it gives none.
#[test]
fn faults_in_a_key_give_no_wrong_signature() {
    let backend = Backend::available()[0];
    for set in ParameterSet::ALL {
        let key = || {
            let seed = Seed::from_bytes(&[3; 32]);
            PrivateKey::from_seed(set, backend, &seed).expect("memory")
        };
        let (sound, mus) = (key(), [[1; 64], [2; 64]]);
        type Fault = dyn Fn(&mut PrivateKey);
        let faults: [(bool, &Fault); 7] = [
            (true, &|key| key.small[0].0[17] ^= 1),
            (true, &|key| key.public.matrix[2] = LongSampled::filled(1)),
            (true, &|key| key.public.t1[0].0[255] ^= 1),
            (true, &|key| key.public.t1[3].0[0] ^= 1 << 22),
            // These change which round passes, or the hints.
            (false, &|key| key.small.last_mut().expect("s2").0[100] ^= 4),
            (false, &|key| key.t0[1].0[3] ^= 1 << 20),
            (false, &|key| key.seed[0] ^= 1),
        ];
        for (number, (is_wrong, fault)) in faults.iter().enumerate() {
            let mut key = key();
            fault(&mut key);
            for (mu, result) in mus.iter().zip(signed(&key, &mus)) {
                let Ok(signature) = result else { continue };
                assert!(!is_wrong, "{set:?}: fault {number} does nothing");
                let mut job = [VerifyJob {
                    key: sound.public(),
                    message: Message::Representative(mu),
                    signature: signature.as_bytes(),
                    result: None,
                }];
                verify(
                    backend,
                    &mut Scratch::try_new(set).expect("memory"),
                    &mut job,
                );
                assert_eq!(job[0].result, Some(true));
            }
        }
    }
}

/// Without the check, a wrong signature would be returned: the test above can find a defect.
#[test]
#[cfg(feature = "fault-injection")]
fn without_the_check_a_wrong_signature_would_leave() {
    let backend = Backend::available()[0];
    let set = ParameterSet::MlDsa65;
    let seed = Seed::from_bytes(&[3; 32]);
    let mut key = PrivateKey::from_seed(set, backend, &seed).expect("memory");
    key.small[0].0[17] ^= 1;
    crate::fault::skip_checks(true);
    let result = signed(&key, &[[1; 64]]);
    crate::fault::skip_checks(false);
    let signature = result[0].as_ref().expect("unchecked");
    let mut job = [VerifyJob {
        key: key.public(),
        message: Message::Representative(&[1; 64]),
        signature: signature.as_bytes(),
        result: None,
    }];
    verify(
        backend,
        &mut Scratch::try_new(set).expect("memory"),
        &mut job,
    );
    assert_eq!(job[0].result, Some(false));
}

#[test]
fn the_memory_of_a_batch_is_wiped() {
    let backend = Backend::available()[0];
    for set in ParameterSet::ALL {
        let key = PrivateKey::from_seed(set, backend, &Seed::from_bytes(&[4; 32])).expect("memory");
        let mut scratch = Scratch::try_new(set).expect("memory");
        let randomness = Randomness::from_bytes(&[0; 32]);
        let mut jobs = [SignJob {
            key: &key,
            message: Message::Representative(&[5; 64]),
            randomness: &randomness,
            result: None,
        }];
        sign(backend, &mut scratch, &mut jobs);
        let (k, l) = set.k_and_l();
        // The check of the signature leaves public values there.
        let public = verifying_bytes(k, l);
        let mut arena = scratch.memory.arena();
        let _: &mut [[u64; 8]] = arena.slice(public.div_ceil(64));
        let lines = arena.bytes_left() / 64;
        let rest: &mut [[u64; 8]] = arena.slice(lines);
        assert!(rest.iter().flatten().all(|&word| word == 0));
    }
}
