//! Processes that fork: before and after first use, with busy workers, and again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use lockstep_engine::Fallback;

use crate::common::{Counters, Finished, Place};

/// Signatures that each process of `programs/fork.c` makes.
const EACH: u64 = 20;

#[test]
fn fork_before_first_use() {
    expect_family("before", 2, 2);
}

#[test]
fn fork_after_first_use() {
    expect_family("after", 2, 2);
}

#[test]
fn fork_again_and_again() {
    expect_family("nested", 4, 4);
}

/// Sandboxes make processes by the system call, of which the module is not told.
#[test]
fn a_process_that_nobody_announces_uses_no_secret_of_its_parent() {
    let place = Place::new();
    let program = place.compile("unannounced");
    let raw = format!("raw {}", place.key("rsa2048"));
    for (way, pairs) in [(raw.as_str(), 25), ("namespace", 17)] {
        let finished = place.program(&program, way).with_lockstep().succeed();
        let text = finished.text();
        if text.starts_with("skipped") {
            println!("{text}");
            continue;
        }
        let made: Vec<&str> = text.lines().collect();
        let different: BTreeSet<&str> = made.iter().copied().collect();
        assert_eq!((made.len(), different.len()), (pairs, pairs), "{finished}");
        let counters = finished.all_counters();
        let served: u64 = counters.values().map(|own| own.operations()).sum();
        let failed: u64 = counters.values().map(|own| own.failed_checks).sum();
        assert!(served > 0 && failed == 0, "{finished} {counters:?}");
    }
}

/// Its parent's threads, for which the parent waits at its own end, are not there.
#[test]
fn a_child_of_the_number_of_its_parent_waits_for_no_thread_at_its_end() {
    let place = Place::new();
    let program = place.compile("unannounced");
    let way = format!("exit {}", place.key("rsa2048"));
    let finished = place.program(&program, &way).with_lockstep().succeed();
    let text = finished.text();
    if text.starts_with("skipped") {
        println!("{text}");
        return;
    }
    // The child left the parent's counters where they were.
    let counters = finished.all_counters();
    let signed: u64 = counters.values().map(|own| own.of("rsa2048")).sum();
    assert_eq!(signed, 2, "{finished} {counters:?}");
}

#[test]
fn fork_while_threads_sign() {
    // 8 forks from a process with 4 threads that sign without pause.
    let (finished, family) = family("threads");
    assert_eq!(family.len(), 9, "{finished} {family:?}");
    for (pid, counters) in &family {
        if *pid == finished.pid {
            assert!(
                counters.of("rsa2048") > 0 && counters.fallbacks() == 0,
                "{finished}"
            );
        } else {
            counters.expect("rsa2048", EACH, &finished.to_string());
        }
    }
}

#[test]
fn fork_while_async_jobs_are_paused() {
    let (finished, family) = family("jobs");
    assert_eq!(family.len(), 2, "{finished} {family:?}");
    for (pid, counters) in &family {
        assert!(
            counters.of("rsa2048") >= EACH && counters.fallbacks() == 0,
            "{pid} {finished}"
        );
    }
}

#[test]
fn jobs_are_resumed_on_both_sides_of_a_fork() {
    let (finished, family) = family_in(&Place::new(), "resumed", "rsa2048");
    assert_eq!(family.len(), 2, "{finished} {family:?}");
    for (pid, counters) in &family {
        // In the child OpenSSL signs the requests that the parent has posted, so no request is
        // served in both processes.
        let signed = if *pid == finished.pid { 12 } else { 0 };
        assert_eq!(counters.of("rsa2048"), signed, "{finished} {counters:?}");
    }
}

#[test]
fn jobs_that_workers_serve_are_resumed_on_both_sides_of_a_fork() {
    let place = Place::new();
    let (finished, family) = family_in(&place, "resumed-callback", "rsa2048");
    assert_eq!(family.len(), 2, "{finished} {family:?}");
    for (pid, counters) in &family {
        // The child has no workers, and OpenSSL signs there.
        let is_child = *pid != finished.pid;
        let unavailable = counters.fallbacks_for(Fallback::AsyncUnavailable);
        assert_eq!(unavailable > 0, is_child, "{finished} {counters:?}");
        assert_eq!(
            counters.of("rsa2048") == 0,
            is_child,
            "{finished} {counters:?}"
        );
    }
}

#[test]
fn openssl_speed_with_two_processes() {
    let place = Place::new();
    let finished = place
        .lockstep("speed -elapsed -seconds 1 -multi 2 rsa2048")
        .succeed();
    let busy: Vec<u64> = finished
        .all_counters()
        .values()
        .map(|c| c.of("rsa2048"))
        .filter(|operations| *operations > 3)
        .collect();
    assert_eq!(busy.len(), 2, "{finished} {busy:?}");
}

#[test]
fn a_server_that_forks_for_every_client() {
    // nginx and PostgreSQL work like this: load in the master, sign in children.
    expect_family("master", 5, 4);
}

/// Each child checks itself that it computed on lanes.
#[test]
fn fork_during_first_uses() {
    let (children, hung) = first_uses(25, 300);
    assert_eq!((children, hung), (200, 0));
}

/// The same for as long as `cargo xtask nightly` says.
#[test]
#[ignore = "cargo xtask nightly forks"]
fn fork_during_first_uses_for_long() {
    let seconds =
        std::env::var("NIGHTLY_SECONDS").map_or(60, |text| text.parse().expect("seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut children, mut hung) = (0, 0);
    while Instant::now() < end {
        let (more, found) = first_uses(100, 600);
        (children, hung) = (children + more, hung + found);
    }
    println!(
        "\nnightly: cases {children} findings {hung} next 0 note children forked during first uses"
    );
}

/// So many generations of `programs/first_use.c`, with eight children each: how many children there
/// were, and how many hung.
fn first_uses(generations: u32, limit: u64) -> (u32, u32) {
    let place = Place::new();
    let program = place.compile("first_use");
    let keys = ["rsa2048", "p256", "p384", "ed25519", "x25519"].map(|name| place.key(name));
    let arguments = format!("{generations} 8 {}", keys.join(" "));
    let finished = place
        .program(&program, &arguments)
        .with_lockstep()
        .limit(limit)
        .run();
    let text = finished.text();
    let counts: Vec<u32> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match counts[..] {
        [children, hung] => (children, hung),
        _ => panic!("{finished}"),
    }
}

/// Runs a way of `programs/fork.c`; its processes and how many of them sign are known.
#[track_caller]
fn expect_family(way: &str, processes: usize, signers: usize) {
    let (finished, family) = family(way);
    let signed: Vec<&Counters> = family.values().filter(|c| c.operations() > 0).collect();
    let reported = finished
        .text()
        .lines()
        .filter(|line| line.starts_with("process "))
        .count();
    assert_eq!(
        (reported, signed.len()),
        (processes, signers),
        "{finished} {family:?}"
    );
    for counters in signed {
        counters.expect("rsa2048", EACH, &finished.to_string());
    }
}

fn family(way: &str) -> (Finished, BTreeMap<u32, Counters>) {
    family_of(way, "rsa2048")
}

fn family_of(way: &str, key: &str) -> (Finished, BTreeMap<u32, Counters>) {
    family_in(&Place::new(), way, key)
}

fn family_in(place: &Place, way: &str, key: &str) -> (Finished, BTreeMap<u32, Counters>) {
    let program = place.compile("fork");
    let key = place.key(key);
    let finished = place
        .program(&program, &format!("{way} {key} {EACH}"))
        .with_lockstep()
        .succeed();
    let family = finished.all_counters();
    (finished, family)
}
