//! Operations on arrays that the caller keeps: nothing is copied into requests.
//!
//! The queue needs requests that own their inputs, since other threads compute them. A caller that
//! has all inputs in hand can lend them. Each function takes an array of any length, and returns an
//! answer for each input, in their order.

use lockstep_kernels::curve25519::{ed25519, x25519};
use lockstep_kernels::nist::{KeypairJob, Wide};

use super::curve25519::to_agree;
use super::nist::{Kernels, for_curve};
use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::kem::are_equal;
use crate::keys::{EcKey, Ed25519Key};
use crate::kinds::Curve;
use crate::lanes::Lanes;
use crate::sec1;

impl Lanes {
    /// Signs digests with ECDSA and hedged nonces: r ‖ s. A key of another curve is a
    /// [`Failed::BadScalar`].
    ///
    /// # Examples
    ///
    /// ```
    /// use lockstep_ops::{Backend, Curve, EcKey, EcdsaVerifyJob, Lanes, VerifyingKey};
    ///
    /// let lanes = Lanes::new(Backend::PORTABLE, 64, 0);
    /// let key = EcKey::new(Curve::P256, &[7; 32], None)?;
    /// let public = lanes.ec_public(&key).expect("a scalar below the order");
    /// let digests = [[1; 32], [2; 32], [3; 32]];
    /// let inputs = digests.each_ref().map(|digest| (&key, &digest[..]));
    /// let signed = lanes.sign_ecdsa(Curve::P256, &inputs);
    /// for (signature, digest) in signed.iter().zip(&digests) {
    ///     let signature = signature.as_ref().expect("a signature");
    ///     let key = VerifyingKey::Plain(&public);
    ///     let mut jobs = [EcdsaVerifyJob::new(key, digest, signature)];
    ///     lanes.verify_ecdsa(Curve::P256, &mut jobs);
    ///     assert_eq!(jobs[0].result, Some(Ok(true)));
    /// }
    /// # Ok::<(), lockstep_ops::Malformed>(())
    /// ```
    pub fn sign_ecdsa(
        &self,
        curve: Curve,
        inputs: &[(&EcKey, &[u8])],
    ) -> Vec<Result<Bytes, Failed>> {
        for_curve!(curve, self.sign_ecdsa_on(inputs))
    }

