//! Signatures on curves, checked in arrays of any length, with keys as they are or prepared.

use std::fmt;

use lockstep_kernels::curve25519::{self, ed25519, prepared};
use lockstep_kernels::nist::{
    self, DecompressJob, PrepareJob, PreparedVerifyJob, PublicKey, Signature, VerifyJob, p256, p384,
};

use crate::failed::Failed;
use crate::kinds::Curve;
use crate::lanes::Lanes;
use crate::sec1;

/// A public key with a table of its multiples, with which a signature is checked in less time.
///
/// | key | bytes of the table | time to make it, in checks with a plain key |
/// |---|---|---|
/// | P-256 | 53,248 | 10 |
/// | P-384 | 118,272 | 8 |
/// | Ed25519 | 78,336 | 13 |
///
/// The time is for each key, if at least eight keys are prepared together; a key alone takes twice
/// as long. A check then takes less than half the time, so a table pays from some twenty signatures
/// on.
///
/// The whole table is public.
#[derive(Clone)]
pub struct PreparedKey(Table);

/// The table of a key, boxed, so that prepared keys of all kinds have the same size.
#[derive(Clone)]
enum Table {
    P256(Box<p256::PreparedKey>),
    P384(Box<p384::PreparedKey>),
    Ed25519(Box<prepared::PreparedKey>),
}

impl PreparedKey {
    /// Returns the number of bytes of its table.
    pub fn table_bytes(&self) -> usize {
        match self.0 {
            Table::P256(_) => p256::PreparedKey::TABLE_BYTES,
            Table::P384(_) => p384::PreparedKey::TABLE_BYTES,
            Table::Ed25519(_) => prepared::PreparedKey::TABLE_BYTES,
        }
    }
}

impl fmt::Debug for PreparedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Table::P256(key) => key.fmt(f),
            Table::P384(key) => key.fmt(f),
            Table::Ed25519(key) => key.fmt(f),
        }
    }
}

/// The key of a signature that is checked.
#[derive(Clone, Copy, Debug)]
pub enum VerifyingKey<'a> {
    /// On P-256 and P-384 the point as in SEC 1: 04 ‖ x ‖ y, or compressed. Ed25519: 32 bytes.
    Plain(&'a [u8]),
    /// A key that was prepared.
    Prepared(&'a PreparedKey),
}

/// An ECDSA signature to check.
#[derive(Clone, Debug)]
pub struct EcdsaVerifyJob<'a> {
    /// The signer's key.
    pub key: VerifyingKey<'a>,
    /// The digest, of any length. If it is longer than a scalar, only its first bytes count, as
    /// many as a scalar has.
    pub digest: &'a [u8],
    /// r ‖ s, big-endian, each as long as a scalar.
    pub signature: &'a [u8],
    /// Set by [`Lanes::verify_ecdsa`]: whether the signature belongs to the key and the digest.
    pub result: Option<Result<bool, Failed>>,
}

impl<'a> EcdsaVerifyJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: VerifyingKey<'a>, digest: &'a [u8], signature: &'a [u8]) -> Self {
        Self {
            key,
            digest,
            signature,
            result: None,
        }
    }
}

/// An Ed25519 signature to check.
#[derive(Clone, Debug)]
pub struct Ed25519VerifyJob<'a> {
    /// The signer's key.
    pub key: VerifyingKey<'a>,
    /// The message.
    pub message: &'a [u8],
    /// R ‖ S, 64 bytes.
    pub signature: &'a [u8],
    /// Set by [`Lanes::verify_ed25519`]: whether the signature belongs to the key and the message.
    pub result: Option<Result<bool, Failed>>,
}

impl<'a> Ed25519VerifyJob<'a> {
    /// Returns a job without a result.
    pub fn new(key: VerifyingKey<'a>, message: &'a [u8], signature: &'a [u8]) -> Self {
        Self {
            key,
            message,
            signature,
            result: None,
        }
    }
}

