//! Defects on purpose: each switches a bound off that keeps hostile clients from harming others,
//! and the test of peaks (`keyd/tests/daemon/peaks.rs`) must find each. With the feature
//! `fault-injection` the environment plants one: `LOCKSTEP_PLANT`. Anywhere else there are none,
//! and the compiler removes the code that asks.

/// A defect of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Accounts take no turns: the one that has asked for most is served first.
    NoTurns,
    /// A batch is as long as there are requests.
    LongBatches,
    /// All that is posted is taken, and stays when its client hangs up.
    KeptRequests,
    /// Every line is written into the log.
    EveryLine,
}

/// Whether the environment names this defect.
#[cfg(feature = "fault-injection")]
pub fn is_planted(defect: Defect) -> bool {
    use std::sync::LazyLock;
    static PLANTED: LazyLock<String> =
        LazyLock::new(|| std::env::var("LOCKSTEP_PLANT").unwrap_or_default());
    let name = match defect {
        Defect::NoTurns => "no-turns",
        Defect::LongBatches => "long-batches",
        Defect::KeptRequests => "kept-requests",
        Defect::EveryLine => "every-line",
    };
    *PLANTED == name
}

/// Nothing is planted.
#[cfg(not(feature = "fault-injection"))]
pub const fn is_planted(_: Defect) -> bool {
    false
}
