//! The parts of a queue: its requests, its slots and its workers, and the state that its lock
//! protects.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use lockstep_counters::{Counters, Waits};

use super::fair::{Account, Turns};
use super::job_queue::{JobQueue, PostedRequest};
use super::leaders::Leaders;
use super::reply::Reply;
use super::watched::Watched;
use crate::busy::Threads;
use crate::caller::ThreadId;
use crate::completion::{Completion, Waiter};
use crate::declined::{Declined, StockGuard};
use crate::executor::{Answer, Executor, Member};
use crate::policy::{self, Company, MOST_LOST, Pace, Policy, Strangers, View};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, now, thread};

/// Requests of all shapes, the slots that serve them, and the workers.
pub(crate) struct Queue<E: Executor> {
    pub(crate) executor: E,
    pub(crate) counters: Counters,
    pub(super) policy: Policy,
    pub(super) bounds: Bounds,
    /// Time at which the queue was made.
    pub(super) since: Instant,
    /// Time at which no worker could be started, in milliseconds since the queue was made; zero if
    /// that never happened.
    pub(super) refused: AtomicU64,
    /// Starts a worker.
    pub(crate) start_thread: StartThread,
    pub(super) state: Mutex<State<E>>,
    /// Time at which a calling thread is to look at the watched jobs, in milliseconds since the
    /// queue was made; zero if a worker looks, or if there are none.
    pub(super) look_at: AtomicU64,
    /// Idle workers sleep here.
    pub(super) assignment: Condvar,
    pub(super) job_queue: JobQueue<E>,
    /// Notes of the jobs that pause.
    pub(crate) company: Company,
    /// Values of [`Slot`] for batches that take none of the queue's slots, kept for their capacity.
    pub(super) spare: Mutex<Vec<Slot<E>>>,
    /// Threads that serve batches of the job queue for their own jobs: they take a CPU each, but no
    /// slot.
    pub(super) attending: Threads,
    /// Threads that compute with OpenSSL's own implementation after `Declined::Lone`.
    pub(super) elsewhere: Threads,
}

/// Bounds of asynchronous jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum number of jobs that are paused at a time.
    pub max_async: usize,
    /// Maximum number of jobs that are lost in all.
    pub max_lost: usize,
}

pub(super) type Guard<'a, E> = MutexGuard<'a, State<E>>;

/// The state that the queue's lock protects.
pub(crate) struct State<E: Executor> {
    pub(super) free: Vec<Slot<E>>,
    /// The leaders, each of which has a slot.
    pub(super) leaders: Leaders<Arc<ThreadWaiter<E>>>,
    /// Waiting requests of all shapes.
    pub(super) turns: Turns<Entry<E>>,
    /// The state of each shape.
    pub(super) lines: Vec<Line<E>>,
    /// Number of running batches of a service that are [long](Policy::is_long).
    pub(super) long: usize,
    /// Whether the threads that serve a [source](super::service) are to end once no request is
    /// left.
    pub(super) ends: bool,
    pub(super) arrivals: u64,
    pub(crate) workers: Workers,
    /// Assignments that no worker has taken yet.
    pub(super) assigned: VecDeque<Assignment<E>>,
    /// Jobs that wait for another thread.
    pub(super) watched: Watched<E>,
    pub(super) closed: bool,
}

/// The state of one shape.
pub(super) struct Line<E: Executor> {
    pub(super) shape: E::Shape,
    /// The counts of [`View`], kept up to date.
    pub(super) view: View,
    /// Rate of the requests that a source brings.
    pub(super) pace: Pace,
    /// Experience with the yields of leaders.
    pub(super) strangers: Strangers,
}

pub(super) struct Entry<E: Executor> {
    pub(super) request: E::Request,
    pub(super) owner: Owner<E>,
    pub(super) arrival: u64,
    pub(super) since: Option<Instant>,
    /// Time by which the request should be served. The shape with the earliest time goes first.
    pub(super) turn: Option<Instant>,
    /// Time by which its thread, if one blocks for it, has left.
    pub(super) due: Option<Instant>,
}

impl<E: Executor> Entry<E> {
    fn is_of_thread(&self) -> bool {
        matches!(self.owner, Owner::Thread(_))
    }

    /// Returns whether its thread has left, or is about to, so that no one waits for an answer.
    fn is_left(&self, now: Instant) -> bool {
        self.is_of_thread() && self.due.is_some_and(|due| due <= now)
    }
}

