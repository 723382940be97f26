//! Clients that connect before the daemon can serve.
//!
//! systemd creates the socket before it starts the daemon. A client whose greeting is read knows
//! that there is a daemon, and waits for its answer.

use std::io::{self, ErrorKind, Read as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockstep_remote::protocol::GREETING;
use rustix::event::{PollFd, PollFlags, poll};

/// Maximum number of accepted clients. Others wait in the kernel's queue.
const MOST: usize = 1024;
/// Pause after an error, such as a lack of descriptors or memory.
const BACKOFF: Duration = Duration::from_millis(10);

/// A client that has connected, and its greeting so far.
pub struct EarlyClient {
    /// Non-blocking socket.
    pub stream: UnixStream,
    /// Bytes that it has sent.
    pub greeting: Vec<u8>,
}

/// The thread that reads greetings. Dropping it disconnects all waiting clients.
pub struct EarlyClients {
    end: UnixStream,
    thread: JoinHandle<Vec<EarlyClient>>,
}

impl EarlyClients {
    /// Starts to accept clients at these sockets.
    pub fn collect(listeners: &[UnixListener]) -> io::Result<EarlyClients> {
        let listeners = listeners.iter().map(UnixListener::try_clone);
        let listeners: Vec<UnixListener> = listeners.collect::<Result<_, _>>()?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let (end, ended) = UnixStream::pair()?;
        let thread = thread::Builder::new().name("keyd-early".to_owned());
        let thread = thread.spawn(move || collect(&listeners, &ended))?;
        Ok(EarlyClients { end, thread })
    }

    /// Ends the thread, and returns the clients in the order in which they were accepted.
    pub fn take(self) -> Vec<EarlyClient> {
        drop(self.end);
        self.thread.join().unwrap_or_default()
    }
}

fn collect(listeners: &[UnixListener], ended: &UnixStream) -> Vec<EarlyClient> {
    let mut early: Vec<EarlyClient> = Vec::new();
    loop {
        let has_room = early.len() < MOST;
        let open = listeners.iter().filter(|_| has_room);
        let greets = early.iter().filter(|own| own.greeting.len() < GREETING);
        let greets = greets.map(|own| PollFd::new(&own.stream, PollFlags::IN));
        let open = open.map(|own| PollFd::new(own, PollFlags::IN));
        let end = [PollFd::new(ended, PollFlags::IN)];
        let mut all: Vec<_> = end.into_iter().chain(open).chain(greets).collect();
        let polled = poll(&mut all, None);
        if !all[0].revents().is_empty() {
            return early;
        }
        let mut is_stuck = polled.is_err();
        drop(all);
        for listener in listeners.iter().filter(|_| has_room) {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    early.push(EarlyClient {
                        stream,
                        greeting: Vec::new(),
                    })
                }
                Ok(_) => {}
                Err(error) => is_stuck |= error.kind() != ErrorKind::WouldBlock,
            }
        }
        early.retain_mut(|own| read_on(&own.stream, &mut own.greeting).is_ok());
        if is_stuck {
            thread::sleep(BACKOFF);
        }
    }
}

/// Reads the available part of a greeting; returns whether it is complete.
pub fn read_on(mut stream: &UnixStream, greeting: &mut Vec<u8>) -> io::Result<bool> {
    let mut room = [0; GREETING];
    let missing = GREETING - greeting.len();
    if missing == 0 {
        return Ok(true);
    }
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

/// Returns whether the same call may succeed later.
pub fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use lockstep_remote::protocol::{self, VERSION};
    use lockstep_ring::unread;
    use lockstep_testkit::TempDir;

    use super::*;

    fn greeting() -> [u8; GREETING] {
        protocol::greeting(VERSION)
    }

    #[test]
    fn greetings_are_taken_and_kept() {
        let place = TempDir::new("early");
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let listeners = [listener];
        let waiting = EarlyClients::collect(&listeners).expect("a thread");
        let connect = || UnixStream::connect(&socket).expect("a listener");
        let (mut whole, mut half, gone) = (connect(), connect(), connect());
        drop(gone);
        whole.write_all(&greeting()).expect("a socket");
        half.write_all(&greeting()[..5]).expect("a socket");
        let is_taken = |streams: &[&UnixStream]| {
            let taken = || streams.iter().all(|own| unread(own) == Some(0));
            (0..20_000).any(|_| {
                thread::sleep(Duration::from_millis(1));
                taken()
            })
        };
        assert!(is_taken(&[&whole, &half]));
        // The rest comes later.
        half.write_all(&greeting()[5..7]).expect("a socket");
        assert!(is_taken(&[&half]));
        let early = waiting.take();
        let greetings: Vec<_> = early.iter().map(|own| &own.greeting[..]).collect();
        assert_eq!(greetings, [&greeting()[..], &greeting()[..7]]);
    }

    #[test]
    fn a_client_that_is_gone_is_told_from_one_that_has_not_greeted_yet() {
        let mut taken = Vec::new();
        let (own, mut other) = UnixStream::pair().expect("sockets");
        own.set_nonblocking(true).expect("a socket");
        assert!(read_on(&own, &mut taken).is_ok_and(|is_whole| !is_whole));
        other.write_all(&greeting()[..5]).expect("a socket");
        assert!(read_on(&own, &mut taken).is_ok_and(|is_whole| !is_whole));
        assert_eq!(taken, greeting()[..5]);
        drop(other);
        assert!(read_on(&own, &mut taken).is_err());
        // A close with unread data resets the connection.
        let (mut own, other) = UnixStream::pair().expect("sockets");
        own.set_nonblocking(true).expect("a socket");
        own.write_all(&[1]).expect("a socket");
        drop(other);
        assert!(read_on(&own, &mut taken).is_err());
    }
}
