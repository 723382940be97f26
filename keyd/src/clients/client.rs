//! A client: a process that the daemon serves.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockstep_remote::Operation;
use lockstep_remote::protocol::status;
use lockstep_ring::{Closing, Credentials, Server, Sleeper};

use crate::clients::limits::Rate;
use crate::clients::request::{Asked, asked};
use crate::keys::access::Account;
use crate::keys::offers::Offer;

/// Idle time after which a client may lose its place to a connection in the queue. A new client has
/// this time for its first request before it counts as idle.
pub const BRIEFLY_IDLE: Duration = Duration::from_millis(20);

/// A process that is served.
pub struct Client {
    /// Its process, user and group.
    pub peer: Credentials,
    /// The account whose limits it shares.
    pub account: Account,
    /// Its ring.
    pub ring: Server,
    /// Open until the process closes its end.
    pub stream: UnixStream,
    /// The keys that it may use.
    offer: Arc<Offer>,
    /// Rate of the account, which all its processes share.
    rate: Arc<Rate>,
    gone: AtomicBool,
    /// Time of the last admitted request, in microseconds since `start`.
    last: AtomicU64,
    start: Instant,
    served: AtomicU64,
    refused: AtomicU64,
}

impl Client {
    /// Creates a client with this offer.
    pub fn new(
        (peer, account): (Credentials, Account),
        offer: Arc<Offer>,
        (ring, stream): (Server, UnixStream),
        rate: Arc<Rate>,
    ) -> Client {
        Client {
            peer,
            account,
            ring,
            stream,
            offer,
            rate,
            gone: AtomicBool::new(false),
            last: AtomicU64::new(0),
            start: Instant::now(),
            served: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Checks a request, at very low cost. Returns the request for the engine, or the status of the
    /// refusal.
    ///
    /// The rights come from the client's offer. The check reads the daemon's copy of the request,
    /// which the client cannot change.
    pub fn admit(&self, request: &lockstep_ring::Taken, now: Instant) -> Asked {
        let admitted = self.check(request, now);
        if admitted.is_ok() {
            self.last.store(self.age(now), Ordering::Relaxed);
        }
        admitted
    }

    /// Counts a request that is served.
    pub fn count_served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts requests that are refused.
    pub fn count_refused(&self, count: u64) {
        self.refused.fetch_add(count, Ordering::Relaxed);
    }

    fn check(&self, request: &lockstep_ring::Taken, now: Instant) -> Asked {
        if !self.rate.take(now) {
            return Err(status::BUSY);
        }
        let (served, uses) = self.offer.grant(request.key()).ok_or(status::FORBIDDEN)?;
        let operation = Operation::from_number(request.operation()).ok_or(status::UNFIT)?;
        asked(&served.key, *uses, operation, request.input())
    }

    /// Returns whether the client connected, or a request was admitted, within the last `within`
    /// microseconds.
    pub fn is_active(&self, now: Instant, within: u64) -> bool {
        self.age(now) < self.last.load(Ordering::Relaxed) + within
    }

    /// Returns the time since the last request. `None` while the client waits for an answer, or is
    /// new and has not asked yet.
    pub fn idle(&self, now: Instant) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed);
        let idle = Duration::from_micros(self.age(now).saturating_sub(last));
        let is_new = last == 0 && idle < BRIEFLY_IDLE;
        (!is_new && !self.ring.is_awaited()).then_some(idle)
    }

    fn age(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_micros() as u64
    }

    /// Ends the connection. A process that still runs sees this in its ring and connects again. The
    /// ring is closed before any request is dropped.
    pub fn leave(&self, why: Closing) {
        self.ring.close_as(why);
        self.gone.store(true, Ordering::Release);
    }

    /// Returns whether its list has a removed key.
    pub fn is_outdated(&self) -> bool {
        self.offer.is_outdated()
    }

    /// Returns whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns the numbers of served and of refused requests.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.served.load(Ordering::Relaxed),
            self.refused.load(Ordering::Relaxed),
        )
    }
}

/// All clients that are served now.
pub struct Clients {
    list: Mutex<Arc<Vec<Arc<Client>>>>,
    /// Wakes the thread that collects the requests of these clients.
    pub sleeper: Sleeper,
}

impl Clients {
    /// Returns an empty list.
    pub fn new() -> Clients {
        Clients {
            list: Mutex::default(),
            sleeper: Sleeper::new(),
        }
    }

