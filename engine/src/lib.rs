//! Batches requests from many threads and jobs onto vector lanes.
//!
//! An [`Engine`] takes [`Request`]s in three ways. [`Engine::run`] serves a thread that blocks: it
//! leads a batch or waits for one. [`Engine::submit`] serves an asynchronous job: a worker leads,
//! and [`Notify`] tells the job that its [`Ticket`] is done. [`Engine::post`] serves one too, where
//! to involve another thread would cost more than it saves: the job's own thread leads when it
//! comes back. Each may be [`Declined`]; then the caller asks stock OpenSSL.
//!
//! One request goes through `request`, `queue` (with `policy`), `executor`, the kernels, and
//! `ticket`.
#![forbid(unsafe_code)]

mod config;
mod declined;
mod epoch;
mod executor;
mod fault;
mod keys;
mod permit;
mod policy;
mod queue;
mod request;
mod rsa_key;
mod shape;
pub mod stats;
mod sync;
mod syslog;

use std::process;

pub use config::{BackendChoice, Config, ConfigError, Setting};
pub use declined::{Declined, Fallback, StockGuard};
#[cfg(all(feature = "fault-injection", not(loom)))]
pub use fault::{Defect, plant};
pub use keys::{Bytes, Curve, EcKey, Ed25519Key, KeyKind, Keypair, Malformed, Secret};
pub use lockstep_kernels::backend::Backend;
pub use lockstep_kernels::rsa::{Components as RsaComponents, JobError, Size, Unsupported};
pub use policy::{JobsLead, Lone, lanes_are_slower};
pub use queue::completion::{Notify, Ticket};
pub use queue::state::StartThread;
pub use queue::workers::{ROOM_BYTES, STACK_BYTES};
pub use request::{Request, Response};
pub use rsa_key::RsaKey;
pub use shape::Shape;
pub use stats::{
    Page, ProcessStats, Published, Snapshot, StatsDir, Unpaused, Unpublished, read_default_stats,
    read_published, read_stats,
};
pub use syslog::Syslog;

use executor::Executor;
use executor::cpu::{Cpu, CpuRequest};
use policy::Policy;
use queue::board::Home;
use queue::state::{Bounds, Queue};
use queue::workers;
use stats::counters::Counters;
use sync::Arc;

/// A queue with its slots, its workers and its counters.
///
/// Making one is cheap and starts no thread. It belongs to the process that made it: after a fork,
/// the child makes its own and forgets this one, whose locks may be held by threads that the child
/// does not have. Dropping it in the child does nothing.
pub struct Engine {
    inner: Inner,
    jobs_lead: JobsLead,
    pause_to_verify: bool,
    slots: usize,
    pid: u32,
    /// The file of the counters, if this engine made one of its own.
    page: Option<Page>,
}

enum Inner {
    Lanes {
        queue: Arc<Queue<Cpu>>,
        backend: Backend,
    },
    /// No lanes: everything is declined and counted.
    Off(Box<Counters>),
}

impl Engine {
    /// An engine as configured, with a file of counters of its own.
    pub fn new(config: Config) -> Engine {
        let page = Page::create(&config.stats_dir, config.stats_keep);
        let page = page.ok().flatten();
        let mut engine = Engine::with_start(config, page.as_ref(), |start| start());
        engine.page = page;
        engine
    }

    /// An engine that counts in the slot that this process has in `page`, and whose worker threads
    /// are started in this way.
    pub fn with_start(config: Config, page: Option<&Page>, start_thread: StartThread) -> Engine {
        let config = config.with_cpus();
        let slots = config.slots;
        let backend = config.backend.resolve();
        let name = backend.map_or("none", Backend::name);
        let counters = Counters::new(name, slots, page).warning(config.syslog.clone());
        let inner = match backend {
            Some(backend) => {
                let policy = Policy {
                    slots,
                    yields: config.gather,
                };
                let bounds = Bounds {
                    max_async: config.max_async,
                    max_lost: config.max_lost,
                };
                let executor = Cpu::new(backend, &config);
                let mut queue = Queue::new(executor, policy, bounds, counters);
                queue.start_thread = start_thread;
                Inner::Lanes {
                    queue: Arc::new(queue),
                    backend,
                }
            }
            None => Inner::Off(Box::new(counters)),
        };
        Engine {
            inner,
            jobs_lead: config.jobs_lead,
            pause_to_verify: config.pause_to_verify,
            slots,
            pid: process::id(),
            page: None,
        }
    }

    /// The lanes in use; `None` if every request is declined.
    pub fn backend(&self) -> Option<Backend> {
        match self.inner {
            Inner::Lanes { backend, .. } => Some(backend),
            Inner::Off(_) => None,
        }
    }

