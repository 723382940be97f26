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

/// Maximum time from the greeting to the end of the daemon's answer.
pub const CONNECT: Duration = Duration::from_secs(3);
/// Maximum time of a request.
pub const ANSWER: Duration = Duration::from_secs(10);

/// Number of looks without progress after which the daemon counts as hung. The looks take three
/// seconds, or longer if this process is suspended as well. On a machine with many more threads
/// than CPUs, a working daemon stands still for a fraction of that time.
const MOST_STILL: u32 = 750;
/// Number of such looks if the kernel reports that the daemon's process is stopped.
const STOPPED_STILL: u32 = 20;

/// A connection, for all threads of one process.
#[derive(Debug)]
pub struct Connection {
    /// Open while the client lives: each side notices the other's end by it.
    socket: Socket,
    client: Client,
    /// Number of the daemon's process, if it has one in this PID namespace.
    daemon: Option<i32>,
    keys: Vec<Offered>,
    /// Indices of the keys, sorted by their public halves.
    by_public: Vec<usize>,
    watch: Arc<Watch>,
    since: Instant,
}

/// A request in the ring for which no thread waits yet.
#[derive(Debug)]
pub struct Begun {
    ticket: Sent,
    wait: Wait,
}

/// A connection that the daemon has not answered yet.
#[derive(Debug)]
pub struct Opening {
    socket: Socket,
    /// The version of its greeting.
    version: u32,
    since: Instant,
    /// The process that has connected. A forked child has a copy of the socket.
    process: u32,
}

impl Opening {
    /// Connects and greets. It waits at most `patience` for a daemon with many pending clients. The
    /// mark notes the socket as soon as it is open.
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
        // If this fails, only [`MOST_STILL`] finds a stopped daemon.
        let _ = tells_senders(&stream);
        // With `write`, SIGPIPE would kill the program if the daemon has closed the socket.
        let greeting = protocol::greeting(version);
        // If this fails, a full daemon may already have sent its verdict.
        let _ = send(&stream, &greeting, SendFlags::NOSIGNAL);
        Ok(Opening {
            socket: Socket::new(stream).map_err(|_| Failure::Failed)?,
            version,
            since: Instant::now(),
            process: std::process::id(),
        })
    }

    /// Returns whether this process has connected, and not its parent.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Waits until the daemon has answered or hung up; returns whether it has. The wait ends at the
    /// deadline, and at most [`CONNECT`] after the greeting. If the daemon has not read the
    /// greeting, the wait also ends after `patience`.
    pub fn is_answered(&self, patience: Duration, deadline: Instant) -> Result<bool, Failure> {
        let deadline = deadline.min(self.since + CONNECT);
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

    /// Reads the daemon's answer before the deadline. If the daemon is of the previous release and
    /// speaks its own version only, this connects to the same socket again and greets in that
    /// version.
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
            Verdict::Accepted => {}
            Verdict::OtherVersion if (EARLIER..self.version).contains(&version) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // The mark has the last socket only, which a forked child closes.
                drop(self);
                let again = Opening::start_in(version, socket, left, mark)?;
                return again.finish(deadline, socket, mark);
            }
            _ => return Err(Failure::Rejected(verdict)),
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
        Connection::open_until(socket, Instant::now() + CONNECT, &Mark::new())
    }

    /// Connects before a deadline. The mark notes the socket as soon as it is open.
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

    /// Returns the time at which the connection was opened.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Marks the connection as unusable, since the daemon does not answer.
    pub fn give_up(&self) {
        self.client.poison();
    }

    /// Returns the keys that this process may use.
    pub fn keys(&self) -> &[Offered] {
        &self.keys
    }

    /// Returns the key with this public half. The name chooses among several.
    pub fn key(&self, name: &str, public: &[u8]) -> Result<&Offered, Failure> {
        let first = self.key_of(public);
        let named = self.all_of(public).find(|key| key.name == name);
        let is_known = || self.keys.iter().any(|key| key.name == name);
        named.or(first).ok_or_else(|| match is_known() {
            true => Failure::OtherKey,
            false => Failure::NoKey,
        })
    }

    /// Returns a key with this public half and any name.
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

    /// Returns whether the daemon is gone, or this is a child of the process that has connected.
    pub fn is_gone(&self) -> bool {
        self.client.is_gone()
    }

    /// Requests an operation whose result has `length` bytes, and waits for it.
    ///
    /// After [`Failure::Lost`] and [`Failure::Gone`] the caller may repeat the request, over a new
    /// connection if this one [is gone](Connection::is_gone).
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

    /// Puts a request into the ring; a thread [waits](Connection::finish) for the answer later.
    /// Returns `None` if that is not possible now.
    pub fn begin(&self, operation: Operation, key: &Offered, input: &[u8]) -> Option<Begun> {
        let wait = Wait::since(self.room().answers());
        let ticket = self.submit_now(&call(operation, key, input)).ok()?;
        Some(Begun { ticket, wait })
    }

    /// Requests as [`ask`](Connection::ask) does, with a deadline, or continues a request that has
    /// begun.
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
                // The answer may already be there.
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

    /// Requests as [`ask`](Connection::ask) does, with a deadline, and without another attempt
    /// after [`Failure::Busy`] or [`Failure::Full`].
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

    /// Returns whether a thread watches for the answers to [posted](Connection::post) requests. If
    /// there is none, calls `start`, which runs its argument on a new thread, and returns whether
    /// the thread could start.
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

    /// Requests an operation whose result has `length` bytes, without waiting. The watching thread
    /// gives the result to `asker` by the deadline, unless this returns a failure.
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

    /// Puts a request into the ring, unless there is no room or other threads wait for it.
    fn submit_now(&self, call: &Call<'_>) -> Result<Sent, Refused> {
        match self.room().is_awaited() {
            true => Err(Refused::Full),
            false => self.client.submit(call),
        }
    }

    /// Puts a request into the ring, once there is room and no thread has waited longer.
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
        // The daemon may still serve the requests in the slots. If no thread has taken an answer
        // for long, their threads have left by `siglongjmp` without freeing their slots. The next
        // request gets a new ring.
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

    /// Checks that the daemon is there and works, and that there is time left. Gives up a daemon
    /// that does not work, since other threads would wait in vain, too.
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

    /// Returns whether the daemon has closed its end of the connection.
    pub fn has_hung_up(&self) -> bool {
        self.socket.has_hung_up()
    }
}

