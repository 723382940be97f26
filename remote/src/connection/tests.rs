use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lockstep_ring::{Closing, Server, Taken, status};
use lockstep_testkit::TempDir;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::net::{bind, listen};

use super::*;
use crate::protocol::status::BUSY;
use crate::protocol::{GREETING, Offered, Uses, read_greeting};

/// A connection, and the daemon's side of it.
struct Fixture {
    connection: Arc<Connection>,
    server: Server,
    stream: UnixStream,
    results: Receiver<Told>,
    sender: Sender<Told>,
}

/// A result as an asker gets it: its number, and the result.
type Told = (u8, Result<Zeroizing<Vec<u8>>, Failure>);

struct Note {
    number: u8,
    sender: Sender<Told>,
    is_waiting: Arc<AtomicBool>,
}

impl Asker for Note {
    fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    fn answer(self: Box<Self>, result: Result<Zeroizing<Vec<u8>>, Failure>) {
        self.sender.send((self.number, result)).expect("a test");
    }
}

impl Fixture {
    fn new(slots: usize) -> Fixture {
        let (server, descriptor) = Server::create(slots).expect("a ring");
        let client = Client::attach(descriptor).expect("a ring");
        let (stream, own) = UnixStream::pair().expect("sockets");
        let (sender, results) = channel();
        let connection = Arc::new(Connection::with(
            Socket::new(own).expect("a socket"),
            client,
            None,
            vec![key()],
        ));
        assert!(connection.is_watched(start));
        Fixture {
            connection,
            server,
            stream,
            results,
            sender,
        }
    }

    /// Posts a request of one byte, its number.
    fn post(&self, number: u8) -> Result<(), Failure> {
        self.post_until(number, soon())
    }

    fn post_until(&self, number: u8, deadline: Instant) -> Result<(), Failure> {
        let note = Note {
            number,
            sender: self.sender.clone(),
            is_waiting: Arc::new(AtomicBool::new(true)),
        };
        let operation = Operation::EcdsaSign;
        self.connection
            .post(operation, &key(), &[number], 1, Box::new(note), deadline)
    }

    /// Puts a request of one byte into the ring.
    fn begin(&self, number: u8) -> Option<Begun> {
        let operation = Operation::EcdsaSign;
        self.connection.begin(operation, &key(), &[number])
    }

    /// Waits for the answer to a request that may have begun.
    fn finish(
        &self,
        begun: Option<Begun>,
        number: u8,
        deadline: Instant,
    ) -> Result<Zeroizing<Vec<u8>>, Failure> {
        finish(&self.connection, begun, number, deadline)
    }

    /// Returns the next requests, once there are `count`.
    fn take(&self, count: usize) -> Vec<Taken> {
        let mut taken = Vec::new();
        while taken.len() < count {
            self.server.take(|request| taken.push(request));
            thread::yield_now();
        }
        taken
    }

    /// Returns `count` results, by the numbers of their askers.
    fn told(&self, count: usize) -> Vec<Told> {
        let mut told = heard(&self.results, count);
        told.sort_by_key(|(number, _)| *number);
        told
    }
}

/// Returns the result of a function on a thread of its own, which may hang.
fn in_time<T: Send + 'static>(of: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = channel();
    thread::spawn(move || sender.send(of()));
    result.recv_timeout(ANSWER).expect("in time")
}

/// Receives `count` results, each in time. A watching thread that sleeps for a minute although
/// there is work was not woken.
fn heard(results: &Receiver<Told>, count: usize) -> Vec<Told> {
    let next = |_| results.recv_timeout(ANSWER).expect("in time");
    (0..count).map(next).collect()
}

fn key() -> Offered {
    Offered {
        handle: 0,
        uses: Uses::default(),
        name: "a".to_owned(),
        public: Vec::new(),
    }
}

fn finish(
    connection: &Connection,
    begun: Option<Begun>,
    number: u8,
    deadline: Instant,
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let operation = Operation::EcdsaSign;
    connection.finish(begun, operation, &key(), &[number], 1, deadline)
}

fn soon() -> Instant {
    Instant::now() + ANSWER
}

fn start(watch: Box<dyn FnOnce() + Send>) -> bool {
    thread::spawn(watch);
    true
}

/// Answers with the input.
fn echo(request: Taken) {
    let input = request.input().to_vec();
    request.answer(status::DONE, &input);
}

#[test]
fn requests_of_one_thread_are_at_the_daemon_together() {
    let fixture = Fixture::new(16);
    for _ in 0..100 {
        (0..16).for_each(|number| fixture.post(number).expect("it is there"));
        let taken = fixture.take(16);
        taken.into_iter().rev().for_each(echo);
        for (number, result) in fixture.told(16) {
            assert_eq!(result, Ok(Zeroizing::new(vec![number])));
        }
    }
}

