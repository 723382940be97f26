//! Processes that may be a server's.

use std::path::{Path, PathBuf};

use crate::files::{entries, text_of};
use crate::servers::Server;
use crate::unit::{template, unit_of_groups};

/// Whether a process sees references of a server in the places of keys.
pub fn is_shown(server: &Server) -> bool {
    // In the file system that has it.
    let part = format!("/lockstep-keyd/{}/", server.name);
    let mut mounts = processes_of(server).filter_map(|own| text_of(&own.join("mountinfo")).ok());
    let is_it = |line: &str| {
        line.split(' ')
            .nth(3)
            .is_some_and(|own| own.contains(&part))
    };
    mounts.any(|mounts| mounts.lines().any(is_it))
}

/// The processes that may be a server's, by their directories in /proc: those of root, and those of
/// its units. Another user can give a process all that is to be seen of one.
pub fn processes_of(server: &Server) -> impl Iterator<Item = PathBuf> {
    entries(Path::new("/proc")).filter(|process| {
        let about = |name| text_of(&process.join(name)).unwrap_or_default();
        is_of_root(&about("status")) || is_of_unit(server, &about("cgroup"))
    })
}

/// By the real user, whom no program changes by its mode.
fn is_of_root(status: &str) -> bool {
    let mut lines = status.lines();
    let users = lines.find_map(|line| line.strip_prefix("Uid:"));
    users.and_then(|users| users.split_whitespace().next()) == Some("0")
}

fn is_of_unit(server: &Server, groups: &str) -> bool {
    let unit = unit_of_groups(groups).unwrap_or_default();
    server
        .units()
        .any(|own| own == unit || own == template(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::SERVERS;

    #[test]
    fn processes_of_other_users_are_not_those_of_a_server() {
        assert!(is_of_root("Name:\tx\nUid:\t0\t33\t33\t33\n"));
        for status in [
            "Uid:\t1000\t0\t0\t0\n",
            "Uid:\t1000\t1000\t1000\t1000\n",
            "",
        ] {
            assert!(!is_of_root(status), "{status}");
        }
        let of = |name: &str, group: &str| {
            let server = SERVERS.iter().find(|server| server.name == name);
            is_of_unit(server.expect("a server"), group)
        };
        assert!(of("nginx", "0::/system.slice/nginx.service\n"));
        assert!(of(
            "nginx",
            "1:cpu:/\n0::/web.slice/nginx.service/workers\n"
        ));
        let slice = "0::/system.slice/system-stunnel.slice/stunnel@web.service";
        assert!(of("stunnel", slice) && !of("nginx", slice));
        for group in [
            "0::/user.slice/user-1000.slice/user@1000.service/nginx.service\n",
            "0::/user.slice/user-1000.slice/session-1.scope/nginx.service\n",
            "0::/system.slice/nginx.service.d\n",
            "0::/\n",
        ] {
            assert!(!of("nginx", group), "{group}");
        }
    }
}
