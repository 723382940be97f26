//! The key daemon, seen from a program: files that name its keys, and requests to it.

pub mod clock;
pub mod connection;
pub mod decoder;
pub mod key;
pub mod reference;
mod way;
