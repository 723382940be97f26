//! ML-DSA: signatures by a hash of the message, μ, and checks of them.

use std::sync::Arc;

use lockstep_kernels::mldsa::{
    self, Message, Randomness, SignError, SignJob, Signature, VerifyJob,
};
use zeroize::Zeroizing;

use super::group::Group;
use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::keys::{MlDsaKey, Secret};
use crate::kinds::MlDsa;
use crate::lanes::random::secrets;
use crate::lanes::{Lanes, Memory};

/// The input of a signature.
pub struct MlDsaSignInput {
    /// The key, with its private half, shared with other requests.
    pub key: Arc<MlDsaKey>,
    /// μ, the hash of the message that [`MlDsaKey::mu`] begins.
    pub mu: [u8; 64],
    /// The 32 random bytes that hedge the signature, where these must be known. Otherwise they are
    /// drawn.
    pub randomness: Option<Secret>,
}

/// The input of a check of a signature.
pub struct MlDsaVerifyInput {
    /// The key, shared with other requests.
    pub key: Arc<MlDsaKey>,
    /// μ of the message.
    pub mu: [u8; 64],
    /// The signature, of any length.
    pub signature: Bytes,
}

/// A signature.
#[derive(Clone, Copy, Debug)]
pub struct MlDsaSign(pub MlDsa);

/// A check of a signature.
#[derive(Clone, Copy, Debug)]
pub struct MlDsaVerify(pub MlDsa);

impl From<mldsa::KeyError> for Failed {
    fn from(error: mldsa::KeyError) -> Failed {
        match error {
            mldsa::KeyError::Invalid => Failed::Inconsistent,
            mldsa::KeyError::NoMemory => Failed::NoMemory,
        }
    }
}

/// A request to sign, with its prepared key.
pub(super) type ToSign<'a> = (&'a MlDsaSignInput, &'a mldsa::PrivateKey);

impl Lanes {
    /// Expands a key, unless a request has done so. Without this call, the first request with the
    /// key expands it. For an expanded key, [μ](MlDsaKey::mu) needs no hash of the public key. The
    /// thread needs [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
    pub fn prepare_ml_dsa(&self, key: &MlDsaKey) -> Result<(), Failed> {
        key.prepared(self.backend).map(drop)
    }

    /// Reads a request to sign. The first request with a key prepares the key.
    pub(super) fn to_sign_with<'a>(
        &self,
        input: &'a MlDsaSignInput,
    ) -> Result<ToSign<'a>, Result<Signature, Failed>> {
        let prepared = input.key.prepared(self.backend).map_err(Err)?;
        let private = prepared.private().ok_or(Err(Failed::Inconsistent))?;
        Ok((input, private))
    }

    pub(super) fn to_verify_with<'a>(
        &self,
        input: &'a MlDsaVerifyInput,
    ) -> Result<VerifyJob<'a>, Result<bool, Failed>> {
        let prepared = input.key.prepared(self.backend).map_err(Err)?;
        Ok(VerifyJob {
            key: prepared.public(),
            message: Message::Representative(&input.mu),
            signature: &input.signature,
            result: None,
        })
    }

    pub(super) fn ml_dsa_sign(
        &self,
        set: MlDsa,
        memory: &mut Memory,
        Group { inputs, answers }: Group<'_, ToSign<'_>, Signature>,
    ) {
        let Some(scratch) = memory.ml_dsa(set) else {
            return answers.fail(Failed::NoMemory);
        };
        let Some(drawn) = secrets::<32>(inputs.len()) else {
            return answers.fail(Failed::Randomness);
        };
        let given = |input: &MlDsaSignInput| {
            let bytes = input.randomness.as_ref()?.as_bytes();
            bytes.try_into().ok().map(Zeroizing::new)
        };
        let all = inputs.iter().zip(&*drawn);
        let hedges: Vec<Randomness> = all
            .map(|((input, _), drawn)| match given(input) {
                Some(given) => Randomness::from_bytes(&given),
                None => Randomness::from_bytes(drawn),
            })
            .collect();
        let mut lanes: Vec<_> = inputs
            .iter()
            .zip(&hedges)
            .map(|((input, key), randomness)| SignJob {
                key,
                message: Message::Representative(&input.mu),
                randomness,
                result: None,
            })
            .collect();
        mldsa::sign(self.backend, scratch, &mut lanes);
        answers.give(lanes.into_iter().map(|lane| match lane.result {
            Some(Ok(signature)) => Ok(signature),
            Some(Err(SignError::CheckFailed)) => Err(Failed::CheckFailed),
            Some(Err(SignError::NoRound)) | None => Err(Failed::Internal),
        }));
    }

    pub(super) fn ml_dsa_verify(
        &self,
        set: MlDsa,
        memory: &mut Memory,
        Group {
            inputs: mut lanes,
            answers,
        }: Group<'_, VerifyJob<'_>, bool>,
    ) {
        let Some(scratch) = memory.ml_dsa(set) else {
            return answers.fail(Failed::NoMemory);
        };
        mldsa::verify(self.backend, scratch, &mut lanes);
        answers.give(
            lanes
                .into_iter()
                .map(|lane| lane.result.ok_or(Failed::Internal)),
        );
    }
}

