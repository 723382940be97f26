//! The way to the key daemon, for [its keys](crate::daemon::key), and for [ordinary
//! keys](crate::keys::shared_key) that the daemon has, too.
//!
//! A process connects when it first asks for something, and anew when the daemon has ended or has
//! given the place of this idle process to another process. So a daemon that is started again is
//! used again, without a restart of the program. A forked child makes a connection of its own.
//!
//! An operation with a reference waits for the daemon, since nobody else has the key. It also waits
//! for another thread that connects, and never beyond its own deadline. A thread waits only where
//! that is likely to help, because a server's thread does nothing else meanwhile. If the daemon
//! shows no sign of life, the process waits once, for [`CONNECT`]. After that its greeting stays
//! in the daemon's socket. Each request looks whether the daemon has answered the greeting, and
//! fails at once if not.
//!
//! A process that has the key itself does not need the daemon. If another thread connects, or if
//! there is no answer within [`LIMIT`], a thread of such a process computes by itself. After a
//! failure one thread at a time finds out whether the daemon is back.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockstep_remote::connection::{ANSWER, CONNECT};
use lockstep_remote::protocol::Verdict;
use lockstep_remote::{Connection, Failure, Mark, Opening, Operation};
use once_cell::race::OnceBox;
use zeroize::Zeroizing;

use crate::daemon::clock;
use crate::daemon::way::Way;
use crate::host::c_library::Uncancelled;

/// Time to wait for the successor of a daemon that has just ended.
const MOMENT: Duration = Duration::from_millis(80);
/// Time for which a daemon that may be back soon is avoided.
const SHORT: Duration = Duration::from_millis(200);
/// Time for which a daemon that needs an administrator is avoided.
const LONG: Duration = Duration::from_secs(30);
/// Maximum time that a thread waits if it can do without the daemon.
const LIMIT: Duration = Duration::from_millis(50);

/// Number of times that a process connects before it gives up.
const ATTEMPTS: usize = 3;

/// A daemon, by its socket.
pub struct Daemon {
    socket: PathBuf,
    /// NULL until the first request, and in a forked child that cannot use its parent's way.
    way: AtomicPtr<Way>,
    /// Not zero after a failure. Until this time, by the system's clock, requests that can do
    /// without the daemon are not sent to it.
    avoided_until: AtomicU64,
    /// Number of times in a row that the daemon did not answer in time.
    timeouts: AtomicU32,
    /// The socket of the connection that was opened last.
    mark: Mark,
    next: OnceBox<Daemon>,
}

/// Result of a request that this process could compute itself.
pub enum Tried {
    Done(Zeroizing<Vec<u8>>),
    /// The daemon was asked, and gave no result.
    Failed,
    /// The daemon does not have the key, or it is avoided for the moment.
    NotAsked,
}

/// Result of one attempt to ask.
enum Attempt {
    Done(Zeroizing<Vec<u8>>),
    NoKey,
    /// Another thread connects.
    Connecting,
}

/// All daemons that this process knows, as a list.
static DAEMONS: OnceBox<Daemon> = OnceBox::new();

fn daemons() -> impl Iterator<Item = &'static Daemon> {
    std::iter::successors(DAEMONS.get(), |daemon| daemon.next.get())
}

