//! Soak: servers of the distribution with the module, under steady load for a long time.
//!
//! Usage: soak SECONDS [stock] [SERVER...]. The servers share the time; `stock` leaves the module
//! away, to compare, and the servers that need it. With `-keyd` behind its name, a server has a
//! reference in the place of its key, and the key daemon is watched, too. No handshake may fail, no
//! signature may be invalid, no check may fail, and the resident memory of a server may not grow by
//! more than two percent, once it has warmed up. On a busy machine that can take longer than
//! planned: a server that has grown is watched again, up to two times, since a leak goes on
//! growing. The exit status is 77 if no server is installed.

// The tests use the rest of these.
#[allow(dead_code)]
#[path = "../tests/servers/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../tests/servers/daemon.rs"]
mod daemon;
#[allow(dead_code)]
#[path = "../tests/servers/site.rs"]
mod site;

use std::fmt;
use std::fs;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use client::{Client, Load};
use daemon::{Daemon, site_changed};
use site::{Site, resident};

/// As the command line has them, the servers themselves, and what their daemons sign with, if they
/// have one.
const SERVERS: [(&str, &str, Option<&str>); 6] = [
    ("haproxy", "haproxy", None),
    ("apache", "apache", None),
    ("nginx", "nginx", None),
    ("stunnel", "stunnel", None),
    ("haproxy-keyd", "haproxy", Some("rsa2048")),
    ("nginx-keyd", "nginx", Some("p256-sign")),
];
const CLIENTS: usize = 8;
/// Growth that is allowed, in percent.
const ALLOWED: f64 = 2.0;
/// How often a server's memory is watched until it grows no more.
const TRIES: usize = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.first().and_then(|seconds| seconds.parse().ok());
    let Some(seconds) = seconds else {
        eprintln!("usage: soak SECONDS [stock] [SERVER...]");
        return ExitCode::from(2);
    };
    let asked = |word: &str| arguments.iter().any(|argument| argument == word);
    let with_lockstep = !asked("stock");
    let mut servers = SERVERS.to_vec();
    servers.retain(|(.., shape)| with_lockstep || shape.is_none());
    if servers.iter().any(|(name, ..)| asked(name)) {
        servers.retain(|(name, ..)| asked(name));
    }
    let each = Duration::from_secs(seconds) / servers.len() as u32;
    // Each says for itself that it is missing.
    let soak_one = |(name, server, shape): (_, _, Option<&str>)| match shape {
        None => {
            let site = Site::start_changed(server, |site| {
                forget_sessions(site);
                if !with_lockstep {
                    site.use_stock();
                }
            });
            site.map(|site| soak(name, &site, None, each, with_lockstep))
        }
        Some(shape) => {
            let site = site_changed(server, |site| {
                forget_sessions(site);
                let_jobs_pause(site);
            });
            site.map(|site| {
                let daemon = Daemon::start(&site);
                let good = soak(name, &site, Some(&daemon), each, true);
                good && signs(&site, &daemon, shape)
            })
        }
    };
    let soaked: Vec<_> = servers.into_iter().map(soak_one).collect();
    if soaked.iter().flatten().any(|good| !good) {
        return ExitCode::FAILURE;
    }
    match soaked.iter().flatten().next() {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::from(77),
    }
}

/// How many clients a server is under. More than a few are more than stunnel 5.68 serves, with
/// lockstep or without: threads that are done wait for a lock by the hundred, and its memory grows.
fn clients(server: &str) -> usize {
    match server {
        "stunnel" => 2,
        _ => CLIENTS,
    }
}

/// Servers remember sessions until their caches are full, which takes memory for longer than we
/// watch.
fn forget_sessions(site: &mut Site) {
    match site.name {
        "haproxy" => site.edit(
            "haproxy.cfg",
            "global\n",
            "global\n    tune.ssl.cachesize 0\n",
        ),
        "stunnel" => site.edit("stunnel.conf", "[site]\n", "[site]\nsessionResume = no\n"),
        _ => {}
    }
}

