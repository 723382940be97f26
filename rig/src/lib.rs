//! Tools that look at the release module from outside, by ptrace.
//!
//! `lockstep-trace` runs a program with one secret and with another, has it write down what the
//! module does instruction by instruction, and compares the addresses of all instructions and of
//! all data they touch. Equal sequences mean that neither a branch nor an index depends on the
//! secret.

pub mod ptrace;
pub mod symbols;
pub mod trace;
pub mod translate;
pub mod world;
