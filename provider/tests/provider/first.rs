//! First requests: OpenSSL serves them, and nothing is prepared for the lanes.
//!
//! All other tests run with `lone = lanes`, by which the first request is on lanes too. These run
//! with the settings that users have.

use crate::common::{Counters, Finished, Place, has_ifma};

/// The ways of `programs/first.c`, with the usual settings. None where the fast lanes are missing,
/// because the slow ones, which only a setting enables, serve first requests too.
fn take_way(place: &Place, way: &str, key: &str, more: &str) -> Option<Finished> {
    if !has_ifma() {
        return None;
    }
    let program = place.compile("first");
    let arguments = format!("{way} {} {more}", place.key(key));
    let process = place.program(&program, &arguments).with_lockstep();
    Some(process.env("LOCKSTEP_LONE", "auto").succeed())
}

/// Keys that were not prepared take no memory for keys.
#[track_caller]
fn expect_nothing_prepared(counters: &Counters, requests: u64) {
    assert_eq!(counters.reasons(), [("first", requests)], "{counters:?}");
    assert_eq!(
        (counters.operations(), counters.key_memory),
        (0, 0),
        "{counters:?}"
    );
}

#[test]
fn a_process_that_signs_once_prepares_nothing() {
    let place = Place::new();
    for key in ["rsa1024", "rsa2048", "pss2048", "p256", "p384", "ed25519"] {
        let Some(finished) = take_way(&place, "sign", key, "1") else {
            return;
        };
        // On curves the lanes verify, too.
        let requests = if key.contains("20") || key.contains("10") {
            1
        } else {
            2
        };
        expect_nothing_prepared(&finished.counters(), requests);
    }
}

#[test]
fn a_process_that_decrypts_once_prepares_nothing() {
    let place = Place::new();
    let Some(finished) = take_way(&place, "decrypt", "rsa2048", "1") else {
        return;
    };
    expect_nothing_prepared(&finished.counters(), 1);
}

/// RSA-1024 alone is faster on lanes; of RSA-3072 and RSA-4096 even the first one is.
#[test]
fn the_second_request_with_a_key_is_on_lanes() {
    let place = Place::new();
    for (way, key, on_lanes) in [
        ("sign", "rsa1024", 4),
        ("decrypt", "rsa1024", 4),
        ("sign", "rsa3072", 5),
        ("decrypt", "rsa4096", 5),
    ] {
        let Some(finished) = take_way(&place, way, key, "5") else {
            return;
        };
        let counters = finished.counters();
        assert_eq!(counters.of(key), on_lanes, "{way} {counters:?}");
        assert_eq!(
            counters.fallback("first"),
            5 - on_lanes,
            "{way} {counters:?}"
        );
        assert_eq!(counters.fallbacks(), 5 - on_lanes, "{way} {counters:?}");
    }
}

/// A duplicate and a key that is read again are other objects, which sign once.
#[test]
fn each_object_counts_for_itself() {
    let place = Place::new();
    let Some(finished) = take_way(&place, "copies", "rsa1024", "1") else {
        return;
    };
    expect_nothing_prepared(&finished.counters(), 3);
    let Some(finished) = take_way(&place, "copies", "rsa1024", "3") else {
        return;
    };
    let counters = finished.counters();
    assert_eq!(counters.reasons(), [("first", 3)], "{counters:?}");
    assert_eq!(counters.of("rsa1024"), 6, "{counters:?}");
}

/// On curves that OpenSSL is fast with, some requests more are left to it.
#[test]
fn a_process_that_signs_often_comes_to_the_lanes() {
    let place = Place::new();
    for (key, sign, verify) in [
        ("p256", "p256-sign", "p256-verify"),
        ("ed25519", "ed25519-sign", "ed25519-verify"),
    ] {
        let Some(finished) = take_way(&place, "sign", key, "40") else {
            return;
        };
        let counters = finished.counters();
        let (signed, verified) = (counters.of(sign), counters.of(verify));
        assert_eq!(
            signed + verified + counters.fallback("first"),
            80,
            "{counters:?}"
        );
        assert!(signed > 20 && verified > 20, "{counters:?}");
    }
}

/// The first of several jobs signs at once, and the others share batches.
#[test]
fn jobs_that_meet_are_on_lanes() {
    let place = Place::new();
    let Some(finished) = take_way(&place, "jobs", "rsa2048", "9") else {
        return;
    };
    let counters = finished.counters();
    assert_eq!(counters.reasons(), [("first", 1)], "{counters:?}");
    assert_eq!(counters.of("rsa2048"), 8, "{counters:?}");
}

/// A child's requests are counted anew, whether its parent has signed once or has the key prepared.
#[test]
fn a_forked_child_that_signs_once_prepares_nothing() {
    let place = Place::new();
    for (parent, on_lanes) in [(1, 0), (4, 3)] {
        let way = format!("{parent} 1");
        let Some(finished) = take_way(&place, "fork", "rsa1024", &way) else {
            return;
        };
        let child = finished.text().trim().parse().expect("a number");
        let counters = finished.counters_of(child);
        assert_eq!(counters.reasons(), [("first", 1)], "{parent} {counters:?}");
        assert_eq!(counters.operations(), 0, "{parent} {counters:?}");
        assert_eq!(
            finished.counters().of("rsa1024"),
            on_lanes,
            "{parent} {finished}"
        );
        let finished = take_way(&place, "fork", "rsa1024", &format!("{parent} 3"));
        let finished = finished.expect("as before");
        let child = finished.text().trim().parse().expect("a number");
        let counters = finished.counters_of(child);
        assert_eq!(counters.of("rsa1024"), 2, "{parent} {counters:?}");
    }
}

/// A server makes contexts of TLS and then forks: its children find the methods that they need.
#[test]
fn what_a_handshake_looks_up_is_there_before_a_fork() {
    let place = Place::new();
    let program = place.compile("ahead");
    let taken = |finished: &Finished| finished.text().trim().parse::<u64>().expect("a number");
    let stock = taken(&place.program(&program, "").succeed());
    let finished = place.program(&program, "").with_lockstep().succeed();
    let blocks = taken(&finished);
    assert!(4 * blocks < stock, "{blocks} of {stock}: {finished}");
}

/// Some threads are inside of OpenSSL's own functions, with its blinding, while others prepare the
/// key. The program ends at a wrong signature or message.
#[test]
fn a_key_is_prepared_while_threads_and_jobs_use_it() {
    let place = Place::new();
    for key in ["rsa1024", "rsa2048"] {
        let Some(finished) = take_way(&place, "crowd", key, "60") else {
            return;
        };
        let counters = finished.counters();
        // Each thread signs once, decrypts once, and starts four jobs.
        let (served, left) = (counters.of(key), counters.fallbacks());
        assert_eq!(served + left, 60 * 8 * 6, "{counters:?}");
        assert!(
            served > 60 && counters.fallback("first") >= 60,
            "{counters:?}"
        );
        assert_eq!(counters.failed_checks, 0, "{counters:?}");
    }
}
