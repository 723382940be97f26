//! Batches of X25519 and Ed25519 requests.

use std::ops::Range;

use lockstep_kernels::curve25519::ed25519::{self, PublicKey, SecretKey, Signature};
use lockstep_kernels::curve25519::{Error, x25519};

use super::Job;
use super::cpu::{Cpu, Inputs, misplaced};
use super::random::secrets;
use crate::declined::Declined;
use crate::keys::{Bytes, Ed25519Key, Keypair, Secret};
use crate::request::{Request, Response};

impl From<Error> for Declined {
    fn from(error: Error) -> Declined {
        match error {
            Error::Zero | Error::Point => Declined::BadPoint,
            Error::Signature | Error::Fault => Declined::CheckFailed,
        }
    }
}

impl Cpu {
    pub(super) fn x25519<'a>(&self, jobs: &'a mut [Job<Cpu>]) {
        let read = |request: &'a Request| match request {
            Request::X25519 { secret, peer } => {
                let secret = secret.as_bytes().try_into();
                let secret = secret.map_err(|_| Err(Declined::BadScalar))?;
                let peer = peer[..].try_into();
                let peer: &x25519::PublicKey = peer.map_err(|_| Err(Declined::BadPoint))?;
                Ok((x25519::SecretKey::from_ref(secret), peer))
            }
            _ => misplaced(),
        };
        let Inputs { inputs, answers } = Inputs::read(jobs, read);
        let mut lanes: Vec<_> = inputs
            .iter()
            .map(|(secret, peer)| x25519::AgreeJob::new(secret, peer))
            .collect();
        x25519::agree(self.backend, &mut lanes);
        // By reference: what is moved out of a lane is not wiped there.
        answers.give(lanes.iter().map(|lane| match &lane.result {
            Some(Ok(shared)) => Ok(Response::Secret(Secret::new(shared.as_bytes()))),
            Some(Err(error)) => Err((*error).into()),
            None => Err(Declined::Internal),
        }));
    }

    /// New key pairs; `None` if the system gave no randomness.
    pub(super) fn x25519_keypairs(&self, count: usize) -> Option<Vec<Keypair>> {
        let random = secrets::<{ x25519::BYTES }>(count)?;
        let secrets = random.iter().map(x25519::SecretKey::from_ref);
        let mut lanes: Vec<_> = secrets.map(x25519::KeypairJob::new).collect();
        x25519::keypair(self.backend, &mut lanes);
        let pair = |lane: x25519::KeypairJob<'_>| {
            Some(Keypair {
                secret: Secret::wiped_on_fork(lane.secret.as_bytes()),
                public: Bytes::from_slice(&lane.result?),
            })
        };
        lanes.into_iter().map(pair).collect()
    }

    pub(super) fn ed25519_sign<'a>(&self, jobs: &'a mut [Job<Cpu>]) {
        let read = |request: &'a Request| match request {
            Request::Ed25519Sign { key, message } => {
                Ok(ed25519::SignJob::new(self.prepared(key), message))
            }
            _ => misplaced(),
        };
        let Inputs {
            inputs: mut lanes,
            answers,
        } = Inputs::read(jobs, read);
        ed25519::sign(self.backend, &mut lanes);
        let verify = |range: Range<usize>| self.ed25519_verdicts(&lanes[range]);
        let good = self.sample(lanes.len(), verify);
        answers.give(
            lanes
                .iter()
                .zip(good)
                .map(|(lane, good)| match lane.result {
                    Some(Ok(signature)) if good => {
                        Ok(Response::Signature(Bytes::from_slice(&signature)))
                    }
                    Some(Ok(_)) => Err(Declined::CheckFailed),
                    Some(Err(error)) => Err(error.into()),
                    None => Err(Declined::Internal),
                }),
        );
    }

    /// Whether each signature is good; what was not signed counts as good.
    fn ed25519_verdicts(&self, signed: &[ed25519::SignJob<'_>]) -> Vec<bool> {
        let signature = |job: &ed25519::SignJob<'_>| job.result.and_then(Result::ok);
        let signatures: Vec<_> = signed.iter().map(signature).collect();
        let mut lanes: Vec<_> = signed
            .iter()
            .zip(&signatures)
            .filter_map(|(job, signature)| Some((job, signature.as_ref()?)))
            .map(|(job, signature)| ed25519::CheckJob::new(job.key, job.message, signature))
            .collect();
        ed25519::check(self.backend, &mut lanes);
        let mut verdicts = lanes.iter().map(|lane| lane.result == Some(Ok(())));
        signatures
            .iter()
            .map(|signature| signature.is_none() || verdicts.next() == Some(true))
            .collect()
    }

    /// The key as the kernel has it, computed once.
    fn prepared<'a>(&self, key: &'a Ed25519Key) -> &'a SecretKey {
        key.prepared
            .get_or_init(|| Box::new(SecretKey::from_seed(self.backend, key.seed())))
    }

    pub(super) fn ed25519_verify<'a>(&self, jobs: &'a mut [Job<Cpu>]) {
        let read = |request: &'a Request| match request {
            Request::Ed25519Verify {
                public,
                message,
                signature,
            } => {
                let public = public[..].try_into();
                let public: &PublicKey = public.map_err(|_| Err(Declined::BadPoint))?;
                let signature = signature[..].try_into();
                let signature: &Signature = signature.map_err(|_| Ok(Response::Verified(false)))?;
                Ok(ed25519::VerifyJob::new(public, message, signature))
            }
            _ => misplaced(),
        };
        let Inputs {
            inputs: mut lanes,
            answers,
        } = Inputs::read(jobs, read);
        ed25519::verify_vartime(self.backend, &mut lanes);
        answers.give(lanes.into_iter().map(|lane| match lane.result {
            Some(Ok(())) => Ok(Response::Verified(true)),
            Some(Err(Error::Signature)) => Ok(Response::Verified(false)),
            Some(Err(error)) => Err(error.into()),
            None => Err(Declined::Internal),
        }));
    }
}
