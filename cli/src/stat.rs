//! `lockstep stat`: the counters that running processes publish.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use lockstep_engine::{Fallback, ProcessStats, Shape, Snapshot, read_stats};

use crate::{Failure, Outcome};

const HELP: &str = "\
Shows the counters of processes that have loaded the module.

Usage: lockstep stat [OPTIONS]

Options:
  --dir DIR      where they publish them (default: the environment's LOCKSTEP_STATS_DIR)
  --json         one JSON document: an array with an object for each process
  --total NAME   only the sum of one counter over all processes: operations, batches, passes,
                 fallbacks, failed_checks, async_submitted or pool_hits, or one kind of operation, as
                 rsa2048 or p256-sign
";

/// What `--total NAME` sums up.
enum Total {
    /// One of [`COUNTERS`].
    Counter(fn(&Snapshot) -> u64),
    /// The operations of one kind.
    Operations(Shape),
}

impl Total {
    fn called(name: &str) -> Option<Total> {
        if let Some((_, counter)) = COUNTERS.iter().find(|(known, _)| *known == name) {
            return Some(Total::Counter(*counter));
        }
        let shape = Shape::ALL.into_iter().find(|shape| shape.name() == name)?;
        Some(Total::Operations(shape))
    }

    fn of(&self, snapshot: &Snapshot) -> u64 {
        match self {
            Total::Counter(counter) => counter(snapshot),
            Total::Operations(shape) => snapshot.operations_of(*shape),
        }
    }
}

/// A counter that `--total` can sum up.
type Counter = (&'static str, fn(&Snapshot) -> u64);

const COUNTERS: &[Counter] = &[
    ("operations", Snapshot::operations),
    ("batches", |snapshot| snapshot.batches),
    ("passes", |snapshot| snapshot.passes),
    ("fallbacks", Snapshot::fallbacks),
    ("failed_checks", |snapshot| snapshot.failed_checks),
    ("async_submitted", |snapshot| snapshot.async_submitted),
    ("pool_hits", |snapshot| snapshot.pool_hits),
];

/// Runs the command with the arguments behind its name.
pub fn main(mut arguments: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let mut directory = std::env::var_os("LOCKSTEP_STATS_DIR").map(PathBuf::from);
    let mut json = false;
    let mut total = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("dir") => directory = Some(arguments.value()?.into()),
            Long("json") => json = true,
            Long("total") => {
                let name = arguments.value()?.string()?;
                total = Some(Total::called(&name).ok_or_else(|| {
                    let known: Vec<&str> = COUNTERS.iter().map(|(name, _)| *name).collect();
                    Failure::usage(format!(
                        "no counter `{name}`: there are {}",
                        known.join(", ")
                    ))
                })?);
            }
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let directory = directory.ok_or_else(|| {
        Failure::usage("which directory? name it with --dir")
            .remedy("start the server and this command with the same LOCKSTEP_STATS_DIR=DIRECTORY")
    })?;
    let processes = read_stats(&directory).map_err(|error| {
        Failure::new(format!("cannot read {}: {error}", directory.display()))
            .remedy("name the directory that the server has in LOCKSTEP_STATS_DIR")
    })?;
    match total {
        Some(total) => {
            println!(
                "{}",
                processes
                    .iter()
                    .map(|process| total.of(&process.snapshot))
                    .sum::<u64>()
            );
        }
        None if json => {
            let all: Vec<String> = processes.iter().map(|p| p.snapshot.to_json()).collect();
            println!("[{}]", all.join(","));
        }
        None if processes.is_empty() => {
            println!("no process publishes counters in {}", directory.display());
        }
        None => processes
            .iter()
            .for_each(|process| print!("{}", describe(process))),
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(process: &ProcessStats) -> String {
    let ProcessStats {
        pid,
        alive,
        snapshot,
    } = process;
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        out,
        "process {pid}{}, lockstep {}, lanes: {}",
        if *alive { "" } else { " (ended)" },
        snapshot.version,
        snapshot.backend
    );
    let _ = writeln!(
        out,
        "  {} operations in {} batches, {} passes; {:.2} requests per pass",
        snapshot.operations(),
        snapshot.batches,
        snapshot.passes,
        snapshot.average_fill()
    );
    for shape in Shape::ALL {
        let operations = snapshot.operations_of(shape);
        if operations > 0 {
            let _ = writeln!(out, "  {:<24} {operations:>12}", shape.name());
        }
    }
    if snapshot.pool_refills > 0 {
        let _ = writeln!(
            out,
            "  {} key pairs made in advance, in {} batches",
            snapshot.pool_hits, snapshot.pool_refills
        );
    }
    for &reason in Fallback::ALL {
        let fallbacks = snapshot.fallbacks_for(reason);
        if fallbacks > 0 {
            let _ = writeln!(out, "  to stock, {:<14} {fallbacks:>12}", reason.name());
        }
    }
    let _ = writeln!(out, "  failed checks {:>23}", snapshot.failed_checks);
    out
}
