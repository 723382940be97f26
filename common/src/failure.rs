//! Failures: why a command could not run, and the remedy.

use std::fmt;
use std::process::ExitCode;

use crate::terminal::fit_for_terminal;

/// Result of a command: its exit status, or the reason why it could not run.
pub type Outcome = Result<ExitCode, Failure>;

/// Reason why a command could not run, and the remedy.
#[derive(Debug)]
pub struct Failure {
    /// The event.
    pub what: String,
    /// The remedy.
    pub remedy: Option<String>,
    /// Exit status of the program.
    pub status: u8,
}

impl Failure {
    /// Makes a failure with exit status 1.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            remedy: None,
            status: 1,
        }
    }

    /// Makes the failure of a wrong command line.
    pub fn usage(what: impl fmt::Display) -> Failure {
        Failure::new(what.to_string()).status(2)
    }

    /// Returns this failure with another exit status.
    pub fn status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    /// Returns this failure with a remedy.
    pub fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Prints the failure of a program's command, if it has one. Returns the status to exit with.
pub fn conclude(program: &str, outcome: Outcome) -> ExitCode {
    let failure = match outcome {
        Ok(status) => return status,
        Err(failure) => failure,
    };
    // Other users may have chosen names in the message.
    let shown = |text: &str| {
        let lines = text.split('\n').map(fit_for_terminal);
        lines.collect::<Vec<_>>().join("\n")
    };
    eprintln!("{program}: {}", shown(&failure.what));
    match failure.remedy {
        Some(remedy) => eprintln!("remedy: {}", shown(&remedy)),
        None if failure.status == 2 => eprintln!("remedy: {program} help"),
        None => {}
    }
    ExitCode::from(failure.status)
}
