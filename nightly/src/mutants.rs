//! Mutants: cargo-mutants changes one function at a time, and the tests of its crate must notice.
//!
//! A change that no test notices is a finding, unless `mutants/explained.txt` has a reason for it.
//! The mutants of a crate are dealt out to shards, and a run does shard after shard for as long as
//! it is given. First a crate with a planted defect is tried: a function that no test calls.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use xtask::command::{Failure, Outcome, cargo_home, on, quietly, root, without_own_variables};
use xtask::work::{Ran, Share, Work};

/// A crate whose tests are tried.
struct Subject {
    package: &'static str,
    /// The files that are changed; all without any.
    files: &'static [&'static str],
    /// Arguments of `cargo test` behind `--`.
    tests: &'static [&'static str],
    /// Into how many shards its mutants are dealt, for some fifty each.
    shards: u64,
    /// Whether its tests start the program `lockstep`, which then has to be of the same tree.
    starts_program: bool,
}

const WHOLE: Subject = Subject {
    package: "",
    files: &[],
    tests: &[],
    shards: 1,
    starts_program: false,
};

/// Of the engine, the key daemon's queue. Of the provider, files with tests of their own: programs
/// that load the release module test the others, and that takes minutes to build for each mutant.
const SUBJECTS: &[Subject] = &[
    Subject {
        package: "lockstep-vault",
        shards: 3,
        ..WHOLE
    },
    Subject {
        package: "lockstep-ring",
        shards: 12,
        ..WHOLE
    },
    Subject {
        package: "lockstep-remote",
        shards: 7,
        ..WHOLE
    },
    Subject {
        package: "lockstep-keyd",
        shards: 10,
        starts_program: true,
        ..WHOLE
    },
    Subject {
        package: "lockstep-engine",
        files: &["engine/src/queue/fair.rs", "engine/src/queue/service.rs"],
        tests: &["--lib"],
        shards: 4,
        ..WHOLE
    },
    Subject {
        package: "lockstep-provider",
        files: &[
            "provider/src/host/counted.rs",
            "provider/src/jobs/descriptors.rs",
            "provider/src/keys/ec_method/der.rs",
            "provider/src/ffi/list.rs",
            "provider/src/ffi/params.rs",
            "provider/src/ffi/pointers.rs",
            "provider/src/host/query.rs",
        ],
        tests: &["--lib"],
        shards: 5,
        ..WHOLE
    },
];

/// Code that is not in the crate as its tests are built: stand-ins for loom and Miri, and defects
/// that the environment plants; and tests that are left out under loom, which cargo-mutants takes
/// for code. Each is in a module of such a name.
const NOT_BUILT: &str = r"\b(heap|model|environment|tests)::";

/// Survivors that no test need notice, each with its reason.
const EXPLAINED: &str = include_str!("mutants/explained.txt");

/// Seconds that the tests of a crate may take with a mutant at least; else they have five times as
/// long as without one.
const PATIENCE: &str = "30";

/// Runs shard after shard.
pub fn night(share: &Share) -> Outcome<Ran> {
    let Some(tool) = tool() else {
        return Ok(Ran::Skipped(
            "no cargo-mutants: cargo install --locked cargo-mutants".to_owned(),
        ));
    };
    proves_itself(&tool, &share.directory)?;
    let explained = explained();
    let mut work = Work {
        findings: stale(&tool, &explained)?,
        next: share.next,
        ..Work::default()
    };
    let all = shards();
    let start = Instant::now();
    let (mut done, mut reasons, mut longest) = (0, 0, Default::default());
    while done == 0 || (done < all.len() && start.elapsed() + longest < share.time) {
        let (subject, shard) = &all[work.next as usize % all.len()];
        let begun = Instant::now();
        let found = Found::of_shard(&tool, subject, *shard, &share.directory)?;
        longest = begun.elapsed().max(longest);
        let missed: BTreeSet<&String> = found.missed.iter().collect();
        for mutant in missed {
            match explained.contains(&**mutant) {
                true => reasons += 1,
                false => {
                    println!("no test notices: {mutant}");
                    work.findings += 1;
                }
            }
        }
        work.cases += (found.caught + found.missed.len()) as u64;
        work.next = (work.next + 1) % all.len() as u64;
        done += 1;
    }
    work.note = format!(
        "{done} of {} shards, {reasons} survivors explained",
        all.len()
    );
    Ok(Ran::Worked(work))
}

