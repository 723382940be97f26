//! The threads that serve requests. The requests of all clients share batches.
//!
//! The engine's queue batches them, and says whose requests come next: users take turns, whatever
//! they have posted. This is the rest of the way: from the rings into the engine, and with the
//! answer back into the ring. One thread at a time collects. It looks at the rings of all, and at
//! so many requests of one user at a time, and sleeps while nothing is posted. The thread that has
//! computed answers in the rings, without a hand-over in between.
//!
//! A refused request costs the user who has asked for it. Cheap checks are made when a request is
//! taken, expensive ones when its turn comes.

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

/// How long the collecting thread sleeps at most.
const SLEEP: Duration = Duration::from_secs(60);
/// A client whose last request is at most this old, in microseconds, is expected to make another
/// one soon.
const ACTIVE: u64 = 10_000;
/// How deep the kernels of the curves write to the stack, in a release, once their tables are made.
const USED_STACK: usize = 64 << 10;

/// The threads, and what they share.
pub struct Service {
    engine: Arc<Engine>,
    /// The clients.
    pub clients: Arc<Clients>,
    /// Where the threads collect.
    rings: Mutex<Rings>,
}

/// The rings of all clients, as the engine sees them.
struct Rings {
    engine: Arc<Engine>,
    clients: Arc<Clients>,
    /// The clients that were there in the last round.
    seen: Arc<Vec<Arc<Client>>>,
    /// The client whose ring is looked at first.
    first: usize,
    /// The service ends, and takes no more than it has.
    is_last: bool,
}

/// What the engine is asked, and where the answer goes.
type Admitted = (Request, Box<dyn Reply>);

/// An admitted request.
struct Posted {
    client: Arc<Client>,
    request: Taken,
    duty: InputCheck,
}

impl Service {
    /// A service without clients, with as many threads as the engine has slots.
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

    /// Starts the threads, and one more for what comes while long batches run.
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

    /// Its engine, on which other threads may try keys out.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.engine)
    }

    /// Answers what is posted, ends the threads, and closes the rings: a request that comes later
    /// is lost at once, and the client asks the next daemon.
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

    /// A release aborts where a thread panics: none goes on that takes requests and answers none.
    fn work(&self) {
        self.engine.serve_from(&self.rings, &|shape: Shape| {
            // The kernels of RSA keep their secrets in memory for keys.
            if !shape.is_rsa() {
                wipe_stack::<USED_STACK>();
            }
            self.clients.sleeper.wake();
        });
    }
}

