//! The lanes of this machine's CPUs: what a batch on them needs besides its requests.

use lockstep_kernels::backend::Backend;
use zeroize::Zeroizing;

use super::pool::Pool;
use super::sample::Sample;
use crate::config::Config;
use crate::declined::Declined;
use crate::epoch::Home;
use crate::keys::Keypair;
use crate::kinds::KeyKind;
use crate::policy::{self, Batch, JobsLead, Lone};
use crate::request::Request;
use crate::shape::Shape;

/// The lanes of this machine's CPUs.
pub(crate) struct Cpu {
    pub(super) backend: Backend,
    /// Lanes of another kind, by which a sample of key encapsulation is computed again.
    pub(super) second: Backend,
    /// Whether these are for key encapsulation alone: there are no vectors, or they are disabled.
    only_kem: bool,
    pub(super) lone: Lone,
    pub(super) jobs_lead: JobsLead,
    pub(super) batch: Batch,
    /// How many batches run at a time.
    pub(super) slots: usize,
    /// Which passes of ECDSA or Ed25519 signatures are checked.
    sample: Sample,
    pub(crate) home: Home,
    pub(crate) pool: Pool,
}

impl Cpu {
    pub(crate) fn new(backend: Backend, config: &Config) -> Cpu {
        Cpu {
            backend,
            second: second(backend),
            only_kem: false,
            lone: config.lone,
            jobs_lead: config.jobs_lead,
            batch: config.batch,
            slots: config.slots,
            sample: Sample::new(config.check_every),
            home: Home::new(),
            pool: Pool::new(config.key_pool),
        }
    }

    /// Lanes for what OpenSSL may lack, on a CPU without vectors. They keep no key pairs, which
    /// OpenSSL makes faster.
    pub(crate) fn for_kem(config: &Config) -> Cpu {
        Cpu {
            only_kem: true,
            pool: Pool::new(0),
            ..Cpu::new(Backend::PORTABLE, config)
        }
    }

    /// Why OpenSSL's own implementation serves all requests of a shape, if it does.
    pub(crate) fn declines_all(&self, shape: Shape) -> Option<Declined> {
        if let Some(reason) = self.lacks(shape) {
            return Some(reason());
        }
        let nothing = self.lone != Lone::Lanes && policy::lanes_bring_nothing(self.backend, shape);
        nothing.then_some(Declined::SlowLanes)
    }

    /// Why no vectors serve a shape, if none do.
    pub(crate) fn lacks(&self, shape: Shape) -> Option<fn() -> Declined> {
        let has_kernel = !shape.is_nist() || self.backend.has_nist_curves();
        let lacks_kernel = || (!has_kernel).then_some((|| Declined::NoKernel) as fn() -> Declined);
        self.refuses(shape).or_else(lacks_kernel)
    }

    /// Why a shape is not served at all, not even without vectors.
    pub(crate) fn refuses(&self, shape: Shape) -> Option<fn() -> Declined> {
        (self.only_kem && !shape.is_kem()).then_some(|| Declined::NoBackend)
    }

    /// A key pair out of the pool, if it has one.
    pub(crate) fn pooled(&self, kind: KeyKind) -> Option<Keypair> {
        self.pool.take(kind, self.home.here())
    }
}

/// Lanes of another kind than these, the fastest there are.
fn second(backend: Backend) -> Backend {
    let slower = Backend::from_name("avx2").filter(|&avx2| backend != avx2);
    slower
        .filter(|_| backend != Backend::PORTABLE)
        .unwrap_or(Backend::PORTABLE)
}

/// A [`Request`] as it waits in the queue.
pub(crate) struct CpuRequest {
    pub request: Request,
    /// RSA only: the lanes compute with the request's copy of the input and check the result
    /// against this one. A bit that flips in one of them cannot reach the other, so it is always
    /// found.
    pub check_input: Zeroizing<Vec<u8>>,
}

impl From<Request> for CpuRequest {
    fn from(request: Request) -> CpuRequest {
        let check_input = match &request {
            Request::RsaPrivate(rsa) => rsa.input.to_vec(),
            _ => Vec::new(),
        };
        CpuRequest {
            request,
            check_input: Zeroizing::new(check_input),
        }
    }
}

impl Cpu {
    /// Checks a sample of signatures, by passes, and all of them once one is found wrong. `check`
    /// returns which of the signatures in a range are good. Returns for every signature whether it
    /// may leave.
    pub(super) fn sample(
        &self,
        count: usize,
        mut check: impl FnMut(std::ops::Range<usize>) -> Vec<bool>,
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
