//! The curves from the command line: generation, signatures and agreements as without the module;
//! and keys and data that are odd, malformed or hostile.

use std::collections::BTreeSet;

use lockstep_testkit::hex;
use openssl::bn::{BigNum, BigNumRef};
use openssl::nid::Nid;

use crate::common::Place;
use crate::faults::faulty;
use crate::keys::{
    self, X25519, copy, der, ec_private, minus_one, number, power_of_two, private_25519,
    public_25519, sum,
};
use crate::worker::{Job, Jobs, Operation};

#[test]
fn keys_are_generated_on_lanes() {
    let place = Place::new();
    for (command, shape) in [
        ("genpkey -algorithm X25519", "x25519-keygen"),
        (
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
            "p256-keygen",
        ),
        (
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384",
            "p384-keygen",
        ),
        (
            "genpkey -algorithm EC -pkeyopt group:prime256v1 -pkeyopt point-format:compressed",
            "p256-keygen",
        ),
        (
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -propquery provider=lockstep",
            "p256-keygen",
        ),
    ] {
        place.remove("new.pem");
        place
            .lockstep(&format!("{command} -out new.pem"))
            .succeed()
            .each_on_lanes(&[shape]);
        let check = "pkey -in new.pem -check -noout";
        let [ours, stock] = [
            place.lockstep(check).succeed(),
            place.stock(check).succeed(),
        ];
        assert!(
            stock.text().contains("Key is valid") && ours.text() == stock.text(),
            "{command}: {ours} {stock}"
        );
        for text in [
            "pkey -in new.pem -text",
            "pkey -in new.pem -pubout -text_pub",
        ] {
            assert_eq!(
                place.lockstep(text).succeed().text(),
                place.stock(text).succeed().text(),
                "{command}"
            );
        }
    }
    // This command makes a key for its parameters too.
    place
        .lockstep("ecparam -name secp384r1 -genkey -out new.pem")
        .succeed()
        .on_lanes("p384-keygen", 2);
    place.stock("pkey -in new.pem -check -noout").succeed();
    // Parameters without a key, and a key after them: their provider makes it.
    place
        .lockstep("genpkey -genparam -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out p.pem")
        .succeed();
    place
        .lockstep("genpkey -paramfile p.pem -out new.pem")
        .succeed();
    place.stock("pkey -in new.pem -check -noout").succeed();
}

#[test]
fn keys_without_lanes_are_generated_as_without() {
    let place = Place::new();
    for command in [
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:secp256k1",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:brainpoolP256r1",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit",
        "genpkey -algorithm ED25519",
        "genpkey -algorithm X448",
    ] {
        let made = place.lockstep(&format!("{command} -out new.pem")).succeed();
        let counters = made.try_counters();
        assert!(
            counters.is_none_or(|c| c.operations() == 0 && c.fallbacks() == 0),
            "{made}"
        );
        let check = place.stock("pkey -in new.pem -check -noout").succeed();
        assert!(check.text().contains("Key is valid"), "{check}");
    }
    for refused in [
        "genpkey -algorithm EC",
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-257",
        "genpkey -algorithm X25519 -pkeyopt group:P-256",
    ] {
        place.stock(refused).fail();
        place.lockstep(refused).fail();
    }
}

/// The options that sign a file's bytes with a key.
const SIGNERS: [(&str, &str, &str, &str); 3] = [
    ("p256", "p256-sign", "p256-verify", ""),
    ("p384", "p384-sign", "p384-verify", ""),
    ("ed25519", "ed25519-sign", "ed25519-verify", "-rawin"),
];

