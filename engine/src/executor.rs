//! What runs a batch. The CPU's lanes are one executor; the queue knows only the trait.

use std::fmt::Debug;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use lockstep_kernels::backend::Backend;
use lockstep_kernels::rsa::{self, Blinding, JobError, PrivateJob, Scratch};
use zeroize::Zeroizing;

use crate::policy::{self, Lone};
use crate::request::{Declined, Request, Response, Shape};
use crate::rsa_key::RsaKey;

/// Runs batches of requests of one shape.
pub(crate) trait Executor: Send + Sync + Sized + 'static {
    /// What requests must have in common to share a batch.
    type Shape: Copy + Debug + Send + Sync + 'static;
    /// A request, owning its data.
    type Request: Send + 'static;
    /// Its result.
    type Response: Send + 'static;
    /// The working memory of one slot, made when the slot is first used.
    type Memory: Send + 'static;

    /// Every shape.
    const SHAPES: &'static [Self::Shape];

    /// The place of `shape` in [`SHAPES`](Self::SHAPES).
    fn index(shape: Self::Shape) -> usize;

    /// How many requests fill one pass of the lanes.
    fn pass(&self, shape: Self::Shape) -> usize;

    /// How many requests one batch takes at most.
    fn batch(&self, shape: Self::Shape) -> usize;

    /// Whether a request that is alone is better served elsewhere.
    fn declines_lone(&self, shape: Self::Shape) -> bool;

    /// The memory of a new slot.
    fn memory(&self) -> Self::Memory;

    /// Answers every job. A job left without an answer is declined as an internal error.
    fn run(&self, shape: Self::Shape, memory: &mut Self::Memory, jobs: &mut [Job<Self>]);
}

/// One request of a batch, and its answer.
pub(crate) struct Job<E: Executor> {
    pub request: E::Request,
    pub answer: Option<Result<E::Response, Declined>>,
}

/// The lanes of this machine's CPUs.
pub(crate) struct Cpu {
    backend: Backend,
    lone: Lone,
    epoch: Epoch,
}

/// The engine and process that blinding state belongs to. A forked child makes an engine of its own,
/// so it never uses state that its parent uses too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pid: u32,
    engine: u32,
}

