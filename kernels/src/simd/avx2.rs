//! Four lanes in 256-bit registers: AVX2, for CPUs without IFMA.
//!
//! There is only a 32-bit multiply, so each half of a product of 52-bit limbs needs four products
//! of halves. In hot code, [`HALVES`](Simd::HALVES) makes the algorithm split a whole number at a
//! time.

use core::arch::x86_64::*;

use super::Simd;
use crate::order::Beside;
use crate::taint::whole;

/// Proof that the CPU and the operating system support AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Returns the proof, if the CPU has the feature.
    pub(crate) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

/// Number of bits of half a 52-bit limb.
const HALF: u32 = 26;

impl Avx2 {
    /// Returns the halves of a 52-bit limb.
    #[inline(always)]
    fn halves(self, a: __m256i) -> [__m256i; 2] {
        let a = whole(a);
        let mask = self.splat((1 << HALF) - 1);
        [
            self.and(a, mask),
            self.and(self.shift_right::<HALF>(a), mask),
        ]
    }

    /// Returns a0·b0, a0·b1 + a1·b0 and a1·b1 of the halves of `a` and `b`.
    #[inline(always)]
    fn products(self, a: __m256i, b: __m256i) -> [__m256i; 3] {
        let ([a0, a1], [b0, b1]) = (self.halves(a), self.halves(b));
        let zero = self.zero();
        let middle = self.mul_short(self.mul_short(zero, a0, b1), a1, b0);
        [
            self.mul_short(zero, a0, b0),
            middle,
            self.mul_short(zero, a1, b1),
        ]
    }
}

impl Simd for Avx2 {
    type Limb = __m256i;
    /// All ones in the selected lanes, zero in the others.
    type Mask = __m256i;
    type Order = Beside;
    type Lower = Self;

    const LANES: usize = 4;
    const HALVES: bool = true;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2")]
        fn with_features<R>(body: impl FnOnce() -> R) -> R {
            super::align_stack();
            body()
        }
        // SAFETY: `self` exists only where `detect` found the feature.
        unsafe { with_features(body) }
    }

    #[inline(always)]
    fn splat(self, value: u64) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_set1_epi64x(value as i64) }
    }

    #[inline(always)]
    fn mul_lo(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        let [low, middle, _] = self.products(a, b);
        // SAFETY: `self` proves the feature.
        let middle = unsafe { _mm256_slli_epi64::<{ HALF as i32 }>(middle) };
        self.add(acc, self.low_bits(self.add(low, middle)))
    }

    #[inline(always)]
    fn mul_hi(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        let [low, middle, high] = self.products(a, b);
        let middle = self.add(middle, self.shift_right::<HALF>(low));
        self.add(self.add(acc, high), self.shift_right::<HALF>(middle))
    }

    #[inline(always)]
    fn mul_short(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi64(acc, _mm256_mul_epu32(a, b)) }
    }

    #[inline(always)]
    fn add(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_add_epi64(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sub_epi64(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn halve(self, a: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srli_epi64::<1>(a) }
    }

    #[inline(always)]
    fn or_xor(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_or_si256(a, _mm256_xor_si256(b, c)) }
    }

    #[inline(always)]
    fn shift_right<const COUNT: u32>(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srlv_epi64(a, self.splat(u64::from(COUNT))) }
    }

    #[inline(always)]
    fn rotate_right<const COUNT: i32>(self, a: __m256i) -> __m256i {
        let low = self.shift_right_by(a, COUNT as u32);
        self.xor(low, self.shift_left_by(a, 64 - COUNT as u32))
    }

    #[inline(always)]
    fn ternary<const TABLE: i32>(self, a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        let ones = self.splat(u64::MAX);
        // The tables of SHA-512 and Keccak: choice, exclusive or, majority, and step χ.
        match TABLE {
            0xca => return self.xor(c, self.and(a, self.xor(b, c))),
            0x96 => return self.xor(a, self.xor(b, c)),
            0xe8 => return self.xor(self.and(a, b), self.and(c, self.xor(a, b))),
            0xd2 => return self.xor(a, self.and(self.xor(b, ones), c)),
            _ => {}
        }
        let mut out = self.zero();
        for row in 0..8 {
            if TABLE >> row & 1 == 1 {
                let a = if row & 4 == 0 { self.xor(a, ones) } else { a };
                let b = if row & 2 == 0 { self.xor(b, ones) } else { b };
                let c = if row & 1 == 0 { self.xor(c, ones) } else { c };
                // Two rows have no bit in common.
                out = self.xor(out, self.and(a, self.and(b, c)));
            }
        }
        out
    }

    #[inline(always)]
    fn shift_right_by(self, a: __m256i, count: u32) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srl_epi64(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn shift_left_by(self, a: __m256i, count: u32) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_sll_epi64(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn carry(self, a: __m256i) -> __m256i {
        let a = whole(a);
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_srlv_epi64(a, self.splat(u64::from(Self::LIMB_BITS))) }
    }

    #[inline(always)]
    fn any_bit(self, a: __m256i, bits: __m256i) -> __m256i {
        let none = self.equal(self.and(a, bits), self.zero());
        self.xor(none, self.splat(u64::MAX))
    }

    #[inline(always)]
    fn equal(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_cmpeq_epi64(a, b) }
    }

    #[inline(always)]
    fn select(self, mask: __m256i, set: __m256i, clear: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm256_blendv_epi8(clear, set, mask) }
    }

    #[inline(always)]
    fn choose_in(self, mask: __m256i, chooser: __m256i, clear: __m256i, set: __m256i) -> __m256i {
        let chosen = self.xor(clear, self.and(chooser, self.xor(clear, set)));
        self.select(mask, chosen, chooser)
    }

    #[inline(always)]
    fn optimisation_barrier(self, sum: __m256i) -> __m256i {
        // SAFETY: `self` proves the feature.
        unsafe { optimisation_barrier(sum) }
    }

    #[inline(always)]
    fn look_up_16(self, table: &[u64; 16], index: __m256i) -> __m256i {
        let index = self.and(index, self.splat(15));
        let mut picked = self.zero();
        for (i, &word) in (0..).zip(table) {
            let hit = self.equal(index, self.splat(i));
            picked = self.xor(picked, self.and(hit, self.splat(word)));
        }
        picked
    }
}

/// [`Simd::optimisation_barrier`], for a register.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn optimisation_barrier(sum: __m256i) -> __m256i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        let mut sum = sum;
        // SAFETY: the assembly is empty.
        unsafe {
            core::arch::asm!("/* {} */", inout(ymm_reg) sum, options(nomem, nostack, preserves_flags));
        }
        sum
    }
    #[cfg(any(miri, ct_msan))]
    sum
}
