//! `cargo xtask ledger`: every operation measured beside the same operation at the last record of
//! this family of CPUs, or at the commit that is named, so that nothing gets slower unseen.
//!
//! Both programs run in turn, and of each pair of runs the ratio counts: a machine that is slower
//! for a while slows both. The result is `ledger.json` in the record's directory, with a hash of
//! the kernels' sources.
//!
//! Operations without a gain are measured too, by `lockstep-bench costs`: each row is a ratio to
//! OpenSSL alone, and stands beside the same ratio of the last record that has it. They are left
//! out if today's record has them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use xtask::command::{Failure, Outcome, cargo, loudly, on, quietly, root, target_directory};
use xtask::dist::{self, Dist};

use super::costs::{self, Cost};
use super::record::{self, Side, Speed, SpeedFile};
use crate::record::Machine;
use crate::sources;

/// The name of the file in a record's directory.
const FILE: &str = "ledger.json";

/// Pairs of runs of each operation.
const ROUNDS: usize = 5;

/// Further pairs of runs of an operation that seems to have changed: neighbours on the machine may
/// have slowed one side of most of the first.
const FURTHER: usize = 12;

/// Time for each figure of a run, in seconds.
const SECONDS: &str = "0.1";

/// Ratios from here on are worth a line.
const TOLERANCE: f64 = 0.02;

/// What `run.json` or `ledger.json` says of what was measured.
#[derive(Deserialize)]
struct Entry {
    /// The short name of the CPU, by the directory.
    #[serde(skip)]
    cpu: String,
    commit: String,
}

/// A row: operation, and requests at once.
type Row = (String, u64);

/// Measures, prints what changed, and makes a record of it.
pub fn run(base: Option<&str>) -> Outcome {
    let machine = Machine::here()?;
    let cpu = record::short_name(&machine.cpu);
    let base = match base {
        Some(commit) => commit.to_owned(),
        None => last_record(&cpu, &machine.commit)?,
    };
    let before = program_of(&base).map_err(|failure| {
        failure.remedy("name a commit that this Rust builds: cargo xtask ledger COMMIT")
    })?;
    let built = dist::build_with_benchmarks()?;
    let now = built.benchmarks();
    println!("{} beside {base} on {}", machine.commit, machine.cpu);

    let has_costs = record::of_today(&machine).join(costs::FILE).exists();
    let costs = match has_costs {
        true => None,
        false => Some(costs_beside_earlier(&built, &cpu)?),
    };
    let mut pairs = Pairs::default();
    // What is new since then has nothing to be compared with.
    let mut operations = operations(&before)?;
    for round in 0..ROUNDS {
        println!("round {} of {ROUNDS}", round + 1);
        pairs.add(&now, &before, &operations)?;
    }
    operations.retain(|operation| pairs.show_change_of(operation));
    if !operations.is_empty() {
        println!("{FURTHER} more of {}", operations.join(", "));
    }
    for _ in 0..FURTHER {
        pairs.add(&now, &before, &operations)?;
    }
    let ratios = pairs.ratios();
    print!("{}", verdict(&ratios));
    let rows = ratios.iter().map(|(row, ratio)| {
        let rate = median(pairs.rows[row].iter().map(|(rate, _)| *rate));
        let rounded = |value: f64, to: f64| (value * to).round() / to;
        json!({
            "op": row.0, "fill": row.1, "ops_per_s": rounded(rate, 10.0),
            "ratio": rounded(*ratio, 1e4),
        })
    });
    let rows: Vec<Value> = rows.collect();
    let document = json!({
        "date": machine.date, "cpu": machine.cpu, "clock_ghz": pairs.clock, "commit": machine.commit,
        "kernels": kernels()?, "beside": base, "rows": rows, "costs": costs,
    });
    record::store(&machine, FILE, &format!("{document:#}"))
}

