//! `cargo xtask`: sets up, builds and tests Lockstep.
//!
//! It depends on none of the crates it builds, so that it runs on a machine where nothing has been
//! set up yet. The program `nightly` has the long checks and the other commands that few people
//! run; it shares the public modules.
#![forbid(unsafe_code)]

pub mod command;
pub mod commit;
mod disassembly;
pub mod dist;
mod layers;
pub mod links;
mod long;
mod prose;
pub mod python;
pub mod rendered;
pub mod setup;
mod symbols;
pub mod tally;
mod test;
pub mod watched;
mod weight;
pub mod work;

use std::path::PathBuf;

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
  python [--build]     the wheel of the bulk library and its sources, in target/wheels; installs it
                       and checks a file of 90,000 tokens with it (--build: only builds)
  lint-asm [MODULE]    check the machine code of the kernels (default: dist/lockstep.so)
  symbols [MODULE]     check that the module is linked to no libcrypto, and calls only functions that
                       every version of OpenSSL has (--record VERSION=FILE...: list those anew, from
                       each version's util/libcrypto.num)
  layers --draw        list the crates in ARCHITECTURE.md, each with its dependencies
  prove [--only PART]  prove the kernels' arithmetic for all inputs, from their source and in the
                       machine code of dist/lockstep.so (proofs/README.md; --lines: how much of
                       the checker each kind of statement rests on)
  trust                render docs/trust.md from docs/trust/record.json
  figures              render the figures of README.md and docs/benchmarks from the records there
                       (--measure: make a record of this machine first; --short: in a minute;
                       --further: add the servers besides HAProxy, nginx, Apache and stunnel)
  jobs [VERSION...]    measure `openssl speed` with async jobs with each OpenSSL that is at hand,
                       system, trixie and experimental, or only those named, and make a record of it
  bulk [--crypto-mb FILE]
                       measure the library for arrays beside OpenSSL and other libraries, and Intel's
                       crypto_mb from a shared library, and make a record of it
  ledger [COMMIT]      measure every operation beside the last record of this kind of CPU, or beside
                       that commit, print what got slower or faster by more than 2 %, and make a
                       record of it
  help                 this text

`cargo xtask test --list` and `cargo xtask nightly --list` name the checks.
";

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

/// Runs `cargo xtask` with these arguments.
pub fn run(arguments: &[&str]) -> Outcome {
    match arguments {
        [] | ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["setup"] => setup::run(),
        ["setup", "--packages"] => setup::packages(),
        ["dist", arguments @ ..] => distribute(arguments),
        ["test", checks @ ..] => test::run(checks),
        ["layers", "--draw"] => layers::draw(),
        ["python"] => python::demonstrate(),
        ["python", "--build"] => python::build().map(drop),
        ["lint-asm"] => disassembly::check(&dist::module()).map(|report| print!("{report}")),
        ["lint-asm", module] => {
            disassembly::check(module.as_ref()).map(|report| print!("{report}"))
        }
        ["symbols"] => symbols::check(&dist::module()).map(|report| print!("{report}")),
        ["symbols", "--record", lists @ ..] => symbols::record(lists),
        ["symbols", module] => symbols::check(module.as_ref()).map(|report| print!("{report}")),
        [command, ..] if long::COMMANDS.contains(command) => long::run(arguments),
        [
            command @ ("setup" | "layers" | "python" | "lint-asm" | "symbols"),
            ..,
        ] => Err(Failure::unknown_arguments(command)),
        [unknown, ..] => Err(Failure::unknown_command(unknown)),
    }
}
