//! Helpers of the tests of the NIST curves.

use lockstep_kernels::nist::{Error, SecretKey, Wide};

pub use crate::batches::{Random, every_fill, every_lane_and_fill, nist_backends};

/// Returns a hexadecimal number as big-endian bytes with leading zeros.
pub fn hex<const COUNT: usize>(digits: &str) -> [u8; COUNT] {
    from_big(&num_bigint::BigUint::parse_bytes(digits.as_bytes(), 16).expect("digits"))
}

/// Returns a number as big-endian bytes with leading zeros.
pub fn from_big<const COUNT: usize>(number: &num_bigint::BigUint) -> [u8; COUNT] {
    let bytes = number.to_bytes_be();
    let mut out = [0; COUNT];
    out[COUNT - bytes.len()..].copy_from_slice(&bytes);
    out
}

pub fn secret<const BYTES: usize>(bytes: &[u8; BYTES]) -> SecretKey<BYTES> {
    SecretKey::from_bytes(bytes)
}

pub fn wide(scalar: &[u8]) -> Wide {
    Wide::from_scalar(scalar).expect("at most 64 bytes")
}

/// Returns whether verification failed with an error that a wrong signature may cause.
pub fn refused(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Signature | Error::Point))
}
