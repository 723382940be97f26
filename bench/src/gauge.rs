//! Gauges of the core that a thread runs on, for measurements that can be trusted.
//!
//! A core's clock moves and, on most machines, another thread shares its execution units unseen.
//! Each gauge does a known amount of work; divided by the time that it took (the caller's business)
//! this gives the clock, and whether the core is shared.
//!
//! The figures rest on two facts: a 64-bit `imul` has a latency of 3 cycles on every x86-64 core
//! with AVX-512, and additions of a constant to different registers are limited only by the width
//! of the core.

#![allow(unsafe_code)]

/// Number of operations in one round of a gauge's loop.
const UNROLL: u64 = 16;

/// Latency of a 64-bit multiply, in cycles.
const MULTIPLY_LATENCY: u64 = 3;

/// Runs a chain of multiplies, each waiting for the one before; returns the cycles that it takes.
///
/// `rounds` must not be zero. Divided by the time it gives the clock.
#[inline(never)]
pub fn dependent_multiplies(rounds: u64) -> u64 {
    debug_assert!(rounds > 0);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the assembly only writes the registers that it names.
    unsafe {
        core::arch::asm!(
            "2:",
            ".rept 16",
            "imul {x}, {x}",
            ".endr",
            "dec {n}",
            "jnz 2b",
            x = inout(reg) 3_u64 => _,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    rounds * UNROLL * MULTIPLY_LATENCY
}

/// [`dependent_multiplies`], with multiplies of eight lanes beside them, or `None` on a CPU without
/// such lanes.
///
/// A core may run at a lower clock while its 512-bit units are busy. The lanes' cycles have that
/// clock.
#[inline(never)]
pub fn dependent_multiplies_beside_lanes(rounds: u64) -> Option<u64> {
    debug_assert!(rounds > 0);
    #[cfg(target_arch = "x86_64")]
    {
        if !(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")) {
            return None;
        }
        // SAFETY: the CPU has the instructions, as just checked. The assembly writes no memory, and
        // only the registers that it names: an xmm name stands for the whole register.
        unsafe {
            core::arch::asm!(
                "vzeroall",
                "2:",
                ".rept 4",
                "imul {x}, {x}",
                "vpmadd52luq zmm0, zmm0, zmm0", "vpmadd52luq zmm1, zmm1, zmm1",
                "imul {x}, {x}",
                "vpmadd52luq zmm2, zmm2, zmm2", "vpmadd52luq zmm3, zmm3, zmm3",
                "imul {x}, {x}",
                "vpmadd52luq zmm4, zmm4, zmm4", "vpmadd52luq zmm5, zmm5, zmm5",
                "imul {x}, {x}",
                "vpmadd52luq zmm6, zmm6, zmm6", "vpmadd52luq zmm7, zmm7, zmm7",
                ".endr",
                "dec {n}",
                "jnz 2b",
                "vzeroupper",
                x = inout(reg) 3_u64 => _,
                n = inout(reg) rounds => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nomem, nostack),
            );
        }
        Some(rounds * UNROLL * MULTIPLY_LATENCY)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Runs additions that wait for nothing; returns how many.
///
/// `rounds` must not be zero. Per cycle, an idle core starts nearly as many as it is wide; one that
/// is shared with a busy sibling about half of that.
#[inline(never)]
pub fn independent_adds(rounds: u64) -> u64 {
    debug_assert!(rounds > 0);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the assembly only writes the registers that it names.
    unsafe {
        core::arch::asm!(
            "2:",
            ".rept 2",
            "add {a}, 1", "add {b}, 1", "add {c}, 1", "add {d}, 1",
            "add {e}, 1", "add {f}, 1", "add {g}, 1", "add {h}, 1",
            ".endr",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) 0_u64 => _, b = inout(reg) 0_u64 => _,
            c = inout(reg) 0_u64 => _, d = inout(reg) 0_u64 => _,
            e = inout(reg) 0_u64 => _, f = inout(reg) 0_u64 => _,
            g = inout(reg) 0_u64 => _, h = inout(reg) 0_u64 => _,
            n = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    rounds * UNROLL
}