/// The program cargo-mutants.
fn tool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain([cargo_home().join("bin")]);
    let mut programs = directories.map(|directory| directory.join("cargo-mutants"));
    programs.find(|program| program.is_file())
}

/// All shards, in their order.
fn shards() -> Vec<(&'static Subject, u64)> {
    let of_one = |subject: &'static Subject| (0..subject.shards).map(move |shard| (subject, shard));
    SUBJECTS.iter().flat_map(of_one).collect()
}

/// The names of the mutants that have reasons.
fn explained() -> BTreeSet<&'static str> {
    let lines = EXPLAINED.lines().filter(|line| !line.starts_with('#'));
    let parts = lines.filter_map(|line| line.split_once("  # "));
    parts.map(|(name, _)| name.trim()).collect()
}

/// How many reasons are for mutants that there are no more.
fn stale(tool: &Path, explained: &BTreeSet<&str>) -> Outcome<u64> {
    let mut there = BTreeSet::new();
    for subject in SUBJECTS {
        let mut list = mutants(tool, &root(), subject);
        let text = quietly(list.args(["--list"]))?;
        there.extend(text.lines().map(without_place));
    }
    let gone: Vec<_> = explained
        .iter()
        .filter(|name| !there.contains(**name))
        .collect();
    for name in &gone {
        println!("nightly/src/mutants/explained.txt explains a mutant that does not exist: {name}");
    }
    Ok(gone.len() as u64)
}

/// The name of a mutant without its line and column, which change with every edit.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => name.to_owned(),
    }
}

/// cargo-mutants for a crate of this tree.
fn mutants(tool: &Path, tree: &Path, subject: &Subject) -> Command {
    let mut command = Command::new(tool);
    command.args(["mutants", "--no-config", "--colors", "never", "--dir"]);
    command.arg(tree).args(["--package", subject.package]);
    command.args(["--exclude-re", NOT_BUILT]);
    for file in subject.files {
        command.args(["--file", file]);
    }
    without_own_variables(&mut command);
    command
        .env_remove("CARGO_TARGET_DIR")
        .env("CARGO_INCREMENTAL", "1");
    command
}

/// The fates of the mutants of a shard.
struct Found {
    /// Mutants that a test noticed, or that made a test wait for ever.
    caught: usize,
    /// The names of the others.
    missed: Vec<String>,
}

impl Found {
    fn of_shard(tool: &Path, subject: &Subject, shard: u64, directory: &Path) -> Outcome<Found> {
        let mut command = mutants(tool, &root(), subject);
        let part = format!("{shard}/{}", subject.shards);
        println!("  {} {part}", subject.package);
        command.args(["--shard", &part, "--minimum-test-timeout", PATIENCE]);
        if subject.starts_program {
            command.env("CARGO", wrapper(directory)?);
        }
        Found::of(&mut command, subject.tests, directory)
    }

    fn of(command: &mut Command, tests: &[&str], directory: &Path) -> Outcome<Found> {
        command.args(["--jobs", "1", "--cap-lints", "true", "--output"]);
        command.arg(directory).arg("--").args(tests);
        let ran = quietly(command);
        let made = directory.join("mutants.out");
        let lines = |name: &str| -> Outcome<Vec<String>> {
            let path = made.join(name);
            let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
            Ok(text.lines().map(without_place).collect())
        };
        let found = Found {
            caught: lines("caught.txt")?.len() + lines("timeout.txt")?.len(),
            missed: lines("missed.txt")?,
        };
        match ran {
            // It fails where a mutant survives or makes a test wait; and where the tests fail
            // without a mutant, or nothing was tried.
            Err(failure) if found.caught + found.missed.len() == 0 => Err(failure),
            _ => Ok(found),
        }
    }
}

