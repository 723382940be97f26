//! Keys of the curves and of ML-DSA, ready for the lanes.

use std::fmt;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::curve25519::ed25519;
use lockstep_kernels::mldsa::{self, Mu};
use lockstep_kernels::{nist, wipe};
use lockstep_vault::{Boxed, OnFork, Slice};
use once_cell::race::OnceBox;

use crate::bytes::Bytes;
use crate::failed::Failed;
use crate::kinds::{Curve, Kem, MlDsa};

/// Secret bytes in memory for keys: wiped when they are dropped, never printed.
#[derive(Clone)]
pub struct Secret(Slice<u8>);

impl Secret {
    /// Copies `bytes`; the caller wipes the original.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(Slice::copy_of(bytes, OnFork::Keep))
    }

    /// Makes a copy that reads as zeros in a forked child: for secrets that parent and child must
    /// not both use.
    pub(crate) fn wiped_on_fork(bytes: &[u8]) -> Secret {
        Secret(Slice::copy_of(bytes, OnFork::Wipe))
    }

    /// Makes a secret of `count` bytes, which `fill` writes; `None` if `fill` returns false.
    pub fn filled(count: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> Option<Secret> {
        let mut bytes = Slice::zeroed(count, OnFork::Keep);
        fill(&mut bytes).then_some(Secret(bytes))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes, to change them in place.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// Wipes the bytes now, without giving the memory back.
    pub(crate) fn wipe(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([redacted])")
    }
}

/// A new key pair.
#[derive(Clone, Debug)]
pub struct Keypair {
    /// X25519: 32 bytes, not clamped. On the other curves the scalar, big-endian, of the curve's
    /// length. Key encapsulation: the private key, then the seed d ‖ z of ML-KEM's part.
    pub secret: Secret,
    /// X25519: 32 bytes. On the other curves the point, uncompressed as in SEC 1: 04 ‖ x ‖ y.
    /// Key encapsulation: as it is sent.
    pub public: Bytes,
}

impl Keypair {
    /// Makes a pair of key encapsulation to write to. Its secret reads as zeros in a forked child.
    pub(crate) fn zeroed(kem: Kem) -> Keypair {
        let secret = Slice::zeroed(kem.private_bytes() + Kem::SEED_BYTES, OnFork::Wipe);
        Keypair {
            secret: Secret(secret),
            public: vec![0; kem.public_bytes()].into(),
        }
    }
}

/// Error for a key of the wrong length or form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key has the wrong length or form")
    }
}

impl std::error::Error for Malformed {}

/// A private key on P-256 or P-384.
pub struct EcKey {
    material: Material,
}

/// A key as the kernels of its curve take it.
pub(crate) enum Material {
    P256(Pair<32>),
    P384(Pair<48>),
}

/// A scalar, and its point once that is needed.
pub(crate) struct Pair<const BYTES: usize> {
    secret: Boxed<[u8; BYTES]>,
    pub public: OnceBox<nist::PublicKey<BYTES>>,
}

impl EcKey {
    /// Copies a scalar: big-endian, of exactly the length of its curve. Its point (uncompressed as
    /// in SEC 1) may be given; otherwise it is computed when it is needed. Signatures are checked
    /// against it.
    ///
    /// Whether the scalar lies in 1..n shows when it is used. This computes nothing, so it may run
    /// on any stack.
    pub fn new(curve: Curve, secret: &[u8], public: Option<&[u8]>) -> Result<EcKey, Malformed> {
        let material = match curve {
            Curve::P256 => Material::P256(Pair::new(secret, public)?),
            Curve::P384 => Material::P384(Pair::new(secret, public)?),
        };
        Ok(EcKey { material })
    }

    pub(crate) fn material(&self) -> &Material {
        &self.material
    }

    /// Returns its curve.
    pub fn curve(&self) -> Curve {
        match self.material {
            Material::P256(_) => Curve::P256,
            Material::P384(_) => Curve::P384,
        }
    }
}

impl fmt::Debug for EcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EcKey")
            .field("curve", &self.curve())
            .finish_non_exhaustive()
    }
}

