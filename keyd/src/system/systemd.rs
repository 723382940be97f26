//! Messages between systemd and a service.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use listenfd::ListenFd;

/// The sockets that systemd has opened for the service.
pub fn sockets() -> io::Result<Vec<UnixListener>> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        sockets.extend(passed.take_unix_listener(index)?);
    }
    Ok(sockets)
}

/// Tells systemd something of the service, by lines as sd_notify(3) has them, if it wants to know.
pub fn notify(lines: &str) {
    let Some(place) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let place = place.to_string_lossy();
    let address = match place.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&*place),
    };
    // Where nobody listens, nobody waits.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(lines.as_bytes(), &address);
    }
}
