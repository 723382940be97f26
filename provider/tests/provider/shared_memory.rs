//! Programs that give OpenSSL memory of their own: some share it between processes, and hand
//! objects from one to another. There the module stands back.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use lockstep_testkit::copy_program;

use crate::common::{Finished, Place};
use crate::faults::faulty;
use crate::syslog::Log;
use crate::tls::certificate;

const KEYS: [&str; 4] = ["rsa2048", "p256", "p384", "ed25519"];

/// How many objects live in a run.
const OBJECTS: usize = 300;

/// The arguments of `programs/shared_memory.c`, with keys and certificates in `place`.
fn arguments(place: &Place, memory: &str, workers: usize) -> String {
    let pairs = KEYS.map(|key| format!("{} {}", place.key(key), certificate(place, key)));
    format!("{memory} {workers} {OBJECTS} {}", pairs.join(" "))
}

#[track_caller]
fn expect_life(finished: &Finished) {
    let text = finished.text();
    assert!(
        text.ends_with(&format!("{OBJECTS} objects lived\n")),
        "{finished}"
    );
    assert!(text.contains("threads: 1\n"), "{finished}");
}

#[test]
fn objects_that_processes_share_are_left_to_openssl() {
    let place = Place::new();
    let program = place.compile("shared_memory");
    let arguments = arguments(&place, "shared", 3);
    let log = Log::new();
    for run in 0..4 {
        let process = place.program(&program, &arguments).with_lockstep();
        let finished = process.env("LOCKSTEP_SYSLOG", &log.path).succeed();
        expect_life(&finished);
        let said = "unaccelerated: all operations: the program gives OpenSSL memory that several";
        assert!(finished.text().contains(said), "{finished}");
        // One line for a program, and none of its workers.
        let lines = log.lines();
        let [line] = &lines[..] else {
            panic!("run {run}: {lines:?}");
        };
        assert!(line.contains("several of its processes share"), "{line}");
        // The program and its workers show why.
        let all = finished.all_counters();
        assert_eq!(all.len(), 4, "{finished}");
        for counters in all.values() {
            let did = (
                counters.operations(),
                counters.derivations,
                counters.ciphers,
            );
            assert_eq!(did, (0, 0, 0), "{finished} {counters:?}");
            assert_eq!(counters.fallback("shared_memory"), 1, "{counters:?}");
            assert_eq!(counters.fallbacks(), 1, "{counters:?}");
        }
    }
}

#[test]
fn a_module_that_serves_there_is_found_out() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    let program = place.compile("shared_memory");
    let arguments = arguments(&place, "shared", 3);
    let process = place.program(&program, &arguments).with_lockstep();
    let run = process.env("LOCKSTEP_PLANT", "shared-memory").run();
    assert!(!run.status.success(), "{run}");
}

/// Most programs that replace OpenSSL's memory functions share nothing. The names of the files that
/// a process has mapped may be no text.
#[test]
fn a_program_with_memory_functions_of_its_own_is_served() {
    let place = Place::new();
    let directory = place.path("").join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&directory).expect("a directory");
    let program = directory.join("program");
    copy_program(&place.compile("shared_memory"), &program);
    let process = place.program(&program, &arguments(&place, "private", 1));
    let finished = process.with_lockstep().succeed();
    expect_life(&finished);
    let all = finished.all_counters();
    let sum = |of: &str| all.values().map(|counters| counters.of(of)).sum::<u64>();
    for shape in [
        "rsa2048",
        "p256-sign",
        "p384-sign",
        "ed25519-sign",
        "x25519",
        "p256-ecdh",
        "x25519mlkem768-server",
    ] {
        assert!(sum(shape) > 0, "no {shape}: {finished} {all:?}");
    }
    let declined: u64 = all
        .values()
        .map(|counters| counters.fallback("shared_memory"))
        .sum();
    assert_eq!(declined, 0, "{all:?}");
}
