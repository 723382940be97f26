//! Clients that attack the daemon: while they connect, by their requests, and by writing into their
//! rings while they are served. They are programs of random steps. A witness beside them must get
//! all of its answers, and the daemon must forget them.

use std::env;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_remote::Connection;
use lockstep_remote::protocol::{self, EARLIER, VERDICT, VERSION, Verdict, status};
use lockstep_ring::{Call, Client, INPUT, Patience, has_hung_up, receive, send};
use lockstep_testkit::{Random, TempDir, command};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;

use crate::site::{Daemon, KEYS, Witness, own_user, padded, wait_for};

/// Number of concurrent hostile clients.
const BESIDE: u64 = 4;
const SETTINGS: &str = "max_clients = 32\nmax_clients_per_user = 32\n";

fn connect(daemon: &Daemon) -> UnixStream {
    let stream = UnixStream::connect(daemon.socket()).expect("the daemon listens");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("a socket");
    stream.set_write_timeout(patience).expect("a socket");
    stream
}

/// Returns the daemon's verdict, and the ring that comes with it; `None` if it has hung up.
fn verdict(stream: &mut UnixStream) -> Option<(Verdict, Option<OwnedFd>)> {
    let mut bytes = [0; VERDICT];
    let received = receive(&*stream, &mut bytes).ok()?;
    if received.length == 0 {
        return None;
    }
    stream.read_exact(&mut bytes[received.length..]).ok()?;
    let (verdict, _, length) = protocol::read_verdict(&bytes).expect("a verdict");
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some((verdict, received.descriptor))
}

/// A client with a ring.
pub struct TestClient {
    stream: UnixStream,
    pub client: Client,
    /// The ring, of which it may change every byte.
    file: File,
}

impl TestClient {
    pub fn new(daemon: &Daemon) -> Option<TestClient> {
        let mut stream = connect(daemon);
        stream.write_all(&protocol::greeting(VERSION)).ok()?;
        let (verdict, ring) = verdict(&mut stream)?;
        if verdict != Verdict::Accepted {
            return None;
        }
        let ring = ring.expect("a ring with the verdict");
        Some(TestClient {
            stream,
            client: Client::attach(&ring).expect("a ring"),
            file: File::from(ring),
        })
    }

    /// Makes a request; returns the status and the length of the answer.
    fn ask(&self, operation: u16, key: u64, input: &[u8]) -> (u16, usize) {
        let call = call(operation, key, input);
        let mut ticket = self.client.submit(&call).expect("a free slot");
        let patience = Patience::new(Duration::ZERO, Duration::from_secs(20));
        let answer = ticket.wait(patience).expect("a ring");
        let answer = answer.expect("an answer in time");
        (answer.status, answer.output.len())
    }
}

/// Returns a request.
pub fn call(operation: u16, key: u64, input: &[u8]) -> Call<'_> {
    Call {
        operation,
        key,
        input,
        notify: false,
    }
}

/// Attacks without becoming a client, or after being one. Returns the number of messages to the
/// daemon.
fn attack_unserved(daemon: &Daemon, random: &mut Random) {
    let mut stream = connect(daemon);
    let greeting = protocol::greeting(VERSION);
    let length = random.word() as usize % greeting.len();
    // The daemon may hang up at any time.
    let say = |stream: &mut UnixStream, bytes: &[u8]| drop(stream.write_all(bytes));
    match random.word() % 10 {
        0 => {}
        1 => say(&mut stream, &random.vec(length)),
        2 => say(&mut stream, &greeting[..length]),
        3 => {
            let (first, rest) = greeting.split_at(length);
            say(&mut stream, first);
            thread::sleep(Duration::from_micros(random.word() % 3000));
            say(&mut stream, rest);
            assert!(verdict(&mut stream).is_some(), "{}", daemon.log());
        }
        4 => {
            let mut other = greeting;
            let version = (EARLIER - 1).saturating_sub(length as u32);
            other[8..].copy_from_slice(&version.to_le_bytes());
            say(&mut stream, &other);
            let verdict = verdict(&mut stream).map(|(verdict, _)| verdict);
            assert_eq!(verdict, Some(Verdict::OtherVersion), "{}", daemon.log());
        }
        5 => {
            let mut other = greeting;
            other[length % 8] ^= 1 << (random.word() % 8);
            say(&mut stream, &other);
            assert!(verdict(&mut stream).is_none(), "{}", daemon.log());
        }
        6 => {
            say(&mut stream, &greeting);
            say(&mut stream, &random.vec(60_000));
        }
        7 => {
            say(&mut stream, &greeting);
            let _ = stream.shutdown(Shutdown::Write);
            let _ = verdict(&mut stream);
        }
        8 => {
            let _ = send(&stream, &greeting, stream.as_fd());
            thread::sleep(Duration::from_micros(random.word() % 500));
        }
        _ => {
            say(&mut stream, &greeting);
            thread::sleep(Duration::from_micros(random.word() % 500));
        }
    }
}

