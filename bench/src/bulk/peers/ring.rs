//! `ring`. Its private keys of key agreement serve once, so that cannot be compared.

use lockstep_common::Failure;
use openssl::rsa::Rsa;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED,
    ECDSA_P384_SHA384_FIXED_SIGNING, ED25519, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};

use super::bad_key::bad_key;
use crate::bulk::candidate::Candidate;
use crate::bulk::data::{Algorithm, Data, Kind};

const NAME: &str = "ring";

pub fn candidate(data: &Data) -> Result<Option<Candidate<'_>>, Failure> {
    if data.operation.kind == Kind::Agree {
        return Ok(None);
    }
    let verified: &'static dyn VerificationAlgorithm = match data.operation.algorithm {
        Algorithm::P256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::P384 => &ECDSA_P384_SHA384_FIXED,
        Algorithm::Ed25519 => &ED25519,
        Algorithm::Rsa2048 | Algorithm::Rsa4096 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::MlDsa44 | Algorithm::X25519 => return Ok(None),
    };
    if data.operation.kind == Kind::Sign {
        return sign(data).map(Some);
    }
    let is_rsa = matches!(
        data.operation.algorithm,
        Algorithm::Rsa2048 | Algorithm::Rsa4096
    );
    let public = |public: &[u8]| match is_rsa {
        true => Rsa::public_key_from_der(public)?.public_key_to_der_pkcs1(),
        false => Ok(public.to_vec()),
    };
    let keys = data.pairs().iter().map(|pair| public(&pair.public));
    let keys: Vec<Vec<u8>> = keys.collect::<Result<_, _>>().map_err(|_| bad_key(NAME))?;
    Ok(Some(Candidate::verifying(NAME, move |item| {
        let key = UnparsedPublicKey::new(verified, &keys[data.key(item)]);
        key.verify(data.message(item), data.signature(item)).is_ok()
    })))
}

fn sign(data: &Data) -> Result<Candidate<'_>, Failure> {
    let (secret, public) = (&data.own().secret, &data.own().public);
    let bad = |_| bad_key(NAME);
    let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm| {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_private_key_and_public_key(algorithm, secret, public, &random);
        let key = key.map_err(bad)?;
        Ok(Candidate::making(NAME, move |item| {
            key.sign(&random, data.message(item)).ok()
        }))
    };
    match data.operation.algorithm {
        Algorithm::P384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
        Algorithm::Ed25519 => {
            let key = Ed25519KeyPair::from_seed_and_public_key(secret, public).map_err(bad)?;
            Ok(Candidate::making(NAME, move |item| {
                Some(key.sign(data.message(item)))
            }))
        }
        Algorithm::Rsa2048 | Algorithm::Rsa4096 => {
            let (key, random) = (
                RsaKeyPair::from_pkcs8(secret).map_err(bad)?,
                SystemRandom::new(),
            );
            Ok(Candidate::making(NAME, move |item| {
                let mut signature = vec![0; key.public().modulus_len()];
                let message = data.message(item);
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.ok().map(|()| signature)
            }))
        }
        _ => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
    }
}
