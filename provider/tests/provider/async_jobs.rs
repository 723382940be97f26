//! OpenSSL's async jobs: many requests of one thread in flight, so that they fill lanes together.

use crate::common::{Place, has_ifma};
use crate::faults::faulty;
use crate::tls::{Server, certificate};

#[test]
fn openssl_speed_keeps_jobs_in_flight() {
    let place = Place::new();
    for jobs in [8, 16, 64] {
        let command = format!("speed -elapsed -seconds 1 -async_jobs {jobs} rsa2048");
        let finished = place.lockstep(&command).succeed();
        let counters = finished.counters();
        // Before it starts its jobs, it tries each of them once without: alone, one in a pass.
        let submitted = counters.async_submitted;
        let alone = counters.operations() - submitted;
        assert!(submitted > 0 && alone <= jobs, "{finished} {counters:?}");
        assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
        let fill = submitted as f64 / (counters.passes - alone) as f64;
        assert!(fill >= 2.5, "{fill:.2} in a pass: {finished} {counters:?}");
        println!("speed -async_jobs {jobs}: {submitted} signatures by jobs, {fill:.2} in a pass");
    }
}

#[test]
fn a_server_with_async_jobs_serves_many_clients() {
    let place = Place::new();
    let server = Server::start(&place, "rsa2048", "-async", true);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let version = ["-tls1_2", "-tls1_3"][number % 2];
                let client = server.client(version);
                assert!(client.status.success(), "{client}");
            });
        }
    });
    let shapes = ["rsa2048", "x25519-keygen", "x25519"];
    let counters = server.running.wait_for_counters("served all", |c| {
        shapes.iter().all(|shape| c.of(shape) >= 8)
    });
    assert_eq!(counters.operations(), 3 * 8, "{counters:?}");
    // Each pauses for its signature. After the first, each pauses for its key exchange too.
    let paused = counters.async_submitted;
    assert!((15..=16).contains(&paused), "{counters:?}");
    assert_eq!(
        (counters.unpaused, counters.fallbacks()),
        (0, 0),
        "{counters:?}"
    );
}

#[test]
fn every_curve_works_in_jobs_without_a_pause() {
    let place = Place::new();
    for (key, sign) in [
        ("p256", "p256-sign"),
        ("p384", "p384-sign"),
        ("ed25519", "ed25519-sign"),
    ] {
        let server = Server::start(&place, key, "-async", true);
        let groups = [
            ("X25519", "x25519"),
            ("P-256", "p256-ecdh"),
            ("P-384", "p384-ecdh"),
        ];
        std::thread::scope(|scope| {
            for (group, _) in groups {
                let server = &server;
                scope.spawn(move || {
                    let client = server.client(&format!("-tls1_3 -groups {group}"));
                    assert!(client.status.success(), "{client}");
                });
            }
        });
        let counters = server
            .running
            .wait_for_counters("served all", |c| c.of(sign) == 3);
        for (_, agreement) in groups {
            assert_eq!(counters.of(agreement), 1, "{counters:?}");
        }
        let paused = (counters.async_submitted, counters.unpaused);
        assert_eq!(paused, (0, 0), "{counters:?}");
        assert_eq!(counters.fallbacks(), 0, "{counters:?}");
    }
}

#[test]
fn openssl_speed_fills_lanes_with_curves() {
    let place = Place::new();
    for (algorithm, shape) in [
        ("ecdhx25519", "x25519"),
        ("ecdsap256", "p256-sign"),
        ("ecdhp256", "p256-ecdh"),
        ("ed25519", "ed25519-sign"),
    ] {
        let finished = place
            .lockstep(&format!(
                "speed -elapsed -seconds 1 -async_jobs 64 {algorithm}"
            ))
            .succeed();
        let counters = finished.counters();
        assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
        assert!(counters.of(shape) > 1000, "{finished} {counters:?}");
        // Of eight lanes, or of four portable ones; verifications are alone.
        let (fill, least) = (counters.average_fill(), if has_ifma() { 4.0 } else { 1.5 });
        assert!(
            fill >= least,
            "{fill:.2} in a pass: {finished} {counters:?}"
        );
        println!("speed -async_jobs 64 {algorithm}: {fill:.2} in a pass");
    }
}

