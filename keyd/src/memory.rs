//! Check of the memory limit against the memory that clients can take.
//!
//! Each client has a ring, and the kernel charges all rings to the control group of the daemon. If
//! the group has a limit, such as `MemoryMax=` in the unit, the kernel kills a daemon that exceeds
//! it, and clients are not served until the next daemon has started.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lockstep_ring::{Answers, ring_bytes};

use crate::keyd_conf::Configuration;

/// Size of a page in bytes.
const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;
/// Suggested limits are multiples of this number of MiB, and exceed the need by at least one step.
const STEP: u64 = 64;

/// A configuration that can take more memory than the limit.
#[derive(Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The problem.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

/// Reporter of a shortage: at the first check, and again after the length of answers has changed.
pub struct Watch {
    configuration: Configuration,
    /// Length of answers at the last check.
    answers: Option<Answers>,
}

impl Watch {
    /// Creates a watch without a check.
    pub fn new(configuration: &Configuration) -> Watch {
        let configuration = configuration.clone();
        Watch {
            configuration,
            answers: None,
        }
    }

    /// Returns a line for the log. `answers` is the current length of answers, `allowed` the limit
    /// in bytes.
    pub fn line(&mut self, answers: Answers, allowed: Option<u64>) -> Option<String> {
        if self.answers.replace(answers) == Some(answers) {
            return None;
        }
        let Shortage { what, remedy } = shortage(&self.configuration, answers, allowed?)?;
        Some(format!("warning: {what}. Remedy: {remedy}"))
    }
}

/// Returns the shortage of a configuration with a limit of `allowed` bytes. This process must have
/// read its keys already; `answers` is the length of their answers.
pub fn shortage(configuration: &Configuration, answers: Answers, allowed: u64) -> Option<Shortage> {
    shortage_with(configuration, answers, resident(), allowed)
}

/// Returns the shortage of a daemon that takes `held` bytes without clients.
fn shortage_with(
    configuration: &Configuration,
    answers: Answers,
    held: u64,
    allowed: u64,
) -> Option<Shortage> {
    let Configuration {
        max_clients, queue, ..
    } = configuration;
    let ring = ring_bytes(*queue, answers).next_multiple_of(PAGE) as u64;
    let rings = *max_clients as u64 * ring;
    let needed = (held + rings).div_ceil(MIB);
    (needed * MIB > allowed).then(|| Shortage {
        what: format!(
            "with max_clients = {max_clients} and queue = {queue} the rings of all clients take \
             {} MiB, the daemon {needed} MiB in all, and it may have {} MiB: beyond that the \
             kernel ends it",
            rings.div_ceil(MIB),
            allowed / MIB
        ),
        remedy: format!(
            "raise the limit (systemctl edit lockstep-keyd.service, with the lines [Service] and \
             MemoryMax={}M), or lower max_clients or queue",
            (needed + STEP).next_multiple_of(STEP)
        ),
    })
}

/// Returns the resident memory of this process without the rings of clients, in bytes.
fn resident() -> u64 {
    let text = fs::read("/proc/self/status").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    bytes_of(&text, "RssAnon:") + bytes_of(&text, "RssFile:")
}

/// Returns the value of a line in `/proc/self/status`, in bytes.
fn bytes_of(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    1024 * number
        .and_then(|own| own.parse::<u64>().ok())
        .unwrap_or_default()
}