#[test]
fn signatures_are_made_and_verified_on_lanes() {
    let place = Place::new();
    for (key, sign, verify, options) in SIGNERS {
        let pem = place.key(key);
        // For ECDSA the input is the digest: of every length, zero, and beyond the order.
        for digest in [
            vec![0x5a; 32],
            vec![0; 32],
            vec![0xff; 32],
            vec![0xff; 48],
            vec![1],
            vec![7; 20],
            vec![9; 64],
        ] {
            place.write("data", &digest);
            let signing = format!("pkeyutl -sign -inkey {pem} {options} -in data -out signature");
            let checking =
                format!("pkeyutl -verify -inkey {pem} {options} -in data -sigfile signature");
            place.lockstep(&signing).succeed().each_on_lanes(&[sign]);
            place.stock(&checking).succeed();
            place.remove("signature");
            place.stock(&signing).succeed();
            place.lockstep(&checking).succeed().each_on_lanes(&[verify]);
            place.write("data", b"something else of thirty-two bits");
            let refused = place.lockstep(&checking).fail();
            refused.each_on_lanes(&[verify]);
            assert_eq!(
                refused.status.code(),
                place.stock(&checking).fail().status.code()
            );
        }
    }
    // Ed25519 of any length, in one call. OpenSSL hashes long messages.
    let pem = place.key("ed25519");
    for length in [1, 31, 127, 128, 1023, 16384, 65536] {
        place.write("data", &vec![0xa5; length]);
        let sign = format!("pkeyutl -sign -inkey {pem} -rawin -in data");
        let ours = place.lockstep(&sign).succeed();
        assert_eq!(ours.stdout, place.stock(&sign).succeed().stdout, "{length}");
        match length {
            65536 => assert_eq!(ours.counters().reasons(), [("long_message", 1)]),
            _ => {
                ours.each_on_lanes(&["ed25519-sign"]);
            }
        }
    }
}

#[test]
fn certificates_and_messages() {
    let place = Place::new();
    for (key, sign, verify, _) in SIGNERS {
        let pem = place.key(key);
        place
            .lockstep(&format!(
                "req -x509 -new -key {pem} -days 2 -subj /CN=ca -out ca.crt"
            ))
            .succeed()
            .each_on_lanes(&[sign]);
        place
            .lockstep(&format!("req -new -key {pem} -subj /CN=leaf -out request"))
            .succeed()
            .each_on_lanes(&[sign]);
        place
            .lockstep("req -in request -verify -noout")
            .succeed()
            .each_on_lanes(&[verify]);
        // The authority verifies the request before it signs.
        place
            .lockstep(&format!(
                "x509 -req -in request -CA ca.crt -CAkey {pem} -CAcreateserial -days 2 -out leaf.crt"
            ))
            .succeed()
            .each_on_lanes(&[verify, sign]);
        place.stock("verify -CAfile ca.crt leaf.crt").succeed();
        place
            .lockstep("verify -CAfile ca.crt leaf.crt")
            .succeed()
            .each_on_lanes(&[verify]);
    }
    // Enveloped data agrees on its key with an ephemeral one, which the recipient's key management
    // makes.
    for (key, ecdh) in [("p256", "p256-ecdh"), ("p384", "p384-ecdh")] {
        let pem = place.key(key);
        place.write("data", b"attack at dawn");
        place.self_signed(&pem, "x", "x.crt");
        place
            .lockstep("cms -encrypt -aes256 -in data -binary -outform DER -out sealed -recip x.crt")
            .succeed()
            .each_on_lanes(&[ecdh]);
        let open = format!("cms -decrypt -in sealed -inform DER -binary -recip x.crt -inkey {pem}");
        let opened = place.lockstep(&open).succeed();
        assert_eq!(opened.stdout, b"attack at dawn");
        opened.each_on_lanes(&[ecdh]);
        assert_eq!(place.stock(&open).succeed().stdout, b"attack at dawn");
    }
    // A key that our own key management made, without a file in between.
    place
        .lockstep(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout new.pem \
             -out new.crt -subj /CN=x",
        )
        .succeed()
        .each_on_lanes(&["p256-keygen", "p256-sign"]);
    place.stock("verify -CAfile new.crt new.crt").succeed();
}

