//! The lanes as an executor, and the rules by which they serve a shape.

use lockstep_ops::{Backend, GuardedRequest, Lanes, Memory, Response, Shape};

use super::{Executor, Member};
use crate::config::Config;
use crate::declined::Declined;
use crate::policy::{self, Lone, Sharing};

/// The lanes of this machine's CPUs, and the rules for the requests that they serve.
pub(crate) struct OnLanes {
    pub(crate) lanes: Lanes,
    /// Whether these are for key encapsulation alone: there are no vectors, or they are disabled.
    only_kem: bool,
    lone: Lone,
    /// Maximum number of batches that run at a time.
    slots: usize,
}

impl OnLanes {
    pub(crate) fn new(backend: Backend, config: &Config) -> OnLanes {
        let lanes = Lanes::new(backend, config.check_every, config.key_pool);
        OnLanes::of(lanes, config)
    }

    fn of(lanes: Lanes, config: &Config) -> OnLanes {
        OnLanes {
            lanes,
            only_kem: false,
            lone: config.lone,
            slots: config.slots,
        }
    }

    /// Makes portable lanes for key encapsulation alone, which OpenSSL may lack. They keep no pool
    /// of key pairs, because OpenSSL makes key pairs faster.
    pub(crate) fn for_kem(config: &Config) -> OnLanes {
        let lanes = Lanes::new(Backend::PORTABLE, config.check_every, 0);
        OnLanes {
            only_kem: true,
            ..OnLanes::of(lanes, config)
        }
    }

    /// Returns the reason why the lanes do not serve a shape, if they do not.
    pub(crate) fn lacks(&self, shape: Shape) -> Option<fn() -> Declined> {
        let has_kernel = !shape.is_nist() || self.lanes.backend().has_nist_curves();
        let lacks_kernel = || (!has_kernel).then_some((|| Declined::NoKernel) as fn() -> Declined);
        self.refuses(shape).or_else(lacks_kernel)
    }

    /// Returns the reason why a shape is served neither with vectors nor without, if there is one.
    pub(crate) fn refuses(&self, shape: Shape) -> Option<fn() -> Declined> {
        (self.only_kem && !shape.is_kem()).then_some(|| Declined::NoBackend)
    }

    /// Returns the reason why all requests of this shape are declined, if they are.
    pub(crate) fn declines_all(&self, shape: Shape) -> Option<Declined> {
        if let Some(reason) = self.lacks(shape) {
            return Some(reason());
        }
        let nothing =
            self.lone != Lone::Lanes && policy::lanes_bring_nothing(self.lanes.backend(), shape);
        nothing.then_some(Declined::SlowLanes)
    }

    /// Takes a key pair of the pool, if that has one. It computes nothing, so it may run on any
    /// stack.
    pub(crate) fn in_advance(&self, shape: Shape) -> Option<Response> {
        match shape {
            Shape::Keypair(kind) => self.lanes.pooled(kind).map(Response::Keypair),
            _ => None,
        }
    }
}

impl Executor for OnLanes {
    type Shape = Shape;
    type Request = GuardedRequest;
    type Response = Response;
    type Memory = Memory;

    const SHAPES: &'static [Shape] = &Shape::ALL;

    fn index(shape: Shape) -> usize {
        shape.index()
    }

    fn pass(&self, shape: Shape) -> usize {
        self.lanes.pass(shape)
    }

    fn batch(&self, shape: Shape) -> usize {
        self.lanes.batch(shape)
    }

    fn declines_lone(&self, shape: Shape) -> bool {
        match self.lone {
            Lone::Auto => policy::lone_is_slower(self.lanes.backend(), shape),
            Lone::Lanes => false,
            // OpenSSL may lack key encapsulation.
            Lone::Stock => !shape.is_kem(),
        }
    }

    fn wants_help(&self, shape: Shape) -> bool {
        policy::workers_help(shape, self.slots)
    }

    fn sharing(&self, shape: Shape) -> Sharing {
        Sharing::of(shape)
    }

    fn memory(&self) -> Memory {
        Memory::default()
    }

    fn execute(&self, shape: Shape, memory: &mut Memory, jobs: &mut [Member<OnLanes>]) -> usize {
        let jobs = jobs.iter_mut();
        let jobs = jobs.map(|Member { request, answer }| (&*request, answer));
        self.lanes.execute(shape, memory, jobs)
    }
}
