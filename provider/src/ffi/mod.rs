//! The part of OpenSSL's C interface that the module uses, written by hand.
//!
//! Identifiers and struct layouts are those of `openssl/core.h`, `openssl/core_dispatch.h`,
//! `openssl/rsa.h`, `openssl/ec.h` and `openssl/async.h`; they are ABI-stable from OpenSSL 3.0 on.

mod dispatch;
mod symbols;
mod types;

pub use dispatch::*;
pub use symbols::*;
pub use types::*;