/// Sizes of the ring's header, of a slot, and of the part of a slot before the input.
const HEADER: u64 = 448;
const SLOT: u64 = 2112;
const SLOT_HEAD: u64 = 32;

/// Changes a word of the ring.
fn scribble(process: &TestClient, random: &mut Random) {
    let slots = process.client.slots() as u64;
    let slot = HEADER + SLOT * (random.word() % slots);
    let place = match random.word() % 8 {
        0 => random.word() % HEADER,
        1 => slot + random.word() % SLOT,
        _ => slot + random.word() % SLOT_HEAD,
    };
    let word = match random.word() % 6 {
        0 => random.word() as u32,
        1 => u32::MAX,
        2 => 1 << (random.word() % 32),
        3 => INPUT as u32 + random.word() as u32 % 3 - 1,
        _ => random.word() as u32 % 8,
    };
    let written = process.file.write_at(&word.to_le_bytes(), place & !3);
    assert_eq!(written.expect("a file in memory"), 4);
}

/// Returns an input of some length, which may be valid for some key.
fn input(random: &mut Random) -> Vec<u8> {
    let length = match random.word() % 4 {
        0 => random.word() as usize % (INPUT + 1),
        _ => [0, 1, 32, 64, 65, 255, 256, 257][random.word() as usize % 8],
    };
    match random.word() % 3 {
        0 => padded(),
        _ => random.vec(length),
    }
}

/// Attacks as a client.
fn attack_served(daemon: &Daemon, random: &mut Random) {
    // The daemon may have no free place.
    let Some(mut process) = TestClient::new(daemon) else {
        return;
    };
    let mut tickets = Vec::new();
    for _ in 0..random.word() % 200 {
        match random.word() % 16 {
            0..8 => scribble(&process, random),
            8..13 => {
                let key = match random.word() % 8 {
                    0 => random.word(),
                    _ => random.word() % (KEYS.len() as u64 + 1),
                };
                let input = input(random);
                let call = call((random.word() % 6) as u16, key, &input);
                tickets.extend(process.client.submit(&call));
            }
            13 => tickets.clear(),
            14 => match random.word() % 4 {
                0 => drop(process.stream.write_all(&random.vec(100))),
                // A hole reads as zeros.
                1 => {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let start = random.word() % 16 * 4096;
                    let _ = fallocate(&process.file, hole, start, 4096);
                }
                _ => thread::sleep(Duration::from_micros(random.word() % 1000)),
            },
            _ => {
                for ticket in &mut tickets {
                    let _ = ticket.wait(Patience::new(Duration::ZERO, Duration::ZERO));
                }
            }
        }
    }
    if random.word().is_multiple_of(4) {
        // The end of the connection, before that of the ring.
        let _ = process.stream.shutdown(Shutdown::Both);
    }
}

fn attack(daemon: &Daemon, seed: u64) {
    let mut random = Random(seed);
    match random.word() % 3 {
        0 => attack_unserved(daemon, &mut random),
        _ => attack_served(daemon, &mut random),
    }
}

