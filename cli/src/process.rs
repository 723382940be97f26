//! Processes as `/proc` describes them (proc(5)).
//!
//! A process chooses much of this: its environment, its arguments, the names of its files, and how
//! long all of it is. Memory that the process has mapped in an unusual way can also make a reader
//! wait.

pub mod mapped;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::files::entries;
use crate::unit::unit_of_groups;
use mapped::{Mapped, mapped};

/// `AT_SECURE` of the auxiliary vector (getauxval(3)).
const AT_SECURE: u64 = 23;

/// Maximum number of bytes that are read of a file in `/proc`.
const MOST_BYTES: u64 = 16 << 20;
/// Maximum time to read a file in `/proc`.
const PATIENCE: Duration = Duration::from_secs(5);

/// The processes of this machine.
pub struct Processes {
    /// The directory that describes them: `/proc`, except in tests.
    pub directory: PathBuf,
}

impl Processes {
    /// The processes that run now.
    pub fn here() -> Processes {
        let directory = PathBuf::from("/proc");
        Processes { directory }
    }

    /// The process with this number, if there is one.
    pub fn get(&self, pid: u32) -> Option<Process> {
        let directory = self.directory.join(pid.to_string());
        // The start time is read first: facts that are read later belong to this process only if it
        // is still there.
        let started = started(&directory);
        let status = status(&directory)?;
        Some(Process {
            pid,
            directory,
            started,
            status,
        })
    }

    /// Returns all processes that run.
    pub fn all(&self) -> Vec<Process> {
        let pids = entries(&self.directory);
        let pids = pids.filter_map(|path| path.file_name()?.to_str()?.parse().ok());
        let mut all: Vec<Process> = pids.filter_map(|pid| self.get(pid)).collect();
        all.sort_by_key(|process| process.pid);
        all
    }
}

/// A process.
pub struct Process {
    pub pid: u32,
    pub status: Status,
    directory: PathBuf,
    /// Start time, in the kernel's ticks.
    started: Option<u64>,
}

/// Facts from `/proc/PID/status`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub parent: u32,
    /// The effective user.
    pub user: u32,
    /// The real, effective and saved user, and the user of the file system.
    pub users: Vec<u32>,
    /// The groups of the same four kinds.
    pub own_groups: Vec<u32>,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The capabilities in force, as bits.
    pub capabilities: u64,
    /// Whether a filter of system calls is in force.
    pub is_filtered: bool,
    /// Whether it has ended, and is not yet reaped by its parent.
    pub is_zombie: bool,
    /// Whether it is in another PID namespace, as in a container.
    pub is_nested: bool,
}

impl Status {
    fn parse(text: &str) -> Option<Status> {
        let fields: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.trim()))
            .collect();
        let word = |name: &str, at: usize| fields.get(name)?.split_whitespace().nth(at);
        let number = |name: &str, at| word(name, at)?.parse::<u32>().ok();
        let numbers = |name: &str| {
            let words = fields.get(name).copied().unwrap_or_default();
            let numbers = words.split_whitespace().map(str::parse);
            numbers.collect::<Result<Vec<u32>, _>>().unwrap_or_default()
        };
        let capabilities = word("CapEff", 0).and_then(|bits| u64::from_str_radix(bits, 16).ok());
        Some(Status {
            name: (*fields.get("Name")?).to_owned(),
            parent: number("PPid", 0)?,
            // The effective one.
            user: number("Uid", 1)?,
            users: numbers("Uid"),
            own_groups: numbers("Gid"),
            groups: numbers("Groups"),
            capabilities: capabilities.unwrap_or_default(),
            is_filtered: number("Seccomp", 0) == Some(2),
            is_zombie: ["Z", "X"].map(Some).contains(&word("State", 0)),
            is_nested: word("NSpid", 1).is_some(),
        })
    }
}

/// The environment that a process was started with.
#[derive(Debug, PartialEq, Eq)]
pub enum Environment {
    Known(BTreeMap<String, String>),
    /// The process has written over its environment, as nginx does to show a title.
    Overwritten,
}

