//! X25519 and Ed25519.

use std::ops::Range;
use std::sync::Arc;

use lockstep_kernels::curve25519::ed25519::{self, PublicKey, SecretKey, Signature};
use lockstep_kernels::curve25519::{Error, x25519};
use zeroize::Zeroizing;

use super::group::Group;
use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::keys::{Ed25519Key, Keypair, Secret};
use crate::lanes::Lanes;
use crate::lanes::random::secrets;

/// The input of an X25519 agreement.
///
/// # Examples
///
/// An array of key pairs, each of which agrees with the next one:
///
/// ```
/// use lockstep_ops::{
///     Backend, KeyKind, Lanes, GuardedRequest, Memory, Request, Response, Shape, X25519Input,
/// };
///
/// let lanes = Lanes::new(Backend::PORTABLE, 64, 0);
/// let compute = |requests: Vec<Request>| -> Vec<Response> {
///     let shape = requests[0].shape();
///     let requests: Vec<_> = requests.into_iter().map(GuardedRequest::from).collect();
///     let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
///     let jobs = requests.iter().zip(&mut answers);
///     lanes.execute(shape, &mut Memory::default(), jobs);
///     let answers = answers.into_iter().map(|answer| answer.expect("an answer"));
///     answers.map(|answer| answer.expect("a response")).collect()
/// };
///
/// let made = compute((0..8).map(|_| Request::Keypair(KeyKind::X25519)).collect());
/// let pairs: Vec<_> = made
///     .into_iter()
///     .filter_map(|response| match response {
///         Response::Keypair(pair) => Some(pair),
///         _ => None,
///     })
///     .collect();
/// let agree = |own: usize, peer: usize| {
///     Request::X25519(X25519Input {
///         secret: pairs[own].secret.clone(),
///         peer: pairs[peer].public.clone(),
///     })
/// };
/// let next = |number| (number + 1) % pairs.len();
/// let here = compute((0..8).map(|number| agree(number, next(number))).collect());
/// let there = compute((0..8).map(|number| agree(next(number), number)).collect());
/// for secrets in here.iter().zip(&there) {
///     let (Response::Secret(here), Response::Secret(there)) = secrets else {
///         panic!("no secrets: {secrets:?}");
///     };
///     assert_eq!(here.as_bytes(), there.as_bytes());
/// }
/// ```
pub struct X25519Input {
    /// 32 bytes, which are clamped when they are used.
    pub secret: Secret,
    /// The peer's 32 bytes.
    pub peer: Bytes,
}

/// The input of an Ed25519 signature.
pub struct Ed25519SignInput {
    /// The key, shared with other requests.
    pub key: Arc<Ed25519Key>,
    /// The message, of any length.
    pub message: Bytes,
}

/// The input of a check of an Ed25519 signature.
pub struct Ed25519VerifyInput {
    /// 32 bytes.
    pub public: Vec<u8>,
    /// The message.
    pub message: Zeroizing<Vec<u8>>,
    /// R ‖ S, 64 bytes.
    pub signature: Vec<u8>,
}

/// An X25519 agreement.
#[derive(Clone, Copy, Debug)]
pub struct X25519;

/// An Ed25519 signature.
#[derive(Clone, Copy, Debug)]
pub struct Ed25519Sign;

/// A check of an Ed25519 signature.
#[derive(Clone, Copy, Debug)]
pub struct Ed25519Verify;

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        match error {
            Error::Zero | Error::Point => Failed::BadPoint,
            Error::Signature | Error::Fault => Failed::CheckFailed,
        }
    }
}

/// A secret key, and the peer's public key.
pub(super) type ToAgree<'a> = (&'a x25519::SecretKey, &'a x25519::PublicKey);

/// Reads the keys of an agreement.
pub(super) fn read_keys(
    X25519Input { secret, peer }: &X25519Input,
) -> Result<ToAgree<'_>, Result<Secret, Failed>> {
    let peer = peer[..].try_into().map_err(|_| Err(Failed::BadPoint))?;
    to_agree(secret.as_bytes(), peer).map_err(Err)
}

/// Reads a secret key, and pairs it with the peer's public key.
pub(super) fn to_agree<'a>(
    secret: &'a [u8],
    peer: &'a x25519::PublicKey,
) -> Result<ToAgree<'a>, Failed> {
    let secret = secret.try_into().map_err(|_| Failed::BadScalar)?;
    Ok((x25519::SecretKey::from_ref(secret), peer))
}

