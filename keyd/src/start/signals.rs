//! Signals that end the daemon.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// Returns a stream that becomes readable once a signal asks the process to end. From now on these
/// signals have no other effect.
///
/// SIGHUP is one of these signals: a shell that ends sends it to the programs that it has started.
/// If the process has ignored SIGHUP since its start (nohup(1)), SIGHUP stays ignored. It cannot
/// mean that the daemon reads its configuration anew, since the daemon is no longer root.
pub fn of_the_end() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        if signal != SIGHUP || !is_ignored(signal) {
            pipe::register(signal, writer.try_clone()?)?;
        }
    }
    Ok(reader)
}

/// Returns whether the process has ignored a signal since its start (proc_pid_status(5)).
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
        // Rust's standard library ignores this signal in every program.
        assert!(is_ignored(SIGPIPE));
        assert!(!is_ignored(SIGUSR1) && !is_ignored(SIGTERM));
    }
}