    /// Serves a request while the calling thread blocks. Kernels may run on its stack, which needs
    /// [`ROOM_BYTES`]: not for asynchronous jobs, whose fibres have 32 KiB.
    pub fn run(&self, request: Request) -> Result<Response, Declined> {
        if let Request::Keypair(kind) = request
            && let Some(pair) = self.pooled_keypair(kind)
        {
            return Ok(Response::Keypair(pair));
        }
        let request = CpuRequest::from(request);
        let shape = request.request.shape();
        self.queue(shape)?.run(shape, request)
    }

    /// Declines a request of this shape that the calling thread would [`run`](Self::run) now, where
    /// that would decline it as [`Lone`](Declined::Lone), and counts it: so a request that stock
    /// OpenSSL serves anyway need not be made. A key pair is declined as if the pool were empty.
    pub fn declines_alone(&self, shape: Shape) -> Option<Declined> {
        self.lanes_for(shape).ok()?.declines_alone(shape)
    }

    /// Makes a key pair, or takes one of the pool, as [`run`](Self::run) does.
    pub fn keypair(&self, kind: KeyKind) -> Result<Keypair, Declined> {
        match self.run(Request::Keypair(kind))? {
            Response::Keypair(pair) => Ok(pair),
            _ => Err(self.declined(Declined::Internal)),
        }
    }

    /// Takes a key pair of the pool, if it has one: computes nothing, so it may run on any stack.
    /// Without one, an asynchronous job submits [`Request::Keypair`], which fills the pool.
    pub fn pooled_keypair(&self, kind: KeyKind) -> Option<Keypair> {
        let queue = self.queue_if_any()?;
        let pair = queue.executor.pooled(kind)?;
        queue.counters.pool_hit(Shape::Keypair(kind).index());
        Some(pair)
    }

    /// Wipes the key pairs of the pool, in a forked child that will not use this engine any more.
    /// It waits for no lock and neither allocates nor frees memory, so it may run in a handler of
    /// `pthread_atfork`. Forgetting this loses no safety: a pool gives nothing to another process
    /// than the one that filled it.
    pub fn wipe_after_fork(&self) {
        if let Some(queue) = self.queue_if_any() {
            queue.executor.pool.wipe();
        }
    }

    /// Whether one more request of an asynchronous job may be queued, and the job paused. If not,
    /// [`run`](Self::run) still serves the request.
    pub fn admits_jobs(&self) -> bool {
        self.queue_if_any().is_none_or(|queue| queue.admits())
    }

    /// Counts a job that blocks its thread because it cannot be paused.
    pub fn count_unpaused(&self, reason: Unpaused) {
        self.counters().unpaused(reason);
    }

    /// Gives up what a lost job was to get, and counts the job. Nobody will resume it.
    pub fn lose(&self, claim: Claim) {
        if let (Claim::Posted(Post { shape, ticket }), Some(queue)) = (claim, self.queue_if_any()) {
            queue.abandon(shape, ticket);
        }
        self.counters().lost();
    }

    /// Whether [`submit`](Self::submit) would miss workers now, as it did within the last second;
    /// then [`run`](Self::run) still serves a request.
    pub fn lacks_workers(&self) -> bool {
        self.queue_if_any()
            .is_some_and(|queue| queue.lacks_workers())
    }

    /// Queues a request and returns at once. `notify` is told when the ticket is done.
    pub fn submit(&self, request: Request, notify: Box<dyn Notify>) -> Result<Ticket, Declined> {
        let request = CpuRequest::from(request);
        let shape = request.request.shape();
        Queue::submit(self.queue(shape)?, shape, request, notify)
    }

    /// Whether asynchronous jobs should [`post`](Self::post) their requests and lead themselves,
    /// rather than [`submit`](Self::submit) them.
    pub fn jobs_lead(&self) -> bool {
        self.jobs_lead != JobsLead::No
    }

    /// Whether an asynchronous job pauses for a request of this shape. Unless a setting wants it,
    /// it does not to verify a peer's signature. That is the last thing that a server computes for
    /// a client, which may close the connection as soon as it has sent the signature. Health checks
    /// do so, and a job that is paused then is lost. See
    /// `docs/decisions/0011-cost-of-paused-jobs.md`.
    pub fn pauses_for(&self, shape: Shape) -> bool {
        self.pause_to_verify || !matches!(shape, Shape::EcdsaVerify(_) | Shape::Ed25519Verify)
    }

    /// Takes the request of an asynchronous job, without serving it yet: the job's thread will
    /// [`attend`](Self::attend) to it when it has started the other jobs that it has. `thread`
    /// tells that thread from all others that run. (A thread-local variable could not be had
    /// without memory.)
    pub fn post(&self, request: Request, thread: u64) -> Result<Post, Declined> {
        let request = CpuRequest::from(request);
        let shape = request.request.shape();
        let ticket = self.queue(shape)?.post(shape, request, Home(thread))?;
        Ok(Post { ticket, shape })
    }