/// Measures the operations without a gain, and prints what changed since the last record of them.
fn costs_beside_earlier(built: &Dist, cpu: &str) -> Outcome<Value> {
    let earlier = record::costs_of(cpu)?;
    let costs = measure_costs(built)?;
    match &earlier {
        Some((record, earlier)) => {
            println!("what gains nothing, beside {record}");
            print!("{}", costs::verdict(&costs, earlier));
        }
        None => println!("what gains nothing has no record to stand beside"),
    }
    Ok(json!({ "beside": earlier.map(|(record, _)| record), "rows": costs }))
}

/// What gains nothing, as it is now.
fn measure_costs(built: &Dist) -> Outcome<Vec<Cost>> {
    let mut command = Command::new(built.benchmarks());
    command.env("OPENSSL_CONF", built.configuration());
    let file: costs::File = printed(command.args(costs::FULL.split(' ')))?;
    Ok(file.rows)
}

/// The document that a command prints.
fn printed<T: DeserializeOwned>(command: &mut Command) -> Outcome<T> {
    serde_json::from_str(&quietly(command)?)
        .map_err(|error| Failure::new(format!("{command:?} printed no figures: {error}")))
}

/// The commit of the newest record of this kind of CPU that is not of the commit at hand.
fn last_record(cpu: &str, commit: &str) -> Outcome<String> {
    let entry = entries()?
        .into_iter()
        .find(|entry| entry.cpu == cpu && entry.commit != commit);
    entry.map(|entry| entry.commit).ok_or_else(|| {
        Failure::new(format!("there is no record of a CPU like this one ({cpu})"))
            .remedy("make the first one: cargo xtask figures --measure")
    })
}

/// A copy of a program, beside it. On Zen 5, P-384 on lanes of 256 bits takes a sixth more from
/// some copies of one and the same file than from others, each time: it depends on the pages of
/// memory in which the system keeps the file. So each pair of runs has new ones.
struct Copy(PathBuf);

