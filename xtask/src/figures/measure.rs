//! `cargo xtask figures --measure`: a record of the machine at hand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::record;
use crate::command::{Failure, Outcome, on, quietly};
use crate::dist;
use crate::record::Machine;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All servers and keys: some nine minutes.
    Full,
    /// Enough to try the machinery, in one minute.
    Short,
}

const SERVERS: &[&str] = &["haproxy", "apache", "stunnel", "nginx"];
const KEYS: &[&str] = &["rsa2048", "rsa3072", "rsa4096", "p256", "p384", "ed25519"];

/// Measures this machine into docs/benchmarks/record/DATE-CPU, over a record of the same day.
pub fn measure(extent: Extent) -> Outcome {
    let machine = Machine::here()?;
    let built = dist::build()?.add_benchmarks()?;
    let program = built.benchmarks();
    let load = busy_cpus()?;
    let (slice, turn, keys) = match extent {
        Extent::Full => ("0.5", "1", KEYS),
        Extent::Short => ("0.05", "0.3", &["rsa2048", "rsa4096", "p256"][..]),
    };
    let mut commands = Vec::new();
    let mut run = |arguments: &[&str]| -> Outcome<String> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{name} {}", arguments.join(" "));
        println!("{line}");
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env("OPENSSL_CONF", built.configuration());
        commands.push(line);
        quietly(&mut command).map(|output| output.trim_end().to_owned())
    };
    let speed = run(&[
        "speed",
        "all",
        "--threads",
        "1",
        "--seconds",
        slice,
        "--json",
    ])?;
    let mut handshakes = Vec::new();
    for server in SERVERS {
        for key in keys {
            handshakes.push(run(&[
                "handshakes",
                "--server",
                server,
                "--key",
                key,
                "--concurrency",
                "64",
                "--seconds",
                turn,
                "--rounds",
                "7",
                "--json",
            ])?);
        }
    }
    let name = format!("{}-{}", machine.date, record::short_name(&machine.cpu));
    let directory = record::directory().join(name);
    fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
    let about = json!({
        "date": machine.date,
        "commit": machine.commit,
        "cpu": machine.cpu,
        "load": load,
        "commands": commands,
    });
    store(&directory, "run.json", &format!("{about:#}\n"))?;
    store(&directory, "speed.json", &format!("{speed}\n"))?;
    let handshakes = format!("[\n{}\n]\n", handshakes.join(",\n"));
    store(&directory, "handshakes.json", &handshakes)
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
    fn time_that_is_not_idle_is_read() {
        let stat = "cpu  100 20 30 5000 400 1 2 3 77 0\ncpu0 50 10 15 2500 200 0 1 2 0 0\n";
        assert_eq!(busy_seconds(stat), Some(1.56));
        assert_eq!(busy_seconds("intr 1 2 3\n"), None);
    }
}