#[test]
fn agreements_are_the_same() {
    let place = Place::new();
    for (key, shapes) in [
        ("x25519", &["x25519"][..]),
        ("p256", &["p256-ecdh"]),
        ("p384", &["p384-ecdh"]),
        // Without lanes.
        ("p521", &[]),
        ("x448", &[]),
        ("p256-explicit", &[]),
    ] {
        let pem = place.key(key);
        for options in ["", "-pkeyopt ecdh_cofactor_mode:1"] {
            if !options.is_empty() && !key.starts_with('p') {
                continue;
            }
            let derive = format!("pkeyutl -derive -inkey {pem} -peerkey {key}.pub.pem {options}");
            let ours = place.lockstep(&derive).succeed();
            assert_eq!(ours.stdout, place.stock(&derive).succeed().stdout);
            assert!(!ours.stdout.is_empty());
            match shapes {
                [] => assert!(ours.try_counters().is_none_or(|c| c.operations() == 0)),
                _ => {
                    ours.each_on_lanes(shapes);
                }
            }
        }
        // Another kind of key is no peer.
        let (other, _) = if key == "p256" {
            ("p384", ())
        } else {
            ("p256", ())
        };
        place.key(other);
        let wrong = format!("pkeyutl -derive -inkey {pem} -peerkey {other}.pub.pem");
        if key != "p256-explicit" {
            place.stock(&wrong).fail();
            place.lockstep(&wrong).fail();
        }
    }
}

#[test]
fn programs_use_the_curves_in_every_order() {
    let place = Place::new();
    let program = place.compile("curves");
    for (way, shapes) in [
        ("x25519", [("x25519-keygen", 4), ("x25519", 6)]),
        ("P-256", [("p256-keygen", 4), ("p256-ecdh", 6)]),
        ("P-384", [("p384-keygen", 4), ("p384-ecdh", 6)]),
    ] {
        let finished = place
            .program(&program, &format!("agree {way}"))
            .with_lockstep()
            .succeed();
        assert_eq!(
            finished.counters().shapes(),
            shapes.into_iter().collect(),
            "{finished}"
        );
    }
    let key = place.key("ed25519");
    let finished = place
        .program(&program, &format!("sign {key}"))
        .with_lockstep()
        .succeed();
    assert_eq!(
        finished.counters().shapes(),
        [("ed25519-sign", 4), ("ed25519-verify", 3)]
            .into_iter()
            .collect(),
        "{finished}"
    );
}

/// A key that changes while an operation uses it counts as it is when the secret is derived.
#[test]
fn keys_that_change_in_use_count_as_they_are() {
    let place = Place::new();
    let program = place.compile("curves");
    for lockstep in [false, true] {
        let process = place.program(&program, "change x25519");
        if !lockstep {
            process.succeed();
            continue;
        }
        let finished = process.with_lockstep().succeed();
        assert_eq!(
            finished.counters().shapes(),
            [("x25519-keygen", 3), ("x25519", 3)].into_iter().collect(),
            "{finished}"
        );
    }
}

/// Processes that fork between the filling of the pool and its use: no key comes up twice.
#[test]
fn no_two_processes_get_the_same_key() {
    let place = Place::new();
    let program = place.compile("curves");
    for (kind, shape) in [
        ("x25519", "x25519-keygen"),
        ("P-256", "p256-keygen"),
        ("P-384", "p384-keygen"),
    ] {
        let finished = place
            .program(&program, &format!("fork {kind}"))
            .with_lockstep()
            .succeed();
        let text = finished.text();
        let keys: Vec<&str> = text.lines().collect();
        // A parent, four children and a grandchild each, 20 keys and those before.
        assert_eq!(keys.len(), 3 + 9 * 20, "{finished}");
        let different: BTreeSet<&str> = keys.iter().copied().collect();
        assert_eq!(different.len(), keys.len(), "{finished}");
        let family = finished.all_counters();
        assert_eq!(family.len(), 9, "{family:?}");
        for counters in family.values() {
            assert!(
                counters.of(shape) >= 20 && counters.fallbacks() == 0,
                "{counters:?}"
            );
            assert!(counters.pool_hits > 0, "{counters:?}");
        }
    }
}

