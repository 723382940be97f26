//! A second opinion: Singular, another program, checks the identities of formulas.
//!
//! It computes with polynomials over the rational numbers, and knows nothing of limbs or of primes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use lockstep_kernels::proved::functions;

use crate::formulas;

/// Has Singular check all identities, and reports as a check of `cargo xtask nightly`.
pub fn run() -> Result<(), String> {
    let mut identities = String::new();
    let all = functions();
    for (i, name) in formulas::NAMES.iter().enumerate() {
        let function = all.iter().find(|function| function.name == *name);
        let function = function.ok_or_else(|| format!("no function {name}"))?;
        let formulas = formulas::prove(&all, function, function.terms())?;
        let text = formulas
            .identities
            .replace("ring r", &format!("ring r{i}x"));
        write!(identities, "{text}").expect("a text");
    }
    let Some([cases, wrong]) = check(&identities, true)? else {
        println!("nightly: skipped Singular is missing: apt-get install singular-ui");
        return Ok(());
    };
    if cases != identities.matches("\"ok ").count() {
        return Err(format!("Singular checked {cases} identities"));
    }
    // A defect: another multiple in one definition of each function.
    let planted = identities
        .replace("8*Y^4", "7*Y^4")
        .replace("486662", "486663");
    let planted = planted.replace("H=U*Z^2", "H=2*U*Z^2");
    let found = check(&planted, false)?.map_or(0, |[_, wrong]| wrong);
    let without = formulas::NAMES.len() - 2;
    if found < without {
        return Err(format!(
            "Singular found {found} of {without} planted defects"
        ));
    }
    println!("nightly: cases {cases} findings {wrong} next 0 note {found} planted defects found");
    Ok(())
}

/// How many identities Singular checked, and how many are wrong; nothing if it is not there.
fn check(identities: &str, are_wrong_ones_told: bool) -> Result<Option<[usize; 2]>, String> {
    let child = Command::new("Singular")
        .args(["-q", "--no-rc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("Singular: {error}")),
    };
    let mut input = child.stdin.take().expect("a pipe");
    let text = identities.to_owned();
    let writer = std::thread::spawn(move || input.write_all(format!("{text}quit;\n").as_bytes()));
    let output = child
        .wait_with_output()
        .map_err(|error| format!("Singular: {error}"))?;
    let written = writer.join().expect("a thread that does not panic");
    written.map_err(|error| format!("Singular: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_wrong = |line: &&str| line.starts_with("FAILED") || line.contains('?');
    for line in text
        .lines()
        .filter(|line| are_wrong_ones_told && is_wrong(line))
    {
        println!("{line}");
    }
    let count = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    let wrong = count("FAILED");
    Ok(Some([count("ok ") + wrong, wrong]))
}
