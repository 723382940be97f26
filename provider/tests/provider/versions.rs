//! Differences between versions of OpenSSL. A test of a newer version's feature runs if the
//! libcrypto at hand has the feature, and otherwise prints a line.

use crate::common::{Finished, Place};

/// Runs a way of `programs/messages.c`.
fn sign_message(place: &Place, way: &str, key: &str) -> Finished {
    let program = place.compile_with("messages", "messages", &["-lcrypto", "-ldl"]);
    let arguments = format!("{way} {}", place.key(key));
    let process = place.program(program, &arguments);
    process.with_lockstep().succeed()
}

#[test]
fn ed25519_ignores_the_version_of_tls() {
    let place = Place::new();
    let finished = sign_message(&place, "tls", "ed25519");
    finished.each_on_lanes(&["ed25519-sign", "ed25519-verify"]);
}

#[test]
fn whole_messages_are_signed_on_lanes() {
    let place = Place::new();
    for (algorithm, key, sign, verify) in [
        ("ED25519", "ed25519", "ed25519-sign", Some("ed25519-verify")),
        ("RSA-SHA256", "rsa2048", "rsa2048", None),
        ("RSA-SHA512", "rsa4096", "rsa4096", None),
        ("ECDSA-SHA256", "p256", "p256-sign", Some("p256-verify")),
        ("ECDSA-SHA384", "p384", "p384-sign", Some("p384-verify")),
    ] {
        let finished = sign_message(&place, algorithm, key);
        if finished.text().starts_with("skipped") {
            print!("{}", finished.text());
            return;
        }
        let counters = finished.counters();
        assert_eq!(counters.of(sign), 1, "{algorithm}: {finished}");
        if let Some(verify) = verify {
            assert_eq!(counters.of(verify), 2, "{algorithm}: {finished}");
        }
    }
}

#[test]
fn each_group_is_listed_once() {
    let place = Place::new();
    let stock = place.stock("list -tls-groups").run();
    if !stock.status.success() {
        println!("skipped: this OpenSSL lists no groups (3.5)");
        return;
    }
    for command in ["list -tls-groups", "list -all-tls-groups"] {
        let ours = place.lockstep(command).succeed();
        assert_eq!(ours.text(), place.stock(command).succeed().text());
    }
}

#[test]
fn keys_on_the_curve_sm2_are_written_as_without_the_module() {
    let place = Place::new();
    let generate = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:SM2";
    for form in ["PEM", "DER"] {
        let command = format!("{generate} -outform {form}");
        let ours = place.lockstep(&command).succeed();
        let stock = place.stock(&command).succeed();
        assert_eq!(ours.stdout.len(), stock.stdout.len(), "{ours}");
        place.write("key", &ours.stdout);
        let shown = "pkey -in key -text -noout";
        let shown = place.stock(&format!("{shown} -inform {form}")).succeed();
        assert!(shown.text().contains("SM2"), "{shown}");
    }
    let text = place.lockstep(&format!("{generate} -text")).succeed();
    assert!(text.text().contains("ASN1 OID: SM2"), "{text}");
}

#[test]
fn shared_secrets_become_keys_that_encipher() {
    let place = Place::new();
    let program = place.compile_with("secret_keys", "secret_keys", &["-lcrypto", "-ldl"]);
    for (key, shape) in [("x25519", "x25519"), ("p256", "p256-ecdh")] {
        let process = place.program(&program, &place.key(key));
        let finished = process.with_lockstep().succeed();
        if finished.text().starts_with("skipped") {
            print!("{}", finished.text());
            return;
        }
        assert_eq!(finished.counters().of(shape), 3, "{finished}");
    }
}

/// From OpenSSL 3.2 on the module has two contexts for a generation.
#[test]
fn a_key_that_cannot_be_generated_is_reported_once() {
    let place = Place::new();
    let program = place.compile_with("ungenerated", "ungenerated", &["-lcrypto"]);
    for way in ["format", "method"] {
        let ours = place.program(&program, way).with_lockstep().succeed();
        let stock = place.program(&program, way).succeed();
        assert!(!stock.text().is_empty());
        assert_eq!(ours.text(), stock.text(), "{way}");
    }
}
