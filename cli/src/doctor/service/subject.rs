//! The service that is looked at: its processes, its unit, and the settings that hold for it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use lockstep_common::{Configuration, Failure};

use super::mapped::Mapped;
use super::process::{Environment, Process, Processes};
use super::sockets::open_sockets;
use super::view::View;
use crate::install::{hybrid_directive, server_called, without_systemd};
use crate::unit::Unit;

/// Which service.
pub enum Wanted {
    /// By its name, with the names that its units may have.
    Service { name: String, units: Vec<String> },
    /// By one of its processes.
    Process(u32),
}

/// A service and what is known of it.
pub struct Subject {
    pub name: String,
    /// What its directory in /etc may be called.
    pub directories: BTreeSet<String>,
    /// Its processes, the one that started the others first; none if it does not run.
    pub processes: Vec<Process>,
    pub unit: Option<Unit>,
}

impl Wanted {
    /// Finds it. Fails where it cannot be told which processes are meant.
    pub fn find(&self, processes: &Processes, root: &Path) -> Result<Subject, Failure> {
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
        let pids: BTreeSet<u32> = found.iter().map(|process| process.pid).collect();
        found.sort_by_key(|process| (pids.contains(&process.status.parent), process.pid));
        let heads = found
            .iter()
            .filter(|process| !pids.contains(&process.status.parent));
        let heads: Vec<String> = heads.map(|process| process.pid.to_string()).collect();
        if heads.len() > 1 {
            let numbers = heads.join(", ");
            return Err(
                Failure::new(format!("{name} runs several times: processes {numbers}"))
                    .remedy("name one of them with --pid"),
            );
        }
        let mut directories = BTreeSet::from([name.clone()]);
        if let Wanted::Service { units, .. } = self {
            directories.extend(units.iter().map(|unit| stem(unit).to_owned()));
        }
        let unit = match self {
            Wanted::Service { units, .. } => {
                let read = |unit: &String| Unit::read(root, unit);
                let of_process = units_of(found.first());
                of_process.iter().chain(units).find_map(read)
            }
            Wanted::Process(_) => units_of(found.first())
                .iter()
                .find_map(|u| Unit::read(root, u)),
        };
        Ok(Subject {
            name,
            directories,
            processes: found,
            unit,
        })
    }
}

/// A process and all that it has started.
fn with_descendants(pid: u32, all: Vec<Process>) -> Vec<Process> {
    let mut pids = BTreeSet::from([pid]);
    loop {
        let is_more = |process: &&Process| {
            pids.contains(&process.status.parent) && !pids.contains(&process.pid)
        };
        let more: Vec<u32> = all
            .iter()
            .filter(is_more)
            .map(|process| process.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        pids.extend(more);
    }
    all.into_iter()
        .filter(|process| pids.contains(&process.pid))
        .collect()
}

/// The processes that systemd started for one of these units or, without systemd, those with such
/// names.
fn of_service(units: &[String], all: Vec<Process>) -> Vec<Process> {
    let is_called = |group: &str| units.iter().any(|unit| is_instance(group, unit));
    let is_of_unit = |process: &Process| process.is_of_unit(is_called);
    let names: Vec<&str> = units.iter().map(|unit| stem(unit)).collect();
    let managed = all.iter().any(is_of_unit);
    let belongs = |process: &Process| match managed {
        true => is_of_unit(process),
        false => names.contains(&process.status.name.as_str()),
    };
    all.into_iter().filter(belongs).collect()
}

/// Whether a control group is that of a unit, or of an instance of it if it is a template.
fn is_instance(group: &str, unit: &str) -> bool {
    match unit.split_once("@.") {
        Some((before, end)) => group
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(end)?.strip_suffix('.'))
            .is_some_and(|instance| instance.starts_with('@')),
        None => group == unit,
    }
}

/// The name of a unit, without its instance and its kind.
fn stem(unit: &str) -> &str {
    let unit = unit.strip_suffix(".service").unwrap_or(unit);
    unit.split_once('@').map_or(unit, |(name, _)| name)
}

/// The unit that systemd started a process for.
fn units_of(process: Option<&Process>) -> Option<String> {
    let groups = std::fs::read_to_string(process?.about("cgroup")).ok()?;
    let mut words = groups.lines().flat_map(|line| line.rsplit('/'));
    words
        .find(|word| word.ends_with(".service"))
        .map(str::to_owned)
}

impl Subject {
    /// The process that started the others.
    pub fn main(&self) -> Option<&Process> {
        self.processes.first()
    }

    /// The processes that serve: of those that listen, the ones that have started no other.
    pub fn serving(&self) -> Vec<&Process> {
        let listens = |process: &&Process| !open_sockets(process).is_empty();
        let parents: BTreeSet<u32> = self.processes.iter().map(|p| p.status.parent).collect();
        let is_leaf = |process: &&Process| !parents.contains(&process.pid);
        let leaves = self.processes.iter().filter(is_leaf).filter(listens);
        let found: Vec<&Process> = leaves.collect();
        match found.is_empty() {
            true => self.processes.iter().collect(),
            false => found,
        }
    }

    /// The files that its processes have mapped, by process.
    pub fn mapped(&self) -> io::Result<Vec<(&Process, Vec<Mapped>)>> {
        let processes = self.processes.iter();
        processes
            .map(|process| Ok((process, process.mapped()?)))
            .collect()
    }

    /// How it is shown.
    pub fn shown(&self) -> String {
        match self.main() {
            Some(process) => format!("{} (process {})", self.name, process.pid),
            None => self.name.clone(),
        }
    }

