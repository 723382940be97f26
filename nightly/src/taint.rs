//! The taint check: no jump and no address in the kernels depends on a secret.
//!
//! `rig/taint` is built with MemorySanitizer, which runs on the code after all optimisations. It
//! marks secrets as uninitialised, and every jump, address and division that depends on one is
//! reported. The program plants four defects before it begins, and all of them must be reported;
//! every result must depend on its secret, or the secret was lost on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xtask::command::{Failure, Outcome, cargo, on, quietly, root, target_directory};
use xtask::watched;
use xtask::work::{Ran, Work};

/// Flags of the compiler: the sanitizer, and reports that do not end the program. Only marked bytes
/// count, and only where they are used, not where they are handed to a function.
const FLAGS: &str = "-Csymbol-mangling-version=v0 -Zsanitizer=memory -Zsanitizer-recover=memory \
                     -Cunsafe-allow-abi-mismatch=sanitizer -Cllvm-args=-msan-poison-stack=0 \
                     -Cllvm-args=-msan-eager-checks=0 --cfg ct_msan";

/// More of them: a list of the functions that ran.
const LISTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=1 \
                      -Cllvm-args=-sanitizer-coverage-trace-pc-guard";

/// Memory is unmarked until the program marks it; reports are short, since there are many of the
/// planted ones.
const OPTIONS: &str = "poison_in_malloc=0:poison_in_free=0:halt_on_error=0:exit_code=0:symbolize=0";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The defects that the program plants.
const PLANTED: &[&str] = &[
    "branch_on_bit",
    "index_by_secret",
    "divide_by_secret",
    "compare_secret",
];

/// How much to build and to run.
#[derive(Clone, Copy)]
struct Extent {
    /// Names of backends.
    backends: &'static [&'static str],
    /// The largest RSA key, in bits.
    largest: usize,
    /// One more flag of the compiler.
    flag: &'static str,
    /// Where it is built.
    directory: &'static str,
}

/// The code that all backends have in common, in less than a minute; `trace` has the others'
/// machine code.
const QUICK: Extent = Extent {
    backends: &["portable"],
    largest: 1024,
    flag: "--cfg portable",
    directory: "taint-portable",
};

/// Everything.
const ALL: Extent = Extent {
    backends: &["avx512ifma", "avx512ifma256", "avx2", "portable"],
    largest: 4096,
    flag: "",
    directory: "taint",
};

/// The findings of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Operations that were followed.
    operations: u64,
    /// The errors, one line each.
    findings: Vec<String>,
}

/// Why the check cannot run on this machine, if it cannot.
fn missing() -> Option<String> {
    let runtime = quietly(Command::new("rustc").args(["--print", "target-libdir"]))
        .ok()
        .and_then(|directory| std::fs::read_dir(directory.trim()).ok())
        .is_some_and(|files| {
            files
                .flatten()
                .any(|file| file.file_name().to_string_lossy().ends_with("_rt.msan.a"))
        });
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the taint check runs on Linux on x86-64".to_owned());
    }
    (!runtime).then(|| "this Rust toolchain has no MemorySanitizer runtime".to_owned())
}

/// Builds the program and runs it.
fn check(extent: Extent) -> Outcome<Found> {
    let program = build(extent)?;
    let mut all = Found::default();
    let mut ran = BTreeSet::new();
    for backend in extent.backends {
        let found = follow(&program, backend, extent.largest)?;
        all.operations += found.operations;
        all.findings.extend(found.findings);
        ran.extend(functions(&program)?);
    }
    let list = watched::tainted()?;
    let text: String = ran.iter().map(|name| format!("{name}\n")).collect();
    std::fs::write(&list, text).map_err(on(&list, "write"))?;
    match all.operations {
        0 => Err(Failure::new("the taint check followed no operation")),
        _ => Ok(all),
    }
}

/// [`check`] where this machine can run it; prints the findings.
fn run(extent: Extent) -> Outcome<Ran> {
    if let Some(reason) = missing() {
        return Ok(Ran::Skipped(reason));
    }
    let found = check(extent)?;
    for finding in &found.findings {
        println!("{finding}");
    }
    Ok(Ran::Worked(Work {
        cases: found.operations,
        findings: found.findings.len() as u64,
        note: "operations; planted defects were found".to_owned(),
        ..Work::default()
    }))
}