impl Daemon {
    /// The daemon that listens at `socket`.
    pub fn at(socket: &Path) -> &'static Daemon {
        let mut place = &DAEMONS;
        loop {
            let daemon = place.get_or_init(|| {
                Box::new(Daemon {
                    socket: socket.to_owned(),
                    way: AtomicPtr::new(null_mut()),
                    avoided_until: AtomicU64::new(0),
                    timeouts: AtomicU32::new(0),
                    mark: Mark::new(),
                    next: OnceBox::new(),
                })
            });
            if daemon.socket == socket {
                return daemon;
            }
            place = &daemon.next;
        }
    }

    /// Asks for a signature by the RSA key with this public half. The input is as long as the
    /// modulus. The call waits no longer than [`LIMIT`].
    pub fn try_sign(&self, public: &[u8], input: &[u8]) -> Tried {
        let mut until = self.avoided_until.load(Ordering::Relaxed);
        if until != 0 {
            // One thread finds out whether the daemon is back, while the others avoid it.
            let is_over = until <= clock::system();
            match is_over.then(|| self.avoid(until, SHORT)).flatten() {
                Some(next) => until = next,
                None => return Tried::NotAsked,
            }
        }
        let tried = match self.try_ask(public, input) {
            Ok(Attempt::Done(done)) => Tried::Done(done),
            Ok(Attempt::NoKey) => Tried::NotAsked,
            Ok(Attempt::Connecting) => return Tried::NotAsked,
            Err(failure) => {
                if let Some(time) = self.avoidance(&failure) {
                    // If several threads fail together, one of them sets the time.
                    let is_silent = matches!(failure, Failure::TimedOut | Failure::Silent);
                    if self.avoid(until, time).is_some() && is_silent {
                        self.timeouts.fetch_add(1, Ordering::Relaxed);
                    }
                    return Tried::Failed;
                }
                Tried::Failed
            }
        };
        // The daemon is no longer avoided, unless another thread has changed the time meanwhile.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let changed = self
            .avoided_until
            .compare_exchange(until, 0, success, failure);
        if until != 0 && changed.is_ok() {
            self.timeouts.store(0, Ordering::Relaxed);
        }
        tried
    }

    /// Returns the time for which the daemon is avoided after a failure; None if the failure
    /// concerns the request alone.
    fn avoidance(&self, failure: &Failure) -> Option<Duration> {
        match failure {
            Failure::Forbidden | Failure::Unfit | Failure::NoKey | Failure::OtherKey => None,
            Failure::Busy | Failure::Full | Failure::Late | Failure::Failed => Some(SHORT),
            // The daemon may be started again soon, or another client may leave.
            Failure::Unreachable(..) | Failure::Lost | Failure::Gone => Some(SHORT),
            Failure::Rejected(Verdict::Full) | Failure::NoDescriptor => Some(SHORT),
            // The machine is busy, or the daemon hangs and each attempt waits in vain.
            Failure::TimedOut | Failure::Silent => {
                let before = self.timeouts.load(Ordering::Relaxed);
                Some(LIMIT * (1 << before.min(8)))
            }
            // An administrator must change something. The daemon has written a line to its log.
            Failure::Rejected(_) | Failure::Protocol => Some(LONG),
        }
    }

    /// Avoids the daemon for a while, after a wrong result.
    pub fn distrust(&self) {
        self.avoid(self.avoided_until.load(Ordering::Relaxed), LONG);
    }

    /// Avoids the daemon for `time`, and returns the end of that time. Changes nothing and returns
    /// None if `avoided_until` is no longer `before`, because another thread has changed it.
    fn avoid(&self, before: u64, time: Duration) -> Option<u64> {
        let until = clock::system().saturating_add(time.as_nanos() as u64);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let changed = self
            .avoided_until
            .compare_exchange(before, until, success, failure);
        changed.is_ok().then_some(until)
    }

    fn try_ask(&self, public: &[u8], input: &[u8]) -> Result<Attempt, Failure> {
        let _uncancelled = Uncancelled::begin();
        let deadline = Instant::now() + LIMIT;
        let way = self.way();
        let connection = match way.present() {
            Some(connection) => connection,
            None => {
                let Some(_turn) = way.turn.take_by(Instant::now(), deadline) else {
                    return Ok(Attempt::Connecting);
                };
                match way.present() {
                    Some(connection) => connection,
                    None => {
                        let opened = Connection::open_until(&self.socket, deadline, &self.mark)?;
                        way.write(|link| link.connect(opened))
                    }
                }
            }
        };
        let Some(key) = connection.key_of(public) else {
            return Ok(Attempt::NoKey);
        };
        let (operation, length) = (Operation::DeferrableRsaPrivate, input.len());
        connection
            .ask_once(operation, key, input, length, deadline)
            .map(Attempt::Done)
    }

    /// Returns the connection of this process, and makes it first, by the deadline, if there is no
    /// usable one.
    pub fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, Failure> {
        // Other threads wait while this one connects, so it must not be cancelled.
        let _uncancelled = Uncancelled::begin();
        let way = self.way();
        if let Some(connection) = way.present() {
            return Ok(connection);
        }
        // After a failure, threads do not wait for the thread that looks whether the daemon is
        // back.
        let failed = way.read(|link| link.failed.clone());
        let until = match failed {
            Some(_) => Instant::now(),
            None => deadline,
        };
        let Some(_turn) = way.turn.take_by(until, deadline) else {
            return Err(failed.map_or(Failure::TimedOut, |failed| failed.why));
        };
        if let Some(connection) = way.present() {
            return Ok(connection);
        }
        let failed = way.read(|link| link.failed.clone());
        if let Some(failed) = failed.filter(|failed| Instant::now() < failed.until) {
            return Err(failed.why);
        }
        let opened = self.open(way, deadline);
        way.write(|link| match opened {
            Ok(connection) => Ok(link.connect(connection)),
            Err(failure) => {
                // A deadline that passed meanwhile is no failure of the daemon.
                if Instant::now() < deadline {
                    link.fail(&failure);
                }
                Err(failure)
            }
        })
    }

    /// Gives up the connection that was opened at `since`, whose list of keys lacks a key: the
    /// daemon may have the key by now. Returns false if lists were renewed too often lately, or if
    /// `is_due` returns false. Requests of other threads over the connection are still answered, or
    /// are asked again.
    pub fn refresh(&self, since: Instant, is_due: impl FnOnce() -> bool) -> bool {
        let _uncancelled = Uncancelled::begin();
        self.way().write(|link| match &link.connection {
            Some(own) if own.since() == since => {
                let may = link.may_refresh(Instant::now(), is_due);
                link.connection.take_if(|_| may).is_some()
            }
            // Another thread has done so.
            _ => true,
        })
    }

    /// Notes that the daemon does not compute, or that a request had no answer in time. Gives up
    /// the connection of that request, since other threads would wait in vain, too; a younger
    /// connection stays.
    pub fn gives_no_answer(&self, why: &Failure) {
        let _uncancelled = Uncancelled::begin();
        self.way().write(|link| {
            let is_of_no_use = |own: &mut Arc<Connection>| {
                own.is_gone() || *why == Failure::TimedOut && own.since().elapsed() >= ANSWER
            };
            if let Some(connection) = link.connection.take_if(is_of_no_use) {
                connection.give_up();
                link.fail(&Failure::Silent);
            }
        });
    }

    /// Connects, or looks whether the daemon has answered an earlier greeting. Tries again if the
    /// daemon ends: it closes the connections of clients that it has not accepted yet, and the next
    /// daemon listens at the same socket.
    fn open(&self, way: &Way, deadline: Instant) -> Result<Connection, Failure> {
        let (mut patience, mut opening) = way.write(|link| {
            let own = link.opening.take().filter(Opening::is_own);
            (link.patience(), own)
        });
        for _ in 0..ATTEMPTS {
            let opened = match opening.take() {
                Some(opening) => Ok(opening),
                None => Opening::start(&self.socket, patience, &self.mark),
            };
            let opened =
                opened.and_then(|opening| match opening.is_answered(patience, deadline)? {
                    true => {
                        let deadline = deadline.min(Instant::now() + CONNECT);
                        opening.finish(deadline, &self.socket, &self.mark)
                    }
                    false => {
                        way.write(|link| link.opening = Some(opening));
                        Err(Failure::Silent)
                    }
                });
            match opened {
                // A daemon was there a moment ago.
                Err(Failure::Lost) => patience = patience.max(MOMENT),
                Err(Failure::TimedOut) => return Err(Failure::Silent),
                opened => return opened,
            }
        }
        Err(Failure::Lost)
    }

    fn way(&self) -> &'static Way {
        let mut way = self.way.load(Ordering::Acquire);
        if way.is_null() {
            let made = Box::into_raw(Box::default());
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .way
                .compare_exchange(null_mut(), made, success, failure)
            {
                Ok(_) => way = made,
                Err(other) => {
                    way = other;
                    // SAFETY: the box was shared with nobody.
                    drop(unsafe { Box::from_raw(made) });
                }
            }
        }
        // SAFETY: made from a box, here or by another thread, and never freed.
        unsafe { &*way }
    }
}

