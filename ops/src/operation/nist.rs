//! P-256 and P-384.

use std::ops::Range;
use std::sync::Arc;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::nist::nonce::{self, HedgedJob};
use lockstep_kernels::nist::{
    DecompressJob, EcdhJob, Error, KeypairJob, PublicKey, SecretKey, SignJob, Signature, VerifyJob,
    WIDE_BYTES, Wide, p256, p384,
};
use zeroize::Zeroizing;

use super::group::Group;
use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::keys::{EcKey, Keypair, Material, Pair, Secret};
use crate::kinds::Curve;
use crate::lanes::Lanes;
use crate::lanes::random::{random, secrets};

/// The input of an ECDSA signature.
///
/// # Examples
///
/// An array of signatures on P-256, each with a key of its own:
///
/// ```
/// use std::sync::Arc;
///
/// use lockstep_ops::{
///     Backend, Bytes, Curve, EcKey, EcdsaSignInput, Lanes, GuardedRequest, Memory, Request,
///     Response, Shape,
/// };
///
/// let sign = |number: u8| {
///     let key = EcKey::new(Curve::P256, &[number; 32], None).expect("a scalar of 32 bytes");
///     GuardedRequest::from(Request::EcdsaSign(EcdsaSignInput {
///         key: Arc::new(key),
///         digest: Bytes::from_slice(&[number; 32]),
///     }))
/// };
/// let requests: Vec<_> = (1..=9).map(sign).collect();
///
/// // One pass in 64 is checked, on average.
/// let lanes = Lanes::new(Backend::PORTABLE, 64, 0);
/// let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
/// let jobs = requests.iter().zip(&mut answers);
/// lanes.execute(Shape::EcdsaSign(Curve::P256), &mut Memory::default(), jobs);
/// for answer in answers {
///     let Some(Ok(Response::Signature(signature))) = answer else {
///         panic!("no signature: {answer:?}");
///     };
///     let (r, s) = signature.split_at(32);
///     assert_ne!(r, s);
/// }
/// ```
pub struct EcdsaSignInput {
    /// The key, shared with other requests.
    pub key: Arc<EcKey>,
    /// The digest, of any length. If it is longer than a scalar, only its first bytes count, as
    /// many as a scalar has.
    pub digest: Bytes,
}

/// The input of a check of an ECDSA signature.
pub struct EcdsaVerifyInput {
    /// The curve.
    pub curve: Curve,
    /// The point, uncompressed as in SEC 1: 04 ‖ x ‖ y.
    pub public: Vec<u8>,
    /// The digest.
    pub digest: Zeroizing<Vec<u8>>,
    /// r ‖ s, big-endian, each as long as a scalar.
    pub signature: Vec<u8>,
}

/// The input of an ECDH agreement.
pub struct EcdhInput {
    /// The key, shared with other requests.
    pub key: Arc<EcKey>,
    /// The peer's point, uncompressed as in SEC 1: 04 ‖ x ‖ y.
    pub peer: Bytes,
}

/// An ECDSA signature on this curve.
#[derive(Clone, Copy, Debug)]
pub struct EcdsaSign(pub Curve);

/// A check of an ECDSA signature on this curve.
#[derive(Clone, Copy, Debug)]
pub struct EcdsaVerify(pub Curve);

/// An ECDH agreement on this curve.
#[derive(Clone, Copy, Debug)]
pub struct Ecdh(pub Curve);

