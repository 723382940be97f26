//! Every operation on every lane type, against the oracle and against num-bigint.

use num_bigint::BigUint;

use super::constants::MODULUS;
use super::*;
use crate::curve25519::batch_inverse::invert_all;
#[cfg(vectors)]
use crate::simd::{avx2::Avx2, avx512ifma::Avx512Ifma, avx512ifma256::Avx512Ifma256};
use crate::simd::{enter, portable::Portable, words_mut};

const TOP: u64 = (1 << TOP_BITS) + 256;

/// Returns the inverse in each lane, and 0 for 0.
fn inverses<S: Simd>(s: S, number: &Factor<S>) -> Factor<S> {
    let mut numbers = [number.limbs()];
    invert_all(s, &mut numbers, &mut [[s.zero(); LIMBS]]);
    Factor::from_limbs(s, numbers[0])
}

/// Returns limbs with long carries, and random ones.
fn operands() -> Vec<[u64; LIMBS]> {
    let mut operands = vec![
        [0; LIMBS],
        ONE,
        MODULUS,
        [MASK - 19, MASK, MASK, MASK, MASK >> 5],
        [MASK - 17, MASK, MASK, MASK, MASK >> 5],
        [MASK, MASK, MASK, MASK, MASK >> 5],
        [MASK, MASK, MASK, MASK, TOP],
        [MASK, 0, MASK, 0, TOP],
        [0, 0, 0, 0, TOP],
    ];
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state ^ state >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12
    };
    for _ in 0..200 {
        operands.push(core::array::from_fn(|i| {
            if i < 4 { random() } else { random() % TOP }
        }));
    }
    operands
}

/// Applies all operations to the same operands in every lane; returns the limbs of lane 0. All
/// lanes must agree.
fn results<S: Simd>(s: S, a: [u64; LIMBS], b: [u64; LIMBS]) -> Vec<[u64; LIMBS]> {
    let out = enter!(s, [], {
        // Bits above the low 52 must not matter.
        let high = s.splat(0xabc << 52);
        let number =
            |x: [u64; LIMBS]| Factor::from_limbs(s, five_limbs!(i => s.add(s.splat(x[i]), high)));
        let (a, b) = (number(a), number(b));
        let (ab, aa) = (a * b, a.square());
        let biased = (a.times_biased(&b), a.square_biased());
        vec![
            ab.limbs,
            aa.limbs,
            (ab + aa).limbs,
            (ab - aa).limbs,
            biased.0.limbs,
            biased.1.limbs,
            (a * &Multiplier::new(b)).limbs,
            (biased.1 - ab).carry().canonical(),
            (biased.0 - (aa + aa)).carry().canonical(),
            (biased.0.double() - aa + ab).carry().canonical(),
            a.mul_small_add(121_665, &biased.0).carry().canonical(),
            a.canonical(),
            inverses(s, &a).canonical(),
        ]
    });
    out.iter()
        .map(|limbs| {
            let all = words(limbs);
            for (i, limb) in all.iter().enumerate() {
                assert_eq!(*limb, all[i / S::LANES * S::LANES], "lanes differ");
            }
            core::array::from_fn(|i| all[i * S::LANES])
        })
        .collect()
}

#[test]
fn every_backend_agrees_limb_for_limb_with_the_portable_one() {
    #[cfg(vectors)]
    let Some((wide, narrow)) = Avx512Ifma::detect().zip(Avx512Ifma256::detect()) else {
        return eprintln!("skipped: this CPU has no AVX-512 IFMA");
    };
    #[cfg(vectors)]
    for (a, b) in operands().into_iter().zip(operands().into_iter().rev()) {
        let oracle = results(Portable::<1>, a, b);
        assert_eq!(results(wide, a, b), oracle);
        assert_eq!(results(narrow, a, b), oracle);
    }
}

#[test]
fn the_portable_backend_agrees_with_an_independent_library() {
    compare(Portable::<1>);
}

/// Limbs are not compared with the portable ones: products of halves are carried in another way.
#[test]
#[cfg(vectors)]
fn products_of_halves_agree_with_an_independent_library() {
    match Avx2::detect() {
        Some(lanes) => compare(lanes),
        None => eprintln!("skipped: this CPU has no AVX2"),
    }
}

fn compare<S: Simd>(s: S) {
    let number = |x: &[u64; LIMBS]| {
        x.iter().rev().fold(BigUint::ZERO, |sum, limb| {
            (sum << 52) + BigUint::from(*limb)
        })
    };
    let p = number(&MODULUS);
    for (a, b) in operands().into_iter().zip(operands().into_iter().rev()) {
        let results = results(s, a, b);
        let (a, b) = (number(&a), number(&b));
        let (ab, aa) = (&a * &b, &a * &a);
        let minus_aa = &p * &p - &aa % &p;
        let expected = [
            ab.clone(),
            aa.clone(),
            &ab + &aa,
            &ab + &minus_aa,
            ab.clone(),
            aa.clone(),
            ab.clone(),
            &aa + (&p * &p - &ab % &p),
            &ab + &minus_aa + &minus_aa,
            &ab * 3_u32 + &minus_aa,
            &a * 121_665_u32 + &ab,
            a.clone(),
            a.modpow(&(&p - 2_u32), &p),
        ];
        for (i, (result, expected)) in results.iter().zip(expected).enumerate() {
            assert_eq!(number(result) % &p, expected % &p, "result {i}");
            // Results from the eighth onwards are canonical.
            assert!(i < 7 || number(result) < p, "result {i}");
        }
    }
}

#[test]
fn zeros_do_not_spoil_a_shared_inversion() {
    let s = Portable::<4>;
    let mut numbers = [[s.zero(); LIMBS]; 3];
    // 1, 2, 3, … with zeros between them. One of the zeros is p.
    for (i, number) in numbers.iter_mut().enumerate() {
        let lanes = words_mut(number);
        for (l, lane) in lanes[..4].iter_mut().enumerate() {
            *lane = if (i + l) % 3 == 0 {
                0
            } else {
                (4 * i + l) as u64
            };
        }
    }
    for (i, limb) in words_mut(&mut numbers[0]).chunks_mut(4).enumerate() {
        limb[0] = MODULUS[i];
    }
    let before = numbers;
    invert_all(s, &mut numbers, &mut [[s.zero(); LIMBS]; 3]);
    for (number, inverse) in before.iter().zip(&numbers) {
        let one = (Factor::from_limbs(s, *number) * Factor::from_limbs(s, *inverse)).carry();
        let (one, inverse) = (one.canonical(), words(inverse));
        for l in 0..4 {
            let zero = words(number)[l] == 0 || words(number)[l] == MODULUS[0];
            assert_eq!(words(&one)[l], u64::from(!zero));
            assert!(!zero || (0..LIMBS).all(|i| inverse[4 * i + l] & MASK == 0));
        }
    }
}
