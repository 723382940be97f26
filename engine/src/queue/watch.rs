//! Jobs that wait for another thread, and the waking of these jobs if that thread never ends.
//!
//! A paused job cannot look at the clock. An idle worker does so for all of them: while there are
//! such jobs, it looks once in each period, and wakes the jobs that have waited too long without an
//! answer. So a job costs a place in a list, and no wake-up of a thread if a worker looks already.
//! In a process without workers, each thread that calls the engine looks if it is time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::{Guard, Queue};
use crate::completion::{Completion, Ticket};
use crate::declined::Declined;
use crate::executor::{Answer, Executor};
use crate::sync::{Arc, now, wait, wait_at_most};

/// Time between two looks of a worker.
const PERIOD: Duration = Duration::from_millis(50);

impl<E: Executor> Queue<E> {
    /// Begins to watch a job whose request another thread has taken.
    pub(crate) fn watch(this: &Arc<Self>, shape: E::Shape, ticket: &Ticket<Answer<E>>) {
        if this.policy.patience.is_none() {
            return;
        }
        let mut state = this.lock();
        if state.workers.alive == 0 && !state.closed {
            if this.lacks_workers() {
                // The last attempt was less than a second ago.
            } else if let Some(started) = Self::start_worker(this, state) {
                state = started;
            } else {
                state = this.lock();
            }
        }
        this.note_watched(&mut state, shape, ticket.completion());
    }

    /// Adds a job to the watched ones, and has an idle worker begin to look.
    pub(super) fn note_watched(
        &self,
        state: &mut Guard<'_, E>,
        shape: E::Shape,
        completion: &Arc<Completion<Answer<E>>>,
    ) {
        let Some(most) = self.policy.longest_pause(&self.view(state.line(shape))) else {
            return;
        };
        let now = now();
        state
            .watched
            .jobs
            .push((now + most, Arc::downgrade(completion)));
        state.watched.next_look.get_or_insert(now + PERIOD);
        if state.workers.alive == 0 {
            if self.look_at.load(Ordering::Relaxed) == 0 {
                self.look_later();
            }
        } else if !state.watched.is_looked_at && state.workers.idle > 0 {
            self.assignment.notify_one();
        }
    }

    /// Has a calling thread look at the jobs, after a period.
    fn look_later(&self) {
        let period = PERIOD.as_millis() as u64;
        self.look_at
            .store(self.milliseconds() + period, Ordering::Relaxed);
    }

    /// Looks at the jobs, if it is time, in the place of a worker, which the process may not be
    /// able to start.
    pub(super) fn look_if_due(&self) {
        let due = self.look_at.load(Ordering::Relaxed);
        if due != 0 && due <= self.milliseconds() {
            drop(self.look(self.lock(), false));
        }
    }

    /// Looks at the jobs, if it is time, between two batches of a worker, which may never be idle.
    pub(super) fn look_between<'a>(&'a self, state: Guard<'a, E>) -> Guard<'a, E> {
        match state.watched.next_look {
            Some(due) if due <= now() => self.look(state, false),
            _ => state,
        }
    }

    /// Waits for an assignment as an idle worker. One of these looks at the jobs meanwhile.
    pub(super) fn rest<'a>(&'a self, mut state: Guard<'a, E>) -> Guard<'a, E> {
        if state.watched.is_looked_at || state.watched.jobs.is_empty() {
            return wait(&self.assignment, state);
        }
        state.watched.is_looked_at = true;
        let (mut state, timed_out) = wait_at_most(&self.assignment, state, PERIOD);
        state.watched.is_looked_at = false;
        match timed_out {
            true => self.look(state, true),
            false => state,
        }
    }

    /// Wakes the jobs that have waited too long.
    fn look<'a>(&'a self, mut state: Guard<'a, E>, worker: bool) -> Guard<'a, E> {
        let now = now();
        let mut late = Vec::new();
        state.watched.jobs.retain(|(due, job)| {
            let is_late = *due <= now;
            if is_late {
                late.extend(job.upgrade());
            }
            !is_late && job.strong_count() > 0
        });
        state.watched.next_look = (!state.watched.jobs.is_empty()).then_some(now + PERIOD);
        match state.watched.jobs.is_empty() || state.workers.alive > 0 {
            true => self.look_at.store(0, Ordering::Relaxed),
            false => self.look_later(),
        }
        self.give_up_lost(&mut state, now);
        self.hand_on(state, worker);
        for job in late {
            if job.deliver(Err(Declined::Late)) {
                self.counters.fallback(Declined::Late.fallback());
            }
        }
        self.lock()
    }
}
