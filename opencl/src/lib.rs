//! Public-key operations on whole arrays, computed by a device of OpenCL: a GPU, or a CPU by PoCL.
//!
//! A [`Device`] takes an array of numbers in one call, and returns as many. It knows no keys, no
//! padding and no verdicts; it draws no randomness. Its caller checks the results.
//!
//! The loader of OpenCL is found when the first device is asked for. Without one, and for every
//! other reason why a device cannot be used, there is an [`Error`] of one line.
//!
//! # Secrets
//!
//! Kernels that see secrets take the same steps for all values: windows of a fixed length, tables
//! that are read whole, no branch and no address that depends on a secret. The compiler of the
//! driver may change that, and no tool shows whether it does. All buffers of a piece of work are
//! overwritten with zeros before its results are returned, and an [`RsaKey`] when it is dropped. A
//! device that does not answer keeps its buffers.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "calls of functions that the loader has")]
mod api;
mod curves;
#[allow(unsafe_code, reason = "the device is one that OpenCL has listed")]
mod device;
mod error;
mod kind;
#[allow(
    unsafe_code,
    reason = "objects of OpenCL, and the rules of their functions"
)]
mod object;
#[cfg(feature = "fault-injection")]
mod planted;
mod rsa;
#[allow(unsafe_code, reason = "memory that a device reads and writes")]
mod run;
mod words;

pub use api::is_loaded;
pub use curves::{Ed25519Claim, P256Claim, P256ToSign};
pub use device::{Description, Device, devices};
pub use error::Error;
pub use kind::Kind;
#[cfg(feature = "fault-injection")]
pub use planted::Plan;
pub use rsa::{PrivateParts, PublicParts, RsaKey};
