//! What can be asked of the engine, and what it answers.

use std::sync::Arc;

use lockstep_kernels::rsa::{Signature, Verified};
use lockstep_kernels::wipe;

use crate::keys::{Bytes, Curve, EcKey, Ed25519Key, KeyKind, Keypair, Secret};
use crate::rsa_key::RsaKey;
use crate::shape::Shape;

/// One operation, with everything that it needs: nothing points into the caller's memory.
pub enum Request {
    /// s = m^d mod n, for signing and for decryption alike.
    RsaPrivate {
        /// The key, shared with other requests.
        key: Arc<RsaKey>,
        /// m, big-endian, exactly as long as the modulus, below n.
        input: Vec<u8>,
    },
    /// Signs a digest with ECDSA and a hedged nonce: [`Response::Signature`].
    EcdsaSign {
        /// The key, shared with other requests.
        key: Arc<EcKey>,
        /// Any length; a longer one counts up to as many bytes as a scalar has.
        digest: Bytes,
    },
    /// Checks an ECDSA signature: [`Response::Verified`].
    EcdsaVerify {
        /// The curve.
        curve: Curve,
        /// The point, uncompressed as in SEC 1: 04 ‖ x ‖ y.
        public: Vec<u8>,
        /// As for signing.
        digest: Vec<u8>,
        /// r ‖ s, big-endian, each as long as a scalar.
        signature: Vec<u8>,
    },
    /// Agrees on a secret, the x of a point: [`Response::Secret`].
    Ecdh {
        /// The key, shared with other requests.
        key: Arc<EcKey>,
        /// The peer's point, uncompressed as in SEC 1: 04 ‖ x ‖ y.
        peer: Bytes,
    },
    /// Makes a key pair, or takes one of the pool: [`Response::Keypair`]. Who submits it asks
    /// [`Engine::pooled_keypair`](crate::Engine::pooled_keypair) first.
    Keypair(KeyKind),
    /// Agrees on a secret by X25519 (RFC 7748): [`Response::Secret`].
    X25519 {
        /// 32 bytes; clamped when they are used.
        secret: Secret,
        /// The peer's 32 bytes.
        peer: Bytes,
    },
    /// Signs a message with Ed25519 (RFC 8032, not prehashed, without context):
    /// [`Response::Signature`].
    Ed25519Sign {
        /// The key, shared with other requests.
        key: Arc<Ed25519Key>,
        /// Of any length.
        message: Bytes,
    },
    /// Checks an Ed25519 signature: [`Response::Verified`].
    Ed25519Verify {
        /// 32 bytes.
        public: Vec<u8>,
        /// As for signing.
        message: Vec<u8>,
        /// R ‖ S, 64 bytes.
        signature: Vec<u8>,
    },
}

impl Request {
    /// The batches that it may join.
    pub fn shape(&self) -> Shape {
        match self {
            Request::RsaPrivate { key, .. } => key.shape(),
            Request::EcdsaSign { key, .. } => Shape::EcdsaSign(key.curve()),
            Request::EcdsaVerify { curve, .. } => Shape::EcdsaVerify(*curve),
            Request::Ecdh { key, .. } => Shape::Ecdh(key.curve()),
            Request::Keypair(kind) => Shape::Keypair(*kind),
            Request::X25519 { .. } => Shape::X25519,
            Request::Ed25519Sign { .. } => Shape::Ed25519Sign,
            Request::Ed25519Verify { .. } => Shape::Ed25519Verify,
        }
    }
}

impl Drop for Request {
    /// Wipes digests, messages and RSA's input; keys and secrets do it themselves. With [`Bytes`]
    /// in place, this wipes the engine's own copy; a caller wipes what it moved from.
    fn drop(&mut self) {
        match self {
            Request::RsaPrivate { input, .. } => wipe(input),
            Request::EcdsaSign { digest, .. } => wipe(digest),
            Request::EcdsaVerify { digest, .. } => wipe(digest),
            Request::Ed25519Sign { message, .. } => wipe(message),
            Request::Ed25519Verify { message, .. } => wipe(message),
            Request::Ecdh { .. } | Request::Keypair(_) | Request::X25519 { .. } => {}
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
}
