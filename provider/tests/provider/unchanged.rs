//! Operations that the module does not accelerate work as without it.

use crate::common::{Finished, Place};

#[test]
fn nothing_is_lost_from_the_lists_of_algorithms() {
    let place = loaded();
    for list in [
        "-public-key-algorithms",
        "-key-managers",
        "-signature-algorithms",
        "-asymcipher-algorithms",
        "-key-exchange-algorithms",
        "-kem-algorithms",
        "-encoders",
        "-decoders",
        "-store-loaders",
        "-digest-algorithms",
        "-kdf-algorithms",
    ] {
        let command = format!("list {list}");
        let ours = place.lockstep(&command).succeed().text();
        let stock = place.stock(&command).succeed().text();
        for line in stock.lines() {
            assert!(
                ours.lines().any(|ours| ours == line),
                "{list} lost {line:?}"
            );
        }
        if list == "-signature-algorithms" || list == "-key-managers" {
            assert!(
                ours.contains("@ lockstep"),
                "the module is not loaded: {ours}"
            );
        }
    }
}

#[test]
fn keys_are_generated_and_checked() {
    let place = loaded();
    place.write("data", b"data");
    for command in [
        "genrsa -out new.pem 2048",
        "genrsa -3 -out new.pem 2048",
        "genrsa -traditional -out new.pem 1024",
        "genpkey -algorithm RSA -out new.pem",
        "genpkey -algorithm RSA -propquery provider=lockstep -out new.pem",
        "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:3072 -pkeyopt rsa_keygen_pubexp:3 -propquery provider=lockstep -out new.pem",
        "genpkey -algorithm RSA-PSS -pkeyopt rsa_pss_keygen_md:sha256 -propquery provider=lockstep -out new.pem",
    ] {
        place.remove("new.pem");
        place.lockstep(command).succeed();
        // OpenSSL alone takes the key, with all its parts, and so does the module.
        let check = "pkey -in new.pem -check -noout";
        let [ours, stock] = [
            place.lockstep(check).succeed(),
            place.stock(check).succeed(),
        ];
        assert!(
            ours.text().contains("Key is valid") && ours.text() == stock.text(),
            "{ours}"
        );
        for text in [
            "pkey -in new.pem -text",
            "pkey -in new.pem -pubout -text_pub",
        ] {
            same(&place, text);
        }
        let signed = place
            .lockstep("dgst -sha256 -sign new.pem -out signature data")
            .succeed();
        let counters = signed.counters();
        assert!(
            counters.operations() == 1 && counters.fallbacks() == 0,
            "{signed}"
        );
        place
            .stock("pkey -in new.pem -pubout -out new.pub.pem")
            .succeed();
        place
            .stock("dgst -sha256 -verify new.pub.pem -signature signature data")
            .succeed();
    }
}

#[test]
fn keys_that_were_made_by_the_module_compute_on_lanes() {
    // Signing at once with the key that our own key management made, without a file in between.
    let place = loaded();
    let request = "req -x509 -newkey rsa:2048 -noenc -keyout new.pem -out new.crt -subj /CN=x \
                   -propquery ?provider=lockstep";
    place.lockstep(request).succeed().on_lanes("rsa2048", 1);
    place.stock("verify -CAfile new.crt new.crt").succeed();
}

#[test]
fn keys_are_converted_as_without() {
    let place = loaded();
    for key in [
        "rsa2048",
        "pss2048",
        "three-primes",
        "p256",
        "p256-explicit",
        "p384",
        "p521",
        "x25519",
        "ed25519",
        "ed448",
    ] {
        let pem = place.key(key);
        same(&place, &format!("pkey -in {pem}"));
        same(&place, &format!("pkey -in {pem} -outform DER"));
        same(&place, &format!("pkey -in {pem} -pubout"));
        same(&place, &format!("pkey -in {pem} -text -noout"));
    }
    let rsa = place.key("rsa2048");
    for options in [
        "-traditional",
        "-text -noout",
        "-modulus -noout",
        "-pubout",
        "-check -noout",
    ] {
        same(&place, &format!("rsa -in {rsa} {options}"));
    }
    // Encrypted files: the module opens the files of OpenSSL alone, and the other way round.
    for (writer, reader) in [(true, false), (false, true)] {
        let run = |on_lanes, command: &str| match on_lanes {
            true => place.lockstep(command).succeed(),
            false => place.stock(command).succeed(),
        };
        run(
            writer,
            &format!("pkey -in {rsa} -aes-256-cbc -passout pass:x -out sealed.pem"),
        );
        let opened = run(reader, "pkey -in sealed.pem -passin pass:x");
        assert_eq!(
            opened.stdout,
            place.stock(&format!("pkey -in {rsa}")).succeed().stdout
        );
    }
}

