use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{Config, MlDsa};
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
use crate::keys::offers::Held;
use crate::keys::offers::tests::offer;
use crate::system::accounts::Accounts;
use places::LONG_ENOUGH;

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
