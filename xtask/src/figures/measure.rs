//! `cargo xtask figures --measure`: a record of the machine at hand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{costs, ledger, record};
use crate::command::{Failure, Outcome, on, quietly};
use crate::cpu;
use crate::dist;
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
const DAEMON: &[(&str, &str, &str, &str)] = &[
    ("reference", "rsa4096", "4", "64"),
    ("reference", "rsa2048", "4", "64"),
    ("reference", "p256", "4", "64"),
    ("daemon", "rsa4096", "4", "64"),
    ("daemon", "rsa2048", "4", "64"),
    // What isolation alone costs.
    ("reference", "rsa2048", "1", "1"),
    ("reference", "p256", "1", "1"),
];

/// HAProxy's keys below its limit.
const PACED: &[&str] = &["rsa2048", "rsa4096", "p256"];

/// HAProxy's keys, groups and versions of TLS with each of these numbers of clients.
const BY_CLIENTS: &[(&str, &[&str])] = &[
    ("p256", &[]),
    ("rsa2048", &[]),
    ("rsa4096", &[]),
    ("p384", &[]),
    ("ed25519", &[]),
    // OpenSSL has the hybrid from 3.5 on.
    ("p256", &["--group", HYBRID, "--stock-group", "x25519"]),
    ("p256", &["--tls", "1.2"]),
    ("rsa2048", &["--tls", "1.2"]),
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
    let built = dist::build()?.add_benchmarks()?;
    let busy = busy_cpus()?;
    let (slice, half_turn, turn, paced_turn, trial_turn, keys) = match extent {
        Extent::Full => ("0.5", "0.5", "1", "2", "8", KEYS),
        Extent::Short => ("0.05", "0.05", "0.3", "0.2", "0.3", PACED),
    };
    let mut commands = Vec::new();
    let here = || {
        let mut command = Command::new(built.benchmarks());
        command.env("OPENSSL_CONF", built.configuration());
        command
    };
    let mut run = |place: &str, mut command: Command, arguments: &[&str]| -> Outcome<String> {
        let line = format!("{place}lockstep-bench {}", arguments.join(" "));
        println!("{line}");
        commands.push(line);
        quietly(command.args(arguments)).map(|output| output.trim_end().to_owned())
    };
    // First of all: the CPU has not been busy for long.
    let costs = match extent {
        Extent::Full => costs::FULL,
        Extent::Short => costs::SHORT,
    };
    let costs: Vec<&str> = costs.split(' ').collect();
    let costs = run("", here(), &costs)?;
    let ciphers = ["aes-128-gcm", "aes-256-gcm"];
    let speed = [
        "speed",
        "all",
        ciphers[0],
        ciphers[1],
        "--threads",
        "1",
        "--seconds",
        slice,
    ];
    let speed = run("", here(), &[&speed[..], &["--json"]].concat())?;
    let with = |clients: &'static str| turns(["--concurrency", clients], turn, "7");
    let mut runs = Vec::new();
    for server in SERVERS {
        for key in keys {
            let closed = run("", here(), &handshakes(server, key, &with("64"), &[]))?;
            if *server == "haproxy" && PACED.contains(key) {
                let rates = rates(&closed)?;
                let load = turns(["--rate", &rates], paced_turn, "5");
                runs.push(run("", here(), &handshakes(server, key, &load, &[]))?);
            }
            runs.push(closed);
        }
    }
    for (key, options) in BY_CLIENTS {
        let load = turns(["--concurrency", CLIENTS], half_turn, "7");
        runs.push(run(
            "",
            here(),
            &handshakes("haproxy", key, &load, options),
        )?);
    }
    for page in PAGES {
        let arguments = handshakes("haproxy", "rsa2048", &with("16"), &["--transfer", page]);
        runs.push(run("", here(), &arguments)?);
    }
    for (keyd, key, workers, clients) in DAEMON {
        if *keyd != "reference" && !cpu::has_ifma() {
            // Ordinary keys go to the daemon only where lanes compute RSA faster.
            continue;
        }
        let options = ["--keyd", keyd, "--workers", workers, "--share-cpus"];
        let load = match *keyd {
            "reference" => with(clients),
            // Every five seconds a process tries whether the daemon is faster; each turn has such a
            // trial, and the first one alone begins without what it has shown.
            _ => turns(["--concurrency", clients], trial_turn, "3"),
        };
        let arguments = handshakes("nginx", key, &load, &options);
        let closed = run("", here(), &arguments)?;
        if (*keyd, *key, *clients) == ("reference", "rsa2048", "64") {
            let rates = rates(&closed)?;
            let load = turns(["--rate", &rates], paced_turn, "5");
            runs.push(run("", here(), &handshakes("nginx", key, &load, &options))?);
        }
        runs.push(closed);
    }
    // OpenSSL has the hybrid from 3.5 on.
    let groups = ["--group", HYBRID, "--stock-group", "x25519"];
    let arguments = handshakes("haproxy", "p256", &with("1,64"), &groups);
    runs.push(run("", here(), &arguments)?);
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
            let arguments = handshakes("haproxy", key, &with("1,64"), &["--group", group]);
            runs.push(run(&format!("in {name}: "), command, &arguments)?);
        }
    }
    let name = format!("{}-{}", machine.date, record::short_name(&machine.cpu));
    let directory = record::directory().join(name);
    fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
    let about = about(&machine, busy, &commands)?;
    store(&directory, "run.json", &format!("{about:#}\n"))?;
    store(&directory, "speed.json", &format!("{speed}\n"))?;
    store(&directory, costs::FILE, &format!("{costs}\n"))?;
    let handshakes = format!("[\n{}\n]\n", runs.join(",\n"));
    store(&directory, "handshakes.json", &handshakes)
}

/// The options for a load, and for how long and how often each side has it.
fn turns<'a>(demand: [&'a str; 2], turn: &'a str, rounds: &'a str) -> [&'a str; 6] {
    [demand[0], demand[1], "--seconds", turn, "--rounds", rounds]
}

/// What `lockstep-bench` is called with.
fn handshakes<'a>(
    server: &'a str,
    key: &'a str,
    load: &[&'a str],
    options: &[&'a str],
) -> Vec<&'a str> {
    let common = ["handshakes", "--server", server, "--key", key];
    [&common[..], load, &["--json"], options].concat()
}

/// Rates below the limit that a run with many clients has shown, with two digits each.
fn rates(closed: &str) -> Outcome<String> {
    let limit = record::limit_of(closed);
    let limit = limit.ok_or_else(|| Failure::new("a run of handshakes has no figures"))?;
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

fn store(directory: &Path, name: &str, text: &str) -> Outcome {
    let path = directory.join(name);
    fs::write(&path, text).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    Ok(())
}

/// How many CPUs are busy, over two seconds. (The load average would still hold what has ended.)
fn busy_cpus() -> Outcome<f64> {
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
    fn a_record_counts_for_the_kernels_that_it_measured() {
        let machine = Machine {
            date: "2026-11-24".to_owned(),
            cpu: "AMD EPYC, family 25 model 17".to_owned(),
            commit: "0123456789".to_owned(),
        };
        let about = about(&machine, 0.0, &[]).unwrap();
        assert_eq!(
            ledger::in_words_of("zen4", &about).unwrap(),
            "Today's kernels were measured on AMD EPYC (Zen 4)."
        );
    }

    #[test]
    fn rates_are_shares_of_the_limit() {
        let run = |per_second: f64| {
            format!(
                r#"{{"cpu_ratio_concurrency":64,"rows":[{{"impl":"stock","load":"handshake",
                "concurrency":64,"per_s":{per_second}}}]}}"#
            )
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
