//! The service that doctor looks at: its processes, its unit, and the commands that remedies name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use lockstep_common::Failure;

use super::sockets::{listeners, listening, open_sockets};
use crate::process::mapped::Mapped;
use crate::process::{Process, Processes};
use crate::servers::hybrid::hybrid_directive;
use crate::servers::server_called;
use crate::servers::starter::without_systemd;
use crate::unit::{Unit, stem, template, unit_of_groups};

/// The service to look at.
pub enum Wanted {
    /// By its name, with the names that its units may have.
    Service { name: String, units: Vec<String> },
    /// By one of its processes.
    Process(u32),
}

/// A service.
pub struct Subject {
    pub name: String,
    /// Possible names of its directory in /etc.
    pub directories: BTreeSet<String>,
    /// Its processes, beginning with the parent of the others; none if it does not run.
    pub processes: Vec<Process>,
    /// Index of the main process among them.
    main: usize,
    pub unit: Option<Unit>,
}

impl Wanted {
    /// Finds each running server of this name. If none runs, returns one subject without processes.
    pub fn find_all(&self, processes: &Processes, root: &Path) -> Result<Vec<Subject>, Failure> {
        let all = processes.all();
        let (name, mut found) = match self {
            Wanted::Process(pid) => {
                let process = processes.get(*pid).ok_or_else(|| {
                    Failure::new(format!("there is no process {pid}"))
                        .remedy("name the service with --service, or another process")
                })?;
                (process.status.name, with_descendants(*pid, all))
            }
            Wanted::Service { name, units } => (name.clone(), of_service(units, all)),
        };
        found.retain(|process| !process.status.is_zombie);
        let mut servers = by_server(found);
        // A server that was reloaded may leave processes behind, which end with their connections.
        if servers.iter().any(|server| !listeners(server).is_empty()) {
            servers.retain(|server| !listeners(server).is_empty());
        }
        if servers.is_empty() {
            servers.push(Vec::new());
        }
        let subject = |found| self.subject(name.clone(), found, root);
        Ok(servers.into_iter().map(subject).collect())
    }

    /// Collects the facts about one server.
    fn subject(&self, name: String, found: Vec<Process>, root: &Path) -> Subject {
        let main = main_of(&found);
        let name = match (self, found.get(main)) {
            (Wanted::Process(_), Some(main)) => main.status.name.clone(),
            _ => name,
        };
        let units = match self {
            Wanted::Service { units, .. } => &units[..],
            Wanted::Process(_) => &[],
        };
        let mut directories = BTreeSet::from([name.clone()]);
        directories.extend(units.iter().map(|unit| stem(unit).to_owned()));
        let of_process = unit_of(found.first());
        let mut known = of_process.iter().chain(units);
        let unit = known.find_map(|unit| Unit::read(root, unit));
        Subject {
            name,
            directories,
            main,
            processes: found,
            unit,
        }
    }
}

/// Keeps the server that listens at an address, or else the first one.
pub fn keep_server_at(servers: &mut Vec<Subject>, address: &str) {
    let wanted: Vec<SocketAddr> = address.to_socket_addrs().into_iter().flatten().collect();
    let listens = |server: &Subject| {
        let processes = server.processes.iter();
        let mut own = processes.flat_map(|process| listening(process, &open_sockets(process)));
        own.any(|own| {
            let is_there = |at: &SocketAddr| own == *at || own.ip().is_unspecified();
            wanted
                .iter()
                .any(|at| at.port() == own.port() && is_there(at))
        })
    };
    let place = servers.iter().position(listens).unwrap_or(0);
    *servers = vec![servers.swap_remove(place)];
}

/// Groups processes by server: a server is a process whose parent is not among these, with all its
/// descendants.
fn by_server(mut found: Vec<Process>) -> Vec<Vec<Process>> {
    let pids: BTreeSet<u32> = found.iter().map(|process| process.pid).collect();
    found.sort_by_key(|process| (pids.contains(&process.status.parent), process.pid));
    let head_of = |process: &Process| above(process, &found).last().unwrap_or(process).pid;
    let heads: Vec<u32> = found.iter().map(head_of).collect();
    let mut servers: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for (head, process) in heads.into_iter().zip(found) {
        servers.entry(head).or_default().push(process);
    }
    servers.into_values().collect()
}

