//! Configurations of OpenSSL, read and loaded by libcrypto itself.
//!
//! [`File`] is a configuration file as libcrypto's parser reads it: with the files that it
//! includes, with variables expanded, and with sections of one name as one section. [`Context`] is
//! a library context with a configuration in force; it answers questions that the text alone leaves
//! open. [`installed()`] returns the version of libcrypto.
//!
//! The crate opens the newest libcrypto that is installed, at the first use: a program that is
//! linked to one version would not start on a system with another. All `unsafe` that this needs is
//! in this crate.

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
