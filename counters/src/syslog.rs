//! Warnings in the system's log: rare lines for administrators who read nothing else.
//!
//! A line is a datagram to the log's socket, in the form in which `syslog` of the C library sends
//! it. That function is not used, because its state belongs to the program: a first call by the
//! engine would open the program's log under the wrong name, would keep a descriptor, and could
//! wait for a log that does not read. Here a socket is made for each datagram, is never connected,
//! and never blocks. The datagram has no time, since local time would need files; the log adds its
//! own.
//!
//! Where nothing listens, as in most chroots, nothing happens: the counters show the same.
//!
//! There is at most one line per process and hour for each [`Event`], and one about mistakes in the
//! settings when a process reads them. Nothing here waits for a lock or allocates memory, so it may
//! run on any stack and in a forked child.

use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with,
};
use rustix::time::{ClockId, clock_gettime};

/// Path of the socket of the system's log.
const SOCKET: &str = "/dev/log";
/// Length of the longest path of a socket: `sun_path` holds 108 bytes, with a zero at the end.
pub const LONGEST_PATH: usize = 107;

/// The facility of the lines (RFC 5424, section 6.2.1).
const DAEMON: u8 = 3 << 3;

/// Seconds between two lines about the same event.
const HOUR: u32 = 3600;
/// Seconds between two attempts when the log did not take the line.
const MINUTE: u32 = 60;

/// Destination of warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Syslog {
    /// Nowhere.
    #[default]
    Off,
    /// To the system's log.
    On,
    /// To this datagram socket.
    At(PathBuf),
}

/// An event that gets a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Results failed their check, `so_far` in all.
    FailedCheck { so_far: u64 },
    /// `now` asynchronous jobs are paused, of `most` at most.
    Paused { now: u64, most: u64 },
    /// `so_far` asynchronous jobs are lost, of `most` at most.
    Lost { so_far: u64, most: u64 },
    /// Nothing is offered in this process, since its objects may be shared.
    SharedMemory,
}

impl Event {
    const KINDS: usize = 4;

    fn kind(self) -> usize {
        match self {
            Event::FailedCheck { .. } => 0,
            Event::Paused { .. } => 1,
            Event::Lost { .. } => 2,
            Event::SharedMemory => 3,
        }
    }

    /// Returns the priority: critical, or a warning.
    fn priority(self) -> u8 {
        match self {
            Event::FailedCheck { .. } => DAEMON | 2,
            Event::Paused { .. } | Event::Lost { .. } | Event::SharedMemory => DAEMON | 4,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::FailedCheck { so_far } => write!(
                f,
                "a result failed its check ({so_far} so far in this process). It was discarded, \
                 and OpenSSL's own code computed it again. The CPU or the memory of this machine \
                 may be faulty, or the parts of a key contradict each other. Look for machine \
                 check errors, run `openssl pkey -check` on the keys, and see `lockstep doctor`. \
                 Until the cause is found, set backend = none, because signatures on curves are \
                 checked by sample only. This is logged once an hour at most"
            ),
            Event::Paused { now, most } => write!(
                f,
                "{now} async jobs of this process are paused, of {most} at most (max_async). \
                 Beyond that number a job blocks its thread until it is served, and the server \
                 gets slower. If the server is that busy, raise max_async. This is logged once an \
                 hour at most"
            ),
            Event::Lost { so_far, most } => write!(
                f,
                "{so_far} async jobs of this process are lost, of {most} at most, because their \
                 connections ended while they were paused; OpenSSL keeps 32 KiB of memory for \
                 each. At that number no job pauses any more, and the server gets slower. Restart \
                 or reload the server. This is logged once an hour at most"
            ),
            Event::SharedMemory => f.write_str(
                "this program gives OpenSSL memory that several of its processes share, or may \
                 share, and lockstep keeps what it knows of a connection in one process. So it \
                 offers nothing here, and OpenSSL's own code computes everything, as without \
                 lockstep. Nothing is wrong, and nothing needs to be done. This is logged once an \
                 hour at most",
            ),
        }
    }
}

