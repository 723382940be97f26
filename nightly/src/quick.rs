//! The short forms of long checks, which `cargo xtask test` runs.

use std::time::Duration;

use xtask::command::{Failure, Outcome};
use xtask::work::Ran;

use crate::{fuzz, matrix, openssl_tests, proofs, taint, tlsfuzzer, trace};

/// A check, and how to run it.
type Check = (&'static str, fn() -> Outcome<Ran>);

/// Findings are a failure, and are printed.
const CHECKS: &[Check] = &[
    ("prove", proofs::quick),
    ("trace", trace::quick),
    ("taint", taint::quick),
    ("openssl-tests", openssl_tests::quick),
    ("fuzz", || {
        fuzz::quick(&fuzz::TABLES, Duration::from_secs(25))
    }),
    ("fuzz-kems", || {
        fuzz::quick(&fuzz::KEMS, Duration::from_secs(5))
    }),
    ("fuzz-lattices", || {
        fuzz::quick(&fuzz::LATTICES, Duration::from_secs(5))
    }),
    ("tlsfuzzer", tlsfuzzer::quick),
    ("matrix", matrix::quick),
    ("soak", || trace::soak(48)),
];

/// Runs the short form of this check, and reports to `cargo xtask test`.
pub fn run(name: &str) -> Outcome {
    let Some((_, check)) = CHECKS.iter().find(|(known, _)| *known == name) else {
        return Err(Failure::new(format!("`{name}` has no short form")));
    };
    println!("{}", check()?.report());
    Ok(())
}