/// Number of looks in which the daemon has shown no progress.
struct Still {
    beat: Option<u32>,
    looks: u32,
}

impl Still {
    fn since(beat: Option<u32>) -> Still {
        Still { beat, looks: 0 }
    }

    /// Counts one more look; returns whether the daemon counts as hung. An older daemon, which has
    /// no beat, never does.
    fn is_for_long(&mut self, beat: Option<u32>, is_stopped: impl FnOnce() -> bool) -> bool {
        if beat.is_none() || beat != self.beat {
            *self = Still::since(beat);
        } else {
            self.looks += 1;
        }
        self.looks >= MOST_STILL || self.looks == STOPPED_STILL && is_stopped()
    }
}

/// Returns whether the kernel reports a process as stopped, by a signal or a debugger.
fn is_stopped(process: i32) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let Ok(file) = open(format!("/proc/{process}/stat"), flags, Mode::empty()) else {
        return false;
    };
    // proc_pid_stat(5): the name of the program is in parentheses and may contain any character. No
    // later field contains a parenthesis.
    let mut stat = [0; 1024];
    let length = retry_on_intr(|| read(&file, &mut stat)).unwrap_or(0);
    let end = stat[..length].iter().rposition(|&byte| byte == b')');
    let state = end.and_then(|end| stat.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}

/// Returns a request without a notification.
fn call<'a>(operation: Operation, key: &Offered, input: &'a [u8]) -> Call<'a> {
    Call {
        operation: operation as u16,
        key: key.handle,
        input,
        notify: false,
    }
}

/// Returns a connected socket whose calls time out after `patience`. This includes `connect`, which
/// waits for a daemon with many pending clients.
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

/// Has the next read end at the deadline. After the deadline, a read still takes available bytes,
/// since the process may have been stopped meanwhile.
fn wait_until(stream: &UnixStream, deadline: Instant) -> Result<(), Failure> {
    let left = deadline.saturating_duration_since(Instant::now());
    let set = match left.is_zero() {
        true => stream.set_nonblocking(true),
        false => set_socket_timeout(stream, Timeout::Recv, Some(left)).map_err(io::Error::from),
    };
    set.map_err(|_| Failure::Lost)
}

/// Fills `bytes` by several reads before the deadline.
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

/// Returns the failure for a read without a result.
fn in_time(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::TimedOut,
        _ if has_no_descriptor(&error) => Failure::NoDescriptor,
        _ => Failure::Lost,
    }
}

/// Returns whether the process or the machine has reached its limit of descriptors.
fn has_no_descriptor(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|own| Some(own.raw_os_error()) == number)
}

#[cfg(test)]
mod tests;
