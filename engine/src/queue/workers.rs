//! Threads that serve asynchronous requests.
//!
//! They start on demand, at most one for each slot. A worker needs a slot for each batch, as a
//! blocking thread does, and follows the same policy. It is either idle (it sleeps, or is about to
//! look for work) or has an assignment.

use std::sync::atomic::Ordering;

use lockstep_counters::Waits;
use lockstep_ops::ROOM_BYTES;

use super::state::{Assignment, Guard, Owner, Queue, Slot};
use crate::caller::ThreadId;
use crate::declined::Declined;
use crate::executor::Executor;
use crate::sync::{Arc, thread};

/// Bytes of a worker's stack, which has room for a batch.
pub const STACK_BYTES: usize = ROOM_BYTES + 64 * 1024;

impl<E: Executor> Queue<E> {
    /// Has a worker serve requests that a thread has posted, if there is a CPU for it.
    pub(super) fn call_help(this: &Arc<Self>, shape: E::Shape, thread: ThreadId) {
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
            let help = Assignment::Help(shape, thread, slot);
            state.assigned.push_back(help);
            this.assignment.notify_one();
        }
    }

    /// Serves, as a worker, full passes that a thread has posted, as long as no other request needs
    /// the CPU.
    fn help(&self, shape: E::Shape, thread: ThreadId, mut slot: Slot<E>) {
        let pass = self.executor.pass(shape);
        let state = loop {
            let mut waits = Waits::default();
            let mut posted = self.job_queue.of(shape);
            posted.take_pass(pass, thread, slot.fill(&mut waits));
            drop(posted);
            if slot.jobs.is_empty() {
                break self.lock();
            }
            self.run_and_deliver(shape, &mut slot, waits);
            let state = self.lock();
            if self.is_crowded(&state, 0) || state.turns.total() > 0 {
                break state;
            }
        };
        self.free(state, Some(slot), true);
    }

    /// Returns whether the start of a first worker failed within the last second.
    pub(crate) fn lacks_workers(&self) -> bool {
        let refused = self.refused.load(Ordering::Relaxed);
        refused != 0 && self.milliseconds() <= refused + 1000
    }

    /// Starts one more worker. Returns `None` if that fails and there is no other worker. Then the
    /// requests that jobs have queued meanwhile are declined, unless another worker is being
    /// started.
    pub(super) fn start_worker<'a>(
        this: &'a Arc<Self>,
        mut state: Guard<'a, E>,
    ) -> Option<Guard<'a, E>> {
        state.workers.alive += 1;
        drop(state);
        let mut started = None;
        (this.start_thread)(&mut || {
            let queue = this.clone();
            let thread = thread::Builder::new()
                .name("lockstep-worker".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || queue.work());
            started = thread.ok();
        });
        let mut state = this.lock();
        match started {
            Some(thread) => {
                state.workers.idle += 1;
                state.workers.threads.push(thread);
            }
            None => state.workers.alive -= 1,
        }
        if state.workers.threads.is_empty() {
            this.refused.store(this.milliseconds(), Ordering::Relaxed);
            let left = match state.workers.alive {
                0 => state.take_out(|entry| matches!(entry.owner, Owner::Job(_))),
                _ => Vec::new(),
            };
            drop(state);
            for owner in left {
                // `deliver` returns an answer only for a leader, and the owner is a job.
                drop(this.deliver(owner, Err(this.declined(Declined::NoWorkers))));
            }
            return None;
        }
        Some(state)
    }

    /// Returns the milliseconds since the queue was made, but never zero.
    pub(super) fn milliseconds(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis())
            .unwrap_or(u64::MAX - 1001)
            .max(1)
    }

    /// Runs the batches that are assigned to this worker, until the queue is closed.
    pub(crate) fn work(&self) {
        loop {
            let mut state = self.look_between(self.lock());
            while state.assigned.is_empty() && !state.closed {
                state = self.rest(state);
            }
            match state.assigned.pop_front() {
                Some(Assignment::Lead(lead)) => {
                    self.lead(state, lead);
                }
                Some(Assignment::Help(shape, thread, slot)) => {
                    drop(state);
                    self.help(shape, thread, slot);
                }
                None => return,
            }
        }
    }

    /// Declines all waiting requests, and has the workers end.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let mut left = state.take_out(|_| true);
        drop(state);
        self.assignment.notify_all();
        left.extend(
            self.job_queue
                .close()
                .into_iter()
                .map(|post| Owner::Job(post.completion)),
        );
        for owner in left {
            // `deliver` returns an answer only for a leader, whose request is not in the queue.
            drop(self.deliver(owner, Err(self.declined(Declined::ShutDown))));
        }
    }
}

/// Closes the queue and waits for its workers. Only for the process that started them.
pub(crate) fn stop<E: Executor>(queue: &Queue<E>) {
    queue.close();
    let threads = std::mem::take(&mut queue.lock().workers.threads);
    for thread in threads {
        // The last owner of the engine may be a worker's own callback.
        if thread.thread().id() != thread::current().id() {
            // A worker does not panic. If one did, it has ended.
            let _ = thread.join();
        }
    }
}
