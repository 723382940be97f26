//! `cargo xtask nightly`: the long checks, each bounded in time and resumable.
//!
//! A check does a piece of work for the time that it is given and says how many cases it tried and
//! how many findings it made. Its progress is kept in `target/nightly/`, so that the next run goes
//! on where this one stopped. `--record` copies the sums into the repository, from where
//! [`crate::trust`] renders the page for users.
//!
//! A new check is a line in [`CHECKS`]. One that is a program of its own runs by [`work::program`].

use std::process::Command;
use std::time::{Duration, Instant};

use xtask::command::{
    Failure, Outcome, cargo, cargo_workspace, insist_on_known, list, quietly, root, succeeds,
    target_directory,
};
use xtask::tally::{Count, passed_and_failed};
use xtask::work::{self, Ran, Share, Work};
use xtask::{dist, setup};

use crate::proofs;
use crate::record::{self, Record};
use crate::sources::{self, KERNELS, LIBRARY, MODULE, PRODUCT, PROOFS};
use crate::{
    coverage, fuzz, keyd, matrix, miri, mutants, openssl_tests, packages, syscalls, taint, threads,
    tlsfuzzer, trace, wheel,
};

/// A long check.
pub struct Check {
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// The sources for which it vouches.
    pub sources: &'static [&'static str],
    /// Its part of the time, in proportion to the weights of the others.
    weight: u32,
    /// It is skipped if less time than this is left.
    least: Duration,
    /// It gets no more time than this, because it is finite.
    most: Duration,
    run: fn(&Share) -> Outcome<Ran>,
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

const HOUR: Duration = minutes(60);

macro_rules! checks {
    ($($name:literal $about:literal $sources:ident $weight:literal, $least:literal to $most:literal: $run:expr;)*) => {
        &[$(Check {
            name: $name,
            about: $about,
            sources: $sources,
            weight: $weight,
            least: minutes($least),
            most: minutes($most),
            run: $run,
        }),*]
    };
}

