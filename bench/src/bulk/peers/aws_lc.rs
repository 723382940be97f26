//! `aws-lc-rs`: AWS-LC.

use aws_lc_rs::agreement::{self, PrivateKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair,
    ML_DSA_44, ML_DSA_44_SIGNING, ParsedPublicKey, PqdsaKeyPair, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use lockstep_common::Failure;

use super::bad_key::bad_key;
use crate::bulk::candidate::Candidate;
use crate::bulk::data::{Algorithm, Data, Kind};

const NAME: &str = "aws-lc-rs";

pub fn candidate(data: &Data) -> Result<Option<Candidate<'_>>, Failure> {
    if data.operation.kind == Kind::Agree {
        return agree(data).map(Some);
    }
    let verified: &'static dyn VerificationAlgorithm = match data.operation.algorithm {
        Algorithm::P256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::P384 => &ECDSA_P384_SHA384_FIXED,
        Algorithm::Ed25519 => &ED25519,
        Algorithm::Rsa2048 | Algorithm::Rsa4096 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::MlDsa44 => &ML_DSA_44,
        Algorithm::X25519 => return Ok(None),
    };
    let candidate = match data.operation.kind {
        Kind::Sign | Kind::Agree => sign(data)?,
        Kind::Verify => Candidate::verifying(NAME, move |item| {
            let key = UnparsedPublicKey::new(verified, data.public(item));
            key.verify(data.message(item), data.signature(item)).is_ok()
        }),
        Kind::VerifyFew => {
            let keys = data.pairs().iter();
            let keys = keys.map(|pair| ParsedPublicKey::new(verified, &pair.public));
            let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(|_| bad_key(NAME))?;
            Candidate::verifying(NAME, move |item| {
                let key = &keys[data.key(item)];
                key.verify_sig(data.message(item), data.signature(item))
                    .is_ok()
            })
        }
    };
    Ok(Some(candidate))
}

fn sign(data: &Data) -> Result<Candidate<'_>, Failure> {
    let (secret, public) = (&data.own().secret, &data.own().public);
    let bad = |_| bad_key(NAME);
    let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm| {
        let key = EcdsaKeyPair::from_private_key_and_public_key(algorithm, secret, public);
        let (key, random) = (key.map_err(bad)?, SystemRandom::new());
        Ok(Candidate::making(NAME, move |item| {
            key.sign(&random, data.message(item)).ok()
        }))
    };
    match data.operation.algorithm {
        Algorithm::P384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
        Algorithm::Ed25519 => {
            let key = Ed25519KeyPair::from_seed_and_public_key(secret, public).map_err(bad)?;
            Ok(Candidate::making(NAME, move |item| {
                key.try_sign(data.message(item)).ok()
            }))
        }
        Algorithm::Rsa2048 | Algorithm::Rsa4096 => {
            let key = RsaKeyPair::from_pkcs8(secret).map_err(bad)?;
            let random = SystemRandom::new();
            Ok(Candidate::making(NAME, move |item| {
                let mut signature = vec![0; key.public_modulus_len()];
                let message = data.message(item);
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.ok().map(|()| signature)
            }))
        }
        Algorithm::MlDsa44 => {
            let key = PqdsaKeyPair::from_seed(&ML_DSA_44_SIGNING, secret).map_err(bad)?;
            Ok(Candidate::making(NAME, move |item| {
                let mut signature = vec![0; ML_DSA_44_SIGNING.signature_len()];
                let signed = key.sign(data.message(item), &mut signature);
                signed.ok().map(|_| signature)
            }))
        }
        Algorithm::P256 | Algorithm::X25519 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
    }
}

fn agree(data: &Data) -> Result<Candidate<'_>, Failure> {
    let algorithm: &'static agreement::Algorithm = match data.operation.algorithm {
        Algorithm::P256 => &agreement::ECDH_P256,
        Algorithm::P384 => &agreement::ECDH_P384,
        _ => &agreement::X25519,
    };
    let own = PrivateKey::from_private_key(algorithm, &data.own().secret);
    let own = own.map_err(|_| bad_key(NAME))?;
    Ok(Candidate::making(NAME, move |item| {
        let peer = agreement::UnparsedPublicKey::new(algorithm, data.public(item));
        agreement::agree(&own, peer, (), |secret| Ok(secret.to_vec())).ok()
    }))
}