    /// Returns the current list.
    pub fn now(&self) -> Arc<Vec<Arc<Client>>> {
        Arc::clone(&self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the list, and wakes the collecting thread.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Arc<Client>>)) {
        let mut now = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients = now.to_vec();
        change(&mut clients);
        *now = Arc::new(clients);
        drop(now);
        self.sleeper.wake();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use lockstep_remote::protocol::Uses;
    use lockstep_ring::{Call, Client as Ring, Lost, Sent};

    use super::*;
    use crate::keys::access::tests::peer;
    use crate::keys::offers::tests::SERVED_KEYS;

    /// A client with all rights on two keys, one of Ed25519 and one of RSA-2048, and its own side
    /// of the ring.
    pub(crate) struct Connected {
        pub(crate) client: Arc<Client>,
        ring: Ring,
    }

    impl Connected {
        pub(crate) fn new() -> Connected {
            Connected::of(7, 8)
        }

        /// Creates a client of a user, with a ring of `slots` slots.
        pub(crate) fn of(user: u32, slots: usize) -> Connected {
            let (server, descriptor) = Server::create(slots).expect("a ring");
            let (stream, _) = UnixStream::pair().expect("sockets");
            let uses = Uses {
                sign: true,
                decrypt: true,
            };
            let grants = SERVED_KEYS
                .each_ref()
                .map(|served| (Arc::clone(served), uses));
            let offer = Offer::new(grants.to_vec()).map(Arc::new).expect("a list");
            let rate = Arc::new(Rate::new(0, 0, Instant::now()));
            let who = (peer(user, 7), Account::User(user));
            let client = Client::new(who, offer, (server, stream), rate);
            Connected {
                client: Arc::new(client),
                ring: Ring::attach(descriptor).expect("a ring"),
            }
        }

        /// Creates a client whose last request came `time` ago.
        pub(crate) fn idle_for(user: u32, time: Duration) -> Connected {
            let mut connected = Connected::of(user, 4);
            let client = Arc::get_mut(&mut connected.client).expect("it is nobody else's");
            client.last = AtomicU64::new(1_000_000);
            client.start -= Duration::from_secs(1) + time;
            connected
        }

        /// Creates a client that is never idle during a test.
        pub(crate) fn busy(user: u32) -> Connected {
            let connected = Connected::of(user, 4);
            connected
                .client
                .last
                .store(3_600_000_000, Ordering::Relaxed);
            connected
        }

        pub(crate) fn post(&self, operation: Operation) -> Sent {
            match operation {
                Operation::Ed25519Sign => self.post_input(operation, 0, &[1]),
                _ => self.post_input(operation, 1, &[1; 256]),
            }
        }

        pub(crate) fn post_input(&self, operation: Operation, key: u64, input: &[u8]) -> Sent {
            let operation = operation as u16;
            #[rustfmt::skip]
            let call = Call { operation, key, input, notify: false };
            self.ring.submit(&call).expect("there is room")
        }
    }

    #[test]
    fn a_process_that_has_lost_its_socket_loses_what_it_has_asked_for() {
        let process = Connected::new();
        let mut tickets = [(); 3].map(|()| process.post(Operation::Ed25519Sign));
        let mut taken = Vec::new();
        process.client.ring.take(|request| taken.push(request));
        process.client.leave(Closing::Unsaid);
        assert!(process.client.is_gone() && process.ring.is_gone());
        // Neither an answer nor a failure: the process repeats the request over another connection.
        for ticket in &mut tickets {
            assert_eq!(ticket.poll().err(), Some(Lost::Gone));
        }
    }

    #[test]
    fn a_client_is_idle_from_its_last_request_on() {
        let idle = |process: &Connected, later: u64| {
            let now = process.client.start + Duration::from_millis(later);
            process.client.idle(now).map(|time| time.as_millis() as u64)
        };
        // A new client counts as active until its first request.
        let process = Connected::new();
        assert_eq!([idle(&process, 0), idle(&process, 19)], [None; 2]);
        assert_eq!(idle(&process, 20), Some(20));
        // After a request it is idle at once, unless it waits for an answer.
        let ticket = process.post(Operation::Ed25519Sign);
        assert_eq!(idle(&process, 30), None);
        let at = process.client.start + Duration::from_millis(30);
        process.client.ring.take(|request| {
            assert!(process.client.admit(&request, at).is_ok());
        });
        assert_eq!(idle(&process, 30), Some(0));
        assert_eq!(idle(&process, 35), Some(5));
        let active = |later| {
            let now = process.client.start + Duration::from_millis(later);
            process.client.is_active(now, 10_000)
        };
        assert!(active(30) && active(39) && !active(40) && !active(50));
        drop(ticket);
    }

    #[test]
    fn a_client_beyond_its_rate_is_asked_to_wait() {
        let mut process = Connected::of(7, 8);
        let client = Arc::get_mut(&mut process.client).expect("it is nobody else's");
        client.rate = Arc::new(Rate::new(1, 1, Instant::now()));
        let _tickets = [(); 2].map(|()| process.post(Operation::Ed25519Sign));
        let mut admitted = Vec::new();
        let now = Instant::now();
        process.client.ring.take(|request| {
            let admit = process.client.admit(&request, now);
            admitted.push(admit.map(|_| ()));
        });
        assert_eq!(admitted, [Ok(()), Err(status::BUSY)]);
    }
}
