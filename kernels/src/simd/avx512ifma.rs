//! Eight lanes in 512-bit registers: AVX-512 F, DQ, VL and IFMA.

use core::arch::x86_64::*;

use super::{Plain, Simd};
use crate::taint::{derived, disclosed, whole};

/// Proof that the CPU and the operating system offer AVX-512 IFMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Avx512Ifma(());

impl Avx512Ifma {
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

// SAFETY: `__m512i` is 512 bits without padding, 64-byte aligned.
unsafe impl Plain for __m512i {}

impl Simd for Avx512Ifma {
    type Limb = __m512i;
    type Mask = __mmask8;

    const LANES: usize = 8;
    const SHORT_CODE: bool = false;

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
    fn splat(self, value: u64) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_set1_epi64(value as i64) }
    }

    #[inline(always)]
    fn mul_lo(self, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_madd52lo_epu64(acc, a, b) }
    }

    #[inline(always)]
    fn mul_hi(self, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_madd52hi_epu64(acc, a, b) }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_add_epi64(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sub_epi64(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn halve(self, a: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srli_epi64::<1>(a) }
    }

    #[inline(always)]
    fn or_xor(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // 0xf6 is the truth table of a | (b ^ c).
        self.ternary::<0xf6>(a, b, c)
    }

    #[inline(always)]
    fn shift_right<const BITS: u32>(self, a: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srlv_epi64(a, self.splat(u64::from(BITS))) }
    }

    #[inline(always)]
    fn rotate_right<const BITS: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_ror_epi64::<BITS>(a) }
    }

    #[inline(always)]
    fn ternary<const TABLE: i32>(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // The taint check does not know the instruction.
        #[cfg(ct_msan)]
        return super::ternary_in_parts::<Self, TABLE>(self, a, b, c);
        // SAFETY: `self` proves the features.
        #[cfg(not(ct_msan))]
        unsafe {
            _mm512_ternarylogic_epi64::<TABLE>(a, b, c)
        }
    }

    #[inline(always)]
    fn shift_right_by(self, a: __m512i, count: u32) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srl_epi64(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn shift_left_by(self, a: __m512i, count: u32) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sll_epi64(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn carry(self, a: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srli_epi64::<52>(a) }
    }

    #[inline(always)]
    fn any_bit(self, a: __m512i, bits: __m512i) -> __mmask8 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_test_epi64_mask(a, bits) }
    }

    #[inline(always)]
    fn equal(self, a: __m512i, b: __m512i) -> __mmask8 {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_cmpeq_epi64_mask(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: __mmask8, set: __m512i, clear: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_mask_blend_epi64(mask, clear, set) }
    }

    #[inline(always)]
    fn choose_in(self, mask: __mmask8, chooser: __m512i, clear: __m512i, set: __m512i) -> __m512i {
        #[cfg(ct_msan)]
        return self.select(mask, self.ternary::<0xac>(chooser, clear, set), chooser);
        // SAFETY: `self` proves the features. 0xac is the truth table of chooser ? set : clear.
        #[cfg(not(ct_msan))]
        unsafe {
            _mm512_mask_ternarylogic_epi64::<0xac>(chooser, mask, clear, set)
        }
    }

    #[inline(always)]
    fn hold(self, sums: &mut [__m512i; 20]) {
        // SAFETY: `self` proves the features.
        unsafe { hold(sums) }
    }

    #[inline(always)]
    fn look_up_16(self, table: &[u64; 16], index: __m512i) -> __m512i {
        // A permutation reads registers: its index is no address.
        let source = index;
        let index = disclosed(index);
        // SAFETY: `self` proves the features; the loads cover the 16 words of the table.
        let picked = unsafe {
            let low = _mm512_loadu_si512(table.as_ptr().cast());
            let high = _mm512_loadu_si512(table.as_ptr().add(8).cast());
            _mm512_permutex2var_epi64(low, index, high)
        };
        derived(picked, source)
    }
}

/// Has the sums in registers, all at once.
#[inline]
#[target_feature(enable = "avx512f")]
fn hold(sums: &mut [__m512i; 20]) {
    #[rustfmt::skip]
    let [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19] = sums;
    // SAFETY: the assembly is empty.
    #[cfg(not(any(miri, ct_msan)))]
    unsafe {
        core::arch::asm!(
            "/* {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} */",
            inout(zmm_reg) * s0,
            inout(zmm_reg) * s1,
            inout(zmm_reg) * s2,
            inout(zmm_reg) * s3,
            inout(zmm_reg) * s4,
            inout(zmm_reg) * s5,
            inout(zmm_reg) * s6,
            inout(zmm_reg) * s7,
            inout(zmm_reg) * s8,
            inout(zmm_reg) * s9,
            inout(zmm_reg) * s10,
            inout(zmm_reg) * s11,
            inout(zmm_reg) * s12,
            inout(zmm_reg) * s13,
            inout(zmm_reg) * s14,
            inout(zmm_reg) * s15,
            inout(zmm_reg) * s16,
            inout(zmm_reg) * s17,
            inout(zmm_reg) * s18,
            inout(zmm_reg) * s19,
            options(nomem, nostack, preserves_flags),
        );
    }
}
