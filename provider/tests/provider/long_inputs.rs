//! Inputs of any length, with little memory: results as with OpenSSL alone, and no end of the
//! process.

use crate::common::Place;

#[test]
fn messages_and_digests_of_any_length_have_openssls_results() {
    let place = Place::new();
    let program = place.compile("long_inputs");
    let keys = ["ed25519", "p256", "p384", "rsa2048"].map(|name| place.key(name));
    let arguments = keys.join(" ");
    let stock = place.program(&program, &arguments).succeed();
    let ours = place.program(&program, &arguments);
    let ours = ours.with_lockstep().succeed();
    assert_eq!(ours.text(), stock.text());
    assert!(stock.text().contains("verified: 0") && stock.text().contains("verified: 1"));
    let counters = ours.counters();
    // Two of six lengths are too long: each is signed once, and verified twice.
    assert_eq!(counters.fallback("long_message"), 2 * 3, "{counters:?}");
    // With the one before the limit.
    assert_eq!(counters.of("ed25519-sign"), 1 + 4, "{counters:?}");
    assert_eq!(counters.of("ed25519-verify"), 1 + 4 * 2, "{counters:?}");
    for curve in ["p256-sign", "p384-sign"] {
        assert_eq!(counters.of(curve), 1 + 10, "{counters:?}");
    }
    assert_eq!(counters.fallback("no_memory"), 0, "{counters:?}");
}

/// With so little memory, in KiB, that OpenSSL can copy it once more or cannot.
#[test]
fn queries_and_keys_of_any_length_end_no_process() {
    let place = Place::new();
    let program = place.compile("long_inputs");
    let key = place.key("rsa2048");
    let mut all = Vec::new();
    for (length, left) in [
        (100, 8000),
        (64 << 20, 8000),
        (64 << 20, 100_000),
        (64 << 20, 200_000),
    ] {
        all.push(format!("query {key} {length} {left}"));
    }
    for part in 0..8 {
        let with = |left| format!("key - {part} {left}");
        all.extend([4_000, 10_000, 16_000, 32_000].map(with));
    }
    for arguments in all {
        let stock = place.program(&program, &arguments).succeed();
        let ours = place.program(&program, &arguments);
        let ours = ours.with_lockstep().succeed();
        assert_eq!(ours.text(), stock.text(), "{arguments}");
    }
}
