//! The parameter sets of ML-KEM (FIPS 203, section 8), and the lengths that follow from them.

use crate::simd::words16::COEFFICIENTS;

/// A parameter set.
///
/// Within this module a set is its K: the polynomials of a vector, and of a row of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterSet {
    /// ML-KEM-512.
    MlKem512,
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
}

impl ParameterSet {
    /// Every set.
    pub const ALL: [ParameterSet; 3] = [Self::MlKem512, Self::MlKem768, Self::MlKem1024];

    /// Polynomials of a vector.
    pub(super) const fn k(self) -> usize {
        match self {
            ParameterSet::MlKem512 => 2,
            ParameterSet::MlKem768 => 3,
            ParameterSet::MlKem1024 => 4,
        }
    }

    /// Bytes of a public key, which FIPS 203 calls the encapsulation key.
    pub const fn public_key_bytes(self) -> usize {
        public_key(self.k())
    }

    /// Bytes of a secret key, which FIPS 203 calls the decapsulation key: the transformed secret,
    /// the public key, its hash, and the answer to a ciphertext that is rejected.
    pub const fn secret_key_bytes(self) -> usize {
        vector(self.k()) + public_key(self.k()) + 32 + 32
    }

    /// Bytes of a ciphertext.
    pub const fn ciphertext_bytes(self) -> usize {
        ciphertext(self.k())
    }
}

/// The largest K.
pub(super) const MOST: usize = 4;

/// Bits to which the coefficients of the first part of a ciphertext are compressed.
pub(super) const fn u_bits(k: usize) -> usize {
    if k == 4 { 11 } else { 10 }
}

/// Bits of those of the second part.
pub(super) const fn v_bits(k: usize) -> usize {
    if k == 4 { 5 } else { 4 }
}

/// Whether a secret, and the noise of a public key, have coefficients up to three (η₁ = 3).
pub(super) const fn is_wide(k: usize) -> bool {
    k == 2
}

/// Bytes of a vector of K transforms.
pub(super) const fn vector(k: usize) -> usize {
    k * length(12)
}

pub(super) const fn public_key(k: usize) -> usize {
    vector(k) + 32
}

pub(super) const fn ciphertext(k: usize) -> usize {
    k * length(u_bits(k)) + length(v_bits(k))
}

/// Bytes of the longest ciphertext.
pub(super) const LONGEST_CIPHERTEXT: usize = ciphertext(MOST);

/// Bytes of a shared secret, and of the coins that it is made of.
pub const SHARED_SECRET: usize = 32;
/// Bytes that a key pair is made of.
pub const SEED: usize = 64;

/// Bytes of a polynomial with `bits` bits for each coefficient.
pub(super) const fn length(bits: usize) -> usize {
    COEFFICIENTS * bits / 8
}

/// 32 bytes, as all seeds, messages and hashes have.
pub(super) type Bytes = [u8; 32];
