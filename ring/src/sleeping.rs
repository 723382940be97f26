//! Tests: a waiting thread sleeps, and wakes up when there is work.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::tests::{PATIENT, call, notifying, pair, serve_reversed};
use super::*;
use crate::board::Bell;
use crate::sleep::Waker;
use crate::sync;
use crate::watcher::LONG;

/// Returns the number of times that the kernel has put this thread to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let name = "voluntary_ctxt_switches:";
    let number = status.lines().find_map(|line| line.strip_prefix(name));
    number.unwrap().trim().parse().unwrap()
}

/// A name, and a function that waits.
type Way = (&'static str, Box<dyn FnMut(Patience) + Send>);

/// Without a sleep, or with too short ones, the thread would look again and again.
#[test]
fn a_thread_that_waits_in_vain_sleeps_for_all_of_its_time() {
    let (server, client) = pair(4);
    let own = server.clone();
    let told = client.clone();
    let mut ticket = client.submit(&call(b"")).unwrap();
    let mut kept = Vec::new();
    server.take(|request| kept.push(request));
    let sleepers = [Sleeper::new(), Sleeper::with_watchers()];
    let [sleeper, watched] = sleepers.map(|sleeper| {
        let rings = [pair(1), pair(1)].map(|(server, _)| server);
        move |patience| sleeper.sleep(&rings, patience).unwrap()
    });
    let alone = Sleeper::new();
    let ways: [Way; 6] = [
        ("a daemon", Box::new(move |patience| own.sleep(patience))),
        (
            "a collector",
            Box::new(move |patience| told.answered(patience, |_| {}).unwrap()),
        ),
        (
            "a client",
            Box::new(move |patience| assert!(ticket.wait(patience).unwrap().is_none())),
        ),
        ("a sleeper", Box::new(sleeper)),
        ("a sleeper with watchers", Box::new(watched)),
        (
            "a sleeper without rings",
            Box::new(move |patience| alone.sleep(&[], patience).unwrap()),
        ),
    ];
    let threads: Vec<_> = ways
        .into_iter()
        .map(|(what, mut wait)| {
            thread::spawn(move || {
                // At the second time, the word may already have the flag of a waiting thread.
                for time in [Duration::from_millis(20), Duration::from_millis(1200)] {
                    let (before, start) = (sleeps(), Instant::now());
                    wait(Patience::new(Duration::ZERO, time));
                    assert!(start.elapsed() >= time, "{what}: {:?}", start.elapsed());
                    let count = sleeps() - before;
                    assert!((1..50).contains(&count), "{what}: {count} sleeps");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
}

/// A spinning thread sees the event that it waits for.
#[test]
fn a_look_finds_requests_answers_and_wake_ups() {
    let looking = Patience {
        spin: LONG,
        timeout: PATIENT.timeout,
    };
    let finds = |what: &str, wait: &dyn Fn(Patience)| {
        let start = Instant::now();
        wait(looking);
        assert!(start.elapsed() < LONG, "{what}: it looked in vain");
    };
    let (server, client) = pair(4);
    let rings = [server.clone()];
    let sleeper = Sleeper::new();
    server.wake();
    finds("a wake-up of a daemon", &|patience| server.sleep(patience));
    sleeper.wake();
    let sleep = |patience| sleeper.sleep(&rings, patience).unwrap();
    finds("a wake-up of a sleeper", &sleep);
    client.wake();
    let collect = |patience| client.answered(patience, |_| {}).unwrap();
    finds("a wake-up of a collector", &collect);
    let _ticket = client.submit(&notifying(b"")).unwrap();
    finds("a request", &|patience| server.sleep(patience));
    finds("a request of one of several", &sleep);
    serve_reversed(&server);
    finds("an answer", &collect);
}

#[test]
fn a_bell_says_whether_somebody_has_rung() {
    let bell = Bell::new();
    bell.announce();
    assert!(!bell.settle());
    bell.announce();
    bell.ring();
    assert!(bell.settle());
}

#[test]
fn a_wake_up_is_taken_once() {
    let waker = Waker::new();
    for _ in 0..2 {
        assert!(!waker.wake_up.seems_made() && !waker.wake_up.take());
        waker.wake();
        assert!(waker.wake_up.seems_made() && waker.wake_up.take());
    }
}

#[test]
fn a_last_look_finds_a_request() {
    let (server, client) = pair(1);
    assert!(server.is_idle() && !server.has_requests());
    let _ticket = client.submit(&call(b"")).unwrap();
    assert!(!server.is_idle() && server.has_requests());
    assert_eq!(serve_reversed(&server), 1);
    assert!(server.is_idle() && !server.has_requests());
}

#[test]
fn times_are_those_of_the_kernel() {
    let now = || clock_gettime(ClockId::Monotonic).tv_sec as u32;
    let before = now();
    let seconds = sync::seconds();
    assert!((before..=now()).contains(&seconds));
    let (time, start) = (Duration::from_millis(5), Instant::now());
    sync::pause(time);
    assert!(start.elapsed() >= time);
}
