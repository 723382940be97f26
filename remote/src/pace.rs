//! When a thread that waits for an answer looks whether it is there.
//!
//! To wake a thread takes 20 to 50 µs where the CPU that it slept on must be started again, as
//! idle virtual ones must; a thread that is awake when the answer comes saves that time. So it
//! sleeps for a little less than the last request for the key took the daemon, by the daemon's
//! own account, and then looks again and again for a moment. That pays where the daemon computes
//! at once and on another CPU. Where looks are in vain, threads sleep until they are woken, and
//! try again later. They never look for what is computed sooner than a thread is woken.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use lockstep_ring::Patience;

use crate::room::LOOK_EVERY;

/// A thread looks for so long: as long as the ring lets it.
pub(crate) const LOOK: Duration = Patience::MOST_SPIN;
/// How long before the daemon is done the sleep ends by the clock, at first and at most, in
/// microseconds. A thread is awake some time after that: up to 50 µs later because Linux gathers
/// timers, and where the CPU must be started, another 50 µs later.
const FIRST_LEAD: u32 = 100;
const LONGEST_LEAD: u32 = 200;
/// How much longer it gets by a sleep that was too long, and shorter by one that was too short.
const STEP: u32 = 8;
/// So many looks that were in vain are forgiven, at most, for those before them that were not.
const MOST_CREDIT: i32 = 4;
/// So many waits are without a look after one in vain.
const REST: i32 = 32;

/// What the requests for one key have taught. Threads share it, and what one has learned may be
/// lost to another: it decides about time only.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What the last request took of the daemon's CPU time, in nanoseconds; 0 before there was one.
    cost: AtomicU32,
    /// How long before the daemon is done the sleep ends, in microseconds.
    lead: AtomicU32,
    /// How many looks in vain are forgiven; below zero, how many waits are without a look.
    credit: AtomicI32,
}

/// When an answer came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// While the thread slept.
    Early,
    /// While it looked.
    InTime,
    /// Later.
    Late,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            cost: AtomicU32::new(0),
            lead: AtomicU32::new(FIRST_LEAD),
            credit: AtomicI32::new(0),
        }
    }

    /// How long to sleep before a look; None for a wait without a look.
    pub(crate) fn nap(&self) -> Option<Duration> {
        let credit = self.credit.load(Relaxed);
        if credit < 0 {
            self.credit.store(credit + 1, Relaxed);
            return None;
        }
        let cost = Duration::from_nanos(self.cost.load(Relaxed).into());
        let lead = Duration::from_micros(self.lead.load(Relaxed).into());
        let nap = cost.checked_sub(lead)?;
        // Beside what takes longer, a wake-up is nothing.
        (nap < LOOK_EVERY).then_some(nap)
    }

    /// Learns what an answer says of its cost: 0 if it says nothing.
    pub(crate) fn learn_cost(&self, nanoseconds: u32) {
        if nanoseconds > 0 {
            self.cost.store(nanoseconds, Relaxed);
        }
    }

    /// Learns when an answer came that was looked for.
    pub(crate) fn learn(&self, came: Came) {
        let lead = self.lead.load(Relaxed);
        let lead = match came {
            Came::Early => (lead + STEP).min(LONGEST_LEAD),
            // The shorter, the less time goes into looks.
            Came::InTime => lead.saturating_sub(1),
            Came::Late => lead.saturating_sub(STEP),
        };
        self.lead.store(lead, Relaxed);
        let credit = self.credit.load(Relaxed);
        let credit = match came {
            Came::Early => credit,
            Came::InTime => (credit + 1).min(MOST_CREDIT),
            Came::Late if credit > 0 => credit - 1,
            Came::Late => -REST,
        };
        self.credit.store(credit, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(cost: Duration) -> Pace {
        let pace = Pace::new();
        pace.learn_cost(cost.as_nanos() as u32);
        pace
    }

    fn microseconds(pace: &Pace) -> Option<u128> {
        pace.nap().map(|nap| nap.as_micros())
    }

    #[test]
    fn a_nap_ends_before_the_answer_comes() {
        assert_eq!(Pace::new().nap(), None, "nothing is known yet");
        let pace = pace(Duration::from_micros(280));
        assert_eq!(microseconds(&pace), Some(180));
        pace.learn_cost(0);
        assert_eq!(microseconds(&pace), Some(180));
        pace.learn_cost(12_000);
        assert_eq!(microseconds(&pace), None, "too short for a nap");
        pace.learn_cost(u32::MAX);
        assert_eq!(microseconds(&pace), None, "too long for a look");
        let longest = LOOK_EVERY.as_nanos() as u32 + 1000 * FIRST_LEAD;
        pace.learn_cost(longest - 1);
        assert_eq!(microseconds(&pace), Some(3999));
        pace.learn_cost(longest);
        assert_eq!(microseconds(&pace), None, "a thread looks as often anyway");
    }

    #[test]
    fn a_nap_gets_as_long_as_it_can_be() {
        let pace = pace(Duration::from_micros(280));
        pace.learn(Came::Early);
        assert_eq!(microseconds(&pace), Some(172));
        for _ in 0..8 {
            pace.learn(Came::InTime);
        }
        assert_eq!(microseconds(&pace), Some(180));
        pace.learn(Came::Late);
        assert_eq!(microseconds(&pace), Some(188));
        for _ in 0..100 {
            pace.learn(Came::Early);
        }
        assert_eq!(microseconds(&pace), Some(80));
        for _ in 0..1000 {
            pace.learn(Came::InTime);
        }
        assert_eq!(microseconds(&pace), Some(280));
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let pace = pace(Duration::from_micros(280));
        let mut looks = 0;
        for _ in 0..10 * (REST + 1) {
            if pace.nap().is_some() {
                looks += 1;
                pace.learn(Came::Late);
            }
        }
        assert_eq!(looks, 10);
    }

    #[test]
    fn looks_that_find_answers_go_on() {
        let pace = pace(Duration::from_micros(280));
        for _ in 0..100 {
            assert!(pace.nap().is_some());
            pace.learn(Came::InTime);
            pace.learn(Came::Early);
        }
        for forgiven in 0..=MOST_CREDIT {
            assert!(pace.nap().is_some(), "{forgiven}");
            pace.learn(Came::Late);
        }
        assert_eq!(pace.nap(), None);
    }
}
