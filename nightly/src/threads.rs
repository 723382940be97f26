//! Data races and lost wake-ups: `rig/programs/threads.c` against the module, and the tests of the
//! engine, of the ring and of the way to the key daemon, under ThreadSanitizer.
//!
//! The module, these crates and Rust's standard library are built with it, so ThreadSanitizer sees
//! the library's locks and channels, and no finding needs to be suppressed. libcrypto is not:
//! ThreadSanitizer sees its locks of libpthread, and none of its accesses to memory. A machine
//! needs a nightly toolchain with the component `rust-src` for that; where there is none, the check
//! is skipped.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use xtask::command::{
    Failure, Outcome, compile, nightly, on, quietly, succeeds, target_directory, within,
};
use xtask::dist;
use xtask::tally::{Count, passed_and_failed};
use xtask::work::{Ran, Share, Work};

use crate::keys;

/// rustix calls the C library here. Otherwise it makes the system calls itself, and ThreadSanitizer
/// does not see them. A thread may map a stack for the kernels where another has just unmapped one,
/// and ThreadSanitizer would take their accesses for a race.
const FLAGS: &str = "-Csymbol-mangling-version=v0 -Zsanitizer=thread -Cdebug-assertions=on \
                     --cfg rustix_use_libc";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Lost jobs are threads' stacks that leak, as in a server.
const OPTIONS: &str = "halt_on_error=0:exitcode=66:report_thread_leaks=0";

/// How long a run lasts, and one with a planted defect.
const RUN: Duration = Duration::from_secs(60);
const PLANTED_RUN: Duration = Duration::from_secs(10);

/// How much longer it may take. ThreadSanitizer itself can hang, when it reports a race while
/// another thread loads a library; that is a finding like the race.
const SPARE: Duration = Duration::from_secs(60);

/// In place of the directory of modules: the program does not load the module again and again.
const NO_LOADS: &str = "-";

/// How the program ends when no thread gets on.
const HANGS: i32 = 4;

/// Planted defects, as the environment names them.
const PLANTED: &[&str] = &["data-race", "lost-thread", "lost-worker", "lost-job"];

/// The engine's fault points.
const FAULTS: &[&str] = &["--features", "fault-injection"];

/// Slots of the runs, in turn.
const SLOTS: &[&str] = &["2", ONE_SLOT, "4"];

/// With this a thread needs to be woken most often.
const ONE_SLOT: &str = "1";

/// Runs it for as long as it is given.
pub fn night(share: &Share) -> Outcome<Ran> {
    let end = Instant::now() + share.time;
    let Some(libraries) = libraries() else {
        return Ok(Ran::Skipped(
            "no sources of Rust's library: rustup component add --toolchain nightly rust-src"
                .to_owned(),
        ));
    };
    let program = Program::build(&libraries, &share.directory)?;
    program.proves_itself()?;
    let (passed, failed) = unit_tests()?;
    let mut work = Work {
        cases: passed + failed,
        findings: failed,
        next: share.next,
        ..Work::default()
    };
    let mut on_lanes = 0;
    loop {
        let slots = SLOTS[work.next as usize % SLOTS.len()];
        let ended = program.run(RUN, slots, None)?;
        work.cases += ended.rounds;
        work.next += 1;
        on_lanes += ended.on_lanes;
        if let Some(finding) = ended.finding {
            println!("{finding}");
            work.findings += 1;
        } else if ended.on_lanes == 0 {
            return Err(Failure::new("no operation ran on lanes: nothing was shown"));
        }
        if Instant::now() + RUN > end {
            break;
        }
    }
    work.note = format!("{on_lanes} operations on lanes; planted defects were found");
    Ok(Ran::Worked(work))
}

/// The libraries of a toolchain that has the sources of the standard library.
fn libraries() -> Option<PathBuf> {
    let directory = quietly(&mut nightly("rustc", &["--print", "target-libdir"])).ok()?;
    let libraries = PathBuf::from(directory.trim());
    let runtime = libraries.join("librustc-nightly_rt.tsan.a");
    let sources = libraries.join("../../src/rust/library/std");
    let there = cfg!(all(target_arch = "x86_64", target_os = "linux"))
        && runtime.exists()
        && sources.exists()
        && succeeds("cc", &["--version"]);
    there.then_some(libraries)
}

/// Cargo, with the sanitizer in all crates that it builds.
fn sanitized(subcommand: &str, package: &str) -> Command {
    let mut command = nightly(
        "cargo",
        &[subcommand, "--release", "--locked", "-Zbuild-std"],
    );
    command
        .args(["--target", TARGET, "--package", package])
        .arg("--target-dir")
        .arg(build_directory())
        .env("RUSTFLAGS", FLAGS)
        // A failed test must not take the others along.
        .env("CARGO_PROFILE_RELEASE_PANIC", "unwind");
    dist::soon_built(&mut command);
    command
}

fn build_directory() -> PathBuf {
    target_directory().join("threads")
}

