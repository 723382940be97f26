//! Keeps the module mapped once it is loaded: OpenSSL, worker threads and `pthread_atfork` handlers
//! may call into it after the last `dlclose`.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
