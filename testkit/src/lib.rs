//! Helpers that the tests of several crates share: random numbers that are the same in every run
//! ([`Random`]), hexadecimal digits, RSA keys, the curve of Ed25519 in plain numbers ([`Edwards`]),
//! pieces of secrets in memory, temporary directories ([`TempDir`]), and programs run as by their
//! users.
//!
//! A dependency of tests only. It depends on no other crate of the workspace, so that each of them
//! can use it.
#![forbid(unsafe_code)]

mod directory;
mod edwards;
mod hex;
mod keys;
mod pieces;
mod program;
mod random;

pub use directory::TempDir;
pub use edwards::{Edwards, EdwardsPoint, little_endian};
pub use hex::{hex, hex_array, to_hex};
pub use keys::{RsaParts, rsa_keys};
pub use pieces::{PIECE, count_pieces};
pub use program::{Named, assert_helps, assert_refused, command, copy_program, run};
pub use random::Random;
