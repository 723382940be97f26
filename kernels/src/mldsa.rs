//! ML-DSA (FIPS 204): signatures, several requests at once, each of which is verified before it
//! leaves.
//!
//! Keccak runs in lanes; polynomials lie along vectors of words of 32 bits. A private key is
//! [prepared](PrivateKey) once: its matrix is expanded, its secret polynomials are transformed.
//!
//! A signature takes rounds, most of which are rejected: four to five on average. So rounds of
//! several requests are computed side by side, and several rounds of a request where there are few
//! requests. The result is always that of the first round that passes, as if they had been computed
//! one by one.
//!
//! How many rounds there are and which check rejects one may show in the time: both are independent
//! of the key, as FIPS 204's security proof has it. All else about secrets does not.

mod arithmetic;
mod coding;
mod hashing;
mod key;
mod lanes;
mod message;
mod parameters;
#[cfg(feature = "internals")]
pub(crate) mod proved;
mod sign;
#[cfg(test)]
mod tests;
mod verify;

pub use key::{KeyError, PrivateKey, PublicKey, generate};
pub use message::{Message, Mu, hash};
pub use parameters::{ParameterSet, Randomness, Scratch, Seed};
pub use sign::{SignError, SignJob, sign};
pub use verify::{Signature, VerifyJob, verify};
