//! A connection to the daemon: the socket, the ring, and the keys that this process may use.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lockstep_ring::{
    AttachError, Call, Client, Patience, Received, Refused, Reply, Sent, receive, tells_senders,
    unread,
};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};
use zeroize::Zeroizing;

use crate::failure::{Failure, Wait, outcome, over};
use crate::protocol::{self, EARLIER, Offered, Operation, VERDICT, VERSION, Verdict};
use crate::room::{LOOK_EVERY, Room};
use crate::socket::{Mark, Socket, has_input};
use crate::watch::{self, Asker, LONGEST_PAUSE, SHORTEST_PAUSE, Watch};

/// How long the daemon may take to welcome a client.
pub const WELCOME: Duration = Duration::from_secs(3);
/// How long a request may take in all.
pub const ANSWER: Duration = Duration::from_secs(10);

/// So many looks without a sign of the daemon's work mean that it does not compute. They take three
/// seconds, and longer where this process does not run either. On a machine with many more threads
/// than CPUs a daemon that is at work stands still for a fraction of that.
const MOST_STILL: u32 = 750;
/// So many are enough if the kernel says that the daemon's process is stopped.
const STOPPED_STILL: u32 = 20;

/// A connection, for all threads of one process.
#[derive(Debug)]
pub struct Connection {
    /// Stays open for as long as the client lives: by its end each side learns of the other's.
    socket: Socket,
    client: Client,
    /// The daemon's number, where it is one here.
    daemon: Option<i32>,
    keys: Vec<Offered>,
    /// The places of the keys, by their public halves.
    by_public: Vec<usize>,
    watch: Arc<Watch>,
    since: Instant,
}

/// A request in the ring that nobody waits for yet.
#[derive(Debug)]
pub struct Begun {
    ticket: Sent,
    wait: Wait,
}

/// A connection that the daemon has not welcomed yet.
#[derive(Debug)]
pub struct Opening {
    socket: Socket,
    /// The version in which it has greeted.
    version: u32,
    since: Instant,
    /// The process that has connected: a forked child has only its copy of the socket.
    process: u32,
}

impl Opening {
    /// Connects and greets. It waits for so long at most, where the daemon has many newcomers. The
    /// socket is noted from its first moment on.
    pub fn start(socket: &Path, patience: Duration, mark: &Mark) -> Result<Opening, Failure> {
        Opening::start_in(VERSION, socket, patience, mark)
    }

    fn start_in(
        version: u32,
        socket: &Path,
        patience: Duration,
        mark: &Mark,
    ) -> Result<Opening, Failure> {
        let stream = reach(socket, patience, mark).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Failure::TimedOut,
            _ if has_no_descriptor(&error) => Failure::NoDescriptor,
            _ => Failure::Unreachable(socket.to_owned(), error.to_string()),
        })?;
        // Where that fails, the daemon is waited for as one without a number.
        let _ = tells_senders(&stream);
        // By `write`, the end of the daemon could end the program by a signal.
        let greeting = protocol::greeting(version);
        // Where that fails, there may be a verdict already: the daemon is full.
        let _ = send(&stream, &greeting, SendFlags::NOSIGNAL);
        Ok(Opening {
            socket: Socket::new(stream).map_err(|_| Failure::Failed)?,
            version,
            since: Instant::now(),
            process: std::process::id(),
        })
    }

    /// Whether this process has connected, and not its parent.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether the daemon has answered or hung up. A daemon that has taken the greeting is at work,
    /// and is waited for until the deadline, but no longer than a welcome may take; one that has
    /// not is waited for as long as `patience`.
    pub fn is_answered(&self, patience: Duration, deadline: Instant) -> Result<bool, Failure> {
        let deadline = deadline.min(self.since + WELCOME);
        let start = Instant::now();
        loop {
            let stream = self.socket.stream().ok_or(Failure::Lost)?;
            let now = Instant::now();
            let is_over = now >= deadline || now - start >= patience && unread(stream) != Some(0);
            let time = match is_over {
                true => Duration::ZERO,
                false => LOOK_EVERY,
            };
            if has_input(stream, time) {
                return Ok(true);
            }
            if is_over {
                return Ok(false);
            }
        }
    }

    /// Takes the welcome, by then. Where the daemon is of the release before, and knows its own
    /// version only, it connects anew to the same socket, and greets in that one.
    pub fn finish(
        self,
        deadline: Instant,
        socket: &Path,
        mark: &Mark,
    ) -> Result<Connection, Failure> {
        let stream = self.socket.stream().ok_or(Failure::Lost)?;
        let mut verdict = [0; VERDICT];
        let Received {
            length: count,
            descriptor: ring,
            process: daemon,
        } = loop {
            wait_until(stream, deadline)?;
            match receive(stream, &mut verdict) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received.map_err(in_time)?,
            }
        };
        fill(stream, &mut verdict[count..], deadline)?;
        let (verdict, version, length) =
            protocol::read_verdict(&verdict).map_err(|_| Failure::Protocol)?;
        match verdict {
            Verdict::Welcome => {}
            Verdict::OtherVersion if (EARLIER..self.version).contains(&version) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // A forked child knows the last socket only.
                drop(self);
                let again = Opening::start_in(version, socket, left, mark)?;
                return again.finish(deadline, socket, mark);
            }
            _ => return Err(Failure::Unwelcome(verdict)),
        }
        let client =
            Client::attach(ring.ok_or(Failure::Protocol)?).map_err(|error| match error {
                AttachError::System(_) => Failure::Failed,
                _ => Failure::Protocol,
            })?;
        let mut list = vec![0; length];
        fill(stream, &mut list, deadline)?;
        let keys = protocol::read_list(&list).map_err(|_| Failure::Protocol)?;
        Ok(Connection::with(self.socket, client, daemon, keys))
    }
}

