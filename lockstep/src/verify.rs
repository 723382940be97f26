//! Signatures that are checked.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use lockstep_ops::{
    self as ops, Bytes, Curve, EcdsaVerifyJob, Ed25519VerifyJob, GuardedRequest, Lanes, MlDsa,
    MlDsaKey, Request, Response, RsaElsewhere, RsaPublicJob, VerifyingKey,
};

use crate::der_signature;
use crate::device;
use crate::emsa;
use crate::error::{Error, Reason, Verdict};
use crate::key::{Public, PublicKey};
use crate::rows::Rows;
use crate::scalar;
use crate::scheme::{Digest, Encoding, Hash, Kind, Scheme};
use crate::table::Room;
use crate::workers::{Effort, Thread, Workers};

/// The public key of an item.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// A key that was read before. Items that share a key name the same object.
    Object(&'a PublicKey),
    /// Bytes as [`PublicKey::from_raw`] takes them, of the scheme's algorithm.
    Raw(&'a [u8]),
}

impl<'a> From<&'a PublicKey> for Key<'a> {
    fn from(key: &'a PublicKey) -> Key<'a> {
        Key::Object(key)
    }
}

/// A signature to check.
#[derive(Clone, Copy, Debug)]
pub struct ToVerify<'a> {
    /// The public key.
    pub key: Key<'a>,
    /// The message, or its digest if the scheme is [prehashed](Scheme::prehashed).
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

impl<'a> ToVerify<'a> {
    /// Returns an item.
    pub fn new(key: impl Into<Key<'a>>, message: &'a [u8], signature: &'a [u8]) -> ToVerify<'a> {
        ToVerify {
            key: key.into(),
            message,
            signature,
        }
    }
}

impl Workers {
    /// Checks signatures of one scheme; returns a verdict for each item, in their order. All
    /// operands are treated as public.
    pub fn verify_many<'a>(
        &self,
        scheme: Scheme,
        items: &(impl Rows<ToVerify<'a>> + ?Sized),
    ) -> Result<Vec<Verdict>, Error> {
        scheme.check()?;
        let mut verdicts = Vec::new();
        let count = items.len();
        verdicts
            .try_reserve_exact(count)
            .map_err(|_| Error::NoMemory)?;
        verdicts.resize(count, Err(Reason::Internal));
        self.make_tables(scheme, items);
        self.run(
            count,
            Effort::Short,
            self.kind_of_device(scheme, items),
            &mut verdicts[..],
            |thread, numbers, place| {
                let items: Vec<_> = numbers.map(|number| items.row(number)).collect();
                thread.verify(scheme, &items, place);
            },
        )?;
        Ok(verdicts)
    }
}

impl Workers {
    /// Makes the tables of keys of which many signatures are checked.
    fn make_tables<'a>(&self, scheme: Scheme, items: &(impl Rows<ToVerify<'a>> + ?Sized)) {
        if !matches!(scheme.kind, Kind::Ecdsa(..) | Kind::Ed25519) {
            return;
        }
        let due = (0..items.len()).filter_map(|number| match items.row(number).key {
            Key::Object(key) if key.algorithm() == scheme.algorithm() && key.table.is_due() => {
                Some(key)
            }
            _ => None,
        });
        let mut due: Vec<&PublicKey> = due.collect();
        let mut rooms: Vec<_> = Room::reserve(due.len()).into_iter().map(Some).collect();
        due.truncate(rooms.len());
        let prepare = |thread: &mut Thread<'_>, numbers: Range<usize>, rooms: &mut &mut [_]| {
            let keys = &due[numbers];
            let raw: Vec<_> = keys
                .iter()
                .map(|key| key.raw().unwrap_or_default())
                .collect();
            let prepared = match scheme.kind {
                Kind::Ecdsa(curve, ..) => thread.lanes.prepare_ecdsa(curve, &raw),
                _ => thread.lanes.prepare_ed25519(&raw),
            };
            for ((key, prepared), room) in keys.iter().zip(prepared).zip(rooms.iter_mut()) {
                key.table.make(|| prepared.ok());
                // The table has added its own bytes to the count.
                *room = None;
            }
        };
        let whole = &mut rooms[..];
        // No watch can stop this run, which makes some hundred tables at most.
        let _ = self
            .unwatched()
            .run(whole.len(), Effort::Short, None, whole, prepare);
    }
}

