//! Vectors of words of 32 bits along a polynomial: the lane trait of ML-DSA.
//!
//! The vectors and their proofs are those of [`super::words16`], read as half as many words. The
//! same rules hold.

use super::Plain;
use super::opaque_words;
use super::words16::COEFFICIENTS;
#[cfg(vectors)]
use super::words16::Words;
use super::words16::portable::PortableWords;
use crate::taint::whole;

#[cfg(vectors)]
mod avx2;
#[cfg(vectors)]
mod avx512vbmi2;
#[cfg(feature = "proofs")]
#[path = "../../../proofs/lanes/words32.rs"]
pub(crate) mod symbolic;

/// A polynomial: words that are numbers modulo [`Q`], with bounds that each function states.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct LongPolynomial(pub(crate) [i32; COEFFICIENTS]);

// SAFETY: 1024 bytes of integers without padding, 64-byte aligned.
unsafe impl Plain for LongPolynomial {}

// SAFETY: all zero is a valid value of an array of integers.
unsafe impl lockstep_vault::Zeroable for LongPolynomial {}

impl LongPolynomial {
    pub(crate) const ZERO: Self = Self([0; COEFFICIENTS]);
}

/// A polynomial, and space for a vector that begins at its end.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct LongSampled([i32; COEFFICIENTS + MOST_LANES]);

impl LongSampled {
    pub(crate) const ZERO: Self = Self([0; COEFFICIENTS + MOST_LANES]);

    /// Returns a polynomial with the same number everywhere.
    #[cfg(test)]
    pub(crate) fn filled(number: i32) -> Self {
        Self([number; COEFFICIENTS + MOST_LANES])
    }

    #[inline(always)]
    pub(crate) fn coefficients(&self) -> &[i32; COEFFICIENTS] {
        self.0.first_chunk().expect("it is longer")
    }
}

/// Bytes that begin on a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct AlignedBytes<const N: usize>(pub(crate) [u8; N]);

// SAFETY: an array of bytes without padding, 64-byte aligned.
unsafe impl Plain for AlignedBytes<704> {}

// SAFETY: as above.
unsafe impl Plain for AlignedBytes<1024> {}

// SAFETY: as above.
unsafe impl Plain for AlignedBytes<4672> {}

/// Number of words of the longest vector.
const MOST_LANES: usize = 16;

/// The modulus.
pub(crate) const Q: i32 = 8_380_417;

/// 1 / q modulo R = 2^32.
pub(crate) const Q_INVERSE: i32 = {
    // Each step doubles the number of right bits.
    let (mut inverse, mut step) = (Q, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2_i32.wrapping_sub(Q.wrapping_mul(inverse)));
        step += 1;
    }
    assert!(inverse.wrapping_mul(Q) == 1);
    inverse
};

