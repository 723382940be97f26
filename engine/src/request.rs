//! What can be asked of the engine, and what it can answer.

use std::fmt;
use std::sync::Arc;

use lockstep_kernels::nist;
use lockstep_kernels::rsa::{JobError, Signature, Unsupported, Verified};
use lockstep_kernels::wipe;

use crate::curve::{Bytes, Curve, EcKey, Ed25519Key, KeyKind, Keypair, Secret};
use crate::rsa_key::RsaKey;
use crate::shape::Shape;
use crate::ticket::Permit;

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
        /// Of any length; of a longer one the bytes that a scalar has count.
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
    /// Wipes digests, messages and RSA's input; keys and secrets do it themselves. Of [`Bytes`] in
    /// place this is the engine's own copy: what a caller moved from is the caller's.
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

/// Why the lanes did not serve a request. The engine has counted it already; the caller asks stock
/// OpenSSL instead.
#[derive(Debug)]
pub enum Declined {
    /// The request is alone and stock OpenSSL is faster for it. Keep the guard alive while stock
    /// OpenSSL computes.
    Lone(StockGuard),
    /// The result did not pass its check. It was discarded.
    CheckFailed,
    /// `max_async` submitted requests have not been taken yet.
    QueueFull,
    /// No worker thread runs and none could be started.
    NoWorkers,
    /// The calling thread has too little stack for a kernel, and there was no memory for more.
    NoStack,
    /// The system had no memory for the request, or has had too little lately.
    NoMemory,
    /// This machine has no usable lanes, or the configuration turns them off.
    NoBackend,
    /// Stock OpenSSL is faster than the lanes of this machine, however many requests there are.
    SlowLanes,
    /// The lanes of this machine have no kernels for such a request.
    NoKernel,
    /// The system gave no usable randomness.
    Randomness,
    /// The input does not fit the RSA key.
    Input(JobError),
    /// The secret key is out of range, or not as long as its curve has it.
    BadScalar,
    /// The public key, or the peer's, is no point of its curve, or (X25519) one of small order.
    BadPoint,
    /// The engine was dropped before the request ran.
    ShutDown,
    /// The executor panicked: a defect of this library.
    Internal,
}

impl Declined {
    /// The reason, for comparing and counting.
    pub fn fallback(&self) -> Fallback {
        match self {
            Declined::Lone(_) => Fallback::Lone,
            Declined::CheckFailed => Fallback::CheckFailed,
            Declined::QueueFull => Fallback::QueueFull,
            Declined::NoWorkers => Fallback::NoWorkers,
            Declined::NoStack => Fallback::NoStack,
            Declined::NoMemory => Fallback::NoMemory,
            Declined::NoBackend => Fallback::NoBackend,
            Declined::SlowLanes => Fallback::SlowLanes,
            Declined::NoKernel => Fallback::NoKernel,
            Declined::Randomness => Fallback::Randomness,
            Declined::Input(_) => Fallback::Input,
            Declined::BadScalar => Fallback::BadScalar,
            Declined::BadPoint => Fallback::BadPoint,
            Declined::ShutDown => Fallback::ShutDown,
            Declined::Internal => Fallback::Internal,
        }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fallback().description())
    }
}

impl std::error::Error for Declined {}

/// Counts a thread that computes with stock OpenSSL outside of the engine's slots.
///
/// Threads that are all handed to stock would never meet in the queue, however many they are. While
/// this guard lives, the engine knows that its thread keeps a CPU busy, and gathers requests once
/// there are more such threads than CPUs.
#[derive(Debug)]
pub struct StockGuard {
    _permit: Permit,
}

impl StockGuard {
    pub(crate) fn new(permit: Permit) -> StockGuard {
        StockGuard { _permit: permit }
    }
}

macro_rules! fallbacks {
    ($($variant:ident $name:literal $description:literal,)*) => {
        /// Why a request or a key went to stock OpenSSL.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fallback {
            $(#[doc = $description] $variant,)*
        }

        impl Fallback {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Fallback] = &[$(Fallback::$variant,)*];

            /// The key of this reason in the metrics.
            pub fn name(self) -> &'static str {
                match self { $(Fallback::$variant => $name,)* }
            }

            /// The reason in words.
            pub fn description(self) -> &'static str {
                match self { $(Fallback::$variant => $description,)* }
            }
        }
    };
}

fallbacks! {
    Lone "lone" "the request was alone, where stock OpenSSL is faster",
    CheckFailed "check_failed" "the result did not pass its check",
    QueueFull "queue_full" "too many submitted requests were not yet taken",
    NoWorkers "no_workers" "no worker thread could be started",
    NoStack "no_stack" "the thread's stack has no room for a kernel, nor memory",
    NoMemory "no_memory" "the system had too little memory",
    NoBackend "no_backend" "there are no usable vector lanes",
    SlowLanes "slow_lanes" "stock OpenSSL is faster than this machine's lanes",
    NoKernel "no_kernel" "this machine's lanes cannot do it",
    Randomness "randomness" "the system gave no usable randomness",
    Input "input" "the input did not fit the key",
    ShutDown "shut_down" "the engine was shut down",
    Internal "internal" "an internal error occurred",
    KeySize "key_size" "the key has a size without a kernel",
    UnequalHalves "unequal_halves" "the primes of the key differ in length",
    EvenModulus "even_modulus" "the modulus or a prime is even",
    Exponent "exponent" "the public exponent cannot be used",
    Inconsistent "inconsistent" "the parts of the key contradict each other",
    MultiPrime "multi_prime" "the key has more than two primes",
    MissingCrt "missing_crt" "the key lacks its CRT parts",
    MissingExponent "missing_exponent" "the key lacks its public exponent",
    AsyncUnavailable "async_unavailable" "the asynchronous job could not be paused",
    BadScalar "bad_scalar" "the secret key is out of range",
    BadPoint "bad_point" "the public key is not a usable point",
    Pkcs1Decryption "pkcs1_decryption" "PKCS#1 v1.5 decryption is left to OpenSSL",
}

impl From<Unsupported> for Fallback {
    fn from(reason: Unsupported) -> Fallback {
        match reason {
            Unsupported::Size => Fallback::KeySize,
            Unsupported::UnequalHalves => Fallback::UnequalHalves,
            Unsupported::Even => Fallback::EvenModulus,
            Unsupported::Exponent => Fallback::Exponent,
            Unsupported::Inconsistent => Fallback::Inconsistent,
        }
    }
}

impl From<nist::Error> for Declined {
    fn from(error: nist::Error) -> Declined {
        match error {
            nist::Error::Scalar => Declined::BadScalar,
            nist::Error::Point => Declined::BadPoint,
            nist::Error::Nonce => Declined::Randomness,
            nist::Error::Signature => Declined::CheckFailed,
        }
    }
}
