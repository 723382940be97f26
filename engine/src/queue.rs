//! The one queue: group commit without timers.
//!
//! Every request has a shape, and a batch takes requests of one shape. As many batches run at a
//! time as there are *slots*, one for each CPU; those of the [board](crate::board), which jobs lead
//! themselves, take none. A thread that arrives while a slot is free leads: it takes what waits of
//! its shape, runs it, and delivers the answers. Requests that arrive meanwhile gather. A leader
//! that has delivered gives its slot back, and a thread that gives back a slot hands it on: to a
//! blocked thread, which wakes up as the next leader, or to a worker where only asynchronous
//! requests wait.
//!
//! What keeps every request moving:
//!
//! - A waiting request needs a leader or a running batch of its shape ([`Policy::starts`]). Each
//!   change that could free one ends in [`Queue::hand_on`], under the same lock.
//! - A thread that is made leader gets its own request back, out of the queue, so no other leader
//!   can serve it in between and its slot is always used or handed on.
//! - Between shapes, the one with the oldest request goes first.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::board::{Board, Home, Post};
use crate::declined::{Declined, StockGuard};
use crate::executor::{Executor, Job};
use crate::fault::{Defect, is_lost};
use crate::permit::Permits;
use crate::policy::{PATIENCE, Policy, View};
use crate::stats::counters::{Counters, Waits};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, lock, wait_while, yield_now};
use crate::ticket::{Booth, Notify, Seat, Ticket, Turn};
use crate::worker::{self, StartThread, Workers};

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod simple;
#[cfg(all(test, not(loom)))]
mod tests;

/// The answer to one request.
pub(crate) type Answer<E> = Result<<E as Executor>::Response, Declined>;

/// Requests of all shapes, the slots that serve them, and the workers.
pub(crate) struct Queue<E: Executor> {
    pub(crate) executor: E,
    pub(crate) counters: Counters,
    policy: Policy,
    bounds: Bounds,
    /// When the queue was made, and how many milliseconds later a worker could not be started; zero
    /// if that never happened.
    since: Instant,
    refused: AtomicU64,
    /// How a worker is started.
    pub(crate) start_thread: StartThread,
    state: Mutex<State<E>>,
    /// Idle workers sleep here.
    assignment: Condvar,
    board: Board<E>,
    /// For batches without one of the slots; kept for their capacity.
    spare: Mutex<Vec<Slot<E>>>,
    /// Threads that serve batches of the board for jobs of theirs: they take a CPU each, but no
    /// slot.
    attending: Permits,
    /// Threads that compute with stock OpenSSL after `Declined::Lone`.
    elsewhere: Permits,
}

/// What asynchronous jobs may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many may be paused at a time.
    pub max_async: usize,
    /// How many may be lost in all.
    pub max_lost: usize,
}

pub(crate) type Guard<'a, E> = MutexGuard<'a, State<E>>;

/// What the queue's lock protects.
pub(crate) struct State<E: Executor> {
    free: Vec<Slot<E>>,
    /// One line for each shape.
    lines: Vec<Line<E>>,
    arrivals: u64,
    pub(crate) workers: Workers,
    /// What was handed to workers that have not come for it yet.
    assigned: VecDeque<Assignment<E>>,
    closed: bool,
}

/// The requests of one shape.
struct Line<E: Executor> {
    shape: E::Shape,
    waiting: VecDeque<Entry<E>>,
    /// The counts of [`View`], kept up to date; `waiting` is the length of the queue above.
    view: View,
}

struct Entry<E: Executor> {
    request: E::Request,
    owner: Owner<E>,
    arrival: u64,
    since: Option<Instant>,
}

/// Who waits for an answer.
enum Owner<E: Executor> {
    /// The leader of the batch itself.
    Leader,
    Thread(Arc<Seat<E::Response, Lead<E>>>),
    Job(Arc<Booth<E::Response>>),
}

/// The right to run one batch at a time, with the memory for it.
struct Slot<E: Executor> {
    memory: Option<Box<E::Memory>>,
    /// Both are empty between batches; they are kept for their capacity.
    jobs: Vec<Job<E>>,
    owners: Vec<Owner<E>>,
}

/// A slot on its way to a batch, with the leader's own request if it has one.
pub(crate) struct Lead<E: Executor> {
    shape: E::Shape,
    slot: Slot<E>,
    own: Option<Entry<E>>,
}

