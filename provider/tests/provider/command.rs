//! The `openssl` command signs and decrypts on lanes, with the results of OpenSSL alone.

use crate::common::Place;

const SIZES: [usize; 4] = [1024, 2048, 3072, 4096];

#[test]
fn dgst_signs_pkcs1_as_stock_does() {
    let place = Place::new();
    place.write("data", b"the quick brown fox");
    for bits in SIZES {
        let key = place.key(&format!("rsa{bits}"));
        for digest in ["md5-sha1", "sha1", "sha256", "sha384", "sha512"] {
            same_as_stock(&place, bits, &format!("dgst -{digest} -sign {key} data"));
        }
    }
}

#[test]
fn dgst_signs_pss_with_every_kind_of_salt() {
    let place = Place::new();
    place.write("data", b"the quick brown fox");
    for bits in SIZES {
        let key = place.key(&format!("rsa{bits}"));
        for salt in ["digest", "max", "auto", "20", "0"] {
            let options =
                format!("-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:{salt}");
            place
                .lockstep(&format!("dgst {options} -sign {key} -out signature data"))
                .succeed()
                .on_lanes(&format!("rsa{bits}"), 1);
            place
                .stock(&format!(
                    "dgst {options} -verify rsa{bits}.pub.pem -signature signature data"
                ))
                .succeed();
        }
        let unsalted = "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:0";
        same_as_stock(&place, bits, &format!("dgst {unsalted} -sign {key} data"));
    }
}

#[test]
fn keys_restricted_to_pss_sign_and_keep_their_restrictions() {
    let place = Place::new();
    place.write("data", b"the quick brown fox");
    for bits in [2048, 3072] {
        let key = place.key(&format!("pss{bits}"));
        place
            .lockstep(&format!("dgst -sha256 -sign {key} -out signature data"))
            .succeed()
            .on_lanes(&format!("rsa{bits}"), 1);
        place
            .stock(&format!(
                "dgst -sha256 -verify pss{bits}.pub.pem -signature signature data"
            ))
            .succeed();
        for forbidden in [
            "-sha1",
            "-sha256 -sigopt rsa_pss_saltlen:20",
            "-sha256 -sigopt rsa_padding_mode:pkcs1",
        ] {
            let command = format!("dgst {forbidden} -sign {key} -out signature data");
            place.stock(&command).fail();
            place.lockstep(&command).fail();
        }
    }
}

#[test]
fn raw_blocks_and_digests_are_signed_as_stock_does() {
    let place = Place::new();
    let x931 = "-pkeyopt digest:sha256 -pkeyopt rsa_padding_mode:x931";
    for bits in SIZES {
        let key = place.key(&format!("rsa{bits}"));
        let mut raw: Vec<u8> = (0..bits / 8).map(|i| (i * 7 + 13) as u8).collect();
        raw[0] = 0;
        place.write("raw", &raw);
        place.write("digest", &[0x5a; 32]);
        for command in [
            format!("rsautl -sign -raw -inkey {key} -in raw"),
            format!("rsautl -sign -pkcs -inkey {key} -in digest"),
            format!("pkeyutl -sign -inkey {key} -in digest"),
            format!("pkeyutl -sign -inkey {key} -in digest -pkeyopt digest:sha256"),
            format!("pkeyutl -sign -inkey {key} -in digest {x931}"),
        ] {
            same_as_stock(&place, bits, &command);
        }
    }
}

#[test]
fn pkeyutl_decrypts_what_stock_encrypts() {
    let place = Place::new();
    for bits in SIZES {
        let key = place.key(&format!("rsa{bits}"));
        let mut raw: Vec<u8> = (0..bits / 8).map(|i| (i * 11 + 5) as u8).collect();
        raw[0] = 0;
        place.write("raw", &raw);
        place.write("short", b"premaster");
        let oaep = "-pkeyopt rsa_padding_mode:oaep";
        let mut cases = vec![
            ("raw", "-pkeyopt rsa_padding_mode:none".to_owned()),
            ("short", oaep.to_owned()),
            ("short", format!("{oaep} -pkeyopt rsa_oaep_md:sha256")),
            (
                "short",
                format!("{oaep} -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_mgf1_md:sha1"),
            ),
            ("short", format!("{oaep} -pkeyopt rsa_oaep_label:c0ffee")),
        ];
        if bits > 1024 {
            cases.push(("short", format!("{oaep} -pkeyopt rsa_oaep_md:sha512")));
        }
        for (message, options) in cases {
            place
                .stock(&format!(
                    "pkeyutl -encrypt -pubin -inkey rsa{bits}.pub.pem -in {message} -out sealed {options}"
                ))
                .succeed();
            let decrypted = place
                .lockstep(&format!(
                    "pkeyutl -decrypt -inkey {key} -in sealed {options}"
                ))
                .on_vectors()
                .succeed();
            assert_eq!(decrypted.stdout, place.read(message), "{decrypted}");
            decrypted.on_lanes(&format!("rsa{bits}"), 1);
        }
        // The wrong label must not open it.
        place
            .lockstep(&format!(
                "pkeyutl -decrypt -inkey {key} -in sealed {oaep} -pkeyopt rsa_oaep_label:00"
            ))
            .on_vectors()
            .fail()
            .on_lanes(&format!("rsa{bits}"), 1);
    }
}

/// Runs a command that makes one private operation, on lanes and by OpenSSL alone; their output is
/// equal.
#[track_caller]
fn same_as_stock(place: &Place, bits: usize, command: &str) {
    let ours = place.lockstep(command).succeed();
    let stock = place.stock(command).succeed();
    assert!(
        !stock.stdout.is_empty() && ours.stdout == stock.stdout,
        "{ours}"
    );
    ours.on_lanes(&format!("rsa{bits}"), 1);
}
