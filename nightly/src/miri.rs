//! Miri: the portable kernels, and parts of the operations and of the engine, without undefined
//! behaviour.
//!
//! It needs a nightly toolchain with the components `miri` and `rust-src`; where there is none, the
//! check is skipped. Miri knows no vector instructions of these lanes, so that the portable ones
//! are all it sees.

use xtask::command::{Outcome, nightly, quietly, target_directory};
use xtask::tally::counts;
use xtask::work::{Ran, Work};

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
        "lockstep-ops",
        // Not the pool's tests that wipe it: wiping gives up memory, for forked children.
        &["shape::", "lanes::pool::tests::a_pair", "lanes::random"],
    ),
    ("lockstep-engine", &["policy::"]),
    ("lockstep-ring", &["heap_tests::"]),
];

/// Runs them.
pub fn check() -> Outcome<Ran> {
    if quietly(&mut nightly("cargo", &["miri", "--version"])).is_err() {
        return Ok(Ran::Skipped(
            "no Miri: rustup component add --toolchain nightly miri rust-src".to_owned(),
        ));
    }
    let mut work = Work::default();
    for (package, units) in UNITS {
        let test = ["miri", "test", "--lib", "--locked", "--package", package];
        let mut command = nightly("cargo", &test);
        command
            .arg("--target-dir")
            .arg(target_directory().join("miri"))
            .arg("--")
            .args(*units)
            // Counters read clocks, and files of their own.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation");
        match quietly(&mut command) {
            Ok(output) => {
                work.cases += counts(&output).passed;
                for unit in absent(&output, units) {
                    println!("no unit of {package} is called {unit} any more");
                    work.findings += 1;
                }
            }
            Err(failure) => {
                println!("{failure}");
                work.findings += 1;
            }
        }
    }
    work.note = "units".to_owned();
    Ok(Ran::Worked(work))
}

/// The parts of names that no test has in the output of a test program.
fn absent<'a>(output: &str, units: &[&'a str]) -> Vec<&'a str> {
    let names = || output.lines().filter_map(|line| line.strip_prefix("test "));
    let is_absent = |unit: &&str| !names().any(|name| name.contains(unit));
    units.iter().copied().filter(is_absent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_has_moved_is_missed() {
        let output = "test lanes::random::tests::one ... ok\ntest result: ok. 1 passed\n";
        assert_eq!(absent(output, &["lanes::random"]), [""; 0]);
        assert_eq!(
            absent(output, &["executor::random", "result"]),
            ["executor::random"]
        );
    }
}
