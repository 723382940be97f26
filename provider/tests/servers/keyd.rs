//! Servers whose keys the key daemon holds: they have references in their place, or the keys, too.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::client::{Client, Load, wait_for};
use crate::daemon::{DOCUMENT, Daemon, allow_references, signatures, site, site_changed};
use crate::sabotage::{assert_healthy, doctor};
use crate::site::{Site, has_ifma, signal, stop};

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
    if server == "haproxy" {
        // Of one thread, whose jobs paused. Without lanes for RSA each request is computed alone.
        let (batches, _) = daemon.sums(|snapshot| snapshot.batches);
        match !shape.starts_with("rsa") || has_ifma() {
            true => assert!(batches < own, "{batches} batches of {own}"),
            false => assert_eq!(batches, own),
        }
        let (_, unpaused) = daemon.sums(|snapshot| snapshot.unpaused);
        let (_, no_descriptor) = daemon.sums(|snapshot| snapshot.no_descriptor);
        assert_eq!(unpaused, no_descriptor);
    }
}

/// The server has an RSA key itself, which the daemon has, too.
const SHARE: &str = r#"
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout site.key -out site.crt
cat site.crt site.key > site.pem
cat > keyd.conf <<EOF
socket = $PWD/keyd.sock
user = $(id -u)
[key site]
file = $PWD/site.key
users = $(id -u)
uses = sign
EOF
"#;

/// The daemon computes for a server that could do so itself. It is killed under load, and started
/// again: no handshake fails, neither then nor later, and the daemon is used again each time.
fn does_without(server: &'static str) {
    let site = Site::start_changed(server, |site| {
        site.shell(SHARE);
        let socket = site.path("keyd.sock");
        let settings = format!(
            "keys = daemon\nkeyd_socket = {}\nlone = lanes\nstats_dir",
            socket.display()
        );
        site.edit("lockstep/openssl.cnf", "stats_dir", &settings);
        match server {
            "nginx" => site.edit("nginx.conf", "worker_processes 1", "worker_processes 4"),
            // Jobs do not wait for the daemon.
            _ => site.edit("haproxy.cfg", "    ssl-mode-async\n", ""),
        }
    });
    let Some(site) = site else { return };
    let load = Load::start(&Client::of(&site), 8);
    load.shake_hands(20);
    for _ in 0..3 {
        let daemon = Daemon::start(&site);
        wait_for("answers of the daemon", || {
            daemon.signatures("rsa2048").0 > 100
        });
        daemon.kill();
        load.shake_hands(50);
    }
    let daemon = Daemon::start(&site);
    wait_for("answers of the last daemon", || {
        daemon.signatures("rsa2048").0 > 100
    });
    load.flawless(&site);
    let counters = site.counters();
    assert!(counters.daemon_requests > 0, "{counters:?}");
    assert!(
        counters.daemon_fallbacks < counters.daemon_requests,
        "{counters:?}"
    );
}

/// Kills the daemon under load, and starts it again. Each time some handshakes fail, the server
/// continues, and handshakes succeed again at once.
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

/// Restarts the daemon under load: all handshakes succeed. The socket stays, as with systemd, or
/// the next daemon replaces it.
fn stays(server: &'static str, shape: &str, socket_stays: bool) {
    let Some(site) = site(server) else {
        return;
    };
    let path = site.path("keyd.sock");
    let place = || fs::symlink_metadata(&path).ok().map(|about| about.ino());
    let socket = socket_stays.then(|| {
        let socket = UnixListener::bind(&path).expect("a socket");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("our file");
        socket
    });
    let mut daemon = Daemon::spawn(&site, socket.as_ref());
    wait_for("a socket", || place().is_some());
    let load = Load::start(&Client::of(&site), 8);
    let mut pids = vec![daemon.pid];
    for _ in 0..3 {
        load.shake_hands(100);
        let usual = load.longest_pause();
        if socket_stays {
            daemon.end();
            daemon = Daemon::spawn(&site, socket.as_ref());
        } else {
            let before = place();
            let next = Daemon::spawn(&site, None);
            wait_for("the socket of the next daemon", || place() != before);
            daemon.end();
            daemon = next;
        }
        pids.push(daemon.pid);
        load.shake_hands(100);
        let pause = load.longest_pause();
        println!("{server}: no handshake ended for {pause:?}, before that for {usual:?}");
    }
    let before = daemon.signatures(shape).0;
    load.shake_hands(100);
    let after = daemon.signatures(shape).0;
    assert!(after > before, "{before} {after}");
    load.flawless(&site);
    let (_, others) = signatures(&site, shape, &pids);
    assert_eq!(others, 0);
}

