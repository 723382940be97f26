//! `cargo xtask figures --measure`: a record of the machine at hand.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::record;
use crate::command::{Failure, Outcome, on, quietly};
use crate::dist;
use crate::record::Machine;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All servers and keys: some seven minutes.
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
    let load = load_average()?;
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
                "3",
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

/// Of the last minute, before anything is measured.
fn load_average() -> Outcome<f64> {
    let path = Path::new("/proc/loadavg");
    let text = fs::read_to_string(path).map_err(on(path, "read"))?;
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .ok_or_else(|| Failure::new("/proc/loadavg is unreadable"))
}
