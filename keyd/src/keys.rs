//! Keys: their files, their users, and their renewal.

pub mod access;
pub mod files;
pub mod helpers;
pub mod key;
pub mod keyring;
pub mod mirror;
pub mod pem;
pub mod public_blocks;
pub mod reader;
pub mod renewals;
pub mod stand_in;
pub mod trusted;
