//! Faults in the lanes (a module built with the feature `fault-injection`): the signature that
//! leaves is right all the same, OpenSSL has computed it, and the counters say so. And wake-ups
//! that are lost on purpose, which the tests of threads and jobs must notice.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use lockstep_kernels::backend::Backend;
use lockstep_kernels::fault::Point;

use crate::common::{Place, Process, key};
use crate::worker::Jobs;

/// The module that can be made to fail, as `cargo xtask test` builds it.
pub fn faulty() -> Option<PathBuf> {
    let directory = std::env::var_os("LOCKSTEP_FAULT_DIST").map(PathBuf::from);
    if directory.is_none() {
        println!("skipped: no LOCKSTEP_FAULT_DIST (cargo xtask test builds that module)");
    }
    directory
}

/// The points of an RSA operation on the vectors of this machine.
fn points() -> impl Iterator<Item = Point> + Clone {
    Point::of(Backend::best_hardware().unwrap_or(Backend::PORTABLE))
}

/// Request, half, limb and bit of faults; there are not so many limbs as the last says, so it is in
/// the top one.
const PLACES: [&str; 4] = ["0:0:0:0", "0:1:3:51", "0:0:7:17", "0:1:999:3"];

#[test]
fn no_fault_gets_out_of_a_lone_request() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    place.write("data", b"data");
    let names = ["rsa1024", "rsa2048", "rsa3072", "rsa4096"];
    for (turn, name) in names.into_iter().enumerate() {
        let key = place.key(name);
        let sign = format!("dgst -sha256 -sign {key} data");
        let expected = place.stock(&sign).succeed().stdout;
        for (point, place_of_fault) in points().zip(PLACES.iter().cycle().skip(turn)) {
            // A short exponent may not choose the power that is wrong.
            if (name, point) == ("rsa1024", Point::Table) {
                continue;
            }
            let fault = format!("{point:?}:{place_of_fault}");
            let signed = place
                .lockstep(&sign)
                .on_vectors()
                .env("LOCKSTEP_FAULT", &fault)
                .succeed();
            assert!(signed.stdout == expected, "{fault} got out: {signed}");
            let counters = signed.counters();
            let caught = (counters.failed_checks, counters.fallback("check_failed"));
            assert_eq!(caught, (1, 1), "{fault}: {counters:?}");
            assert_eq!((counters.of(name), counters.fallbacks()), (1, 1), "{fault}");
        }
        // The same module without a fault is right by itself.
        place.lockstep(&sign).succeed().on_lanes(name, 1);
    }
}

#[test]
fn no_fault_gets_out_of_a_batch_and_the_neighbours_are_spared() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    let mut jobs = Jobs::default();
    for name in ["rsa2048", "rsa2048-b", "rsa2048-c"] {
        jobs.add_key(&key(name));
    }
    for number in 0..240 {
        jobs.sign(number % 3, format!("message {number}").as_bytes());
    }
    let (_, expected) = jobs.answer_all(&place, 8, false);
    for (point, request) in points().zip([0, 1, 2].into_iter().cycle()) {
        let fault = format!("{point:?}:{request}:1:5:20");
        let process = jobs
            .process(&place, 12)
            .with_lockstep()
            .on_vectors()
            .env("LOCKSTEP_FAULT", &fault);
        let finished = process.limit(120).succeed();
        assert!(
            jobs.answers(&place) == expected,
            "{fault} got out: {finished}"
        );
        let counters = finished.counters();
        assert_eq!(counters.of("rsa2048"), 240, "{fault}: {counters:?}");
        assert!(counters.failed_checks > 0, "{fault}: {counters:?}");
        assert_eq!(
            counters.failed_checks,
            counters.fallback("check_failed"),
            "{fault}"
        );
        assert_eq!(counters.failed_checks, counters.fallbacks(), "{fault}");
        // One request in a batch was struck, or two where lanes changed places.
        let struck = if point == Point::LaneOrder { 2 } else { 1 };
        assert!(
            counters.failed_checks <= struck * counters.batches,
            "{fault}: {counters:?}"
        );
    }
}