#[test]
fn a_thread_watches_once() {
    let fixture = Fixture::new(4);
    assert!(
        fixture
            .connection
            .is_watched(|_| unreachable!("there is one"))
    );
    // After a failed start, no other one is tried for a while.
    let watch = Watch::default();
    assert!(!watch.is_watched(|| false));
    assert!(!watch.is_watched(|| unreachable!("it would fail again")));
}

#[test]
fn what_the_daemon_has_no_time_for_is_asked_again() {
    let fixture = Fixture::new(4);
    fixture.post(1).expect("it is there");
    for _ in 0..5 {
        let [request] = fixture.take(1).try_into().expect("one");
        request.answer(BUSY, &[]);
    }
    fixture.take(1).into_iter().for_each(echo);
    assert_eq!(fixture.told(1), [(1, Ok(Zeroizing::new(vec![1])))]);
}

#[test]
fn what_the_ring_has_no_room_for_is_asked_later() {
    let fixture = Fixture::new(4);
    (0..20).for_each(|number| fixture.post(number).expect("it is there"));
    let mut left = 20;
    while left > 0 {
        let taken = fixture.take(1);
        left -= taken.len();
        taken.into_iter().for_each(echo);
    }
    let told = fixture.told(20);
    assert!(told.iter().all(|(_, result)| result.is_ok()), "{told:?}");
    assert!(told.iter().map(|(number, _)| *number).eq(0..20));
}

/// Each byte comes soon, but all of them together are too late.
#[test]
fn a_verdict_has_one_deadline() {
    let directory = TempDir::new("greeting");
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        for byte in crate::protocol::verdict(VERSION, Verdict::Accepted, 0) {
            thread::sleep(Duration::from_millis(100));
            if stream.write_all(&[byte]).is_err() {
                break;
            }
        }
    });
    let opened = Connection::open_until(
        &socket,
        Instant::now() + Duration::from_millis(500),
        &Mark::new(),
    );
    assert_eq!(opened.err(), Some(Failure::TimedOut));
    daemon.join().expect("no panic");
}

#[test]
fn a_daemon_that_has_no_room_at_its_door_is_given_up() {
    let directory = TempDir::new("crowd");
    let socket = directory.join("socket");
    let listener = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let listener = listener.expect("a socket");
    let address = SocketAddrUnix::new(&socket).expect("a path");
    bind(&listener, &address).expect("a socket");
    listen(&listener, 0).expect("a socket");
    // There is room for this one.
    let _first = UnixStream::connect(&socket).expect("a daemon");
    let (patience, start) = (Duration::from_millis(50), Instant::now());
    let path = socket.clone();
    let opened = in_time(move || Connection::open_until(&path, start + patience, &Mark::new()));
    assert_eq!(opened.err(), Some(Failure::TimedOut));
    assert!(start.elapsed() >= patience);
    // Without patience it does not wait.
    let opening = in_time(move || Opening::start(&socket, Duration::ZERO, &Mark::new()));
    assert_eq!(opening.err(), Some(Failure::TimedOut));
}

#[test]
fn a_socket_that_nobody_serves_is_named() {
    let directory = TempDir::new("nobody");
    let socket = directory.join("socket");
    for reason in ["No such file", "refused"] {
        let failure = Connection::open(&socket).err();
        let Some(Failure::Unreachable(path, text)) = &failure else {
            panic!("{failure:?}");
        };
        assert!(*path == socket && text.contains(reason), "{failure:?}");
        // Its daemon has ended, and has left the file.
        drop(UnixListener::bind(&socket));
    }
}

#[test]
fn errors_that_say_that_descriptors_are_used_up_are_known() {
    for (error, is_one) in [
        (Errno::MFILE, true),
        (Errno::NFILE, true),
        (Errno::CONNREFUSED, false),
    ] {
        let error = io::Error::from(error);
        assert_eq!(has_no_descriptor(&error), is_one, "{error}");
        assert_eq!(super::in_time(error) == Failure::NoDescriptor, is_one);
    }
    assert!(!has_no_descriptor(&io::Error::other("no number")));
}

/// A process may be stopped until its time is over.
#[test]
fn what_is_there_is_read_after_the_deadline() {
    let (here, mut there) = UnixStream::pair().expect("sockets");
    there.write_all(&[1, 2, 3]).expect("a socket");
    let (past, mut bytes) = (Instant::now(), [0; 2]);
    assert_eq!(fill(&here, &mut bytes, past), Ok(()));
    assert_eq!(bytes, [1, 2]);
    assert_eq!(fill(&here, &mut bytes, past), Err(Failure::TimedOut));
    drop(there);
    assert_eq!(fill(&here, &mut bytes, past), Err(Failure::Lost));
}

