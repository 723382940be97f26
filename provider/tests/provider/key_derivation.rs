//! TLS 1.3's key derivation, which the module does itself where libssl asks for it.

use crate::common::Place;
use crate::tls::Server;

#[test]
fn derivations_of_all_kinds_are_stocks() {
    let place = Place::new();
    let program = place.compile("derive");
    let ours = place.program(&program, "").with_lockstep().succeed();
    let stock = place.program(&program, "").succeed();
    for (ours, stock) in ours.text().lines().zip(stock.text().lines()) {
        assert_eq!(ours, stock);
    }
    assert_eq!(ours.text(), stock.text());
    let text = ours.text();
    let usual = text
        .lines()
        .last()
        .and_then(|line| line.strip_prefix("usual "));
    let usual: u64 = usual.expect("the last line").parse().expect("a number");
    assert!(usual > 500);
    if is_fast() {
        assert_eq!(ours.counters().derivations, usual);
    }
}

#[test]
fn nothing_is_derived_here_without_lanes() {
    let place = Place::new();
    let program = place.compile("derive");
    let ours = place.program(&program, "").with_lockstep();
    let ours = ours.env("LOCKSTEP_BACKEND", "none").succeed();
    let stock = place.program(&program, "").succeed();
    assert_eq!(ours.text(), stock.text());
    assert!(ours.try_counters().is_none(), "{ours}");
}

#[test]
fn handshakes_derive_their_keys_here() {
    if !is_fast() {
        return;
    }
    let place = Place::new();
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"] {
        let server = Server::start(&place, "p256", "-tls1_3", true);
        // What follows the last answer is counted with the next one.
        for _ in 0..2 {
            let client = server.client(&format!("-ciphersuites {suite}"));
            assert!(client.status.success(), "{client}");
        }
        server
            .running
            .wait_for_counters("derived", |counters| counters.derivations > 20);
    }
}

/// Whether the module derives keys on this CPU; says so if not.
fn is_fast() -> bool {
    let fast = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("sha");
    if !fast {
        eprintln!(
            "skipped: this CPU lacks AVX2 or SHA-NI, and keys are derived by OpenSSL's own code"
        );
    }
    fast
}