/// In the order they run: the name, the purpose and the sources, then the weight and the least and
/// most minutes.
pub const CHECKS: &[Check] = checks! {
    "kernels-long" "the kernels' tests that are too long for `cargo xtask test`"
        KERNELS 1, 3 to 10: |_| ignored("curve25519", "");
    "devices" "100,000 random operations by each kernel of OpenCL, compared with portable code"
        LIBRARY 1, 15 to 30: |_| ignored_in("lockstep-opencl", "_for_long");
    "taint" "secrets followed through every private operation on all lanes"
        MODULE 1, 8 to 20: |_| taint::night();
    "limbs" "faults in every limb of RSA on all lanes"
        KERNELS 2, 5 to 480: |share| reporting("faults", "every_fault_in_every_limb", share);
    "miri" "the portable kernels, parts of the operations and of the engine under Miri"
        MODULE 2, 10 to 60: |_| miri::check();
    "fuzz" "programs of operations on the module's dispatch tables, compared with OpenSSL's own"
        MODULE 4, 3 to 720: |share| fuzz::night(&fuzz::TABLES, fuzz::Watch::Oracle, share);
    "fuzz-addresses" "the same under AddressSanitizer"
        MODULE 4, 3 to 720: |share| fuzz::night(&fuzz::TABLES, fuzz::Watch::Addresses, share);
    "fuzz-kems" "programs of key encapsulation, compared with OpenSSL 3.5's own, under \
        AddressSanitizer"
        MODULE 2, 3 to 1440: |share| fuzz::night(&fuzz::KEMS, fuzz::Watch::Addresses, share);
    "fuzz-lattices" "programs of signatures of ML-DSA, compared with OpenSSL 3.5's own, under \
        AddressSanitizer"
        MODULE 2, 3 to 1440: |share| fuzz::night(&fuzz::LATTICES, fuzz::Watch::Addresses, share);
    "ciphers" "random programs of calls of AES-GCM by EVP, compared with OpenSSL's own"
        MODULE 1, 1 to 240: |share| long_test("aes_gcm::programs_of_calls_for_long", share);
    "mutated" "signatures and messages that were changed, whose verdicts by the library for arrays \
        are compared with OpenSSL's on all lanes"
        LIBRARY 1, 1 to 240: |share| reporting("verdicts", "mutated_items_for_long", share);
    "tlsfuzzer" "tlsfuzzer's scripts against servers without the module and with it"
        MODULE 3, 3 to 180: tlsfuzzer::night;
    "openssl-tests" "OpenSSL's own tests on all lanes, compared with the same tests without the \
        module"
        MODULE 2, 5 to 60: openssl_tests::night;
    "coverage" "lines of the provider that its tests and the fuzzer's kept inputs run"
        MODULE 1, 10 to 20: |_| coverage::check();
    "forks" "children forked while other threads use keys and tables for the first time"
        MODULE 1, 2 to 60: |share| long_test("fork::fork_during_first_uses_for_long", share);
    "ring" "programs of a hostile client and of a hostile daemon on the ring between them"
        MODULE 1, 1 to 240: ring;
    "keyd" "hostile clients of the key daemon, which runs under AddressSanitizer"
        PRODUCT 1, 5 to 240: keyd::night;
    "mutants" "changes of the ring, the vault, the daemon, its queue and its clients that their \
        tests must notice"
        PRODUCT 2, 15 to 720: mutants::night;
    "threads" "the module and the engine with many threads and jobs, under ThreadSanitizer"
        MODULE 2, 6 to 480: threads::night;
    "trace" "instructions and data addresses of the module, compared for two secrets"
        MODULE 2, 1 to 480: trace::night;
    "proofs" "the kernels' arithmetic, proved for all inputs, in their source and in machine code"
        PROOFS 1, 5 to 30: proofs::night;
    "identities" "formulas that are proved, checked by Singular, a program for polynomials"
        PROOFS 1, 1 to 5: proofs::identities;
    "allocations" "programs in which each allocation in turn fails, and with ever less address \
        space"
        MODULE 1, 5 to 15: allocations;
    "syscalls" "each system call that the module adds, denied in turn, and compared with the table"
        MODULE 1, 5 to 15: syscalls::night;
    "oldest-rust" "all sources compiled by the oldest Rust that the manifest allows"
        PRODUCT 1, 5 to 10: oldest_rust;
    "soak" "TLS servers under steady load, memory and descriptors watched"
        MODULE 3, 2 to 30: soak;
    "packages" "packages built twice, looked at, and used in chroots of Debian's releases"
        PRODUCT 2, 10 to 60: packages::night;
    "wheel" "the package for Python built twice in two directories, and once from its sources alone"
        LIBRARY 1, 10 to 60: wheel::night;
    "matrix" "operations and handshakes with each OpenSSL from 3.0 on, compared with it alone"
        MODULE 2, 10 to 60: matrix::night;
};

/// Runs `cargo xtask nightly` with these arguments.
pub fn run(arguments: &[&str]) -> Outcome {
    let mut time = HOUR;
    let mut names = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        match argument {
            "--list" => {
                let line = |check: &Check| format!("{:<14} {}", check.name, check.about);
                return list(CHECKS.iter().map(line));
            }
            "--hours" => time = hours(arguments.next().copied())?,
            name => names.push(name),
        }
    }
    let known: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    insist_on_known(&names, &known, "cargo xtask nightly --list")?;
    setup::ensure()?;
    let wanted: Vec<&Check> = CHECKS
        .iter()
        .filter(|check| names.is_empty() || names.contains(&check.name))
        .collect();
    let machine = record::Machine::here()?;
    let mut record = Record::resume()?;
    let end = Instant::now() + time;
    let mut table = Vec::new();
    for (index, check) in wanted.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let weights: u32 = wanted[index..].iter().map(|check| check.weight).sum();
        let row = match share(check, left, weights) {
            None => Row::skipped(
                check,
                format!("needs {} minutes: give more --hours", minutes_of(check)),
            ),
            Some(time) => {
                println!("{} … ({:.0} s at most)", check.name, time.as_secs_f64());
                let row = run_one(check, time, &machine, &mut record)?;
                record.store(&record::working_file())?;
                row
            }
        };
        table.push(row);
    }
    println!("\n{}", Row::HEADER);
    table.iter().for_each(|row| println!("{}", row.line()));
    println!("record: {}", record::working_file().display());
    let bad: Vec<&str> = table
        .iter()
        .filter(|row| row.findings != "0" && row.findings != "-")
        .map(|row| row.name)
        .collect();
    match bad.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("findings: {}", bad.join(", "))).print()),
    }
}

