//! X25519 and Ed25519 against the vectors of the RFCs, Wycheproof and an independent
//! implementation, on every backend, in every lane, with valid and invalid neighbours.

#[path = "common/batches.rs"]
mod batches;

mod curve25519 {
    mod common;
    mod ed25519;
    #[cfg(feature = "fault-injection")]
    mod faults;
    mod torsion;
    mod x25519;
}
