//! The thread at the socket: it welcomes clients, and notices when they end.
//!
//! It waits for all sockets at once, and for no single client: one that sends no greeting in time,
//! or does not take what it is sent, is sent away.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{self, GREETING, VERSION, Verdict};
use lockstep_ring::{Server, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;

use crate::access::Peer;
use crate::clients::{Client, Held};
use crate::configuration::Configuration;
use crate::service::Service;

/// How long a client may take for its greeting, and to take the list of keys.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection without a greeting yet.
struct Newcomer {
    stream: UnixStream,
    peer: Peer,
    pid: i32,
    greeting: Vec<u8>,
    since: Instant,
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
        })
    }

    /// Works until the daemon is to end, or a socket fails. Who is not welcomed by then loses the
    /// connection, and finds the next daemon at the same socket.
    pub fn run(mut self) -> io::Result<()> {
        while self.wait()? {
            self.accept()?;
            self.greet();
            self.see_off();
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
        let newcomers = newcomers.map(|own| PollFd::new(&own.stream, PollFlags::IN));
        let ends = PollFlags::RDHUP;
        let clients = clients.iter().map(|own| PollFd::new(&own.stream, ends));
        let end = [PollFd::new(&self.end, PollFlags::IN)];
        let all = end.into_iter().chain(listeners);
        let mut all: Vec<_> = all.chain(newcomers).chain(clients).collect();
        // While somebody owes a greeting, time passes too.
        let time = match self.newcomers.is_empty() {
            true => None,
            false => Some(Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            }),
        };
        match poll(&mut all, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(all[0].revents().is_empty()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        for listener in &self.listeners {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let newcomer = Newcomer::new(stream);
                        self.newcomers
                            .extend(newcomer.ok().filter(|own| self.has_room(own)));
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if is_passing(&error) => {
                        // Out of descriptors, or of memory: do not burn the CPU.
                        std::thread::sleep(Duration::from_millis(10));
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Whether the newcomer may wait. Anybody may connect, so each user has a bound of its own.
    fn has_room(&self, newcomer: &Newcomer) -> bool {
        let waiting = self.newcomers.iter();
        let of_user = waiting.filter(|own| own.peer.user == newcomer.peer.user);
        self.newcomers.len() < 2 * self.configuration.max_clients
            && of_user.count() < self.configuration.max_clients_per_user
    }

    /// Reads greetings, and welcomes those whose greeting is complete.
    fn greet(&mut self) {
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            match newcomer.read() {
                Some(true) => {
                    let _ = self.welcome(newcomer);
                }
                Some(false) if newcomer.since.elapsed() < PATIENCE => self.newcomers.push(newcomer),
                _ => {}
            }
        }
    }

    /// Answers a greeting. An error means that the client did not take the answer.
    fn welcome(&self, newcomer: Newcomer) -> io::Result<()> {
        let Newcomer {
            mut stream,
            peer,
            pid,
            greeting,
            ..
        } = newcomer;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut refuse = |verdict: Verdict| {
            log(format_args!(
                "refused process {pid} of user {}: {}",
                peer.user,
                lockstep_remote::Failure::Unwelcome(verdict)
            ));
            stream.write_all(&protocol::verdict(verdict, 0))
        };
        let greeting: Option<&[u8; GREETING]> = greeting.as_slice().try_into().ok();
        match greeting.map(protocol::read_greeting) {
            Some(Ok(VERSION)) => {}
            Some(Ok(_)) => return refuse(Verdict::OtherVersion),
            // It is no client.
            _ => return Ok(()),
        }
        let clients = self.service.clients.now();
        let of_user = clients.iter().filter(|own| own.peer.user == peer.user);
        if clients.len() >= self.configuration.max_clients
            || of_user.count() >= self.configuration.max_clients_per_user
        {
            return refuse(Verdict::Full);
        }
        let Some(grants) = Client::grants(&self.keys, peer) else {
            return refuse(Verdict::Stranger);
        };
        let Some(list) = protocol::list(&Client::list(&grants)) else {
            return refuse(Verdict::Failed);
        };
        let Ok((ring, descriptor)) = Server::create(self.configuration.queue) else {
            return refuse(Verdict::Failed);
        };
        let verdict = protocol::verdict(Verdict::Welcome, list.len());
        use std::os::fd::AsFd as _;
        let sent = send(&stream, &verdict, descriptor.as_fd())?;
        stream.write_all(&verdict[sent..])?;
        stream.write_all(&list)?;
        log(format_args!(
            "serves process {pid} of user {}, which may use {} keys",
            peer.user,
            grants.len()
        ));
        let rate = self.configuration.rate;
        let client = Client::new((peer, pid), grants, (ring, stream), rate);
        self.service
            .clients
            .change(|clients| clients.push(Arc::new(client)));
        self.service.refresh();
        Ok(())
    }

    /// Forgets the clients that have ended.
    fn see_off(&self) {
        let clients = self.service.clients.now();
        let gone: Vec<_> = clients
            .iter()
            .filter(|client| has_ended(&client.stream))
            .collect();
        for client in &gone {
            client.leave();
            let (served, refused) = client.counts();
            let faults = client.ring.faults();
            log(format_args!(
                "process {} of user {} has ended: {served} requests, {refused} refused, {} bad",
                client.pid,
                client.peer.user,
                faults.malformed + faults.repeated
            ));
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
    /// One that has just connected.
    fn new(stream: UnixStream) -> io::Result<Newcomer> {
        stream.set_nonblocking(true)?;
        let credentials = socket_peercred(&stream)?;
        Ok(Newcomer {
            stream,
            peer: Peer {
                user: credentials.uid.as_raw(),
                group: credentials.gid.as_raw(),
            },
            pid: credentials.pid.as_raw_nonzero().get(),
            greeting: Vec::new(),
            since: Instant::now(),
        })
    }

    /// Reads what is there; whether the greeting is complete. None if the client has hung up.
    fn read(&mut self) -> Option<bool> {
        let mut room = [0; GREETING];
        let missing = GREETING - self.greeting.len();
        match self.stream.read(&mut room[..missing]) {
            Ok(0) => None,
            Ok(count) => {
                self.greeting.extend(&room[..count]);
                Some(self.greeting.len() == GREETING)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Some(false)
            }
            Err(_) => None,
        }
    }
}

/// Whether a client has closed its end. One that says more than its greeting has broken the
/// protocol, and that costs it nothing but the bytes.
fn has_ended(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let polls = poll(&mut polled, Some(&Timespec::default()));
    polls.is_ok() && polled[0].revents().intersects(ended)
}

/// Whether an error of `accept` passes.
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

/// A line for the journal.
pub fn log(line: std::fmt::Arguments<'_>) {
    // Where it cannot be written, there is no better place.
    let _ = writeln!(io::stderr(), "lockstep-keyd: {line}");
}
