//! Two words in 128-bit registers: the message schedule of SHA-512, beside rounds in ordinary
//! registers.

use core::arch::x86_64::*;

use super::Plain;

/// Proof that the CPU has AVX2, BMI1, and BMI2 with rotates of ordinary registers that keep their
/// operand.
#[derive(Clone, Copy)]
pub(crate) struct Pairs(());

// SAFETY: the vector is plain bits without padding, aligned to its length.
unsafe impl Plain for __m128i {}

/// Two words.
pub(crate) type Pair = __m128i;

impl Pairs {
    /// Returns the proof, if the CPU has the features.
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2"))
        .then_some(Self(()))
    }

    /// Runs `body` with these instructions enabled.
    #[inline(always)]
    pub(crate) fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,bmi1,bmi2")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            body()
        }
        // SAFETY: `self` exists only where `detect` found these features.
        unsafe { with_features(body) }
    }

    /// Loads two big-endian words.
    #[inline(always)]
    pub(crate) fn load(self, bytes: &[u8; 16]) -> Pair {
        // SAFETY: `self` proves the features; the load covers the 16 bytes.
        unsafe {
            let swap = _mm_set_epi64x(0x0809_0a0b_0c0d_0e0f, 0x0001_0203_0405_0607);
            _mm_shuffle_epi8(_mm_loadu_si128(bytes.as_ptr().cast()), swap)
        }
    }

    /// Loads two words.
    #[inline(always)]
    pub(crate) fn pair(self, words: &[u64; 2]) -> Pair {
        // SAFETY: `self` proves the features; the load covers both words.
        unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
    }

    /// Returns a + b modulo 2^64.
    #[inline(always)]
    pub(crate) fn add(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the features.
        unsafe { _mm_add_epi64(a, b) }
    }

    /// Returns the second word of `a` and the first one of `b`.
    #[inline(always)]
    pub(crate) fn across(self, a: Pair, b: Pair) -> Pair {
        // SAFETY: `self` proves the features.
        unsafe { _mm_alignr_epi8::<8>(b, a) }
    }

    /// Returns for each word x the exclusive or of x rotated right by `A`, x rotated right by `B`,
    /// and x shifted right by `C`. The other constants are the left shifts of the rotations.
    #[inline(always)]
    pub(crate) fn sigma<
        const A: i32,
        const LEFT_A: i32,
        const B: i32,
        const LEFT_B: i32,
        const C: i32,
    >(
        self,
        x: Pair,
    ) -> Pair {
        const { assert!(A + LEFT_A == 64 && B + LEFT_B == 64) };
        // SAFETY: `self` proves the features.
        unsafe {
            let a = _mm_xor_si128(_mm_srli_epi64::<A>(x), _mm_slli_epi64::<LEFT_A>(x));
            let b = _mm_xor_si128(_mm_srli_epi64::<B>(x), _mm_slli_epi64::<LEFT_B>(x));
            _mm_xor_si128(_mm_xor_si128(a, b), _mm_srli_epi64::<C>(x))
        }
    }
}
