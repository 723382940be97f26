//! Four lanes in 256-bit registers: AVX-512 VL and IFMA.
//!
//! A core that runs 512-bit instructions in two halves (AMD Zen 4) takes half as long for
//! these four lanes as for eight, which is what a batch of one or two requests wants.

use core::arch::x86_64::*;

use super::{Plain, Simd};
use crate::taint::{derived, disclosed, whole};

/// Proof that the CPU and the operating system offer AVX-512 IFMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Avx512Ifma256(());

impl Avx512Ifma256 {
    /// The proof, where it can be given.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512ifma")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Self(()))
    }
}

// SAFETY: `__m256i` is 256 bits without padding, 32-byte aligned.
unsafe impl Plain for __m256i {}

impl Simd for Avx512Ifma256 {
    type Limb = __m256i;
    type Mask = __mmask8;

    const LANES: usize = 4;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512ifma,bmi2")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            super::align_stack();
            body()
        }
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { with_features(body) }
    }

    #[inline(always)]
    fn splat(self, value: u64) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_set1_epi64x(value as i64) }
    }

    #[inline(always)]
    fn mul_lo(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_madd52lo_epu64(acc, a, b) }
    }

    #[inline(always)]
    fn mul_hi(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_madd52hi_epu64(acc, a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_add_epi64(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_sub_epi64(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn halve(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm256_srli_epi64::<1>(a) }
    }

    #[inline(always)]
    fn or_xor(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // 0xf6 is the truth table of a | (b ^ c).
        self.ternary::<0xf6>(a, b, c)
    }

    #[inline(always)]
    fn shift_right<const BITS: u32>(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm256_srlv_epi64(a, self.splat(u64::from(BITS))) }
    }

    #[inline(always)]
    fn rotate_right<const BITS: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_ror_epi64::<BITS>(a) }
    }

    #[inline(always)]
    fn ternary<const TABLE: i32>(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // The taint check does not know the instruction.
        #[cfg(ct_msan)]
        return super::ternary_in_parts::<Self, TABLE>(self, a, b, c);
        // SAFETY: `self` proves the features.
        #[cfg(not(ct_msan))]
        unsafe {
            _mm256_ternarylogic_epi64::<TABLE>(a, b, c)
        }
    }

    #[inline(always)]
    fn shift_right_by(self, a: __m256i, count: u32) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm256_srl_epi64(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn shift_left_by(self, a: __m256i, count: u32) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_sll_epi64(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn carry(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm256_srli_epi64::<52>(a) }
    }

    #[inline(always)]
    fn any_bit(self, a: __m256i, bits: __m256i) -> __mmask8 {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_test_epi64_mask(a, bits) }
    }

    #[inline(always)]
    fn equal(self, a: __m256i, b: __m256i) -> __mmask8 {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_cmpeq_epi64_mask(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: __mmask8, set: __m256i, clear: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_mask_blend_epi64(mask, clear, set) }
    }

    #[inline(always)]
    fn choose_in(self, mask: __mmask8, chooser: __m256i, clear: __m256i, set: __m256i) -> __m256i {
        #[cfg(ct_msan)]
        return self.select(mask, self.ternary::<0xac>(chooser, clear, set), chooser);
        // SAFETY: `self` proves the features. 0xac is the truth table of chooser ? set : clear.
        #[cfg(not(ct_msan))]
        unsafe {
            _mm256_mask_ternarylogic_epi64::<0xac>(chooser, mask, clear, set)
        }
    }

    #[inline(always)]
    fn look_up_16(self, table: &[u64; 16], index: __m256i) -> __m256i {
        // A permutation reads registers: its index is no address.
        let source = index;
        let index = disclosed(index);
        let at = table.as_ptr().cast::<__m256i>();
        // SAFETY: `self` proves the features; the loads cover the 16 words of the table.
        let picked = unsafe {
            let (a, b) = (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1)));
            let (c, d) = (_mm256_loadu_si256(at.add(2)), _mm256_loadu_si256(at.add(3)));
            let low = _mm256_permutex2var_epi64(a, index, b);
            let high = _mm256_permutex2var_epi64(c, index, d);
            let upper_half = _mm256_test_epi64_mask(index, _mm256_set1_epi64x(8));
            _mm256_mask_blend_epi64(upper_half, low, high)
        };
        derived(picked, source)
    }
}
