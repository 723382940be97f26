//! The judge of all answers.

use lockstep::{ToVerify, Workers};
use lockstep_common::Failure;
use openssl::derive::Deriver;
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey, Private, Public};
use openssl::sign::Verifier;

use super::agreement::Agreement;
use super::data::{Algorithm, Data, Kind};
use super::ecdsa::{Group, digest, of_fixed};

/// Judges answers: by libcrypto, except for ML-DSA, which it may lack.
pub struct Checker<'a> {
    data: &'a Data,
    key: CheckingKey,
}

enum CheckingKey {
    /// The answers are verdicts, or the library judges.
    None,
    Public(PKey<Public>),
    Private(PKey<Private>),
}

impl<'a> Checker<'a> {
    pub fn new(data: &'a Data) -> Result<Checker<'a>, Failure> {
        let key = checking_key(data)
            .map_err(|error| Failure::new(format!("libcrypto cannot read a key: {error}")))?;
        Ok(Checker { data, key })
    }

    /// Whether an answer is right.
    pub fn accepts(&self, item: usize, answer: &[u8]) -> Result<(), &'static str> {
        let is_right = match self.data.operation.verifies() {
            true => Ok(answer.is_empty()),
            false => self.is_right(item, answer),
        };
        match is_right {
            Ok(true) => Ok(()),
            _ => Err("the result is wrong"),
        }
    }

    fn is_right(&self, item: usize, answer: &[u8]) -> Result<bool, ErrorStack> {
        let message = self.data.message(item);
        match (&self.key, self.data.operation.algorithm) {
            (CheckingKey::Private(own), algorithm) => {
                let peer = Agreement::of(algorithm)?.peer(self.data.public(item))?;
                let mut deriver = Deriver::new(own)?;
                deriver.set_peer(&peer)?;
                Ok(deriver.derive_to_vec()? == answer)
            }
            (CheckingKey::Public(key), Algorithm::P256 | Algorithm::P384) => {
                let digest = digest(self.data.operation.algorithm, message);
                let signature = match answer.len() {
                    64 | 96 => of_fixed(answer)?,
                    _ => EcdsaSig::from_der(answer)?,
                };
                signature.verify(&digest, key.ec_key()?.as_ref())
            }
            (CheckingKey::Public(key), Algorithm::Ed25519) => {
                Verifier::new_without_digest(key)?.verify_oneshot(answer, message)
            }
            (CheckingKey::Public(key), _) => {
                Verifier::new(MessageDigest::sha256(), key)?.verify_oneshot(answer, message)
            }
            (CheckingKey::None, _) => {
                let Ok(key) = self.data.public_key(self.data.own()) else {
                    return Ok(false);
                };
                let item = ToVerify::new(&key, message, answer);
                let verdicts = Workers::new().verify_many(self.data.operation.scheme(), &[item]);
                Ok(matches!(verdicts.as_deref(), Ok([Ok(())])))
            }
        }
    }
}

fn checking_key(data: &Data) -> Result<CheckingKey, ErrorStack> {
    if data.operation.verifies() {
        return Ok(CheckingKey::None);
    }
    let own = data.own();
    if data.operation.kind == Kind::Agree {
        let agreement = Agreement::of(data.operation.algorithm)?;
        return agreement.own(own).map(CheckingKey::Private);
    }
    Ok(match data.operation.algorithm {
        Algorithm::P256 | Algorithm::P384 => CheckingKey::Public(PKey::from_ec_key(
            Group::new(data.operation.algorithm)?.key(&own.public)?,
        )?),
        Algorithm::Ed25519 => {
            CheckingKey::Public(PKey::public_key_from_raw_bytes(&own.public, Id::ED25519)?)
        }
        Algorithm::Rsa2048 | Algorithm::Rsa4096 => {
            CheckingKey::Public(PKey::public_key_from_der(&own.public)?)
        }
        // The library itself: others judge what it verifies. X25519 agrees alone.
        Algorithm::MlDsa44 | Algorithm::X25519 => CheckingKey::None,
    })
}