/// The receiver of an answer.
pub(super) enum Owner<E: Executor> {
    /// The leader of the batch itself.
    Leader,
    Thread(Arc<ThreadWaiter<E>>),
    Job(Arc<Completion<Answer<E>>>),
    /// A receiver that may be outside of the process. The thread that has computed calls it.
    Reply(Account, Box<dyn Reply<E::Response>>),
}

/// The place where a blocking thread waits.
pub(super) type ThreadWaiter<E> = Waiter<<E as Executor>::Response, Lead<E>>;

/// The right to run one batch at a time, with its memory.
pub(super) struct Slot<E: Executor> {
    pub(super) memory: Option<Box<E::Memory>>,
    /// Both lists are empty between batches, and kept for their capacity.
    pub(super) jobs: Vec<Member<E>>,
    pub(super) owners: Vec<Owner<E>>,
}

/// A slot for the next batch of a leader, with the leader's own request if there is one.
pub(crate) struct Lead<E: Executor> {
    pub(super) shape: E::Shape,
    /// Number of the leader among the [`Leaders`].
    pub(super) number: u64,
    pub(super) slot: Slot<E>,
    pub(super) own: Option<Entry<E>>,
    /// The thread that leads; `None` for a worker.
    pub(super) thread: Option<ThreadId>,
}

/// The assignment of a worker.
pub(super) enum Assignment<E: Executor> {
    /// A batch of the queue.
    Lead(Lead<E>),
    /// Full passes of the requests that a thread has posted to the job queue.
    Help(E::Shape, ThreadId, Slot<E>),
}

/// Starts a thread by calling its argument. Around that call, the owner of the engine can set the
/// state that the new thread inherits.
pub type StartThread = fn(&mut dyn FnMut());

/// The workers of one queue.
pub(crate) struct Workers {
    /// Number of workers without an assignment.
    pub(crate) idle: usize,
    /// Number of workers that run or are being started.
    pub(super) alive: usize,
    pub(super) most: usize,
    pub(super) threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn new(most: usize) -> Workers {
        Workers {
            idle: 0,
            alive: 0,
            most,
            threads: Vec::new(),
        }
    }

    /// Returns whether all workers are busy and there may be more of them.
    pub(crate) fn wanted(&self) -> bool {
        self.idle == 0 && self.alive < self.most
    }
}

