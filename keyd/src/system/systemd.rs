//! Messages between systemd and a service.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use listenfd::ListenFd;

/// Returns the sockets that systemd has opened for the service.
pub fn sockets() -> io::Result<Vec<UnixListener>> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        sockets.extend(passed.take_unix_listener(index)?);
    }
    Ok(sockets)
}

/// Sends lines of sd_notify(3) to systemd, if it listens.
pub fn notify(lines: &str) {
    let Some(place) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let place = place.to_string_lossy();
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&*place),
    };
    // If nobody listens, the lines are dropped.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(lines.as_bytes(), &address);
    }
}
