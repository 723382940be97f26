//! Processes that sign, and are killed at any moment.

use std::env;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use lockstep_remote::{Connection, Operation};
use lockstep_testkit::Random;

use crate::site::{Daemon, Witness, padded, wait_for};

/// Environment variable with the socket of the daemon. The child is this program, and runs
/// `a_client_process` alone.
const SOCKET: &str = "KEYD_TEST_SOCKET";
/// Line with which a child reports that it has a connection.
const CONNECTED: &str = "connected";

const KILLED: usize = 200;
/// Number of concurrent processes.
const BESIDE: usize = 4;
/// Fewer clients than are killed: a client that is not forgotten keeps another one's place.
const SETTINGS: &str = "max_clients = 16\nmax_clients_per_user = 16\n";

/// The work of a child process. Without a parent it does nothing.
#[test]
fn a_client_process() {
    let Some(socket) = env::var_os(SOCKET) else {
        return;
    };
    let connection = Connection::open(Path::new(&socket)).expect("a connection");
    let [ed25519, p256, rsa] = connection.keys() else {
        panic!("the daemon does not offer its keys");
    };
    println!("\n{CONNECTED}");
    thread::scope(|scope| {
        for (operation, key, input, length) in [
            (Operation::Ed25519Sign, ed25519, vec![1; 99], 64),
            (Operation::EcdsaSign, p256, vec![2; 32], 64),
            (Operation::RsaPrivate, rsa, padded(), 256),
        ] {
            let connection = &connection;
            scope.spawn(move || {
                loop {
                    let answer = connection.ask(operation, key, &input, length);
                    answer.expect("an answer");
                }
            });
        }
    });
}

fn start(daemon: &Daemon) -> Child {
    Command::new(env::current_exe().expect("this program"))
        .args(["--exact", "killed::a_client_process", "--nocapture"])
        .env(SOCKET, daemon.socket())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program")
}

/// Kills one client after another; returns how many had a connection.
fn kill(daemon: &Daemon, clients: usize, seed: u64) -> usize {
    let mut random = Random(seed);
    let mut accepted = 0;
    for _ in 0..clients {
        let mut child = start(daemon);
        // One in eight may be killed while it connects.
        if !random.word().is_multiple_of(8) {
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
            let is_accepted = |line: io::Result<String>| line.is_ok_and(|line| line == CONNECTED);
            accepted += usize::from({ lines }.any(is_accepted));
        }
        thread::sleep(Duration::from_micros(random.word() % 10_000));
        child.kill().expect("a child");
        let ended = child.wait().expect("a child");
        assert_eq!(ended.code(), None, "it ended before: {}", daemon.log());
    }
    accepted
}

#[test]
fn clients_that_are_killed_take_nothing_from_others_and_leave_nothing() {
    let daemon = Daemon::start(SETTINGS);
    let witness = Witness::start(&daemon);
    // The daemon allocates some things once, for its first client.
    assert_eq!(kill(&daemon, 1, KILLED as u64), 1);
    let before = daemon.holdings_with(1);
    let accepted: usize = thread::scope(|scope| {
        let daemon = &daemon;
        let killers: Vec<_> = (0..BESIDE)
            .map(|number| scope.spawn(move || kill(daemon, KILLED / BESIDE, number as u64)))
            .collect();
        let counts = killers.into_iter().map(|it| it.join().expect("no panic"));
        counts.sum()
    });
    assert!(accepted > KILLED / 2, "{accepted}: {}", daemon.log());
    let mut after = daemon.holdings();
    wait_for(&format!("{before:?} after {after:?}"), || {
        after = daemon.holdings();
        after == before
    });
    let served = witness
        .stop()
        .unwrap_or_else(|wrong| panic!("{wrong}: {}", daemon.log()));
    assert!(served >= 9 && daemon.is_alive(), "{served}");
    println!("{accepted} of {KILLED} clients were accepted and killed, beside {served} signatures");
}