/// Returns a process and its descendants.
fn with_descendants(pid: u32, all: Vec<Process>) -> Vec<Process> {
    let is_it = |process: &Process| process.pid == pid;
    let belongs = |one: &&Process| is_it(one) || above(one, &all).any(is_it);
    let pids: BTreeSet<u32> = all.iter().filter(belongs).map(|one| one.pid).collect();
    all.into_iter()
        .filter(|process| pids.contains(&process.pid))
        .collect()
}

/// Returns the processes that systemd started for one of these units. If there are none, returns
/// the processes with these names.
fn of_service(units: &[String], all: Vec<Process>) -> Vec<Process> {
    let is_called = |group: &str| {
        units
            .iter()
            .any(|unit| [group, &template(group)].contains(&&**unit))
    };
    let is_of_unit = |process: &Process| process.is_of_unit(is_called);
    let names: Vec<&str> = units.iter().map(|unit| stem(unit)).collect();
    let managed = all.iter().any(is_of_unit);
    let belongs = |process: &Process| match managed {
        true => is_of_unit(process),
        false => names.contains(&process.status.name.as_str()),
    };
    all.into_iter().filter(belongs).collect()
}

/// The unit that systemd started a process for.
fn unit_of(process: Option<&Process>) -> Option<String> {
    let groups = process?.text("cgroup").ok()?;
    let unit = unit_of_groups(&groups).filter(|unit| unit.ends_with(".service"));
    unit.map(str::to_owned)
}

/// Returns the processes that listen and have loaded the module, or else the processes that listen.
/// If none listens, a serving process cannot be told from a helper, such as a process that writes a
/// log: then returns the processes with the module, or else all.
fn candidates(processes: &[Process]) -> Vec<&Process> {
    let listening = listeners(processes);
    let from = match listening.is_empty() {
        true => processes.iter().collect(),
        false => listening,
    };
    let has_module = |process: &&&Process| {
        let mapped = process.mapped().unwrap_or_default();
        mapped.iter().any(Mapped::is_module)
    };
    let with: Vec<&Process> = from.iter().filter(has_module).copied().collect();
    match with.is_empty() {
        true => from,
        false => with,
    }
}

/// Returns the parent of a process, if it is among these.
fn parent_of<'a>(process: &Process, among: &'a [Process]) -> Option<&'a Process> {
    among
        .iter()
        .find(|other| other.pid == process.status.parent)
}

/// Returns the ancestors of a process among these, beginning with its parent.
fn above<'a>(process: &Process, among: &'a [Process]) -> impl Iterator<Item = &'a Process> {
    let first = parent_of(process, among);
    let above = std::iter::successors(first, move |process| parent_of(process, among));
    // The facts in `/proc` come from several moments, so parents could form a circle.
    above.take(among.len())
}

/// Returns the index of the main process, whose environment and files are the service's: the
/// topmost serving process, or its topmost ancestor with the same program. The parent of that one,
/// such as a script, has another environment.
fn main_of(processes: &[Process]) -> usize {
    let candidates = candidates(processes);
    let is_one = |process: &Process| candidates.iter().any(|one| one.pid == process.pid);
    let is_uppermost = |one: &&&Process| !above(one, processes).any(is_one);
    let Some(uppermost) = candidates.iter().find(is_uppermost) else {
        return 0;
    };
    let program = uppermost.program();
    let same = above(uppermost, processes).take_while(|process| process.program() == program);
    let main = same.last().unwrap_or(uppermost);
    processes
        .iter()
        .position(|process| process.pid == main.pid)
        .unwrap_or(0)
}

impl Subject {
    /// The main process; `None` if the service does not run.
    pub fn main(&self) -> Option<&Process> {
        self.processes.get(self.main)
    }

