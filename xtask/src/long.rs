//! The program `nightly`, which has the long checks and all other commands that few people run. It
//! is built when it is needed.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::command::{Outcome, cannot_run, quietly, root, target_directory, without_own_variables};
use crate::work::{Ran, reported};

/// Its commands.
pub const COMMANDS: &[&str] = &[
    "bulk", "demo", "figures", "jobs", "ledger", "matrix", "nightly", "package", "prove",
    "release", "trust",
];

/// Replaces this process by the program, with these arguments and in the caller's directory.
pub fn run(arguments: &[&str]) -> Outcome {
    let mut run = cargo("run");
    let error = run.arg("--").args(arguments).exec();
    Err(cannot_run(&run, &error))
}

/// Runs the short form of a long check.
pub fn short(name: &str) -> Outcome<Ran> {
    reported(Command::new(built()?).args(["quick", name]))
}

/// The program, built once: a build beside another one of cargo's would wait for that.
fn built() -> Outcome<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut known = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(program) = known.as_ref() {
        return Ok(program.clone());
    }
    quietly(&mut cargo("build"))?;
    let program = target_directory().join("debug/nightly");
    Ok(known.insert(program).clone())
}

/// Cargo on the package, with the settings by which `cargo xtask` was built: what both programs
/// share is not built again.
fn cargo(subcommand: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([subcommand, "--quiet", "--package", "nightly"]);
    command
        .arg("--manifest-path")
        .arg(root().join("Cargo.toml"));
    without_own_variables(&mut command);
    command
}