/// A daemon's answer: bytes, and a descriptor with the first of them. Then it hangs up.
struct Speech {
    descriptor: Option<OwnedFd>,
    bytes: Vec<u8>,
}

/// Returns the client's view of it.
fn hear(speech: Speech) -> Result<Connection, Failure> {
    let directory = TempDir::new("speech");
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let daemon = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).expect("a greeting");
        let Speech { descriptor, bytes } = speech;
        let said = match &descriptor {
            Some(descriptor) if !bytes.is_empty() => {
                let sent = lockstep_ring::send(&stream, &bytes, descriptor.as_fd());
                sent.and_then(|sent| stream.write_all(&bytes[sent..]))
            }
            _ => stream.write_all(&bytes),
        };
        // The client may have closed its end already.
        let _ = said;
    });
    let opened = Connection::open_until(&socket, Instant::now() + CONNECT, &Mark::new());
    daemon.join().expect("no panic");
    opened
}

/// Returns the bytes of an answer with one key.
fn accepting() -> Vec<u8> {
    let list = crate::protocol::list(&[Offered {
        handle: 0,
        uses: Uses::default(),
        name: "a".to_owned(),
        public: vec![0x30, 0],
    }]);
    let list = list.expect("a short list");
    [
        &crate::protocol::verdict(VERSION, Verdict::Accepted, list.len())[..],
        &list,
    ]
    .concat()
}

/// Accepts a client, which must connect in time.
fn next_client(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).expect("a socket");
    let end = soon();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a socket");
                return stream;
            }
            Err(_) => assert!(Instant::now() < end, "nobody connects"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads a greeting and answers as a daemon that knows this version only: with its own version
/// alone, or with a ring and a key. Returns whether it has accepted the client.
fn answer_in(version: u32, listener: &UnixListener) -> bool {
    let mut stream = next_client(listener);
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting).expect("a greeting");
    if read_greeting(&greeting) != Ok(version) {
        let refusal = crate::protocol::verdict(version, Verdict::OtherVersion, 0);
        stream.write_all(&refusal).expect("a client");
        return false;
    }
    let mut bytes = accepting();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    lockstep_ring::send(&stream, &bytes, ring().as_fd()).expect("a client");
    // The client reads it before the stream ends.
    let _ = stream.read(&mut [0]);
    true
}

#[test]
fn a_daemon_of_the_release_before_is_greeted_once_more_in_its_version() {
    let directory = TempDir::new("neighbours");
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let open = || Connection::open(&socket);
    let other = Some(Failure::Rejected(Verdict::OtherVersion));
    for (version, accepts, failure) in [
        (VERSION, &[true][..], None),
        (EARLIER, &[false, true], None),
        // The two sides have no version in common.
        (EARLIER - 1, &[false], other.clone()),
        (VERSION + 1, &[false], other.clone()),
    ] {
        thread::scope(|scope| {
            let opened = scope.spawn(open);
            for &accepted in &accepts[..accepts.len() - 1] {
                assert_eq!(answer_in(version, &listener), accepted, "{version}");
            }
            let last = scope.spawn(|| answer_in(version, &listener));
            let opened = opened.join().expect("no panic");
            let keys = opened.as_ref().map(|opened| opened.keys().len()).ok();
            assert_eq!(keys, failure.is_none().then_some(1), "{version}");
            assert_eq!(opened.as_ref().err(), failure.as_ref(), "{version}");
            drop(opened);
            let accepted = accepts.last().copied();
            assert_eq!(Some(last.join().expect("no panic")), accepted, "{version}");
        });
    }
    // A daemon that rejects every version is not greeted for ever.
    let opened = thread::scope(|scope| {
        let opened = scope.spawn(open);
        for _ in 0..2 {
            let mut stream = next_client(&listener);
            stream.read_exact(&mut [0; GREETING]).expect("a greeting");
            let refusal = crate::protocol::refusal(Verdict::OtherVersion);
            stream.write_all(&refusal).expect("a client");
        }
        opened.join().expect("no panic")
    });
    assert_eq!(opened.err(), other);
}

fn ring() -> OwnedFd {
    Server::create(4).expect("a ring").1
}

