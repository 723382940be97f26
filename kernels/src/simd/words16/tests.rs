//! Each operation on words, on all vectors of this CPU, against its definition.

use lockstep_testkit::Random;

use super::*;
use crate::simd::enter;

/// Calls `$check` with all words of this CPU.
macro_rules! on_all_words {
    ($check:ident) => {
        $check($crate::simd::words16::portable::PortableWords);
        #[cfg(vectors)]
        {
            use $crate::simd::words16::{avx2::Avx2Words, avx512vbmi2::Avx512Vbmi2};
            match Avx2Words::detect() {
                Some(words) => $check(words),
                None => println!("skipped: no AVX2 here"),
            }
            match Avx512Vbmi2::detect() {
                Some(words) => $check(words),
                None => println!("skipped: no AVX-512 VBMI2 here"),
            }
        }
    };
}
pub(crate) use on_all_words;

/// Returns a vector as words.
fn words<W: Words>(w: W, vector: impl FnOnce(W) -> W::Vector) -> Vec<i16> {
    let mut words = vec![0; W::LANES];
    let to = &mut words[..];
    enter!(w, [to], w.store(to, vector(w)));
    words
}

fn operations<W: Words>(w: W) {
    let mut random = Random(16);
    for _ in 0..if cfg!(miri) { 3 } else { 1000 } {
        let mut word = || match random.word() % 8 {
            0 => i16::MIN,
            1 => i16::MAX,
            2 => 0,
            3 => -1,
            _ => random.word() as i16,
        };
        let a: Vec<i16> = (0..W::LANES).map(|_| word()).collect();
        let b: Vec<i16> = (0..W::LANES).map(|_| word()).collect();
        let each = |f: fn(i16, i16) -> i16| -> Vec<i16> {
            a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect()
        };
        let two = |f: fn(W, W::Vector, W::Vector) -> W::Vector| {
            words(w, |w| f(w, w.load(&a), w.load(&b)))
        };
        assert_eq!(two(|w, a, b| w.add(a, b)), each(i16::wrapping_add));
        assert_eq!(two(|w, a, b| w.sub(a, b)), each(i16::wrapping_sub));
        assert_eq!(two(|w, a, b| w.mul_low(a, b)), each(i16::wrapping_mul));
        let high = |a, b| ((i32::from(a) * i32::from(b)) >> 16) as i16;
        assert_eq!(two(|w, a, b| w.mul_high(a, b)), each(high));
        // Both must not be −2^15.
        let halved = |w: W, a, b| w.mul_round(a, w.shift_right(b, 1));
        let round = |a: i16, b: i16| {
            let product = i32::from(a) * i32::from(b as u16 >> 1);
            ((product + (1 << 14)) >> 15) as i16
        };
        assert_eq!(two(halved), each(round));
        assert_eq!(two(|w, a, b| w.and(a, b)), each(|a, b| a & b));
        assert_eq!(two(|w, a, b| w.or(a, b)), each(|a, b| a | b));
        let min = |a: i16, b: i16| (a as u16).min(b as u16) as i16;
        assert_eq!(two(|w, a, b| w.min_unsigned(a, b)), each(min));
        assert_eq!(two(|w, a, _| w.shift_left(a, 5)), each(|a, _| a << 5));
        let shifted = |a: i16, _| (a as u16 >> 3) as i16;
        assert_eq!(two(|w, a, _| w.shift_right(a, 3)), each(shifted));
        let swapped = two(|w, a, _| w.swap_pairs(a));
        assert!((0..W::LANES).all(|i| swapped[i] == a[i ^ 1]));

        let pair = |i: usize| i32::from(a[i]) * i32::from(b[i]);
        let sum = |i: usize| pair(i).wrapping_add(pair(i + 1)).wrapping_add(pair(i));
        let halves = |half: usize| {
            words(w, |w| {
                let (a, b) = (w.load(&a), w.load(&b));
                // The pairs' first products once more.
                let first = w.spread(0x5555_5555, a);
                let even = w.add_products(w.add_products(w.no_sums(), a, b), first, b);
                w.halves(even, w.add_products(w.no_sums(), a, b))[half]
            })
        };
        let (low, high) = (halves(0), halves(1));
        for i in (0..W::LANES).step_by(2) {
            let twice = pair(i).wrapping_add(pair(i + 1));
            assert_eq!([low[i], high[i]], [sum(i) as i16, (sum(i) >> 16) as i16]);
            let i = i + 1;
            assert_eq!([low[i], high[i]], [twice as i16, (twice >> 16) as i16]);
        }

        let bits = random.word() as u32;
        let spread = words(w, |w| w.spread(bits, w.load(&a)));
        let signs = enter!(w, w.signs(w.load(&a)));
        for i in 0..W::LANES {
            assert_eq!(spread[i], if bits >> i & 1 == 1 { a[i] } else { 0 });
            assert_eq!(signs >> i & 1 == 1, a[i] < 0);
        }
        assert!(W::LANES == 32 || signs >> W::LANES == 0);
    }
}

