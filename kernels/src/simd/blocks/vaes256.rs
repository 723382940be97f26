//! Two blocks in 256-bit registers: VAES and VPCLMULQDQ with AVX2, for CPUs without AVX-512.

use core::arch::x86_64::*;

use super::{BLOCK_BYTES, Block, Blocks};
use crate::simd::align_stack;

/// Proof that the CPU and the operating system support these instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Vaes256(());

impl Vaes256 {
    /// Returns the proof, if the CPU has the features.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq"))
        .then_some(Self(()))
    }
}

const BYTES: usize = 32;

/// Ones between zeros: every mask is the intersection of two parts of this array.
static ONES: [u8; 3 * BYTES] = {
    let mut bytes = [0; 3 * BYTES];
    let mut i = BYTES;
    while i < 2 * BYTES {
        bytes[i] = 0xff;
        i += 1;
    }
    bytes
};

impl Blocks for Vaes256 {
    type Vector = __m256i;

    const LANES: usize = BYTES / BLOCK_BYTES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,vaes,vpclmulqdq")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            align_stack();
            body()
        }
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { with_features(body) }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> __m256i {
        let from: &[u8; BYTES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the features; the load covers the bytes.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [u8], a: __m256i) {
        let to: &mut [u8; BYTES] = to.first_chunk_mut().expect("a vector");
        // SAFETY: `self` proves the features; the store covers the bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn load_at(self, skip: usize, from: &[u8]) -> __m256i {
        let mut bytes = [0; BYTES];
        bytes[skip..][..from.len()].copy_from_slice(from);
        self.load(&bytes)
    }

    #[inline(always)]
    fn store_at(self, skip: usize, to: &mut [u8], a: __m256i) {
        let mut bytes = [0; BYTES];
        self.store(&mut bytes, a);
        to.copy_from_slice(&bytes[skip..][..to.len()]);
    }

    #[inline(always)]
    fn keep(self, from: usize, to: usize, a: __m256i) -> __m256i {
        let (above, below) = (&ONES[BYTES - from..], &ONES[2 * BYTES - to..]);
        // SAFETY: `self` proves the features.
        unsafe {
            let mask = _mm256_and_si256(self.load(above), self.load(below));
            _mm256_and_si256(mask, a)
        }
    }

    #[inline(always)]
    fn broadcast(self, block: &Block) -> __m256i {
        // SAFETY: `self` proves the features; the load covers the block.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn broadcast_half(self, half: &[u8; 8]) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_set1_epi64x(i64::from_le_bytes(*half)) }
    }

    #[inline(always)]
    fn block(self, block: &Block) -> __m256i {
        // SAFETY: `self` proves the features; the load covers the block.
        unsafe { _mm256_zextsi128_si256(_mm_loadu_si128(block.as_ptr().cast())) }
    }

    #[inline(always)]
    fn first(self, a: __m256i) -> Block {
        let mut first = [0; BLOCK_BYTES];
        // SAFETY: `self` proves the features; the store covers the block.
        unsafe { _mm_storeu_si128(first.as_mut_ptr().cast(), _mm256_castsi256_si128(a)) };
        first
    }

    #[inline(always)]
    fn sum(self, a: __m256i) -> Block {
        let mut sum = [0; BLOCK_BYTES];
        // SAFETY: `self` proves the features; the store covers the block.
        unsafe {
            let block = _mm_xor_si128(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            _mm_storeu_si128(sum.as_mut_ptr().cast(), block);
        }
        sum
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn add_words(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn shuffle(self, a: __m256i, places: &Block) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_shuffle_epi8(a, self.broadcast(places)) }
    }

    #[inline(always)]
    fn swap_halves(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_shuffle_epi32::<0x4e>(a) }
    }

    #[inline(always)]
    fn add_halves(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { self.xor(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)) }
    }

    #[inline(always)]
    fn multiply<const HALVES: i32>(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_clmulepi64_epi128::<HALVES>(a, b) }
    }

    #[inline(always)]
    fn round(self, state: __m256i, key: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_aesenc_epi128(state, key) }
    }

    #[inline(always)]
    fn last_round(self, state: __m256i, key: __m256i) -> __m256i {
        // SAFETY: `self` proves the features.
        unsafe { _mm256_aesenclast_epi128(state, key) }
    }
}
