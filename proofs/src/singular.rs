//! A second opinion: Singular, another program, checks the identities of formulas.
//!
//! It computes with polynomials over the rational numbers, and knows nothing of limbs or of primes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use lockstep_kernels::proved::functions;

use crate::edwards;

/// Has Singular check all identities, and reports as a check of `cargo xtask nightly`.
pub fn run() -> Result<(), String> {
    let (mut identities, mut stated) = (String::new(), Vec::new());
    let all = functions();
    for (i, (name, prove)) in edwards::and_others().enumerate() {
        let function = all.iter().find(|function| function.name == name);
        let function = function.ok_or_else(|| format!("no function {name}"))?;
        let formulas = prove(&all, function, function.terms())?;
        if !formulas.identities.is_empty() {
            stated.push(name);
        }
        let text = formulas
            .identities
            .replace("ring r", &format!("ring r{i}x"));
        write!(identities, "{text}").expect("a text");
    }
    let Some((cases, wrong)) = check(&identities)? else {
        println!("nightly: skipped Singular is missing: apt-get install singular-ui");
        return Ok(());
    };
    if cases != identities.matches("\"ok ").count() {
        return Err(format!("Singular checked {cases} identities"));
    }
    wrong.iter().for_each(|line| println!("{line}"));
    // A defect: another multiple in one definition of each function.
    let planted = identities
        .replace("8*Y^4", "7*Y^4")
        .replace("486662", "486663");
    let planted = planted.replace("H=U*Z^2", "H=2*U*Z^2");
    let planted = planted
        .replace("M=Y*B", "M=2*Y*B")
        .replace("poly A=X;", "poly A=2*X;")
        .replace("A=-X;", "A=-2*X;")
        .replace("U=Y^2-1", "U=Y^2-2")
        .replace("T=Z^3", "T=2*Z^3");
    let (_, found) = check(&planted)?.ok_or("Singular is gone")?;
    for name in stated {
        let is_it = |line: &String| line.starts_with(&format!("FAILED {name}, "));
        if !found.iter().any(is_it) {
            return Err(format!("Singular found no planted defect in {name}"));
        }
    }
    let (wrong, found) = (wrong.len(), found.len());
    println!("nightly: cases {cases} findings {wrong} next 0 note {found} planted defects found");
    Ok(())
}

/// Number of identities that Singular checked, and the lines of the wrong ones; `None` if it is not
/// installed.
fn check(identities: &str) -> Result<Option<(usize, Vec<String>)>, String> {
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
    let ok = text.lines().filter(|line| line.starts_with("ok ")).count();
    let is_wrong = |line: &&str| line.starts_with("FAILED") || line.contains('?');
    let wrong: Vec<String> = text.lines().filter(is_wrong).map(str::to_owned).collect();
    Ok(Some((ok + wrong.len(), wrong)))
}
