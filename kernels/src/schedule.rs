//! The order in which RSA does its work on the main lanes.
//!
//! The orders differ by 11 to 15 % for RSA-1024 and RSA-2048, and Intel's and AMD's cores are
//! fastest with different ones. So there are several, and the first batch of a size races them on
//! the core that it runs on (`rsa/race.rs`). The reasons, and the best order of each core:
//! `docs/decisions/operations.md`.

/// An order of work, for the sizes that have more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A reduction runs beside the last product of its column and reads n from memory; two passes
    /// of RSA-1024 take turns. Sizes and lanes with only one order use this one.
    #[default]
    Beside,
    /// A reduction follows the products of its column and has n in registers; two passes of
    /// RSA-1024 run one after the other.
    After,
    /// A reduction follows the products of its column; two passes of RSA-1024 take turns.
    AfterTurns,
}

impl Schedule {
    /// All schedules.
    pub const ALL: [Schedule; 3] = [Schedule::Beside, Schedule::After, Schedule::AfterTurns];

    /// Returns the schedule's name.
    pub fn name(self) -> &'static str {
        match self {
            Schedule::Beside => "beside",
            Schedule::After => "after",
            Schedule::AfterTurns => "after-turns",
        }
    }

    /// Returns the schedule called `name`.
    pub fn from_name(name: &str) -> Option<Schedule> {
        Self::ALL
            .into_iter()
            .find(|schedule| schedule.name() == name)
    }

    /// Returns whether reductions follow products.
    #[cfg(vectors)]
    pub(crate) fn reduces_after(self) -> bool {
        self != Schedule::Beside
    }

    /// Returns the number of passes that take turns, where at most `most` may.
    pub(crate) fn at_once(self, most: usize) -> usize {
        match self {
            Schedule::After => 1,
            Schedule::Beside | Schedule::AfterTurns => most,
        }
    }
}

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
    }
}