/// The part of the remaining time that a check gets, or `None` if it is not enough.
fn share(check: &Check, left: Duration, weights: u32) -> Option<Duration> {
    if left < check.least {
        return None;
    }
    let share = left.mul_f64(f64::from(check.weight) / f64::from(weights.max(1)));
    Some(share.clamp(check.least, check.most))
}

fn minutes_of(check: &Check) -> u64 {
    check.least.as_secs().div_ceil(60)
}

/// Runs a check and adds its counts to the record.
fn run_one(
    check: &Check,
    time: Duration,
    machine: &record::Machine,
    record: &mut Record,
) -> Outcome<Row> {
    let directory = target_directory().join("nightly").join(check.name);
    std::fs::create_dir_all(&directory).map_err(xtask::command::on(&directory, "create"))?;
    let share = Share {
        time,
        next: record
            .entry(check.name, &machine.cpu)
            .map_or(0, |entry| entry.next),
        directory,
    };
    let start = Instant::now();
    let ran = match (check.run)(&share) {
        Ok(Ran::Skipped(reason)) => return Ok(Row::skipped(check, reason)),
        Ok(Ran::Worked(work)) => work,
        Err(failure) => {
            // A check that could not be carried through is a finding: it must not look like a pass.
            println!("{failure}");
            Work {
                findings: 1,
                next: share.next,
                note: "it could not be carried through".to_owned(),
                ..Work::default()
            }
        }
    };
    let hours = ran.time.unwrap_or(start.elapsed()).as_secs_f64() / 3600.0;
    let sources = sources::hash(check.sources)?;
    record.add(check.name, machine, &sources, &ran, hours);
    Ok(Row {
        name: check.name,
        cases: ran.cases.to_string(),
        findings: ran.findings.to_string(),
        hours: format!("{hours:.2}"),
        note: ran.note,
    })
}

/// A line of the table at the end.
struct Row {
    name: &'static str,
    cases: String,
    findings: String,
    hours: String,
    note: String,
}

impl Row {
    const HEADER: &str = "check               cases findings  hours  note";

    fn skipped(check: &Check, reason: String) -> Row {
        Row {
            name: check.name,
            cases: "-".to_owned(),
            findings: "-".to_owned(),
            hours: "-".to_owned(),
            note: format!("skipped: {reason}"),
        }
    }

    fn line(&self) -> String {
        format!(
            "{:<14} {:>10} {:>8} {:>6}  {}",
            self.name, self.cases, self.findings, self.hours, self.note
        )
    }
}

/// The value of `--hours`.
fn hours(value: Option<&str>) -> Outcome<Duration> {
    value
        .and_then(|value| value.parse::<f64>().ok())
        .filter(|hours| (0.0..10_000.0).contains(hours))
        .map(|hours| HOUR.mul_f64(hours))
        .ok_or_else(|| {
            Failure::new("--hours needs a number of hours, for example 0.5")
                .remedy("cargo xtask nightly --hours 0.5")
        })
}

/// An ignored test of the test program `target`, which reports its work.
fn reporting(target: &str, name: &str, share: &Share) -> Outcome<Ran> {
    let mut command = cargo_workspace("test");
    command
        .args(["--test", target, "--"])
        .args(["--ignored", "--exact", "--nocapture", name]);
    work::program(&mut command, share)
}

