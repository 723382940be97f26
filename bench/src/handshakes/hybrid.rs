//! Groups of rustls that ring lacks: ML-KEM-768, with a curve of ring's.
//!
//! With the crate `ml-kem` clients take longer than a server with lanes: its CPU would be idle, and
//! its batches small. So most handshakes are by our lanes, and some by that crate: they show that
//! the servers' shares follow the standard.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockstep_kernels::backend::Backend;
use lockstep_kernels::mlkem::{
    Ciphertext, DecapsulateJob, GenerateJob, PUBLIC_KEY, SECRET_KEY, SHARED_SECRET, Scratch,
    SecretKey, Seed, decapsulate, generate,
};
use ml_kem::kem::{Decapsulate as _, KeyExport as _};
use ml_kem::{DecapsulationKey768, FromSeed as _, MlKem768};
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
    curve: kx_group::X25519,
    curve_is_first: false,
};

/// ECDH on P-256, then ML-KEM-768.
pub static SECP256R1MLKEM768: Hybrid = Hybrid {
    name: NamedGroup::secp256r1MLKEM768,
    curve: kx_group::SECP256R1,
    curve_is_first: true,
};

/// A group of two parts, whose bytes lie one behind the other.
#[derive(Debug)]
pub struct Hybrid {
    name: NamedGroup,
    curve: &'static dyn SupportedKxGroup,
    curve_is_first: bool,
}

impl Hybrid {
    fn joined(&self, ml_kem: &[u8], curve: &[u8]) -> Vec<u8> {
        match self.curve_is_first {
            true => [curve, ml_kem].concat(),
            false => [ml_kem, curve].concat(),
        }
    }

    /// The ciphertext and the share on the curve.
    fn split<'a>(&self, bytes: &'a [u8]) -> Option<(&'a Ciphertext, &'a [u8])> {
        match self.curve_is_first {
            true => bytes
                .split_last_chunk()
                .map(|(curve, ml_kem)| (ml_kem, curve)),
            false => bytes.split_first_chunk(),
        }
    }
}

/// A key pair of ML-KEM.
struct Pair {
    secret_key: Secret,
    public_key: Vec<u8>,
}

enum Secret {
    Lanes(Box<SecretKey>),
    Crate(Box<DecapsulationKey768>),
}

impl Pair {
    fn make(number: usize) -> Option<Pair> {
        let mut seed = [0; 64];
        getrandom::fill(&mut seed).ok()?;
        if number.is_multiple_of(CRATE_EVERY) {
            let (secret_key, public_key) = MlKem768::from_seed(&seed.into());
            return Some(Pair {
                secret_key: Secret::Crate(Box::new(secret_key)),
                public_key: public_key.to_bytes().to_vec(),
            });
        }
        let mut secret_key = Box::new(SecretKey::from_bytes(&[0; SECRET_KEY]));
        let mut public_key = [0; PUBLIC_KEY];
        let mut jobs = [GenerateJob {
            seed: Seed::from_ref(&seed),
            public_key: &mut public_key,
            secret_key: &mut secret_key,
        }];
        on_lanes(|backend, scratch| generate(backend, scratch, &mut jobs))?;
        Some(Pair {
            secret_key: Secret::Lanes(secret_key),
            public_key: public_key.to_vec(),
        })
    }

    /// One of those that clients take in turn, as no server can tell; `None` without memory or
    /// random bytes.
    fn take() -> Option<&'static Pair> {
        static ALL: LazyLock<Option<Vec<Pair>>> =
            LazyLock::new(|| (0..PAIRS).map(Pair::make).collect());
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let all = ALL.as_ref()?;
        Some(&all[NEXT.fetch_add(1, Ordering::Relaxed) % PAIRS])
    }

    fn decapsulate(&self, ciphertext: &Ciphertext) -> Option<[u8; SHARED_SECRET]> {
        let secret_key = match &self.secret_key {
            Secret::Crate(secret_key) => {
                return Some(secret_key.decapsulate(&(*ciphertext).into()).into());
            }
            Secret::Lanes(secret_key) => secret_key,
        };
        let mut jobs = [DecapsulateJob {
            secret_key,
            ciphertext,
            result: None,
        }];
        on_lanes(|backend, scratch| decapsulate(backend, scratch, &mut jobs))?;
        let [job] = jobs;
        job.result.map(|secret| *secret.as_bytes())
    }
}

/// Computes by the fastest lanes of this CPU, with the memory of this thread.
fn on_lanes(compute: impl FnOnce(Backend, &mut Scratch)) -> Option<()> {
    static BACKEND: LazyLock<Backend> =
        LazyLock::new(|| Backend::best_hardware().unwrap_or(Backend::PORTABLE));
    thread_local!(static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) });
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.is_none() {
            *scratch = Scratch::try_new();
        }
        scratch.as_mut().map(|scratch| compute(*BACKEND, scratch))
    })
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        // Each static group is one of these two.
        let group = match self.curve_is_first {
            true => &SECP256R1MLKEM768,
            false => &X25519MLKEM768,
        };
        let pair = Pair::take().ok_or(GetRandomFailed)?;
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
