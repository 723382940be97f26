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

/// Runs a mode of `programs/handshake_keys.c` with the module and without it.
fn handshake_keys(mode: &str) {
    let place = Place::new();
    let program = place.compile("handshake_keys");
    let ours = place.program(&program, mode).with_lockstep().succeed();
    let stock = place.program(&program, mode).succeed();
    assert_eq!(ours.text(), stock.text(), "{mode}");
    let counted = ours.text();
    let counted = counted.trim_end().rsplit(' ').next();
    let counted: u64 = counted.expect("a line").parse().expect("a number");
    assert!(counted > 100);
    if is_fast() {
        assert_eq!(ours.counters().derivations, counted, "{mode}");
    }
}

#[test]
fn the_keys_of_whole_handshakes_are_stocks() {
    handshake_keys("sequence");
}

#[test]
fn what_is_kept_of_a_secret_is_of_no_other() {
    handshake_keys("neighbours");
}

#[test]
fn threads_with_the_same_secrets_keep_their_own() {
    handshake_keys("threads");
}

#[test]
fn a_child_derives_on_where_its_parent_was() {
    handshake_keys("fork");
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
        // Derivations after the last answer are counted with the next one.
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
