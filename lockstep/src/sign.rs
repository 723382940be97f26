//! New signatures.

use std::sync::Arc;

use lockstep_ops::{
    self as ops, Bytes, Curve, EcKey, EcdsaVerifyJob, MlDsa, Request, Response, RsaInput,
    VerifyingKey,
};

use crate::column::{Column, Piece};
use crate::der_signature;
use crate::device;
use crate::emsa;
use crate::error::{Error, Reason};
use crate::key::{Private, PrivateKey};
use crate::rows::Rows;
use crate::scheme::{Encoding, Hash, Kind, Salt, Scheme};
use crate::workers::{Effort, Thread, Workers};

/// Maximum length of a salt in bytes: the length of the longest modulus.
const LONGEST_SALT: usize = 512;

/// A message to sign.
#[derive(Clone, Copy, Debug)]
pub struct ToSign<'a> {
    /// The private key.
    pub key: &'a PrivateKey,
    /// The message, or its digest if the scheme is [prehashed](Scheme::prehashed).
    pub message: &'a [u8],
}

impl<'a> ToSign<'a> {
    /// Returns an item.
    pub fn new(key: &'a PrivateKey, message: &'a [u8]) -> ToSign<'a> {
        ToSign { key, message }
    }
}

impl Scheme {
    /// Returns the length of the longest signature that these items can have, in bytes.
    pub fn signature_bytes<'a>(self, items: &(impl Rows<ToSign<'a>> + ?Sized)) -> usize {
        match self.kind {
            Kind::Ecdsa(curve, _, Encoding::Fixed) => 2 * curve.bytes(),
            Kind::Ecdsa(curve, _, Encoding::Der) => der_signature::longest(curve.bytes()),
            Kind::Ed25519 => 64,
            Kind::MlDsa(set) => set.signature_bytes(),
            Kind::RsaPkcs1(_) | Kind::RsaPss(..) => {
                let moduli = (0..items.len()).map(|number| items.row(number).key.modulus_bytes());
                moduli.max().unwrap_or(0)
            }
        }
    }
}

impl Workers {
    /// Signs messages by one scheme; returns a signature for each item, in their order.
    pub fn sign_many<'a>(
        &self,
        scheme: Scheme,
        items: &(impl Rows<ToSign<'a>> + ?Sized),
    ) -> Result<Column, Error> {
        scheme.check()?;
        let width = || scheme.signature_bytes(items);
        let effort = match scheme.kind {
            Kind::RsaPkcs1(_) | Kind::RsaPss(..) => Effort::Long,
            _ => Effort::Short,
        };
        let mut signatures = Column::with_width(items.len(), width)?;
        let on = match scheme.kind {
            Kind::Ecdsa(Curve::P256, ..) => Some(device::Kind::P256Sign),
            Kind::RsaPkcs1(_) | Kind::RsaPss(..) => {
                let size = ops::Size::from_bits(8 * signatures.width());
                size.map(|size| device::Kind::RsaPrivate(size.bits()))
            }
            _ => None,
        };
        self.run(
            items.len(),
            effort,
            on,
            signatures.place(),
            |thread, numbers, place| {
                let items: Vec<_> = numbers.map(|number| items.row(number)).collect();
                thread.sign(scheme, &items, place);
            },
        )?;
        Ok(signatures)
    }
}

