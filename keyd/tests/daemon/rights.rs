//! Rights that the daemon keeps once it serves.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use lockstep_remote::protocol::{self, VERDICT, VERSION, Verdict};
use lockstep_remote::{Connection, Operation};
use lockstep_testkit::{TempDir, command};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

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
    // Its own user's other processes may not read its memory: the kernel gives these files to root.
    let shown = fs::metadata(daemon.about("mem")).expect("a file");
    assert_eq!(shown.uid(), 0);
    // And it signs.
    let connection = Connection::open(&daemon.socket()).expect("a daemon");
    let rsa = connection.keys().last().expect("a key");
    let signed = connection.ask(Operation::RsaPrivate, rsa, &padded(), 256);
    assert!(signed.is_ok());
}

#[test]
fn the_daemon_may_open_as_many_files_as_its_clients_need_or_says_that_it_may_not() {
    // Five for each client, and some more.
    let (settings, needed) = ("max_clients = 100\n", 564);
    for (most, allowed) in [(4096, needed), (needed, needed), (300, 300)] {
        let daemon = Daemon::start_with_files(200, most, settings);
        let limits = fs::read_to_string(daemon.about("limits")).expect("a process");
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let files: Vec<_> = files.expect("a line").split_whitespace().collect();
        assert_eq!(files[3..5], [allowed.to_string(), most.to_string()]);
        // A thread of this test reads the lines, and this one follows all warnings.
        wait_for("a line", || daemon.log().contains("holds the key rsa2048"));
        let warning = format!("may open {allowed} files, and needs {needed} for 100 clients");
        let log = daemon.log();
        assert_eq!(log.contains(&warning), allowed < needed, "{log}");
    }
}

#[test]
fn a_key_that_others_can_read_is_warned_of_at_the_start() {
    let place = TempDir::new("keyd-open");
    let file = place.join("key");
    let made = command("openssl", &["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&file)
        .output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let (shown, user) = (file.display(), own_user());
    let section = format!("[key open]\nfile = {shown}\nusers = {user}\nuses = sign\n");
    for (mode, is_open) in [(0o600, false), (0o640, true), (0o604, true)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its own");
        let daemon = Daemon::start(&section);
        let warning = format!("warning: {shown}, which holds the key open,");
        // A thread of this test reads the lines, and this one follows all warnings.
        wait_for("a line", || daemon.log().contains("holds the key rsa2048"));
        let log = daemon.log();
        assert_eq!(log.contains(&warning), is_open, "{log}");
        let hint = format!("(mode {mode:o})");
        assert_eq!(log.contains(&hint), is_open, "{log}");
        assert_eq!(log.matches("warning: ").count(), usize::from(is_open));
    }
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
fn no_more_clients_have_places_than_may_be_of_one_user_and_in_all() {
    for settings in [
        "max_clients = 9\nmax_clients_per_user = 2\n",
        // A user has no more places than are left to others.
        "max_clients = 4\nmax_clients_per_user = 3\n",
    ] {
        let daemon = Daemon::start(settings);
        // The daemon may still see the client that has waited for its start.
        daemon.holdings_with(0);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(Connection::open(&daemon.socket()).expect("a place"));
            // Each new client takes the place of the one that has been idle longest.
            let is_gone = held.iter().map(Connection::is_gone);
            let gone = held.len().saturating_sub(2);
            assert!(is_gone.eq((0..held.len()).map(|number| number < gone)));
        }
    }
}

/// Runs a function as a user of a group, for root.
pub fn in_the_name_of<T: Send>(user: u32, group: u32, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let acting = scope.spawn(|| {
            // For this thread alone.
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            set_thread_groups(&[]).expect("root");
            set_thread_res_gid(group, group, group).expect("root");
            set_thread_res_uid(user, user, user).expect("root");
            act()
        });
        acting.join().expect("no panic")
    })
}

/// Lets every user reach the socket.
pub fn open_the_way(daemon: &Daemon) {
    let socket = daemon.socket();
    let directory = socket.parent().expect("a directory");
    fs::set_permissions(directory, Permissions::from_mode(0o711)).expect("its own");
}

