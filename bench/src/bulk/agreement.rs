//! Keys that agree on secrets, as libcrypto takes them.

use openssl::bn::BigNum;
use openssl::ec::EcKey;
use openssl::error::ErrorStack;
use openssl::pkey::{Id, PKey, Private, Public};

use super::data::{Algorithm, Pair};
use super::ecdsa::Group;

/// A kind of key agreement.
pub enum Agreement {
    X25519,
    Ecdh(Group),
}

impl Agreement {
    pub fn of(algorithm: Algorithm) -> Result<Agreement, ErrorStack> {
        match algorithm {
            Algorithm::P256 | Algorithm::P384 => Group::new(algorithm).map(Agreement::Ecdh),
            _ => Ok(Agreement::X25519),
        }
    }

    /// Reads the public key of the other side. A point is on its curve.
    pub fn peer(&self, public: &[u8]) -> Result<PKey<Public>, ErrorStack> {
        match self {
            Agreement::X25519 => PKey::public_key_from_raw_bytes(public, Id::X25519),
            Agreement::Ecdh(group) => PKey::from_ec_key(group.key(public)?),
        }
    }

    /// Reads the own key.
    pub fn own(&self, own: &Pair) -> Result<PKey<Private>, ErrorStack> {
        match self {
            Agreement::X25519 => PKey::private_key_from_raw_bytes(&own.secret, Id::X25519),
            Agreement::Ecdh(group) => {
                let public = group.key(&own.public)?;
                let scalar = BigNum::from_slice(&own.secret)?;
                let point = public.public_key();
                PKey::from_ec_key(EcKey::from_private_components(
                    group.inner(),
                    &scalar,
                    point,
                )?)
            }
        }
    }
}
