//! Sixteen words in 256-bit registers: AVX2.

use core::arch::x86_64::*;

use super::{Sampled, Words, factors, gathered_bytes, sift_words_vartime, spread_bytes};
use crate::simd::align_stack;
use crate::taint::{derived, disclosed, whole};

/// Proof that the CPU and the operating system support AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Avx2Words(());

impl Avx2Words {
    /// Returns the proof, if the CPU has the feature.
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Returns the bytes of each half of `a` in the order of `from`. A permutation reads registers:
    /// its index is not an address.
    #[inline(always)]
    fn permute_bytes(self, from: &[u8; 16], a: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature; the load covers the 16 bytes.
        let permuted = unsafe {
            let from = _mm_loadu_si128(from.as_ptr().cast());
            _mm256_shuffle_epi8(disclosed(a), _mm256_broadcastsi128_si256(from))
        };
        derived(permuted, a)
    }
}

const LANES: usize = 16;

/// Returns the places of the bytes of four numbers of `BITS` bits, from number `first` onwards, in
/// 32 bits each, and the shifts of the numbers.
const fn windows<const BITS: usize>(first: usize) -> ([u8; 16], [u32; 4]) {
    let (mut from, mut shifts, mut i) = ([0; 16], [0; 4], 0);
    while i < 4 {
        let bit = (first + i) * BITS;
        shifts[i] = (bit % 8) as u32;
        let mut byte = 0;
        while byte < 4 {
            from[4 * i + byte] = (bit / 8 + byte) as u8;
            byte += 1;
        }
        i += 1;
    }
    (from, shifts)
}

impl Words for Avx2Words {
    type Vector = __m256i;
    type Sums = __m256i;