#[test]
fn a_fault_in_a_decryption_is_repaired() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    let key = place.key("rsa2048");
    place.write("secret", b"secret");
    let oaep = "-pkeyopt rsa_padding_mode:oaep";
    place
        .stock(&format!(
            "pkeyutl -encrypt -pubin -inkey rsa2048.pub.pem -in secret -out sealed {oaep}"
        ))
        .succeed();
    let opened = place
        .lockstep(&format!("pkeyutl -decrypt -inkey {key} -in sealed {oaep}"))
        .env("LOCKSTEP_FAULT", "Recombined:0:0:2:2")
        .succeed();
    assert_eq!(opened.stdout, b"secret");
    assert_eq!(opened.counters().failed_checks, 1);
}

#[test]
fn no_fault_gets_out_of_a_curves_signature() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[("check_every", "1")]);
    place.write("data", &[0x5a; 32]);
    for (name, shape, options, point) in [
        ("p256", "p256-sign", "", "Recombined"),
        ("p384", "p384-sign", "", "Recombined"),
        ("ed25519", "ed25519-sign", "-rawin", "Accumulator"),
        ("ed25519", "ed25519-sign", "-rawin", "Exponent"),
    ] {
        let key = place.key(name);
        let sign = format!("pkeyutl -sign -inkey {key} {options} -in data -out signature");
        let verify = format!("pkeyutl -verify -inkey {key} {options} -in data -sigfile signature");
        for rest in ["0:0:1:17", "0:0:0:0", "0:0:3:51"] {
            let fault = format!("{point}:{rest}");
            let signed = place
                .lockstep(&sign)
                .env("LOCKSTEP_FAULT", &fault)
                .succeed();
            place.stock(&verify).succeed();
            place.remove("signature");
            let counters = signed.counters();
            let caught = (counters.failed_checks, counters.fallback("check_failed"));
            assert_eq!(caught, (1, 1), "{name} {fault}: {counters:?}");
            assert_eq!(
                (counters.of(shape), counters.fallbacks()),
                (1, 1),
                "{fault}"
            );
        }
        // The same module without a fault is right by itself.
        place.lockstep(&sign).succeed().on_lanes(shape, 1);
    }
}

/// Runs a process to its end, or until it has done nothing for a second. Returns whether it ended.
fn ends(process: Process<'_>) -> bool {
    let mut running = process.start();
    let (mut done, mut since) = (0, Instant::now());
    while running.is_alive() {
        let counters = running.counters();
        let now = counters.map_or(0, |c| c.operations() + c.fallbacks() + c.async_submitted);
        if now != done || now == 0 {
            (done, since) = (now, Instant::now());
        } else if since.elapsed() > Duration::from_secs(1) {
            println!("hangs after {done} operations and submissions");
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(running.wait().status.success());
    true
}

/// The tests of threads and jobs with a lost wake-up: the jobs must not end.
#[test]
fn a_lost_wake_up_is_noticed() {
    let Some(faulty) = faulty() else { return };
    // One slot: a thread that finds it taken must be woken.
    let place = Place::of(&faulty, &[("slots", "1")]);
    let mut jobs = Jobs::default();
    jobs.add_key(&key("rsa2048"));
    for number in 0..480 {
        jobs.sign(0, format!("message {number}").as_bytes());
    }
    let threads = || jobs.process(&place, 16).with_lockstep().on_vectors();
    let program = place.compile("async");
    let key = place.key("rsa2048");
    // One job at a time: the worker has nothing to do after each, and sleeps. A worker serves a job
    // with a callback.
    let in_jobs = || {
        let arguments = format!("callback {key} 1 200");
        let process = place.program(&program, &arguments);
        process.with_lockstep().on_vectors()
    };
    assert!(ends(threads()) && ends(in_jobs()));
    assert!(!ends(in_jobs().env("LOCKSTEP_PLANT", "lost-job")));
    // A thread computes its request itself that no other one has taken within 50 ms. The models of
    // the queue find this defect.
    assert!(ends(threads().env("LOCKSTEP_PLANT", "lost-thread")));
    // An idle worker looks for waiting requests from time to time, so that nothing hangs.
    assert!(ends(in_jobs().env("LOCKSTEP_PLANT", "lost-worker")));
}
