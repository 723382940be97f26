//! `cargo xtask test`: every check there is, one after the other, and a count at the end.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{
    Failure, Outcome, cannot_run, cargo, cargo_workspace, quietly, target_directory,
};
use crate::dist::Flavour;
use crate::tally::{Count, count, counts, passed_and_failed};
use crate::work::Ran;
use crate::{
    disassembly, dist, fuzz, layers, links, matrix, openssl_tests, prose, setup, symbols, taint,
    tlsfuzzer,
};

/// A check, and how to run it.
type Check = (&'static str, fn() -> Outcome<Count>);

/// In the order they run: the quick ones first, and `dist` before what reads it.
const CHECKS: &[Check] = &[
    ("format", || passes(["fmt", "--all", "--check"])),
    ("clippy", || {
        passes([
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])
    }),
    ("deny", deny),
    ("links", || links::check().map(|_| Count::PASSED)),
    ("prose", || prose::check().map(|_| Count::PASSED)),
    ("layers", || layers::check().map(|_| Count::PASSED)),
    ("dist", || dist::build().map(|_| Count::PASSED)),
    ("disassembly", || {
        disassembly::check(&dist::module()).map(|_| Count::PASSED)
    }),
    ("symbols", || {
        symbols::check(&dist::module()).map(|_| Count::PASSED)
    }),
    ("trace", trace),
    ("taint", taint),
    ("documentation", documentation),
    ("tests", tests),
    ("planted", planted),
    ("openssl-tests", openssl_tests),
    ("fuzz", fuzz),
    ("tlsfuzzer", tlsfuzzer),
    ("matrix", || matrix::quick().map(of_one)),
    AHEAD,
    ("soak", soak),
];

/// What `--quick` runs, for daily work: under three minutes where nothing has to be built.
const QUICK: &[Check] = &[
    CHECKS[0],
    CHECKS[1],
    CHECKS[3],
    CHECKS[4],
    CHECKS[5],
    ("units", || tests_of(&["--lib", "--bins"], "")),
    ("vectors", || tests_of(&["--test", "provider"], "vectors::")),
    ("server", || {
        tests_of(&["--test", "servers"], "haproxy_signs_on_lanes")
    }),
];

/// Begins beside `dist`, which leaves a CPU idle for a minute, and is reported in its turn: it has
/// a build of its own.
const AHEAD: Check = ("loom", loom);

/// Runs all checks, or those named, or the quick ones; fails if one of them does, after running the
/// others too.
pub fn run(names: &[&str]) -> Outcome {
    let (checks, names) = match names {
        ["--quick", names @ ..] => (QUICK, names),
        names => (CHECKS, names),
    };
    if let ["--list"] = names {
        checks.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    }
    let known = |name: &&str| checks.iter().any(|(check, _)| check == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        return Err(Failure::new(format!("there is no check `{unknown}`"))
            .remedy("cargo xtask test --list"));
    }
    setup::ensure_components()?;
    setup::ensure()?;
    let mut total = Count::default();
    let mut failed = Vec::new();
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let mut ahead = None;
    for (name, check) in checks.iter().filter(|(name, _)| wanted(name)) {
        println!("{name} …");
        let start = Instant::now();
        if *name == "dist" && wanted(AHEAD.0) {
            ahead = Some(thread::spawn(AHEAD.1));
        }
        let count = match ahead.take_if(|_| *name == AHEAD.0) {
            Some(begun) => begun.join().expect("a check does not panic"),
            None => check(),
        };
        let count = count.unwrap_or_else(|failure| {
            println!("{failure}");
            Count::FAILED
        });
        let verdict = match count {
            Count {
                failed: 0,
                passed: 0,
                ..
            } => "skipped",
            Count { failed: 0, .. } => "ok",
            _ => {
                failed.push(*name);
                "FAILED"
            }
        };
        println!("{name} {verdict} ({:.1} s)", start.elapsed().as_secs_f64());
        total.add(count);
    }
    let outcome = match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!("failed: {}", failed.join(", "))).print()),
    };
    println!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    );
    outcome
}

fn passes<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Outcome<Count> {
    quietly(&mut cargo(arguments)).map(|_| Count::PASSED)
}

/// Licences, sources and bans of all dependencies. Advisories are left out: their database is
/// fetched from elsewhere on every run, and a test must not fail for a network.
fn deny() -> Outcome<Count> {
    if !setup::has_cargo_deny() {
        println!("cargo-deny is not installed (`cargo xtask setup` installs it)");
        return Ok(Count::SKIPPED);
    }
    passes(["deny", "--offline", "check", "bans", "licenses", "sources"])
}

fn documentation() -> Outcome<Count> {
    let mut command = cargo([
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ]);
    // Written for those who work on the code: links to private items are welcome.
    quietly(command.env(
        "RUSTDOCFLAGS",
        "-D warnings -A rustdoc::private_intra_doc_links",
    ))
    .map(|_| Count::PASSED)
}

/// All tests of the workspace, with `dist/` and a second module that can be made to fail.
fn tests() -> Outcome<Count> {
    let release = dist::build()?;
    let faulty = target_directory().join("dist-faults");
    let faulty = dist::build_into(&faulty, Flavour::FaultInjection)?;
    let mut command = cargo_workspace("test");
    command
        .arg("--no-fail-fast")
        .env("LOCKSTEP_DIST", release.directory)
        .env("LOCKSTEP_FAULT_DIST", faulty.directory);
    count(&mut command)
}

