//! Names the shared library as programs find it.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblockstep.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
