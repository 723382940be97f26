//! Ordinary keys that the key daemon has, too (the setting `keys`): it answers, or the program
//! computes by itself, and nobody notices.
//!
//! On a machine that does much else an answer may come too late, and is not waited for. So the
//! tests say how many signatures come from the daemon at least, and how many are made in all.

use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Counters, Place, Process, Running};
use crate::faults::faulty;
use crate::references::{Site, own_user};

const KEY: &str = "rsa2048";
/// The signatures of a round that a daemon computes if it may sign.
const SIGNATURES: u64 = 4;

impl Site {
    /// A daemon with one key, with which it signs.
    fn sharing() -> Site {
        Site::of(Place::new(), &[KEY], "")
    }

    fn of(place: Place, keys: &[&str], settings: &str) -> Site {
        let lines = format!("users = {}\nuses = sign\n", own_user());
        Site::at(place, keys, settings, &lines)
    }

    /// The program with an ordinary key and this value of the setting.
    fn ordinary(&self, command: &str, keys: &str) -> Process<'_> {
        self.with_key(command, KEY, keys)
    }

    fn with_key(&self, command: &str, key: &str, keys: &str) -> Process<'_> {
        let program = self.place.compile("references");
        let arguments = format!("{command} {key}.pem {key}.crt");
        self.place
            .program(&program, &arguments)
            .with_lockstep()
            .env("LOCKSTEP_KEYS", keys)
            .env("LOCKSTEP_KEYD_SOCKET", self.socket())
    }
}

/// How often a daemon that fails is asked since then, at most.
fn at_most(start: Instant) -> u64 {
    1 + (start.elapsed().as_millis() / 50) as u64
}

/// A program that uses its key once for each line that it reads.
struct Rounds {
    program: Running,
    so_far: usize,
}

impl Rounds {
    fn start(site: &Site) -> Rounds {
        let process = site.ordinary("ordinary", "daemon");
        let program = process.silent_input().start();
        Rounds { program, so_far: 0 }
    }

    /// One round, in which all must be right; returns the counters after it.
    fn go(&mut self) -> Counters {
        self.so_far += 1;
        self.program.send("\n");
        let so_far = self.so_far;
        let text = self.program.wait_for("round", |text| {
            (text.matches("round: yes").count() == so_far).then(|| text.to_owned())
        });
        for line in [
            "signs",
            "signs by SHA-1",
            "decrypts OAEP",
            "decrypts PKCS#1 v1.5",
        ] {
            let right = format!("{line}: yes\n");
            assert_eq!(text.matches(&right).count(), so_far, "{line}: {text}");
        }
        assert!(!text.contains("leaves errors: yes"), "{text}");
        self.program.counters().expect("it computes")
    }

