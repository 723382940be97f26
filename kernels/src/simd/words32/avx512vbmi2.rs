//! Sixteen words in 512-bit registers: AVX-512 with BW and VBMI.

use core::arch::x86_64::*;

use super::{COEFFICIENTS, LongSampled, LongWords, Q, Q_INVERSE, Words};
use super::{window_bytes, window_shifts};
use crate::simd::words16::avx512vbmi2::{Avx512Vbmi2, ones};
use crate::taint::{disclosed, whole};

const LANES: usize = 16;

/// Returns the places of the bytes of numbers of `BITS` bits, four of which are in 128 bits.
const fn gathered_bytes<const BITS: usize>() -> [u8; 64] {
    let (mut from, mut byte) = ([0; 64], 0);
    while byte < 2 * BITS {
        from[byte] = (byte / (BITS / 2) * 16 + byte % (BITS / 2)) as u8;
        byte += 1;
    }
    from
}

/// Returns the upper halves of 64-bit sums: of `even` in the even words, of `odd` in the odd words.
#[inline]
#[target_feature(enable = "avx512f")]
fn upper_halves(even: __m512i, odd: __m512i) -> __m512i {
    _mm512_mask_shuffle_epi32::<0b11_11_01_01>(odd, 0x5555, even)
}

/// Returns the odd words, moved to the words that a multiplication reads.
#[inline]
#[target_feature(enable = "avx512f")]
fn odd(a: __m512i) -> __m512i {
    _mm512_srli_epi64::<32>(a)
}

impl LongWords for Avx512Vbmi2 {
    type Vector = __m512i;
    type Sums = [__m512i; 2];

