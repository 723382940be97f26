//! Signals that end the daemon.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// A stream that has something to read once the process is told to end. From now on such a signal
/// does nothing else.
pub fn of_the_end() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader)
}
