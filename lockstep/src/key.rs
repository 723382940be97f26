//! Keys.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, Builder};

use crate::device::RsaPrivate;
use crate::table::Table;
use crate::workers::{STACK, chosen};
use lockstep_ops::{
    Backend, Curve, EcKey, Ed25519Key, Kem, KemKey, Lanes, MlDsa, MlDsaKey, RsaComponents, RsaKey,
    RsaPublicKey, Secret, Unsupported,
};

/// Algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RSA, for signatures: moduli of 1024, 2048, 3072 and 4096 bits.
    Rsa,
    /// P-256, for ECDSA and ECDH.
    P256,
    /// P-384, for ECDSA and ECDH.
    P384,
    /// Ed25519.
    Ed25519,
    /// X25519.
    X25519,
    /// ML-DSA.
    MlDsa(MlDsa),
    /// ML-KEM, alone or in a hybrid.
    Kem(Kem),
}

/// Names of algorithms.
const ALGORITHMS: [(&str, Algorithm); 14] = [
    ("RSA", Algorithm::Rsa),
    ("P-256", Algorithm::P256),
    ("P-384", Algorithm::P384),
    ("Ed25519", Algorithm::Ed25519),
    ("X25519", Algorithm::X25519),
    ("ML-DSA-44", Algorithm::MlDsa(MlDsa::MlDsa44)),
    ("ML-DSA-65", Algorithm::MlDsa(MlDsa::MlDsa65)),
    ("ML-DSA-87", Algorithm::MlDsa(MlDsa::MlDsa87)),
    ("ML-KEM-512", Algorithm::Kem(Kem::MlKem512)),
    ("ML-KEM-768", Algorithm::Kem(Kem::MlKem768)),
    ("ML-KEM-1024", Algorithm::Kem(Kem::MlKem1024)),
    ("X25519MLKEM768", Algorithm::Kem(Kem::X25519MlKem768)),
    ("SecP256r1MLKEM768", Algorithm::Kem(Kem::SecP256r1MlKem768)),
    (
        "SecP384r1MLKEM1024",
        Algorithm::Kem(Kem::SecP384r1MlKem1024),
    ),
];

impl Algorithm {
    /// Returns the names of all algorithms.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALGORITHMS.iter().map(|(name, _)| *name)
    }

    /// Returns the algorithm of this name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        let known = ALGORITHMS.iter().find(|(own, _)| *own == name);
        known.map(|(_, algorithm)| *algorithm)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        let known = ALGORITHMS.iter().find(|(_, own)| *own == self);
        known.map_or("unknown", |(name, _)| *name)
    }

    /// Returns the curve of ECDSA and ECDH.
    pub(crate) const fn curve(self) -> Option<Curve> {
        match self {
            Algorithm::P256 => Some(Curve::P256),
            Algorithm::P384 => Some(Curve::P384),
            _ => None,
        }
    }

    /// Returns the length of a secret on which two keys agree; `None` for algorithms without key
    /// agreement.
    pub const fn agreed_bytes(self) -> Option<usize> {
        match self {
            Algorithm::X25519 => Some(32),
            Algorithm::P256 => Some(Curve::P256.bytes()),
            Algorithm::P384 => Some(Curve::P384.bytes()),
            _ => None,
        }
    }

    /// Returns the lengths of raw keys that are generated, the private one first; `None` for RSA.
    pub const fn key_bytes(self) -> Option<(usize, usize)> {
        Some(match self {
            Algorithm::Rsa => return None,
            Algorithm::P256 => (32, 65),
            Algorithm::P384 => (48, 97),
            Algorithm::Ed25519 | Algorithm::X25519 => (32, 32),
            Algorithm::MlDsa(set) => (SEED_BYTES, set.public_key_bytes()),
            Algorithm::Kem(kem) => (kem.private_bytes(), kem.public_bytes()),
        })
    }
}

/// Length of a seed of ML-DSA.
const SEED_BYTES: usize = 32;

