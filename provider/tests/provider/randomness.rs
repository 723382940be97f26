//! Randomness that fails: the system's, from which the module draws, and the application's own,
//! from which OpenSSL's code draws. Each operation then gives a right result or an error, and never
//! a nonce or a key that occurs twice, a hang or an operation without blinding.

use std::collections::BTreeMap;

use crate::common::{Counters, Finished, Place, Process};
use crate::faults::faulty;

/// How often `programs/random.c` tries each operation.
const EACH: u64 = 96;

/// Every operation that needs randomness; of the others there is one.
const RANDOM: [&str; 6] = ["rsa", "pss", "oaep", "ecdsa", "x25519", "p256"];

/// Errors by which the system's randomness is denied.
const ERRORS: [i32; 3] = [libc::EPERM, libc::ENOSYS, libc::EIO];

/// How often each operation succeeded, and how often the application's generator was asked.
type Done = BTreeMap<String, u64>;

fn process<'a>(place: &'a Place, when: &str, denied: i32, own: &str) -> Process<'a> {
    let program = place.compile("random");
    let keys = ["rsa2048", "p256", "ed25519"].map(|key| place.key(key));
    let arguments = format!("{when} {denied} {own} {}", keys.join(" "));
    place.program(program, &arguments)
}

/// Returns the operations that succeeded; `None` if the kernel takes no filter.
fn done(finished: &Finished) -> Option<Done> {
    let text = finished.text();
    if text.starts_with("skipped") {
        println!("{text}");
        return None;
    }
    let lines = text.lines().map(|line| {
        let (name, count) = line.split_once(' ').expect("a name and a count");
        (name.to_owned(), count.parse().expect("a count"))
    });
    Some(lines.collect())
}

fn sign_while_denied(
    place: &Place,
    when: &str,
    denied: i32,
    own: &str,
) -> Option<(Done, Counters, String)> {
    let finished = process(place, when, denied, own).with_lockstep().succeed();
    let context = finished.to_string();
    Some((done(&finished)?, finished.counters(), context))
}

#[test]
fn lanes_need_no_randomness_of_the_application() {
    let place = Place::new();
    for when in ["cold", "warm"] {
        let (done, counters, context) =
            sign_while_denied(&place, when, 0, "fails").expect("no filter");
        for name in RANDOM {
            // The salt is drawn by OpenSSL's code.
            let expected = if name == "pss" { 0 } else { EACH };
            assert_eq!(done[name], expected, "{name}: {context}");
        }
        assert_eq!(done["ed25519"], EACH, "{context}");
        assert_eq!(counters.fallbacks(), 0, "{context} {counters:?}");
        assert!(counters.of("p256-sign") >= EACH, "{context} {counters:?}");
        assert!(counters.of("rsa2048") >= 2 * EACH, "{context} {counters:?}");
    }
}

#[test]
fn without_the_systems_randomness_openssl_serves_with_the_applications() {
    let place = Place::new();
    for when in ["cold", "warm"] {
        for error in ERRORS {
            let Some((done, counters, context)) = sign_while_denied(&place, when, error, "works")
            else {
                return;
            };
            for name in RANDOM.iter().chain(&["ed25519"]) {
                assert_eq!(done[*name], EACH, "{name}: {context}");
            }
            let declined = counters.fallback("randomness");
            assert_eq!(declined, counters.fallbacks(), "{context} {counters:?}");
            // Every nonce was drawn, and the key pairs and blinding that were not there before.
            assert!(declined >= EACH && done["drawn"] >= EACH, "{context}");
        }
    }
}

/// The number of a file that is kept open may become another file's, whose bytes nobody would call
/// random. So the module asks nobody else, and OpenSSL's own code decides.
#[test]
fn no_file_takes_the_place_of_the_kernels_generator() {
    let place = Place::new();
    let (without, program) = (place.compile("without"), place.compile("unannounced"));
    let (call, error) = (libc::SYS_getrandom, libc::ENOSYS);
    let (program, key) = (program.display(), place.key("p256"));
    let command = format!("{call} {error} {program} cancelled {key} 1");
    let finished = place.program(&without, &command).with_lockstep().run();
    let stock = place.program(&without, &command).run();
    assert_eq!(finished.status.success(), stock.status.success(), "{stock}");
    let counters = finished.counters();
    let declined = counters.fallback("randomness");
    assert!(declined > 0, "{finished} {counters:?}");
    assert_eq!(counters.of("p256-sign"), declined, "{finished}");
}

#[test]
fn without_any_randomness_there_are_errors() {
    let place = Place::new();
    for error in ERRORS {
        let Some((cold, counters, context)) = sign_while_denied(&place, "cold", error, "fails")
        else {
            return;
        };
        // An RSA operation without randomness would be one without blinding.
        for name in RANDOM {
            assert_eq!(cold[name], 0, "{name}: {context}");
        }
        assert_eq!(cold["ed25519"], EACH, "{context}");
        assert!(counters.fallback("randomness") >= 5 * EACH, "{counters:?}");
        let stock = done(&process(&place, "cold", error, "fails").succeed());
        let stock = stock.expect("filters are allowed");
        for (name, count) in &stock {
            assert!(name == "drawn" || cold[name] == *count, "{name}: {context}");
        }
        // Randomness that was drawn before lasts for a while: key pairs of the pool, and blinding,
        // of which there is more if more threads met.
        let (warm, _, context) =
            sign_while_denied(&place, "warm", error, "fails").expect("filters are allowed");
        for name in ["ecdsa", "pss"] {
            assert_eq!(warm[name], 0, "{name}: {context}");
        }
        for name in ["x25519", "p256"] {
            assert!(warm[name] < EACH, "{name}: {context}");
        }
        assert_eq!(warm["ed25519"], EACH, "{context}");
    }
}

/// A generator of the application that was never seeded, by the configuration.
#[test]
fn a_configured_generator_may_fail() {
    let place = Place::new();
    place.write("data", b"data");
    let mut configuration = place.read("lockstep.cnf");
    configuration.extend_from_slice(
        b"\n[openssl_init]\nrandom = random_section\n[random_section]\nrandom = TEST-RAND\n",
    );
    place.write("lockstep.cnf", &configuration);
    let sign = |key: &str, options: &str| {
        let key = place.key(key);
        let command = format!("dgst -sha256 {options} -sign {key} -out signature data");
        place.lockstep(&command)
    };
    for (key, shape) in [("p256", "p256-sign"), ("rsa2048", "rsa2048")] {
        sign(key, "").succeed().on_lanes(shape, 1);
        let verify = format!("dgst -sha256 -verify {key}.pub.pem -signature signature data");
        place.stock(&verify).succeed();
    }
    sign("rsa2048", "-sigopt rsa_padding_mode:pss").fail();
    // Operations that the lanes leave to OpenSSL fail with that generator.
    sign("p256", "").env("LOCKSTEP_LONE", "stock").fail();
}

/// A module that takes no notice of failed randomness: the program must.
#[test]
fn ignored_failures_are_noticed() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    if sign_while_denied(&place, "cold", libc::EPERM, "works").is_none() {
        return;
    }
    let planted = process(&place, "cold", libc::EPERM, "works").with_lockstep();
    let finished = planted.env("LOCKSTEP_PLANT", "ignored-randomness").fail();
    assert!(
        finished.stderr.contains("once[i - 1], once[i]"),
        "{finished}"
    );
}
