//! `lockstep handshakes`: real TLS servers under load, stock and with lockstep, side by side.
//!
//! Both servers run all the time, each its own process on its own port, and are put under load in
//! turn; the one that is not has nothing to do. The clients are [ours](client), on CPUs of their
//! own.

mod client;
mod cores;
mod counters;
mod embedded;
mod figures;
mod html;
mod identity;
mod origin;
mod processes;
mod report;
mod servers;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use openssl::ssl::SslVersion;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::configuration::Configuration;
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::speed::measure::keep_to;
use crate::{Failure, Outcome};
use client::{Clients, Load};
use cores::Division;
use counters::Counters;
use figures::{Level, Pair, Round};
use identity::Identity;
use report::Report;
use servers::{Running, Server, Setup};

pub use embedded::{COMMAND as SERVER, main as serve};

const HELP: &str = "\
Puts a TLS server under load, stock and with lockstep in turn, and compares them.

Usage: lockstep handshakes [OPTIONS]

Options:
  --server NAME        embedded (default: threads over libssl, in this program), haproxy, apache,
                       nginx or stunnel, as the distribution has them
  --key KIND           rsa2048 (default), rsa3072, rsa4096, p256, p384 or ed25519
  --group NAME         x25519 (default), p256 or p384
  --tls VERSION        1.3 (default) or 1.2
  --concurrency LIST   clients at a time, 1 to 1024 (default 1,2,4,8,32,64)
  --resumption RATIO   the share of handshakes that offer a session, 0 to 1 (default 0)
  --transfer SIZE      also fetch a page of this size, as in 230K, and tell what share of the server's
                       CPU time is the handshake's; K is 1024 bytes and M 1024 K
  --rounds N           how often each server has its turn (default 3)
  --seconds S          how long a turn lasts (default 1)
  --warm-up S          latencies of handshakes that begin in the first S seconds of a turn are left out
                       (default a quarter of the turn, at most 0.25)
  --json [FILE]        one JSON document, in place of the table, or in a file besides
  --html FILE          a report with plots, in one file

The main figure is the CPU time that the server needs for a handshake, the kernel's part included: it
is the same whatever else the machine does. Clients and server are kept on different CPUs. Each
handshake is a full one but for --resumption, on a connection of its own; latency is from connecting to
its end. The configuration that loads lockstep is the one that OPENSSL_CONF names, or else the
openssl.cnf beside this program. The exit status is 1 if a handshake failed.
";

/// How long the load warms up if nothing else is asked for, and turns are long enough.
const LONGEST_WARM_UP: Duration = Duration::from_millis(250);

/// With or without the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Stock,
    Lockstep,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Stock => "stock",
            Side::Lockstep => "lockstep",
        }
    }
}

/// The version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Tls12,
    Tls13,
}

impl Version {
    const ALL: [Version; 2] = [Version::Tls12, Version::Tls13];

    fn called(name: &str) -> Option<Version> {
        Version::ALL
            .into_iter()
            .find(|version| version.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Version::Tls12 => "1.2",
            Version::Tls13 => "1.3",
        }
    }

    fn of_libssl(self) -> SslVersion {
        match self {
            Version::Tls12 => SslVersion::TLS1_2,
            Version::Tls13 => SslVersion::TLS1_3,
        }
    }

    /// As all configuration files have it.
    fn of_servers(self) -> &'static str {
        match self {
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }
}

/// The group of the key agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    X25519,
    P256,
    P384,
}

impl Group {
    const ALL: [Group; 3] = [Group::X25519, Group::P256, Group::P384];

    fn called(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Group::X25519 => "x25519",
            Group::P256 => "p256",
            Group::P384 => "p384",
        }
    }

    fn of_openssl(self) -> &'static str {
        match self {
            Group::X25519 => "X25519",
            Group::P256 => "P-256",
            Group::P384 => "P-384",
        }
    }
}

/// What the command line asks for.
struct Options {
    server: &'static dyn Server,
    key: identity::Kind,
    group: Group,
    version: Version,
    concurrency: Vec<usize>,
    resumption: f64,
    page: Option<u64>,
    rounds: usize,
    turn: Duration,
    warm_up: Option<Duration>,
    json: Option<Document>,
    html: Option<PathBuf>,
}

