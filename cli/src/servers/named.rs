//! Files that name a file or a group which `uninstall` would remove: environments of services, and
//! servers' own configurations.

use std::fs;
use std::path::{Path, PathBuf};

use super::server::{SERVERS, Server};
use crate::files::{entries, text_of};

/// Endings of the files that `install` and `uninstall` keep beside others while they run: the new
/// file, and the replaced file. No program reads them.
pub const NEW: &str = "lockstep-new";
pub const OLD: &str = "lockstep-old";

/// Files and directories that set the environments of services.
const ENVIRONMENTS: [&str; 5] = [
    // This includes the environment of all services (systemd-system.conf(5)).
    "etc/systemd",
    "etc/default",
    "etc/sysconfig",
    "etc/init.d",
    "etc/environment",
];

/// Maximum size of a file in bytes, and maximum number of files, that are searched.
const MOST_BYTES: u64 = 1 << 20;
const MOST_FILES: usize = 1 << 16;

/// Finds the first file with this text among the files that set environments and the configurations
/// of all servers, except files that are about to be removed.
pub fn naming(root: &Path, is_gone: impl Fn(&Path) -> bool, text: &str) -> Option<PathBuf> {
    let own = SERVERS.iter().flat_map(Server::directories);
    let places = ENVIRONMENTS.map(str::to_owned).into_iter().chain(own);
    let mut files = files_in(places.map(|place| root.join(place)), MOST_FILES).into_iter();
    files.find(|path| !is_gone(path) && has_line(path, |line| line.contains(text)))
}

/// The first file of a server's own configuration with a line that `is_wanted` accepts.
pub fn naming_of(
    server: &Server,
    root: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<PathBuf> {
    let places = server.directories().into_iter();
    let mut files = files_in(places.map(|place| root.join(place)), MOST_FILES).into_iter();
    files.find(|path| has_line(path, &is_wanted))
}

/// Whether a file has a line that `is_wanted` accepts, comments apart.
pub fn has_line(path: &Path, is_wanted: impl Fn(&str) -> bool) -> bool {
    let text = text_of(path).unwrap_or_default();
    let lines = text.lines().map(str::trim_start);
    let mut lines = lines.filter(|line| !line.starts_with(['#', ';']));
    lines.any(is_wanted)
}

/// Lists the files in these places, each place in order, up to about this number.
pub fn files_in(places: impl Iterator<Item = PathBuf>, most: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = places.collect();
    waiting.reverse();
    while let Some(path) = waiting.pop() {
        if found.len() + waiting.len() > most {
            break;
        }
        let Ok(about) = fs::metadata(&path) else {
            continue;
        };
        let is_beside = path.extension().is_some_and(|end| end == NEW || end == OLD);
        if about.is_file() && about.len() <= MOST_BYTES && !is_beside {
            found.push(path);
        } else if about.is_dir() {
            let is_inside = |path: &PathBuf| !path.is_symlink() || path.is_file();
            let mut entries: Vec<PathBuf> = entries(&path).filter(is_inside).collect();
            entries.sort();
            waiting.extend(entries.into_iter().rev());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_stay_and_name_something_are_found() {
        let root = lockstep_testkit::TempDir::new("named");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        let conf = "/etc/lockstep/openssl.cnf";
        let find = |gone: &[PathBuf]| naming(&root, |path| gone.iter().any(|g| g == path), conf);
        write(
            "etc/default/a",
            &format!("# OPENSSL_CONF={conf}\n ; {conf}\n"),
        );
        write("etc/elsewhere/a", conf);
        assert_eq!(find(&[]), None);
        let all = write(
            "etc/systemd/system.conf",
            &format!("DefaultEnvironment=A={conf}"),
        );
        assert_eq!(find(&[]), Some(all.clone()));
        fs::write(
            &all,
            [b"#\xfc\nDefaultEnvironment=A=", conf.as_bytes()].concat(),
        )
        .unwrap();
        assert_eq!(find(&[]), Some(all.clone()));
        fs::remove_file(all).unwrap();
        let default = write(
            "etc/default/haproxy",
            &format!("X=1\nexport OPENSSL_CONF=\"{conf}\"\n"),
        );
        assert_eq!(find(&[]), Some(default));
        let unit = write("etc/systemd/system/x.service.d/a.conf", conf);
        assert_eq!(find(&[]), Some(unit.clone()));
        assert_eq!(find(&[unit]), Some(root.join("etc/default/haproxy")));
        let site = write("etc/apache2/sites/a.conf", "  SSLCertificateKeyFile /x\n");
        let named = |server: &Server| naming_of(server, &root, |line| line.contains("/x"));
        let found: Vec<_> = SERVERS.iter().filter_map(named).collect();
        assert_eq!(found, [site]);
    }
}
