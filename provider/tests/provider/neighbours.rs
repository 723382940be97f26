//! Module and key daemon of two neighbouring releases: any two of them serve together, while one
//! after the other is replaced by the other release's, up and down.
//!
//! `LOCKSTEP_PREVIOUS` names the `dist/` of the release before. `cargo xtask nightly packages`
//! builds it and runs this test.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Running, dist};
use crate::references::Site;

/// For so many seconds clients come, while one side is replaced in the middle.
const SECONDS: u64 = 2;

/// The two releases.
fn releases() -> [PathBuf; 2] {
    let previous = std::env::var_os("LOCKSTEP_PREVIOUS").expect("LOCKSTEP_PREVIOUS");
    [previous.into(), dist()]
}

/// A server with the module of a release, whose keys the daemon has.
struct Server {
    running: Running,
    port: u16,
}

impl Server {
    fn start(site: &Site, number: usize) -> Server {
        let command = "s_server -accept 127.0.0.1:0 -key rsa2048.ref -cert rsa2048.crt \
                       -dkey p256.ref -dcert p256.crt";
        let process = site.place.program("openssl", command).with_counters();
        let configuration = site.place.path(&configuration(number));
        let process = process.env("OPENSSL_CONF", configuration);
        let mut running = process.limit(120).silent_input().start();
        let port = running.wait_for("port", |output| {
            let accept = output.lines().find_map(|line| line.strip_prefix("ACCEPT "));
            accept?.rsplit(':').next()?.parse().ok()
        });
        Server { running, port }
    }

    /// Clients that end with the first handshake that fails.
    fn clients(&self, site: &Site) -> Vec<Running> {
        let clients = [
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ];
        let client = |cipher: &str| {
            let port = self.port;
            let command = format!(
                "s_time -connect 127.0.0.1:{port} -new -tls1_2 -cipher {cipher} -time {SECONDS}"
            );
            site.place.stock(&command).start()
        };
        clients.map(client).into()
    }
}

fn configuration(number: usize) -> String {
    format!("release-{number}.cnf")
}

/// A daemon of a release. It takes the place of the socket; the one before it is ended then, as the
/// manual has it.
fn daemon(site: &Site, release: &Path, before: Option<Running>) -> Running {
    let command = "keyd --config keyd.conf";
    let process = site.place.program(release.join("lockstep"), command);
    let mut daemon = process.with_counters().limit(120).start();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !site.is_served_by(daemon.pid()) {
        assert!(daemon.is_alive(), "{}", daemon.describe());
        assert!(Instant::now() < deadline, "{}", daemon.describe());
        thread::sleep(Duration::from_millis(5));
    }
    if let Some(before) = before {
        before.end();
        let finished = before.wait();
        assert!(finished.status.success(), "{finished}");
    }
    daemon
}

/// Waits for the handshakes, all of which must succeed, and returns their number. `tell` gives the
/// output of servers and daemon.
fn served(clients: Vec<Running>, tell: impl Fn() -> String) -> u64 {
    let counts = clients.into_iter().map(|client| {
        let finished = client.wait();
        let is_done = finished.status.success();
        assert!(is_done, "a handshake failed: {finished}\n{}", tell());
        let text = finished.text();
        let line = text.lines().find(|line| line.contains("real seconds"));
        let count = line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("no count: {finished}"))
    });
    counts.sum()
}

#[test]
#[ignore = "needs a build of the release before: `cargo xtask nightly packages`"]
fn no_handshake_fails_whatever_side_of_two_releases_is_replaced() {
    let releases = releases();
    let site = Site::new("sign");
    for (number, release) in releases.iter().enumerate() {
        site.write_configuration(release, &configuration(number));
    }
    let start = |number| Server::start(&site, number);
    let of_all = |servers: &[Server; 2]| {
        let clients = servers.iter().flat_map(|server| server.clients(&site));
        clients.collect::<Vec<_>>()
    };
    let half = Duration::from_millis(500 * SECONDS);
    let mut own = daemon(&site, &releases[0], None);
    let mut servers = [0, 1].map(start);
    // Up, up again by a restart of the same, and down; both servers go on, and then both are
    // replaced, too: clients of the old ones end with them.
    for next in [1, 1, 0, 1] {
        let clients = of_all(&servers);
        thread::sleep(half);
        own = daemon(&site, &releases[next], Some(own));
        let tell = || {
            let all = servers.iter().map(|server| &server.running);
            let all = all.chain([&own]).map(Running::describe);
            all.collect::<Vec<_>>().join("\n")
        };
        let count = served(clients, tell);
        let clients = of_all(&servers);
        thread::sleep(half);
        let replaced = std::mem::replace(&mut servers, [0, 1].map(start));
        let fresh = of_all(&servers);
        let tell = || {
            let all = servers
                .iter()
                .chain(&replaced)
                .map(|server| &server.running);
            let all = all.chain([&own]).map(Running::describe);
            all.collect::<Vec<_>>().join("\n")
        };
        let more = served(clients, tell) + served(fresh, tell);
        drop(replaced);
        println!("daemon {next}: {count} and {more} handshakes");
        assert!(count > 0 && more > 0);
    }
    // The servers have no keys: it was the daemon that signed.
    own.wait_for_counters("signatures", |counters| {
        counters.of("rsa2048") > 0 && counters.of("p256-sign") > 0
    });
    // The command of one release reads the counters of the other's processes, or says that they
    // are of another one.
    for release in &releases {
        for server in &servers {
            let directory = server.running.statistics();
            let command = format!("stat --dir {}", directory.display());
            let shown = site.place.program(release.join("lockstep"), &command);
            let text = shown.succeed().text();
            let is_shown = text.contains(&format!("process {} ", server.running.pid()));
            assert!(is_shown || text.contains("of another version"), "{text}");
        }
    }
}
