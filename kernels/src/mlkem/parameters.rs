//! The parameter sets of ML-KEM (FIPS 203, section 8) and their lengths.

use crate::simd::words16::COEFFICIENTS;

/// A parameter set.
///
/// Within this module a set is given by its K: the number of polynomials in a vector, and in a row
/// of the matrix.
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
    /// Every parameter set.
    pub const ALL: [ParameterSet; 3] = [Self::MlKem512, Self::MlKem768, Self::MlKem1024];

    /// Returns the number of polynomials in a vector.
    pub(super) const fn k(self) -> usize {
        match self {
            ParameterSet::MlKem512 => 2,
            ParameterSet::MlKem768 => 3,
            ParameterSet::MlKem1024 => 4,
        }
    }

    /// Returns the number of bytes of a public key, which FIPS 203 calls the encapsulation key.
    pub const fn public_key_bytes(self) -> usize {
        public_key(self.k())
    }

    /// Returns the number of bytes of a secret key, which FIPS 203 calls the decapsulation key: the
    /// transformed secret, the public key, its hash, and the secret that answers an invalid
    /// ciphertext.
    pub const fn secret_key_bytes(self) -> usize {
        vector(self.k()) + public_key(self.k()) + 32 + 32
    }

    /// Returns the number of bytes of a ciphertext.
    pub const fn ciphertext_bytes(self) -> usize {
        ciphertext(self.k())
    }
}

/// The largest K.
pub(super) const MOST: usize = 4;

/// Returns the number of bits to which the coefficients of the first part of a ciphertext are
/// compressed.
pub(super) const fn u_bits(k: usize) -> usize {
    if k == 4 { 11 } else { 10 }
}

/// Returns the number of bits for the second part.
pub(super) const fn v_bits(k: usize) -> usize {
    if k == 4 { 5 } else { 4 }
}

/// Returns whether a secret, and the noise of a public key, have coefficients up to three (η₁ = 3).
pub(super) const fn is_wide(k: usize) -> bool {
    k == 2
}

/// Returns the number of bytes of a vector of K transforms.
pub(super) const fn vector(k: usize) -> usize {
    k * length(12)
}

pub(super) const fn public_key(k: usize) -> usize {
    vector(k) + 32
}

pub(super) const fn ciphertext(k: usize) -> usize {
    k * length(u_bits(k)) + length(v_bits(k))
}

/// Number of bytes of the longest ciphertext.
pub(super) const LONGEST_CIPHERTEXT: usize = ciphertext(MOST);

/// Number of bytes of a shared secret, and of its coins.
pub const SHARED_SECRET: usize = 32;
/// Number of bytes of the seed of a key pair.
pub const SEED: usize = 64;

/// Returns the number of bytes of a polynomial with `bits` bits for each coefficient.
pub(super) const fn length(bits: usize) -> usize {
    COEFFICIENTS * bits / 8
}

/// 32 bytes, the length of all seeds, messages and hashes.
pub(super) type Bytes = [u8; 32];