/// Operations on words side by side.
pub(crate) trait LongWords: Copy + 'static {
    /// [`LANES`](Self::LANES) words.
    type Vector: Copy;
    /// The same number of sums of 64 bits.
    type Sums: Copy;

    /// Number of words of a vector: 8 or 16.
    const LANES: usize;
    /// Whether vectors are plain words, for which unrolled code is not faster.
    const IS_PLAIN: bool = false;

    /// Runs `body` with the instruction set enabled.
    fn enter<R>(self, body: impl FnOnce() -> R) -> R;

    /// Loads the first words of `from`.
    fn load(self, from: &[i32]) -> Self::Vector;
    /// Loads the first words of `from`, which have 16 bits.
    fn widen(self, from: &[i16]) -> Self::Vector;
    /// Writes the vector to the first words of `to`.
    fn store(self, to: &mut [i32], a: Self::Vector);
    /// Returns `value` in all places.
    fn splat(self, value: i32) -> Self::Vector;

    /// a + b modulo 2^32.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a − b modulo 2^32.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a & b.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a | b.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of both, unsigned.
    fn min_unsigned(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a·2^`COUNT` modulo 2^32.
    fn shift_left<const COUNT: u32>(self, a: Self::Vector) -> Self::Vector;
    /// ⌊a / 2^`COUNT`⌋, unsigned.
    fn shift_right<const COUNT: u32>(self, a: Self::Vector) -> Self::Vector;
    /// Returns all ones where a is negative, zero elsewhere.
    fn negative(self, a: Self::Vector) -> Self::Vector;
    /// a·b, for numbers in 0..2^15.
    fn mul_short(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// ⌊a·b / 2^16⌋, for numbers in 0..2^16.
    fn mul_short_high(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns Montgomery's product a·b/R modulo q, from two [factors](Self::factor): b, and b/q
    /// modulo R. The absolute value of the product is at most |a·b| / R + q / 2.
    fn multiply(self, a: Self::Vector, b: [[Self::Vector; 2]; 2]) -> Self::Vector;

    /// Returns the vector as a factor. If all words are the same, the vector itself may be in both
    /// places.
    fn factor(self, a: Self::Vector) -> [Self::Vector; 2];
    /// Returns sums of zero.
    fn no_sums(self) -> Self::Sums;
    /// Adds a·b to `sums`.
    fn add_products(self, sums: Self::Sums, a: Self::Vector, b: [Self::Vector; 2]) -> Self::Sums;
    /// Returns sums / R modulo q. The absolute value is at most |sum| / R + q / 2, for sums below
    /// R·2^31.
    fn reduce(self, sums: Self::Sums) -> Self::Vector;

    /// Exchanges the odd blocks of `WORDS` words of `a` for the even ones of `b`; twice, it has no
    /// effect. A vector has at least two blocks.
    fn exchange<const WORDS: usize>(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];
    /// Returns the even words of both vectors, then the odd ones.
    fn unzip(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];
    /// The inverse of [`unzip`](Self::unzip).
    fn zip(self, even: Self::Vector, odd: Self::Vector) -> [Self::Vector; 2];

    /// Returns the signs, the first word's in the lowest bit.
    fn signs(self, a: Self::Vector) -> u32;
    /// Returns `value` where a bit is set, counted from the lowest, and zero elsewhere.
    fn spread(self, bits: u32, value: Self::Vector) -> Self::Vector;

    /// Unpacks numbers of `BITS` bits, an even count of at most 20, from the first
    /// `LANES · BITS / 8` bytes of `from`, the lowest bits first.
    fn unpack<const BITS: usize>(self, from: &[u8]) -> Self::Vector;
    /// The inverse of [`unpack`](Self::unpack), for numbers of at most `BITS` bits: 4, 6, 18 or 20.
    fn pack<const BITS: usize>(self, to: &mut [u8], a: Self::Vector);

    /// Unpacks numbers of 23 bits, three bytes for each, and writes those below [`Q`] to `to`,
    /// after `count` others, as long as there is space. Returns the new count. The time depends on
    /// the numbers.
    fn sift_vartime(self, from: &[u8], to: &mut LongSampled, count: usize) -> usize;
}

/// [`LongWords::sift_vartime`] in plain words.
fn sift_words_vartime(from: &[u8], to: &mut LongSampled, mut count: usize) -> usize {
    for &[a, b, c] in from.as_chunks::<3>().0 {
        let number = i32::from_le_bytes([a, b, c & 0x7f, 0]);
        to.0[count] = number;
        count = (count + usize::from(number < Q)).min(COEFFICIENTS);
    }
    count
}

/// Returns the places of bytes for [`LongWords::unpack`]: four bytes for each of `N / 4` numbers,
/// counted from the first byte of the first number.
#[cfg(vectors)]
const fn window_bytes<const BITS: usize, const N: usize>() -> [u8; N] {
    let (mut from, mut byte) = ([0; N], 0);
    while byte < N {
        from[byte] = (byte / 4 * BITS / 8 + byte % 4) as u8;
        byte += 1;
    }
    from
}

/// Returns the shifts of the numbers in the places of [`window_bytes`].
#[cfg(vectors)]
const fn window_shifts<const BITS: usize, const N: usize>() -> [i32; N] {
    let (mut shifts, mut i) = ([0; N], 0);
    while i < N {
        shifts[i] = (i * BITS % 8) as i32;
        i += 1;
    }
    shifts
}

/// Words in plain Rust.
type Plain8 = [i32; 8];

#[inline(always)]
fn each(word: impl FnMut(usize) -> i32) -> Plain8 {
    core::array::from_fn(word)
}

/// Marks all bits as dependent on a secret if any bit is.
#[inline(always)]
fn long(a: i64) -> i64 {
    whole(a)
}

/// [`long`], for a word.
#[inline(always)]
fn word(a: i32) -> i32 {
    if cfg!(ct_msan) {
        long(i64::from(a)) as i32
    } else {
        a
    }
}

/// [`LongWords::multiply`] of one word.
#[inline(always)]
pub(crate) fn multiply_word(a: i32, b: i32, b_by_q: i32) -> i32 {
    let product = long(i64::from(word(a)) * i64::from(b));
    let quotient = word(a).wrapping_mul(b_by_q);
    ((product - i64::from(quotient) * i64::from(Q)) >> 32) as i32
}

/// Returns sum / R modulo q.
#[inline(always)]
fn reduced(sum: i64) -> i32 {
    let quotient = (sum as i32).wrapping_mul(Q_INVERSE);
    ((sum - i64::from(quotient) * i64::from(Q)) >> 32) as i32
}

impl LongWords for PortableWords {
    type Vector = Plain8;
    type Sums = [i64; 8];

    const LANES: usize = 8;
    const IS_PLAIN: bool = true;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(always)]
    fn load(self, from: &[i32]) -> Plain8 {
        *from.first_chunk().expect("a vector")
    }

    #[inline(always)]
    fn widen(self, from: &[i16]) -> Plain8 {
        let from: &[i16; 8] = from.first_chunk().expect("a vector");
        from.map(i32::from)
    }

    #[inline(always)]
    fn store(self, to: &mut [i32], a: Plain8) {
        *to.first_chunk_mut().expect("a vector") = a;
    }

    #[inline(always)]
    fn splat(self, value: i32) -> Plain8 {
        [value; 8]
    }

    #[inline(always)]
    fn add(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn and(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn min_unsigned(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| {
            let (a, b) = (a[i] as u32, b[i] as u32);
            // All ones if a is below b, hidden from the optimiser.
            let [is_less] = opaque_words([((i64::from(a) - i64::from(b)) >> 63) as u64]);
            (b ^ (a ^ b) & is_less as u32) as i32
        })
    }

    #[inline(always)]
    fn shift_left<const COUNT: u32>(self, a: Plain8) -> Plain8 {
        each(|i| a[i] << COUNT)
    }

    #[inline(always)]
    fn shift_right<const COUNT: u32>(self, a: Plain8) -> Plain8 {
        each(|i| (word(a[i]) as u32 >> COUNT) as i32)
    }

    #[inline(always)]
    fn negative(self, a: Plain8) -> Plain8 {
        each(|i| {
            let [mask] = opaque_words([i64::from(word(a[i]) >> 31) as u64]);
            mask as i32
        })
    }

    #[inline(always)]
    fn mul_short(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| word(a[i]).wrapping_mul(b[i]))
    }

    #[inline(always)]
    fn mul_short_high(self, a: Plain8, b: Plain8) -> Plain8 {
        each(|i| {
            (word(a[i]) as u32)
                .wrapping_mul(b[i] as u32)
                .wrapping_shr(16) as i32
        })
    }

    #[inline(always)]
    fn multiply(self, a: Plain8, [[b, _], [b_by_q, _]]: [[Plain8; 2]; 2]) -> Plain8 {
        each(|i| multiply_word(a[i], b[i], b_by_q[i]))
    }

    #[inline(always)]
    fn factor(self, a: Plain8) -> [Plain8; 2] {
        [a, a]
    }

    #[inline(always)]
    fn no_sums(self) -> [i64; 8] {
        [0; 8]
    }

    #[inline(always)]
    fn add_products(self, sums: [i64; 8], a: Plain8, [b, _]: [Plain8; 2]) -> [i64; 8] {
        core::array::from_fn(|i| {
            sums[i].wrapping_add(long(i64::from(word(a[i])) * i64::from(word(b[i]))))
        })
    }

    #[inline(always)]
    fn reduce(self, sums: [i64; 8]) -> Plain8 {
        each(|i| reduced(long(sums[i])))
    }

    #[inline(always)]
    fn exchange<const WORDS: usize>(self, a: Plain8, b: Plain8) -> [Plain8; 2] {
        [
            each(|i| if i & WORDS == 0 { a[i] } else { b[i - WORDS] }),
            each(|i| if i & WORDS == 0 { a[i + WORDS] } else { b[i] }),
        ]
    }

    #[inline(always)]
    fn unzip(self, a: Plain8, b: Plain8) -> [Plain8; 2] {
        let both = |i: usize| if i < 8 { a[i] } else { b[i - 8] };
        [each(|i| both(2 * i)), each(|i| both(2 * i + 1))]
    }

    #[inline(always)]
    fn zip(self, even: Plain8, odd: Plain8) -> [Plain8; 2] {
        let both = |i: usize| {
            if i.is_multiple_of(2) {
                even[i / 2]
            } else {
                odd[i / 2]
            }
        };
        [each(both), each(|i| both(8 + i))]
    }

    #[inline(always)]
    fn signs(self, a: Plain8) -> u32 {
        (0..8).fold(0, |signs, i| signs | (word(a[i]) as u32 >> 31) << i)
    }

    #[inline(always)]
    fn spread(self, bits: u32, value: Plain8) -> Plain8 {
        each(|i| {
            let [mask] = opaque_words([u64::from(bits >> i & 1).wrapping_neg()]);
            value[i] & mask as i32
        })
    }

    #[inline(always)]
    fn unpack<const BITS: usize>(self, from: &[u8]) -> Plain8 {
        let from = &from[..BITS];
        each(|i| {
            let (byte, shift) = (i * BITS / 8, i * BITS % 8);
            let next = |i: usize| from.get(byte + i).copied().unwrap_or(0);
            let word = u32::from_le_bytes([from[byte], next(1), next(2), next(3)]);
            (word >> shift & ((1 << BITS) - 1)) as i32
        })
    }

    #[inline(always)]
    fn pack<const BITS: usize>(self, to: &mut [u8], a: Plain8) {
        for (to, four) in to[..BITS]
            .chunks_exact_mut(BITS / 2)
            .zip(a.as_chunks::<4>().0)
        {
            let word = (0..4).fold(0, |word, i| word | u128::from(four[i] as u32) << (BITS * i));
            to.copy_from_slice(&word.to_le_bytes()[..BITS / 2]);
        }
    }

    #[inline(always)]
    fn sift_vartime(self, from: &[u8], to: &mut LongSampled, count: usize) -> usize {
        sift_words_vartime(from, to, count)
    }
}
