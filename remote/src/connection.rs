//! A connection to the daemon: the socket, the ring, and the keys that this process may use.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockstep_ring::{Answer, AttachError, Call, Client, INPUT, Lost, Patience, Refused, receive};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, send};
use zeroize::Zeroizing;

use crate::protocol::{self, Offered, Operation, VERDICT, Verdict, status};

/// How long the daemon may take to welcome a client.
const WELCOME: Duration = Duration::from_secs(3);
/// How long a request may take in all.
const ANSWER: Duration = Duration::from_secs(10);
/// How often a waiting thread looks whether the daemon is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a thread spins for an answer that comes soon: not for RSA, which takes longer.
const SPIN: Duration = Duration::from_micros(20);

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens, or the socket cannot be reached.
    Unreachable(PathBuf, String),
    /// The daemon does not want this client.
    Unwelcome(Verdict),
    /// What came is not what a key daemon of this version says.
    Protocol,
    /// The connection ended before the answer.
    Lost,
    /// There was no answer in time.
    TimedOut,
    /// The client may not use a key of this name, or there is none.
    NoKey,
    /// The key of this name has another public half.
    OtherKey,
    /// The client may not use the key so.
    Forbidden,
    /// The input does not fit the key.
    Unfit,
    /// The daemon refuses requests of this client, which makes more than its rate allows.
    Busy,
    /// The daemon could not do it.
    Failed,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Failure::Unreachable(socket, reason) => {
                return write!(
                    f,
                    "the key daemon cannot be reached at {} ({reason}); start it by \
                     `systemctl start lockstep-keyd`",
                    socket.display()
                );
            }
            Failure::Unwelcome(Verdict::Full) => {
                "the key daemon serves as many clients as it may; raise max_clients in its \
                 configuration"
            }
            Failure::Unwelcome(Verdict::Stranger) => {
                "the key daemon lets this user use no key; see the users and groups of the key in \
                 its configuration"
            }
            Failure::Unwelcome(Verdict::OtherVersion) => {
                "the key daemon is of another version; restart it, and this program"
            }
            Failure::Unwelcome(_) => "the key daemon had no memory for another client",
            Failure::Protocol => "what answers at the socket is no key daemon of this version",
            Failure::Lost => "the key daemon ended before it answered",
            Failure::TimedOut => "the key daemon did not answer in time",
            Failure::NoKey => {
                "the key daemon has no key of this name, or does not let this user use it"
            }
            Failure::OtherKey => {
                "the key of this name in the key daemon is another one; make the reference anew by \
                 `lockstep keyd export-reference`"
            }
            Failure::Forbidden => {
                "the key daemon does not let this user use the key so; see its `uses` in the \
                 configuration"
            }
            Failure::Unfit => "the key daemon finds that the input does not fit the key",
            Failure::Busy => {
                "this program asks the key daemon for more than its share; raise rate in its \
                 configuration"
            }
            Failure::Failed => "the key daemon could not compute it; its log may say why",
        };
        f.write_str(text)
    }
}

impl std::error::Error for Failure {}

/// A connection, for all threads of one process.
#[derive(Debug)]
pub struct Connection {
    /// Stays open for as long as the client lives: by its end each side learns of the other's.
    stream: UnixStream,
    client: Client,
    keys: Vec<Offered>,
}

