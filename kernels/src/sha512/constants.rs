//! The constants of SHA-512 and SHA-384 (FIPS 180-4).

/// A state, or a digest, as big-endian words.
pub(crate) type Words = [u64; 8];
/// Number of bytes of a block.
pub(crate) const BLOCK_BYTES: usize = 128;
/// Initial state of SHA-512: fractions of the square roots of the first 8 primes (section 5.3.5).
pub(crate) const INITIAL: [u64; 8] = fractions_of_roots::<2, 0, 8>();
/// Initial state of SHA-384: the same of the ninth to sixteenth primes (section 5.3.4).
pub(crate) const INITIAL_384: [u64; 8] = fractions_of_roots::<2, 8, 8>();
/// Constants of the rounds: fractions of the cube roots of the first 80 primes (section 4.2.3).
pub(crate) const ROUND: [u64; 80] = fractions_of_roots::<3, 0, 80>();

/// Returns the first 64 bits of the fractional parts of the `DEGREE`th roots of `COUNT` primes,
/// after the `FIRST` smallest ones.
const fn fractions_of_roots<const DEGREE: usize, const FIRST: usize, const COUNT: usize>()
-> [u64; COUNT] {
    let mut fractions = [0; COUNT];
    let (mut count, mut candidate) = (0, 2);
    while count < FIRST + COUNT {
        let mut divisor = 2;
        while candidate % divisor != 0 {
            divisor += 1;
        }
        if divisor == candidate {
            if count >= FIRST {
                fractions[count - FIRST] = fraction_of_root(candidate, DEGREE);
            }
            count += 1;
        }
        candidate += 1;
    }
    fractions
}

/// Returns ⌊p^(1/degree)·2^64⌋ mod 2^64: the largest x with x^degree < p·2^(64·degree), bit by bit.
const fn fraction_of_root(p: u64, degree: usize) -> u64 {
    let mut x: u128 = 0;
    let mut bit = 67;
    while bit > 0 {
        bit -= 1;
        let candidate = x | 1 << bit;
        let power = power(candidate, degree);
        if power[degree] < p && power[degree + 1] == 0 {
            x = candidate;
        }
    }
    x as u64
}

/// Returns x^degree for x below 2^67 and a degree of at most 3.
const fn power(x: u128, degree: usize) -> [u64; 5] {
    let mut power = [1, 0, 0, 0, 0];
    let mut k = 0;
    while k < degree {
        let mut product = [0; 5];
        let (mut i, mut low_carry, mut high_carry) = (0, 0, 0);
        while i < 5 {
            // Word i of the power times the low word, and word i − 1 times the few bits above.
            let below = if i > 0 { power[i - 1] } else { 0 };
            let low = power[i] as u128 * (x as u64 as u128) + low_carry;
            let high = below as u128 * (x >> 64) + high_carry;
            let sum = (low as u64 as u128) + (high as u64 as u128);
            product[i] = sum as u64;
            low_carry = (low >> 64) + (sum >> 64);
            high_carry = high >> 64;
            i += 1;
        }
        power = product;
        k += 1;
    }
    power
}
