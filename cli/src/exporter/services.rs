//! Services that should load the module, and whether they have.
//!
//! A module that is not loaded has no counters and no log. But `lockstep install` leaves a drop-in
//! of systemd for a service, the kernel tells which processes a service has, and each process that
//! loads the module has a place in a file of counters, even before it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockstep_engine::{ProcessStats, Published};

use crate::files::{entries, text_of};
use crate::servers::DROP_IN;
use crate::unit::{stem, template, unit_of_groups};

/// Interval at which the services are looked at.
const INTERVAL: Duration = Duration::from_secs(60);

/// The services that are to load the module.
#[derive(Default)]
pub struct Services {
    /// Directory of `/etc` and `/proc` in tests.
    root: PathBuf,
    looked: Option<Instant>,
    /// Their units.
    units: BTreeSet<String>,
    /// Units that run, and whether one of their processes has loaded the module.
    loaded: BTreeMap<String, bool>,
    /// Units for which the log has a line already.
    said: BTreeSet<String>,
}

impl Services {
    fn at(&self, path: &str) -> PathBuf {
        Path::new("/").join(&self.root).join(path)
    }

    /// Looks at the services if [`INTERVAL`] has passed since the last look. Returns lines for the
    /// log.
    pub fn look(&mut self, found: &Published) -> Vec<String> {
        if self
            .looked
            .is_some_and(|looked| looked.elapsed() < INTERVAL)
        {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        self.units = self.configured();
        if self.units.is_empty() {
            self.loaded.clear();
            return Vec::new();
        }
        let all = found.processes.iter().chain(&found.idle);
        let with: BTreeSet<u32> = all
            .filter(|process| process.alive)
            .map(|process| process.pid)
            .collect();
        let before = std::mem::take(&mut self.loaded);
        let mut unknown = BTreeSet::new();
        for (service, pid, user) in self.processes() {
            // If not all counters of root and of the process's user were read, the process may
            // have counters there. It has them in a file of root's if it was started as root. No
            // other user can hide it.
            if [0, user].iter().any(|user| found.incomplete.contains(user)) {
                unknown.insert(service.clone());
            }
            *self.loaded.entry(service).or_default() |= with.contains(&pid);
        }
        self.loaded
            .retain(|service, loaded| *loaded || !unknown.contains(service));
        let mut lines = Vec::new();
        for (service, loaded) in &self.loaded {
            // The log has a line only at the second look: the service may have been starting.
            let is_without = !loaded && before.get(service) == Some(&false);
            if *loaded {
                self.said.remove(service);
            } else if is_without && self.said.insert(service.clone()) {
                lines.push(format!(
                    "{service} is configured to load lockstep and runs without it: lockstep doctor \
                     --service {}\n",
                    stem(service)
                ));
            }
        }
        self.said
            .retain(|service| self.loaded.contains_key(service));
        lines
    }

    /// Whether a process belongs to one of these services. The kernel decides this, not the file of
    /// counters.
    pub fn has(&self, process: &ProcessStats) -> bool {
        let directory = self.at(&format!("proc/{}", process.pid));
        process.alive && self.service_of(&directory).is_some()
    }

    /// A series for each service that runs.
    pub fn exposition(&self) -> String {
        let name = "lockstep_service_loaded";
        let mut out = format!(
            "# HELP {name} Whether a service that is configured to load the module has it.\n\
             # TYPE {name} gauge\n"
        );
        for (service, loaded) in &self.loaded {
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                r#"{name}{{service="{service}"}} {}"#,
                u8::from(*loaded)
            );
        }
        out
    }

    /// The units whose drop-in names a configuration of OpenSSL that leaves the counters in the
    /// default place.
    fn configured(&self) -> BTreeSet<String> {
        let named = entries(&self.at("etc/systemd/system")).filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let unit = name.strip_suffix(".d").filter(|unit| is_service(unit))?;
            let text = text_of(&path.join(DROP_IN)).ok()?;
            self.is_to_load(&text).then(|| unit.to_owned())
        });
        named.collect()
    }

    fn is_to_load(&self, drop_in: &str) -> bool {
        let is_elsewhere = |text: &str| {
            let mut lines = text.lines().map(str::trim_start);
            lines.any(|line| line.starts_with("stats_dir"))
        };
        let variables = drop_in
            .lines()
            .filter_map(|l| l.strip_prefix("Environment="));
        let mut configurations = variables.filter_map(|v| v.strip_prefix("OPENSSL_CONF="));
        configurations.any(|path| {
            let path = self.at(path.trim().trim_start_matches('/'));
            text_of(&path).map_or(true, |text| !is_elsewhere(&text))
        })
    }

    /// The processes of these units and of their instances, with their users.
    fn processes(&self) -> Vec<(String, u32, u32)> {
        let of_process = |path: PathBuf| {
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            let service = self.service_of(&path)?;
            Some((service, pid, fs::symlink_metadata(path).ok()?.uid()))
        };
        entries(&self.at("proc")).filter_map(of_process).collect()
    }

    /// The service that a process belongs to, by its directory in /proc, if it is one of these.
    fn service_of(&self, process: &Path) -> Option<String> {
        let groups = text_of(&process.join("cgroup")).ok()?;
        let unit = unit_of_groups(&groups).filter(|unit| is_service(unit))?;
        self.units
            .contains(&template(unit))
            .then(|| unit.to_owned())
    }
}