/// The kernels of one curve.
pub(crate) trait Kernels<const BYTES: usize> {
    /// Returns the key, if it is of this curve.
    fn pair(key: &EcKey) -> Option<&Pair<BYTES>>;
    fn decompress(backend: Backend, jobs: &mut [DecompressJob<'_, BYTES>]);
    fn keypair(backend: Backend, jobs: &mut [KeypairJob<'_, BYTES>]);
    fn sign(backend: Backend, jobs: &mut [SignJob<'_, BYTES>]);
    fn verify(backend: Backend, jobs: &mut [VerifyJob<'_, BYTES>]);
    fn ecdh(backend: Backend, jobs: &mut [EcdhJob<'_, BYTES>]);
}

macro_rules! kernels {
    ($curve:ident, $module:ident) => {
        pub(crate) enum $curve {}

        impl Kernels<{ $module::BYTES }> for $curve {
            fn pair(key: &EcKey) -> Option<&Pair<{ $module::BYTES }>> {
                match key.material() {
                    Material::$curve(pair) => Some(pair),
                    _ => None,
                }
            }

            fn decompress(backend: Backend, jobs: &mut [$module::DecompressJob<'_>]) {
                $module::decompress(backend, jobs);
            }

            fn keypair(backend: Backend, jobs: &mut [$module::KeypairJob<'_>]) {
                $module::keypair(backend, jobs);
            }

            fn sign(backend: Backend, jobs: &mut [$module::SignJob<'_>]) {
                $module::ecdsa_sign(backend, jobs);
            }

            fn verify(backend: Backend, jobs: &mut [$module::VerifyJob<'_>]) {
                $module::ecdsa_verify_vartime(backend, jobs);
            }

            fn ecdh(backend: Backend, jobs: &mut [$module::EcdhJob<'_>]) {
                $module::ecdh(backend, jobs);
            }
        }
    };
}

kernels!(P256, p256);
kernels!(P384, p384);

/// Calls a function with the kernels of a curve.
macro_rules! for_curve {
    ($curve:expr, $lanes:ident.$function:ident($($argument:expr),*)) => {
        match $curve {
            $crate::kinds::Curve::P256 => {
                $lanes.$function::<$crate::operation::nist::P256, 32>($($argument),*)
            }
            $crate::kinds::Curve::P384 => {
                $lanes.$function::<$crate::operation::nist::P384, 48>($($argument),*)
            }
        }
    };
}
pub(super) use for_curve;

/// Number of attempts to find a usable nonce. One nonce in 2^255 is unusable.
const ATTEMPTS: usize = 4;

/// A digest to sign, and the key.
pub(crate) type ToSign<'a, const BYTES: usize> = (&'a Pair<BYTES>, &'a [u8]);

/// A point and a signature to check against it, and the digest.
pub(super) type ToVerify<'a, const BYTES: usize> = (PublicKey<BYTES>, &'a [u8], Signature<BYTES>);

/// A secret key, and the peer's point.
pub(super) type ToAgree<'a, const BYTES: usize> = (&'a SecretKey<BYTES>, PublicKey<BYTES>);

/// Reads a request to check a signature. Bytes that are no signature do not verify.
pub(super) fn read_signature<const BYTES: usize>(
    request: &EcdsaVerifyInput,
) -> Result<ToVerify<'_, BYTES>, Result<bool, Failed>> {
    let public = PublicKey::from_sec1(&request.public).map_err(|_| Err(Failed::BadPoint))?;
    let parts = request.signature.split_at_checked(BYTES);
    let part = |part: &[u8]| <[u8; BYTES]>::try_from(part).ok();
    match parts.map(|(r, s)| (part(r), part(s))) {
        Some((Some(r), Some(s))) => Ok((public, &request.digest, Signature { r, s })),
        _ => Err(Ok(false)),
    }
}

/// Reads a request to sign; `None` for a key of another curve.
pub(super) fn read_digest<C: Kernels<BYTES>, const BYTES: usize>(
    EcdsaSignInput { key, digest }: &EcdsaSignInput,
) -> Option<ToSign<'_, BYTES>> {
    Some((C::pair(key)?, digest))
}

/// Reads a request to agree; `None` for a key of another curve.
pub(super) fn read_peer<C: Kernels<BYTES>, const BYTES: usize>(
    EcdhInput { key, peer }: &EcdhInput,
) -> Option<Result<ToAgree<'_, BYTES>, Result<Secret, Failed>>> {
    let pair = C::pair(key)?;
    let peer = PublicKey::from_sec1(peer).map_err(|_| Err(Failed::BadPoint));
    Some(peer.map(|peer| (pair.secret(), peer)))
}

impl Lanes {
    pub(super) fn ecdsa_sign<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        Group { inputs, answers }: Group<'_, ToSign<'_, BYTES>, Bytes>,
    ) {
        answers.give(self.sign_nist::<C, BYTES>(&inputs));
    }

    /// Returns the signatures, r ‖ s, after a sample was checked.
    pub(crate) fn sign_nist<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        inputs: &[ToSign<'_, BYTES>],
    ) -> Vec<Result<Bytes, Failed>> {
        let signed = sign::<C, BYTES>(self.backend, inputs, |inputs| self.hedged(inputs));
        self.checked::<C, BYTES>(inputs, signed)
    }

    /// Makes hedged nonces; `None` if the system gave no randomness.
    pub(crate) fn hedged<const BYTES: usize>(
        &self,
        inputs: &[&ToSign<'_, BYTES>],
    ) -> Option<Vec<Wide>> {
        let random = random(inputs.len())?;
        let mut lanes: Vec<_> = inputs
            .iter()
            .zip(random.iter())
            .map(|((pair, digest), random)| HedgedJob::new(pair.secret(), random, digest))
            .collect();
        nonce::hedged_batch(self.backend, &mut lanes);
        lanes.into_iter().map(|lane| lane.result).collect()
    }

    /// Returns signatures, r ‖ s, after a sample was checked.
    pub(crate) fn checked<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        inputs: &[ToSign<'_, BYTES>],
        signed: Vec<Result<Signature<BYTES>, Failed>>,
    ) -> Vec<Result<Bytes, Failed>> {
        let verify = |range: Range<usize>| {
            let (inputs, signed) = (&inputs[range.clone()], &signed[range]);
            let keys: Vec<_> = inputs
                .iter()
                .map(|(pair, _)| self.public_of::<C, BYTES>(pair))
                .collect();
            let mut lanes = Vec::with_capacity(inputs.len());
            for (((_, digest), signed), key) in inputs.iter().zip(signed).zip(&keys) {
                if let (Ok(signature), Some(key)) = (signed, key) {
                    lanes.push(VerifyJob::new(key, digest, signature));
                }
            }
            C::verify(self.backend, &mut lanes);
            let mut verdicts = lanes.iter().map(|lane| lane.result == Some(Ok(())));
            signed
                .iter()
                .zip(&keys)
                .map(|(signed, key)| {
                    // A request without a signature has no wrong one.
                    signed.is_err() || key.is_some() && verdicts.next() == Some(true)
                })
                .collect()
        };
        let good = self.sample(inputs.len(), verify);
        let checked = signed.iter().zip(good);
        let checked = checked.map(|(signed, good)| match signed {
            Ok(Signature { r, s }) if good => Ok(Bytes::from_slice([*r, *s].as_flattened())),
            Ok(_) => Err(Failed::CheckFailed),
            Err(failed) => Err(*failed),
        });
        checked.collect()
    }

    /// Returns the point of a key, as it was given or computed once; `None` if the scalar is
    /// invalid.
    fn public_of<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        pair: &Pair<BYTES>,
    ) -> Option<PublicKey<BYTES>> {
        if let Some(public) = pair.public.get() {
            return Some(*public);
        }
        let seed = Wide::from_scalar(pair.secret().as_bytes())?;
        let mut job = [KeypairJob::new(&seed)];
        C::keypair(self.backend, &mut job);
        let (_, public) = job[0].result.take()?.ok()?;
        Some(*pair.public.get_or_init(|| Box::new(public)))
    }

    pub(super) fn ecdsa_verify<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        Group { inputs, answers }: Group<'_, ToVerify<'_, BYTES>, bool>,
    ) {
        let mut lanes: Vec<_> = inputs
            .iter()
            .map(|(public, digest, signature)| VerifyJob::new(public, digest, signature))
            .collect();
        C::verify(self.backend, &mut lanes);
        answers.give(lanes.into_iter().map(|lane| match lane.result {
            Some(Ok(())) => Ok(true),
            Some(Err(Error::Signature)) => Ok(false),
            Some(Err(error)) => Err(error.into()),
            None => Err(Failed::Internal),
        }));
    }

    pub(super) fn ecdh<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        Group { inputs, answers }: Group<'_, ToAgree<'_, BYTES>, Secret>,
    ) {
        answers.give(self.agree_nist::<C, BYTES>(&inputs));
    }

    pub(super) fn agree_nist<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        inputs: &[ToAgree<'_, BYTES>],
    ) -> Vec<Result<Secret, Failed>> {
        let mut secrets = Vec::with_capacity(inputs.len());
        self.each_agreed::<C, BYTES>(inputs, |shared| secrets.push(shared.map(Secret::new)));
        secrets
    }

    /// Gives the secret of each input to `take`, in their order.
    pub(super) fn each_agreed<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        inputs: &[ToAgree<'_, BYTES>],
        mut take: impl FnMut(Result<&[u8], Failed>),
    ) {
        if inputs.is_empty() {
            // The working memory of all lanes would be wiped for nothing.
            return;
        }
        let mut lanes: Vec<_> = inputs
            .iter()
            .map(|(secret, peer)| EcdhJob::new(secret, peer))
            .collect();
        C::ecdh(self.nist_backend(), &mut lanes);
        // By reference, here and below: a result that is moved out of a lane is not wiped there.
        for lane in &lanes {
            take(match &lane.result {
                Some(Ok(shared)) => Ok(shared.as_bytes()),
                Some(Err(error)) => Err((*error).into()),
                None => Err(Failed::Internal),
            });
        }
    }

    /// Returns the lanes for ECDH and key pairs: portable lanes if the backend has no kernels of
    /// the curves, since every backend serves the hybrids with ML-KEM.
    fn nist_backend(&self) -> Backend {
        match self.backend.has_nist_curves() {
            true => self.backend,
            false => Backend::PORTABLE,
        }
    }

    /// Makes key pairs; `None` if the system gave no randomness.
    pub(super) fn nist_keypairs<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        count: usize,
    ) -> Option<Vec<Keypair>> {
        let random = secrets::<WIDE_BYTES>(count)?;
        let seeds = random.iter().map(Wide::from_ref);
        let mut lanes: Vec<_> = seeds.map(KeypairJob::new).collect();
        C::keypair(self.nist_backend(), &mut lanes);
        let pair = |lane: &KeypairJob<'_, BYTES>| {
            let (secret, public) = lane.result.as_ref()?.as_ref().ok()?;
            Some(Keypair {
                secret: Secret::wiped_on_fork(secret.as_bytes()),
                public: Bytes::from_slice(&public.to_sec1()),
            })
        };
        lanes.iter().map(pair).collect()
    }
}

/// Signs, with nonces from `nonces`, which returns `None` if it has no randomness. Unusable nonces
/// are replaced.
fn sign<'a, C: Kernels<BYTES>, const BYTES: usize>(
    backend: Backend,
    inputs: &[ToSign<'a, BYTES>],
    mut nonces: impl FnMut(&[&ToSign<'a, BYTES>]) -> Option<Vec<Wide>>,
) -> Vec<Result<Signature<BYTES>, Failed>> {
    let mut signed: Vec<Result<Signature<BYTES>, Failed>> = Vec::new();
    signed.resize_with(inputs.len(), || Err(Failed::Randomness));
    let mut left: Vec<usize> = (0..inputs.len()).collect();
    for _ in 0..ATTEMPTS {
        let chosen: Vec<_> = left.iter().map(|&place| &inputs[place]).collect();
        let Some(nonces) = nonces(&chosen) else {
            break;
        };
        let mut lanes: Vec<_> = chosen
            .iter()
            .zip(&nonces)
            .map(|((pair, digest), nonce)| SignJob::new(pair.secret(), digest, nonce))
            .collect();
        C::sign(backend, &mut lanes);
        let mut again = Vec::new();
        for (&place, lane) in left.iter().zip(lanes) {
            match lane.result {
                Some(Ok(signature)) => signed[place] = Ok(signature),
                Some(Err(Error::Nonce)) => again.push(place),
                Some(Err(error)) => signed[place] = Err(error.into()),
                None => signed[place] = Err(Failed::Internal),
            }
        }
        left = again;
        if left.is_empty() {
            break;
        }
    }
    signed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(usable_from: usize) -> (usize, Vec<Result<Signature<32>, Failed>>) {
        let key = EcKey::new(Curve::P256, &[7; 32], None).unwrap();
        let Material::P256(pair) = key.material() else {
            unreachable!("it was made for this curve")
        };
        let digests = [[1; 32], [2; 32], [3; 32]];
        let inputs: Vec<ToSign<'_, 32>> = digests.iter().map(|d| (pair, &d[..])).collect();
        let mut attempts = 0;
        // The nonce of the second request is zero at first.
        let nonces = |chosen: &[&ToSign<'_, 32>]| {
            attempts += 1;
            let expected = if attempts == 1 { 3 } else { 1 };
            assert_eq!(chosen.len(), expected, "only what failed is tried again");
            let nonce = |(_, digest): &&ToSign<'_, 32>| {
                let usable = digest[0] != 2 || attempts >= usable_from;
                Wide::from_scalar(&[u8::from(usable); 32]).unwrap()
            };
            Some(chosen.iter().map(nonce).collect())
        };
        let signed = sign::<P256, 32>(Backend::available()[0], &inputs, nonces);
        (attempts, signed)
    }

    #[test]
    fn an_unusable_nonce_is_replaced() {
        let (attempts, signed) = attempts(3);
        assert_eq!(attempts, 3);
        assert!(signed.iter().all(Result::is_ok));
    }

    #[test]
    fn nonces_that_never_become_usable_are_given_up() {
        let (attempts, signed) = attempts(usize::MAX);
        assert_eq!(attempts, ATTEMPTS);
        assert!(signed[0].is_ok() && signed[2].is_ok());
        assert!(matches!(signed[1], Err(Failed::Randomness)));
    }
}
