//! The `lockstep-bench` command: measures the lanes of this machine, and TLS servers with and
//! without them.
//!
//! [`speed`] measures single operations, [`bulk`] the library for arrays beside others,
//! [`mod@handshakes`] servers under load, and [`costs`] programs that gain nothing. [`devices`]
//! lists the devices that the library for arrays can use. The program takes no part in serving.

mod bulk;
mod connect;
mod costs;
mod devices;
mod files;
mod format;
mod gauge;
mod handshakes;
mod json;
mod measure;
mod progress;
mod speed;
mod stock;
mod subject;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockstep_common::{Documents, Outcome, arguments, conclude};

/// Measures public-key operations on vector lanes, and TLS servers with and without them.
#[derive(Parser)]
#[command(name = NAME, version = lockstep_engine::version(), arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const NAME: &str = "lockstep-bench";

#[derive(Subcommand)]
enum Command {
    Speed(speed::Options),
    Bulk(bulk::Options),
    Handshakes(Box<handshakes::Options>),
    Costs(costs::Options),
    Devices(devices::Options),
    Connect(connect::Options),
    /// The server that `handshakes --server embedded` starts.
    #[command(name = handshakes::SERVER, hide = true)]
    Server(handshakes::ServerOptions),
    /// The processes that `costs` measures.
    #[command(name = costs::PROCESS, hide = true)]
    CostsProcess(costs::ProcessOptions),
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
        Command::Speed(options) => speed::run(&options),
        Command::Bulk(options) => bulk::run(&options),
        Command::Handshakes(options) => handshakes::run(&options),
        Command::Costs(options) => costs::run(&options),
        Command::Devices(options) => devices::run(&options),
        Command::CostsProcess(options) => costs::work(&options),
        Command::Connect(options) => connect::run(&options),
        Command::Server(options) => handshakes::serve(&options),
        Command::Documents(documents) => documents.write::<Arguments>(),
    }
}
