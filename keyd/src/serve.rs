//! The threads that serve requests. The requests of all clients share batches.
//!
//! The engine's queue makes the batches and chooses the next requests: users take turns,
//! independent of the number of their requests. This module moves requests from the rings into the
//! engine, and answers back into the rings. One thread at a time collects requests: it looks at all
//! rings, takes a limited number of requests for each user, and sleeps while no ring has any. The
//! thread that computed a batch writes the answers into the rings itself.
//!
//! The cost of a rejected request falls on the user who posted it: cheap checks are made when the
//! request is taken, expensive ones at its turn.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockstep_engine::{
    Account as EngineAccount, Declined, Engine, Failed, Look, Reply, Request, Response,
    STACK_BYTES, Shape, Source,
};
use lockstep_remote::Operation;
use lockstep_remote::protocol::status;
use lockstep_ring::{Closing, Patience, Server, Taken};

use crate::clients::client::{Client, Clients};
use crate::clients::request::InputCheck;
use crate::fault::{self, KEPT_REQUESTS, is_planted};
use crate::keys::access::Account;
use crate::system::stack::wipe_stack;

/// Maximum time that the collecting thread sleeps.
const SLEEP: Duration = Duration::from_secs(60);
/// Maximum age of a client's last request, in microseconds, for which the client is expected to
/// make another request soon.
const ACTIVE: u64 = 10_000;
/// Depth of the stack that the kernels of the curves use in a release build, once their tables are
/// made.
const USED_STACK: usize = 64 << 10;

/// The state that the threads share.
pub struct Service {
    engine: Arc<Engine>,
    /// All clients.
    pub clients: Arc<Clients>,
    /// The rings from which one thread at a time collects.
    rings: Mutex<Rings>,
}

/// The rings of all clients, as the engine sees them.
struct Rings {
    engine: Arc<Engine>,
    clients: Arc<Clients>,
    /// The clients of the last round.
    seen: Arc<Vec<Arc<Client>>>,
    /// Index of the client whose ring is looked at first.
    first: usize,
    /// Whether the service has collected for the last time.
    is_last: bool,
}

/// An admitted request, as the engine takes it, and the receiver of its answer.
type Admitted = (Request, Box<dyn Reply>);

/// The receiver of an answer: the client, its request in the ring, and the check of its input.
struct Posted {
    client: Arc<Client>,
    request: Taken,
    check: InputCheck,
}

impl Service {
    /// Returns a service without clients, whose threads are not started.
    pub fn new(engine: Engine) -> Service {
        fault::plant();
        let (engine, clients) = (Arc::new(engine), Arc::new(Clients::new()));
        Service {
            rings: Mutex::new(Rings {
                engine: Arc::clone(&engine),
                clients: Arc::clone(&clients),
                seen: Arc::default(),
                first: 0,
                is_last: false,
            }),
            engine,
            clients,
        }
    }

