use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::MlDsa;
use lockstep_remote::Operation;
use lockstep_remote::protocol::{EARLIER, Uses, VERDICT, VERSION};
use lockstep_ring::{Answers, receive, ring_bytes};
use lockstep_testkit::TempDir;
use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::clients::client::tests::Connected;
use crate::keyd_conf::KeySection;
use crate::keys::access::Access;
use crate::keys::key::tests::{ed25519, ml_dsa};
use crate::keys::offers::ServedKey;
use crate::keys::offers::tests::offer;
use crate::system::accounts::Accounts;
use places::LONG_WAIT;

/// The state of the thread, which a test drives by hand.
struct Fixture {
    acceptor: Acceptor,
    place: TempDir,
    _end: UnixStream,
    wake: UnixStream,
    /// Number of the next client that gets a place by hand.
    next: u64,
}

impl Fixture {
    /// Creates the state with these settings, and a key for this process.
    fn new(settings: &str) -> Fixture {
        let place = TempDir::new("fixture");
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
        let own = ServedKey {
            name: "own".to_owned(),
            key: ed25519(),
            access: Access::new(&section, &Accounts::of_system()).0,
            is_removed: AtomicBool::new(false),
        };
        let served = Arc::new(Clients::new());
        let settings = Configuration::parse(settings);
        let offers = Arc::new(Mutex::new(Offers::new(vec![Arc::new(own)])));
        let (wake, removed) = UnixStream::pair().expect("sockets");
        let ends = (ended, removed);
        let acceptor = Acceptor::new(vec![listener], ends, settings, offers, served);
        Fixture {
            acceptor: acceptor.expect("sockets"),
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

    /// Returns the stream of a client that has greeted and has an answer.
    fn greet(&mut self) -> UnixStream {
        let mut stream = self.connect();
        stream.write_all(&greeting()).expect("a socket");
        while said_at_once(&stream).is_none() {
            self.go_round();
        }
        stream
    }

    /// Runs one round after the next event.
    fn go_round(&mut self) {
        let events = self.acceptor.wait().expect("sockets");
        let events = events.expect("nobody has told it to end");
        self.acceptor.go_round(&events).expect("sockets");
    }

    /// Gives these clients places; returns their numbers.
    fn add_clients<'a>(&mut self, processes: impl IntoIterator<Item = &'a Connected>) -> Vec<u64> {
        let admit_waiting = |process: &Connected| {
            self.next += 1;
            let client = Arc::clone(&process.client);
            self.acceptor.clients.insert(self.next, client);
            self.next
        };
        processes.into_iter().map(admit_waiting).collect()
    }

    fn finds_place(&mut self, user: u32, waited: Duration) -> bool {
        self.acceptor.finds_place(Account::User(user), waited)
    }

    /// Returns the indices of the clients that have lost their places.
    fn lost(&self, numbers: &[u64]) -> Vec<usize> {
        let has_place = |number| self.acceptor.clients.contains_key(&numbers[number]);
        (0..numbers.len()).filter(|at| !has_place(*at)).collect()
    }

    /// Returns the newest pending connection.
    fn newest(&mut self) -> &mut Pending {
        let mut pending = self.acceptor.pending.values_mut();
        pending.next_back().expect("a pending client")
    }
}

fn greeting() -> [u8; GREETING] {
    protocol::greeting(VERSION)
}

/// Returns the daemon's answer: verdict, version, list, ring; `None` if it hung up without one.
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
    let mut fixture = Fixture::new("queue = 16\n");
    let mut stream = fixture.connect();
    stream.write_all(&greeting()[..5]).expect("a socket");
    fixture.go_round();
    stream.write_all(&greeting()[5..]).expect("a socket");
    while fixture.acceptor.clients.is_empty() {
        fixture.go_round();
    }
    let (verdict, version, list, ring) = verdict(&stream).expect("an answer");
    assert_eq!((verdict, version), (Verdict::Accepted, VERSION));
    let ring = lockstep_ring::Client::attach(ring.expect("a ring")).expect("a ring");
    assert_eq!((ring.slots(), ring.beat()), (16, Some(1)));
    let offered = protocol::read_list(&list).expect("a list");
    assert_eq!(offered.len(), 1);
    assert_eq!(fixture.acceptor.served.now().len(), 1);
    drop(stream);
    fixture.go_round();
    assert!(fixture.acceptor.clients.is_empty() && ring.is_gone());
    assert!(fixture.acceptor.served.now().is_empty());
}

