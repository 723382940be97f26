//! `lockstep devices`: starts `lockstep-bench devices`, which is installed beside this program.
//! This program, which administrators often run as root, loads no driver itself.

use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use lockstep_common::{Failure, Outcome};

/// Lists the GPUs and other devices that programs can use for whole arrays, by `lockstep-bench`
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// Show how many operations each does in a second, and from how many on it pays
    #[arg(long)]
    rates: bool,
}

const NOTES: &str = "\
Examples:
  lockstep devices
  lockstep devices --rates

Files:
  ~/.cache/lockstep    the rates that programs have measured, for each kind of device";

/// Runs the command. It returns only if the program cannot be started.
pub fn run(options: &Options) -> Outcome {
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::new(format!("this program has no path: {error}")))?;
    let program = own.with_file_name("lockstep-bench");
    let mut command = Command::new(&program);
    command.arg("devices");
    command.args(options.rates.then_some("--rates"));
    let error = command.exec();
    Err(
        Failure::new(format!("cannot start {}: {error}", program.display()))
            .remedy("install lockstep-bench beside this program"),
    )
}
