//! What may share a batch.

use lockstep_kernels::rsa::Size;

use crate::kinds::Kem;
use crate::kinds::{Curve, KeyKind};

/// What may share a batch: requests of one shape run the same instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// RSA private operations on moduli of one size.
    Rsa {
        /// The size of the modulus.
        size: Size,
        /// Whether the public exponent has more than 64 bits: its check takes far longer, so it
        /// never shares a batch with usual keys.
        wide_exponent: bool,
    },
    /// ECDSA signatures.
    EcdsaSign(Curve),
    /// Checks of ECDSA signatures.
    EcdsaVerify(Curve),
    /// ECDH agreements.
    Ecdh(Curve),
    /// New key pairs.
    Keypair(KeyKind),
    /// X25519 agreements.
    X25519,
    /// Ed25519 signatures.
    Ed25519Sign,
    /// Checks of Ed25519 signatures.
    Ed25519Verify,
    /// Encapsulations; for a hybrid, the whole share of a server.
    Encapsulate(Kem),
    /// Decapsulations.
    Decapsulate(Kem),
}

/// All shapes of RSA come first.
const RSA: usize = 8;
/// Those of key encapsulation come last.
const KEM: usize = RSA + 12;

impl Shape {
    /// Every shape, in the order of [`index`](Self::index).
    pub const ALL: [Shape; KEM + 9] = [
        Shape::rsa(Size::Rsa1024, false),
        Shape::rsa(Size::Rsa2048, false),
        Shape::rsa(Size::Rsa3072, false),
        Shape::rsa(Size::Rsa4096, false),
        Shape::rsa(Size::Rsa1024, true),
        Shape::rsa(Size::Rsa2048, true),
        Shape::rsa(Size::Rsa3072, true),
        Shape::rsa(Size::Rsa4096, true),
        Shape::X25519,
        Shape::Keypair(KeyKind::X25519),
        Shape::Ed25519Sign,
        Shape::Ed25519Verify,
        Shape::EcdsaSign(Curve::P256),
        Shape::EcdsaVerify(Curve::P256),
        Shape::Ecdh(Curve::P256),
        Shape::Keypair(KeyKind::Nist(Curve::P256)),
        Shape::EcdsaSign(Curve::P384),
        Shape::EcdsaVerify(Curve::P384),
        Shape::Ecdh(Curve::P384),
        Shape::Keypair(KeyKind::Nist(Curve::P384)),
        Shape::Encapsulate(Kem::MlKem768),
        Shape::Encapsulate(Kem::X25519MlKem768),
        Shape::Encapsulate(Kem::SecP256r1MlKem768),
        Shape::Decapsulate(Kem::MlKem768),
        Shape::Decapsulate(Kem::X25519MlKem768),
        Shape::Decapsulate(Kem::SecP256r1MlKem768),
        Shape::Keypair(KeyKind::Kem(Kem::MlKem768)),
        Shape::Keypair(KeyKind::Kem(Kem::X25519MlKem768)),
        Shape::Keypair(KeyKind::Kem(Kem::SecP256r1MlKem768)),
    ];

    const fn rsa(size: Size, wide_exponent: bool) -> Shape {
        Shape::Rsa {
            size,
            wide_exponent,
        }
    }

    /// Whether this is an operation with an RSA key.
    pub const fn is_rsa(self) -> bool {
        matches!(self, Shape::Rsa { .. })
    }

    /// Whether this is an operation on P-256 or P-384.
    pub const fn is_nist(self) -> bool {
        use Shape::{Ecdh, EcdsaSign, EcdsaVerify, Keypair};
        matches!(
            self,
            EcdsaSign(_) | EcdsaVerify(_) | Ecdh(_) | Keypair(KeyKind::Nist(_))
        )
    }

    /// Whether this has to do with key encapsulation, which OpenSSL's own implementation may lack.
    pub const fn is_kem(self) -> bool {
        use Shape::{Decapsulate, Encapsulate, Keypair};
        matches!(
            self,
            Encapsulate(_) | Decapsulate(_) | Keypair(KeyKind::Kem(_))
        )
    }

    /// The place of this shape in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        match self {
            Shape::Rsa {
                size,
                wide_exponent,
            } => {
                let size = match size {
                    Size::Rsa1024 => 0,
                    Size::Rsa2048 => 1,
                    Size::Rsa3072 => 2,
                    Size::Rsa4096 => 3,
                };
                size + if wide_exponent { 4 } else { 0 }
            }
            Shape::X25519 => RSA,
            Shape::Keypair(KeyKind::X25519) => RSA + 1,
            Shape::Ed25519Sign => RSA + 2,
            Shape::Ed25519Verify => RSA + 3,
            Shape::EcdsaSign(curve) => Shape::nist(curve),
            Shape::EcdsaVerify(curve) => Shape::nist(curve) + 1,
            Shape::Ecdh(curve) => Shape::nist(curve) + 2,
            Shape::Keypair(KeyKind::Nist(curve)) => Shape::nist(curve) + 3,
            Shape::Encapsulate(kem) => KEM + kem.index(),
            Shape::Decapsulate(kem) => KEM + 3 + kem.index(),
            Shape::Keypair(KeyKind::Kem(kem)) => KEM + 6 + kem.index(),
        }
    }

    /// The first place of a curve.
    const fn nist(curve: Curve) -> usize {
        match curve {
            Curve::P256 => RSA + 4,
            Curve::P384 => RSA + 8,
        }
    }

    /// The key of this shape in the metrics. For the curves `lockstep-bench speed` has the same
    /// names.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; Shape::ALL.len()] = [
            "rsa1024",
            "rsa2048",
            "rsa3072",
            "rsa4096",
            "rsa1024_wide_exponent",
            "rsa2048_wide_exponent",
            "rsa3072_wide_exponent",
            "rsa4096_wide_exponent",
            "x25519",
            "x25519-keygen",
            "ed25519-sign",
            "ed25519-verify",
            "p256-sign",
            "p256-verify",
            "p256-ecdh",
            "p256-keygen",
            "p384-sign",
            "p384-verify",
            "p384-ecdh",
            "p384-keygen",
            "mlkem768-encaps",
            "x25519mlkem768-server",
            "secp256r1mlkem768-server",
            "mlkem768-decaps",
            "x25519mlkem768-client",
            "secp256r1mlkem768-client",
            "mlkem768-keygen",
            "x25519mlkem768-keygen",
            "secp256r1mlkem768-keygen",
        ];
        NAMES[self.index()]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_at_its_index_and_has_a_name_of_its_own() {
        for (index, shape) in Shape::ALL.into_iter().enumerate() {
            assert_eq!(shape.index(), index, "{shape:?}");
            assert!(
                Shape::ALL[..index]
                    .iter()
                    .all(|other| other.name() != shape.name())
            );
        }
        assert_eq!(Shape::Ecdh(Curve::P384).name(), "p384-ecdh");
        assert_eq!(Shape::Keypair(KeyKind::X25519).name(), "x25519-keygen");
    }
}