    const LANES: usize = LANES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            align_stack();
            body()
        }
        // SAFETY: `self` exists only where `detect` found the feature.
        unsafe { with_features(body) }
    }

    #[inline(always)]
    fn load(self, from: &[i16]) -> __m256i {
        let from: &[i16; LANES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the feature; the load covers the words.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i16], a: __m256i) {
        let to: &mut [i16; LANES] = to.first_chunk_mut().expect("a vector");
        // SAFETY: `self` proves the feature; the store covers the words.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn splat(self, value: i16) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_epi16(value) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi16(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sub_epi16(a, b) }
    }

    #[inline(always)]
    fn mul_low(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_mullo_epi16(a, b) }
    }

    #[inline(always)]
    fn mul_high(self, a: __m256i, b: __m256i) -> __m256i {
        let (a, b) = (whole(a), whole(b));
        // SAFETY: `self` proves the feature.
        unsafe { mul_high(a, b) }
    }

    #[inline(always)]
    fn mul_round(self, a: __m256i, b: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_mulhrs_epi16(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn min_unsigned(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_min_epu16(a, b) }
    }

    #[inline(always)]
    fn shift_left(self, a: __m256i, count: u32) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sll_epi16(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn shift_right(self, a: __m256i, count: u32) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srl_epi16(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn swap_pairs(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_or_si256(_mm256_slli_epi32::<16>(a), _mm256_srli_epi32::<16>(a)) }
    }

    #[inline(always)]
    fn exchange<const PAIRS: usize>(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        // SAFETY: `self` proves the feature.
        unsafe {
            match PAIRS {
                1 => [
                    _mm256_blend_epi32::<0xaa>(a, _mm256_slli_epi64::<32>(b)),
                    _mm256_blend_epi32::<0xaa>(_mm256_srli_epi64::<32>(a), b),
                ],
                2 => [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)],
                _ => [
                    _mm256_permute2x128_si256::<0x20>(a, b),
                    _mm256_permute2x128_si256::<0x31>(a, b),
                ],
            }
        }
    }

    #[inline(always)]
    fn no_sums(self) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn add_products(self, sums: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)) }
    }

    #[inline(always)]
    fn halves(self, even: __m256i, odd: __m256i) -> [__m256i; 2] {
        let (even, odd) = (whole(even), whole(odd));
        // SAFETY: `self` proves the feature.
        unsafe {
            [
                _mm256_blend_epi16::<0xaa>(even, _mm256_slli_epi32::<16>(odd)),
                _mm256_blend_epi16::<0xaa>(_mm256_srli_epi32::<16>(even), odd),
            ]
        }
    }

    #[inline(always)]
    fn signs(self, a: __m256i) -> u32 {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        let bytes = unsafe {
            // Each word becomes a byte of the same sign; each half becomes eight bytes.
            let bytes = _mm256_packs_epi16(a, a);
            _mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(bytes)) as u32
        };
        bytes & 0xffff
    }

    #[inline(always)]
    fn spread(self, bits: u32, value: __m256i) -> __m256i {
        const BITS: [i16; LANES] = {
            let (mut bits, mut place) = ([0; LANES], 0);
            while place < LANES {
                bits[place] = (1_u16 << place) as i16;
                place += 1;
            }
            bits
        };
        let places = self.load(&BITS);
        let bits = self.and(self.splat(bits as i16), places);
        // SAFETY: `self` proves the feature.
        self.and(unsafe { _mm256_cmpeq_epi16(bits, places) }, value)
    }

    #[inline(always)]
    fn unpack<const BITS: usize>(self, from: &[u8]) -> __m256i {
        let mut halves = [[0; 16]; 2];
        for (half, from) in halves.iter_mut().zip(from.chunks_exact(BITS)) {
            half[..BITS].copy_from_slice(from);
        }
        // SAFETY: `self` proves the feature; the load covers both halves.
        let bytes = unsafe { _mm256_loadu_si256(halves.as_ptr().cast()) };
        if BITS == 11 {
            let [lower, upper] = const { [windows::<BITS>(0), windows::<BITS>(4)] };
            // SAFETY: `self` proves the feature; the loads cover the shifts.
            return unsafe {
                let mask = _mm256_set1_epi32((1 << BITS) - 1);
                let four = |(from, shifts): &([u8; 16], [u32; 4])| {
                    let shifts = _mm_loadu_si128(shifts.as_ptr().cast());
                    let shifts = _mm256_broadcastsi128_si256(shifts);
                    let shifted = _mm256_srlv_epi32(self.permute_bytes(from, bytes), shifts);
                    _mm256_and_si256(shifted, mask)
                };
                _mm256_packus_epi32(four(&lower), four(&upper))
            };
        }
        let words = self.permute_bytes(const { &spread_bytes::<BITS, 16>() }, bytes);
        let uppermost = self.mul_low(words, self.load(const { &factors::<BITS>() }));
        self.shift_right(uppermost, 16 - BITS as u32)
    }

    #[inline(always)]
    fn pack<const BITS: usize>(self, to: &mut [u8], a: __m256i) {
        let mut halves = [[0; 16]; 2];
        // SAFETY: `self` proves the feature; the store covers both halves.
        unsafe {
            let twos = _mm256_madd_epi16(a, _mm256_set1_epi32(const { 1 << (16 + BITS) | 1 }));
            let uppermost = _mm256_set1_epi64x(const { 32 - 2 * BITS as i64 });
            let mut fours = _mm256_srlv_epi64(_mm256_sllv_epi32(twos, uppermost), uppermost);
            if BITS % 2 == 1 {
                let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(fours);
                let (left, right) = const { (4 * BITS as i64, 64 - 4 * BITS as i64) };
                let left = _mm256_setr_epi64x(left, 64, left, 64);
                let right = _mm256_setr_epi64x(0, right, 0, right);
                fours = _mm256_or_si256(
                    _mm256_srlv_epi64(fours, right),
                    _mm256_sllv_epi64(swapped, left),
                );
            }
            let bytes = self.permute_bytes(const { &gathered_bytes::<BITS, 16>() }, fours);
            _mm256_storeu_si256(halves.as_mut_ptr().cast(), bytes);
        }
        for (to, half) in to[..LANES * BITS / 8].chunks_exact_mut(BITS).zip(&halves) {
            to.copy_from_slice(&half[..BITS]);
        }
    }

    #[inline(always)]
    fn sift_vartime(self, from: &[u8], to: &mut Sampled, count: usize) -> usize {
        sift_words_vartime(from, to, count)
    }
}

/// [`Words::mul_high`] in one instruction; `avx512vbmi2.rs` has the reason.
#[inline]
#[target_feature(enable = "avx2")]
fn mul_high(a: __m256i, b: __m256i) -> __m256i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        let product;
        // SAFETY: the instruction reads and writes registers only.
        unsafe {
            core::arch::asm!("vpmulhw {}, {}, {}", out(ymm_reg) product, in(ymm_reg) a, in(ymm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        product
    }
    #[cfg(any(miri, ct_msan))]
    _mm256_mulhi_epi16(a, b)
}