impl Connection {
    /// Connects to the daemon that listens at `socket`.
    pub fn open(socket: &Path) -> Result<Connection, Failure> {
        Connection::open_until(socket, Instant::now() + WELCOME, &Mark::new())
    }

    /// The same, waiting no longer than until then. The socket is noted from its first moment on.
    pub fn open_until(
        socket: &Path,
        deadline: Instant,
        mark: &Mark,
    ) -> Result<Connection, Failure> {
        let patience = deadline.saturating_duration_since(Instant::now());
        if patience.is_zero() {
            return Err(Failure::TimedOut);
        }
        Opening::start(socket, patience, mark)?.finish(deadline, socket, mark)
    }

    fn with(socket: Socket, client: Client, daemon: Option<i32>, keys: Vec<Offered>) -> Connection {
        let mut by_public: Vec<usize> = (0..keys.len()).collect();
        by_public.sort_by_key(|&place| &keys[place].public);
        Connection {
            socket,
            client,
            daemon,
            keys,
            by_public,
            watch: Arc::default(),
            since: Instant::now(),
        }
    }

    /// Since when it has been there.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Marks the connection as unusable: the daemon does not answer.
    pub fn give_up(&self) {
        self.client.poison();
    }

    /// The keys that this process may use.
    pub fn keys(&self) -> &[Offered] {
        &self.keys
    }

    /// The key with this public half. Its name decides only among several.
    pub fn key(&self, name: &str, public: &[u8]) -> Result<&Offered, Failure> {
        let first = self.key_of(public);
        let named = self.all_of(public).find(|key| key.name == name);
        let is_known = || self.keys.iter().any(|key| key.name == name);
        named.or(first).ok_or_else(|| match is_known() {
            true => Failure::OtherKey,
            false => Failure::NoKey,
        })
    }

    /// A key with this public half, whatever its name.
    pub fn key_of(&self, public: &[u8]) -> Option<&Offered> {
        self.all_of(public).next()
    }

    fn all_of(&self, public: &[u8]) -> impl Iterator<Item = &Offered> {
        let of = |place: usize| self.keys[place].public.as_slice();
        let start = self.by_public.partition_point(|&place| of(place) < public);
        let end = self.by_public.partition_point(|&place| of(place) <= public);
        self.by_public[start..end]
            .iter()
            .map(|&place| &self.keys[place])
    }

    /// Whether the daemon is gone, or this is a child of the process that has connected.
    pub fn is_gone(&self) -> bool {
        self.client.is_gone()
    }

    /// Asks for an operation whose result has `length` bytes, and waits for it.
    ///
    /// After [`Failure::Lost`] and [`Failure::Gone`] it may be asked again, over a new connection
    /// if this one [is gone](Connection::is_gone).
    pub fn ask(
        &self,
        operation: Operation,
        key: &Offered,
        input: &[u8],
        length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let deadline = Instant::now() + ANSWER;
        self.finish(None, operation, key, input, length, deadline)
    }

    /// Puts a request into the ring, for a thread that [waits](Connection::finish) for the answer
    /// later. None if it could not be put there now.
    pub fn begin(&self, operation: Operation, key: &Offered, input: &[u8]) -> Option<Begun> {
        let wait = Wait::since(self.room().answers());
        let ticket = self.submit_now(&call(operation, key, input)).ok()?;
        Some(Begun { ticket, wait })
    }

