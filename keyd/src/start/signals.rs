//! Signals that end the daemon.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// A stream that has something to read once the process is told to end. From now on such a signal
/// does nothing else. SIGHUP is one of them, unless it is ignored (nohup(1)): the shell that has
/// started the daemon sends it when it ends, and the daemon cannot read its configuration anew,
/// since it is not root any more.
pub fn of_the_end() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        if signal != SIGHUP || !is_ignored(signal) {
            pipe::register(signal, writer.try_clone()?)?;
        }
    }
    Ok(reader)
}

/// Whether this process ignores a signal since its start (proc_pid_status(5)).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::{SIGPIPE, SIGTERM, SIGUSR1};

    use super::*;

    #[test]
    fn it_is_known_which_signals_are_ignored() {
        // Rust's own library has every program ignore this one.
        assert!(is_ignored(SIGPIPE));
        assert!(!is_ignored(SIGUSR1) && !is_ignored(SIGTERM));
    }
}
