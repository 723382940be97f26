//! Public-key arithmetic in lockstep on vector lanes, and AES-GCM on vectors of blocks.
//!
//! This crate owns no thread and no randomness, and no memory but tables, prepared keys and the
//! working memory of a batch; the latter two lie in `lockstep-vault`. It looks at a clock for one
//! purpose, the race of RSA's schedules. It knows nothing of OpenSSL. It is the only one with SIMD
//! code. Algorithms are written once over a small lane trait; the exported functions are concrete,
//! so that no other crate's compiler flags can change the code. RSA has code for one number in
//! ordinary registers, too (`words`), for CPUs whose lanes have no multiply for long limbs.

#![deny(unsafe_code)]

pub mod aes_gcm;
#[allow(unsafe_code, reason = "typed pieces of one block of memory")]
mod arena;
pub mod backend;
pub mod curve25519;
pub mod fault;
#[cfg(feature = "internals")]
#[allow(unsafe_code, reason = "assembly that takes a known time")]
pub mod gauge;
pub mod hmac;
#[allow(unsafe_code, reason = "bytes that are read and written in one place")]
mod in_out;
mod keccak;
mod layout;
pub mod mlkem;
mod modexp;
mod modular;
mod montgomery;
pub mod nacl;
pub mod nist;
mod order;
pub mod rsa;
mod schedule;
mod secret;
mod sha512;
#[allow(unsafe_code, reason = "intrinsics, and vectors seen as words")]
mod simd;
#[allow(unsafe_code, reason = "calls of the sanitizer, in its build only")]
mod taint;
mod unroll;
#[allow(unsafe_code, reason = "assembly, and features that a value proves")]
mod words;

pub use in_out::InOut;
pub use secret::wipe;
pub use simd::registers::clear_registers;
