//! The processes that are measured: this program, started anew. `OPENSSL_CONF` decides whether they
//! run with lockstep, as with any other program.

use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use lockstep_common::{Failure, Outcome, outln};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{Id, PKey, PKeyRef, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::sign::{Signer, Verifier};
use openssl::ssl::{Ssl, SslContext, SslFiletype, SslMethod, SslStream};
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509StoreContext};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cases::{self, Pair, Work};
use super::forked;
use super::material::{
    BUNDLE, HOST_CHAIN, HOST_KEY, INTERMEDIATE, LEAF, ROOT, certificate_of, key,
};
use crate::handshakes::Kind;
use crate::measure::cpu_time;

/// The name of the hidden command.
pub const COMMAND: &str = "costs-process";

/// How many new keys sign one after the other.
const KEYS: usize = 16;

/// How long a client may take to say something.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections before the ones that count.
pub const EARLY: usize = 2;

/// Arguments of a process.
#[derive(Args)]
pub struct Options {
    /// The name of the case
    name: String,
    /// Where keys and certificates are
    directory: PathBuf,
    /// The CPU time for a figure, in seconds
    #[arg(long, default_value = "0")]
    seconds: f64,
    /// How many hosts there are, or connections
    #[arg(long, default_value = "0")]
    count: usize,
    /// The file of the module: say at the end whether this process has mapped it
    #[arg(long)]
    look: Option<PathBuf>,
}

/// The arguments for [`main`].
pub fn arguments(
    name: &str,
    directory: &Path,
    seconds: Duration,
    count: usize,
    look: Option<&Path>,
) -> Vec<std::ffi::OsString> {
    let mut arguments = vec![COMMAND.into(), name.into(), directory.into()];
    arguments.push(format!("--seconds={}", seconds.as_secs_f64()).into());
    arguments.push(format!("--count={count}").into());
    if let Some(module) = look {
        arguments.extend(["--look".into(), module.into()]);
    }
    arguments
}

/// Has a program load lockstep by a configuration, or run without lockstep.
pub fn use_configuration(command: &mut Command, configuration: Option<&Path>) {
    match configuration {
        Some(path) => command.env("OPENSSL_CONF", path),
        None => command.env_remove("OPENSSL_CONF"),
    };
}

/// One figure of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds of CPU time, or bytes.
    pub value: f64,
    /// Seconds that passed, for CPU time.
    pub wall: Option<f64>,
}

/// Report of a process at its end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    pub samples: Vec<Sample>,
    /// Whether the module is mapped in it.
    pub has_module: bool,
}