#[test]
fn nginx_notices_nothing_of_a_new_key_daemon() {
    stays("nginx", "p256-sign", true);
}

#[test]
fn haproxy_notices_nothing_of_a_new_key_daemon() {
    stays("haproxy", "rsa2048", true);
}

#[test]
fn nginx_notices_nothing_of_a_key_daemon_that_takes_the_place_of_another() {
    stays("nginx", "p256-sign", false);
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
fn nginx_does_without_the_key_daemon_at_once() {
    does_without("nginx");
}

#[test]
fn haproxy_does_without_the_key_daemon_at_once() {
    does_without("haproxy");
}

#[test]
fn nginx_outlives_the_key_daemon() {
    recovers("nginx");
}

#[test]
fn haproxy_outlives_the_key_daemon() {
    recovers("haproxy");
}

/// Old workers live on for as long as their connections. Each has signed, and signs no more.
#[test]
fn nginx_is_reloaded_while_old_connections_last() {
    let settings = |site: &mut Site| {
        site.edit("nginx.conf", "worker_processes 4", "worker_processes 8");
        // Otherwise nginx gives up on a request that does not end after a minute.
        site.edit(
            "nginx.conf",
            "http {",
            "http {\n    client_header_timeout 10m;",
        );
    };
    let Some(site) = site_changed("nginx", settings) else {
        return;
    };
    let _daemon = Daemon::start(&site);
    let client = Client::of(&site);
    let mut held = Vec::new();
    for reload in 0..12 {
        for _ in 0..32 {
            let holds = client.hold();
            let logs = || site.logs();
            held.push(holds.unwrap_or_else(|why| panic!("reload {reload}: {why}\n{}", logs())));
        }
        let before = site.workers();
        site.perform("reload");
        wait_for("new workers", || {
            let now = site.workers();
            now.iter().filter(|worker| !before.contains(worker)).count() == 8
        });
    }
    // More than a user had places.
    let workers = site.workers().len();
    assert!(workers > 64, "{workers}");
    let load = Load::start(&client, 8);
    load.shake_hands(200);
    load.flawless(&site);
}

/// How long the slowest of some pages took that need no key, and how many there were.
fn slowest_page(port: u16, time: Duration) -> (Duration, u32) {
    let (end, mut slowest, mut count) = (Instant::now() + time, Duration::ZERO, 0);
    while Instant::now() < end {
        let start = Instant::now();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("nginx");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("nginx");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("a page");
        assert!(page.ends_with("hello\n"), "{page}");
        slowest = slowest.max(start.elapsed());
        count += 1;
    }
    (slowest, count)
}

/// A worker serves nobody while it waits, and pages without a key are served by the same worker.
#[test]
fn nginx_serves_others_while_the_key_daemon_does_not_answer() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.expect("a port").port();
    let site = site_changed("nginx", |site| {
        site.edit("nginx.conf", "worker_processes 4", "worker_processes 1");
        let plain =
            format!("server {{\n        listen 127.0.0.1:{port};\n        listen 127.0.0.1:");
        site.edit("nginx.conf", "server {\n        listen 127.0.0.1:", &plain);
    });
    let Some(site) = site else { return };
    let client = Client::of(&site);
    let pages = || {
        let load = Load::start(&client, 4);
        // One handshake waits for three seconds, and no other one does. The time that others take
        // of this machine may be long.
        for most in [5, 2].map(Duration::from_secs) {
            let (slowest, count) = slowest_page(port, Duration::from_secs(4));
            assert!(slowest < most, "{slowest:?} of {count}");
            println!("{count} pages, the slowest in {slowest:?}");
        }
        let (done, _) = load.stop();
        assert_eq!(done, 0, "there is no daemon that answers");
    };
    // As systemd keeps it while the service does not start.
    let path = site.path("keyd.sock");
    let socket = UnixListener::bind(&path).expect("a socket");
    fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("our file");
    pages();
    let daemon = Daemon::spawn(&site, Some(&socket));
    wait_for("a handshake", || client.handshake(0).is_ok());
    stop(daemon.pid);
    pages();
    signal(daemon.pid, libc::SIGCONT);
    wait_for("a handshake", || client.handshake(0).is_ok());
    let load = Load::start(&client, 4);
    load.shake_hands(20);
    load.flawless(&site);
}