    /// The same as [`ask`](Connection::ask) until then, for a request that may have begun.
    pub fn finish(
        &self,
        begun: Option<Begun>,
        operation: Operation,
        key: &Offered,
        input: &[u8],
        length: usize,
        deadline: Instant,
    ) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let mut pause = SHORTEST_PAUSE;
        let (mut ticket, mut wait) = match begun {
            Some(Begun { ticket, wait }) => (Some(ticket), wait),
            None => (None, Wait::since(self.room().answers())),
        };
        loop {
            let answer = match ticket.take() {
                // It may be answered long since.
                Some(ticket) => self.answer(ticket, deadline),
                None => {
                    let ticket = self.submit(&call(operation, key, input), deadline)?;
                    self.answer(ticket, deadline)
                }
            };
            let answer = answer.map_err(|failure| match failure {
                Failure::TimedOut => wait.failure(self.room().answers()),
                failure => over(&self.client, failure),
            })?;
            if let Some(result) = outcome(answer, length) {
                return result.map_err(|failure| over(&self.client, failure));
            }
            if Instant::now() >= deadline {
                return Err(Failure::Busy);
            }
            wait.is_refused = true;
            std::thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// The same as [`ask`](Connection::ask) within a time, and without a second attempt where the
    /// daemon is [`Failure::Busy`] or the ring [`Failure::Full`].
    pub fn ask_once(
        &self,
        operation: Operation,
        key: &Offered,
        input: &[u8],
        length: usize,
        deadline: Instant,
    ) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let ticket = self.submit_now(&call(operation, key, input))?;
        let answer = self.answer(ticket, deadline)?;
        outcome(answer, length).unwrap_or(Err(Failure::Busy))
    }

    /// Whether a thread watches for the answers to what is [posted](Connection::post). `start`
    /// starts a thread that runs what it is given, and says whether it could; it is called if there
    /// is none.
    pub fn is_watched(
        self: &Arc<Self>,
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> bool,
    ) -> bool {
        self.watch.is_watched(|| {
            let (watch, client) = (Arc::clone(&self.watch), self.client.clone());
            let connection = Arc::downgrade(self);
            let is_there = move || Weak::upgrade(&connection).is_some_and(|own| !own.has_hung_up());
            start(Box::new(move || watch.run(&client, is_there)))
        })
    }

    /// Asks for an operation whose result has `length` bytes, and waits for nothing: the thread
    /// that watches gives the result to `asker` by the deadline, unless there is a failure here
    /// already.
    pub fn post(
        &self,
        operation: Operation,
        key: &Offered,
        input: &[u8],
        length: usize,
        asker: Box<dyn Asker>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let request = watch::Request {
            operation,
            key: key.handle,
            input: Zeroizing::new(input.to_vec()),
            length,
            asker,
            deadline,
            pause: SHORTEST_PAUSE,
            wait: Wait::since(self.room().answers()),
        };
        self.watch.post(&self.client, request)
    }

    fn room(&self) -> &Room {
        &self.watch.room
    }

    /// Puts a request into the ring, unless there is no room or others wait for it.
    fn submit_now(&self, call: &Call<'_>) -> Result<Sent, Refused> {
        match self.room().is_awaited() {
            true => Err(Refused::Full),
            false => self.client.submit(call),
        }
    }

    /// Puts a request into the ring, as soon as there is room and nobody has waited longer.
    fn submit(&self, call: &Call<'_>, deadline: Instant) -> Result<Sent, Failure> {
        match self.submit_now(call) {
            Err(Refused::Full) => {}
            submitted => return Ok(submitted?),
        }
        // In a forked child, the queue may be locked for ever.
        if self.is_gone() {
            return Err(Failure::Gone);
        }
        let (start, before) = (Instant::now(), self.room().answers());
        let place = self.room().join(deadline);
        while place.is_called() {
            match self.client.submit(call) {
                Err(Refused::Full) => {}
                submitted => return Ok(submitted?),
            }
            if self.has_hung_up() {
                self.client.poison();
                return Err(Failure::Gone);
            }
        }
        // The daemon may serve those that have the places. Where nobody takes an answer for long,
        // their threads have left without a word, by `siglongjmp`. The next request has a new ring.
        if self.room().answers() == before && start.elapsed() >= ANSWER / 2 {
            self.client.poison();
        }
        Err(Failure::Full)
    }

