//! A program that runs out of memory gets errors from OpenSSL, as without the module; it does not
//! end.

use std::collections::BTreeSet;

use crate::common::{Finished, Place, has_ifma};

const KEYS: [&str; 3] = ["rsa2048", "p256", "ed25519"];

/// More children than there are allocations.
const ALL: usize = 1 << 30;

/// Every how many allocations one fails; fewer where lanes are portable and slow. `cargo xtask
/// nightly allocations` has each of them fail.
fn step(with_ifma: usize) -> usize {
    match has_ifma() {
        true => with_ifma,
        false => 3 * with_ifma,
    }
}

/// Lines of `programs/allocations.c` about children that were ended by a signal, or had a wrong
/// result.
type Losses = BTreeSet<String>;

fn losses(finished: &Finished) -> Losses {
    let text = finished.text();
    assert!(text.contains("children "), "{finished}");
    let lines = text.lines().filter(|line| !line.starts_with("children"));
    lines.map(str::to_owned).collect()
}

/// Lets allocations fail: from a state ("cold" or "warm"), one of them, a few, all from one on, or
/// all large ones, every `step`th in turn, in `most` children at most. Children that are lost with
/// the module must be lost without it too.
#[track_caller]
fn expect_no_loss(place: &Place, state: &str, which: &str, step: usize, most: usize) -> Finished {
    let program = place.compile("allocations");
    let files = KEYS.map(|key| place.key(key)).join(" ");
    let arguments = format!("{state} {which} 0 {step} {most} {files}");
    let run = || place.program(&program, &arguments).limit(3600);
    // It loses some of the first fifty allocations, where libcrypto sets itself up. Up to there
    // both make the same.
    let stock = losses(&run().succeed());
    let ours = run().with_lockstep().succeed();
    let more: Vec<_> = losses(&ours).difference(&stock).cloned().collect();
    assert!(more.is_empty(), "{state} {which}: {more:?}\n{ours}");
    ours
}

#[test]
fn a_failed_allocation_ends_no_program() {
    let place = Place::new();
    for which in ["one", "few"] {
        let finished = expect_no_loss(&place, "warm", which, step(11), ALL);
        let all = finished.all_counters();
        for shape in [
            "rsa2048",
            "p256-sign",
            "ed25519-sign",
            "x25519",
            "x25519-keygen",
        ] {
            let sum: u64 = all.values().map(|counters| counters.of(shape)).sum();
            assert!(sum > 0, "no {shape} on lanes: {finished}");
        }
    }
}

#[test]
fn openssl_works_where_large_allocations_fail() {
    let place = Place::new();
    // The tables of a curve are so large.
    let finished = expect_no_loss(&place, "cold", "large", 1, 1);
    assert!(finished.text().contains("errors 0"), "{finished}");
    let all = finished.all_counters();
    let declined: u64 = all.values().map(|c| c.fallback("no_memory")).sum();
    assert!(declined > 0, "{finished}");
}

#[test]
fn a_program_without_memory_is_not_ended() {
    let place = Place::new();
    expect_no_loss(&place, "warm", "all", step(17), ALL);
    expect_no_loss(&place, "cold", "all", 701, 40);
}

#[test]
fn little_address_space_ends_no_program() {
    expect_no_loss_within(&Place::new(), 3 * 1024 + 512);
}

/// The complete test, which takes too long for every day.
#[test]
#[ignore = "takes minutes; `cargo xtask nightly allocations` runs it"]
fn every_failed_allocation_and_every_limit() {
    let place = Place::new();
    for (state, step) in [("warm", 1), ("cold", 7)] {
        for which in ["one", "few", "all"] {
            expect_no_loss(&place, state, which, step, ALL);
        }
    }
    expect_no_loss_within(&place, 256);
}

/// Lets a program have less and less address space, in steps of so many KiB.
#[track_caller]
fn expect_no_loss_within(place: &Place, step: usize) {
    let program = place.compile("allocations");
    let files = KEYS.map(|key| place.key(key)).join(" ");
    let mut signed = 0;
    for kib in (8 * 1024..64 * 1024).step_by(step) {
        let bytes = kib * 1024;
        let arguments = format!(
            "--as={bytes} {} cold one 1000000000 1 1 {files}",
            program.display()
        );
        let run = || place.program("prlimit", &arguments);
        let ours = run().with_lockstep().run();
        // Without memory a signature may not be verified, so "wrong" says nothing here.
        let lost = |finished: &Finished| {
            finished.status.code().is_none() || finished.text().contains("crash")
        };
        if lost(&ours) {
            assert!(lost(&run().run()), "with {kib} KiB: {ours}");
            continue;
        }
        let all = ours.all_counters();
        signed += all.values().map(|c| c.of("rsa2048")).sum::<u64>();
    }
    assert!(signed > 0, "the module never signed");
}
