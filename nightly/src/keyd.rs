//! Hostile clients of the key daemon: `keyd/tests/daemon`, with a daemon under AddressSanitizer.
//!
//! The daemon is built with fault points. The defects that the environment plants must be found
//! first: otherwise a run without findings would prove nothing. One is a defect of the ring, which
//! AddressSanitizer must find. The others switch off a bound of the daemon each; the test of the
//! daemon's peaks among hostile clients must find them, in a daemon without the sanitizer, which
//! needs memory itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use xtask::command::{
    Failure, Outcome, cargo, cargo_workspace, must_fail, on, quietly, target_directory,
};
use xtask::dist;
use xtask::work::{self, Ran, Share};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Rust's own library is not instrumented.
const FLAGS: &str = "-Csymbol-mangling-version=v0 -Zsanitizer=address -Cdebug-assertions=on \
                     -Cunsafe-allow-abi-mismatch=sanitizer";

/// The name of the defect in the environment, and AddressSanitizer's report of it.
const PLANTED: (&str, &str) = ("believed-length", "heap-buffer-overflow");
/// Output of the test of peaks where another user waits. A daemon that computes for too long shows
/// no sign of life, and then that user's signature fails.
const WAITS: &[&str] = &[
    ": a signature of another user takes ",
    "the key daemon does not answer",
];
/// The bounds that are switched off, and the output of the test then.
const UNBOUNDED: &[(&str, &[&str])] = &[
    ("no-turns", WAITS),
    ("long-batches", WAITS),
    ("kept-requests", &[" descriptors"]),
    ("every-line", &[" lines in the log"]),
];
const PLANTED_RUN: Duration = Duration::from_secs(20);

/// Runs it for as long as it is given.
pub fn night(share: &Share) -> Outcome<Ran> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Ran::Skipped(
            "AddressSanitizer is for x86-64 here".to_owned(),
        ));
    }
    let program = build(&share.directory)?;
    proves_itself(&program)?;
    finds_what_is_unbounded(&share.directory)?;
    work::program(&mut attack(&program), share)
}

/// Builds the daemon, and returns the directory with it.
fn build(directory: &Path) -> Outcome<PathBuf> {
    let target = target_directory().join("keyd");
    let mut build = cargo(["build", "--release", "--locked", "--target", TARGET]);
    build
        .args(["--package", "lockstep-cli", "--package", "lockstep-ring"])
        .args(["--features", "lockstep-ring/fault-injection"])
        .arg("--target-dir")
        .arg(&target)
        // The sanitizers are not stable yet; no release depends on them.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", FLAGS);
    quietly(dist::soon_built(&mut build))?;
    let built = target.join(TARGET).join("release/lockstep");
    fs::copy(&built, directory.join("lockstep")).map_err(on(&built, "copy"))?;
    Ok(directory.to_owned())
}

/// The ignored test of `keyd/tests/daemon/hostile.rs`, which reports its work.
fn attack(program: &Path) -> Command {
    let mut command = cargo_workspace("test");
    command
        .args(["--test", "daemon", "--"])
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("hostile::hostile_clients_for_long")
        .env("LOCKSTEP_DIST", program)
        // The daemon is killed, and has no time to look for leaks.
        .env("ASAN_OPTIONS", "detect_leaks=0");
    command
}

/// Plants a defect, which must be found.
fn proves_itself(program: &Path) -> Outcome {
    let (defect, report) = PLANTED;
    let mut command = attack(program);
    command
        .env("LOCKSTEP_PLANT", defect)
        .env("NIGHTLY_SECONDS", PLANTED_RUN.as_secs().to_string());
    match quietly(&mut command)? {
        text if text.contains("a finding: ") && text.contains(report) => Ok(()),
        text => Err(Failure::new(format!(
            "the planted defect `{defect}` was not found:\n{text}"
        ))),
    }
}

/// Whether the test of peaks passes, and finds each bound that is switched off.
fn finds_what_is_unbounded(directory: &Path) -> Outcome {
    let target = target_directory().join("keyd");
    let mut build = cargo(["build", "--locked", "--target-dir"]);
    build
        .arg(&target)
        .args(["--package", "lockstep-cli", "--package", "lockstep-keyd"])
        .args(["--features", "lockstep-keyd/fault-injection"]);
    quietly(&mut build)?;
    let (built, program) = (target.join("debug/lockstep"), directory.join("bounds"));
    fs::create_dir_all(&program).map_err(on(&program, "create"))?;
    fs::copy(&built, program.join("lockstep")).map_err(on(&built, "copy"))?;
    let test = |defect: &str| {
        let mut command = cargo_workspace("test");
        command
            .args(["--test", "daemon", "--", "--nocapture", "peaks::"])
            .env("LOCKSTEP_DIST", &program)
            .env("LOCKSTEP_PLANT", defect);
        command
    };
    if quietly(&mut test(""))?.contains("skipped: ") {
        println!("not as root: nobody looked for what is unbounded");
        return Ok(());
    }
    for (defect, reports) in UNBOUNDED {
        must_fail(&mut test(defect), defect, reports)?;
    }
    Ok(())
}
