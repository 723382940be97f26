//! How the module is linked.
//!
//! It stays mapped once it is loaded: OpenSSL, worker threads and `pthread_atfork` handlers may
//! call into it after the last `dlclose`.
//!
//! And it has the unwinder, which only backtraces use, in itself. The standard library asks for
//! `libgcc_s.so.1`, which programs in C do not have: each would map five parts more, relocate
//! them, and ask the CPU for its features, in every start.
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
    let target = env::var("CARGO_CFG_TARGET_ENV");
    if target.as_deref() == Ok("gnu") {
        let directory = env::var("OUT_DIR").expect("cargo names a directory");
        // The linker takes this file for the library, and what it names for its contents.
        let script = Path::new(&directory).join("libgcc_s.so");
        fs::write(script, "GROUP ( -lgcc_eh -lgcc )\n").expect("a file in cargo's directory");
        println!("cargo:rustc-cdylib-link-arg=-L{directory}");
    }
}
