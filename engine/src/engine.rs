//! The engine: a queue on the lanes of this machine, with its workers and its counters.

use lockstep_counters::{Counters, ExternalEvent, Fallback, Page, Permit, Snapshot};
use lockstep_ops::{Backend, Shape};

use crate::config::Config;
use crate::declined::Declined;
use crate::executor::on_lanes::OnLanes;
use crate::policy::{Gathering, Patience, Policy};
use crate::queue::state::{Bounds, Queue, StartThread};
use crate::queue::workers;
use crate::sync::Arc;

/// A queue with its slots, its workers and its counters.
///
/// Making one is cheap and starts no thread. It belongs to the process that made it: after a fork,
/// the child makes its own and forgets this one, whose locks may be held by threads that the child
/// does not have. Dropping it in the child does nothing.
pub struct Engine {
    queue: Arc<Queue<OnLanes>>,
    /// `None` if it serves key encapsulation alone.
    backend: Option<Backend>,
    /// The file of the counters, if this engine made one of its own.
    page: Option<Page>,
}

impl Engine {
    /// Makes an engine as configured, with a file of counters of its own.
    pub fn new(mut config: Config) -> Engine {
        let page = config.publish();
        let mut engine = Engine::with_start(config, page.as_ref(), |start| start());
        engine.page = page;
        engine
    }

    /// Makes an engine that counts in this process's slot of `page`, and starts its worker threads
    /// by `start_thread`.
    pub fn with_start(config: Config, page: Option<&Page>, start_thread: StartThread) -> Engine {
        let config = config.with_cpus();
        Engine::gathering(config, page, start_thread, Gathering::Yield)
    }

    /// Makes an engine for [`serve_from`](Self::serve_from), as configured, with a file of counters
    /// of its own. Its number of slots is the number of threads that serve.
    pub fn for_service(mut config: Config) -> Engine {
        let page = config.publish();
        let start: StartThread = |start| start();
        let mut engine = Engine::gathering(config, page.as_ref(), start, Gathering::Sleep);
        engine.page = page;
        engine
    }

    fn gathering(
        config: Config,
        page: Option<&Page>,
        start_thread: StartThread,
        gathering: Gathering,
    ) -> Engine {
        let slots = config.slots;
        let backend = config.backend.resolve();
        let name = backend.map_or("none", Backend::name);
        let executor = match backend {
            Some(backend) => OnLanes::new(backend, &config),
            None => OnLanes::for_kem(&config),
        };
        let counters = Counters::new(name, slots, page).warning(config.syslog.clone());
        let policy = Policy {
            slots,
            gathering,
            patience: Some(Patience::of(config.lone)),
        };
        let bounds = Bounds {
            max_async: config.max_async,
            max_lost: config.max_lost,
        };
        let mut queue = Queue::new(executor, policy, bounds, counters);
        queue.start_thread = start_thread;
        Engine {
            queue: Arc::new(queue),
            backend,
            page: None,
        }
    }

    /// Returns the lanes in use; `None` if all requests are declined, or all but those of key
    /// encapsulation.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// Wipes the key pairs of the pool, in a forked child that will not use this engine any more.
    /// It waits for no lock and neither allocates nor frees memory, so it may run in a handler of
    /// `pthread_atfork`. A child that does not call it is safe too: a pool gives a pair only to the
    /// process that made the pair.
    pub fn wipe_after_fork(&self) {
        self.queue.executor.lanes.wipe_pool();
    }

    /// Returns the counters at this moment.
    pub fn metrics(&self) -> Snapshot {
        self.counters().snapshot()
    }

    /// Counts an event outside of the engine.
    pub fn count(&self, done: impl Into<ExternalEvent>) {
        self.counters().count(done.into());
    }

    /// Takes a permit to pause one more job for an answer of another process, unless too many jobs
    /// are paused or lost. The job counts as paused as long as the permit lives.
    pub fn admit_job(&self) -> Option<Permit> {
        self.queue.admits().then(|| self.counters().pause())?
    }

    /// Returns the reason why all requests of this shape are declined, if they are. Then their keys
    /// need not be prepared. Nothing is counted.
    pub fn declines_all(&self, shape: Shape) -> Option<Fallback> {
        self.lanes_for(shape)
            .err()
            .map(|declined| declined.fallback())
    }

    pub(crate) fn lanes_for(&self, shape: Shape) -> Result<&Arc<Queue<OnLanes>>, Declined> {
        match self.queue.executor.declines_all(shape) {
            Some(declined) => Err(declined),
            None => Ok(&self.queue),
        }
    }

    pub(crate) fn queue(&self) -> &Arc<Queue<OnLanes>> {
        &self.queue
    }

    /// Counts a reason and returns it.
    pub(crate) fn declined(&self, declined: Declined) -> Declined {
        self.count(declined.fallback());
        declined
    }

    fn counters(&self) -> &Counters {
        &self.queue.counters
    }
}

impl Drop for Engine {
    /// Declines the waiting requests, waits for the workers, and removes the published counters. In
    /// a forked child it does nothing.
    fn drop(&mut self) {
        if self.queue.executor.lanes.is_left() {
            return;
        }
        workers::stop(&self.queue);
        if let Some(page) = &self.page {
            page.withdraw();
        }
    }
}
