//! The thread at the socket: it welcomes clients, and notices when they end.
//!
//! It waits for all sockets at once, and for no single client. A client that does not send its
//! greeting in time, or does not take what it is sent, loses its connection. A process that may
//! use no key is sent away at once, so strangers take no place from others, however many users they
//! are.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{self, GREETING, VERSION, Verdict};
use lockstep_ring::{Credentials, Server, credentials, has_hung_up, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::access::{Account, Peer};
use crate::clients::{Client, Grants, Held};
use crate::configuration::Configuration;
use crate::journal::Journal;
use crate::rate::Rate;
use crate::service::Service;

/// How long a client may take for its greeting, and to take the list of keys.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the thread does nothing where the machine is out of descriptors or memory: it must not
/// burn the CPU.
const A_MOMENT: Duration = Duration::from_millis(10);
/// How many connections are accepted before anything else is looked at: a client that connects all
/// the time must not keep this thread from the others, and from its end.
const AT_ONCE: usize = 32;

/// A connection before it is a client.
struct Newcomer {
    stream: UnixStream,
    peer: Peer,
    account: Account,
    pid: i32,
    stage: Stage,
    /// When the stage began.
    since: Instant,
}

/// How far a newcomer is.
enum Stage {
    /// This much of its greeting has come.
    Greets(Vec<u8>),
    /// It is welcome, and takes what is left to send.
    Reads {
        rest: Vec<u8>,
        grants: Grants,
        ring: Server,
    },
}

/// What the thread needs to know.
pub struct Doorkeeper {
    listeners: Vec<UnixListener>,
    /// Has something to read once the daemon is to end.
    end: UnixStream,
    configuration: Configuration,
    keys: Vec<Arc<Held>>,
    service: Arc<Service>,
    newcomers: Vec<Newcomer>,
    /// How often an account may ask. It outlives connections: to connect anew gains nothing.
    rates: HashMap<Account, Arc<Rate>>,
    journal: Journal,
}

impl Doorkeeper {
    /// The thread for these sockets.
    pub fn new(
        listeners: Vec<UnixListener>,
        end: UnixStream,
        configuration: Configuration,
        keys: Vec<Arc<Held>>,
        service: Arc<Service>,
    ) -> io::Result<Doorkeeper> {
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        Ok(Doorkeeper {
            listeners,
            end,
            configuration,
            keys,
            service,
            newcomers: Vec::new(),
            rates: HashMap::new(),
            journal: Journal::default(),
        })
    }

    /// Works until the daemon is to end, or a socket fails. Who is not welcomed by then loses the
    /// connection, and finds the next daemon at the same socket.
    pub fn run(mut self) -> io::Result<()> {
        while self.wait()? {
            // First, since it makes room for the others.
            self.see_off();
            self.accept()?;
            self.greet();
        }
        Ok(())
    }

    /// Waits until something happens at any socket; false if the daemon is to end.
    fn wait(&self) -> io::Result<bool> {
        let clients = self.service.clients.now();
        let listeners = self
            .listeners
            .iter()
            .map(|own| PollFd::new(own, PollFlags::IN));
        let newcomers = self.newcomers.iter();
        let newcomers = newcomers.map(|own| match own.stage {
            Stage::Greets(_) => PollFd::new(&own.stream, PollFlags::IN),
            Stage::Reads { .. } => PollFd::new(&own.stream, PollFlags::OUT),
        });
        let ends = PollFlags::RDHUP;
        let clients = clients.iter().map(|own| PollFd::new(&own.stream, ends));
        let end = [PollFd::new(&self.end, PollFlags::IN)];
        let all = end.into_iter().chain(listeners);
        let mut all: Vec<_> = all.chain(newcomers).chain(clients).collect();
        // A newcomer that is late must be sent away, and no event tells of that.
        let time = match self.newcomers.is_empty() {
            true => None,
            false => Some(Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            }),
        };
        match poll(&mut all, time.as_ref()).map_err(io::Error::from) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if is_passing(&error) => {
                std::thread::sleep(A_MOMENT);
                Ok(true)
            }
            Err(error) => Err(error),
            Ok(_) => Ok(all[0].revents().is_empty()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        for place in 0..self.listeners.len() {
            for _ in 0..AT_ONCE {
                match self.listeners[place].accept() {
                    Ok((stream, _)) => {
                        if let Err(error) = self.receive(stream) {
                            // Anybody may cause that: it counts as what strangers do.
                            let line = format_args!("lost a connection: {error}");
                            self.journal.log(None, line);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if is_passing(&error) => {
                        std::thread::sleep(A_MOMENT);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Has a connection wait at the door, or sends it away.
    fn receive(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let Credentials {
            process: pid,
            user,
            group,
        } = credentials(&stream)?;
        let peer = Peer { user, group };
        let Some(account) = Client::account(&self.keys, peer) else {
            return self.send_away((&stream, None), (peer, pid), Verdict::Stranger);
        };
        let newcomer = Newcomer {
            stream,
            peer,
            account,
            pid,
            stage: Stage::Greets(Vec::new()),
            since: Instant::now(),
        };
        match self.has_room(&newcomer) {
            true => self.newcomers.push(newcomer),
            false => _ = self.refuse(&newcomer, Verdict::Full)?,
        }
        Ok(())
    }

    /// Whether the newcomer may wait. Those that have hung up take no room.
    fn has_room(&mut self, newcomer: &Newcomer) -> bool {
        if !self.is_within_bounds(newcomer) {
            self.newcomers.retain(|own| !has_hung_up(&own.stream));
        }
        self.is_within_bounds(newcomer)
    }

    /// Each account has a bound of its own.
    fn is_within_bounds(&self, newcomer: &Newcomer) -> bool {
        let waiting = self.newcomers.iter();
        let of_account = waiting.filter(|own| own.account == newcomer.account);
        self.newcomers.len() < 2 * self.configuration.max_clients
            && of_account.count() < self.configuration.max_clients_per_user
    }

    /// Goes on with each newcomer as far as it can without waiting.
    fn greet(&mut self) {
        for place in (0..self.newcomers.len()).rev() {
            let newcomer = self.newcomers.swap_remove(place);
            let in_time = |own: &Newcomer| own.since.elapsed() < PATIENCE;
            // An error means that it has hung up, or does not take what is sent.
            let newcomer = self.advance(newcomer).ok().flatten().filter(in_time);
            self.newcomers.extend(newcomer);
        }
    }

    /// Goes on with a newcomer; returns it unless it is a client now, or sent away.
    fn advance(&mut self, mut newcomer: Newcomer) -> io::Result<Option<Newcomer>> {
        match &mut newcomer.stage {
            Stage::Greets(greeting) => {
                if !read_on(&newcomer.stream, greeting)? {
                    return Ok(Some(newcomer));
                }
                let greeting = std::mem::take(greeting);
                self.answer(newcomer, &greeting)
            }
            Stage::Reads { rest, .. } => {
                if write_on(&newcomer.stream, rest)? {
                    self.admit(newcomer);
                    return Ok(None);
                }
                Ok(Some(newcomer))
            }
        }
    }

    /// Answers a greeting; returns the newcomer if it is welcome.
    fn answer(&mut self, mut newcomer: Newcomer, greeting: &[u8]) -> io::Result<Option<Newcomer>> {
        let greeting: Option<&[u8; GREETING]> = greeting.try_into().ok();
        match greeting.map(protocol::read_greeting) {
            Some(Ok(VERSION)) => {}
            Some(Ok(_)) => return self.refuse(&newcomer, Verdict::OtherVersion),
            // It is no client.
            _ => return Ok(None),
        }
        if !self.has_place(newcomer.account) {
            // One may have hung up since they were seen off.
            self.see_off();
            if !self.has_place(newcomer.account) {
                return self.refuse(&newcomer, Verdict::Full);
            }
        }
        let Some(grants) = Client::grants(&self.keys, newcomer.peer) else {
            return self.refuse(&newcomer, Verdict::Stranger);
        };
        let Some(list) = protocol::list(&Client::list(&grants)) else {
            return self.refuse(&newcomer, Verdict::Failed);
        };
        let Ok((ring, descriptor)) = Server::create(self.configuration.queue) else {
            return self.refuse(&newcomer, Verdict::Failed);
        };
        let mut rest = protocol::verdict(Verdict::Welcome, list.len()).to_vec();
        let sent = send(&newcomer.stream, &rest, descriptor.as_fd())?;
        rest.drain(..sent);
        rest.extend(list);
        newcomer.stage = Stage::Reads { rest, grants, ring };
        newcomer.since = Instant::now();
        self.advance(newcomer)
    }

    /// Whether one more process of this account may be served.
    fn has_place(&self, account: Account) -> bool {
        let clients = self.service.clients.now();
        let welcome = self.newcomers.iter();
        let welcome = welcome.filter(|own| own.is_welcome() && !has_hung_up(&own.stream));
        let served = clients.iter().map(|own| own.account);
        let served: Vec<Account> = served.chain(welcome.map(|own| own.account)).collect();
        let of_account = served.iter().filter(|own| **own == account);
        served.len() < self.configuration.max_clients
            && of_account.count() < self.configuration.max_clients_per_user
    }

    /// Sends a newcomer away, and says why.
    fn refuse(&mut self, newcomer: &Newcomer, verdict: Verdict) -> io::Result<Option<Newcomer>> {
        let at = (&newcomer.stream, Some(newcomer.account));
        self.send_away(at, (newcomer.peer, newcomer.pid), verdict)?;
        Ok(None)
    }

    /// The same for a process that may have no account.
    fn send_away(
        &mut self,
        (mut stream, account): (&UnixStream, Option<Account>),
        (peer, pid): (Peer, i32),
        verdict: Verdict,
    ) -> io::Result<()> {
        let why = lockstep_remote::Failure::Unwelcome(verdict);
        let line = format_args!("refused process {pid} of user {}: {why}", peer.user);
        self.journal.log(account, line);
        // That fits into the buffer of a new socket.
        stream.write_all(&protocol::verdict(verdict, 0))
    }

    /// Serves a newcomer that has taken all it was sent.
    fn admit(&mut self, newcomer: Newcomer) {
        let Stage::Reads { grants, ring, .. } = newcomer.stage else {
            return;
        };
        let Newcomer {
            peer, account, pid, ..
        } = newcomer;
        let (user, count) = (peer.user, grants.len());
        let line = format_args!("serves process {pid} of user {user}, which may use {count} keys");
        self.journal.log(Some(account), line);
        let most = self.configuration.rate;
        let fresh = || Arc::new(Rate::new(most, most, Instant::now()));
        let rate = Arc::clone(self.rates.entry(account).or_insert_with(fresh));
        let (who, at) = ((peer, account, pid), (ring, newcomer.stream));
        let client = Client::new(who, grants, at, rate);
        self.service
            .clients
            .change(|clients| clients.push(Arc::new(client)));
        self.service.refresh();
    }

    /// Forgets the clients that have ended.
    fn see_off(&mut self) {
        let clients = self.service.clients.now();
        let gone: Vec<_> = clients
            .iter()
            .filter(|client| has_hung_up(&client.stream))
            .collect();
        for client in &gone {
            client.leave();
            let (served, refused) = client.counts();
            let faults = client.ring.faults();
            let (pid, user) = (client.pid, client.peer.user);
            let bad = faults.malformed + faults.repeated;
            let line = format_args!(
                "process {pid} of user {user} has ended: {served} requests, {refused} refused, \
                 {bad} bad"
            );
            self.journal.log(Some(client.account), line);
        }
        if !gone.is_empty() {
            self.service
                .clients
                .change(|clients| clients.retain(|client| !client.is_gone()));
            self.service.refresh();
        }
    }
}

impl Newcomer {
    fn is_welcome(&self) -> bool {
        matches!(self.stage, Stage::Reads { .. })
    }
}

/// Tells all who come to these sockets for some time that the daemon cannot serve them.
pub fn turn_away(listeners: &[UnixListener], time: Duration) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut all: Vec<_> = listeners
            .iter()
            .map(|own| PollFd::new(own, PollFlags::IN))
            .collect();
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        if poll(&mut all, Some(&left)).is_err() {
            std::thread::sleep(A_MOMENT);
        }
        for listener in listeners {
            // One that has waited for long has its answer, and all others theirs afterwards.
            let accepted = listener
                .set_nonblocking(true)
                .and_then(|()| listener.accept());
            match accepted {
                Ok((mut stream, _)) => {
                    let _ = stream.set_nonblocking(true);
                    let _ = stream.write_all(&protocol::verdict(Verdict::Failed, 0));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => std::thread::sleep(A_MOMENT),
            }
        }
    }
}

/// Reads what is there of a greeting; whether it is complete.
fn read_on(mut stream: &UnixStream, greeting: &mut Vec<u8>) -> io::Result<bool> {
    let mut room = [0; GREETING];
    let missing = GREETING - greeting.len();
    match stream.read(&mut room[..missing]) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            greeting.extend(&room[..count]);
            Ok(greeting.len() == GREETING)
        }
        Err(error) if is_for_later(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes what there is room for; whether that was all.
fn write_on(mut stream: &UnixStream, rest: &mut Vec<u8>) -> io::Result<bool> {
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) => drop(rest.drain(..count)),
            Err(error) if is_for_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Whether an error of `accept` or `poll` passes.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOBUFS,
        Errno::CONNABORTED,
    ];
    let number = error.raw_os_error();
    passing.iter().any(|own| Some(own.raw_os_error()) == number)
}
