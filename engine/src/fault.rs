//! Defects on purpose: for tests only, which must notice each of them.
//!
//! They exist with the feature `fault-injection` and in the models of loom. Anywhere else there are
//! none, and the compiler removes the code that asks for them.

/// A defect of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Defect {
    /// A blocked thread does not learn that it has an answer, or is to lead.
    LostThread = 1,
    /// An idle worker does not learn that it has an assignment.
    LostWorker,
    /// An asynchronous job does not learn that it has an answer.
    LostJob,
    /// The owner of a ticket may fall asleep between the check whether it sleeps and its answer.
    EarlyLook,
    /// A slot that was handed to a thread which has left is not taken back.
    LostSlot,
    /// A thread of a service does not learn that a long batch has begun.
    LostCall,
    /// Accounts take no turns: the one that has asked for most is served first.
    NoTurns,
    /// A batch of a service is as long as there are requests.
    LongBatches,
    /// All that a source has is taken.
    KeptRequests,
    /// The slot of a leader that has left by a jump is not replaced.
    LostLeader,
}

#[cfg(any(all(feature = "fault-injection", not(loom)), all(test, loom)))]
pub use planted::plant;
pub(crate) use planted::{is_lost, is_planted};

#[cfg(all(feature = "fault-injection", not(loom)))]
mod planted {
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    use super::Defect;

    /// One in every `EVERY` is lost: a program that begins well must be caught too.
    const EVERY: usize = 16;

    static DEFECT: AtomicU8 = AtomicU8::new(0);
    static WAKE_UPS: AtomicUsize = AtomicUsize::new(0);

    /// Gives this defect to all engines of the process.
    pub fn plant(defect: Defect) {
        DEFECT.store(defect as u8, Ordering::Relaxed);
    }

    /// Whether the code that asks has this defect.
    pub(crate) fn is_planted(defect: Defect) -> bool {
        DEFECT.load(Ordering::Relaxed) == defect as u8
    }

    /// Whether this wake-up is lost.
    pub(crate) fn is_lost(wake_up: Defect) -> bool {
        is_planted(wake_up) && WAKE_UPS.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }
}

/// All threads of a model run on the thread of its test.
#[cfg(all(test, loom))]
mod planted {
    use std::cell::Cell;

    use super::Defect;

    thread_local!(static DEFECT: Cell<Option<Defect>> = const { Cell::new(None) });

    /// Gives this defect to the models of this test.
    pub fn plant(defect: Defect) {
        DEFECT.set(Some(defect));
    }

    /// Whether the code that asks has this defect.
    pub(crate) fn is_planted(defect: Defect) -> bool {
        DEFECT.get() == Some(defect)
    }

    /// Whether this wake-up is lost: all are.
    pub(crate) fn is_lost(wake_up: Defect) -> bool {
        is_planted(wake_up)
    }
}

#[cfg(not(any(all(feature = "fault-injection", not(loom)), all(test, loom))))]
mod planted {
    use super::Defect;

    /// Nothing is planted.
    pub(crate) const fn is_planted(_: Defect) -> bool {
        false
    }

    /// Nothing is lost.
    pub(crate) const fn is_lost(_: Defect) -> bool {
        false
    }
}