/// The short form: operations on the portable backend.
pub fn quick() -> Outcome<Ran> {
    run(QUICK)?.or_fail("something depends on a secret, see above")
}

/// The nightly check: operations on all backends.
pub fn night() -> Outcome<Ran> {
    run(ALL)
}

/// Builds the program.
fn build(extent: Extent) -> Outcome<PathBuf> {
    let directory = target_directory().join(extent.directory);
    let mut command = cargo(["build", "--release", "--locked", "--target", TARGET]);
    command
        .current_dir(root().join("rig/taint"))
        .arg("--target-dir")
        .arg(&directory)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", format!("{FLAGS} {} {LISTED}", extent.flag));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            command.env_remove(name);
        }
    }
    quietly(&mut command)?;
    Ok(directory.join(TARGET).join("release/lockstep-taint"))
}

/// Runs the program on the lanes of a backend.
fn follow(program: &Path, backend: &str, largest: usize) -> Outcome<Found> {
    let output = Command::new(program)
        .args([backend, &largest.to_string()])
        .env("MSAN_OPTIONS", options(program)?)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot run {}: {error}", program.display())))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = stderr.lines().rev().take(20).collect();
        return Err(Failure::new(format!(
            "the taint check of {backend} ended with {}: {last:#?}",
            output.status
        )));
    }
    if output.stderr.is_empty() {
        // It prints on stdout that there are no such lanes.
        return Ok(Found::default());
    }
    let log = Log::read(&String::from_utf8_lossy(&output.stderr));
    log.judge(|place| name_of(program, place))
}

/// The sanitizer's options, and an empty place for its list.
fn options(program: &Path) -> Outcome<String> {
    let place = lists(program);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).map_err(on(&place, "create"))?;
    Ok(format!(
        "{OPTIONS}:coverage=1:coverage_dir={}",
        place.display()
    ))
}

fn lists(program: &Path) -> PathBuf {
    program.with_extension("ran")
}

/// The functions that the last run came through, by the sanitizer's list of their addresses.
fn functions(program: &Path) -> Outcome<BTreeSet<String>> {
    let mut nm = Command::new("nm");
    let symbols = quietly(nm.args(["-C", "--defined-only"]).arg(program))?;
    let symbols: BTreeMap<u64, &str> = symbols
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((address, words.nth(1)?))
        })
        .collect();
    let mut found = BTreeSet::new();
    let place = lists(program);
    for file in std::fs::read_dir(&place)
        .map_err(on(&place, "read"))?
        .flatten()
    {
        let bytes = std::fs::read(file.path()).map_err(on(&place, "read"))?;
        // The first word says how long the others are.
        for word in bytes.as_chunks::<8>().0.iter().skip(1) {
            let symbol = symbols.range(..=u64::from_le_bytes(*word)).next_back();
            found.extend(symbol.map(|(_, name)| (*name).to_owned()));
        }
    }
    Ok(found)
}

/// The reports of the program and of the sanitizer.
#[derive(Debug, Default)]
struct Log {
    /// By operation, in order: the reported places, and the misses that the program itself printed.
    operations: Vec<(String, BTreeMap<String, usize>, BTreeSet<String>)>,
}

impl Log {
    fn read(text: &str) -> Self {
        let mut log = Self::default();
        let mut reported = false;
        for line in text.lines() {
            if let Some(operation) = line.strip_prefix("@ ") {
                log.operations
                    .push((operation.to_owned(), BTreeMap::new(), BTreeSet::new()));
                reported = false;
            } else if let Some(missed) = line.strip_prefix("! ") {
                if let Some((_, _, misses)) = log.operations.last_mut() {
                    misses.insert(missed.to_owned());
                }
            } else if line.contains("MemorySanitizer: use-of-uninitialized-value") {
                reported = true;
            } else if reported && line.trim_start().starts_with("#0 ") {
                reported = false;
                if let Some((_, places, _)) = log.operations.last_mut() {
                    *places.entry(offset(line)).or_default() += 1;
                }
            }
        }
        log
    }