#[test]
fn a_daemon_that_is_none_gives_no_connection() {
    let opens = |descriptor, bytes: &[u8]| {
        let bytes = bytes.to_vec();
        hear(Speech { descriptor, bytes }).err()
    };
    let good = accepting();
    let opened = hear(Speech {
        descriptor: Some(ring()),
        bytes: good.clone(),
    });
    let opened = opened.expect("a daemon");
    let names = opened.keys().iter().map(|key| key.name.as_str());
    assert!(names.eq(["a"]));
    // It hangs up before the end of its answer.
    for length in 0..good.len() {
        assert_eq!(
            opens(Some(ring()), &good[..length]),
            Some(Failure::Lost),
            "{length}"
        );
    }
    // One bit differs.
    for (place, bit) in (0..good.len()).flat_map(|place| (0..8).map(move |bit| (place, bit))) {
        let mut other = good.clone();
        other[place] ^= 1 << bit;
        let failure = opens(Some(ring()), &other);
        let length = VERDICT - 4..VERDICT;
        let is_taken = match place {
            0..8 => failure == Some(Failure::Protocol),
            8..12 => failure == Some(Failure::Rejected(Verdict::OtherVersion)),
            12..16 => matches!(failure, Some(Failure::Protocol | Failure::Rejected(_))),
            _ if length.contains(&place) => {
                matches!(failure, Some(Failure::Protocol | Failure::Lost))
            }
            // Handles, uses, names and keys may have any value.
            _ => matches!(failure, None | Some(Failure::Protocol)),
        };
        assert!(is_taken, "byte {place}, bit {bit}: {failure:?}");
    }
    // The descriptor is not a ring, which has a valid size and seals.
    let memory = |bytes| {
        let memory = memfd_create("no ring", MemfdFlags::ALLOW_SEALING).expect("memory");
        ftruncate(&memory, bytes).expect("memory");
        memory
    };
    for descriptor in [
        None,
        Some(memory(0)),
        Some(memory(1 << 20)),
        Some(UnixStream::pair().expect("sockets").0.into()),
    ] {
        let shown = format!("{descriptor:?}");
        assert_eq!(opens(descriptor, &good), Some(Failure::Protocol), "{shown}");
    }
    // A ring that the system does not let this process map.
    let sealed = memory(fstat(ring()).expect("a ring").st_size as u64);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&sealed, seals).expect("memory");
    assert_eq!(opens(Some(sealed), &good), Some(Failure::Failed));
}

/// A daemon that stops in the middle of its answer holds up a client for the maximum time only.
#[test]
fn a_daemon_that_falls_silent_is_given_up() {
    let good = accepting();
    for length in [0, 1, VERDICT - 1, VERDICT, good.len() - 1] {
        let directory = TempDir::new("silence");
        let socket = directory.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (end, wait) = channel::<()>();
        let bytes = good[..length].to_vec();
        let daemon = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client");
            if !bytes.is_empty() {
                lockstep_ring::send(&stream, &bytes, ring().as_fd()).expect("a client");
            }
            wait.recv().expect_err("the end of the test");
        });
        let opened = Connection::open_until(
            &socket,
            Instant::now() + Duration::from_millis(100),
            &Mark::new(),
        );
        assert_eq!(opened.err(), Some(Failure::TimedOut), "{length}");
        drop(end);
        daemon.join().expect("no panic");
    }
}

/// A daemon that has no time at first, with a waiting thread and with a watching one.
#[test]
fn who_is_refused_asks_again_or_is_told() {
    let fixture = Fixture::new(4);
    let connection = &fixture.connection;
    let operation = Operation::EcdsaSign;
    let serve = |answers: &[u16]| {
        for answer in answers {
            let [request] = fixture.take(1).try_into().expect("one");
            request.answer(*answer, &[7]);
        }
    };
    thread::scope(|scope| {
        let asked = scope.spawn(|| connection.ask(operation, &key(), &[1], 1));
        serve(&[BUSY, BUSY, status::DONE]);
        let answer = asked.join().expect("no panic");
        assert_eq!(answer, Ok(Zeroizing::new(vec![7])));
        let ask_once = || connection.ask_once(operation, &key(), &[1], 1, soon());
        let asked = scope.spawn(ask_once);
        serve(&[BUSY]);
        let failure = asked.join().expect("no panic").err();
        assert_eq!(failure, Some(Failure::Busy));
        let asked = scope.spawn(ask_once);
        let [request] = fixture.take(1).try_into().expect("one");
        request.answer(status::DONE, &[8]);
        let done = asked.join().expect("no panic").expect("an answer");
        assert_eq!(done[..], [8]);
    });
    let _begun: Vec<_> = (0..4).map(|number| fixture.begin(number)).collect();
    let full = connection.ask_once(operation, &key(), &[1], 1, soon());
    assert_eq!(full.err(), Some(Failure::Full));
    let shown = format!("{connection:?}");
    assert!(shown.contains("Watch {"), "{shown}");
}

