//! The parameters of ML-KEM-768 (FIPS 203, section 8), and the lengths that follow from them.

use crate::simd::words16::COEFFICIENTS;

/// Polynomials of a vector, and of a row of the matrix.
pub(super) const K: usize = 3;
/// Bits to which the coefficients of both parts of a ciphertext are compressed.
pub(super) const U_BITS: usize = 10;
pub(super) const V_BITS: usize = 4;

/// Bytes of a vector of K transforms.
pub(super) const VECTOR: usize = K * length(12);

/// Bytes of a public key, which FIPS 203 calls the encapsulation key.
pub const PUBLIC_KEY: usize = VECTOR + 32;
/// Bytes of a secret key, which FIPS 203 calls the decapsulation key: the transformed secret, the
/// public key, its hash, and what answers a ciphertext that is rejected.
pub const SECRET_KEY: usize = VECTOR + PUBLIC_KEY + 32 + 32;
/// Bytes of a ciphertext.
pub const CIPHERTEXT: usize = K * length(U_BITS) + length(V_BITS);
/// Bytes of a shared secret, and of the coins that it is made of.
pub const SHARED_SECRET: usize = 32;
/// Bytes that a key pair is made of.
pub const SEED: usize = 64;

/// Bytes of a polynomial with `bits` bits for each coefficient.
pub(super) const fn length(bits: usize) -> usize {
    COEFFICIENTS * bits / 8
}

/// An encapsulation key.
pub type PublicKey = [u8; PUBLIC_KEY];

/// A ciphertext.
pub type Ciphertext = [u8; CIPHERTEXT];

/// 32 bytes, as all seeds, messages and hashes have.
pub(super) type Bytes = [u8; 32];
