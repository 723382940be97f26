//! Defects of the queue that tests [plant](lockstep_ops::fault) and must notice. The models of loom
//! find the lost wake-ups and slots; the tests of the module and of the key daemon find others.

use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use lockstep_ops::fault::is_planted;
#[cfg(all(test, loom))]
pub(crate) use lockstep_ops::fault::plant;

/// Plants the defect that the environment names (`LOCKSTEP_PLANT`), if it names one, and does so
/// once.
pub fn plant_of_environment() {
    #[cfg(all(feature = "fault-injection", not(loom)))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            if let Ok(defect) = std::env::var("LOCKSTEP_PLANT") {
                lockstep_ops::fault::plant(defect.leak());
            }
        });
    }
}

/// A blocked thread does not learn that it has an answer, or is to lead.
pub(crate) const LOST_THREAD: &str = "lost-thread";
/// An idle worker does not learn that it has an assignment.
pub(crate) const LOST_WORKER: &str = "lost-worker";
/// An asynchronous job does not learn that it has an answer.
pub(crate) const LOST_JOB: &str = "lost-job";
/// The owner of a ticket may fall asleep after the check whether it sleeps and before the answer is
/// there. Then no thread wakes it.
pub(crate) const EARLY_LOOK: &str = "early-look";
/// A slot that was handed to a thread which has left is not taken back.
pub(crate) const LOST_SLOT: &str = "lost-slot";
/// A thread of a service does not learn that a long batch has begun.
pub(crate) const LOST_CALL: &str = "lost-call";
/// Accounts take no turns: the account with the most requests is served first.
pub(crate) const NO_TURNS: &str = "no-turns";
/// A batch of a service takes all requests of its shape.
pub(crate) const LONG_BATCHES: &str = "long-batches";
/// All requests of a source are taken at once, without a bound for each account.
pub(crate) const KEPT_REQUESTS: &str = "kept-requests";
/// The slot of a leader that has left by a jump is not replaced.
pub(crate) const LOST_LEADER: &str = "lost-leader";

/// Returns whether this wake-up is lost: in a model each one, and otherwise each sixteenth, so that
/// tests must also notice a loss after a good start.
pub(crate) fn is_lost(wake_up: &str) -> bool {
    static WAKE_UPS: AtomicUsize = AtomicUsize::new(0);
    const EVERY: usize = if cfg!(loom) { 1 } else { 16 };
    is_planted(wake_up) && WAKE_UPS.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
}
