//! Multiplication and squaring of every lane type, limb by limb against the oracle and against
//! num-bigint.

use lockstep_testkit::Random;
use num_bigint::BigUint;

use super::{Modulus, mask_limbs, multiply, multiply_add, square};
use crate::simd::portable::Portable;
use crate::simd::{Simd, enter, words, words_mut};

/// Returns a number of `bits` bits; every fourth is all ones, for the longest sums.
fn number(random: &mut Random, bits: usize) -> BigUint {
    if random.word().is_multiple_of(4) {
        return (BigUint::from(1u8) << bits) - 1u8;
    }
    let bytes: Vec<u8> = (0..bits / 8).map(|_| random.word() as u8).collect();
    let mut number = BigUint::from_bytes_be(&bytes);
    number.set_bit(bits as u64 - 1, true);
    number
}

/// An odd modulus and two factors below twice the modulus, for each lane.
struct Case {
    n: BigUint,
    a: BigUint,
    b: BigUint,
}

fn cases(random: &mut Random, bits: usize, count: usize) -> Vec<Case> {
    (0..count)
        .map(|_| {
            let mut n = number(random, bits);
            n.set_bit(0, true);
            let (a, b) = (number(random, bits + 1), number(random, bits + 1));
            let twice = &n * 2u8;
            Case {
                a: a % &twice,
                b: b % &twice,
                n,
            }
        })
        .collect()
}

/// Returns the limbs of a·b/R mod n, of a²/R mod n and of a·b + b, lane by lane.
fn compute<S: Simd, const N: usize>(s: S, cases: &[Case]) -> [Vec<u64>; 3] {
    let mut numbers = [[s.zero(); N]; 3];
    let mut k0 = s.zero();
    let radix = BigUint::from(1u8) << S::LIMB_BITS;
    for (lane, case) in cases.iter().enumerate() {
        for (number, value) in numbers.iter_mut().zip([&case.n, &case.a, &case.b]) {
            let limbs = words_mut(number)[lane..].iter_mut().step_by(S::LANES);
            for (i, limb) in limbs.enumerate() {
                let digit = (value >> (S::LIMB_BITS as usize * i)) % &radix;
                *limb = digit.try_into().unwrap();
            }
        }
        let inverse = case.n.modinv(&radix).unwrap();
        words_mut(core::slice::from_mut(&mut k0))[lane] = (&radix - inverse).try_into().unwrap();
    }
    let [n, a, b] = numbers;
    let mut product = [s.zero(); N];
    multiply(s, &mut product, &a, &b, Modulus::new(&n, &k0));
    let (mut squared, mut doubled) = ([s.zero(); N], [s.zero(); N]);
    square(s, &mut squared, &mut doubled, &a, Modulus::new(&n, &k0));
    let mut whole = vec![s.zero(); 2 * N];
    enter!(s, {
        mask_limbs(s, &mut product);
        mask_limbs(s, &mut squared);
        multiply_add(s, &mut whole, &a, &b, &b);
    });
    [
        words(&product).to_vec(),
        words(&squared).to_vec(),
        words(&whole).to_vec(),
    ]
}

fn value<S: Simd>(limbs: &[u64], lane: usize) -> BigUint {
    let lanes = limbs[lane..].iter().step_by(S::LANES);
    lanes.rev().fold(BigUint::ZERO, |number, &limb| {
        (number << S::LIMB_BITS) + limb
    })
}

/// Compares the oracle `s` with num-bigint; returns its results.
fn check<S: Simd, const N: usize>(s: S, cases: &[Case]) -> [Vec<u64>; 3] {
    let results = compute::<S, N>(s, cases);
    let r = BigUint::from(1u8) << (N * S::LIMB_BITS as usize);
    for (lane, case) in cases.iter().enumerate() {
        let [product, squared, whole] = results.each_ref().map(|limbs| value::<S>(limbs, lane));
        assert!(product < &case.n * 2u8 && squared < &case.n * 2u8);
        assert_eq!(product * &r % &case.n, &case.a * &case.b % &case.n);
        assert_eq!(squared * &r % &case.n, &case.a * &case.a % &case.n);
        assert_eq!(whole, &case.a * &case.b + &case.b);
    }
    results
}

/// Compares eight cases with num-bigint, on all lanes.
fn lanes_agree<const N: usize>(eight: &[Case]) {
    let wide = check::<_, N>(Portable::<8>, eight);
    let cases = &eight[..4];
    let narrow = check::<_, N>(Portable::<4>, cases);
    #[cfg(vectors)]
    {
        if let Some(s) = crate::simd::avx512ifma::Avx512Ifma::detect() {
            assert!(compute::<_, N>(s, eight) == wide, "beside");
            let s = s.reducing_after();
            assert!(compute::<_, N>(s, eight) == wide, "after");
        }
        if let Some(s) = crate::simd::avx512ifma256::Avx512Ifma256::detect() {
            assert!(compute::<_, N>(s, cases) == narrow, "avx512ifma256");
        }
        if let Some(s) = crate::simd::avx2::Avx2::detect() {
            assert!(compute::<_, N>(s, cases) == narrow, "avx2");
        }
    }
    #[cfg(not(vectors))]
    let _ = (wide, narrow);
}

/// Compares random numbers of one size.
fn lanes_agree_on_many<const N: usize>(bits: usize) {
    let mut random = Random(bits as u64);
    for _ in 0..20 {
        lanes_agree::<N>(&cases(&mut random, bits, 8));
    }
}

#[test]
fn all_lanes_compute_the_same_limbs() {
    lanes_agree_on_many::<10>(512);
    lanes_agree_on_many::<20>(1024);
    lanes_agree_on_many::<30>(1536);
    lanes_agree_on_many::<80>(4096);
}

#[test]
fn a_sixteen_way_look_up_finds_each_word() {
    fn look_up<S: Simd>(s: S) {
        let table: [u64; 16] = core::array::from_fn(|i| 0x9e37_79b9_7f4a_7c15 << i);
        for index in 0..32 {
            let mut found = [s.zero()];
            enter!(s, found[0] = s.look_up_16(&table, s.splat(index)));
            assert_eq!(words(&found), vec![table[index as usize % 16]; S::LANES]);
        }
    }
    look_up(Portable::<4>);
    #[cfg(vectors)]
    if let Some(s) = crate::simd::avx2::Avx2::detect() {
        look_up(s);
    }
}

/// A square has a column that would be negative without its higher start.
#[test]
fn no_column_of_a_square_is_negative() {
    fn squares<const N: usize>(bits: usize) {
        let mut cases = cases(&mut Random(bits as u64), bits, 8);
        for (i, case) in cases.iter_mut().enumerate() {
            let at = 52 * (10 * (i % (N / 10 - 1)) + 9);
            case.a = ((BigUint::from(1_u8) << 51) + 1_u8) << at;
            case.a.set_bit(at as u64 + 102, true);
        }
        lanes_agree::<N>(&cases);
    }
    squares::<20>(1024);
    squares::<30>(1536);
    squares::<40>(2048);
    squares::<60>(3072);
    squares::<80>(4096);
}
