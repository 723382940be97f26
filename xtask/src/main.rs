//! `cargo xtask`: sets up, builds, tests and demonstrates Lockstep.
//!
//! It depends on none of the crates it builds, so that it runs on a machine where nothing has been
//! set up yet.
#![forbid(unsafe_code)]

mod beside;
mod chroot;
mod command;
mod commit;
mod coverage;
mod cpu;
mod demo;
mod disassembly;
mod dist;
mod figures;
mod fuzz;
mod keyd;
mod keys;
mod layers;
mod licences;
mod links;
mod matrix;
mod miri;
mod mutants;
mod nightly;
mod openssl_build;
mod openssl_tests;
mod package;
mod packages;
mod previous;
mod proofs;
mod prose;
mod record;
mod release;
mod roots;
mod setup;
mod sources;
mod symbols;
mod syscalls;
mod taint;
mod tally;
mod test;
mod threads;
mod tlsfuzzer;
mod trust;
mod watched;
mod weight;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use command::{Failure, Outcome};
use dist::Flavour;

const HELP: &str = "\
Sets up, builds, tests and demonstrates Lockstep.

Usage: cargo xtask <COMMAND>

Commands:
  setup                check for the tools this needs and install what is missing
                       (as root on Debian or Ubuntu; elsewhere it prints the line to run;
                       --packages: install what `package` and `release` need)
  dist [--bench] [--out DIR]
                       release build: dist/lockstep.so, dist/lockstep, dist/openssl.cnf, and with
                       --bench the program that measures, dist/lockstep-bench
  package              a .deb, an .rpm and a tarball in target/package, of the module, both programs,
                       man pages and completions
  release VERSION --key KEY --url URL --tree DIR [--dry-run]
                       a version: commit, tests, packages, signed repositories of apt and of dnf in
                       DIR, which will be at URL, and last a tag (--dry-run: no tests, no commit and
                       no tag here)
  test [CHECK...]      every check there is, or only those named
                       (--quick: format, lints, prose, unit tests, vectors and one server, for daily work)
  nightly [--hours N] [CHECK...]
                       the long checks, for an hour or N in all; they go on where they stopped
                       (--record: copy their record to docs/trust and render docs/trust.md)
  matrix [VERSION...]  what each OpenSSL that people run does without the module and with it, as
                       docs/user/matrix.md shows it: all of 3.0.2, system, 3.2, trixie, sid,
                       experimental and 4.1, or only those named (--render: that page from its
                       record; --unknown FILE: the releases in a list of tags that it lacks)
  demo                 TLS servers with and without lanes, then a short speed table
  lint-asm [MODULE]    check the machine code of the kernels (default: dist/lockstep.so)
  symbols [MODULE]     check that the module is linked to no libcrypto, and calls only functions that
                       every version of OpenSSL has (--record VERSION=FILE...: list those anew, from
                       each version's util/libcrypto.num)
  prove [--only PART]  prove the kernels' arithmetic for all inputs, from their source and in the
                       machine code of dist/lockstep.so (proofs/README.md; --lines: how much of
                       the checker each kind of statement rests on)
  trust                render docs/trust.md from docs/trust/record.json
  figures              render the figures of README.md and docs/benchmarks from the records there
                       (--measure: make a record of this machine first; --short: in a minute;
                       --further: add the servers besides HAProxy, nginx, Apache and stunnel)
  jobs [VERSION...]    measure `openssl speed` with async jobs with each OpenSSL that is at hand,
                       system, trixie and experimental, or only those named, and make a record of it
  ledger [COMMIT]      measure every operation beside the last record of this kind of CPU, or beside
                       that commit, print what got slower or faster by more than 2 %, and make a
                       record of it
  help                 this text

`cargo xtask test --list` and `cargo xtask nightly --list` name the checks.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.printed {
                eprintln!("xtask: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Builds the module and the command, and with `--bench` the program that measures.
fn distribute(arguments: &[&str]) -> Outcome {
    let (flavour, directory) = match arguments {
        [] => (Flavour::Release, None),
        ["--bench"] => (Flavour::Benchmarks, None),
        ["--out", directory] => (Flavour::Release, Some(directory)),
        ["--bench", "--out", directory] | ["--out", directory, "--bench"] => {
            (Flavour::Benchmarks, Some(directory))
        }
        _ => {
            return Err(Failure::new("`dist` does not take these arguments")
                .remedy("cargo xtask dist [--bench] [--out DIR]"));
        }
    };
    setup::ensure()?;
    let directory = directory.map_or_else(dist::directory, PathBuf::from);
    dist::build_into(&directory, flavour)?.announce();
    Ok(())
}

fn dispatch(arguments: &[&str]) -> Outcome {
    match arguments {
        [] | ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["setup"] => setup::run(),
        ["setup", "--packages"] => setup::packages(),
        ["dist", arguments @ ..] => distribute(arguments),
        ["package"] => {
            setup::ensure()?;
            package::run()
        }
        ["release", arguments @ ..] => release::run(arguments),
        ["test", checks @ ..] => test::run(checks),
        ["nightly", "--record"] => trust::publish(),
        ["nightly", arguments @ ..] => nightly::run(arguments),
        ["prove", arguments @ ..] => proofs::run(arguments),
        ["trust"] => trust::write(),
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
        ["lint-asm"] => disassembly::check(&dist::module()).map(|report| print!("{report}")),
        ["symbols"] => symbols::check(&dist::module()).map(|report| print!("{report}")),
        ["symbols", "--record", lists @ ..] => symbols::record(lists),
        ["symbols", module] => symbols::check(module.as_ref()).map(|report| print!("{report}")),
        ["lint-asm", module] => {
            disassembly::check(module.as_ref()).map(|report| print!("{report}"))
        }
        [
            command @ ("setup" | "package" | "demo" | "lint-asm" | "symbols" | "trust" | "figures"
            | "ledger"),
            ..,
        ] => Err(
            Failure::new(format!("`{command}` does not take these arguments"))
                .remedy("cargo xtask help"),
        ),
        [unknown, ..] => {
            Err(Failure::new(format!("unknown command `{unknown}`")).remedy("cargo xtask help"))
        }
    }
}

/// Measures, and renders the record.
fn measured(extent: figures::Extent) -> Outcome {
    figures::measure(extent)?;
    figures::write()
}
