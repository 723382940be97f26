//! `cargo xtask`; the library beside it has the commands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::command::main("xtask", xtask::run)
}