    /// Starts the threads: one for each slot, and one that collects while all slots run long
    /// batches.
    pub fn start(self: &Arc<Service>) -> io::Result<Threads> {
        let mut threads = Vec::new();
        for number in 0..=self.engine.slots() {
            let service = Arc::clone(self);
            let thread = thread::Builder::new()
                .name(format!("keyd-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || service.work())?;
            threads.push(thread);
        }
        Ok(Threads(threads))
    }

    /// Returns the engine. Other threads test new keys with it.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Answers all posted requests, ends the threads, and closes the rings. A later request fails
    /// at once, and the client sends it to the next daemon.
    pub fn finish(&self, threads: Threads) {
        self.engine.end_service();
        self.clients.sleeper.wake();
        for thread in threads.0 {
            let _ = thread.join();
        }
        let clients = self.clients.now();
        clients
            .iter()
            .for_each(|own| own.ring.close_as(Closing::Followed));
    }

    /// Serves until the service ends. In a release a panic aborts the process: otherwise the daemon
    /// might go on to take requests, and answer none.
    fn work(&self) {
        self.engine.serve_from(&self.rings, &|shape: Shape| {
            // RSA's kernels keep their secrets in memory for keys, not on the stack.
            if !shape.is_rsa() {
                wipe_stack::<USED_STACK>();
            }
            self.clients.sleeper.wake();
        });
    }
}

impl Source for Rings {
    /// Takes posted requests: of each account about as many as the engine has room for, and at the
    /// end all of them. Answers rejected requests at once.
    fn collect(&mut self, ends: bool) {
        if self.is_last {
            return;
        }
        self.is_last = ends;
        self.note_clients();
        self.engine.begin_round();
        // The clients of an account take turns in coming first.
        self.first = (self.first + 1) % self.seen.len().max(1);
        let (before, from) = self.seen.split_at(self.first);
        let mut now = Instant::now();
        for client in from.iter().chain(before) {
            // The heartbeat shows a waiting client that the daemon works.
            if client.ring.is_awaited() {
                client.ring.beat();
            }
            let account = account(client.account);
            let room = match client.ring.has_requests() {
                true if ends => usize::MAX,
                true => self.engine.room(account),
                false => 0,
            };
            if room > 0 {
                let (admitted, found) = take(client, room, now);
                let before = std::mem::replace(&mut now, Instant::now());
                let took = now - before;
                self.engine.enter(account, admitted, Look { found, took });
            }
        }
    }

    fn company(&self) -> usize {
        let now = Instant::now();
        let active = self.seen.iter().filter(|own| own.is_active(now, ACTIVE));
        active.count()
    }

    fn wait(&mut self) {
        // Rings of full accounts are left out, since their requests would wake the thread at once.
        // An account is full while its requests are in the engine; the end of their batch wakes the
        // thread.
        let full = self.engine.full_accounts();
        let heard = self.seen.iter().filter(|_| !self.is_last);
        let heard = heard.filter(|client| !full.contains(&account(client.account)));
        let rings: Vec<Server> = heard.map(|client| client.ring.clone()).collect();
        let patience = Patience::new(Duration::ZERO, SLEEP);
        if self.clients.sleeper.sleep(&rings, patience).is_err() {
            // Backoff after an allocation failure.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Rings {
    /// Updates the list of clients. Drops the requests of clients that have hung up, whose answers
    /// nobody would read.
    fn note_clients(&mut self) {
        let clients = self.clients.now();
        if !Arc::ptr_eq(&clients, &self.seen) {
            self.seen = clients;
            self.engine.forget_gone();
        }
    }
}

/// Takes about `room` requests of a client: the ring gives up to 63 more. Returns the admitted
/// requests, and the number of all requests that were found, rejected ones included.
fn take(client: &Arc<Client>, room: usize, now: Instant) -> (Vec<Admitted>, usize) {
    let (mut admitted, mut refused) = (Vec::new(), 0);
    let found = client
        .ring
        .take_some(room, |request| match client.admit(&request, now) {
            Ok((asks, check)) => {
                let client = Arc::clone(client);
                let posted = Posted {
                    client,
                    request,
                    check,
                };
                admitted.push((asks, Box::new(posted) as Box<dyn Reply>));
            }
            Err(status) => {
                refused += 1;
                request.answer(status, &[]);
            }
        });
    client.count_refused(refused);
    (admitted, found)
}

/// Returns the engine's number for an account.
fn account(of: Account) -> EngineAccount {
    match of {
        Account::User(user) => EngineAccount(user.into()),
        Account::Group(group) => EngineAccount(1 << 32 | u64::from(group)),
    }
}

impl Reply for Posted {
    fn is_gone(&self) -> bool {
        self.client.is_gone() && !is_planted(KEPT_REQUESTS)
    }

    fn can_wait(&self) -> bool {
        Operation::is_deferrable(self.request.operation())
    }

    fn is_fit(&mut self) -> bool {
        let is_fit = self.check.passes(self.request.input());
        if is_fit {
            self.client.count_served();
        }
        is_fit
    }

    fn refuse(self: Box<Self>) {
        self.client.count_refused(1);
        self.request.answer(status::FORBIDDEN, &[]);
    }

    fn answer(self: Box<Self>, answer: Result<Response, Declined>) {
        let request = self.request;
        match answer {
            Ok(Response::Rsa(result)) => request.answer(status::DONE, result.as_bytes()),
            Ok(Response::Signature(result)) => request.answer(status::DONE, &result),
            Ok(Response::MlDsa(result)) => request.answer(status::DONE, result.as_bytes()),
            Err(Declined::Failed(Failed::Input(_))) => request.answer(status::UNFIT, &[]),
            _ => request.answer(status::FAILED, &[]),
        }
    }
}

/// The threads of a service.
pub struct Threads(Vec<JoinHandle<()>>);

#[cfg(test)]
mod tests {
    use lockstep_engine::{BackendChoice, Config};

    use super::*;
    use crate::clients::client::tests::Connected;

    /// Returns a service for `slots` slots, whose threads are not started.
    fn service(slots: usize) -> Service {
        let backend = crate::engine(Config::default()).backend();
        Service::new(Engine::for_service(Config {
            backend: BackendChoice::Named(backend.expect("lanes of some kind")),
            slots,
            ..Config::default()
        }))
    }

    /// Collects once from the rings of these clients alone.
    fn look(service: &Service, processes: &[&Connected]) {
        let clients = processes.iter().map(|own| Arc::clone(&own.client));
        service.clients.change(|now| *now = clients.collect());
        collect(service, false);
    }

    fn collect(service: &Service, ends: bool) {
        service.rings.lock().expect("no panic").collect(ends);
    }

    /// Serves everything that has been taken or posted.
    fn serve(service: Service) {
        let service = Arc::new(service);
        let threads = service.start().expect("threads");
        service.finish(threads);
    }

    #[test]
    fn each_user_and_each_group_has_turns() {
        let accounts = [Account::User(7), Account::User(8), Account::Group(7)].map(account);
        assert!(accounts[0] != accounts[1] && accounts[0] != accounts[2]);
        let service = service(1);
        let process = Connected::of(7, 1024);
        let _tickets = [(); 100].map(|()| process.post(Operation::Ed25519Sign));
        look(&service, &[&process]);
        let rooms = accounts.map(|account| service.engine.room(account));
        assert_eq!(rooms, [0, 64, 64], "after one look");
    }

    #[test]
    fn clients_of_one_account_are_looked_at_in_turn() {
        let service = service(1);
        let clients = [(); 2].map(|()| Connected::of(7, 1024));
        let [one, other] = &clients;
        let post = |process: &Connected| process.post(Operation::Ed25519Sign);
        let _tickets = [(); 400].map(|()| [one, other].map(post));
        look(&service, &[one, other]);
        collect(&service, false);
        let taken = [one, other].map(|own| own.client.ring.in_flight());
        assert!(taken.iter().all(|count| *count > 20), "{taken:?}");
    }

    #[test]
    fn clients_with_a_recent_request_count_as_company() {
        let service = service(1);
        let (one, other) = (
            Connected::new(),
            Connected::idle_for(8, Duration::from_secs(2)),
        );
        let _ticket = one.post(Operation::RsaPrivate);
        // If this thread does not run for a while, the request is too old: the test tries again.
        let company = || {
            let _ticket = one.post(Operation::RsaPrivate);
            look(&service, &[&one, &other]);
            service.rings.lock().expect("no panic").company()
        };
        assert!((0..7).any(|_| company() == 1), "one, and not the idle one");
    }

    #[test]
    fn a_request_that_is_refused_at_once_is_counted_and_answered() {
        let service = service(1);
        let process = Connected::new();
        // An RSA key cannot make a signature on a curve.
        let mut tickets = [(); 3].map(|()| process.post(Operation::EcdsaSign));
        look(&service, &[&process]);
        assert_eq!(
            (service.engine.waiting(), process.client.counts()),
            (0, (0, 3))
        );
        for ticket in &mut tickets {
            let answer = ticket.poll().expect("not lost").expect("an answer");
            assert_eq!(answer.status, status::UNFIT);
        }
    }

    #[test]
    fn all_posted_requests_are_answered_at_the_end() {
        let service = service(1);
        let process = Connected::of(7, 16);
        let mut tickets = [(); 7].map(|()| process.post(Operation::RsaPrivate));
        // This number is not below the modulus.
        let mut unfit = process.post_input(Operation::RsaPrivate, 1, &[0xff; 256]);
        look(&service, &[&process]);
        // And a request that no look has taken.
        let mut curve = process.post(Operation::Ed25519Sign);
        serve(service);
        for ticket in &mut tickets {
            let answer = ticket.poll().expect("not lost").expect("an answer");
            assert_eq!(answer.status, status::DONE);
        }
        let answer = unfit.poll().expect("not lost").expect("an answer");
        assert_eq!(answer.status, status::UNFIT);
        let answer = curve.poll().expect("not lost").expect("an answer");
        assert_eq!((answer.status, answer.output.len()), (status::DONE, 64));
        assert_eq!(process.client.counts(), (9, 0));
    }

    /// A key for signatures alone takes only padded inputs; the padding is checked at the request's
    /// turn.
    #[test]
    fn an_input_without_padding_is_refused_at_its_turn() {
        let process = Connected::of(7, 16);
        let mut ticket = process.post(Operation::RsaPrivate);
        let mut posted = None;
        process.client.ring.take(|request| {
            posted = Some(Box::new(Posted {
                client: Arc::clone(&process.client),
                request,
                check: InputCheck::Signature,
            }));
        });
        let mut posted = posted.expect("it was posted");
        assert!(!posted.is_fit());
        posted.refuse();
        let answer = ticket.poll().expect("not lost").expect("an answer");
        assert_eq!(answer.status, status::FORBIDDEN);
        assert_eq!(process.client.counts(), (0, 1));
    }

    #[test]
    fn requests_beyond_the_room_stay_in_the_ring() {
        let service = service(1);
        let process = Connected::of(7, 1024);
        let tickets: Vec<_> = (0..1000)
            .map(|_| process.post(Operation::Ed25519Sign))
            .collect();
        look(&service, &[&process]);
        // A ring gives its requests by whole words of 64 slots.
        let most = service.engine.waiting();
        assert!((64..128).contains(&most), "{most}");
        for round in 2..=5 {
            collect(&service, false);
            assert!(service.engine.waiting() < round * 128);
        }
        collect(&service, true);
        assert_eq!(service.engine.waiting(), 1000);
        drop(tickets);
    }

    #[test]
    fn the_requests_of_a_client_are_dropped_when_it_hangs_up() {
        let service = service(1);
        let [gone, other] = [7, 8].map(|user| Connected::of(user, 8));
        let tickets = [(); 4].map(|()| gone.post(Operation::RsaPrivate));
        let ticket = other.post(Operation::RsaPrivate);
        look(&service, &[&gone, &other]);
        assert_eq!(service.engine.waiting(), 5);
        gone.client.leave(Closing::Unsaid);
        look(&service, &[&other]);
        assert_eq!(service.engine.waiting(), 1);
        assert_eq!(
            (gone.client.ring.in_flight(), other.client.ring.in_flight()),
            (0, 1)
        );
        drop((tickets, ticket));
    }

    #[test]
    fn requests_that_come_during_a_batch_are_served_after_it() {
        let service = Arc::new(service(2));
        let process = Connected::new();
        let client = Arc::clone(&process.client);
        service.clients.change(|clients| clients.push(client));
        let threads = service.start().expect("threads");
        for _ in 0..20 {
            let tickets = [(); 2].map(|()| {
                let ticket = process.post(Operation::RsaPrivate);
                // About the time of a pass: the other thread collects meanwhile.
                thread::sleep(Duration::from_micros(200));
                ticket
            });
            for mut ticket in tickets {
                let patience = Patience::new(Duration::ZERO, Duration::from_secs(20));
                let answer = ticket.wait(patience).expect("not lost");
                assert_eq!(answer.expect("in time").status, status::DONE);
            }
        }
        service.finish(threads);
    }
}