/// Runs jobs by OpenSSL alone and, by many threads, on lanes: equal answers, this many operations,
/// and these reasons to ask OpenSSL after all.
#[track_caller]
fn as_stock(jobs: &mut Jobs, shape: &str, operations: u64, reasons: &[(&str, u64)]) {
    let place = Place::new();
    let (_, stock) = jobs.answer_all(&place, 1, false);
    let (ours, answers) = jobs.answer_all(&place, 8, true);
    for (index, (ours, stock)) in answers.iter().zip(&stock).enumerate() {
        assert_eq!(ours, stock, "number {index}: {:x?}", jobs.jobs[index]);
    }
    assert!(stock.iter().any(Option::is_some), "all fail");
    let counters = ours.counters();
    assert_eq!(
        (counters.of(shape), counters.reasons().as_slice()),
        (operations, reasons),
        "{counters:?}"
    );
}

#[test]
fn odd_x25519_keys_and_peers() {
    let p = &power_of_two(255) - &number(19);
    let little = |number: &BigNumRef| -> Vec<u8> {
        let mut bytes = number.to_vec_padded(32).expect("256 bits");
        bytes.reverse();
        bytes
    };
    // Points of order 1, 2, 4 and 8 (the last two), and forms that are not reduced.
    let eighth = [
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ];
    let small = [
        little(&number(0)),
        little(&number(1)),
        little(&minus_one(&p)),
        little(&p),
        little(&sum(&p, &number(1))),
        hex(eighth[0]),
        hex(eighth[1]),
    ];
    let mut good = vec![
        little(&number(2)),
        little(&number(9)),
        little(&sum(&p, &number(2))),
        little(&minus_one(&power_of_two(255))),
        vec![0xff; 32],
        vec![0x55; 32],
        vec![0xaa; 32],
    ];
    // The highest bit does not count.
    good[1][31] |= 0x80;
    let secrets = [vec![0; 32], vec![0xff; 32], vec![0x77; 32]];
    let mut jobs = Jobs::default();
    let (mut right, mut refused) = (0, 0);
    for (key, secret) in secrets.iter().enumerate() {
        jobs.keys.push(private_25519(X25519, secret));
        let mut add = |peer: &[u8]| {
            jobs.jobs.push(Job {
                key,
                operation: Operation::Derive,
                input: public_25519(X25519, peer),
            });
        };
        for peer in &small {
            add(peer);
            refused += 1;
            let mut high = peer.clone();
            high[31] |= 0x80;
            add(&high);
            refused += 1;
        }
        for peer in &good {
            add(peer);
            right += 1;
        }
        // No keys at all.
        add(&[9; 31]);
        add(&[9; 33]);
        add(&[]);
    }
    as_stock(
        &mut jobs,
        "x25519",
        right + refused,
        &[("bad_point", refused)],
    );
}

/// A curve of FIPS 186-5, for odd keys on it.
struct Curve {
    nid: Nid,
    name: &'static str,
    order: BigNum,
    p: BigNum,
    bytes: usize,
    /// The object identifier as DER.
    identifier: Vec<u8>,
}

impl Curve {
    fn both() -> [Curve; 2] {
        let from_hex = |text: &str| BigNum::from_hex_str(text).expect("a number");
        [
            Curve {
                nid: Nid::X9_62_PRIME256V1,
                name: "p256",
                order: from_hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
                p: from_hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff"),
                bytes: 32,
                identifier: hex("06082a8648ce3d030107"),
            },
            Curve {
                nid: Nid::SECP384R1,
                name: "p384",
                order: from_hex(
                    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
                ),
                p: from_hex(
                    "fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff",
                ),
                bytes: 48,
                identifier: hex("06052b81040022"),
            },
        ]
    }

    /// A private key by its scalar alone, whatever that is (SEC 1, C.4).
    fn private(&self, scalar: &[u8]) -> Vec<u8> {
        let parts = [
            hex("020101"),
            der(0x04, scalar),
            der(0xa0, &self.identifier),
        ];
        der(0x30, &parts.concat())
    }

    /// A public key by its point in whatever form.
    fn public(&self, point: &[u8]) -> Vec<u8> {
        let algorithm = [hex("06072a8648ce3d0201"), self.identifier.clone()].concat();
        let string = [&[0], point].concat();
        der(0x30, &[der(0x30, &algorithm), der(0x03, &string)].concat())
    }

