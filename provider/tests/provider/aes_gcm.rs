//! AES-GCM, which the module has for an OpenSSL before 3.1: by EVP beside OpenSSL's own, and in
//! sessions of TLS.

use std::time::{Duration, Instant};

use lockstep_kernels::aes_gcm::Lanes;

use crate::common::{Place, Process};
use crate::faults::faulty;
use crate::tls::certificate;

/// Whether the module has AES-GCM here; says so if not.
fn is_offered(place: &Place) -> bool {
    let listed = with_gcm(place.stock("list -cipher-algorithms")).succeed();
    let offered = listed.text().contains("id-aes256-GCM } @ lockstep");
    let version = place.stock("version").succeed().text();
    if !version.starts_with("OpenSSL 3.0.") {
        assert!(!offered, "{version} has vectors of its own");
        println!("skipped: this OpenSSL, {version}, has vectors of its own");
        return false;
    }
    assert!(offered, "{listed}");
    true
}

/// With the module, and with its AES-GCM on a CPU without the instructions too.
fn with_gcm(process: Process<'_>) -> Process<'_> {
    let process = process.with_lockstep();
    match Lanes::best_hardware() {
        Some(_) => process,
        None => process.env("LOCKSTEP_BACKEND", "portable"),
    }
}

#[test]
fn programs_of_calls_end_as_openssls_own() {
    let place = Place::new();
    if !is_offered(&place) {
        return;
    }
    let program = place.compile("gcm");
    let (seed, programs) = (std::process::id(), 1500);
    let run = with_gcm(place.program(&program, &format!("{seed} {programs}"))).succeed();
    let text = run.text();
    assert!(text.starts_with("lockstep has AES-GCM"), "{run}");
    let most = text.trim_end().strip_suffix(" contexts");
    let most = most.and_then(|text| text.rsplit(' ').next());
    let most: u64 = most.expect("a number").parse().expect("a number");
    let counted = run.counters().ciphers;
    assert!(
        counted >= 2 * programs && counted <= most,
        "{counted} of {most}"
    );
}

/// The same for as long as `cargo xtask nightly` says, each time from the next seed.
#[test]
#[ignore = "cargo xtask nightly ciphers"]
fn programs_of_calls_for_long() {
    const PROGRAMS: u64 = 1500;
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let end = Instant::now() + Duration::from_secs(number("NIGHTLY_SECONDS", 60));
    let place = Place::new();
    if !is_offered(&place) {
        return;
    }
    let program = place.compile("gcm");
    let first = number("NIGHTLY_NEXT", 0);
    let (mut seed, mut findings) = (first, 0);
    while Instant::now() < end {
        let run = with_gcm(place.program(&program, &format!("{seed} {PROGRAMS}"))).run();
        if !run.status.success() {
            println!("seed {seed}: {run}");
            findings += 1;
        }
        seed += 1;
    }
    println!(
        "\nnightly: cases {} findings {findings} next {seed} note programs of calls of AES-GCM",
        (seed - first) * PROGRAMS
    );
}

/// One bit of a tag that is wrong ends programs of calls otherwise than OpenSSL's own.
#[test]
fn a_planted_wrong_tag_is_found() {
    let Some(faulty) = faulty() else { return };
    let place = Place::of(&faulty, &[]);
    if !is_offered(&place) {
        return;
    }
    let program = place.compile("gcm");
    let run = || with_gcm(place.program(&program, "7 20"));
    run().succeed();
    run().env("LOCKSTEP_PLANT", "wrong-tag").fail();
}

/// The instructions that are not chosen here, and plain Rust, which every machine can run.
#[test]
fn all_instructions_end_programs_alike() {
    let place = Place::new();
    if !is_offered(&place) {
        return;
    }
    let program = place.compile("gcm");
    for backend in ["portable", "avx2"] {
        let process = place.program(&program, "7 150").with_lockstep();
        let run = process.env("LOCKSTEP_BACKEND", backend);
        if backend == "avx2" && Lanes::from_name("vaes256").is_none() {
            println!("skipped: this CPU lacks VAES");
            continue;
        }
        assert!(run.succeed().counters().ciphers >= 300);
    }
}

#[test]
fn nothing_is_encrypted_here_where_a_setting_forbids_it() {
    let place = Place::new();
    for (setting, value) in [("LOCKSTEP_BACKEND", "none"), ("LOCKSTEP_AES_GCM", "no")] {
        let listed = place.stock("list -cipher-algorithms").with_lockstep();
        let listed = listed.env(setting, value).succeed();
        assert!(!listed.text().contains("GCM } @ lockstep"), "{listed}");
    }
}

#[test]
fn records_of_tls_are_encrypted_here() {
    let place = Place::new();
    if !is_offered(&place) {
        return;
    }
    let program = place.compile("records");
    let (key, certificate) = (place.key("p256"), certificate(&place, "p256"));
    let run = with_gcm(place.program(&program, &format!("{key} {certificate} 97")));
    let run = run.succeed();
    let expected = format!("{} contexts\n", run.counters().ciphers);
    assert_eq!(run.text(), expected, "{run}");
}
