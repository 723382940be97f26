//! The lanes of this machine's CPUs, with the random bytes, key pairs and memory that a batch needs
//! besides its requests.

pub(crate) mod pool;
pub(crate) mod random;
mod sample;

use std::ops::Range;

use lockstep_kernels::backend::Backend;
use lockstep_kernels::mldsa;
use lockstep_kernels::mlkem::{self, ParameterSet};
use lockstep_kernels::rsa::{BATCH, Scratch};

use crate::epoch::Home;
use crate::keys::{Ed25519Key, Keypair};
use crate::kinds::{KeyKind, MlDsa};
use crate::shape::Shape;
use pool::Pool;
use sample::Sample;

/// The stack that a batch may use, also where it makes a table on first use, and in a build without
/// optimisation.
pub const ROOM_BYTES: usize = 448 * 1024;

/// The most requests of a curve in one batch: so many share an inversion.
const CURVE_BATCH: usize = 64;

/// The lanes of this machine's CPUs.
pub struct Lanes {
    pub(crate) backend: Backend,
    /// Lanes of another kind, by which a sample of key encapsulation is computed again.
    pub(crate) second: Backend,
    /// Which passes of ECDSA or Ed25519 signatures are checked.
    sample: Sample,
    pub(crate) home: Home,
    pub(crate) pool: Pool,
}

impl Lanes {
    /// Lanes that check one in every `check_every` passes of signatures on curves and of key
    /// encapsulation, on average, and make `key_pool` key pairs of a kind at a time, to keep the
    /// rest; zero: none is made in advance.
    pub fn new(backend: Backend, check_every: u32, key_pool: usize) -> Lanes {
        Lanes {
            backend,
            second: second(backend),
            sample: Sample::new(check_every),
            home: Home::of_caller(),
            pool: Pool::new(key_pool),
        }
    }

    /// Which lanes these are.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// How many requests fill one pass.
    pub fn pass(&self, shape: Shape) -> usize {
        match shape {
            // One by one, without lanes.
            Shape::Rsa { .. } if self.backend.computes_rsa_on_words() => 1,
            // Two lanes, p and q, for each request.
            Shape::Rsa { .. } => BATCH / 2,
            _ => self.backend.lanes(),
        }
    }

    /// How many requests one batch takes at most.
    pub fn batch(&self, shape: Shape) -> usize {
        match shape {
            Shape::Rsa { .. } => BATCH,
            _ => CURVE_BATCH,
        }
    }

    /// Whether this is a forked child's copy of the lanes of its parent.
    pub fn is_left(&self) -> bool {
        self.home.is_left()
    }

    /// The public key that belongs to a key of Ed25519.
    pub fn ed25519_public(&self, key: &Ed25519Key) -> [u8; 32] {
        *self.prepared(key).public()
    }

    /// Wipes the key pairs of the pool, in whatever state: allocates and frees nothing and waits
    /// for no lock.
    pub fn wipe_pool(&self) {
        self.pool.wipe();
    }

    /// A key pair out of the pool, if it has one.
    pub fn pooled(&self, kind: KeyKind) -> Option<Keypair> {
        self.pool.take(kind, self.home.here())
    }

    /// Checks a sample of signatures, by passes, and all of them once one is found wrong. `check`
    /// returns which of the signatures in a range are good. Returns for every signature whether it
    /// may leave.
    pub(crate) fn sample(
        &self,
        count: usize,
        mut check: impl FnMut(Range<usize>) -> Vec<bool>,
    ) -> Vec<bool> {
        let pass = self.backend.lanes();
        for first in (0..count).step_by(pass) {
            if self.sample.has_next() && check(first..count.min(first + pass)).contains(&false) {
                return check(0..count);
            }
        }
        vec![true; count]
    }
}

/// Lanes of another kind than these, the fastest there are.
fn second(backend: Backend) -> Backend {
    let slower = Backend::from_name("avx2").filter(|&avx2| backend != avx2);
    slower
        .filter(|_| backend != Backend::PORTABLE)
        .unwrap_or(Backend::PORTABLE)
}

/// The working memory of a slot, made when it is first needed. Curves need none.
#[derive(Default)]
pub struct Memory {
    rsa: Option<Scratch>,
    /// By the parameter set.
    ml_kem: [Option<mlkem::Scratch>; ParameterSet::ALL.len()],
    /// As for ML-KEM.
    ml_dsa: [Option<mldsa::Scratch>; MlDsa::ALL.len()],
}

impl Memory {
    /// None without memory for it, here and below.
    pub(crate) fn rsa(&mut self) -> Option<&mut Scratch> {
        if self.rsa.is_none() {
            self.rsa = Scratch::try_new();
        }
        self.rsa.as_mut()
    }

    pub(crate) fn ml_kem(&mut self, set: ParameterSet) -> Option<&mut mlkem::Scratch> {
        let scratch = &mut self.ml_kem[set as usize];
        if scratch.is_none() {
            *scratch = mlkem::Scratch::try_new(set);
        }
        scratch.as_mut()
    }

    pub(crate) fn ml_dsa(&mut self, set: MlDsa) -> Option<&mut mldsa::Scratch> {
        let scratch = &mut self.ml_dsa[set as usize];
        if scratch.is_none() {
            *scratch = mldsa::Scratch::try_new(set);
        }
        scratch.as_mut()
    }
}
