//! The daemon's use of resources, and its service for another user, **while** hostile clients are
//! at work: descriptors, memory, lines in the log, time of a signature. Figures after the end say
//! little, since the daemon can have given most of it back by then.
//!
//! A daemon without one of its limits exceeds a bound by far. `cargo xtask nightly keyd` disables
//! the limits one by one, and this test must notice each.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_remote::{Connection, Operation};
use lockstep_ring::Refused;
use lockstep_testkit::{TempDir, command};

use crate::hostile::{TestClient, call};
use crate::rights::{in_the_name_of, open_the_way};
use crate::site::{Daemon, own_user, padded_to};

/// Users: a hostile one with a key of RSA-4096, one with a key of P-256, and one without a key.
const HOSTILE: u32 = 100_001;
const VICTIM: u32 = 100_002;
const STRANGER: u32 = 100_003;

const PLACES: u64 = 32;
const LENGTH: usize = 512;
const TIME: Duration = Duration::from_secs(2);

/// The highest figures.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    descriptors: u64,
    /// In KiB.
    memory: u64,
    lines: u64,
    /// Mean times of a signature on a curve and of one with RSA-4096, and the longest time of any.
    curve: Duration,
    rsa: Duration,
    worst: Duration,
    signatures: usize,
}

/// An attack, which lasts until the flag is set.
type Harm = fn(&Daemon, &AtomicBool);

/// Runs an attack of a user for some time, while the victim signs.
fn peaks(daemon: &Daemon, user: u32, harm: Harm) -> Peaks {
    let is_over = AtomicBool::new(false);
    let mut peaks = Peaks::default();
    let before = daemon.lines();
    thread::scope(|scope| {
        let victim = scope.spawn(|| sign(daemon, &is_over));
        let harm = scope.spawn(|| in_the_name_of(user, user, || harm(daemon, &is_over)));
        let end = Instant::now() + TIME;
        while Instant::now() < end {
            let (descriptors, memory) = daemon.needs();
            peaks.descriptors = peaks.descriptors.max(descriptors);
            peaks.memory = peaks.memory.max(memory);
            thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Relaxed);
        let times = victim.join().expect("the victim has its answers");
        harm.join().expect("no panic");
        let mean = |of: fn(&[Duration; 2]) -> Duration| {
            times.iter().map(of).sum::<Duration>() / times.len() as u32
        };
        (peaks.curve, peaks.rsa) = (mean(|times| times[0]), mean(|times| times[1]));
        peaks.worst = *times.iter().flatten().max().expect("some");
        peaks.signatures = 2 * times.len();
    });
    peaks.lines = daemon.lines() - before;
    peaks
}

/// Signs one message after another with both keys; returns the time of each.
fn sign(daemon: &Daemon, is_over: &AtomicBool) -> Vec<[Duration; 2]> {
    let open = || Connection::open(&daemon.socket());
    let connection = in_the_name_of(VICTIM, VICTIM, open).expect("a place for another user");
    let [curve, rsa] = connection.keys() else {
        panic!("the daemon does not offer both keys");
    };
    let input = padded_to(LENGTH);
    let time = |operation, key, input: &[u8], length| {
        let start = Instant::now();
        let signed = connection.ask(operation, key, input, length);
        assert!(signed.is_ok(), "{}: {}", signed.unwrap_err(), daemon.log());
        start.elapsed()
    };
    let mut times = Vec::new();
    while times.is_empty() || !is_over.load(Relaxed) {
        times.push([
            time(Operation::EcdsaSign, curve, &[7; 32], 64),
            time(Operation::RsaPrivate, rsa, &input, LENGTH),
        ]);
        thread::sleep(Duration::from_micros(500));
    }
    times
}

fn nothing(_: &Daemon, _: &AtomicBool) {}

