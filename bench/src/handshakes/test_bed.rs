//! Both servers and the clients, and which of them work when.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use lockstep_common::Failure;

use super::client::{Clients, Load};
use super::cores::Division;
use super::counters::Counters;
use super::demand::Demand;
use super::figures::{DaemonPart, Level, Pair, Round};
use super::identity::Identity;
use super::keyd::Daemon;
use super::options::Options;
use super::origin;
use super::parameters::Side;
use super::running::{Running, free_port};
use super::servers::Setup;
use crate::progress::Progress;

/// Both servers, and the clients.
pub struct TestBed<'a> {
    options: &'a Options,
    stock: Running,
    lockstep: Running,
    /// What computes with the key for the server with lockstep, if one does.
    daemon: Option<Daemon>,
    stock_clients: Clients,
    clients: Clients,
}

impl<'a> TestBed<'a> {
    /// Starts everything, and checks that lockstep serves the one server and not the other.
    pub fn new(
        options: &'a Options,
        program: &Path,
        (configuration, module): (&Path, &Path),
        division: &Division,
        scratch: &Path,
    ) -> Result<TestBed<'a>, Failure> {
        let server = options.server.server;
        let identity = Identity::make(options.key, scratch)?;
        // Apache's workers have no right to look into a directory of root's.
        fs::set_permissions(scratch, fs::Permissions::from_mode(0o711))
            .map_err(|error| Failure::new(format!("{}: {error}", scratch.display())))?;
        let most = options.most_connections();
        let page = options.page.unwrap_or(0);
        let origin = match server.is_proxy() {
            true => Some(origin::start(page, most + 8, &division.clients)?),
            false => None,
        };
        let cpus = (division.server.as_slice(), division.clients.as_slice());
        let daemon = options
            .keyd
            .map(|keyd| Daemon::start(keyd, module, &identity, &scratch.join("keyd"), cpus));
        let daemon = daemon.transpose()?;
        let start = |side: Side, configuration: Option<&Path>| {
            let daemon = daemon.as_ref().filter(|_| side == Side::Lockstep);
            let setup = Setup {
                program,
                directory: scratch.join(side.name()),
                port: free_port()?,
                identity: daemon.map_or(&identity, |daemon| &daemon.identity),
                version: options.version,
                group: options.group(side),
                side,
                workers: options.workers(division.server.len()).unwrap_or(1),
                clients: most,
                page,
                origin,
                environment: daemon.map_or(Vec::new(), |daemon| daemon.environment.clone()),
            };
            Running::start(server, &setup, configuration, cpus)
        };
        let clients = |side| {
            Clients::new(
                &identity.authority,
                options.version,
                options.group(side),
                options.resumption,
                &division.clients,
            )
        };
        let test_bed = TestBed {
            options,
            stock_clients: clients(Side::Stock)?,
            clients: clients(Side::Lockstep)?,
            stock: start(Side::Stock, None)?,
            lockstep: start(Side::Lockstep, Some(configuration))?,
            daemon,
        };
        test_bed.warm_up(most)?;
        // The servers have read the key. A daemon may look at the file again.
        if test_bed.daemon.is_none() {
            identity.forget_key()?;
        }
        Ok(test_bed)
    }

    /// The OpenSSL of the server that runs without lockstep, in OpenSSL's words.
    pub fn openssl(&self) -> Option<String> {
        self.stock.openssl()
    }

    /// The name of what makes the clients' connections.
    pub fn clients(&self) -> String {
        match (self.stock_clients.library(), self.clients.library()) {
            (stock, lockstep) if stock == lockstep => stock,
            (stock, lockstep) => format!("{stock}; with lockstep {lockstep}"),
        }
    }

    fn clients_of(&self, side: Side) -> &Clients {
        match side {
            Side::Stock => &self.stock_clients,
            Side::Lockstep => &self.clients,
        }
    }

    /// Lets each server do a few handshakes: none may fail, and lockstep must have been asked.
    fn warm_up(&self, most: usize) -> Result<(), Failure> {
        for side in Side::ALL {
            let load = Load {
                demand: Demand::Clients(most.min(8)),
                duration: Duration::from_millis(100),
                warm_up: Duration::ZERO,
                address: self.server(side).address,
                page: self.options.page,
            };
            let tally = self.clients_of(side).run(load)?;
            if tally.count() == 0 {
                let output = self.server(side).process.last_output();
                let (name, side) = (self.options.server.server.name(), side.name());
                let why = tally.examples.join("; ");
                return Err(Failure::new(format!(
                    "no handshake with {name} ({side}) succeeds: {why}. The last output of the \
                     server:\n{output}"
                )));
            }
        }
        self.insist_on_lanes(self.counters(Side::Lockstep)?.as_ref())
    }

    /// Refuses to compare OpenSSL with itself.
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
            true => "OpenSSL did not ask it for anything".to_owned(),
            false => reasons.join("; "),
        };
        let name = self.options.server.server.name();
        Err(Failure::new(format!(
            "lockstep did nothing in {name}, so OpenSSL would be compared with itself: {why}"
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
        let Some(directory) = self.server(side).counters.as_ref() else {
            return Ok(None);
        };
        let server = Counters::read(directory, self.options.key.shape())?;
        Ok(Some(match self.daemon(side) {
            Some(daemon) => server.plus(&daemon.counters(self.options.key)?),
            None => server,
        }))
    }

    /// The daemon, if it computes for this side.
    fn daemon(&self, side: Side) -> Option<&Daemon> {
        self.daemon.as_ref().filter(|_| side == Side::Lockstep)
    }

    /// What the daemon has done so far.
    fn daemon_part(&self, side: Side) -> Result<Option<DaemonPart>, Failure> {
        let part = |daemon: &Daemon| {
            Ok(DaemonPart {
                cpu: daemon.cpu_time(),
                signatures: daemon.counters(self.options.key)?.signatures(),
            })
        };
        self.daemon(side).map(part).transpose()
    }

    /// All rounds under one load.
    pub fn measure(&self, demand: Demand) -> Result<Level, Failure> {
        let words = demand.words();
        let mut progress = Progress::new(&words);
        let mut level = Level {
            demand,
            handshakes: Pair::default(),
            transactions: self.options.page.map(|_| Pair::default()),
        };
        for number in 0..self.options.rounds {
            // The side that begins runs at the clock that the load before has left: the sides take
            // turns at beginning, too.
            let mut sides = Side::ALL;
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
                    let round = self.turn(side, demand, page)?;
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

    fn turn(&self, side: Side, demand: Demand, page: Option<u64>) -> Result<Round, Failure> {
        let server = self.server(side);
        let load = Load {
            address: server.address,
            demand,
            duration: self.options.turn,
            warm_up: self.options.warm_up(),
            page,
        };
        let (cpu, counters) = (server.process.cpu_time(), self.counters(side)?);
        let daemon = self.daemon_part(side)?;
        let tally = self.clients_of(side).run(load)?;
        let what = format!(" ({})", side.name());
        server.process.insist_on_running(&what)?;
        if let Some(daemon) = self.daemon(side) {
            daemon.insist_on_running()?;
        }
        let cpu = server.process.cpu_time().saturating_sub(cpu);
        let daemon = match (self.daemon_part(side)?, daemon) {
            (Some(after), Some(before)) => Some(after.since(before)),
            _ => None,
        };
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
            daemon,
        })
    }
}