/// A look takes some milliseconds. A daemon without any beat is an older one.
#[test]
fn a_daemon_that_shows_no_signs_is_waited_for_by_time_alone() {
    let mut still = Still::since(None);
    let mut is_long = |beat| still.is_for_long(beat, || false);
    assert!((0..1000).all(|_| !is_long(None)));
    // A daemon whose beat stops is stopped; each beat resets the counter.
    for beat in [1, 2] {
        let looks = (0..MOST_STILL).map(|_| is_long(Some(beat)));
        assert!(looks.eq([false; MOST_STILL as usize]), "{beat}");
        assert!(!is_long(Some(beat + 100)));
    }
    let looks = (0..MOST_STILL).map(|_| is_long(Some(102)));
    assert_eq!(looks.filter(|is_long| *is_long).count(), 1);
}

#[test]
fn refusals_are_told() {
    let fixture = Fixture::new(4);
    for (answer, failure) in [
        (crate::protocol::status::FORBIDDEN, Failure::Forbidden),
        (crate::protocol::status::UNFIT, Failure::Unfit),
        (crate::protocol::status::FAILED, Failure::Failed),
        (status::DROPPED, Failure::Lost),
    ] {
        fixture.post(1).expect("it is there");
        let [request] = fixture.take(1).try_into().expect("one");
        request.answer(answer, &[]);
        assert_eq!(fixture.told(1), [(1, Err(failure))]);
    }
    // The result has another length than requested.
    fixture.post(1).expect("it is there");
    let [request] = fixture.take(1).try_into().expect("one");
    request.answer(status::DONE, &[1, 2]);
    assert_eq!(fixture.told(1), [(1, Err(Failure::Failed))]);
}

#[test]
fn all_learn_of_the_end_of_the_daemon() {
    // It closes the ring, or is killed.
    for closes in [true, false] {
        let fixture = Fixture::new(4);
        // The watching thread sleeps for a minute by then, unless it is woken.
        thread::sleep(Duration::from_millis(20));
        (0..6).for_each(|number| fixture.post(number).expect("it is there"));
        let taken = fixture.take(4);
        let Fixture {
            connection,
            server,
            stream,
            results,
            sender,
        } = fixture;
        if closes {
            server.close();
        } else {
            drop(stream);
        }
        // The ring had room for four of these.
        let told = heard(&results, 6);
        let count = |failure: Failure| {
            let of_it = told.iter().filter(|(_, own)| *own == Err(failure.clone()));
            of_it.count()
        };
        assert_eq!(
            (count(Failure::Lost), count(Failure::Gone)),
            (4, 2),
            "{told:?}"
        );
        drop(taken);
        let (stream, _) = UnixStream::pair().expect("sockets");
        let fixture = Fixture {
            connection,
            server,
            stream,
            results,
            sender,
        };
        assert_eq!(fixture.post(1), Err(Failure::Gone));
        assert!(fixture.connection.is_gone());
    }
}

#[test]
fn a_request_that_is_too_late_keeps_its_slot_until_it_is_answered() {
    let fixture = Fixture::new(4);
    let post = |number, deadline| {
        let is_waiting = Arc::new(AtomicBool::new(true));
        let sender = fixture.sender.clone();
        let request = watch::Request {
            operation: Operation::EcdsaSign,
            key: 7,
            input: Zeroizing::new(vec![number]),
            length: 1,
            asker: Box::new(Note {
                number,
                sender,
                is_waiting: Arc::clone(&is_waiting),
            }),
            deadline,
            pause: Duration::ZERO,
            wait: Wait::since(0),
        };
        let connection = &fixture.connection;
        let posted = connection.watch.post(&connection.client, request);
        posted.expect("it is there");
        is_waiting
    };
    let now = Instant::now();
    (0..4).for_each(|number| drop(post(number, now)));
    let told = fixture.told(4);
    assert!(
        told.iter()
            .all(|(_, result)| *result == Err(Failure::TimedOut)),
        "{told:?}"
    );
    // There is no room now. A request without an owner is dropped.
    let later = now + Duration::from_secs(3600);
    let unwanted = post(4, later);
    unwanted.store(false, Ordering::SeqCst);
    post(5, later);
    fixture.take(4).into_iter().for_each(echo);
    let taken = fixture.take(1);
    assert!(taken.iter().all(|request| request.input() == [5]));
    taken.into_iter().for_each(echo);
    assert_eq!(fixture.told(1), [(5, Ok(Zeroizing::new(vec![5])))]);
}

