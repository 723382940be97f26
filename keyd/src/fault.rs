//! Planted defects. Each disables a limit that protects clients from hostile ones, and the test of
//! peaks (`keyd/tests/daemon/peaks.rs`) must notice each. With the feature `fault-injection` the
//! environment variable `LOCKSTEP_PLANT` plants one. Other builds have none, and the compiler
//! removes the checks for them.

/// Takes all posted requests, and keeps them when their client hangs up.
pub const KEPT_REQUESTS: &str = "kept-requests";
/// Writes every line into the log.
pub const EVERY_LINE: &str = "every-line";

/// Returns whether the environment names this defect.
pub fn is_planted(defect: &str) -> bool {
    static PLANTED: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("LOCKSTEP_PLANT").unwrap_or_default());
    cfg!(feature = "fault-injection") && *PLANTED == defect
}

/// Plants the defect of the engine's queue that the environment names.
pub fn plant() {
    #[cfg(feature = "fault-injection")]
    for (name, defect) in [
        ("no-turns", lockstep_engine::Defect::NoTurns),
        ("long-batches", lockstep_engine::Defect::LongBatches),
        (KEPT_REQUESTS, lockstep_engine::Defect::KeptRequests),
    ] {
        if is_planted(name) {
            lockstep_engine::plant(defect);
        }
    }
}