impl Environment {
    fn parse(bytes: &[u8]) -> Environment {
        let text = String::from_utf8_lossy(bytes);
        let variables: BTreeMap<String, String> = text
            .split('\0')
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        match variables.is_empty() && !bytes.is_empty() {
            true => Environment::Overwritten,
            false => Environment::Known(variables),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        match self {
            Environment::Known(variables) => variables.get(name).map(String::as_str),
            Environment::Overwritten => None,
        }
    }
}

/// Reads the status of a process now.
fn status(directory: &Path) -> Option<Status> {
    Status::parse(&text(directory.join("status")).ok()?)
}

/// Reads the start time of a process.
fn started(directory: &Path) -> Option<u64> {
    start_time(&text(directory.join("stat")).ok()?)
}

/// Parses the 22nd field of `/proc/PID/stat`. The process chooses the second field, which ends at
/// the last bracket.
fn start_time(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

/// Reads the text of a file in `/proc`.
fn text(path: PathBuf) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&bytes(path)?).into_owned())
}

fn bytes(path: PathBuf) -> io::Result<Vec<u8>> {
    let read = move || {
        let mut bytes = Vec::new();
        fs::File::open(path)?
            .take(MOST_BYTES)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let late = || Err(io::ErrorKind::TimedOut.into());
    within(PATIENCE, read).unwrap_or_else(late)
}

/// Runs a function in a thread. Returns its result if it comes in time.
pub fn within<T: Send + 'static>(
    patience: Duration,
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    // A thread that never returns ends with this program.
    thread::spawn(move || sender.send(what()));
    receiver.recv_timeout(patience).ok()
}