    const LANES: usize = LANES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        Words::enter(self, body)
    }

    #[inline(always)]
    fn load(self, from: &[i32]) -> __m512i {
        let from: &[i32; LANES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the features; the load covers the words.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn widen(self, from: &[i16]) -> __m512i {
        let from: &[i16; LANES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the features; the load covers the words.
        unsafe { _mm512_cvtepi16_epi32(whole(_mm256_loadu_si256(from.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i32], a: __m512i) {
        let to: &mut [i32; LANES] = to.first_chunk_mut().expect("a vector");
        // SAFETY: `self` proves the features; the store covers the words.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn splat(self, value: i32) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        Words::and(self, a, b)
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        Words::or(self, a, b)
    }

    #[inline(always)]
    fn min_unsigned(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_min_epu32(a, b) }
    }

    #[inline(always)]
    fn shift_left<const COUNT: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_slli_epi32::<COUNT>(a) }
    }

    #[inline(always)]
    fn shift_right<const COUNT: u32>(self, a: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srli_epi32::<COUNT>(a) }
    }

    #[inline(always)]
    fn negative(self, a: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srai_epi32::<31>(a) }
    }

    #[inline(always)]
    fn mul_short(self, a: __m512i, b: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_madd_epi16(a, b) }
    }

    #[inline(always)]
    fn mul_short_high(self, a: __m512i, b: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_mulhi_epu16(a, b) }
    }

    #[inline(always)]
    fn multiply(self, a: __m512i, [b, b_by_q]: [[__m512i; 2]; 2]) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe {
            let q = _mm512_set1_epi32(Q);
            let product = |a, b, b_by_q| {
                let quotient = multiply_words(a, b_by_q);
                _mm512_sub_epi32(multiply_words(a, b), multiply_words(quotient, q))
            };
            upper_halves(
                product(a, b[0], b_by_q[0]),
                product(odd(a), b[1], b_by_q[1]),
            )
        }
    }

    #[inline(always)]
    fn factor(self, a: __m512i) -> [__m512i; 2] {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        [a, unsafe { odd(a) }]
    }

    #[inline(always)]
    fn no_sums(self) -> [__m512i; 2] {
        // SAFETY: `self` proves the features.
        unsafe { [_mm512_setzero_si512(); 2] }
    }

    #[inline(always)]
    fn add_products(
        self,
        [even, others]: [__m512i; 2],
        a: __m512i,
        [b, b_odd]: [__m512i; 2],
    ) -> [__m512i; 2] {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe {
            [
                _mm512_add_epi64(even, multiply_words(a, b)),
                _mm512_add_epi64(others, multiply_words(odd(a), b_odd)),
            ]
        }
    }

    #[inline(always)]
    fn reduce(self, sums: [__m512i; 2]) -> __m512i {
        let [even, odd] = sums.map(whole);
        // SAFETY: `self` proves the features.
        unsafe {
            let [q, inverse] = [_mm512_set1_epi32(Q), _mm512_set1_epi32(Q_INVERSE)];
            let reduced = |sum| {
                let quotient = multiply_words(sum, inverse);
                _mm512_sub_epi32(sum, multiply_words(quotient, q))
            };
            upper_halves(reduced(even), reduced(odd))
        }
    }

    #[inline(always)]
    fn exchange<const WORDS: usize>(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        Words::exchange::<WORDS>(self, a, b)
    }

    #[inline(always)]
    fn unzip(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        Words::unzip(self, a, b)
    }

    #[inline(always)]
    fn zip(self, even: __m512i, odd: __m512i) -> [__m512i; 2] {
        Words::zip(self, even, odd)
    }

    #[inline(always)]
    fn signs(self, a: __m512i) -> u32 {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { u32::from(_mm512_cmplt_epi32_mask(a, _mm512_setzero_si512())) }
    }

    #[inline(always)]
    fn spread(self, bits: u32, value: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_maskz_mov_epi32(bits as u16, value) }
    }

    #[inline(always)]
    fn unpack<const BITS: usize>(self, from: &[u8]) -> __m512i {
        const { assert!(BITS.is_multiple_of(2) && BITS <= 20) };
        let from = &from[..2 * BITS];
        // SAFETY: `self` proves the features; the mask keeps the first load within the slice, and
        // the other one covers the shifts.
        unsafe {
            let mask = const { ones(2 * BITS) };
            let bytes = _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast());
            let windows = self.permute_bytes(const { &window_bytes::<BITS, 64>() }, bytes);
            let shifts = const { &window_shifts::<BITS, 16>() };
            let shifts = _mm512_loadu_si512(shifts.as_ptr().cast());
            let shifted = _mm512_srlv_epi32(windows, shifts);
            _mm512_and_si512(shifted, _mm512_set1_epi32((1 << BITS) - 1))
        }
    }

    #[inline(always)]
    fn pack<const BITS: usize>(self, to: &mut [u8], a: __m512i) {
        const { assert!(matches!(BITS, 4 | 6 | 18 | 20)) };
        let to = &mut to[..2 * BITS];
        // A store of bytes by a mask takes many cycles on Zen 4, so there are stores of two sizes.
        // SAFETY: `self` proves the features; the stores stay within the slice.
        unsafe {
            let free = _mm512_set1_epi64(const { 32 - BITS as i64 });
            let twos = _mm512_srlv_epi64(_mm512_sllv_epi32(a, free), free);
            let swapped = _mm512_shuffle_epi32::<0b01_00_11_10>(twos);
            let (left, right) = const { (2 * BITS as i64, 64 - 2 * BITS as i64) };
            let fours = _mm512_or_si512(
                _mm512_srlv_epi64(twos, _mm512_set4_epi64(right, 0, right, 0)),
                _mm512_sllv_epi64(swapped, _mm512_set4_epi64(64, left, 64, left)),
            );
            let bytes = self.permute_bytes(const { &gathered_bytes::<BITS>() }, fours);
            let to = to.as_mut_ptr();
            let (to, rest) = if BITS > 16 {
                _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(bytes));
                (to.add(32), _mm512_extracti32x4_epi32::<2>(bytes))
            } else {
                (to, _mm512_castsi512_si128(bytes))
            };
            match BITS {
                4 | 20 => _mm_storel_epi64(to.cast(), rest),
                6 => {
                    _mm_storel_epi64(to.cast(), rest);
                    let last = _mm_extract_epi32::<2>(rest);
                    to.add(8).cast::<i32>().write_unaligned(last);
                }
                _ => to.cast::<i32>().write_unaligned(_mm_cvtsi128_si32(rest)),
            }
        }
    }

    #[inline(always)]
    fn sift_vartime(self, from: &[u8], to: &mut LongSampled, mut count: usize) -> usize {
        let mut rest = from;
        while !rest.is_empty() {
            let here = rest.len().min(3 * LANES);
            let bytes = match rest.first_chunk::<64>() {
                // SAFETY: `self` proves the features; the load covers the 64 bytes.
                Some(bytes) => unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) },
                // SAFETY: `self` proves the features; the mask keeps the load within the slice.
                None => unsafe { _mm512_maskz_loadu_epi8(ones(here), rest.as_ptr().cast()) },
            };
            let windows = self.permute_bytes(const { &window_bytes::<24, 64>() }, bytes);
            let valid = ones(here / 3) as u16;
            // SAFETY: `self` proves the features.
            let (numbers, kept) = unsafe {
                let numbers = _mm512_and_si512(windows, _mm512_set1_epi32((1 << 23) - 1));
                let numbers = disclosed(numbers);
                let kept = _mm512_mask_cmplt_epu32_mask(valid, numbers, _mm512_set1_epi32(Q));
                (
                    _mm512_maskz_compress_epi32(kept, numbers),
                    kept.count_ones() as usize,
                )
            };
            LongWords::store(self, &mut to.0[count..], numbers);
            count = (count + kept).min(COEFFICIENTS);
            rest = &rest[here..];
        }
        count
    }
}

/// Returns the products of even words, in one instruction. If a factor is a constant, LLVM replaces
/// the intrinsic by two shifts for each multiplication.
#[inline]
#[target_feature(enable = "avx512f")]
fn multiply_words(a: __m512i, b: __m512i) -> __m512i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        let product;
        // SAFETY: the instruction reads and writes registers only.
        unsafe {
            core::arch::asm!(
                "vpmuldq {}, {}, {}",
                out(zmm_reg) product, in(zmm_reg) a, in(zmm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        product
    }
    #[cfg(any(miri, ct_msan))]
    _mm512_mul_epi32(a, b)
}
