//! Four blocks in 512-bit registers: VAES and VPCLMULQDQ with AVX-512 F and BW.

use core::arch::x86_64::*;

use super::{BLOCK_BYTES, Block, Blocks};
use crate::simd::align_stack;

/// Proof that the CPU and the operating system support these instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Vaes512(());

impl Vaes512 {
    /// Returns the proof, if the CPU has the features.
    pub(crate) fn detect() -> Option<Self> {
        (cfg!(avx512)
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Self(()))
    }

    /// Returns a mask of the bits from `from` to `to`, at most 64.
    #[inline(always)]
    fn mask(self, from: usize, to: usize) -> __mmask64 {
        // SAFETY: `self` proves the feature.
        unsafe { _bzhi_u64(u64::MAX, to as u32) & !_bzhi_u64(u64::MAX, from as u32) }
    }
}

const BYTES: usize = 64;

impl Blocks for Vaes512 {
    type Vector = __m512i;

    const LANES: usize = BYTES / BLOCK_BYTES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq,bmi2")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            align_stack();
            body()
        }
        // A build without AVX-512 generates no machine code for `body`.
        if !cfg!(avx512) {
            unreachable!("`detect` finds nothing");
        }
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { with_features(body) }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> __m512i {
        let from: &[u8; BYTES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the features; the load covers the bytes.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [u8], a: __m512i) {
        let to: &mut [u8; BYTES] = to.first_chunk_mut().expect("a vector");
        // SAFETY: `self` proves the features; the store covers the bytes.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn load_at(self, skip: usize, from: &[u8]) -> __m512i {
        let mask = self.mask(skip, skip + from.len());
        // SAFETY: `self` proves the features; the load reads the bytes of the mask only, which are
        // those of `from`.
        unsafe { _mm512_maskz_loadu_epi8(mask, from.as_ptr().wrapping_sub(skip).cast()) }
    }

    #[inline(always)]
    fn store_at(self, skip: usize, to: &mut [u8], a: __m512i) {
        let mask = self.mask(skip, skip + to.len());
        // SAFETY: `self` proves the features; the store writes the bytes of the mask only, which
        // are those of `to`.
        unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().wrapping_sub(skip).cast(), mask, a) }
    }

    #[inline(always)]
    fn keep(self, from: usize, to: usize, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_maskz_mov_epi8(self.mask(from, to), a) }
    }

    #[inline(always)]
    fn broadcast(self, block: &Block) -> __m512i {
        // SAFETY: `self` proves the features; the load covers the block.
        unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn broadcast_half(self, half: &[u8; 8]) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_set1_epi64(i64::from_le_bytes(*half)) }
    }

    #[inline(always)]
    fn block(self, block: &Block) -> __m512i {
        // SAFETY: `self` proves the features; the load covers the block.
        unsafe { _mm512_zextsi128_si512(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn first(self, a: __m512i) -> Block {
        let mut first = [0; BLOCK_BYTES];
        // SAFETY: `self` proves the features; the store covers the block.
        unsafe { _mm_storeu_si128(first.as_mut_ptr().cast(), _mm512_castsi512_si128(a)) };
        first
    }

    #[inline(always)]
    fn sum(self, a: __m512i) -> Block {
        let mut sum = [0; BLOCK_BYTES];
        // SAFETY: `self` proves the features; the store covers the block.
        unsafe {
            let half =
                _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64::<1>(a));
            let block = _mm_xor_si128(
                _mm256_castsi256_si128(half),
                _mm256_extracti128_si256::<1>(half),
            );
            _mm_storeu_si128(sum.as_mut_ptr().cast(), block);
        }
        sum
    }

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn add_words(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn shuffle(self, a: __m512i, places: &Block) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_shuffle_epi8(a, self.broadcast(places)) }
    }

    #[inline(always)]
    fn swap_halves(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_shuffle_epi32::<0x4e>(a) }
    }

    #[inline(always)]
    fn add_halves(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { self.xor(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)) }
    }

    #[inline(always)]
    fn multiply<const HALVES: i32>(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_clmulepi64_epi128::<HALVES>(a, b) }
    }

    #[inline(always)]
    fn round(self, state: __m512i, key: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_aesenc_epi128(state, key) }
    }

    #[inline(always)]
    fn last_round(self, state: __m512i, key: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_aesenclast_epi128(state, key) }
    }
}
