//! The thread at the socket: it welcomes clients, and notices when they end.
//!
//! It waits for all sockets at once, and for no single client. A client that does not send its
//! greeting in time, or does not read its answers, loses its connection. A process that may use no
//! key is sent away at once, so strangers take no place from others, however many users they are.
//!
//! A place is a ring and a socket. Places are for processes that make requests: a client that makes
//! none gives its place to a newcomer, and comes back with its next request. So any number of
//! processes can use the daemon. Where all places have requests, newcomers wait in line.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{self, GREETING, Verdict};
use lockstep_ring::{Closing, Credentials, Server, credentials, send};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::clients::client::{BRIEFLY_IDLE, Client, Offer, Offers};
use crate::clients::idlers::Idlers;
use crate::clients::porch::{Guest, Porch, is_for_later, read_on};
use crate::clients::rate::Rate;
use crate::fault::{KEPT_REQUESTS, is_planted};
use crate::keyd_conf::Configuration;
use crate::keys::access::Account;
use crate::serve::Service;
use crate::system::journal::{Journal, log_all};

/// How long a client may take for its greeting, and to take the list of keys.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a newcomer waits in line: a little less than it waits for a welcome.
const LINE: Duration = Duration::from_millis(2500);
/// How often the thread looks for places while newcomers wait in line, and how often it looks at
/// what else no event tells of.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(100);
/// So many clients may be idle for as long as they like.
const AT_EASE: usize = 100;
/// Beyond that number a client that has been idle for so long loses its place.
const IDLE: Duration = Duration::from_secs(1);
/// Where no place is free, a client that has been [briefly idle](BRIEFLY_IDLE) loses its own. Once
/// a newcomer has waited for so long, any client does that waits for no answer.
const LONG_ENOUGH: Duration = Duration::from_millis(100);
/// How many newcomers there may be for each place.
const NEWCOMERS: usize = 4;
/// How long the thread does nothing where the machine is out of descriptors or memory: it must not
/// burn the CPU.
const A_MOMENT: Duration = Duration::from_millis(10);
/// How many connections are accepted before anything else is looked at: a client that connects all
/// the time must not keep this thread from the others, and from its end.
const AT_ONCE: usize = 32;

/// How many clients at a time have to ask for the list of keys anew, each [`TICK`].
const AT_A_TIME: usize = 32;

/// What epoll calls the end, and the first listener. The others follow, and then all who come.
const END: u64 = 0;
/// Keys have left.
const LEFT: u64 = u64::MAX;
const FIRST: u64 = 1;
/// How many events the thread takes at a time.
const EVENTS: usize = 1024;
/// The other side has hung up. The last two are always told of.
const GONE: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR);

/// A connection before it is a client.
struct Newcomer {
    stream: UnixStream,
    peer: Credentials,
    account: Account,
    stage: Stage,
    /// The version that both speak, once it has greeted.
    version: u32,
    /// When the stage began.
    since: Instant,
    /// What epoll tells of its socket.
    told: EventFlags,
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
pub struct Doorkeeper {
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
    service: Arc<Service>,
    epoll: OwnedFd,
    /// The number of the next connection.
    next: u64,
    /// By their numbers, and so in the order in which they came.
    newcomers: BTreeMap<u64, Newcomer>,
    /// Those that have places, by their numbers.
    clients: HashMap<u64, Arc<Client>>,
    /// Those that have hung up, as long as they take places by requests that they have made.
    leaving: Vec<Arc<Client>>,
    /// How often an account may ask. It outlives connections: to connect anew gains nothing.
    rates: HashMap<Account, Arc<Rate>>,
    idlers: Idlers,
    journal: Journal,
}

impl Doorkeeper {
    /// The thread for these sockets.
    pub fn new(
        listeners: Vec<UnixListener>,
        (end, left): (UnixStream, UnixStream),
        configuration: Configuration,
        offers: Arc<Mutex<Offers>>,
        service: Arc<Service>,
    ) -> io::Result<Doorkeeper> {
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
        Ok(Doorkeeper {
            listeners,
            _end: end,
            configuration,
            offers,
            left,
            has_outdated: false,
            refreshed: Instant::now(),
            service,
            epoll,
            next,
            newcomers: BTreeMap::new(),
            clients: HashMap::new(),
            leaving: Vec::new(),
            rates: HashMap::new(),
            idlers: Idlers::default(),
            journal: Journal::default(),
        })
    }