/// Where the JSON document goes.
enum Document {
    Output,
    File(PathBuf),
}

/// Runs the command with the arguments behind its name.
pub fn main(arguments: lexopt::Parser) -> Outcome {
    let Some(options) = Options::parse(arguments)? else {
        out!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    options.server.find()?;
    let configuration = Configuration::find()?;
    configuration.module()?;
    let configuration = fs::canonicalize(configuration.path())
        .map_err(|error| Failure::new(format!("{}: {error}", configuration.path().display())))?;

    let most = options.concurrency.iter().copied().max().unwrap_or(1);
    raise_file_limit(most)?;
    let division = Division::of_this_process();
    keep_to(&division.clients);
    let scratch = Scratch::new("handshakes")?;
    let arena = Arena::new(&options, &configuration, &division, scratch.path())?;
    let mut levels = Vec::new();
    for &concurrency in &options.concurrency {
        levels.push(arena.measure(concurrency)?);
    }
    drop(arena);

    let report = Report::new(&options, &division, levels);
    match &options.json {
        Some(Document::Output) => outln!("{}", report.to_json()),
        Some(Document::File(path)) => write(path, &(report.to_json() + "\n"))?,
        None => {}
    }
    if !matches!(options.json, Some(Document::Output)) {
        out!("{}", report.to_table());
    }
    if let Some(path) = &options.html {
        write(path, &html::page(&report))?;
    }
    Ok(match report.failures() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Lets this process and the servers have as many files open as so many clients need: a proxy has
/// two for each, and so has this process, which is behind the proxy too.
fn raise_file_limit(clients: usize) -> Result<(), Failure> {
    let needed = 2 * clients as u64 + 64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        ..limit
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        Failure::new(format!("{clients} clients need {needed} open files"))
            .remedy(format!("lower --concurrency, or ulimit -n {needed}"))
    })
}

/// Both servers, and the clients.
struct Arena<'a> {
    options: &'a Options,
    clients: Clients,
    stock: Running,
    lockstep: Running,
}

