//! Limits on the descriptors that the module adds to a server's.
//!
//! A connection that has paused keeps its eventfd until it ends: HAProxy knows the number, and
//! looks at it again at the connection's end only. Servers do not expect that, so two things must
//! not happen. The module must not take descriptors that the server needs for connections. And
//! HAProxy must not see a number beyond its table of descriptors, which has as many places as
//! HAProxy expects to need: HAProxy aborts at such a number. See `docs/decisions/jobs.md`.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};

use rustix::event::EventfdFlags;

use crate::ffi::Text;
use crate::host::c_library::{Scope, dlsym, soft_limit};

/// Returns a new eventfd, or None if the module must do without.
pub fn eventfd() -> Option<OwnedFd> {
    let fresh = open().filter(|fd| is_low(fd.as_raw_fd()));
    match has_table() {
        true => {
            TABLE.safe.fetch_max(places() - 1, Ordering::Relaxed);
            TABLE.take(fresh, is_socket)
        }
        false => fresh,
    }
}

/// Returns a lower bound of the number of places in HAProxy's table of descriptors, about half of
/// that number; zero if nothing is known.
///
/// HAProxy allocates the array `polled_mask` beside that table, with as many places of two words
/// (versions 2.6 to 3.5-dev). The bound would be too high only for a version in which a place of
/// `polled_mask` has more than four words.
fn places() -> c_int {
    const PLACE: usize = 32;
    const UNKNOWN: c_int = -1;
    static KNOWN: AtomicI32 = AtomicI32::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let variable: *const *mut c_void =
                dlsym(Scope::DEFAULT, Text::new(c"polled_mask")).cast();
            // SAFETY: HAProxy's variable of this name is a pointer, which it sets once, before it
            // starts its threads.
            let array = unsafe { variable.as_ref() }.copied().unwrap_or(null_mut());
            // SAFETY: NULL, or HAProxy's array, which it got from `calloc`.
            let bytes = unsafe { libc::malloc_usable_size(array) };
            // The table has no more places than HAProxy may have descriptors. A larger size means
            // that the C library does not know HAProxy's allocator.
            let most = soft_limit(libc::RLIMIT_NOFILE).unwrap_or(0);
            let places = match c_int::try_from(bytes / PLACE) {
                Ok(places) if places as u64 <= most => places,
                _ => 0,
            };
            KNOWN.store(places, Ordering::Relaxed);
            places
        }
        known => known,
    }
}

/// Returns a new eventfd, without a limit on its number.
pub fn open() -> Option<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok()
}

/// Returns whether a number is in the lower half of the numbers that the process may have. The
/// kernel gives the lowest free number, so it shows how full the table is.
fn is_low(fd: c_int) -> bool {
    static HALF: AtomicU64 = AtomicU64::new(0);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let number = u64::from(fd.unsigned_abs());
    // The limit may change, so it is read again at every 16th call, and whenever the number is
    // high.
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    if number < HALF.load(Ordering::Relaxed) && !calls.is_multiple_of(16) {
        return true;
    }
    // If the limit is unknown, every descriptor may be one of the last.
    let half = soft_limit(libc::RLIMIT_NOFILE).unwrap_or(0) / 2;
    HALF.store(half, Ordering::Relaxed);
    number < half
}

/// Returns whether the program is HAProxy, by the symbol of its table.
fn has_table() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let found = !dlsym(Scope::DEFAULT, Text::new(c"fdtab")).is_null();
            KNOWN.store(if found { YES } else { NO }, Ordering::Relaxed);
            found
        }
        known => known == YES,
    }
}

fn is_socket(fd: c_int) -> bool {
    let mut kind: c_int = 0;
    let mut size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: plain system call that writes to `kind`; other descriptors give ENOTSOCK or EBADF.
    unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &mut size,
        ) == 0
    }
}