/// What a worker is to do.
enum Assignment<E: Executor> {
    /// A batch of the queue.
    Lead(Lead<E>),
    /// Passes that a thread has posted.
    Help(E::Shape, Home, Slot<E>),
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
            waiting: VecDeque::new(),
            view: View {
                pass: executor.pass(shape),
                batch: executor.batch(shape),
                ..View::default()
            },
        });
        let state = State {
            free: (0..policy.slots).map(|_| Slot::new()).collect(),
            lines: lines.collect(),
            arrivals: 0,
            workers: Workers::new(policy.slots),
            assigned: VecDeque::new(),
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
            start_thread: |start| start(),
            assignment: Condvar::new(),
            board: Board::new(),
            spare: Mutex::default(),
            attending: Permits::default(),
            elsewhere: Permits::default(),
        }
    }

    /// Declines the request that a blocking thread would [`run`](Self::run) now, if that would
    /// decline it as lone: before it is made.
    pub(crate) fn declines_alone(&self, shape: E::Shape) -> Option<Declined> {
        if !self.executor.declines_lone(shape) {
            return None;
        }
        let mut state = self.lock();
        let has_slot = !state.free.is_empty();
        let line = state.line(shape);
        if !has_slot || !self.policy.is_alone(&self.view(line)) {
            return None;
        }
        line.view.last = 1;
        let guard = self.guard();
        drop(state);
        Some(self.declined(Declined::Lone(guard)))
    }

    /// Serves the request of a blocking thread: by leading, or by waiting for another leader.
    pub(crate) fn run(&self, shape: E::Shape, request: E::Request) -> Answer<E> {
        let mut state = self.lock();
        let own = state.entry(request, Owner::Leader);
        let line = state.line(shape);
        let mut view = self.view(line);
        view.waiting += 1;
        view.threads += 1;
        if !state.free.is_empty() && self.policy.starts(&view) {
            let lead = state.lead(shape, Some(own));
            return self
                .lead(state, lead)
                .expect("the leader brought a request");
        }
        let seat = Seat::new();
        state.push(
            shape,
            Entry {
                owner: Owner::Thread(seat.clone()),
                since: Some(Instant::now()),
                ..own
            },
        );
        self.hand_on(state, false);
        match seat.wait() {
            Turn::Answer(answer) => answer,
            Turn::Lead(lead) => self
                .lead(self.lock(), lead)
                .expect("the leader brought a request"),
        }
    }

    /// Queues the request of an asynchronous job; a worker or another thread's batch serves it.
    pub(crate) fn submit(
        this: &Arc<Self>,
        shape: E::Shape,
        request: E::Request,
        notify: Box<dyn Notify>,
    ) -> Result<Ticket<E::Response>, Declined> {
        let pause = this.counters.pause();
        let permit = pause.ok_or_else(|| this.declined(Declined::QueueFull))?;
        let mut state = this.lock();
        if state.workers.wanted() {
            state = Self::start_worker(this, state)
                .ok_or_else(|| this.declined(Declined::NoWorkers))?;
        }
        this.counters.submitted();
        let (ticket, booth) = Booth::open(Some(notify), permit);
        let entry = state.entry(request, Owner::Job(booth));
        state.push(
            shape,
            Entry {
                since: Some(Instant::now()),
                ..entry
            },
        );
        this.hand_on(state, false);
        Ok(ticket)
    }

    /// Posts the request of an asynchronous job, which [`attend`](Self::attend)s to it later.
    pub(crate) fn post(
        &self,
        shape: E::Shape,
        request: E::Request,
        home: Home,
    ) -> Result<Ticket<E::Response>, Declined> {
        let pause = self.counters.pause();
        let permit = pause.ok_or_else(|| self.declined(Declined::QueueFull))?;
        self.counters.submitted();
        let (ticket, booth) = Booth::open(None, permit);
        if self.board.column(shape).post(request, booth, home) {
            Ok(ticket)
        } else {
            Err(self.declined(Declined::ShutDown))
        }
    }

    /// Serves a posted request on the calling thread, with others that were posted; with `help`, a
    /// worker serves further passes meanwhile. Gives the ticket back if another thread has taken
    /// the request and is about to deliver.
    pub(crate) fn attend(
        this: &Arc<Self>,
        shape: E::Shape,
        ticket: Ticket<E::Response>,
        help: bool,
    ) -> Result<Answer<E>, Ticket<E::Response>> {
        let mut slot = lock(&this.spare).pop().unwrap_or_else(Slot::new);
        let pass = this.executor.pass(shape);
        // With a worker beside it, a pass at a time: so neither runs out of requests while the
        // other has many.
        let most = if help {
            pass
        } else {
            this.executor.batch(shape)
        };
        let mut column = this.board.column(shape);
        let home = column.home_of(ticket.booth());
        let mut waits = Waits::default();
        column.take(ticket.booth(), pass, most, slot.fill(&mut waits));
        let helped = home.filter(|&home| help && column.has_pass(pass, home));
        drop(column);
        match slot.jobs.len() {
            0 => {}
            1 if this.executor.declines_lone(shape) => {
                slot.jobs[0].answer = Some(Err(this.declined(Declined::Lone(this.guard()))));
                this.deliver_all(&mut slot);
            }
            _ => {
                let _attending = this.attending.take();
                if let Some(home) = helped {
                    Self::call_help(this, shape, home);
                }
                this.run_and_deliver(shape, &mut slot, waits);
            }
        }
        lock(&this.spare).push(slot);
        ticket.try_take()
    }

    /// Takes the posted request of a lost job back. If a batch has it already, the answer is
    /// dropped when it comes. Either way the permit is given back then.
    pub(crate) fn abandon(&self, shape: E::Shape, ticket: Ticket<E::Response>) {
        let post = self.board.column(shape).remove(ticket.booth());
        // Both hold the booth, and with it the permit.
        drop((ticket, post));
    }

    /// Has a worker serve what a thread has posted, if there is a CPU for it.
    fn call_help(this: &Arc<Self>, shape: E::Shape, home: Home) {
        let mut state = this.lock();
        if state.closed || this.is_crowded(&state, 1) {
            return;
        }
        if state.workers.wanted() && !this.lacks_workers() {
            match Self::start_worker(this, state) {
                Some(started) => state = started,
                None => return,
            }
        }
        if state.workers.idle > 0
            && let Some(slot) = state.free.pop()
        {
            state.workers.idle -= 1;
            let help = Assignment::Help(shape, home, slot);
            state.assigned.push_back(help);
            this.assignment.notify_one();
        }
    }

    /// A worker's part in serving what a thread has posted: full passes, as long as nothing else
    /// needs its CPU.
    fn help(&self, shape: E::Shape, home: Home, mut slot: Slot<E>) {
        let pass = self.executor.pass(shape);
        let state = loop {
            let mut waits = Waits::default();
            let mut column = self.board.column(shape);
            column.take_pass(pass, home, slot.fill(&mut waits));
            drop(column);
            if slot.jobs.is_empty() {
                break self.lock();
            }
            self.run_and_deliver(shape, &mut slot, waits);
            let state = self.lock();
            if self.is_crowded(&state, 0) || state.lines.iter().any(|line| !line.waiting.is_empty())
            {
                break state;
            }
        };
        self.give_back(state, slot, true);
    }

    /// Whether `more` batches than run now would be more than there are slots, and so CPUs.
    fn is_crowded(&self, state: &State<E>, more: usize) -> bool {
        self.attending.count() + more > state.free.len()
    }

    /// Whether one more asynchronous request may be queued, and its job paused.
    pub(crate) fn admits(&self) -> bool {
        self.counters.paused.count() < self.bounds.max_async
            && self.counters.lost_so_far() < self.bounds.max_lost as u64
    }

    /// Whether a worker was missed within the last second.
    pub(crate) fn lacks_workers(&self) -> bool {
        let refused = self.refused.load(Ordering::Relaxed);
        refused != 0 && self.milliseconds() <= refused + 1000
    }

    /// Starts one more worker; `None` if there is none then.
    fn start_worker<'a>(this: &'a Arc<Self>, state: Guard<'a, E>) -> Option<Guard<'a, E>> {
        let started = worker::start(this, state);
        if started.is_none() {
            this.refused.store(this.milliseconds(), Ordering::Relaxed);
        }
        started
    }

    /// Since the queue was made; never zero.
    fn milliseconds(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis())
            .unwrap_or(u64::MAX - 1001)
            .max(1)
    }

    /// A worker's life: runs the batches assigned to it until the queue is closed.
    pub(crate) fn work(&self) {
        loop {
            let mut state = wait_while(&self.assignment, self.lock(), |state| {
                state.assigned.is_empty() && !state.closed
            });
            match state.assigned.pop_front() {
                Some(Assignment::Lead(lead)) => {
                    self.lead(state, lead);
                }
                Some(Assignment::Help(shape, home, slot)) => {
                    drop(state);
                    self.help(shape, home, slot);
                }
                None => return,
            }
        }
    }

    /// Runs one batch on the calling thread, past the queue and its slots.
    pub(crate) fn execute(
        &self,
        shape: E::Shape,
        requests: impl IntoIterator<Item = E::Request>,
    ) -> Vec<Answer<E>> {
        let mut slot = lock(&self.spare).pop().unwrap_or_else(Slot::new);
        slot.jobs.extend(requests.into_iter().map(|request| Job {
            request,
            answer: None,
        }));
        let ran = self.run_batch(shape, &mut slot);
        self.count(shape, &slot.jobs, ran);
        let answer = |job: Job<E>| job.answer.unwrap_or(Err(Declined::Internal));
        let answers = slot.jobs.drain(..).map(answer).collect();
        lock(&self.spare).push(slot);
        answers
    }

    /// Declines all that waits and sends the workers home.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let mut left = Vec::new();
        for line in &mut state.lines {
            left.extend(std::iter::from_fn(|| line.pop()).map(|entry| entry.owner));
        }
        drop(state);
        self.assignment.notify_all();
        left.extend(
            self.board
                .close()
                .into_iter()
                .map(|post| Owner::Job(post.booth)),
        );
        for owner in left {
            self.deliver(owner, Err(self.declined(Declined::ShutDown)));
        }
    }

    /// Counts a reason and passes it on.
    pub(crate) fn declined(&self, declined: Declined) -> Declined {
        self.counters.fallback(declined.fallback());
        declined
    }

    /// Counts this thread as one that computes with stock OpenSSL.
    fn guard(&self) -> StockGuard {
        StockGuard::new(self.elsewhere.take())
    }

    pub(crate) fn lock(&self) -> Guard<'_, E> {
        lock(&self.state)
    }
}