/// The process and the second of the last line about each kind of event. They belong to the process
/// and not to an engine, as a program may load and unload the module again and again.
static LAST: [AtomicU64; Event::KINDS] = [const { AtomicU64::new(0) }; Event::KINDS];

/// Sender of lines.
#[derive(Debug)]
pub(crate) struct Log {
    to: Syslog,
    /// This process: a forked child makes a log of its own.
    pid: u32,
}

impl Log {
    pub(crate) fn new(to: Syslog) -> Log {
        Log {
            to,
            pid: process::id(),
        }
    }

    /// Sends a line about the settings that have no effect.
    fn say_mistakes(&self, mistakes: &str) {
        let Some(path) = self.path() else { return };
        let mut line = Line::default();
        let _ = write!(
            line,
            "<{}>lockstep[{}]: settings with mistakes have no effect, and their defaults hold. \
             Correct them and restart the program; `lockstep doctor` checks them. {mistakes}",
            DAEMON | 4,
            self.pid
        );
        let _ = send(path, line.bytes());
    }

    fn path(&self) -> Option<&Path> {
        match &self.to {
            Syslog::Off => None,
            Syslog::On => Some(Path::new(SOCKET)),
            Syslog::At(path) => Some(path),
        }
    }

    /// Sends a line, unless there was one about this kind of event within the last hour.
    pub(crate) fn warn(&self, event: Event) {
        let Some(path) = self.path() else { return };
        let (last, now) = (&LAST[event.kind()], seconds());
        if !is_due(last, self.pid, now) {
            return;
        }
        let mut line = Line::default();
        // A line that is cut off is still a line.
        let _ = write!(
            line,
            "<{}>lockstep[{}]: {event}",
            event.priority(),
            self.pid
        );
        if send(path, line.bytes()).is_err() {
            again_in_a_minute(last, self.pid, now);
        }
    }
}

/// Sends a line about the settings that have no effect.
pub fn warn_of_mistakes(to: &Syslog, mistakes: &str) {
    Log::new(to.clone()).say_mistakes(mistakes);
}

/// Sends a line that the module offers nothing in this process, because other processes may share
/// its objects of OpenSSL.
pub fn warn_of_shared_memory(to: &Syslog) {
    Log::new(to.clone()).warn(Event::SharedMemory);
}

