//! Requests of asynchronous jobs in the queue.

use std::time::Duration;

use lockstep_counters::Waits;

use super::state::{Entry, Owner, Queue, Slot};
use crate::caller::ThreadId;
use crate::completion::{Completion, Notify, Ticket};
use crate::declined::Declined;
use crate::executor::{Answer, Executor};
use crate::sync::{Arc, lock, now};

impl<E: Executor> Queue<E> {
    /// Queues the request of an asynchronous job; a worker or another thread's batch serves it.
    pub(crate) fn submit(
        this: &Arc<Self>,
        shape: E::Shape,
        request: E::Request,
        notify: Box<dyn Notify>,
    ) -> Result<Ticket<Answer<E>>, Declined> {
        let pause = this.counters.pause();
        let permit = pause.ok_or_else(|| this.declined(Declined::QueueFull))?;
        let mut state = this.lock();
        if this.comes_too_late(&mut state, shape) {
            drop(state);
            return Err(this.declined(Declined::Late));
        }
        if state.workers.wanted() {
            state = Self::start_worker(this, state)
                .ok_or_else(|| this.declined(Declined::NoWorkers))?;
        }
        this.counters.submitted();
        let (ticket, completion) = Completion::open(Some(notify), permit);
        this.note_watched(&mut state, shape, &completion);
        let entry = state.entry(request, Owner::Job(completion));
        let now = now();
        let view = this.view(state.line(shape));
        let most = this.policy.longest_expected_wait(&view);
        state.push(
            shape,
            Entry {
                since: Some(now),
                turn: most.map(|most| now + most),
                ..entry
            },
            now,
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
    ) -> Result<Ticket<Answer<E>>, Declined> {
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

    /// Serves a posted request on the calling thread, with other posted requests. With `help`, a
    /// worker serves further passes meanwhile. Returns the ticket if another thread has taken the
    /// request and is about to deliver.
    pub(crate) fn attend(
        this: &Arc<Self>,
        shape: E::Shape,
        ticket: Ticket<Answer<E>>,
        help: bool,
    ) -> Result<Answer<E>, Ticket<Answer<E>>> {
        this.look_if_due();
        let mut slot = lock(&this.spare).pop().unwrap_or_else(Slot::new);
        let pass = this.executor.pass(shape);
        // With a worker beside it, the thread takes a pass at a time, so that neither runs out of
        // requests while the other has many.
        let most = if help {
            pass
        } else {
            this.executor.batch(shape)
        };
        let mut posted = this.job_queue.of(shape);
        let thread = posted.thread_of(ticket.completion());
        let mut waits = Waits::default();
        posted.take(ticket.completion(), pass, most, slot.fill(&mut waits));
        if let Some(thread) = thread {
            let is_large = slot.jobs.len() >= this.executor.batch(shape) / 2;
            this.company.met(thread, E::index(shape), is_large);
        }
        let helped = thread.filter(|&thread| help && posted.has_pass(pass, thread));
        drop(posted);
        match (slot.jobs.len(), thread) {
            // Another thread has taken the request.
            (0, _) | (_, None) => {}
            (1, Some(thread)) if this.executor.declines_lone(shape) => {
                let declined = this.declined(Declined::Lone(this.guard(thread)));
                if let Some(owner) = slot.owners.pop() {
                    this.deliver(owner, Err(declined));
                }
                slot.clear();
            }
            (_, Some(thread)) => {
                let _attending = this.attending.note(thread);
                if let Some(thread) = helped {
                    Self::call_help(this, shape, thread);
                }
                this.run_and_deliver(shape, &mut slot, waits);
            }
        }
        this.keep_spare(slot);
        ticket.try_take()
    }

    /// Waits for the answer to a request that another thread serves. Declines the request if that
    /// takes too long.
    pub(crate) fn take_in_time(&self, shape: E::Shape, ticket: Ticket<Answer<E>>) -> Answer<E> {
        let view = self.view(self.lock().line(shape));
        let most = self.policy.longest_wait(&view);
        let longer = self.policy.waits_for_batch().unwrap_or_default();
        let most = most.map(|most| most + longer.iter().sum::<Duration>());
        let answer = ticket.take_within(most);
        answer.unwrap_or_else(|| Err(self.declined(Declined::Late)))
    }

    /// Takes the posted request of a lost job back, and gives its permit back. If a batch has the
    /// request already, the answer is dropped when it comes, and the permit is given back then.
    pub(crate) fn abandon(&self, shape: E::Shape, ticket: Ticket<Answer<E>>) {
        let post = self.job_queue.of(shape).remove(ticket.completion());
        if let Some(post) = &post {
            // A job that was lost on trial has shown no company.
            self.company.met(post.thread, E::index(shape), false);
        }
        // Both hold the completion, and with it the permit.
        drop((ticket, post));
    }

    /// Returns whether one more asynchronous request may be queued, and its job paused.
    pub(crate) fn admits(&self) -> bool {
        self.counters.paused() < self.bounds.max_async
            && self.counters.lost_so_far() < self.bounds.max_lost as u64
    }
}
