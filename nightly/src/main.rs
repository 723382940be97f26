//! The long checks of Lockstep, its packages, releases and figures: the commands of `cargo xtask`
//! that few people run. `cargo xtask` starts this program, and `cargo xtask help` describes its
//! commands.
#![forbid(unsafe_code)]

mod beside;
mod checks;
mod chroot;
mod coverage;
mod cpu;
mod demo;
mod figures;
mod fuzz;
mod keyd;
mod keys;
mod licences;
mod matrix;
mod miri;
mod mutants;
mod openssl_build;
mod openssl_tests;
mod package;
mod packages;
mod previous;
mod proofs;
mod quick;
mod record;
mod release;
mod roots;
mod sources;
mod syscalls;
mod taint;
mod threads;
mod tlsfuzzer;
mod trace;
mod trust;
mod wheel;

use std::process::ExitCode;

use xtask::command::{self, Failure, Outcome};
use xtask::setup;

fn main() -> ExitCode {
    command::main("xtask", run)
}

fn run(arguments: &[&str]) -> Outcome {
    match arguments {
        ["nightly", "--record"] => trust::publish(),
        ["nightly", arguments @ ..] => checks::run(arguments),
        ["quick", check] => quick::run(check),
        ["prove", arguments @ ..] => proofs::run(arguments),
        ["trust"] => trust::write(),
        ["package"] => {
            setup::ensure()?;
            package::run()
        }
        ["release", arguments @ ..] => release::run(arguments),
        ["figures"] => figures::write(),
        ["figures", "--measure"] => measured(figures::Extent::Full),
        ["figures", "--measure", "--short"] => measured(figures::Extent::Short),
        ["figures", "--measure", "--further"] => {
            figures::measure_further().and_then(|()| figures::write())
        }
        ["jobs", versions @ ..] => {
            setup::ensure()?;
            figures::jobs(versions).and_then(|()| figures::write())
        }
        ["bulk"] => figures::bulk(None).and_then(|()| figures::write()),
        ["bulk", "--crypto-mb", file] => {
            figures::bulk(Some(file.as_ref())).and_then(|()| figures::write())
        }
        ["ledger"] => figures::ledger(None).and_then(|()| figures::write()),
        ["ledger", commit] if !commit.starts_with('-') => {
            figures::ledger(Some(commit)).and_then(|()| figures::write())
        }
        ["matrix", "--render"] => matrix::write(),
        ["matrix", "--unknown", tags] => matrix::print_unknown(tags.as_ref()),
        ["matrix", versions @ ..] => {
            setup::ensure()?;
            matrix::run(versions)
        }
        ["demo"] => demo::run(),
        [
            command @ ("package" | "demo" | "trust" | "figures" | "ledger" | "bulk"),
            ..,
        ] => Err(Failure::unknown_arguments(command)),
        [unknown, ..] => Err(Failure::unknown_command(unknown)),
        [] => Err(Failure::new("no command").remedy("cargo xtask help")),
    }
}

/// Measures, and renders the record.
fn measured(extent: figures::Extent) -> Outcome {
    figures::measure(extent)?;
    figures::write()
}
