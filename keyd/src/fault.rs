//! Defects on purpose: each switches a bound off that keeps hostile clients from harming others,
//! and the test of peaks (`keyd/tests/daemon/peaks.rs`) must find each. With the feature
//! `fault-injection` the environment plants one: `LOCKSTEP_PLANT`. Anywhere else there are none,
//! and the compiler removes the code that asks.

/// A defect of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// All that is posted is taken, and stays when its client hangs up.
    KeptRequests,
    /// Every line is written into the log.
    EveryLine,
}

/// What the environment names.
#[cfg(feature = "fault-injection")]
static PLANTED: std::sync::LazyLock<String> =
    std::sync::LazyLock::new(|| std::env::var("LOCKSTEP_PLANT").unwrap_or_default());

/// Whether the environment names this defect.
#[cfg(feature = "fault-injection")]
pub fn is_planted(defect: Defect) -> bool {
    let name = match defect {
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

/// Plants the defects of the engine's queue that the environment names.
#[cfg(feature = "fault-injection")]
pub fn plant() {
    use lockstep_engine::Defect;
    let defect = match PLANTED.as_str() {
        "no-turns" => Defect::NoTurns,
        "long-batches" => Defect::LongBatches,
        "kept-requests" => Defect::KeptRequests,
        _ => return,
    };
    lockstep_engine::plant(defect);
}

/// Nothing is planted.
#[cfg(not(feature = "fault-injection"))]
pub const fn plant() {}