/// A cargo that builds the program `lockstep` of the tree that it tests, for the tests to start.
fn wrapper(directory: &Path) -> Outcome<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let script = format!(
        "#!/bin/sh
if [ \"$1\" = test ]; then
    '{cargo}' build --quiet --package lockstep-cli || exit 1
    manifest=$('{cargo}' locate-project --workspace --message-format plain)
    LOCKSTEP_DIST=${{manifest%/*}}/target/debug
    export LOCKSTEP_DIST
fi
exec '{cargo}' \"$@\"
"
    );
    let path = directory.join("cargo-with-program");
    fs::write(&path, script).map_err(on(&path, "write"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(on(&path, "change"))?;
    Ok(path)
}

/// A crate with one function that its test calls, and one that it does not.
const PLANTED: &str = "pub fn is_even(number: u32) -> bool { number % 2 == 0 }
pub fn is_odd(number: u32) -> bool { number % 2 == 1 }
#[cfg(test)]
#[test]
fn odd() {
    assert!(is_odd(3) && !is_odd(2));
}
";

/// Whether the function that no test calls is found, and nothing else.
fn proves_itself(tool: &Path, directory: &Path) -> Outcome {
    let planted = directory.join("planted");
    let write = |name: &str, text: &str| {
        let path = planted.join(name);
        fs::write(&path, text).map_err(on(&path, "write"))
    };
    fs::create_dir_all(planted.join("src")).map_err(on(&planted, "create"))?;
    let manifest = "[workspace]\n[package]\nname = \"planted\"\nedition = \"2024\"\n";
    write("Cargo.toml", manifest)?;
    write("src/lib.rs", PLANTED)?;
    let subject = Subject {
        package: "planted",
        ..WHOLE
    };
    let mut command = mutants(tool, &planted, &subject);
    // It lies among files that git ignores.
    command.args(["--gitignore", "false", "--minimum-test-timeout", PATIENCE]);
    let found = Found::of(&mut command, subject.tests, &planted)?;
    let (even, odd): (Vec<_>, Vec<_>) = found
        .missed
        .iter()
        .partition(|mutant| mutant.contains("is_even"));
    match (even.is_empty(), odd.is_empty(), found.caught) {
        (false, true, 1..) => Ok(()),
        _ => Err(Failure::new(format!(
            "the planted defect was not told from a tested function: {} caught, missed {:?}",
            found.caught, found.missed
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_explained_survivor_has_a_reason() {
        let lines = EXPLAINED
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        for line in lines {
            let (name, reason) = line.split_once("  # ").unwrap_or_else(|| panic!("{line}"));
            assert!(name.contains(".rs: ") && reason.len() > 10, "{line}");
        }
        assert_eq!(
            explained().len(),
            EXPLAINED.lines().filter(|l| l.contains(".rs: ")).count()
        );
    }

    #[test]
    fn a_name_outlives_the_lines_before_it() {
        let name = "ring/src/a.rs:12:5: replace A::b -> Option<c::D> with None";
        let expected = "ring/src/a.rs: replace A::b -> Option<c::D> with None";
        assert_eq!(without_place(name), expected);
        assert_eq!(without_place("other"), "other");
    }

    #[test]
    fn every_shard_has_its_turn() {
        let all = shards();
        let sum: u64 = SUBJECTS.iter().map(|subject| subject.shards).sum();
        assert_eq!(all.len() as u64, sum);
        assert!(SUBJECTS.iter().all(|subject| subject.shards > 0));
    }
}
