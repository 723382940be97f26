//! Tools that look at the release module from outside, by ptrace.
//!
//! `lockstep-trace` runs a program with one secret and with another, records the module's
//! instructions one by one, and compares the addresses of all instructions and of all data that
//! they touch. Equal sequences mean that neither a branch nor an index depends on the secret.
//! [`trace`] records, [`translate`] makes that fast, and [`world`] makes runs repeat.
//!
//! The crate depends on no other crate of the workspace.

pub mod ptrace;
pub mod symbols;
pub mod trace;
pub mod translate;
pub mod world;
