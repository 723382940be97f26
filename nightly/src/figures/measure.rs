//! `cargo xtask figures --measure`: a record of the machine at hand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use xtask::command::{Failure, Outcome, on, quietly};
use xtask::dist;

use super::record::{self, Run};
use super::{costs, ledger};
use crate::cpu;
use crate::record::Machine;
use crate::roots::{LOADING, Root, Source};

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All servers and keys, and HAProxy with other versions of OpenSSL: half an hour.
    Full,
    /// Enough to try the machinery, in one minute.
    Short,
}

const SERVERS: &[&str] = &["haproxy", "apache", "stunnel", "nginx"];
const KEYS: &[&str] = &["rsa2048", "rsa3072", "rsa4096", "p256", "p384", "ed25519"];

/// Servers that are measured with fewer keys, where they are installed.
const FURTHER: &[(&str, &str)] = &[
    ("trafficserver", "traffic_server"),
    ("dnsdist", "dnsdist"),
    ("hitch", "hitch"),
    ("lighttpd", "lighttpd"),
    ("mosquitto", "mosquitto"),
    ("redis", "redis-server"),
    ("mariadb", "mariadbd"),
    ("dovecot", "dovecot"),
    ("kamailio", "kamailio"),
];

/// HAProxy's keys and groups with other versions of OpenSSL.
const ELSEWHERE: &[(&str, &str)] = &[
    ("rsa2048", "x25519"),
    ("rsa4096", "x25519"),
    ("p256", "x25519"),
    ("p256", HYBRID),
];

const HYBRID: &str = "x25519mlkem768";

/// What HAProxy's clients fetch after a handshake.
const PAGES: &[&str] = &["230K", "10M"];

/// nginx with the key daemon: how it uses it, its key, its workers, and how many clients come.
const DAEMON: &[(&str, &str, u32, u32)] = &[
    ("reference", "rsa4096", 4, 64),
    ("reference", "rsa2048", 4, 64),
    ("reference", "p256", 4, 64),
    ("daemon", "rsa4096", 4, 64),
    ("daemon", "rsa2048", 4, 64),
    // What isolation alone costs.
    ("reference", "rsa2048", 1, 1),
    ("reference", "p256", 1, 1),
];

/// HAProxy's keys below its limit.
const PACED: &[&str] = &["rsa2048", "rsa4096", "p256"];

/// HAProxy's keys, groups and versions of TLS with each of these numbers of clients.
const BY_CLIENTS: &[&str] = &[
    "p256",
    "rsa2048",
    "rsa4096",
    "p384",
    "ed25519",
    // OpenSSL has the hybrid from 3.5 on.
    "p256 --group x25519mlkem768 --stock-group x25519",
    "p256 --tls 1.2",
    "rsa2048 --tls 1.2",
];
const CLIENTS: &str = "1,2,4,8,16,32,64";

/// Shares of a server's limit with OpenSSL alone, at which handshakes begin.
const SHARES: &[f64] = &[0.1, 0.3, 0.6];

/// Chroots that `cargo xtask matrix` makes; those that are there are measured too.
pub const OTHERS: &[(&str, Source)] = &[
    ("trixie", Source::Release("trixie")),
    ("experimental", Source::Experimental),
];

