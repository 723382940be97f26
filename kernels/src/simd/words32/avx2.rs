//! Eight words in 256-bit registers: AVX2.

use core::arch::x86_64::*;

use super::{LongSampled, LongWords, Q, Q_INVERSE, Words};
use super::{sift_words_vartime, window_bytes, window_shifts};
use crate::simd::words16::avx2::Avx2Words;
use crate::taint::{derived, disclosed, whole};

const LANES: usize = 8;

/// Returns the upper halves of 64-bit sums: of `even` in the even words, of `odd` in the odd words.
#[inline]
#[target_feature(enable = "avx2")]
fn upper_halves(even: __m256i, odd: __m256i) -> __m256i {
    _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(even), odd)
}

/// Returns the odd words, moved to the words that a multiplication reads.
#[inline]
#[target_feature(enable = "avx2")]
fn odd(a: __m256i) -> __m256i {
    _mm256_srli_epi64::<32>(a)
}

impl LongWords for Avx2Words {
    type Vector = __m256i;
    type Sums = [__m256i; 2];

    const LANES: usize = LANES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        Words::enter(self, body)
    }

    #[inline(always)]
    fn load(self, from: &[i32]) -> __m256i {
        let from: &[i32; LANES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the feature; the load covers the words.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn widen(self, from: &[i16]) -> __m256i {
        let from: &[i16; LANES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the feature; the load covers the words.
        unsafe { _mm256_cvtepi16_epi32(whole(_mm_loadu_si128(from.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i32], a: __m256i) {
        let to: &mut [i32; LANES] = to.first_chunk_mut().expect("a vector");
        // SAFETY: `self` proves the feature; the store covers the words.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn splat(self, value: i32) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_epi32(value) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        Words::and(self, a, b)
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        Words::or(self, a, b)
    }

    #[inline(always)]
    fn min_unsigned(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_min_epu32(a, b) }
    }

    #[inline(always)]
    fn shift_left<const COUNT: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(COUNT as i32)) }
    }

    #[inline(always)]
    fn shift_right<const COUNT: u32>(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srl_epi32(a, _mm_cvtsi32_si128(COUNT as i32)) }
    }

    #[inline(always)]
    fn negative(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srai_epi32::<31>(a) }
    }

    #[inline(always)]
    fn mul_short(self, a: __m256i, b: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_madd_epi16(a, b) }
    }

    #[inline(always)]
    fn mul_short_high(self, a: __m256i, b: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_mulhi_epu16(a, b) }
    }

    #[inline(always)]
    fn multiply(self, a: __m256i, [b, b_by_q]: [[__m256i; 2]; 2]) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe {
            let q = _mm256_set1_epi32(Q);
            let product = |a, b, b_by_q| {
                let quotient = multiply_words(a, b_by_q);
                _mm256_sub_epi32(multiply_words(a, b), multiply_words(quotient, q))
            };
            upper_halves(
                product(a, b[0], b_by_q[0]),
                product(odd(a), b[1], b_by_q[1]),
            )
        }
    }

    #[inline(always)]
    fn factor(self, a: __m256i) -> [__m256i; 2] {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        [a, unsafe { odd(a) }]
    }

    #[inline(always)]
    fn no_sums(self) -> [__m256i; 2] {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_setzero_si256(); 2] }
    }

    #[inline(always)]
    fn add_products(
        self,
        [even, others]: [__m256i; 2],
        a: __m256i,
        [b, b_odd]: [__m256i; 2],
    ) -> [__m256i; 2] {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe {
            [
                _mm256_add_epi64(even, multiply_words(a, b)),
                _mm256_add_epi64(others, multiply_words(odd(a), b_odd)),
            ]
        }
    }

    #[inline(always)]
    fn reduce(self, sums: [__m256i; 2]) -> __m256i {
        let [even, odd] = sums.map(whole);
        // SAFETY: `self` proves the feature.
        unsafe {
            let [q, inverse] = [_mm256_set1_epi32(Q), _mm256_set1_epi32(Q_INVERSE)];
            let reduced = |sum| {
                let quotient = multiply_words(sum, inverse);
                _mm256_sub_epi32(sum, multiply_words(quotient, q))
            };
            upper_halves(reduced(even), reduced(odd))
        }
    }

    #[inline(always)]
    fn exchange<const WORDS: usize>(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        Words::exchange::<WORDS>(self, a, b)
    }

    #[inline(always)]
    fn unzip(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        Words::unzip(self, a, b)
    }

    #[inline(always)]
    fn zip(self, even: __m256i, odd: __m256i) -> [__m256i; 2] {
        Words::zip(self, even, odd)
    }

    #[inline(always)]
    fn signs(self, a: __m256i) -> u32 {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(a)) as u32 }
    }

    #[inline(always)]
    fn spread(self, bits: u32, value: __m256i) -> __m256i {
        let places = LongWords::load(self, &[1, 2, 4, 8, 16, 32, 64, 128]);
        let bits = Words::and(self, LongWords::splat(self, bits as i32), places);
        // SAFETY: `self` proves the feature.
        Words::and(self, unsafe { _mm256_cmpeq_epi32(bits, places) }, value)
    }

    #[inline(always)]
    fn unpack<const BITS: usize>(self, from: &[u8]) -> __m256i {
        const { assert!(BITS.is_multiple_of(2) && BITS <= 20) };
        let mut halves = [[0; 16]; 2];
        for (half, from) in halves.iter_mut().zip(from[..BITS].chunks_exact(BITS / 2)) {
            half[..BITS / 2].copy_from_slice(from);
        }
        // A permutation reads registers: its index is not an address.
        // SAFETY: `self` proves the feature; the loads cover the arrays.
        unsafe {
            let bytes = _mm256_loadu_si256(halves.as_ptr().cast());
            let places = const { &window_bytes::<BITS, 16>() };
            let places = _mm256_broadcastsi128_si256(_mm_loadu_si128(places.as_ptr().cast()));
            let windows = derived(_mm256_shuffle_epi8(disclosed(bytes), places), bytes);
            let shifts = const { &window_shifts::<BITS, 4>() };
            let shifts = _mm256_broadcastsi128_si256(_mm_loadu_si128(shifts.as_ptr().cast()));
            let shifted = _mm256_srlv_epi32(windows, shifts);
            _mm256_and_si256(shifted, _mm256_set1_epi32((1 << BITS) - 1))
        }
    }

    #[inline(always)]
    fn pack<const BITS: usize>(self, to: &mut [u8], a: __m256i) {
        const { assert!(BITS.is_multiple_of(2) && BITS <= 20) };
        let mut halves = [[0; 16]; 2];
        // SAFETY: `self` proves the feature; the store covers both halves.
        unsafe {
            let free = const { 32 - BITS as i64 };
            let upmost = _mm256_sllv_epi32(a, _mm256_set1_epi64x(free));
            let twos = _mm256_srlv_epi64(upmost, _mm256_set1_epi64x(free));
            let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(twos);
            let (left, right) = const { (2 * BITS as i64, 64 - 2 * BITS as i64) };
            let fours = _mm256_or_si256(
                _mm256_srlv_epi64(twos, _mm256_setr_epi64x(0, right, 0, right)),
                _mm256_sllv_epi64(swapped, _mm256_setr_epi64x(left, 64, left, 64)),
            );
            _mm256_storeu_si256(halves.as_mut_ptr().cast(), fours);
        }
        for (to, half) in to[..BITS].chunks_exact_mut(BITS / 2).zip(&halves) {
            to.copy_from_slice(&half[..BITS / 2]);
        }
    }

    #[inline(always)]
    fn sift_vartime(self, from: &[u8], to: &mut LongSampled, count: usize) -> usize {
        sift_words_vartime(from, to, count)
    }
}

/// Returns the products of even words, in one instruction. This is assembly, because LLVM replaces
/// the intrinsic by two shifts for each multiplication if a factor is a constant.
#[inline]
#[target_feature(enable = "avx2")]
fn multiply_words(a: __m256i, b: __m256i) -> __m256i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        let product;
        // SAFETY: the instruction reads and writes registers only.
        unsafe {
            core::arch::asm!(
                "vpmuldq {}, {}, {}",
                out(ymm_reg) product, in(ymm_reg) a, in(ymm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        product
    }
    #[cfg(any(miri, ct_msan))]
    _mm256_mul_epi32(a, b)
}
