//! The operations that devices have.

use std::fmt;

/// An operation that devices have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// s^e mod n, with a modulus of this number of bits.
    RsaPublic(usize),
    /// c^d mod n, with a modulus of this number of bits.
    RsaPrivate(usize),
    /// An agreement by X25519.
    X25519,
    /// A check of an Ed25519 signature.
    Ed25519Verify,
    /// A check of an ECDSA signature on P-256.
    P256Verify,
    /// An ECDSA signature on P-256.
    P256Sign,
}

impl Kind {
    /// Returns the maximum number of bytes of an item on the device.
    pub(crate) fn bytes_of_item(self) -> u64 {
        match self {
            Kind::RsaPublic(bits) => bits as u64,
            // Two tables of sixteen numbers of half the length, and as much again for the rest.
            Kind::RsaPrivate(bits) => 3 * bits as u64,
            Kind::X25519 | Kind::P256Sign => 256,
            Kind::Ed25519Verify | Kind::P256Verify => 2560,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::RsaPublic(bits) => write!(f, "rsa{bits}-verify"),
            Kind::RsaPrivate(bits) => write!(f, "rsa{bits}-sign"),
            Kind::X25519 => f.write_str("x25519"),
            Kind::Ed25519Verify => f.write_str("ed25519-verify"),
            Kind::P256Verify => f.write_str("p256-verify"),
            Kind::P256Sign => f.write_str("p256-sign"),
        }
    }
}