/// A waiting thread and a watching one report a missing answer in the same way.
#[test]
fn a_daemon_that_has_answered_something_is_not_silent() {
    let fixture = Fixture::new(8);
    let begun = [1, 2, 3].map(|number| fixture.begin(number).expect("room"));
    let [first, second, third] = begun;
    let taken: [Taken; 3] = fixture.take(3).try_into().expect("three");
    let [one, two, three] = taken;
    let past = Instant::now();
    let silent = fixture.finish(Some(first), 1, past);
    assert_eq!(silent, Err(Failure::TimedOut));
    echo(two);
    let answered = fixture.finish(Some(second), 2, past);
    assert_eq!(answered, Ok(Zeroizing::new(vec![2])));
    let late = fixture.finish(Some(third), 3, past);
    assert_eq!(late, Err(Failure::Late));
    // A later request does not know of it.
    let fourth = fixture.begin(4);
    assert_eq!(fixture.finish(fourth, 4, past), Err(Failure::TimedOut));
    drop((one, three));

    let wait = |wait: Wait| wait.failure(fixture.connection.room().answers());
    let answers = fixture.connection.room().answers();
    assert_eq!(wait(Wait::since(answers)), Failure::TimedOut);
    fixture.post(5).expect("it is there");
    fixture.take(2).into_iter().for_each(echo);
    fixture.told(1);
    assert_eq!(wait(Wait::since(answers)), Failure::Late);
}

#[test]
fn what_the_daemon_refuses_and_does_not_answer_then_was_refused() {
    let fixture = Fixture::new(4);
    // The deadline comes while the daemon has the repeated request.
    let begun = fixture.begin(1);
    let [request] = fixture.take(1).try_into().expect("one");
    request.answer(BUSY, &[]);
    let deadline = Instant::now() + Duration::from_millis(100);
    assert_eq!(fixture.finish(begun, 1, deadline), Err(Failure::Busy));
    // The same for a watched request.
    let deadline = Instant::now() + Duration::from_millis(100);
    fixture.post_until(2, deadline).expect("it is there");
    // The daemon may still have the first one.
    let mut taken = std::iter::repeat_with(|| fixture.take(1)).flatten();
    let request = taken.find(|request| request.input() == [2]);
    request.expect("it is there").answer(BUSY, &[]);
    assert_eq!(fixture.told(1), [(2, Err(Failure::Busy))]);
}

/// Its remedy differs from that of a refused request.
#[test]
fn a_watched_request_that_finds_no_room_until_its_deadline_is_told() {
    let fixture = Fixture::new(4);
    let _begun: Vec<_> = (0..4).map(|number| fixture.begin(number)).collect();
    let deadline = Instant::now() + Duration::from_millis(20);
    fixture.post_until(4, deadline).expect("it waits");
    assert_eq!(fixture.told(1), [(4, Err(Failure::Full))]);
}

/// The thread that has waited longest gets the next slot, before a thread that comes when it is
/// free.
#[test]
fn threads_wait_for_room_in_order() {
    let fixture = Fixture::new(4);
    let room = fixture.connection.room();
    let mut begun: Vec<_> = (0..4).map(|number| fixture.begin(number)).collect();
    let mut taken = fixture.take(4);
    taken.sort_by_key(|request| request.input().to_vec());
    thread::scope(|scope| {
        let waiters: Vec<_> = (4..20)
            .map(|number| {
                let waiter = scope.spawn({
                    let fixture = &fixture.connection;
                    move || finish(fixture, None, number, soon())
                });
                while room.waiting() < usize::from(number) - 3 {
                    thread::yield_now();
                }
                waiter
            })
            .collect();
        for number in 0..20 {
            let request = taken.remove(0);
            assert_eq!(request.input(), [number]);
            echo(request);
            if number < 4 {
                let answer = fixture.finish(begun.remove(0), number, soon());
                assert_eq!(answer, Ok(Zeroizing::new(vec![number])));
                // It is too late for the slot that is free now.
                assert!(fixture.begin(99).is_none());
            }
            if number < 16 {
                taken.extend(fixture.take(1));
            }
        }
        for (number, waiter) in (4..).zip(waiters) {
            let answer = waiter.join().expect("no panic");
            assert_eq!(answer, Ok(Zeroizing::new(vec![number])));
        }
    });
    assert_eq!(room.waiting(), 0);
    assert!(fixture.begin(99).is_some());
}