    fn sign_ecdsa_on<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        inputs: &[(&EcKey, &[u8])],
    ) -> Vec<Result<Bytes, Failed>> {
        answer_each(
            inputs,
            |(key, digest)| match C::pair(key) {
                Some(pair) => Ok((pair, digest)),
                None => Err(Err(Failed::BadScalar)),
            },
            |readable| self.sign_nist::<C, BYTES>(&readable),
        )
    }

    /// Agrees on a secret by ECDH for each pair of a key and the peer's point of SEC 1, compressed
    /// or not. Gives the secrets to `take`, in the order of the inputs. A key of another curve is a
    /// [`Failed::BadScalar`].
    pub fn agree_ecdh(
        &self,
        curve: Curve,
        inputs: &[(&EcKey, &[u8])],
        take: impl FnMut(Result<&[u8], Failed>),
    ) {
        for_curve!(curve, self.agree_ecdh_on(inputs, take));
    }

    fn agree_ecdh_on<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        inputs: &[(&EcKey, &[u8])],
        take: impl FnMut(Result<&[u8], Failed>),
    ) {
        let peers = inputs.iter().map(|(_, peer)| *peer);
        let peers = sec1::read(peers, |jobs| C::decompress(self.backend, jobs));
        let read = inputs.iter().zip(peers).map(|((key, _), peer)| {
            let pair = C::pair(key).ok_or(Failed::BadScalar)?;
            Ok((pair.secret(), peer?))
        });
        let inputs: Vec<_> = read.collect();
        give_each(&inputs, take, |readable, take| {
            self.each_agreed::<C, BYTES>(readable, take);
        });
    }

    /// Agrees on a secret by X25519 for each pair of a secret key and the peer's public key of 32
    /// bytes. Gives the secrets to `take`, in the order of the inputs.
    pub fn agree_x25519_of(
        &self,
        inputs: &[(&[u8], &[u8])],
        take: impl FnMut(Result<&[u8], Failed>),
    ) {
        let read = inputs.iter().map(|(secret, peer)| {
            let peer = (*peer).try_into().map_err(|_| Failed::BadPoint)?;
            to_agree(secret, peer)
        });
        let inputs: Vec<_> = read.collect();
        give_each(&inputs, take, |readable, take| {
            self.each_agreed_x25519(readable, take);
        });
    }

    /// Signs messages with Ed25519: R ‖ S.
    pub fn sign_ed25519(&self, inputs: &[(&Ed25519Key, &[u8])]) -> Vec<Result<Bytes, Failed>> {
        answer_each(
            inputs,
            |(key, message)| self.to_sign_by(key, message),
            |mut jobs| self.sign_ed25519_in(&mut jobs),
        )
    }

    /// Returns the public keys of Ed25519's seeds.
    pub fn ed25519_publics(&self, seeds: &[[u8; 32]]) -> Vec<[u8; 32]> {
        let seeds = seeds.iter().map(ed25519::Seed::from_ref);
        let mut jobs: Vec<_> = seeds.map(ed25519::KeypairJob::new).collect();
        ed25519::keypair(self.backend, &mut jobs);
        let public = |job: &ed25519::KeypairJob<'_>| {
            let key = job.result.as_ref().expect("every job is served");
            *key.public()
        };
        jobs.iter().map(public).collect()
    }

    /// Returns the public key of an X25519 private key; `None` if the private key is not 32 bytes
    /// long.
    pub fn x25519_public(&self, secret: &[u8]) -> Option<[u8; 32]> {
        let secret = x25519::SecretKey::from_ref(secret.try_into().ok()?);
        let mut job = [x25519::KeypairJob::new(secret)];
        x25519::keypair(self.backend, &mut job);
        job[0].result
    }

    /// Returns a point of SEC 1, compressed or not, in its uncompressed form. `None` for bytes that
    /// are no encoding, and for an x that no point has. Whether an uncompressed point lies on the
    /// curve is not checked.
    pub fn ec_point(&self, curve: Curve, encoding: &[u8]) -> Option<Vec<u8>> {
        for_curve!(curve, self.ec_point_on(encoding))
    }

    fn ec_point_on<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        encoding: &[u8],
    ) -> Option<Vec<u8>> {
        let one = std::iter::once(encoding);
        let mut points = sec1::read(one, |jobs| C::decompress(self.backend, jobs));
        Some(points.pop()?.ok()?.to_sec1())
    }

    /// Computes the point of a key, uncompressed as in SEC 1; `None` if its scalar is not in 1..n.
    pub fn ec_public(&self, key: &EcKey) -> Option<Vec<u8>> {
        for_curve!(key.curve(), self.ec_public_on(key))
    }

    fn ec_public_on<C: Kernels<BYTES>, const BYTES: usize>(&self, key: &EcKey) -> Option<Vec<u8>> {
        let scalar = C::pair(key)?.secret().as_bytes();
        let seed = Wide::from_scalar(scalar)?;
        let mut job = [KeypairJob::new(&seed)];
        C::keypair(self.backend, &mut job);
        let [KeypairJob { result, .. }] = &job;
        let (reduced, public) = result.as_ref()?.as_ref().ok()?;
        // A scalar that is not below n was reduced.
        are_equal(reduced.as_bytes(), scalar).then(|| public.to_sec1())
    }
}

/// Fills bytes with randomness for keys and salts, from the system.
pub fn fill_random(bytes: &mut [u8]) -> Result<(), Failed> {
    crate::entropy::fill(bytes).ok_or(Failed::Randomness)
}

/// Computes the inputs that can be read; an input that cannot be read has the answer of `read`.
fn answer_each<I: Copy, R, O>(
    inputs: &[I],
    read: impl Fn(I) -> Result<R, Result<O, Failed>>,
    compute: impl FnOnce(Vec<R>) -> Vec<Result<O, Failed>>,
) -> Vec<Result<O, Failed>> {
    let mut readable = Vec::with_capacity(inputs.len());
    let mut early = Vec::new();
    for (place, input) in inputs.iter().enumerate() {
        match read(*input) {
            Ok(input) => readable.push(input),
            Err(answer) => early.push((place, answer)),
        }
    }
    let computed = match readable.is_empty() {
        true => Vec::new(),
        false => compute(readable),
    };
    if early.is_empty() {
        return computed;
    }
    let (mut computed, mut early) = (computed.into_iter(), early.into_iter().peekable());
    let answer = |place| match early.next_if(|(at, _)| *at == place) {
        Some((_, answer)) => answer,
        None => computed.next().unwrap_or(Err(Failed::Internal)),
    };
    (0..inputs.len()).map(answer).collect()
}

/// Computes the inputs that could be read, and gives all answers to `take`.
fn give_each<R: Copy>(
    inputs: &[Result<R, Failed>],
    mut take: impl FnMut(Result<&[u8], Failed>),
    compute: impl FnOnce(&[R], &mut dyn FnMut(Result<&[u8], Failed>)),
) {
    let readable: Vec<R> = inputs.iter().filter_map(|input| input.ok()).collect();
    let mut rest = inputs.iter();
    let mut give = |answer: Result<&[u8], Failed>| {
        for input in rest.by_ref() {
            match input {
                Ok(_) => return take(answer),
                Err(failed) => take(Err(*failed)),
            }
        }
    };
    compute(&readable, &mut give);
    for input in rest {
        take(Err(input.err().unwrap_or(Failed::Internal)));
    }
}