/// Measures this machine into docs/benchmarks/record/DATE-CPU, over a record of the same day.
pub fn measure(extent: Extent) -> Outcome {
    let machine = Machine::here()?;
    let built = dist::build_with_benchmarks()?;
    let busy = busy_cpus()?;
    let (slice, half_turn, turn, paced_turn, keys, costs) = match extent {
        Extent::Full => ("0.5", "0.5", "1", "2", KEYS, costs::FULL),
        Extent::Short => ("0.05", "0.05", "0.3", "0.2", PACED, costs::SHORT),
    };
    let mut commands = Vec::new();
    let mut run = |place: &str, mut command: Command, line: &str| -> Outcome<String> {
        let shown = format!("{place}lockstep-bench {line}");
        println!("{shown}");
        commands.push(shown);
        let output = quietly(command.args(line.split(' ')))?;
        Ok(output.trim_end().to_owned())
    };
    let mut here = |line: &str| {
        let mut command = Command::new(built.benchmarks());
        command.env("OPENSSL_CONF", built.configuration());
        run("", command, line)
    };
    // First of all: the CPU has not been busy for long.
    let costs = here(costs)?;
    let speed = format!("speed all aes-128-gcm aes-256-gcm --threads 1 --seconds {slice} --json");
    let speed = here(&speed)?;
    let with =
        |clients: &str| format!("--concurrency {clients} --seconds {turn} --rounds 7 --json");
    let paced = |closed: &str| -> Outcome<String> {
        let rates = rates(closed)?;
        Ok(format!(
            "--rate {rates} --seconds {paced_turn} --rounds 5 --json"
        ))
    };
    let mut runs = Vec::new();
    for server in SERVERS {
        for key in keys {
            let closed = here(&handshakes(server, key, &with("64")))?;
            if *server == "haproxy" && PACED.contains(key) {
                runs.push(here(&handshakes(server, key, &paced(&closed)?))?);
            }
            runs.push(closed);
        }
    }
    for line in further(&with("64"), "") {
        runs.push(here(&line)?);
    }
    for key in BY_CLIENTS {
        let (key, options) = key.split_once(' ').unwrap_or((key, ""));
        let load = format!("--concurrency {CLIENTS} --seconds {half_turn} --rounds 7 --json");
        runs.push(here(
            handshakes("haproxy", key, &format!("{load} {options}")).trim_end(),
        )?);
    }
    for page in PAGES {
        let load = format!("{} --transfer {page}", with("16"));
        runs.push(here(&handshakes("haproxy", "rsa2048", &load))?);
    }
    for (keyd, key, workers, clients) in DAEMON {
        if *keyd != "reference" && !cpu::has_ifma() {
            // Ordinary keys go to the daemon only where lanes compute RSA faster.
            continue;
        }
        let options = format!("--keyd {keyd} --workers {workers} --share-cpus");
        let load = format!("{} {options}", with(&clients.to_string()));
        let closed = here(&handshakes("nginx", key, &load))?;
        if (*keyd, *key, *clients) == ("reference", "rsa2048", 64) {
            let load = format!("{} {options}", paced(&closed)?);
            runs.push(here(&handshakes("nginx", key, &load))?);
        }
        runs.push(closed);
    }
    // OpenSSL has the hybrid from 3.5 on.
    let load = format!("{} --group {HYBRID} --stock-group x25519", with("1,64"));
    runs.push(here(&handshakes("haproxy", "p256", &load))?);
    for &(name, source) in OTHERS {
        let Some(root) = at_hand(name, source)? else {
            continue;
        };
        root.install(&built)?;
        let program = built.benchmarks();
        let copy = "lockstep-bench";
        fs::copy(&program, root.directory.join(copy)).map_err(on(&program, "copy"))?;
        for (key, group) in ELSEWHERE {
            let mut command = root.command(&root.inside.join(copy).display().to_string());
            command.env("OPENSSL_CONF", root.inside.join(LOADING));
            let load = format!("{} --group {group}", with("1,64"));
            let line = handshakes("haproxy", key, &load);
            runs.push(run(&format!("in {name}: "), command, &line)?);
        }
    }
    let about = about(&machine, busy, &commands)?;
    record::store(&machine, "run.json", &format!("{about:#}"))?;
    record::store(&machine, "speed.json", &speed)?;
    record::store(&machine, costs::FILE, &costs)?;
    let handshakes = format!("[\n{}\n]", runs.join(",\n"));
    record::store(&machine, "handshakes.json", &handshakes)
}

/// Measures the further servers into the record that there is of today and of these kernels.
pub fn measure_further() -> Outcome {
    let machine = Machine::here()?;
    let built = dist::build_with_benchmarks()?;
    let directory = record::of_today(&machine);
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(on(&path, "read"))
    };
    let broken = || Failure::new(format!("{} is no record", directory.display()));
    let mut about: Value = serde_json::from_str(&read("run.json")?).map_err(|_| broken())?;
    let (mut runs, kernels) = (read("handshakes.json")?, ledger::kernels()?);
    // The ledger has shown later ones beside those of the record.
    let ledger = read("ledger.json").unwrap_or_default();
    if about["kernels"] != json!(kernels) && !ledger.contains(&kernels) {
        return Err(Failure::new("today's record is of other kernels")
            .remedy("cargo xtask figures --measure"));
    }
    let commands = about["commands"].as_array_mut().ok_or_else(broken)?;
    for line in further("--concurrency 64 --seconds 1 --rounds 7 --json", &runs) {
        println!("lockstep-bench {line}");
        let mut command = Command::new(built.benchmarks());
        command.env("OPENSSL_CONF", built.configuration());
        let run = quietly(command.args(line.split(' ')))?;
        let before = runs.trim_end().strip_suffix(']').ok_or_else(broken)?;
        runs = format!("{},\n{}\n]", before.trim_end(), run.trim_end());
        commands.push(format!("at {}: lockstep-bench {line}", machine.commit).into());
    }
    record::store(&machine, "run.json", &format!("{about:#}"))?;
    record::store(&machine, "handshakes.json", &runs)
}

