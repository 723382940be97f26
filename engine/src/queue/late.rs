//! Requests that are declined because they would wait too long, and leaders that are lost.
//!
//! A thread can leave an operation by `siglongjmp` out of a signal handler, or be stopped in it.
//! Then its slot is never given back. A thread leads one batch at a time. So when it calls again,
//! it counts as lost for its earlier batch, and a request for which it waited is not computed
//! ([`Queue::comes_again`]). Other threads that find all slots taken look for leaders that take
//! many times their expected time ([`Queue::give_up_lost`]). The slot of a lost leader is replaced.
//! If that leader does come back, its old slot is dropped.

use std::time::{Duration, Instant};

use super::leaders::Leader;
use super::state::{Owner, Queue, State, ThreadWaiter};
use crate::caller::ThreadId;
use crate::completion::Turn;
use crate::declined::Declined;
use crate::executor::Executor;
use crate::fault::{LOST_LEADER, is_lost};
use crate::sync::{Arc, now};

impl<E: Executor> Queue<E> {
    /// Returns whether a request that comes now would be served too late: no slot is free, and none
    /// is expected to become free within the time that the request may wait.
    pub(super) fn comes_too_late(&self, state: &mut State<E>, shape: E::Shape) -> bool {
        if !state.free.is_empty() {
            return false;
        }
        let view = self.view(state.line(shape));
        let Some(most) = self.policy.longest_expected_wait(&view) else {
            return false;
        };
        // If batches are short, one ends soon, and the clock need not be read.
        let is_short = |leader: &Leader<_>| {
            let view = &state.lines[leader.line].view;
            self.policy.time_left(view, leader.passes(), Duration::ZERO) <= most
        };
        if state.leaders.expected.iter().any(is_short) {
            return false;
        }
        let now = now();
        self.give_up_lost(state, now);
        state.free.is_empty() && self.next_slot(state, now) > most
    }

    /// Returns the time after which a slot is expected to be free.
    fn next_slot(&self, state: &State<E>, now: Instant) -> Duration {
        let leaders = state.leaders.expected.iter();
        let left = leaders.map(|leader| {
            let elapsed = leader.since.map_or(Duration::ZERO, |since| now - since);
            let view = &state.lines[leader.line].view;
            self.policy.time_left(view, leader.passes(), elapsed)
        });
        // If there is no leader, workers that help jobs have the slots. They give a slot back as
        // soon as others wait.
        let helped = match state.leaders.missing < self.policy.all_slots() {
            true => Duration::ZERO,
            false => Duration::MAX,
        };
        left.min().unwrap_or(helped)
    }

    /// Notes that a thread calls. If it still counts as leading or waiting, it has left its
    /// earlier call by `siglongjmp`.
    pub(super) fn comes_again(&self, state: &mut State<E>, thread: ThreadId) {
        self.elsewhere.forget(thread);
        self.attending.forget(thread);
        let is_its = |leader: &Leader<_>| leader.thread == Some(thread);
        while let Some(place) = state.leaders.expected.iter().position(is_its)
            && !is_lost(LOST_LEADER)
        {
            let followers = state.lose(place);
            self.send_on(followers);
        }
        if state.lines.iter().any(|line| line.view.threads > 0) {
            state.take_out(
                |entry| matches!(&entry.owner, Owner::Thread(waiter) if waiter.thread == thread),
            );
        }
    }

    /// Replaces the slots of leaders that take many times their expected time. First forgets
    /// requests whose threads have left by `siglongjmp`, which must not get such a slot.
    ///
    /// Such a leader may be slow, and not lost. Threads that wait for it leave by themselves,
    /// unless lanes are to serve all requests.
    pub(super) fn give_up_lost(&self, state: &mut State<E>, now: Instant) {
        state.forget_left(now);
        let mut place = 0;
        while place < state.leaders.expected.len() {
            let leader = &mut state.leaders.expected[place];
            let elapsed = now - *leader.since.get_or_insert(now);
            let view = &state.lines[leader.line].view;
            if !self.policy.gives_up(view, leader.passes(), elapsed) {
                place += 1;
                continue;
            }
            let followers = state.lose(place);
            if self.policy.waits_for_batch().is_some() {
                self.send_on(followers);
            }
        }
    }

    /// Wakes the threads that wait for the batch of a lost leader.
    fn send_on(&self, followers: Vec<Arc<ThreadWaiter<E>>>) {
        for follower in followers {
            let late = Turn::Answer(Err(Declined::Late));
            if follower.wake(late).is_ok() {
                self.counters.fallback(Declined::Late.fallback());
            }
        }
    }
}
