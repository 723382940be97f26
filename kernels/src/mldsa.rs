//! ML-DSA (FIPS 204): signatures of several requests at once, each verified before it is returned.
//!
//! Keccak runs in lanes; polynomials are stored in vectors of 32-bit words. A private key is
//! [prepared](PrivateKey) once: its matrix is expanded, its secret polynomials are transformed.
//!
//! A signature takes rounds, most of which are rejected: four to five on average. So rounds of
//! several requests are computed side by side, and several rounds of a request if there are few
//! requests. The result is always that of the first round that passes, as if the rounds had been
//! computed one by one.
//!
//! The time may depend on the number of rounds and on the check that rejects a round: both are
//! independent of the key by FIPS 204's security proof. The time depends on nothing else that is
//! secret.

mod arithmetic;
mod coding;
mod hashing;
mod key;
mod lanes;
mod message;
mod parameters;
#[cfg(feature = "proofs")]
#[path = "../../proofs/lists/mldsa.rs"]
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
