//! Key encapsulation: ML-KEM, alone and beside a curve.

use std::iter::repeat;
use std::sync::Arc;

use lockstep_kernels::curve25519::x25519;
use lockstep_kernels::mlkem::{
    self, Coins, DecapsulateJob, EncapsulateJob, GenerateJob, SEED, SHARED_SECRET, Scratch,
    SecretKey, Seed, SharedSecret,
};
use lockstep_kernels::nist::{self, p256, p384};

use super::group::Group;
use super::nist::{P256, P384};
use super::{curve25519, nist as curves};
use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::fault::{WRONG_KEM_LANES, is_planted};
use crate::kem::{Encapsulated, KemKey, Part, are_equal};
use crate::keys::{Keypair, Secret};
use crate::kinds::{Curve, Kem, KeyKind};
use crate::lanes::random::secrets;
use crate::lanes::{Lanes, Memory};

/// The input of an encapsulation.
///
/// # Examples
///
/// An array of ML-KEM-768 secrets, sent to one key and received with it:
///
/// ```
/// use std::sync::Arc;
///
/// use lockstep_ops::{
///     Backend, Bytes, DecapsulateInput, EncapsulateInput, Kem, KemKey, Lanes, GuardedRequest,
///     Memory, Request, Response,
/// };
///
/// let kem = Kem::MlKem768;
/// let key = Arc::new(KemKey::from_seed(kem, &[7; Kem::SEED_BYTES]).expect("a seed"));
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
/// let public = Bytes::from_slice(key.public());
/// let send = |_| {
///     let (public, coins) = (public.clone(), None);
///     Request::Encapsulate(EncapsulateInput { kem, public, coins })
/// };
/// let (mut secrets, mut ciphertexts) = (Vec::new(), Vec::new());
/// for sent in compute((0..8).map(send).collect()) {
///     let Response::Encapsulated(sent) = sent else {
///         panic!("nothing was sent: {sent:?}");
///     };
///     secrets.push(sent.secret);
///     ciphertexts.push(sent.ciphertext);
/// }
/// let receive = |ciphertext| {
///     let key = Arc::clone(&key);
///     Request::Decapsulate(DecapsulateInput { key, ciphertext })
/// };
/// let received = compute(ciphertexts.into_iter().map(receive).collect());
/// for (sent, received) in secrets.iter().zip(received) {
///     assert!(matches!(received, Response::Secret(own) if own.as_bytes() == sent.as_bytes()));
/// }
/// ```
pub struct EncapsulateInput {
    /// The mechanism.
    pub kem: Kem,
    /// The peer's public key.
    pub public: Bytes,
    /// The [`Kem::COINS_BYTES`] random bytes of ML-KEM's secret, where these must be known.
    /// Otherwise they are drawn.
    pub coins: Option<Secret>,
}

/// The input of a decapsulation.
pub struct DecapsulateInput {
    /// The key, shared with other requests.
    pub key: Arc<KemKey>,
    /// The peer's ciphertext. One that was not made for the key gives a random secret.
    pub ciphertext: Bytes,
}

/// A new secret for the owner of a private key.
#[derive(Clone, Copy, Debug)]
pub struct Encapsulate(pub Kem);

/// The secret in a ciphertext.
#[derive(Clone, Copy, Debug)]
pub struct Decapsulate(pub Kem);

impl From<mlkem::Error> for Failed {
    fn from(error: mlkem::Error) -> Failed {
        match error {
            mlkem::Error::InvalidKey => Failed::BadKey,
        }
    }
}

/// The peer's share on the curve beside ML-KEM.
enum Share<'a> {
    /// There is no curve.
    None,
    X25519(&'a x25519::PublicKey),
    P256(p256::PublicKey),
    P384(p384::PublicKey),
}

