//! The parameter sets of ML-DSA (FIPS 204, section 4), their lengths, and the working memory of a
//! batch.

use core::fmt;

use crate::arena::Memory;
use crate::secret::secret_bytes;
use crate::simd::words16::{COEFFICIENTS, Polynomial};
use crate::simd::words32::{LongPolynomial, Q};

/// A parameter set (section 4).
///
/// Within this module a set is given by its K and L: the rows and the columns of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterSet {
    /// ML-DSA-44.
    MlDsa44,
    /// ML-DSA-65.
    MlDsa65,
    /// ML-DSA-87.
    MlDsa87,
}

impl ParameterSet {
    /// Every parameter set.
    pub const ALL: [ParameterSet; 3] = [Self::MlDsa44, Self::MlDsa65, Self::MlDsa87];

    pub(super) const fn k_and_l(self) -> (usize, usize) {
        match self {
            ParameterSet::MlDsa44 => (4, 4),
            ParameterSet::MlDsa65 => (6, 5),
            ParameterSet::MlDsa87 => (8, 7),
        }
    }

    /// Returns the number of bytes of a public key.
    pub const fn public_key_bytes(self) -> usize {
        let (k, _) = self.k_and_l();
        32 + k * length(10)
    }

    /// Returns the number of bytes of an expanded private key, which is not a seed.
    pub const fn private_key_bytes(self) -> usize {
        let (k, l) = self.k_and_l();
        32 + 32 + 64 + (k + l) * length(small_bits(k)) + k * length(13)
    }

    /// Returns the number of bytes of a signature.
    pub const fn signature_bytes(self) -> usize {
        let (k, l) = self.k_and_l();
        let (_, hints) = places(k, l);
        hints + omega(k) + k
    }
}

/// Returns the largest absolute value of a coefficient of a secret polynomial (η).
pub(super) const fn eta(k: usize) -> i32 {
    if k == 6 { 4 } else { 2 }
}

/// Returns the number of coefficients of a challenge that are not zero (τ).
pub(super) const fn tau(k: usize) -> usize {
    match k {
        4 => 39,
        6 => 49,
        _ => 60,
    }
}

/// Returns the largest absolute value of a coefficient of a secret polynomial times a challenge
/// (β).
pub(super) const fn beta(k: usize) -> i32 {
    tau(k) as i32 * eta(k)
}

/// Returns the number of bits of a coefficient of a mask.
pub(super) const fn mask_bits(k: usize) -> usize {
    if k == 4 { 18 } else { 20 }
}

/// Returns the largest coefficient of a mask (γ₁).
pub(super) const fn gamma_1(k: usize) -> i32 {
    1 << (mask_bits(k) - 1)
}

/// Returns the largest lower part of a commitment (γ₂).
pub(super) const fn gamma_2(k: usize) -> i32 {
    if k == 4 { (Q - 1) / 88 } else { (Q - 1) / 32 }
}

/// Returns the number of bits of a higher part.
pub(super) const fn high_bits(k: usize) -> usize {
    if k == 4 { 6 } else { 4 }
}

/// Returns the maximum number of hints in a signature (ω).
pub(super) const fn omega(k: usize) -> usize {
    match k {
        4 => 80,
        6 => 55,
        _ => 75,
    }
}

/// Returns the number of bytes of the hash of a commitment (λ/4).
pub(super) const fn challenge_bytes(k: usize) -> usize {
    8 * k
}

/// Returns the number of bytes of a commitment.
pub(super) const fn commitment_bytes(k: usize) -> usize {
    k * length(high_bits(k))
}

/// Returns the number of bytes of a polynomial of a response.
pub(super) const fn response_bytes(k: usize) -> usize {
    length(mask_bits(k))
}

/// Number of bytes of the longest signature, in whole cache lines.
pub(super) const LONGEST_SIGNATURE: usize = 4672;

const _: () = assert!(ParameterSet::MlDsa87.signature_bytes() <= LONGEST_SIGNATURE);

/// Number of rows of the largest matrix.
pub(super) const MOST_ROWS: usize = 8;

/// Maximum number of requests that are computed together.
pub(super) const GROUP: usize = 8;

/// 32 bytes, the length of all seeds.
pub(super) type Bytes = [u8; 32];

/// 64 bytes, the length of most hashes.
pub(super) type Hash = [u8; 64];

secret_bytes!(
    /// The seed of a key pair: 32 uniformly random bytes.
    Seed, 32
);
secret_bytes!(
    /// The randomness of a signature: 32 uniformly random bytes, or zeros for a deterministic
    /// signature.
    Randomness, 32
);

/// Returns the number of bytes of a polynomial with `bits` bits for each coefficient.
pub(super) const fn length(bits: usize) -> usize {
    COEFFICIENTS * bits / 8
}

/// Returns the number of bits of a coefficient of a secret polynomial.
pub(super) const fn small_bits(k: usize) -> usize {
    if eta(k) == 4 { 4 } else { 3 }
}

/// Returns the places where the response and the hints of a signature begin.
pub(super) const fn places(k: usize, l: usize) -> (usize, usize) {
    let response = challenge_bytes(k);
    (response, response + l * response_bytes(k))
}

/// Number of bytes of a polynomial of a mask before it is unpacked: five blocks, in whole cache
/// lines.
pub(super) const MASK: usize = 704;

/// The working memory of batches of one parameter set. Allocated once; wiped after every batch.
pub struct Scratch {
    pub(super) memory: Memory,
    pub(super) set: ParameterSet,
}

impl Scratch {
    /// Allocates the memory. Returns `None` if that fails.
    pub fn try_new(set: ParameterSet) -> Option<Self> {
        let (k, l) = set.k_and_l();
        let bytes = signing_bytes(k, l).max(verifying_bytes(k, l));
        let memory = Memory::try_new(bytes)?;
        Some(Self { memory, set })
    }

    /// Returns the parameter set of the batches.
    pub fn set(&self) -> ParameterSet {
        self.set
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// Returns the number of bytes for signing: the rounds computed side by side, and their shared
/// memory.
pub(super) const fn signing_bytes(k: usize, l: usize) -> usize {
    let round = l * MASK + k * size_of::<LongPolynomial>() + 1024;
    let work = (l + 2) * size_of::<LongPolynomial>() + 3 * size_of::<Polynomial>();
    GROUP * round + work + LONGEST_SIGNATURE
}

/// Returns the number of bytes for verification.
pub(super) const fn verifying_bytes(k: usize, l: usize) -> usize {
    (l + 1 + k) * size_of::<LongPolynomial>() + GROUP * 1024
}
