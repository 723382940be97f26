//! What the tests of both programs share: each runs its program as a user does.

use std::process::{Command, Output};

/// A program with these arguments, in an environment without settings.
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("LOCKSTEP_") || name == "OPENSSL_CONF" {
            command.env_remove(name);
        }
    }
    command
}

/// Status, standard output and standard error.
pub fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Whether RSA runs on lanes here.
pub fn has_lanes() -> bool {
    let best = lockstep_engine::Backend::best_hardware();
    best.is_some_and(|backend| !backend.is_avx2())
}
