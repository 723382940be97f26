//! The `lockstep` command: says whether programs use the lanes and if not, why; shows live
//! counters; and has servers load the module.
#![forbid(unsafe_code)]

mod configuration;
mod doctor;
mod install;
mod places;
mod probe;
mod stat;
mod warnings;

use std::process::ExitCode;

use lockstep_common::{Failure, Outcome, conclude, out, outln};

const HELP: &str = "\
Looks after a server that runs its public-key operations on vector lanes, through OpenSSL.

Usage: lockstep <COMMAND> [OPTIONS]

Commands:
  doctor         say whether programs that use OpenSSL sign on lanes, and if not, why
  stat           show the counters of running processes
  configuration  print an openssl.cnf that loads the module, made from the system's own
  install        have a server of the distribution load the module
  uninstall      undo install
  help           this text; `lockstep <COMMAND> --help` explains the options of a command

Options:
  -V, --version  print the version

`lockstep-bench` measures: the lanes of this machine, and TLS servers with and without them.
";

/// Commands that `lockstep-bench` has.
const MEASURING: [&str; 2] = ["speed", "handshakes"];

fn main() -> ExitCode {
    conclude("lockstep", dispatch())
}

fn dispatch() -> Outcome {
    use lexopt::prelude::*;
    let mut arguments = lexopt::Parser::from_env();
    match arguments.next().map_err(Failure::usage)? {
        None | Some(Short('h') | Long("help")) => {
            out!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Some(Short('V') | Long("version")) => {
            outln!("lockstep {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        Some(Value(command)) => match command.to_str() {
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
            Some(command) if MEASURING.contains(&command) => Err(moved(command)),
            _ => Err(Failure::usage(format!(
                "unknown command {}",
                command.display()
            ))),
        },
        Some(other) => Err(Failure::usage(other.unexpected())),
    }
}

/// The command is in the other program.
fn moved(command: &str) -> Failure {
    Failure::usage(format!(
        "`lockstep {command}` is a command of another program, lockstep-bench"
    ))
    .remedy(format!(
        "run `lockstep-bench {command}` with the same options; `cargo xtask dist --bench` builds it \
         and puts it beside this program"
    ))
}