#[test]
fn a_program_signs_with_a_key_that_it_does_not_have() {
    let site = Site::of("keyd", DOCUMENT);
    site.perform("keyd");
    allow_references(&site);
    let daemon = Daemon::start(&site);
    // It has tried the key once itself.
    let (before, _) = daemon.signatures("rsa3072");
    let shown = site.perform("check");
    assert!(shown.contains("lets this user use to sign"), "{shown}");
    assert!(shown.contains("Verified OK"), "{shown}");
    let process = format!("process {} lockstep-keyd,", daemon.pid);
    assert!(shown.contains(&process), "{shown}");
    assert_eq!(daemon.signatures("rsa3072"), (before + 1, 0), "{shown}");
}

/// Returns doctor's lines about the references of a server, with their marks.
fn judged(site: &Site) -> Vec<(String, String)> {
    let (findings, _) = doctor(site);
    let about = findings
        .into_iter()
        .filter(|finding| finding.check == "reference");
    about.map(|finding| (finding.mark, finding.what)).collect()
}

#[test]
fn doctor_says_how_a_server_is_with_its_references() {
    for server in ["nginx", "haproxy"] {
        let Some(site) = site(server) else { continue };
        let judged_once = |mark: &str, words: &str| {
            let judged = judged(&site);
            let [(found, what)] = &judged[..] else {
                panic!("{judged:?}");
            };
            assert!(found == mark && what.contains(words), "{judged:?}");
        };
        judged_once("FAILED", "the key daemon cannot be reached");
        let daemon = Daemon::start(&site);
        judged_once("ok", "lets user ");
        if has_ifma() {
            assert_healthy(&site);
        }
        if server == "nginx" {
            let renewed = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost \
                           -keyout /dev/null -out site.crt";
            site.shell(renewed);
            let judged = judged(&site);
            let words = "none of the certificates";
            assert_eq!(judged.len(), 2, "{judged:?}");
            assert!(
                judged[1].0 == "warn" && judged[1].1.contains(words),
                "{judged:?}"
            );
        }
        daemon.kill();
        // Another key replaces the key of the reference.
        site.shell("openssl genpkey -algorithm RSA -out keys/site.key");
        let _daemon = Daemon::start(&site);
        let judged = judged(&site);
        let words = "other keys under this name";
        assert!(
            judged[0].0 == "FAILED" && judged[0].1.contains(words),
            "{judged:?}"
        );
    }
}

/// Makes a certificate with a new key, and puts both where certbot would; for HAProxy, both in one
/// file.
const RENEW: &str = r#"
key=archive/privkey$1.pem certificate=archive/fullchain$1.pem
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
    -keyout $key -out request
openssl x509 -req -in request -CA ca.crt -CAkey ca.key -days 9 -extfile names -out $certificate
cat $certificate $key > combined
ln -sf ../../$certificate live/site/fullchain.pem
ln -sf ../../$key live/site/privkey.pem
mv combined live/site/combined.pem
"#;

/// An authority, the first certificate, and a daemon that keeps the references.
const KEEP: &str = r#"
mkdir -p archive live/site
chmod 755 . archive live live/site
echo subjectAltName=DNS:localhost,IP:127.0.0.1 > names
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=authority \
    -keyout ca.key -out ca.crt