/// The kernels of one curve, and its tables.
trait Kernels<const BYTES: usize> {
    fn decompress(lanes: &Lanes, jobs: &mut [DecompressJob<'_, BYTES>]);
    fn prepare(lanes: &Lanes, jobs: &mut [PrepareJob<'_, BYTES>]);
    fn verify(lanes: &Lanes, jobs: &mut [VerifyJob<'_, BYTES>]);
    fn verify_prepared(lanes: &Lanes, jobs: &mut [PreparedVerifyJob<'_, BYTES>]);
    fn table(key: nist::PreparedKey<BYTES>) -> Table;
    /// Returns the key, if it is of this curve.
    fn key(table: &Table) -> Option<&nist::PreparedKey<BYTES>>;
}

macro_rules! kernels {
    ($curve:ident, $module:ident) => {
        enum $curve {}

        impl Kernels<{ $module::BYTES }> for $curve {
            fn decompress(lanes: &Lanes, jobs: &mut [$module::DecompressJob<'_>]) {
                $module::decompress(lanes.backend, jobs);
            }

            fn prepare(lanes: &Lanes, jobs: &mut [$module::PrepareJob<'_>]) {
                $module::prepare(lanes.backend, jobs);
            }

            fn verify(lanes: &Lanes, jobs: &mut [$module::VerifyJob<'_>]) {
                $module::ecdsa_verify_vartime(lanes.backend, jobs);
            }

            fn verify_prepared(lanes: &Lanes, jobs: &mut [$module::PreparedVerifyJob<'_>]) {
                $module::ecdsa_verify_prepared_vartime(lanes.backend, jobs);
            }

            fn table(key: $module::PreparedKey) -> Table {
                Table::$curve(Box::new(key))
            }

            fn key(table: &Table) -> Option<&$module::PreparedKey> {
                match table {
                    Table::$curve(key) => Some(key),
                    _ => None,
                }
            }
        }
    };
}

kernels!(P256, p256);
kernels!(P384, p384);

impl Lanes {
    /// Prepares keys of a curve, given as points of SEC 1, compressed or not. Several keys take
    /// less time together. [`Failed::BadPoint`] for a key that is not a point.
    ///
    /// # Examples
    ///
    /// ```
    /// use lockstep_ops::{
    ///     Backend, Curve, EcdsaVerifyJob, Failed, KeyKind, Lanes, GuardedRequest, Memory, Request,
    ///     Response, Shape, VerifyingKey,
    /// };
    ///
    /// let lanes = Lanes::new(Backend::PORTABLE, 64, 0);
    /// # let kind = KeyKind::Nist(Curve::P256);
    /// # let requests = [GuardedRequest::from(Request::Keypair(kind))];
    /// # let mut answers = [None];
    /// # let jobs = requests.iter().zip(&mut answers);
    /// # lanes.execute(Shape::Keypair(kind), &mut Memory::default(), jobs);
    /// # let [Some(Ok(Response::Keypair(pair)))] = answers else { panic!("no key pair") };
    /// # let public: &[u8] = &pair.public;
    /// let mut prepared = lanes.prepare_ecdsa(Curve::P256, &[public, b"no key"]);
    /// assert!(matches!(prepared.pop(), Some(Err(Failed::BadPoint))));
    /// let key = prepared.pop().expect("a result for each key")?;
    ///
    /// // Plain and prepared keys can be mixed.
    /// let (digest, signature) = ([7; 32], [1; 64]);
    /// let keys = [VerifyingKey::Plain(public), VerifyingKey::Prepared(&key)];
    /// let mut jobs = keys.map(|key| EcdsaVerifyJob::new(key, &digest, &signature));
    /// lanes.verify_ecdsa(Curve::P256, &mut jobs);
    /// assert!(jobs.iter().all(|job| job.result == Some(Ok(false))));
    /// # Ok::<(), Failed>(())
    /// ```
    pub fn prepare_ecdsa(&self, curve: Curve, keys: &[&[u8]]) -> Vec<Result<PreparedKey, Failed>> {
        match curve {
            Curve::P256 => self.prepare_nist::<P256, 32>(keys),
            Curve::P384 => self.prepare_nist::<P384, 48>(keys),
        }
    }

    fn prepare_nist<C: Kernels<BYTES>, const BYTES: usize>(
        &self,
        keys: &[&[u8]],
    ) -> Vec<Result<PreparedKey, Failed>> {
        let keys = sec1::read(keys.iter().copied(), |jobs| C::decompress(self, jobs));
        let mut lanes: Vec<_> = keys.iter().flatten().map(PrepareJob::new).collect();
        C::prepare(self, &mut lanes);
        let results: Vec<_> = lanes.into_iter().map(|lane| lane.result).collect();
        let mut results = results.into_iter();
        let result = |key: Result<_, Failed>| {
            key?;
            let prepared = results.next().flatten().ok_or(Failed::Internal)?;
            Ok(PreparedKey(C::table(prepared?)))
        };
        keys.into_iter().map(result).collect()
    }

    /// Prepares Ed25519 keys of 32 bytes. Several keys take less time together.
    /// [`Failed::BadPoint`] for a key that is not a point.
    pub fn prepare_ed25519(&self, keys: &[&[u8]]) -> Vec<Result<PreparedKey, Failed>> {
        let read = |key: &&[u8]| ed25519::PublicKey::try_from(*key).map_err(|_| Failed::BadPoint);
        let keys: Vec<_> = keys.iter().map(read).collect();
        let mut lanes: Vec<_> = keys
            .iter()
            .flatten()
            .map(prepared::PrepareJob::new)
            .collect();
        prepared::prepare(self.backend, &mut lanes);
        let results: Vec<_> = lanes.into_iter().map(|lane| lane.result).collect();
        let mut results = results.into_iter();
        let result = |key: Result<_, Failed>| {
            key?;
            let prepared = results.next().flatten().ok_or(Failed::Internal)?;
            Ok(PreparedKey(Table::Ed25519(Box::new(prepared?))))
        };
        keys.into_iter().map(result).collect()
    }

    /// Checks ECDSA signatures on a curve, in an array of any length, in variable time. Plain and
    /// prepared keys may be mixed. [`Failed::BadPoint`] for a key that is not a point of the curve,
    /// or was prepared for another one; signatures of a wrong length do not verify.
    ///
    /// This is no row of [`Shape`](crate::Shape), and no queue serves it: it is for callers that
    /// have the whole array.
    pub fn verify_ecdsa(&self, curve: Curve, jobs: &mut [EcdsaVerifyJob<'_>]) {
        match curve {
            Curve::P256 => self.verify_nist::<P256, 32>(jobs),
            Curve::P384 => self.verify_nist::<P384, 48>(jobs),
        }
    }

    fn verify_nist<C: Kernels<BYTES>, const BYTES: usize>(&self, jobs: &mut [EcdsaVerifyJob<'_>]) {
        let plain = jobs.iter().filter_map(|job| match job.key {
            VerifyingKey::Plain(key) => Some(key),
            VerifyingKey::Prepared(_) => None,
        });
        let mut points = sec1::read(plain, |jobs| C::decompress(self, jobs)).into_iter();
        let claims = jobs.iter().map(|job| claim::<C, BYTES>(job, &mut points));
        let claims: Vec<_> = claims.collect();
        let (mut plain, mut prepared) = (Vec::new(), Vec::new());
        for (job, claim) in jobs.iter().zip(&claims) {
            match claim {
                Ok((Key::Plain(key), signature)) => {
                    plain.push(VerifyJob::new(key, job.digest, signature));
                }
                Ok((Key::Prepared(key), signature)) => {
                    prepared.push(PreparedVerifyJob::new(key, job.digest, signature));
                }
                Err(_) => {}
            }
        }
        C::verify(self, &mut plain);
        C::verify_prepared(self, &mut prepared);
        let mut plain = plain.iter().map(|lane| lane.result);
        let mut prepared = prepared.iter().map(|lane| lane.result);
        let results: Vec<_> = claims
            .iter()
            .map(|claim| match claim {
                Ok((Key::Plain(_), _)) => nist_verdict(plain.next().flatten()),
                Ok((Key::Prepared(_), _)) => nist_verdict(prepared.next().flatten()),
                Err(early) => *early,
            })
            .collect();
        for (job, result) in jobs.iter_mut().zip(results) {
            job.result = Some(result);
        }
    }

    /// Checks Ed25519 signatures, in an array of any length, in variable time. Plain and prepared
    /// keys may be mixed. [`Failed::BadPoint`] for a key that is not a point, or was prepared for
    /// another curve; signatures of a wrong length do not verify.
    ///
    /// This is no row of [`Shape`](crate::Shape), and no queue serves it: it is for callers that
    /// have the whole array.
    pub fn verify_ed25519(&self, jobs: &mut [Ed25519VerifyJob<'_>]) {
        let (mut plain, mut prepared) = (Vec::new(), Vec::new());
        let (mut plain_places, mut prepared_places) = (Vec::new(), Vec::new());
        for (place, job) in jobs.iter_mut().enumerate() {
            let signature = <&ed25519::Signature>::try_from(job.signature);
            let key = match job.key {
                VerifyingKey::Plain(key) => <&ed25519::PublicKey>::try_from(key)
                    .map(Key::Plain)
                    .map_err(|_| Failed::BadPoint),
                VerifyingKey::Prepared(PreparedKey(Table::Ed25519(key))) => Ok(Key::Prepared(key)),
                VerifyingKey::Prepared(_) => Err(Failed::BadPoint),
            };
            match (key, signature) {
                (Ok(Key::Plain(key)), Ok(signature)) => {
                    plain.push(ed25519::VerifyJob::new(key, job.message, signature));
                    plain_places.push(place);
                }
                (Ok(Key::Prepared(key)), Ok(signature)) => {
                    let lane = prepared::PreparedVerifyJob::new(key, job.message, signature);
                    prepared.push(lane);
                    prepared_places.push(place);
                }
                (Ok(_), Err(_)) => job.result = Some(Ok(false)),
                (Err(failed), _) => job.result = Some(Err(failed)),
            }
        }
        ed25519::verify_vartime(self.backend, &mut plain);
        prepared::verify_prepared_vartime(self.backend, &mut prepared);
        let plain = plain.into_iter().map(|lane| lane.result);
        let prepared = prepared.into_iter().map(|lane| lane.result);
        let places = plain_places.into_iter().chain(prepared_places);
        for (place, result) in places.zip(plain.chain(prepared)) {
            jobs[place].result = Some(match result {
                Some(Ok(())) => Ok(true),
                Some(Err(curve25519::Error::Signature)) => Ok(false),
                Some(Err(error)) => Err(error.into()),
                None => Err(Failed::Internal),
            });
        }
    }
}

/// A key as the kernels take it.
enum Key<P, Q> {
    Plain(P),
    Prepared(Q),
}

/// A key and a signature that can be checked, or the result.
type Claim<'a, const BYTES: usize> = Result<
    (
        Key<PublicKey<BYTES>, &'a nist::PreparedKey<BYTES>>,
        Signature<BYTES>,
    ),
    Result<bool, Failed>,
>;

/// Reads a job. The point of a plain key is the next one of `points`.
fn claim<'a, C: Kernels<BYTES>, const BYTES: usize>(
    job: &EcdsaVerifyJob<'a>,
    points: &mut impl Iterator<Item = Result<PublicKey<BYTES>, Failed>>,
) -> Claim<'a, BYTES> {
    let key = match job.key {
        VerifyingKey::Plain(_) => Key::Plain(
            points
                .next()
                .unwrap_or(Err(Failed::Internal))
                .map_err(Err)?,
        ),
        VerifyingKey::Prepared(PreparedKey(table)) => {
            Key::Prepared(C::key(table).ok_or(Err(Failed::BadPoint))?)
        }
    };
    let (r, s) = job.signature.split_at_checked(BYTES).ok_or(Ok(false))?;
    let part = |part: &[u8]| <[u8; BYTES]>::try_from(part).map_err(|_| Ok(false));
    Ok((
        key,
        Signature {
            r: part(r)?,
            s: part(s)?,
        },
    ))
}

fn nist_verdict(result: Option<Result<(), nist::Error>>) -> Result<bool, Failed> {
    match result {
        Some(Ok(())) => Ok(true),
        Some(Err(nist::Error::Signature)) => Ok(false),
        Some(Err(error)) => Err(error.into()),
        None => Err(Failed::Internal),
    }
}