/// Attacks for some time with seeds from `start` on. Returns the next seed, and the number of steps
/// or the problem.
fn attack_for(time: Duration, start: u64) -> (u64, Result<u64, String>) {
    let daemon = Daemon::start(SETTINGS);
    // The daemon allocates some things once, for its first client.
    drop(TestClient::new(&daemon));
    let witness = Witness::start(&daemon);
    let Ok(before) = catch_unwind(AssertUnwindSafe(|| daemon.holdings_with(1))) else {
        let _ = witness.stop();
        // Its log may still be incomplete.
        wait_for("its end", || !daemon.is_alive());
        thread::sleep(Duration::from_millis(200));
        let what = format!("the daemon has ended without an attack\n{}", daemon.log());
        return (start, Err(what));
    };
    let end = Instant::now() + time;
    let next = AtomicU64::new(start);
    let attacks = || -> Result<(), String> {
        while Instant::now() < end {
            let seed = next.fetch_add(1, Relaxed);
            catch_unwind(AssertUnwindSafe(|| attack(&daemon, seed)))
                .map_err(|_| format!("seed {seed} was not answered as it should"))?;
            if !daemon.is_alive() {
                return Err(format!("the daemon has ended, perhaps by seed {seed}"));
            }
        }
        Ok(())
    };
    let outcomes: Result<(), String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..BESIDE).map(|_| scope.spawn(attacks)).collect();
        let outcomes = threads.into_iter().map(|it| it.join().expect("caught"));
        // All of them end before the first result is looked at.
        outcomes.collect::<Vec<_>>().into_iter().collect()
    });
    let forgets = || {
        wait_for("an end of all that belonged to the attackers", || {
            daemon.holdings() == before
        });
    };
    let forgets = |()| {
        catch_unwind(AssertUnwindSafe(forgets))
            .map_err(|_| format!("{before:?} has become {:?}", daemon.holdings()))
    };
    let outcome = outcomes.and_then(forgets).and(witness.stop());
    let outcome = outcome.map_err(|what| format!("{what}\n{}", daemon.log()));
    (next.into_inner(), outcome)
}

#[test]
fn hostile_clients_harm_themselves_only() {
    let (next, outcome) = attack_for(Duration::from_secs(3), 0);
    let served = outcome.unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{next} hostile clients, beside {served} signatures of an honest one");
    assert!(next > 20 && served > 20, "{next} {served}");
}

/// Runs as long as `cargo xtask nightly keyd` says.
#[test]
#[ignore = "long"]
fn hostile_clients_for_long() {
    let number = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let seconds = number("NIGHTLY_SECONDS").unwrap_or(10);
    let start = number("NIGHTLY_NEXT").unwrap_or(0).max(10_000);
    let (next, outcome) = attack_for(Duration::from_secs(seconds), start);
    let (findings, served) = match outcome {
        Ok(served) => (0, served),
        Err(wrong) => {
            println!("a finding: {wrong}");
            (1, 0)
        }
    };
    println!(
        "nightly: cases {} findings {findings} next {next} note hostile clients, beside {served} \
         signatures of an honest one",
        next - start
    );
}

/// A list of keys that is longer than a socket's buffer, and clients that do not read it.
#[test]
fn clients_that_do_not_read_keep_nobody_waiting() {
    let keys = TempDir::new("keyd-many");
    let file = keys.join("rsa");
    let made = command("openssl", &["genrsa", "-out"]).arg(&file).output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let (file, user) = (file.display(), own_user());
    let key = |number| {
        format!("[key of-the-many-{number:040}]\nfile = {file}\nusers = {user}\nuses = sign\n")
    };
    let daemon = Daemon::start(&format!(
        "{SETTINGS}{}",
        (0..1000).map(key).collect::<String>()
    ));
    let mut mute: Vec<UnixStream> = (0..8).map(|_| connect(&daemon)).collect();
    for stream in &mut mute {
        stream
            .write_all(&protocol::greeting(VERSION))
            .expect("a socket");
    }
    // A client waits for three seconds. If each of these took one second, it would wait in vain.
    let honest = Connection::open(&daemon.socket()).expect("a connection in time");
    assert_eq!(honest.keys().len(), 1000 + KEYS.len());
    // Each of them has lost its connection.
    for stream in &mute {
        wait_for("the end of a mute client's connection", || {
            has_hung_up(stream)
        });
    }
}

#[test]
fn who_connects_all_the_time_keeps_nobody_from_a_place_and_the_daemon_from_its_end() {
    let daemon = Daemon::start(SETTINGS);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    drop(UnixStream::connect(daemon.socket()));
                }
            });
        }
        thread::sleep(Duration::from_millis(100));
        // All of these have the same user, so a client may find all of its places taken.
        let comes_in = || Connection::open(&daemon.socket()).is_ok();
        let is_served = catch_unwind(AssertUnwindSafe(|| wait_for("a connection", comes_in)));
        daemon.signal(Signal::TERM);
        let ends = || wait_for("the end of the daemon", || !daemon.is_alive());
        let has_ended = catch_unwind(AssertUnwindSafe(ends));
        is_over.store(true, Relaxed);
        assert!(is_served.is_ok() && has_ended.is_ok());
    });
}