impl<'a> Share<'a> {
    fn read(kem: Kem, bytes: &'a [u8]) -> Result<Share<'a>, Failed> {
        let read = || {
            Some(match kem.curve() {
                None | Some(KeyKind::Kem(_)) => Share::None,
                Some(KeyKind::X25519) => Share::X25519(bytes.try_into().ok()?),
                Some(KeyKind::Nist(Curve::P256)) => {
                    Share::P256(nist::PublicKey::from_sec1(bytes).ok()?)
                }
                Some(KeyKind::Nist(Curve::P384)) => {
                    Share::P384(nist::PublicKey::from_sec1(bytes).ok()?)
                }
            })
        };
        read().ok_or(Failed::BadPoint)
    }
}

impl<'a> Share<'a> {
    /// Pairs the peer's share with the scalar of the own key.
    fn with(&self, scalar: &'a [u8]) -> Result<Agreement<'a>, Failed> {
        Ok(match self {
            Share::None => Agreement::None,
            Share::X25519(peer) => Agreement::X25519(curve25519::to_agree(scalar, peer)?),
            Share::P256(peer) => {
                let scalar = scalar.try_into().map_err(|_| Failed::BadScalar)?;
                Agreement::P256((nist::SecretKey::from_ref(scalar), *peer))
            }
            Share::P384(peer) => {
                let scalar = scalar.try_into().map_err(|_| Failed::BadScalar)?;
                Agreement::P384((nist::SecretKey::from_ref(scalar), *peer))
            }
        })
    }
}

/// Two keys to agree by, if there is a curve.
enum Agreement<'a> {
    None,
    X25519(curve25519::ToAgree<'a>),
    P256(curves::ToAgree<'a, { p256::BYTES }>),
    P384(curves::ToAgree<'a, { p384::BYTES }>),
}

/// A peer's public key.
pub(super) struct ToEncapsulate<'a> {
    public_key: &'a [u8],
    share: Share<'a>,
    coins: Option<&'a [u8; SHARED_SECRET]>,
}

/// A private key, and a ciphertext of a peer.
pub(super) struct ToDecapsulate<'a> {
    secret_key: &'a SecretKey,
    scalar: &'a [u8],
    ciphertext: &'a [u8],
    share: Share<'a>,
}

/// Reads a public key.
pub(super) fn read_public(
    EncapsulateInput { kem, public, coins }: &EncapsulateInput,
) -> Result<ToEncapsulate<'_>, Result<Encapsulated, Failed>> {
    let parts = kem.split(Part::Public, public);
    let (public_key, share) = parts.ok_or(Err(Failed::BadKey))?;
    let share = Share::read(*kem, share).map_err(Err)?;
    let coins = coins.as_ref().map(|coins| coins.as_bytes().try_into());
    Ok(ToEncapsulate {
        public_key,
        share,
        coins: coins.transpose().map_err(|_| Err(Failed::Randomness))?,
    })
}

/// Reads a ciphertext for a key.
pub(super) fn read_ciphertext(
    DecapsulateInput { key, ciphertext }: &DecapsulateInput,
) -> Result<ToDecapsulate<'_>, Result<Secret, Failed>> {
    let kem = key.kem();
    let read = || {
        let (private, scalar) = kem.split(Part::Private, key.private())?;
        let (ml_kem, share) = kem.split(Part::Ciphertext, ciphertext)?;
        Some((SecretKey::from_ref(private), scalar, ml_kem, share))
    };
    let (secret_key, scalar, ciphertext, share) = read().ok_or(Err(Failed::BadKey))?;
    Ok(ToDecapsulate {
        secret_key,
        scalar,
        ciphertext,
        share: Share::read(kem, share).map_err(Err)?,
    })
}

