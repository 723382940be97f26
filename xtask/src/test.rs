//! `cargo xtask test`: every check there is, in order, and a count at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::command::{
    Failure, Outcome, build_as_tests, cargo, cargo_workspace, insist_on_known, list, metadata,
    must_fail, quietly, root, succeeds, target_directory,
};
use crate::tally::{Count, count, counts, passed_and_failed, show_failures, show_skips, skip};
use crate::work::Ran;
use crate::{
    disassembly, dist, layers, links, long, prose, python, setup, symbols, watched, weight,
};

/// A check, and how to run it.
type Check = (&'static str, fn() -> Outcome<Count>);

/// All features but `peers` of lockstep-bench, which builds AWS-LC and other libraries.
const LINTED: &str = "lockstep-bench/cycles,lockstep-kernels/fault-injection,\
                      lockstep-kernels/proofs,lockstep-keyd/fault-injection,\
                      lockstep-provider/fault-injection,lockstep-ring/fault-injection";

/// In the order they run: the quick ones first, and `dist` before the checks that read it.
const CHECKS: &[Check] = &[
    ("format", || passes(["fmt", "--all", "--check"])),
    ("clippy", || {
        passes([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--features",
            LINTED,
            "--",
            "-D",
            "warnings",
        ])
    }),
    ("aarch64", aarch64),
    ("deny", deny),
    ("links", || links::check().map(|_| Count::PASSED)),
    ("prose", || prose::check().map(|_| Count::PASSED)),
    ("layers", || layers::check().map(|()| Count::PASSED)),
    ("alerts", alerts),
    ("workflows", workflows),
    ("book", book),
    ("dist", || dist::build().map(|_| Count::PASSED)),
    ("disassembly", || {
        disassembly::check(&dist::module()).map(|_| Count::PASSED)
    }),
    ("symbols", || {
        symbols::check(&dist::module()).map(|_| Count::PASSED)
    }),
    ("weight", || {
        weight::check(&dist::module()).map(|_| Count::PASSED)
    }),
    ("prove", || short("prove")),
    ("trace", || short("trace")),
    ("taint", || short("taint")),
    ("watched", || watched::check(&dist::module()).map(of_one)),
    ("documentation", documentation),
    ("tests", tests),
    ("python", python::check),
    ("planted", planted),
    ("openssl-tests", || short("openssl-tests")),
    ("fuzz", || {
        let mut count = short("fuzz")?;
        count.add(short("fuzz-kems")?);
        count.add(short("fuzz-lattices")?);
        Ok(count)
    }),
    ("tlsfuzzer", || short("tlsfuzzer")),
    ("matrix", || short("matrix")),
    ("loom", loom),
    ("soak", || short("soak")),
];

/// The checks of `--quick`, for daily work: under three minutes where nothing has to be built.
const QUICK: &[Check] = &[
    CHECKS[0],
    CHECKS[1],
    CHECKS[4],
    CHECKS[5],
    CHECKS[6],
    ("units", || tests_of(&["--lib", "--bins"], "")),
    ("vectors", || tests_of(&["--test", "provider"], "vectors::")),
    ("server", || {
        tests_of(&["--test", "servers"], "haproxy_signs_on_lanes")
    }),
];

/// Checks that begin beside an earlier one, which leaves a CPU idle, and are reported in their
/// turn. Each of them has a build of its own, or needs none.
const AHEAD: &[Ahead] = &[
    Ahead {
        beside: "dist",
        check: "loom",
    },
    Ahead {
        beside: "trace",
        check: "taint",
    },
    // The compiler of the tests leaves a CPU idle for long.
    Ahead {
        beside: "documentation",
        check: "matrix",
    },
    Ahead {
        beside: "fuzz",
        check: "soak",
    },
];

struct Ahead {
    beside: &'static str,
    check: &'static str,
}

/// Runs all checks, or those named, or the quick ones; fails if one of them does, after running the
/// others too.
pub fn run(names: &[&str]) -> Outcome {
    let (checks, names) = match names {
        ["--quick", names @ ..] => (QUICK, names),
        names => (CHECKS, names),
    };
    if let ["--list"] = names {
        return list(checks.iter().map(|(name, _)| *name));
    }
    let known: Vec<&str> = checks.iter().map(|(name, _)| *name).collect();
    insist_on_known(names, &known, "cargo xtask test --list")?;
    let is_all = names.is_empty() && checks.len() == CHECKS.len();
    match is_all {
        true => setup::run()?,
        false => setup::ensure_all()?,
    }
    let mut total = Count::default();
    let mut failed = Vec::new();
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    let mut begun = BTreeMap::new();
    for (name, check) in checks.iter().filter(|(name, _)| wanted(name)) {
        println!("{name} …");
        let start = Instant::now();
        for ahead in AHEAD.iter().filter(|ahead| ahead.beside == *name) {
            let found = checks.iter().find(|(name, _)| *name == ahead.check);
            if let Some((name, check)) = found.filter(|(name, _)| wanted(name)) {
                begun.insert(name, thread::spawn(check));
            }
        }
        let count = match begun.remove(name) {
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
    show_failures();
    let missing = show_skips();
    if missing > 0 && is_all && std::env::var_os("CI").is_some() {
        println!("set-up left {missing} programs out, and in CI that is a failure");
        total.failed += missing;
        failed.push("set-up");
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

/// The module and the command, compiled for an architecture without our vectors.
fn aarch64() -> Outcome<Count> {
    if !setup::has_aarch64() {
        return Ok(skip("Rust's library for aarch64 is not installed"));
    }
    let mut check = cargo(["check", "--locked", "--target", setup::AARCH64]);
    check.args(["--package", "lockstep-provider"]);
    check.args(["--package", "lockstep-cli"]);
    quietly(check.env("RUSTFLAGS", "-Dwarnings")).map(|_| Count::PASSED)
}

/// Licences, sources and bans of all dependencies. Advisories are left out: their database is
/// fetched from elsewhere on every run, and a test must not fail for a network.
fn deny() -> Outcome<Count> {
    if !setup::has_cargo_deny() {
        return Ok(skip("cargo-deny is not installed"));
    }
    passes(["deny", "--offline", "check", "bans", "licenses", "sources"])
}

/// A check by a tool that a machine may lack.
fn by_tool(tool: &str, arguments: &[&str]) -> Outcome<Count> {
    if !succeeds(tool, &["--version"]) {
        return Ok(skip(&format!("{tool} is not installed")));
    }
    let mut command = Command::new(tool);
    quietly(command.args(arguments).current_dir(root())).map(|_| Count::PASSED)
}

/// The alerts for Prometheus, on servers that are well and on such that are not.
fn alerts() -> Outcome<Count> {
    let rules = ["test", "rules", "packaging/prometheus/lockstep.test.yml"];
    by_tool("promtool", &rules)
}

fn workflows() -> Outcome<Count> {
    match setup::has_actionlint() {
        true => quietly(Command::new("actionlint").current_dir(root())).map(|_| Count::PASSED),
        false => Ok(skip(
            "this system's Go does not build actionlint 1.7 (1.24 does)",
        )),
    }
}

/// The site of docs/, in target/book.
fn book() -> Outcome<Count> {
    by_tool("mdbook", &["build"])
}

fn documentation() -> Outcome<Count> {
    // The module and the bulk library are both called `lockstep`, and so are their pages.
    const MODULE: &str = "lockstep-provider";
    for packages in [&["--workspace", "--exclude", MODULE][..], &["-p", MODULE]] {
        let mut command = cargo(["doc", "--no-deps", "--document-private-items", "--locked"]);
        // The readers work on the code: links to private items are welcome.
        let flags = "-D warnings -A rustdoc::private_intra_doc_links";
        quietly(command.args(packages).env("RUSTDOCFLAGS", flags))?;
    }
    Ok(Count::PASSED)
}

/// The tests of servers, which wait more than they compute: they run beside all others.
const SERVERS: &str = "servers";

/// All tests of the workspace, with `dist/` and a second module that can be made to fail.
fn tests() -> Outcome<Count> {
    let release = dist::build()?.directory;
    build_as_tests(&["--lib", "--tests", "--examples"])?;
    let faulty = dist::faulty()?.directory;
    let tests = |targets: &[&str]| {
        let mut command = cargo_workspace("test");
        command.arg("--no-fail-fast").args(targets);
        // With the output of tests that leave something out.
        command.args(["--", "--show-output"]);
        command.env("LOCKSTEP_DIST", &release);
        command.env("LOCKSTEP_FAULT_DIST", &faulty);
        command
    };
    let programs = test_programs()?;
    let others = programs.iter().filter(|name| *name != SERVERS);
    let others = others.flat_map(|name| ["--test", name]);
    let others: Vec<&str> = ["--lib", "--bins"].into_iter().chain(others).collect();
    let (mut of_servers, mut others) = (tests(&["--test", SERVERS]), tests(&others));
    let of_servers = thread::spawn(move || passed_and_failed(&mut of_servers));
    let mut all = count(&mut others)?;
    all.add(count(&mut tests(&["--doc"]))?);
    let of_servers = of_servers.join().expect("a check does not panic")?;
    let Count { passed, failed, .. } = of_servers;
    println!("tests of servers: {passed} passed, {failed} failed");
    all.add(of_servers);
    Ok(all)
}

/// The names of the workspace's test programs.
fn test_programs() -> Outcome<BTreeSet<String>> {
    let metadata = metadata(&["--locked", "--no-deps"])?;
    let all_of = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages = all_of(&metadata["packages"]).into_iter();
    let targets = packages.flat_map(|package| all_of(&package["targets"]));
    let tests = targets.filter(|target| target["kind"] == json!(["test"]));
    let name = |target: Value| target["name"].as_str().map(str::to_owned);
    Ok(tests.filter_map(name).collect())
}

/// Some tests of the workspace, with `dist/`.
fn tests_of(targets: &[&str], filter: &str) -> Outcome<Count> {
    let release = dist::build()?;
    let mut command = cargo_workspace("test");
    command.arg("--no-fail-fast").args(targets).arg(filter);
    command.env("LOCKSTEP_DIST", release.directory);
    let count = passed_and_failed(&mut command)?;
    match count.passed + count.failed {
        0 => Err(Failure::new(format!("no test has `{filter}` in its name"))),
        _ => Ok(count),
    }
}

/// The defect in the module with fault points: the check of the machine code finds it.
fn planted() -> Outcome<Count> {
    let module = dist::faulty()?.module();
    disassembly::find_planted(&module).map(|()| Count::PASSED)
}

/// The short form of a long check.
fn short(name: &str) -> Outcome<Count> {
    long::short(name).map(of_one)
}

/// The count of a check that fails by an error.
fn of_one(ran: Ran) -> Count {
    match ran {
        Ran::Worked(_) => Count::PASSED,
        Ran::Skipped(missing) => skip(&missing),
    }
}

/// Loom's word for a thread that nobody wakes.
const DEADLOCK: &str = "deadlock";

/// The models of a package.
struct Models {
    package: &'static str,
    /// The module of its planted defects.
    planted: &'static str,
    /// The models that must find one each, and the words of the report.
    defects: &'static [(&'static str, &'static str)],
}

const MODELS: &[Models] = &[
    Models {
        package: "lockstep-engine",
        planted: "queue::models::planted",
        defects: &[
            ("a_thread_is_not_woken", DEADLOCK),
            ("a_worker_is_not_woken", DEADLOCK),
            ("a_job_is_not_told", "wake-ups of the job"),
            ("a_look_before_the_lock", DEADLOCK),
            ("a_slot_is_not_taken_back", "assertion"),
            ("a_slot_that_was_left_is_not_replaced", DEADLOCK),
            ("a_long_batch_calls_nobody", DEADLOCK),
        ],
    },
    Models {
        package: "lockstep-ring",
        planted: "models::planted",
        defects: &[
            ("a_bell_is_silent", DEADLOCK),
            ("a_bell_rings_before_the_bit", DEADLOCK),
            ("a_last_look_is_careless", DEADLOCK),
            ("an_answer_is_silent", DEADLOCK),
            ("an_answer_is_blind", DEADLOCK),
            ("a_slot_is_free_too_early", DEADLOCK),
            ("a_slot_is_forgotten_too_late", DEADLOCK),
            ("a_watcher_calls_before_its_gate_is_closed", DEADLOCK),
        ],
    },
];

/// The models of the queue and of the ring under every interleaving of their threads. They are one
/// check: the number of models is not a measure. Defects that are planted must be found.
fn loom() -> Outcome<Count> {
    for Models {
        package,
        planted,
        defects,
    } in MODELS
    {
        if counts(&quietly(&mut models(package, &["models"]))?).passed == 0 {
            return Err(Failure::new(format!("no model of {package} ran")));
        }
        for (defect, report) in *defects {
            let name = format!("{planted}::{defect}");
            let arguments = ["--", "--ignored", "--exact", &name, "--nocapture"];
            must_fail(&mut models(package, &arguments), defect, &[report])?;
        }
    }
    Ok(Count::PASSED)
}

/// The tests of a package for loom.
fn models(package: &str, arguments: &[&str]) -> Command {
    let mut command = cargo([
        "test",
        "--release",
        "--package",
        package,
        "--lib",
        "--locked",
    ]);
    command
        .arg("--target-dir")
        .arg(target_directory().join("loom"));
    // No kernel runs in a model: there need not be many, nor fast ones.
    command.args([
        "--config",
        "profile.release.package.lockstep-kernels.opt-level=0",
    ]);
    command.args(arguments);
    command.env("RUSTFLAGS", "--cfg loom --cfg portable");
    for (setting, value) in [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")] {
        command.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_beside_a_check_has_its_turn_later() {
        let place = |name| CHECKS.iter().position(|(check, _)| *check == name);
        for Ahead { beside, check } in AHEAD {
            let (beside, check) = (place(*beside), place(*check));
            assert!(beside.is_some() && beside < check, "{beside:?} {check:?}");
        }
    }

    #[test]
    fn the_quick_checks_are_those_that_are_meant() {
        let names: Vec<&str> = QUICK.iter().map(|(name, _)| *name).collect();
        let all = [
            "format", "clippy", "links", "prose", "layers", "units", "vectors", "server",
        ];
        assert_eq!(names, all);
    }
}
