//! The hybrids of TLS 1.3 with ML-KEM, which OpenSSL has from 3.5 on, and before that by the module
//! alone.
//!
//! No configuration that other programs read may name the hybrids: libssl refuses the whole list
//! where the module is not active. So a server's own directive names them, and then that server
//! needs the module to start.

use std::path::{Path, PathBuf};

use lockstep_common::Failure;

use super::named::naming_of;
use super::server::{SERVERS, Server};

/// The hybrid in front of the groups that OpenSSL 3.0 to 3.4 offer by themselves.
const GROUPS: &str = "X25519MLKEM768:X25519:P-256:X448:P-521:P-384";
const HYBRIDS: [&str; 3] = ["X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"];
/// First OpenSSL that offers the hybrids by default.
const HAS_HYBRIDS: u64 = 0x3050_0000;

/// Exit status of `uninstall` if a server would not start without the files that stay. The scripts
/// of the packages check it, and keep the package then.
pub const IS_NEEDED: u8 = 3;

/// Whether the OpenSSL of this system has the hybrids only through the module.
pub fn needs_module() -> bool {
    lockstep_conf::installed().is_ok_and(|openssl| openssl.number < HAS_HYBRIDS)
}

/// The line of a server's own configuration that turns hybrids on, and its place there; `None` if
/// they are unknown.
pub fn hybrid_directive(server: &str) -> Option<String> {
    let mut servers = SERVERS.iter();
    let server = servers.find(|known| known.name == server && !known.hybrid.is_empty())?;
    Some(server.hybrid.replace("@GROUPS@", GROUPS))
}

/// Describes the step that turns hybrids on for a server, if the step is not made yet.
pub fn step(server: &Server, root: &Path) -> Option<String> {
    let directive = hybrid_directive(server.name)?;
    (needs_module() && named_by(server, root).is_none()).then(|| {
        format!(
            "for post-quantum key exchange, {directive}. With this line {} starts only where it loads the \
             module: OpenSSL before 3.5 knows no group of that name. So commands that you run by \
             hand need OPENSSL_CONF, too; remove the line before you remove the module",
            server.name
        )
    })
}

/// Returns a failure for a server that would not start without the module.
pub fn needed(server: &Server, root: &Path) -> Option<Failure> {
    let file = named_by(server, root).filter(|_| needs_module())?;
    let what = format!(
        "{} names the group {}, which OpenSSL has from 3.5 on: without the module {} would not \
         start. Nothing of it was undone",
        file.display(),
        HYBRIDS[0],
        server.name
    );
    let remedy = "remove the hybrid groups there, reload it, and run this again";
    Some(Failure::new(what).status(IS_NEEDED).remedy(remedy))
}

/// The file of a server's configuration that names a hybrid. OpenSSL takes names in any case.
fn named_by(server: &Server, root: &Path) -> Option<PathBuf> {
    let hybrids = HYBRIDS.map(str::to_ascii_lowercase);
    naming_of(server, root, |line| {
        let line = line.to_ascii_lowercase();
        hybrids.iter().any(|hybrid| line.contains(hybrid))
    })
}
