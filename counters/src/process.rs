//! A process, as the system knows it: whether it still runs, its name, its user.
//!
//! The name of a process may have any bytes, and `/proc` repeats them. So the kernel's texts are
//! read as bytes, and a part that is not UTF-8 hides no other part.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

/// The space in which process numbers have a meaning. Two processes of one realm see each other
/// under the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Realm {
    /// The start of this system, as a number of 128 bits; zero if it is unknown.
    pub(super) boot: [u64; 2],
    /// The PID namespace, by its inode; zero if it is unknown.
    pub(super) namespace: u64,
}

impl Realm {
    /// Returns the realm of this process.
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
    let text = text("/proc/sys/kernel/random/boot_id", &mut buffer)?;
    let digits: String = text.trim().split('-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some([(number >> 64) as u64, number as u64])
}

/// Returns the time at which this system started, by the clock of file systems.
pub(super) fn booted() -> Option<SystemTime> {
    let since = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    SystemTime::now().checked_sub(since)
}

/// Returns the inode of this process's PID namespace; zero if it is unknown. Once all processes of
/// a namespace have ended, the kernel may give its number to a later namespace.
pub(super) fn namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/pid").map_or(0, |about| about.st_ino)
}

/// Returns whether the process that had the number `pid` at the time `at`, in clock ticks since
/// boot, still runs. Another process of that number has started later. The number is one of the
/// caller's PID namespace.
pub(super) fn is_alive(pid: u32, at: u64) -> bool {
    matches!(state("/proc", pid), State::Runs { since } if since <= at)
}

/// Returns whether the process that had the number `pid` at the time `at` is known to have ended. A
/// process that `/proc` does not show may run: a mount with `hidepid` hides processes, even of the
/// same user, and this process may have no descriptor left to read `/proc`.
pub(super) fn has_ended(pid: u32, at: u64) -> bool {
    has_ended_by("/proc", pid, at)
}

fn has_ended_by(proc: &str, pid: u32, at: u64) -> bool {
    match state(proc, pid) {
        State::Runs { since } => since > at,
        State::Ended => true,
        State::Unknown => !exists(pid),
    }
}

/// Returns whether there is a process with this number. True if a filter of system calls denies the
/// answer.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// The state of a process, as `/proc` shows it.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It has run since this time, in clock ticks since boot.
    Runs { since: u64 },
    /// It has ended, and waits for its parent.
    Ended,
    /// `/proc` does not show it.
    Unknown,
}

fn state(proc: &str, pid: u32) -> State {
    let mut buffer = [0; 1024];
    let stat = text(&format!("{proc}/{pid}/stat"), &mut buffer);
    stat.and_then(|stat| state_in(&stat))
        .unwrap_or(State::Unknown)
}

/// Reads the state from the text of `/proc/PID/stat`.
fn state_in(stat: &str) -> Option<State> {
    // The second field, in parentheses, may hold any text. The third is the state of the first
    // thread, the 20th the number of threads, the 22nd the start.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let since = fields.nth(1)?.parse().ok()?;
    Some(match ended && threads <= 1 {
        true => State::Ended,
        false => State::Runs { since },
    })
}

/// Returns the name of a process. `\xNN` stands for each byte that is not UTF-8.
pub(super) fn name_of(pid: u32) -> Option<String> {
    let mut buffer = [0; 64];
    let name = read(&format!("/proc/{pid}/comm"), &mut buffer)?;
    Some(escaped(name.strip_suffix(b"\n").unwrap_or(name)))
}

