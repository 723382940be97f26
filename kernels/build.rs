//! Sets two conditions. `vectors`: the kernels have backends with vector instructions. `avx512`:
//! backends with AVX-512 are among them.
//!
//! Vectors exist on x86-64, except in a build with `--cfg portable` in RUSTFLAGS. Such a build
//! takes a fifth of the time, and checks of code that all backends share use it. A build with fault
//! points, which is for tests on this machine, leaves out the machine code of AVX-512 if the CPU
//! has none, which saves two fifths of the compiler's time. The compiler still checks the source.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(vectors)");
    println!("cargo::rustc-check-cfg=cfg(avx512)");
    let is_x86_64 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    if is_x86_64 && env::var_os("CARGO_CFG_PORTABLE").is_none() {
        println!("cargo::rustc-cfg=vectors");
        if env::var_os("CARGO_FEATURE_FAULT_INJECTION").is_none() || this_cpu_has_avx512() {
            println!("cargo::rustc-cfg=avx512");
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn this_cpu_has_avx512() -> bool {
    std::is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn this_cpu_has_avx512() -> bool {
    false
}
