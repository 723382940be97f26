//! Both servers and the clients, and which of them work when.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lockstep_common::Failure;
use lockstep_engine::Fallback;
use rustls::pki_types::ServerName;

use super::client::{Clients, Load};
use super::cores::Division;
use super::counters::Counters;
use super::demand::Demand;
use super::figures::{DaemonPart, Level, Pair, Round};
use super::identity::{HOST, Identity, Kind, host};
use super::keyd::Daemon;
use super::options::Options;
use super::origin;
use super::over_rustls::{Client, Trust};
use super::own::Own;
use super::parameters::Side;
use super::running::{Running, ended_with_us, free_port};
use super::servers::Setup;
use crate::files::{on, open_to_others};
use crate::progress::Progress;

/// Both servers, and the clients.
pub struct TestBed<'a> {
    options: &'a Options,
    servers: Servers<'a>,
    /// The kind of the servers' key.
    pub key: Kind,
    /// The daemon that computes with the key for the server with lockstep, if one does.
    daemon: Option<Daemon>,
    /// By the sides that they come to.
    clients: [Clients; 2],
}

/// The servers without lockstep and with it.
enum Servers<'a> {
    /// Both run all the time.
    Both(Box<[Running; 2]>),
    /// Both have the user's ports: each is started for its turn.
    Own(Box<InTurn<'a>>),
}

/// The start of a server with the user's configuration.
struct InTurn<'a> {
    own: Own,
    program: &'a Path,
    configuration: &'a Path,
    cpus: (&'a [usize], &'a [usize]),
    scratch: &'a Path,
    /// How often one has been started.
    starts: Cell<usize>,
    openssl: Option<String>,
}

impl InTurn<'_> {
    fn start(&self, side: Side) -> Result<Running, Failure> {
        self.own.insist_on_free()?;
        let number = self.starts.replace(self.starts.get() + 1);
        let directory = self.scratch.join(format!("{}-{number}", side.name()));
        fs::create_dir(&directory).map_err(on(&directory, "create"))?;
        let mut command = ended_with_us(self.program);
        command.args(self.own.arguments());
        // Files may be named from where the user stands.
        let here = std::env::current_dir();
        command.current_dir(here.map_err(on(Path::new("."), "find"))?);
        let configuration = (side == Side::Lockstep).then_some(self.configuration);
        let place = (self.own.address, directory.as_path());
        Running::launch("haproxy", &mut command, place, configuration, self.cpus)
    }
}

impl<'a> TestBed<'a> {
    /// Starts everything, and checks that lockstep serves the one server and not the other.
    pub fn new(
        options: &'a Options,
        program: &'a Path,
        (configuration, module): (&'a Path, &'a Path),
        division: &'a Division,
        scratch: &'a Path,
    ) -> Result<TestBed<'a>, Failure> {
        if let Some(path) = &options.config {
            let own = Own::read(path, options.connect.as_deref())?;
            own.check(program)?;
            return TestBed::in_turn(options, own, program, configuration, division, scratch);
        }
        let server = options.server.server;
        let identity = Identity::make(options.key, scratch)?;
        // Apache's workers have no right to look into a directory of root's.
        open_to_others(scratch)?;
        let most = options.most_connections();
        let page = options.page.unwrap_or(0);
        let origin = match server.is_proxy {
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
        let trust = Trust::Authority(&identity.authority);
        let clients = |side| clients(options, trust, &host(HOST)?, side, &division.clients);
        let test_bed = TestBed {
            options,
            clients: [clients(Side::Stock)?, clients(Side::Lockstep)?],
            servers: Servers::Both(Box::new([
                start(Side::Stock, None)?,
                start(Side::Lockstep, Some(configuration))?,
            ])),
            key: options.key,
            daemon,
        };
        for side in Side::ALL {
            test_bed.with_server(side, |server| test_bed.warm_up(side, server))?;
        }
        // The servers have read the key. A daemon may look at the file again.
        if test_bed.daemon.is_none() {
            identity.forget_key()?;
        }
        Ok(test_bed)
    }