    /// Serves a posted request on the calling thread, and what else was posted with it, as one
    /// batch. Gives the ticket back if another thread has taken the request and is about to
    /// deliver: [`Ticket::notify_by`] tells when it has.
    ///
    /// The kernels need room on the stack as for [`run`](Self::run).
    pub fn attend(&self, post: Post) -> Result<Result<Response, Declined>, Ticket> {
        let Post { shape, ticket } = post;
        match self.queue_if_any() {
            Some(queue) => {
                let help = self.jobs_lead.wants_help(shape, self.slots);
                Queue::attend(queue, shape, ticket, help)
            }
            None => ticket.try_take(),
        }
    }

    /// Runs requests as one batch on the calling thread, past the queue and its slots: for
    /// measuring what a batch of this fill costs.
    ///
    /// # Panics
    ///
    /// If the requests differ in shape, or are none or more than a batch takes.
    pub fn execute(&self, requests: Vec<Request>) -> Vec<Result<Response, Declined>> {
        let shape = requests.first().expect("a batch has a request").shape();
        let queue = match self.queue_if_any() {
            Some(queue) if queue.executor.has_kernel(shape) => queue,
            lanes => {
                let reason = || lanes.map_or(Declined::NoBackend, |_| Declined::NoKernel);
                return requests
                    .iter()
                    .map(|_| Err(self.declined(reason())))
                    .collect();
            }
        };
        assert!(
            requests.len() <= queue.executor.batch(shape),
            "too many requests for a batch"
        );
        assert!(
            requests.iter().all(|request| request.shape() == shape),
            "one shape in a batch"
        );
        queue.execute(shape, requests.into_iter().map(CpuRequest::from))
    }

    /// The counters now.
    pub fn metrics(&self) -> Snapshot {
        self.counters().snapshot()
    }

    /// Counts something that went to stock OpenSSL without a request to this engine: a key that no
    /// lane can serve, a job that could not pause. What this engine declines, it has counted
    /// itself.
    pub fn count_fallback(&self, reason: Fallback) {
        self.counters().fallback(reason);
    }

    /// Counts a key derivation of TLS 1.3, which the caller did itself.
    pub fn count_derivation(&self) {
        self.counters().derived();
    }

    /// Why requests of this shape are declined whatever else there is to do, if they are; for keys
    /// that then need not be prepared. Nothing is counted.
    pub fn declines_all(&self, shape: Shape) -> Option<Fallback> {
        self.lanes_for(shape)
            .err()
            .map(|declined| declined.fallback())
    }

    fn lanes_for(&self, shape: Shape) -> Result<&Arc<Queue<Cpu>>, Declined> {
        let queue = self.queue_if_any().ok_or(Declined::NoBackend)?;
        match queue.executor.declines_all(shape) {
            Some(declined) => Err(declined),
            None => Ok(queue),
        }
    }

    fn queue_if_any(&self) -> Option<&Arc<Queue<Cpu>>> {
        match &self.inner {
            Inner::Lanes { queue, .. } => Some(queue),
            Inner::Off(_) => None,
        }
    }

    fn queue(&self, shape: Shape) -> Result<&Arc<Queue<Cpu>>, Declined> {
        self.lanes_for(shape)
            .map_err(|declined| self.declined(declined))
    }

    fn declined(&self, declined: Declined) -> Declined {
        self.count_fallback(declined.fallback());
        declined
    }

    fn counters(&self) -> &Counters {
        match &self.inner {
            Inner::Lanes { queue, .. } => &queue.counters,
            Inner::Off(counters) => counters,
        }
    }
}

/// What a paused job is to get: the answer to one request. Dropping it abandons the request.
pub enum Claim {
    /// One that its own thread serves when the job is resumed.
    Posted(Post),
    /// One that another thread serves.
    Submitted(Ticket),
}

/// The claim to the answer of a posted request. Dropping it abandons the request, which stays on
/// the board until the next leader of its shape passes; [`Engine::lose`] takes it back at once.
pub struct Post {
    shape: Shape,
    ticket: Ticket,
}

impl Post {
    /// The answer, if another job of the thread has led already.
    pub fn try_take(self) -> Result<Result<Response, Declined>, Post> {
        let Post { shape, ticket } = self;
        ticket.try_take().map_err(|ticket| Post { shape, ticket })
    }
}

impl Drop for Engine {
    /// Declines what waits, waits for the workers, and removes the published counters; in a forked
    /// child nothing of this.
    fn drop(&mut self) {
        if self.pid != process::id() {
            return;
        }
        if let Inner::Lanes { queue, .. } = &self.inner {
            workers::stop(queue);
        }
        if let Some(page) = &self.page {
            page.withdraw();
        }
    }
}