/// The tests of crates whose threads share memory: how many pass, and how many do not.
fn unit_tests() -> Outcome<(u64, u64)> {
    let mut sum = (0, 0);
    for (package, features, targets) in [
        ("lockstep-counters", &[][..], &["--lib"][..]),
        ("lockstep-ops", FAULTS, &["--lib"]),
        (
            "lockstep-engine",
            FAULTS,
            &["--lib", "--test", "lanes", "--test", "curves"],
        ),
        ("lockstep-ring", &[], &["--lib", "--test", "processes"]),
        // With the thread that watches for answers.
        ("lockstep-remote", &[], &["--lib"]),
    ] {
        let mut command = sanitized("test", package);
        command
            .args(features)
            .args(targets)
            .env("TSAN_OPTIONS", OPTIONS);
        let Count { passed, failed, .. } = passed_and_failed(&mut command)?;
        if passed == 0 {
            return Err(Failure::new(format!("no test of {package} ran")));
        }
        sum = (sum.0 + passed, sum.1 + failed);
    }
    Ok(sum)
}

/// `rig/programs/threads.c`, with the module and keys.
struct Program {
    path: PathBuf,
    directory: PathBuf,
    keys: [PathBuf; 3],
}

/// The result of a run.
struct Ended {
    rounds: u64,
    on_lanes: u64,
    finding: Option<String>,
    hangs: bool,
}

impl Program {
    fn build(libraries: &Path, directory: &Path) -> Outcome<Program> {
        quietly(
            sanitized("build", "lockstep-provider")
                .args(FAULTS)
                .arg("--lib"),
        )?;
        let module = directory.join("lockstep.so");
        let built = build_directory()
            .join(TARGET)
            .join("release/liblockstep.so");
        fs::copy(&built, &module).map_err(on(&built, "copy"))?;
        let configuration = directory.join("openssl.cnf");
        let text = format!(
            "openssl_conf = lockstep_test\n\
             [lockstep_test]\nproviders = providers\nalg_section = properties\n\
             [properties]\ndefault_properties = ?lockstep.fast=yes,?lockstep.keys!=yes\n\
             [providers]\ndefault = default_provider\nlockstep = lockstep_module\n\
             [default_provider]\nactivate = 1\n\
             [lockstep_module]\nmodule = {}\nactivate = 1\n",
            module.display()
        );
        fs::write(&configuration, text).map_err(on(&configuration, "write"))?;
        let keys = keys::make(directory)?;
        let path = directory.join("threads");
        // The module finds the runtime in the program, and some functions of the runtime are the
        // program's own.
        let runtime = libraries.join("librustc-nightly_rt.tsan.a");
        let arguments = [
            "-rdynamic",
            "-Wl,--allow-multiple-definition",
            "-Wl,--whole-archive",
            &runtime.to_string_lossy(),
            "-Wl,--no-whole-archive",
            "-lcrypto",
            "-lpthread",
            "-lm",
            "-ldl",
            "-lrt",
        ];
        compile("rig/programs/threads.c", &path, arguments.map(OsStr::new))?;
        Ok(Program {
            path,
            directory: directory.to_owned(),
            keys,
        })
    }

    fn run(&self, time: Duration, slots: &str, planted: Option<&str>) -> Outcome<Ended> {
        let mut command = Command::new(&self.path);
        command
            .arg(time.as_secs().to_string())
            .arg(match planted {
                None => self.directory.as_path(),
                Some(_) => Path::new(NO_LOADS),
            })
            .args(&self.keys)
            .env("OPENSSL_CONF", self.directory.join("openssl.cnf"))
            .env("LOCKSTEP_LONE", "lanes")
            .env("LOCKSTEP_STATS_DIR", "no")
            .env("LOCKSTEP_SLOTS", slots)
            .env("TSAN_OPTIONS", OPTIONS);
        if let Some(planted) = planted {
            command.env("LOCKSTEP_PLANT", planted);
        }
        let (status, output) = within(time + SPARE, &self.directory.join("output"), &mut command)?;
        let number = |name: &str| {
            let value = output.lines().find_map(|line| line.strip_prefix(name));
            value
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(0)
        };
        let finding = || {
            let how = status.map_or("it hangs".to_owned(), |status| status.to_string());
            let lines: Vec<&str> = output.lines().take(60).collect();
            format!("{slots} slots: {how}\n{}", lines.join("\n"))
        };
        Ok(Ended {
            rounds: number("rounds"),
            on_lanes: number("lanes"),
            finding: (!status.is_some_and(|status| status.success())).then(finding),
            hangs: status.and_then(|status| status.code()) == Some(HANGS),
        })
    }

    /// Plants defects, which must be found.
    fn proves_itself(&self) -> Outcome {
        for planted in PLANTED {
            let ended = self.run(PLANTED_RUN, ONE_SLOT, Some(planted))?;
            let found = match planted.starts_with("lost-") {
                true => ended.hangs,
                false => ended
                    .finding
                    .is_some_and(|finding| finding.contains("data race")),
            };
            if !found {
                return Err(Failure::new(format!(
                    "the planted defect `{planted}` was not found in {} rounds",
                    ended.rounds
                )));
            }
        }
        Ok(())
    }
}
