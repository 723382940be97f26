//! Requests that are declined because they would wait too long, and leaders that are given up.
//!
//! A thread can leave an operation by `siglongjmp` out of a signal handler, or be stopped in it.
//! Then its slot is never given back. So a thread that finds all slots taken looks at their leaders
//! ([`Queue::give_up_lost`]), and replaces the slot of a leader that takes many times its time. If
//! that leader does come back, its old slot is dropped.

use std::time::{Duration, Instant};

use super::leaders::Leader;
use super::state::{Queue, Slot, State};
use crate::executor::Executor;
use crate::policy::MOST_LOST;
use crate::sync::now;

impl<E: Executor> Queue<E> {
    /// Whether a request that comes now would be served too late: no slot is free, and none is
    /// expected to be before the request should be elsewhere.
    pub(super) fn comes_too_late(&self, state: &mut State<E>, shape: E::Shape) -> bool {
        if !state.free.is_empty() {
            return false;
        }
        let view = self.view(state.line(shape));
        let Some(most) = self.policy.longest_expected_wait(&view) else {
            return false;
        };
        // Where batches are short, the clock need not be read to know that one ends soon.
        let is_short = |leader: &Leader| {
            let view = &state.lines[leader.line].view;
            self.policy.time_left(view, leader.passes(), Duration::ZERO) <= most
        };
        if state.leaders.lost < MOST_LOST && state.leaders.expected.iter().any(is_short) {
            return false;
        }
        let now = now();
        self.give_up_lost(state, now);
        state.free.is_empty() && self.next_slot(state, now) > most
    }

    /// In how long a slot is expected to be free.
    fn next_slot(&self, state: &State<E>, now: Instant) -> Duration {
        let leaders = state.leaders.expected.iter();
        let left = leaders.map(|leader| {
            let elapsed = leader.since.map_or(Duration::ZERO, |since| now - since);
            let view = &state.lines[leader.line].view;
            self.policy.time_left(view, leader.passes(), elapsed)
        });
        // Without a leader, workers help jobs, and give their slots back as soon as others wait.
        left.min().unwrap_or_default()
    }

    /// Replaces the slots of leaders that take many times their time, and forgets requests whose
    /// threads have left without a word, by `siglongjmp`: none of them is to have such a slot.
    pub(super) fn give_up_lost(&self, state: &mut State<E>, now: Instant) {
        state.forget_left(now);
        let mut place = 0;
        while place < state.leaders.expected.len() && state.leaders.lost < MOST_LOST {
            let leader = &mut state.leaders.expected[place];
            let elapsed = now - *leader.since.get_or_insert(now);
            let view = &mut state.lines[leader.line].view;
            if !self.policy.gives_up(view, leader.passes(), elapsed) {
                place += 1;
                continue;
            }
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
            state.leaders.expected.swap_remove(place);
            state.leaders.lost += 1;
            state.free.push(Slot::new());
        }
    }
}
