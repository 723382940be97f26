//! What a program and the key daemon share: [references](mod@reference) to keys, what is said on
//! the daemon's [socket](protocol), and the program's side of the [connection].
#![forbid(unsafe_code)]

pub mod connection;
pub mod protocol;
pub mod reference;

pub use connection::{Connection, Failure};
pub use protocol::Operation;
pub use reference::{DEFAULT_SOCKET, LONGEST_NAME, LONGEST_SOCKET, Reference};