impl Connection {
    /// Connects to the daemon that listens at `socket`.
    pub fn open(socket: &Path) -> Result<Connection, Failure> {
        let unreachable =
            |error: io::Error| Failure::Unreachable(socket.to_owned(), error.to_string());
        let mut stream = UnixStream::connect(socket).map_err(unreachable)?;
        stream
            .set_read_timeout(Some(WELCOME))
            .map_err(unreachable)?;
        stream
            .set_write_timeout(Some(WELCOME))
            .map_err(unreachable)?;
        // By `write`, the end of the daemon could end the program by a signal.
        let greeting = protocol::greeting();
        let sent = send(&stream, &greeting, SendFlags::NOSIGNAL).map_err(|_| Failure::Lost)?;
        if sent < greeting.len() {
            return Err(Failure::Lost);
        }
        let mut verdict = [0; VERDICT];
        let (count, ring) = loop {
            match receive(&stream, &mut verdict) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received.map_err(in_time)?,
            }
        };
        stream.read_exact(&mut verdict[count..]).map_err(in_time)?;
        let (verdict, length) = protocol::read_verdict(&verdict).map_err(|_| Failure::Protocol)?;
        if verdict != Verdict::Welcome {
            return Err(Failure::Unwelcome(verdict));
        }
        let client =
            Client::attach(ring.ok_or(Failure::Protocol)?).map_err(|error| match error {
                AttachError::System(_) => Failure::Failed,
                _ => Failure::Protocol,
            })?;
        let mut list = vec![0; length];
        stream.read_exact(&mut list).map_err(in_time)?;
        let keys = protocol::read_list(&list).map_err(|_| Failure::Protocol)?;
        Ok(Connection {
            stream,
            client,
            keys,
        })
    }

    /// The keys that this process may use.
    pub fn keys(&self) -> &[Offered] {
        &self.keys
    }

    /// The key of this name, if it has this public half.
    pub fn key(&self, name: &str, public: &[u8]) -> Result<&Offered, Failure> {
        let mut keys = self.keys.iter();
        let key = keys.find(|key| key.name == name).ok_or(Failure::NoKey)?;
        match key.public == public {
            true => Ok(key),
            false => Err(Failure::OtherKey),
        }
    }

    /// Whether the daemon is gone, or this is a child of the process that has connected.
    pub fn is_gone(&self) -> bool {
        self.client.is_gone()
    }

    /// Asks for an operation whose result has `length` bytes, and waits for it.
    ///
    /// [`Failure::Lost`] says that the connection is of no more use.
    pub fn ask(
        &self,
        operation: Operation,
        key: &Offered,
        input: &[u8],
        length: usize,
    ) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let deadline = Instant::now() + ANSWER;
        let mut pause = Duration::from_micros(50);
        loop {
            let Answer { status, output } = self.answer(operation, key.handle, input, deadline)?;
            return match status {
                status::DONE if output.len() == length => Ok(output),
                status::FORBIDDEN => Err(Failure::Forbidden),
                status::UNFIT => Err(Failure::Unfit),
                status::BUSY if Instant::now() < deadline => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(Duration::from_millis(10));
                    continue;
                }
                status::BUSY => Err(Failure::Busy),
                _ => Err(Failure::Failed),
            };
        }
    }

    fn answer(
        &self,
        operation: Operation,
        key: u64,
        input: &[u8],
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        if input.len() > INPUT {
            return Err(Failure::Unfit);
        }
        let call = Call {
            operation: operation as u16,
            key,
            input,
            notify: false,
        };
        let mut ticket = loop {
            match self.client.submit(&call) {
                Ok(ticket) => break ticket,
                Err(Refused::Full) => {
                    self.look_after(deadline)?;
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(Refused::TooLong) => return Err(Failure::Unfit),
                Err(_) => return Err(Failure::Lost),
            }
        };
        let spin = match operation {
            Operation::RsaPrivate => Duration::ZERO,
            Operation::EcdsaSign | Operation::Ed25519Sign => SPIN,
        };
        loop {
            match ticket.wait(Patience::new(spin, LOOK_EVERY)) {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => self.look_after(deadline)?,
                Err(Lost::Broken) => return Err(Failure::Protocol),
                Err(_) => return Err(Failure::Lost),
            }
        }
    }

    /// Whether the daemon is still there, and there is time left.
    fn look_after(&self, deadline: Instant) -> Result<(), Failure> {
        if self.has_hung_up() {
            self.client.poison();
            return Err(Failure::Lost);
        }
        match Instant::now() < deadline {
            true => Ok(()),
            false => Err(Failure::TimedOut),
        }
    }

    /// Whether the daemon's end of the connection is closed.
    pub fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let at_once = Timespec::default();
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut polled, Some(&at_once)).is_ok_and(|_| polled[0].revents().intersects(ended))
    }
}

/// Why nothing was read.
fn in_time(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::TimedOut,
        _ => Failure::Lost,
    }
}