    /// Takes in the clients that have come before.
    pub fn take_in(&mut self, guests: Vec<Guest>) {
        for Guest { stream, greeting } in guests {
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
        self.see_off(events);
        self.greet(events);
        self.accept()?;
        self.leaving.retain(|own| own.ring.in_flight() > 0);
        self.seat();
        self.send_idle_away();
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
            .take(AT_A_TIME)
            .collect();
        self.has_outdated = outdated.len() == AT_A_TIME;
        self.refreshed = Instant::now();
        self.dismiss(&outdated);
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
        let is_in_line = |own: &Newcomer| matches!(own.stage, Stage::Waits);
        match (self.newcomers.is_empty(), self.leaving.is_empty()) {
            (false, _) if self.newcomers.values().any(is_in_line) => Some(LOOK_EVERY),
            _ if self.has_outdated => Some(TICK),
            (true, true) if self.clients.len() <= AT_EASE => None,
            (true, true) => Some(IDLE),
            _ => Some(TICK),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        for place in 0..self.listeners.len() {
            for _ in 0..AT_ONCE {
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
            return self.send_away(&stream, peer, None, Verdict::Stranger);
        };
        let newcomer = Newcomer {
            stream,
            peer,
            account,
            stage: Stage::Greets(greeting),
            version: protocol::EARLIER,
            since: Instant::now(),
            told: EventFlags::empty(),
        };
        if !self.is_within_bounds(account) {
            self.refuse(&newcomer, Verdict::Full)?;
            return Ok(());
        }
        let number = self.next;
        self.next += 1;
        self.go_on(number, newcomer);
        Ok(())
    }

    /// Whether one more newcomer of an account may wait. The others have always as much room as it.
    fn is_within_bounds(&self, account: Account) -> bool {
        let waiting = self.newcomers.values();
        let own = waiting.filter(|own| own.account == account).count();
        let room = NEWCOMERS * self.configuration.max_clients;
        own < room.saturating_sub(self.newcomers.len())
    }

    /// Goes on with each newcomer of whom there is news, and sends away those that are late.
    fn greet(&mut self, events: &HashMap<u64, EventFlags>) {
        for (&number, &news) in events {
            let Some(newcomer) = self.newcomers.remove(&number) else {
                continue;
            };
            let is_gone = news.intersects(GONE) && !matches!(newcomer.stage, Stage::Greets(_));
            if !is_gone {
                self.go_on(number, newcomer);
            }
        }
        let late = self.newcomers.iter().filter(|(_, own)| own.is_late());
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            if let Some(newcomer) = self.newcomers.remove(&number)
                && let Stage::Waits = newcomer.stage
            {
                let _ = self.refuse(&newcomer, Verdict::Full);
            }
        }
    }

    /// Goes on with a newcomer as far as it can without waiting.
    fn go_on(&mut self, number: u64, newcomer: Newcomer) {
        // An error means that it has hung up, or does not take what is sent.
        let Ok(Some(mut newcomer)) = self.advance(number, newcomer) else {
            return;
        };
        let wanted = match newcomer.stage {
            Stage::Greets(_) => EventFlags::IN,
            Stage::Waits => EventFlags::RDHUP,
            Stage::Reads { .. } => EventFlags::OUT.union(EventFlags::RDHUP),
        };
        if self.has_told(number, &mut newcomer, wanted) {
            self.newcomers.insert(number, newcomer);
        }
    }

    /// Has epoll tell of this; false if it cannot.
    fn has_told(&self, number: u64, newcomer: &mut Newcomer, wanted: EventFlags) -> bool {
        let data = EventData::new_u64(number);
        let before = std::mem::replace(&mut newcomer.told, wanted);
        let told = match before.is_empty() {
            true => epoll::add(&self.epoll, &newcomer.stream, data, wanted),
            false => epoll::modify(&self.epoll, &newcomer.stream, data, wanted),
        };
        told.is_ok()
    }

    /// Goes on with a newcomer; returns it unless it is a client now, or sent away.
    fn advance(&mut self, number: u64, mut newcomer: Newcomer) -> io::Result<Option<Newcomer>> {
        match &mut newcomer.stage {
            Stage::Greets(greeting) => {
                if !read_on(&newcomer.stream, greeting)? {
                    return Ok(Some(newcomer));
                }
                let greeting = std::mem::take(greeting);
                self.answer(newcomer, &greeting)
            }
            Stage::Waits => Ok(Some(newcomer)),
            Stage::Reads { sent, offer, .. } => {
                if write_on(&newcomer.stream, &offer.list, sent)? {
                    self.admit(number, newcomer);
                    return Ok(None);
                }
                Ok(Some(newcomer))
            }
        }
    }

    /// Answers a greeting; returns the newcomer if it may wait for a place.
    fn answer(&mut self, mut newcomer: Newcomer, greeting: &[u8]) -> io::Result<Option<Newcomer>> {
        let greeting: Option<&[u8; GREETING]> = greeting.try_into().ok();
        // Others are no clients.
        let Some(Ok(greeted)) = greeting.map(protocol::read_greeting) else {
            return Ok(None);
        };
        let Some(version) = protocol::common(greeted) else {
            return self.refuse(&newcomer, Verdict::OtherVersion);
        };
        // Before a place is looked for, which may be taken from another client.
        let verdict = self.offers().verdict(newcomer.peer, version);
        if let Some(verdict) = verdict {
            return self.refuse(&newcomer, verdict);
        }
        newcomer.version = version;
        newcomer.stage = Stage::Waits;
        newcomer.since = Instant::now();
        Ok(Some(newcomer))
    }

    /// Gives places to those who wait for one, in their order.
    fn seat(&mut self) {
        let in_line = |(number, own): (&u64, &Newcomer)| match own.stage {
            Stage::Waits => Some((*number, own.account, own.since.elapsed())),
            _ => None,
        };
        let in_line: Vec<_> = self.newcomers.iter().filter_map(in_line).collect();
        let mut full = Vec::new();
        for (number, account, waited) in in_line {
            if full.contains(&account) {
                continue;
            }
            if !self.finds_place(account, waited) {
                full.push(account);
                continue;
            }
            if let Some(newcomer) = self.newcomers.remove(&number)
                && let Ok(Some(newcomer)) = self.welcome(newcomer)
            {
                self.go_on(number, newcomer);
            }
        }
    }

    /// Makes a ring for a newcomer, and sends it; returns the newcomer unless it is sent away.
    fn welcome(&mut self, mut newcomer: Newcomer) -> io::Result<Option<Newcomer>> {
        let offer = self.offers().of(newcomer.peer, newcomer.version);
        let offer = match offer {
            Ok(offer) => offer,
            Err(verdict) => return self.refuse(&newcomer, verdict),
        };
        let made = Server::create_for(self.configuration.queue, offer.answers());
        let Ok((ring, descriptor)) = made else {
            return self.refuse(&newcomer, Verdict::Failed);
        };
        // The ring comes with the verdict, which fits into the buffer of a new socket.
        let verdict = protocol::verdict(newcomer.version, Verdict::Welcome, offer.list.len());
        if send(&newcomer.stream, &verdict, descriptor.as_fd())? != verdict.len() {
            return Ok(None);
        }
        // The client may wait for an answer before any thread has looked at its ring.
        ring.beat();
        let sent = 0;
        newcomer.stage = Stage::Reads { sent, offer, ring };
        newcomer.since = Instant::now();
        Ok(Some(newcomer))
    }

    /// Whether there is a place for one more process of this account, perhaps that of a client that
    /// is idle. It has waited for so long.
    fn finds_place(&mut self, account: Account, waited: Duration) -> bool {
        let places = self.places();
        let used: usize = places.values().sum();
        let own = places.get(&account).copied().unwrap_or(0);
        // An account never has more places than are left to the others.
        let is_free = own < self.configuration.max_clients_per_user
            && own < self.configuration.max_clients.saturating_sub(used);
        if is_free {
            if used >= AT_EASE
                && let Some(idle) = self.idle(IDLE, None).first()
            {
                self.dismiss(&[*idle]);
            }
            return true;
        }
        // Its own account gives a place, or the one that has most, the newcomer counted.
        let most = places.iter().max_by_key(|(_, count)| **count);
        let most = most.filter(|(_, count)| **count > own + 1);
        let most = most.filter(|_| own < self.configuration.max_clients_per_user);
        let givers = [most.map(|(account, _)| *account), Some(account)];
        let mut givers = givers.into_iter().flatten();
        let at_least = match waited < LONG_ENOUGH {
            true => BRIEFLY_IDLE,
            false => Duration::ZERO,
        };
        let idle = givers.find_map(|giver| self.idle(at_least, Some(giver)).first().copied());
        if let Some(idle) = idle {
            self.dismiss(&[idle]);
        }
        idle.is_some()
    }

    /// How many places each account has. A client that has hung up has its place until its last
    /// request is gone.
    fn places(&self) -> HashMap<Account, usize> {
        let mut places = HashMap::new();
        let welcome = self.newcomers.values().filter(|own| own.is_welcome());
        let leaving = match is_planted(KEPT_REQUESTS) {
            true => &[],
            false => &self.leaving[..],
        };
        let clients = self.clients.values().chain(leaving);
        let accounts = clients.map(|own| own.account);
        for account in accounts.chain(welcome.map(|own| own.account)) {
            *places.entry(account).or_insert(0) += 1;
        }
        places
    }

    /// The clients that have been idle for at least so long, the longest one first.
    fn idle(&self, at_least: Duration, of: Option<Account>) -> Vec<u64> {
        let now = Instant::now();
        let clients = self.clients.iter();
        let clients = clients.filter(|(_, own)| of.is_none_or(|account| own.account == account));
        let idle = clients.filter_map(|(number, own)| Some((own.idle(now)?, *number)));
        let mut idle: Vec<_> = idle.filter(|(time, _)| *time >= at_least).collect();
        idle.sort_unstable_by(|one, other| other.cmp(one));
        idle.into_iter().map(|(_, number)| number).collect()
    }

    /// Takes the places of these clients away. Each comes back with its next request, and makes a
    /// request again that it makes at this moment.
    fn dismiss(&mut self, numbers: &[u64]) {
        for client in self.part_with(numbers, Closing::Idle) {
            self.idlers.note(client.peer);
        }
        log_all(self.idlers.line(Instant::now()));
    }

    /// Takes places away from clients that have been idle for long, while there are many.
    fn send_idle_away(&mut self) {
        let too_many = self.clients.len().saturating_sub(AT_EASE);
        if too_many > 0 {
            let mut idle = self.idle(IDLE, None);
            idle.truncate(too_many);
            self.dismiss(&idle);
        }
    }

    /// Has these clients leave; returns them.
    fn part_with(&mut self, numbers: &[u64], why: Closing) -> Vec<Arc<Client>> {
        let gone = numbers
            .iter()
            .filter_map(|number| self.clients.remove(number));
        let gone: Vec<_> = gone.collect();
        for client in &gone {
            // Its last request may keep the socket open.
            let _ = epoll::delete(&self.epoll, &client.stream);
            client.leave(why);
        }
        if !gone.is_empty() {
            let in_flight = gone.iter().filter(|own| own.ring.in_flight() > 0);
            self.leaving.extend(in_flight.cloned());
            self.service
                .clients
                .change(|clients| clients.retain(|client| !client.is_gone()));
            self.service.refresh();
        }
        gone
    }

    /// Sends a newcomer away, and says why.
    fn refuse(&mut self, newcomer: &Newcomer, verdict: Verdict) -> io::Result<Option<Newcomer>> {
        let (peer, account) = (newcomer.peer, Some(newcomer.account));
        self.send_away(&newcomer.stream, peer, account, verdict)?;
        Ok(None)
    }

    /// The same for a process that may have no account.
    fn send_away(
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
    fn admit(&mut self, number: u64, mut newcomer: Newcomer) {
        if !self.has_told(number, &mut newcomer, EventFlags::RDHUP) {
            return;
        }
        let Stage::Reads { offer, ring, .. } = newcomer.stage else {
            return;
        };
        self.has_outdated |= offer.is_outdated();
        let (peer, account) = (newcomer.peer, newcomer.account);
        if !self.idlers.has_come_back(peer) {
            let (pid, user, count) = (peer.process, peer.user, offer.count());
            let line =
                format_args!("serves process {pid} of user {user}, which may use {count} keys");
            self.journal.log(Some(account), line);
        }
        let most = self.configuration.rate;
        let fresh = || Arc::new(Rate::new(most, most, Instant::now()));
        let rate = Arc::clone(self.rates.entry(account).or_insert_with(fresh));
        let (who, at) = ((peer, account), (ring, newcomer.stream));
        let client = Arc::new(Client::new(who, offer, at, rate));
        self.clients.insert(number, Arc::clone(&client));
        self.service.clients.change(|clients| clients.push(client));
        self.service.refresh();
    }

    /// Forgets the clients that have ended.
    fn see_off(&mut self, events: &HashMap<u64, EventFlags>) {
        let gone = events.iter().filter(|(_, news)| news.intersects(GONE));
        let gone: Vec<u64> = gone.map(|(number, _)| *number).collect();
        for client in self.part_with(&gone, Closing::Unsaid) {
            let (served, refused) = client.counts();
            let faults = client.ring.faults();
            let (pid, user) = (client.peer.process, client.peer.user);
            let bad: u64 = [faults.malformed, faults.repeated].iter().sum();
            let line = format_args!(
                "process {pid} of user {user} has ended: {served} requests, {refused} refused, \
                 {bad} bad"
            );
            self.journal.log(Some(client.account), line);
        }
    }
}

impl Newcomer {
    fn is_welcome(&self) -> bool {
        matches!(self.stage, Stage::Reads { .. })
    }

    /// Whether it has had the time that its stage may take.
    fn is_late(&self) -> bool {
        self.since.elapsed() >= self.patience()
    }

    fn patience(&self) -> Duration {
        match self.stage {
            Stage::Waits => LINE,
            _ => PATIENCE,
        }
    }
}

/// Tells all who come to these sockets for some time that the daemon cannot serve them.
pub fn turn_away(listeners: &[UnixListener], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let porch = Porch::open(listeners);
        std::thread::sleep(TICK);
        for Guest { mut stream, .. } in porch.map_or_else(|_| Vec::new(), Porch::close) {
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
            std::thread::sleep(A_MOMENT);
        }
        _ => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    use lockstep_engine::{Config, MlDsa};
    use lockstep_remote::Operation;
    use lockstep_remote::protocol::{EARLIER, Uses, VERDICT, VERSION};
    use lockstep_ring::{Answers, receive, ring_bytes};
    use lockstep_testkit::TempDir;
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::clients::client::Held;
    use crate::clients::client::tests::{Connected, ed25519, ml_dsa, offer};
    use crate::keyd_conf::KeySection;
    use crate::keys::access::{Access, Accounts};

    /// A door at which no thread works.
    struct Door {
        keeper: Doorkeeper,
        place: TempDir,
        _end: UnixStream,
        wake: UnixStream,
        /// The number of the next client that is seated by hand.
        next: u64,
    }

    impl Door {
        /// One with these settings, and a key for this process.
        fn new(settings: &str) -> Door {
            let place = TempDir::new("door");
            let listener = UnixListener::bind(place.join("socket")).expect("a socket");
            let (end, ended) = UnixStream::pair().expect("sockets");
            let section = KeySection {
                users: vec![rustix::process::geteuid().as_raw().to_string()],
                uses: Uses {
                    sign: true,
                    decrypt: false,
                },
                ..KeySection::default()
            };
            let own = Held {
                name: "own".to_owned(),
                key: ed25519(),
                access: Access::new(&section, &Accounts::of_system()).0,
                has_left: AtomicBool::new(false),
            };
            let service = Arc::new(Service::new(crate::engine(Config::default())));
            let settings = Configuration::parse(settings);
            let offers = Arc::new(Mutex::new(Offers::new(vec![Arc::new(own)])));
            let (wake, left) = UnixStream::pair().expect("sockets");
            let ends = (ended, left);
            let keeper = Doorkeeper::new(vec![listener], ends, settings, offers, service);
            Door {
                keeper: keeper.expect("sockets"),
                place,
                _end: end,
                wake,
                next: 1 << 32,
            }
        }

        fn connect(&self) -> UnixStream {
            let stream = UnixStream::connect(self.place.join("socket")).expect("a listener");
            let patience = Some(Duration::from_secs(20));
            stream.set_read_timeout(patience).expect("a socket");
            stream
        }

        /// A client that has greeted, and is answered.
        fn greet(&mut self) -> UnixStream {
            let mut stream = self.connect();
            stream.write_all(&greeting()).expect("a socket");
            while said_at_once(&stream).is_none() {
                self.go_round();
            }
            stream
        }

        /// Goes round once something has happened.
        fn go_round(&mut self) {
            let events = self.keeper.wait().expect("sockets");
            let events = events.expect("nobody has told it to end");
            self.keeper.go_round(&events).expect("sockets");
        }

        /// Gives these clients places; returns their numbers.
        fn seat<'a>(&mut self, processes: impl IntoIterator<Item = &'a Connected>) -> Vec<u64> {
            let seat = |process: &Connected| {
                self.next += 1;
                let client = Arc::clone(&process.client);
                self.keeper.clients.insert(self.next, client);
                self.next
            };
            processes.into_iter().map(seat).collect()
        }

        fn finds_place(&mut self, user: u32, waited: Duration) -> bool {
            self.keeper.finds_place(Account::User(user), waited)
        }

        /// Which of these clients have lost their places.
        fn lost(&self, numbers: &[u64]) -> Vec<usize> {
            let has_place = |number| self.keeper.clients.contains_key(&numbers[number]);
            (0..numbers.len()).filter(|at| !has_place(*at)).collect()
        }

        /// The newcomer that came last.
        fn newest(&mut self) -> &mut Newcomer {
            let mut newcomers = self.keeper.newcomers.values_mut();
            newcomers.next_back().expect("a newcomer")
        }
    }

    fn greeting() -> [u8; GREETING] {
        protocol::greeting(VERSION)
    }

    /// What the door has answered, and in which version; None if it has hung up without a word.
    fn verdict(mut stream: &UnixStream) -> Option<(Verdict, u32, Vec<u8>, Option<OwnedFd>)> {
        let mut bytes = [0; VERDICT];
        let received = receive(stream, &mut bytes).expect("a socket");
        if received.length == 0 {
            return None;
        }
        let rest = &mut bytes[received.length..];
        stream.read_exact(rest).expect("a verdict");
        let (verdict, version, length) = protocol::read_verdict(&bytes).expect("a verdict");
        let mut list = vec![0; length];
        stream.read_exact(&mut list).expect("a list");
        Some((verdict, version, list, received.descriptor))
    }

    fn said(stream: &UnixStream) -> Option<Verdict> {
        verdict(stream).map(|(verdict, ..)| verdict)
    }

    #[test]
    fn a_process_that_greets_is_served_until_it_hangs_up() {
        let mut door = Door::new("queue = 16\n");
        let mut stream = door.connect();
        stream.write_all(&greeting()[..5]).expect("a socket");
        door.go_round();
        stream.write_all(&greeting()[5..]).expect("a socket");
        while door.keeper.clients.is_empty() {
            door.go_round();
        }
        let (verdict, version, list, ring) = verdict(&stream).expect("an answer");
        assert_eq!((verdict, version), (Verdict::Welcome, VERSION));
        let ring = lockstep_ring::Client::attach(ring.expect("a ring")).expect("a ring");
        assert_eq!((ring.slots(), ring.beat()), (16, Some(1)));
        let offered = protocol::read_list(&list).expect("a list");
        assert_eq!(offered.len(), 1);
        assert_eq!(door.keeper.service.clients.now().len(), 1);
        drop(stream);
        door.go_round();
        assert!(door.keeper.clients.is_empty() && ring.is_gone());
        assert!(door.keeper.service.clients.now().is_empty());
    }

    /// The release before knows no key of ML-DSA: nobody loses a place for such a client.
    #[test]
    fn a_client_that_knows_none_of_its_keys_takes_no_place() {
        let mut door = Door::new("max_clients = 1\n");
        let access = door.keeper.offers().keys()[0].access.clone();
        let of_ml_dsa = |access: &Access| {
            Arc::new(Held {
                name: "long".to_owned(),
                key: ml_dsa(MlDsa::MlDsa44),
                access: access.clone(),
                has_left: AtomicBool::new(false),
            })
        };
        door.keeper.offers().change(vec![of_ml_dsa(&access)]);
        let idle = Connected::idle_for(rustix::process::geteuid().as_raw(), IDLE);
        let numbers = door.seat([&idle]);
        let mut stream = door.connect();
        stream
            .write_all(&protocol::greeting(EARLIER))
            .expect("a socket");
        while said_at_once(&stream).is_none() {
            door.go_round();
        }
        assert_eq!(said(&stream), Some(Verdict::OtherVersion));
        assert_eq!(door.lost(&numbers), [0; 0]);
    }

    /// It has a ring with short answers, comes for the new key, and gets one with long answers.
    #[test]
    fn a_key_of_ml_dsa_comes_with_another_connection() {
        let mut door = Door::new("");
        let greet = |door: &mut Door| {
            let stream = door.greet();
            let (_, _, list, ring) = verdict(&stream).expect("an answer");
            let file = std::fs::File::from(ring.expect("a ring"));
            let length = file.metadata().expect("a file").len();
            let count = protocol::read_list(&list).expect("a list").len();
            (stream, (count, length))
        };
        let bytes = |answers| ring_bytes(64, answers) as u64;
        let (_short, had) = greet(&mut door);
        assert_eq!(had, (1, bytes(Answers::Short)));
        let mut keys = door.keeper.offers().keys();
        let long = Held {
            name: "long".to_owned(),
            key: ml_dsa(MlDsa::MlDsa87),
            access: keys[0].access.clone(),
            has_left: AtomicBool::new(false),
        };
        keys.push(Arc::new(long));
        door.keeper.offers().change(keys);
        let (_long, has) = greet(&mut door);
        assert_eq!(has, (2, bytes(Answers::Long)));
        // The first one stays as it is, until it comes anew.
        while door.keeper.clients.len() < 2 {
            door.go_round();
        }
    }

    /// Its old list would keep the key in memory.
    #[test]
    fn a_client_whose_key_has_left_comes_anew() {
        let mut door = Door::new("");
        let stream = door.greet();
        let (_, _, _, ring) = verdict(&stream).expect("an answer");
        let ring = lockstep_ring::Client::attach(ring.expect("a ring")).expect("a ring");
        while door.keeper.clients.is_empty() {
            door.go_round();
        }
        let before = door.keeper.offers().keys();
        let next = Arc::new(Held {
            name: "own".to_owned(),
            key: ed25519(),
            access: before[0].access.clone(),
            has_left: AtomicBool::new(false),
        });
        door.keeper.offers().change(vec![next]);
        door.wake.write_all(&[1]).expect("a socket");
        door.go_round();
        while door.keeper.has_outdated {
            door.go_round();
        }
        // The list is old, and each key in it is still there.
        assert_eq!(door.keeper.clients.len(), 1);
        before[0].has_left.store(true, Ordering::Release);
        door.wake.write_all(&[1]).expect("a socket");
        while !door.keeper.clients.is_empty() {
            door.go_round();
        }
        assert!(ring.is_gone() && !door.keeper.has_outdated);
        // Nobody has the key any more.
        let [before] = &before[..] else {
            panic!("one key");
        };
        assert_eq!(Arc::strong_count(before), 1);
        let other = door.greet();
        let (is_welcome, _, list, _) = verdict(&other).expect("an answer");
        assert_eq!(is_welcome, Verdict::Welcome);
        assert_eq!(protocol::read_list(&list).expect("a list").len(), 1);
    }

    /// Whether something has come.
    fn said_at_once(stream: &UnixStream) -> Option<()> {
        let mut polled = [PollFd::new(stream, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).expect("a socket");
        (!polled[0].revents().is_empty()).then_some(())
    }

    #[test]
    fn what_is_no_greeting_has_no_answer_and_an_unknown_version_has_one() {
        let mut door = Door::new("");
        let (mut none, mut other) = (door.connect(), door.connect());
        none.write_all(&[b'x'; GREETING]).expect("a socket");
        other
            .write_all(&protocol::greeting(EARLIER - 1))
            .expect("a socket");
        door.go_round();
        while !door.keeper.newcomers.is_empty() {
            door.go_round();
        }
        assert_eq!(said(&none), None);
        assert_eq!(said(&other), Some(Verdict::OtherVersion));
    }

    #[test]
    fn a_client_of_a_neighbouring_release_is_served_in_the_version_of_both() {
        let mut door = Door::new("");
        for (greeted, spoken) in [
            (EARLIER, EARLIER),
            (VERSION, VERSION),
            (VERSION + 1, VERSION),
        ] {
            let mut stream = door.connect();
            stream
                .write_all(&protocol::greeting(greeted))
                .expect("a socket");
            door.go_round();
            while !door.keeper.newcomers.is_empty() {
                door.go_round();
            }
            let (verdict, version, list, ring) = verdict(&stream).expect("an answer");
            assert_eq!((verdict, version), (Verdict::Welcome, spoken), "{greeted}");
            assert_eq!(protocol::read_list(&list).map(|list| list.len()), Ok(1));
            assert!(lockstep_ring::Client::attach(ring.expect("a ring")).is_ok());
            drop(stream);
            door.go_round();
        }
    }

    #[test]
    fn newcomers_of_an_account_leave_as_much_room_to_others() {
        // Room for eight.
        let mut door = Door::new("max_clients = 2\n");
        let mute = [(); 5].map(|()| door.connect());
        door.go_round();
        assert_eq!(door.keeper.newcomers.len(), 4);
        assert_eq!(said(&mute[4]), Some(Verdict::Full));
        // Another account has as much room as is left, and this one no more.
        let account = door.newest().account;
        let other = Account::Group(7);
        let is_free = |door: &Door, account| door.keeper.is_within_bounds(account);
        assert!(is_free(&door, other) && !is_free(&door, account));
        door.newest().account = other;
        assert!(is_free(&door, other) && is_free(&door, account));
    }

    #[test]
    fn newcomers_have_their_time_and_no_more() {
        let mut door = Door::new("");
        let late = HashMap::new();
        let mute = door.connect();
        door.go_round();
        assert_eq!(door.newest().patience(), PATIENCE);
        // Far from its end.
        door.newest().since += PATIENCE;
        door.keeper.greet(&late);
        assert_eq!(door.keeper.newcomers.len(), 1);
        door.newest().since -= 2 * PATIENCE;
        door.keeper.greet(&late);
        assert!(door.keeper.newcomers.is_empty());
        assert_eq!(said(&mute), None);
        // One waits in line, and is told.
        let (own, stream) = UnixStream::pair().expect("sockets");
        door.keeper.take_in(vec![Guest {
            stream,
            greeting: greeting().to_vec(),
        }]);
        assert_eq!(door.newest().patience(), LINE);
        door.newest().since -= LINE;
        door.keeper.greet(&late);
        assert!(door.keeper.newcomers.is_empty());
        assert_eq!(said(&own), Some(Verdict::Full));
    }

    #[test]
    fn who_hangs_up_in_line_is_forgotten() {
        let mut door = Door::new("max_clients = 1\n");
        let busy = Connected::busy(7);
        door.seat([&busy]);
        let mut stream = door.connect();
        stream.write_all(&greeting()).expect("a socket");
        door.go_round();
        while !matches!(door.newest().stage, Stage::Waits) {
            door.go_round();
        }
        // It is not told that it has waited for too long.
        door.newest().since += Duration::from_secs(3600);
        drop(stream);
        while !door.keeper.newcomers.is_empty() {
            door.go_round();
        }
        assert_eq!(door.keeper.clients.len(), 1);
    }

    #[test]
    fn an_account_has_no_more_places_than_it_may_and_than_are_left_to_others() {
        const NOW: Duration = Duration::ZERO;
        let mut door = Door::new("max_clients = 8\nmax_clients_per_user = 2\n");
        let mut seated = Vec::new();
        for is_free in [true, true, false] {
            assert_eq!(door.finds_place(7, NOW), is_free);
            seated.push(Connected::busy(7));
            door.seat(seated.last());
        }
        assert!(door.finds_place(8, NOW));
        let mut door = Door::new("max_clients = 4\n");
        for is_free in [true, true, false] {
            assert_eq!(door.finds_place(7, NOW), is_free);
            seated.push(Connected::busy(7));
            door.seat(seated.last());
        }
        assert!(door.finds_place(8, NOW));
        seated.push(Connected::busy(8));
        door.seat(seated.last());
        assert!(!door.finds_place(9, NOW));
        assert_eq!(door.keeper.clients.len(), 4);
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_account_that_has_most_or_of_its_own() {
        let idle = |user, seconds| Connected::idle_for(user, Duration::from_secs(seconds));
        let now = Duration::ZERO;
        let all = [idle(7, 100), idle(7, 300), idle(7, 200), idle(8, 400)];
        // Of the one that has most, the client that is idle for longest.
        let mut door = Door::new("max_clients = 4\n");
        let numbers = door.seat(&all);
        assert!(door.finds_place(8, now));
        assert_eq!(door.lost(&numbers), [1]);
        // One that has just as many, the newcomer counted, gives nothing.
        let mut door = Door::new("max_clients = 3\n");
        let numbers = door.seat(&all[1..]);
        assert!(door.finds_place(8, now));
        assert_eq!(door.lost(&numbers), [2]);
        // An account with as many places as it may have gives one itself.
        let mut door = Door::new("max_clients = 4\nmax_clients_per_user = 1\n");
        let numbers = door.seat(&all);
        assert!(door.finds_place(8, now));
        assert_eq!(door.lost(&numbers), [3]);
        // Where nobody is idle, nobody gives anything.
        let mut door = Door::new("max_clients = 2\n");
        let busy = [7, 8].map(Connected::busy);
        let numbers = door.seat(&busy);
        assert!(!door.finds_place(8, now) && !door.finds_place(9, now));
        assert_eq!(door.lost(&numbers), [0; 0]);
        // Until a newcomer has waited for long: then any client does that waits for no answer.
        assert!(door.finds_place(8, LONG_ENOUGH));
        assert_eq!(door.lost(&numbers), [1]);
    }

    #[test]
    fn a_place_is_taken_until_the_last_request_is_gone() {
        let mut door = Door::new("max_clients = 2\n");
        let process = Connected::busy(7);
        let numbers = door.seat([&process]);
        let ticket = process.post(Operation::Ed25519Sign);
        let mut taken = Vec::new();
        process.client.ring.take(|request| taken.push(request));
        let events = HashMap::from([(numbers[0], EventFlags::HUP)]);
        door.keeper.see_off(&events);
        assert!(door.keeper.clients.is_empty() && process.client.is_gone());
        let places = HashMap::from([(Account::User(7), 1)]);
        assert_eq!(door.keeper.places(), places);
        door.keeper.go_round(&HashMap::new()).expect("sockets");
        assert_eq!(door.keeper.places(), places);
        assert_eq!(door.keeper.longest_wait(), Some(TICK));
        taken.clear();
        door.keeper.go_round(&HashMap::new()).expect("sockets");
        assert!(door.keeper.places().is_empty() && door.keeper.leaving.is_empty());
        drop(ticket);
        // Without one it has none at once.
        let process = Connected::busy(7);
        let numbers = door.seat([&process]);
        let events = HashMap::from([(numbers[0], EventFlags::RDHUP)]);
        door.keeper.see_off(&events);
        assert!(door.keeper.places().is_empty() && process.client.is_gone());
        // One that waits for its list has a place already.
        let (own, stream) = UnixStream::pair().expect("sockets");
        door.keeper.take_in(vec![Guest {
            stream,
            greeting: greeting().to_vec(),
        }]);
        let account = door.newest().account;
        assert!(door.keeper.places().is_empty());
        assert_eq!(door.keeper.longest_wait(), Some(LOOK_EVERY));
        door.newest().stage = Stage::Reads {
            sent: 0,
            offer: offer(vec![1]),
            ring: Server::create(4).expect("a ring").0,
        };
        assert_eq!(door.keeper.places(), HashMap::from([(account, 1)]));
        assert_eq!(door.keeper.longest_wait(), Some(TICK));
        drop(own);
    }

    #[test]
    fn a_newcomer_that_reads_slowly_takes_its_list_in_pieces() {
        let mut door = Door::new("");
        let (mut own, stream) = UnixStream::pair().expect("sockets");
        door.keeper.take_in(vec![Guest {
            stream,
            greeting: greeting().to_vec(),
        }]);
        let number = door.keeper.next - 1;
        let mut newcomer = door.keeper.newcomers.remove(&number).expect("it waits");
        newcomer.stage = Stage::Reads {
            sent: 0,
            offer: offer(vec![7; 4_000_000]),
            ring: Server::create(4).expect("a ring").0,
        };
        door.keeper.go_on(number, newcomer);
        let told = EventFlags::OUT.union(EventFlags::RDHUP);
        assert_eq!(door.newest().told, told);
        let events = HashMap::from([(number, EventFlags::OUT)]);
        let mut room = vec![0; 1 << 16];
        while door.keeper.clients.is_empty() {
            own.read_exact(&mut room).expect("a socket");
            door.keeper.greet(&events);
        }
        assert!(door.keeper.clients.contains_key(&number));
    }

    #[test]
    fn beyond_a_hundred_the_clients_that_are_idle_for_longest_lose_their_places() {
        // Far apart, since it takes a while to make them.
        let idle = |number| Connected::idle_for(7, IDLE + Duration::from_secs(number));
        let mut all: Vec<_> = (0..AT_EASE as u64 + 3).map(idle).collect();
        let mut door = Door::new("");
        let numbers = door.seat(&all);
        assert_eq!(door.keeper.longest_wait(), Some(IDLE));
        door.keeper.send_idle_away();
        let last = AT_EASE..AT_EASE + 3;
        assert_eq!(door.lost(&numbers), last.collect::<Vec<_>>());
        assert_eq!(door.keeper.longest_wait(), None);
        door.keeper.send_idle_away();
        assert_eq!(door.keeper.clients.len(), AT_EASE);
        // A newcomer takes the place of one, and of none where there are fewer.
        assert!(door.finds_place(8, Duration::ZERO));
        assert_eq!(door.keeper.clients.len(), AT_EASE - 1);
        assert!(door.finds_place(8, Duration::ZERO));
        assert_eq!(door.keeper.clients.len(), AT_EASE - 1);
        // Clients that make requests keep their places, however many there are.
        all.truncate(2);
        let busy: Vec<_> = (0..AT_EASE + 3).map(|_| Connected::busy(7)).collect();
        let mut door = Door::new("");
        door.seat(&busy);
        let numbers = door.seat(&all);
        door.keeper.send_idle_away();
        assert_eq!(door.lost(&numbers), [0, 1]);
        assert!(door.finds_place(8, Duration::ZERO));
        assert_eq!(door.keeper.clients.len(), busy.len());
    }

    #[test]
    fn what_there_is_no_room_for_is_written_later() {
        let (own, mut other) = UnixStream::pair().expect("sockets");
        own.set_nonblocking(true).expect("a socket");
        let whole: Vec<u8> = (0..4_000_000_u32).map(|number| number as u8).collect();
        let mut sent = 0;
        let (mut read, mut rounds) = (Vec::new(), 0);
        while !write_on(&own, &whole, &mut sent).expect("a socket") {
            let mut some = [0; 1 << 16];
            let count = other.read(&mut some).expect("a socket");
            read.extend(&some[..count]);
            rounds += 1;
        }
        drop(own);
        other.read_to_end(&mut read).expect("a socket");
        assert!(rounds > 1 && sent == whole.len() && read == whole);
        let (own, _) = UnixStream::pair().expect("sockets");
        assert!(write_on(&own, &[1], &mut 0).is_err());
    }

    #[test]
    fn only_an_error_that_passes_is_passed_over() {
        use rustix::io::Errno;
        for (error, passes) in [
            (Errno::AGAIN, true),
            (Errno::INTR, true),
            (Errno::MFILE, true),
            (Errno::CONNABORTED, true),
            (Errno::BADF, false),
            (Errno::INVAL, false),
        ] {
            assert_eq!(pass_over(error.into()).is_ok(), passes, "{error}");
        }
        assert!(pass_over(io::ErrorKind::UnexpectedEof.into()).is_err());
    }
}
