//! Inputs and outputs of the operations.

use core::fmt;

use crate::secret::secret_bytes;

/// Maximum number of vectors in a group of requests, which share their inversions.
pub(super) const VECTORS: usize = 8;

/// Number of bytes of a [`Wide`].
pub const WIDE_BYTES: usize = 64;

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// A secret scalar is zero or not below the order.
    Scalar,
    /// A public key is not a point of the curve with coordinates below p, or it is infinity.
    Point,
    /// The nonce, or a part of the signature made with it, is zero.
    Nonce,
    /// The signature does not belong to the digest and the key.
    Signature,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Scalar => "the secret scalar is not between 1 and n - 1",
            Error::Point => "the public key is not a point of the curve",
            Error::Nonce => "the nonce cannot be used",
            Error::Signature => "the signature is wrong",
        })
    }
}

impl core::error::Error for Error {}

secret_bytes!(
    /// A secret scalar, big-endian. Signing and multiplying a point check that it lies in 1..n.
    SecretKey<BYTES>, BYTES
);
secret_bytes!(
    /// The x-coordinate of a Diffie–Hellman point, big-endian.
    SharedSecret<BYTES>, BYTES
);
secret_bytes!(
    /// A secret number of 512 bits, big-endian, which is taken modulo the order. It is at least 128
    /// bits longer than the order, so that a uniform one gives a scalar without noticeable bias. A
    /// scalar with leading zeros keeps its value.
    Wide, WIDE_BYTES
);

impl Wide {
    /// Returns `scalar`, of at most 64 bytes, with leading zeros.
    pub fn from_scalar(scalar: &[u8]) -> Option<Self> {
        let start = WIDE_BYTES.checked_sub(scalar.len())?;
        let mut wide = Self([0; WIDE_BYTES]);
        wide.0[start..].copy_from_slice(scalar);
        Some(wide)
    }
}

/// A point in affine coordinates, big-endian. Every operation checks that it lies on the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey<const BYTES: usize> {
    /// x.
    pub x: [u8; BYTES],
    /// y.
    pub y: [u8; BYTES],
}

impl<const BYTES: usize> PublicKey<BYTES> {
    /// Reads the uncompressed form of SEC 1, 2.3.4: 04 ‖ x ‖ y.
    pub fn from_sec1(bytes: &[u8]) -> Result<Self, Error> {
        let Some((&4, coordinates)) = bytes.split_first() else {
            return Err(Error::Point);
        };
        let (x, y) = coordinates.split_at_checked(BYTES).ok_or(Error::Point)?;
        let read = |bytes: &[u8]| bytes.try_into().map_err(|_| Error::Point);
        Ok(Self {
            x: read(x)?,
            y: read(y)?,
        })
    }

    /// Returns the uncompressed form of SEC 1, 2.3.3.
    pub fn to_sec1(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + 2 * BYTES);
        bytes.push(4);
        bytes.extend_from_slice(&self.x);
        bytes.extend_from_slice(&self.y);
        bytes
    }
}

/// A point to compute from its x and the parity of its y.
#[derive(Debug)]
pub struct DecompressJob<'a, const BYTES: usize> {
    /// x, big-endian.
    pub x: &'a [u8; BYTES],
    /// Whether y is odd.
    pub is_odd: bool,
    /// Result, set by `decompress`.
    pub result: Option<Result<PublicKey<BYTES>, Error>>,
}

impl<'a, const BYTES: usize> DecompressJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(x: &'a [u8; BYTES], is_odd: bool) -> Self {
        Self {
            x,
            is_odd,
            result: None,
        }
    }

    /// Reads the compressed form of SEC 1, 2.3.4: 02 or 03, then x. `None` for other bytes.
    pub fn from_sec1(bytes: &'a [u8]) -> Option<Self> {
        match bytes {
            [tag @ (2 | 3), x @ ..] => Some(Self::new(x.try_into().ok()?, *tag == 3)),
            _ => None,
        }
    }
}

/// An ECDSA signature, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature<const BYTES: usize> {
    /// r.
    pub r: [u8; BYTES],
    /// s.
    pub s: [u8; BYTES],
}

/// A seed, whose key pair is computed.
#[derive(Debug)]
pub struct KeypairJob<'a, const BYTES: usize> {
    /// The seed, uniformly random.
    pub seed: &'a Wide,
    /// Result, set by `keypair`.
    pub result: Option<Result<(SecretKey<BYTES>, PublicKey<BYTES>), Error>>,
}

