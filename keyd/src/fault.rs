//! Defects on purpose. Each disables a bound on hostile clients, and the test of peaks
//! (`keyd/tests/daemon/peaks.rs`) must find each. They are planted in the way of all others
//! (`ops/src/fault.rs`).

pub use lockstep_engine::plant_of_environment as plant;

/// Returns whether this defect is planted.
pub fn is_planted(defect: &str) -> bool {
    plant();
    lockstep_engine::is_planted(defect)
}

/// Takes all posted requests, and keeps them when their client hangs up.
pub const KEPT_REQUESTS: &str = "kept-requests";
/// Writes every line into the log.
pub const EVERY_LINE: &str = "every-line";
