//! Clearing of the vector registers after a kernel.
//!
//! A kernel leaves limbs of keys in them, and they stay there until other code needs the registers:
//! in the upper sixteen of AVX-512 for a long time. The next signal would store them on the stack
//! of its thread, and a core dump contains them for every thread.

/// Sets all vector registers and all mask registers of the calling thread to zero.
///
/// By the calling convention every function may change them. This takes eight cycles on Rocket
/// Lake.
#[inline(never)]
pub fn clear_registers() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("avx512vl") {
        x86_64::zero_avx512();
    } else if is_x86_feature_detected!("avx") {
        x86_64::zero_avx();
    } else {
        x86_64::zero_sse();
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use core::arch::naked_asm;

    /// For CPUs with AVX-512F and AVX-512VL, as all CPUs with AVX-512 lanes have.
    // An instruction on the lowest part of a register sets the rest to zero, and instructions on
    // whole registers may slow down the clock of a CPU. A mask register may hold an intermediate
    // result of a comparison.
    #[unsafe(naked)]
    pub(super) extern "C" fn zero_avx512() {
        naked_asm!(
            "vzeroall",
            "vpxord xmm16, xmm16, xmm16",
            "vpxord xmm17, xmm17, xmm17",
            "vpxord xmm18, xmm18, xmm18",
            "vpxord xmm19, xmm19, xmm19",
            "vpxord xmm20, xmm20, xmm20",
            "vpxord xmm21, xmm21, xmm21",
            "vpxord xmm22, xmm22, xmm22",
            "vpxord xmm23, xmm23, xmm23",
            "vpxord xmm24, xmm24, xmm24",
            "vpxord xmm25, xmm25, xmm25",
            "vpxord xmm26, xmm26, xmm26",
            "vpxord xmm27, xmm27, xmm27",
            "vpxord xmm28, xmm28, xmm28",
            "vpxord xmm29, xmm29, xmm29",
            "vpxord xmm30, xmm30, xmm30",
            "vpxord xmm31, xmm31, xmm31",
            "kxorw k0, k0, k0",
            "kxorw k1, k1, k1",
            "kxorw k2, k2, k2",
            "kxorw k3, k3, k3",
            "kxorw k4, k4, k4",
            "kxorw k5, k5, k5",
            "kxorw k6, k6, k6",
            "kxorw k7, k7, k7",
            "ret",
        )
    }

    /// For CPUs with AVX.
    #[unsafe(naked)]
    pub(super) extern "C" fn zero_avx() {
        naked_asm!("vzeroall", "ret")
    }

    /// For every x86-64 CPU.
    #[unsafe(naked)]
    pub(super) extern "C" fn zero_sse() {
        naked_asm!(
            "pxor xmm0, xmm0",
            "pxor xmm1, xmm1",
            "pxor xmm2, xmm2",
            "pxor xmm3, xmm3",
            "pxor xmm4, xmm4",
            "pxor xmm5, xmm5",
            "pxor xmm6, xmm6",
            "pxor xmm7, xmm7",
            "pxor xmm8, xmm8",
            "pxor xmm9, xmm9",
            "pxor xmm10, xmm10",
            "pxor xmm11, xmm11",
            "pxor xmm12, xmm12",
            "pxor xmm13, xmm13",
            "pxor xmm14, xmm14",
            "pxor xmm15, xmm15",
            "ret",
        )
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use core::arch::asm;

    use super::clear_registers;
    use super::x86_64::{zero_avx, zero_avx512, zero_sse};

    /// The contents of registers after `$zero`, with all bits set before. `$ones` sets a register
    /// from itself, with `$more` behind its operands, and `$store` stores it, in `$size` bytes
    /// each.
    macro_rules! left_by {
        ($zero:expr, $ones:literal, $more:literal, $store:literal, $size:literal, [$($register:literal)*]) => {{
            let mut left = [[0xa5_u8; $size]; 16];
            // SAFETY: the CPU has the instructions, as the test has checked. The function changes
            // only registers that are declared as changed.
            unsafe {
                asm!(
                    $(concat!($ones, " ", $register, ", ", $register, ", ", $register, $more),)*
                    "call {zero}",
                    $(concat!($store, " [r12], ", $register), concat!("add r12, ", $size),)*
                    zero = in(reg) $zero as extern "C" fn(),
                    inout("r12") left.as_mut_ptr() => _,
                    clobber_abi("C"),
                );
            }
            left
        }};
    }

    macro_rules! low_left_by {
        ($zero:expr) => {
            left_by!($zero, "vpcmpeqd", "", "vmovdqu", 32, [
                "ymm0" "ymm1" "ymm2" "ymm3" "ymm4" "ymm5" "ymm6" "ymm7" "ymm8" "ymm9" "ymm10"
                "ymm11" "ymm12" "ymm13" "ymm14" "ymm15"
            ])
        };
    }

    extern "C" fn nothing() {}

    #[test]
    fn no_register_keeps_anything() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        assert_eq!(low_left_by!(nothing), [[0xff; 32]; 16], "this test can see");
        assert_eq!(low_left_by!(zero_avx), [[0; 32]; 16]);
        let lower = low_left_by!(zero_sse).map(|register| register[..16] == [0; 16]);
        assert_eq!(lower, [true; 16]);
        if is_x86_feature_detected!("avx512vl") {
            assert_eq!(low_left_by!(zero_avx512), [[0; 32]; 16]);
            let high = left_by!(zero_avx512, "vpternlogd", ", 0xff", "vmovdqu64", 64, [
                "zmm16" "zmm17" "zmm18" "zmm19" "zmm20" "zmm21" "zmm22" "zmm23" "zmm24" "zmm25"
                "zmm26" "zmm27" "zmm28" "zmm29" "zmm30" "zmm31"
            ]);
            assert_eq!(high, [[0; 64]; 16]);
            let masks = left_by!(zero_avx512, "kxnorw", "", "kmovw", 2, [
                "k0" "k1" "k2" "k3" "k4" "k5" "k6" "k7"
            ]);
            assert_eq!(masks[..8], [[0; 2]; 8]);
        }
        clear_registers();
    }
}