/// The previous release knows no ML-DSA keys: no client loses its place to such a process.
#[test]
fn a_client_that_knows_none_of_its_keys_takes_no_place() {
    let mut fixture = Fixture::new("max_clients = 1\n");
    let access = fixture.acceptor.offers().keys()[0].access.clone();
    let of_ml_dsa = |access: &Access| {
        Arc::new(ServedKey {
            name: "long".to_owned(),
            key: ml_dsa(MlDsa::MlDsa44),
            access: access.clone(),
            is_removed: AtomicBool::new(false),
        })
    };
    fixture.acceptor.offers().change(vec![of_ml_dsa(&access)]);
    let idle = Connected::idle_for(rustix::process::geteuid().as_raw(), IDLE);
    let numbers = fixture.add_clients([&idle]);
    let mut stream = fixture.connect();
    stream
        .write_all(&protocol::greeting(EARLIER))
        .expect("a socket");
    while said_at_once(&stream).is_none() {
        fixture.go_round();
    }
    assert_eq!(said(&stream), Some(Verdict::OtherVersion));
    assert_eq!(fixture.lost(&numbers), [0; 0]);
}

/// The client has a ring with short answers. It connects again for the new key, and gets a ring
/// with long answers.
#[test]
fn a_key_of_ml_dsa_comes_with_another_connection() {
    let mut fixture = Fixture::new("");
    let greet = |fixture: &mut Fixture| {
        let stream = fixture.greet();
        let (_, _, list, ring) = verdict(&stream).expect("an answer");
        let file = std::fs::File::from(ring.expect("a ring"));
        let length = file.metadata().expect("a file").len();
        let count = protocol::read_list(&list).expect("a list").len();
        (stream, (count, length))
    };
    let bytes = |answers| ring_bytes(64, answers) as u64;
    let (_short, had) = greet(&mut fixture);
    assert_eq!(had, (1, bytes(Answers::Short)));
    let mut keys = fixture.acceptor.offers().keys();
    let long = ServedKey {
        name: "long".to_owned(),
        key: ml_dsa(MlDsa::MlDsa87),
        access: keys[0].access.clone(),
        is_removed: AtomicBool::new(false),
    };
    keys.push(Arc::new(long));
    fixture.acceptor.offers().change(keys);
    let (_long, has) = greet(&mut fixture);
    assert_eq!(has, (2, bytes(Answers::Long)));
    // The first connection stays until the client itself connects again.
    while fixture.acceptor.clients.len() < 2 {
        fixture.go_round();
    }
}

/// The old list would keep the key in memory.
#[test]
fn a_client_whose_key_has_left_comes_anew() {
    let mut fixture = Fixture::new("");
    let stream = fixture.greet();
    let (_, _, _, ring) = verdict(&stream).expect("an answer");
    let ring = lockstep_ring::Client::attach(ring.expect("a ring")).expect("a ring");
    while fixture.acceptor.clients.is_empty() {
        fixture.go_round();
    }
    let before = fixture.acceptor.offers().keys();
    let next = Arc::new(ServedKey {
        name: "own".to_owned(),
        key: ed25519(),
        access: before[0].access.clone(),
        is_removed: AtomicBool::new(false),
    });
    fixture.acceptor.offers().change(vec![next]);
    fixture.wake.write_all(&[1]).expect("a socket");
    fixture.go_round();
    while fixture.acceptor.has_outdated {
        fixture.go_round();
    }
    // The list is old, but all of its keys are still served.
    assert_eq!(fixture.acceptor.clients.len(), 1);
    before[0].is_removed.store(true, Ordering::Release);
    fixture.wake.write_all(&[1]).expect("a socket");
    while !fixture.acceptor.clients.is_empty() {
        fixture.go_round();
    }
    assert!(ring.is_gone() && !fixture.acceptor.has_outdated);
    // No reference to the key is left.
    let [before] = &before[..] else {
        panic!("one key");
    };
    assert_eq!(Arc::strong_count(before), 1);
    let other = fixture.greet();
    let (is_admitted, _, list, _) = verdict(&other).expect("an answer");
    assert_eq!(is_admitted, Verdict::Accepted);
    assert_eq!(protocol::read_list(&list).expect("a list").len(), 1);
}

