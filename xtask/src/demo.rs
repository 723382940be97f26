//! `cargo xtask demo`: the same certificate on real TLS servers, without lanes and with them.
//!
//! Two keys, two servers each (`openssl s_server`, by itself and with
//! `OPENSSL_CONF=dist/openssl.cnf`), clients of TLS 1.2 and 1.3 at once (`openssl s_client`), which
//! verify the certificate and with it the server's signature. The clients cannot see which code
//! signed: the counters show it. Then the post-quantum group of most browsers, with clients by
//! rustls, which OpenSSL before 3.5 does not have by itself.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::command::{
    Failure, Outcome, cannot_run, ending_with_us, free_port, loudly, on, openssl, quietly,
    target_directory,
};
use crate::dist::{self, Dist};
use crate::setup;

const KEYS: &[(&str, &str)] = &[("RSA-2048", "rsa:2048"), ("RSA-4096", "rsa:4096")];

/// Clients that connect to a server at the same time, half of them with each version of TLS.
const CLIENTS: u64 = 8;

/// The group of X25519 with ML-KEM-768.
const HYBRID: &str = "X25519MLKEM768";

const PATIENCE: Duration = Duration::from_secs(30);

/// Sets up, builds, and shows.
pub fn run() -> Outcome {
    let start = Instant::now();
    println!("Building the module and the commands …");
    setup::ensure()?;
    let dist = dist::build()?.add_benchmarks()?;
    println!("built in {:.0} s\n", start.elapsed().as_secs_f64());

    // Without lanes everything still works, by OpenSSL's own code; that is worth showing too.
    let has_lanes = loudly(Command::new(dist.command()).arg("doctor")).is_ok();

    let scratch = Scratch::new()?;
    println!("\n{CLIENTS} clients (TLS 1.2 and 1.3) at each server, every signature verified:\n");
    println!(
        "{:<10} {:<10} {:>10} {:>15}  signed by",
        "key", "server", "handshakes", "lane signatures"
    );
    for (name, algorithm) in KEYS {
        let identity = Identity::make(scratch.path(), name, algorithm)?;
        for with_lanes in [false, true] {
            let signatures = show(&dist, scratch.path(), &identity, with_lanes)?;
            // AVX2 lanes sign too if they must, and doctor advises against them.
            if has_lanes || !with_lanes {
                judge(signatures, with_lanes)?;
            }
        }
    }
    show_hybrid(&dist, scratch.path())?;
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
    let mut speed = Command::new(dist.benchmarks());
    loudly(speed.args([
        "speed",
        "rsa2048",
        "rsa4096",
        "--seconds",
        "1",
        "--fills",
        "1,8",
    ]))?;
    println!(
        "\nThe whole demonstration took {:.0} s.",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs one server with its clients and prints a line about them; returns how many signatures came
/// from the lanes.
fn show(dist: &Dist, scratch: &Path, identity: &Identity, with_lanes: bool) -> Outcome<u64> {
    let label = if with_lanes { "lockstep" } else { "stock" };
    let counters = scratch.join(format!("{}-{label}", identity.name));
    fs::create_dir(&counters).map_err(on(&counters, "create"))?;
    let server = Server::start(dist, scratch, identity, with_lanes.then_some(&counters))?;
    let clients = (0..CLIENTS)
        .map(|index| {
            let version = if index % 2 == 0 { "-tls1_2" } else { "-tls1_3" };
            Client::start(scratch, identity, &server, version, index)
        })
        .collect::<Outcome<Vec<_>>>()?;
    for client in clients {
        client.finish()?;
    }
    let signatures = lane_signatures(dist, identity, &counters)?;
    drop(server);
    println!(
        "{:<10} {label:<10} {CLIENTS:>10} {signatures:>15}  {}",
        identity.name,
        if signatures >= CLIENTS {
            "vector lanes"
        } else {
            "OpenSSL's own code"
        }
    );
    Ok(signatures)
}

/// Runs servers for the post-quantum group, each with its clients, and prints a line about each.
fn show_hybrid(dist: &Dist, scratch: &Path) -> Outcome {
    println!(
        "\n{CLIENTS} clients by rustls at each server, which offer {HYBRID} and nothing else:\n\n\
         {:<10} {:>10} {:>15}",
        "server", "handshakes", "lane exchanges"
    );
    let identity = Identity::make(scratch, "hybrid", "rsa:2048")?;
    for (label, with_lanes) in [("stock", false), ("lockstep", true)] {
        let counters = scratch.join(format!("hybrid-{label}"));
        fs::create_dir(&counters).map_err(on(&counters, "create"))?;
        let server = Server::start(dist, scratch, &identity, with_lanes.then_some(&counters))?;
        let mut clients = Command::new(dist.benchmarks());
        clients
            .args([
                "connect",
                "--group",
                HYBRID,
                "--count",
                &CLIENTS.to_string(),
            ])
            .arg(format!("127.0.0.1:{}", server.port))
            .arg("--authority")
            .arg(&identity.certificate);
        let agreed = match quietly(&mut clients) {
            Ok(agreed) => agreed,
            // OpenSSL before 3.5.
            Err(_) if !with_lanes => {
                println!("{label:<10} {:>10} {:>15}", "refused", "-");
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let count = agreed.lines().filter(|line| line.contains(HYBRID)).count() as u64;
        let exchanges = on_lanes(dist, "x25519mlkem768-server", &counters)?;
        drop(server);
        println!("{label:<10} {count:>10} {exchanges:>15}");
        // Without vectors lanes are words: only a server without the module counts nothing.
        if count != CLIENTS || exchanges != if with_lanes { CLIENTS } else { 0 } {
            return Err(Failure::new(format!(
                "{count} handshakes of {CLIENTS} with {HYBRID}, {exchanges} of them on lanes"
            )));
        }
    }
    Ok(())
}

/// Whether as many signatures came from the lanes as should have.
fn judge(signatures: u64, on_lanes: bool) -> Outcome {
    match (on_lanes, signatures) {
        (true, ..CLIENTS) => Err(Failure::new(format!(
            "only {signatures} of {CLIENTS} signatures ran on lanes"
        ))),
        (false, 1..) => Err(Failure::new("a server without lanes signed on lanes")),
        _ => Ok(()),
    }
}

/// How many operations with a key like this the counters in this directory say ran on lanes.
fn lane_signatures(dist: &Dist, identity: &Identity, counters: &Path) -> Outcome<u64> {
    let kind = identity.name.replace('-', "").to_lowercase();
    on_lanes(dist, &kind, counters)
}

/// How many operations of a kind the counters in this directory say ran on lanes.
fn on_lanes(dist: &Dist, kind: &str, counters: &Path) -> Outcome<u64> {
    let mut stat = Command::new(dist.command());
    let text = quietly(stat.args(["stat", "--total", kind, "--dir"]).arg(counters))?;
    text.trim().parse().map_err(|_| {
        Failure::new(format!(
            "`lockstep stat` printed {text:?}, which is no number"
        ))
    })
}

/// A key and its certificate.
struct Identity {
    name: &'static str,
    key: PathBuf,
    certificate: PathBuf,
}

impl Identity {
    fn make(scratch: &Path, name: &'static str, algorithm: &str) -> Outcome<Identity> {
        let key = scratch.join(format!("{name}.key.pem"));
        let certificate = scratch.join(format!("{name}.pem"));
        let mut request = openssl([
            "req",
            "-x509",
            "-newkey",
            algorithm,
            "-nodes",
            "-sha256",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            // An authority would be no server for rustls.
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        quietly(
            request
                .arg("-keyout")
                .arg(&key)
                .arg("-out")
                .arg(&certificate),
        )?;
        Ok(Identity {
            name,
            key,
            certificate,
        })
    }
}

/// A running `openssl s_server`, ended when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server and waits until it accepts; with lanes if it is given a place for counters.
    fn start(
        dist: &Dist,
        scratch: &Path,
        identity: &Identity,
        counters: Option<&PathBuf>,
    ) -> Outcome<Server> {
        let port = free_port()?;
        let log = scratch.join(format!("{}-{port}.log", identity.name));
        let output = File::create(&log).map_err(on(&log, "create"))?;
        let mut command = ending_with_us(openssl(["s_server", "-www", "-accept"]));
        command.arg(format!("127.0.0.1:{port}"));
        command
            .arg("-cert")
            .arg(&identity.certificate)
            .arg("-key")
            .arg(&identity.key);
        if let Some(counters) = counters {
            command
                // OpenSSL before 3.5 has the hybrid by the module, and offers what it is told to.
                .args(["-groups", &format!("{HYBRID}:X25519:P-256")])
                .env("OPENSSL_CONF", dist.configuration())
                .env("LOCKSTEP_STATS_DIR", counters)
                .env("LOCKSTEP_STATS_KEEP", "yes")
                .env("LOCKSTEP_LONE", "lanes");
        }
        let errors = output.try_clone().map_err(on(&log, "open"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command
            .spawn()
            .map_err(|error| cannot_run(&command, &error))?;
        let mut server = Server { child, port };
        server.wait_until_ready(&log)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Outcome {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(log).unwrap_or_default();
            if log.contains("ACCEPT") {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || start.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "openssl s_server did not start:\n{log}"
                )));
            }
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A running `openssl s_client`, ended when dropped.
struct Client {
    child: Child,
    version: &'static str,
    log: PathBuf,
}

impl Client {
    fn start(
        scratch: &Path,
        identity: &Identity,
        server: &Server,
        version: &'static str,
        index: u64,
    ) -> Outcome<Client> {
        let log = scratch.join(format!("client-{}-{index}.log", server.port));
        let output = File::create(&log).map_err(on(&log, "create"))?;
        let mut command = ending_with_us(openssl([
            "s_client",
            "-brief",
            "-verify_return_error",
            "-verify_hostname",
            "localhost",
        ]));
        command
            .arg(version)
            .arg("-connect")
            .arg(format!("127.0.0.1:{}", server.port));
        command.arg("-CAfile").arg(&identity.certificate);
        let errors = output.try_clone().map_err(on(&log, "open"))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command
            .spawn()
            .map_err(|error| cannot_run(&command, &error))?;
        Ok(Client {
            child,
            version,
            log,
        })
    }

    /// Waits for the end of the handshake, and demands that the client was content with it.
    fn finish(mut self) -> Outcome {
        let start = Instant::now();
        let status = loop {
            match self
                .child
                .try_wait()
                .map_err(on(&self.log, "wait for the client of"))?
            {
                Some(status) => break status,
                None if start.elapsed() > PATIENCE => {
                    return Err(self.failure("did not end"));
                }
                None => sleep(Duration::from_millis(5)),
            }
        };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let protocol = match self.version {
            "-tls1_2" => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let content = ["Verification: OK", "Signature type: RSA-PSS", protocol];
        match status.success() && content.iter().all(|line| log.contains(line)) {
            true => Ok(()),
            false => Err(self.failure("was not content")),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        Failure::new(format!("openssl s_client {} {what}:\n{log}", self.version))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself; then there is nothing to end.
    let _ = child.kill();
    let _ = child.wait();
}

/// A directory that goes away with its owner, or with the next one if this one is killed.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Outcome<Scratch> {
        let path = target_directory().join("demo");
        let _ = fs::remove_dir_all(&path);
        let mut directory = fs::DirBuilder::new();
        directory
            .mode(0o700)
            .create(&path)
            .map_err(on(&path, "create"))?;
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it being gone.
        let _ = fs::remove_dir_all(&self.0);
    }
}