/// Has HAProxy start threads, so that one can watch for the daemon's answers while jobs pause.
fn let_jobs_pause(site: &mut Site) {
    if site.name == "haproxy" {
        let global = "global\n    insecure-fork-wanted\n";
        site.edit("haproxy.cfg", "global\n", global);
    }
}

/// Whether the daemon alone has signed, and a thread of HAProxy has watched for its answers.
fn signs(site: &Site, daemon: &Daemon<'_>, shape: &str) -> bool {
    let (own, others) = daemon.signatures(shape);
    let is_watched = site.name != "haproxy" || site.workers().into_iter().any(has_watcher);
    if own == 0 || others > 0 || !is_watched {
        println!(
            "         {own} signatures of the daemon, {others} of others, {is_watched}  FAILED"
        );
    }
    own > 0 && others == 0 && is_watched
}

/// Whether a process has the thread that watches for answers of the daemon.
fn has_watcher(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let mut names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name.trim() == "lockstep-keyd"))
}

/// Loads one server for so long; says how it went, and whether that was well.
fn soak(
    name: &str,
    site: &Site,
    daemon: Option<&Daemon<'_>>,
    time: Duration,
    with_lockstep: bool,
) -> bool {
    // With more clients than later: pools, stacks and allocators find their size, with the module
    // and without.
    let start = Instant::now();
    let client = Client::of(site);
    let warm_up = Load::start(&client, 2 * clients(site.name));
    sleep(time / 3);
    let (before, mut failures) = warm_up.stop();
    let load = Load::start(&client, clients(site.name));
    let mut tries = 0;
    let resident = loop {
        tries += 1;
        let resident = Resident::watch(site, daemon, time * 2 / 3);
        if tries == TRIES || resident.iter().all(Resident::is_steady) {
            break resident;
        }
    };
    let counters = site.counters();
    let (after, more) = load.stop();
    failures.extend(more);
    let done = before + after;
    let good = failures.is_empty()
        && counters.failed_checks == 0
        && (counters.operations() > 0) == with_lockstep
        && resident.iter().all(Resident::is_steady);
    let resident: Vec<String> = resident.iter().map(Resident::to_string).collect();
    println!(
        "{name:<12} {done} handshakes in {:.0} s, {} failed; {} operations on lanes, {} checks \
         failed, {} jobs open; KiB resident: {}{}",
        start.elapsed().as_secs_f64(),
        failures.len(),
        counters.operations(),
        counters.failed_checks,
        counters.paused,
        resident.join(", the daemon "),
        if good { "" } else { "  FAILED" }
    );
    for failure in failures.iter().take(5) {
        println!("         {failure}");
    }
    if !good {
        println!("{}", site.logs());
    }
    good
}

/// Memory in the first and in the second half of the time.
struct Resident {
    early: f64,
    late: f64,
}

impl Resident {
    /// That of a server, and of its daemon if it has one, for so long.
    fn watch(site: &Site, daemon: Option<&Daemon<'_>>, time: Duration) -> Vec<Resident> {
        let start = Instant::now();
        let (mut samples, mut of_daemon) = (Vec::new(), Vec::new());
        while start.elapsed() < time {
            sleep(Duration::from_millis(200));
            samples.push(site.resident());
            of_daemon.extend(daemon.map(|daemon| resident(daemon.pid)));
        }
        let watched = [samples, of_daemon].into_iter();
        let watched = watched.filter(|samples| !samples.is_empty());
        watched.map(|samples| Resident::of(&samples)).collect()
    }

    fn of(samples: &[u64]) -> Resident {
        let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64;
        let (early, late) = samples.split_at(samples.len() / 2);
        Resident {
            early: mean(early),
            late: mean(late),
        }
    }

    /// In percent.
    fn growth(&self) -> f64 {
        (self.late / self.early.max(1.0) - 1.0) * 100.0
    }

    fn is_steady(&self) -> bool {
        self.growth() <= ALLOWED
    }
}

impl fmt::Display for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resident { early, late } = self;
        write!(f, "{early:.0}, then {late:.0} ({:+.2} %)", self.growth())
    }
}
