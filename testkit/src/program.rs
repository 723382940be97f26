//! Programs of this workspace, run as their users run them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::TempDir;

/// Returns a command with these arguments, in an environment without settings.
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

/// Runs a program; returns its status, standard output and standard error.
///
/// # Panics
///
/// If it cannot be run, is ended by a signal, or prints text that is not UTF-8.
pub fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("a program that runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let code = status.code().expect("a status");
    (code, text(stdout), text(stderr))
}

/// Asserts that a program refuses its arguments: it prints a message that contains `reason`, and a
/// remedy, on standard error alone.
///
/// # Panics
///
/// If it does not.
pub fn assert_refused(command: &mut Command, reason: &str) {
    let (code, stdout, stderr) = run(command);
    assert_eq!(code, 2, "{command:?}: {stderr}");
    assert!(
        stderr.contains(reason) && stderr.contains("remedy: "),
        "{command:?}: {stderr}"
    );
    assert_eq!(stdout, "", "{command:?}");
}

/// Asserts that a program prints its help, which contains `usage`, on standard output alone.
///
/// # Panics
///
/// If it does not.
pub fn assert_helps(command: &mut Command, usage: &str) {
    let (code, stdout, stderr) = run(command);
    assert_eq!((code, stderr.as_str()), (0, ""), "{command:?}");
    assert!(stdout.contains(usage), "{command:?}");
}

/// Copies a program that a test will run, by `cp`.
///
/// If this process wrote the copy, a child that another thread of the tests starts meanwhile would
/// inherit the open file until it runs another program, and the copy could not be run.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    let copied = copied.expect("cp");
    assert!(copied.success(), "cp {} {}", from.display(), to.display());
}

/// A process of any name that sleeps until this is dropped.
pub struct Named {
    child: Child,
    _place: TempDir,
}

impl Named {
    /// Starts such a process. The kernel keeps the first 15 bytes of the name.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(name: &[u8]) -> Named {
        let place = TempDir::new("named");
        let program = place.join(OsStr::from_bytes(name));
        symlink("/bin/sleep", &program).expect("a link");
        let mut command = Command::new(program);
        command.arg0("sleep").arg("3600").stdin(Stdio::null());
        Named {
            child: command.spawn().expect("sleep(1)"),
            _place: place,
        }
    }

    /// Returns its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