impl Source for Rings {
    /// Takes what is posted, of each account as much as there is room for; at the end all of it.
    /// What is refused is answered at once.
    fn collect(&mut self, ends: bool) {
        if self.is_last {
            return;
        }
        self.is_last = ends;
        self.note_clients();
        self.engine.begin_round();
        // No client of an account comes first each time.
        self.first = (self.first + 1) % self.seen.len().max(1);
        let (before, from) = self.seen.split_at(self.first);
        let mut now = Instant::now();
        for client in from.iter().chain(before) {
            // A client that waits sees that the daemon goes on.
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
        // A ring of which nothing is taken now would keep the thread awake. Something of its
        // account is here, and the end of a batch wakes the thread.
        let full = self.engine.full_accounts();
        let heard = self.seen.iter().filter(|_| !self.is_last);
        let heard = heard.filter(|client| !full.contains(&account(client.account)));
        let rings: Vec<Server> = heard.map(|client| client.ring.clone()).collect();
        let patience = Patience::new(Duration::ZERO, SLEEP);
        if self.clients.sleeper.sleep(&rings, patience).is_err() {
            // For a moment without memory.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Rings {
    /// Looks who is there now. What clients have asked for that have hung up is dropped: nobody
    /// would see the answers.
    fn note_clients(&mut self) {
        let clients = self.clients.now();
        if !Arc::ptr_eq(&clients, &self.seen) {
            self.seen = clients;
            self.engine.forget_gone();
        }
    }
}

/// What a client has posted, up to so many requests, and how many there were with those that are
/// refused.
fn take(client: &Arc<Client>, room: usize, now: Instant) -> (Vec<Admitted>, usize) {
    let (mut admitted, mut refused) = (Vec::new(), 0);
    let found = client
        .ring
        .take_some(room, |request| match client.admit(&request, now) {
            Ok((asks, duty)) => {
                let client = Arc::clone(client);
                let posted = Posted {
                    client,
                    request,
                    duty,
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

/// What the engine calls an account.
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
        let is_fit = self.duty.passes(self.request.input());
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

    /// A service with so many threads, which are not started.
    fn service(slots: usize) -> Service {
        let backend = crate::engine(Config::default()).backend();
        Service::new(Engine::for_service(Config {
            backend: BackendChoice::Named(backend.expect("lanes of some kind")),
            slots,
            ..Config::default()
        }))
    }

    /// Has a service look at the rings of these, and no others.
    fn look(service: &Service, processes: &[&Connected]) {
        let clients = processes.iter().map(|own| Arc::clone(&own.client));
        service.clients.change(|now| *now = clients.collect());
        collect(service, false);
    }

    fn collect(service: &Service, ends: bool) {
        service.rings.lock().expect("no panic").collect(ends);
    }

    /// Serves on this thread what has been taken, and what is posted.
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
    fn those_count_as_company_who_have_asked_a_moment_ago() {
        let service = service(1);
        let (one, other) = (
            Connected::new(),
            Connected::idle_for(8, Duration::from_secs(2)),
        );
        let _ticket = one.post(Operation::RsaPrivate);
        // Where this thread does not run for a while, the moment is over.
        let company = || {
            let _ticket = one.post(Operation::RsaPrivate);
            look(&service, &[&one, &other]);
            service.rings.lock().expect("no panic").company()
        };
        assert!((0..7).any(|_| company() == 1), "one, and not the idle one");
    }

    #[test]
    fn what_is_refused_at_once_is_counted_and_answered() {
        let service = service(1);
        let process = Connected::new();
        // A key of RSA makes no signatures on a curve.
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
    fn what_was_posted_is_answered_to_the_end() {
        let service = service(1);
        let process = Connected::of(7, 16);
        let mut tickets = [(); 7].map(|()| process.post(Operation::RsaPrivate));
        // No number modulo the key's.
        let mut unfit = process.post_input(Operation::RsaPrivate, 1, &[0xff; 256]);
        look(&service, &[&process]);
        // And what nobody has looked at.
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

    /// A key that only signs takes signatures alone, which is looked at when it is their turn.
    #[test]
    fn what_is_no_signature_is_refused_at_its_turn() {
        let process = Connected::of(7, 16);
        let mut ticket = process.post(Operation::RsaPrivate);
        let mut posted = None;
        process.client.ring.take(|request| {
            posted = Some(Box::new(Posted {
                client: Arc::clone(&process.client),
                request,
                duty: InputCheck::Signature,
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
    fn what_there_is_no_room_for_stays_in_the_ring() {
        let service = service(1);
        let process = Connected::of(7, 1024);
        let tickets: Vec<_> = (0..1000)
            .map(|_| process.post(Operation::Ed25519Sign))
            .collect();
        look(&service, &[&process]);
        // A word of the ring's set is taken as a whole.
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
    fn what_a_client_has_asked_for_goes_when_it_hangs_up() {
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
    fn what_gathers_while_a_batch_runs_is_served_after_it() {
        let service = Arc::new(service(2));
        let process = Connected::new();
        let client = Arc::clone(&process.client);
        service.clients.change(|clients| clients.push(client));
        let threads = service.start().expect("threads");
        for _ in 0..20 {
            let tickets = [(); 2].map(|()| {
                let ticket = process.post(Operation::RsaPrivate);
                // About how long a pass takes: the other thread collects meanwhile.
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
