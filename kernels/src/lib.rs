//! Public-key arithmetic in lockstep on vector lanes, and AES-GCM on vectors of blocks.
//!
//! A caller takes a [`Backend`](backend::Backend), the lanes of this CPU, and passes a batch to a
//! function of one family: [`rsa`], [`nist`], [`curve25519`], [`mlkem`] or [`mldsa`]. Each request
//! of a batch has its own key and its own result; an invalid request never affects the
//! others. [`rsa::private_batch`] is the best place to start. Algorithms are written once over a
//! small lane trait. The exported functions are concrete, so that no other crate's compiler flags
//! can change the code. RSA also has code for one number in ordinary registers (`words`), for CPUs
//! whose lanes cannot multiply limbs of 52 bits.
//!
//! This is the only crate with SIMD code. It owns no thread and no randomness, and it knows nothing
//! of OpenSSL. Its only memory is tables, prepared keys and the working memory of a batch; private
//! keys and working memory are allocated by `lockstep-vault`. It reads a clock for one purpose, the
//! race of RSA's schedules.

#![deny(unsafe_code)]

pub mod aes_gcm;
#[allow(unsafe_code, reason = "typed pieces of one block of memory")]
mod arena;
pub mod backend;
pub mod curve25519;
pub mod fault;
pub mod hmac;
#[allow(unsafe_code, reason = "bytes that are read and written in one place")]
mod in_out;
mod keccak;
mod layout;
pub mod mldsa;
pub mod mlkem;
mod modexp;
mod modular;
mod montgomery;
pub mod nacl;
pub mod nist;
mod order;
#[cfg(feature = "proofs")]
#[path = "../../proofs/lists/all.rs"]
pub mod proved;
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
