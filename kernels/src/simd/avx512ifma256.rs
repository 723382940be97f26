//! Four lanes in 256-bit registers: AVX-512 VL and IFMA.
//!
//! A core that runs 512-bit instructions in two halves (AMD Zen 4) takes half as long for four
//! lanes as for eight, so a batch of one or two requests runs on these lanes.

use core::arch::x86_64::*;
use core::marker::PhantomData;

use super::avx2::optimisation_barrier;
use super::ifma::ifma_lanes;
use super::{Plain, Simd};
use crate::order::{Beside, Order};
use crate::taint::{derived, disclosed, whole};

ifma_lanes! {
    Avx512Ifma256(__m256i) {
        intrinsics {
            set1: _mm256_set1_epi64x,
            madd52lo: _mm256_madd52lo_epu64,
            madd52hi: _mm256_madd52hi_epu64,
            add: _mm256_add_epi64,
            sub: _mm256_sub_epi64,
            and: _mm256_and_si256,
            xor: _mm256_xor_si256,
            srli: _mm256_srli_epi64,
            srlv: _mm256_srlv_epi64,
            ror: _mm256_ror_epi64,
            ternarylogic: _mm256_ternarylogic_epi64,
            srl: _mm256_srl_epi64,
            sll: _mm256_sll_epi64,
            test_mask: _mm256_test_epi64_mask,
            cmpeq_mask: _mm256_cmpeq_epi64_mask,
            mask_blend: _mm256_mask_blend_epi64,
            mask_ternarylogic: _mm256_mask_ternarylogic_epi64,
        }

        type Lower = Self;

        #[inline(always)]
        fn optimisation_barrier(self, sum: __m256i) -> __m256i {
            // SAFETY: `self` proves the feature, which AVX-512 includes.
            unsafe { optimisation_barrier(sum) }
        }

        #[inline(always)]
        fn look_up_16(self, table: &[u64; 16], index: __m256i) -> __m256i {
            // A permutation reads registers: its index is not an address.
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
}
