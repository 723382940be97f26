//! Defects on purpose, for the models and for the hostile processes of the tests, which must find
//! each of them. With the feature `fault-injection` the environment plants one: `LOCKSTEP_PLANT`.
//! Anywhere else there are none, and the compiler removes the code that asks.

/// A defect of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// A taker that sleeps is not woken.
    SilentBell,
    /// The bell is looked at before the slot is added.
    BellBeforeBit,
    /// A taker's last look before it sleeps is not ordered after its announcement.
    CarelessLook,
    /// A waiting thread is not woken by its answer.
    SilentAnswer,
    /// An answer overwrites the state without a look at who waits.
    BlindAnswer,
    /// A slot is free again before its request is answered.
    EarlyFree,
    /// The daemon forgets that a slot is in flight only after it has answered.
    LateForgetting,
    /// A watcher wakes the thread that sleeps on all rings before it closes its gate.
    EarlyCall,
    /// The daemon takes a request of any length.
    UncheckedInput,
    /// A taker takes bits beyond the last slot.
    UncheckedSlot,
    /// The daemon takes a slot whose request is in flight.
    TakenTwice,
    /// The client takes an answer of any length.
    UncheckedOutput,
    /// A slot that was claimed is still free.
    ClaimedTwice,
    /// The daemon believes a length in the ring that it has not checked.
    #[cfg(feature = "fault-injection")]
    BelievedLength,
}

#[cfg(test)]
pub(crate) use planted::{is_planted, plant};

/// A defect is one of a thread's. All threads of a model run on the thread of its test.
#[cfg(test)]
mod planted {
    use std::cell::Cell;

    use super::Defect;

    thread_local!(static DEFECT: Cell<Option<Defect>> = const { Cell::new(None) });

    /// Gives this defect to the rings of this test.
    pub(crate) fn plant(defect: Defect) {
        DEFECT.set(Some(defect));
    }

    /// Whether the code that asks has this defect.
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

    /// Whether the environment names this defect.
    pub(crate) fn is_planted(defect: Defect) -> bool {
        static IS_PLANTED: LazyLock<bool> = LazyLock::new(|| {
            std::env::var("LOCKSTEP_PLANT").is_ok_and(|name| name == "believed-length")
        });
        defect == Defect::BelievedLength && *IS_PLANTED
    }
}

/// Nothing is planted.
#[cfg(not(any(feature = "fault-injection", test)))]
pub(crate) const fn is_planted(_: Defect) -> bool {
    false
}
