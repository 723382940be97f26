//! Groups of rustls that ring lacks: ML-KEM, with a curve of ring's.
//!
//! With the crate `ml-kem` clients take longer than a server with lanes: its CPU would be idle, and
//! its batches small. So most handshakes are by our lanes, and some by that crate: they show that
//! the servers' shares follow the standard.

use std::cell::RefCell;
use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

use lockstep_kernels::backend::Backend;
use lockstep_kernels::mlkem::{
    DecapsulateJob, GenerateJob, ParameterSet, SHARED_SECRET, Scratch, SecretKey, Seed,
    decapsulate, generate,
};
use ml_kem::kem::{Decapsulate as _, KeyExport as _};
use ml_kem::{DecapsulationKey768, DecapsulationKey1024, FromSeed as _, MlKem768, MlKem1024};
use rustls::crypto::ring::kx_group;
use rustls::crypto::{ActiveKeyExchange, GetRandomFailed, SharedSecret, SupportedKxGroup};
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

/// How many key pairs of ML-KEM there are.
const PAIRS: usize = 64;
/// Every so many of them is one of the crate `ml-kem`.
const CRATE_EVERY: usize = 16;

/// ML-KEM-768, then X25519.
pub static X25519MLKEM768: Hybrid = Hybrid {
    name: NamedGroup::X25519MLKEM768,
    set: ParameterSet::MlKem768,
    curve: kx_group::X25519,
    curve_is_first: false,
    pairs: Pairs::new(),
};

/// ECDH on P-256, then ML-KEM-768.
pub static SECP256R1MLKEM768: Hybrid = Hybrid {
    name: NamedGroup::secp256r1MLKEM768,
    set: ParameterSet::MlKem768,
    curve: kx_group::SECP256R1,
    curve_is_first: true,
    pairs: Pairs::new(),
};

/// ECDH on P-384, then ML-KEM-1024.
pub static SECP384R1MLKEM1024: Hybrid = Hybrid {
    name: NamedGroup::Unknown(0x11ed),
    set: ParameterSet::MlKem1024,
    curve: kx_group::SECP384R1,
    curve_is_first: true,
    pairs: Pairs::new(),
};

/// A group of two parts, whose bytes lie one behind the other.
#[derive(Debug)]
pub struct Hybrid {
    name: NamedGroup,
    set: ParameterSet,
    curve: &'static dyn SupportedKxGroup,
    curve_is_first: bool,
    pairs: Pairs,
}

/// The key pairs that clients take in turn, as no server can tell.
#[derive(Debug)]
struct Pairs {
    all: OnceLock<Option<Vec<Pair>>>,
    next: AtomicUsize,
}

impl Pairs {
    const fn new() -> Pairs {
        Pairs {
            all: OnceLock::new(),
            next: AtomicUsize::new(0),
        }
    }
}

impl Hybrid {
    fn joined(&self, ml_kem: &[u8], curve: &[u8]) -> Vec<u8> {
        match self.curve_is_first {
            true => [curve, ml_kem].concat(),
            false => [ml_kem, curve].concat(),
        }
    }

    /// The ciphertext and the share on the curve.
    fn split<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let length = self.set.ciphertext_bytes();
        match self.curve_is_first {
            true => {
                let (curve, ml_kem) = bytes.split_at_checked(bytes.len().checked_sub(length)?)?;
                Some((ml_kem, curve))
            }
            false => bytes.split_at_checked(length),
        }
    }

    /// The next key pair; `None` without memory or random bytes.
    fn pair(&self) -> Option<&Pair> {
        let make = || {
            (0..PAIRS)
                .map(|number| Pair::make(self.set, number))
                .collect()
        };
        let all = self.pairs.all.get_or_init(make).as_ref()?;
        Some(&all[self.pairs.next.fetch_add(1, Ordering::Relaxed) % PAIRS])
    }
}

/// A key pair of ML-KEM.
struct Pair {
    secret_key: Secret,
    public_key: Vec<u8>,
}

enum Secret {
    Lanes(ParameterSet, Vec<u8>),
    Crate768(Box<DecapsulationKey768>),
    Crate1024(Box<DecapsulationKey1024>),
}

impl Debug for Pair {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}

