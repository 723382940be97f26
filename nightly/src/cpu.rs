//! Features of the CPU at hand.

use std::fs;

/// Whether it has the instructions of a flag of the kernel's.
pub fn has(flag: &str) -> bool {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    flags.split_whitespace().any(|word| word == flag)
}

/// Whether all operations have lanes there.
pub fn has_ifma() -> bool {
    has("avx512ifma") && has("avx512vl")
}