impl Scheme {
    /// Refuses Ed25519 with digests, which does not exist.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self.is_prehashed && self.kind == Kind::Ed25519 {
            true => Err(Error::Unsupported),
            false => Ok(()),
        }
    }

    /// Returns the digest of a message, or the message if the scheme is prehashed.
    pub(crate) fn digest<'a>(self, hash: Hash, message: &'a [u8]) -> Result<Hashed<'a>, Reason> {
        match self.is_prehashed {
            false => Ok(Hashed::Here(hash.digest(&[message]))),
            true if message.len() == hash.bytes() => Ok(Hashed::Given(message)),
            true => Err(Reason::MalformedInput),
        }
    }

    /// Returns μ of a message of ML-DSA with an empty context, or the message if the scheme is
    /// prehashed.
    pub(crate) fn mu(self, key: &MlDsaKey, message: &[u8]) -> Result<[u8; 64], Reason> {
        if self.is_prehashed {
            return message.try_into().map_err(|_| Reason::MalformedInput);
        }
        let mut mu = key.mu();
        // Not hashed before, and no context (FIPS 204, algorithm 2).
        mu.update(&[0, 0]);
        mu.update(message);
        Ok(mu.finish())
    }
}

/// A digest.
pub(crate) enum Hashed<'a> {
    Here(Digest),
    Given(&'a [u8]),
}

impl std::ops::Deref for Hashed<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Hashed::Here(digest) => digest,
            Hashed::Given(digest) => digest,
        }
    }
}

