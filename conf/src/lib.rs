//! Configurations of OpenSSL, read and loaded by libcrypto itself.
//!
//! [`File`] holds what libcrypto's parser makes of a configuration file: files that it includes are
//! part of it, variables are expanded, and sections of one name are one section. [`Context`] is a
//! library context with a configuration in force; it answers what the text alone does not show.
//!
//! The command uses both. All `unsafe` that they need is in this crate.

#![allow(unsafe_code, reason = "calls of libcrypto")]

mod context;
mod error;
mod ffi;
mod file;

pub use context::Context;
pub use error::Error;
pub use file::{File, Line};