#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let daemon = Daemon::start(SETTINGS);
    daemon.leave_log_unread(true);
    let other = protocol::greeting(EARLIER - 1);
    let refused = || {
        let mut stream = connect(&daemon);
        stream.write_all(&other).expect("a socket");
        let verdict = verdict(&mut stream).map(|(verdict, _)| verdict);
        assert_eq!(verdict, Some(Verdict::OtherVersion));
    };
    // Each of these is a line, up to the limit for one user. They fill the pipe before.
    (0..300).for_each(|_| refused());
    Connection::open(&daemon.socket()).expect("a connection");
    daemon.leave_log_unread(false);
    let left_out = || {
        refused();
        let log = daemon.log();
        let count = |text: &str| {
            let line = log.lines().find(|line| line.contains(text))?;
            let numbers = line.split(' ').filter_map(|word| word.parse::<u64>().ok());
            numbers.into_iter().next()
        };
        // All lines but those that fit.
        count("left out ") >= Some(100) && count(" earlier lines are missing") >= Some(10)
    };
    wait_for("a line about what was left out", || {
        thread::sleep(Duration::from_millis(100));
        left_out()
    });
}

/// Forbidden requests in a valid ring: each gets its status, and changes nothing for the next one.
/// The daemon's log has their numbers, and nothing else about them.
#[test]
fn what_a_client_may_not_ask_is_refused() {
    let daemon = Daemon::start(SETTINGS);
    let process = TestClient::new(&daemon).expect("a connection");
    let [ed25519, p256, rsa] = [0, 1, 2];
    let random = Random(3).vec(256);
    let mut cipher = padded();
    cipher[1] = 2;
    // One of two numbers whose quotient can be any ciphertext.
    let free = [&padded()[..18], &[0, 0x30], &random[20..]].concat();
    let (done, forbidden, unfit) = (status::DONE, status::FORBIDDEN, status::UNFIT);
    let (mut served, mut refused) = (0, 0);
    for (operation, key, input, expected) in [
        (1, rsa, padded(), (done, 256)),
        (2, p256, vec![1; 32], (done, 64)),
        (3, ed25519, vec![1; INPUT], (done, 64)),
        (3, ed25519, vec![], (done, 64)),
        (4, rsa, padded(), (done, 256)),
        // An unknown operation.
        (0, rsa, padded(), (unfit, 0)),
        (5, rsa, padded(), (unfit, 0)),
        (u16::MAX, p256, vec![1; 32], (unfit, 0)),
        // An unknown key.
        (1, 3, padded(), (forbidden, 0)),
        (2, 1 << 32 | p256, vec![1; 32], (forbidden, 0)),
        (3, u64::MAX, vec![1; 32], (forbidden, 0)),
        // A key of another kind.
        (1, p256, vec![1; 32], (unfit, 0)),
        (2, rsa, vec![1; 32], (unfit, 0)),
        (3, p256, vec![1; 32], (unfit, 0)),
        (4, p256, vec![1; 32], (unfit, 0)),
        // Wrong lengths.
        (1, rsa, padded()[1..].to_vec(), (unfit, 0)),
        (1, rsa, [padded(), vec![0]].concat(), (unfit, 0)),
        (1, rsa, vec![], (unfit, 0)),
        (2, p256, vec![], (unfit, 0)),
        (2, p256, vec![1; 65], (unfit, 0)),
        // Numbers that are not padded as signatures.
        (1, rsa, random.clone(), (forbidden, 0)),
        (4, rsa, random, (forbidden, 0)),
        (1, rsa, cipher, (forbidden, 0)),
        (1, rsa, free, (forbidden, 0)),
        (1, rsa, vec![0; 256], (forbidden, 0)),
        (1, rsa, vec![0xff; 256], (forbidden, 0)),
    ] {
        let answer = process.ask(operation, key, &input);
        let length = input.len();
        assert_eq!(
            answer,
            expected,
            "{operation} {key} {length}: {}",
            daemon.log()
        );
        assert_eq!(process.ask(2, p256, &[9; 32]), (done, 64));
        served += 1 + u64::from(expected.0 == done);
        refused += u64::from(expected.0 != done);
    }
    drop(process);
    let counts = format!(" has ended: {served} requests, {refused} refused, 0 bad\n");
    wait_for(&counts, || daemon.log().contains(&counts));
    // Otherwise the log only has the start and the clients.
    let log = daemon.log();
    let kinds = [
        "holds the key ",
        "serves process ",
        "has ended: ",
        "no memory of memfd_secret",
    ];
    let is_known = |line: &str| kinds.iter().any(|kind| line.contains(kind));
    assert!(log.lines().all(is_known), "{log}");
    let is_secret = lockstep_vault::use_secret_memory();
    assert_eq!(
        log.contains("no memory of memfd_secret"),
        !is_secret,
        "{log}"
    );
}