impl<E: Executor> Queue<E> {
    pub(crate) fn new(
        executor: E,
        policy: Policy,
        bounds: Bounds,
        mut counters: Counters,
    ) -> Queue<E> {
        counters.note_bounds(bounds.max_async, bounds.max_lost);
        let lines = E::SHAPES.iter().map(|&shape| Line {
            shape,
            pace: Pace::new(now()),
            strangers: Strangers::default(),
            view: View {
                pass: executor.pass(shape),
                batch: executor.batch(shape),
                ..View::default()
            },
        });
        let state = State {
            free: (0..policy.all_slots()).map(|_| Slot::new()).collect(),
            leaders: Leaders::new(),
            turns: Turns::new(E::SHAPES.len()),
            lines: lines.collect(),
            long: 0,
            ends: false,
            arrivals: 0,
            workers: Workers::new(policy.slots),
            assigned: VecDeque::new(),
            watched: Watched::new(),
            closed: false,
        };
        Queue {
            state: Mutex::new(state),
            executor,
            counters,
            policy,
            bounds,
            since: Instant::now(),
            refused: AtomicU64::new(0),
            look_at: AtomicU64::new(0),
            start_thread: |start| start(),
            assignment: Condvar::new(),
            job_queue: JobQueue::new(),
            company: Company::new(E::SHAPES.len()),
            spare: Mutex::default(),
            attending: Threads::default(),
            elsewhere: Threads::default(),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, E> {
        lock(&self.state)
    }

    /// Returns the policy's view of a line.
    pub(super) fn view(&self, line: &Line<E>) -> View {
        View {
            elsewhere: self.elsewhere.count(),
            ..line.view
        }
    }

    /// Counts a reason and returns it.
    pub(crate) fn declined(&self, declined: Declined) -> Declined {
        self.counters.fallback(declined.fallback());
        declined
    }

    /// Counts the calling thread as one that computes with OpenSSL's own implementation.
    pub(super) fn guard(&self, thread: ThreadId) -> StockGuard {
        StockGuard::new(self.elsewhere.note(thread))
    }

    /// Returns whether `more` batches besides the running ones would exceed the slots, and so the
    /// CPUs.
    pub(super) fn is_crowded(&self, state: &State<E>, more: usize) -> bool {
        self.attending.count() + more > state.free.len()
    }
}

impl<E: Executor> State<E> {
    pub(super) fn line(&mut self, shape: E::Shape) -> &mut Line<E> {
        &mut self.lines[E::index(shape)]
    }

    pub(super) fn entry(&mut self, request: E::Request, owner: Owner<E>) -> Entry<E> {
        self.arrivals += 1;
        Entry {
            request,
            owner,
            arrival: self.arrivals,
            since: None,
            turn: None,
            due: None,
        }
    }

    pub(super) fn push(&mut self, shape: E::Shape, entry: Entry<E>, now: Instant) {
        let view = &mut self.line(shape).view;
        view.waiting += 1;
        view.threads += usize::from(entry.is_of_thread());
        let account = match &entry.owner {
            Owner::Reply(account, _) => *account,
            Owner::Leader | Owner::Thread(_) | Owner::Job(_) => Account::OWN,
        };
        self.turns.push(account, E::index(shape), entry, now);
    }

    /// Removes a request of a shape from the counts.
    fn left(&mut self, shape: E::Shape, entry: &Entry<E>) {
        let view = &mut self.line(shape).view;
        view.waiting -= 1;
        view.threads -= usize::from(entry.is_of_thread());
    }

    /// Takes out the requests for which `is_to_go` returns true, and returns their owners.
    pub(super) fn take_out(&mut self, is_to_go: impl Fn(&Entry<E>) -> bool) -> Vec<Owner<E>> {
        let (mut owners, lines) = (Vec::new(), &mut self.lines);
        self.turns.take_unwanted(
            |entry| !is_to_go(entry),
            |shape, entry| {
                let view = &mut lines[shape].view;
                view.waiting -= 1;
                view.threads -= usize::from(entry.is_of_thread());
                owners.push(entry.owner);
            },
        );
        owners
    }

    /// Takes the next request of a shape. Its account is charged `estimate` nanoseconds.
    pub(super) fn pop(&mut self, shape: E::Shape, estimate: u64) -> Option<Entry<E>> {
        let entry = self.turns.pop(E::index(shape), estimate)?;
        self.left(shape, &entry);
        Some(entry)
    }

    /// Takes the next request of a shape. Drops requests whose owners no longer wait.
    pub(super) fn pop_wanted(
        &mut self,
        shape: E::Shape,
        estimate: u64,
        now: Instant,
    ) -> Option<Entry<E>> {
        loop {
            let entry = self.pop(shape, estimate)?;
            let is_left = match &entry.owner {
                Owner::Job(completion) => Completion::is_abandoned(completion),
                Owner::Thread(_) | Owner::Leader => entry.is_left(now),
                // The thread that has the batch checks this, without the lock.
                Owner::Reply(..) => false,
            };
            if !is_left {
                return Some(entry);
            }
        }
    }

    /// Takes the request of a thread out, if it is here.
    pub(super) fn withdraw(
        &mut self,
        shape: E::Shape,
        waiter: &Arc<ThreadWaiter<E>>,
    ) -> Option<E::Request> {
        let is_its = |entry: &Entry<E>| match &entry.owner {
            Owner::Thread(of) => Arc::ptr_eq(of, waiter),
            Owner::Leader | Owner::Job(_) | Owner::Reply(..) => false,
        };
        let entry = self.turns.remove(E::index(shape), is_its)?;
        self.left(shape, &entry);
        Some(entry.request)
    }

    /// Takes out the oldest request whose thread is blocked, and makes it the leader's own. Returns
    /// the thread's waiter and the request.
    pub(super) fn pop_thread(
        &mut self,
        shape: E::Shape,
    ) -> Option<(Arc<ThreadWaiter<E>>, Entry<E>)> {
        let mut entry = self.turns.remove(E::index(shape), Entry::is_of_thread)?;
        self.left(shape, &entry);
        match std::mem::replace(&mut entry.owner, Owner::Leader) {
            Owner::Thread(waiter) => Some((waiter, entry)),
            Owner::Leader | Owner::Job(_) | Owner::Reply(..) => None,
        }
    }

    /// Returns the shape whose request comes next, among the shapes for which `may_start` returns
    /// true. The order of requests is by the clocks of their accounts, then by `turn`, then by
    /// arrival.
    pub(super) fn next_shape(&self, may_start: impl Fn(&Line<E>) -> bool) -> Option<E::Shape> {
        let lines = self.lines.iter().filter(|line| may_start(line));
        let order = |line: &&Line<E>| {
            let first = self.turns.first(E::index(line.shape));
            first.map(|(clock, entry)| (clock, entry.turn, entry.arrival))
        };
        lines.min_by_key(order).map(|line| line.shape)
    }

    /// Takes a free slot for a leader of `shape`: `thread`, or a worker if that is `None`.
    pub(super) fn lead(
        &mut self,
        shape: E::Shape,
        own: Option<Entry<E>>,
        thread: Option<ThreadId>,
    ) -> Lead<E> {
        let slot = self.free.pop().expect("the caller saw a free slot");
        let line = self.line(shape);
        line.view.leaders += 1;
        line.view.in_hand += usize::from(own.is_some());
        let number = self.leaders.begin(E::index(shape), own.is_some(), thread);
        Lead {
            shape,
            number,
            slot,
            own,
            thread,
        }
    }

    /// Counts the batch of a slot as running, and returns its number of passes.
    pub(super) fn begin_batch(
        &mut self,
        shape: E::Shape,
        number: u64,
        now: Instant,
        slot: &Slot<E>,
    ) -> usize {
        let requests = slot.jobs.len();
        let view = &mut self.line(shape).view;
        view.running += 1;
        view.in_batches += requests;
        let passes = requests.div_ceil(view.pass);
        if let Some(leader) = self.leaders.leader(number) {
            leader.since = Some(now);
            leader.batch = Some((requests, passes));
            leader.followers.extend(slot.threads());
        }
        passes
    }

    /// Gives up the leader at this place among the expected ones: removes the leader and its
    /// requests from the counts, and replaces its slot unless too many are lost ([`MOST_LOST`]).
    /// Returns the threads that wait for its batch.
    pub(super) fn lose(&mut self, place: usize) -> Vec<Arc<ThreadWaiter<E>>> {
        let leader = self.leaders.expected.swap_remove(place);
        let view = &mut self.lines[leader.line].view;
        match leader.batch {
            Some((requests, _)) => {
                view.running -= 1;
                view.in_batches -= requests;
            }
            None => {
                view.leaders -= 1;
                view.in_hand -= usize::from(leader.has_own);
            }
        }
        self.leaders.lost += 1;
        match self.leaders.lost <= MOST_LOST {
            true => self.free.push(Slot::new()),
            false => self.leaders.missing += 1,
        }
        leader.followers
    }

    /// Removes a batch that has ended, and notes the time of its passes. The batch of a leader that
    /// was given up is removed already.
    pub(super) fn end_batch(
        &mut self,
        shape: E::Shape,
        number: u64,
        requests: usize,
        passes: Option<(Duration, usize)>,
    ) {
        if self.leaders.expects(number) {
            let view = &mut self.line(shape).view;
            view.running -= 1;
            view.in_batches -= requests;
            if let Some((took, passes)) = passes {
                policy::note_batch(&mut view.pass_time, took, passes);
            }
        }
    }

    /// Takes a slot back from a thread that was to lead, and has left.
    pub(super) fn take_back(&mut self, lead: Lead<E>) {
        if self.leaders.expects(lead.number) {
            let line = self.line(lead.shape);
            line.view.leaders -= 1;
            line.view.in_hand -= usize::from(lead.own.is_some());
        }
        if self.leaders.end(lead.number) {
            self.free.push(lead.slot);
        }
    }

    /// Removes the next request of each shape as long as the thread of that request has left.
    pub(super) fn forget_left(&mut self, now: Instant) {
        let is_left = |(_, entry): (u64, &Entry<E>)| entry.is_left(now);
        for shape in E::SHAPES {
            while self.turns.first(E::index(*shape)).is_some_and(is_left) {
                self.pop(*shape, 0);
            }
        }
    }
}

impl<E: Executor> Slot<E> {
    pub(super) fn new() -> Slot<E> {
        Slot {
            memory: None,
            jobs: Vec::new(),
            owners: Vec::new(),
        }
    }

    /// Returns the threads that wait for the batch.
    fn threads(&self) -> impl Iterator<Item = Arc<ThreadWaiter<E>>> {
        self.owners.iter().filter_map(|owner| match owner {
            Owner::Thread(waiter) => Some(Arc::clone(waiter)),
            Owner::Leader | Owner::Job(_) | Owner::Reply(..) => None,
        })
    }

    pub(super) fn push(&mut self, request: E::Request, owner: Owner<E>) {
        self.jobs.push(Member {
            request,
            answer: None,
        });
        self.owners.push(owner);
    }

    /// Returns a function that takes requests of the job queue into the slot, and adds the times
    /// that they have waited to `waits`.
    pub(super) fn fill(&mut self, waits: &mut Waits) -> impl FnMut(PostedRequest<E>) {
        let now = Instant::now();
        move |post| {
            waits.add(now - post.since);
            self.push(post.request, Owner::Job(post.completion));
        }
    }

    pub(super) fn clear(&mut self) {
        self.jobs.clear();
        self.owners.clear();
    }
}
