//! The `lockstep-bench` command: measures the lanes of this machine, and TLS servers with and
//! without them.
#![forbid(unsafe_code)]

mod fill;
mod format;
mod handshakes;
mod json;
mod kernels;
mod measure;
mod progress;
mod speed;
mod stock;
mod subject;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use lockstep_common::{Failure, Outcome, conclude, out};

/// Measures public-key operations on vector lanes, and TLS servers with and without them.
#[derive(Parser)]
#[command(name = NAME, version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const NAME: &str = "lockstep-bench";

#[derive(Subcommand)]
enum Command {
    Speed(speed::Options),
    Handshakes(handshakes::Options),
    Fill(fill::Options),
    #[command(subcommand)]
    Kernels(kernels::Kernels),
    /// The server that `handshakes --server embedded` starts.
    #[command(name = handshakes::SERVER, hide = true)]
    Server(handshakes::ServerOptions),
}

fn main() -> ExitCode {
    conclude(NAME, run())
}

fn run() -> Outcome {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    match arguments.command {
        Command::Speed(options) => speed::run(&options),
        Command::Handshakes(options) => handshakes::run(&options),
        Command::Fill(options) => fill::run(&options),
        Command::Kernels(kernels) => kernels::run(&kernels),
        Command::Server(options) => handshakes::serve(&options),
    }
}

/// Prints what was asked for, or says what is wrong with the command line.
fn explain(error: &clap::Error) -> Outcome {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => {
            out!("{text}");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            // What follows the first paragraph repeats the usage.
            let what = text.split("\n\n").next().unwrap_or_default();
            let what = what.strip_prefix("error: ").unwrap_or(what);
            Err(Failure::usage(what).remedy(format!("{NAME} help, or --help behind a command")))
        }
    }
}
