//! `cargo xtask demo`: the same certificate on real TLS servers, without lanes and with them.
//!
//! Each row has two servers (`openssl s_server`, by itself and with
//! `OPENSSL_CONF=dist/openssl.cnf`), and clients by rustls (`lockstep-bench connect`), which verify
//! the certificate and with it the server's signature. The clients cannot see which code computed:
//! the counters show it. The last row has the post-quantum group of most browsers, which OpenSSL
//! before 3.5 does not have by itself.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use xtask::command::{
    Failure, Outcome, emptied, free_port, loudly, openssl, quietly, target_directory,
};
use xtask::dist::{self, Dist};
use xtask::setup;

use crate::beside::{Module, Server};

/// A key, and the requests of clients.
struct Row {
    name: &'static str,
    /// The key, as `openssl req` makes it.
    key: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    /// The operation of the lanes in each handshake, by its counter.
    counter: &'static str,
    /// Whether all versions of OpenSSL have it.
    is_usual: bool,
}

/// The group of X25519 with ML-KEM-768.
const HYBRID: &str = "X25519MLKEM768";

const ROWS: &[Row] = &[
    Row {
        name: "RSA-2048",
        key: "rsa:2048",
        group: "X25519",
        versions: &["1.2", "1.3"],
        counter: "rsa2048",
        is_usual: true,
    },
    Row {
        name: "RSA-4096",
        key: "rsa:4096",
        group: "X25519",
        versions: &["1.2", "1.3"],
        counter: "rsa4096",
        is_usual: true,
    },
    Row {
        name: HYBRID,
        key: "rsa:2048",
        group: HYBRID,
        versions: &["1.3"],
        counter: "x25519mlkem768-server",
        is_usual: false,
    },
];

/// Clients that come to each server, as many with each version of TLS.
const CLIENTS: u64 = 8;

/// Sets up, builds, and shows.
pub fn run() -> Outcome {
    let start = Instant::now();
    println!("Building the module and the commands …");
    setup::ensure()?;
    let dist = dist::build_with_benchmarks()?;
    println!("built in {:.0} s\n", start.elapsed().as_secs_f64());

    // Without lanes everything still works, by OpenSSL's own code; that is worth showing too.
    let said = Command::new(dist.command()).arg("doctor").output();
    let said = said.map_err(|error| Failure::new(format!("lockstep doctor: {error}")))?;
    let said = String::from_utf8_lossy(&said.stdout);
    println!("{said}");
    let is_used = |line: &str| line.split_whitespace().take(2).eq(["ok", "used"]);
    let has_lanes = said.lines().any(is_used);

    println!("\n{CLIENTS} clients (TLS 1.2 and 1.3) at each server, every signature verified:\n");
    println!(
        "{:<16} {:<10} {:>10} {:>10}  computed by",
        "key or group", "server", "handshakes", "on lanes"
    );
    let scratch = target_directory().join("demo");
    for row in ROWS {
        for with_lanes in [false, true] {
            emptied(&scratch)?;
            let on_lanes = row.show(&dist, &scratch, with_lanes)?;
            // AVX2 lanes sign too if they must, and doctor advises against them. ML-KEM has lanes
            // everywhere.
            let must = has_lanes || !row.is_usual;
            match (with_lanes, on_lanes) {
                (false, Some(1..)) => {
                    return Err(Failure::new("a server without lanes computed on lanes"));
                }
                (true, Some(..CLIENTS)) if must => {
                    return Err(Failure::new("not every handshake was computed on lanes"));
                }
                _ => {}
            }
        }
    }
    emptied(&scratch)?;
    if !has_lanes {
        println!("\n`lockstep doctor`, above, says why RSA is left to OpenSSL on this CPU.");
        return Ok(());
    }
    println!(
        "\ns_server takes one connection at a time, so each request was alone. LOCKSTEP_LONE=lanes kept\n\
         those on the lanes here; by default a lone request runs wherever it is faster.\n"
    );
    println!(
        "What full lanes bring (`lockstep-bench speed`, stock and lockstep in interleaved rounds):\n"
    );
    let speed = "speed rsa2048 rsa4096 --seconds 1 --fills 1,8";
    loudly(Command::new(dist.benchmarks()).args(speed.split(' ')))?;
    let seconds = start.elapsed().as_secs_f64();
    println!("\nThe whole demonstration took {seconds:.0} s.");
    Ok(())
}

impl Row {
    /// Runs one server with its clients and prints a line about them; returns how often the lanes
    /// computed, or `None` if this OpenSSL cannot serve.
    fn show(&self, dist: &Dist, scratch: &Path, with_lanes: bool) -> Outcome<Option<u64>> {
        let side = if with_lanes { "lockstep" } else { "stock" };
        let at = |name: &str| scratch.join(name);
        let (key, certificate, counters) = (at("key.pem"), at("cert.pem"), at("counters"));
        emptied(&counters)?;
        let mut request = openssl(["req", "-x509", "-nodes", "-sha256", "-days", "2"]);
        request
            .args(["-newkey", self.key, "-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost"])
            // An authority would be no server for rustls.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        quietly(
            request
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&certificate),
        )?;

        let port = free_port()?;
        let mut command = openssl(["s_server", "-www", "-accept"]);
        command.arg(format!("127.0.0.1:{port}"));
        command.arg("-cert").arg(&certificate).arg("-key").arg(&key);
        if with_lanes {
            let module = Module {
                backend: None,
                counters: &counters,
                planted: None,
            };
            module.set(&mut command);
            command.env("OPENSSL_CONF", dist.configuration());
            // OpenSSL before 3.5 has the hybrid by the module, and offers the groups of this list.
            command.args(["-groups", &format!("{HYBRID}:X25519:P-256")]);
        }
        let server = Server::start(command, port, &at("server.log"))?;
        let mut handshakes = 0;
        for version in self.versions {
            let count = CLIENTS / self.versions.len() as u64;
            let mut clients = Command::new(dist.benchmarks());
            clients
                .args([
                    "connect", "--tls", version, "--group", self.group, "--count",
                ])
                .arg(count.to_string())
                .arg(format!("127.0.0.1:{port}"))
                .arg("--authority")
                .arg(&certificate);
            let agreed = match quietly(&mut clients) {
                Ok(agreed) => agreed,
                Err(_) if !self.is_usual && !with_lanes => {
                    println!("{:<16} {side:<10} {:>10} {:>10}", self.name, "refused", "-");
                    return Ok(None);
                }
                Err(failure) => return Err(failure),
            };
            let is_so = |line: &&str| line.contains(self.group);
            handshakes += agreed.lines().filter(is_so).count() as u64;
        }
        drop(server);
        let on_lanes = dist.total(self.counter, &counters)?;
        let by = match on_lanes {
            0 => "OpenSSL's own code",
            _ => "vector lanes",
        };
        println!(
            "{:<16} {side:<10} {handshakes:>10} {on_lanes:>10}  {by}",
            self.name
        );
        match handshakes {
            CLIENTS => Ok(Some(on_lanes)),
            _ => Err(Failure::new(format!(
                "{handshakes} handshakes of {CLIENTS}"
            ))),
        }
    }
}
