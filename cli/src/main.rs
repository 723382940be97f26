//! The `lockstep` command: measures the lanes and servers that use them, says why they are not in
//! use, shows live counters, and has servers load the module.
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod configuration;
mod doctor;
mod effective;
mod handshakes;
mod install;
mod json;
mod module_file;
mod places;
mod probe;
mod progress;
mod scratch;
mod speed;
mod stat;
mod stock;
mod warnings;

use std::fmt;
use std::process::ExitCode;

const HELP: &str = "\
Public-key operations on vector lanes, through OpenSSL.

Usage: lockstep <COMMAND> [OPTIONS]

Commands:
  speed     compare stock libcrypto and lockstep on this machine
  handshakes
            put real TLS servers under load, without and with lockstep
  doctor    say whether programs that use OpenSSL sign on lanes, and if not, why
  stat      show the counters of running processes
  configuration
            print an openssl.cnf that loads the module, for the one that the system has
  install   have a server of the distribution load the module; `uninstall` undoes it
  help      this text; `lockstep <COMMAND> --help` for the options of a command

Options:
  -V, --version
";

/// What a command returns: whether all is well, or why it could not run.
type Outcome = Result<ExitCode, Failure>;

/// Why a command could not run, and what to do about it.
#[derive(Debug)]
struct Failure {
    what: String,
    remedy: Option<String>,
    code: u8,
}

impl Failure {
    fn new(what: impl Into<String>) -> Failure {
        Failure {
            what: what.into(),
            remedy: None,
            code: 1,
        }
    }

    /// The command line itself is wrong.
    fn usage(what: impl fmt::Display) -> Failure {
        Failure {
            what: what.to_string(),
            remedy: None,
            code: 2,
        }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Failure {
        self.remedy = Some(remedy.into());
        self
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Failure {
        Failure::usage(error)
    }
}

fn main() -> ExitCode {
    match dispatch() {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("lockstep: {}", failure.what);
            if let Some(remedy) = failure.remedy {
                eprintln!("remedy: {remedy}");
            } else if failure.code == 2 {
                eprintln!("remedy: lockstep help");
            }
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch() -> Outcome {
    use lexopt::prelude::*;
    let mut arguments = lexopt::Parser::from_env();
    match arguments.next()? {
        None | Some(Short('h') | Long("help")) => {
            out!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Some(Short('V') | Long("version")) => {
            outln!("lockstep {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        Some(Value(command)) => match command.to_str() {
            Some("speed") => speed::main(arguments),
            Some("handshakes") => handshakes::main(arguments),
            // Started by `handshakes`.
            Some(handshakes::SERVER) => handshakes::serve(arguments),
            Some("doctor") => doctor::main(arguments),
            Some("stat") => stat::main(arguments),
            Some("configuration") => configuration::main(arguments),
            // Started by `configuration` and `doctor`.
            Some(probe::COMMAND) => probe::main(arguments),
            Some("install") => install::main(install::Task::Install, arguments),
            Some("uninstall") => install::main(install::Task::Uninstall, arguments),
            Some("help") => {
                out!("{HELP}");
                Ok(ExitCode::SUCCESS)
            }
            _ => Err(Failure::usage(format!(
                "unknown command {}",
                command.display()
            ))),
        },
        Some(other) => Err(other.unexpected().into()),
    }
}