sh -eu renew 0
cat > keyd.conf <<EOF
socket = $PWD/keyd.sock
user = $(id -u)
grace = GRACE
[key site]
file = $PWD/live/*/NAME
references = $PWD/references
users = $(id -u)
uses = sign
EOF
"#;

/// How often keys are renewed: `LOCKSTEP_RENEWALS`, or as often as a usual run has time for.
pub fn renewals(usual: usize) -> usize {
    let set = std::env::var("LOCKSTEP_RENEWALS").ok();
    set.and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// A server whose references the daemon keeps. Its key is renewed so often under load, and the
/// server reloaded each time. Returns the failures, after so many handshakes.
fn renewed(server: &'static str, count: usize, grace: u32) -> Option<(u64, Vec<String>)> {
    let name = match server {
        "haproxy" => "combined.pem",
        _ => "privkey.pem",
    };
    let site = Site::start_changed(server, |site| {
        site.write("renew", RENEW);
        site.shell(
            &KEEP
                .replace("GRACE", &grace.to_string())
                .replace("NAME", name),
        );
        allow_references(site);
        let socket = format!("keyd_socket = {}\n", site.path("keyd.sock").display());
        assert!(
            fs::read_to_string(site.path("lockstep/openssl.cnf"))
                .expect("it")
                .contains(&socket)
        );
        let place = site.path("references/site");
        let place = place.display();
        match server {
            "nginx" => {
                site.edit("nginx.conf", "worker_processes 1", "worker_processes 4");
                site.edit(
                    "nginx.conf",
                    "site.crt;",
                    &format!("{place}/fullchain.pem;"),
                );
                site.edit("nginx.conf", "site.key;", &format!("{place}/privkey.pem;"));
            }
            "apache" => {
                site.edit("httpd.conf", "site.crt", &format!("{place}/fullchain.pem"));
                site.edit("httpd.conf", "site.key", &format!("{place}/privkey.pem"));
            }
            _ => site.edit(
                "haproxy.cfg",
                "crt site.pem",
                &format!("crt {place}/combined.pem"),
            ),
        }
        site.perform_of(DOCUMENT, "keyd-start");
    })?;
    let daemon = Daemon::of(&site);
    let client = Client::trusting(&site, &[&site.path("ca.crt")]);
    let load = Load::start(&client, 4);
    load.shake_hands(20);
    let mut slowest = Duration::ZERO;
    for number in 1..=count {
        site.shell(&format!("sh -eu renew {number}"));
        let start = Instant::now();
        site.shell("$LOCKSTEP/lockstep keyd --config keyd.conf wait");
        slowest = slowest.max(start.elapsed());
        // The server goes on with the key before, if that is still there.
        match grace {
            0 => sleep(Duration::from_millis(300)),
            _ => load.shake_hands(10),
        }
        site.perform("reload");
        let made = site.path(&format!("archive/fullchain{number}.pem"));
        let made = fs::read(made).expect("a certificate");
        wait_for("the new certificate", || {
            client.shown().is_ok_and(|shown| shown == made)
        });
        load.shake_hands(10);
    }
    let (done, failures) = load.stop();
    let (own, others) = daemon.signatures("p256-sign");
    println!(
        "{server}: {count} renewals, {done} handshakes, {} failed; the daemon has made {own} \
         signatures; a reference was there after {slowest:?} at most",
        failures.len()
    );
    if grace > 0 {
        assert!(failures.is_empty(), "{failures:?}\n{}", site.logs());
        assert!(
            own >= done && others == 0,
            "{own} of {done}, {others} elsewhere"
        );
    }
    Some((done, failures))
}

#[test]
fn nginx_notices_nothing_of_renewed_keys() {
    renewed("nginx", renewals(10), 3600);
}

#[test]
fn haproxy_notices_nothing_of_renewed_keys() {
    renewed("haproxy", renewals(3), 3600);
}

#[test]
fn apache_notices_nothing_of_renewed_keys() {
    renewed("apache", renewals(3), 3600);
}

/// The planted defect: the daemon does not keep a key for clients that still need it, and the check
/// above must see that.
#[test]
fn handshakes_fail_where_the_key_before_leaves_at_once() {
    if let Some((_, failures)) = renewed("nginx", 2, 0) {
        assert!(!failures.is_empty());
    }
}
