//! Planted defects. The models and the hostile processes of the tests must find each. With the
//! feature `fault-injection` the environment variable `LOCKSTEP_PLANT` plants one. Other builds
//! have none, and the compiler removes the checks for them.

/// A defect of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// A sleeping taker is not woken.
    SilentBell,
    /// The bell is read before the slot is added.
    BellBeforeBit,
    /// A taker's last look before its sleep is not ordered after its announcement.
    CarelessLook,
    /// An answer does not wake its waiting thread.
    SilentAnswer,
    /// An answer overwrites the state without a look at the flag of a waiting thread.
    BlindAnswer,
    /// A slot becomes free before its request is answered.
    EarlyFree,
    /// The daemon forgets a slot in flight only after it has answered.
    LateForgetting,
    /// A watcher wakes the sleeping thread before it closes its gate.
    EarlyCall,
    /// The daemon takes a request of any length.
    UncheckedInput,
    /// A taker takes bits beyond the last slot.
    UncheckedSlot,
    /// The daemon takes a slot whose request is in flight.
    TakenTwice,
    /// The client takes an answer of any length.
    UncheckedOutput,
    /// A claimed slot is still free.
    ClaimedTwice,
    /// The daemon uses an unchecked length from the ring.
    #[cfg(feature = "fault-injection")]
    BelievedLength,
}

#[cfg(test)]
pub(crate) use planted::{is_planted, plant};

/// Each thread has its own defect. All threads of a model run on the thread of its test.
#[cfg(test)]
mod planted {
    use std::cell::Cell;

    use super::Defect;

    thread_local!(static DEFECT: Cell<Option<Defect>> = const { Cell::new(None) });

    /// Plants a defect in the rings of this test.
    pub(crate) fn plant(defect: Defect) {
        DEFECT.set(Some(defect));
    }

    /// Returns whether the defect is planted.
    pub(crate) fn is_planted(defect: Defect) -> bool {
        DEFECT.get() == Some(defect)
    }
}

#[cfg(all(feature = "fault-injection", not(test)))]
pub(crate) use environment::is_planted;

#[cfg(all(feature = "fault-injection", not(test)))]
mod environment {
    use std::sync::LazyLock;

    use super::Defect;

    /// Returns whether the environment names this defect.
    pub(crate) fn is_planted(defect: Defect) -> bool {
        static IS_PLANTED: LazyLock<bool> = LazyLock::new(|| {
            std::env::var("LOCKSTEP_PLANT").is_ok_and(|name| name == "believed-length")
        });
        defect == Defect::BelievedLength && *IS_PLANTED
    }
}

/// Returns false: nothing is planted.
#[cfg(not(any(feature = "fault-injection", test)))]
pub(crate) const fn is_planted(_: Defect) -> bool {
    false
}
