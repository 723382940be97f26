//! Code that programs and the key daemon share: [references](mod@reference) to keys, their [public]
//! halves, the messages on the daemon's [socket](protocol), and the program's side of the
//! [connection], on which a thread waits or [another one watches](watch).
//!
//! A program opens a [`Connection`] to the daemon's socket, names a key, and gets its answers
//! through a ring in shared memory. The crate has no private keys.
#![forbid(unsafe_code)]

mod certificate;
pub mod connection;
pub mod failure;
pub mod protocol;
pub mod public;
pub mod reference;
mod room;
mod socket;
pub mod watch;

pub use certificate::{LABELS as CERTIFICATE_LABELS, certificate_key};
pub use connection::{Begun, Connection, Opening};
pub use failure::Failure;
pub use protocol::Operation;
pub use public::{is_ml_dsa, rsa_public};
pub use reference::{DEFAULT_SOCKET, LONGEST_NAME, Reference};
pub use socket::Mark;
