//! Kinds of keys.

pub use lockstep_kernels::mldsa::ParameterSet as MlDsa;
use lockstep_kernels::mlkem::ParameterSet;
use lockstep_kernels::nist;

/// A curve of FIPS 186-5 for which there are kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// P-256 (secp256r1, prime256v1).
    P256,
    /// P-384 (secp384r1).
    P384,
}

impl Curve {
    /// Both curves.
    pub const ALL: [Curve; 2] = [Curve::P256, Curve::P384];

    /// Returns the length of a scalar and of a coordinate, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Curve::P256 => nist::p256::BYTES,
            Curve::P384 => nist::p384::BYTES,
        }
    }
}

/// Kind of a key pair: the operation that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// X25519.
    X25519,
    /// ECDH or ECDSA on this curve.
    Nist(Curve),
    /// Key encapsulation.
    Kem(Kem),
}

impl KeyKind {
    /// Every kind.
    pub const ALL: [KeyKind; 9] = [
        KeyKind::X25519,
        KeyKind::Nist(Curve::P256),
        KeyKind::Nist(Curve::P384),
        KeyKind::Kem(Kem::MlKem512),
        KeyKind::Kem(Kem::MlKem768),
        KeyKind::Kem(Kem::MlKem1024),
        KeyKind::Kem(Kem::X25519MlKem768),
        KeyKind::Kem(Kem::SecP256r1MlKem768),
        KeyKind::Kem(Kem::SecP384r1MlKem1024),
    ];

    /// Returns the place of this kind in [`ALL`](Self::ALL).
    pub(crate) fn index(self) -> usize {
        match self {
            KeyKind::X25519 => 0,
            KeyKind::Nist(curve) => 1 + curve as usize,
            KeyKind::Kem(kem) => 1 + Curve::ALL.len() + kem as usize,
        }
    }
}

/// A key encapsulation mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kem {
    /// ML-KEM-512 (FIPS 203).
    MlKem512,
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
    /// ML-KEM-768, then X25519.
    X25519MlKem768,
    /// ECDH on P-256, then ML-KEM-768.
    SecP256r1MlKem768,
    /// ECDH on P-384, then ML-KEM-1024.
    SecP384r1MlKem1024,
}

impl Kem {
    /// Every mechanism.
    pub const ALL: [Kem; 6] = [
        Kem::MlKem512,
        Kem::MlKem768,
        Kem::MlKem1024,
        Kem::X25519MlKem768,
        Kem::SecP256r1MlKem768,
        Kem::SecP384r1MlKem1024,
    ];

    /// Returns the curve beside ML-KEM, if there is one.
    pub const fn curve(self) -> Option<KeyKind> {
        match self {
            Kem::MlKem512 | Kem::MlKem768 | Kem::MlKem1024 => None,
            Kem::X25519MlKem768 => Some(KeyKind::X25519),
            Kem::SecP256r1MlKem768 => Some(KeyKind::Nist(Curve::P256)),
            Kem::SecP384r1MlKem1024 => Some(KeyKind::Nist(Curve::P384)),
        }
    }

    /// Returns the parameter set of its ML-KEM.
    pub const fn parameter_set(self) -> ParameterSet {
        match self {
            Kem::MlKem512 => ParameterSet::MlKem512,
            Kem::MlKem768 | Kem::X25519MlKem768 | Kem::SecP256r1MlKem768 => ParameterSet::MlKem768,
            Kem::MlKem1024 | Kem::SecP384r1MlKem1024 => ParameterSet::MlKem1024,
        }
    }

    /// Returns whether a curve is beside ML-KEM.
    pub const fn is_hybrid(self) -> bool {
        self.curve().is_some()
    }
}