impl<'a, const BYTES: usize> KeypairJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(seed: &'a Wide) -> Self {
        Self { seed, result: None }
    }
}

/// A digest to sign.
#[derive(Debug)]
pub struct SignJob<'a, const BYTES: usize> {
    /// The secret key d.
    pub key: &'a SecretKey<BYTES>,
    /// The digest, of any length; only the first `BYTES` bytes count.
    pub digest: &'a [u8],
    /// The nonce, used once and never disclosed: see [`nonce`](super::nonce).
    pub nonce: &'a Wide,
    /// Result, set by `ecdsa_sign`.
    pub result: Option<Result<Signature<BYTES>, Error>>,
}

impl<'a, const BYTES: usize> SignJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(key: &'a SecretKey<BYTES>, digest: &'a [u8], nonce: &'a Wide) -> Self {
        Self {
            key,
            digest,
            nonce,
            result: None,
        }
    }
}

/// A signature to check.
#[derive(Debug)]
pub struct VerifyJob<'a, const BYTES: usize> {
    /// The signer's public key Q.
    pub key: &'a PublicKey<BYTES>,
    /// The digest, as in [`SignJob`].
    pub digest: &'a [u8],
    /// The signature (r, s).
    pub signature: &'a Signature<BYTES>,
    /// Result, set by `ecdsa_verify_vartime`.
    pub result: Option<Result<(), Error>>,
}

impl<'a, const BYTES: usize> VerifyJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(
        key: &'a PublicKey<BYTES>,
        digest: &'a [u8],
        signature: &'a Signature<BYTES>,
    ) -> Self {
        Self {
            key,
            digest,
            signature,
            result: None,
        }
    }
}

/// Two keys, whose shared secret is computed.
#[derive(Debug)]
pub struct EcdhJob<'a, const BYTES: usize> {
    /// Our secret key d.
    pub key: &'a SecretKey<BYTES>,
    /// The peer's public key Q.
    pub peer: &'a PublicKey<BYTES>,
    /// Result, set by `ecdh`.
    pub result: Option<Result<SharedSecret<BYTES>, Error>>,
}

impl<'a, const BYTES: usize> EcdhJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(key: &'a SecretKey<BYTES>, peer: &'a PublicKey<BYTES>) -> Self {
        Self {
            key,
            peer,
            result: None,
        }
    }
}

/// A job that multiplies a point by a secret scalar.
pub(super) trait Multiplication<const BYTES: usize> {
    /// Returns d and Q.
    fn operands(&self) -> (&SecretKey<BYTES>, &PublicKey<BYTES>);
    /// Takes d·Q, which is wiped afterwards.
    fn finish(&mut self, product: Result<&PublicKey<BYTES>, Error>);
}

impl<const BYTES: usize> Multiplication<BYTES> for EcdhJob<'_, BYTES> {
    fn operands(&self) -> (&SecretKey<BYTES>, &PublicKey<BYTES>) {
        (self.key, self.peer)
    }

    fn finish(&mut self, product: Result<&PublicKey<BYTES>, Error>) {
        self.result = Some(product.map(|point| SharedSecret(point.x)));
    }
}

/// A point and its secret factor.
#[derive(Debug)]
pub struct MultiplyJob<'a, const BYTES: usize> {
    /// The secret scalar d.
    pub scalar: &'a SecretKey<BYTES>,
    /// The point Q.
    pub point: &'a PublicKey<BYTES>,
    /// Result, set by `multiply`.
    pub result: Option<Result<PublicKey<BYTES>, Error>>,
}

impl<'a, const BYTES: usize> MultiplyJob<'a, BYTES> {
    /// Returns a job without a result.
    pub fn new(scalar: &'a SecretKey<BYTES>, point: &'a PublicKey<BYTES>) -> Self {
        Self {
            scalar,
            point,
            result: None,
        }
    }
}

impl<const BYTES: usize> Multiplication<BYTES> for MultiplyJob<'_, BYTES> {
    fn operands(&self) -> (&SecretKey<BYTES>, &PublicKey<BYTES>) {
        (self.scalar, self.point)
    }

    fn finish(&mut self, product: Result<&PublicKey<BYTES>, Error>) {
        self.result = Some(product.copied());
    }
}
