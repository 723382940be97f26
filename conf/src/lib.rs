//! Configurations of OpenSSL, read and loaded by libcrypto itself.
//!
//! [`File`] is a configuration file as libcrypto's parser reads it: with the files that it
//! includes, with variables expanded, and with sections of one name as one section. [`Context`] is
//! a library context with a configuration in force; it answers questions that the text alone leaves
//! open. [`installed()`] tells the version of that libcrypto.
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
