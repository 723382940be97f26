//! Other programs: how they are started, and run to their end.
//!
//! A program that loads a configuration of OpenSSL runs the modules that the configuration names.
//! Only [`loading`] and [`this_program_loading`] make commands with a configuration that this
//! program has not made itself. For root they refuse a configuration that other users can change.
//! docs/user/root.md lists all programs that root starts.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_common::{Failure, insist_on_own, is_root, program, search_path};

/// The variable that names a configuration of OpenSSL.
pub const OPENSSL_CONF: &str = "OPENSSL_CONF";
/// Path of an empty configuration.
pub const NOTHING: &str = "/dev/null";

/// The `openssl` command with a configuration that this program has made, or with [`NOTHING`]. For
/// root the command inherits no environment: it gets only `PATH` and [`OPENSSL_CONF`].
pub fn openssl(configuration: impl AsRef<Path>) -> Command {
    let mut command = program("openssl");
    if is_root() {
        command.env_clear().env("PATH", search_path());
    }
    command.env(OPENSSL_CONF, configuration.as_ref());
    command
}

/// The `openssl` command with a configuration that this program has not made. Fails if root runs
/// this program and other users can change the configuration.
pub fn loading(configuration: &Path) -> Result<Command, Failure> {
    insist_on_own(configuration)?;
    let mut command = program("openssl");
    command.env(OPENSSL_CONF, configuration);
    Ok(command)
}

/// This program with such a configuration. Fails in the same case as [`loading`].
pub fn this_program_loading(configuration: &Path) -> Result<Command, Failure> {
    insist_on_own(configuration)?;
    let mut command = this_program();
    command.env(OPENSSL_CONF, configuration);
    Ok(command)
}

/// This program, even if its file was renamed or replaced.
pub fn this_program() -> Command {
    Command::new("/proc/self/exe")
}

/// Runs a command to its end; returns its standard output. A failure has the line of its standard
/// error that [`reason`] finds.
pub fn run(command: &mut Command) -> Result<String, Failure> {
    let name = name(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(format!("cannot run {name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::new(format!(
        "{name} failed ({}): {}",
        output.status,
        reason(&String::from_utf8_lossy(&output.stderr))
    )))
}

/// Finds the reason of a failure in a program's output: the first line that a server marks as an
/// error, or else the first line.
pub fn reason(said: &str) -> String {
    let mut lines = said.lines().filter(|line| !line.trim().is_empty());
    let is_marked = |line: &&str| line.contains("[ALERT]") || line.contains("[emerg]");
    let first = lines.clone().find(is_marked).or_else(|| lines.next());
    first.unwrap_or("it printed nothing").trim().to_owned()
}

/// Returns the name of a program.
fn name(command: &Command) -> String {
    let path = Path::new(command.get_program());
    let name = path.file_name().unwrap_or(command.get_program());
    name.to_string_lossy().into_owned()
}

/// Exit status and output of a program that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub out: Vec<u8>,
    pub errors: Vec<u8>,
}

/// A running program.
pub struct Started {
    child: Child,
    reader: thread::JoinHandle<(Vec<u8>, Vec<u8>)>,
}

/// Starts a program with `input` as its standard input. Each of its two output pipes breaks after
/// `most` bytes.
pub fn start(command: &mut Command, input: &[u8], most: u64) -> io::Result<Started> {
    let mut child = command
        .stdin(match input {
            [] => Stdio::null(),
            _ => Stdio::piped(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        let input = input.to_owned();
        // The thread ends with the program at the latest.
        thread::spawn(move || {
            let _ = pipe.write_all(&input);
        });
    }
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let reader = thread::spawn(move || {
        // If the program prints more than `most` bytes, the pipe breaks.
        fn all(pipe: Option<impl io::Read>, most: u64) -> Vec<u8> {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                let _ = pipe.take(most).read_to_end(&mut bytes);
            }
            bytes
        }
        let errors = thread::spawn(move || all(errors, most));
        (all(out, most), errors.join().unwrap_or_default())
    });
    Ok(Started { child, reader })
}

impl Started {
    /// Kills the program without waiting for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits until the program ends. Kills it after `patience`, and returns `None`.
    pub fn finish(mut self, patience: Duration) -> Option<Ended> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    let (out, errors) = self.reader.join().unwrap_or_default();
                    return Some(Ended {
                        status,
                        out,
                        errors,
                    });
                }
                Ok(None) if Instant::now() < deadline => {}
                _ => break,
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        // A process that the kernel cannot end at once is not waited for.
        thread::sleep(Duration::from_millis(20));
        let _ = self.child.try_wait();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_so_much_time_and_prints_so_much() {
        let shell = |script: &str, most| {
            let mut command = program("sh");
            let started = start(command.args(["-c", script]), b"text", most).unwrap();
            started.finish(Duration::from_secs(10))
        };
        let ended = shell("cat; echo wrong >&2; exit 3", 100).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(
            (&*ended.out, &*ended.errors),
            (&b"text"[..], &b"wrong\n"[..])
        );
        let ended = shell("cat /dev/zero", 1000).unwrap();
        assert_eq!(ended.out.len(), 1000);
        let began = Instant::now();
        let mut sleep = program("sleep");
        let started = start(sleep.arg("60"), b"", 1).unwrap();
        assert!(started.finish(Duration::from_millis(100)).is_none());
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
