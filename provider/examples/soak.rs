//! Soak: servers of the distribution with the module, under steady load for a long time.
//!
//! Usage: soak SECONDS [stock] [SERVER...]. The servers share the time; `stock` leaves the module
//! away, to compare. No handshake may fail, no signature may be invalid, no check may fail, and the
//! resident memory of a server may not grow by more than two percent, once it has warmed up. On a
//! busy machine that can take longer than planned: a server that has grown is watched again, up to
//! two times, since what leaks goes on growing. The exit status is 77 if no server is installed.

// The tests use the rest of these.
#[allow(dead_code)]
#[path = "../tests/servers/client.rs"]
mod client;
#[allow(dead_code)]
#[path = "../tests/servers/site.rs"]
mod site;

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use client::{Client, Load};
use site::Site;

const SERVERS: [&str; 4] = ["haproxy", "apache", "nginx", "stunnel"];
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
    let mut servers: Vec<&'static str> = SERVERS.into_iter().filter(|s| asked(s)).collect();
    if servers.is_empty() {
        servers = SERVERS.to_vec();
    }
    let each = Duration::from_secs(seconds) / servers.len() as u32;
    // Each says for itself that it is missing.
    let soak_one = |server| {
        let site = Site::start_changed(server, |site| {
            forget_sessions(site);
            if !with_lockstep {
                site.use_stock();
            }
        });
        site.map(|site| soak(&site, each, with_lockstep))
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

/// Loads one server for so long; says how it went, and whether that was well.
fn soak(site: &Site, time: Duration, with_lockstep: bool) -> bool {
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
        let resident = Resident::watch(site, time * 2 / 3);
        if resident.growth() <= ALLOWED || tries == TRIES {
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
        && resident.growth() <= ALLOWED;
    println!(
        "{:<8} {done} handshakes in {:.0} s, {} failed; {} operations on lanes, {} checks failed, \
         {} jobs open; {:.0} KiB resident, then {:.0} ({:+.2} %){}",
        site.name,
        start.elapsed().as_secs_f64(),
        failures.len(),
        counters.operations(),
        counters.failed_checks,
        counters.paused,
        resident.early,
        resident.late,
        resident.growth(),
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
    /// That of a server, for so long.
    fn watch(site: &Site, time: Duration) -> Resident {
        let start = Instant::now();
        let mut samples = Vec::new();
        while start.elapsed() < time {
            sleep(Duration::from_millis(200));
            samples.push(site.resident());
        }
        Resident::of(&samples)
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
}