impl<const BYTES: usize> Pair<BYTES> {
    fn new(secret: &[u8], public: Option<&[u8]>) -> Result<Self, Malformed> {
        let secret = secret.try_into().map_err(|_| Malformed)?;
        let known = OnceBox::new();
        if let Some(public) = public {
            let point = nist::PublicKey::from_sec1(public).map_err(|_| Malformed)?;
            known.get_or_init(|| Box::new(point));
        }
        Ok(Pair {
            secret: Boxed::copy_of(secret, OnFork::Keep),
            public: known,
        })
    }

    pub fn secret(&self) -> &nist::SecretKey<BYTES> {
        nist::SecretKey::from_ref(&self.secret)
    }
}

/// A private key of Ed25519.
pub struct Ed25519Key {
    seed: Boxed<[u8; ed25519::BYTES]>,
    /// The public key that its owner has noted with it.
    public: Option<ed25519::PublicKey>,
    /// The key as the kernels take it, once it is needed.
    pub(crate) prepared: OnceBox<ed25519::SecretKey>,
}

impl Ed25519Key {
    /// Copies a seed, RFC 8032's private key: 32 bytes.
    ///
    /// This computes nothing, so it may run on any stack.
    pub fn new(seed: &[u8]) -> Result<Ed25519Key, Malformed> {
        let seed = seed.try_into().map_err(|_| Malformed)?;
        Ok(Ed25519Key {
            seed: Boxed::copy_of(seed, OnFork::Keep),
            public: None,
            prepared: OnceBox::new(),
        })
    }

    /// Copies a seed with the public key that its owner has noted with it. If the seed has another
    /// public key, requests fail: two signatures of a message, each with one of the two public
    /// keys, reveal the scalar.
    pub fn of_pair(seed: &[u8], public: [u8; 32]) -> Result<Ed25519Key, Malformed> {
        Ok(Ed25519Key {
            public: Some(public),
            ..Ed25519Key::new(seed)?
        })
    }

    /// Returns whether this public key of the seed is the noted one.
    pub(crate) fn accepts(&self, public: &ed25519::PublicKey) -> bool {
        self.public.is_none_or(|noted| noted == *public)
    }

    pub(crate) fn seed(&self) -> &ed25519::Seed {
        ed25519::Seed::from_ref(&self.seed)
    }
}

impl fmt::Debug for Ed25519Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ed25519Key([redacted])")
    }
}

/// A public key of ML-DSA, perhaps with its private half.
pub struct MlDsaKey {
    set: MlDsa,
    pub(crate) public: Vec<u8>,
    /// The encoded private half, not the seed.
    pub(crate) private: Option<Secret>,
    /// Hash of the public key, with which μ begins, once it is needed.
    hash: OnceBox<[u8; 64]>,
    /// The key as the kernels take it, once it is needed.
    prepared: OnceBox<Prepared>,
}

/// A key of ML-DSA as the kernels take it.
pub(crate) enum Prepared {
    Public(mldsa::PublicKey),
    Private(mldsa::PrivateKey),
}

impl Prepared {
    pub(crate) fn public(&self) -> &mldsa::PublicKey {
        match self {
            Prepared::Public(key) => key,
            Prepared::Private(key) => key.public(),
        }
    }

    pub(crate) fn private(&self) -> Option<&mldsa::PrivateKey> {
        match self {
            Prepared::Public(_) => None,
            Prepared::Private(key) => Some(key),
        }
    }
}

impl MlDsaKey {
    /// Copies a public key, perhaps with its private half as FIPS 204 encodes it. If the private
    /// half belongs to another public key, requests fail.
    ///
    /// This computes nothing, so it may run on any stack.
    pub fn new(set: MlDsa, public: &[u8], private: Option<Secret>) -> Result<MlDsaKey, Malformed> {
        let is_fit = |key: &Secret| key.as_bytes().len() == set.private_key_bytes();
        if public.len() != set.public_key_bytes() || !private.as_ref().is_none_or(is_fit) {
            return Err(Malformed);
        }
        Ok(MlDsaKey {
            set,
            public: public.to_vec(),
            private,
            hash: OnceBox::new(),
            prepared: OnceBox::new(),
        })
    }

