//! In which order RSA does its work on the main lanes.
//!
//! Two makers' cores want different orders, by 11 to 15 % of RSA-1024 and RSA-2048. So there are
//! several, and the first batch of a size races them on the core that it runs on
//! (`rsa/race.rs`). Why, and which core wants which: `docs/decisions/operations.md`.

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
