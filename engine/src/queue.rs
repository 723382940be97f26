//! The one queue: group commit without timers.
//!
//! Every request has a shape, and a batch takes requests of one shape. As many batches run at a
//! time as there are *slots*, one for each CPU; those of the [job queue](job_queue), which jobs lead
//! themselves, take none. A thread that arrives while a slot is free leads: it takes what waits of
//! its shape, runs it, and delivers the answers. Requests that arrive meanwhile gather. A leader
//! that has delivered gives its slot back, and a thread that gives back a slot hands it on: to a
//! blocked thread, which wakes up as the next leader, or to a worker where only asynchronous
//! requests wait.
//!
//! What keeps every request moving:
//!
//! - A waiting request needs a leader or a running batch of its shape
//!   ([`Policy::starts`](crate::policy::Policy::starts)). Each change that could free one ends in
//!   [`Queue::hand_on`], under the same lock.
//! - A thread that is made leader gets its own request back, out of the queue, so no other leader
//!   can serve it in between and its slot is always used or handed on.
//! - Between shapes, the one with the oldest request goes first.

pub(crate) mod completion;
pub(crate) mod job_queue;
mod leader;
pub(crate) mod state;
pub(crate) mod workers;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
pub(crate) mod simple;
#[cfg(all(test, not(loom)))]
mod tests;

use std::time::Instant;

use completion::{Completion, Notify, Ticket, Turn, Waiter};
use state::{Answer, Entry, Owner, Queue, Slot};

use crate::caller::ThreadId;
use crate::declined::Declined;
use crate::executor::{Executor, Job};
use crate::stats::counters::Waits;
use crate::sync::{Arc, lock};

impl<E: Executor> Queue<E> {
    /// Declines the request that a blocking thread would [`enqueue`](Self::enqueue) now, if that would
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
    pub(crate) fn enqueue(&self, shape: E::Shape, request: E::Request) -> Answer<E> {
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
        let waiter = Waiter::new();
        state.push(
            shape,
            Entry {
                owner: Owner::Thread(waiter.clone()),
                since: Some(Instant::now()),
                ..own
            },
        );
        self.hand_on(state, false);
        match waiter.wait() {
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
        let (ticket, completion) = Completion::open(Some(notify), permit);
        let entry = state.entry(request, Owner::Job(completion));
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
        thread: ThreadId,
    ) -> Result<Ticket<E::Response>, Declined> {
        let pause = self.counters.pause();
        let permit = pause.ok_or_else(|| self.declined(Declined::QueueFull))?;
        self.counters.submitted();
        let (ticket, completion) = Completion::open(None, permit);
        if self.job_queue.of(shape).post(request, completion, thread) {
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
        let mut posted = this.job_queue.of(shape);
        let thread = posted.thread_of(ticket.completion());
        let mut waits = Waits::default();
        posted.take(ticket.completion(), pass, most, slot.fill(&mut waits));
        let helped = thread.filter(|&thread| help && posted.has_pass(pass, thread));
        drop(posted);
        match slot.jobs.len() {
            0 => {}
            1 if this.executor.declines_lone(shape) => {
                slot.jobs[0].answer = Some(Err(this.declined(Declined::Lone(this.guard()))));
                this.deliver_all(&mut slot);
            }
            _ => {
                let _attending = this.attending.take();
                if let Some(thread) = helped {
                    Self::call_help(this, shape, thread);
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
        let post = self.job_queue.of(shape).remove(ticket.completion());
        // Both hold the completion, and with it the permit.
        drop((ticket, post));
    }

    /// Whether jobs lead what their threads have posted, where nothing needs a worker.
    pub(crate) fn jobs_lead(&self) -> bool {
        self.bounds.jobs_lead
    }

    /// Whether one more asynchronous request may be queued, and its job paused.
    pub(crate) fn admits(&self) -> bool {
        self.counters.paused.count() < self.bounds.max_async
            && self.counters.lost_so_far() < self.bounds.max_lost as u64
    }

    /// Runs one batch on the calling thread, past the queue and its slots.
    pub(crate) fn execute_at_once(
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
}
