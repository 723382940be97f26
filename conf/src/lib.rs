//! Configurations of OpenSSL, read and loaded by libcrypto itself.
//!
//! [`File`] holds what libcrypto's parser makes of a configuration file: files that it includes are
//! part of it, variables are expanded, and sections of one name are one section. [`Context`] is a
//! library context with a configuration in force; it answers what the text alone does not tell.
//!
//! The command uses both. All `unsafe` that they need is in this crate.

use std::ptr::null;

mod context;
mod error;
mod ffi;
mod file;

pub use context::Context;
pub use error::Error;
pub use file::{File, Line};

/// Has libcrypto start without the configuration that the environment names: what is wrong with
/// that one is what is to be found out.
fn start() {
    // SAFETY: no settings; it may be called any number of times.
    unsafe { ffi::OPENSSL_init_crypto(ffi::INIT_NO_LOAD_CONFIG, null()) };
}