/// An ignored test of the provider, which reports its work.
fn long_test(name: &str, share: &Share) -> Outcome<Ran> {
    dist::build()?;
    reporting("provider", name, share)
}

/// The ignored test of `ring/src/hostile.rs`, which reports its work. The tests beside it show that
/// it finds planted defects.
fn ring(share: &Share) -> Outcome<Ran> {
    let mut command = cargo([
        "test",
        "--package",
        "lockstep-ring",
        "--lib",
        "--locked",
        "--",
    ]);
    command
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("hostile::hostile_processes_for_long");
    work::program(&mut command, share)
}

/// The provider's test in which every allocation fails in turn.
fn allocations(_: &Share) -> Outcome<Ran> {
    dist::build()?;
    ignored("provider", "allocations::")
}

/// The ignored tests of the test program `target` whose names contain `name`, each of which is a
/// case.
fn ignored(target: &str, name: &str) -> Outcome<Ran> {
    let mut command = cargo_workspace("test");
    command.args(["--no-fail-fast", "--test", target, "--"]);
    counted(&mut command, target, name)
}

/// The same of all test programs of a crate.
fn ignored_in(package: &str, name: &str) -> Outcome<Ran> {
    let mut command = cargo(["test", "--locked", "--no-fail-fast", "--tests"]);
    command.args(["--package", package, "--"]);
    counted(&mut command, package, name)
}

fn counted(command: &mut Command, of: &str, name: &str) -> Outcome<Ran> {
    command.args(["--ignored", name]);
    let Count { passed, failed, .. } = passed_and_failed(command)?;
    if passed + failed == 0 {
        return Err(Failure::new(format!(
            "no long test of {of} has {name:?} in its name"
        )));
    }
    Ok(Ran::Worked(Work {
        cases: passed + failed,
        findings: failed,
        ..Work::default()
    }))
}

/// The lints of each test run see the library's functions that are newer, not the language.
fn oldest_rust(_: &Share) -> Outcome<Ran> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    let toolchain = format!("+{version}");
    if !succeeds("cargo", &[&toolchain, "--version"]) {
        return Ok(Ran::Skipped(format!(
            "no Rust {version}: rustup toolchain install {version}"
        )));
    }
    let mut check = Command::new("cargo");
    check
        .args([
            &toolchain,
            "check",
            "--workspace",
            "--all-targets",
            "--locked",
        ])
        .arg("--target-dir")
        .arg(target_directory().join("oldest-rust"))
        .current_dir(root());
    quietly(&mut check)?;
    Ok(Ran::Worked(Work {
        cases: 1,
        ..Work::default()
    }))
}

/// The soak, for as long as it is given.
fn soak(share: &Share) -> Outcome<Ran> {
    // Its servers need some of the time to start and to be looked at.
    trace::soak(share.time.as_secs().saturating_sub(20).max(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Check = Check {
        name: "one",
        about: "",
        sources: KERNELS,
        weight: 1,
        least: minutes(2),
        most: minutes(30),
        run: |_| Ok(Ran::Worked(Work::default())),
    };

    #[test]
    fn time_is_shared_by_weight_and_within_bounds() {
        assert_eq!(share(&CHECK, minutes(1), 1), None);
        assert_eq!(share(&CHECK, minutes(40), 4), Some(minutes(10)));
        assert_eq!(share(&CHECK, minutes(3), 4), Some(minutes(2)));
        assert_eq!(share(&CHECK, minutes(300), 2), Some(minutes(30)));
    }

    #[test]
    fn hours_may_be_parts_of_one() {
        assert_eq!(hours(Some("0.5")).unwrap(), minutes(30));
        assert!(hours(Some("soon")).is_err());
        assert!(hours(Some("-1")).is_err());
        assert!(hours(None).is_err());
    }

    #[test]
    fn names_are_unique() {
        for (index, check) in CHECKS.iter().enumerate() {
            assert!(
                CHECKS[index + 1..]
                    .iter()
                    .all(|other| other.name != check.name)
            );
        }
    }
}
