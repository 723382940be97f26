//! The daemon that holds keys for other processes.
//!
//! [`run`] is the daemon; `lockstep keyd` calls it. [`keyd_conf`] reads the configuration: the
//! keys, and the users of each. [`key`] reads the keys from files that are [`trusted`], and
//! [`reference_file`] makes the files that servers read in the place of a key's file. A thread
//! [accepts](clients::accept) clients at a socket and gives each client a ring in shared memory.
//! The threads of the [service](serve) take requests from all rings, and the engine's queue makes
//! batches of them, in which users take turns. The rights of a client follow from the [`access`] of
//! its user. The daemon checks each request against the client's own table of keys ([`clients`]),
//! and never trusts a client's statements about itself.
//!
//! The daemon has no OpenSSL and no `unsafe` code.
#![forbid(unsafe_code)]

mod clients;
mod fault;
pub mod keyd_conf;
mod keys;
pub mod memory;
mod serve;
mod start;
mod system;

pub use keys::keyring::report::{LeftOut, Loaded};
pub use keys::reference_dir::is_kept;
pub use keys::{Keys, access, key, public_blocks, read_keys, reader, reference_file, secrets};
pub use start::{check_user, engine, run};
pub use system::{accounts, trusted};
