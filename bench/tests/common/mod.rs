//! What the tests of all commands share.

use std::process::Command;

#[path = "../../../common/testing.rs"]
mod testing;

pub use testing::{has_lanes, run};

/// The command with these arguments, in an environment without settings.
pub fn bench(arguments: &[&str]) -> Command {
    testing::command(env!("CARGO_BIN_EXE_lockstep-bench"), arguments)
}