impl<E: Executor> Queue<E> {
    /// Takes a batch, runs it, delivers, hands the slot on. Returns the leader's own answer, if it
    /// brought a request; a worker does not.
    fn lead<'a>(&'a self, state: Guard<'a, E>, lead: Lead<E>) -> Option<Answer<E>> {
        let Lead {
            shape,
            mut slot,
            own,
        } = lead;
        let worker = own.is_none();
        let mut state = self.gather(state, shape);
        let waits = self.take(&mut state, shape, own, &mut slot);
        let line = state.line(shape);
        let fill = slot.jobs.len();
        line.view.last = fill;

        if fill == 0 {
            self.give_back(state, slot, worker);
            return None;
        }
        if fill == 1 && !worker && self.executor.declines_lone(shape) {
            slot.clear();
            // Before the slot is free: the next leader sees that this thread computes.
            let guard = self.guard();
            self.give_back(state, slot, worker);
            return Some(Err(self.declined(Declined::Lone(guard))));
        }

        line.view.running += 1;
        line.view.in_batches += fill;
        self.hand_on(state, false);
        let own = self.run_and_deliver(shape, &mut slot, waits);

        let mut state = self.lock();
        let line = state.line(shape);
        line.view.running -= 1;
        line.view.in_batches -= fill;
        self.give_back(state, slot, worker);
        own
    }

    /// Lets requests gather, where there are signs that more will come: yields the CPU to the
    /// threads that would bring them. A yield with nothing else to run returns at once, and without
    /// such signs there is none, so an idle system pays nothing.
    fn gather<'a>(&'a self, mut state: Guard<'a, E>, shape: E::Shape) -> Guard<'a, E> {
        let mut seen = self.view(state.line(shape));
        let mut quiet = 0;
        for _ in 0..self.policy.yields {
            if quiet == PATIENCE || !self.policy.expects_company(&seen) {
                break;
            }
            drop(state);
            self.counters.yielded();
            yield_now();
            state = self.lock();
            let now = self.view(state.line(shape));
            quiet = if now.waiting > seen.waiting {
                0
            } else {
                quiet + 1
            };
            seen = now;
        }
        state
    }

    /// Moves a batch into the slot: the leader's own request, and the oldest that wait.
    fn take(
        &self,
        state: &mut State<E>,
        shape: E::Shape,
        own: Option<Entry<E>>,
        slot: &mut Slot<E>,
    ) -> Waits {
        let line = state.line(shape);
        let most = self.policy.share(&self.view(line));
        line.view.leaders -= 1;
        line.view.in_hand -= usize::from(own.is_some());
        let mut waits = Waits::default();
        let now = Instant::now();
        let mut taken = own;
        while slot.jobs.len() < most {
            let Some(entry) = taken.take().or_else(|| line.pop()) else {
                break;
            };
            match &entry.owner {
                Owner::Job(booth) if Booth::is_abandoned(booth) => {}
                _ => {
                    if let Some(since) = entry.since {
                        waits.add(now - since);
                    }
                    slot.push(entry.request, entry.owner);
                }
            }
        }
        waits
    }

    /// Runs the slot's jobs, counts them, and gives every owner its answer; returns the leader's.
    fn run_and_deliver(
        &self,
        shape: E::Shape,
        slot: &mut Slot<E>,
        waits: Waits,
    ) -> Option<Answer<E>> {
        let ran = self.run_batch(shape, slot);
        self.count(shape, &slot.jobs, ran);
        self.counters.waited(waits);
        self.deliver_all(slot)
    }

    /// Runs the slot's jobs. After a panic, the jobs it left unanswered are internal errors and the
    /// memory is made anew. (The module aborts on panic; tests do not.) Returns how many operations
    /// the lanes ran.
    fn run_batch(&self, shape: E::Shape, slot: &mut Slot<E>) -> usize {
        let Slot { memory, jobs, .. } = slot;
        let run = AssertUnwindSafe(|| {
            let memory = memory.get_or_insert_with(|| Box::new(self.executor.memory()));
            self.executor.run(shape, memory, jobs)
        });
        catch_unwind(run).unwrap_or_else(|_| {
            *memory = None;
            slot.jobs.len()
        })
    }

    fn count(&self, shape: E::Shape, jobs: &[Job<E>], ran: usize) {
        let pass = self.executor.pass(shape);
        self.counters.batch(E::index(shape), jobs.len(), ran, pass);
        for job in jobs {
            match &job.answer {
                Some(Ok(_)) => {}
                Some(Err(declined)) => self.counters.fallback(declined.fallback()),
                None => self.counters.fallback(Declined::Internal.fallback()),
            }
        }
    }

    /// Gives every owner its answer; returns the leader's.
    fn deliver_all(&self, slot: &mut Slot<E>) -> Option<Answer<E>> {
        let mut own = None;
        for (job, owner) in slot.jobs.iter_mut().zip(slot.owners.drain(..)) {
            let answer = job.answer.take().unwrap_or(Err(Declined::Internal));
            match owner {
                Owner::Leader => own = Some(answer),
                owner => self.deliver(owner, answer),
            }
        }
        slot.jobs.clear();
        own
    }

    fn deliver(&self, owner: Owner<E>, answer: Answer<E>) {
        match owner {
            Owner::Leader => unreachable!("a leader delivers to itself"),
            Owner::Thread(seat) => seat.call(Turn::Answer(answer)),
            Owner::Job(booth) => booth.deliver(answer),
        }
    }

    fn give_back<'a>(&'a self, mut state: Guard<'a, E>, slot: Slot<E>, worker: bool) {
        state.free.push(slot);
        if worker {
            state.workers.idle += 1;
        }
        self.hand_on(state, worker);
    }

    /// Hands free slots to those that should lead now. Every change of the state ends here.
    ///
    /// A worker that calls this comes back for its next assignment anyway, so the first one needs
    /// no wake-up.
    fn hand_on<'a>(&'a self, mut state: Guard<'a, E>, mut worker_comes: bool) {
        while let Some(call) = self.next_call(&mut state) {
            match call {
                Call::Worker if worker_comes => worker_comes = false,
                Call::Worker if is_lost(Defect::LostWorker) => {}
                Call::Worker => self.assignment.notify_one(),
                Call::Thread(seat, lead) => {
                    drop(state);
                    seat.call(Turn::Lead(lead));
                    state = self.lock();
                }
            }
        }
    }

    /// Assigns one free slot, if there is one and a line that should start.
    fn next_call(&self, state: &mut State<E>) -> Option<Call<E>> {
        if state.free.is_empty() {
            return None;
        }
        let worker_is_free = state.workers.idle > 0;
        let line = state
            .lines
            .iter()
            .filter(|line| line.view.threads > 0 || worker_is_free)
            .filter(|line| self.policy.starts(&self.view(line)))
            .min_by_key(|line| line.waiting.front().map(|entry| entry.arrival))?;
        let shape = line.shape;
        match state.line(shape).pop_thread() {
            Some((seat, own)) => {
                let lead = state.lead(shape, Some(own));
                Some(Call::Thread(seat, lead))
            }
            None => {
                state.workers.idle -= 1;
                let lead = state.lead(shape, None);
                state.assigned.push_back(Assignment::Lead(lead));
                Some(Call::Worker)
            }
        }
    }

    /// What the policy sees of a line.
    fn view(&self, line: &Line<E>) -> View {
        View {
            waiting: line.waiting.len(),
            elsewhere: self.elsewhere.count(),
            ..line.view
        }
    }
}

