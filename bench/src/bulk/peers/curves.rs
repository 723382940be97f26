//! Crates for one curve: `p256`, `p384`, `ed25519-dalek` and, on CPUs that it compiles for,
//! `ed25519-simd`.

use ed25519_dalek::{Signature, SigningKey, VerifyingKey, verify_batch};
use lockstep_common::Failure;
use p256::ecdsa::signature::{Signer as _, Verifier as _};

use super::bad_key::bad_key;
use crate::bulk::candidate::{Candidate, REFUSED};
use crate::bulk::data::{Algorithm, Data, Kind};

const P256: &str = "p256";
const P384: &str = "p384";
const DALEK: &str = "ed25519-dalek";
const DALEK_BATCH: &str = "ed25519-dalek, batch";

/// Number of signatures that `ed25519-dalek` checks by one equation.
const BATCH: usize = 1024;

pub fn candidates(data: &Data) -> Result<Vec<Candidate<'_>>, Failure> {
    match (data.operation.algorithm, data.operation.kind) {
        (Algorithm::P256, Kind::Agree) => Ok(vec![p256_agree(data)?]),
        (Algorithm::P384, Kind::Agree) => Ok(vec![p384_agree(data)?]),
        (Algorithm::P256, Kind::Sign) => Ok(vec![p256_sign(data)?]),
        (Algorithm::P256, _) => Ok(vec![p256_verify(data)?]),
        (Algorithm::Ed25519, Kind::Sign) => Ok(vec![dalek_sign(data)?]),
        (Algorithm::Ed25519, _) => {
            let mut all = vec![dalek_verify(data)?, dalek_batch(data)?];
            all.extend(simd(data));
            Ok(all)
        }
        _ => Ok(Vec::new()),
    }
}

fn p256_verify(data: &Data) -> Result<Candidate<'_>, Failure> {
    use p256::ecdsa::{Signature, VerifyingKey};
    let read = VerifyingKey::from_sec1_bytes;
    let verify = |item: usize, key: &VerifyingKey| {
        let signature = Signature::from_slice(data.signature(item));
        signature.is_ok_and(|signature| key.verify(data.message(item), &signature).is_ok())
    };
    if data.operation.kind == Kind::Verify {
        return Ok(Candidate::verifying(P256, move |item| {
            read(data.public(item)).is_ok_and(|key| verify(item, &key))
        }));
    }
    let keys = data.pairs().iter().map(|pair| read(&pair.public));
    let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(|_| bad_key(P256))?;
    Ok(Candidate::verifying(P256, move |item| {
        verify(item, &keys[data.key(item)])
    }))
}

fn p256_sign(data: &Data) -> Result<Candidate<'_>, Failure> {
    use p256::ecdsa::{Signature, SigningKey};
    let key = SigningKey::from_slice(&data.own().secret).map_err(|_| bad_key(P256))?;
    Ok(Candidate::making(P256, move |item| {
        let signature: Signature = key.try_sign(data.message(item)).ok()?;
        Some(signature.to_bytes())
    }))
}

fn p256_agree(data: &Data) -> Result<Candidate<'_>, Failure> {
    use p256::{PublicKey, SecretKey, ecdh};
    let own = SecretKey::from_slice(&data.own().secret).map_err(|_| bad_key(P256))?;
    Ok(Candidate::making(P256, move |item| {
        let peer = PublicKey::from_sec1_bytes(data.public(item)).ok()?;
        let shared = ecdh::diffie_hellman(own.to_nonzero_scalar(), peer.as_affine());
        Some(shared.raw_secret_bytes().to_vec())
    }))
}

fn p384_agree(data: &Data) -> Result<Candidate<'_>, Failure> {
    use p384::{PublicKey, SecretKey, ecdh};
    let own = SecretKey::from_slice(&data.own().secret).map_err(|_| bad_key(P384))?;
    Ok(Candidate::making(P384, move |item| {
        let peer = PublicKey::from_sec1_bytes(data.public(item)).ok()?;
        let shared = ecdh::diffie_hellman(own.to_nonzero_scalar(), peer.as_affine());
        Some(shared.raw_secret_bytes().to_vec())
    }))
}

fn read(public: &[u8]) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(public.try_into().ok()?).ok()
}

/// The keys that are read before.
fn few(data: &Data) -> Result<Vec<VerifyingKey>, Failure> {
    let keys = data.pairs().iter().map(|pair| read(&pair.public));
    keys.collect::<Option<_>>().ok_or_else(|| bad_key(DALEK))
}

