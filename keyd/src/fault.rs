//! Planted defects. Each disables a bound on hostile clients, and the test of the daemon's use of
//! resources (`keyd/tests/daemon/peaks.rs`) must find it. `ops/src/fault.rs` says how defects are
//! planted.

pub use lockstep_engine::{is_planted, plant_of_environment as plant};

/// Takes all posted requests, and keeps them when their client hangs up.
pub const KEPT_REQUESTS: &str = "kept-requests";
/// Writes every line into the log.
pub const EVERY_LINE: &str = "every-line";