/// Whom a slot was given to.
enum Call<E: Executor> {
    Thread(Arc<Seat<E::Response, Lead<E>>>, Lead<E>),
    Worker,
}

impl<E: Executor> State<E> {
    fn line(&mut self, shape: E::Shape) -> &mut Line<E> {
        &mut self.lines[E::index(shape)]
    }

    fn entry(&mut self, request: E::Request, owner: Owner<E>) -> Entry<E> {
        self.arrivals += 1;
        Entry {
            request,
            owner,
            arrival: self.arrivals,
            since: None,
        }
    }

    fn push(&mut self, shape: E::Shape, entry: Entry<E>) {
        let line = self.line(shape);
        line.view.threads += usize::from(matches!(entry.owner, Owner::Thread(_)));
        line.waiting.push_back(entry);
    }

    /// Takes a free slot for a leader of `shape`.
    fn lead(&mut self, shape: E::Shape, own: Option<Entry<E>>) -> Lead<E> {
        let slot = self.free.pop().expect("the caller saw a free slot");
        let line = self.line(shape);
        line.view.leaders += 1;
        line.view.in_hand += usize::from(own.is_some());
        Lead { shape, slot, own }
    }
}

impl<E: Executor> Line<E> {
    /// The oldest request.
    fn pop(&mut self) -> Option<Entry<E>> {
        let entry = self.waiting.pop_front()?;
        self.view.threads -= usize::from(matches!(entry.owner, Owner::Thread(_)));
        Some(entry)
    }