/// Keeps all slots of some rings posted with this input.
fn flood(daemon: &Daemon, is_over: &AtomicBool, rings: usize, input: &[u8]) {
    let processes: Vec<TestClient> = (0..rings).filter_map(|_| TestClient::new(daemon)).collect();
    assert!(!processes.is_empty(), "{}", daemon.log());
    let call = call(Operation::RsaPrivate as u16, 0, input);
    let mut tickets: Vec<Vec<_>> = processes.iter().map(|_| Vec::new()).collect();
    while !is_over.load(Relaxed) {
        for (process, tickets) in processes.iter().zip(&mut tickets) {
            tickets.retain_mut(|ticket: &mut lockstep_ring::Sent| {
                ticket.poll().is_ok_and(|answer| answer.is_none())
            });
            loop {
                match process.client.submit(&call) {
                    Ok(ticket) => tickets.push(ticket),
                    Err(Refused::Full) => break,
                    Err(_) => return,
                }
            }
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// Some connections with as many valid requests of RSA-4096 as fit.
fn floods_with_work(daemon: &Daemon, is_over: &AtomicBool) {
    flood(daemon, is_over, 4, &padded_to(LENGTH));
}

/// Many connections with requests that are refused after the check of their padding.
fn floods_with_garbage(daemon: &Daemon, is_over: &AtomicBool) {
    let mut input = vec![0x5a; LENGTH];
    input[LENGTH - 1] = 0xbc;
    flood(daemon, is_over, 12, &input);
}

/// Connections that make many requests and hang up at once, beside some that stay.
fn comes_and_goes(daemon: &Daemon, is_over: &AtomicBool) {
    let input = padded_to(LENGTH);
    thread::scope(|scope| {
        scope.spawn(|| flood(daemon, is_over, 8, &input));
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let Some(process) = TestClient::new(daemon) else {
                        continue;
                    };
                    let call = call(Operation::RsaPrivate as u16, 0, &input);
                    let tickets: Vec<_> = (0..16).map(|_| process.client.submit(&call)).collect();
                    // Time for the daemon to take the requests.
                    thread::sleep(Duration::from_micros(300));
                    drop((process, tickets));
                }
            });
        }
    });
}

/// A user without a key, who hangs up before the answer.
fn connects_without_a_key(daemon: &Daemon, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        drop(UnixStream::connect(daemon.socket()));
    }
}

#[test]
fn nobody_pays_for_what_another_user_does() {
    if own_user() != 0 {
        println!("skipped: only root can be several users");
        return;
    }
    let place = TempDir::new("keyd-peaks");
    let make = |name: &str, words: &[&str]| {
        let file = place.join(name);
        let mut openssl = command("openssl", &["genpkey", "-out"]);
        let made = openssl.arg(&file).args(words).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        file.display().to_string()
    };
    let rsa = make(
        "rsa",
        &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:4096"],
    );
    let ec = make(
        "ec",
        &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    );
    let daemon = Daemon::start(&format!(
        "max_clients = {PLACES}\nmax_clients_per_user = 24\n\
         [key hostile]\nfile = {rsa}\nusers = {HOSTILE}\nuses = sign\n\
         [key victim]\nfile = {ec}\nusers = {VICTIM}\nuses = sign\n\
         [key victim-too]\nfile = {rsa}\nusers = {VICTIM}\nuses = sign\n"
    ));
    open_the_way(&daemon);
    let alone = peaks(&daemon, STRANGER, nothing);
    println!("alone: {alone:?}");
    let harms: [(&str, u32, Harm); 4] = [
        ("work", HOSTILE, floods_with_work),
        ("garbage", HOSTILE, floods_with_garbage),
        ("comings and goings", HOSTILE, comes_and_goes),
        ("connects_without_a_key", STRANGER, connects_without_a_key),
    ];
    let mut wrong = Vec::new();
    for (what, user, harm) in harms {
        let seen = peaks(&daemon, user, harm);
        println!("{what}: {seen:?}");
        // The requests of RSA-4096 in four rings take 80 ms on the fastest lanes.
        let most = |alone: Duration| 4 * alone + Duration::from_millis(25);
        for (seen, alone) in [(seen.curve, alone.curve), (seen.rsa, alone.rsa)] {
            if seen > most(alone) {
                wrong.push(format!(
                    "{what}: a signature of another user takes {seen:?}"
                ));
            }
        }
        // Clients, and pending connections.
        if seen.descriptors > alone.descriptors + 5 * PLACES {
            wrong.push(format!("{what}: {} descriptors", seen.descriptors));
        }
        if seen.memory > alone.memory + (96 << 10) {
            wrong.push(format!("{what}: {} KiB of memory", seen.memory));
        }
        // As many as one account may have at once, for two of them.
        if seen.lines > 600 {
            wrong.push(format!("{what}: {} lines in the log", seen.lines));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