/// Whether this can be the name of a service, which is a label and part of a command.
fn is_service(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@.-_:".contains(&byte);
    name.ends_with(".service") && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use lockstep_engine::{ProcessStats, Snapshot};
    use lockstep_testkit::TempDir;

    use super::*;

    fn process(pid: u32) -> ProcessStats {
        ProcessStats {
            pid,
            file: String::new(),
            name: None,
            user: 0,
            alive: true,
            elsewhere: None,
            snapshot: Snapshot::default(),
        }
    }

    #[test]
    fn a_service_that_runs_without_the_module_is_told_once() {
        let root = TempDir::new("services");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let unit = |name: &str, configuration: &str| {
            let text = format!("[Service]\nEnvironment=OPENSSL_CONF={configuration}\n");
            let path = format!("etc/systemd/system/{name}.service.d/zz-lockstep.conf");
            write(&path, &text);
        };
        let runs = |pid: u32, service: &str| {
            let group = format!("0::/system.slice/{service}.service\n");
            write(&format!("proc/{pid}/cgroup"), &group);
        };
        unit("nginx", "/etc/lockstep/openssl.cnf");
        unit("stunnel@", "/etc/lockstep/openssl.cnf");
        unit("stopped", "/etc/lockstep/openssl.cnf");
        // Its counters are somewhere else.
        unit("elsewhere", "/etc/elsewhere.cnf");
        write("etc/elsewhere.cnf", "[l]\n stats_dir = /var/x\n");
        // `install` has not written this drop-in.
        let other = "etc/systemd/system/other.service.d/zz-lockstep.conf";
        write(other, "[Service]\nNice=3\n");
        write("etc/lockstep/openssl.cnf", "[l]\nslots = 2\n");
        for (pid, service) in [
            (7, "nginx"),
            (8, "nginx"),
            (9, "stunnel@a"),
            (10, "elsewhere"),
            (11, "other"),
        ] {
            runs(pid, service);
        }
        // Any user can have units of their own, of any name.
        for (pid, service) in [(12, "nginx"), (13, "stunnel@mine")] {
            let group = format!("user.slice/user-1000.slice/user@1000.service/app.slice/{service}");
            write(
                &format!("proc/{pid}/cgroup"),
                &format!("0::/{group}.service\n"),
            );
        }
        let mut services = Services {
            root: root.to_path_buf(),
            ..Services::default()
        };
        let own = rustix::process::geteuid().as_raw();
        let mut look = |pids: &[u32], incomplete: Option<u32>| {
            services.looked = None;
            let found = Published {
                idle: pids.iter().map(|pid| process(*pid)).collect(),
                incomplete: incomplete.into_iter().collect(),
                ..Published::default()
            };
            let lines = services.look(&found).concat();
            let text = services.exposition();
            let series = text.lines().filter(|line| !line.starts_with('#'));
            let series = series.map(|line| line.split_once("service=").unwrap().1);
            (lines, series.collect::<Vec<_>>().join(" "))
        };
        let without = r#""nginx.service"} 0 "stunnel@a.service"} 1"#;
        assert_eq!(look(&[9], None), (String::new(), without.to_owned()));
        let (lines, series) = look(&[9], None);
        assert_eq!(series, without);
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.starts_with("nginx.service is configured"), "{lines}");
        assert!(
            lines.ends_with("lockstep doctor --service nginx\n"),
            "{lines}"
        );
        assert_eq!(look(&[9], None).0, "", "once");
        for unread in [0, own] {
            let known = r#""stunnel@a.service"} 1"#;
            assert_eq!(look(&[9], Some(unread)).1, known, "{unread}");
        }
        assert_eq!(look(&[9], Some(own + 1)).1, without, "of a stranger");
        // A worker has it.
        let with = r#""nginx.service"} 1 "stunnel@a.service"} 1"#;
        assert_eq!(look(&[8, 9], None), (String::new(), with.to_owned()));
        look(&[9], None);
        assert!(
            !look(&[9], None).0.is_empty(),
            "and again, once it has had it"
        );
        let is_known = |pid: &u32| services.has(&process(*pid));
        let known: Vec<u32> = (6..15).filter(is_known).collect();
        assert_eq!(
            known,
            [7, 8, 9],
            "10 and 11 are of other services, 12 and 13 a user's"
        );
        let ended = ProcessStats {
            alive: false,
            ..process(7)
        };
        assert!(
            !services.has(&ended),
            "a file of counters alone says that it is this process"
        );
    }

    #[test]
    fn a_name_cannot_break_out_of_its_label_or_command() {
        for name in ["a.service", "stunnel@x_1-2:3.service"] {
            assert!(is_service(name), "{name}");
        }
        for name in [
            "a",
            "a\"b.service",
            "a;b.service",
            "a b.service",
            "a\\x2d.service",
        ] {
            assert!(!is_service(name), "{name}");
        }
        assert_eq!(stem("stunnel@a.service"), "stunnel");
    }
}
