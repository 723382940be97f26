//! The contents of the application's own library context: digests of other providers, its random
//! generator, its properties. An operation that works without the module works with it, and on
//! lanes. Methods of the program's own work, too.

use crate::common::{Finished, Place, dist};

/// Runs a way of `programs/foreign.c`.
fn take_way(place: &Place, way: &str, key: &str) -> Finished {
    let program = place.compile("foreign");
    let arguments = format!("{way} {} {}", place.key(key), dist().display());
    place
        .program(&program, &arguments)
        .with_counters()
        .succeed()
}

#[test]
fn digests_of_other_providers_are_signed_on_lanes() {
    let place = Place::new();
    place.write("data", b"data");
    let rsa = &["md4", "ripemd160"][..];
    let ecdsa = &["md4", "whirlpool", "sm3"][..];
    for (key, shape, digests) in [
        ("rsa2048", "rsa2048", rsa),
        ("p256", "p256-sign", ecdsa),
        ("p384", "p384-sign", ecdsa),
    ] {
        let file = place.key(key);
        for digest in digests {
            let with = format!("dgst -provider default -provider legacy -{digest}");
            let sign = format!("{with} -sign {file} -out signature data");
            place.lockstep(&sign).succeed().on_lanes(shape, 1);
            let verify = format!("{with} -verify {key}.pub.pem -signature signature data");
            place.stock(&verify).succeed();
            if key == "rsa2048" {
                let signed = place.read("signature");
                place.stock(&sign).succeed();
                assert_eq!(signed, place.read("signature"), "{digest}");
            } else {
                let verify = place.lockstep(&verify).succeed();
                verify.on_lanes(&shape.replace("sign", "verify"), 1);
            }
        }
    }
}

#[test]
fn digests_that_nobody_has_fail_as_they_do_without_the_module() {
    let place = Place::new();
    place.write("data", b"data");
    let key = place.key("rsa2048");
    // The text after the thread's number, the error's number and the place in OpenSSL.
    let errors = |finished: Finished| -> Vec<String> {
        let lines = finished.stderr.lines();
        lines
            .map(|line| {
                line.split_once(":error:")
                    .map_or(line, |(_, error)| error)
                    .to_owned()
            })
            .collect()
    };
    for command in [
        "dgst -md4",
        "dgst -sha256 -sigopt rsa_mgf1_md:md4",
        "dgst -nothing",
    ] {
        let sign = format!("{command} -sign {key} data");
        let stock = errors(place.stock(&sign).fail());
        assert_eq!(errors(place.lockstep(&sign).fail()), stock, "{command}");
    }
}

#[test]
fn property_queries_hold_for_digests() {
    take_way(&Place::new(), "queries", "rsa2048").on_lanes("rsa2048", 4);
    take_way(&Place::new(), "queries", "p256").on_lanes("p256-sign", 4);
}

#[test]
fn decryption_takes_digests_of_other_providers() {
    take_way(&Place::new(), "decrypt", "rsa2048").on_lanes("rsa2048", 1);
}

#[test]
fn random_numbers_of_stock_code_come_from_the_application() {
    take_way(&Place::new(), "salt", "rsa2048").on_lanes("rsa2048", 4);
}

#[test]
fn a_default_provider_that_is_given_up_stays_away() {
    take_way(&Place::new(), "given-up", "rsa2048").on_lanes("rsa2048", 2);
}

#[test]
fn library_contexts_come_and_go() {
    take_way(&Place::new(), "often", "rsa2048").on_lanes("rsa2048", 1);
}

#[test]
fn methods_that_a_program_makes_its_default_compute() {
    let place = Place::new();
    let program = place.compile("methods");
    for (key, shape) in [("rsa2048", "rsa2048"), ("p256", "p256-sign")] {
        let process = place.program(&program, &place.key(key));
        let finished = process.with_lockstep().succeed();
        // The two signatures of the key that was there before.
        assert_eq!(finished.counters().of(shape), 2, "{finished}");
    }
}