    fn padded(&self, number: &BigNumRef) -> Vec<u8> {
        number.to_vec_padded(self.bytes as i32).expect("in range")
    }
}

#[test]
fn odd_ec_keys_and_peers() {
    for curve in Curve::both() {
        let mut jobs = Jobs::default();
        let good = ec_private(curve.nid, &number(7)).expect("a key");
        let (x, y) = keys::ec_public(curve.nid, &number(5));
        let [x, y] = [x, y].map(|part| curve.padded(&part));
        let mut off_curve = y.clone();
        off_curve[curve.bytes - 1] ^= 1;
        let zero = vec![0; curve.bytes];
        let top = vec![0xff; curve.bytes];
        let beyond = curve.padded(&curve.p);
        let with = |form: u8, x: &[u8], y: &[u8]| [&[form], x, y].concat();
        let parity = y[curve.bytes - 1] & 1;
        let peers = [
            with(4, &x, &y),
            with(2 + parity, &x, &[]),
            with(3 - parity, &x, &[]),
            with(6 + parity, &x, &y),
            with(7 - parity, &x, &y),
            with(4, &x, &off_curve),
            with(4, &y, &x),
            with(4, &zero, &zero),
            with(4, &beyond, &y),
            with(4, &top, &top),
            with(4, &x, &y[1..]),
            vec![0],
            vec![4],
            vec![],
        ];
        // Right: the plain form, two compressed ones and a hybrid one.
        let right = 4;
        let order = &curve.order;
        let scalars = [
            number(1),
            number(2),
            minus_one(order),
            minus_one(&minus_one(order)),
            power_of_two(8 * curve.bytes as i32 - 60),
        ];
        jobs.keys.push(good);
        for scalar in &scalars {
            jobs.keys.push(curve.private(&curve.padded(scalar)));
        }
        // Scalars out of range: the lanes refuse them where OpenSSL accepts them.
        for scalar in [number(0), copy(order), sum(order, &number(1))] {
            jobs.keys.push(curve.private(&curve.padded(&scalar)));
        }
        jobs.keys.push(curve.private(&top));
        for key in 0..jobs.keys.len() {
            for peer in &peers {
                jobs.jobs.push(Job {
                    key,
                    operation: Operation::Derive,
                    input: curve.public(peer),
                });
            }
        }
        let lanes = right * jobs.keys.len() as u64;
        as_stock(
            &mut jobs,
            &format!("{}-ecdh", curve.name),
            lanes,
            &[("bad_scalar", 4 * right)],
        );
    }
}

#[test]
fn odd_ecdsa_signatures() {
    for curve in Curve::both() {
        let mut jobs = Jobs::default();
        let scalar = number(7);
        jobs.keys
            .push(ec_private(curve.nid, &scalar).expect("a key"));
        let (x, y) = keys::ec_public(curve.nid, &scalar);
        let public = curve.public(&[&[4][..], &curve.padded(&x), &curve.padded(&y)].concat());
        jobs.keys.push(public);
        let place = Place::new();
        place.write("key.der", &ec_private(curve.nid, &scalar).expect("a key"));
        place.write("data", b"data");
        let signature = place
            .stock("dgst -sha256 -sign key.der -keyform DER data")
            .succeed()
            .stdout;
        let order = &curve.order;
        let numbers = [
            number(0),
            number(1),
            minus_one(order),
            copy(order),
            sum(order, &number(1)),
            minus_one(&power_of_two(8 * curve.bytes as i32)),
            power_of_two(8 * curve.bytes as i32),
            power_of_two(600),
        ];
        let integer = |number: &BigNumRef| {
            let mut bytes = number.to_vec();
            if bytes.first().is_none_or(|first| *first >= 0x80) {
                bytes.insert(0, 0);
            }
            der(2, &bytes)
        };
        let mut signatures = vec![signature.clone()];
        for r in &numbers {
            for s in &numbers {
                signatures.push(der(0x30, &[integer(r), integer(s)].concat()));
            }
        }
        let one = number(1);
        signatures.push(der(0x30, &[der(2, &[0xff]), integer(&one)].concat()));
        signatures.push(der(0x30, &[der(2, &[0, 1]), integer(&one)].concat()));
        signatures.push(der(0x30, &integer(&one)));
        signatures.push([&signature[..], &[0]].concat());
        signatures.push(signature[..signature.len() - 1].to_vec());
        signatures.push(Vec::new());
        for bytes in signatures {
            jobs.jobs.push(Job {
                key: 1,
                operation: Operation::Verify {
                    digest: "sha256".into(),
                    signature: bytes,
                },
                input: b"data".to_vec(),
            });
        }
        let place = Place::new();
        let (_, stock) = jobs.answer_all(&place, 1, false);
        let (ours, answers) = jobs.answer_all(&place, 8, true);
        assert_eq!(answers, stock, "{ours}");
        let right = answers.iter().filter(|a| **a == Some(vec![1])).count();
        assert_eq!(right, 1, "{ours}");
        let counters = ours.counters();
        assert!(
            counters.of(&format!("{}-verify", curve.name)) > 30,
            "{counters:?}"
        );
        assert_eq!(counters.fallbacks(), 0, "{counters:?}");
    }
}

