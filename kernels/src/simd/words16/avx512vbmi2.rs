//! Thirty-two words in 512-bit registers: AVX-512 with BW, VNNI, VBMI and VBMI2, which all CPUs
//! with IFMA have except Intel's first one.

use core::arch::x86_64::*;

use super::{COEFFICIENTS, Q, Sampled, Words, factors, gathered_bytes, spread_bytes};
use crate::simd::align_stack;
use crate::taint::{derived, disclosed, whole};

/// Proof that the CPU and the operating system support these instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Avx512Vbmi2(());

impl Avx512Vbmi2 {
    /// Returns the proof, if the CPU has the features.
    pub(crate) fn detect() -> Option<Self> {
        (cfg!(avx512)
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt"))
        .then_some(Self(()))
    }

    /// Returns the bytes of `a` in the order of `from`. A permutation reads registers: its index is
    /// not an address.
    #[inline(always)]
    pub(crate) fn permute_bytes(self, from: &[u8; 64], a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features; the load covers the 64 bytes.
        let permuted = unsafe {
            let from = _mm512_loadu_si512(from.as_ptr().cast());
            _mm512_permutexvar_epi8(from, disclosed(a))
        };
        derived(permuted, a)
    }

    /// Returns in each byte eight consecutive bits of the same 64-bit word of `a`. `from` has the
    /// index of the lowest bit for each byte.
    #[inline(always)]
    fn shifted_bytes(self, from: &[u8; 64], a: __m512i) -> __m512i {
        // SAFETY: as above.
        let shifted = unsafe {
            let from = _mm512_loadu_si512(from.as_ptr().cast());
            _mm512_multishift_epi64_epi8(from, disclosed(a))
        };
        derived(shifted, a)
    }

    /// Returns the pairs of words at `from`, counted through both vectors.
    #[inline(always)]
    fn pick_pairs(self, from: &[i32; 16], a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: as above.
        let picked = unsafe {
            let from = _mm512_loadu_si512(from.as_ptr().cast());
            _mm512_permutex2var_epi32(disclosed(a), from, disclosed(b))
        };
        derived(derived(picked, a), b)
    }
}

const LANES: usize = 32;

/// Returns a mask of `count` ones, for a `count` below 64.
pub(crate) const fn ones(count: usize) -> u64 {
    (1 << count) - 1
}

/// Returns the indices of the eight bytes for each 64-bit word. Word i gets the bytes that contain
/// numbers 4·i to 4·i + 3, of `BITS` bits each.
const fn bytes_of_fours<const BITS: usize>() -> [u8; 64] {
    let (mut from, mut byte) = ([0; 64], 0);
    while byte < 64 {
        from[byte] = (byte / 8 * 4 * BITS / 8 + byte % 8) as u8;
        byte += 1;
    }
    from
}

/// Returns, for both bytes of each number in a 64-bit word of [`bytes_of_fours`], the index of the
/// lowest bit in that word.
const fn bits_of_fours<const BITS: usize>() -> [u8; 64] {
    let (mut from, mut byte) = ([0; 64], 0);
    while byte < 64 {
        let start = byte / 8 * 4 * BITS % 8;
        from[byte] = (start + byte % 8 / 2 * BITS + byte % 2 * 8) as u8;
        byte += 1;
    }
    from
}

impl Words for Avx512Vbmi2 {
    type Vector = __m512i;
    type Sums = __m512i;

    const LANES: usize = LANES;

    #[inline(always)]
    fn enter<R>(self, body: impl FnOnce() -> R) -> R {
        #[target_feature(
            enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2,bmi2,popcnt"
        )]
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
    fn load(self, from: &[i16]) -> __m512i {
        let from: &[i16; LANES] = from.first_chunk().expect("a vector");
        // SAFETY: `self` proves the features; the load covers the words.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [i16], a: __m512i) {
        let to: &mut [i16; LANES] = to.first_chunk_mut().expect("a vector");
        // SAFETY: `self` proves the features; the store covers the words.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), a) }
    }

