//! X25519 and Ed25519, one request in each lane.

mod batch;
mod check;
mod comb;
mod convert;
pub mod ed25519;
mod edwards;
mod field;
mod ladder;
mod lanes;
mod scalar;
pub mod x25519;
