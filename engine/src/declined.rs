//! Reason why the lanes did not serve a request.

use std::fmt;

use lockstep_counters::Fallback;
use lockstep_ops::Failed;

use crate::busy::Busy;

/// Reason why the lanes did not serve a request. The engine has counted it already; the caller asks
/// OpenSSL's own implementation instead.
#[derive(Debug)]
pub enum Declined {
    /// The request is one of the first of a process, or the first one with a key. To prepare the
    /// lanes takes longer than OpenSSL's own implementation does.
    First,
    /// The request was computed, or begun, and has no result.
    Failed(Failed),
    /// The request is alone and OpenSSL's own implementation is faster for it. Keep the guard alive
    /// while it computes.
    Lone(StockGuard),
    /// `max_async` submitted requests have not been taken yet.
    QueueFull,
    /// No worker thread runs and none could be started.
    NoWorkers,
    /// The calling thread has too little stack for a kernel, and there was no memory for more.
    NoStack,
    /// This machine has no usable lanes, or the configuration turns them off.
    NoBackend,
    /// OpenSSL's own implementation is about as fast as this machine's lanes, or faster, however
    /// many requests there are. On AVX2, RSA is computed on words in place of lanes.
    SlowLanes,
    /// The lanes of this machine have no kernels for such a request.
    NoKernel,
    /// The lanes were expected to serve it too late, or did not serve it in time (`longest_wait`
    /// and `longest_expected_wait` in `policy.rs`).
    Late,
    /// The calling thread has a lower priority than its process: as a leader it would hold up
    /// threads that have a higher one.
    LowPriority,
    /// The engine was dropped before the request ran.
    ShutDown,
}

impl Declined {
    /// Returns the reason, for comparing and counting.
    pub fn fallback(&self) -> Fallback {
        match self {
            Declined::First => Fallback::First,
            Declined::Failed(failed) => (*failed).into(),
            Declined::Lone(_) => Fallback::Lone,
            Declined::QueueFull => Fallback::QueueFull,
            Declined::NoWorkers => Fallback::NoWorkers,
            Declined::NoStack => Fallback::NoStack,
            Declined::NoBackend => Fallback::NoBackend,
            Declined::SlowLanes => Fallback::SlowLanes,
            Declined::NoKernel => Fallback::NoKernel,
            Declined::Late => Fallback::Late,
            Declined::LowPriority => Fallback::LowPriority,
            Declined::ShutDown => Fallback::ShutDown,
        }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fallback().description())
    }
}

impl std::error::Error for Declined {}

impl From<Failed> for Declined {
    fn from(failed: Failed) -> Declined {
        Declined::Failed(failed)
    }
}

/// Counts a thread that computes with OpenSSL's own implementation outside of the engine's slots.
///
/// Threads that all compute with OpenSSL would never meet in the queue, however many there are.
/// While this guard lives, the engine counts its thread as one that keeps a CPU busy, and gathers
/// requests once there are more such threads than CPUs.
#[derive(Debug)]
pub struct StockGuard {
    _busy: Busy,
}

impl StockGuard {
    pub(crate) fn new(busy: Busy) -> StockGuard {
        StockGuard { _busy: busy }
    }
}