/// A job's stack has 32 KiB, and no page below it that nobody may write to. Half of them are left
/// to libssl and to the application.
#[test]
fn operations_leave_room_on_the_stack_of_a_job() {
    const MOST: usize = 16 << 10;
    let place = Place::new();
    let program = place.compile("stack");
    let mut operations = Vec::new();
    for name in ["rsa1024", "rsa2048", "rsa3072", "rsa4096"] {
        let key = place.key(name);
        for way in ["sign", "decrypt"] {
            operations.push((format!("{way} {key}"), name.to_owned()));
        }
    }
    for name in ["p256", "p384", "ed25519"] {
        operations.push((format!("sign {}", place.key(name)), format!("{name}-sign")));
    }
    for (algorithm, shape) in [
        ("X25519", "x25519"),
        ("P-256", "p256-ecdh"),
        ("P-384", "p384-ecdh"),
    ] {
        operations.push((format!("agree {algorithm}"), shape.to_owned()));
    }
    for set in [512, 768, 1024] {
        operations.push((
            format!("encapsulate ML-KEM-{set}"),
            format!("mlkem{set}-encaps"),
        ));
    }
    for hybrid in ["X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024"] {
        let shape = format!("{}-server", hybrid.to_lowercase());
        operations.push((format!("encapsulate {hybrid}"), shape));
    }
    for (operation, shape) in operations {
        let run = place.program(&program, &operation).with_lockstep();
        let finished = run.succeed();
        let counters = finished.counters();
        assert_eq!(
            (counters.of(&shape), counters.fallbacks()),
            (1, 0),
            "{finished}"
        );
        let depth: usize = finished.text().trim().parse().expect("a number");
        println!("{operation}: {depth} bytes");
        assert!(depth <= MOST, "{operation}: {depth} bytes");
    }
}

#[test]
fn jobs_of_clients_that_go_away_do_no_harm() {
    let place = Place::new();
    let mut server = Server::start(&place, "rsa4096", "-async", true);
    server.disappoint(12);
    let client = server.client("-tls1_3");
    assert!(
        client.status.success(),
        "{client}\n{}",
        server.running.describe()
    );
    assert!(server.running.is_alive());
    let counters = server
        .running
        .wait_for_counters("signed", |c| c.of("rsa4096") >= 2);
    assert!(counters.async_submitted >= 2, "{counters:?}");
}

#[test]
fn beyond_the_bound_jobs_are_served_without_pausing() {
    let place = Place::with_settings(&[("max_async", "3")]);
    let program = place.compile("async");
    let key = place.key("rsa2048");
    let finished = place
        .program(&program, &format!("fd {key} 32 4"))
        .with_lockstep()
        .succeed();
    let counters = finished.counters();
    finished.on_lanes("rsa2048", 32 * 4);
    let submitted = counters.async_submitted;
    assert!(
        submitted > 0 && submitted < 32 * 4,
        "{finished} {counters:?}"
    );

    let place = Place::with_settings(&[("max_async", "0")]);
    let program = place.compile("async");
    let key = place.key("rsa2048");
    let finished = place
        .program(&program, &format!("fd {key} 8 2"))
        .with_lockstep()
        .succeed();
    finished.on_lanes("rsa2048", 16);
    assert_eq!(finished.counters().async_submitted, 0, "{finished}");
}

#[test]
fn jobs_wake_by_descriptor_and_by_callback() {
    let place = Place::new();
    let program = place.compile("async");
    let key = place.key("rsa2048");
    for way in ["fd", "callback", "spin"] {
        let finished = place
            .program(&program, &format!("{way} {key} 32 10"))
            .with_lockstep()
            .succeed();
        let counters = finished.counters();
        finished.on_lanes("rsa2048", 320);
        assert_eq!(counters.async_submitted, 320, "{finished}");
        if way != "spin" {
            assert!(counters.average_fill() >= 2.0, "{finished} {counters:?}");
        }
    }
}