/// Some tests of the workspace, with `dist/`.
fn tests_of(targets: &[&str], filter: &str) -> Outcome<Count> {
    let release = dist::build()?;
    let mut command = cargo_workspace("test");
    command.arg("--no-fail-fast").args(targets).arg(filter);
    command.env("LOCKSTEP_DIST", release.directory);
    let (passed, failed) = passed_and_failed(&mut command)?;
    Ok(Count {
        passed,
        failed,
        skipped: 0,
    })
}

/// Defects that are planted in the module with fault points: the check of the machine code finds
/// each.
fn planted() -> Outcome<Count> {
    let module = target_directory().join("dist-faults");
    let module = dist::build_into(&module, Flavour::FaultInjection)?.directory;
    let found = disassembly::exact::find_planted(&module.join("lockstep.so"))?;
    Ok(Count {
        passed: found as u64,
        ..Count::default()
    })
}

/// The tool that compares what the release module executes for two secrets.
pub fn trace_command() -> Outcome<Command> {
    let dist = dist::build()?;
    let mut command = cargo(["run", "--quiet", "--package", "lockstep-rig", "--locked"]);
    command.args(["--bin", "lockstep-trace", "--"]);
    command.env("LOCKSTEP_DIST", dist.directory);
    Ok(command)
}

/// Most operations on the best lanes of this CPU, with four secrets each.
fn trace() -> Outcome<Count> {
    let mut command = trace_command()?;
    command.arg("--quick").stdin(Stdio::null());
    let status = command
        .status()
        .map_err(|error| cannot_run(&command, &error))?;
    match status.code() {
        Some(0) => Ok(Count::PASSED),
        Some(77) => Ok(Count::SKIPPED),
        _ => Err(Failure::new(
            "what the module executes depends on a secret, see above",
        )),
    }
}

/// Operations on the portable backend, followed by MemorySanitizer.
fn taint() -> Outcome<Count> {
    taint::find_none(taint::QUICK).map(of_one)
}

/// The kept inputs of the fuzzer, and new ones for half a minute, under AddressSanitizer.
fn fuzz() -> Outcome<Count> {
    fuzz::quick(Duration::from_secs(30)).map(of_one)
}

/// Ten scripts of tlsfuzzer, if it is there.
fn tlsfuzzer() -> Outcome<Count> {
    tlsfuzzer::quick().map(of_one)
}

/// OpenSSL's vectors of public-key operations, if its tests have been built.
fn openssl_tests() -> Outcome<Count> {
    openssl_tests::quick().map(of_one)
}

/// The count of a check that fails by an error.
fn of_one(ran: Ran) -> Count {
    match ran {
        Ran::Worked(_) => Count::PASSED,
        Ran::Skipped(missing) => {
            println!("{missing}");
            Count::SKIPPED
        }
    }
}

/// The models of lost wake-ups, and the words by which loom reports each.
const LOST_WAKE_UPS: &[(&str, &str)] = &[
    ("a_thread_is_not_woken", "deadlock"),
    ("a_worker_is_not_woken", "deadlock"),
    ("a_job_is_not_told", "wake-ups of the job"),
    ("a_look_before_the_lock", "deadlock"),
];

/// The queue's models under every interleaving of their threads. They are one check: the number of
/// models is not a measure. Lost wake-ups that are planted must be found.
fn loom() -> Outcome<Count> {
    let models = |arguments: &[&str]| {
        let mut command = cargo([
            "test",
            "--release",
            "--package",
            "lockstep-engine",
            "--lib",
            "--locked",
        ]);
        command
            .arg("--target-dir")
            .arg(target_directory().join("loom"));
        command.args(arguments).env("RUSTFLAGS", "--cfg loom");
        // No kernel runs in a model: they need not be fast, but soon built.
        for (setting, value) in [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")] {
            command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
        }
        command
    };
    if counts(&quietly(&mut models(&["models"]))?).passed == 0 {
        return Err(Failure::new("no model ran"));
    }
    for (defect, report) in LOST_WAKE_UPS {
        let name = format!("queue::models::planted::{defect}");
        let mut command = models(&["--", "--ignored", "--exact", &name, "--nocapture"]);
        match quietly(&mut command) {
            Err(failure) if failure.to_string().contains(report) => {}
            Err(failure) => return Err(failure),
            Ok(_) => {
                let missed = format!("the models do not find the planted defect `{defect}`");
                return Err(Failure::new(missed));
            }
        }
    }
    Ok(Count::PASSED)
}

/// Servers of the distribution under steady load, for a minute.
fn soak() -> Outcome<Count> {
    Ok(match soak_for(60)? {
        Some(()) => Count::PASSED,
        None => Count::SKIPPED,
    })
}

/// Servers of the distribution under steady load; `None` if none is installed.
pub fn soak_for(seconds: u64) -> Outcome<Option<()>> {
    let dist = dist::build()?;
    quietly(cargo_workspace("build").args(["--profile", "test", "--example", "soak"]))?;
    let mut command = Command::new(target_directory().join("debug/examples/soak"));
    command.arg(seconds.to_string());
    command.env("LOCKSTEP_DIST", dist.directory);
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| cannot_run(&command, &error))?;
    match status.code() {
        Some(0) => Ok(Some(())),
        Some(77) => Ok(None),
        _ => Err(Failure::new("a server did not stand the load, see above")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_checks_are_those_that_are_meant() {
        let names: Vec<&str> = QUICK.iter().map(|(name, _)| *name).collect();
        let all = [
            "format", "clippy", "links", "prose", "layers", "units", "vectors", "server",
        ];
        assert_eq!(names, all);
    }
}