    /// The oldest request whose thread is blocked, now as a leader's own, and the thread's seat.
    #[expect(clippy::type_complexity, reason = "a pair that is taken apart at once")]
    fn pop_thread(&mut self) -> Option<(Arc<Seat<E::Response, Lead<E>>>, Entry<E>)> {
        let place = self
            .waiting
            .iter()
            .position(|entry| matches!(entry.owner, Owner::Thread(_)))?;
        let entry = self.waiting.remove(place)?;
        self.view.threads -= 1;
        match entry.owner {
            Owner::Thread(seat) => Some((
                seat,
                Entry {
                    owner: Owner::Leader,
                    ..entry
                },
            )),
            _ => unreachable!("position found a thread"),
        }
    }
}

impl<E: Executor> Slot<E> {
    fn new() -> Slot<E> {
        Slot {
            memory: None,
            jobs: Vec::new(),
            owners: Vec::new(),
        }
    }

    fn push(&mut self, request: E::Request, owner: Owner<E>) {
        self.jobs.push(Job {
            request,
            answer: None,
        });
        self.owners.push(owner);
    }

    /// Takes in what comes from the board, and adds to `waits` how long it was there.
    fn fill(&mut self, waits: &mut Waits) -> impl FnMut(Post<E>) {
        let now = Instant::now();
        move |post| {
            waits.add(now - post.since);
            self.push(post.request, Owner::Job(post.booth));
        }
    }

    fn clear(&mut self) {
        self.jobs.clear();
        self.owners.clear();
    }
}
