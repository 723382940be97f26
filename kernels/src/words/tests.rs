//! Every multiplier against num-bigint.

use lockstep_testkit::Random;
use num_bigint::BigUint;

use super::*;
use crate::arena::Memory;

/// Calls a function of tests with each multiplier of this CPU.
macro_rules! by_all_multipliers {
    ($check:ident) => {
        $check(Plain);
        #[cfg(all(target_arch = "x86_64", not(any(miri, ct_msan))))]
        match Adx::detect() {
            Some(adx) => $check(adx),
            None => println!("skipped: this CPU has no ADX"),
        }
    };
}

/// Returns blocks whose words are random, or all zeros, or all ones: for the longest carries.
fn blocks(random: &mut Random, count: usize) -> Vec<Block> {
    let mut blocks = vec![[0; 8]; count];
    let kind = random.word() % 4;
    for word in blocks.as_flattened_mut() {
        *word = match kind {
            0 => u64::MAX,
            1 => (random.word() & 1).wrapping_neg(),
            _ => random.word(),
        };
    }
    blocks
}

/// Returns an odd modulus whose top bit is set.
fn modulus(random: &mut Random, count: usize) -> Vec<Block> {
    let mut n = blocks(random, count);
    n[0][0] |= 1;
    n[count - 1][7] |= 1 << 63;
    n
}

fn number(blocks: &[Block]) -> BigUint {
    let bytes = blocks
        .as_flattened()
        .iter()
        .flat_map(|word| word.to_le_bytes());
    BigUint::from_bytes_le(&bytes.collect::<Vec<u8>>())
}

fn power_of_two(exponent: usize) -> BigUint {
    BigUint::from(1u8) << exponent
}

/// Number of repetitions of a random test; Miri is slow.
const ROUNDS: usize = if cfg!(miri) { 2 } else { 200 };

/// The lengths of numbers, in blocks: primes of all sizes and moduli.
const LENGTHS: [usize; 6] = [1, 2, 3, 4, 6, 8];

#[test]
fn rows_are_products() {
    fn check(m: impl Multiplier) {
        let mut random = Random(1);
        for round in 0..ROUNDS {
            let count = LENGTHS[round % LENGTHS.len()];
            let (mut t, b) = (blocks(&mut random, count), blocks(&mut random, count));
            let (mut c, a) = (blocks(&mut random, 1)[0], blocks(&mut random, 1)[0]);
            let expected = number(&[a]) * number(&b) + number(&[c]) + number(&t);
            m.multiply_add(&mut t, &mut c, &a, &b);
            t.push(c);
            assert_eq!(number(&t), expected);

            let (mut t, a) = (blocks(&mut random, 1)[0], blocks(&mut random, 1)[0]);
            let mut expected = number(&[t]);
            for (i, x) in a.iter().enumerate() {
                for (j, y) in a.iter().enumerate().skip(i + 1) {
                    expected += (BigUint::from(*x) * BigUint::from(*y)) << (64 * (i + j));
                }
            }
            m.triangle(&mut t, &mut c, &a);
            assert_eq!(number(&[t, c]), expected);

            let a = blocks(&mut random, count);
            let squares: BigUint = a
                .as_flattened()
                .iter()
                .enumerate()
                .map(|(i, x)| BigUint::from(*x).pow(2) << (128 * i))
                .sum();
            // The sum of the products of every two different words.
            let mixed = (number(&a).pow(2) - &squares) >> 1;
            let mut t = vec![[0; 8]; 2 * count];
            words_from(t.as_flattened_mut(), &mixed);
            m.double(&mut t, &a);
            assert_eq!(number(&t), number(&a).pow(2));
        }
    }
    by_all_multipliers!(check);
}

fn words_from(words: &mut [u64], number: &BigUint) {
    for (word, digit) in words.iter_mut().zip(number.iter_u64_digits()) {
        *word = digit;
    }
}

#[test]
fn a_reduction_makes_the_lowest_block_vanish() {
    fn check(m: impl Multiplier) {
        let mut random = Random(2);
        for round in 0..ROUNDS {
            let count = LENGTHS[round % LENGTHS.len()];
            let n = modulus(&mut random, count);
            let mut t = blocks(&mut random, count + 1);
            let carry = random.word() & 1 == 1;
            let above = if carry {
                power_of_two(BLOCK_BITS * count)
            } else {
                BigUint::ZERO
            };
            let before = number(&t) + above;
            let k0 = negative_inverse(n[0][0]);
            let carry = m.reduce(&mut t, &n, k0, carry);
            let sum = before + number(&t[..1]) * number(&n);
            t[0] = [0; 8];
            let above = power_of_two(BLOCK_BITS * (count + 1)) * u8::from(carry);
            assert_eq!(number(&t) + above, sum);
        }
    }
    by_all_multipliers!(check);
}