#[test]
fn without_a_pool_each_pair_is_made_for_its_caller() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[("key_pool", "0")]);
    for (algorithm, shape) in [
        ("X25519", "x25519-keygen"),
        ("EC -pkeyopt ec_paramgen_curve:P-256", "p256-keygen"),
    ] {
        let made = place
            .lockstep(&format!("genpkey -algorithm {algorithm} -out new.pem"))
            .succeed();
        made.each_on_lanes(&[shape]);
        assert_eq!(made.counters().pool_refills, 0, "{made}");
        place.stock("pkey -in new.pem -check -noout").succeed();
    }
}

#[test]
fn what_lanes_do_not_take_stock_makes_signs_and_agrees() {
    let place = Place::new();
    place.write("data", &[0x5a; 32]);
    let (p256, x25519, ed25519) = (place.key("p256"), place.key("x25519"), place.key("ed25519"));
    for (setting, value, reason) in [
        ("LOCKSTEP_BACKEND", "none", "no_backend"),
        ("LOCKSTEP_LONE", "stock", "lone"),
    ] {
        for command in [
            "genpkey -algorithm X25519 -out new.pem".to_owned(),
            "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384 -out new.pem".to_owned(),
            format!("pkeyutl -sign -inkey {p256} -in data -out signature"),
            format!("pkeyutl -verify -inkey {p256} -in data -sigfile signature"),
            format!("pkeyutl -derive -inkey {p256} -peerkey p256.pub.pem -out nist"),
            format!("pkeyutl -derive -inkey {x25519} -peerkey x25519.pub.pem -out montgomery"),
            format!("pkeyutl -sign -inkey {ed25519} -rawin -in data -out other"),
            format!("pkeyutl -verify -inkey {ed25519} -rawin -in data -sigfile other"),
        ] {
            let finished = place.lockstep(&command).env(setting, value).succeed();
            let counters = finished.counters();
            assert_eq!(
                (counters.operations(), counters.reasons().as_slice()),
                (0, &[(reason, 1)][..]),
                "{finished}"
            );
        }
        place.stock("pkey -in new.pem -check -noout").succeed();
        place
            .stock("pkeyutl -verify -inkey p256.pem -in data -sigfile signature")
            .succeed();
        for (key, secret) in [("p256", "nist"), ("x25519", "montgomery")] {
            let derive = format!("pkeyutl -derive -inkey {key}.pem -peerkey {key}.pub.pem");
            assert_eq!(place.read(secret), place.stock(&derive).succeed().stdout);
        }
        // A wrong signature is wrong there too.
        place.write("signature", b"no signature");
        let verify = format!("pkeyutl -verify -inkey {p256} -in data -sigfile signature");
        place.lockstep(&verify).env(setting, value).fail();
    }
}
