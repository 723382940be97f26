//! X25519 and Ed25519, eight requests side by side.
//!
//! [`x25519`] agrees on secrets, [`ed25519`] signs. Every function takes a slice of jobs of any
//! length and leaves a result in every job. Jobs can have different keys, and an error in one job
//! never changes another. Only [`verify_vartime`](ed25519::verify_vartime) and
//! [`verify_prepared_vartime`](prepared::verify_prepared_vartime) may take a time that depends on
//! their operands.
#![doc = include_str!("../../docs/design/curve25519.md")]

mod batch;
pub(crate) mod batch_inverse;
mod comb;
mod convert;
pub mod ed25519;
mod edwards;
pub(crate) mod field;
mod half_size;
mod inverse;
pub(crate) mod ladder;
pub mod prepared;
#[cfg(feature = "proofs")]
#[path = "../../proofs/lists/curve25519.rs"]
pub(crate) mod proved;
pub(crate) mod scalar;
mod verify_equation;
pub mod x25519;

use core::fmt;

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The shared secret is zero: the peer's public key has a small order (RFC 7748, section 6.1).
    Zero,
    /// The public key is not the encoding of a point.
    Point,
    /// The signature does not belong to the message and the key.
    Signature,
    /// The result failed its check and is withheld.
    Fault,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Zero => "the shared secret is zero",
            Error::Point => "the public key is not a point of the curve",
            Error::Signature => "the signature is wrong",
            Error::Fault => "the computation went wrong",
        })
    }
}

impl core::error::Error for Error {}