    /// The command that makes its configuration.
    pub fn configure(&self) -> String {
        match self.directories.iter().find_map(|name| server_called(name)) {
            Some(server) => format!("lockstep install --server {server}"),
            None => "lockstep configuration".to_owned(),
        }
    }

    /// What has it load the module. `lockstep install` knows the servers of the distribution only.
    pub fn install(&self) -> String {
        match self.directories.iter().find_map(|name| server_called(name)) {
            Some(_) => format!("{}, then restart it", self.configure()),
            None => format!(
                "write what `lockstep configuration` prints to a file that it can read, and start \
                 {} with OPENSSL_CONF=FILE (in a unit of systemd: Environment=)",
                self.name
            ),
        }
    }

    /// What has it offer a hybrid group.
    pub fn hybrid(&self) -> String {
        let server = self.directories.iter().find_map(|name| server_called(name));
        let directive = server.and_then(hybrid_directive);
        let directive = directive.unwrap_or_else(|| "name it in that list".to_owned());
        format!("{directive}, and {}", self.restart())
    }

    /// What has it load the module by this configuration, where no systemd starts it.
    pub fn without_systemd(&self, conf: &str) -> String {
        let server = self.directories.iter().find_map(|name| server_called(name));
        let remedy = server.and_then(|server| without_systemd(server, conf));
        remedy.unwrap_or_else(|| format!("start it with OPENSSL_CONF={conf} in its environment"))
    }

    /// What gives its references to the key daemon's keys anew.
    pub fn reference(&self) -> String {
        match self.directories.iter().find_map(|name| server_called(name)) {
            Some(server) => format!("lockstep install --server {server} --keyd"),
            None => "lockstep keyd export-reference NAME --out FILE".to_owned(),
        }
    }

    /// What brings changes of its environment or its libraries into effect.
    pub fn restart(&self) -> String {
        match &self.unit {
            Some(unit) if unit.is_in_force() => {
                format!("systemctl daemon-reload && systemctl restart {}", unit.name)
            }
            _ => format!("restart {}", self.name),
        }
    }

    /// A setting of the module: by the environment, or else by its section of the configuration;
    /// with what names it.
    pub fn setting(
        &self,
        environment: &Environment,
        configuration: Option<&Configuration>,
        name: &str,
    ) -> Option<(String, String)> {
        let variable = format!("LOCKSTEP_{}", name.to_uppercase());
        if let Some(value) = environment.get(&variable).filter(|value| !value.is_empty()) {
            return Some((value.to_owned(), format!("{variable}={value}")));
        }
        let configuration = configuration?;
        let provider = configuration.provider()?;
        let value = configuration.effective.setting(&provider, name)?;
        let path = configuration.path().display();
        let section = &provider.section;
        Some((
            value.to_owned(),
            format!("`{name} = {value}` in [{section}] of {path}"),
        ))
    }

    /// What the process that started the others sees of the file system, or what it would see.
    pub fn view(&self, root: &Path) -> View {
        self.main().map_or_else(|| View::under(root), View::of)
    }

    /// The words of the command line that name files.
    pub fn named_files(&self) -> Vec<PathBuf> {
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
        words.map(|word| main.about("cwd").join(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_belong_to_their_template() {
        for (group, unit, belongs) in [
            ("haproxy.service", "haproxy.service", true),
            ("stunnel@web.service", "stunnel@.service", true),
            ("stunnel4.service", "stunnel@.service", false),
            ("nginx.service", "haproxy.service", false),
        ] {
            assert_eq!(is_instance(group, unit), belongs, "{group} {unit}");
        }
        assert_eq!(stem("stunnel@.service"), "stunnel");
        assert_eq!(stem("apache2.service"), "apache2");
    }

    #[test]
    fn remedies_name_servers_that_install_knows() {
        let place = lockstep_testkit::TempDir::new("remedies");
        let processes = Processes {
            directory: place.to_path_buf(),
        };
        describe(&place, 7, 1, "apache2");
        describe(&place, 8, 1, "python3");
        let subject = |wanted: &Wanted| wanted.find(&processes, &place).unwrap();
        let apache = subject(&Wanted::Process(7));
        let install = "lockstep install --server apache";
        assert_eq!(apache.install(), format!("{install}, then restart it"));
        assert_eq!(apache.reference(), format!("{install} --keyd"));
        let python = subject(&Wanted::Process(8));
        for remedy in [python.install(), python.configure(), python.reference()] {
            assert!(!remedy.contains("--server"), "{remedy}");
        }
    }

    /// A process in a directory as `/proc` is.
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
            let subject = wanted.find(&processes, &place).unwrap();
            subject
                .processes
                .iter()
                .map(|process| process.pid)
                .collect()
        };
        let service = |name: &str| Wanted::Service {
            name: name.to_owned(),
            units: vec![format!("{name}.service")],
        };
        assert_eq!(pids(&service("haproxy")), [7, 5]);
        assert_eq!(pids(&Wanted::Process(7)), [7, 5, 9]);
        assert!(pids(&service("nginx")).is_empty());
        assert!(Wanted::Process(99).find(&processes, &place).is_err());
        describe(&place, 8, 1, "haproxy");
        let several = service("haproxy").find(&processes, &place);
        let what = several.err().expect("two of them").what;
        assert!(
            what.contains("runs several times: processes 7, 8"),
            "{what}"
        );
        // systemd knows better than the names.
        let group = "0::/system.slice/haproxy.service\n";
        std::fs::write(place.join("8/cgroup"), group).unwrap();
        assert_eq!(pids(&service("haproxy")), [8]);
    }
}