    /// Sleeps until the answer comes.
    fn answer(&self, mut ticket: Sent, deadline: Instant) -> Result<Reply, Failure> {
        let mut still = Still::since(self.client.beat());
        loop {
            match ticket.wait(Patience::new(Duration::ZERO, LOOK_EVERY))? {
                Some(answer) => {
                    self.room().note_answer();
                    return Ok(answer);
                }
                None => self.look_after(&mut still, deadline)?,
            }
        }
    }

    /// Whether the daemon is still there and works, and there is time left. A daemon that does not
    /// work is given up: others would wait in vain, too.
    fn look_after(&self, still: &mut Still, deadline: Instant) -> Result<(), Failure> {
        if self.has_hung_up() {
            self.client.poison();
            return Err(Failure::Lost);
        }
        let is_stopped = || self.daemon.is_some_and(is_stopped);
        if still.is_for_long(self.client.beat(), is_stopped) {
            self.client.poison();
            return Err(Failure::Silent);
        }
        match Instant::now() < deadline {
            true => Ok(()),
            false => Err(Failure::TimedOut),
        }
    }

    /// Whether the daemon's end of the connection is closed.
    pub fn has_hung_up(&self) -> bool {
        self.socket.has_hung_up()
    }
}

/// For how many looks the daemon has shown no sign of its work.
struct Still {
    beat: Option<u32>,
    looks: u32,
}

impl Still {
    fn since(beat: Option<u32>) -> Still {
        Still { beat, looks: 0 }
    }

    /// Whether that is too long, with what a further look finds. A daemon that shows no signs at
    /// all is waited for by time alone.
    fn is_for_long(&mut self, beat: Option<u32>, is_stopped: impl FnOnce() -> bool) -> bool {
        if beat.is_none() || beat != self.beat {
            *self = Still::since(beat);
        } else {
            self.looks += 1;
        }
        self.looks >= MOST_STILL || self.looks == STOPPED_STILL && is_stopped()
    }
}

/// Whether the kernel says that a process is stopped, by a signal or a debugger.
fn is_stopped(process: i32) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = open(format!("/proc/{process}/stat"), flags, Mode::empty()) else {
        return false;
    };
    // proc_pid_stat(5): the name of the program, which may hold anything, is in parentheses. No
    // later field holds one.
    let mut stat = [0; 1024];
    let length = retry_on_intr(|| read(&file, &mut stat)).unwrap_or(0);
    let end = stat[..length].iter().rposition(|&byte| byte == b')');
    let state = end.and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}

/// A request that nobody watches for.
fn call<'a>(operation: Operation, key: &Offered, input: &'a [u8]) -> Call<'a> {
    Call {
        operation: operation as u16,
        key: key.handle,
        input,
        notify: false,
    }
}

/// A connected socket, whose calls end after this time. `connect` waits, too, while the daemon has
/// many newcomers.
fn reach(path: &Path, patience: Duration, mark: &Mark) -> io::Result<UnixStream> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let stream = UnixStream::from(socket_with(family, kind, SocketFlags::CLOEXEC, None)?);
    mark.set(&stream)?;
    let waits = !patience.is_zero();
    stream.set_nonblocking(!waits)?;
    if waits {
        set_socket_timeout(&stream, Timeout::Recv, Some(patience))?;
        set_socket_timeout(&stream, Timeout::Send, Some(patience))?;
    }
    let address = SocketAddrUnix::new(path)?;
    retry_on_intr(|| connect(&stream, &address))?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Has the next read end by then. After that it takes only what is there already: the process may
/// have stood still meanwhile.
fn wait_until(stream: &UnixStream, deadline: Instant) -> Result<(), Failure> {
    let left = deadline.saturating_duration_since(Instant::now());
    let set = match left.is_zero() {
        true => stream.set_nonblocking(true),
        false => set_socket_timeout(stream, Timeout::Recv, Some(left)).map_err(io::Error::from),
    };
    set.map_err(|_| Failure::Lost)
}

/// Reads as many bytes as there is room for, one read after another, until then.
fn fill(mut stream: &UnixStream, bytes: &mut [u8], deadline: Instant) -> Result<(), Failure> {
    let mut count = 0;
    while count < bytes.len() {
        wait_until(stream, deadline)?;
        match stream.read(&mut bytes[count..]) {
            Ok(0) => return Err(Failure::Lost),
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(in_time(error)),
        }
    }
    Ok(())
}

/// Why nothing was read.
fn in_time(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::TimedOut,
        _ if has_no_descriptor(&error) => Failure::NoDescriptor,
        _ => Failure::Lost,
    }
}

/// Whether the process, or the machine, has as many descriptors as it may.
fn has_no_descriptor(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|own| Some(own.raw_os_error()) == number)
}

#[cfg(test)]
mod tests;