/// Prepares a forked child. A lock that another thread of the parent held at the fork stays locked,
/// so the child never uses the [`Way`] with such a lock again. Any other way is used again:
/// [`Connection::is_gone`] then reports that the connection is the parent's. The child closes its
/// copy of the socket, even if another thread of the parent was still connecting: while a copy is
/// open, the daemon keeps a place for the parent.
///
/// This waits for no lock and neither allocates nor frees memory.
pub fn after_fork() {
    for daemon in daemons() {
        daemon.avoided_until.store(0, Ordering::Relaxed);
        daemon.timeouts.store(0, Ordering::Relaxed);
        if let Some(number) = daemon.mark.take() {
            close(number, &daemon.mark);
        }
        let way = daemon.way.load(Ordering::Acquire);
        // SAFETY: NULL, or made from a box that is never freed.
        if unsafe { way.as_ref() }.is_some_and(|way| !way.forget_others()) {
            daemon.way.store(null_mut(), Ordering::Release);
        }
    }
}

/// Closes the descriptor with this number if it is the socket of the mark.
fn close(number: RawFd, mark: &Mark) {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes to the place, or reports that the number is not in use.
    if unsafe { libc::fstat(number, about.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: `fstat` has succeeded, so the kernel has written all of it.
    let about = unsafe { about.assume_init() };
    if mark.is_of(about.st_dev, about.st_ino) {
        // SAFETY: the socket is this module's: the number was checked just before.
        unsafe { libc::close(number) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    use Failure::{
        Busy, Failed, Forbidden, Full, Gone, Late, Lost, NoDescriptor, NoKey, OtherKey, Protocol,
        Rejected, Silent, TimedOut, Unfit, Unreachable,
    };

    use lockstep_remote::protocol::{self, GREETING, VERSION};
    use lockstep_ring::{Closing, Server};
    use lockstep_testkit::TempDir;

    use super::*;
    use crate::daemon::way::{BETWEEN, LISTS, Link, SHORTEST_PAUSE};

    #[test]
    fn who_waits_for_a_thread_that_connects_waits_no_longer_than_it_may() {
        let place = TempDir::new("daemon");
        let socket = place.join("socket");
        let daemon = Daemon::at(&socket);
        let turn = &daemon.way().turn;
        let start = Instant::now();
        // As a thread that connects.
        let take = || turn.take_by(start, start + CONNECT).map(std::mem::forget);
        thread::scope(|scope| assert!(scope.spawn(take).join().expect("no panic").is_some()));
        let failure = daemon.connection(start + LIMIT).err();
        assert_eq!(failure, Some(TimedOut));
        assert!(start.elapsed() < CONNECT / 2, "{:?}", start.elapsed());
        // A child takes the turn that a thread of its parent had.
        assert!(daemon.way().forget_others());
        assert!(take().is_some());
    }

    /// Accepts a client as a daemon does, with a ring and no keys.
    fn welcome(listener: &UnixListener) -> (UnixStream, Server) {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).expect("a greeting");
        let (server, ring) = Server::create(4).expect("a ring");
        server.beat();
        let verdict = protocol::verdict(VERSION, Verdict::Accepted, 0);
        lockstep_ring::send(&stream, &verdict, ring.as_fd()).expect("a client");
        (stream, server)
    }

    /// As behind a socket of systemd whose service does not start. A worker of nginx serves nobody
    /// while it waits.
    #[test]
    fn a_socket_that_nobody_serves_is_waited_for_once() {
        let place = TempDir::new("unserved");
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let daemon = Daemon::at(&socket);
        let connect = || daemon.connection(Instant::now() + ANSWER);
        let start = Instant::now();
        assert_eq!(connect().err(), Some(Silent));
        let first = start.elapsed();
        assert!(first >= CONNECT && first < ANSWER, "{first:?}");
        let start = Instant::now();
        for _ in 0..1000 {
            assert_eq!(connect().err(), Some(Silent));
        }
        assert!(start.elapsed() < CONNECT, "{:?}", start.elapsed());
        // As soon as there is a daemon, it is used: the greeting is there already.
        let (stream, server) = welcome(&listener);
        assert!(connect().is_ok());
        // The daemon is stopped.
        daemon.way().present().expect("connected").give_up();
        daemon.gives_no_answer(&Silent);
        let start = Instant::now();
        for _ in 0..1000 {
            assert_eq!(connect().err(), Some(Silent));
        }
        assert!(start.elapsed() < CONNECT, "{:?}", start.elapsed());
        // The daemon ends, and the next one ends before it has answered the greeting.
        drop((stream, server));
        drop(listener.accept().expect("a client"));
        assert_eq!(connect().err(), Some(Silent));
        let (_stream, server) = welcome(&listener);
        assert!(connect().is_ok());
        // After a daemon that has served, a thread waits for the next daemon.
        server.close_as(Closing::Followed);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(CONNECT / 2);
                drop(welcome(&listener));
            });
            assert!(connect().is_ok());
        });
    }

    /// Keys that are renewed in quick succession are found at once, however young the list is.
    #[test]
    fn a_list_of_keys_is_asked_for_again_at_once_and_not_for_ever() {
        let mut link = Link::default();
        let start = Instant::now();
        let taken =
            |link: &mut Link, now| (0..1000).filter(|_| link.may_refresh(now, || true)).count();
        let at_once = LISTS as usize;
        assert!(!link.may_refresh(start, || false));
        assert_eq!(taken(&mut link, start), at_once);
        assert_eq!(taken(&mut link, start + BETWEEN * 3), 3);
        // The allowance does not grow beyond its maximum while there are no requests.
        let later = start + BETWEEN * (4 * LISTS);
        assert_eq!(taken(&mut link, later), at_once);
        // `is_due`, which counts a look for a key, is not called if the list may not be asked for.
        let asked = || panic!("in vain");
        assert!(!link.may_refresh(later, asked));

        let place = TempDir::new("lists");
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let daemon = Daemon::at(&socket);
        let connect = || {
            daemon
                .connection(Instant::now() + ANSWER)
                .expect("a daemon")
        };
        // This thread may wait for ever if the test fails.
        let _served = thread::spawn(move || [(); 3].map(|()| welcome(&listener)));
        let first = connect();
        assert!(daemon.refresh(first.since(), || true));
        let second = connect();
        assert!(second.since() > first.since());
        // Another thread that had the first list takes the second one.
        assert!(daemon.refresh(first.since(), || false));
        assert_eq!(connect().since(), second.since());
        assert!(daemon.refresh(second.since(), || true));
        let third = connect();
        // If the list may not be asked for, the connection stays.
        let later = Instant::now() + CONNECT;
        daemon.way().write(|link| taken(link, later));
        assert!(!daemon.refresh(third.since(), || true));
        assert_eq!(connect().since(), third.since());
    }

    /// As behind a unit of systemd whose service fails again and again.
    #[test]
    fn daemons_that_end_before_their_welcome_are_not_waited_for_again() {
        let place = TempDir::new("loop");
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let daemon = Daemon::at(&socket);
        thread::scope(|scope| {
            scope.spawn(|| (0..ATTEMPTS).for_each(|_| drop(listener.accept())));
            assert!(daemon.connection(Instant::now() + ANSWER).is_err());
        });
        assert_eq!(daemon.way().read(Link::patience), Duration::ZERO);
    }

    #[test]
    fn who_sends_a_process_away_is_not_asked_at_once() {
        let place = TempDir::new("away");
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let daemon = Daemon::at(&socket);
        let connect = || daemon.connection(Instant::now() + ANSWER).err();
        let stranger = Some(Rejected(Verdict::Stranger));
        thread::scope(|scope| {
            let asked = scope.spawn(connect);
            let (mut stream, _) = loop {
                if let Ok(accepted) = listener.accept() {
                    break accepted;
                }
                thread::yield_now();
            };
            let verdict = protocol::refusal(Verdict::Stranger);
            stream.write_all(&verdict).expect("a client");
            assert_eq!(asked.join().expect("no panic"), stranger);
        });
        let start = Instant::now();
        assert_eq!(connect(), stranger);
        let is_soon = start.elapsed() < SHORTEST_PAUSE / 2;
        assert!(!is_soon || listener.accept().is_err(), "nobody connects");
    }

    #[test]
    fn a_daemon_is_avoided_for_as_long_as_its_failure_may_last() {
        let daemon = Daemon::at(Path::new("/nowhere"));
        let time = |failure| daemon.avoidance(&failure);
        for its_own in [Forbidden, Unfit, NoKey, OtherKey] {
            assert_eq!(time(its_own.clone()), None, "{its_own:?}");
        }
        let (full, absent) = (
            Rejected(Verdict::Full),
            Unreachable(PathBuf::new(), String::new()),
        );
        for passing in [
            Busy,
            Full,
            Late,
            Failed,
            Lost,
            Gone,
            NoDescriptor,
            full,
            absent,
        ] {
            assert_eq!(time(passing.clone()), Some(SHORT), "{passing:?}");
        }
        for lasting in [Verdict::Stranger, Verdict::OtherVersion, Verdict::Failed] {
            assert_eq!(time(Rejected(lasting)), Some(LONG), "{lasting:?}");
        }
        assert_eq!(time(Protocol), Some(LONG));
        // The time doubles with each missing answer, up to a maximum.
        for (times, doubled) in [(0, 1), (1, 2), (2, 4), (8, 256), (u32::MAX, 256)] {
            daemon.timeouts.store(times, Ordering::Relaxed);
            assert_eq!(time(TimedOut), Some(LIMIT * doubled), "{times}");
        }
    }
}