impl Thread<'_> {
    pub(crate) fn verify_in_lanes(
        &mut self,
        scheme: Scheme,
        items: &[ToVerify<'_>],
        place: &mut [Verdict],
    ) {
        match scheme.kind {
            Kind::Ecdsa(curve, hash, encoding) => {
                // For keys with tables, lanes are faster.
                let is_scalar = scalar::is_faster(self.lanes.backend());
                let read = |item: &_| {
                    let told = (is_scalar && !has_table(item))
                        .then(|| verify_scalar(self.lanes, scheme, curve, hash, encoding, item));
                    match told.flatten() {
                        Some(verdict) => Err(verdict),
                        None => read_ecdsa(scheme, curve, hash, encoding, item).map_err(Err),
                    }
                };
                verify_curve(items, place, read, |read| {
                    let jobs = read.iter().flatten().map(Readable::ecdsa);
                    let mut jobs: Vec<_> = jobs.collect();
                    self.lanes.verify_ecdsa(curve, &mut jobs);
                    jobs.into_iter().map(|job| job.result).collect()
                });
            }
            Kind::Ed25519 => verify_curve(
                items,
                place,
                |item| read_ed25519(item).map_err(Err),
                |read| {
                    let jobs = read.iter().flatten().map(Readable::ed25519);
                    let mut jobs: Vec<_> = jobs.collect();
                    self.lanes.verify_ed25519(&mut jobs);
                    jobs.into_iter().map(|job| job.result).collect()
                },
            ),
            Kind::RsaPkcs1(_) | Kind::RsaPss(..) => self.verify_rsa(scheme, items, place),
            Kind::MlDsa(set) => self.verify_ml_dsa(scheme, set, items, place),
        }
    }

    fn verify_rsa(&mut self, scheme: Scheme, items: &[ToVerify<'_>], place: &mut [Verdict]) {
        let (Kind::RsaPkcs1(hash) | Kind::RsaPss(hash, _)) = scheme.kind else {
            return;
        };
        let read = items.iter().map(|item| match item.key {
            Key::Raw(_) => Err(Reason::MalformedKey),
            Key::Object(key) => match &key.half {
                Public::Rsa(key) => {
                    let signature =
                        full_length(scheme, item.signature, key.prepared.modulus_bytes())?;
                    Ok((
                        Arc::clone(key),
                        scheme.digest(hash, item.message)?,
                        signature,
                    ))
                }
                _ => Err(Reason::OtherAlgorithm),
            },
        });
        let read: Vec<_> = read.collect();
        let readable = read.iter().flatten();
        let mut jobs: Vec<_> = readable
            .map(|(key, _, signature)| RsaPublicJob::new(&key.prepared, signature))
            .collect();
        self.lanes.rsa_public(&mut self.memory, &mut jobs);
        let mut numbers = jobs.into_iter().map(|job| job.result);
        for (place, read) in place.iter_mut().zip(&read) {
            *place = read
                .as_ref()
                .map_err(|reason| *reason)
                .and_then(|(_, digest, _)| {
                    let number = numbers.next().flatten().ok_or(Reason::Internal)?;
                    let mut number = number.map_err(|failed| match failed {
                        // The signature is not below n.
                        ops::Failed::Input(_) => Reason::MalformedSignature,
                        failed => failed.into(),
                    })?;
                    verdict(Ok(is_padded(scheme.kind, digest, &mut number)))
                });
        }
    }

    fn verify_ml_dsa(
        &mut self,
        scheme: Scheme,
        set: MlDsa,
        items: &[ToVerify<'_>],
        place: &mut [Verdict],
    ) {
        let lanes = self.lanes;
        let read = |item: &ToVerify<'_>| {
            let key = match item.key {
                Key::Raw(bytes) => MlDsaKey::new(set, bytes, None).map(Arc::new),
                Key::Object(key) => match &key.half {
                    Public::MlDsa(key) if key.set() == set => Ok(Arc::clone(key)),
                    _ => return Err(Reason::OtherAlgorithm),
                },
            };
            let key = key.map_err(|_| Reason::MalformedKey)?;
            // Lanes hash the key while they expand it, so μ is computed afterwards.
            lanes.prepare_ml_dsa(&key)?;
            let mu = scheme.mu(&key, item.message)?;
            let signature = Bytes::from_slice(item.signature);
            Ok(Request::MlDsaVerify(ops::MlDsaVerifyInput {
                key,
                mu,
                signature,
            }))
        };
        let requests = items.iter().map(read).collect();
        self.execute(ops::Shape::MlDsaVerify(set), requests, |number, answer| {
            place[number] = match answer {
                Ok(Response::Verified(right)) => verdict(Ok(right)),
                Ok(_) => Err(Reason::Internal),
                Err(reason) => Err(reason),
            };
        });
    }

    /// Answers requests that own their inputs, in batches. `take` gets the answer of each, in any
    /// order.
    pub(crate) fn execute(
        &mut self,
        shape: ops::Shape,
        requests: Vec<Result<Request, Reason>>,
        mut take: impl FnMut(usize, Result<Response, Reason>),
    ) {
        let mut is_wrong = vec![false; requests.len()];
        let mut readable = Vec::with_capacity(requests.len());
        for (number, request) in requests.into_iter().enumerate() {
            match request {
                Ok(request) => readable.push((number, GuardedRequest::from(request))),
                Err(reason) => take(number, Err(reason)),
            }
        }
        if let (Some(device), ops::Shape::Rsa { .. }) = (self.device, shape) {
            let requests: Vec<_> = readable.iter().map(|(_, request)| request).collect();
            let answers = self
                .lanes
                .rsa_elsewhere(&mut self.memory, &requests, |inputs| {
                    device::rsa_private(device, inputs)
                });
            let Some(answers) = answers else {
                self.gives_back = true;
                return;
            };
            let mut answers = answers.into_iter();
            readable.retain(|(number, _)| match answers.next() {
                Some(RsaElsewhere::Right(answer)) => {
                    take(*number, Ok(answer));
                    false
                }
                Some(RsaElsewhere::Wrong) => {
                    is_wrong[*number] = true;
                    true
                }
                _ => true,
            });
            // A wrong result comes from a wrong device or a wrong key. Lanes find out which one, so
            // items with wrong results come first.
            readable.sort_by_key(|(number, _)| !is_wrong[*number]);
        }
        for batch in readable.chunks(self.lanes.batch(shape)) {
            let mut answers: Vec<_> = batch.iter().map(|_| None).collect();
            let jobs = batch.iter().map(|(_, request)| request).zip(&mut answers);
            self.lanes.execute(shape, &mut self.memory, jobs);
            for ((number, _), answer) in batch.iter().zip(answers) {
                let answer = answer.unwrap_or(Err(ops::Failed::Internal));
                if let (Some(device), Ok(_)) = (self.device, &answer)
                    && is_wrong[*number]
                {
                    device.distrust();
                    self.gives_back = true;
                    return;
                }
                take(*number, answer.map_err(Reason::from));
            }
        }
    }
}

/// Checks items by `verify`, which returns their answers. An item that `read` cannot read gets the
/// verdict that `read` returns.
fn verify_curve<'a>(
    items: &'a [ToVerify<'a>],
    place: &mut [Verdict],
    read: impl Fn(&'a ToVerify<'a>) -> Result<Readable<'a>, Verdict>,
    verify: impl FnOnce(&[Result<Readable<'a>, Verdict>]) -> Vec<Option<Result<bool, ops::Failed>>>,
) {
    let read: Vec<_> = items.iter().map(read).collect();
    let mut verdicts = verify(&read).into_iter();
    for (place, read) in place.iter_mut().zip(&read) {
        *place = match read {
            Ok(_) => verdict(
                verdicts
                    .next()
                    .flatten()
                    .unwrap_or(Err(ops::Failed::Internal)),
            ),
            Err(verdict) => *verdict,
        };
    }
}

/// Returns whether a number, as long as the modulus, is the padded digest. Overwrites the number.
pub(crate) fn is_padded(kind: Kind, digest: &[u8], number: &mut [u8]) -> bool {
    match kind {
        Kind::RsaPkcs1(hash) => {
            emsa::pkcs1(hash, digest, number.len()).is_some_and(|own| own == number)
        }
        Kind::RsaPss(hash, salt) => emsa::is_pss(hash, digest, salt, number),
        Kind::Ecdsa(..) | Kind::Ed25519 | Kind::MlDsa(_) => false,
    }
}

/// Returns a signature of RSA as long as the modulus. OpenSSL takes a shorter one with PSS, as if
/// it began with zeros.
pub(crate) fn full_length(
    scheme: Scheme,
    signature: &[u8],
    length: usize,
) -> Result<Cow<'_, [u8]>, Reason> {
    match (scheme.kind, signature.len()) {
        (_, own) if own == length => Ok(Cow::Borrowed(signature)),
        (Kind::RsaPss(..), own @ 1..) if own < length => {
            let zeros = vec![0; length - own];
            Ok(Cow::Owned([&zeros[..], signature].concat()))
        }
        _ => Err(Reason::MalformedSignature),
    }
}

