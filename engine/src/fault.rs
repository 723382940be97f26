//! Wake-ups that are lost on purpose: for tests only, which must notice each of these defects.
//!
//! They exist with the feature `fault-injection` and in the models of loom. Anywhere else nothing
//! is lost, and the compiler removes the questions.

/// A defect in the way in which sleepers are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LostWakeUp {
    /// A blocked thread does not learn that it has an answer, or is to lead.
    Thread = 1,
    /// An idle worker does not learn that it has an assignment.
    Worker,
    /// An asynchronous job does not learn that it has an answer.
    Job,
    /// The owner of a ticket may fall asleep between the look whether it sleeps and its answer.
    EarlyLook,
}

#[cfg(any(all(feature = "fault-injection", not(loom)), all(test, loom)))]
pub use planted::lose_wake_ups;
pub(crate) use planted::{is_lost, is_planted};

#[cfg(all(feature = "fault-injection", not(loom)))]
mod planted {
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use super::LostWakeUp;

    /// One in so many is lost: a program that begins well must be caught too.
    const EVERY: usize = 16;

    static DEFECT: AtomicU8 = AtomicU8::new(0);
    static WAKE_UPS: AtomicUsize = AtomicUsize::new(0);

    /// Has all engines of the process lose such wake-ups.
    pub fn lose_wake_ups(defect: LostWakeUp) {
        DEFECT.store(defect as u8, Ordering::Relaxed);
    }

    /// Whether the code that asks has this defect.
    pub(crate) fn is_planted(defect: LostWakeUp) -> bool {
        DEFECT.load(Ordering::Relaxed) == defect as u8
    }

    /// Whether this wake-up is lost.
    pub(crate) fn is_lost(wake_up: LostWakeUp) -> bool {
        is_planted(wake_up) && WAKE_UPS.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }
}

/// All threads of a model run on the thread of its test.
#[cfg(all(test, loom))]
mod planted {
    use std::cell::Cell;

    use super::LostWakeUp;

    thread_local!(static DEFECT: Cell<Option<LostWakeUp>> = const { Cell::new(None) });

    /// Has the models of this test lose such wake-ups.
    pub fn lose_wake_ups(defect: LostWakeUp) {
        DEFECT.set(Some(defect));
    }

    /// Whether the code that asks has this defect.
    pub(crate) fn is_planted(defect: LostWakeUp) -> bool {
        DEFECT.get() == Some(defect)
    }

    /// Whether this wake-up is lost: all are.
    pub(crate) fn is_lost(wake_up: LostWakeUp) -> bool {
        is_planted(wake_up)
    }
}

#[cfg(not(any(all(feature = "fault-injection", not(loom)), all(test, loom))))]
mod planted {
    use super::LostWakeUp;

    /// Nothing is planted.
    pub(crate) const fn is_planted(_: LostWakeUp) -> bool {
        false
    }

    /// Nothing is lost.
    pub(crate) const fn is_lost(_: LostWakeUp) -> bool {
        false
    }
}