/// Returns the memory limit of this process's control group; `None` if there is no limit, or none
/// that this process can read.
pub fn allowed() -> Option<u64> {
    let groups = fs::read("/proc/self/cgroup").ok()?;
    allowed_under(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the lowest limit of the group that `/proc/PID/cgroup` names and of all its parents, from
/// their files below `root`.
fn allowed_under(root: &Path, groups: &[u8]) -> Option<u64> {
    let mut lines = groups.split(|byte| *byte == b'\n');
    let group = lines.find_map(|line| line.strip_prefix(b"0::/"))?;
    let place = root.join(OsStr::from_bytes(group));
    let above = place
        .ancestors()
        .take_while(|place| place.starts_with(root));
    let files = above.map(|place: &Path| -> PathBuf { place.join("memory.max") });
    // A group without a limit has `max`.
    let limits = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.min()
}

/// Returns the bytes of a value of `MemoryMax=` (systemd.resource-control(5)); `None` for no limit,
/// and for a percentage.
pub fn limit_of_unit(value: &str) -> Option<u64> {
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
    let power = match &value[digits.len()..] {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1024_u64.pow(power))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use Answers::{Long, Short};
    use lockstep_testkit::TempDir;

    use super::*;

    #[test]
    fn a_limit_that_the_rings_exceed_is_named_with_one_that_they_keep_to() {
        let limit = limit_of_unit("1G").expect("a limit");
        let with = |text: &str| {
            let configuration = Configuration::parse(text);
            assert!(configuration.wrong.is_empty(), "{text}");
            configuration
        };
        for (text, answers, fits) in [
            ("", Short, true),
            ("", Long, true),
            ("max_clients = 4096\n", Short, true),
            ("max_clients = 4096\n", Long, false),
            ("queue = 256\n", Short, true),
            ("queue = 256\n", Long, false),
            ("queue = 512\n", Short, false),
            ("max_clients = 4096\nqueue = 128\n", Short, false),
            ("max_clients = 4096\nqueue = 1024\n", Short, false),
        ] {
            let configuration = with(text);
            let found = shortage(&configuration, answers, limit);
            assert_eq!(found.is_none(), fits, "{text}: {found:?}");
            let Some(Shortage { remedy, .. }) = found else {
                continue;
            };
            let written = remedy.split_once("MemoryMax=").expect("a line").1;
            let written = written.split(')').next().expect("a value");
            let written = limit_of_unit(written).expect("a limit");
            assert!(written > limit, "{remedy}");
            assert_eq!(shortage(&configuration, answers, written), None, "{remedy}");
        }
        // With rings as the kernel counts them, and with the memory of keys.
        let default = with("");
        for answers in Answers::ALL {
            let ring = lockstep_ring::Server::create_for(default.queue, answers);
            let (_ring, descriptor) = ring.expect("a ring");
            let file = fs::File::from(descriptor).metadata().expect("a file");
            let rings = default.max_clients as u64 * file.blocks() * 512;
            assert_eq!(shortage_with(&default, answers, 0, rings), None);
            assert!(shortage_with(&default, answers, 0, rings - 1).is_some());
            assert!(shortage_with(&default, answers, 1, rings).is_some());
        }
    }

    /// The first key of ML-DSA may come while the daemon runs.
    #[test]
    fn a_shortage_is_told_once_it_is_there() {
        let configuration = Configuration::parse("max_clients = 4096\n");
        let mut watch = Watch::new(&configuration);
        let limit = limit_of_unit("1G");
        assert_eq!(watch.line(Short, limit), None);
        let line = watch.line(Long, limit).expect("a line");
        assert!(
            line.starts_with("warning: with max_clients = 4096 "),
            "{line}"
        );
        assert_eq!(watch.line(Long, limit), None);
        assert_eq!(watch.line(Short, limit), None);
        assert!(watch.line(Long, limit).is_some());
        assert_eq!(Watch::new(&configuration).line(Long, None), None);
    }

    #[test]
    fn the_lowest_limit_of_all_groups_above_counts() {
        let root = TempDir::new("cgroup");
        let place = root.join("system.slice/lockstep-keyd.service");
        fs::create_dir_all(&place).expect("a directory");
        let groups = b"1:name=systemd:/x\n0::/system.slice/lockstep-keyd.service\n";
        let write = |path: &Path, text: &str| fs::write(path.join("memory.max"), text).expect("it");
        assert_eq!(allowed_under(&root, groups), None);
        write(&place, "max\n");
        assert_eq!(allowed_under(&root, groups), None);
        write(&place, "1073741824\n");
        assert_eq!(allowed_under(&root, groups), Some(1 << 30));
        // The limit of a container.
        write(&root, "536870912\n");
        assert_eq!(allowed_under(&root, groups), Some(1 << 29));
        assert_eq!(allowed_under(&root, b"0::/\n"), Some(1 << 29));
        assert_eq!(allowed_under(&root, b"2:memory:/x\n"), None);
        // The group may have any name.
        let place = root.join(OsStr::from_bytes(b"caf\xe9"));
        fs::create_dir(&place).expect("a directory");
        write(&place, "1048576\n");
        assert_eq!(allowed_under(&root, b"0::/caf\xe9\n"), Some(1 << 20));
    }

    /// Clients may be connected when a key of ML-DSA comes. Other tests take memory at the same
    /// time.
    #[test]
    fn rings_are_not_counted_twice() {
        let before = resident();
        let rings = [(); 64].map(|()| lockstep_ring::Server::create(1024).expect("a ring"));
        assert!(resident() < before + 64 * MIB, "{before} {}", resident());
        drop(rings);
    }

    /// Other tests take and free memory at the same time.
    #[test]
    fn the_memory_of_this_process_is_what_the_kernel_says() {
        let text = fs::read_to_string("/proc/self/status").expect("the status");
        let known = bytes_of(&text, "VmRSS:") - bytes_of(&text, "RssShmem:");
        let seen = resident();
        let most = known.max(64 * MIB);
        assert!(seen > MIB && seen.abs_diff(known) < most, "{seen} {known}");
    }

    #[test]
    fn the_limit_of_this_process_is_that_of_its_group() {
        let groups = fs::read("/proc/self/cgroup").unwrap_or_default();
        assert_eq!(
            allowed(),
            allowed_under(Path::new("/sys/fs/cgroup"), &groups)
        );
    }

    #[test]
    fn limits_of_units_are_read() {
        for (value, bytes) in [
            ("1G", Some(1 << 30)),
            ("512M", Some(1 << 29)),
            ("4096", Some(4096)),
            ("3K", Some(3072)),
            ("2T", Some(2 << 40)),
            ("infinity", None),
            ("50%", None),
            ("", None),
        ] {
            assert_eq!(limit_of_unit(value), bytes, "{value}");
        }
    }
}
