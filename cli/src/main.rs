//! The `lockstep` command: says whether programs use the lanes and if not, why; shows live
//! counters, to Prometheus too; has servers load the module; and is the daemon that holds servers'
//! keys.
//!
//! Each command has a module: [`doctor`], [`stat`], [`exporter`], [`install`], [`configuration`],
//! [`mod@keyd`], [`mod@devices`].
//! The program has no TLS library of its own and no `unsafe` code. libcrypto reads configurations
//! for it, by the crate `conf`.
#![forbid(unsafe_code)]

mod command;
mod configuration;
mod devices;
mod doctor;
mod exporter;
mod files;
mod generated;
mod install;
mod keyd;
mod mistakes;
mod probe;
mod process;
mod sandbox;
mod servers;
mod stat;
mod trial;
mod trust;
mod unit;
mod warnings;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockstep_common::{Documents, Outcome, arguments, conclude};
use lockstep_engine::version;

/// Looks after a server that runs its public-key operations on vector lanes, through OpenSSL.
#[derive(Parser)]
#[command(
    name = NAME, version = version(), arg_required_else_help = true, args_override_self = true,
    after_help = NOTES
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const NAME: &str = "lockstep";

const NOTES: &str = "\
lockstep-bench measures: the lanes of this machine, and TLS servers with and without them.

Examples:
  lockstep install --service nginx
  lockstep doctor --service nginx
  lockstep stat --watch

Files:
  /etc/lockstep/openssl.cnf       the configuration that services load
  /usr/share/doc/lockstep         the manual";

#[derive(Subcommand)]
enum Command {
    Doctor(doctor::Options),
    Stat(stat::Options),
    Exporter(exporter::Options),
    Configuration(configuration::Options),
    Install(install::InstallOptions),
    Uninstall(install::UninstallOptions),
    Keyd(keyd::Options),
    Devices(devices::Options),
    #[command(name = probe::COMMAND, hide = true)]
    Probe(probe::Options),
    #[command(name = doctor::LOOK, hide = true)]
    Look,
    #[command(name = Documents::COMMAND, hide = true)]
    Documents(Documents),
}

fn main() -> ExitCode {
    conclude(NAME, run())
}

fn run() -> Outcome {
    let Some(Arguments { command }) = arguments()? else {
        return Ok(ExitCode::SUCCESS);
    };
    match command {
        Command::Doctor(options) => doctor::run(&options),
        Command::Stat(options) => stat::run(options),
        Command::Exporter(options) => exporter::run(options),
        Command::Configuration(options) => configuration::run(&options),
        Command::Install(options) => install::install(&options),
        Command::Uninstall(options) => install::uninstall(&options),
        Command::Keyd(options) => keyd::run(&options),
        Command::Devices(options) => devices::run(&options),
        Command::Probe(options) => probe::run(&options),
        Command::Look => doctor::look(),
        Command::Documents(documents) => documents.write::<Arguments>(),
    }
}