    /// Returns the serving processes: they listen and have the module, and are not the parent of
    /// another of them.
    pub fn serving(&self) -> Vec<&Process> {
        let candidates = candidates(&self.processes);
        let has_started = |one: &&Process| {
            let mut others = candidates.iter();
            others.any(|other| above(other, &self.processes).any(|up| up.pid == one.pid))
        };
        candidates
            .iter()
            .copied()
            .filter(|one| !has_started(one))
            .collect()
    }

    /// Returns the mapped files of each process. A process that has ended meanwhile is left out,
    /// such as a child that serves a single connection: its number may belong to another process.
    pub fn mapped(&self) -> io::Result<Vec<(&Process, Vec<Mapped>)>> {
        let processes = self.processes.iter();
        let read = processes.map(|process| (process, process.mapped()));
        let there = read.filter(|(process, _)| process.is_there());
        there
            .map(|(process, files)| Ok((process, files?)))
            .collect()
    }

    /// Describes the service in messages.
    pub fn shown(&self) -> String {
        match self.main() {
            Some(process) => format!("{} (process {})", self.name, process.pid),
            None => self.name.clone(),
        }
    }

    /// Returns the name by which `lockstep install` knows the server, if it knows it.
    fn server(&self) -> Option<&'static str> {
        self.directories.iter().find_map(|name| server_called(name))
    }

    /// Returns the step that has the service load the module. `lockstep install` takes a known
    /// server, or a unit.
    pub fn install(&self) -> String {
        match (self.server(), &self.unit) {
            (Some(server), _) => {
                format!("lockstep install --server {server}, then restart it")
            }
            (None, Some(unit)) => {
                format!("lockstep install --service {}, then restart it", unit.name)
            }
            (None, None) => format!(
                "write what `lockstep configuration` prints to a file that it can read, and start \
                 {} with OPENSSL_CONF=FILE (in a unit of systemd: Environment=)",
                self.name
            ),
        }
    }

    /// Returns the step that has the service offer a hybrid group.
    pub fn hybrid(&self) -> String {
        let directive = self.server().and_then(hybrid_directive);
        let directive = directive.unwrap_or_else(|| "name it in that list".to_owned());
        format!("{directive}, and {}", self.restart())
    }

    /// Returns the step that has the service load this configuration, if systemd does not start it.
    pub fn without_systemd(&self, conf: &str) -> String {
        let remedy = self
            .server()
            .and_then(|server| without_systemd(server, conf));
        remedy.unwrap_or_else(|| format!("start it with OPENSSL_CONF={conf} in its environment"))
    }

    /// Returns the command that makes its references again.
    pub fn reference(&self) -> String {
        match self.server() {
            Some(server) => format!("lockstep install --server {server} --keyd"),
            None => "lockstep keyd export-reference NAME --out FILE".to_owned(),
        }
    }

    /// Returns the command with which the service loads replaced files. HAProxy's master restarts
    /// itself at a reload; nginx and Apache keep the files that they have loaded.
    pub fn reload(&self) -> String {
        let is_master = |main: &&Process| {
            let serving = self.serving();
            main.status.name == "haproxy" && serving.iter().all(|own| own.pid != main.pid)
        };
        match (self.main().filter(is_master), &self.unit) {
            (None, _) => self.restart(),
            (Some(_), Some(unit)) if unit.is_in_force() => {
                format!("systemctl reload {}", unit.name)
            }
            (Some(main), _) => format!("reload it: kill -USR2 {}", main.pid),
        }
    }

    /// Returns the command that brings changes of its environment or its libraries into effect.
    pub fn restart(&self) -> String {
        match &self.unit {
            Some(unit) if unit.is_in_force() => {
                format!("systemctl daemon-reload && systemctl restart {}", unit.name)
            }
            _ => format!("restart {}", self.name),
        }
    }

    /// Returns the words of the command line, which may be names of files.
    pub fn words(&self) -> Vec<String> {
        let Some(main) = self.main() else {
            return Vec::new();
        };
        // nginx writes all of its arguments into one, to show a title.
        let arguments = main.arguments();
        let words = arguments.iter().flat_map(|argument| {
            let parts = argument
                .split(' ')
                .filter(|part| part.len() < argument.len());
            std::iter::once(argument.as_str()).chain(parts)
        });
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_name_servers_that_install_knows() {
        let place = lockstep_testkit::TempDir::new("remedies");
        let processes = Processes {
            directory: place.to_path_buf(),
        };
        describe(&place, 7, 1, "apache2");
        describe(&place, 8, 1, "python3");
        let subject = |wanted: &Wanted| one(wanted, &processes, &place);
        let apache = subject(&Wanted::Process(7));
        let install = "lockstep install --server apache";
        assert_eq!(apache.install(), format!("{install}, then restart it"));
        assert_eq!(apache.reference(), format!("{install} --keyd"));
        let python = subject(&Wanted::Process(8));
        for remedy in [python.install(), python.reference()] {
            assert!(!remedy.contains("--server"), "{remedy}");
        }
    }

    /// Finds the server, and asserts that there is only one.
    fn one(wanted: &Wanted, processes: &Processes, place: &Path) -> Subject {
        let mut all = wanted.find_all(processes, place).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// Describes a process in a directory, as `/proc` does.
    fn describe(place: &Path, pid: u32, parent: u32, name: &str) {
        let directory = place.join(pid.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let status = format!(
            "Name:\t{name}\nPid:\t{pid}\nPPid:\t{parent}\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
        );
        std::fs::write(directory.join("status"), status).unwrap();
    }

    #[test]
    fn a_service_is_its_processes() {
        let place = lockstep_testkit::TempDir::new("subject");
        let processes = Processes {
            directory: place.to_path_buf(),
        };
        for (pid, parent, name) in [
            (7, 1, "haproxy"),
            (5, 7, "haproxy"),
            (9, 5, "x"),
            (6, 1, "y"),
        ] {
            describe(&place, pid, parent, name);
        }
        let pids = |wanted: &Wanted| -> Vec<u32> {
            let subjects = wanted.find_all(&processes, &place).unwrap();
            let processes = subjects.iter().flat_map(|subject| &subject.processes);
            processes.map(|process| process.pid).collect()
        };
        let service = |name: &str| Wanted::Service {
            name: name.to_owned(),
            units: vec![format!("{name}.service")],
        };
        assert_eq!(pids(&service("haproxy")), [7, 5]);
        assert_eq!(pids(&Wanted::Process(7)), [7, 5, 9]);
        assert!(pids(&service("nginx")).is_empty());
        assert!(Wanted::Process(99).find_all(&processes, &place).is_err());
        // Each server that runs is looked at.
        describe(&place, 8, 1, "haproxy");
        describe(&place, 10, 8, "haproxy");
        let several = service("haproxy").find_all(&processes, &place).unwrap();
        let pids_of = |subject: &Subject| -> Vec<u32> {
            let processes = subject.processes.iter();
            processes.map(|process| process.pid).collect()
        };
        let found: Vec<Vec<u32>> = several.iter().map(pids_of).collect();
        assert_eq!(found, [vec![7, 5], vec![8, 10]]);
        // But a server that no longer listens is left out: it ends with its connections.
        equip(&place, 10, "/haproxy", &[777], "");
        assert_eq!(pids(&service("haproxy")), [8, 10]);
        equip(&place, 7, "/haproxy", &[779], "");
        let table = "\n0: 0100007F:480D 00000000:0000 0A 0:0 00:0 0 0 0 779 1 0\n";
        std::fs::write(place.join("7/net/tcp"), table).unwrap();
        for (address, pid) in [
            ("127.0.0.1:18443", 8),
            ("127.0.0.1:18445", 7),
            ("[::1]:9", 7),
        ] {
            let mut servers = service("haproxy").find_all(&processes, &place).unwrap();
            assert_eq!(servers.len(), 2);
            keep_server_at(&mut servers, address);
            assert_eq!(servers.len(), 1);
            assert_eq!(servers[0].processes[0].pid, pid, "{address}");
        }
        std::fs::remove_dir_all(place.join("10")).unwrap();
        // systemd knows better than the names.
        let group = "0::/system.slice/haproxy.service\n";
        std::fs::write(place.join("8/cgroup"), group).unwrap();
        assert_eq!(pids(&service("haproxy")), [8]);
    }

    /// Gives a process its program, open sockets and mapped files. Of the sockets, 777 listens.
    fn equip(place: &Path, pid: u32, program: &str, sockets: &[u32], maps: &str) {
        let directory = place.join(pid.to_string());
        std::fs::create_dir_all(directory.join("fd")).unwrap();
        std::fs::create_dir_all(directory.join("net")).unwrap();
        let _ = std::os::unix::fs::symlink(program, directory.join("exe"));
        for socket in sockets {
            let link = format!("socket:[{socket}]");
            std::os::unix::fs::symlink(link, directory.join(format!("fd/{socket}"))).unwrap();
        }
        let table = "  sl  local_address rem_address   st\n\
                     0: 0100007F:480B 00000000:0000 0A 0:0 00:0 0 0 0 777 1 0\n\
                     1: 0100007F:480C 00000000:0000 01 0:0 00:0 0 0 0 778 1 0\n";
        std::fs::write(directory.join("net/tcp"), table).unwrap();
        std::fs::write(directory.join("maps"), maps).unwrap();
    }

    #[test]
    fn the_process_that_listens_and_has_the_module_is_looked_at_wherever_it_stands() {
        const MODULE: &str = "1-2 r-xp 0 fe:00 9 /a/lockstep.so\n";
        let place = lockstep_testkit::TempDir::new("serving");
        let processes = Processes {
            directory: place.to_path_buf(),
        };
        let found = || {
            let subject = one(&Wanted::Process(7), &processes, &place);
            let serving = subject
                .serving()
                .iter()
                .map(|process| process.pid)
                .collect();
            (subject.main().unwrap().pid, serving)
        };
        // A server with a child that writes a log, as Traffic Server has it, and with one that
        // waits and has inherited its socket.
        describe(&place, 7, 1, "traffic_server");
        describe(&place, 8, 7, "traffic_crashlo");
        describe(&place, 9, 7, "sleep");
        equip(&place, 7, "/ts", &[777, 778], MODULE);
        equip(&place, 8, "/log", &[778], "");
        equip(&place, 9, "/sleep", &[777], "");
        assert_eq!(found(), (7, vec![7]));
        // A server that a script has started, and its worker, which serves.
        describe(&place, 7, 1, "sh");
        describe(&place, 8, 7, "nginx");
        describe(&place, 9, 8, "nginx");
        for (pid, program, maps) in [(7, "/sh", ""), (8, "/nginx", MODULE), (9, "/nginx", MODULE)] {
            std::fs::remove_dir_all(place.join(format!("{pid}/fd"))).unwrap();
            std::fs::remove_file(place.join(format!("{pid}/exe"))).unwrap();
            equip(
                &place,
                pid,
                program,
                if pid == 7 { &[] } else { &[777] },
                maps,
            );
        }
        assert_eq!(found(), (8, vec![9]));
        // A master that does not listen, as HAProxy's, has the environment and the configuration.
        std::fs::remove_file(place.join("8/fd/777")).unwrap();
        assert_eq!(found(), (8, vec![9]));
        // None has loaded the module, or none listens.
        std::fs::write(place.join("9/maps"), "").unwrap();
        assert_eq!(found(), (8, vec![9]));
        std::fs::remove_file(place.join("9/fd/777")).unwrap();
        assert_eq!(found(), (8, vec![8]));
        std::fs::write(place.join("8/maps"), "").unwrap();
        assert_eq!(found(), (7, vec![9]));
    }
}
