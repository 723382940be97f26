//! Sets the condition `vectors`: the kernels have backends with vector instructions.
//!
//! That is so on x86-64, but for a build with `--cfg portable` in RUSTFLAGS, which takes a fifth of
//! the time: checks of what all backends have in common use it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(vectors)");
    let is_x86_64 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    if is_x86_64 && std::env::var_os("CARGO_CFG_PORTABLE").is_none() {
        println!("cargo::rustc-cfg=vectors");
    }
}