#[cfg(test)]
mod tests {
    use lockstep_kernels::backend::Backend;

    use super::*;
    use crate::operation::{Answer, GuardedRequest, Request, Response};

    const SEED: [u8; 32] = [7; 32];

    fn lanes(backend: Backend) -> Lanes {
        Lanes::new(backend, 1, 0)
    }

    fn ask(lanes: &Lanes, request: Request) -> Answer {
        let (request, mut answer) = (GuardedRequest::from(request), None);
        let jobs = [(&request, &mut answer)].into_iter();
        lanes.execute(request.request.shape(), &mut Memory::default(), jobs);
        answer.expect("an answer")
    }

    fn sign(key: &Arc<MlDsaKey>, randomness: Option<&[u8]>) -> Request {
        Request::MlDsaSign(MlDsaSignInput {
            key: Arc::clone(key),
            mu: [9; 64],
            randomness: randomness.map(Secret::new),
        })
    }

    #[test]
    fn signatures_are_checked_by_keys_that_are_public() {
        for backend in Backend::available() {
            let lanes = lanes(backend);
            for set in MlDsa::ALL {
                let key = Arc::new(MlDsaKey::from_seed(set, &SEED).unwrap());
                let made = [None, None, Some(&[0; 32][..]), Some(&[0; 32])].map(|randomness| {
                    match ask(&lanes, sign(&key, randomness)) {
                        Ok(Response::MlDsa(signature)) => signature.into_bytes(),
                        other => panic!("{set:?}: {other:?}"),
                    }
                });
                assert_ne!(made[0], made[1], "{set:?}: hedged");
                assert_eq!(made[2], made[3], "{set:?}: deterministic");
                let public = Arc::new(MlDsaKey::new(set, &key.public, None).unwrap());
                for (wrong, mut signature) in [false, true].into_iter().zip(made) {
                    signature[40] ^= u8::from(wrong);
                    let input = MlDsaVerifyInput {
                        key: Arc::clone(&public),
                        mu: [9; 64],
                        signature: Bytes::from_slice(&signature),
                    };
                    let found = ask(&lanes, Request::MlDsaVerify(input));
                    assert!(matches!(found, Ok(Response::Verified(right)) if right != wrong));
                }
                let found = ask(&lanes, sign(&public, None)).err();
                assert_eq!(
                    found,
                    Some(Failed::Inconsistent),
                    "{set:?}: no private half"
                );
            }
        }
    }

    #[test]
    fn a_private_key_of_another_public_key_signs_nothing() {
        let set = MlDsa::MlDsa44;
        let [one, other] = [7, 8].map(|byte| MlDsaKey::from_seed(set, &[byte; 32]).unwrap());
        let mixed = MlDsaKey::new(set, &one.public, other.private).unwrap();
        let found = ask(&lanes(Backend::PORTABLE), sign(&Arc::new(mixed), None)).err();
        assert_eq!(found, Some(Failed::Inconsistent));
        let short = Secret::new(&[0; 32]);
        assert!(MlDsaKey::new(set, &one.public, Some(short)).is_err());
        assert!(MlDsaKey::new(set, &one.public[1..], None).is_err());
    }
}
