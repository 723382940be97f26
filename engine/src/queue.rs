//! The one queue. It gathers requests into batches, without timers.
//!
//! Every request has a shape, and a batch takes requests of one shape. Each *slot* runs one batch
//! at a time, and there is one slot for each CPU. Batches of the [job queue](job_queue), which jobs
//! lead themselves, take no slot. A thread that arrives while a slot is free leads: it takes the
//! waiting requests of its shape, runs them, and delivers the answers. Requests that arrive
//! meanwhile gather. A leader that has delivered gives its slot back, and a thread that gives back
//! a slot hands it on: to a blocked thread, which wakes up as the next leader, or to a worker where
//! only asynchronous requests wait.
//!
//! No request waits forever:
//!
//! - A waiting request needs a leader or a running batch of its shape
//!   ([`Policy::starts`](crate::policy::Policy::starts)). Each change after which a request might
//!   have neither ends in [`Queue::hand_on`], under the same lock.
//! - A thread that is made leader gets its own request back, out of the queue, so no other leader
//!   can serve it in between and its slot is always used or handed on.
//! - Each request has a time by which it should be served. The shape that has the request with the
//!   earliest time goes first. Among requests that take equally long, the oldest has this time. In
//!   the key daemon, the [turns](fair) of the users come first.
//!
//! The key daemon has no workers: its threads collect requests themselves, and [serve](service)
//! them.
//!
//! No thread waits forever:
//!
//! - A request that would wait, or has waited, much longer than OpenSSL's own implementation takes
//!   is declined ([`Policy::longest_wait`](crate::policy::Policy::longest_wait)). Requests own
//!   their inputs, so a leader that has taken such a request may go on; the answer is dropped.
//! - A leader that does not come back is [lost](late): its slot is replaced, its requests are no
//!   longer counted, and the threads that wait for them go on.
//! - A job that waits for another thread is watched (`watch.rs`): in the end it is woken without an
//!   answer.

pub(crate) mod fair;
pub(crate) mod job_queue;
mod jobs;
mod late;
mod leader;
mod leaders;
pub(crate) mod reply;
pub(crate) mod service;
pub(crate) mod state;
#[cfg(loom)]
mod unwatched;
#[cfg(not(loom))]
mod watch;
mod watched;
pub(crate) mod workers;

#[cfg(all(test, loom))]
pub(crate) mod exploration;
#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
pub(crate) mod simple;
#[cfg(all(test, not(loom)))]
mod tests;

use std::time::Duration;

use crate::completion::{Turn, Waiter};
use lockstep_ops::Failed;
use state::{Entry, Owner, Queue, Slot, ThreadWaiter};

use crate::caller::ThreadId;
use crate::declined::Declined;
use crate::executor::{Answer, Executor, Member};
use crate::sync::{Arc, lock, now};

impl<E: Executor> Queue<E> {
    /// Declines a request of a blocking thread before it is made, if [`enqueue`](Self::enqueue)
    /// would decline it as lone.
    pub(crate) fn declines_alone(&self, shape: E::Shape, thread: ThreadId) -> Option<Declined> {
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
        let guard = self.guard(thread);
        drop(state);
        Some(self.declined(Declined::Lone(guard)))
    }

    /// Declines a request that is computed at once, and so alone, where OpenSSL is faster.
    pub(crate) fn declines_lone(&self, shape: E::Shape, thread: ThreadId) -> Option<Declined> {
        let declines = self.executor.declines_lone(shape);
        declines.then(|| self.declined(Declined::Lone(self.guard(thread))))
    }