    /// Makes the key pair that follows from a seed: 32 bytes. This takes a while.
    pub fn from_seed(set: MlDsa, seed: &[u8]) -> Result<MlDsaKey, Malformed> {
        let seed = mldsa::Seed::from_ref(seed.try_into().map_err(|_| Malformed)?);
        let mut public = vec![0; set.public_key_bytes()];
        let private = Secret::filled(set.private_key_bytes(), |private| {
            mldsa::generate(set, Backend::PORTABLE, seed, &mut public, private).is_ok()
        });
        MlDsaKey::new(set, &public, Some(private.ok_or(Malformed)?))
    }

    /// Makes the key pair of a private key, as FIPS 204 encodes it. Fails if its parts do not
    /// belong together. This takes a while.
    pub fn from_private(set: MlDsa, private: &[u8]) -> Result<MlDsaKey, Malformed> {
        let key = mldsa::PrivateKey::new(set, Backend::PORTABLE, private);
        let key = key.map_err(|_| Malformed)?;
        MlDsaKey::new(set, key.public().encoding(), Some(Secret::new(private)))
    }

    /// Returns the public key, as FIPS 204 encodes it.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Returns whether these bytes encode its private half, in constant time.
    pub fn is_of(&self, private: &[u8]) -> bool {
        self.private.as_ref().is_some_and(|own| {
            let own = own.as_bytes();
            let pairs = own.iter().zip(private);
            let differing = pairs.fold(0, |differing, (one, other)| differing | (one ^ other));
            own.len() == private.len() && differing == 0
        })
    }

    /// Returns the parameter set.
    pub fn set(&self) -> MlDsa {
        self.set
    }

    /// Returns whether its private half is known.
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// Begins the μ of a message that is signed with the key. The first call hashes the public key,
    /// unless the key is [prepared](crate::Lanes::prepare_ml_dsa). Every call may run on any stack.
    pub fn mu(&self) -> Mu {
        if let Some(prepared) = self.prepared.get() {
            return Mu::of_hash(prepared.public().hash());
        }
        let hash = || Box::new(mldsa::hash(&self.public));
        Mu::of_hash(self.hash.get_or_init(hash))
    }

    /// Returns the key as the kernels take it, computed once.
    pub(crate) fn prepared(&self, backend: Backend) -> Result<&Prepared, Failed> {
        self.prepared.get_or_try_init(|| {
            let Some(private) = &self.private else {
                let key = mldsa::PublicKey::new(self.set, backend, &self.public)?;
                return Ok(Box::new(Prepared::Public(key)));
            };
            let key = mldsa::PrivateKey::new(self.set, backend, private.as_bytes())?;
            match key.public().encoding() == self.public {
                true => Ok(Box::new(Prepared::Private(key))),
                false => Err(Failed::Inconsistent),
            }
        })
    }
}

impl fmt::Debug for MlDsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = &self.set;
        f.debug_struct("MlDsaKey")
            .field("set", set)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OpenSSL checks the first signature of a program, which therefore pays for no hash.
    #[test]
    fn a_public_key_is_hashed_when_a_message_is() {
        let set = MlDsa::MlDsa44;
        let public = vec![7; set.public_key_bytes()];
        let key = MlDsaKey::new(set, &public, None).expect("a key");
        assert!(key.hash.get().is_none());
        let expected = Mu::of_hash(&mldsa::hash(&public)).finish();
        assert_eq!([key.mu().finish(), key.mu().finish()], [expected; 2]);
        assert_eq!(key.hash.get(), Some(&mldsa::hash(&public)));
    }

    /// The lanes that expand a key hash it, too.
    #[test]
    fn a_prepared_key_is_not_hashed_again() {
        for backend in Backend::available() {
            let set = MlDsa::MlDsa44;
            let public = vec![7; set.public_key_bytes()];
            let key = MlDsaKey::new(set, &public, None).expect("a key");
            let lanes = crate::Lanes::new(backend, 1, 0);
            lanes.prepare_ml_dsa(&key).expect("memory");
            let expected = Mu::of_hash(&mldsa::hash(&public)).finish();
            assert_eq!(key.mu().finish(), expected);
            assert!(key.hash.get().is_none());
        }
    }
}