#[test]
fn strangers_take_no_place_however_many_users_they_are() {
    if own_user() != 0 {
        println!("skipped: only root can be many users");
        return;
    }
    let daemon = Daemon::start("max_clients = 2\nmax_clients_per_user = 2\n");
    open_the_way(&daemon);
    daemon.holdings_with(0);
    let connect = || UnixStream::connect(daemon.socket()).expect("the daemon listens");
    let accepted = (0..100).map(|_| {
        let strangers = (100_001..100_009)
            .map(|user| in_the_name_of(user, user, || [(); 2].map(|()| connect())));
        let _mute: Vec<_> = strangers.collect();
        Connection::open(&daemon.socket()).is_ok()
    });
    // The daemon may still see the client before.
    let accepted = accepted.filter(|is_accepted| *is_accepted).count();
    assert!(accepted >= 50, "{accepted}: {}", daemon.log());
    // They cause few lines, whatever their number.
    let about = |user| in_the_name_of(user, user, || Connection::open(&daemon.socket()).err());
    let refused = about(200_000).expect("a stranger").to_string();
    assert!(refused.contains("no key"), "{refused}");
    let line = "lines about users who may use no key";
    wait_for(line, || {
        drop(about(200_001));
        daemon.log().contains(line)
    });
}

#[test]
fn users_whom_only_their_group_lets_in_share_its_places() {
    if own_user() != 0 {
        println!("skipped: only root can be many users");
        return;
    }
    let place = TempDir::new("keyd-group");
    let file = place.join("key");
    let made = command("openssl", &["genpkey", "-algorithm", "ed25519", "-out"])
        .arg(&file)
        .output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let daemon = Daemon::start(&format!(
        "max_clients = 8\nmax_clients_per_user = 2\nrate = 1\n\
         [key of-group]\nfile = {}\ngroups = 4711\nuses = sign\n",
        file.display()
    ));
    open_the_way(&daemon);
    daemon.holdings_with(0);
    let open = |user| in_the_name_of(user, 4711, || Connection::open(&daemon.socket()));
    let others = Connection::open(&daemon.socket()).expect("a place");
    let held = [100_001, 100_002].map(|user| open(user).expect("a place"));
    let start = Instant::now();
    for connection in held.iter().chain(&held) {
        let ed25519 = &connection.keys()[0];
        let signed = connection.ask(Operation::Ed25519Sign, ed25519, &[1], 64);
        assert!(signed.is_ok());
    }
    let time = start.elapsed();
    assert!(time > Duration::from_millis(2900), "{time:?}");
    // The third one takes the place of one of them, and of no other user.
    open(100_003).expect("a place");
    assert_eq!(held.iter().filter(|own| own.is_gone()).count(), 1);
    assert!(!others.is_gone());
}

#[test]
fn who_finds_no_place_is_told() {
    let daemon = Daemon::start("max_clients = 1\n");
    daemon.holdings_with(0);
    let connect = || UnixStream::connect(daemon.socket()).expect("the daemon listens");
    // Clients that say nothing are rejected after a second.
    wait_for("a refusal", || {
        let _mute = [(); 2].map(|()| connect());
        let refused = Connection::open(&daemon.socket()).err();
        refused.is_some_and(|failure| failure.to_string().contains("max_clients"))
    });
    let line = "refused process ";
    wait_for(line, || daemon.log().contains(line));
    wait_for("a place", || Connection::open(&daemon.socket()).is_ok());
}

/// Clients that have gone before a process connects take no place from it, even if the daemon sees
/// both events at once.
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
    let accepts = || {
        let mut stream = connect();
        stream
            .write_all(&protocol::greeting(VERSION))
            .expect("a socket");
        daemon.signal(Signal::CONT);
        let mut verdict = [0; VERDICT];
        stream.read_exact(&mut verdict).expect("a verdict");
        let verdict = protocol::read_verdict(&verdict);
        assert_eq!(verdict.map(|(verdict, ..)| verdict), Ok(Verdict::Accepted));
    };
    for _ in 0..10 {
        // Clients, and connections that say nothing.
        let clients = [(); 2].map(|()| Connection::open(&daemon.socket()));
        assert!(clients.iter().all(Result::is_ok), "{clients:?}");
        stop();
        drop(clients);
        accepts();
        stop();
        drop([(); 2].map(|()| connect()));
        accepts();
    }
}

#[test]
fn a_user_asks_no_more_often_than_it_may_however_often_it_connects() {
    let daemon = Daemon::start("rate = 1\n");
    let start = Instant::now();
    // The second and the third one wait for a second each: a client asks again.
    for _ in 0..3 {
        let connection = Connection::open(&daemon.socket()).expect("a daemon");
        let ed25519 = &connection.keys()[0];
        let signed = connection.ask(Operation::Ed25519Sign, ed25519, &[1], 64);
        assert!(signed.is_ok());
    }
    let time = start.elapsed();
    assert!(time > Duration::from_millis(1900), "{time:?}");
}