#[test]
fn certificates_are_requested_signed_and_verified() {
    let place = loaded();
    let (authority, key) = (place.key("rsa3072"), place.key("rsa2048"));
    place
        .lockstep(&format!(
            "req -x509 -new -key {authority} -days 2 -subj /CN=ca -out ca.crt"
        ))
        .succeed()
        .on_lanes("rsa3072", 1);
    place
        .lockstep(&format!(
            "req -new -key {key} -subj /CN=server -out request"
        ))
        .succeed()
        .on_lanes("rsa2048", 1);
    same(&place, "req -in request -verify -text -noout");
    place
        .lockstep(&format!(
            "x509 -req -in request -CA ca.crt -CAkey {authority} -CAcreateserial -days 2 -out server.crt"
        ))
        .succeed()
        .on_lanes("rsa3072", 1);
    same(&place, "x509 -in server.crt -text -noout");
    same(&place, "verify -CAfile ca.crt server.crt");
}

#[test]
fn cms_and_smime_sign_and_decrypt() {
    let place = loaded();
    let key = place.key("rsa2048");
    place.self_signed(&key, "x", "x.crt");
    place.write("data", b"attack at dawn\r\n");
    let on_lanes = |command: &str| {
        place.lockstep(command).succeed().on_lanes("rsa2048", 1);
    };
    // OpenSSL's own code decrypts PKCS#1 v1.5 padding.
    let by_stock = |command: &str| {
        let counters = place.lockstep(command).succeed().counters();
        assert_eq!(counters.reasons(), [("pkcs1_decryption", 1)]);
        assert_eq!(counters.operations(), 0, "{counters:?}");
    };
    for (options, recipient) in [
        ("", ""),
        (
            "-keyopt rsa_padding_mode:pss",
            "-keyopt rsa_padding_mode:oaep",
        ),
        (
            "-md sha512",
            "-keyopt rsa_padding_mode:oaep -keyopt rsa_oaep_md:sha256",
        ),
    ] {
        on_lanes(&format!(
            "cms -sign -in data -signer x.crt -inkey {key} {options} -outform DER -binary -nodetach -out signed"
        ));
        same(
            &place,
            "cms -verify -in signed -inform DER -CAfile x.crt -purpose any -binary",
        );
        place
            .lockstep(&format!(
                "cms -encrypt -aes256 -in data -binary -outform DER -out sealed -recip x.crt {recipient}"
            ))
            .succeed();
        let open = format!("cms -decrypt -in sealed -inform DER -binary -recip x.crt -inkey {key}");
        same(&place, &open);
        match recipient {
            "" => by_stock(&open),
            _ => on_lanes(&open),
        }
    }
    on_lanes(&format!(
        "smime -sign -in data -signer x.crt -inkey {key} -out signed"
    ));
    same(
        &place,
        "smime -verify -in signed -CAfile x.crt -purpose any",
    );
}

/// OpenSSL 3.0 has no enveloped data for X25519.
#[test]
fn cms_refuses_x25519_with_the_same_reason() {
    let place = loaded();
    let ca = place.key("p256");
    place.key("x25519");
    for command in [
        format!("req -x509 -new -key {ca} -days 2 -subj /CN=ca -out ca.crt"),
        format!("req -new -key {ca} -subj /CN=x -out request"),
        format!(
            "x509 -req -in request -CA ca.crt -CAkey {ca} -CAcreateserial -days 2 -out x.crt \
             -force_pubkey x25519.pub.pem"
        ),
    ] {
        place.stock(&command).succeed();
    }
    place.write("data", b"attack at dawn");
    let seal = "cms -encrypt -aes256 -in data -binary -outform DER -out sealed -recip x.crt";
    for sealed in [place.stock(seal).fail(), place.lockstep(seal).fail()] {
        let reason = "operation not supported for this keytype";
        assert!(sealed.stderr.contains(reason), "{sealed}");
    }
}

