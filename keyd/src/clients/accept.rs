//! The thread at the socket: it welcomes clients, and notices when they end.
//!
//! It waits for all sockets at once, and for no single client. A client that does not send its
//! greeting in time, or does not read its answers, loses its connection. A process that may use no
//! key is sent away at once, so strangers take no place from others, however many users they are.
//!
//! A place is a ring and a socket. Places are for processes that make requests: a client that makes
//! none gives its place to a pending, and comes back with its next request. So any number of
//! processes can use the daemon. Where all places have requests, pending wait in line.

mod places;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{self, GREETING, Verdict};
use lockstep_ring::{Credentials, Server, credentials, send};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::clients::client::{Client, Clients};
use crate::clients::early_clients::{EarlyClient, EarlyClients, is_for_later, read_on};
use crate::clients::idle::IdleProcesses;
use crate::clients::journal::Journal;
use crate::clients::limits::Rate;
use crate::keyd_conf::Configuration;
use crate::keys::access::Account;
use crate::keys::offers::{Offer, Offers};
use places::{FEW_CLIENTS, IDLE};

/// How long a client may take for its greeting, and to take the list of keys.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a newcomer waits in line: a little less than it waits for a welcome.
const QUEUE_TIME: Duration = Duration::from_millis(2500);
/// How often the thread looks for places while pending wait in line, and how often it looks at
/// what else no event tells of.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(100);
/// How many pending there may be for each place.
const PENDING_PER_PLACE: usize = 4;
/// How long the thread does nothing where the machine is out of descriptors or memory: it must not
/// burn the CPU.
const BACKOFF: Duration = Duration::from_millis(10);
/// How many connections are accepted before anything else is looked at: a client that connects all
/// the time must not keep this thread from the others, and from its end.
const ACCEPTS_PER_ROUND: usize = 32;

/// How many clients at a time have to ask for the list of keys anew, each [`TICK`].
const REFRESHES_PER_TICK: usize = 32;

/// What epoll calls the end, and the first listener. The others follow, and then all who come.
const END: u64 = 0;
/// Keys have left.
const LEFT: u64 = u64::MAX;
const FIRST: u64 = 1;
/// How many events the thread takes at a time.
const EVENTS: usize = 1024;
/// The other side has hung up. The last two are always told of.
const HUNG_UP: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// A connection before it is a client.
struct Pending {
    stream: UnixStream,
    peer: Credentials,
    account: Account,
    stage: Stage,
    /// The version that both speak, once it has greeted.
    version: u32,
    /// When the stage began.
    since: Instant,
    /// What epoll tells of its socket.
    watched: EventFlags,
}

/// How far a newcomer is.
enum Stage {
    /// This much of its greeting has come.
    Greets(Vec<u8>),
    /// It waits in line for a place.
    Waits,
    /// It is welcome, and so much of what it is offered is sent.
    Reads {
        sent: usize,
        offer: Arc<Offer>,
        ring: Server,
    },
}

/// What the thread needs to know.
pub struct Acceptor {
    listeners: Vec<UnixListener>,
    /// Has something to read once the daemon is to end. Epoll tells of it.
    _end: UnixStream,
    configuration: Configuration,
    offers: Arc<Mutex<Offers>>,
    /// Has something to read once keys have left.
    left: UnixStream,
    /// Some clients may have keys in their lists that have left.
    has_outdated: bool,
    /// When some of them were sent to ask anew.
    refreshed: Instant,
    served: Arc<Clients>,
    epoll: OwnedFd,
    /// The number of the next connection.
    next: u64,
    /// By their numbers, and so in the order in which they came.
    pending: BTreeMap<u64, Pending>,
    /// Those that have places, by their numbers.
    clients: HashMap<u64, Arc<Client>>,
    /// Those that have hung up, as long as they take places by requests that they have made.
    leaving: Vec<Arc<Client>>,
    /// How often an account may ask. It outlives connections: to connect anew gains nothing.
    rates: HashMap<Account, Arc<Rate>>,
    idle_processes: IdleProcesses,
    journal: Journal,
}

