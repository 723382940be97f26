//! The part of OpenSSL's C interface that the module uses, written by hand.
//!
//! Identifiers and struct layouts follow `openssl/core.h`, `openssl/core_dispatch.h`,
//! `openssl/rsa.h`, `openssl/ec.h` and `openssl/async.h`; they are ABI-stable from OpenSSL 3.0 on.
//! A test has the C compiler compare them with the headers.

mod arguments;
mod buffers;
mod convert;
mod decoding;
mod dispatch;
mod errors;
#[cfg(test)]
mod headers;
mod list;
pub mod name;
mod objects;
mod operations;
mod owned;
mod params;
mod pointers;
mod symbols;
mod types;

pub use arguments::*;
pub use buffers::*;
pub use convert::*;
pub use decoding::*;
pub use dispatch::*;
pub use errors::*;
pub use list::*;
pub use objects::*;
pub use operations::*;
pub use owned::*;
pub use params::*;
pub use pointers::*;
pub use symbols::*;
pub use types::*;
