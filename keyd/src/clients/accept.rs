//! The thread that accepts clients, and notices when they end.
//!
//! It waits for all sockets at once, and never for a single client. A client that does not send its
//! greeting in time, or does not read its answer, loses its connection. A process that may use no
//! key is rejected at once. So such processes never take a place from others, even under many user
//! IDs.
//!
//! A place is a ring and a socket. Clients that make requests keep their places. An idle client
//! loses its place to a pending one, and connects again with its next request. So the number of
//! processes that use the daemon has no limit. If the clients of all places make requests, pending
//! clients wait in a queue.

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

/// Number of clients up to which idle ones keep their places.
const FEW_CLIENTS: usize = 100;
/// Above [`FEW_CLIENTS`] clients, idle time after which a client loses its place.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum time that a client may take to send its greeting, and to read the list of keys.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum time in the queue for a place: less than a client waits for the daemon's answer.
const QUEUE_TIME: Duration = Duration::from_millis(2500);
/// Interval at which the thread looks for free places while clients are queued.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval at which the thread looks for late connections and outdated lists.
const TICK: Duration = Duration::from_millis(100);
/// Number of pending connections for each place.
const PENDING_PER_PLACE: usize = 4;
/// Pause after an error for lack of descriptors or memory.
const BACKOFF: Duration = Duration::from_millis(10);
/// Number of connections that are accepted in one round. A client that connects all the time must
/// not keep the thread from its other work.
const ACCEPTS_PER_ROUND: usize = 32;

/// Number of clients that lose an outdated list of keys in each [`TICK`].
const REFRESHES_PER_TICK: usize = 32;

/// Number that epoll reports for the end of the daemon. Listeners have the numbers from [`FIRST`],
/// and connections the numbers after those.
const END: u64 = 0;
/// Number that epoll reports for removed keys.
const REMOVED: u64 = u64::MAX;
const FIRST: u64 = 1;
/// Maximum number of events in one round.
const EVENTS: usize = 1024;
/// Events of a client that has hung up. epoll reports the last two even if they are not requested.
const HUNG_UP: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// A connection that is not a client yet.
struct Pending {
    stream: UnixStream,
    peer: Credentials,
    account: Account,
    stage: Stage,
    /// The version that both sides speak, valid after the greeting.
    version: u32,
    /// Start of the stage.
    since: Instant,
    /// The events of its socket that epoll reports.
    watched: EventFlags,
}

/// Progress of a pending connection.
enum Stage {
    /// The client sends its greeting, of which the daemon has this part.
    Greets(Vec<u8>),
    /// The client waits in the queue for a place.
    Waits,
    /// The client has a place, and reads its list of keys, of which `sent` bytes are sent.
    Reads {
        sent: usize,
        offer: Arc<Offer>,
        ring: Server,
    },
}

/// The state of the thread.
pub struct Acceptor {
    listeners: Vec<UnixListener>,
    /// Readable once the daemon is to end. Kept open for epoll.
    _end: UnixStream,
    configuration: Configuration,
    offers: Arc<Mutex<Offers>>,
    /// Readable once keys have been removed.
    removed: UnixStream,
    /// Whether some clients may have removed keys in their lists.
    has_outdated: bool,
    /// Time of the last disconnection for an outdated list.
    refreshed: Instant,
    served: Arc<Clients>,
    epoll: OwnedFd,
    /// Number of the next connection.
    next: u64,
    /// Pending connections by number, which is the order in which they came.
    pending: BTreeMap<u64, Pending>,
    /// Clients that have places, by number.
    clients: HashMap<u64, Arc<Client>>,
    /// Disconnected clients that still have requests in flight, and so their places.
    leaving: Vec<Arc<Client>>,
    /// Rate of each account. It outlives connections, so a new connection gains no requests.
    rates: HashMap<Account, Arc<Rate>>,
    idle_processes: IdleProcesses,
    journal: Journal,
}