/// Record of the numbers that HAProxy's table certainly has.
///
/// Numbers in the lower half of the table are [safe](places) from the beginning. HAProxy keeps no
/// socket whose number is beyond the table. So a number in the upper half is safe once a socket
/// above it has been seen at two different times (once is not enough: HAProxy accepts a socket
/// beyond the table and closes it at once).
///
/// While connections only become more, the newest descriptor has the highest number, so it waits in
/// the reserve for a later connection. If many connections come at once, the descriptors of all of
/// them wait there, so that the next socket is beyond them. With a small reserve the next socket
/// takes the place of a socket that was closed, and a server whose connections do not become more
/// is left without descriptors for seconds.
struct Table<Descriptor = OwnedFd> {
    safe: AtomicI32,
    /// Highest socket that was seen last.
    candidate: AtomicI32,
    /// Descriptors that wait. The locks are only tried: in a forked child one may be locked for
    /// ever.
    reserve: [Mutex<Option<Descriptor>>; RESERVE],
}

/// Number of descriptors that may wait. There are no more of them than jobs that did not pause.
const RESERVE: usize = 64;
/// Distance from a new number within which sockets are looked for.
const NEAR: c_int = 8;

static TABLE: Table = Table::new();

impl<Descriptor: AsRawFd> Table<Descriptor> {
    const fn new() -> Self {
        Table {
            safe: AtomicI32::new(-1),
            candidate: AtomicI32::new(-1),
            reserve: [const { Mutex::new(None) }; RESERVE],
        }
    }

