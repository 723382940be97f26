//! What the curve needs of the lanes beyond [`Simd`]: shifts by other distances than a limb, and a
//! table that all lanes share.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

use crate::simd::Simd;
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx512ifma::Avx512Ifma, avx512ifma256::Avx512Ifma256};
use crate::simd::{
    portable::{Limbs, Portable},
    words, words_mut,
};

/// Lanes with shifts and shared tables.
pub(crate) trait Lanes: Simd {
    /// Whether field operations are calls. Vector lanes need them inlined; a lane loop in plain Rust
    /// would only make megabytes of code of it.
    const CALLS: bool = false;

    /// `⌊a / 2^bits⌋`, unsigned. `bits` is a constant at the call, below 64.
    fn shift_right(self, a: Self::Limb, bits: u32) -> Self::Limb;
    /// `table[index mod 16]` in each lane; which words are read does not depend on the index.
    fn pick(self, table: &[u64; 16], index: Self::Limb) -> Self::Limb;
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512Ifma {
    #[inline(always)]
    fn shift_right(self, a: __m512i, bits: u32) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srl_epi64(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    fn pick(self, table: &[u64; 16], index: __m512i) -> __m512i {
        // SAFETY: `self` proves the features; both loads lie within the table.
        unsafe {
            let low = _mm512_loadu_si512(table.as_ptr().cast());
            let high = _mm512_loadu_si512(table.as_ptr().add(8).cast());
            _mm512_permutex2var_epi64(low, index, high)
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Avx512Ifma256 {
    #[inline(always)]
    fn shift_right(self, a: __m256i, bits: u32) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_srl_epi64(a, _mm_cvtsi32_si128(bits as i32)) }
    }

    /// One 512-bit permutation of which half is used costs no more than two of 256 bits.
    #[inline(always)]
    fn pick(self, table: &[u64; 16], index: __m256i) -> __m256i {
        // SAFETY: `self` proves the features; both loads lie within the table.
        unsafe {
            let low = _mm512_loadu_si512(table.as_ptr().cast());
            let high = _mm512_loadu_si512(table.as_ptr().add(8).cast());
            let index = _mm512_castsi256_si512(index);
            _mm512_castsi512_si256(_mm512_permutex2var_epi64(low, index, high))
        }
    }
}

impl<const L: usize> Lanes for Portable<L> {
    const CALLS: bool = true;

    #[inline(always)]
    fn shift_right(self, a: Limbs<L>, bits: u32) -> Limbs<L> {
        let mut shifted = a;
        for word in words_mut(core::slice::from_mut(&mut shifted)) {
            *word >>= bits;
        }
        shifted
    }

    #[inline(always)]
    fn pick(self, table: &[u64; 16], index: Limbs<L>) -> Limbs<L> {
        let mut picked = self.zero();
        let indices = words(core::slice::from_ref(&index));
        for (out, index) in words_mut(core::slice::from_mut(&mut picked))
            .iter_mut()
            .zip(indices)
        {
            for (i, entry) in (0_u64..).zip(table) {
                // All ones where i is the index: only 0 − 1 reaches the top bit.
                let same = (((index & 15) ^ i).wrapping_sub(1) as i64 >> 63) as u64;
                *out |= entry & same;
            }
        }
        picked
    }
}
