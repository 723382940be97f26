//! Every function of the module's dispatch tables, called as libcrypto calls it: in a job, and so
//! that it fails.

use crate::common::Place;
use crate::faults::faulty;

/// The most of a job's 32 KiB that a function may take. The rest is for libcrypto, libssl and the
/// application.
const MOST: usize = 12 << 10;

/// `programs/tables.c` fails by itself where a function takes all of the stack, where it does not
/// know a function, and where a failure of key encapsulation leaves no reason.
#[test]
fn every_function_leaves_room_on_the_stack_of_a_job_and_says_why_it_fails() {
    let place = Place::new();
    let program = place.compile("tables");
    let finished = place.program(&program, "").with_lockstep().succeed();
    let text = finished.text();
    let mut seen = 0;
    for line in text.lines() {
        let (what, number) = line.rsplit_once(' ').expect("a number");
        let number: usize = number.parse().expect("a number");
        match what {
            "refusals" => assert!(number > 100, "{line}"),
            _ => {
                assert!(number <= MOST, "{line} bytes");
                seen += 1;
            }
        }
    }
    assert!(seen > 200 && text.contains("refusals"), "{finished}");
    let counters = finished.counters();
    for shape in [
        "rsa2048",
        "p256-sign",
        "ed25519-sign",
        "x25519",
        "mlkem768-decaps",
    ] {
        assert!(counters.of(shape) > 0, "no {shape}: {counters:?}");
    }
}

#[test]
fn a_key_that_is_prepared_on_the_stack_of_a_job_is_found() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    let program = place.compile("tables");
    let process = place.program(&program, "").with_lockstep();
    let run = process.env("LOCKSTEP_PLANT", "no-room").run();
    let text = run.text();
    let numbers = text.lines().filter_map(|line| line.rsplit_once(' '));
    let deepest = numbers.filter_map(|(_, number)| number.parse::<usize>().ok());
    assert!(!run.status.success() || deepest.max() > Some(MOST), "{run}");
}