/// Does the work of a case.
pub fn main(options: &Options) -> Outcome {
    let work = cases::work(&options.name)
        .ok_or_else(|| Failure::usage(format!("there is no work {}", options.name)))?;
    // The kernel ends this process if its parent is killed before it can end it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let samples = options
        .work(work)
        .map_err(|error| Failure::new(format!("{}: {error}", options.name)))?;
    if let Some(module) = &options.look {
        let said = Said {
            samples,
            has_module: is_mapped(module, "self"),
        };
        outln!("{}", json!(said));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a process has mapped a file.
pub fn is_mapped(file: &Path, process: &str) -> bool {
    let maps = fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
    let file = file.as_os_str().as_bytes();
    maps.split(|byte| *byte == b'\n')
        .any(|line| line.ends_with(file) && line[..line.len() - file.len()].ends_with(b" "))
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

impl Options {
    fn work(&self, work: Work) -> Result<Vec<Sample>> {
        let one = |sample: Result<Sample>| sample.map(|sample| vec![sample]);
        match work {
            Work::Start => {
                openssl::init();
                Ok(Vec::new())
            }
            Work::ReadKey(kind) => {
                let pem = self.read(&key(kind))?;
                one(self.again(|| Ok(PKey::private_key_from_pem(&pem)?)))
            }
            Work::ReadCertificate => {
                let pem = self.read(LEAF)?;
                one(self.again(|| Ok(X509::from_pem(&pem)?)))
            }
            Work::ReadBundle => {
                let pem = self.read(BUNDLE)?;
                one(self.again(|| Ok(X509::stack_from_pem(&pem)?)))
            }
            Work::Context => {
                one(self.again(|| Ok(SslContext::builder(SslMethod::tls_server())?.build())))
            }
            Work::Host => one(self.again(|| self.host())),
            Work::FirstSignature(kind) => one(self.first_signatures(kind)),
            Work::VerifyChain => one(self.verify_chain()),
            Work::Generate(Pair::Rsa2048) => one(self.again(|| generate(Pair::Rsa2048))),
            Work::Generate(pair) => {
                openssl::init();
                let stopwatch = Stopwatch::start();
                generate(pair)?;
                Ok(vec![stopwatch.sample(1)])
            }
            Work::Fork => {
                let _host = self.host()?;
                one(self.fork(|| true))
            }
            Work::ForkedSignature(kind) => {
                let key = PKey::private_key_from_pem(&self.read(&key(kind))?)?;
                one(self.fork(|| sign(&key).is_ok_and(|signature| !signature.is_empty())))
            }
            Work::ForkedHandshake(kind) => one(self.forked_handshakes(kind)),
            Work::Inetd(kind) => {
                let socket = io::stdin().as_fd().try_clone_to_owned()?;
                serve(&self.context(kind)?, TcpStream::from(socket))?;
                Ok(Vec::new())
            }
            Work::Hosts => self.hosts(),
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.directory.join(name))
    }

    fn budget(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Does something again and again, once before it counts.
    fn again<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<Sample> {
        work()?;
        let (stopwatch, mut count) = (Stopwatch::start(), 0);
        loop {
            work()?;
            count += 1;
            if stopwatch.cpu() >= self.budget() {
                return Ok(stopwatch.sample(count));
            }
        }
    }

    /// A context with key and chain.
    fn host(&self) -> Result<SslContext> {
        let at = |name: &str| self.directory.join(name);
        Ok(context(&at(HOST_CHAIN), &at(HOST_KEY))?)
    }

    /// The same for connections.
    fn context(&self, kind: Kind) -> Result<SslContext> {
        let at = |name: String| self.directory.join(name);
        Ok(context(&at(certificate_of(kind)), &at(key(kind)))?)
    }

    fn first_signatures(&self, kind: Kind) -> Result<Sample> {
        let pem = self.read(&key(kind))?;
        let read = || PKey::private_key_from_pem(&pem);
        let known = read()?;
        // This process has signed before, and with a key that has signed before.
        for _ in 0..3 {
            if !verifies(&known, &sign(&known)?)? {
                return Err("its signature is wrong".into());
            }
        }
        let (mut cpu, mut wall, mut count) = (0.0, 0.0, 0);
        while cpu < self.seconds || count == 0 {
            let keys = (0..KEYS).map(|_| read());
            let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
            let stopwatch = Stopwatch::start();
            for key in &keys {
                sign(key)?;
            }
            let sample = stopwatch.sample(1);
            cpu += sample.value;
            wall += sample.wall.unwrap_or_default();
            count += KEYS;
        }
        Ok(Sample {
            value: cpu / count as f64,
            wall: Some(wall / count as f64),
        })
    }

    fn verify_chain(&self) -> Result<Sample> {
        let read = |name| -> Result<X509> { Ok(X509::from_pem(&self.read(name)?)?) };
        let (leaf, mut between) = (read(LEAF)?, Stack::new()?);
        between.push(read(INTERMEDIATE)?)?;
        let mut store = X509StoreBuilder::new()?;
        store.add_cert(read(ROOT)?)?;
        let store = store.build();
        self.again(|| {
            let mut context = X509StoreContext::new()?;
            match context.init(&store, &leaf, &between, |context| context.verify_cert())? {
                true => Ok(()),
                false => Err("the chain is not valid".into()),
            }
        })
    }

    /// Forks again and again; the parent's time counts too.
    fn fork(&self, work: impl Fn() -> bool) -> Result<Sample> {
        let of_children = Cell::new(Duration::ZERO);
        let once = || -> Result<()> {
            let ended = forked::in_child(&work)?;
            if !ended.status.success() {
                return Err(format!("a forked child failed: {}", ended.status).into());
            }
            of_children.set(of_children.get() + ended.cpu);
            Ok(())
        };
        once()?;
        of_children.set(Duration::ZERO);
        let (stopwatch, mut count) = (Stopwatch::start(), 0);
        while stopwatch.cpu() + of_children.get() < self.budget() || count == 0 {
            once()?;
            count += 1;
        }
        Ok(stopwatch.sample_with(of_children.get(), count))
    }

    /// Serves so many connections to the socket that is its standard input, each in a forked child.
    fn forked_handshakes(&self, kind: Kind) -> Result<Sample> {
        let context = self.context(kind)?;
        let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut of_children = Duration::ZERO;
        let mut stopwatch = Stopwatch::start();
        for number in 0..self.count + EARLY {
            if number == EARLY {
                (stopwatch, of_children) = (Stopwatch::start(), Duration::ZERO);
            }
            let (socket, _) = listener.accept()?;
            let ended = forked::in_child(|| serve(&context, socket).is_ok())?;
            if !ended.status.success() {
                return Err(format!("a forked child failed: {}", ended.status).into());
            }
            of_children += ended.cpu;
        }
        Ok(stopwatch.sample_with(of_children, self.count))
    }

    /// The memory of each host before and after its first signature, and the CPU time of a reload.
    fn hosts(&self) -> Result<Vec<Sample>> {
        let all = || {
            (0..self.count)
                .map(|_| self.host())
                .collect::<Result<Vec<_>>>()
        };
        let count = self.count.max(1) as f64;
        // Costs that only the first one brings do not belong to each.
        let first = self.host()?;
        sign(first.private_key().ok_or("a host has no key")?)?;
        let before = memory()?;
        let hosts = all()?;
        let loaded = memory()?;
        for host in &hosts {
            sign(host.private_key().ok_or("a host has no key")?)?;
        }
        let signed = memory()?;
        let stopwatch = Stopwatch::start();
        let again = all()?;
        drop(hosts);
        let reload = stopwatch.sample(self.count.max(1));
        drop(again);
        let memory = |after: f64| Sample {
            value: (after - before) / count,
            wall: None,
        };
        Ok(vec![memory(loaded), memory(signed), reload])
    }
}

/// CPU time of this process, and time that passes.
struct Stopwatch {
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch {
            cpu: cpu_time(),
            wall: Instant::now(),
        }
    }

    fn cpu(&self) -> Duration {
        cpu_time().saturating_sub(self.cpu)
    }

    /// The cost of each of `count` operations.
    fn sample(&self, count: usize) -> Sample {
        self.sample_with(Duration::ZERO, count)
    }

    /// The same with CPU time of other processes.
    fn sample_with(&self, others: Duration, count: usize) -> Sample {
        let (cpu, wall) = (self.cpu() + others, self.wall.elapsed());
        let each = |time: Duration| time.as_secs_f64() / count as f64;
        Sample {
            value: each(cpu),
            wall: Some(each(wall)),
        }
    }
}

fn generate(pair: Pair) -> Result<()> {
    let key = match pair {
        Pair::P256 => PKey::ec_gen("P-256")?,
        Pair::X25519 => PKey::generate_x25519()?,
        Pair::Rsa2048 => {
            let mut context = PkeyCtx::new_id(Id::RSA)?;
            context.keygen_init()?;
            context.set_rsa_keygen_bits(2048)?;
            context.keygen()?
        }
    };
    match key.bits() {
        0 => Err("the key is empty".into()),
        _ => Ok(()),
    }
}

const MESSAGE: &[u8] = b"what a server signs once";

fn sign(key: &PKeyRef<Private>) -> std::result::Result<Vec<u8>, ErrorStack> {
    Signer::new(MessageDigest::sha256(), key)?.sign_oneshot_to_vec(MESSAGE)
}

fn verifies(key: &PKeyRef<Private>, signature: &[u8]) -> std::result::Result<bool, ErrorStack> {
    Verifier::new(MessageDigest::sha256(), key)?.verify_oneshot(signature, MESSAGE)
}

fn context(chain: &Path, key: &Path) -> std::result::Result<SslContext, ErrorStack> {
    let mut builder = SslContext::builder(SslMethod::tls_server())?;
    builder.set_certificate_chain_file(chain)?;
    builder.set_private_key_file(key, SslFiletype::PEM)?;
    builder.check_private_key()?;
    Ok(builder.build())
}

/// Serves a connection until the client has closed it.
fn serve(context: &SslContext, socket: TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = SslStream::new(Ssl::new(context)?, socket)?;
    stream.accept()?;
    stream.shutdown()?;
    Ok(())
}

/// The memory of this process, in bytes; pages that several processes share count in parts.
fn memory() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let kilobytes = kilobytes(&text).ok_or("/proc/self/smaps_rollup says nothing of memory")?;
    Ok(kilobytes * 1024.0)
}

fn kilobytes(rollup: &str) -> Option<f64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let text = "5 [rollup]\nRss:    4156 kB\nPss:     708 kB\nPss_Dirty: 1 kB\n";
        assert_eq!(kilobytes(text), Some(708.0));
        assert_eq!(kilobytes("Rss: 1 kB\n"), None);
        assert!(memory().unwrap() > 100_000.0);
    }

    #[test]
    fn a_file_is_mapped_or_is_not() {
        let program = std::env::current_exe().unwrap();
        assert!(is_mapped(&program, "self"));
        assert!(!is_mapped(Path::new("/nowhere/lockstep.so"), "self"));
    }

    #[test]
    fn the_time_of_other_processes_counts() {
        let stopwatch = Stopwatch::start();
        let sample = stopwatch.sample_with(Duration::from_secs(10), 5);
        assert!(
            sample.value >= 2.0 && sample.wall.unwrap() < 2.0,
            "{sample:?}"
        );
    }
}
