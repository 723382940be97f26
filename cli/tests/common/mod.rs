//! Helpers of the tests of all commands.

use std::process::Command;

pub use lockstep_testkit::run;

/// The command with these arguments, in an environment without settings.
pub fn lockstep(arguments: &[&str]) -> Command {
    lockstep_testkit::command(env!("CARGO_BIN_EXE_lockstep"), arguments)
}

/// Whether RSA runs on lanes here.
pub fn has_lanes() -> bool {
    let best = lockstep_engine::Backend::best_hardware();
    best.is_some_and(|backend| !backend.is_avx2())
}