fn dalek_verify(data: &Data) -> Result<Candidate<'_>, Failure> {
    let verify = |item: usize, key: &VerifyingKey| {
        let signature = Signature::from_slice(data.signature(item));
        signature.is_ok_and(|signature| key.verify(data.message(item), &signature).is_ok())
    };
    if data.operation.kind == Kind::Verify {
        return Ok(Candidate::verifying(DALEK, move |item| {
            read(data.public(item)).is_some_and(|key| verify(item, &key))
        }));
    }
    let keys = few(data)?;
    Ok(Candidate::verifying(DALEK, move |item| {
        verify(item, &keys[data.key(item)])
    }))
}

/// One verdict for each batch.
fn dalek_batch(data: &Data) -> Result<Candidate<'_>, Failure> {
    let keys = match data.operation.kind {
        Kind::Verify => None,
        _ => Some(few(data)?),
    };
    let verify = move |items: std::ops::Range<usize>| {
        let key = |item| match &keys {
            Some(keys) => Some(keys[data.key(item)]),
            None => read(data.public(item)),
        };
        let keys: Option<Vec<_>> = items.clone().map(key).collect();
        let signatures = items
            .clone()
            .map(|item| Signature::from_slice(data.signature(item)));
        let signatures: Option<Vec<_>> = signatures.collect::<Result<_, _>>().ok();
        let messages: Vec<&[u8]> = items.map(|item| data.message(item)).collect();
        keys.zip(signatures)
            .is_some_and(|(keys, signatures)| verify_batch(&messages, &signatures, &keys).is_ok())
    };
    Ok(Candidate::new(DALEK_BATCH, move |items, take| {
        for start in items.clone().step_by(BATCH) {
            let batch = start..(start + BATCH).min(items.end);
            let is_right = verify(batch.clone());
            for item in batch {
                take(item, is_right.then_some(&[][..]).ok_or(REFUSED));
            }
        }
    }))
}

fn dalek_sign(data: &Data) -> Result<Candidate<'_>, Failure> {
    let seed = data
        .own()
        .secret
        .as_slice()
        .try_into()
        .map_err(|_| bad_key(DALEK))?;
    let key = SigningKey::from_bytes(seed);
    Ok(Candidate::making(DALEK, move |item| {
        Some(key.sign(data.message(item)).to_bytes())
    }))
}

#[cfg(not(all(
    target_feature = "avx512bw",
    target_feature = "avx512dq",
    target_feature = "avx512ifma"
)))]
fn simd(_: &Data) -> Option<Candidate<'_>> {
    None
}

/// It keeps the tables of keys if there are few. A verifier serves one thread at a time, and is
/// kept for the next call.
#[cfg(all(
    target_feature = "avx512bw",
    target_feature = "avx512dq",
    target_feature = "avx512ifma"
))]
fn simd(data: &Data) -> Option<Candidate<'_>> {
    use std::sync::{Mutex, PoisonError};

    use ed25519_simd::{DalekPolicy, DalekVerifier, HotKeyCache, Verifier, VerifyInput};

    /// Number of signatures of a call.
    const CALL: usize = 64;

    type Verify = Box<dyn FnMut(&[VerifyInput<'_>], &mut [bool]) + Send>;

    let make = || -> Verify {
        if data.operation.kind == Kind::Verify {
            let mut verifier = DalekVerifier::new();
            return Box::new(move |inputs, verdicts| verifier.verify_batch(inputs, verdicts));
        }
        let cache = HotKeyCache::with_capacity(4 * data.pairs().len());
        let mut verifier = Verifier::<DalekPolicy, _>::with_cache(cache);
        Box::new(move |inputs, verdicts| verifier.verify_batch(inputs, verdicts))
    };
    let idle = Mutex::new(Vec::new());
    Some(Candidate::new("ed25519-simd", move |items, take| {
        let verifier = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut verify = verifier.unwrap_or_else(make);
        for start in items.clone().step_by(CALL) {
            let call = start..(start + CALL).min(items.end);
            let input = |item| {
                let (key, signature) = (data.public(item), data.signature(item));
                VerifyInput {
                    public_key: key.try_into().unwrap_or([0; 32]),
                    signature: signature.try_into().unwrap_or([0; 64]),
                    message: data.message(item),
                }
            };
            let inputs: Vec<_> = call.clone().map(input).collect();
            let mut verdicts = [false; CALL];
            verify(&inputs, &mut verdicts[..inputs.len()]);
            for (item, is_right) in call.zip(verdicts) {
                take(item, is_right.then_some(&[][..]).ok_or(REFUSED));
            }
        }
        let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(verify);
    }))
}