/// Reason why a key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not PEM with one key of this kind, public or private.
    Pem,
    /// The key is encrypted. Decrypt it first, as by `openssl pkey -in FILE`.
    Encrypted,
    /// The bytes do not parse.
    Malformed,
    /// The text is not a JSON Web Key with the members of its type.
    Jwk,
    /// The key is of an algorithm or of a curve that this library does not have.
    Algorithm,
    /// The key of a set is for another purpose than signatures, by its `use` or `key_ops`.
    Purpose,
    /// The RSA key cannot be used.
    Rsa(Unsupported),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::Pem => "the text has no PEM block with such a key, or a damaged one",
            KeyError::Encrypted => "the key is encrypted: decrypt it first, as by `openssl pkey`",
            KeyError::Malformed => "the key does not parse, or has another length",
            KeyError::Jwk => "the text is no JSON Web Key with the members of its type",
            KeyError::Algorithm => "the algorithm or the curve of the key is not supported",
            KeyError::Purpose => "the key is for another purpose than signatures",
            KeyError::Rsa(reason) => return write!(f, "RSA: {reason}"),
        })
    }
}

impl std::error::Error for KeyError {}

impl From<Unsupported> for KeyError {
    fn from(reason: Unsupported) -> KeyError {
        KeyError::Rsa(reason)
    }
}

/// A public key.
///
/// A point is checked when the key is used: if it is not on its curve, the item's reason is
/// [`MalformedKey`](crate::Reason::MalformedKey). A compressed point is expanded when the key is
/// read: an x that no point has is an error of that call.
///
/// Two keys are equal if they have the same algorithm and the same bytes. A compressed point is
/// equal to the uncompressed one. Leading zeros of RSA numbers do not count.
///
/// # Examples
///
/// ```
/// use lockstep::{Algorithm, PublicKey};
///
/// let key = PublicKey::from_jwk(
///     r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
/// )?;
/// assert_eq!(key.algorithm(), Algorithm::Ed25519);
/// # Ok::<(), lockstep::KeyError>(())
/// ```
#[derive(Clone)]
pub struct PublicKey {
    pub(crate) half: Public,
    pub(crate) table: Arc<Table>,
}

/// A public key as its operations take it.
#[derive(Clone)]
pub(crate) enum Public {
    Rsa(Arc<RsaNumbers>),
    /// The point, uncompressed as in SEC 1.
    Ec(Curve, Box<[u8]>),
    Ed25519([u8; 32]),
    X25519([u8; 32]),
    MlDsa(Arc<MlDsaKey>),
    Kem(Kem, Box<[u8]>),
}

/// A public key of RSA, and its numbers, big-endian, without leading zeros.
pub(crate) struct RsaNumbers {
    pub(crate) prepared: RsaPublicKey,
    pub(crate) modulus: Box<[u8]>,
    pub(crate) exponent: Box<[u8]>,
}

impl PublicKey {
    pub(crate) fn of(half: Public) -> PublicKey {
        let table = Arc::default();
        PublicKey { half, table }
    }

    /// Reads the modulus and the exponent of an RSA key, big-endian.
    pub fn from_rsa(modulus: &[u8], exponent: &[u8]) -> Result<PublicKey, KeyError> {
        let key = RsaNumbers {
            prepared: RsaPublicKey::new(modulus, exponent)?,
            modulus: without_zeros(modulus).into(),
            exponent: without_zeros(exponent).into(),
        };
        let half = Public::Rsa(Arc::new(key));
        Ok(PublicKey::of(half))
    }

    /// Takes the bytes of a key without a structure around them: a point of SEC 1, compressed or
    /// not (P-256, P-384); 32 bytes (Ed25519, X25519); the encoding of FIPS 203 or FIPS 204, or a
    /// hybrid's share as TLS sends it. RSA has no such form.
    pub fn from_raw(algorithm: Algorithm, bytes: &[u8]) -> Result<PublicKey, KeyError> {
        let array = || bytes.try_into().map_err(|_| KeyError::Malformed);
        let half = match algorithm {
            Algorithm::Rsa => return Err(KeyError::Algorithm),
            Algorithm::P256 => point(Curve::P256, bytes)?,
            Algorithm::P384 => point(Curve::P384, bytes)?,
            Algorithm::Ed25519 => Public::Ed25519(array()?),
            Algorithm::X25519 => Public::X25519(array()?),
            Algorithm::MlDsa(set) => {
                let key = MlDsaKey::new(set, bytes, None).map_err(|_| KeyError::Malformed)?;
                Public::MlDsa(Arc::new(key))
            }
            Algorithm::Kem(kem) if kem.is_public_key(bytes) => Public::Kem(kem, bytes.into()),
            Algorithm::Kem(_) => return Err(KeyError::Malformed),
        };
        Ok(PublicKey::of(half))
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match &self.half {
            Public::Rsa(_) => Algorithm::Rsa,
            Public::Ec(Curve::P256, _) => Algorithm::P256,
            Public::Ec(Curve::P384, _) => Algorithm::P384,
            Public::Ed25519(_) => Algorithm::Ed25519,
            Public::X25519(_) => Algorithm::X25519,
            Public::MlDsa(key) => Algorithm::MlDsa(key.set()),
            Public::Kem(kem, _) => Algorithm::Kem(*kem),
        }
    }

