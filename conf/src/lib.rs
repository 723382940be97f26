//! Configurations of OpenSSL, read and loaded by libcrypto itself.
//!
//! [`File`] holds what libcrypto's parser makes of a configuration file: files that it includes are
//! part of it, variables are expanded, and sections of one name are one section. [`Context`] is a
//! library context with a configuration in force; it answers what the text alone does not show.
//! [`installed()`] tells the version of that libcrypto.
//!
//! The libcrypto is the newest that is installed, opened when it is first asked for: a program
//! that was linked to one would not start where there is another. All `unsafe` that this needs
//! is in this crate.

#![allow(unsafe_code, reason = "calls of libcrypto")]

mod context;
mod error;
mod ffi;
mod file;
mod installed;
mod queue;

pub use context::Context;
pub use error::Error;
pub use file::{File, Line};
pub use installed::{Installed, installed};