fn verdict(answer: Result<bool, ops::Failed>) -> Verdict {
    match answer {
        Ok(true) => Ok(()),
        Ok(false) => Err(Reason::WrongSignature),
        Err(failed) => Err(failed.into()),
    }
}

/// A readable item of a scheme on a curve.
struct Readable<'a> {
    key: VerifyingKey<'a>,
    message: Hashed<'a>,
    signature: Fixed<'a>,
}

/// A signature of fixed length.
pub(crate) enum Fixed<'a> {
    Given(&'a [u8]),
    OfDer([u8; 96], usize),
}

impl Readable<'_> {
    fn ecdsa(&self) -> EcdsaVerifyJob<'_> {
        EcdsaVerifyJob::new(self.key, &self.message, &self.signature)
    }

    fn ed25519(&self) -> Ed25519VerifyJob<'_> {
        Ed25519VerifyJob::new(self.key, &self.message, &self.signature)
    }
}

impl<'a> Fixed<'a> {
    /// Reads a signature of ECDSA.
    pub(crate) fn read(
        curve: Curve,
        encoding: Encoding,
        signature: &'a [u8],
    ) -> Result<Fixed<'a>, Reason> {
        let length = 2 * curve.bytes();
        match encoding {
            Encoding::Fixed if signature.len() == length => Ok(Fixed::Given(signature)),
            Encoding::Fixed => Err(Reason::MalformedSignature),
            Encoding::Der => {
                let mut fixed = [0; 96];
                der_signature::read(signature, curve.bytes(), &mut fixed[..length])
                    .ok_or(Reason::MalformedSignature)?;
                Ok(Fixed::OfDer(fixed, length))
            }
        }
    }
}