#[test]
fn pkcs12_files_open_on_either_side() {
    let place = loaded();
    let key = place.key("rsa2048");
    place.self_signed(&key, "x", "x.crt");
    let export = format!("pkcs12 -export -inkey {key} -in x.crt -passout pass:x -out x.p12");
    place.lockstep(&export).succeed();
    same(&place, "pkcs12 -in x.p12 -passin pass:x -noenc");
    place.remove("x.p12");
    place.stock(&export).succeed();
    same(&place, "pkcs12 -in x.p12 -passin pass:x -noenc");
}

#[test]
fn signatures_and_exchanges_pass_between_the_module_and_stock() {
    let place = loaded();
    place.write("data", b"data");
    let (p256, p384) = (place.key("p256"), place.key("p384"));
    for (key, name) in [(&p256, "p256"), (&p384, "p384")] {
        for (signer, verifier) in [(true, false), (false, true)] {
            let run = |on_lanes, command: &str| -> Finished {
                if on_lanes {
                    place.lockstep(command)
                } else {
                    place.stock(command)
                }
                .succeed()
            };
            run(
                signer,
                &format!("dgst -sha256 -sign {key} -out signature data"),
            );
            run(
                verifier,
                &format!("dgst -sha256 -verify {name}.pub.pem -signature signature data"),
            );
        }
    }
    for algorithm in ["X25519", "ED25519", "X448", "ED448"] {
        place
            .lockstep(&format!("genpkey -algorithm {algorithm} -out a.pem"))
            .succeed();
        same(&place, "pkey -in a.pem -text");
    }
    for name in ["a", "b"] {
        place
            .lockstep(&format!("genpkey -algorithm X25519 -out {name}.pem"))
            .succeed();
        place
            .lockstep(&format!("pkey -in {name}.pem -pubout -out {name}.pub.pem"))
            .succeed();
    }
    same(&place, "pkeyutl -derive -inkey a.pem -peerkey b.pub.pem");
    same(&place, "dgst -sha256 data");
}

#[test]
fn public_keys_encrypt_verify_and_recover() {
    let place = loaded();
    let key = place.key("rsa2048");
    place.write("digest", &[7; 32]);
    place
        .stock(&format!(
            "pkeyutl -sign -inkey {key} -in digest -out signature"
        ))
        .succeed();
    let public = "-pubin -inkey rsa2048.pub.pem";
    for command in [
        format!("pkeyutl -verify {public} -in digest -sigfile signature"),
        format!("pkeyutl -verifyrecover {public} -in signature"),
        format!("pkeyutl -encrypt {public} -in signature -pkeyopt rsa_padding_mode:none"),
    ] {
        same(&place, &command);
    }
    let ours = place.lockstep(&format!("pkeyutl -encrypt {public} -in digest -out sealed"));
    ours.succeed();
    let opened = place
        .stock(&format!("pkeyutl -decrypt -inkey {key} -in sealed"))
        .succeed();
    assert_eq!(opened.stdout, [7; 32]);
    // A public key cannot sign.
    place
        .lockstep(&format!("pkeyutl -sign {public} -in digest"))
        .fail();
}

/// A place whose configuration does load the module, or equal results would prove nothing.
fn loaded() -> Place {
    let place = Place::new();
    let key = place.key("rsa2048");
    place.write("message", b"message");
    place
        .lockstep(&format!("dgst -sha256 -sign {key} message"))
        .succeed()
        .on_lanes("rsa2048", 1);
    place
}

/// Runs a command with and without the module: equal output, and both succeed.
#[track_caller]
fn same(place: &Place, command: &str) {
    let [ours, stock] = [
        place.lockstep(command).succeed(),
        place.stock(command).succeed(),
    ];
    assert!(ours.stdout == stock.stdout, "{ours}\n{stock}");
}
