//! `cargo xtask prove`: the workspace proofs/, and when it runs.
//!
//! The whole proof takes minutes with its build. `cargo xtask test` runs it where the kernels or
//! the proofs have changed since they were last proved, and `cargo xtask nightly proofs` always.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use xtask::command::{Outcome, cargo, loudly, on, quietly, root, target_directory};
use xtask::dist;
use xtask::setup;
use xtask::work::{self, Ran, Share, Work};

use crate::record::Record;
use crate::sources::{self, PROOFS};

/// The name of the check in `cargo xtask nightly` and in its record.
const NAME: &str = "proofs";

/// Runs the prover with these arguments, on the module of these sources.
pub fn run(arguments: &[&str]) -> Outcome {
    let tried = state()?;
    loudly(prover().args(arguments).arg(dist::build()?.module()))?;
    match arguments {
        [] => remember(&tried),
        _ => Ok(()),
    }
}

/// Runs the whole proof, unless these sources are known to be proved.
pub fn quick() -> Outcome<Ran> {
    let passed = Ran::Worked(Work {
        cases: 1,
        ..Work::default()
    });
    if is_proved()? {
        println!("kernels and proofs are as they were when they were proved");
        return Ok(passed);
    }
    quietly(&mut in_proofs(["fmt", "--check"]))?;
    let lints = ["clippy", "--locked", "--all-targets", "--", "-Dwarnings"];
    quietly(&mut in_proofs(lints))?;
    if setup::has_cargo_deny() {
        let mut deny = in_proofs(["deny", "--offline", "--config"]);
        deny.arg(root().join("deny.toml"));
        quietly(deny.args(["check", "bans", "licenses", "sources"]))?;
    }
    run(&[])?;
    Ok(passed)
}

/// Runs the whole proof, for `cargo xtask nightly`.
pub fn night(share: &Share) -> Outcome<Ran> {
    let tried = state()?;
    let module = dist::build()?.module();
    let ran = work::program(prover().arg(module), share)?;
    if let Ran::Worked(Work { findings: 0, .. }) = ran {
        remember(&tried)?;
    }
    Ok(ran)
}

/// Has Singular check the identities of formulas, for `cargo xtask nightly`.
pub fn identities(share: &Share) -> Outcome<Ran> {
    work::program(prover().arg("--singular"), share)
}

/// The command that runs the prover; its arguments are missing.
fn prover() -> Command {
    in_proofs(["run", "--quiet", "--locked", "--"])
}

/// Cargo in the workspace of the proofs. The kernels are built with their portable lanes alone,
/// which takes a fifth of the time.
fn in_proofs<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = cargo(arguments);
    command.current_dir(root().join("proofs"));
    command.env("CARGO_TARGET_DIR", target());
    command.env("RUSTFLAGS", "--cfg portable");
    command
}

fn target() -> PathBuf {
    target_directory().join("proofs")
}

/// The file with the state that was proved last in this working tree.
fn proved() -> PathBuf {
    target().join("proved")
}

/// The sources, and the compiler that makes machine code of them.
fn state() -> Outcome<String> {
    let compiler = quietly(Command::new("rustc").arg("-vV"))?;
    Ok(format!("{}\n{compiler}", sources::hash(PROOFS)?))
}

/// Notes that this state was proved, unless the sources have changed meanwhile.
fn remember(tried: &str) -> Outcome {
    if state()? != tried {
        return Ok(());
    }
    let path = proved();
    fs::write(&path, tried).map_err(on(&path, "write"))
}

/// Whether these sources were proved: in this working tree, or by a recorded night. In CI a record
/// does not count, as the change that is tested may bring it.
fn is_proved() -> Outcome<bool> {
    if fs::read_to_string(proved()).is_ok_and(|proved| state().is_ok_and(|now| now == proved)) {
        return Ok(true);
    }
    if std::env::var_os("CI").is_some() {
        return Ok(false);
    }
    let today = sources::hash(PROOFS)?;
    let record = Record::resume()?;
    let mut nights = record.of(NAME);
    Ok(nights.any(|(_, night)| night.findings == 0 && night.sources == today))
}