    /// Both sides with the user's configuration. A server shows the kind of its key.
    fn in_turn(
        options: &'a Options,
        own: Own,
        program: &'a Path,
        configuration: &'a Path,
        division: &'a Division,
        scratch: &'a Path,
    ) -> Result<TestBed<'a>, Failure> {
        // The server may serve as somebody else.
        open_to_others(scratch)?;
        let clients = |side| clients(options, Trust::Any, &own.name, side, &division.clients);
        let clients = [clients(Side::Stock)?, clients(Side::Lockstep)?];
        let mut in_turn = InTurn {
            own,
            program,
            configuration,
            cpus: (&division.server, &division.clients),
            scratch,
            starts: Cell::new(0),
            openssl: None,
        };
        let running = in_turn.start(Side::Stock)?;
        in_turn.openssl = running.openssl();
        let key = in_turn.own.kind(options.version, options.group)?;
        drop(running);
        let test_bed = TestBed {
            options,
            servers: Servers::Own(Box::new(in_turn)),
            key,
            daemon: None,
            clients,
        };
        for side in Side::ALL {
            test_bed.with_server(side, |_| Ok(()))?;
        }
        Ok(test_bed)
    }

    /// The OpenSSL of the server that runs without lockstep, in OpenSSL's words.
    pub fn openssl(&self) -> Option<String> {
        match &self.servers {
            Servers::Both(servers) => servers[Side::Stock as usize].openssl(),
            Servers::Own(in_turn) => in_turn.openssl.clone(),
        }
    }

    /// The server of a side, which runs, or is started and has served some handshakes.
    fn with_server<R>(
        &self,
        side: Side,
        use_it: impl FnOnce(&Running) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        match &self.servers {
            Servers::Both(servers) => use_it(&servers[side as usize]),
            Servers::Own(in_turn) => {
                let server = in_turn.start(side)?;
                self.warm_up(side, &server)?;
                use_it(&server)
            }
        }
    }

    /// Lets a server do a few handshakes: none may fail, and lockstep must have done something.
    /// OpenSSL serves the first requests of each process, so it may take some more.
    fn warm_up(&self, side: Side, server: &Running) -> Result<(), Failure> {
        /// How often the clients come again.
        const MOST: usize = 20;
        let load = Load {
            demand: Demand::Clients(self.options.most_connections().min(8)),
            duration: Duration::from_millis(100),
            warm_up: Duration::ZERO,
            address: server.address,
            page: self.options.page,
        };
        for turn in 1.. {
            let tally = self.clients[side as usize].run(load)?;
            if tally.count() == 0 {
                let output = server.process.last_output();
                let (name, side) = (self.options.server.server.name, side.name());
                let why = tally.examples.join("; ");
                return Err(Failure::new(format!(
                    "no handshake with {name} ({side}) succeeds: {why}. The last output of the \
                     server:\n{output}"
                )));
            }
            if side == Side::Stock {
                break;
            }
            let counters = self.counters(side, server)?;
            let is_new = |counters: &Counters| {
                let mut reasons = counters.fallbacks();
                counters.operations() == 0 && reasons.any(|(reason, _)| reason == Fallback::First)
            };
            if turn == MOST || !counters.as_ref().is_some_and(is_new) {
                return self.insist_on_lanes(counters.as_ref());
            }
        }
        Ok(())
    }

    /// Refuses to compare OpenSSL with itself.
    fn insist_on_lanes(&self, counters: Option<&Counters>) -> Result<(), Failure> {
        let is_as_expected = |counters: &Counters| {
            let mut reasons = counters.fallbacks();
            match self.options.server.server.is_left_alone() {
                true => reasons.any(|(reason, _)| reason == Fallback::SharedMemory),
                false => counters.operations() > 0,
            }
        };
        if counters.is_some_and(is_as_expected) {
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
        let name = self.options.server.server.name;
        Err(Failure::new(format!(
            "lockstep did nothing in {name}, so OpenSSL would be compared with itself: {why}"
        ))
        .remedy("lockstep doctor"))
    }

    fn counters(&self, side: Side, server: &Running) -> Result<Option<Counters>, Failure> {
        let Some(directory) = server.counters.as_ref() else {
            return Ok(None);
        };
        let server = Counters::read(directory, self.key.shape())?;
        Ok(Some(match self.daemon(side) {
            Some(daemon) => server.plus(&daemon.counters(self.key)?),
            None => server,
        }))
    }

    /// The daemon, if it computes for this side.
    fn daemon(&self, side: Side) -> Option<&Daemon> {
        self.daemon.as_ref().filter(|_| side == Side::Lockstep)
    }

    /// The daemon's work so far.
    fn daemon_part(&self, side: Side) -> Result<Option<DaemonPart>, Failure> {
        let part = |daemon: &Daemon| {
            Ok(DaemonPart {
                cpu: daemon.cpu_time(),
                signatures: daemon.counters(self.key)?.signatures(),
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
                    let turn = |server: &Running| self.turn(side, server, demand, page);
                    let round = self.with_server(side, turn)?;
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

    fn turn(
        &self,
        side: Side,
        server: &Running,
        demand: Demand,
        page: Option<u64>,
    ) -> Result<Round, Failure> {
        let load = Load {
            address: server.address,
            demand,
            duration: self.options.turn,
            warm_up: self.options.warm_up(),
            page,
        };
        let (cpu, counters) = (server.process.cpu_time(), self.counters(side, server)?);
        let daemon = self.daemon_part(side)?;
        let tally = self.clients[side as usize].run(load)?;
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
        let counters = match (self.counters(side, server)?, counters) {
            (Some(after), Some(before)) => Some(after.since(&before)),
            _ => None,
        };
        let is_left_alone = self.options.server.server.is_left_alone();
        if counters.is_some() && tally.count() > 0 && !is_left_alone {
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

/// The clients of one side, which come to this host.
fn clients(
    options: &Options,
    trust: Trust<'_>,
    host: &ServerName<'static>,
    side: Side,
    cpus: &[usize],
) -> Result<Clients, Failure> {
    let (version, group) = (options.version, options.group(side));
    let mut client = Client::new(trust, version, group, host.clone())?;
    client.upgrade = options.server.server.upgrade();
    Ok(Clients::new(client, cpus))
}
