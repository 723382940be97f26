//! The drop-ins that bring a server and the key daemon together, and where references are. A
//! drop-in counts as one of `install` if it is, to the letter, one that it writes.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::server::Server;
use crate::unit::UNITS;

/// Directory in which the daemon keeps references, with a subdirectory for each server.
pub const REFERENCES: &str = "/var/lib/lockstep-keyd";

/// The directory of a server's references.
pub fn references_of(server: &Server) -> String {
    format!("{REFERENCES}/{}", server.name)
}

/// The drop-ins for a server's units.
pub fn drop_ins(server: &Server, root: &Path) -> Vec<PathBuf> {
    let path = |unit| root.join(format!("{UNITS}/{unit}.d/lockstep-keyd.conf"));
    server.units().map(path).collect()
}

pub fn socket_drop_in(server: &Server) -> String {
    format!("{UNITS}/lockstep-keyd.socket.d/{}.conf", server.name)
}

fn header(server: &Server) -> String {
    format!(
        "# Written by `lockstep install --keyd`; `lockstep uninstall --server {}` removes it.\n",
        server.name
    )
}

/// Beginning of a line that shows a reference in the place of a key. Where the reference is
/// missing, the service does not start: nobody who takes the service over later finds a key.
pub const BIND: &str = "BindReadOnlyPaths=";
/// The same for a service that starts with the key where the reference is missing: with a dash,
/// systemd leaves out a file that is not there.
pub const BIND_IF_THERE: &str = "BindReadOnlyPaths=-";

/// The drop-in that shows a service references in the places of its keys: a file in the place of a
/// file, or a directory in the place of one. The service starts after the daemon, because its first
/// handshakes do not wait for long.
pub fn drop_in_text(
    server: &Server,
    binds: impl Iterator<Item = (impl Display, impl Display)>,
    bind: &str,
) -> String {
    let binds = binds.map(|(reference, key)| format!("{bind}{reference}:{key}\n"));
    format!(
        "{}[Unit]\nWants=lockstep-keyd.socket lockstep-keyd.service\n\
         After=lockstep-keyd.socket lockstep-keyd.service\n\n[Service]\n\
         # What the service finds in the places of its keys.\n{}",
        header(server),
        binds.collect::<String>()
    )
}

pub fn is_drop_in(server: &Server, text: &str) -> bool {
    [BIND, BIND_IF_THERE].iter().any(|bind| {
        let binds = text.lines().filter_map(|line| line.strip_prefix(bind));
        let pairs = binds.filter_map(|bind| bind.split_once(':'));
        text == drop_in_text(server, pairs, bind)
    })
}

/// The drop-in that has the daemon listen in a changed root directory as well.
pub fn socket_text(server: &Server, listen: &str) -> String {
    format!("{}[Socket]\nListenStream={listen}\n", header(server))
}

pub fn is_socket(server: &Server, text: &str) -> bool {
    listening(text).is_some_and(|listen| text == socket_text(server, listen))
}

/// Socket at which a drop-in has the daemon listen.
pub fn listening(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.strip_prefix("ListenStream="))
}
