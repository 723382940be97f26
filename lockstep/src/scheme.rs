//! Signature schemes.

use std::fmt;

use lockstep_ops::{Curve, MlDsa};
use sha2::{Sha256, Sha384, Sha512};

use crate::key::Algorithm;

/// A hash function of the SHA-2 family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// Returns the length of a digest, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    /// Computes the digest of the parts, one behind the other.
    pub(crate) fn digest(self, parts: &[&[u8]]) -> Digest {
        fn of<H: sha2::Digest>(parts: &[&[u8]]) -> Digest {
            let mut hash = H::new();
            for part in parts {
                hash.update(part);
            }
            let (digest, mut bytes) = (hash.finalize(), [0; 64]);
            bytes[..digest.len()].copy_from_slice(&digest);
            let length = digest.len();
            Digest { bytes, length }
        }
        match self {
            Hash::Sha256 => of::<Sha256>(parts),
            Hash::Sha384 => of::<Sha384>(parts),
            Hash::Sha512 => of::<Sha512>(parts),
        }
    }
}

/// A digest.
pub(crate) struct Digest {
    bytes: [u8; 64],
    length: usize,
}

impl std::ops::Deref for Digest {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Encoding of an ECDSA signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// r ‖ s, big-endian, each as long as the order of the curve: JOSE, DNSSEC, COSE.
    Fixed,
    /// DER, as in X.509, TLS and WebAuthn.
    Der,
}

/// Length of the salt of RSA-PSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Salt {
    /// As long as a digest.
    Digest,
    /// This number of bytes.
    Bytes(usize),
    /// Any length when a signature is checked. A new one has the length of a digest.
    Any,
}

/// Algorithm of a scheme, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Ecdsa(Curve, Hash, Encoding),
    Ed25519,
    RsaPkcs1(Hash),
    RsaPss(Hash, Salt),
    MlDsa(MlDsa),
}

/// A signature scheme. The constants have the names of JOSE (RFC 7518, RFC 8037, RFC 9864).
///
/// # Examples
///
/// ```
/// use lockstep::Scheme;
///
/// let passkeys = Scheme::ES256.der();
/// assert_eq!(Scheme::from_name("ES256"), Some(Scheme::ES256));
/// assert_ne!(passkeys, Scheme::ES256);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scheme {
    pub(crate) kind: Kind,
    /// Whether items bring digests, not messages.
    pub(crate) is_prehashed: bool,
}

macro_rules! schemes {
    ($($(#[$about:meta])* $constant:ident $name:literal: $kind:expr;)*) => {
        impl Scheme {
            $($(#[$about])* pub const $constant: Scheme = Scheme::new($kind);)*

            /// The names of all constants, as [`from_name`](Self::from_name) takes them.
            pub const NAMES: [&str; [$($name),*].len()] = [$($name),*];

            /// Returns the constant of this name.
            pub fn from_name(name: &str) -> Option<Scheme> {
                match name {
                    $($name => Some(Scheme::$constant),)*
                    "EdDSA" => Some(Scheme::ED25519),
                    _ => None,
                }
            }
        }
    };
}

schemes! {
    /// ECDSA on P-256 with SHA-256, r ‖ s.
    ES256 "ES256": Kind::Ecdsa(Curve::P256, Hash::Sha256, Encoding::Fixed);
    /// ECDSA on P-384 with SHA-384, r ‖ s.
    ES384 "ES384": Kind::Ecdsa(Curve::P384, Hash::Sha384, Encoding::Fixed);
    /// Ed25519, without context and without prehashing. Its name in JOSE is also `EdDSA`.
    ED25519 "Ed25519": Kind::Ed25519;
    /// RSA, PKCS#1 v1.5, with SHA-256.
    RS256 "RS256": Kind::RsaPkcs1(Hash::Sha256);
    /// RSA, PKCS#1 v1.5, with SHA-384.
    RS384 "RS384": Kind::RsaPkcs1(Hash::Sha384);
    /// RSA, PKCS#1 v1.5, with SHA-512.
    RS512 "RS512": Kind::RsaPkcs1(Hash::Sha512);
    /// RSA-PSS with SHA-256 and a salt of 32 bytes.
    PS256 "PS256": Kind::RsaPss(Hash::Sha256, Salt::Digest);
    /// RSA-PSS with SHA-384 and a salt of 48 bytes.
    PS384 "PS384": Kind::RsaPss(Hash::Sha384, Salt::Digest);
    /// RSA-PSS with SHA-512 and a salt of 64 bytes.
    PS512 "PS512": Kind::RsaPss(Hash::Sha512, Salt::Digest);
    /// ML-DSA-44, with an empty context.
    ML_DSA_44 "ML-DSA-44": Kind::MlDsa(MlDsa::MlDsa44);
    /// ML-DSA-65, with an empty context.
    ML_DSA_65 "ML-DSA-65": Kind::MlDsa(MlDsa::MlDsa65);
    /// ML-DSA-87, with an empty context.
    ML_DSA_87 "ML-DSA-87": Kind::MlDsa(MlDsa::MlDsa87);
}

impl Scheme {
    const fn new(kind: Kind) -> Scheme {
        Scheme {
            kind,
            is_prehashed: false,
        }
    }

    /// Returns ECDSA with this hash, which may differ from the usual one of the curve.
    pub const fn ecdsa(curve: Curve, hash: Hash) -> Scheme {
        Scheme::new(Kind::Ecdsa(curve, hash, Encoding::Fixed))
    }

    /// Returns the same scheme with signatures in DER. It changes ECDSA alone.
    #[must_use]
    pub const fn der(self) -> Scheme {
        let kind = match self.kind {
            Kind::Ecdsa(curve, hash, _) => Kind::Ecdsa(curve, hash, Encoding::Der),
            kind => kind,
        };
        Scheme { kind, ..self }
    }

    /// Returns the same scheme with a salt of this length. It changes RSA-PSS alone.
    #[must_use]
    pub const fn salt(self, salt: Salt) -> Scheme {
        let kind = match self.kind {
            Kind::RsaPss(hash, _) => Kind::RsaPss(hash, salt),
            kind => kind,
        };
        Scheme { kind, ..self }
    }

    /// Returns the same scheme for items that bring digests of their messages: of the hash of the
    /// scheme, and μ of 64 bytes for ML-DSA. Ed25519 has no such form: a call with it is an
    /// [`Error`](crate::Error).
    #[must_use]
    pub const fn prehashed(self) -> Scheme {
        Scheme {
            is_prehashed: true,
            ..self
        }
    }

    /// Returns the algorithm of its keys.
    pub const fn algorithm(self) -> Algorithm {
        match self.kind {
            Kind::Ecdsa(Curve::P256, ..) => Algorithm::P256,
            Kind::Ecdsa(Curve::P384, ..) => Algorithm::P384,
            Kind::Ed25519 => Algorithm::Ed25519,
            Kind::RsaPkcs1(_) | Kind::RsaPss(..) => Algorithm::Rsa,
            Kind::MlDsa(set) => Algorithm::MlDsa(set),
        }
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prehashed = if self.is_prehashed { ", prehashed" } else { "" };
        write!(f, "Scheme({:?}{prehashed})", self.kind)
    }
}