impl Pair {
    fn make(set: ParameterSet, number: usize) -> Option<Pair> {
        let mut seed = [0; 64];
        getrandom::fill(&mut seed).ok()?;
        if number.is_multiple_of(CRATE_EVERY) {
            return Some(match set {
                ParameterSet::MlKem1024 => {
                    let (secret_key, public_key) = MlKem1024::from_seed(&seed.into());
                    Pair {
                        secret_key: Secret::Crate1024(Box::new(secret_key)),
                        public_key: public_key.to_bytes().to_vec(),
                    }
                }
                _ => {
                    let (secret_key, public_key) = MlKem768::from_seed(&seed.into());
                    Pair {
                        secret_key: Secret::Crate768(Box::new(secret_key)),
                        public_key: public_key.to_bytes().to_vec(),
                    }
                }
            });
        }
        let mut secret_key = vec![0; set.secret_key_bytes()];
        let mut public_key = vec![0; set.public_key_bytes()];
        let mut jobs = [GenerateJob {
            seed: Seed::from_ref(&seed),
            public_key: &mut public_key,
            secret_key: SecretKey::from_mut(&mut secret_key),
        }];
        on_lanes(set, |backend, scratch| {
            generate(backend, scratch, &mut jobs)
        })?;
        Some(Pair {
            secret_key: Secret::Lanes(set, secret_key),
            public_key,
        })
    }

    fn decapsulate(&self, ciphertext: &[u8]) -> Option<[u8; SHARED_SECRET]> {
        let (set, secret_key) = match &self.secret_key {
            Secret::Crate768(secret_key) => {
                return Some(secret_key.decapsulate(&ciphertext.try_into().ok()?).into());
            }
            Secret::Crate1024(secret_key) => {
                return Some(secret_key.decapsulate(&ciphertext.try_into().ok()?).into());
            }
            Secret::Lanes(set, secret_key) => (*set, SecretKey::from_ref(secret_key)),
        };
        let mut jobs = [DecapsulateJob {
            secret_key,
            ciphertext,
            result: None,
        }];
        on_lanes(set, |backend, scratch| {
            decapsulate(backend, scratch, &mut jobs);
        })?;
        let [job] = jobs;
        job.result.map(|secret| *secret.as_bytes())
    }
}

/// Computes by the fastest lanes of this CPU, with the memory of this thread.
fn on_lanes(set: ParameterSet, compute: impl FnOnce(Backend, &mut Scratch)) -> Option<()> {
    static BACKEND: LazyLock<Backend> =
        LazyLock::new(|| Backend::best_hardware().unwrap_or(Backend::PORTABLE));
    thread_local!(static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) });
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.as_ref().is_none_or(|scratch| scratch.set() != set) {
            *scratch = Scratch::try_new(set);
        }
        scratch.as_mut().map(|scratch| compute(*BACKEND, scratch))
    })
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        // Each static group is one of these.
        let all = [&X25519MLKEM768, &SECP256R1MLKEM768, &SECP384R1MLKEM1024];
        let mut all = all.into_iter();
        let group = all.find(|group| group.name == self.name);
        let group = group.ok_or(GetRandomFailed)?;
        let pair = group.pair().ok_or(GetRandomFailed)?;
        let curve = self.curve.start()?;
        let public = group.joined(&pair.public_key, curve.pub_key());
        Ok(Box::new(Started {
            group,
            pair,
            curve,
            public,
        }))
    }

    fn name(&self) -> NamedGroup {
        self.name
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

/// An exchange that waits for the server's share.
struct Started {
    group: &'static Hybrid,
    pair: &'static Pair,
    curve: Box<dyn ActiveKeyExchange>,
    public: Vec<u8>,
}

impl ActiveKeyExchange for Started {
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        let parts = self.group.split(share);
        let (ciphertext, curve) = parts.ok_or(PeerMisbehaved::InvalidKeyShare)?;
        let ml_kem = self.pair.decapsulate(ciphertext);
        let ml_kem = ml_kem.ok_or_else(|| Error::General("out of memory".to_owned()))?;
        let curve = self.curve.complete(curve)?;
        let secret = self.group.joined(&ml_kem, curve.secret_bytes());
        Ok(SharedSecret::from(&secret[..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.public
    }

    fn group(&self) -> NamedGroup {
        self.group.name
    }
}