/// Reads a request to check a signature. Bytes that are no signature do not verify.
pub(super) fn read_signature(
    request: &Ed25519VerifyInput,
) -> Result<ed25519::VerifyJob<'_>, Result<bool, Failed>> {
    let public = request.public[..].try_into();
    let public: &PublicKey = public.map_err(|_| Err(Failed::BadPoint))?;
    let signature = request.signature[..].try_into();
    let signature: &Signature = signature.map_err(|_| Ok(false))?;
    Ok(ed25519::VerifyJob::new(public, &request.message, signature))
}

impl Lanes {
    pub(super) fn x25519(&self, Group { inputs, answers }: Group<'_, ToAgree<'_>, Secret>) {
        answers.give(self.agree_x25519(&inputs));
    }

    pub(super) fn agree_x25519(&self, inputs: &[ToAgree<'_>]) -> Vec<Result<Secret, Failed>> {
        let mut secrets = Vec::with_capacity(inputs.len());
        self.each_agreed_x25519(inputs, |shared| secrets.push(shared.map(Secret::new)));
        secrets
    }

    /// Gives the secret of each input to `take`, in their order.
    pub(super) fn each_agreed_x25519(
        &self,
        inputs: &[ToAgree<'_>],
        mut take: impl FnMut(Result<&[u8], Failed>),
    ) {
        let mut lanes: Vec<_> = inputs
            .iter()
            .map(|(secret, peer)| x25519::AgreeJob::new(secret, peer))
            .collect();
        x25519::agree(self.backend, &mut lanes);
        // By reference: a result that is moved out of a lane is not wiped there.
        for lane in &lanes {
            take(match &lane.result {
                Some(Ok(shared)) => Ok(shared.as_bytes()),
                Some(Err(error)) => Err((*error).into()),
                None => Err(Failed::Internal),
            });
        }
    }

    /// Makes key pairs; `None` if the system gave no randomness.
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

    /// Reads a request to sign.
    pub(super) fn to_sign<'a>(
        &self,
        Ed25519SignInput { key, message }: &'a Ed25519SignInput,
    ) -> Result<ed25519::SignJob<'a>, Result<Bytes, Failed>> {
        self.to_sign_by(key, message)
    }

    /// Reads a key and a message.
    pub(super) fn to_sign_by<'a>(
        &self,
        key: &'a Ed25519Key,
        message: &'a [u8],
    ) -> Result<ed25519::SignJob<'a>, Result<Bytes, Failed>> {
        let prepared = self.prepared(key);
        match key.accepts(prepared.public()) {
            true => Ok(ed25519::SignJob::new(prepared, message)),
            false => Err(Err(Failed::Inconsistent)),
        }
    }

    pub(super) fn ed25519_sign(&self, group: Group<'_, ed25519::SignJob<'_>, Bytes>) {
        let Group {
            inputs: mut lanes,
            answers,
        } = group;
        answers.give(self.sign_ed25519_in(&mut lanes));
    }

    /// Returns the signatures, R ‖ S, after a sample was checked.
    pub(super) fn sign_ed25519_in(
        &self,
        lanes: &mut [ed25519::SignJob<'_>],
    ) -> Vec<Result<Bytes, Failed>> {
        ed25519::sign(self.backend, lanes);
        let verify = |range: Range<usize>| self.ed25519_verdicts(&lanes[range]);
        let good = self.sample(lanes.len(), verify);
        let checked = lanes.iter().zip(good);
        let checked = checked.map(|(lane, good)| match lane.result {
            Some(Ok(signature)) if good => Ok(Bytes::from_slice(&signature)),
            Some(Ok(_)) => Err(Failed::CheckFailed),
            Some(Err(error)) => Err(error.into()),
            None => Err(Failed::Internal),
        });
        checked.collect()
    }

    /// Returns for each request whether its signature is good. A request without a signature counts
    /// as good.
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

    /// Returns the key as the kernel takes it, computed once.
    pub(crate) fn prepared<'a>(&self, key: &'a Ed25519Key) -> &'a SecretKey {
        key.prepared
            .get_or_init(|| Box::new(SecretKey::from_seed(self.backend, key.seed())))
    }

    pub(super) fn ed25519_verify(&self, group: Group<'_, ed25519::VerifyJob<'_>, bool>) {
        let Group {
            inputs: mut lanes,
            answers,
        } = group;
        ed25519::verify_vartime(self.backend, &mut lanes);
        answers.give(lanes.into_iter().map(|lane| match lane.result {
            Some(Ok(())) => Ok(true),
            Some(Err(Error::Signature)) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => Err(Failed::Internal),
        }));
    }
}
