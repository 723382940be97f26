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

    /// Returns whether other processes have taken most of the time of yields. `None` if they were
    /// too short to tell, or the process's CPU time meanwhile, which `used` returns, is not known.
    pub(crate) fn came(
        took: Duration,
        pass_time: Duration,
        used: impl FnOnce() -> Option<Duration>,
    ) -> Option<bool> {
        if took <= pass_time / 4 {
            return None;
        }
        Some(used()? < took / 2)
    }

    /// Notes whether other processes have taken most of the time in which a leader yielded.
    pub(crate) fn note(&mut self, came: bool) {
        if came {
            self.without = FIRST_BATCHES << self.met;
            self.met = (self.met + 1).min(MOST_DOUBLINGS);
        } else {
            self.met = self.met.saturating_sub(1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the number of batches that begin without yields.
    fn without(strangers: &mut Strangers) -> usize {
        (0..).find(|_| strangers.are_away()).unwrap()
    }

    #[test]
    fn leaders_yield_less_and_less_to_strangers() {
        let mut strangers = Strangers::default();
        for expected in [8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(without(&mut strangers), 0);
            strangers.note(true);
            assert_eq!(without(&mut strangers), expected);
        }
        for _ in 0..6 {
            strangers.note(false);
            assert!(strangers.are_away());
        }
        strangers.note(true);
        assert_eq!(without(&mut strangers), 8);
    }

    #[test]
    fn strangers_have_come_if_the_process_used_less_than_half_of_a_long_time() {
        let ms = Duration::from_millis;
        let came = |took, used| Strangers::came(took, ms(4), || used);
        assert_eq!(came(ms(3), Some(ms(1))), Some(true));
        assert_eq!(came(ms(3), Some(ms(2))), Some(false));
        assert_eq!(came(ms(3), None), None);
        let too_short = Strangers::came(ms(1), ms(4), || panic!("it asks the system"));
        assert_eq!(too_short, None);
    }
}
