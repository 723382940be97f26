//! The rule by which leaders stop to yield where other processes take the CPU.
//!
//! A yielded CPU is for the threads that bring requests. If a thread of another process gets it, it
//! may keep it for milliseconds. The process then has used less CPU time than the yields took, and
//! the leaders of the next batches do not yield.

use std::time::Duration;

/// Number of batches without yields after the first yields to strangers. It doubles each time.
const FIRST_BATCHES: u32 = 8;
/// Maximum number of times that it doubles.
const MOST_DOUBLINGS: u32 = 5;

/// The experience with the yields of a shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strangers {
    /// Number of batches that begin without yields.
    without: u32,
    /// Number of times that strangers took the CPU, less the times that they did not.
    met: u32,
}

impl Strangers {
    /// Returns whether the leader of the next batch may yield.
    pub(crate) fn are_away(&mut self) -> bool {
        let away = self.without == 0;
        self.without = self.without.saturating_sub(1);
        away
    }

    /// Returns whether a yield takes long enough to be worth a look at the process's CPU time.
    pub(crate) fn may_have_come(took: Duration, pass_time: Duration) -> bool {
        took > pass_time / 4
    }

    /// Notes yields that took a time, in which the process used some CPU time. Returns whether
    /// strangers have taken most of it.
    pub(crate) fn note(&mut self, took: Duration, used: Duration) -> bool {
        let came = used < took / 2;
        if came {
            self.without = FIRST_BATCHES << self.met;
            self.met = (self.met + 1).min(MOST_DOUBLINGS);
        } else {
            self.met = self.met.saturating_sub(1);
        }
        came
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(3);

    /// Returns the number of batches that begin without yields.
    fn without(strangers: &mut Strangers) -> usize {
        (0..).find(|_| strangers.are_away()).unwrap()
    }

    #[test]
    fn leaders_yield_less_and_less_to_strangers() {
        let mut strangers = Strangers::default();
        for expected in [8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(without(&mut strangers), 0);
            assert!(strangers.note(LONG, LONG / 3));
            assert_eq!(without(&mut strangers), expected);
        }
        for _ in 0..6 {
            assert!(!strangers.note(LONG, LONG));
            assert!(strangers.are_away());
        }
        assert!(strangers.note(LONG, Duration::ZERO));
        assert_eq!(without(&mut strangers), 8);
    }

    #[test]
    fn a_short_yield_needs_no_look() {
        let pass = Duration::from_millis(1);
        assert!(Strangers::may_have_come(pass, pass));
        assert!(!Strangers::may_have_come(pass / 5, pass));
    }
}