impl Lanes {
    /// Answers encapsulations of one mechanism, with key pairs of the pool on its curve.
    pub(super) fn encapsulate(
        &self,
        kem: Kem,
        memory: &mut Memory,
        Group { inputs, answers }: Group<'_, ToEncapsulate<'_>, Encapsulated>,
    ) {
        let set = kem.parameter_set();
        let Some(scratch) = memory.ml_kem(set) else {
            return answers.fail(Failed::NoMemory);
        };
        let count = inputs.len();
        let pairs = kem
            .curve()
            .map_or(Some(Vec::new()), |kind| self.pairs(kind, count));
        let (Some(pairs), Some(coins)) = (pairs, secrets::<SHARED_SECRET>(count)) else {
            return answers.fail(Failed::Randomness);
        };
        // The kernels write into the answers. Memory for a whole batch besides would be more than
        // the allocator keeps, so that it would ask the system for memory each time.
        let mut ciphertexts = with_shares(kem, &pairs, count);
        let places = ciphertexts
            .iter_mut()
            .map(|bytes| kem.split_mut(Part::Ciphertext, bytes).0);
        let mut jobs = encapsulations(&inputs, &coins, places);
        mlkem::encapsulate(self.backend, scratch, &mut jobs);
        if is_planted(WRONG_KEM_LANES) {
            jobs[0].ciphertext[0] ^= 1;
        }
        let good = self.sample(count, |range| {
            let length = set.ciphertext_bytes();
            let mut ciphertexts = vec![0; range.len() * length];
            let ciphertexts = ciphertexts.chunks_exact_mut(length);
            let inputs = &inputs[range.clone()];
            let mut again = encapsulations(inputs, &coins[range.clone()], ciphertexts);
            mlkem::encapsulate(self.second, scratch, &mut again);
            jobs[range]
                .iter()
                .zip(&again)
                .map(|(job, again)| match (&job.result, &again.result) {
                    (Some(Ok(secret)), Some(Ok(again_secret))) => {
                        are_equal(secret.as_bytes(), again_secret.as_bytes())
                            && job.ciphertext == again.ciphertext
                    }
                    (job, again) => matches!((job, again), (Some(Err(_)), Some(Err(_)))),
                })
                .collect()
        });
        let scalars = pairs.iter().map(|pair| pair.secret.as_bytes());
        let scalars = scalars.chain(repeat(&[][..]));
        let agreements = inputs.iter().zip(scalars);
        let agreements = agreements.map(|(input, scalar)| input.share.with(scalar));
        let agreed = self.agree(agreements.collect());
        let secret = |((job, agreed), good): ((&EncapsulateJob<'_>, Result<_, _>), bool)| {
            let ml_kem = job.result.as_ref().ok_or(Failed::Internal)?;
            if !good {
                return Err(Failed::CheckFailed);
            }
            let ml_kem = ml_kem.as_ref().map_err(|&error| error)?.as_bytes();
            Ok(kem.joined_secret(ml_kem, bytes(&agreed?)))
        };
        let secrets: Vec<_> = jobs.iter().zip(agreed).zip(good).map(secret).collect();
        drop(jobs);
        let answer = |(secret, ciphertext): (Result<_, _>, Vec<u8>)| {
            Ok(Encapsulated {
                ciphertext: ciphertext.into(),
                secret: secret?,
            })
        };
        answers.give(secrets.into_iter().zip(ciphertexts).map(answer));
    }

    /// Answers decapsulations of one mechanism.
    pub(super) fn decapsulate(
        &self,
        kem: Kem,
        memory: &mut Memory,
        Group { inputs, answers }: Group<'_, ToDecapsulate<'_>, Secret>,
    ) {
        let set = kem.parameter_set();
        let Some(scratch) = memory.ml_kem(set) else {
            return answers.fail(Failed::NoMemory);
        };
        let mut jobs = decapsulations(&inputs);
        mlkem::decapsulate(self.backend, scratch, &mut jobs);
        if is_planted(WRONG_KEM_LANES) {
            jobs[0].result = Some(SharedSecret::from_bytes(&[0; SHARED_SECRET]));
        }
        let good = self.sample(inputs.len(), |range| {
            let mut again = decapsulations(&inputs[range.clone()]);
            mlkem::decapsulate(self.second, scratch, &mut again);
            jobs[range]
                .iter()
                .zip(&again)
                .map(|(job, again)| match (&job.result, &again.result) {
                    (Some(secret), Some(again)) => are_equal(secret.as_bytes(), again.as_bytes()),
                    _ => false,
                })
                .collect()
        });
        let agreements = inputs.iter().map(|input| input.share.with(input.scalar));
        let agreed = self.agree(agreements.collect());
        let parts = jobs.iter().zip(agreed).zip(good);
        answers.give(parts.map(|((job, agreed), good)| {
            let ml_kem = job.result.as_ref().ok_or(Failed::Internal)?.as_bytes();
            match good {
                true => Ok(kem.joined_secret(ml_kem, bytes(&agreed?))),
                false => Err(Failed::CheckFailed),
            }
        }));
    }

    /// Agrees on secrets; `None` where there is no curve.
    fn agree(
        &self,
        agreements: Vec<Result<Agreement<'_>, Failed>>,
    ) -> Vec<Result<Option<Secret>, Failed>> {
        let (mut x25519, mut p256, mut p384) = (Vec::new(), Vec::new(), Vec::new());
        for agreement in agreements.iter().flatten() {
            match agreement {
                Agreement::None => {}
                Agreement::X25519(keys) => x25519.push(*keys),
                Agreement::P256(keys) => p256.push(*keys),
                Agreement::P384(keys) => p384.push(*keys),
            }
        }
        let mut x25519 = self.agree_x25519(&x25519).into_iter();
        let mut p256 = self.agree_nist::<P256, { p256::BYTES }>(&p256).into_iter();
        let mut p384 = self.agree_nist::<P384, { p384::BYTES }>(&p384).into_iter();
        let mut take = |agreement| match agreement {
            Agreement::None => Ok(None),
            Agreement::X25519(_) => x25519.next().ok_or(Failed::Internal)?.map(Some),
            Agreement::P256(_) => p256.next().ok_or(Failed::Internal)?.map(Some),
            Agreement::P384(_) => p384.next().ok_or(Failed::Internal)?.map(Some),
        };
        // `collect` would take over the memory of the agreements, and give half of it back to the
        // allocator.
        let mut agreed = Vec::with_capacity(agreements.len());
        agreed.extend(agreements.into_iter().map(|agreement| take(agreement?)));
        agreed
    }

    /// Makes key pairs of a mechanism; `None` if the system gave no randomness.
    pub(super) fn kem_keypairs(
        &self,
        kem: Kem,
        scratch: &mut Scratch,
        count: usize,
    ) -> Option<Vec<Keypair>> {
        let curve = kem
            .curve()
            .map_or(Some(Vec::new()), |kind| self.pairs(kind, count))?;
        let seeds = secrets::<SEED>(count)?;
        // The kernels write into the pairs, as in `encapsulate`.
        let mut pairs: Vec<_> = (0..count).map(|_| Keypair::zeroed(kem)).collect();
        let mut jobs: Vec<_> = seeds
            .iter()
            .zip(&mut pairs)
            .map(|(seed, Keypair { secret, public })| {
                let (private, _) = secret.as_bytes_mut().split_at_mut(kem.private_bytes());
                GenerateJob {
                    seed: Seed::from_ref(seed),
                    public_key: kem.split_mut(Part::Public, public).0,
                    secret_key: SecretKey::from_mut(kem.split_mut(Part::Private, private).0),
                }
            })
            .collect();
        mlkem::generate(self.backend, scratch, &mut jobs);
        drop(jobs);
        for (pair, seed) in pairs.iter_mut().zip(seeds.iter()) {
            let secret = pair.secret.as_bytes_mut();
            secret[kem.private_bytes()..].copy_from_slice(seed);
        }
        for (pair, curve) in pairs.iter_mut().zip(&curve) {
            let (private, _) = pair.secret.as_bytes_mut().split_at_mut(kem.private_bytes());
            let (_, scalar) = kem.split_mut(Part::Private, private);
            scalar.copy_from_slice(curve.secret.as_bytes());
            let (_, share) = kem.split_mut(Part::Public, &mut pair.public);
            share.copy_from_slice(&curve.public);
        }
        Some(pairs)
    }
}

/// Makes ciphertexts with the shares of these key pairs on the curve, if there is one.
fn with_shares(kem: Kem, pairs: &[Keypair], count: usize) -> Vec<Vec<u8>> {
    let shares = pairs.iter().map(|pair| &pair.public[..]);
    let shares = shares.chain(repeat(&[][..])).take(count);
    let ciphertext = |share: &[u8]| {
        let mut bytes = vec![0; kem.ciphertext_bytes()];
        let (_, place) = kem.split_mut(Part::Ciphertext, &mut bytes);
        place.copy_from_slice(share);
        bytes
    };
    shares.map(ciphertext).collect()
}

/// Returns the jobs of these inputs and coins.
fn encapsulations<'a>(
    inputs: &[ToEncapsulate<'a>],
    coins: &'a [[u8; SHARED_SECRET]],
    ciphertexts: impl Iterator<Item = &'a mut [u8]>,
) -> Vec<EncapsulateJob<'a>> {
    let inputs = inputs.iter().zip(coins).zip(ciphertexts);
    let job = |((input, coins), ciphertext): ((&ToEncapsulate<'a>, _), _)| EncapsulateJob {
        public_key: input.public_key,
        coins: Coins::from_ref(input.coins.unwrap_or(coins)),
        ciphertext,
        result: None,
    };
    inputs.map(job).collect()
}

/// Returns the jobs of these inputs.
fn decapsulations<'a>(inputs: &[ToDecapsulate<'a>]) -> Vec<DecapsulateJob<'a>> {
    let job = |input: &ToDecapsulate<'a>| DecapsulateJob {
        secret_key: input.secret_key,
        ciphertext: input.ciphertext,
        result: None,
    };
    inputs.iter().map(job).collect()
}

/// Returns the bytes of a secret, and no bytes where there is none.
fn bytes(secret: &Option<Secret>) -> &[u8] {
    secret.as_ref().map_or(&[], Secret::as_bytes)
}
