//! Keys, digests and signatures of ECDSA, as libcrypto takes them.

use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey, EcPoint};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::pkey::Public;
use openssl::sha;

use super::data::Algorithm;

/// A curve of ECDSA.
pub struct Group(EcGroup);

impl Group {
    pub fn new(algorithm: Algorithm) -> Result<Group, ErrorStack> {
        let name = match algorithm {
            Algorithm::P384 => Nid::SECP384R1,
            _ => Nid::X9_62_PRIME256V1,
        };
        EcGroup::from_curve_name(name).map(Group)
    }

    pub fn inner(&self) -> &EcGroup {
        &self.0
    }

    /// The key of a point.
    pub fn key(&self, public: &[u8]) -> Result<EcKey<Public>, ErrorStack> {
        let mut context = BigNumContext::new()?;
        let point = EcPoint::from_bytes(&self.0, public, &mut context)?;
        EcKey::from_public_key(&self.0, &point)
    }
}

/// The digest of a message for ECDSA on a curve.
pub fn digest(algorithm: Algorithm, message: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::P384 => sha::sha384(message).to_vec(),
        _ => sha::sha256(message).to_vec(),
    }
}

/// Reads r and s of fixed length.
pub fn of_fixed(signature: &[u8]) -> Result<EcdsaSig, ErrorStack> {
    let (r, s) = signature.split_at(signature.len() / 2);
    EcdsaSig::from_private_components(BigNum::from_slice(r)?, BigNum::from_slice(s)?)
}
