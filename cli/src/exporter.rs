//! `lockstep exporter`: answers Prometheus over HTTP with the counters of servers.
//!
//! It reads files of counters and answers `GET /metrics`, and does nothing else. One thread does
//! it, with bounds on connections, on their time, on the length of a request, and on how often it
//! looks at the counters. Clients share the page: one that reads slowly keeps no copy. So a
//! stranger who can connect to it costs little, and no client holds up another one.

mod services;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lockstep_common::{Failure, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_acceptconn};
use rustix::net::{SocketFlags, accept_with};

use crate::stat::prometheus::exposition;
use crate::stat::servers::Ledger;
use crate::stat::{Place, print};
use services::Services;

/// The most connections at a time; a further one displaces the oldest.
const MOST: usize = 32;
/// Maximum time that a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum length of a request, in bytes.
const LONGEST: usize = 4096;
/// Bytes that the kernel keeps for a connection. By default it keeps megabytes for a client that
/// reads slowly, in the memory of the exporter's control group.
const SEND_BUFFER: usize = 1 << 16;
/// Time for which an answer can be used again.
const FRESH: Duration = Duration::from_secs(1);
/// Interval at which it looks at the counters without a request. The counts of a process since the
/// last look are lost when it ends.
const INTERVAL: Duration = Duration::from_secs(10);

/// Answers Prometheus over HTTP with the counters of servers, at /metrics
///
/// Its counts begin at zero when it starts, and include processes that have ended since then. It
/// shows the processes of root, of its own user, and of services that `lockstep install` has
/// configured; it shows sums over the processes of all other users. It may read all of them as
/// root, or with the capability CAP_DAC_READ_SEARCH, which lockstep-exporter.service gives it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  systemctl enable --now lockstep-exporter.socket
  curl http://127.0.0.1:9793/metrics

Files:
  /usr/lib/systemd/system/lockstep-exporter.socket, lockstep-exporter.service
  /usr/share/doc/lockstep/lockstep.rules.yml   alerts for Prometheus
  /usr/share/doc/lockstep/grafana.json         a dashboard for Grafana")]
pub struct Options {
    /// Listen here [default: at the socket that systemd passes as standard input]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    place: Place,
}

/// Runs the command. It ends by a signal only.
pub fn run(options: Options) -> Outcome {
    let listener = match options.listen {
        Some(address) => TcpListener::bind(address)
            .map(OwnedFd::from)
            .map_err(|error| Failure::new(format!("cannot listen at {address}: {error}")))?,
        None => passed()?,
    };
    let of_socket = |error: io::Error| Failure::new(format!("cannot use the socket: {error}"));
    ioctl_fionbio(&listener, true).map_err(|error| of_socket(error.into()))?;
    let mut exporter = Exporter {
        place: options.place,
        ..Exporter::default()
    };
    exporter.look();
    let mut clients = VecDeque::new();
    loop {
        turn(&listener, &mut clients, &mut exporter).map_err(of_socket)?;
    }
}

/// The socket that systemd passes.
fn passed() -> Result<OwnedFd, Failure> {
    let input = io::stdin().as_fd().try_clone_to_owned().ok();
    let listens = |input: &OwnedFd| socket_acceptconn(input) == Ok(true);
    input.filter(listens).ok_or_else(|| {
        Failure::new("the standard input is not a socket that listens").remedy(
            "systemctl enable --now lockstep-exporter.socket; without systemd: lockstep exporter \
             --listen 127.0.0.1:9793",
        )
    })
}

/// State of the exporter.
#[derive(Default)]
struct Exporter {
    place: Place,
    ledger: Ledger,
    services: Services,
    looked: Option<Instant>,
    /// The answer with all counters.
    page: Rc<[u8]>,
}

impl Exporter {
    /// Whether the exporter has looked at the counters within this time.
    fn has_looked(&self, within: Duration) -> bool {
        self.looked.is_some_and(|looked| looked.elapsed() < within)
    }

    fn look(&mut self) {
        self.page = match self.place.published() {
            Ok(found) => {
                for line in self.services.look(&found) {
                    // systemd passes the standard output to the journal.
                    print(&line);
                }
                let services = &self.services;
                self.ledger.look(&found, |process| services.has(process));
                response(
                    "200 OK",
                    &(exposition(&self.ledger) + &services.exposition()),
                )
            }
            Err(failure) => response("503 Service Unavailable", &format!("{}\n", failure.what)),
        };
        self.looked = Some(Instant::now());
    }

    /// The answer to a request.
    fn answer(&mut self, request: &[u8]) -> Rc<[u8]> {
        let line = request.split(|byte| *byte == b'\r').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            _ if request.len() >= LONGEST => response("431 Request Header Fields Too Large", ""),
            ["GET", target, "HTTP/1.0" | "HTTP/1.1"] => {
                let path = target.split_once('?').map_or(target, |(path, _)| path);
                if path == "/metrics" {
                    if !self.has_looked(FRESH) {
                        self.look();
                    }
                    self.page.clone()
                } else {
                    response("404 Not Found", "the counters are at /metrics\n")
                }
            }
            [_, _, "HTTP/1.0" | "HTTP/1.1"] => response("405 Method Not Allowed\r\nAllow: GET", ""),
            _ => response("400 Bad Request", ""),
        }
    }
}

