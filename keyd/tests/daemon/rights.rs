//! What rights the daemon keeps once it has read its keys.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{self, VERDICT, Verdict};
use lockstep_remote::{Connection, Operation};
use rustix::process::Signal;

use crate::site::{Daemon, own_user, padded, wait_for};

/// The user `nobody`.
const NOBODY: u32 = 65534;

#[test]
fn a_daemon_that_root_starts_serves_without_roots_rights() {
    if own_user() != 0 {
        println!("skipped: only root can become another user");
        return;
    }
    let daemon = Daemon::start_as(NOBODY, "");
    let status = fs::read_to_string(daemon.about("status")).expect("a process");
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words: Vec<_> = line.expect("a line").split_whitespace().collect();
        words.join(" ")
    };
    let (user, group) = (line("Uid:"), line("Gid:"));
    assert_eq!(user, vec![NOBODY.to_string(); 4].join(" "));
    assert!(!group.split(' ').any(|group| group == "0"), "{group}");
    assert!(!line("Groups:").split(' ').any(|group| group == "0"));
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    assert_eq!(line("NoNewPrivs:"), "1");
    let limits = fs::read_to_string(daemon.about("limits")).expect("a process");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let core: Vec<_> = core.expect("a line").split_whitespace().collect();
    assert_eq!(core[4..6], ["0", "0"]);
    // Nobody's own processes may not look into it: what the kernel shows of it is root's.
    let shown = fs::metadata(daemon.about("mem")).expect("a file");
    assert_eq!(shown.uid(), 0);
    // And it signs.
    let connection = Connection::open(&daemon.socket()).expect("a daemon");
    let rsa = connection.keys().last().expect("a key");
    let signed = connection.ask(Operation::RsaPrivate, rsa, &padded(), 256);
    assert!(signed.is_ok());
}

/// A process has no number in a PID namespace that is not above its own.
#[test]
fn a_client_without_a_number_is_served() {
    if own_user() != 0 {
        println!("skipped: only root can make a PID namespace");
        return;
    }
    let daemon = Daemon::start_in_namespace("");
    let connection = Connection::open(&daemon.socket()).expect("a daemon");
    let rsa = connection.keys().last().expect("a key");
    let signed = connection.ask(Operation::RsaPrivate, rsa, &padded(), 256);
    assert!(signed.is_ok());
    // The line may come after the answer.
    let line = "serves process 0 of user 0";
    wait_for(line, || daemon.log().contains(line));
}

#[test]
fn a_user_has_no_more_clients_than_it_may() {
    let daemon = Daemon::start("max_clients = 3\nmax_clients_per_user = 2\n");
    let open = || Connection::open(&daemon.socket());
    // The daemon may still see the one that has waited for its start.
    daemon.holdings_with(0);
    let held = [open().expect("a place"), open().expect("a place")];
    let refused = open().expect_err("no third place").to_string();
    assert!(refused.contains("max_clients"), "{refused}");
    drop(held);
    daemon.holdings_with(0);
    open().expect("a place again");
}

#[test]
fn who_finds_no_place_at_the_door_is_told() {
    let daemon = Daemon::start("max_clients_per_user = 2\n");
    daemon.holdings_with(0);
    let connect = || UnixStream::connect(daemon.socket()).expect("the daemon listens");
    // Those that say nothing are sent away after a second.
    wait_for("a refusal", || {
        let _mute = [(); 2].map(|()| connect());
        let refused = Connection::open(&daemon.socket()).err();
        refused.is_some_and(|failure| failure.to_string().contains("max_clients"))
    });
    let line = "refused process ";
    wait_for(line, || daemon.log().contains(line));
    wait_for("a place", || Connection::open(&daemon.socket()).is_ok());
}

/// What has ended before a process connects takes no place from it, even where the daemon sees both
/// at once.
#[test]
fn who_hangs_up_leaves_its_place_at_once() {
    let daemon = Daemon::start("max_clients_per_user = 2\n");
    daemon.holdings_with(0);
    let connect = || UnixStream::connect(daemon.socket()).expect("the daemon listens");
    let stop = || {
        daemon.signal(Signal::STOP);
        wait_for("a daemon that stands still", || {
            let status = fs::read_to_string(daemon.about("status"));
            status.is_ok_and(|status| status.contains("State:\tT"))
        });
    };
    let welcomes = || {
        let mut stream = connect();
        stream.write_all(&protocol::greeting()).expect("a socket");
        daemon.signal(Signal::CONT);
        let mut verdict = [0; VERDICT];
        stream.read_exact(&mut verdict).expect("a verdict");
        let verdict = protocol::read_verdict(&verdict);
        assert_eq!(verdict.map(|(verdict, _)| verdict), Ok(Verdict::Welcome));
    };
    for _ in 0..10 {
        // Clients, and what connects and says nothing.
        let clients = [(); 2].map(|()| Connection::open(&daemon.socket()));
        assert!(clients.iter().all(Result::is_ok), "{clients:?}");
        stop();
        drop(clients);
        welcomes();
        stop();
        drop([(); 2].map(|()| connect()));
        welcomes();
    }
}

#[test]
fn a_user_asks_no_more_often_than_it_may_however_often_it_connects() {
    let daemon = Daemon::start("rate = 1\n");
    let start = Instant::now();
    // The second and the third of them wait for a second each: a client asks again.
    for _ in 0..3 {
        let connection = Connection::open(&daemon.socket()).expect("a daemon");
        let ed25519 = &connection.keys()[0];
        let signed = connection.ask(Operation::Ed25519Sign, ed25519, &[1], 64);
        assert!(signed.is_ok());
    }
    let time = start.elapsed();
    assert!(time > Duration::from_millis(1900), "{time:?}");
}