/// Returns `Some` if the stream is readable.
fn said_at_once(stream: &UnixStream) -> Option<()> {
    let mut polled = [PollFd::new(stream, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).expect("a socket");
    (!polled[0].revents().is_empty()).then_some(())
}

#[test]
fn what_is_no_greeting_has_no_answer_and_an_unknown_version_has_one() {
    let mut fixture = Fixture::new("");
    let (mut none, mut other) = (fixture.connect(), fixture.connect());
    none.write_all(&[b'x'; GREETING]).expect("a socket");
    other
        .write_all(&protocol::greeting(EARLIER - 1))
        .expect("a socket");
    fixture.go_round();
    while !fixture.acceptor.pending.is_empty() {
        fixture.go_round();
    }
    assert_eq!(said(&none), None);
    assert_eq!(said(&other), Some(Verdict::OtherVersion));
}

#[test]
fn a_client_of_a_neighbouring_release_is_served_in_the_version_of_both() {
    let mut fixture = Fixture::new("");
    for (greeted, spoken) in [
        (EARLIER, EARLIER),
        (VERSION, VERSION),
        (VERSION + 1, VERSION),
    ] {
        let mut stream = fixture.connect();
        stream
            .write_all(&protocol::greeting(greeted))
            .expect("a socket");
        fixture.go_round();
        while !fixture.acceptor.pending.is_empty() {
            fixture.go_round();
        }
        let (verdict, version, list, ring) = verdict(&stream).expect("an answer");
        assert_eq!((verdict, version), (Verdict::Accepted, spoken), "{greeted}");
        assert_eq!(protocol::read_list(&list).map(|list| list.len()), Ok(1));
        assert!(lockstep_ring::Client::attach(ring.expect("a ring")).is_ok());
        drop(stream);
        fixture.go_round();
    }
}

#[test]
fn pending_clients_of_an_account_leave_as_much_room_to_others() {
    // There is room for eight.
    let mut fixture = Fixture::new("max_clients = 2\n");
    let mute = [(); 5].map(|()| fixture.connect());
    fixture.go_round();
    assert_eq!(fixture.acceptor.pending.len(), 4);
    assert_eq!(said(&mute[4]), Some(Verdict::Full));
    // Another account has as much room as is left, and this one has none.
    let account = fixture.newest().account;
    let other = Account::Group(7);
    let is_free = |fixture: &Fixture, account| fixture.acceptor.is_within_bounds(account);
    assert!(is_free(&fixture, other) && !is_free(&fixture, account));
    fixture.newest().account = other;
    assert!(is_free(&fixture, other) && is_free(&fixture, account));
}

#[test]
fn pending_clients_have_their_time_and_no_more() {
    let mut fixture = Fixture::new("");
    let late = HashMap::new();
    let mute = fixture.connect();
    fixture.go_round();
    assert_eq!(fixture.newest().patience(), PATIENCE);
    // Long before the deadline.
    fixture.newest().since += PATIENCE;
    fixture.acceptor.advance_pending(&late);
    assert_eq!(fixture.acceptor.pending.len(), 1);
    fixture.newest().since -= 2 * PATIENCE;
    fixture.acceptor.advance_pending(&late);
    assert!(fixture.acceptor.pending.is_empty());
    assert_eq!(said(&mute), None);
    // A connection in the queue gets an answer when its time is over.
    let (own, stream) = UnixStream::pair().expect("sockets");
    fixture.acceptor.take_early(vec![EarlyClient {
        stream,
        greeting: greeting().to_vec(),
    }]);
    assert_eq!(fixture.newest().patience(), QUEUE_TIME);
    fixture.newest().since -= QUEUE_TIME;
    fixture.acceptor.advance_pending(&late);
    assert!(fixture.acceptor.pending.is_empty());
    assert_eq!(said(&own), Some(Verdict::Full));
}

#[test]
fn who_hangs_up_in_line_is_forgotten() {
    let mut fixture = Fixture::new("max_clients = 1\n");
    let busy = Connected::busy(7);
    fixture.add_clients([&busy]);
    let mut stream = fixture.connect();
    stream.write_all(&greeting()).expect("a socket");
    fixture.go_round();
    while !matches!(fixture.newest().stage, Stage::Waits) {
        fixture.go_round();
    }
    // It gets no verdict for a late connection.
    fixture.newest().since += Duration::from_secs(3600);
    drop(stream);
    while !fixture.acceptor.pending.is_empty() {
        fixture.go_round();
    }
    assert_eq!(fixture.acceptor.clients.len(), 1);
}

#[test]
fn an_account_has_no_more_places_than_it_may_and_than_are_left_to_others() {
    const NOW: Duration = Duration::ZERO;
    let mut fixture = Fixture::new("max_clients = 8\nmax_clients_per_user = 2\n");
    let mut clients = Vec::new();
    for is_free in [true, true, false] {
        assert_eq!(fixture.finds_place(7, NOW), is_free);
        clients.push(Connected::busy(7));
        fixture.add_clients(clients.last());
    }
    assert!(fixture.finds_place(8, NOW));
    let mut fixture = Fixture::new("max_clients = 4\n");
    for is_free in [true, true, false] {
        assert_eq!(fixture.finds_place(7, NOW), is_free);
        clients.push(Connected::busy(7));
        fixture.add_clients(clients.last());
    }
    assert!(fixture.finds_place(8, NOW));
    clients.push(Connected::busy(8));
    fixture.add_clients(clients.last());
    assert!(!fixture.finds_place(9, NOW));
    assert_eq!(fixture.acceptor.clients.len(), 4);
}

#[test]
fn a_new_client_takes_the_place_of_the_account_that_has_most_or_of_its_own() {
    let idle = |user, seconds| Connected::idle_for(user, Duration::from_secs(seconds));
    let now = Duration::ZERO;
    let all = [idle(7, 100), idle(7, 300), idle(7, 200), idle(8, 400)];
    // The client with the longest idle time, of the account with most places.
    let mut fixture = Fixture::new("max_clients = 4\n");
    let numbers = fixture.add_clients(&all);
    assert!(fixture.finds_place(8, now));
    assert_eq!(fixture.lost(&numbers), [1]);
    // An account gives no place if it would then have fewer than the new client's account.
    let mut fixture = Fixture::new("max_clients = 3\n");
    let numbers = fixture.add_clients(&all[1..]);
    assert!(fixture.finds_place(8, now));
    assert_eq!(fixture.lost(&numbers), [2]);
    // An account at its own limit gives one of its places.
    let mut fixture = Fixture::new("max_clients = 4\nmax_clients_per_user = 1\n");
    let numbers = fixture.add_clients(&all);
    assert!(fixture.finds_place(8, now));
    assert_eq!(fixture.lost(&numbers), [3]);
    // Without an idle client, no place becomes free.
    let mut fixture = Fixture::new("max_clients = 2\n");
    let busy = [7, 8].map(Connected::busy);
    let numbers = fixture.add_clients(&busy);
    assert!(!fixture.finds_place(8, now) && !fixture.finds_place(9, now));
    assert_eq!(fixture.lost(&numbers), [0; 0]);
    // After a long wait, any client without a request in flight loses its place.
    assert!(fixture.finds_place(8, LONG_WAIT));
    assert_eq!(fixture.lost(&numbers), [1]);
}

#[test]
fn a_place_is_taken_until_the_last_request_is_gone() {
    let mut fixture = Fixture::new("max_clients = 2\n");
    let process = Connected::busy(7);
    let numbers = fixture.add_clients([&process]);
    let ticket = process.post(Operation::Ed25519Sign);
    let mut taken = Vec::new();
    process.client.ring.take(|request| taken.push(request));
    let events = HashMap::from([(numbers[0], EventFlags::HUP)]);
    fixture.acceptor.remove_ended(&events);
    assert!(fixture.acceptor.clients.is_empty() && process.client.is_gone());
    let places = HashMap::from([(Account::User(7), 1)]);
    assert_eq!(fixture.acceptor.places(), places);
    fixture.acceptor.go_round(&HashMap::new()).expect("sockets");
    assert_eq!(fixture.acceptor.places(), places);
    assert_eq!(fixture.acceptor.longest_wait(), Some(TICK));
    taken.clear();
    fixture.acceptor.go_round(&HashMap::new()).expect("sockets");
    assert!(fixture.acceptor.places().is_empty() && fixture.acceptor.leaving.is_empty());
    drop(ticket);
    // Without a request in flight the place is free at once.
    let process = Connected::busy(7);
    let numbers = fixture.add_clients([&process]);
    let events = HashMap::from([(numbers[0], EventFlags::RDHUP)]);
    fixture.acceptor.remove_ended(&events);
    assert!(fixture.acceptor.places().is_empty() && process.client.is_gone());
    // A connection that reads its list already has a place.
    let (own, stream) = UnixStream::pair().expect("sockets");
    fixture.acceptor.take_early(vec![EarlyClient {
        stream,
        greeting: greeting().to_vec(),
    }]);
    let account = fixture.newest().account;
    assert!(fixture.acceptor.places().is_empty());
    assert_eq!(fixture.acceptor.longest_wait(), Some(LOOK_EVERY));
    fixture.newest().stage = Stage::Reads {
        sent: 0,
        offer: offer(vec![1]),
        ring: Server::create(4).expect("a ring").0,
    };
    assert_eq!(fixture.acceptor.places(), HashMap::from([(account, 1)]));
    assert_eq!(fixture.acceptor.longest_wait(), Some(TICK));
    drop(own);
}

#[test]
fn a_client_that_reads_slowly_takes_its_list_in_pieces() {
    let mut fixture = Fixture::new("");
    let (mut own, stream) = UnixStream::pair().expect("sockets");
    fixture.acceptor.take_early(vec![EarlyClient {
        stream,
        greeting: greeting().to_vec(),
    }]);
    let number = fixture.acceptor.next - 1;
    let mut pending = fixture.acceptor.pending.remove(&number).expect("it waits");
    pending.stage = Stage::Reads {
        sent: 0,
        offer: offer(vec![7; 4_000_000]),
        ring: Server::create(4).expect("a ring").0,
    };
    fixture.acceptor.proceed(number, pending);
    let told = EventFlags::OUT.union(EventFlags::RDHUP);
    assert_eq!(fixture.newest().watched, told);
    let events = HashMap::from([(number, EventFlags::OUT)]);
    let mut room = vec![0; 1 << 16];
    while fixture.acceptor.clients.is_empty() {
        own.read_exact(&mut room).expect("a socket");
        fixture.acceptor.advance_pending(&events);
    }
    assert!(fixture.acceptor.clients.contains_key(&number));
}

#[test]
fn beyond_a_hundred_the_clients_that_are_idle_for_longest_lose_their_places() {
    // Large steps, since creating the clients takes a while.
    let idle = |number| Connected::idle_for(7, IDLE + Duration::from_secs(number));
    let mut all: Vec<_> = (0..FEW_CLIENTS as u64 + 3).map(idle).collect();
    let mut fixture = Fixture::new("");
    let numbers = fixture.add_clients(&all);
    assert_eq!(fixture.acceptor.longest_wait(), Some(IDLE));
    fixture.acceptor.disconnect_long_idle();
    let last = FEW_CLIENTS..FEW_CLIENTS + 3;
    assert_eq!(fixture.lost(&numbers), last.collect::<Vec<_>>());
    assert_eq!(fixture.acceptor.longest_wait(), None);
    fixture.acceptor.disconnect_long_idle();
    assert_eq!(fixture.acceptor.clients.len(), FEW_CLIENTS);
    // A new client takes the place of an idle one, and none if there are fewer clients.
    assert!(fixture.finds_place(8, Duration::ZERO));
    assert_eq!(fixture.acceptor.clients.len(), FEW_CLIENTS - 1);
    assert!(fixture.finds_place(8, Duration::ZERO));
    assert_eq!(fixture.acceptor.clients.len(), FEW_CLIENTS - 1);
    // Clients that make requests keep their places, whatever their number.
    all.truncate(2);
    let busy: Vec<_> = (0..FEW_CLIENTS + 3).map(|_| Connected::busy(7)).collect();
    let mut fixture = Fixture::new("");
    fixture.add_clients(&busy);
    let numbers = fixture.add_clients(&all);
    fixture.acceptor.disconnect_long_idle();
    assert_eq!(fixture.lost(&numbers), [0, 1]);
    assert!(fixture.finds_place(8, Duration::ZERO));
    assert_eq!(fixture.acceptor.clients.len(), busy.len());
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
