//! Other programs, run to their end.

use std::process::{Command, Stdio};

use lockstep_common::Failure;

/// Runs a command to its end; returns its standard output. A failure has the first line of its
/// standard error.
pub fn run(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot run {name}: {error}")))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let first = stderr
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it printed nothing");
    Err(Failure::new(format!(
        "{name} failed ({}): {first}",
        output.status
    )))
}