fn escaped(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Returns whether a file of this user can belong to this process: a user cannot publish counters
/// in the name of another user's process.
pub(super) fn belongs_to(pid: u32, user: u32) -> bool {
    let mut buffer = [0; 4096];
    let status = text(&format!("/proc/{pid}/status"), &mut buffer).unwrap_or_default();
    user == 0 || is_user_in(&status, user)
}

/// Returns whether the text of `/proc/PID/status` names this user.
fn is_user_in(status: &str, user: u32) -> bool {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let mut users = users.unwrap_or_default().split_whitespace();
    users.any(|its| its.parse() == Ok(user))
}

/// Returns the time since boot in clock ticks, the unit of the starts of processes in `/proc`. It
/// takes no system call: the kernel gives the time in memory.
pub(super) fn ticks_since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0) * ticks / 1_000_000_000;
    // Rounded up: a process is older than the moment at which it asks.
    seconds * ticks + rest + 1
}

/// Returns whether less than this time has passed since a moment, in clock ticks since boot.
pub(super) fn is_within(time: Duration, since: u64) -> bool {
    let ticks = rustix::param::clock_ticks_per_second();
    ticks_since_boot().saturating_sub(since) < time.as_secs() * ticks
}

/// Reads the start of a file as text. A byte that is not UTF-8 becomes another character, and hides
/// no other byte.
fn text<'a>(path: &str, buffer: &'a mut [u8]) -> Option<Cow<'a, str>> {
    read(path, buffer).map(String::from_utf8_lossy)
}

/// Reads the start of a file, by three system calls where `std` makes six.
fn read<'a>(path: &str, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // Not by open(2): libc no longer makes this system call, so filters may not allow it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?;
    loop {
        match rustix::io::read(&file, &mut *buffer).map_err(io::Error::from) {
            Ok(length) => return Some(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
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
        while state("/proc", child.id()) != State::Ended {
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

    /// The kernel cuts a name off in the middle of a character.
    #[test]
    fn a_process_has_any_bytes_for_a_name() {
        let child = lockstep_testkit::Named::start(b"caf\xc3\xa9 \xe2\x82) Z 1");
        assert!(is_alive(child.id(), ticks_since_boot()));
        assert!(!has_ended(child.id(), ticks_since_boot()));
        assert_eq!(name_of(child.id()).unwrap(), "caf\u{e9} \\xe2\\x82) Z 1");
        let status = b"Name:\tcaf\xc3\nUid:\t0\t107\t0\t0\n";
        let status = String::from_utf8_lossy(status);
        assert!(is_user_in(&status, 107) && !is_user_in(&status, 1));
    }

    /// `/proc` may have other texts in future, or a filter may cut one off.
    #[test]
    fn a_process_of_which_nothing_is_known_has_not_ended() {
        let proc = lockstep_testkit::TempDir::new("odd-proc");
        let own = process::id();
        std::fs::create_dir(proc.join(own.to_string())).unwrap();
        for stat in [&b""[..], b"7 (\xe2\x82) R 1", b"\xff"] {
            std::fs::write(proc.join(format!("{own}/stat")), stat).unwrap();
            assert!(!has_ended_by(
                proc.to_str().unwrap(),
                own,
                ticks_since_boot()
            ));
        }
    }

    #[test]
    fn a_process_goes_on_when_its_first_thread_has_left() {
        let stat = |name: &str, state: &str, threads: u32| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0")
        };
        let runs = Some(State::Runs { since: 4711 });
        assert_eq!(state_in(&stat("server", "S", 1)), runs);
        assert_eq!(state_in(&stat("server", "Z", 1)), Some(State::Ended));
        assert_eq!(state_in(&stat("server", "Z", 3)), runs);
        assert_eq!(state_in(&stat("a) Z 1 (b", "R", 2)), runs);
        assert_eq!(state_in("7 (server"), None);
    }

    #[test]
    fn the_clock_without_proc_is_that_of_proc() {
        let State::Runs { since: start } = state("/proc", process::id()) else {
            panic!("/proc does not say when this process started");
        };
        let now = ticks_since_boot();
        // No process of these tests is an hour old.
        let hour = 3600 * rustix::param::clock_ticks_per_second();
        assert!(start < now && now < start + hour, "{start} {now}");
    }
}
