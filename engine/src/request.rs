//! What can be asked of the engine, and what it can answer.

use std::fmt;

use lockstep_kernels::rsa::{JobError, Signature, Size, Unsupported, Verified};

use crate::rsa_key::RsaKey;
use crate::ticket::Permit;

/// One operation, with everything that it needs: nothing points into the caller's memory.
pub enum Request {
    /// s = m^d mod n, for signing and for decryption alike.
    RsaPrivate {
        /// The key, shared with other requests.
        key: std::sync::Arc<RsaKey>,
        /// m, big-endian, exactly as long as the modulus, below n.
        input: Vec<u8>,
    },
}

/// The result of a [`Request`].
#[derive(Debug)]
pub enum Response {
    /// s with s^e = m, checked against the request's own key and input.
    Rsa(Verified<Signature>),
}

/// Why the lanes did not serve a request. The engine has counted it already; the caller asks stock
/// OpenSSL instead.
#[derive(Debug)]
pub enum Declined {
    /// The request is alone and stock OpenSSL is faster for it. Keep the guard alive while stock
    /// OpenSSL computes.
    Lone(StockGuard),
    /// The result did not pass the check s^e = m. It was discarded.
    CheckFailed,
    /// `max_async` submitted requests have not been taken yet.
    QueueFull,
    /// No worker thread runs and none could be started.
    NoWorkers,
    /// This machine has no usable lanes, or the configuration turns them off.
    NoBackend,
    /// Stock OpenSSL is faster than the lanes of this machine, however many requests there are.
    SlowLanes,
    /// The system gave no randomness to blind with.
    Randomness,
    /// The input does not fit the key.
    Input(JobError),
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
            Declined::NoBackend => Fallback::NoBackend,
            Declined::SlowLanes => Fallback::SlowLanes,
            Declined::Randomness => Fallback::Randomness,
            Declined::Input(_) => Fallback::Input,
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
    NoBackend "no_backend" "there are no usable vector lanes",
    SlowLanes "slow_lanes" "stock OpenSSL is faster than this machine's lanes",
    Randomness "randomness" "the system gave no randomness to blind with",
    Input "input" "the input did not fit the key",
    ShutDown "shut_down" "the engine was shut down",
    Internal "internal" "an internal error occurred",
    KeySize "key_size" "the key has a size without a kernel",
    UnequalHalves "unequal_halves" "the primes of the key differ in length",
    EvenModulus "even_modulus" "the modulus or a prime is even",
    Exponent "exponent" "the public exponent cannot be used",
    Inconsistent "inconsistent" "the parts of the key contradict each other",
    OtherKey "other_key" "the key cannot be used for another reason",
    MultiPrime "multi_prime" "the key has more than two primes",
    MissingCrt "missing_crt" "the key lacks its CRT parts",
    MissingExponent "missing_exponent" "the key lacks its public exponent",
    AsyncUnavailable "async_unavailable" "the asynchronous job could not be paused",
    AsyncBound "async_bound" "too many asynchronous jobs were paused",
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

/// What may share a batch: requests of one shape run the same instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// RSA private operations on moduli of one size.
    Rsa {
        /// The size of the modulus.
        size: Size,
        /// Whether the public exponent has more than 64 bits: its check takes far longer, so it
        /// never shares a batch with usual keys.
        wide_exponent: bool,
    },
}

impl Shape {
    /// Every shape, in the order of [`index`](Self::index).
    pub const ALL: [Shape; 8] = [
        Shape::rsa(Size::Rsa1024, false),
        Shape::rsa(Size::Rsa2048, false),
        Shape::rsa(Size::Rsa3072, false),
        Shape::rsa(Size::Rsa4096, false),
        Shape::rsa(Size::Rsa1024, true),
        Shape::rsa(Size::Rsa2048, true),
        Shape::rsa(Size::Rsa3072, true),
        Shape::rsa(Size::Rsa4096, true),
    ];

    const fn rsa(size: Size, wide_exponent: bool) -> Shape {
        Shape::Rsa {
            size,
            wide_exponent,
        }
    }

    /// The place of this shape in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        let Shape::Rsa {
            size,
            wide_exponent,
        } = self;
        let size = match size {
            Size::Rsa1024 => 0,
            Size::Rsa2048 => 1,
            Size::Rsa3072 => 2,
            Size::Rsa4096 => 3,
        };
        size + if wide_exponent { 4 } else { 0 }
    }

    /// The key of this shape in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Rsa {
                size: Size::Rsa1024,
                wide_exponent: false,
            } => "rsa1024",
            Shape::Rsa {
                size: Size::Rsa2048,
                wide_exponent: false,
            } => "rsa2048",
            Shape::Rsa {
                size: Size::Rsa3072,
                wide_exponent: false,
            } => "rsa3072",
            Shape::Rsa {
                size: Size::Rsa4096,
                wide_exponent: false,
            } => "rsa4096",
            Shape::Rsa {
                size: Size::Rsa1024,
                wide_exponent: true,
            } => "rsa1024_wide_exponent",
            Shape::Rsa {
                size: Size::Rsa2048,
                wide_exponent: true,
            } => "rsa2048_wide_exponent",
            Shape::Rsa {
                size: Size::Rsa3072,
                wide_exponent: true,
            } => "rsa3072_wide_exponent",
            Shape::Rsa {
                size: Size::Rsa4096,
                wide_exponent: true,
            } => "rsa4096_wide_exponent",
        }
    }
}