    /// Makes the table of the key's multiples now, with which signatures are checked in less time.
    /// Keys of P-256, P-384 and Ed25519 have tables, of 52 to 116 KiB. A key with many checked
    /// signatures gets its table by itself.
    pub fn prepare(&self) {
        self.table.make(|| {
            let prepared = match &self.half {
                Public::Ec(curve, point) => {
                    with_lanes(|lanes| lanes.prepare_ecdsa(*curve, &[point]).pop())
                }
                Public::Ed25519(key) => with_lanes(|lanes| lanes.prepare_ed25519(&[key]).pop()),
                _ => None,
            };
            prepared?.ok()
        });
    }

    /// Returns the bytes that [`from_raw`](Self::from_raw) takes, with points uncompressed; `None`
    /// for RSA.
    pub fn raw(&self) -> Option<&[u8]> {
        match &self.half {
            Public::Rsa(_) => None,
            Public::Ec(_, bytes) | Public::Kem(_, bytes) => Some(bytes),
            Public::Ed25519(bytes) | Public::X25519(bytes) => Some(bytes),
            Public::MlDsa(key) => Some(key.public()),
        }
    }

    /// Returns the numbers or the bytes of the key, by which keys are compared.
    fn encoding(&self) -> [&[u8]; 2] {
        match &self.half {
            Public::Rsa(key) => [&key.modulus, &key.exponent],
            _ => [self.raw().unwrap_or_default(), &[]],
        }
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &PublicKey) -> bool {
        self.algorithm() == other.algorithm() && self.encoding() == other.encoding()
    }
}

impl Eq for PublicKey {}

impl Hash for PublicKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.algorithm(), self.encoding()).hash(state);
    }
}

/// Returns a big-endian number without leading zeros.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// Computes with lanes for a single key, on a thread with room for them, since the caller's stack
/// may be small. Only where no thread can start, computes on the caller's own. If `LOCKSTEP_LANES`
/// is wrong, the lanes are the portable ones; `Workers::try_new` reports the error.
fn with_lanes<T: Send>(compute: impl Fn(&Lanes) -> T + Sync) -> T {
    let lanes = Lanes::new(chosen().unwrap_or(Backend::PORTABLE), 1, 0);
    thread::scope(|scope| {
        let thread = Builder::new().stack_size(STACK);
        match thread.spawn_scoped(scope, || compute(&lanes)) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => compute(&lanes),
        }
    })
}

/// Takes a point of SEC 1, compressed or not.
pub(crate) fn point(curve: Curve, bytes: &[u8]) -> Result<Public, KeyError> {
    let point = match bytes {
        [4, coordinates @ ..] if coordinates.len() == 2 * curve.bytes() => bytes.into(),
        [2 | 3, ..] => {
            let point = with_lanes(|lanes| lanes.ec_point(curve, bytes));
            point.ok_or(KeyError::Malformed)?.into()
        }
        _ => return Err(KeyError::Malformed),
    };
    Ok(Public::Ec(curve, point))
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?})", self.algorithm())
    }
}

/// A private key. Its memory is wiped when it is dropped, and it is never printed.
///
/// # Examples
///
/// ```
/// use lockstep::{Algorithm, PrivateKey};
///
/// let key = PrivateKey::from_raw(Algorithm::Ed25519, &[7; 32])?; // a seed, from a generator
/// assert_eq!(key.public().raw().map(<[u8]>::len), Some(32));
/// # Ok::<(), lockstep::KeyError>(())
/// ```
#[derive(Clone)]
pub struct PrivateKey {
    pub(crate) half: Private,
    pub(crate) public: PublicKey,
}

/// A private key as its operations take it.
#[derive(Clone)]
pub(crate) enum Private {
    Rsa(Arc<RsaPrivate>),
    Ec(Arc<EcKey>),
    Ed25519(Arc<Ed25519Key>),
    X25519(Arc<Secret>),
    MlDsa(Arc<MlDsaKey>),
    Kem(Arc<KemKey>),
}