impl Copy {
    fn of(program: &Path) -> Outcome<Copy> {
        let copy = Copy(program.with_extension("copy"));
        fs::copy(program, &copy.0).map_err(on(&copy.0, "write"))?;
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What pairs of runs found.
#[derive(Default)]
struct Pairs {
    /// Operations a second now, and their ratio to those before, of each pair.
    rows: BTreeMap<Row, Vec<(f64, f64)>>,
    /// In GHz.
    clock: Option<f64>,
}

impl Pairs {
    /// Runs both programs once with each of the operations.
    fn add(&mut self, now: &Path, before: &Path, operations: &[String]) -> Outcome {
        let (now, before) = (Copy::of(now)?, Copy::of(before)?);
        for operation in operations {
            let (new, clock) = measure(&now.0, operation)?;
            let (old, _) = measure(&before.0, operation)?;
            self.clock = Some(clock);
            for (row, rate) in new {
                if let Some(old) = old.get(&row) {
                    self.rows.entry(row).or_default().push((rate, rate / old));
                }
            }
        }
        Ok(())
    }

    fn ratios(&self) -> Vec<(Row, f64)> {
        let median_of = |pairs: &Vec<(f64, f64)>| median(pairs.iter().map(|(_, ratio)| *ratio));
        let rows = self.rows.iter();
        rows.map(|(row, pairs)| (row.clone(), median_of(pairs)))
            .collect()
    }

    /// Whether any row of the operation differs by more than is tolerated.
    fn show_change_of(&self, operation: &str) -> bool {
        self.ratios().iter().any(|((name, _), ratio)| {
            command_line_name(name) == operation && (ratio - 1.0).abs() > TOLERANCE
        })
    }
}

/// The program that measures, as it was at a commit.
fn program_of(commit: &str) -> Outcome<PathBuf> {
    let commit = commit.trim_end_matches('+');
    let directory = target_directory().join("ledger");
    let program = directory.join(format!("lockstep-bench-{commit}"));
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
    let (tree, built) = (directory.join(commit), directory.join("target"));
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        quietly(command.arg("-C").arg(root()).args(arguments).arg(&tree))
    };
    // One that an interrupted run has left would be in the way.
    let _ = git(&["worktree", "remove", "--force"]);
    let mut add = Command::new("git");
    add.arg("-C")
        .arg(root())
        .args(["worktree", "add", "--detach"]);
    quietly(add.arg(&tree).arg(commit))?;
    let mut build = cargo(["build", "--release", "--locked", "-p", "lockstep-bench"]);
    let result = loudly(build.arg("--target-dir").arg(&built).current_dir(&tree));
    git(&["worktree", "remove", "--force"])?;
    result?;
    let fresh = built.join("release/lockstep-bench");
    fs::copy(&fresh, &program).map_err(on(&fresh, "copy"))?;
    Ok(program)
}

/// All operations, as the command line names them.
fn operations(program: &Path) -> Outcome<Vec<String>> {
    let speed = speed(program, &["all", "--seconds", "0.001", "--fills", "1"])?;
    let rows = speed.rows.iter();
    let mut names: Vec<String> = rows
        .map(|row| command_line_name(&row.op).to_owned())
        .collect();
    names.dedup();
    Ok(names)
}

fn command_line_name(operation: &str) -> &str {
    match operation.strip_suffix("-sign") {
        Some(rsa) if rsa.starts_with("rsa") => rsa,
        _ => operation,
    }
}

/// Operations a second on lanes, and the clock in GHz.
fn measure(program: &Path, operation: &str) -> Outcome<(BTreeMap<Row, f64>, f64)> {
    let speed = speed(program, &[operation, "--seconds", SECONDS])?;
    let is_on_lanes = |row: &Speed| row.side == Side::Lockstep && !row.by_stock;
    let on_lanes = speed.rows.into_iter().filter(is_on_lanes);
    let rates = on_lanes.map(|row| ((row.op, row.fill), row.ops_per_s));
    Ok((rates.collect(), speed.machine.clock_ghz))
}

fn speed(program: &Path, arguments: &[&str]) -> Outcome<SpeedFile> {
    let mut command = Command::new(program);
    command
        .arg("speed")
        .args(arguments)
        .args(["--threads", "1", "--json"]);
    printed(&mut command)
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What got slower, what got faster, and how many rows did neither.
fn verdict(ratios: &[(Row, f64)]) -> String {
    let lines = |what: &str, is_it: fn(f64) -> bool| -> Vec<String> {
        let changed = ratios.iter().filter(|(_, ratio)| is_it(*ratio));
        changed
            .map(|((operation, fill), ratio)| {
                format!("{what}: {operation}, {fill} at once: {ratio:.3}\n")
            })
            .collect()
    };
    let slower = lines("slower", |ratio| ratio < 1.0 - TOLERANCE);
    let faster = lines("faster", |ratio| ratio > 1.0 + TOLERANCE);
    let changed = [slower, faster].concat();
    let same = ratios.len() - changed.len();
    changed.concat()
        + &format!(
            "within {:.0} %: {same} of {} rows\n",
            100.0 * TOLERANCE,
            ratios.len()
        )
}

/// What all records say of themselves, the newest first.
fn entries() -> Outcome<Vec<Entry>> {
    let mut entries = Vec::new();
    for name in record::names()? {
        let directory = record::directory().join(&name);
        for file in [FILE, "run.json"] {
            let path = directory.join(file);
            if !path.exists() {
                continue;
            }
            let cpu = name.get(11..).unwrap_or_default().to_owned();
            let entry: Entry = record::read(&path)?;
            entries.push(Entry { cpu, ..entry });
        }
    }
    Ok(entries)
}

/// A hash of the kernels' sources.
pub fn kernels() -> Outcome<String> {
    sources::hash(sources::KERNELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named_and_the_rest_is_counted() {
        let row = |name: &str, ratio| ((name.to_owned(), 8), ratio);
        let ratios = [
            row("a", 0.97),
            row("b", 0.985),
            row("c", 1.5),
            row("d", 1.0),
        ];
        let expected = "slower: a, 8 at once: 0.970\nfaster: c, 8 at once: 1.500\n\
                        within 2 %: 2 of 4 rows\n";
        assert_eq!(verdict(&ratios), expected);
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
    }
}