#[test]
fn jobs_may_be_abandoned() {
    let place = Place::new();
    let program = place.compile("async");
    let key = place.key("rsa4096");
    for way in ["abandon", "abandon-callback", "exit", "exit-callback"] {
        let finished = place
            .program(&program, &format!("{way} {key} 24 1"))
            .with_lockstep()
            .succeed();
        let counters = finished.counters();
        // OpenSSL alone never pauses a job. On a busy machine some are answered before they could.
        let text = finished.text();
        let pauses = text.lines().find_map(|line| line.strip_suffix(" pauses"));
        let pauses: u32 = pauses.and_then(|n| n.parse().ok()).unwrap_or(0);
        assert!((12..=24).contains(&pauses), "{finished}");
        assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
        if way.starts_with("abandon") {
            // Afterwards the program signs in the usual way.
            assert!(counters.of("rsa4096") >= 1, "{finished} {counters:?}");
        }
    }
}

#[test]
fn lost_jobs_cost_only_their_stacks() {
    const LOST: u64 = 10_000;
    let place = Place::new();
    let program = place.compile("lost");
    let key = place.key("rsa2048");
    let certificate = certificate(&place, "rsa2048");
    for way in ["fd", "callback"] {
        // The program itself finds that the handshake behind them pauses as the first would.
        let finished = place
            .program(&program, &format!("{way} {key} {certificate} {LOST}"))
            .with_lockstep()
            .succeed();
        let counters = finished.counters();
        let context = format!("{finished} {counters:?}");
        assert_eq!((counters.lost, counters.paused), (LOST, 0), "{context}");
        assert!(counters.async_submitted > LOST, "{context}");
        assert_eq!(
            (counters.unpaused, counters.fallbacks()),
            (0, 0),
            "{context}"
        );
        if way == "fd" {
            // Nobody served the lost ones: the signature of the last handshake. Some were lost in
            // their key exchange, on trial.
            let agreed = counters.of("x25519");
            assert!((LOST - 50..=LOST + 2).contains(&agreed), "{context}");
            assert_eq!(counters.of("rsa2048"), 1, "{context}");
        }
    }
}

#[test]
fn half_of_the_descriptors_are_left_to_the_server() {
    let place = Place::new();
    let program = place.compile("descriptors");
    let key = place.key("rsa2048");
    let certificate = certificate(&place, "rsa2048");
    for way in ["fd", "callback"] {
        // The program checks how many connections it could keep open.
        let finished = place
            .program(&program, &format!("{way} {key} {certificate} 256"))
            .with_lockstep()
            .succeed();
        let counters = finished.counters();
        let context = format!("{finished} {counters:?}");
        // Of each handshake a signature, which paused or not.
        let connections = counters.of("rsa2048");
        assert!(connections > 150, "{context}");
        assert_eq!(counters.fallbacks(), 0, "{context}");
        assert_eq!(counters.unpaused, counters.no_descriptor, "{context}");
        if way == "fd" {
            assert!(counters.no_descriptor >= 50, "{context}");
            assert!(counters.async_submitted >= 50, "{context}");
        } else {
            assert_eq!(counters.no_descriptor, 0, "{context}");
        }
    }
}

#[test]
fn no_callback_is_called_after_its_context_is_freed() {
    let place = Place::new();
    let program = place.compile("callback");
    let key = place.key("rsa4096");
    for when in ["late", "during", "inside"] {
        // Arguments lie on pages that go with their contexts: a call too late ends the program.
        let finished = place
            .program(&program, &format!("{when} {key} 24"))
            .with_lockstep()
            .succeed();
        let counters = finished.counters();
        let text = finished.text();
        let pauses = text
            .split_once(" pauses")
            .and_then(|(n, _)| n.parse::<u64>().ok());
        let context = format!("{finished} {counters:?}");
        assert!(pauses.is_some_and(|pauses| pauses >= 12), "{context}");
        // Where the callback frees its context, that of an answer that came too early for a pause
        // stays.
        assert_eq!(Some(counters.lost), pauses, "{context}");
        assert_eq!(
            (counters.unpaused, counters.fallbacks()),
            (0, 0),
            "{context}"
        );
    }
}