impl Epoch {
    /// One that no other engine of this process or of its ancestors has.
    pub(crate) fn new() -> Epoch {
        static ENGINES: AtomicU32 = AtomicU32::new(0);
        Epoch {
            pid: process::id(),
            engine: ENGINES.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Cpu {
    pub(crate) fn new(backend: Backend, lone: Lone) -> Cpu {
        Cpu {
            backend,
            lone,
            epoch: Epoch::new(),
        }
    }

    /// Whether all requests of a shape are better served by stock OpenSSL.
    pub(crate) fn declines(&self, shape: Shape) -> bool {
        self.lone != Lone::Lanes && policy::lanes_are_slower(self.backend, shape)
    }
}

impl Executor for Cpu {
    type Shape = Shape;
    type Request = CpuRequest;
    type Response = Response;
    type Memory = Scratch;

    const SHAPES: &'static [Shape] = &Shape::ALL;

    fn index(shape: Shape) -> usize {
        shape.index()
    }

    fn pass(&self, shape: Shape) -> usize {
        match shape {
            // Two lanes, p and q, for each request.
            Shape::Rsa { .. } => rsa::BATCH / 2,
        }
    }

    fn batch(&self, shape: Shape) -> usize {
        match shape {
            Shape::Rsa { .. } => rsa::BATCH,
        }
    }

    fn declines_lone(&self, shape: Shape) -> bool {
        match self.lone {
            Lone::Auto => policy::lone_is_slower(self.backend, shape),
            Lone::Lanes => false,
            Lone::Stock => true,
        }
    }

    fn memory(&self) -> Scratch {
        Scratch::new()
    }

    fn run(&self, shape: Shape, scratch: &mut Scratch, jobs: &mut [Job<Cpu>]) {
        match shape {
            Shape::Rsa { .. } => self.run_rsa(scratch, jobs),
        }
    }
}

/// A [`Request`] as it waits in the queue.
pub(crate) enum CpuRequest {
    RsaPrivate {
        key: std::sync::Arc<RsaKey>,
        /// The lanes compute with this copy of the input,
        input: Zeroizing<Vec<u8>>,
        /// and check the result against this one. A bit that flips in one of them cannot reach the
        /// other, so it is always found.
        check_input: Zeroizing<Vec<u8>>,
    },
}

impl From<Request> for CpuRequest {
    fn from(request: Request) -> CpuRequest {
        match request {
            Request::RsaPrivate { key, input } => CpuRequest::RsaPrivate {
                key,
                check_input: Zeroizing::new(input.clone()),
                input: Zeroizing::new(input),
            },
        }
    }
}

impl CpuRequest {
    pub(crate) fn shape(&self) -> Shape {
        match self {
            CpuRequest::RsaPrivate { key, .. } => key.shape(),
        }
    }
}

impl Cpu {
    /// One RSA batch: blinding pairs out of each key's pool, the kernel, blinding pairs back.
    fn run_rsa(&self, scratch: &mut Scratch, jobs: &mut [Job<Cpu>]) {
        let mut blindings = self.blindings(jobs);
        for (job, blinding) in jobs.iter_mut().zip(&blindings) {
            if blinding.is_none() {
                job.answer = Some(Err(Declined::Randomness));
            }
        }

        let mut lanes: Vec<PrivateJob<'_>> = Vec::with_capacity(jobs.len());
        for (job, blinding) in jobs.iter().zip(&mut blindings) {
            let CpuRequest::RsaPrivate {
                key,
                input,
                check_input,
            } = &job.request;
            if let Some(blinding) = blinding {
                lanes.push(PrivateJob {
                    key: key.private(),
                    input,
                    check_input,
                    blinding,
                    result: None,
                });
            }
        }
        if !lanes.is_empty() {
            rsa::private_batch(self.backend, scratch, &mut lanes);
        }
        let mut results = lanes
            .into_iter()
            .map(|lane| lane.result)
            .collect::<Vec<_>>()
            .into_iter();

        for (job, blinding) in jobs.iter_mut().zip(blindings) {
            let Some(blinding) = blinding else { continue };
            let CpuRequest::RsaPrivate { key, .. } = &job.request;
            job.answer = results.next().flatten().map(|result| match result {
                Ok(signature) => {
                    key.return_blinding(self.epoch, blinding);
                    Ok(Response::Rsa(signature))
                }
                // A pair that took part in a fault is not trusted again.
                Err(JobError::CheckFailed) => Err(Declined::CheckFailed),
                Err(error) => {
                    key.return_blinding(self.epoch, blinding);
                    Err(Declined::Input(error))
                }
            });
        }
    }

    /// A blinding pair for each job, all of one key at a time: fresh ones are cheaper together.
    fn blindings(&self, jobs: &[Job<Cpu>]) -> Vec<Option<Blinding>> {
        let key_of = |job: &Job<Cpu>| match &job.request {
            CpuRequest::RsaPrivate { key, .. } => key.clone(),
        };
        let mut blindings: Vec<Option<Blinding>> = Vec::new();
        blindings.resize_with(jobs.len(), || None);
        for first in 0..jobs.len() {
            let key = key_of(&jobs[first]);
            let same = |job: &Job<Cpu>| std::sync::Arc::ptr_eq(&key, &key_of(job));
            if jobs[..first].iter().any(same) {
                continue;
            }
            let count = jobs[first..].iter().filter(|job| same(job)).count();
            let mut pairs = key.blindings(self.epoch, count).unwrap_or_default();
            for (job, blinding) in jobs.iter().zip(&mut blindings).skip(first) {
                if same(job) {
                    *blinding = pairs.pop();
                }
            }
        }
        blindings
    }
}
