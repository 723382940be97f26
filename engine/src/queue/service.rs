//! Threads that serve the requests of a source, as the key daemon's do.
//!
//! They are no workers: each collects requests itself, and no thread hands a batch to it. Among the
//! threads that have a slot, one at a time *collects*: it takes new requests, and waits at the
//! source while no batch is ready. With a batch it leaves to compute, and another thread with a
//! slot collects. The thread that has computed answers itself.
//!
//! A batch is not interrupted, and other accounts wait for its end, so its time is bounded
//! (`LONGEST_BATCH` in `policy.rs`). A single pass may take longer. While such a long batch runs,
//! one more slot is in use, for shorter batches. Otherwise that slot stays free.

use std::time::Duration;

use lockstep_counters::Waits;

use super::fair::Account;
use super::reply::Reply;
use super::state::{Entry, Guard, Owner, Queue, Slot, State};
use crate::executor::Executor;
use crate::fault::{LOST_CALL, is_lost};
use crate::policy::{GLANCE, Sharing};
use crate::sync::{Mutex, cpu_time, lock, now, wait};

#[cfg(test)]
mod fake;
#[cfg(all(test, loom))]
pub(super) mod models;
#[cfg(all(test, not(loom)))]
mod tests;

/// A source of requests.
pub trait Source: Send {
    /// Has new requests [enter](crate::Engine::enter) the engine. After a call with `ends` the
    /// source brings no more.
    fn collect(&mut self, ends: bool);

    /// Returns the number of senders that have sent requests recently.
    fn company(&self) -> usize;

    /// Waits until a request comes, or until a batch has ended since the last wait.
    fn wait(&mut self);
}

/// The result of one look for new requests of an account.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Number of requests found, refused ones among them.
    pub found: usize,
    /// Time that the look took.
    pub took: Duration,
}

/// A batch that a thread has taken.
struct Batch<E: Executor> {
    shape: E::Shape,
    /// Its number among the leaders.
    number: u64,
    slot: Slot<E>,
    waits: Waits,
    /// Charge of each request, in nanoseconds.
    estimate: u64,
    is_long: bool,
}

impl<E: Executor> Queue<E> {
    /// Serves the requests of the source, until the queue is to [end](Self::end_service). After
    /// each batch it calls `served`, which ends the wait at the source: requests of this shape may
    /// have gathered meanwhile.
    pub(crate) fn serve_from(&self, source: &Mutex<impl Source>, served: &dyn Fn(E::Shape)) {
        loop {
            let slot = self.wait_for_slot();
            let Some(batch) = self.next_batch(slot, source) else {
                return;
            };
            let shape = batch.shape;
            self.serve_batch(batch);
            served(shape);
        }
    }

    /// Ends the threads once they have served all requests of their source. The caller ends the
    /// wait at the source.
    pub(crate) fn end_service(&self) {
        self.lock().ends = true;
        self.assignment.notify_all();
    }

    /// Waits until there is a slot for this thread.
    fn wait_for_slot(&self) -> Slot<E> {
        let mut state = self.lock();
        loop {
            let spare = match state.ends {
                true => 0,
                false => self.policy.spare_slots(state.long),
            };
            if state.free.len() > spare
                && let Some(slot) = state.free.pop()
            {
                return slot;
            }
            state = wait(&self.assignment, state);
        }
    }

    /// Collects until there is a batch; `None` at the end of the service.
    fn next_batch(&self, slot: Slot<E>, source: &Mutex<impl Source>) -> Option<Batch<E>> {
        let mut source = lock(source);
        loop {
            let ends = self.lock().ends;
            source.collect(ends);
            let mut state = self.lock();
            if let Some(shape) = self.ready(&state) {
                if !ends {
                    state = self.sleep_for_company(state, shape, &mut *source);
                }
                // Requests of another shape may come first by now.
                if let Some(shape) = self.ready(&state) {
                    return Some(self.take_batch(state, shape, slot));
                }
            }
            if ends && state.turns.total() == 0 {
                state.free.push(slot);
                drop(state);
                // There may be more threads than slots.
                self.assignment.notify_all();
                return None;
            }
            drop(state);
            source.wait();
        }
    }

    /// Returns the shape whose turn it is, among those of which a batch may start.
    fn ready(&self, state: &State<E>) -> Option<E::Shape> {
        state.next_shape(|line| self.policy.may_start(&self.view(line), state.long))
    }

