//! Servers whose keys the key daemon holds: they have references in place of keys.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use lockstep_engine::Shape;

use crate::client::{Client, Load, wait_for};
use crate::site::{Site, is_running, signal};

/// Has the daemon hold the key of a recipe, under its name `site`. It starts by this script.
const PREPARE: &str = r#"
cat > keyd.conf <<EOF
socket = $PWD/keyd.sock
user = $(id -u)
[key site]
file = $PWD/keyd/site.key
users = $(id -u)
uses = sign
EOF
mkdir keyd && mv site.key keyd
$LOCKSTEP/lockstep keyd --config keyd.conf check
$LOCKSTEP/lockstep keyd --config keyd.conf export-reference site --out site.ref
"#;

const START: &str = r#"
$LOCKSTEP/lockstep keyd --config keyd.conf >> keyd.log 2>&1 &
echo $! > keyd.pid
until $LOCKSTEP/lockstep keyd --config keyd.conf keys 2> /dev/null; do sleep 0.02; done
"#;

/// The daemon of a site.
struct Daemon<'a> {
    site: &'a Site,
    pid: u32,
}

impl Daemon<'_> {
    fn start(site: &Site) -> Daemon<'_> {
        assert!(site.shell(START).contains("site: sign"));
        let text = fs::read_to_string(site.path("keyd.pid")).expect("its number");
        let pid = text.trim().parse().expect("a number");
        Daemon { site, pid }
    }

    /// Ends it at once, at whatever it does.
    fn kill(&self) {
        signal(self.pid, libc::SIGKILL);
        wait_for("the end of the daemon", || !is_running(self.pid));
    }

    /// How many signatures of a shape it made, and how many all others on this site.
    fn signatures(&self, shape: &str) -> (u64, u64) {
        let shape = Shape::ALL.into_iter().find(|known| known.name() == shape);
        let shape = shape.expect("a shape");
        let (own, others): (Vec<_>, Vec<_>) = self
            .site
            .stats()
            .into_iter()
            .partition(|process| process.pid == self.pid);
        let sum = |processes: Vec<lockstep_engine::ProcessStats>| {
            processes
                .iter()
                .map(|process| process.snapshot.operations_of(shape))
                .sum()
        };
        (sum(own), sum(others))
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        signal(self.pid, libc::SIGKILL);
    }
}

/// A server by its recipe, with a reference where its key stands.
fn site(server: &'static str) -> Option<Site> {
    Site::start_changed(server, |site| {
        site.shell(PREPARE);
        match server {
            "nginx" => {
                site.edit("nginx.conf", "site.key", "site.ref");
                site.edit("nginx.conf", "worker_processes 1", "worker_processes 4");
            }
            _ => {
                let both = ["site.crt", "site.ref"].map(|file| fs::read_to_string(site.path(file)));
                let both: String = both.map(|text| text.expect("a file")).concat();
                site.write("site.pem", &both);
            }
        }
    })
}

/// Handshakes succeed, and the daemon has signed in all of them.
fn serves(server: &'static str, shape: &str) {
    let Some(site) = site(server) else {
        return;
    };
    let daemon = Daemon::start(&site);
    let load = Load::start(&Client::of(&site), 8);
    load.shake_hands(200);
    let (done, failures) = load.stop();
    assert!(failures.is_empty(), "{failures:?}\n{}", site.logs());
    let (own, others) = daemon.signatures(shape);
    assert!(
        own >= done && others == 0,
        "{own} of {done}, {others} elsewhere\n{}",
        site.logs()
    );
}

/// What the daemon's clients see when it is killed under load, and started again: each time some
/// handshakes fail, the server goes on, and all is well again at once.
fn recovers(server: &'static str) {
    let Some(site) = site(server) else {
        return;
    };
    let mut daemon = Daemon::start(&site);
    let load = Load::start(&Client::of(&site), 8);
    for _ in 0..3 {
        load.shake_hands(50);
        daemon.kill();
        sleep(Duration::from_millis(50));
        daemon = Daemon::start(&site);
    }
    load.shake_hands(200);
    let _ = load.stop();
    let log = site.logs();
    let load = Load::start(&Client::of(&site), 8);
    load.shake_hands(100);
    load.flawless(&site);
    if server == "nginx" {
        assert!(log.contains("lockstep: key site: the key daemon"), "{log}");
    }
}

#[test]
fn nginx_serves_with_a_key_that_it_does_not_have() {
    serves("nginx", "p256-sign");
}

#[test]
fn haproxy_serves_with_a_key_that_it_does_not_have() {
    serves("haproxy", "rsa2048");
}

#[test]
fn nginx_outlives_the_key_daemon() {
    recovers("nginx");
}

#[test]
fn haproxy_outlives_the_key_daemon() {
    recovers("haproxy");
}