    /// Returns a descriptor with a safe number: the fresh one, or one of the reserve in exchange.
    fn take(
        &self,
        fresh: Option<Descriptor>,
        is_socket: impl Fn(c_int) -> bool,
    ) -> Option<Descriptor> {
        let fresh = fresh?;
        let number = fresh.as_raw_fd();
        if number <= self.safe.load(Ordering::Relaxed) {
            return Some(fresh);
        }
        let seen = self.candidate.load(Ordering::Relaxed);
        if is_socket(seen) {
            self.safe.fetch_max(seen, Ordering::Relaxed);
        }
        let near = number - NEAR..=number + NEAR;
        if let Some(highest) = near.rev().find(|&near| is_socket(near)) {
            self.candidate.store(highest, Ordering::Relaxed);
        }
        let safe = self.safe.load(Ordering::Relaxed);
        if number <= safe {
            return Some(fresh);
        }
        let mut places = self.reserve.iter();
        let waited = places.find_map(|place| {
            let mut place = place.try_lock().ok()?;
            place.take_if(|waiting| waiting.as_raw_fd() <= safe)
        });
        let room = self.reserve.iter().find_map(|place| {
            let place = place.try_lock().ok()?;
            place.is_none().then_some(place)
        });
        if let Some(mut room) = room {
            *room = Some(fresh);
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use super::*;

    /// Number in a model of a process, so that other tests of this process take none of them.
    struct Number {
        number: c_int,
        open: Rc<RefCell<BTreeSet<c_int>>>,
    }

    impl Number {
        /// Opens the lowest free number, as the kernel does.
        fn open(open: &Rc<RefCell<BTreeSet<c_int>>>) -> Number {
            let number = (0..).find(|number| open.borrow_mut().insert(*number));
            Number {
                number: number.expect("a free number"),
                open: open.clone(),
            }
        }
    }

    impl AsRawFd for Number {
        fn as_raw_fd(&self) -> c_int {
            self.number
        }
    }

    impl Drop for Number {
        fn drop(&mut self) {
            self.open.borrow_mut().remove(&self.number);
        }
    }

    /// Connections as HAProxy accepts them: a socket gets the lowest free number, then a job asks
    /// for a descriptor.
    #[derive(Default)]
    struct Server {
        table: Table<Number>,
        open: Rc<RefCell<BTreeSet<c_int>>>,
        sockets: Vec<Number>,
        kept: Vec<Number>,
    }

    impl Default for Table<Number> {
        fn default() -> Self {
            Table::new()
        }
    }

    impl Server {
        fn connect(&mut self) -> Option<c_int> {
            self.accept();
            self.job()
        }

        fn accept(&mut self) {
            self.sockets.push(Number::open(&self.open));
        }

        fn job(&mut self) -> Option<c_int> {
            let is_socket = |fd| self.sockets.iter().any(|socket| socket.number == fd);
            let kept = self.table.take(Some(Number::open(&self.open)), is_socket)?;
            let number = kept.number;
            self.kept.push(kept);
            assert!(self.sockets.iter().any(|socket| socket.number > number));
            Some(number)
        }
    }

    #[test]
    fn a_descriptor_is_below_a_socket_of_the_server() {
        let mut server = Server::default();
        // One connection after the other: the first few get none.
        let got = (0..50).filter(|_| server.connect().is_some()).count();
        assert!(got >= 40, "{got}");
        // Many at a time: at most the rest of the reserve, until there are further sockets.
        let got = (0..50).filter(|_| server.job().is_some()).count();
        assert!(got <= RESERVE, "{got}");
        let got = (0..50).filter(|_| server.connect().is_some()).count();
        assert!(got >= 40, "{got}");
    }

    /// Many connections come at once, and only one comes after them.
    #[test]
    fn one_further_socket_is_enough_for_all_that_came_before_it() {
        let mut server = Server::default();
        (0..50).for_each(|_| server.accept());
        let got = (0..50).filter(|_| server.job().is_some()).count();
        assert_eq!(got, 0);
        server.accept();
        let got = (0..50).filter(|_| server.job().is_some()).count();
        assert!(got >= 40, "{got}");
    }

    /// HAProxy accepts a socket beyond its table, and closes it at once.
    #[test]
    fn a_socket_that_is_gone_says_nothing_of_the_table() {
        let (table, open) = (Table::new(), Rc::default());
        let take = |sockets: &[c_int]| {
            let fresh = Number::open(&open);
            let (number, looks) = (fresh.number, RefCell::new(Vec::new()));
            let is_socket = |fd: c_int| {
                looks.borrow_mut().push(fd);
                sockets.contains(&(fd - number))
            };
            let seen = table.candidate.load(Ordering::Relaxed);
            let taken = table.take(Some(fresh), is_socket).is_some();
            // Few looks, each of which is a system call.
            let is_near = |fd: &c_int| *fd == seen || (fd - number).abs() <= NEAR;
            assert!(looks.borrow().iter().all(is_near), "{looks:?}");
            taken
        };
        assert!(!take(&[5]) && !take(&[]) && !take(&[]));
        assert_eq!(table.safe.load(Ordering::Relaxed), -1);
    }

    #[test]
    fn a_descriptor_keeps_no_reader_waiting_and_no_other_program_gets_it() {
        let fresh = open().expect("a descriptor");
        let flags = rustix::fs::fcntl_getfl(&fresh).expect("its flags");
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
        let flags = rustix::io::fcntl_getfd(&fresh).expect("its flags");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn a_program_without_a_table_gets_the_descriptor_that_is_new() {
        for _ in 0..2 {
            let fresh = eventfd().expect("this process has few descriptors");
            assert!(!is_socket(fresh.as_raw_fd()));
        }
    }

    #[test]
    fn a_socket_is_told_from_another_descriptor() {
        let (socket, _) = std::os::unix::net::UnixStream::pair().expect("sockets");
        assert!(is_socket(socket.as_raw_fd()));
        assert!(!is_socket(-1));
    }

    #[test]
    fn half_of_the_descriptors_are_the_servers() {
        let limit = soft_limit(libc::RLIMIT_NOFILE).expect("no filter");
        let half = c_int::try_from(limit / 2).unwrap_or(c_int::MAX);
        assert!(is_low(0) && is_low(half - 1) && !is_low(half));
        assert!(is_low(1) && !is_low(c_int::MAX) || half == c_int::MAX);
    }
}