#[test]
fn arithmetic_is_that_of_montgomery() {
    fn check(m: impl Multiplier) {
        let mut random = Random(3);
        for round in 0..ROUNDS {
            let count = LENGTHS[round % LENGTHS.len()];
            let mut memory = Memory::new(64 * 1024);
            let mut field = Field::new(m, &mut memory.arena(), count);
            // The limbs have from 8 to 64 bits more than the blocks.
            let limbs = (BLOCK_BITS * count + 8).div_ceil(520) * 10;
            let blocks_of_n = modulus(&mut random, count);
            let mut n = vec![0; limbs];
            repack(&mut n, 52, blocks_of_n.as_flattened(), 64);
            field.set_modulus(&n);
            let n = number(&blocks_of_n);
            assert_eq!(number(field.n), n);

            let r = power_of_two(BLOCK_BITS * count);
            let (a, b) = (blocks(&mut random, count), blocks(&mut random, count));
            let (x, y) = (number(&a), number(&b));
            let congruent = |left: &[Block], right: BigUint| {
                assert_eq!(number(left) % &n, right % &n);
            };
            let mut product = a.clone();
            field.multiply(&mut product, &b);
            congruent(&product, &x * &y * r.modinv(&n).unwrap());
            let mut square = a.clone();
            field.square(&mut square);
            congruent(&square, &x * &x * r.modinv(&n).unwrap());
            let excess = 52 * limbs - BLOCK_BITS * count;
            let mut quotient = a.clone();
            field.remove_excess(&mut quotient, 3);
            congruent(&quotient, &x * power_of_two(3 * excess).modinv(&n).unwrap());
            assert!(number(&quotient) < &n * 2u8);

            let mut value = a.clone();
            field.value(&mut value);
            assert_eq!(number(&value), &x * r.modinv(&n).unwrap() % &n);
            let mut r3 = vec![[0; 8]; count];
            words_from(r3.as_flattened_mut(), &(&r * &r * &r % &n));
            let long = [a.clone(), b.clone()].concat();
            let mut form = vec![[0; 8]; count];
            field.montgomery_form(&mut form, &long, &r3);
            congruent(&form, number(&long) * &r);

            let mut difference = product.clone();
            for number in [&mut difference, &mut square] {
                field.canonical(number);
            }
            let expected = (number(&difference) + &n - number(&square)) % &n;
            field.subtract(&mut difference, &square);
            assert_eq!(number(&difference), expected);
        }
    }
    by_all_multipliers!(check);
}

#[test]
fn powers_are_those_of_num_bigint() {
    fn check(m: impl Multiplier) {
        let mut random = Random(4);
        let lengths = if cfg!(miri) { 0..0 } else { 1..5 };
        for count in lengths {
            let bits = BLOCK_BITS * count;
            let words = bits.div_ceil(60);
            let mut memory = Memory::new(64 * 1024);
            let mut arena = memory.arena();
            let whole = arena.bytes_left();
            let mut power = Power::new(m, &mut arena, count, words);
            let taken = whole - arena.bytes_left();
            assert!(taken <= super::Power::<Plain>::bytes(count, words));

            let n = modulus(&mut random, count);
            power.field.n.copy_from_slice(&n);
            *power.field.k0 = negative_inverse(n[0][0]);
            let (n, r) = (number(&n), power_of_two(bits));
            let base = blocks(&mut random, count);
            power.base.copy_from_slice(&base);
            words_from(power.table[..count].as_flattened_mut(), &(&r % &n));
            let exponent = blocks(&mut random, count);
            repack(power.exponent, 60, exponent.as_flattened(), 64);
            let mut result = vec![[0; 8]; count];
            power.exponentiate(&mut result, bits, 0);
            let base = number(&base) * r.modinv(&n).unwrap();
            assert_eq!(number(&result), base.modpow(&number(&exponent), &n));
        }
    }
    by_all_multipliers!(check);
}

#[test]
fn every_entry_of_a_table_is_found() {
    fn check(m: impl Multiplier) {
        let mut random = Random(5);
        for count in 1..5 {
            let table: Vec<Block> = (0..count << WINDOW)
                .map(|_| [(); 8].map(|()| random.word()))
                .collect();
            for (e, power) in table.chunks_exact(count).enumerate() {
                // The digit is the third of the second word.
                let exponent = [random.word(), (e as u64) << 10 | 0x7ff << 15 | 0x3ff];
                let mut entry = vec![[0; 8]; count];
                select(m, &mut entry, &table, &exponent, 60 / WINDOW + 2);
                assert_eq!(entry, power);
            }
        }
    }
    by_all_multipliers!(check);
}

#[test]
fn words_of_other_lengths_are_the_same_number() {
    let mut random = Random(6);
    for (words, limbs) in [(8, 10), (16, 20), (24, 30), (32, 40), (64, 80)] {
        let number: Vec<u64> = (0..words).map(|_| random.word()).collect();
        let mut packed = vec![0; limbs];
        repack(&mut packed, 52, &number, 64);
        assert!(packed.iter().all(|limb| limb >> 52 == 0));
        let mut again = vec![0; words];
        repack(&mut again, 64, &packed, 52);
        assert_eq!(again, number);
    }
}
