//! `lockstep-bench costs`: operations without a gain by lanes, with OpenSSL alone and with
//! lockstep, side by side.
//!
//! Each measurement is a separate process, most of them this program, started anew: the environment
//! alone decides whether it has lockstep. Rounds of all cases follow each other, and within a round
//! both sides of a case do, so a machine that is slower for a while slows both.

mod bed;
mod cases;
mod figures;
mod forked;
mod material;
mod report;
mod service;
mod work;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lockstep_common::{Configuration, Failure, Outcome, Scratch, out, outln};

use crate::files::{on, open_to_others};
use crate::format::{PROGRAM, command_line, cpu_model, seconds_within, utc, within};
use crate::handshakes::Side;
use crate::progress::Progress;
use bed::Bed;
use cases::{Case, Row, Way};
use figures::Figures;
use material::Material;
use report::{LeftOut, Report};
use work::Sample;

pub use work::{COMMAND as PROCESS, Options as ProcessOptions, main as work};

/// Whose counters show that the module is asked: one of its keys signs several times.
const SIGNS: &str = "sign-p256";

/// Measures what gains nothing by lanes: starting, reading keys, signing once, forking
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// What to measure, by the names in the table or their first words, as in `read` and
    /// `sign-p256` [default: everything]
    #[arg(value_name = "NAME", value_parser = name)]
    names: Vec<String>,
    /// How often each side has its turn
    #[arg(long, value_name = "N", default_value = "9", value_parser = within(1_usize, 1000))]
    rounds: usize,
    /// CPU time for each figure of a turn
    #[arg(
        long, value_name = "S", default_value = "0.1", value_parser = seconds_within(0.001, 3600.0),
        allow_negative_numbers = true
    )]
    seconds: Duration,
    /// How many hosts there are where the memory of hosts is measured, and a reload
    #[arg(
        long, value_name = "N", default_value = "1000",
        value_parser = within(1_usize, 100_000)
    )]
    hosts: usize,
    /// The `openssl` command that is measured [default: the installed one]
    #[arg(long, value_name = "PATH")]
    openssl: Option<PathBuf>,
    /// Print one JSON document in place of the table
    #[arg(long)]
    json: bool,
}

const NOTES: &str = "\
Everything is measured in processes of their own, with OpenSSL alone and with lockstep in turn. \
The configuration that loads lockstep is the one that OPENSSL_CONF names, or else the openssl.cnf \
beside this program, or else /etc/lockstep/openssl.cnf. Without lockstep OPENSSL_CONF is not set. Each \
process shows which libraries it has mapped: the command fails if one lacks lockstep that should \
have it, or has it and should not. PostgreSQL, sshd and Postfix are measured where \
they are installed, Postfix by root only.";

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    let configuration = Configuration::find()?;
    let module = canonical(&configuration.module()?)?;
    let configuration = canonical(configuration.path())?;
    let scratch = Scratch::new("costs")?;
    let (mut cases, left_out) = options.cases([&configuration, &module]);
    let directory = scratch.path().join("material");
    fs::create_dir(&directory).map_err(on(&directory, "create"))?;
    // Servers that must not be root have directories of their own beside it.
    open_to_others(scratch.path())?;
    let bed = Bed {
        program: std::env::current_exe().map_err(|error| Failure::new(error.to_string()))?,
        openssl: bed::openssl(options.openssl.as_deref()),
        configuration: &configuration,
        module: &module,
        scratch: scratch.path(),
        material: Material::make(&directory)?,
        directory,
        time: options.seconds,
        hosts: options.hosts,
        services: RefCell::new(BTreeMap::new()),
    };
    let signs = cases::ALL.iter().find(|case| case.name() == SIGNS);
    let counted = bed.prove_by_counters(signs.unwrap_or(cases::start()))?;
    for case in &cases {
        bed.prove(case)?;
    }
    let mut rows = measured(&bed, &cases, options.rounds)?;
    rows.retain(|(row, _)| options.wants(row));
    cases.retain(|case| matches!(case.way, Way::Server(..)));
    let servers = cases.iter().filter_map(|case| match case.way {
        Way::Server(service, _) => service.version(),
        _ => None,
    });
    let mut servers: Vec<String> = servers.collect();
    servers.dedup();
    let report = Report {
        program: PROGRAM,
        date: utc(),
        command: command_line(),
        cpu: cpu_model(),
        openssl: openssl::version::version().to_owned(),
        openssl_command: bed.version(),
        servers,
        bundle: bed.material.bundle.clone(),
        hosts: bed.hosts,
        rounds: options.rounds,
        seconds: options.seconds.as_secs_f64(),
        counted,
        rows,
        left_out,
    };
    match options.json {
        true => outln!("{}", report.to_json()),
        false => out!("{}", report.to_table()),
    }
    Ok(ExitCode::SUCCESS)
}

/// All rounds of all cases.
fn measured(
    bed: &Bed<'_>,
    cases: &[&'static Case],
    rounds: usize,
) -> Result<Vec<(&'static Row, Figures)>, Failure> {
    let rows = cases.iter().flat_map(|case| case.rows);
    let mut rows: Vec<(&Row, Figures)> = rows.map(|row| (row, Figures::default())).collect();
    let mut progress = Progress::new("costs");
    for round in 0..rounds {
        let mut figures = rows.iter_mut();
        for case in cases {
            progress.show(&format!("round {} of {rounds}, {}", round + 1, case.name()));
            // The side that begins runs at the clock that the case before has left.
            let mut sides = Side::ALL;
            sides.rotate_left(round % 2);
            let mut turns: [Vec<Sample>; 2] = [Vec::new(), Vec::new()];
            for side in sides {
                turns[side as usize] = bed.measure(case, side)?;
            }
            let [stock, with] = turns;
            for (place, (_, figures)) in figures.by_ref().take(case.rows.len()).enumerate() {
                match (stock.get(place), with.get(place)) {
                    (Some(&stock), Some(&with)) => figures.add([stock, with]),
                    _ => return Err(Failure::new(format!("{} gave no figure", case.name()))),
                }
            }
        }
    }
    progress.finish();
    Ok(rows)
}

impl Options {
    /// The requested cases, and the ones among them that cannot be measured here.
    fn cases(&self, files: [&Path; 2]) -> (Vec<&'static Case>, Vec<LeftOut>) {
        let mut left_out = Vec::new();
        let mut cases: Vec<&Case> = cases::ALL.iter().collect();
        cases.retain(|case| {
            self.names.is_empty() || self.names.iter().any(|name| case.is_meant(name))
        });
        cases.retain(|case| {
            let missing = match case.way {
                Way::Server(service, _) => service.missing(files),
                _ => None,
            };
            if let Some(why) = &missing {
                eprintln!("{} is left out: {why}", case.name());
                left_out.push(LeftOut {
                    name: case.name(),
                    why: why.clone(),
                });
            }
            missing.is_none()
        });
        (cases, left_out)
    }

    fn wants(&self, row: &Row) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| row.is_meant(name))
    }
}

fn canonical(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(on(path, "find"))
}

fn name(text: &str) -> Result<String, String> {
    match cases::ALL.iter().any(|case| case.is_meant(text)) {
        true => Ok(text.to_owned()),
        false => {
            let names = cases::ALL.iter().flat_map(|case| case.rows);
            let names: Vec<&str> = names.map(|row| row.name).collect();
            Err(format!("there are {}", names.join(", ")))
        }
    }
}