    fn judge(&self, name: impl Fn(&str) -> String) -> Outcome<Found> {
        if self
            .operations
            .last()
            .is_none_or(|(last, _, _)| last != "end")
        {
            return Err(Failure::new("the taint check did not come to its end"));
        }
        let mut found = Found::default();
        for planted in PLANTED {
            let planted = format!("planted {planted}");
            let is_found = self
                .operations
                .iter()
                .any(|(operation, places, _)| *operation == planted && !places.is_empty());
            if !is_found {
                found
                    .findings
                    .push(format!("{planted}: the check does not find this defect"));
            }
        }
        for (operation, places, misses) in &self.operations {
            if operation.starts_with("planted ") {
                continue;
            }
            found.operations += 1;
            for (place, times) in places {
                let place = name(place);
                found.findings.push(format!(
                    "{operation}: something depends on a secret, {times} times, at {place}"
                ));
            }
            found
                .findings
                .extend(misses.iter().map(|missed| format!("{operation}: {missed}")));
        }
        Ok(found)
    }
}

/// `+0x1234` of `#0 0x5555 (/path/program+0x1234) (BuildId: …)`, as a number with `0x`.
fn offset(frame: &str) -> String {
    frame
        .rsplit_once('+')
        .and_then(|(_, rest)| rest.split([')', ' ']).next())
        .unwrap_or(frame)
        .to_owned()
}

/// The functions at a place of the program, innermost first.
fn name_of(program: &Path, place: &str) -> String {
    let output = quietly(
        Command::new("addr2line")
            .args(["-f", "-i", "-C", "-s", "-e"])
            .arg(program)
            .arg(place),
    );
    let output = output.unwrap_or_default();
    let lines: Vec<&str> = output.lines().collect();
    let frames: Vec<String> = lines
        .chunks(2)
        .map(|pair| format!("{} ({})", pair[0], pair.get(1).unwrap_or(&"")))
        .collect();
    match frames.is_empty() {
        true => place.to_owned(),
        false => format!("{place}: {}", frames.join(" in ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: &str =
        "    #0 0x55d0 (/tmp/taint+0x1a2b) (BuildId: 12)\n    #1 0x1 (/tmp/taint+0x9)\n";
    const REPORT: &str = "==7==WARNING: MemorySanitizer: use-of-uninitialized-value\n";

    /// A log in which each planted defect is reported once, and nothing else.
    fn good() -> String {
        let mut log = String::new();
        for planted in PLANTED {
            log += &format!("@ planted {planted}\n{REPORT}{FRAME}");
        }
        log + "@ portable x25519\n@ end\n"
    }

    fn judge(log: &str) -> Outcome<Found> {
        Log::read(log).judge(str::to_owned)
    }

    /// The check is not a member of the workspace, so nothing else would find this.
    #[test]
    fn the_lock_file_is_up_to_date() {
        // It reads the manifests of this platform's packages only, which are the ones at hand.
        let mut tree = cargo(["tree", "--locked"]);
        tree.current_dir(root().join("rig/taint"));
        if let Err(failure) = quietly(&mut tree) {
            panic!("run `cargo update --workspace` in rig/taint: {failure}");
        }
    }

    #[test]
    fn a_clean_log_passes() {
        let found = judge(&good()).unwrap();
        assert_eq!((found.operations, found.findings.len()), (2, 0));
    }

    #[test]
    fn each_defect_is_a_finding() {
        for (from, to, expected) in [
            (
                "@ planted divide_by_secret\n",
                "@ portable\n",
                "planted divide_by_secret",
            ),
            (
                "x25519\n",
                &format!("x25519\n{REPORT}{FRAME}"),
                "1 times, at 0x1a2b",
            ),
            ("x25519\n", "x25519\n! lost\n", "portable x25519: lost"),
        ] {
            let found = judge(&good().replacen(from, to, 1)).unwrap();
            assert!(
                found.findings[0].contains(expected) || found.findings[1].contains(expected),
                "{found:?}"
            );
        }
        assert!(judge(&good().replace("@ end\n", "")).is_err(), "it died");
    }
}
