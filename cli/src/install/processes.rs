//! Processes that may belong to a server.

use crate::process::{Process, Processes};
use crate::servers::Server;
use crate::unit::template;

/// Whether a process sees references of a server in the places of keys.
pub fn is_shown(server: &Server) -> bool {
    // The path is relative to the file system that is mounted.
    let part = format!("/lockstep-keyd/{}/", server.name);
    let is_it = |line: &str| {
        let source = line.split(' ').nth(3);
        source.is_some_and(|own| own.contains(&part))
    };
    let shows = |process: &Process| {
        let mounts = process.mounts();
        String::from_utf8_lossy(&mounts).lines().any(is_it)
    };
    processes_of(server, Processes::here()).any(|process| shows(&process))
}

/// Finds processes that may belong to a server: processes of root, and processes of its units. The
/// real user counts, which no mode of a program changes. Another user can imitate everything else
/// of a server's process.
pub fn processes_of(server: &Server, all: Processes) -> impl Iterator<Item = Process> {
    let is_called = move |unit: &str| {
        let mut units = server.units();
        units.any(|own| own == unit || own == template(unit))
    };
    let all = all.all().into_iter();
    all.filter(move |process| {
        process.status.users.first() == Some(&0) || process.is_of_unit(is_called)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::servers::SERVERS;

    #[test]
    fn processes_of_other_users_are_not_those_of_a_server() {
        let place = lockstep_testkit::TempDir::new("owners");
        let about = place.join("9");
        fs::create_dir(&about).unwrap();
        let is_of = |name: &str, users: &str, group: &str| {
            let status = format!("Name:\tx\nPPid:\t1\nUid:\t{users}\n");
            fs::write(about.join("status"), status).unwrap();
            fs::write(about.join("cgroup"), group).unwrap();
            let server = SERVERS.iter().find(|server| server.name == name);
            let directory = place.to_path_buf();
            processes_of(server.unwrap(), Processes { directory }).count() == 1
        };
        assert!(is_of("nginx", "0\t33\t33\t33", ""));
        for users in ["1000\t0\t0\t0", "1000\t1000\t1000\t1000"] {
            assert!(!is_of("nginx", users, ""), "{users}");
        }
        let of = |name: &str, group: &str| is_of(name, "1000\t1000\t1000\t1000", group);
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
