//! Miri: the portable kernels and parts of the engine without undefined behaviour.
//!
//! It needs a nightly toolchain with the components `miri` and `rust-src`; where there is none, the
//! check is skipped. Miri knows no vector instructions of these lanes, so that the portable ones
//! are all it sees.

use std::process::{Command, Stdio};

use crate::command::{Outcome, quietly, root, succeeds, target_directory};
use crate::work::{Ran, Work};

/// Packages, and their units that need neither vectors nor minutes: by parts of names.
const UNITS: &[(&str, &[&str])] = &[
    (
        "lockstep-kernels",
        &[
            "aes_gcm::tests::what_gcm",
            "montgomery::tests::a_sixteen",
            "nist::tests::constants",
        ],
    ),
    (
        "lockstep-engine",
        // Not the pool's tests that wipe it: wiping gives up memory, for forked children.
        &[
            "policy::",
            "shape::",
            "pool::tests::a_pair",
            "executor::random",
        ],
    ),
    ("lockstep-ring", &["heap_tests::"]),
];

/// Runs them.
pub fn check() -> Outcome<Ran> {
    if !succeeds("cargo", &["+nightly", "miri", "--version"]) {
        return Ok(Ran::Skipped(
            "no Miri: rustup component add --toolchain nightly miri rust-src".to_owned(),
        ));
    }
    let mut work = Work::default();
    for (package, units) in UNITS {
        let mut command = Command::new("cargo");
        command
            .args(["+nightly", "miri", "test", "--lib", "--locked", "--package"])
            .arg(package)
            .arg("--target-dir")
            .arg(target_directory().join("miri"))
            .arg("--")
            .args(*units)
            // Counters read clocks, and files of their own.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation")
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN")
            .current_dir(root())
            .stdin(Stdio::null());
        match quietly(&mut command) {
            Ok(output) => work.cases += passed(&output),
            Err(failure) => {
                println!("{failure}");
                work.findings += 1;
            }
        }
    }
    if work.cases == 0 {
        work.findings += 1;
    }
    work.note = "units".to_owned();
    Ok(Ran::Worked(work))
}

/// How many tests passed.
fn passed(output: &str) -> u64 {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|line| line.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    #[test]
    fn passed_tests_are_counted() {
        let output = "test result: ok. 3 passed; 0 failed\nx\ntest result: ok. 1 passed; 0 failed";
        assert_eq!(super::passed(output), 4);
    }
}