impl std::ops::Deref for Fixed<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Fixed::Given(signature) => signature,
            Fixed::OfDer(signature, length) => &signature[..*length],
        }
    }
}

/// Returns a key of an object, with its table if it has one.
fn verifying<'a>(key: &'a PublicKey, raw: &'a [u8]) -> VerifyingKey<'a> {
    let plain = VerifyingKey::Plain(raw);
    key.table.get().map_or(plain, VerifyingKey::Prepared)
}

fn read_ecdsa<'a>(
    scheme: Scheme,
    curve: Curve,
    hash: Hash,
    encoding: Encoding,
    item: &ToVerify<'a>,
) -> Result<Readable<'a>, Reason> {
    let point = point_of(curve, item.key)?;
    Ok(Readable {
        key: match item.key {
            Key::Raw(_) => VerifyingKey::Plain(point),
            Key::Object(key) => verifying(key, point),
        },
        signature: Fixed::read(curve, encoding, item.signature)?,
        message: scheme.digest(hash, item.message)?,
    })
}

/// Returns the bytes of a point.
pub(crate) fn point_of(curve: Curve, key: Key<'_>) -> Result<&[u8], Reason> {
    match key {
        Key::Raw(bytes) => Ok(bytes),
        Key::Object(key) => match &key.half {
            Public::Ec(own, point) if *own == curve => Ok(point),
            _ => Err(Reason::OtherAlgorithm),
        },
    }
}

fn has_table(item: &ToVerify<'_>) -> bool {
    matches!(item.key, Key::Object(key) if key.table.get().is_some())
}

/// Checks an ECDSA signature without lanes. `None` if lanes have to check it.
fn verify_scalar(
    lanes: &Lanes,
    scheme: Scheme,
    curve: Curve,
    hash: Hash,
    encoding: Encoding,
    item: &ToVerify<'_>,
) -> Option<Verdict> {
    let point = point_of(curve, item.key).ok()?;
    let signature = Fixed::read(curve, encoding, item.signature).ok()?;
    let right = match scheme.is_prehashed {
        true if curve != Curve::P256 || item.message.len() != hash.bytes() => return None,
        true => scalar::verify_digest(lanes, point, item.message, &signature)?,
        false => scalar::verify(lanes, curve, hash, point, item.message, &signature),
    };
    Some(verdict(right))
}

fn read_ed25519<'a>(item: &ToVerify<'a>) -> Result<Readable<'a>, Reason> {
    let key = match item.key {
        Key::Raw(bytes) => VerifyingKey::Plain(bytes),
        Key::Object(key) => match &key.half {
            Public::Ed25519(bytes) => verifying(key, bytes),
            _ => return Err(Reason::OtherAlgorithm),
        },
    };
    if item.signature.len() != 64 {
        return Err(Reason::MalformedSignature);
    }
    Ok(Readable {
        key,
        message: Hashed::Given(item.message),
        signature: Fixed::Given(item.signature),
    })
}