impl Acceptor {
    /// The thread for these sockets.
    pub fn new(
        listeners: Vec<UnixListener>,
        (end, left): (UnixStream, UnixStream),
        configuration: Configuration,
        offers: Arc<Mutex<Offers>>,
        served: Arc<Clients>,
    ) -> io::Result<Acceptor> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let add = |socket: &dyn AsFd, number| {
            let (socket, data) = (socket.as_fd(), EventData::new_u64(number));
            epoll::add(&epoll, socket, data, EventFlags::IN)
        };
        add(&end, END)?;
        left.set_nonblocking(true)?;
        add(&left, LEFT)?;
        let mut next = FIRST;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
            add(listener, next)?;
            next += 1;
        }
        Ok(Acceptor {
            listeners,
            _end: end,
            configuration,
            offers,
            left,
            has_outdated: false,
            refreshed: Instant::now(),
            served,
            epoll,
            next,
            pending: BTreeMap::new(),
            clients: HashMap::new(),
            leaving: Vec::new(),
            rates: HashMap::new(),
            idle_processes: IdleProcesses::default(),
            journal: Journal::default(),
        })
    }

    /// Takes in the clients that have come before.
    pub fn take_early(&mut self, early: Vec<EarlyClient>) {
        for EarlyClient { stream, greeting } in early {
            // A client that has hung up meanwhile needs nothing.
            let _ = self.receive(stream, greeting);
        }
    }

    /// Works until the daemon is to end, or a socket fails. Who is not welcomed by then loses the
    /// connection, and finds the next daemon at the same socket.
    pub fn run(mut self) -> io::Result<()> {
        while let Some(events) = self.wait()? {
            self.go_round(&events)?;
        }
        Ok(())
    }

    fn go_round(&mut self, events: &HashMap<u64, EventFlags>) -> io::Result<()> {
        // First, since it makes room for the others.
        self.remove_ended(events);
        self.advance_pending(events);
        self.accept()?;
        self.leaving.retain(|own| own.ring.in_flight() > 0);
        self.admit_waiting();
        self.disconnect_long_idle();
        if events.contains_key(&LEFT) {
            let _ = self.left.read(&mut [0; 64]);
            self.has_outdated = true;
        }
        if self.has_outdated && self.refreshed.elapsed() >= TICK {
            self.refresh_outdated();
        }
        Ok(())
    }

    fn offers(&self) -> MutexGuard<'_, Offers> {
        self.offers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has some clients come anew that have a key in their list that has left. Nobody holds that
    /// key any more once all have.
    fn refresh_outdated(&mut self) {
        let outdated = self.clients.iter().filter(|(_, own)| own.is_outdated());
        let outdated: Vec<u64> = outdated
            .map(|(number, _)| *number)
            .take(REFRESHES_PER_TICK)
            .collect();
        self.has_outdated = outdated.len() == REFRESHES_PER_TICK;
        self.refreshed = Instant::now();
        self.disconnect_idle(&outdated);
    }

    /// Waits until something happens at any socket, and returns what; None if the daemon is to end.
    fn wait(&self) -> io::Result<Option<HashMap<u64, EventFlags>>> {
        let time = self.longest_wait();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let mut events = Vec::with_capacity(EVENTS);
        let waited = epoll::wait(&self.epoll, spare_capacity(&mut events), time.as_ref());
        if let Err(error) = waited {
            pass_over(error.into())?;
        }
        let events = events.into_iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            (data.u64(), flags)
        });
        let events: HashMap<_, _> = events.collect();
        Ok((!events.contains_key(&END)).then_some(events))
    }

    /// For how long the thread may wait: no event tells of a place that has become idle, or of a
    /// newcomer that is late.
    fn longest_wait(&self) -> Option<Duration> {
        let is_in_line = |own: &Pending| matches!(own.stage, Stage::Waits);
        match (self.pending.is_empty(), self.leaving.is_empty()) {
            (false, _) if self.pending.values().any(is_in_line) => Some(LOOK_EVERY),
            _ if self.has_outdated => Some(TICK),
            (true, true) if self.clients.len() <= FEW_CLIENTS => None,
            (true, true) => Some(IDLE),
            _ => Some(TICK),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        for place in 0..self.listeners.len() {
            for _ in 0..ACCEPTS_PER_ROUND {
                match self.listeners[place].accept() {
                    Ok((stream, _)) => {
                        if let Err(error) = self.receive(stream, Vec::new()) {
                            // Anybody may cause that: it counts as what strangers do.
                            let line = format_args!("a client was not accepted: {error}");
                            self.journal.log(None, line);
                        }
                    }
                    Err(error) => {
                        pass_over(error)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Has a connection wait at the door, of which this much of the greeting has come, or sends it
    /// away.
    fn receive(&mut self, stream: UnixStream, greeting: Vec<u8>) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let peer = credentials(&stream)?;
        let Some(account) = self.offers().account(peer) else {
            return self.reject_process(&stream, peer, None, Verdict::Stranger);
        };
        let pending = Pending {
            stream,
            peer,
            account,
            stage: Stage::Greets(greeting),
            version: protocol::EARLIER,
            since: Instant::now(),
            watched: EventFlags::empty(),
        };
        if !self.is_within_bounds(account) {
            self.reject(&pending, Verdict::Full)?;
            return Ok(());
        }
        let number = self.next;
        self.next += 1;
        self.proceed(number, pending);
        Ok(())
    }

    /// Whether one more newcomer of an account may wait. The others have always as much room as it.
    fn is_within_bounds(&self, account: Account) -> bool {
        let waiting = self.pending.values();
        let own = waiting.filter(|own| own.account == account).count();
        let room = PENDING_PER_PLACE * self.configuration.max_clients;
        own < room.saturating_sub(self.pending.len())
    }

    /// Goes on with each newcomer of whom there is news, and sends away those that are late.
    fn advance_pending(&mut self, events: &HashMap<u64, EventFlags>) {
        for (&number, &news) in events {
            let Some(pending) = self.pending.remove(&number) else {
                continue;
            };
            let is_gone = news.intersects(HUNG_UP) && !matches!(pending.stage, Stage::Greets(_));
            if !is_gone {
                self.proceed(number, pending);
            }
        }
        let late = self.pending.iter().filter(|(_, own)| own.is_late());
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(pending) = self.pending.remove(&number)
                && let Stage::Waits = pending.stage
            {
                let _ = self.reject(&pending, Verdict::Full);
            }
        }
    }

    /// Goes on with a newcomer as far as it can without waiting.
    fn proceed(&mut self, number: u64, pending: Pending) {
        // An error means that it has hung up, or does not take what is sent.
        let Ok(Some(mut pending)) = self.advance(number, pending) else {
            return;
        };
        let wanted = match pending.stage {
            Stage::Greets(_) => EventFlags::IN,
            Stage::Waits => EventFlags::RDHUP,
            Stage::Reads { .. } => EventFlags::OUT.union(EventFlags::RDHUP),
        };
        if self.watches(number, &mut pending, wanted) {
            self.pending.insert(number, pending);
        }
    }

    /// Has epoll tell of this; false if it cannot.
    fn watches(&self, number: u64, pending: &mut Pending, wanted: EventFlags) -> bool {
        let data = EventData::new_u64(number);
        let before = std::mem::replace(&mut pending.watched, wanted);
        let told = match before.is_empty() {
            true => epoll::add(&self.epoll, &pending.stream, data, wanted),
            false => epoll::modify(&self.epoll, &pending.stream, data, wanted),
        };
        told.is_ok()
    }

    /// Goes on with a pending; returns it unless it is a client now, or sent away.
    fn advance(&mut self, number: u64, mut pending: Pending) -> io::Result<Option<Pending>> {
        match &mut pending.stage {
            Stage::Greets(greeting) => {
                if !read_on(&pending.stream, greeting)? {
                    return Ok(Some(pending));
                }
                let greeting = std::mem::take(greeting);
                self.answer(pending, &greeting)
            }
            Stage::Waits => Ok(Some(pending)),
            Stage::Reads { sent, offer, .. } => {
                if write_on(&pending.stream, &offer.list, sent)? {
                    self.add_client(number, pending);
                    return Ok(None);
                }
                Ok(Some(pending))
            }
        }
    }

    /// Answers a greeting; returns the newcomer if it may wait for a place.
    fn answer(&mut self, mut pending: Pending, greeting: &[u8]) -> io::Result<Option<Pending>> {
        let greeting: Option<&[u8; GREETING]> = greeting.try_into().ok();
        // Others are no clients.
        let Some(Ok(greeted)) = greeting.map(protocol::read_greeting) else {
            return Ok(None);
        };
        let Some(version) = protocol::common(greeted) else {
            return self.reject(&pending, Verdict::OtherVersion);
        };
        // Before a place is looked for, which may be taken from another client.
        let verdict = self.offers().verdict(pending.peer, version);
        if let Some(verdict) = verdict {
            return self.reject(&pending, verdict);
        }
        pending.version = version;
        pending.stage = Stage::Waits;
        pending.since = Instant::now();
        Ok(Some(pending))
    }

    /// Gives places to those who wait for one, in their order.
    fn admit_waiting(&mut self) {
        let in_line = |(number, own): (&u64, &Pending)| match own.stage {
            Stage::Waits => Some((*number, own.account, own.since.elapsed())),
            _ => None,
        };
        let in_line: Vec<_> = self.pending.iter().filter_map(in_line).collect();
        let mut full = Vec::new();
        for (number, account, waited) in in_line {
            if full.contains(&account) {
                continue;
            }
            if !self.finds_place(account, waited) {
                full.push(account);
                continue;
            }
            if let Some(pending) = self.pending.remove(&number)
                && let Ok(Some(pending)) = self.admit(pending)
            {
                self.proceed(number, pending);
            }
        }
    }

    /// Makes a ring for a pending, and sends it; returns the newcomer unless it is sent away.
    fn admit(&mut self, mut pending: Pending) -> io::Result<Option<Pending>> {
        let offer = self.offers().of(pending.peer, pending.version);
        let offer = match offer {
            Ok(offer) => offer,
            Err(verdict) => return self.reject(&pending, verdict),
        };
        let made = Server::create_for(self.configuration.queue, offer.answers());
        let Ok((ring, descriptor)) = made else {
            return self.reject(&pending, Verdict::Failed);
        };
        // The ring comes with the verdict, which fits into the buffer of a new socket.
        let verdict = protocol::verdict(pending.version, Verdict::Welcome, offer.list.len());
        if send(&pending.stream, &verdict, descriptor.as_fd())? != verdict.len() {
            return Ok(None);
        }
        // The client may wait for an answer before any thread has looked at its ring.
        ring.beat();
        let sent = 0;
        pending.stage = Stage::Reads { sent, offer, ring };
        pending.since = Instant::now();
        Ok(Some(pending))
    }

    /// Sends a newcomer away, and says why.
    fn reject(&mut self, pending: &Pending, verdict: Verdict) -> io::Result<Option<Pending>> {
        let (peer, account) = (pending.peer, Some(pending.account));
        self.reject_process(&pending.stream, peer, account, verdict)?;
        Ok(None)
    }

    /// The same for a process that may have no account.
    fn reject_process(
        &mut self,
        mut stream: &UnixStream,
        Credentials { process, user, .. }: Credentials,
        account: Option<Account>,
        verdict: Verdict,
    ) -> io::Result<()> {
        let why = lockstep_remote::Failure::Unwelcome(verdict);
        let line = format_args!("refused process {process} of user {user}: {why}");
        self.journal.log(account, line);
        // That fits into the buffer of a new socket.
        stream.write_all(&protocol::refusal(verdict))
    }

    /// Serves a newcomer that has taken all it was sent.
    fn add_client(&mut self, number: u64, mut pending: Pending) {
        if !self.watches(number, &mut pending, EventFlags::RDHUP) {
            return;
        }
        let Stage::Reads { offer, ring, .. } = pending.stage else {
            return;
        };
        self.has_outdated |= offer.is_outdated();
        let (peer, account) = (pending.peer, pending.account);
        if !self.idle_processes.has_come_back(peer) {
            let (pid, user, count) = (peer.process, peer.user, offer.count());
            let line =
                format_args!("serves process {pid} of user {user}, which may use {count} keys");
            self.journal.log(Some(account), line);
        }
        let most = self.configuration.rate;
        let fresh = || Arc::new(Rate::new(most, most, Instant::now()));
        let rate = Arc::clone(self.rates.entry(account).or_insert_with(fresh));
        let (who, at) = ((peer, account), (ring, pending.stream));
        let client = Arc::new(Client::new(who, offer, at, rate));
        self.clients.insert(number, Arc::clone(&client));
        self.served.change(|clients| clients.push(client));
    }
}

impl Pending {
    fn is_admitted(&self) -> bool {
        matches!(self.stage, Stage::Reads { .. })
    }

    /// Whether it has had the time that its stage may take.
    fn is_late(&self) -> bool {
        self.since.elapsed() >= self.patience()
    }

    fn patience(&self) -> Duration {
        match self.stage {
            Stage::Waits => QUEUE_TIME,
            _ => PATIENCE,
        }
    }
}

/// Tells all who come to these sockets for some time that the daemon cannot serve them.
pub fn reject_all(listeners: &[UnixListener], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let waiting = EarlyClients::collect(listeners);
        std::thread::sleep(TICK);
        for EarlyClient { mut stream, .. } in
            waiting.map_or_else(|_| Vec::new(), EarlyClients::take)
        {
            let _ = stream.write_all(&protocol::refusal(Verdict::Failed));
        }
    }
}

/// Writes what there is room for of what is not sent yet; whether that was all.
fn write_on(mut stream: &UnixStream, all: &[u8], sent: &mut usize) -> io::Result<bool> {
    while let Some(rest) = all.get(*sent..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(count) => *sent += count,
            Err(error) if is_for_later(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Passes over an error of `accept` or `epoll_wait` that passes, and waits for a moment where the
/// machine is out of something; returns all others.
fn pass_over(error: io::Error) -> io::Result<()> {
    use rustix::io::Errno;
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN | Errno::INTR) => {}
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::CONNABORTED) => {
            std::thread::sleep(BACKOFF);
        }
        _ => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