impl PrivateKey {
    /// Takes the bytes of a key without a structure around them: a scalar, big-endian (P-256,
    /// P-384); 32 bytes (Ed25519, X25519); a seed of 32 bytes or the encoding of FIPS 204 (ML-DSA);
    /// a seed of 64 bytes or the encoding of FIPS 203 (ML-KEM). RSA has no such form.
    pub fn from_raw(algorithm: Algorithm, bytes: &[u8]) -> Result<PrivateKey, KeyError> {
        let malformed = |_| KeyError::Malformed;
        let half = match algorithm {
            Algorithm::Rsa => return Err(KeyError::Algorithm),
            Algorithm::P256 => return PrivateKey::of_scalar(Curve::P256, bytes, None),
            Algorithm::P384 => return PrivateKey::of_scalar(Curve::P384, bytes, None),
            Algorithm::Ed25519 => {
                Private::Ed25519(Arc::new(Ed25519Key::new(bytes).map_err(malformed)?))
            }
            Algorithm::X25519 if bytes.len() == 32 => Private::X25519(Arc::new(Secret::new(bytes))),
            Algorithm::X25519 => return Err(KeyError::Malformed),
            Algorithm::MlDsa(set) => {
                let key = match bytes.len() {
                    SEED_BYTES => MlDsaKey::from_seed(set, bytes),
                    _ => MlDsaKey::from_private(set, bytes),
                };
                Private::MlDsa(Arc::new(key.map_err(malformed)?))
            }
            Algorithm::Kem(kem) => {
                let key = match bytes.len() {
                    Kem::SEED_BYTES => KemKey::from_seed(kem, bytes),
                    _ => KemKey::new(kem, bytes),
                };
                Private::Kem(Arc::new(key.map_err(malformed)?))
            }
        };
        PrivateKey::of_half(half)
    }

    /// Makes a key of a scalar. If its point is given, it must belong to the scalar.
    pub(crate) fn of_scalar(
        curve: Curve,
        scalar: &[u8],
        point: Option<&[u8]>,
    ) -> Result<PrivateKey, KeyError> {
        let key = EcKey::new(curve, scalar, None).map_err(|_| KeyError::Malformed)?;
        let key = PrivateKey::of_half(Private::Ec(Arc::new(key)))?;
        match point {
            Some(noted) if PublicKey::of(self::point(curve, noted)?) != key.public => {
                Err(KeyError::Malformed)
            }
            _ => Ok(key),
        }
    }

    /// Makes an RSA key of n, e, p, q, d mod p − 1, d mod q − 1 and 1/q mod p.
    pub(crate) fn of_numbers(
        [n, e, p, q, dp, dq, qinv]: [&[u8]; 7],
    ) -> Result<PrivateKey, KeyError> {
        #[rustfmt::skip]
        let components = RsaComponents { n, e, p, q, dp, dq, qinv };
        let key = Arc::new(RsaKey::new(&components)?);
        let half = Private::Rsa(Arc::new(RsaPrivate(key)));
        let public = PublicKey::from_rsa(n, e)?;
        Ok(PrivateKey { half, public })
    }

    /// Computes the public half; RSA has [another way](Self::of_numbers).
    pub(crate) fn of_half(half: Private) -> Result<PrivateKey, KeyError> {
        let public = match &half {
            Private::Rsa(_) => return Err(KeyError::Algorithm),
            Private::Ec(key) => {
                let point = with_lanes(|lanes| lanes.ec_public(key));
                let point = point.ok_or(KeyError::Malformed)?;
                Public::Ec(key.curve(), point.into())
            }
            Private::Ed25519(key) => Public::Ed25519(with_lanes(|lanes| lanes.ed25519_public(key))),
            Private::X25519(key) => {
                let public = with_lanes(|lanes| lanes.x25519_public(key.as_bytes()));
                Public::X25519(public.ok_or(KeyError::Malformed)?)
            }
            Private::MlDsa(key) => {
                let public = MlDsaKey::new(key.set(), key.public(), None);
                Public::MlDsa(Arc::new(public.map_err(|_| KeyError::Malformed)?))
            }
            Private::Kem(key) => Public::Kem(key.kem(), key.public().into()),
        };
        let public = PublicKey::of(public);
        Ok(PrivateKey { half, public })
    }

    /// Returns its public half.
    pub fn public(&self) -> PublicKey {
        self.public.clone()
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.public.algorithm()
    }

    /// Returns the length of an RSA modulus, and 0 for other keys.
    pub(crate) fn modulus_bytes(&self) -> usize {
        match &self.half {
            Private::Rsa(key) => key.0.modulus_bytes(),
            _ => 0,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?}, [redacted])", self.algorithm())
    }
}