impl Thread<'_> {
    fn sign(&mut self, scheme: Scheme, items: &[ToSign<'_>], place: &mut Piece<'_>) {
        match scheme.kind {
            Kind::Ecdsa(curve, hash, encoding) => {
                let digests = items.iter().map(|item| match &item.key.half {
                    Private::Ec(key) if key.curve() == curve => scheme.digest(hash, item.message),
                    _ => Err(Reason::OtherAlgorithm),
                });
                let digests: Vec<_> = digests.collect();
                let inputs = items.iter().zip(&digests);
                let inputs: Vec<_> = inputs
                    .filter_map(|(item, digest)| match (&item.key.half, digest) {
                        (Private::Ec(key), Ok(digest)) => Some((&**key, &digest[..])),
                        _ => None,
                    })
                    .collect();
                let Some(signed) = self.sign_ecdsa(curve, &inputs) else {
                    self.gives_back = true;
                    return;
                };
                let mut signed = signed.into_iter();
                for (number, digest) in digests.iter().enumerate() {
                    let signature = match digest {
                        Ok(_) => next(&mut signed),
                        Err(reason) => Err(*reason),
                    };
                    match (encoding, signature) {
                        (Encoding::Der, Ok(fixed)) => {
                            let mut der = [0; der_signature::longest(48)];
                            let length = der_signature::write(&fixed, &mut der);
                            place.set(number, Ok(&der[..length]));
                        }
                        (_, signature) => place.set(number, as_slice(&signature)),
                    }
                }
            }
            Kind::Ed25519 => {
                let key = |item: &ToSign<'_>| matches!(item.key.half, Private::Ed25519(_));
                // Ed25519 reads a message twice. If C or Python let it change in between, two
                // signatures would reveal the key: so each message is read once, into a copy.
                let length = items.iter().map(|item| item.message.len()).sum();
                let mut texts = Vec::new();
                if texts.try_reserve_exact(length).is_err() {
                    for number in 0..items.len() {
                        place.set(number, Err(Reason::NoResources));
                    }
                    return;
                }
                for item in items {
                    texts.extend_from_slice(item.message);
                }
                let mut rest = &texts[..];
                let inputs = items.iter().filter_map(|item| {
                    let (message, behind) = rest.split_at(item.message.len());
                    rest = behind;
                    match &item.key.half {
                        Private::Ed25519(key) => Some((&**key, message)),
                        _ => None,
                    }
                });
                let inputs: Vec<_> = inputs.collect();
                let mut signed = self.lanes.sign_ed25519(&inputs).into_iter();
                for (number, item) in items.iter().enumerate() {
                    let signature = match key(item) {
                        true => next(&mut signed),
                        false => Err(Reason::OtherAlgorithm),
                    };
                    place.set(number, as_slice(&signature));
                }
            }
            Kind::RsaPkcs1(hash) => self.sign_rsa(scheme, hash, None, items, place),
            Kind::RsaPss(hash, salt) => self.sign_rsa(scheme, hash, Some(salt), items, place),
            Kind::MlDsa(set) => self.sign_ml_dsa(scheme, set, items, place),
        }
    }

    /// Signs digests with ECDSA: on P-256 by the thread's device, if it has one. `None` if the
    /// device fails.
    fn sign_ecdsa(
        &mut self,
        curve: Curve,
        inputs: &[(&EcKey, &[u8])],
    ) -> Option<Vec<Result<Bytes, ops::Failed>>> {
        let (Some(device), Curve::P256) = (self.device, curve) else {
            return Some(self.lanes.sign_ecdsa(curve, inputs));
        };
        let signed = self
            .lanes
            .sign_p256_elsewhere(inputs, |nonced| device::sign_p256(device, nonced))?;
        // Lanes check one signature in each piece at least, as with other operations of devices.
        let again = device::again(&vec![true; signed.len()]);
        let publics = again.iter().map(|number| {
            let (key, digest) = inputs[*number];
            let signature = signed[*number].as_ref().ok()?;
            Some((self.lanes.ec_public(key)?, digest, signature))
        });
        let publics: Vec<_> = publics.flatten().collect();
        let jobs = publics.iter().map(|(public, digest, signature)| {
            EcdsaVerifyJob::new(VerifyingKey::Plain(public), digest, signature)
        });
        let mut jobs: Vec<_> = jobs.collect();
        self.lanes.verify_ecdsa(curve, &mut jobs);
        let is_wrong = jobs.iter().any(|job| job.result != Some(Ok(true)));
        if is_wrong || signed.contains(&Err(ops::Failed::CheckFailed)) {
            device.distrust();
            return None;
        }
        Some(signed)
    }

    /// Signs with RSA: by PSS if there is a `salt`, and otherwise by PKCS#1 v1.5.
    fn sign_rsa(
        &mut self,
        scheme: Scheme,
        hash: Hash,
        salt: Option<Salt>,
        items: &[ToSign<'_>],
        place: &mut Piece<'_>,
    ) {
        let salt = salt.map(|salt| match salt {
            // No modulus has room for a longer salt, so each item gets an error.
            Salt::Bytes(length) => length.min(LONGEST_SALT),
            Salt::Digest | Salt::Any => hash.bytes(),
        });
        let mut salts = vec![0; salt.unwrap_or(0) * items.len()];
        let drawn = ops::fill_random(&mut salts);
        let read = |(number, item): (usize, &ToSign<'_>)| {
            let Private::Rsa(key) = &item.key.half else {
                return Err(Reason::OtherAlgorithm);
            };
            let key = &key.0;
            drawn.map_err(Reason::from)?;
            let digest = scheme.digest(hash, item.message)?;
            let input = match salt {
                Some(bytes) => {
                    let salt = &salts[bytes * number..][..bytes];
                    emsa::pss(hash, &digest, salt, key.modulus_bytes())
                }
                None => emsa::pkcs1(hash, &digest, key.modulus_bytes()),
            };
            let input = input.ok_or(Reason::MalformedInput)?.into();
            let key = Arc::clone(key);
            Ok(Request::RsaPrivate(RsaInput { key, input }))
        };
        let requests: Vec<_> = items.iter().enumerate().map(read).collect();
        self.execute_each_shape(requests, |number, answer| match answer {
            Ok(Response::Rsa(signature)) => place.set(number, Ok(signature.as_bytes())),
            Ok(_) => place.set(number, Err(Reason::Internal)),
            Err(reason) => place.set(number, Err(reason)),
        });
    }

    fn sign_ml_dsa(
        &mut self,
        scheme: Scheme,
        set: MlDsa,
        items: &[ToSign<'_>],
        place: &mut Piece<'_>,
    ) {
        let read = |item: &ToSign<'_>| match &item.key.half {
            Private::MlDsa(key) if key.set() == set => {
                Ok(Request::MlDsaSign(ops::MlDsaSignInput {
                    key: Arc::clone(key),
                    mu: scheme.mu(key, item.message)?,
                    randomness: None,
                }))
            }
            _ => Err(Reason::OtherAlgorithm),
        };
        let requests = items.iter().map(read).collect();
        self.execute(
            ops::Shape::MlDsaSign(set),
            requests,
            |number, answer| match answer {
                Ok(Response::MlDsa(signature)) => place.set(number, Ok(signature.as_bytes())),
                Ok(_) => place.set(number, Err(Reason::Internal)),
                Err(reason) => place.set(number, Err(reason)),
            },
        );
    }

    /// Answers requests of several shapes: of RSA keys of several sizes.
    fn execute_each_shape(
        &mut self,
        requests: Vec<Result<Request, Reason>>,
        mut take: impl FnMut(usize, Result<Response, Reason>),
    ) {
        let mut shapes: Vec<(ops::Shape, Vec<usize>, Vec<_>)> = Vec::new();
        for (number, request) in requests.into_iter().enumerate() {
            let shape = match &request {
                Ok(request) => request.shape(),
                Err(reason) => {
                    take(number, Err(*reason));
                    continue;
                }
            };
            let known = shapes.iter().position(|(own, ..)| *own == shape);
            let known = known.unwrap_or_else(|| {
                shapes.push((shape, Vec::new(), Vec::new()));
                shapes.len() - 1
            });
            shapes[known].1.push(number);
            shapes[known].2.push(request);
        }
        for (shape, numbers, requests) in shapes {
            if self.gives_back {
                return;
            }
            self.execute(shape, requests, |at, answer| take(numbers[at], answer));
        }
    }
}

fn next(answers: &mut impl Iterator<Item = Result<Bytes, ops::Failed>>) -> Result<Bytes, Reason> {
    let answer = answers.next().unwrap_or(Err(ops::Failed::Internal));
    answer.map_err(Reason::from)
}

fn as_slice(result: &Result<Bytes, Reason>) -> Result<&[u8], Reason> {
    result
        .as_ref()
        .map(|bytes| &bytes[..])
        .map_err(|reason| *reason)
}