#[test]
fn who_waits_no_longer_for_room_keeps_nobody_from_it() {
    let fixture = Fixture::new(4);
    let room = fixture.connection.room();
    let mut begun: Vec<_> = (0..4).map(|number| fixture.begin(number)).collect();
    let taken = fixture.take(4);
    let past = Instant::now();
    assert_eq!(fixture.finish(None, 4, past), Err(Failure::Full));
    thread::scope(|scope| {
        // The first or the second one gives up, in either order.
        for _ in 0..2 {
            let brief = Instant::now() + Duration::from_millis(20);
            let connection = &fixture.connection;
            scope.spawn(move || {
                let answer = finish(connection, None, 5, brief);
                assert_eq!(answer, Err(Failure::Full));
            });
        }
        while room.waiting() > 0 {
            thread::yield_now();
        }
    });
    thread::scope(|scope| {
        let connection = &fixture.connection;
        let waiter = scope.spawn(move || finish(connection, None, 6, soon()));
        while room.waiting() == 0 {
            thread::yield_now();
        }
        taken.into_iter().for_each(echo);
        let answer = fixture.finish(begun.remove(0), 0, soon());
        assert_eq!(answer, Ok(Zeroizing::new(vec![0])));
        fixture.take(1).into_iter().for_each(echo);
        let answer = waiter.join().expect("no panic");
        assert_eq!(answer, Ok(Zeroizing::new(vec![6])));
    });
}

/// By `siglongjmp` out of a signal handler, while they waited.
#[test]
fn places_of_threads_that_have_left_without_a_word_are_given_up_in_the_end() {
    let fixture = Fixture::new(4);
    (0..4).for_each(|number| std::mem::forget(fixture.begin(number)));
    fixture.take(4).into_iter().for_each(echo);
    let brief = Instant::now() + Duration::from_millis(20);
    assert_eq!(fixture.finish(None, 4, brief), Err(Failure::Full));
    assert!(!fixture.connection.is_gone(), "they may be slow");
    let deadline = Instant::now() + ANSWER / 2;
    assert_eq!(fixture.finish(None, 5, deadline), Err(Failure::Full));
    assert!(fixture.connection.is_gone(), "the next one has a new ring");
}

#[test]
fn threads_that_wait_for_room_learn_of_the_end_of_the_daemon() {
    let fixture = Fixture::new(4);
    let _begun: Vec<_> = (0..4).map(|number| fixture.begin(number)).collect();
    let connection = &fixture.connection;
    thread::scope(|scope| {
        let wait = |_| scope.spawn(move || finish(connection, None, 5, soon()));
        let waiters: Vec<_> = (0..8).map(wait).collect();
        while connection.room().waiting() < 8 {
            thread::yield_now();
        }
        drop(fixture.stream);
        for waiter in waiters {
            let answer = waiter.join().expect("no panic");
            assert_eq!(answer, Err(Failure::Gone));
        }
    });
    // The next request goes to the next daemon.
    assert!(connection.is_gone());
}

#[test]
fn who_waits_for_an_answer_learns_of_the_end_of_the_daemon() {
    let Fixture {
        connection, stream, ..
    } = Fixture::new(4);
    let begun = connection.begin(Operation::EcdsaSign, &key(), &[1]);
    drop(stream);
    assert_eq!(finish(&connection, begun, 1, soon()), Err(Failure::Lost));
    assert!(connection.is_gone());
}

/// A stopped daemon is given up soon, and one that computes for others is not.
#[test]
fn a_daemon_is_waited_for_as_long_as_it_works() {
    let fixture = Fixture::new(4);
    let connection = &fixture.connection;
    fixture.server.beat();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| finish(connection, None, 1, soon()));
        let taken = fixture.take(1);
        // Much longer than a daemon may stand still.
        for _ in 0..75 {
            thread::sleep(Duration::from_millis(20));
            fixture.server.beat();
        }
        taken.into_iter().for_each(echo);
        let answer = waiter.join().expect("no panic");
        assert_eq!(answer, Ok(Zeroizing::new(vec![1])));
    });
    let start = Instant::now();
    let answer = finish(connection, None, 2, soon());
    assert_eq!(answer, Err(Failure::Silent));
    assert!(start.elapsed() < ANSWER / 2, "{:?}", start.elapsed());
    // Other threads would wait in vain, too.
    assert!(connection.is_gone());
}

