//! Starts the processes that are measured, with lockstep and without, and insists that it is so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockstep_common::{Failure, program};

use super::cases::{self, Case, Service, Way, Work};
use super::figures::mean;
use super::forked::{self, Ended};
use super::material::Material;
use super::service::{Running, Start};
use super::work::{self, EARLY, Said, Sample};
use crate::files::on;
use crate::handshakes::{Client, Counters, Identity, Kind, Side, counters_in};

/// Seconds of CPU time for which one process of a case is started, about.
const PROCESS: f64 = 0.01;

/// The fewest processes of a figure.
const FEWEST: usize = 3;

/// Seconds of CPU time that a connection takes, about.
const CONNECTION: f64 = 0.002;

/// The surroundings of the processes.
pub struct Bed<'a> {
    /// This program.
    pub program: PathBuf,
    /// The `openssl` command.
    pub openssl: PathBuf,
    pub configuration: &'a Path,
    pub module: &'a Path,
    /// A directory for servers, which others may enter.
    pub scratch: &'a Path,
    /// The directory of the material.
    pub directory: PathBuf,
    pub material: Material,
    /// CPU time for a figure.
    pub time: Duration,
    /// How many hosts there are.
    pub hosts: usize,
    /// The servers that run, by the names of their cases: without lockstep, and with it.
    pub services: RefCell<BTreeMap<&'static str, Vec<Running>>>,
}