    /// Serves the request of this blocking thread: by leading, or by waiting for another leader.
    /// If that takes too long, the request is declined. If lanes are to serve all requests, the
    /// thread computes it itself instead, outside the queue.
    pub(crate) fn enqueue(
        &self,
        shape: E::Shape,
        request: E::Request,
        thread: ThreadId,
    ) -> Answer<E> {
        self.look_if_due();
        let mut state = self.lock();
        self.comes_again(&mut state, thread);
        if self.comes_too_late(&mut state, shape) {
            drop(state);
            return Err(self.declined(Declined::Late));
        }
        let own = state.entry(request, Owner::Leader);
        let line = state.line(shape);
        let mut view = self.view(line);
        view.waiting += 1;
        view.threads += 1;
        if !state.free.is_empty() && self.policy.starts(&view) {
            let lead = state.lead(shape, Some(own), Some(thread));
            return self
                .lead(state, lead)
                .expect("the leader brought a request");
        }
        let waiter = Waiter::new(thread);
        let now = now();
        let after = |wait: Option<Duration>| wait.map(|wait| now + wait);
        let most = self.policy.longest_wait(&view);
        let longer = self.policy.waits_for_batch();
        let all: Duration = longer.iter().flatten().sum();
        state.push(
            shape,
            Entry {
                owner: Owner::Thread(waiter.clone()),
                since: Some(now),
                turn: after(self.policy.longest_expected_wait(&view)),
                // The thread leaves earlier, and then takes the request out of the queue itself.
                due: after(most.map(|most| 2 * most + all)),
                ..own
            },
            now,
        );
        self.hand_on(state, false);
        let mut turn = waiter.wait(most);
        if turn.is_none() {
            turn = match (self.withdraw(shape, &waiter), longer) {
                (Some(request), Some(_)) => return self.compute(shape, request),
                (Some(_), None) => return Err(self.declined(Declined::Late)),
                (None, Some([until_lost, then])) => waiter.wait(Some(until_lost)).or_else(|| {
                    // The leader is lost now, or comes back.
                    self.look_for_lost();
                    waiter.leave(then)
                }),
                (None, None) => waiter.leave(Duration::ZERO),
            };
        }
        match turn {
            Some(Turn::Answer(answer)) => answer,
            Some(Turn::Lead(lead)) => self
                .lead(self.lock(), lead)
                .expect("the leader brought a request"),
            None => Err(self.declined(Declined::Late)),
        }
    }

    /// Takes the request of a thread that has waited too long out of the queue. `None` if a leader
    /// has the request, or if the thread is to lead: then the thread is woken.
    fn withdraw(&self, shape: E::Shape, waiter: &Arc<ThreadWaiter<E>>) -> Option<E::Request> {
        let request = self.lock().withdraw(shape, waiter);
        self.look_for_lost();
        request
    }

    /// Looks for lost leaders, and hands their slots on.
    fn look_for_lost(&self) {
        let mut state = self.lock();
        self.give_up_lost(&mut state, now());
        self.hand_on(state, false);
    }

    /// Computes one request on the calling thread, outside the queue and its slots.
    pub(crate) fn compute(&self, shape: E::Shape, request: E::Request) -> Answer<E> {
        let answer = self.execute_at_once(shape, [request]).pop();
        answer.unwrap_or(Err(Declined::Failed(Failed::Internal)))
    }

    /// Runs one batch on the calling thread, outside the queue and its slots.
    pub(crate) fn execute_at_once(
        &self,
        shape: E::Shape,
        requests: impl IntoIterator<Item = E::Request>,
    ) -> Vec<Answer<E>> {
        self.look_if_due();
        let mut slot = lock(&self.spare).pop().unwrap_or_else(Slot::new);
        slot.jobs.extend(requests.into_iter().map(|request| Member {
            request,
            answer: None,
        }));
        let ran = self.run_batch(shape, &mut slot);
        self.count(shape, &slot.jobs, ran);
        let answers = slot.jobs.iter_mut().map(Member::take_answer).collect();
        slot.jobs.clear();
        self.keep_spare(slot);
        answers
    }

    /// Keeps a slot for the next thread that serves past the queue, unless there are enough: many
    /// threads may have come at the same time.
    fn keep_spare(&self, slot: Slot<E>) {
        let mut spare = lock(&self.spare);
        if spare.len() < self.policy.slots {
            spare.push(slot);
        }
    }
}