#[test]
fn beyond_the_bound_of_lost_jobs_none_is_paused() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[("max_lost", "5")]);
    let program = place.compile("lost");
    let key = place.key("rsa2048");
    let certificate = certificate(&place, "rsa2048");
    let finished = place
        .program(&program, &format!("fd {key} {certificate} 6"))
        .with_lockstep()
        .fail();
    let text = finished.to_string();
    assert!(text.contains("connection 5 does not pause"), "{text}");
}

#[test]
fn verification_does_not_pause() {
    let place = Place::new();
    for key in ["p256", "p384", "ed25519"] {
        let certificate = certificate(&place, key);
        let options = format!("-async -Verify 1 -verify_return_error -CAfile {certificate}");
        let server = Server::start(&place, key, &options, true);
        let client = server.client(&format!("-tls1_3 -cert {certificate} -key {key}.pem"));
        assert!(client.status.success(), "{client}");
        let verify = format!("{key}-verify");
        // The client's CertificateVerify.
        let counters = server
            .running
            .wait_for_counters("verified", |c| c.of(&verify) == 1);
        let paused = (counters.async_submitted, counters.unpaused);
        assert_eq!(paused, (0, 0), "{counters:?}");
        assert_eq!(counters.fallbacks(), 0, "{counters:?}");
    }
}

#[test]
fn jobs_of_curves_compute_at_once() {
    // Fewer than half a batch.
    const JOBS: u64 = 15;
    const ROUNDS: u64 = 10;
    let place = Place::new();
    let program = place.compile("async");
    for (key, sign, verify) in [
        ("p256", "p256-sign", "p256-verify"),
        ("ed25519", "ed25519-sign", "ed25519-verify"),
    ] {
        let key = place.key(key);
        for way in ["fd", "spin", "callback"] {
            let finished = place
                .program(&program, &format!("{way} {key} {JOBS} {ROUNDS}"))
                .with_lockstep()
                .succeed();
            let counters = finished.counters();
            for shape in [sign, verify] {
                assert_eq!(counters.of(shape), JOBS * ROUNDS, "{finished} {counters:?}");
            }
            // Some pause on trial. No job with a callback does: a worker would have to serve it.
            let paused = counters.async_submitted;
            let most = if way == "callback" {
                0
            } else {
                JOBS * ROUNDS / 3
            };
            assert!(paused <= most, "{finished} {counters:?}");
            assert_eq!(finished.text(), format!("{paused} pauses\n"), "{finished}");
            let others = (counters.unpaused, counters.fallbacks());
            assert_eq!(others, (0, 0), "{finished} {counters:?}");
        }
    }
}

/// The first 16 compute at once, the 17th pauses on trial, and the others join.
#[test]
fn jobs_of_curves_pause_where_many_do() {
    const JOBS: u64 = 64;
    const ROUNDS: u64 = 10;
    const AT_ONCE: u64 = 16;
    let place = Place::new();
    let program = place.compile("async");
    for key in ["p256", "ed25519"] {
        let file = place.key(key);
        let finished = place
            .program(&program, &format!("fd {file} {JOBS} {ROUNDS}"))
            .with_lockstep()
            .succeed();
        let counters = finished.counters();
        for way in ["sign", "verify"] {
            let served = counters.of(&format!("{key}-{way}"));
            assert_eq!(served, JOBS * ROUNDS, "{finished} {counters:?}");
        }
        let paused = JOBS * ROUNDS - AT_ONCE;
        assert_eq!(counters.async_submitted, paused, "{finished} {counters:?}");
        // Each verification is a batch of its own: no job pauses for one.
        let batches = AT_ONCE + ROUNDS + JOBS * ROUNDS;
        assert_eq!(counters.batches, batches, "{finished} {counters:?}");
        assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
    }
}

/// A worker would have no CPU of its own.
#[test]
fn with_one_slot_no_worker_helps() {
    let place = Place::with_settings(&[("slots", "1")]);
    let (program, key) = (place.compile("async"), place.key("rsa2048"));
    let finished = place
        .program(&program, &format!("fd {key} 32 10"))
        .with_lockstep()
        .succeed();
    let counters = finished.counters();
    assert_eq!(counters.fallbacks(), 0, "{finished} {counters:?}");
    counters.expect("rsa2048", 320, &finished.to_string());
    assert_eq!(counters.batches, 320 / 8, "{finished} {counters:?}");
}
