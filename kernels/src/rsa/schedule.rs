//! The orders of work of a size, and the order that won the race (`race.rs`).

use core::sync::atomic::{AtomicU8, Ordering};

use super::size::Size;
use crate::schedule::Schedule;

impl Schedule {
    /// Returns the schedules that differ for numbers of a size, on lanes that have more than one.
    pub fn of(size: Size) -> &'static [Schedule] {
        match size {
            Size::Rsa1024 => &Self::ALL,
            Size::Rsa2048 => &[Schedule::Beside, Schedule::After],
            _ => &[Schedule::Beside],
        }
    }

    /// Returns the schedule that won a race for a size, in this process or in a process that it was
    /// forked from; `None` before the first race.
    pub fn chosen(size: Size) -> Option<Schedule> {
        match CHOSEN[size as usize].load(Ordering::Relaxed) {
            0 => None,
            number => Self::ALL.get(usize::from(number) - 1).copied(),
        }
    }

    /// Returns [`chosen`](Self::chosen), after a `race` if there was none.
    #[cfg_attr(not(vectors), expect(dead_code, reason = "there is one schedule only"))]
    pub(super) fn chosen_by(race: impl FnOnce() -> Schedule, size: Size) -> Schedule {
        Self::chosen(size).unwrap_or_else(|| {
            let number = race() as u8 + 1;
            // If threads race at the same time, all take the result of the race that ends first.
            let place = &CHOSEN[size as usize];
            let _ = place.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
            Self::chosen(size).unwrap_or_default()
        })
    }
}

/// For each size: zero, or one more than the place of a schedule in [`Schedule::ALL`].
static CHOSEN: [AtomicU8; Size::ALL.len()] = [const { AtomicU8::new(0) }; Size::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_schedule_of_each_size_is_the_default() {
        for size in Size::ALL {
            assert_eq!(Schedule::of(size)[0], Schedule::default());
        }
    }

    #[test]
    fn one_race_is_enough_and_the_first_to_end_counts() {
        // No batch asks for this size, which has one schedule.
        let size = Size::Rsa4096;
        assert_eq!(Schedule::chosen(size), None);
        let slow = || {
            let fast = Schedule::chosen_by(|| Schedule::AfterTurns, size);
            assert_eq!(fast, Schedule::AfterTurns);
            Schedule::After
        };
        assert_eq!(Schedule::chosen_by(slow, size), Schedule::AfterTurns);
        assert_eq!(Schedule::chosen(size), Some(Schedule::AfterTurns));
        let again = Schedule::chosen_by(|| unreachable!("a second race"), size);
        assert_eq!(again, Schedule::AfterTurns);
    }
}
