//! Tools of the rig that watch the module while it runs: `lockstep-trace`, and servers under load.

use std::process::{Command, Stdio};

use xtask::command::{Failure, Outcome, build_as_tests, cannot_run, target_directory};
use xtask::work::{self, Ran, Share, Work};
use xtask::{dist, watched};

use crate::roots;

/// The tool that compares the instructions of the module for two secrets. The module is built as
/// the release is, with one feature more.
fn command() -> Outcome<Command> {
    let dist = dist::laboratory()?;
    build_as_tests(&["--bin", "lockstep-trace"])?;
    let mut command = Command::new(target_directory().join("debug/lockstep-trace"));
    command.env("LOCKSTEP_DIST", dist.directory);
    command.env("TRACE_EXECUTED", watched::traced()?);
    if let Some(libraries) = roots::libraries_at_hand()? {
        command.arg("--libraries").arg(libraries);
    }
    Ok(command)
}

/// The nightly check.
pub fn night(share: &Share) -> Outcome<Ran> {
    work::program(&mut command()?, share)
}

/// Most operations on the best lanes of this CPU, with four secrets each.
pub fn quick() -> Outcome<Ran> {
    let failure = "what the module executes depends on a secret, see above";
    passes_or_skips(
        command()?.arg("--quick"),
        failure,
        "this machine lacks what `trace` names above",
    )
}

/// Servers of the distribution under steady load.
pub fn soak(seconds: u64) -> Outcome<Ran> {
    let dist = dist::build()?;
    build_as_tests(&["--example", "soak"])?;
    let mut command = Command::new(target_directory().join("debug/examples/soak"));
    command.arg(seconds.to_string());
    command.env("LOCKSTEP_DIST", dist.directory);
    let ran = passes_or_skips(
        &mut command,
        "a server did not stand the load, see above",
        "no TLS server is installed: cargo xtask setup",
    )?;
    Ok(match ran {
        Ran::Worked(work) => Ran::Worked(Work {
            note: format!("{seconds} s of load"),
            ..work
        }),
        skipped => skipped,
    })
}

/// Runs a program that ends with status 77 where this machine lacks something.
fn passes_or_skips(command: &mut Command, failure: &str, missing: &str) -> Outcome<Ran> {
    let status = command.stdin(Stdio::null()).status();
    match status.map_err(|error| cannot_run(command, &error))?.code() {
        Some(0) => Ok(Ran::Worked(Work {
            cases: 1,
            ..Work::default()
        })),
        Some(77) => Ok(Ran::Skipped(missing.to_owned())),
        _ => Err(Failure::new(failure)),
    }
}