impl Process {
    /// Path of the file with this name in the process's directory in `/proc`.
    pub fn about(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Reads the text of the file with this name in that directory.
    pub fn text(&self, name: &str) -> io::Result<String> {
        text(self.about(name))
    }

    pub fn environment(&self) -> io::Result<Environment> {
        Ok(Environment::parse(&bytes(self.about("environ"))?))
    }

    /// Whether its number is still its own. The number of a process that has ended may belong to
    /// another process, and the facts about the first one say nothing about the second.
    pub fn is_there(&self) -> bool {
        started(&self.directory) == self.started
    }

    /// Returns its status now: it may have changed its user.
    pub fn status_now(&self) -> Option<Status> {
        status(&self.directory)
    }

    /// Whether its program runs with more privileges than its caller had, so that libraries ignore
    /// the environment (secure_getenv(3)). `None` where that cannot be told.
    pub fn is_secure(&self) -> Option<bool> {
        let vector = bytes(self.about("auxv")).ok();
        vector.map(|vector| is_secure(&vector))
    }

    pub fn mapped(&self) -> io::Result<Vec<Mapped>> {
        Ok(mapped(&bytes(self.about("maps"))?))
    }

    /// Returns the table of mounts in its mount namespace.
    pub fn mounts(&self) -> Vec<u8> {
        bytes(self.about("mountinfo")).unwrap_or_default()
    }

    /// Maximum size in bytes of a file that it writes; `None` without a limit.
    pub fn file_size_limit(&self) -> Option<u64> {
        file_size_limit(&text(self.about("limits")).ok()?)
    }

    /// Path of the process's program, as the process sees it.
    pub fn program(&self) -> Option<PathBuf> {
        fs::read_link(self.about("exe")).ok()
    }

    /// The words of its command line.
    pub fn arguments(&self) -> Vec<String> {
        let text = text(self.about("cmdline")).unwrap_or_default();
        text.split('\0').map(str::to_owned).collect()
    }

    /// Whether systemd started the process for a unit whose name `is_called` accepts.
    pub fn is_of_unit(&self, is_called: impl Fn(&str) -> bool) -> bool {
        let groups = text(self.about("cgroup")).unwrap_or_default();
        unit_of_groups(&groups).is_some_and(is_called)
    }

    /// Whether this process shares a namespace of this kind (`mnt`, `net`) with the reader.
    pub fn shares(&self, kind: &str) -> bool {
        let own = fs::read_link(Path::new("/proc/self/ns").join(kind));
        let their = fs::read_link(self.about("ns").join(kind));
        matches!((own, their), (Ok(own), Ok(their)) if own == their)
    }
}

fn is_secure(auxiliary_vector: &[u8]) -> bool {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    let mut entries = auxiliary_vector.chunks_exact(16);
    entries.any(|entry| word(&entry[..8]) == AT_SECURE && word(&entry[8..]) != 0)
}

fn file_size_limit(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max file size"));
    line?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read() {
        let text = "Name:\thaproxy\nUmask:\t0022\nState:\tS (sleeping)\nPid:\t812\nPPid:\t811\n\
                    Uid:\t0\t107\t107\t107\nGid:\t0\t108\t108\t108\nGroups:\t4 44 \n\
                    CapEff:\t0000000000000006\nSeccomp:\t2\n";
        let status = Status::parse(text).unwrap();
        let expected = Status {
            name: "haproxy".into(),
            parent: 811,
            user: 107,
            users: vec![0, 107, 107, 107],
            own_groups: vec![0, 108, 108, 108],
            groups: vec![4, 44],
            capabilities: 6,
            is_filtered: true,
            is_zombie: false,
            is_nested: false,
        };
        assert_eq!(status, expected);
        assert_eq!(Status::parse("Name:\tx\n"), None);
    }

    #[test]
    fn an_environment_that_was_overwritten_is_told_from_an_empty_one() {
        let known = Environment::parse(b"A=1\0OPENSSL_CONF=/x=y\0");
        assert_eq!(known.get("OPENSSL_CONF"), Some("/x=y"));
        assert_eq!(Environment::parse(b""), Environment::Known(BTreeMap::new()));
        assert_eq!(Environment::parse(&[0; 64]), Environment::Overwritten);
    }

    #[test]
    fn privileges_and_limits_are_read() {
        let vector = |entries: &[[u64; 2]]| -> Vec<u8> {
            let words = entries.iter().flatten();
            words.flat_map(|word| word.to_ne_bytes()).collect()
        };
        assert!(is_secure(&vector(&[[6, 4096], [AT_SECURE, 1], [0, 0]])));
        assert!(!is_secure(&vector(&[
            [AT_SECURE, 0],
            [AT_SECURE + 1, 1],
            [0, 0]
        ])));
        let limits = |most| format!("Limit  Soft\nMax file size     {most}     {most}    bytes\n");
        assert_eq!(file_size_limit(&limits("4096")), Some(4096));
        assert_eq!(file_size_limit(&limits("unlimited")), None);
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let stat = |name: &str, start: u64| {
            format!("9 ({name}) S 1 9 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {start} 2 3\n")
        };
        for name in ["x", "a b", ") R 1 2 3", "((\n)"] {
            assert_eq!(start_time(&stat(name, 4711)), Some(4711), "{name}");
        }
        assert_eq!(start_time("9 (x) S 1 9\n"), None);
        assert_eq!(start_time(""), None);

        let place = lockstep_testkit::TempDir::new("pinned");
        let about = place.join("9");
        fs::create_dir(&about).unwrap();
        let status = "Name:\tx\nPid:\t9\nPPid:\t1\nUid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\n";
        fs::write(about.join("status"), status).unwrap();
        fs::write(about.join("stat"), stat("x", 4711)).unwrap();
        let processes = Processes {
            directory: place.to_path_buf(),
        };
        let process = processes.get(9).unwrap();
        assert!(process.is_there());
        // A later process of another user, with the same number and name.
        let status = status.replace('7', "8");
        fs::write(about.join("status"), &status).unwrap();
        fs::write(about.join("stat"), stat("x", 4712)).unwrap();
        assert!(!process.is_there());
        fs::remove_dir_all(&about).unwrap();
        assert!(!process.is_there());
        let own = Processes::here().get(std::process::id()).unwrap();
        assert!(own.is_there() && own.started.is_some());
    }

    #[test]
    fn processes_of_a_unit_are_known_by_their_control_group() {
        let place = lockstep_testkit::TempDir::new("processes");
        let write = |pid: &str, name: &str, text: &str| {
            fs::create_dir_all(place.join(pid)).unwrap();
            fs::write(place.join(pid).join(name), text).unwrap();
        };
        let status = "Name:\tx\nPid:\t9\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\n";
        write("9", "status", status);
        write("9", "cgroup", "0::/system.slice/haproxy.service\n");
        write("10", "status", status);
        write("10", "cgroup", "0::/system.slice/cron.service\n");
        // Any user can have a unit of this name.
        let of_user = "0::/user.slice/user@1000.service/app.slice/haproxy.service\n";
        write("12", "status", status);
        write("12", "cgroup", of_user);
        write("self", "status", status);
        let processes = Processes {
            directory: place.to_path_buf(),
        };
        let all = processes.all();
        let of_unit = |process: &&Process| process.is_of_unit(|unit| unit == "haproxy.service");
        let pids: Vec<u32> = all
            .iter()
            .filter(of_unit)
            .map(|process| process.pid)
            .collect();
        assert_eq!((all.len(), pids), (3, vec![9]));
        assert!(processes.get(11).is_none());
    }
}