fn response(status: &str, text: &str) -> Rc<[u8]> {
    let whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    whole.into_bytes().into()
}

/// A connection.
struct Client {
    stream: OwnedFd,
    since: Instant,
    request: Vec<u8>,
    answer: Option<Rc<[u8]>>,
    /// Bytes of the answer that are sent.
    sent: usize,
}

impl Client {
    /// Reads the request and writes the answer until either would block; returns false if there is
    /// nothing left to do.
    fn step(&mut self, exporter: &mut Exporter) -> bool {
        while self.answer.is_none() {
            let mut bytes = [0; 1024];
            match read(&self.stream, &mut bytes[..]) {
                Ok(0) => return false,
                Ok(length) => self.request.extend(&bytes[..length]),
                Err(Errno::INTR) => {}
                Err(error) => return error == Errno::AGAIN,
            }
            let is_whole = self.request.windows(4).any(|four| four == b"\r\n\r\n");
            if is_whole || self.request.len() >= LONGEST {
                self.answer = Some(exporter.answer(&self.request));
            }
        }
        let answer = self.answer.as_deref().unwrap_or_default();
        while let rest @ [_, ..] = &answer[self.sent..] {
            match write(&self.stream, rest) {
                Ok(length) => self.sent += length,
                Err(Errno::INTR) => {}
                Err(error) => return error == Errno::AGAIN,
            }
        }
        false
    }
}

/// Waits for connections that arrive or can go on, up to a bound, and serves them. Looks at the
/// counters if [`INTERVAL`] has passed.
fn turn(
    listener: &OwnedFd,
    clients: &mut VecDeque<Client>,
    exporter: &mut Exporter,
) -> io::Result<()> {
    let mut descriptors = vec![PollFd::new(listener, PollFlags::IN)];
    descriptors.extend(clients.iter().map(|client| {
        let awaited = match client.answer {
            None => PollFlags::IN,
            Some(_) => PollFlags::OUT,
        };
        PollFd::new(&client.stream, awaited)
    }));
    let most = match clients.is_empty() {
        true => INTERVAL,
        false => Duration::from_secs(1),
    };
    let timeout = Timespec::try_from(most).expect("a few seconds");
    match poll(&mut descriptors, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready: Vec<bool> = descriptors
        .iter()
        .map(|of| !of.revents().is_empty())
        .collect();
    let mut is_ready = ready[1..].iter();
    clients.retain_mut(|client| {
        let goes_on = !is_ready.next().is_some_and(|ready| *ready) || client.step(exporter);
        goes_on && client.since.elapsed() < PATIENCE
    });
    if ready[0] {
        accept(listener, clients)?;
    }
    if !exporter.has_looked(INTERVAL) {
        exporter.look();
    }
    Ok(())
}

/// Accepts connections, up to a bound.
fn accept(listener: &OwnedFd, clients: &mut VecDeque<Client>) -> io::Result<()> {
    for _ in 0..MOST {
        match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(stream) => {
                // If this fails, the connection works, and costs more memory.
                let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
                if clients.len() == MOST {
                    clients.pop_front();
                }
                clients.push_back(Client {
                    stream,
                    since: Instant::now(),
                    request: Vec::new(),
                    answer: None,
                    sent: 0,
                });
            }
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error @ (Errno::INVAL | Errno::BADF | Errno::NOTSOCK)) => return Err(error.into()),
            // The process has no descriptor left; this ends by itself.
            Err(_) => {
                thread::sleep(Duration::from_millis(100));
                break;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    /// The page may have any length: 32 copies of 4 MiB would end the service.
    #[test]
    fn clients_that_read_nothing_share_one_page_and_keep_little_in_the_kernel() {
        let mut exporter = Exporter {
            page: vec![b'x'; 4 << 20].into(),
            looked: Some(Instant::now() + Duration::from_secs(3600)),
            ..Exporter::default()
        };
        let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        ioctl_fionbio(&listener, true).unwrap();
        let address = TcpListener::from(listener.try_clone().unwrap()).local_addr();
        let (address, mut clients) = (address.unwrap(), VecDeque::new());
        let readers: Vec<TcpStream> = (0..MOST)
            .map(|_| {
                let mut reader = TcpStream::connect(address).unwrap();
                io::Write::write_all(&mut reader, b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                reader
            })
            .collect();
        while clients.len() < MOST {
            accept(&listener, &mut clients).unwrap();
        }
        for client in &mut clients {
            while client.sent == 0 {
                assert!(client.step(&mut exporter));
            }
            assert!(Rc::ptr_eq(client.answer.as_ref().unwrap(), &exporter.page));
            // The receive buffer is not the exporter's.
            let kept = rustix::net::sockopt::socket_send_buffer_size(&client.stream).unwrap();
            assert!(kept <= 2 * SEND_BUFFER, "{kept}");
        }
        drop(readers);
    }
}
