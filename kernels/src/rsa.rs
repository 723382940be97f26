//! RSA private operations on lanes: blinded, by Chinese remainders, and checked.
//!
//! A batch runs in [`private_batch`].
#![doc = include_str!("../../docs/design/rsa.md")]

mod blinding;
mod job;
mod key;
mod modulus;
mod on_words;
mod private;
#[cfg(vectors)]
mod race;
mod schedule;
mod size;
mod verify;

pub use blinding::Blinding;
pub use job::{JobError, PrivateJob};
pub use key::{Components, PrivateKey, PublicKey, Unsupported};
#[cfg(feature = "parts")]
pub use private::bench;
#[cfg(feature = "proofs")]
pub(crate) use private::proved;
pub use private::{BATCH, Scratch, private_batch, verified};
pub use size::Size;
pub use verify::{Signature, Verified};

pub use crate::schedule::Schedule;
