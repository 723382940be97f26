//! Leading: a thread that has a slot takes a batch, runs it, delivers the answers, and hands the
//! slot on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use lockstep_counters::{Fallback, Waits};

use super::state::{Assignment, Entry, Guard, Lead, Owner, Queue, Slot, State, ThreadWaiter};
use crate::completion::Turn;
use crate::declined::Declined;
use crate::executor::{Answer, Executor, Member};
use crate::fault::{LOST_SLOT, LOST_WORKER, is_lost};
use crate::policy::{PATIENCE, Strangers};
use crate::sync::{Arc, now, process_time, yield_now};

impl<E: Executor> Queue<E> {
    /// Takes a batch, runs it, delivers the answers, and hands the slot on. Returns the answer to
    /// the leader's own request; `None` for a worker, which has none.
    pub(super) fn lead<'a>(&'a self, state: Guard<'a, E>, lead: Lead<E>) -> Option<Answer<E>> {
        let Lead {
            shape,
            number,
            mut slot,
            own,
            thread,
        } = lead;
        let worker = own.is_none();
        let mut state = self.gather(state, shape);
        if !state.leaders.expects(number) {
            // The leader was given up before it had a batch.
            self.give_back(state, number, slot, worker);
            return own.map(|_| Err(self.declined(Declined::Late)));
        }
        let began = now();
        let waits = self.take(&mut state, shape, own, &mut slot, began, 0);
        let fill = slot.jobs.len();
        if fill == 0 {
            self.give_back(state, number, slot, worker);
            return None;
        }
        if fill == 1
            && let Some(thread) = thread
            && self.executor.declines_lone(shape)
        {
            slot.clear();
            // The guard is made before the slot is free, so the next leader counts this thread.
            let guard = self.guard(thread);
            self.give_back(state, number, slot, worker);
            return Some(Err(self.declined(Declined::Lone(guard))));
        }

        let passes = state.begin_batch(shape, number, began, &slot);
        self.hand_on(state, false);
        let own = self.run_and_deliver(shape, &mut slot, waits);

