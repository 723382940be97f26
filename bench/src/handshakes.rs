//! `lockstep-bench handshakes`: real TLS servers under load, with OpenSSL alone and with lockstep,
//! side by side.
//!
//! Both servers run all the time, each its own process on its own port, and are put under load in
//! turn; the other one is idle meanwhile. The [clients](client) are part of this program, on CPUs
//! of their own.

mod client;
mod cores;
mod counters;
mod demand;
mod embedded;
mod figures;
mod hybrid;
mod identity;
mod keyd;
mod loaded;
mod options;
mod origin;
mod over_rustls;
mod own;
mod parameters;
mod processes;
mod program;
mod report;
mod running;
mod servers;
mod test_bed;

use std::fs;
use std::process::ExitCode;

use lockstep_common::{Configuration, Failure, Outcome, Scratch, out, outln};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::files::on;
use crate::format::{command_line, cpu_model, utc};
use crate::measure::keep_to;
use cores::Division;
use report::Report;
use test_bed::TestBed;

pub use counters::Counters;
pub use embedded::{COMMAND as SERVER, Options as ServerOptions, main as serve};
pub use identity::{HOST, Identity, Kind, certificate};
pub use options::Options;
pub use over_rustls::{Client, Trust};
pub use parameters::{Group, Side, Version};
pub use program::version_line;
pub use running::{Process, counters_in, ended_with_us, free_port};

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    options.check()?;
    let program = options.server.find()?;
    let configuration = Configuration::find()?;
    let module = configuration.module()?;
    let configuration = configuration.path();
    let configuration = fs::canonicalize(configuration).map_err(on(configuration, "find"))?;

    let most = options.most_connections();
    raise_file_limit(most)?;
    let division = match options.share_cpus {
        true => Division::shared(),
        false => Division::of_this_process(),
    };
    keep_to(&division.clients);
    let scratch = Scratch::new("handshakes")?;
    let test_bed = TestBed::new(
        options,
        &program,
        (&configuration, &module),
        &division,
        scratch.path(),
    )?;
    let mut levels = Vec::new();
    for demand in options.demands() {
        levels.push(test_bed.measure(demand)?);
    }
    let report = Report {
        options,
        division: &division,
        key: test_bed.key,
        date: utc(),
        command: command_line(),
        cpu: cpu_model(),
        server_version: options.server.version(&program),
        openssl: test_bed.openssl(),
        levels,
    };
    drop(test_bed);
    if options.json != Some(None) {
        out!("{}", report.to_table());
    }
    match &options.json {
        Some(None) => outln!("{}", report.to_json()),
        // Where it cannot be written, the table has shown the figures.
        Some(Some(path)) => {
            fs::write(path, report.to_json() + "\n").map_err(on(path, "write"))?;
        }
        None => {}
    }
    Ok(match report.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Lets this process and the servers have as many files open as so many clients need: a proxy has
/// two for each, and so has this process, which is behind the proxy too.
fn raise_file_limit(clients: usize) -> Result<(), Failure> {
    let needed = 2 * clients as u64 + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        ..limit
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        Failure::new(format!("{clients} clients need {needed} open files"))
            .remedy(format!("lower --concurrency, or ulimit -n {needed}"))
    })
}
