//! An executor for tests, which negates numbers, can be held up, and can be made to fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use lockstep_counters::Counters;
use lockstep_ops::Failed;

use crate::caller::{Caller as _, Thread, ThreadId};
use crate::completion::{Notify, Waiter};
use crate::executor::{Answer, Executor, Member};
use crate::policy::{Gathering, Patience, Policy, Sharing};
use crate::queue::state::{Bounds, Lead, Owner, Queue};
use crate::sync::{Arc, now};

pub(crate) const PANIC: i64 = i64::MAX;
/// A request whose batch does not end before [`Simple::held`] is opened.
pub(crate) const HELD: i64 = i64::MAX - 1;
/// The shape whose requests are computed at once.
pub(crate) const AT_ONCE: usize = 2;
/// The shape whose requests wait in company.
pub(crate) const IN_COMPANY: usize = 3;

#[derive(Default)]
pub(crate) struct Simple {
    pub declines_lone: bool,
    /// Number of batches in `execute` now.
    pub inside: AtomicUsize,
    pub gate: Gate,
    /// Holds up batches with the request [`HELD`], while it is closed.
    pub held: Gate,
    /// The shapes of the batches so far, in order.
    pub log: Mutex<Vec<usize>>,
}

impl Simple {
    /// Makes an executor that declines lone requests.
    pub(crate) fn declining() -> Simple {
        Simple {
            declines_lone: true,
            ..Simple::default()
        }
    }
}

impl Executor for Simple {
    type Shape = usize;
    type Request = i64;
    type Response = i64;
    type Memory = ();

    const SHAPES: &'static [usize] = &[0, 1, 2, 3];

    fn index(shape: usize) -> usize {
        shape
    }

    fn pass(&self, _: usize) -> usize {
        4
    }

    fn batch(&self, _: usize) -> usize {
        8
    }

    fn declines_lone(&self, _: usize) -> bool {
        self.declines_lone
    }

    fn sharing(&self, shape: usize) -> Sharing {
        match shape {
            AT_ONCE => Sharing::Never,
            IN_COMPANY => Sharing::InCompany,
            _ => Sharing::Always,
        }
    }

    fn wants_help(&self, _: usize) -> bool {
        false
    }

    fn memory(&self) {}

    fn execute(&self, shape: usize, (): &mut (), jobs: &mut [Member<Simple>]) -> usize {
        assert!((1..=8).contains(&jobs.len()));
        self.log.lock().unwrap().push(shape);
        self.inside.fetch_add(1, Ordering::SeqCst);
        self.gate.pass();
        if jobs.iter().any(|job| job.request == HELD) {
            self.held.pass();
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        for job in &mut *jobs {
            assert!(job.request != PANIC, "asked to");
            job.answer = Some(match job.request % 1000 {
                999 => Err(Failed::Randomness),
                _ => Ok(-job.request - shape as i64),
            });
        }
        jobs.len()
    }
}

/// A gate that holds up batches while it is closed.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

#[cfg_attr(loom, expect(dead_code, reason = "loom holds nothing up"))]
impl Gate {
    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(
            self.opened
                .wait_while(self.closed.lock().unwrap(), |closed| *closed)
                .unwrap(),
        );
    }
}

pub(crate) fn queue(executor: Simple, slots: usize, max_async: usize) -> Arc<Queue<Simple>> {
    let bounds = Bounds {
        max_async,
        max_lost: 4,
    };
    queue_of(executor, slots, bounds, None, Gathering::Yield)
}

/// Makes the queue of a service for `slots` threads.
pub(crate) fn service(executor: Simple, slots: usize) -> Arc<Queue<Simple>> {
    let bounds = Bounds {
        max_async: 0,
        max_lost: 0,
    };
    queue_of(executor, slots, bounds, None, Gathering::Sleep)
}

/// Makes a queue whose requests wait for a bounded time.
pub(crate) fn impatient(
    executor: Simple,
    slots: usize,
    least_wait: Duration,
) -> Arc<Queue<Simple>> {
    let patience = Patience {
        expected: least_wait,
        most: 4 * least_wait,
        batch: Duration::ZERO,
        lost: 8 * least_wait,
    };
    queue_of(executor, slots, BOUNDS, Some(patience), Gathering::Yield)
}

/// Makes a queue whose lanes are to serve all requests: a thread without a leader computes its
/// request itself, and no leader is given up.
pub(crate) fn eager(slots: usize) -> Arc<Queue<Simple>> {
    let hour = Duration::from_secs(3600);
    let patience = Patience {
        expected: hour,
        most: Duration::from_micros(100),
        batch: hour,
        lost: hour,
    };
    let executor = Simple::default();
    queue_of(executor, slots, BOUNDS, Some(patience), Gathering::Yield)
}

const BOUNDS: Bounds = Bounds {
    max_async: 64,
    max_lost: 4,
};

impl Queue<Simple> {
    /// [`enqueue`](Queue::enqueue) by the calling thread.
    pub(crate) fn ask(&self, shape: usize, number: i64) -> Answer<Simple> {
        self.enqueue(shape, number, Thread.thread())
    }

    /// Begins to lead as this thread, with a request of its own.
    pub(crate) fn begin(&self, shape: usize, thread: ThreadId) -> Lead<Simple> {
        let mut state = self.lock();
        self.comes_again(&mut state, thread);
        let own = state.entry(1, Owner::Leader);
        state.lead(shape, Some(own), Some(thread))
    }

    /// Sharing as this thread, and leaves as by `siglongjmp`.
    pub(crate) fn wait_and_leave(&self, shape: usize, number: i64, thread: ThreadId) {
        let mut state = self.lock();
        self.comes_again(&mut state, thread);
        let entry = state.entry(number, Owner::Thread(Waiter::new(thread)));
        state.push(shape, entry, now());
    }

    /// Takes a batch, and leaves it as by `siglongjmp`.
    pub(crate) fn take_and_leave(&self, mut lead: Lead<Simple>) {
        let mut state = self.lock();
        let (shape, own) = (lead.shape, lead.own.take());
        self.take(&mut state, shape, own, &mut lead.slot, now(), 0);
        state.begin_batch(shape, lead.number, now(), &lead.slot);
    }
}

fn queue_of(
    executor: Simple,
    slots: usize,
    bounds: Bounds,
    patience: Option<Patience>,
    gathering: Gathering,
) -> Arc<Queue<Simple>> {
    let counters = Counters::new("simple", slots, None);
    let policy = Policy {
        slots,
        gathering,
        patience,
    };
    Arc::new(Queue::new(executor, policy, bounds, counters))
}

/// Counts the calls of [`notify`](Notify::notify).
#[derive(Clone, Default)]
pub(crate) struct WakeUps(pub std::sync::Arc<AtomicUsize>);

impl WakeUps {
    pub(crate) fn boxed(&self) -> Box<dyn Notify> {
        Box::new(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Notify for WakeUps {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
