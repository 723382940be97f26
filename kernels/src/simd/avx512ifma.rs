//! Eight lanes in 512-bit registers: AVX-512 F, DQ, VL and IFMA.

use core::arch::x86_64::*;
use core::marker::PhantomData;

use super::avx512ifma256::Avx512Ifma256;
use super::ifma::ifma_lanes;
use super::{LaneBytes, Plain, Simd};
use crate::order::{After, Beside, Order};
use crate::taint::{derived, disclosed, whole};

ifma_lanes! {
    Avx512Ifma(__m512i) {
        intrinsics {
            set1: _mm512_set1_epi64,
            madd52lo: _mm512_madd52lo_epu64,
            madd52hi: _mm512_madd52hi_epu64,
            add: _mm512_add_epi64,
            sub: _mm512_sub_epi64,
            and: _mm512_and_si512,
            xor: _mm512_xor_si512,
            srli: _mm512_srli_epi64,
            srlv: _mm512_srlv_epi64,
            ror: _mm512_ror_epi64,
            ternarylogic: _mm512_ternarylogic_epi64,
            srl: _mm512_srl_epi64,
            sll: _mm512_sll_epi64,
            test_mask: _mm512_test_epi64_mask,
            cmpeq_mask: _mm512_cmpeq_epi64_mask,
            mask_blend: _mm512_mask_blend_epi64,
            mask_ternarylogic: _mm512_mask_ternarylogic_epi64,
        }

        type Lower = Avx512Ifma256<O>;

        const SHORT_CODE: bool = false;

        #[inline(always)]
        fn lower(self) -> Option<Avx512Ifma256<O>> {
            // Four lanes need no other instructions.
            Some(Avx512Ifma256(PhantomData))
        }

        #[inline(always)]
        fn pin_registers(self, sums: &mut [__m512i; 20]) {
            // SAFETY: `self` proves the features.
            unsafe { pin_registers(sums) }
        }

        #[inline(always)]
        fn unmerged(self, a: __m512i) -> __m512i {
            // SAFETY: `self` proves the features.
            unsafe { unmerged(a) }
        }

        #[inline(always)]
        fn separate_lanes(self, limbs: &[__m512i; 24], to: &mut [LaneBytes]) {
            let to: &mut [LaneBytes; 8] = to.try_into().expect("eight lanes");
            for (i, rows) in limbs.as_chunks().0.iter().enumerate() {
                // SAFETY: `self` proves the features.
                let lanes = unsafe { transposed(rows) };
                for (LaneBytes(to), lane) in to.iter_mut().zip(lanes) {
                    let to: &mut [u8; 64] = &mut to.as_chunks_mut().0[i];
                    // SAFETY: `self` proves the features; the store covers the 64 bytes.
                    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), lane) };
                }
            }
        }

        #[inline(always)]
        fn join_rows(self, rows: &[&[u64; 8]; 8]) -> [__m512i; 8] {
            let mut lanes = [self.zero(); 8];
            for (lane, row) in lanes.iter_mut().zip(rows) {
                // SAFETY: `self` proves the features; the load covers the eight words.
                *lane = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
            }
            // SAFETY: `self` proves the features.
            unsafe { transposed(&lanes) }
        }

        #[inline(always)]
        fn look_up_16(self, table: &[u64; 16], index: __m512i) -> __m512i {
            // A permutation reads registers: its index is not an address.
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
}

impl Avx512Ifma {
    /// Returns the same lanes with the other order of work.
    pub(crate) fn reducing_after(self) -> Avx512Ifma<After> {
        Avx512Ifma(PhantomData)
    }
}

/// Returns the transpose of a matrix of 8 · 8 words.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: &[__m512i; 8]) -> [__m512i; 8] {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let [a, b, c, d] = [0, 2, 4, 6].map(|i| {
        [
            _mm512_unpacklo_epi64(rows[i], rows[i + 1]),
            _mm512_unpackhi_epi64(rows[i], rows[i + 1]),
        ]
    });
    let mut lanes = *rows;
    for i in 0..2 {
        let halves = [
            [
                _mm512_shuffle_i64x2::<EVEN>(a[i], b[i]),
                _mm512_shuffle_i64x2::<EVEN>(c[i], d[i]),
            ],
            [
                _mm512_shuffle_i64x2::<ODD>(a[i], b[i]),
                _mm512_shuffle_i64x2::<ODD>(c[i], d[i]),
            ],
        ];
        for (j, [low, high]) in halves.into_iter().enumerate() {
            lanes[i + 2 * j] = _mm512_shuffle_i64x2::<EVEN>(low, high);
            lanes[i + 2 * j + 4] = _mm512_shuffle_i64x2::<ODD>(low, high);
        }
    }
    lanes
}

/// [`Simd::unmerged`], for a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn unmerged(a: __m512i) -> __m512i {
    #[cfg(not(any(miri, ct_msan)))]
    {
        let mut a = a;
        // SAFETY: the assembly is empty.
        unsafe {
            core::arch::asm!("/* {} */", inout(zmm_reg) a, options(pure, nomem, nostack, preserves_flags));
        }
        a
    }
    #[cfg(any(miri, ct_msan))]
    a
}

/// Puts all sums into registers at once.
#[inline]
#[target_feature(enable = "avx512f")]
fn pin_registers(sums: &mut [__m512i; 20]) {
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