    /// Waits for requests of a shape that are likely to come. The wait uses no CPU time. Requests
    /// of another shape end it. If only one sender is active, does not wait.
    fn sleep_for_company<'a>(
        &'a self,
        mut state: Guard<'a, E>,
        shape: E::Shape,
        source: &mut impl Source,
    ) -> Guard<'a, E> {
        if self.executor.sharing(shape) != Sharing::Always {
            return state;
        }
        let can_wait = |entry: &Entry<E>| match &entry.owner {
            Owner::Reply(_, reply) => reply.can_wait(),
            Owner::Leader | Owner::Thread(_) | Owner::Job(_) => false,
        };
        let all_can_wait = state.turns.of_shape(E::index(shape)).all(can_wait);
        let line = state.line(shape);
        let (view, pace) = (line.view, &line.pace);
        let time = self.policy.wait_for_company(&view, pace, all_can_wait);
        if time < GLANCE {
            return state;
        }
        let expected = source.company().min(view.pass);
        let end = now() + time;
        loop {
            let waiting = state.line(shape).view.waiting;
            let left = end.saturating_duration_since(now());
            if waiting < state.turns.total() || waiting >= expected || left < GLANCE {
                return state;
            }
            drop(state);
            // The thread does not sleep at the source, where each request would wake it.
            std::thread::sleep(GLANCE);
            source.collect(false);
            state = self.lock();
        }
    }

    /// Takes a batch of a shape for a thread with this slot.
    fn take_batch(&self, mut state: Guard<'_, E>, shape: E::Shape, mut slot: Slot<E>) -> Batch<E> {
        let began = now();
        let view = &mut state.line(shape).view;
        view.leaders += 1;
        let (estimate, is_long) = (self.policy.estimate(view), self.policy.is_long(view));
        state.turns.begin_batch(E::index(shape));
        let waits = self.take(&mut state, shape, None, &mut slot, began, estimate);
        let number = state.leaders.begin(E::index(shape), false, None);
        state.begin_batch(shape, number, began, &slot);
        if is_long {
            state.long += 1;
            drop(state);
            if !is_lost(LOST_CALL) {
                // Another thread may now use the spare slot for requests that come meanwhile.
                self.assignment.notify_one();
            }
        }
        Batch {
            shape,
            number,
            slot,
            waits,
            estimate,
            is_long,
        }
    }

    /// Computes a batch, answers it, and charges the accounts the time that it has taken.
    fn serve_batch(&self, batch: Batch<E>) {
        let Batch {
            shape,
            number,
            mut slot,
            waits,
            estimate,
            is_long,
        } = batch;
        let taken = slot.jobs.len();
        let (fit, mut bills) = refuse_unfit(&mut slot);
        let mut passes = None;
        if fit > 0 {
            let before = cpu_time();
            self.run_and_deliver(shape, &mut slot, waits);
            // To answer may cost as much as to compute: each answer may wake a thread.
            let took = cpu_time().saturating_sub(before);
            let each = took / fit as u32;
            let fit = bills.iter_mut().filter(|bill| bill.is_fit);
            fit.for_each(|bill| bill.took += each);
            passes = Some(took);
        }
        let mut state = self.lock();
        for bill in bills {
            let took = i64::try_from(bill.took.as_nanos()).unwrap_or(i64::MAX);
            state.turns.settle(bill.account, took - estimate as i64);
        }
        let pass = state.line(shape).view.pass;
        let passes = passes.map(|took| (took, fit.div_ceil(pass)));
        state.end_batch(shape, number, taken, passes);
        state.long -= usize::from(is_long);
        self.give_back(state, number, slot, false);
    }

    /// Begins a round of looks, in each of which some requests of an account may enter.
    pub(crate) fn begin_round(&self) {
        self.lock().turns.begin_round(now());
    }

    /// Returns the number of requests of an account that may enter now.
    pub(crate) fn room(&self, account: Account) -> usize {
        self.lock().turns.room(account)
    }

    /// Returns the accounts whose next request may enter only after an earlier one is served.
    pub(crate) fn full_accounts(&self) -> Vec<Account> {
        self.lock().turns.full().collect()
    }

    /// Adds the requests of an account that a look has found.
    pub(crate) fn enter(
        &self,
        account: Account,
        requests: impl IntoIterator<Item = (E::Shape, E::Request, Box<dyn Reply<E::Response>>)>,
        look: Look,
    ) {
        let mut state = self.lock();
        let now = now();
        for (shape, request, reply) in requests {
            state.line(shape).pace.note(now);
            let entry = state.entry(request, Owner::Reply(account, reply));
            let since = Some(now);
            state.push(shape, Entry { since, ..entry }, now);
        }
        let Look { found, took } = look;
        state.turns.charge_look(account, found, took, now);
    }

    /// Drops the requests whose answers would not be seen.
    pub(crate) fn forget_gone(&self) {
        let gone = self.lock().take_out(|entry| match &entry.owner {
            Owner::Reply(_, reply) => reply.is_gone(),
            Owner::Leader | Owner::Thread(_) | Owner::Job(_) => false,
        });
        drop(gone);
    }

    /// Returns the number of threads that serve at a time.
    pub(crate) fn slots(&self) -> usize {
        self.policy.slots
    }

    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().turns.total()
    }
}

/// Charge of an account for a request.
struct Bill {
    account: Account,
    is_fit: bool,
    took: Duration,
}

/// Refuses the requests that are not to be computed, and drops those whose answers would not be
/// seen. Returns the number of the others, and the time that was spent on each request.
fn refuse_unfit<E: Executor>(slot: &mut Slot<E>) -> (usize, Vec<Bill>) {
    let mut bills = Vec::with_capacity(slot.jobs.len());
    let jobs = std::mem::take(&mut slot.jobs);
    let owners = std::mem::take(&mut slot.owners);
    let mut time = now();
    for (job, owner) in jobs.into_iter().zip(owners) {
        let Owner::Reply(account, mut reply) = owner else {
            slot.push(job.request, owner);
            continue;
        };
        let is_gone = reply.is_gone();
        let is_fit = !is_gone && reply.is_fit();
        let before = std::mem::replace(&mut time, now());
        bills.push(Bill {
            account,
            is_fit,
            took: match is_gone {
                true => Duration::ZERO,
                false => time - before,
            },
        });
        match is_fit {
            true => slot.push(job.request, Owner::Reply(account, reply)),
            false if is_gone => drop(reply),
            false => reply.refuse(),
        }
    }
    (slot.jobs.len(), bills)
}