        let took = now() - began;
        let mut state = self.lock();
        state.end_batch(shape, number, fill, Some((took, passes)));
        self.give_back(state, number, slot, worker);
        own
    }

    /// Lets requests gather, where there are signs that more will come: yields the CPU to the
    /// threads that would bring them. Without such signs the leader does not yield, nor for some
    /// time after other processes have taken the CPU. A yield with nothing else to run returns at
    /// once, so an idle system pays nothing.
    fn gather<'a>(&'a self, mut state: Guard<'a, E>, shape: E::Shape) -> Guard<'a, E> {
        let mut seen = self.view(state.line(shape));
        if !self.policy.expects_company(&seen) || !state.line(shape).strangers.are_away() {
            return state;
        }
        let (mut quiet, mut began, mut strangers) = (0, None, None);
        for _ in 0..self.policy.yields() {
            drop(state);
            // The system adds up all threads, so the lock is free meanwhile.
            let &mut (since, used) = began.get_or_insert_with(|| (now(), process_time()));
            self.counters.yielded();
            yield_now();
            let came = Strangers::came(now() - since, seen.pass_time, || {
                Some(process_time()?.saturating_sub(used?))
            });
            strangers = came.or(strangers);
            state = self.lock();
            let next = self.view(state.line(shape));
            quiet = if next.waiting > seen.waiting {
                0
            } else {
                quiet + 1
            };
            seen = next;
            let is_vain = quiet == PATIENCE || came == Some(true);
            if is_vain || !self.policy.expects_company(&seen) {
                break;
            }
        }
        if let Some(came) = strangers {
            state.line(shape).strangers.note(came);
        }
        state
    }

    /// Moves a batch into the slot: the leader's own request, and the next ones. For each of the
    /// next ones, its account is charged `estimate` nanoseconds.
    pub(super) fn take(
        &self,
        state: &mut State<E>,
        shape: E::Shape,
        own: Option<Entry<E>>,
        slot: &mut Slot<E>,
        now: Instant,
        estimate: u64,
    ) -> Waits {
        let line = state.line(shape);
        let most = self.policy.share(&self.view(line));
        line.view.leaders -= 1;
        line.view.in_hand -= usize::from(own.is_some());
        let mut waits = Waits::default();
        let mut taken = own;
        while slot.jobs.len() < most {
            let next = taken.take();
            let Some(entry) = next.or_else(|| state.pop_wanted(shape, estimate, now)) else {
                break;
            };
            if let Some(since) = entry.since {
                waits.add(now - since);
            }
            slot.push(entry.request, entry.owner);
        }
        state.line(shape).view.last = slot.jobs.len();
        waits
    }

    /// Runs the slot's jobs, counts them, and gives every owner its answer; returns the leader's.
    pub(super) fn run_and_deliver(
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

    /// Runs the slot's jobs, and returns the number of operations that the lanes ran. After a
    /// panic, unanswered jobs are internal errors, and the memory is made anew. The module aborts
    /// on panic; tests do not.
    pub(super) fn run_batch(&self, shape: E::Shape, slot: &mut Slot<E>) -> usize {
        let Slot { memory, jobs, .. } = slot;
        let most = self.executor.batch(shape);
        let run = AssertUnwindSafe(|| {
            let memory = memory.get_or_insert_with(|| Box::new(self.executor.memory()));
            // One batch, unless a caller has gathered more requests.
            let batches = jobs.chunks_mut(most);
            batches
                .map(|jobs| self.executor.execute(shape, memory, jobs))
                .sum()
        });
        catch_unwind(run).unwrap_or_else(|_| {
            *memory = None;
            slot.jobs.len()
        })
    }

    pub(super) fn count(&self, shape: E::Shape, jobs: &[Member<E>], ran: usize) {
        let pass = self.executor.pass(shape);
        self.counters.batch(E::index(shape), jobs.len(), ran, pass);
        for job in jobs {
            match &job.answer {
                Some(Ok(_)) => {}
                Some(Err(failed)) => self.counters.fallback((*failed).into()),
                None => self.counters.fallback(Fallback::Internal),
            }
        }
    }

    /// Gives every owner its answer; returns the leader's.
    pub(super) fn deliver_all(&self, slot: &mut Slot<E>) -> Option<Answer<E>> {
        let mut own = None;
        for (job, owner) in slot.jobs.iter_mut().zip(slot.owners.drain(..)) {
            own = self.deliver(owner, job.take_answer()).or(own);
        }
        slot.jobs.clear();
        own
    }

    /// Gives an owner its answer. Returns the answer of the leader, which delivers to itself.
    pub(super) fn deliver(&self, owner: Owner<E>, answer: Answer<E>) -> Option<Answer<E>> {
        match owner {
            Owner::Leader => return Some(answer),
            // The answer is dropped if the thread has left.
            Owner::Thread(waiter) => _ = waiter.wake(Turn::Answer(answer)),
            Owner::Job(completion) => _ = completion.deliver(answer),
            Owner::Reply(_, reply) => reply.answer(answer),
        }
        None
    }

    /// Gives a leader's slot back, unless it has been replaced.
    pub(super) fn give_back<'a>(
        &'a self,
        mut state: Guard<'a, E>,
        number: u64,
        slot: Slot<E>,
        worker: bool,
    ) {
        let slot = state.leaders.end(number).then_some(slot);
        self.free(state, slot, worker);
    }

    /// Frees a slot, and a worker that had it.
    pub(super) fn free<'a>(&'a self, mut state: Guard<'a, E>, slot: Option<Slot<E>>, worker: bool) {
        state.free.extend(slot);
        if worker {
            state.workers.idle += 1;
        }
        self.hand_on(state, worker);
    }

    /// Hands free slots to the next leaders. Every change of the state ends here.
    ///
    /// A worker that calls this comes back for its next assignment anyway, so the first assignment
    /// needs no wake-up.
    pub(super) fn hand_on<'a>(&'a self, mut state: Guard<'a, E>, mut worker_comes: bool) {
        while let Some(call) = self.next_call(&mut state) {
            match call {
                Call::Worker if worker_comes => worker_comes = false,
                Call::Worker if is_lost(LOST_WORKER) => {}
                Call::Worker => self.assignment.notify_one(),
                Call::Thread(waiter, lead) => {
                    drop(state);
                    let woken = waiter.wake(Turn::Lead(lead));
                    state = self.lock();
                    if let Err(Turn::Lead(lead)) = woken
                        && !is_lost(LOST_SLOT)
                    {
                        state.take_back(lead);
                    }
                }
            }
        }
    }

    /// Assigns a free slot to a line whose batch starts now, if there are both.
    fn next_call(&self, state: &mut State<E>) -> Option<Call<E>> {
        if state.free.is_empty() {
            return None;
        }
        let worker_is_free = state.workers.idle > 0;
        let shape = state.next_shape(|line| {
            (line.view.threads > 0 || worker_is_free) && self.policy.starts(&self.view(line))
        })?;
        match state.pop_thread(shape) {
            Some((waiter, own)) => {
                let lead = state.lead(shape, Some(own), Some(waiter.thread));
                Some(Call::Thread(waiter, lead))
            }
            None => {
                state.workers.idle -= 1;
                let lead = state.lead(shape, None, None);
                state.assigned.push_back(Assignment::Lead(lead));
                Some(Call::Worker)
            }
        }
    }
}

/// The receiver of a slot.
enum Call<E: Executor> {
    Thread(Arc<ThreadWaiter<E>>, Lead<E>),
    Worker,
}