    #[inline(always)]
    fn splat(self, value: i16) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_set1_epi16(value) }
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_add_epi16(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sub_epi16(a, b) }
    }

    #[inline(always)]
    fn mul_low(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_mullo_epi16(a, b) }
    }

    #[inline(always)]
    fn mul_high(self, a: __m512i, b: __m512i) -> __m512i {
        let (a, b) = (whole(a), whole(b));
        // SAFETY: `self` proves the features.
        unsafe { mul_high(a, b) }
    }

    #[inline(always)]
    fn mul_round(self, a: __m512i, b: __m512i) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_mulhrs_epi16(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn min_unsigned(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_min_epu16(a, b) }
    }

    #[inline(always)]
    fn shift_left(self, a: __m512i, count: u32) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_sll_epi16(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn shift_right(self, a: __m512i, count: u32) -> __m512i {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(count as i32)) }
    }

    #[inline(always)]
    fn swap_pairs(self, a: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_rol_epi32::<16>(a) }
    }

    #[inline(always)]
    fn exchange<const PAIRS: usize>(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        // SAFETY: `self` proves the features.
        unsafe {
            match PAIRS {
                1 => [
                    _mm512_mask_shuffle_epi32::<0xa0>(a, 0xaaaa, b),
                    _mm512_mask_shuffle_epi32::<0xf5>(b, 0x5555, a),
                ],
                2 => [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)],
                4 => [
                    _mm512_mask_shuffle_i64x2::<0b10_10_00_00>(a, 0xcc, b, b),
                    _mm512_mask_shuffle_i64x2::<0b11_11_01_01>(b, 0x33, a, a),
                ],
                _ => [
                    _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b),
                    _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b),
                ],
            }
        }
    }

    #[inline(always)]
    fn unzip(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        const EVEN: [i32; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];
        const ODD: [i32; 16] = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31];
        [self.pick_pairs(&EVEN, a, b), self.pick_pairs(&ODD, a, b)]
    }

    #[inline(always)]
    fn zip(self, even: __m512i, odd: __m512i) -> [__m512i; 2] {
        const LOWER: [i32; 16] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
        const UPPER: [i32; 16] = [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31];
        [
            self.pick_pairs(&LOWER, even, odd),
            self.pick_pairs(&UPPER, even, odd),
        ]
    }

    #[inline(always)]
    fn no_sums(self) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn add_products(self, sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { add_products(sums, a, b) }
    }

    #[inline(always)]
    fn halves(self, even: __m512i, odd: __m512i) -> [__m512i; 2] {
        let (even, odd) = (whole(even), whole(odd));
        // SAFETY: `self` proves the features.
        unsafe {
            [
                _mm512_mask_blend_epi16(0xaaaa_aaaa, even, _mm512_slli_epi32::<16>(odd)),
                _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(even), odd),
            ]
        }
    }

    #[inline(always)]
    fn signs(self, a: __m512i) -> u32 {
        let a = whole(a);
        // SAFETY: `self` proves the features.
        unsafe { _mm512_movepi16_mask(a) }
    }

    #[inline(always)]
    fn spread(self, bits: u32, value: __m512i) -> __m512i {
        // SAFETY: `self` proves the features.
        unsafe { _mm512_maskz_mov_epi16(bits, value) }
    }

    #[inline(always)]
    fn unpack<const BITS: usize>(self, from: &[u8]) -> __m512i {
        let from = &from[..LANES * BITS / 8];
        // SAFETY: `self` proves the features; the loads, one of them by its mask, keep within the
        // slice.
        let bytes = unsafe {
            match BITS {
                // No mask here, because LLVM compiles a load with a mask of whole words to
                // `vpexpandq`.
                6 => {
                    let first = _mm256_castsi128_si256(_mm_loadu_si128(from.as_ptr().cast()));
                    let last = _mm_loadl_epi64(from[16..].as_ptr().cast());
                    _mm512_zextsi256_si512(_mm256_inserti128_si256::<1>(first, last))
                }
                _ => {
                    let mask = const { ones(LANES * BITS / 8) };
                    _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast())
                }
            }
        };
        if BITS == 11 {
            let fours = self.permute_bytes(const { &bytes_of_fours::<BITS>() }, bytes);
            let words = self.shifted_bytes(const { &bits_of_fours::<BITS>() }, fours);
            return self.and(words, self.splat((1 << BITS) - 1));
        }
        let words = self.permute_bytes(const { &spread_bytes::<BITS, 64>() }, bytes);
        let uppermost = self.mul_low(words, self.load(const { &factors::<BITS>() }));
        self.shift_right(uppermost, 16 - BITS as u32)
    }

    #[inline(always)]
    fn pack<const BITS: usize>(self, to: &mut [u8], a: __m512i) {
        const { assert!(matches!(BITS, 4 | 5 | 6 | 10 | 11 | 12)) };
        let to = &mut to[..LANES * BITS / 8];
        // SAFETY: `self` proves the features; the stores stay within the slice.
        unsafe {
            let twos = _mm512_madd_epi16(a, _mm512_set1_epi32(const { 1 << (16 + BITS) | 1 }));
            let uppermost = _mm512_set1_epi64(const { 32 - 2 * BITS as i64 });
            let mut fours = _mm512_srlv_epi64(_mm512_sllv_epi32(twos, uppermost), uppermost);
            if BITS % 2 == 1 {
                let swapped = _mm512_shuffle_epi32::<0b01_00_11_10>(fours);
                let (left, right) = const { (4 * BITS as i64, 64 - 4 * BITS as i64) };
                let left = _mm512_set4_epi64(64, left, 64, left);
                let right = _mm512_set4_epi64(right, 0, right, 0);
                fours = _mm512_or_si512(
                    _mm512_srlv_epi64(fours, right),
                    _mm512_sllv_epi64(swapped, left),
                );
            }
            let bytes = self.permute_bytes(const { &gathered_bytes::<BITS, 64>() }, fours);
            // A store of bytes by a mask takes many cycles on Zen 4, so there are up to
            // three stores of different sizes.
            let to = to.as_mut_ptr();
            let (to, rest) = if BITS > 8 {
                _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(bytes));
                (to.add(32), _mm512_extracti32x4_epi32::<2>(bytes))
            } else {
                (to, _mm512_castsi512_si128(bytes))
            };
            match BITS {
                10 | 11 => _mm_storel_epi64(to.cast(), rest),
                _ => _mm_storeu_si128(to.cast(), rest),
            }
            match BITS {
                11 => to
                    .add(8)
                    .cast::<i32>()
                    .write_unaligned(_mm_extract_epi32::<2>(rest)),
                5 | 6 => {
                    let last = _mm512_extracti32x4_epi32::<1>(bytes);
                    match BITS {
                        5 => to
                            .add(16)
                            .cast::<i32>()
                            .write_unaligned(_mm_cvtsi128_si32(last)),
                        _ => _mm_storel_epi64(to.add(16).cast(), last),
                    }
                }
                _ => {}
            }
        }
    }

    #[inline(always)]
    fn differences(self, bits: __m512i) -> __m512i {
        // Each entry is the difference plus two, so that no byte is negative. A shuffle reads
        // registers: its index is not an address.
        const TABLE: [u8; 16] = [2, 3, 3, 4, 1, 2, 2, 3, 1, 2, 2, 3, 0, 1, 1, 2];
        // SAFETY: `self` proves the features; the load covers the table.
        let found = unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(TABLE.as_ptr().cast()));
            _mm512_shuffle_epi8(table, disclosed(bits))
        };
        self.sub(derived(found, bits), self.splat(0x0202))
    }

    #[inline(always)]
    fn sift_vartime(self, from: &[u8], to: &mut Sampled, mut count: usize) -> usize {
        let mut rest = from;
        while !rest.is_empty() {
            let here = rest.len().min(LANES * 12 / 8);
            let bytes = match rest.first_chunk::<64>() {
                // SAFETY: `self` proves the features; the load covers the 64 bytes.
                Some(bytes) => unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) },
                // SAFETY: `self` proves the features; the mask keeps the load within the slice.
                None => unsafe { _mm512_maskz_loadu_epi8(ones(here), rest.as_ptr().cast()) },
            };
            let words = self.permute_bytes(const { &spread_bytes::<12, 64>() }, bytes);
            let uppermost = self.mul_low(words, self.load(const { &factors::<12>() }));
            let numbers = self.shift_right(uppermost, 4);
            let valid = ones(here / 3 * 2) as u32;
            // SAFETY: `self` proves the features.
            let (numbers, kept) = unsafe {
                let kept = _mm512_mask_cmplt_epu16_mask(valid, numbers, self.splat(Q));
                (
                    _mm512_maskz_compress_epi16(kept, numbers),
                    kept.count_ones() as usize,
                )
            };
            self.store(&mut to.0[count..], numbers);
            count = (count + kept).min(COEFFICIENTS);
            rest = &rest[here..];
        }
        count
    }
}

/// [`Words::mul_high`] in one instruction. If a subtraction follows, LLVM replaces the intrinsic by
/// 32-bit multiplications in four times as many instructions.
#[inline]
#[target_feature(enable = "avx512bw")]
fn mul_high(a: __m512i, b: __m512i) -> __m512i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        let product;
        // SAFETY: the instruction reads and writes registers only.
        unsafe {
            core::arch::asm!("vpmulhw {}, {}, {}", out(zmm_reg) product, in(zmm_reg) a, in(zmm_reg) b,
                options(pure, nomem, nostack, preserves_flags));
        }
        product
    }
    #[cfg(any(miri, ct_msan))]
    _mm512_mulhi_epi16(a, b)
}

/// [`Words::add_products`] in one instruction, which the taint check does not know.
#[inline]
#[target_feature(enable = "avx512bw,avx512vnni")]
fn add_products(sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        _mm512_dpwssd_epi32(sums, a, b)
    }
    #[cfg(any(miri, ct_msan))]
    _mm512_add_epi32(sums, _mm512_madd_epi16(a, b))
}
