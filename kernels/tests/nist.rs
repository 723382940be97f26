//! P-256 and P-384 against published vectors and independent crates, in every lane, at every fill.

#[path = "common/batches.rs"]
mod batches;

mod nist {
    mod common;
    mod compressed;
    mod differential;
    mod inputs;
    mod nonces;
    mod prepared;
    mod rfc6979;
    mod wycheproof;
}
