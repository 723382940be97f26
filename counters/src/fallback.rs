//! The reasons for which OpenSSL's own implementation serves a request or a key, by their names in
//! the metrics.

use lockstep_ops::{Failed, Unsupported};

macro_rules! fallbacks {
    ($($variant:ident $name:literal $description:literal,)*) => {
        /// Reason why a request or a key went to OpenSSL's own implementation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fallback {
            $(#[doc = $description] $variant,)*
        }

        impl Fallback {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Fallback] = &[$(Fallback::$variant,)*];

            /// Returns the name of this reason in the metrics.
            pub fn name(self) -> &'static str {
                match self { $(Fallback::$variant => $name,)* }
            }

            /// Returns the reason in words.
            pub fn description(self) -> &'static str {
                match self { $(Fallback::$variant => $description,)* }
            }
        }
    };
}

fallbacks! {
    Lone "lone" "the request was alone, and OpenSSL's own code is faster for one",
    CheckFailed "check_failed" "the result did not pass its check",
    QueueFull "queue_full" "too many submitted requests were not yet taken",
    NoWorkers "no_workers" "no worker thread could be started",
    NoStack "no_stack" "the thread's stack is too small for a kernel, and no other stack could be allocated",
    NoMemory "no_memory" "the system had too little memory",
    NoBackend "no_backend" "there are no usable vector lanes",
    SlowLanes "slow_lanes" "OpenSSL's own code is about as fast on this machine, or faster",
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
    BadKey "bad_key" "a key or a ciphertext is not one of ML-KEM",
    Pkcs1Decryption "pkcs1_decryption" "PKCS#1 v1.5 decryption is left to OpenSSL",
    SharedMemory "shared_memory" "several processes may share OpenSSL's objects, so nothing is offered",
    Late "late" "the request would have waited longer than OpenSSL's own code takes",
    LowPriority "low_priority" "the thread has a lower priority than its process",
    First "first" "it was the first request of a process or with a key, for which nothing is prepared yet",
    LongMessage "long_message" "the message is so long that its hash is most of the work",
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

impl From<Failed> for Fallback {
    fn from(failed: Failed) -> Fallback {
        match failed {
            Failed::CheckFailed => Fallback::CheckFailed,
            Failed::NoMemory => Fallback::NoMemory,
            Failed::Randomness => Fallback::Randomness,
            Failed::Input(_) => Fallback::Input,
            Failed::BadScalar => Fallback::BadScalar,
            Failed::BadPoint => Fallback::BadPoint,
            Failed::BadKey => Fallback::BadKey,
            Failed::Inconsistent => Fallback::Inconsistent,
            Failed::Internal => Fallback::Internal,
        }
    }
}