    /// Rounds until the counters are as they must become.
    #[track_caller]
    fn go_until(&mut self, what: &str, condition: impl Fn(&Counters) -> bool) -> Counters {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let counters = self.go();
            if condition(&counters) {
                return counters;
            }
            assert!(Instant::now() < deadline, "not {what}: {counters:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How many signatures came from the daemon.
fn served(counters: &Counters) -> u64 {
    counters.daemon_requests - counters.daemon_fallbacks
}

/// Stops a process, or has it go on.
fn signal(process: &Running, name: &str) {
    let command = format!("kill -{name} {}", process.pid());
    let status = Command::new("sh").args(["-c", &command]).status();
    assert!(status.expect("sh runs").success(), "{command}");
    let is_stopped = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid()));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    while is_stopped() != (name == "STOP") {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_daemon_signs_with_an_ordinary_key_that_it_has_too() {
    // And others.
    let site = Site::new("sign");
    let daemon = site.daemon();
    let finished = site.ordinary("use", "daemon").succeed();
    let text = finished.text();
    for line in [
        "matches its certificate",
        "signs",
        "verifies itself",
        "exports private parts",
        "decrypts OAEP",
        "decrypts PKCS#1 v1.5",
        "signs in a child",
        "signs after the child",
    ] {
        assert!(text.contains(&format!("{line}: yes\n")), "{line}: {text}");
    }
    // Four times four signatures and a decryption, and twice four signatures in the child.
    let all = finished.all_counters();
    assert_eq!(all.len(), 2, "{all:?}");
    for (pid, counters) in &all {
        let signatures = if *pid == finished.pid { 16 + 1 } else { 8 };
        let in_all = served(counters) + counters.of(KEY);
        let has_asked = counters.daemon_requests > 0;
        assert!(has_asked && in_all == signatures, "{counters:?}");
    }
    let from_daemon: u64 = all.values().map(served).sum();
    assert!(daemon.counters().expect("it served").of(KEY) >= from_daemon);
}

#[test]
fn a_key_that_the_daemon_does_not_have_is_not_asked_for() {
    let site = Site::sharing();
    let daemon = site.daemon();
    let name = site.place.key("rsa3072");
    site.place.self_signed(&name, "rsa3072", "rsa3072.crt");
    let finished = site.with_key("use", "rsa3072", "daemon").succeed();
    let counters = finished.counters();
    assert!(finished.text().contains("signs: yes"), "{finished}");
    assert_eq!((counters.daemon_requests, counters.of("rsa3072")), (0, 17));
    // It connected, nevertheless.
    assert!(
        daemon.describe().contains("serves process"),
        "{}",
        daemon.describe()
    );
}

#[test]
fn by_default_no_daemon_is_asked() {
    let site = Site::sharing();
    let daemon = site.daemon();
    let finished = site.ordinary("use", "").succeed();
    let counters = finished.counters();
    assert_eq!((counters.daemon_requests, counters.of(KEY)), (0, 17));
    assert!(
        !daemon.describe().contains("serves process"),
        "{}",
        daemon.describe()
    );
}

#[test]
fn without_a_daemon_the_program_computes_and_with_one_it_asks_again() {
    let site = Site::sharing();
    let mut rounds = Rounds::start(&site);
    let start = Instant::now();
    let absent = rounds.go();
    let attempts = absent.daemon_requests;
    let most = at_most(start);
    assert!((1..=most).contains(&attempts), "{absent:?}");
    assert_eq!(served(&absent), 0, "{absent:?}");
    for _ in 0..2 {
        let before = served(&rounds.go());
        let daemon = site.daemon();
        rounds.go_until("served", |counters| served(counters) > before);
        // A signature with SHA-1 is refused, and says nothing about the next one.
        let last = Cell::new((0, 0));
        let after = rounds.go_until("all served but one", |counters| {
            let now = (served(counters), counters.daemon_fallbacks);
            let last = last.replace(now);
            (now.0 - last.0, now.1 - last.1) == (SIGNATURES, 1)
        });
        let by_daemon = daemon.counters().expect("it serves").of(KEY);
        assert!(by_daemon > SIGNATURES, "{by_daemon}");
        // By SIGKILL, in the middle of nothing.
        drop(daemon);
        let without = rounds.go_until("refused", |counters| {
            counters.daemon_fallbacks > after.daemon_fallbacks
        });
        assert_eq!(served(&without), served(&after), "{without:?}");
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for() {
    let site = Site::sharing();
    let daemon = site.daemon();
    let mut rounds = Rounds::start(&site);
    let before = rounds.go_until("served", |counters| served(counters) > 0);
    signal(&daemon, "STOP");
    // One that has no connection yet does not wait for its welcome either.
    let before = (before.daemon_requests, before.daemon_fallbacks);
    for (rounds, (requests, fallbacks)) in
        [(&mut rounds, before), (&mut Rounds::start(&site), (0, 0))]
    {
        let start = Instant::now();
        let mut stopped = rounds.go_until("refused", |now| now.daemon_fallbacks > fallbacks);
        let mut shortest = start.elapsed();
        // One of three times that the machine is not busy with other things is enough.
        for _ in 0..2 {
            let (start, before) = (Instant::now(), stopped.daemon_fallbacks);
            stopped = rounds.go_until("refused again", |now| now.daemon_fallbacks > before);
            shortest = shortest.min(start.elapsed());
        }
        // A reference waits for ten seconds, and three for a welcome.
        assert!(shortest < Duration::from_millis(2500), "{shortest:?}");
        let attempts = stopped.daemon_requests - requests;
        let most = at_most(start);
        assert!(attempts <= most, "{before:?} {stopped:?}");
        assert_eq!(served(&stopped), requests - fallbacks, "{stopped:?}");
    }
    let before = before.0 - before.1;
    signal(&daemon, "CONT");
    rounds.go_until("served", |counters| served(counters) > before);
}

#[test]
fn what_the_daemon_refuses_is_computed_by_the_program() {
    // The user may use no key.
    let site = Site::at(Place::new(), &[KEY], "", "users = 4711\nuses = sign\n");
    let _daemon = site.daemon();
    let mut rounds = Rounds::start(&site);
    let start = Instant::now();
    let counters = rounds.go();
    let most = at_most(start);
    assert!(
        (1..=most).contains(&counters.daemon_fallbacks),
        "{counters:?}"
    );
    assert_eq!(served(&counters), 0, "{counters:?}");
    // The program asks too often: two requests at first, and two in each second.
    let site = Site::of(Place::new(), &[KEY], "rate = 2\n");
    let _daemon = site.daemon();
    let start = Instant::now();
    let mut rounds = Rounds::start(&site);
    let counters = rounds.go_until("served", |counters| served(counters) > 4);
    let most = 2 + 2 * (start.elapsed().as_secs() + 1);
    assert!(served(&counters) <= most, "{counters:?}, {most}");
    assert!(counters.daemon_fallbacks > 0, "{counters:?}");
    assert!(counters.of(KEY) > 0, "{counters:?}");
}

#[test]
fn only_rsa_keys_are_asked_for() {
    let site = Site::of(Place::new(), &[KEY, "p256", "ed25519"], "");
    let daemon = site.daemon();
    for key in ["p256", "ed25519"] {
        let finished = site.with_key("use", key, "daemon").succeed();
        assert!(finished.text().contains("signs: yes"), "{finished}");
        assert_eq!(finished.counters().daemon_requests, 0, "{key}");
    }
    let log = daemon.describe();
    assert!(!log.contains("serves process"), "{log}");
}

#[test]
fn a_wrong_answer_of_the_daemon_does_not_leave() {
    let Some(faulty) = faulty() else { return };
    let site = Site::of(Place::of(&faulty, &[]), &[KEY], "");
    let _daemon = site.daemon();
    let process = site.ordinary("ordinary", "daemon");
    let process = process.env("LOCKSTEP_PLANT", "wrong-answer");
    let program = process.silent_input().start();
    let mut rounds = Rounds { program, so_far: 0 };
    // An answer that comes too late is not looked at, so there are several attempts.
    for _ in 0..8 {
        rounds.go();
        std::thread::sleep(Duration::from_millis(220));
    }
    let counters = rounds.go();
    assert!(counters.daemon_fallbacks > 0, "{counters:?}");
    assert_eq!(served(&counters), 0, "{counters:?}");
}