#[test]
fn what_was_asked_when_an_idle_connection_ended_is_asked_again() {
    for (closing, expected) in [
        (Closing::Idle, Failure::Gone),
        (Closing::Followed, Failure::Lost),
        (Closing::Unsaid, Failure::Lost),
    ] {
        let fixture = Fixture::new(4);
        let begun = fixture.begin(1);
        fixture.post(2).expect("it is there");
        let dropped = fixture.take(1);
        fixture.server.close_as(closing);
        assert_eq!(fixture.finish(begun, 1, soon()), Err(expected.clone()));
        assert_eq!(fixture.told(1), [(2, Err(expected))]);
        drop(dropped);
        assert_eq!(fixture.finish(None, 3, soon()), Err(Failure::Gone));
    }
}

/// If nobody reads the greeting, a process looks again later without waiting.
#[test]
fn a_greeting_waits_for_a_daemon_that_does_not_read_it() {
    let directory = TempDir::new("greeting");
    let socket = directory.join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let opening = Opening::start(&socket, Duration::ZERO, &Mark::new());
    let mut opening = opening.expect("a listener");
    assert!(opening.is_own());
    opening.process += 1;
    assert!(!opening.is_own(), "another process has connected");
    let (brief, start) = (Duration::from_millis(50), Instant::now());
    assert_eq!(opening.is_answered(brief, soon()), Ok(false));
    assert!(start.elapsed() >= brief && start.elapsed() < CONNECT / 2);
    assert_eq!(opening.is_answered(Duration::ZERO, soon()), Ok(false));
    let (mut stream, _) = listener.accept().expect("a client");
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting).expect("a greeting");
    // The daemon works now, and is waited for in spite of a short patience.
    thread::scope(|scope| {
        let answered = scope.spawn(|| opening.is_answered(Duration::ZERO, soon()));
        thread::sleep(brief);
        let sent = lockstep_ring::send(&stream, &accepting(), ring().as_fd());
        sent.expect("a client");
        assert_eq!(answered.join().expect("no panic"), Ok(true));
    });
    assert!(opening.finish(soon(), &socket, &Mark::new()).is_ok());
}

/// A key of the same name may be another one: after a renewal, or in somebody else's reference. The
/// name only chooses among keys with the same public half.
#[test]
fn a_key_is_the_one_whose_public_half_is_asked_for() {
    let fixture = Fixture::new(4);
    let connection = &fixture.connection;
    assert_eq!(connection.key("a", &[]), Ok(&key()));
    assert_eq!(connection.key("a", &[1]), Err(Failure::OtherKey));
    assert_eq!(connection.key("b", &[]), Ok(&key()));
    assert_eq!(connection.key("b", &[1]), Err(Failure::NoKey));
    assert_eq!(connection.key_of(&[]), Some(&key()));
    assert_eq!(connection.key_of(&[1]), None);
}

#[test]
fn a_child_that_is_forked_while_threads_wait_for_room_waits_for_none_of_them() {
    let Fixture { connection, .. } = Fixture::new(4);
    connection.room().leave_locked();
    connection.give_up();
    let answer = in_time(move || finish(&connection, None, 1, soon()));
    assert_eq!(answer, Err(Failure::Gone));
}

#[test]
fn a_stopped_process_is_told_from_one_that_waits_or_has_no_time() {
    // A search for the first closing parenthesis would stop inside this name.
    let mut child = Command::new("sh")
        .args([
            "-c",
            "printf ') T 1' > /proc/$$/comm; echo; sleep 60 & wait",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = [0];
    let stdout = child.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut line).expect("a line");
    let number = i32::try_from(child.id()).expect("a number");
    let pid = rustix::process::Pid::from_raw(number).expect("a process");
    let signal = |signal| rustix::process::kill_process(pid, signal).expect("a child");
    let waits_for = |stopped| {
        let end = Instant::now() + Duration::from_secs(20);
        while is_stopped(number) != stopped {
            assert!(Instant::now() < end, "stopped: {stopped}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert!(!is_stopped(number));
    signal(rustix::process::Signal::STOP);
    waits_for(true);
    signal(rustix::process::Signal::CONT);
    waits_for(false);
    child.kill().expect("a child");
    child.wait().expect("a child");
    assert!(!is_stopped(number) && !is_stopped(-1));
}

#[test]
fn a_daemon_that_stands_still_is_waited_for_less_long_where_it_is_stopped() {
    let looks = |is_stopped: bool, beat: &dyn Fn(u32) -> Option<u32>| {
        let mut still = Still::since(beat(0));
        (1..=2 * MOST_STILL).find(|&look| still.is_for_long(beat(look), || is_stopped))
    };
    assert_eq!(looks(true, &|_| Some(7)), Some(STOPPED_STILL));
    assert_eq!(looks(false, &|_| Some(7)), Some(MOST_STILL));
    assert_eq!(looks(true, &|look| Some(look / 10)), None);
    assert_eq!(looks(true, &|_| None), None);
}