#[test]
fn operations_are_what_they_say() {
    on_all_words!(operations);
}

fn exchanges<W: Words>(w: W) {
    fn check<W: Words, const PAIRS: usize>(w: W) {
        let both: Vec<i16> = (0..2 * W::LANES as i16).collect();
        let (a, b) = both.split_at(W::LANES);
        let exchanged =
            |which: usize| words(w, |w| w.exchange::<PAIRS>(w.load(a), w.load(b))[which]);
        let block = 2 * PAIRS;
        for i in 0..W::LANES {
            let (first, second) = match i & block {
                0 => (a[i], a[i + block]),
                _ => (b[i - block], b[i]),
            };
            assert_eq!([exchanged(0)[i], exchanged(1)[i]], [first, second]);
        }
    }
    check::<W, 1>(w);
    check::<W, 2>(w);
    check::<W, 4>(w);
    if W::LANES == 32 {
        check::<W, 8>(w);
    }
}

#[test]
fn blocks_of_pairs_are_exchanged() {
    on_all_words!(exchanges);
}

fn zips<W: Words>(w: W) {
    let both: Vec<i16> = (0..2 * W::LANES as i16).collect();
    let (a, b) = both.split_at(W::LANES);
    let unzipped =
        [0, 1].map(|which| words(w, |w| w.unzip(w.load(a), w.load(b))[which])[..W::LANES].to_vec());
    for (odd, unzipped) in unzipped.iter().enumerate() {
        let pairs = both.as_chunks::<2>().0.iter().skip(odd).step_by(2);
        let expected: Vec<i16> = pairs.flatten().copied().collect();
        assert_eq!(*unzipped, expected);
    }
    let [even, odd] = &unzipped;
    let zipped = [0, 1]
        .map(|which| words(w, |w| w.zip(w.load(even), w.load(odd))[which])[..W::LANES].to_vec());
    assert_eq!(zipped.concat(), both);
}

#[test]
fn even_and_odd_pairs_come_apart_and_together() {
    on_all_words!(zips);
}

/// Returns number `i` of `bits` bits.
fn number(bytes: &[u8], bits: usize, i: usize) -> i16 {
    (0..bits).fold(0, |number, bit| {
        let at = i * bits + bit;
        number | i16::from(bytes[at / 8] >> (at % 8) & 1) << bit
    })
}

fn packing<W: Words>(w: W) {
    fn check<W: Words, const BITS: usize>(w: W, random: &mut Random) {
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
    let mut random = Random(12);
    for _ in 0..if cfg!(miri) { 3 } else { 1000 } {
        check::<W, 4>(w, &mut random);
        check::<W, 5>(w, &mut random);
        check::<W, 6>(w, &mut random);
        check::<W, 10>(w, &mut random);
        check::<W, 11>(w, &mut random);
        check::<W, 12>(w, &mut random);
    }
}

#[test]
fn numbers_are_packed_and_unpacked() {
    on_all_words!(packing);
}

fn sifting<W: Words>(w: W) {
    let mut random = Random(3329);
    for length in [0, 3, 24, 45, 48, 51, 144, 168] {
        for start in (0..=COEFFICIENTS).step_by(if cfg!(miri) { 64 } else { 1 }) {
            let mut bytes = random.vec(length);
            // Some of the largest numbers that are kept, and of the smallest that are rejected.
            for three in bytes.chunks_exact_mut(3).step_by(5) {
                three.copy_from_slice(&[0, 0x1d, 0xd0]);
            }
            let numbers = (0..length / 3 * 2).map(|i| number(&bytes, 12, i));
            let kept: Vec<i16> = numbers.filter(|&number| number < Q).collect();
            let mut to = Sampled([-1; COEFFICIENTS + MOST_LANES]);
            let out = &mut to;
            let count = enter!(w, [out], w.sift_vartime(&bytes, out, start));
            assert_eq!(count, (start + kept.len()).min(COEFFICIENTS));
            assert!(to.0[..start].iter().all(|&word| word == -1));
            assert_eq!(to.0[start..count], kept[..count - start]);
        }
    }
}

#[test]
fn numbers_below_q_are_kept() {
    on_all_words!(sifting);
}
