//! Words in plain Rust: the oracle of the other vectors.

use super::{Sampled, Words, sift_words_vartime};
use crate::simd::opaque_words;
use crate::taint::whole;

/// Plain words; they need no proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortableWords;

const LANES: usize = 16;

type Vector = [i16; LANES];

/// Returns a number whose upper bits depend on all bits of `a`.
#[inline(always)]
fn long(a: i32) -> i32 {
    if cfg!(ct_msan) {
        whole(i64::from(a)) as i32
    } else {
        a
    }
}

#[inline(always)]
fn each(word: impl FnMut(usize) -> i16) -> Vector {
    core::array::from_fn(word)
}

impl Words for PortableWords {
    type Vector = Vector;
    type Sums = [i32; LANES / 2];

    const LANES: usize = LANES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(always)]
    fn load(self, from: &[i16]) -> Vector {
        *from.first_chunk().expect("a vector")
    }

    #[inline(always)]
    fn store(self, to: &mut [i16], a: Vector) {
        *to.first_chunk_mut().expect("a vector") = a;
    }

    #[inline(always)]
    fn splat(self, value: i16) -> Vector {
        [value; LANES]
    }

    #[inline(always)]
    fn add(self, a: Vector, b: Vector) -> Vector {
        each(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn sub(self, a: Vector, b: Vector) -> Vector {
        each(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn mul_low(self, a: Vector, b: Vector) -> Vector {
        each(|i| a[i].wrapping_mul(b[i]))
    }

    #[inline(always)]
    fn mul_high(self, a: Vector, b: Vector) -> Vector {
        each(|i| (long(i32::from(a[i]) * i32::from(b[i])) >> 16) as i16)
    }

    #[inline(always)]
    fn mul_round(self, a: Vector, b: Vector) -> Vector {
        each(|i| (long(i32::from(a[i]) * i32::from(b[i]) + (1 << 14)) >> 15) as i16)
    }

    #[inline(always)]
    fn and(self, a: Vector, b: Vector) -> Vector {
        each(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn or(self, a: Vector, b: Vector) -> Vector {
        each(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn min_unsigned(self, a: Vector, b: Vector) -> Vector {
        each(|i| {
            let (a, b) = (a[i] as u16, b[i] as u16);
            // All ones if a is below b, hidden from the optimiser.
            let [is_less] = opaque_words([((i64::from(a) - i64::from(b)) >> 63) as u64]);
            (b ^ (a ^ b) & is_less as u16) as i16
        })
    }

    #[inline(always)]
    fn shift_left(self, a: Vector, count: u32) -> Vector {
        each(|i| a[i] << count)
    }

    #[inline(always)]
    fn shift_right(self, a: Vector, count: u32) -> Vector {
        each(|i| (long(i32::from(a[i])) as u16 >> count) as i16)
    }

    #[inline(always)]
    fn swap_pairs(self, a: Vector) -> Vector {
        each(|i| a[i ^ 1])
    }

    #[inline(always)]
    fn exchange<const PAIRS: usize>(self, a: Vector, b: Vector) -> [Vector; 2] {
        let block = 2 * PAIRS;
        [
            each(|i| if i & block == 0 { a[i] } else { b[i - block] }),
            each(|i| if i & block == 0 { a[i + block] } else { b[i] }),
        ]
    }

    #[inline(always)]
    fn no_sums(self) -> Self::Sums {
        [0; LANES / 2]
    }

    #[inline(always)]
    fn add_products(self, sums: Self::Sums, a: Vector, b: Vector) -> Self::Sums {
        let product = |i: usize| i32::from(a[i]) * i32::from(b[i]);
        core::array::from_fn(|i| {
            let pair = product(2 * i).wrapping_add(product(2 * i + 1));
            sums[i].wrapping_add(pair)
        })
    }

    #[inline(always)]
    fn halves(self, even: Self::Sums, odd: Self::Sums) -> [Vector; 2] {
        let sum = |i: usize| long([even, odd][i % 2][i / 2]);
        [each(|i| sum(i) as i16), each(|i| (sum(i) >> 16) as i16)]
    }

    #[inline(always)]
    fn signs(self, a: Vector) -> u32 {
        (0..LANES).fold(0, |signs, i| {
            signs | (long(i32::from(a[i])) as u32 >> 31) << i
        })
    }

    #[inline(always)]
    fn spread(self, bits: u32, value: Vector) -> Vector {
        each(|i| {
            let [mask] = opaque_words([u64::from(bits >> i & 1).wrapping_neg()]);
            value[i] & mask as i16
        })
    }

    #[inline(always)]
    fn unpack<const BITS: usize>(self, from: &[u8]) -> Vector {
        let from = &from[..LANES * BITS / 8];
        each(|i| {
            let (byte, shift) = (i * BITS / 8, i * BITS % 8);
            let next = |i: usize| from.get(byte + i).copied().unwrap_or(0);
            let word = u32::from_le_bytes([from[byte], next(1), next(2), 0]);
            (word >> shift & ((1 << BITS) - 1)) as i16
        })
    }

    #[inline(always)]
    fn pack<const BITS: usize>(self, to: &mut [u8], a: Vector) {
        for (to, eight) in to[..LANES * BITS / 8]
            .chunks_exact_mut(BITS)
            .zip(a.as_chunks::<8>().0)
        {
            let word = (0..8).fold(0, |word, i| {
                word | u128::from(eight[i] as u16) << (BITS * i)
            });
            to.copy_from_slice(&word.to_le_bytes()[..BITS]);
        }
    }

    #[inline(always)]
    fn sift_vartime(self, from: &[u8], to: &mut Sampled, count: usize) -> usize {
        sift_words_vartime(from, to, count)
    }
}
