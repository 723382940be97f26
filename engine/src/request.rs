//! What can be asked of the engine, and what it answers.
//!
//! The queue holds requests of all kinds, so [`Request`] and [`Response`] name them all.
//! [`operation`](crate::operation) pairs each request with its response by type.

use std::sync::Arc;

use lockstep_kernels::rsa::{Signature, Verified};
use zeroize::Zeroizing;

use crate::bytes::Bytes;
use crate::kem::{Encapsulated, KemKey};
use crate::keys::{EcKey, Ed25519Key, Keypair, Secret};
use crate::kinds::Kem;
use crate::kinds::{Curve, KeyKind};
use crate::rsa_key::RsaKey;
use crate::shape::Shape;

/// One operation with its input: nothing points into the caller's memory.
pub enum Request {
    /// s = m^d mod n, for signing and for decryption alike.
    RsaPrivate(RsaInput),
    /// Signs a digest with ECDSA and a hedged nonce: [`Response::Signature`].
    EcdsaSign(EcdsaSignInput),
    /// Checks an ECDSA signature: [`Response::Verified`].
    EcdsaVerify(EcdsaVerifyInput),
    /// Agrees on a secret, the x of a point: [`Response::Secret`].
    Ecdh(EcdhInput),
    /// Makes a key pair: [`Response::Keypair`].
    Keypair(KeyKind),
    /// Agrees on a secret by X25519 (RFC 7748): [`Response::Secret`].
    X25519(X25519Input),
    /// Signs a message with Ed25519 (RFC 8032, not prehashed, without context):
    /// [`Response::Signature`].
    Ed25519Sign(Ed25519SignInput),
    /// Checks an Ed25519 signature: [`Response::Verified`].
    Ed25519Verify(Ed25519VerifyInput),
    /// Makes a secret and the ciphertext that tells it: [`Response::Encapsulated`].
    Encapsulate(EncapsulateInput),
    /// Finds the secret of a ciphertext: [`Response::Secret`].
    Decapsulate(DecapsulateInput),
}

/// The input of an RSA private operation.
pub struct RsaInput {
    /// The key, shared with other requests.
    pub key: Arc<RsaKey>,
    /// m, big-endian, exactly as long as the modulus, below n.
    pub input: Bytes,
}

/// The input of an ECDSA signature.
pub struct EcdsaSignInput {
    /// The key, shared with other requests.
    pub key: Arc<EcKey>,
    /// Any length; a longer one counts up to as many bytes as a scalar has.
    pub digest: Bytes,
}

/// The input of a check of an ECDSA signature.
pub struct EcdsaVerifyInput {
    /// The curve.
    pub curve: Curve,
    /// The point, uncompressed as in SEC 1: 04 ‖ x ‖ y.
    pub public: Vec<u8>,
    /// As for signing.
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

/// The input of an X25519 agreement.
pub struct X25519Input {
    /// 32 bytes; clamped when they are used.
    pub secret: Secret,
    /// The peer's 32 bytes.
    pub peer: Bytes,
}

/// The input of an Ed25519 signature.
pub struct Ed25519SignInput {
    /// The key, shared with other requests.
    pub key: Arc<Ed25519Key>,
    /// Any length.
    pub message: Bytes,
}

/// The input of a check of an Ed25519 signature.
pub struct Ed25519VerifyInput {
    /// 32 bytes.
    pub public: Vec<u8>,
    /// As for signing.
    pub message: Zeroizing<Vec<u8>>,
    /// R ‖ S, 64 bytes.
    pub signature: Vec<u8>,
}

/// The input of an encapsulation.
pub struct EncapsulateInput {
    /// The mechanism.
    pub kem: Kem,
    /// The peer's public key.
    pub public: Bytes,
    /// What ML-KEM's secret is made of, where that must be known: [`Kem::COINS_BYTES`]. Else it is
    /// drawn.
    pub coins: Option<Secret>,
}

/// The input of a decapsulation.
pub struct DecapsulateInput {
    /// The key, shared with other requests.
    pub key: Arc<KemKey>,
    /// What the peer has sent. One that nobody made for the key gives a secret that nobody knows.
    pub ciphertext: Bytes,
}

impl Request {
    /// The batches that it may join.
    pub fn shape(&self) -> Shape {
        match self {
            Request::RsaPrivate(rsa) => rsa.key.shape(),
            Request::EcdsaSign(sign) => Shape::EcdsaSign(sign.key.curve()),
            Request::EcdsaVerify(verify) => Shape::EcdsaVerify(verify.curve),
            Request::Ecdh(ecdh) => Shape::Ecdh(ecdh.key.curve()),
            Request::Keypair(kind) => Shape::Keypair(*kind),
            Request::X25519(_) => Shape::X25519,
            Request::Ed25519Sign(_) => Shape::Ed25519Sign,
            Request::Ed25519Verify(_) => Shape::Ed25519Verify,
            Request::Encapsulate(input) => Shape::Encapsulate(input.kem),
            Request::Decapsulate(input) => Shape::Decapsulate(input.key.kem()),
        }
    }
}

/// The result of a [`Request`].
#[derive(Debug)]
pub enum Response {
    /// s with s^e = m, checked against the request's own key and input.
    Rsa(Verified<Signature>),
    /// ECDSA: r ‖ s, big-endian, each as long as a scalar. Ed25519: R ‖ S.
    ///
    /// A sample of them was checked; see [`Config::check_every`](crate::Config::check_every).
    Signature(Bytes),
    /// What two keys agree on.
    Secret(Secret),
    /// A key pair that nobody else was given.
    Keypair(Keypair),
    /// Whether the signature belongs to the key and the digest or message.
    Verified(bool),
    /// A secret, and what tells it. A sample of them was computed twice.
    Encapsulated(Encapsulated),
}

macro_rules! responses {
    ($($variant:ident($output:ty),)*) => {
        $(impl From<$output> for Response {
            fn from(output: $output) -> Response {
                Response::$variant(output)
            }
        })*
    };
}

responses! {
    Rsa(Verified<Signature>),
    Signature(Bytes),
    Secret(Secret),
    Keypair(Keypair),
    Verified(bool),
    Encapsulated(Encapsulated),
}
