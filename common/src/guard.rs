//! A process that removes a directory when this process ends, even by a signal that no program can
//! catch.
//!
//! It is a shell that waits for the end of its standard input, a pipe whose other end only this
//! process has. It is in a process group of its own, so Ctrl-C on the terminal does not reach it,
//! and it ignores the signals that others send.

use std::os::unix::process::CommandExt as _;
use std::path::{self, Path};
use std::process::{Child, Command, Stdio};

/// Servers may write into the directory until they end, so the script tries up to 100 times.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM
while read -r _; do :; done
tries=0
while [ -e \"$0\" ] && [ $tries -lt 100 ]; do
    rm -rf -- \"$0\" && break
    tries=$((tries + 1))
    sleep 0.1
done";

/// Removes a directory when this process ends.
pub struct Guard(Option<Child>);

impl Guard {
    /// Starts the guard of a directory. Without a shell there is no guard, and the directory stays
    /// if this process is killed.
    pub fn of(directory: &Path) -> Guard {
        let Ok(directory) = path::absolute(directory) else {
            return Guard(None);
        };
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT]).arg(directory);
        shell.env_clear().env("PATH", "/usr/bin:/bin");
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell.current_dir("/").process_group(0);
        Guard(shell.spawn().ok())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(shell) = &mut self.0 {
            // This closes the shell's input, so the shell ends.
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}
