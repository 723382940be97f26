//! The example that signs a DNS zone, beside two programs that check zones: `ldns-verify-zone` and
//! BIND's `dnssec-verify`.

#[expect(dead_code, reason = "`main` is for the example")]
#[path = "../examples/sign_zone.rs"]
mod sign_zone;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockstep::{Algorithm, PrivateKey, Workers};
use lockstep_testkit::TempDir;
use sign_zone::{Denial, made, sign, time};

const ORIGIN: &str = "Zone.example";
/// Numbers of names.
const MANY: usize = 1600;
const FEW: usize = 160;

/// Programs and their arguments before the name of the file. `-z` accepts one key for all records.
const PEERS: [(&str, &[&str]); 2] = [
    ("ldns-verify-zone", &["-V", "1"]),
    ("dnssec-verify", &["-q", "-z", "-o", ORIGIN]),
];

/// Whether a program accepts a zone; None if it is not there.
fn accepts(program: &str, arguments: &[&str], zone: &Path) -> Option<Result<(), String>> {
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    let run = command.args(arguments).arg(zone).env("PATH", path).output();
    let run = run.ok()?;
    let said = [run.stdout, run.stderr].concat();
    Some(match run.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    })
}

/// Returns the zone with one wrong bit in the signature of its last name.
fn damaged(zone: &str) -> String {
    let start = zone.rfind(" IN RRSIG ").expect("a signature");
    let end = start + zone[start..].find('\n').unwrap_or(zone.len() - start);
    // Base64 of 64 bytes ends with `==`. Its first character has six bits of r or of R.
    let place = end - 88;
    let other = match &zone[place..=place] {
        "A" => "B",
        _ => "A",
    };
    format!("{}{other}{}", &zone[..place], &zone[place + 1..])
}

#[test]
fn signed_zones_are_accepted_and_a_changed_signature_is_not() {
    let (workers, place) = (Workers::new(), TempDir::new("zone"));
    for algorithm in [Algorithm::P256, Algorithm::Ed25519] {
        let pairs = workers.generate_many(algorithm, 1).expect("a key");
        let key = PrivateKey::from_raw(algorithm, pairs.secret(0)).expect("a key");
        for denial in [Denial::Nsec, Denial::Nsec3] {
            let names = match (algorithm, denial) {
                (Algorithm::P256, Denial::Nsec) => MANY,
                _ => FEW,
            };
            let text = made(ORIGIN, 0..names);
            let signed = sign(text.as_bytes(), ORIGIN, &key, denial, &workers).expect("a zone");
            assert!(signed.signatures > 2 * names, "{}", signed.signatures);
            let mut zone = Vec::new();
            signed.write(&mut zone).expect("memory");
            let zone = String::from_utf8(zone).expect("text");
            let (good, bad) = (place.join("good"), place.join("bad"));
            fs::write(&good, &zone).expect("a file");
            fs::write(&bad, damaged(&zone)).expect("a file");
            for (program, arguments) in PEERS {
                let Some(verdict) = accepts(program, arguments, &good) else {
                    println!("skipped: {program} is not installed");
                    continue;
                };
                assert_eq!(verdict, Ok(()), "{program}, {algorithm:?}, {denial:?}");
                let verdict = accepts(program, arguments, &bad);
                let is_refused = matches!(verdict, Some(Err(_)));
                assert!(is_refused, "{program}, {algorithm:?}, {denial:?}");
            }
        }
    }
}

#[test]
fn as_many_record_sets_are_timed_as_asked_for() {
    let timed = time(1000, Algorithm::P256, Denial::Nsec, &Workers::new());
    let (signed, time) = timed.expect("a zone");
    assert!(
        (1000..1300).contains(&signed) && time > Duration::ZERO,
        "{signed}"
    );
}

#[test]
fn zones_that_cannot_be_signed_are_refused() {
    let workers = Workers::new();
    let key = PrivateKey::from_raw(Algorithm::Ed25519, &[7; 32]).expect("a key");
    let other = PrivateKey::from_raw(Algorithm::P384, &[7; 48]).expect("a key");
    let refusal = |text: &str, key: &PrivateKey| {
        let signed = sign(text.as_bytes(), ORIGIN, key, Denial::Nsec, &workers);
        signed.err().expect("a refusal").to_string()
    };
    let good = made(ORIGIN, 0..8);
    for (text, key, reason) in [
        ("$TTL 60\n@ IN NS ns\n".to_owned(), &key, "no SOA record"),
        (format!("{good}ns 60 A 192.0.2.2\n"), &key, "several TTLs"),
        (format!("{good}@ NSEC ns NS SOA\n"), &key, "NSEC records"),
        (format!("{good}$INCLUDE file\n"), &key, "included file"),
        (format!("{good}ns A address\n"), &key, ""),
        (good, &other, "P-384"),
    ] {
        let refused = refusal(&text, key);
        assert!(refused.contains(reason), "{refused}");
    }
}