impl Bed<'_> {
    /// Has a program have lockstep or not.
    fn environment(&self, command: &mut Command, side: Side) {
        work::use_configuration(command, self.configuration_of(side));
    }

    fn configuration_of(&self, side: Side) -> Option<&Path> {
        (side == Side::Lockstep).then_some(self.configuration)
    }

    /// One figure for each row of a case.
    pub fn measure(&self, case: &Case, side: Side) -> Result<Vec<Sample>, Failure> {
        match case.way {
            Way::Again(Work::ForkedHandshake(kind), _) => self.forked(case, side, kind),
            Way::Again(_, times) => Ok(self.own(case, side, self.time * times)?.samples),
            Way::First(_) => {
                let count = ((self.time.as_secs_f64() / PROCESS) as usize).max(FEWEST);
                let samples = (0..count).map(|_| Ok(self.own(case, side, self.time)?.samples));
                let samples: Vec<Sample> = samples.collect::<Result<Vec<_>, _>>()?.concat();
                Ok(vec![mean(&samples)])
            }
            Way::Process(Work::Inetd(kind)) => self.processes(|| self.inetd(case, side, kind)),
            Way::Process(_) => self.processes(|| {
                let mut command = self.start(case, side, Duration::ZERO, false);
                run(command.stdin(Stdio::null()).stdout(Stdio::null()))
            }),
            Way::Command(arguments) => self.processes(|| {
                let mut command = Command::new(&self.openssl);
                self.environment(&mut command, side);
                command.args(arguments.split(' '));
                command.current_dir(&self.directory);
                command.stdin(Stdio::null()).stdout(Stdio::null());
                run(command.stderr(Stdio::null()))
            }),
            Way::Server(..) => self.visit(case, side),
        }
    }

    /// Fails unless the processes of a case have the module on the side that should have it, and
    /// not on the other one. Processes that take their own time report it in each turn.
    pub fn prove(&self, case: &Case) -> Result<(), Failure> {
        for side in Side::ALL {
            let has_module = match case.way {
                // Whatever they do later, all of them start alike.
                Way::Process(_) => Some(self.own(cases::start(), side, Duration::ZERO)?.has_module),
                Way::Command(_) => Some(self.openssl_has_module(side)?),
                Way::Server(service, kind) => Some(self.start_service(case, side, service, kind)?),
                Way::Again(..) | Way::First(_) => None,
            };
            if let Some(has_module) = has_module {
                self.insist(side, has_module, case.name())?;
            }
        }
        Ok(())
    }

    /// How many requests the module has counted in processes that sign, on each side: none alone,
    /// and some with it.
    pub fn prove_by_counters(&self, case: &Case) -> Result<[u64; 2], Failure> {
        let mut counted = [0; 2];
        for side in Side::ALL {
            let place = self.scratch.join(format!("proof-{}", side.name()));
            std::fs::create_dir(&place).map_err(on(&place, "create"))?;
            let directory = counters_in(&place)?;
            let mut command = self.start(case, side, Duration::ZERO, true);
            command.env("LOCKSTEP_STATS_DIR", &directory);
            command.env("LOCKSTEP_STATS_KEEP", "yes");
            self.said(command.output(), case, side)?;
            let counters = Counters::read(&directory, Kind::Ed25519.shape())?;
            let declined: u64 = counters.fallbacks().map(|(_, count)| count).sum();
            let asked = counters.operations() + declined;
            counted[side as usize] = asked;
            self.insist(
                side,
                asked > 0,
                &format!("{} ({asked} counted)", case.name()),
            )?;
        }
        Ok(counted)
    }

    /// The version that the `openssl` command says.
    pub fn version(&self) -> Option<String> {
        let mut command = Command::new(&self.openssl);
        self.environment(&mut command, Side::Stock);
        let output = command.arg("version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().next().map(str::to_owned)
    }

    /// Runs a process of this program that takes its own time.
    fn own(&self, case: &Case, side: Side, time: Duration) -> Result<Said, Failure> {
        let mut command = self.start(case, side, time, true);
        self.said(command.stdin(Stdio::null()).output(), case, side)
    }

    /// The report of a process, which has the module or not, as it should.
    fn said(&self, output: io::Result<Output>, case: &Case, side: Side) -> Result<Said, Failure> {
        let output = output.map_err(|error| failed(case, side, &error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = text
            .lines()
            .last()
            .and_then(|line| serde_json::from_str::<Said>(line).ok());
        match said.filter(|_| output.status.success()) {
            Some(said) => {
                self.insist(side, said.has_module, case.name())?;
                Ok(said)
            }
            None => Err(failed(case, side, &String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// This program, to do the work of a case.
    fn start(&self, case: &Case, side: Side, time: Duration, look: bool) -> Command {
        let look = look.then_some(self.module);
        let count = match case.way {
            Way::Again(Work::Hosts, _) => self.hosts,
            _ => self.connections(),
        };
        let mut command = Command::new(&self.program);
        let name = case.name();
        command.args(work::arguments(name, &self.directory, time, count, look));
        self.environment(&mut command, side);
        command
    }

    fn connections(&self) -> usize {
        ((self.time.as_secs_f64() / CONNECTION) as usize).max(FEWEST)
    }

    /// A process each, until they have used the time.
    fn processes(&self, one: impl Fn() -> Result<Ended, Failure>) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::new();
        let mut used = 0.0;
        while used < self.time.as_secs_f64() || samples.len() < FEWEST {
            let start = Instant::now();
            let ended = one()?;
            let value = ended.cpu.as_secs_f64();
            samples.push(Sample {
                value,
                wall: Some(start.elapsed().as_secs_f64()),
            });
            used += value;
        }
        Ok(vec![mean(&samples)])
    }

    /// One process that serves the connection which is its standard input.
    fn inetd(&self, case: &Case, side: Side, kind: Kind) -> Result<Ended, Failure> {
        let broken = |error: io::Error| failed(case, side, &error.to_string());
        let client = self.identity(kind)?.client("x25519")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(broken)?;
        let socket = listener
            .local_addr()
            .and_then(Client::connect)
            .map_err(broken)?;
        let (accepted, _) = listener.accept().map_err(broken)?;
        let mut command = self.start(case, side, Duration::ZERO, false);
        command.stdin(OwnedFd::from(accepted)).stdout(Stdio::null());
        let child = command.spawn().map_err(broken)?;
        // The command keeps the other end of the connection open.
        drop(command);
        let visited = client.handshake(socket).and_then(Client::leave);
        let ended = forked::ended(child).map_err(broken)?;
        visited.map_err(|why| failed(case, side, &why))?;
        match ended.status.success() {
            true => Ok(ended),
            false => Err(failed(case, side, &ended.status.to_string())),
        }
    }

    /// One process that forks for each connection to the socket that is its standard input.
    fn forked(&self, case: &Case, side: Side, kind: Kind) -> Result<Vec<Sample>, Failure> {
        let broken = |error: io::Error| failed(case, side, &error.to_string());
        let client = self.identity(kind)?.client("x25519")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(broken)?;
        let address = listener.local_addr().map_err(broken)?;
        let mut command = self.start(case, side, Duration::ZERO, true);
        command.stdin(OwnedFd::from(listener));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(broken)?;
        drop(command);
        let visited = (0..self.connections() + EARLY).try_for_each(|_| {
            let socket = Client::connect(address).map_err(|error| error.to_string())?;
            Client::leave(client.handshake(socket)?)
        });
        if visited.is_err() {
            // It would wait for the next connection.
            let _ = child.kill();
        }
        let output = child.wait_with_output();
        visited.map_err(|why| failed(case, side, &why))?;
        Ok(self.said(output, case, side)?.samples)
    }

    /// Starts a server; says whether it has the module.
    fn start_service(
        &self,
        case: &Case,
        side: Side,
        service: Service,
        kind: Kind,
    ) -> Result<bool, Failure> {
        let name = case.name();
        let running = service.start(&Start {
            name,
            identity: self.identity(kind)?,
            kind,
            place: self.scratch.join(format!("{name}-{}", side.name())),
            configuration: self.configuration_of(side),
        })?;
        let mut processes = running.processes().into_iter();
        let has_module = processes.any(|id| work::is_mapped(self.module, &id.to_string()));
        let mut services = self.services.borrow_mut();
        services.entry(name).or_default().push(running);
        Ok(has_module)
    }

    /// Connections to the server of a case.
    fn visit(&self, case: &Case, side: Side) -> Result<Vec<Sample>, Failure> {
        let services = self.services.borrow();
        let both = services.get(case.name());
        let server = both.and_then(|both| both.get(side as usize));
        let server = server.ok_or_else(|| failed(case, side, "it does not run"))?;
        let sample = server.connections(self.time);
        Ok(vec![sample.map_err(|why| failed(case, side, &why))?])
    }

    fn identity(&self, kind: Kind) -> Result<&Identity, Failure> {
        let identity = self.material.identity(kind);
        identity.ok_or_else(|| Failure::new("there is no such key"))
    }

    fn openssl_has_module(&self, side: Side) -> Result<bool, Failure> {
        let mut command = Command::new(&self.openssl);
        self.environment(&mut command, side);
        command.args(["list", "-providers"]).stdin(Stdio::null());
        let output = command.output().map_err(|error| {
            Failure::new(format!("cannot start {}: {error}", self.openssl.display()))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().any(|line| line.trim() == "lockstep"))
    }

    /// Fails if OpenSSL would be compared with itself, or lockstep with itself.
    fn insist(&self, side: Side, has_module: bool, what: &str) -> Result<(), Failure> {
        match has_module == (side == Side::Lockstep) {
            true => Ok(()),
            false => Err(self.not_compared(side, has_module, what)),
        }
    }

    fn not_compared(&self, side: Side, has_module: bool, what: &str) -> Failure {
        let (module, shown) = (self.module.display(), self.configuration.display());
        match (side, has_module) {
            (Side::Lockstep, _) => Failure::new(format!(
                "{what}: with OPENSSL_CONF={shown} a program does not use {module}, so OpenSSL \
                 would be compared with itself"
            ))
            .remedy("lockstep doctor"),
            (Side::Stock, _) => Failure::new(format!(
                "{what}: a program uses {module} without OPENSSL_CONF, so lockstep would be \
                 compared with itself"
            ))
            .remedy(
                "take lockstep out of the system's openssl.cnf while this runs: lockstep uninstall",
            ),
        }
    }
}

fn failed(case: &Case, side: Side, why: &str) -> Failure {
    let (name, side) = (case.name(), side.name());
    Failure::new(format!("{name} ({side}) failed: {}", why.trim()))
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<Ended, Failure> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let shown = words.join(" ");
    let broken = |error: std::io::Error| Failure::new(format!("cannot run {shown}: {error}"));
    let child = command.spawn().map_err(broken)?;
    let ended = forked::ended(child).map_err(broken)?;
    match ended.status.success() {
        true => Ok(ended),
        false => Err(Failure::new(format!("{shown}: {}", ended.status))),
    }
}

/// Where the `openssl` command is.
pub fn openssl(named: Option<&Path>) -> PathBuf {
    match named {
        Some(path) => path.to_owned(),
        None => program("openssl").get_program().into(),
    }
}
