//! In which order RSA does its work on the main lanes.
//!
//! Two makers' cores want different orders, by 11 to 15 % of RSA-1024 and RSA-2048. So there are
//! several, and the first batch of a size races them on the core that it runs on (`race.rs`). Why,
//! and which core wants which: `docs/decisions/0017-schedules.md`.

use core::sync::atomic::{AtomicU8, Ordering};

use super::size::Size;

/// An order of work, where numbers of a size have more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A reduction runs beside the last product of its column and reads n from memory; two passes
    /// of RSA-1024 take turns. Also that of sizes and lanes with one order only.
    #[default]
    Beside,
    /// A reduction follows the products of its column and has n in registers; a pass of RSA-1024
    /// follows the one before.
    After,
    /// A reduction follows the products of its column; two passes of RSA-1024 take turns.
    AfterTurns,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Schedule; 3] = [Schedule::Beside, Schedule::After, Schedule::AfterTurns];

    /// Those that differ for numbers of a size, on lanes that have more than one.
    pub fn of(size: Size) -> &'static [Schedule] {
        match size {
            Size::Rsa1024 => &Self::ALL,
            Size::Rsa2048 => &[Schedule::Beside, Schedule::After],
            Size::Rsa3072 | Size::Rsa4096 => &[Schedule::Beside],
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Beside => "beside",
            Schedule::After => "after",
            Schedule::AfterTurns => "after-turns",
        }
    }

    /// The one called `name`.
    pub fn from_name(name: &str) -> Option<Schedule> {
        Self::ALL
            .into_iter()
            .find(|schedule| schedule.name() == name)
    }

    /// Whether reductions follow products.
    #[cfg(vectors)]
    pub(crate) fn reduces_after(self) -> bool {
        self != Schedule::Beside
    }

    /// How many passes take turns, where `most` of them may.
    pub(super) fn at_once(self, most: usize) -> usize {
        match self {
            Schedule::After => 1,
            Schedule::Beside | Schedule::AfterTurns => most,
        }
    }

    /// The one that a race found to be the fastest for a size in this process, or in one that it
    /// was forked from; `None` before the first race.
    pub fn chosen(size: Size) -> Option<Schedule> {
        match CHOSEN[size as usize].load(Ordering::Relaxed) {
            0 => None,
            number => Self::ALL.get(usize::from(number) - 1).copied(),
        }
    }

    /// [`chosen`](Self::chosen), after a `race` if there was none.
    #[cfg_attr(not(vectors), expect(dead_code, reason = "there is one schedule only"))]
    pub(super) fn chosen_by(race: impl FnOnce() -> Schedule, size: Size) -> Schedule {
        Self::chosen(size).unwrap_or_else(|| {
            let number = race() as u8 + 1;
            // Threads that race at the same time all take the result of the one that ends first.
            let place = &CHOSEN[size as usize];
            let _ = place.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
            Self::chosen(size).unwrap_or_default()
        })
    }
}

/// By size: zero, or one more than the place of a schedule in [`Schedule::ALL`].
static CHOSEN: [AtomicU8; Size::ALL.len()] = [const { AtomicU8::new(0) }; Size::ALL.len()];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_names_and_places() {
        for (place, schedule) in Schedule::ALL.into_iter().enumerate() {
            assert_eq!(schedule as usize, place);
            assert_eq!(Schedule::from_name(schedule.name()), Some(schedule));
        }
        assert_eq!(Schedule::from_name("auto"), None);
        for size in Size::ALL {
            assert_eq!(Schedule::of(size)[0], Schedule::default());
        }
    }

    #[test]
    fn one_race_is_enough_and_the_first_to_end_counts() {
        // No batch asks for this size: it has one schedule.
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