/// Returns whether a line is due and this thread sends it.
fn is_due(last: &AtomicU64, pid: u32, now: u32) -> bool {
    let seen = last.load(Ordering::Relaxed);
    let (by, at) = ((seen >> 32) as u32, seen as u32);
    // A child sends its own line, even if its parent has sent one.
    let due = by != pid || now.wrapping_sub(at) >= HOUR;
    due && last
        .compare_exchange(seen, taken(pid, now), Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

fn again_in_a_minute(last: &AtomicU64, pid: u32, now: u32) {
    let earlier = now.wrapping_sub(HOUR - MINUTE);
    last.store(taken(pid, earlier), Ordering::Relaxed);
}

fn taken(pid: u32, second: u32) -> u64 {
    u64::from(pid) << 32 | u64::from(second)
}

/// Returns the seconds since the machine started, without a system call.
fn seconds() -> u32 {
    clock_gettime(ClockId::Monotonic).tv_sec as u32
}

fn send(path: &Path, line: &[u8]) -> rustix::io::Result<()> {
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    sendto(&socket, line, SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

/// Text on the stack, cut off where it is full.
struct Line {
    text: [u8; 1000],
    length: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            text: [0; 1000],
            length: 0,
        }
    }
}

impl Line {
    fn bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = &mut self.text[self.length..];
        let length = rest.len().min(text.len());
        rest[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        match length == text.len() {
            true => Ok(()),
            false => Err(fmt::Error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn one_thread_of_many_sends_the_line_of_an_hour() {
        let last = AtomicU64::new(0);
        let due = |now: u32| -> usize {
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| (0..10_000).filter(|_| is_due(&last, 7, now)).count()))
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            })
        };
        assert_eq!(due(5), 1);
        assert_eq!(due(5 + HOUR - 1), 0);
        assert_eq!(due(5 + HOUR), 1);
        assert_eq!(due(6 + HOUR), 0);
    }

    #[test]
    fn a_child_has_an_hour_of_its_own_and_a_failure_takes_a_minute() {
        let last = AtomicU64::new(0);
        assert!(is_due(&last, 7, 100) && !is_due(&last, 7, 100));
        assert!(is_due(&last, 8, 100) && !is_due(&last, 8, 100));
        again_in_a_minute(&last, 8, 100);
        assert!(!is_due(&last, 8, 100 + MINUTE - 1));
        assert!(is_due(&last, 8, 100 + MINUTE));
        assert!(!is_due(&last, 8, 100 + HOUR));
        // The clock of a machine that has run for long wraps around.
        assert!(is_due(&last, 9, u32::MAX) && !is_due(&last, 9, 1));
        assert!(is_due(&last, 9, HOUR));
    }

    #[test]
    fn every_line_is_whole() {
        let most = u64::MAX;
        for event in [
            Event::FailedCheck { so_far: most },
            Event::Paused { now: most, most },
            Event::Lost { so_far: most, most },
            Event::SharedMemory,
        ] {
            let mut line = Line::default();
            write!(line, "<26>lockstep[{}]: {event}", u32::MAX).unwrap();
            assert!(line.bytes().ends_with(b"once an hour at most"));
        }
    }

    #[test]
    fn a_line_about_many_mistakes_is_cut_off() {
        let place = lockstep_testkit::TempDir::new("mistakes");
        let path = place.join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        Log::new(Syslog::At(path)).say_mistakes(&"slots is wrong; ".repeat(100));
        Log::new(Syslog::Off).say_mistakes("nobody hears this");
        let mut buffer = [0; 2000];
        let length = socket.recv(&mut buffer).unwrap();
        let line = std::str::from_utf8(&buffer[..length]).unwrap();
        let expected = format!("<28>lockstep[{}]: settings with mistakes", process::id());
        assert!(line.starts_with(&expected) && length == 1000, "{line}");
        assert!(
            line.contains("checks them. slots is wrong; slots"),
            "{line}"
        );
    }

    /// No other test in this process sends lines about these three kinds of events.
    #[test]
    fn a_line_reaches_the_socket_and_a_missing_one_is_passed_over() {
        let place = lockstep_testkit::TempDir::new("log");
        let path = place.join("socket");
        let log = |path: &Path| Log::new(Syslog::At(path.to_owned()));
        let event = Event::Lost {
            so_far: 9,
            most: 10,
        };
        // Nothing listens there, and the line is tried again later.
        log(&path.join("none")).warn(event);
        assert!(!is_due(&LAST[event.kind()], std::process::id(), seconds()));

        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let event = Event::Paused { now: 9, most: 10 };
        for _ in 0..100 {
            log(&path).warn(event);
        }
        let mut buffer = [0; 2000];
        let length = socket.recv(&mut buffer).unwrap();
        let line = std::str::from_utf8(&buffer[..length]).unwrap();
        let expected = format!("<28>lockstep[{}]: 9 async jobs ", std::process::id());
        assert!(line.starts_with(&expected), "{line}");
        assert!(socket.recv(&mut buffer).is_err(), "a second line");

        // A log that does not read is full: no thread waits for it.
        let stuck = UnixDatagram::unbound().unwrap();
        stuck.set_nonblocking(true).unwrap();
        while stuck.send_to(b"full", &path).is_ok() {}
        log(&path).warn(Event::FailedCheck { so_far: 1 });
    }
}
