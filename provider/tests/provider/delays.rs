//! How long a thread waits while others are slow: about as long as with OpenSSL alone.
//!
//! The bounds are far above waits on a busy machine, and far below the waits for a leader that is
//! slow, or never ends.

use std::panic::{catch_unwind, resume_unwind};

use crate::common::{Counters, Finished, Place, has_ifma};

/// Waits in milliseconds.
#[derive(Debug)]
struct Waits {
    median: f64,
    mean: f64,
    longest: f64,
    count: f64,
}

impl Waits {
    fn of(finished: &Finished) -> Waits {
        let text = finished.text();
        let numbers: Vec<f64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{finished}")))
            .collect();
        let [median, mean, longest, count] = numbers[..] else {
            panic!("{finished}");
        };
        Waits {
            median,
            mean,
            longest,
            count,
        }
    }
}

/// Returns whether the lanes are as fast as the lanes of servers. A thread waits up to 50 ms for
/// another one, and portable lanes take longer than that for one batch.
fn are_fast() -> bool {
    are_fast_or("take too long")
}

/// Returns the same, for a test that portable lanes cannot run for this reason.
fn are_fast_or(reason: &str) -> bool {
    if !has_ifma() {
        println!("skipped: this CPU has no AVX-512 IFMA, and the portable lanes {reason}");
    }
    has_ifma()
}

/// The waits with the module and without, and the module's counters.
fn both(arguments: &str, lone: &str) -> (Waits, Waits, Counters) {
    // As on two CPUs: with more, more threads would be needed.
    let place = Place::with_settings(&[("slots", "2")]);
    let program = place.compile("delays");
    let start = || place.program(&program, arguments).limit(120);
    // A jump out of `malloc` breaks glibc's heap, and then the comparison is made again. With the
    // module the program has one try.
    let stock = (0..5)
        .map(|_| start().run())
        .find(|stock| stock.status.success());
    let stock = stock.expect("OpenSSL alone signs");
    let ours = start().with_lockstep().env("LOCKSTEP_LONE", lone).succeed();
    let waits = [&stock, &ours].map(Waits::of);
    println!(
        "{arguments}: with OpenSSL alone {:?}, with the module {:?}",
        waits[0], waits[1]
    );
    let [stock, with_module] = waits;
    assert!(stock.count > 20.0 && with_module.count > 20.0);
    (stock, with_module, ours.counters())
}

#[test]
fn threads_of_low_priority_lead_nobody() {
    if !are_fast() {
        return;
    }
    for class in ["idle", "nice", "batch"] {
        // Alone a signature would go to OpenSSL.
        let (stock, ours, counters) = both(&format!("low {class}"), "lanes");
        assert!(ours.mean <= 10.0 * stock.mean + 20.0, "{ours:?} {stock:?}");
        assert!(counters.fallback("low_priority") > 0, "{counters:?}");
        assert!(counters.of("rsa2048") > 0, "{counters:?}");
    }
}

#[test]
fn a_short_signature_does_not_wait_for_long_ones() {
    if !are_fast() {
        return;
    }
    let (stock, ours, counters) = both("beside", "auto");
    assert!(
        ours.median <= 5.0 * stock.median + 0.5,
        "{ours:?} {stock:?}"
    );
    assert!(counters.of("rsa4096") > 0, "{counters:?}");
    // It does not queue.
    let (lanes, late) = (counters.of("p256-sign"), counters.fallback("late"));
    assert!(lanes > 0, "{counters:?}");
    assert_eq!(late, 0, "{counters:?}");
}

#[test]
fn a_short_signature_does_not_wait_for_a_long_message() {
    let (stock, ours, counters) = both("long", "auto");
    assert!(
        ours.longest <= 10.0 * stock.longest + 100.0,
        "{ours:?} {stock:?}"
    );
    assert!(
        ours.median <= 5.0 * stock.median + 0.5,
        "{ours:?} {stock:?}"
    );
    assert!(counters.of("p256-sign") > 0, "{counters:?}");
    assert!(counters.fallback("long_message") > 0, "{counters:?}");
}

/// An old program uses siglongjmp for its timeouts. Its next call finds the requests that it has
/// left, and does not wait for them: each wait would end as `late`.
#[test]
fn a_signature_that_is_left_by_a_jump_keeps_nobody_waiting() {
    if !are_fast() {
        return;
    }
    for lone in ["auto", "lanes"] {
        let (stock, ours, counters) = both("jump 60", lone);
        assert!(
            ours.median <= 5.0 * stock.median + 10.0,
            "{ours:?} {stock:?}"
        );
        assert_eq!(counters.fallback("late"), 0, "{lone}: {counters:?}");
        assert!(counters.of("rsa4096") >= 100, "{lone}: {counters:?}");
    }
}

/// Each slot that is left keeps its memory, so they are not replaced for ever. Then OpenSSL
/// computes, at once.
#[test]
fn many_jumps_keep_nobody_waiting() {
    for lone in ["auto", "lanes"] {
        // One jump of some 15,000 leaves the lock of the queue locked, which stops the process:
        // docs/decisions/queue.md. Then the program has one try more.
        let run = || both("jump 400", lone);
        let (_, _, counters) =
            catch_unwind(run).unwrap_or_else(|panic| match panic.downcast_ref::<String>() {
                Some(message) if message.starts_with("hangs") => run(),
                _ => resume_unwind(panic),
            });
        // All measured requests, and most of the abandoned ones.
        assert!(counters.fallback("late") >= 200, "{lone}: {counters:?}");
        assert_eq!(counters.wait_max_ns, 0, "{lone}: {counters:?}");
    }
}

/// OpenSSL makes a key's blinding at its own first operation with the key, under a lock of the key.
/// With the module's defaults a key that has signed once is past that, as without the module. It is
/// not where something else computes a key's first signature: portable lanes, `lone = lanes`, or
/// the key daemon. There a jump out of the first operation that OpenSSL computes keeps the lock.
#[test]
fn a_key_that_has_signed_can_be_used_after_a_jump_out_of_its_next_operation() {
    if !are_fast_or("compute the first signature with a key, so that OpenSSL's own comes later") {
        return;
    }
    let (_, _, counters) = both("first", "auto");
    assert!(counters.fallback("first") >= 90, "{counters:?}");
    assert!(counters.fallback("pkcs1_decryption") > 100, "{counters:?}");
}

#[test]
fn a_thread_that_is_stopped_keeps_no_other_waiting() {
    if !are_fast() {
        return;
    }
    let (stock, ours, counters) = both("stopped", "auto");
    assert!(
        ours.median <= 5.0 * stock.median + 10.0,
        "{ours:?} {stock:?}"
    );
    assert!(
        ours.longest <= 10.0 * stock.longest + 10_000.0,
        "{ours:?} {stock:?}"
    );
    assert!(counters.of("rsa4096") > 1, "{counters:?}");
}

#[test]
fn a_job_whose_leader_is_stopped_is_resumed() {
    let place = Place::with_settings(&[("slots", "2")]);
    let program = place.compile("delays");
    let ours = place.program(&program, "job").limit(120);
    let ours = ours.with_lockstep().env("LOCKSTEP_LONE", "auto").succeed();
    let waits = Waits::of(&ours);
    println!("a job waits for a leader that is stopped: {waits:?}");
    assert!(waits.longest < 20_000.0, "{waits:?}");
    assert!(ours.counters().fallback("late") > 0, "{ours}");
}
