//! The key daemon of a site, and servers that have references in the place of their keys.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Child;

use lockstep_engine::{ProcessStats, Shape, Snapshot};

use crate::client::wait_for;
use crate::site::{Site, is_running, signal};

/// The recipe of the daemon, which is the same for every server.
pub const DOCUMENT: &str = "keyd.md";

/// Is the daemon.
const RUN: &str = "exec $LOCKSTEP/lockstep keyd --config keyd.conf >> keyd.log 2>&1";

/// Has it find its socket as systemd passes it: as a descriptor, here that of the script's input.
const PASS_SOCKET: &str = "exec 3<&0 < /dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; ";

/// The daemon of a site.
pub struct Daemon<'a> {
    site: &'a Site,
    pub pid: u32,
    /// None if it was started by the shell.
    child: Option<Child>,
}

impl Daemon<'_> {
    pub fn start(site: &Site) -> Daemon<'_> {
        let shown = site.perform_of(DOCUMENT, "keyd-start");
        let daemon = Daemon::of(site);
        assert!(shown.contains("site: sign"), "{shown}");
        daemon
    }

    /// Returns the daemon that was started before the server, by the recipe of the daemon.
    pub fn of(site: &Site) -> Daemon<'_> {
        let text = fs::read_to_string(site.path("keyd.pid")).expect("its number");
        Daemon {
            site,
            pid: text.trim().parse().expect("a number"),
            child: None,
        }
    }

    /// Starts one that listens at a socket which outlives it, or at a new one.
    pub fn spawn<'a>(site: &'a Site, socket: Option<&UnixListener>) -> Daemon<'a> {
        let mut command = match socket {
            None => site.script(RUN),
            Some(_) => site.script(&[PASS_SOCKET, RUN].concat()),
        };
        if let Some(socket) = socket {
            command.stdin(OwnedFd::from(socket.try_clone().expect("a descriptor")));
        }
        let child = command.spawn().expect("sh runs");
        let pid = child.id();
        let child = Some(child);
        Daemon { site, pid, child }
    }

    pub fn site(&self) -> &Site {
        self.site
    }

    /// Tells it to end, and waits until it has.
    pub fn end(&mut self) {
        signal(self.pid, libc::SIGTERM);
        let child = self.child.as_mut().expect("a daemon of this process");
        let status = child.wait().expect("a child");
        assert!(status.success(), "{status}\n{}", self.site.logs());
    }

    /// Ends it at once, at whatever it does.
    pub fn kill(&self) {
        signal(self.pid, libc::SIGKILL);
        wait_for("the end of the daemon", || !is_running(self.pid));
    }

    /// The sum of a counter in the daemon, and in all other processes of this site.
    pub fn sums(&self, counter: impl Fn(&Snapshot) -> u64) -> (u64, u64) {
        sums(self.site, &[self.pid], counter)
    }

    /// How many signatures of a shape it made, and how many all others on this site.
    pub fn signatures(&self, shape: &str) -> (u64, u64) {
        signatures(self.site, shape, &[self.pid])
    }
}

/// The sum of a counter in these daemons, and in all other processes of the site.
fn sums(site: &Site, daemons: &[u32], counter: impl Fn(&Snapshot) -> u64) -> (u64, u64) {
    let (own, others): (Vec<_>, Vec<_>) = site
        .stats()
        .into_iter()
        .partition(|process| daemons.contains(&process.pid));
    let sum = |processes: Vec<ProcessStats>| {
        let snapshots = processes.iter().map(|process| &process.snapshot);
        snapshots.map(&counter).sum()
    };
    (sum(own), sum(others))
}

/// How many signatures of a shape these daemons made, and how many all others.
pub fn signatures(site: &Site, shape: &str, daemons: &[u32]) -> (u64, u64) {
    let shape = Shape::ALL.into_iter().find(|known| known.name() == shape);
    let shape = shape.expect("a shape");
    sums(site, daemons, |snapshot| snapshot.operations_of(shape))
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        match &mut self.child {
            None => signal(self.pid, libc::SIGKILL),
            // One that has ended is not asked again, and its number may be another process's.
            Some(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Has the site's programs use references. The recipe's reader may write the configuration.
pub fn allow_references(site: &Site) {
    site.edit("lockstep/openssl.cnf", "stats_dir", "stats_dir");
    site.perform_of(DOCUMENT, "keyd-allow");
}

/// A server by its recipe, with a reference where its key stands.
pub fn site(server: &'static str) -> Option<Site> {
    site_changed(server, |_| {})
}

/// Starts a site like this, and changes the prepared files before the start.
pub fn site_changed(server: &'static str, change: impl FnOnce(&mut Site)) -> Option<Site> {
    Site::start_changed(server, |site| {
        site.perform_of(DOCUMENT, "keyd");
        allow_references(site);
        site.perform("keyd");
        match server {
            "nginx" => site.edit("nginx.conf", "worker_processes 1", "worker_processes 4"),
            _ => site.edit("haproxy.cfg", "global\n", "global\n    nbthread 1\n"),
        }
        change(site);
    })
}