impl<'a> Arena<'a> {
    /// Starts everything, and sees to it that lockstep is where it should be.
    fn new(
        options: &'a Options,
        configuration: &Path,
        division: &Division,
        scratch: &Path,
    ) -> Result<Arena<'a>, Failure> {
        let identity = Identity::make(options.key, scratch)?;
        // Apache's workers have no right to look into a directory of root's.
        fs::set_permissions(scratch, fs::Permissions::from_mode(0o711))
            .map_err(|error| Failure::new(format!("{}: {error}", scratch.display())))?;
        let most = options.concurrency.iter().copied().max().unwrap_or(1);
        let page = options.page.unwrap_or(0);
        let origin = match options.server.is_proxy() {
            true => Some(origin::start(page, most + 8, &division.clients)?),
            false => None,
        };
        let start = |side: Side, configuration: Option<&Path>| {
            let setup = Setup {
                directory: scratch.join(side.name()),
                port: servers::free_port()?,
                identity: &identity,
                version: options.version,
                group: options.group,
                side,
                cpus: division.server.len(),
                clients: most,
                page,
                origin,
            };
            let cpus = (division.server.as_slice(), division.clients.as_slice());
            Running::start(options.server, &setup, configuration, cpus)
        };
        let arena = Arena {
            options,
            clients: Clients::new(
                &identity.authority,
                options.version,
                options.group,
                options.resumption,
                &division.clients,
            )?,
            stock: start(Side::Stock, None)?,
            lockstep: start(Side::Lockstep, Some(configuration))?,
        };
        arena.warm_up(most)?;
        Ok(arena)
    }

    /// Lets each server do a few handshakes: none may fail, and lockstep must have been asked.
    fn warm_up(&self, most: usize) -> Result<(), Failure> {
        for side in [Side::Stock, Side::Lockstep] {
            let load = Load {
                concurrency: most.min(8),
                duration: Duration::from_millis(100),
                warm_up: Duration::ZERO,
                address: self.server(side).address,
                page: self.options.page,
            };
            let tally = self.clients.run(load)?;
            if tally.count() == 0 {
                let said = self.server(side).said();
                let (name, side) = (self.options.server.name(), side.name());
                let why = tally.examples.join("; ");
                return Err(Failure::new(format!(
                    "no handshake with {name} ({side}) succeeds: {why}\n{said}"
                )));
            }
        }
        self.insist_on_lanes(self.counters(Side::Lockstep)?.as_ref())
    }

    /// Refuses to compare stock with stock.
    fn insist_on_lanes(&self, counters: Option<&Counters>) -> Result<(), Failure> {
        if counters.is_some_and(|counters| counters.operations() > 0) {
            return Ok(());
        }
        let reasons: Vec<&str> = counters
            .into_iter()
            .flat_map(Counters::fallbacks)
            .map(|(reason, _)| reason.description())
            .collect();
        let why = match reasons.is_empty() {
            true => "it was not asked".to_owned(),
            false => reasons.join("; "),
        };
        let name = self.options.server.name();
        Err(Failure::new(format!(
            "lockstep did nothing in {name}, which would compare stock with stock: {why}"
        ))
        .remedy("lockstep doctor"))
    }

    fn server(&self, side: Side) -> &Running {
        match side {
            Side::Stock => &self.stock,
            Side::Lockstep => &self.lockstep,
        }
    }

    fn counters(&self, side: Side) -> Result<Option<Counters>, Failure> {
        let directory = self.server(side).counters.as_ref();
        directory
            .map(|directory| Counters::read(directory, self.options.key.shape()))
            .transpose()
    }

    /// All rounds with so many clients at a time.
    fn measure(&self, concurrency: usize) -> Result<Level, Failure> {
        let clients = match concurrency {
            1 => "1 client".to_owned(),
            many => format!("{many} clients"),
        };
        let mut progress = Progress::new(&clients);
        let mut level = Level {
            concurrency,
            handshakes: Pair::default(),
            transactions: self.options.page.map(|_| Pair::default()),
        };
        for number in 0..self.options.rounds {
            // Who begins has the clock of what was before: they take turns at that, too.
            let mut sides = [Side::Stock, Side::Lockstep];
            sides.rotate_left(number % 2);
            for (page, pair) in [
                (None, Some(&mut level.handshakes)),
                (self.options.page, level.transactions.as_mut()),
            ] {
                let Some(pair) = pair else { continue };
                for side in sides {
                    let name = side.name();
                    let rounds = self.options.rounds;
                    progress.show(&format!("round {} of {rounds}, {name}", number + 1));
                    let round = self.turn(side, concurrency, page)?;
                    let figures = match side {
                        Side::Stock => &mut pair.stock,
                        Side::Lockstep => &mut pair.lockstep,
                    };
                    figures.rounds.push(round);
                }
            }
        }
        progress.finish();
        Ok(level)
    }

    fn turn(&self, side: Side, concurrency: usize, page: Option<u64>) -> Result<Round, Failure> {
        let server = self.server(side);
        let load = Load {
            address: server.address,
            concurrency,
            duration: self.options.turn,
            warm_up: self.options.warm_up(),
            page,
        };
        let (cpu, counters) = (server.cpu_time(), self.counters(side)?);
        let tally = self.clients.run(load)?;
        if !server.is_running() {
            let (name, side, said) = (self.options.server.name(), side.name(), server.said());
            return Err(Failure::new(format!(
                "{name} ({side}) died under load:\n{said}"
            )));
        }
        let cpu = server.cpu_time().saturating_sub(cpu);
        let counters = match (self.counters(side)?, counters) {
            (Some(after), Some(before)) => Some(after.since(&before)),
            _ => None,
        };
        if counters.is_some() && tally.resumed < tally.count() as u64 {
            self.insist_on_lanes(counters.as_ref())?;
        }
        Ok(Round {
            tally,
            cpu,
            counters,
        })
    }
}

impl Options {
    /// How long a turn's load warms up.
    fn warm_up(&self) -> Duration {
        self.warm_up
            .unwrap_or_else(|| LONGEST_WARM_UP.min(self.turn / 4))
    }

