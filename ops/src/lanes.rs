//! The lanes of this machine's CPUs, with the random bytes, the key pairs and the memory for a
//! batch.

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

/// Bytes of stack that a batch may use, also where it makes a table on first use, and in a build
/// without optimisation.
pub const ROOM_BYTES: usize = 448 * 1024;

/// Maximum number of requests in a batch, except of RSA. On curves these share an inversion.
const CURVE_BATCH: usize = 64;

/// The lanes of this machine's CPUs.
pub struct Lanes {
    pub(crate) backend: Backend,
    /// Lanes of another kind, which compute a sample of key encapsulation again.
    pub(crate) second: Backend,
    /// Chooses the passes of signatures on curves, and of key encapsulation, that are checked.
    sample: Sample,
    pub(crate) home: Home,
    pub(crate) pool: Pool,
}

impl Lanes {
    /// Makes lanes that check one in `check_every` passes of signatures on curves and of key
    /// encapsulation, on average. They make `key_pool` key pairs of a kind at a time, and keep all
    /// but the caller's for later callers. With zero no pair is made in advance.
    pub fn new(backend: Backend, check_every: u32, key_pool: usize) -> Lanes {
        Lanes {
            backend,
            second: second(backend),
            sample: Sample::new(check_every),
            home: Home::of_caller(),
            pool: Pool::new(key_pool),
        }
    }

    /// Returns the backend of these lanes.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the number of requests that fill one pass.
    pub fn pass(&self, shape: Shape) -> usize {
        match shape {
            // Requests are computed one by one, without lanes.
            Shape::Rsa { .. } if self.backend.computes_rsa_on_words() => 1,
            // Two lanes, p and q, for each request.
            Shape::Rsa { .. } => BATCH / 2,
            _ => self.backend.lanes(),
        }
    }

    /// Returns the maximum number of requests in a batch.
    pub fn batch(&self, shape: Shape) -> usize {
        match shape {
            Shape::Rsa { .. } => BATCH,
            _ => CURVE_BATCH,
        }
    }

    /// Returns whether this is a forked child's copy of its parent's lanes.
    pub fn is_left(&self) -> bool {
        self.home.is_left()
    }

    /// Returns the public key of an Ed25519 key.
    pub fn ed25519_public(&self, key: &Ed25519Key) -> [u8; 32] {
        *self.prepared(key).public()
    }

    /// Wipes the key pairs of the pool. It allocates and frees no memory and waits for no lock.
    pub fn wipe_pool(&self) {
        self.pool.wipe();
    }

    /// Takes a key pair out of the pool, if it has one.
    pub fn pooled(&self, kind: KeyKind) -> Option<Keypair> {
        self.pool.take(kind, self.home.here())
    }

    /// Checks a sample of results, by passes, and all of them once one is found wrong. `check`
    /// returns for each result of a range whether it is good. Returns for every result whether it
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

/// Returns the fastest lanes of another kind than these; for portable lanes, portable lanes too.
fn second(backend: Backend) -> Backend {
    let slower = Backend::from_name("avx2").filter(|&avx2| backend != avx2);
    slower
        .filter(|_| backend != Backend::PORTABLE)
        .unwrap_or(Backend::PORTABLE)
}

/// Working memory for batches, allocated when it is first needed. Curves need none.
#[derive(Default)]
pub struct Memory {
    rsa: Option<Scratch>,
    /// Indexed by the parameter set of ML-KEM.
    ml_kem: [Option<mlkem::Scratch>; ParameterSet::ALL.len()],
    /// Indexed by the parameter set of ML-DSA.
    ml_dsa: [Option<mldsa::Scratch>; MlDsa::ALL.len()],
}

impl Memory {
    /// Returns the memory of RSA. This and the next two methods return `None` where it cannot be
    /// allocated.
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
