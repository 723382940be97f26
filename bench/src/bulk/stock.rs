//! OpenSSL, one item after the other, by the fastest functions that the crate `openssl` has.

use lockstep_common::Failure;
use openssl::bn::BigNum;
use openssl::derive::Deriver;
use openssl::ec::EcKey;
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::md::Md;
use openssl::pkey::{Id, PKey, Private, Public};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::sha;
use openssl::sign::{Signer, Verifier};

use super::agreement::Agreement;
use super::candidate::{Answer, Candidate, REFUSED};
use super::data::{Algorithm, Data, Kind};
use super::ecdsa::{Group, digest, of_fixed};

/// The name of this side.
pub const NAME: &str = "OpenSSL";

/// The answer if libcrypto fails.
const FAILED: &str = "libcrypto fails";

/// libcrypto, if it has the operation.
pub fn candidate(data: &Data) -> Result<Option<Candidate<'_>>, Failure> {
    let made = match (data.operation.algorithm, data.operation.kind) {
        (Algorithm::X25519, _) => x25519(data),
        (_, Kind::Agree) => ecdh(data),
        (Algorithm::P256 | Algorithm::P384, Kind::Sign) => ecdsa_sign(data),
        (Algorithm::P256 | Algorithm::P384, _) => ecdsa_verify(data),
        (Algorithm::Ed25519, Kind::Sign) => ed25519_sign(data),
        (Algorithm::Ed25519, _) => ed25519_verify(data),
        (Algorithm::Rsa2048 | Algorithm::Rsa4096, Kind::Sign) => rsa_sign(data),
        (Algorithm::Rsa2048 | Algorithm::Rsa4096, _) => rsa_verify(data),
        // OpenSSL has ML-DSA from 3.5 on, and its side is not written yet.
        (Algorithm::MlDsa44, _) => return Ok(None),
    };
    let made = made.map_err(|error| Failure::new(format!("libcrypto cannot do this: {error}")))?;
    Ok(Some(made))
}

/// `ECDSA_do_verify`, with signatures in DER.
fn ecdsa_verify(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let algorithm = data.operation.algorithm;
    let group = Group::new(algorithm)?;
    let signatures = (0..data.count()).map(|item| of_fixed(data.signature(item))?.to_der());
    let signatures: Vec<Vec<u8>> = signatures.collect::<Result<_, _>>()?;
    let verify = move |item: usize, key: &EcKey<Public>| {
        let digest = digest(algorithm, data.message(item));
        EcdsaSig::from_der(&signatures[item])?.verify(&digest, key)
    };
    if data.operation.kind == Kind::Verify {
        return Ok(Candidate::verifying(NAME, move |item| {
            let key = group.key(data.public(item));
            key.and_then(|key| verify(item, &key)).unwrap_or(false)
        }));
    }
    let keys = data.pairs().iter().map(|pair| group.key(&pair.public));
    let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
    Ok(Candidate::verifying(NAME, move |item| {
        verify(item, &keys[data.key(item)]).unwrap_or(false)
    }))
}

/// `ECDSA_do_sign`; returns DER.
fn ecdsa_sign(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let algorithm = data.operation.algorithm;
    let (own, group) = (data.own(), Group::new(algorithm)?);
    let public = group.key(&own.public)?;
    let scalar = BigNum::from_slice(&own.secret)?;
    let key = EcKey::from_private_components(group.inner(), &scalar, public.public_key())?;
    Ok(Candidate::making(NAME, move |item| {
        let digest = digest(algorithm, data.message(item));
        EcdsaSig::sign(&digest, &key)
            .and_then(|signed| signed.to_der())
            .ok()
    }))
}

fn ed25519_verify(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let read = |public: &[u8]| PKey::public_key_from_raw_bytes(public, Id::ED25519);
    let verify = |item: usize, key: &PKey<Public>| {
        let mut verifier = Verifier::new_without_digest(key)?;
        verifier.verify_oneshot(data.signature(item), data.message(item))
    };
    if data.operation.kind == Kind::Verify {
        return Ok(Candidate::verifying(NAME, move |item| {
            let key = read(data.public(item));
            key.and_then(|key| verify(item, &key)).unwrap_or(false)
        }));
    }
    let keys = data.pairs().iter().map(|pair| read(&pair.public));
    let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
    Ok(Candidate::verifying(NAME, move |item| {
        verify(item, &keys[data.key(item)]).unwrap_or(false)
    }))
}

