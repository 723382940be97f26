//! The clients: TLS connections, as many at a time as asked for, on threads that wait for events.
//! They are rustls's.
//!
//! A client connects, shakes hands, fetches the page if there is one, says goodbye, and waits until
//! the server has closed. Then it begins anew, or another one begins when its time has come, by the
//! [demand](Demand). Like any client it verifies the certificate up to the authority, the name in
//! it, and the server's signature over the handshake.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use lockstep_common::Failure;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustix::time::{ClockId, clock_gettime};

use super::demand::{Arrivals, Demand};
use super::identity::HOST;
use super::origin::PATH;
use super::over_rustls::{self, Client, PATIENCE, Pumped};
use crate::measure::keep_to;

/// How long to wait for events until stuck connections are looked for.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// This many failures end a load: there is nothing left to measure.
const TOO_MANY: u64 = 1000;

/// How many of the failures are kept in words.
const EXAMPLES: usize = 3;

/// Properties of clients.
pub struct Clients {
    client: Client,
    cpus: Vec<usize>,
}

/// The work of clients.
#[derive(Clone, Copy)]
pub struct Load {
    pub address: SocketAddr,
    pub demand: Demand,
    pub duration: Duration,
    /// Handshakes that begin in this time count, but their latency does not.
    pub warm_up: Duration,
    /// The length of the page to fetch, if one is.
    pub page: Option<u64>,
}

/// The results of the load.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// From connecting to the end of the handshake, or of the page, and at a rate from when it was
    /// to connect; one for each that succeeded, but for those that began while the load warmed up:
    pub latencies: Vec<Duration>,
    /// The same of those: all clients begin in the same moment, as they never do again, and go on
    /// in step for a while.
    pub early_latencies: Vec<Duration>,
    pub failures: u64,
    /// Some of these in words.
    pub examples: Vec<String>,
    /// CPU time of the clients.
    pub cpu: Duration,
    /// From the first connection to the end of the last.
    pub elapsed: Duration,
}

impl Tally {
    /// How many succeeded.
    pub fn count(&self) -> usize {
        self.latencies.len() + self.early_latencies.len()
    }

    fn fail(&mut self, why: String) {
        self.failures += 1;
        if self.examples.len() < EXAMPLES && !self.examples.contains(&why) {
            self.examples.push(why);
        }
    }

    fn add(&mut self, other: Tally) {
        self.latencies.extend(other.latencies);
        self.early_latencies.extend(other.early_latencies);
        self.failures += other.failures;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
        self.cpu += other.cpu;
    }
}

impl Clients {
    /// Clients on these CPUs.
    pub fn new(client: Client, cpus: &[usize]) -> Clients {
        let cpus = cpus.to_vec();
        Clients { client, cpus }
    }

    /// Puts a server under load.
    pub fn run(&self, load: Load) -> Result<Tally, Failure> {
        let start = Instant::now();
        let most = load.demand.connections();
        let threads = self.cpus.len().min(most);
        let mut tally = Tally::default();
        let tallies: Vec<io::Result<Tally>> = thread::scope(|scope| {
            let started: Vec<_> = (0..threads)
                .map(|index| {
                    let connections = most * (index + 1) / threads - most * index / threads;
                    scope.spawn(move || {
                        keep_to(&[self.cpus[index]]);
                        let rate = load.demand.rate();
                        let rate = rate.map(|rate| rate as f64 / threads as f64);
                        Driver::new(self, load, connections, rate, start)?.run()
                    })
                })
                .collect();
            started
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(ErrorKind::Other.into()))
                })
                .collect()
        });
        for one in tallies {
            tally.add(one.map_err(|error| Failure::new(format!("clients cannot run: {error}")))?);
        }
        tally.elapsed = start.elapsed();
        Ok(tally)
    }
}

/// One thread of clients.
struct Driver<'a> {
    clients: &'a Clients,
    load: Load,
    epoll: OwnedFd,
    connections: Vec<Option<Connection>>,
    /// The free ones among them.
    free: Vec<usize>,
    /// When handshakes begin, where they do at a rate.
    arrivals: Option<Arrivals>,
    /// When the next one is to begin.
    next: Instant,
    /// From when on latencies count, and from when on none begins.
    warm: Instant,
    deadline: Instant,
    tally: Tally,
}