    /// `None` if help is wanted.
    fn parse(mut arguments: lexopt::Parser) -> Result<Option<Options>, Failure> {
        use lexopt::prelude::*;
        let mut options = Options {
            server: servers::ALL[0],
            key: identity::Kind::ALL[0],
            group: Group::X25519,
            version: Version::Tls13,
            concurrency: vec![1, 2, 4, 8, 32, 64],
            resumption: 0.0,
            page: None,
            rounds: 3,
            turn: Duration::from_secs(1),
            warm_up: None,
            json: None,
            html: None,
        };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("server") => {
                    options.server = choice(
                        "server",
                        servers::ALL,
                        |server| server.name(),
                        &mut arguments,
                    )?;
                }
                Long("key") => {
                    options.key =
                        choice("key", identity::Kind::ALL, |key| key.name(), &mut arguments)?;
                }
                Long("group") => {
                    options.group =
                        choice("group", Group::ALL, |group| group.name(), &mut arguments)?;
                }
                Long("tls") => {
                    options.version = choice(
                        "tls",
                        Version::ALL,
                        |version| version.name(),
                        &mut arguments,
                    )?;
                }
                Long("concurrency") => {
                    let list = arguments.value()?.string()?;
                    let numbers = list.split(',').map(|number| number.trim().parse().ok());
                    options.concurrency = numbers
                        .map(|number| number.filter(|number| (1..=1024).contains(number)))
                        .collect::<Option<_>>()
                        .ok_or_else(|| {
                            Failure::usage(
                                "--concurrency takes numbers from 1 to 1024, as in 1,8,64",
                            )
                        })?;
                }
                Long("resumption") => {
                    options.resumption = number(&mut arguments, 0.0..=1.0)
                        .ok_or_else(|| Failure::usage("--resumption takes a number from 0 to 1"))?;
                }
                Long("transfer") => {
                    let text = arguments.value()?.string()?;
                    options.page = Some(size(&text).ok_or_else(|| {
                        Failure::usage("--transfer takes a size from 1 to 64M, as in 230K")
                    })?);
                }
                Long("rounds") => {
                    options.rounds = number(&mut arguments, 1.0..=1000.0)
                        .filter(|rounds| rounds.fract() == 0.0)
                        .ok_or_else(|| Failure::usage("--rounds takes a number from 1 to 1000"))?
                        as usize;
                }
                Long("seconds") => {
                    options.turn = number(&mut arguments, 0.05..=3600.0)
                        .map(Duration::from_secs_f64)
                        .ok_or_else(|| {
                            Failure::usage("--seconds takes a number from 0.05 to 3600")
                        })?;
                }
                Long("warm-up") => {
                    options.warm_up =
                        number(&mut arguments, 0.0..=3600.0).map(Duration::from_secs_f64);
                    if options.warm_up.is_none() {
                        return Err(Failure::usage("--warm-up takes a number from 0 to 3600"));
                    }
                }
                Long("json") => options.json = Some(document(&mut arguments)),
                Long("html") => options.html = Some(arguments.value()?.into()),
                Short('h') | Long("help") => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        if options.warm_up() >= options.turn {
            return Err(Failure::usage(
                "--warm-up takes less than the --seconds of a turn",
            ));
        }
        Ok(Some(options))
    }
}

/// The value of an option, one of a few.
fn choice<T: Copy, const N: usize>(
    option: &str,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
    arguments: &mut lexopt::Parser,
) -> Result<T, Failure> {
    let value = arguments.value()?;
    let chosen = all.into_iter().find(|&one| value == name(one));
    chosen.ok_or_else(|| {
        let names = all.map(&name).join(", ");
        let value = value.display();
        Failure::usage(format!("--{option} takes one of {names}, not `{value}`"))
    })
}

fn number(arguments: &mut lexopt::Parser, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
    let value = arguments.value().ok()?;
    let number = value.to_str()?.parse().ok()?;
    range.contains(&number).then_some(number)
}

/// Bytes, as in 230K.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    let size = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=64 << 20).contains(&size).then_some(size)
}

/// The value that `--json` may have.
fn document(arguments: &mut lexopt::Parser) -> Document {
    if let Some(path) = arguments.optional_value() {
        return Document::File(path.into());
    }
    let next = arguments.try_raw_args().and_then(|mut rest| {
        rest.next_if(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
    });
    next.map_or(Document::Output, |path| Document::File(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("230K"), Some(230 << 10));
        assert_eq!(size("2m"), Some(2 << 20));
        assert_eq!(size("17"), Some(17));
        for bad in [
            "",
            "0",
            "K",
            "-1",
            "1.5M",
            "65M",
            "17G",
            "99999999999999999999K",
        ] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }
}