/// Calls of `lockstep-bench` for the further servers that are installed and not in these runs.
fn further(load: &str, runs: &str) -> Vec<String> {
    let mut calls = Vec::new();
    for (server, program) in FURTHER {
        if runs.contains(&format!("\"server\":\"{server}\"")) {
            continue;
        }
        let mut places = ["/usr/bin", "/usr/sbin"].iter().map(Path::new);
        match places.any(|place| place.join(program).is_file()) {
            true => calls.extend(PACED.iter().map(|key| handshakes(server, key, load))),
            false => println!("skipped: {server} is not installed"),
        }
    }
    calls
}

/// What `lockstep-bench` is called with.
fn handshakes(server: &str, key: &str, rest: &str) -> String {
    format!("handshakes --server {server} --key {key} {rest}")
}

/// Rates below the limit that a run with many clients has shown, with two digits each.
fn rates(closed: &str) -> Outcome<String> {
    let run: Run = serde_json::from_str(closed)
        .map_err(|error| Failure::new(format!("a run of handshakes has no figures: {error}")))?;
    let limit = run.busiest().stock.per_s;
    let rounded = |share: &f64| {
        let rate = share * limit;
        let unit = 10_f64.powf(rate.log10().floor() - 1.0).max(1.0);
        ((rate / unit).round() * unit).max(1.0).to_string()
    };
    Ok(SHARES.iter().map(rounded).collect::<Vec<_>>().join(","))
}

/// Another OpenSSL, if it can be measured with; otherwise this says how to have it.
pub fn at_hand(name: &str, source: Source) -> Outcome<Option<Root>> {
    let root = Root::at_hand(name, source)?;
    if root.is_none() {
        println!("{name} is not at hand: `cargo xtask matrix {name}` makes it");
    }
    Ok(root)
}

/// What run.json says of a record.
fn about(machine: &Machine, load: f64, commands: &[String]) -> Outcome<Value> {
    Ok(json!({
        "date": machine.date,
        "commit": machine.commit,
        "kernels": ledger::kernels()?,
        "cpu": machine.cpu,
        "load": load,
        "commands": commands,
    }))
}

/// How many CPUs are busy, over two seconds. (The load average would still hold what has ended.)
pub fn busy_cpus() -> Outcome<f64> {
    let path = Path::new("/proc/stat");
    let now = || -> Outcome<f64> {
        let text = fs::read_to_string(path).map_err(on(path, "read"))?;
        busy_seconds(&text).ok_or_else(|| Failure::new("/proc/stat is unreadable"))
    };
    let (before, start) = (now()?, Instant::now());
    thread::sleep(Duration::from_secs(2));
    Ok((now()? - before) / start.elapsed().as_secs_f64())
}

/// What all CPUs have worked, by the first line of `/proc/stat`: user, nice, system, idle, waiting,
/// interrupts and what other guests took, in hundredths of a second.
fn busy_seconds(stat: &str) -> Option<f64> {
    let first = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = first
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _, _, interrupts @ ..] = ticks.as_slice() else {
        return None;
    };
    Some((user + nice + system + interrupts.iter().take(3).sum::<f64>()) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_the_kernels_that_it_measured() {
        let machine = Machine {
            date: "2026-11-24".to_owned(),
            cpu: "AMD EPYC, family 25 model 17".to_owned(),
            commit: "0123456789".to_owned(),
        };
        let about: record::About =
            serde_json::from_value(about(&machine, 0.0, &[]).unwrap()).unwrap();
        assert_eq!(about.kernels, Some(ledger::kernels().unwrap()));
    }

    #[test]
    fn rates_are_shares_of_the_limit() {
        let run = |per_second: f64| {
            let mut run = record::examples::run("haproxy", "p256", "concurrency", &[1, 64]);
            run["rows"][2]["per_s"] = per_second.into();
            run.to_string()
        };
        assert_eq!(rates(&run(1797.6)).unwrap(), "180,540,1100");
        assert_eq!(rates(&run(272.9)).unwrap(), "27,82,160");
        assert_eq!(rates(&run(0.5)).unwrap(), "1,1,1");
        assert!(rates("{}").is_err());
    }

    #[test]
    fn time_that_is_not_idle_is_read() {
        let stat = "cpu  100 20 30 5000 400 1 2 3 77 0\ncpu0 50 10 15 2500 200 0 1 2 0 0\n";
        assert_eq!(busy_seconds(stat), Some(1.56));
        assert_eq!(busy_seconds("intr 1 2 3\n"), None);
    }
}