impl Acceptor {
    /// Creates the state for these listeners.
    pub fn new(
        listeners: Vec<UnixListener>,
        (end, removed): (UnixStream, UnixStream),
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
        removed.set_nonblocking(true)?;
        add(&removed, REMOVED)?;
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
            removed,
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

    /// Takes over the clients that connected before the daemon could serve.
    pub fn take_early(&mut self, early: Vec<EarlyClient>) {
        for EarlyClient { stream, greeting } in early {
            // A client that has hung up meanwhile needs no answer.
            let _ = self.receive(stream, greeting);
        }
    }

    /// Works until the daemon is to end, or a listener fails. Pending clients lose their
    /// connections then, and find the next daemon at the same socket.
    pub fn run(mut self) -> io::Result<()> {
        while let Some(events) = self.wait()? {
            self.go_round(&events)?;
        }
        Ok(())
    }

    fn go_round(&mut self, events: &HashMap<u64, EventFlags>) -> io::Result<()> {
        // First, since it frees places.
        self.remove_ended(events);
        self.advance_pending(events);
        self.accept()?;
        self.leaving.retain(|own| own.ring.in_flight() > 0);
        self.admit_waiting();
        self.disconnect_long_idle();
        if events.contains_key(&REMOVED) {
            let _ = self.removed.read(&mut [0; 64]);
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

    /// Disconnects some clients whose lists have a removed key. They connect again with the new
    /// list. The key's memory is freed once all of them have left.
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

    /// Waits for events, and returns them; `None` if the daemon is to end.
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

    /// Returns the maximum time to wait. No event reports an idle place or a late connection.
    fn longest_wait(&self) -> Option<Duration> {
        let is_queued = |own: &Pending| matches!(own.stage, Stage::Waits);
        match (self.pending.is_empty(), self.leaving.is_empty()) {
            (false, _) if self.pending.values().any(is_queued) => Some(LOOK_EVERY),
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
                            // Everybody can cause this error, so its lines share the limit of
                            // processes without a key.
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

    /// Makes a connection pending, or rejects it. `greeting` has the bytes received so far.
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

    /// Returns whether an account may have one more pending connection: only while it has fewer
    /// than all accounts together may still get.
    fn is_within_bounds(&self, account: Account) -> bool {
        let waiting = self.pending.values();
        let own = waiting.filter(|own| own.account == account).count();
        let room = PENDING_PER_PLACE * self.configuration.max_clients;
        own < room.saturating_sub(self.pending.len())
    }

    /// Continues with each pending connection that has an event, and removes the late ones.
    fn advance_pending(&mut self, events: &HashMap<u64, EventFlags>) {
        for (&number, &event) in events {
            let Some(pending) = self.pending.remove(&number) else {
                continue;
            };
            let is_gone = event.intersects(HUNG_UP) && !matches!(pending.stage, Stage::Greets(_));
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

    /// Continues with a pending connection, and stops where it would have to wait.
    fn proceed(&mut self, number: u64, pending: Pending) {
        // An error means that the client has hung up, or does not read.
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

    /// Has epoll report these events; returns false if it cannot.
    fn watches(&self, number: u64, pending: &mut Pending, wanted: EventFlags) -> bool {
        let data = EventData::new_u64(number);
        let before = std::mem::replace(&mut pending.watched, wanted);
        let result = match before.is_empty() {
            true => epoll::add(&self.epoll, &pending.stream, data, wanted),
            false => epoll::modify(&self.epoll, &pending.stream, data, wanted),
        };
        result.is_ok()
    }

    /// Continues with the current stage. Returns the connection unless it has become a client or
    /// was rejected.
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

    /// Answers a greeting; returns the connection if it may wait for a place.
    fn answer(&mut self, mut pending: Pending, greeting: &[u8]) -> io::Result<Option<Pending>> {
        let greeting: Option<&[u8; GREETING]> = greeting.try_into().ok();
        // Other greetings get no answer.
        let Some(Ok(greeted)) = greeting.map(protocol::read_greeting) else {
            return Ok(None);
        };
        let Some(version) = protocol::common(greeted) else {
            return self.reject(&pending, Verdict::OtherVersion);
        };
        // Before the search for a place, which may disconnect another client.
        let verdict = self.offers().verdict(pending.peer, version);
        if let Some(verdict) = verdict {
            return self.reject(&pending, verdict);
        }
        pending.version = version;
        pending.stage = Stage::Waits;
        pending.since = Instant::now();
        Ok(Some(pending))
    }

    /// Gives places to queued connections, in their order.
    fn admit_waiting(&mut self) {
        let queued = |(number, own): (&u64, &Pending)| match own.stage {
            Stage::Waits => Some((*number, own.account, own.since.elapsed())),
            _ => None,
        };
        let queued: Vec<_> = self.pending.iter().filter_map(queued).collect();
        let mut full = Vec::new();
        for (number, account, waited) in queued {
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

    /// Creates a ring for a connection, and sends it. Returns the connection unless it is rejected.
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
        let verdict = protocol::verdict(pending.version, Verdict::Accepted, offer.list.len());
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

    /// Rejects a pending connection with a verdict.
    fn reject(&mut self, pending: &Pending, verdict: Verdict) -> io::Result<Option<Pending>> {
        let (peer, account) = (pending.peer, Some(pending.account));
        self.reject_process(&pending.stream, peer, account, verdict)?;
        Ok(None)
    }

    /// Rejects a process, which may have no account.
    fn reject_process(
        &mut self,
        mut stream: &UnixStream,
        Credentials { process, user, .. }: Credentials,
        account: Option<Account>,
        verdict: Verdict,
    ) -> io::Result<()> {
        let why = lockstep_remote::Failure::Rejected(verdict);
        let line = format_args!("refused process {process} of user {user}: {why}");
        self.journal.log(account, line);
        // The refusal fits into the buffer of a new socket.
        stream.write_all(&protocol::refusal(verdict))
    }

    /// Serves a connection that has read its whole list.
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

    /// Returns whether its stage has taken too long.
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

/// Rejects all clients at these sockets for `time`.
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

/// Writes as much of the rest as fits; returns whether nothing is left.
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

/// Ignores temporary errors of `accept` and `epoll_wait`, with a pause if the machine is out of a
/// resource. Returns all other errors.
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
