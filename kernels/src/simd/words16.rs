//! Vectors of words of 16 bits along a polynomial: the lane trait of ML-KEM.
//!
//! Here a vector holds coefficients of one polynomial, so that some operations move words between
//! places. The rules of [`Simd`](super::Simd) hold: a value proves that this CPU has the
//! instructions, and an outlined function enters them first.

#[cfg(vectors)]
pub(crate) mod avx2;
#[cfg(vectors)]
pub(crate) mod avx512vbmi2;
pub(crate) mod portable;
#[cfg(feature = "proofs")]
#[path = "../../../proofs/lanes/words16.rs"]
pub(crate) mod symbolic;
#[cfg(test)]
pub(crate) mod tests;

use super::Plain;

/// Number of coefficients of a polynomial.
pub(crate) const COEFFICIENTS: usize = 256;

/// A polynomial: words that are numbers modulo [`Q`], with bounds that each function states.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Polynomial(pub(crate) [i16; COEFFICIENTS]);

// SAFETY: 512 bytes of integers without padding, 64-byte aligned.
unsafe impl Plain for Polynomial {}

// SAFETY: all zero is a valid value of an array of integers.
unsafe impl lockstep_vault::Zeroable for Polynomial {}

impl Polynomial {
    pub(crate) const ZERO: Self = Self([0; COEFFICIENTS]);
}

/// A polynomial, and space for a vector that begins at its end.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Sampled([i16; COEFFICIENTS + MOST_LANES]);

// SAFETY: 576 bytes of integers without padding, 64-byte aligned.
unsafe impl Plain for Sampled {}

impl Sampled {
    #[inline(always)]
    pub(crate) fn coefficients(&self) -> &[i16; COEFFICIENTS] {
        self.0.first_chunk().expect("it is longer")
    }
}

/// Number of words of the longest vector.
const MOST_LANES: usize = 32;

/// The modulus.
pub(crate) const Q: i16 = 3329;