fn ed25519_sign(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let key = PKey::private_key_from_raw_bytes(&data.own().secret, Id::ED25519)?;
    Ok(Candidate::new(NAME, move |items, take| {
        let (mut signer, mut signature) = (Signer::new_without_digest(&key), [0; 64]);
        for item in items {
            let signed = signer
                .as_mut()
                .map(|signer| signer.sign_oneshot(&mut signature, data.message(item)));
            match signed {
                Ok(Ok(length)) => take(item, Ok(&signature[..length])),
                _ => take(item, Err(FAILED)),
            }
        }
    }))
}

/// libcrypto checks that a point is on its curve when it reads the point. It is not asked to check
/// the point once more.
fn ecdh(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let agreement = Agreement::of(data.operation.algorithm)?;
    let own = agreement.own(data.own())?;
    let derive = move |item| {
        let peer = agreement.peer(data.public(item))?;
        let mut deriver = Deriver::new(&own)?;
        deriver.set_peer_ex(&peer, false)?;
        deriver.derive_to_vec()
    };
    Ok(Candidate::making(NAME, move |item| derive(item).ok()))
}

fn x25519(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let own = PKey::private_key_from_raw_bytes(&data.own().secret, Id::X25519)?;
    Ok(Candidate::new(NAME, move |items, take| {
        let mut context = derivation(&own);
        for item in items {
            let mut secret = [0; 32];
            let derived = context.as_mut().map_err(|_| FAILED).and_then(|context| {
                let peer = PKey::public_key_from_raw_bytes(data.public(item), Id::X25519);
                peer.and_then(|peer| context.derive_set_peer(&peer))
                    .and_then(|()| context.derive(Some(&mut secret)))
                    .map_err(|_| FAILED)
            });
            take(item, derived.map(|length| &secret[..length]));
        }
    }))
}

fn derivation(own: &PKey<Private>) -> Result<PkeyCtx<Private>, ErrorStack> {
    let mut context = PkeyCtx::new(own)?;
    context.derive_init()?;
    Ok(context)
}

fn rsa_verify(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let keys = data
        .pairs()
        .iter()
        .map(|pair| PKey::public_key_from_der(&pair.public));
    let keys: Vec<PKey<Public>> = keys.collect::<Result<_, _>>()?;
    let context = |key: &PKey<Public>| {
        let mut context = PkeyCtx::new(key)?;
        context.verify_init()?;
        context.set_rsa_padding(Padding::PKCS1)?;
        context.set_signature_md(Md::sha256())?;
        Ok::<_, ErrorStack>(context)
    };
    Ok(Candidate::new(NAME, move |items, take| {
        let mut contexts: Vec<_> = keys.iter().map(context).collect();
        for item in items {
            let digest = sha::sha256(data.message(item));
            let verified = match &mut contexts[data.key(item)] {
                Ok(context) => context
                    .verify(&digest, data.signature(item))
                    .unwrap_or(false),
                Err(_) => false,
            };
            take(item, verified.then_some(&[][..]).ok_or(REFUSED));
        }
    }))
}

fn rsa_sign(data: &Data) -> Result<Candidate<'_>, ErrorStack> {
    let key = PKey::private_key_from_pkcs8(&data.own().secret)?;
    let context = move || {
        let mut context = PkeyCtx::new(&key)?;
        context.sign_init()?;
        context.set_rsa_padding(Padding::PKCS1)?;
        context.set_signature_md(Md::sha256())?;
        Ok::<_, ErrorStack>(context)
    };
    Ok(Candidate::new(NAME, move |items, take| {
        let (mut context, mut signature) = (context(), [0; 512]);
        for item in items {
            let digest = sha::sha256(data.message(item));
            let signed = context
                .as_mut()
                .map(|context| context.sign(&digest, Some(&mut signature)));
            let answer: Answer<'_> = match signed {
                Ok(Ok(length)) => Ok(&signature[..length]),
                _ => Err(FAILED),
            };
            take(item, answer);
        }
    }))
}
