//! A process, as the system knows it: whether it still runs, its name, its user.

use std::io;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

/// Where process numbers have their meaning. Equal for two processes of which each sees the other
/// under the number that it has itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Realm {
    /// The start of this system, as a number of 128 bits; zero if it is unknown.
    pub(super) boot: [u64; 2],
    /// The PID namespace, by its inode; zero if it is unknown.
    pub(super) namespace: u64,
}

impl Realm {
    /// That of this process.
    pub(super) fn here() -> Realm {
        Realm {
            boot: boot().unwrap_or_default(),
            namespace: namespace(),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.boot != [0; 2] && self.namespace != 0
    }
}

fn boot() -> Option<[u64; 2]> {
    let mut buffer = [0; 64];
    let text = read("/proc/sys/kernel/random/boot_id", &mut buffer)?;
    let digits: String = text.trim().split('-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some([(number >> 64) as u64, number as u64])
}

/// When this system started, as the clock of files has it now.
pub(super) fn booted() -> Option<SystemTime> {
    let since = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    SystemTime::now().checked_sub(since)
}

/// The inode of this process's PID namespace; zero if it is unknown. The kernel gives the number of
/// a namespace that has ended to a later one. All processes of the former have ended then.
pub(super) fn namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |about| about.st_ino)
}

/// Whether the process with this number that ran at some moment, in clock ticks since boot, still
/// runs. Another process with that number has started later. Judges in the PID namespace of the
/// caller.
pub(super) fn is_alive(pid: u32, at: u64) -> bool {
    start_of(pid).is_some_and(|start| start <= at)
}

/// Whether that process is known to have ended. One that `/proc` does not show may run: a mount
/// with `hidepid` hides processes, even those of the same user, and this process may lack a
/// descriptor to read `/proc`.
pub(super) fn has_ended(pid: u32, at: u64) -> bool {
    has_ended_by("/proc", pid, at)
}

fn has_ended_by(proc: &str, pid: u32, at: u64) -> bool {
    let mut buffer = [0; 1024];
    match read(&format!("{proc}/{pid}/stat"), &mut buffer) {
        Some(stat) => start_in(stat).is_none_or(|start| start > at),
        None => !exists(pid),
    }
}

/// Whether there is a process with this number. A filter of system calls may deny the answer.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// When a process started, in clock ticks since boot; `None` if there is no such process, or it has
/// ended and only waits for its parent.
fn start_of(pid: u32) -> Option<u64> {
    let mut buffer = [0; 1024];
    start_in(read(&format!("/proc/{pid}/stat"), &mut buffer)?)
}

/// The same, from the text of `/proc/PID/stat`.
fn start_in(stat: &str) -> Option<u64> {
    // The second field, in parentheses, may hold anything; the third is the state of the first
    // thread, the 20th the number of threads, the 22nd the start.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    (!ended || threads > 1).then_some(start)
}

/// What a process is called.
pub(super) fn name_of(pid: u32) -> Option<String> {
    let mut buffer = [0; 64];
    let name = read(&format!("/proc/{pid}/comm"), &mut buffer)?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// Whether a file of this user can be that of this process: a user cannot publish counters in the
/// name of another's process.
pub(super) fn belongs_to(pid: u32, user: u32) -> bool {
    let mut buffer = [0; 4096];
    let status = read(&format!("/proc/{pid}/status"), &mut buffer).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let mut users = users.unwrap_or_default().split_whitespace();
    user == 0 || users.any(|its| its.parse() == Ok(user))
}

/// The time, as `/proc` counts it for the start of processes. No system call: the kernel gives the
/// time in memory.
pub(super) fn ticks_since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0) * ticks / 1_000_000_000;
    // Rounded up: a process is older than the moment at which it asks.
    seconds * ticks + rest + 1
}

/// Whether less than this time has passed since a moment, in clock ticks since boot.
pub(super) fn is_within(time: Duration, since: u64) -> bool {
    let ticks = rustix::param::clock_ticks_per_second();
    ticks_since_boot().saturating_sub(since) < time.as_secs() * ticks
}

/// The start of a file, as text. Takes three system calls where `std` takes six.
fn read<'a>(path: &str, buffer: &'a mut [u8]) -> Option<&'a str> {
    // Not `open`, a system call that filters leave out since libc does not make it any more.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    let length = loop {
        match rustix::io::read(&file, &mut *buffer).map_err(io::Error::from) {
            Ok(length) => break length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    };
    // A name may end in the middle of a character.
    let text = &buffer[..length];
    let valid = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
    std::str::from_utf8(&text[..valid]).ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::process;
    use std::time::Instant;

    use super::*;

    #[test]
    fn this_process_has_a_realm_that_stays() {
        let here = Realm::here();
        assert!(here.is_known(), "{here:?}");
        assert_eq!(here, Realm::here());
        assert!(is_alive(process::id(), ticks_since_boot()));
        assert!(!is_alive(process::id(), 0), "it has started later");
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let [high, low] = here.boot;
        let shown = format!("{high:016x}{low:016x}");
        assert_eq!(shown, text.trim().replace('-', ""));
    }

    #[test]
    fn the_start_of_this_system_is_a_time() {
        let ticks = ticks_since_boot() / rustix::param::clock_ticks_per_second();
        let age = booted().unwrap().elapsed().unwrap().as_secs();
        assert!(age.abs_diff(ticks) < 60, "{age} {ticks}");
    }

    #[test]
    fn what_has_ended_is_not_alive_though_its_parent_has_not_asked() {
        let mut child = process::Command::new("true").spawn().unwrap();
        let start = Instant::now();
        while start_of(child.id()).is_some() {
            assert!(start.elapsed().as_secs() < 20, "`true` does not end");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_proc_hides_has_not_ended() {
        let hides_all = lockstep_testkit::TempDir::new("hidepid");
        let hides_all = hides_all.to_str().unwrap();
        let own = process::id();
        assert!(!has_ended_by(hides_all, own, ticks_since_boot()));
        assert!(!has_ended(own, ticks_since_boot()));
        assert!(has_ended(own, 0), "another process has this number now");
        let mut child = process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        for gone in [child.id(), u32::MAX] {
            assert!(has_ended_by(hides_all, gone, ticks_since_boot()), "{gone}");
        }
    }

    #[test]
    fn a_process_goes_on_when_its_first_thread_has_left() {
        let stat = |name: &str, state: &str, threads: u32| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0")
        };
        assert_eq!(start_in(&stat("server", "S", 1)), Some(4711));
        assert_eq!(start_in(&stat("server", "Z", 1)), None);
        assert_eq!(start_in(&stat("server", "Z", 3)), Some(4711));
        assert_eq!(start_in(&stat("a) Z 1 (b", "R", 2)), Some(4711));
        assert_eq!(start_in("7 (server"), None);
    }

    #[test]
    fn the_clock_without_proc_is_that_of_proc() {
        let start = start_of(process::id()).unwrap();
        let now = ticks_since_boot();
        // No process of these tests is an hour old.
        let hour = 3600 * rustix::param::clock_ticks_per_second();
        assert!(start < now && now < start + hour, "{start} {now}");
    }
}