/// Operations on words side by side. Two neighbours, the first at an even place, are a pair.
pub(crate) trait Words: Copy + 'static {
    /// [`LANES`](Self::LANES) words.
    type Vector: Copy;
    /// Half as many sums of 32 bits.
    type Sums: Copy;

    /// Number of words of a vector: 16 or 32.
    const LANES: usize;

    /// Runs `body` with the instruction set enabled.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// Loads the first words of `from`.
    fn load(self, from: &[i16]) -> Self::Vector;
    /// Writes the vector to the first words of `to`.
    fn store(self, to: &mut [i16], a: Self::Vector);
    /// Returns `value` in all places.
    fn splat(self, value: i16) -> Self::Vector;

    /// a + b modulo 2^16.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a − b modulo 2^16.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The lower half of a·b.
    fn mul_low(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// ⌊a·b / 2^16⌋, signed.
    fn mul_high(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// ⌊(a·b + 2^14) / 2^15⌋, signed; a and b are not both −2^15.
    fn mul_round(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a & b.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a | b.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of both, unsigned.
    fn min_unsigned(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a·2^`count` modulo 2^16, for a constant `count` below 16.
    fn shift_left(self, a: Self::Vector, count: u32) -> Self::Vector;
    /// ⌊a / 2^`count`⌋, unsigned, for a constant `count` below 16.
    fn shift_right(self, a: Self::Vector, count: u32) -> Self::Vector;

    /// Swaps both words of each pair.
    fn swap_pairs(self, a: Self::Vector) -> Self::Vector;
    /// Exchanges the odd blocks of `PAIRS` pairs of `a` for the even ones of `b`; twice, it has no
    /// effect. A vector has at least two blocks.
    fn exchange<const PAIRS: usize>(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];
    /// Returns the even pairs of both vectors, then the odd ones.
    #[inline(always)]
    fn unzip(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2] {
        const { assert!(Self::LANES == 16) };
        let [a, b] = self.exchange::<4>(a, b);
        let [a, b] = self.exchange::<2>(a, b);
        self.exchange::<1>(a, b)
    }
    /// The inverse of [`unzip`](Self::unzip).
    #[inline(always)]
    fn zip(self, even: Self::Vector, odd: Self::Vector) -> [Self::Vector; 2] {
        const { assert!(Self::LANES == 16) };
        let [a, b] = self.exchange::<1>(even, odd);
        let [a, b] = self.exchange::<2>(a, b);
        self.exchange::<4>(a, b)
    }

    /// Returns sums of zero.
    fn no_sums(self) -> Self::Sums;
    /// Adds a0·b0 + a1·b1 of each pair to `sums`.
    fn add_products(self, sums: Self::Sums, a: Self::Vector, b: Self::Vector) -> Self::Sums;
    /// Returns pairs of the lower halves of `even` and `odd`, then pairs of their upper halves.
    fn halves(self, even: Self::Sums, odd: Self::Sums) -> [Self::Vector; 2];

    /// Returns the signs, the first word's in the lowest bit.
    fn signs(self, a: Self::Vector) -> u32;
    /// Returns `value` where a bit is set, counted from the lowest, and zero elsewhere.
    fn spread(self, bits: u32, value: Self::Vector) -> Self::Vector;

    /// Unpacks numbers of `BITS` bits, 4, 5, 6, 10, 11 or 12, from the first `LANES · BITS / 8`
    /// bytes of `from`, the lowest bits first.
    fn unpack<const BITS: usize>(self, from: &[u8]) -> Self::Vector;
    /// The inverse of [`unpack`](Self::unpack), for numbers of at most `BITS` bits.
    fn pack<const BITS: usize>(self, to: &mut [u8], a: Self::Vector);

    /// Returns the sum of the lower two bits of each 4-bit number, minus the sum of the upper two.
    #[inline(always)]
    fn differences(self, bits: Self::Vector) -> Self::Vector {
        let odd = self.splat(0b101);
        let twos = self.add(
            self.and(bits, odd),
            self.and(self.shift_right(bits, 1), odd),
        );
        self.sub(self.and(twos, self.splat(0b11)), self.shift_right(twos, 2))
    }

    /// Unpacks numbers of 12 bits and writes those below [`Q`] to `to`, after `count` others, as
    /// long as there is space. Returns the new count. The time depends on the numbers.
    fn sift_vartime(self, from: &[u8], to: &mut Sampled, count: usize) -> usize;
}

/// For [`Words::unpack`]: the factor of each word, a power of two, which shifts its number to the
/// uppermost bits.
#[cfg(vectors)]
const fn factors<const BITS: usize>() -> [i16; 32] {
    let (mut factors, mut place) = ([0; 32], 0);
    while place < 32 {
        // Does not apply to 11 bits, which may reach into a third byte.
        let free = (16 - BITS).saturating_sub(place * BITS % 8);
        factors[place] = (1_u16 << free) as i16;
        place += 1;
    }
    factors
}

/// For [`Words::unpack`]: the places of the bytes of `N / 2` words, each of which contains a
/// number.
#[cfg(vectors)]
const fn spread_bytes<const BITS: usize, const N: usize>() -> [u8; N] {
    let (mut from, mut byte) = ([0; N], 0);
    while byte < N {
        from[byte] = (byte / 2 * BITS / 8 + byte % 2) as u8;
        byte += 1;
    }
    from
}

/// For [`Words::pack`]: the places of the bytes of numbers. Four numbers are in 64 bits; if four do
/// not fill their last byte, eight are in 128 bits.
#[cfg(vectors)]
const fn gathered_bytes<const BITS: usize, const N: usize>() -> [u8; N] {
    let (filled, of) = match BITS % 2 {
        0 => (BITS / 2, 8),
        _ => (BITS, 16),
    };
    let (mut from, mut byte) = ([0; N], 0);
    while byte < N / of * filled {
        from[byte] = (byte / filled * of + byte % filled) as u8;
        byte += 1;
    }
    from
}

/// [`Words::sift_vartime`] in plain words.
fn sift_words_vartime(from: &[u8], to: &mut Sampled, mut count: usize) -> usize {
    for three in from.as_chunks::<3>().0 {
        let [a, b, c] = three.map(u16::from);
        for number in [a | (b & 15) << 8, b >> 4 | c << 4] {
            to.0[count] = number as i16;
            count = (count + usize::from(number < Q as u16)).min(COEFFICIENTS);
        }
    }
    count
}