impl Driver<'_> {
    fn new(
        clients: &Clients,
        load: Load,
        connections: usize,
        rate: Option<f64>,
        start: Instant,
    ) -> io::Result<Driver<'_>> {
        Ok(Driver {
            clients,
            load,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: (0..connections).map(|_| None).collect(),
            free: (0..connections).collect(),
            arrivals: rate.map(Arrivals::new),
            next: start,
            warm: start + load.warm_up,
            deadline: start + load.duration,
            tally: Tally::default(),
        })
    }

    fn run(mut self) -> io::Result<Tally> {
        let cpu = thread_cpu_time();
        let mut events = Vec::with_capacity(self.connections.len());
        self.next += self.pause();
        loop {
            self.begin_what_is_due()?;
            let is_idle = self.free.len() == self.connections.len();
            if is_idle && !self.goes_on() {
                break;
            }
            let now = Instant::now();
            let wait = match self.arrivals.is_some() && self.goes_on() && !self.free.is_empty() {
                true => self.next.saturating_duration_since(now).min(LONGEST_WAIT),
                false => LONGEST_WAIT,
            };
            self.proceed(wait, &mut events)?;
        }
        self.tally.cpu = thread_cpu_time().saturating_sub(cpu);
        Ok(self.tally)
    }

    /// Whether more begin.
    fn goes_on(&self) -> bool {
        let latest = self.next.max(Instant::now());
        self.tally.failures < TOO_MANY && latest < self.deadline
    }

    fn begin_what_is_due(&mut self) -> io::Result<()> {
        while self.goes_on() && self.next <= Instant::now() {
            let Some(slot) = self.free.pop() else { break };
            // In a closed loop the clients begin as soon as they can.
            let due = match self.arrivals {
                Some(_) => self.next,
                None => Instant::now(),
            };
            self.begin(slot, due)?;
            self.next += self.pause();
        }
        Ok(())
    }

    /// From the beginning of one to that of the next.
    fn pause(&self) -> Duration {
        let pause = |arrivals: Arrivals| arrivals.pause(getrandom::u64().unwrap_or(u64::MAX / 2));
        self.arrivals.map_or(Duration::ZERO, pause)
    }

    /// Waits for events, and handles them.
    fn proceed(&mut self, wait: Duration, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&wait)) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        if events.is_empty() {
            self.give_up_on_the_stuck();
        }
        for event in events.drain(..) {
            let slot = event.data.u64() as usize;
            let Some(connection) = &mut self.connections[slot] else {
                continue;
            };
            match connection.advance(self.load.page) {
                Ok(false) => continue,
                Ok(true) => {
                    let latencies = match connection.begun < self.warm {
                        true => &mut self.tally.early_latencies,
                        false => &mut self.tally.latencies,
                    };
                    latencies.extend(connection.latency);
                }
                Err(why) => self.tally.fail(why),
            }
            self.connections[slot] = None;
            self.free.push(slot);
            self.begin_what_is_due()?;
        }
        Ok(())
    }

    /// Opens a connection that counts from then; its `ClientHello` goes out with the first event.
    fn begin(&mut self, slot: usize, due: Instant) -> io::Result<()> {
        let connection = Connection::open(self.load.address, &self.clients.client, due)?;
        epoll::add(
            &self.epoll,
            &connection.tls.socket,
            epoll::EventData::new_u64(slot as u64),
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET,
        )?;
        self.connections[slot] = Some(connection);
        Ok(())
    }

    fn give_up_on_the_stuck(&mut self) {
        for (slot, place) in self.connections.iter_mut().enumerate() {
            if let Some(connection) = place
                && connection.begun.elapsed() > PATIENCE
            {
                let doing = connection.phase.doing();
                self.tally.fail(format!("no answer for 15 s while {doing}"));
                *place = None;
                self.free.push(slot);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake,
    Page,
    Goodbye,
}

impl Phase {
    fn doing(self) -> &'static str {
        match self {
            Phase::Handshake => "shaking hands",
            Phase::Page => "fetching the page",
            Phase::Goodbye => "closing",
        }
    }
}

struct Connection {
    tls: over_rustls::Connection,
    begun: Instant,
    phase: Phase,
    page: Page,
    latency: Option<Duration>,
}

impl Connection {
    fn open(address: SocketAddr, client: &Client, begun: Instant) -> io::Result<Connection> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        Ok(Connection {
            tls: client.open(socket)?,
            begun,
            phase: Phase::Handshake,
            page: Page::default(),
            latency: None,
        })
    }

    /// Goes on until it would have to wait. Returns whether all is done, or why it failed.
    fn advance(&mut self, page: Option<u64>) -> Result<bool, String> {
        loop {
            match self.tls.pump() {
                Ok(Pumped::Nothing) => return Ok(false),
                Ok(Pumped::Something) => self.proceed(page)?,
                Ok(Pumped::Closed(why)) => return self.ended(&why),
                Err(error) => return Err(format!("{error}, while {}", self.phase.doing())),
            }
        }
    }

    /// No more bytes can come or go: right after the goodbye, wrong before.
    fn ended(&self, why: &str) -> Result<bool, String> {
        match self.phase {
            Phase::Goodbye => Ok(true),
            phase => Err(format!("{why}, while {}", phase.doing())),
        }
    }

    /// Reads the bytes that have come.
    fn proceed(&mut self, page: Option<u64>) -> Result<(), String> {
        if self.phase == Phase::Handshake && !self.tls.is_handshaking() {
            match page {
                Some(_) => {
                    self.phase = Phase::Page;
                    let request =
                        format!("GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
                    self.tls.write(request.as_bytes())?;
                }
                None => self.say_goodbye(),
            }
        }
        let mut bytes = [0; 16 << 10];
        while let count @ 1.. = self.tls.read(&mut bytes) {
            // Whatever a server says to one that leaves without a request.
            if self.phase == Phase::Page {
                self.page.take(&bytes[..count])?;
            }
        }
        if let (Phase::Page, Some(length)) = (self.phase, page)
            && self.page.is_whole(length)?
        {
            self.say_goodbye();
        }
        Ok(())
    }

    fn say_goodbye(&mut self) {
        self.latency = Some(self.begun.elapsed());
        self.phase = Phase::Goodbye;
        self.tls.say_goodbye();
    }
}

/// An answer to a request for the page.
#[derive(Default)]
struct Page {
    /// The head, while it is not complete.
    head: Vec<u8>,
    /// Bytes after the head.
    body: Option<u64>,
}

impl Page {
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let Some(body) = &mut self.body {
            *body += bytes.len() as u64;
            return Ok(());
        }
        self.head.extend(bytes);
        let Some(end) = self
            .head
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
        else {
            return Ok(());
        };
        let status = self.head.split(|&byte| byte == b'\r').next();
        let status = String::from_utf8_lossy(status.unwrap_or_default());
        if status.split(' ').nth(1) != Some("200") {
            return Err(format!("the server answered {status:?}"));
        }
        self.body = Some((self.head.len() - end - 4) as u64);
        Ok(())
    }

    fn is_whole(&self, length: u64) -> Result<bool, String> {
        match self.body {
            Some(more) if more > length => Err(format!("the page has {more} bytes and more")),
            body => Ok(body == Some(length)),
        }
    }
}

fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_when_its_last_byte_is_there() {
        let mut page = Page::default();
        for (bytes, whole) in [
            (&b"HTTP/1.1 200 OK\r\nA: b\r"[..], false),
            (b"\n\r\n12", false),
            (b"3", false),
            (b"4", true),
        ] {
            page.take(bytes).unwrap();
            assert_eq!(page.is_whole(4), Ok(whole), "{bytes:?}");
        }
        page.take(b"5").unwrap();
        assert!(page.is_whole(4).is_err());
        let refused = Page::default().take(b"HTTP/1.1 404 Not Found\r\n\r\n");
        assert!(refused.unwrap_err().contains("404"));
    }
}
