//! A libcrypto program with many threads fills its lanes.

use crate::common::{Place, key};
use crate::worker::Jobs;

const THREADS: usize = 16;
const PER_THREAD: usize = 60;

/// Requests of sixteen threads in a pass of four, on average, at least. Beside other busy
/// processes, as in a run of all tests, leaders do not yield: fewer meet.
const FILL: f64 = 2.0;

#[test]
fn sixteen_threads_share_batches_and_every_signature_is_right() {
    // As on two cores: with more, each would serve fewer threads.
    let place = Place::with_settings(&[("slots", "2")]);
    let mut jobs = Jobs::default();
    for name in ["rsa2048", "rsa2048-b", "rsa2048-c"] {
        jobs.add_key(&key(name));
    }
    for number in 0..THREADS * PER_THREAD {
        jobs.sign(
            number % jobs.keys.len(),
            format!("message {number}").as_bytes(),
        );
    }
    let (_, expected) = jobs.answer_all(&place, THREADS, false);
    // On lanes that take more than two requests at a time.
    let process = jobs.process(&place, THREADS).limit(120).with_lockstep();
    let (ours, answers) = (process.succeed(), jobs.answers(&place));
    assert!(
        expected.iter().all(Option::is_some) && answers == expected,
        "{ours}"
    );
    ours.on_lanes("rsa2048", jobs.jobs.len() as u64);
    let counters = ours.counters();
    let fill = counters.average_fill();
    println!(
        "16 threads: {fill:.2} requests in a pass, {:?}",
        counters.pass_fill
    );
    assert!(fill >= FILL, "lanes stay empty: {counters:?}");
}

#[test]
fn threads_with_small_stacks_use_lanes_too() {
    let place = Place::new();
    let program = place.compile("small_stacks");
    for (key, shape) in [
        ("rsa2048", "rsa2048"),
        ("rsa4096", "rsa4096"),
        ("p256", "p256-sign"),
        ("ed25519", "ed25519-sign"),
    ] {
        let file = place.key(key);
        let process = place.program(&program, &format!("{file} 16 20"));
        let process = process.with_lockstep();
        let finished = match key {
            "p256" => process.succeed(),
            _ => process.on_vectors().succeed(),
        };
        let counters = finished.counters();
        assert_eq!(counters.of(shape), 320, "{finished} {counters:?}");
        assert_eq!(counters.of("x25519-keygen"), 320, "{finished} {counters:?}");
        assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
    }
}

/// A cancelled thread ends between two batches, because other threads wait for its batch.
#[test]
fn a_thread_that_is_cancelled_keeps_no_other_waiting() {
    let place = Place::new();
    let program = place.compile("unannounced");
    for (key, shape) in [("p256", "p256-sign"), ("rsa2048", "rsa2048")] {
        let arguments = format!("cancelled {} 200", place.key(key));
        let process = place.program(&program, &arguments).with_lockstep();
        let counters = process.succeed().counters();
        assert!(counters.of(shape) >= 200, "{counters:?}");
        assert_eq!(counters.fallbacks(), 0, "{counters:?}");
    }
}
