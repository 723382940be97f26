//! Signals that end the daemon.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// A stream that has something to read once the process is told to end. From now on such a signal
/// does nothing else. SIGHUP is one of them: the shell that has started the daemon sends it when it
/// ends, and the daemon cannot read its configuration anew, since it is not root any more.
pub fn of_the_end() -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader)
}
