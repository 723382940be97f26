//! RSA: public operations, and private operations by Chinese remainders, blinded and checked.
//!
//! A batch runs in [`private_batch`] or in [`public_batch_vartime`].
#![doc = include_str!("../../docs/design/rsa.md")]

mod blinding;
mod elsewhere;
mod job;
mod key;
mod modulus;
mod on_words;
mod private;
mod public;
#[cfg(vectors)]
mod race;
mod schedule;
mod size;
mod verify;

pub use blinding::Blinding;
pub use elsewhere::{blind_batch, unblind_batch};
pub use job::{Blinded, JobError, PrivateJob, Returned, Unblinding};
pub use key::{Components, PrivateKey, PublicKey, Unsupported};
#[cfg(feature = "parts")]
pub use private::bench;
#[cfg(feature = "proofs")]
pub(crate) use private::proved;
pub use private::{BATCH, Scratch, private_batch, verified};
pub use public::{PublicJob, public_batch_vartime};
pub use size::Size;
pub use verify::{Signature, Verified};

pub use crate::schedule::Schedule;
