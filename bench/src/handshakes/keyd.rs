//! The key daemon that computes for a server under load.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use lockstep_common::{Failure, beside};
use rustix::process::geteuid;

use super::counters::Counters;
use super::identity::{Identity, Kind};
use super::running::{Cpus, Process, counters_in, ended_with_us};

/// What the key daemon has to do with the server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keyd {
    /// The server has a reference in the place of the key
    Reference,
    /// The server has the key, and the daemon, too: the setting `keys` is daemon
    Daemon,
}

impl Keyd {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Keyd::Reference => "reference",
            Keyd::Daemon => "daemon",
        }
    }
}

/// The name of the key in the daemon.
const KEY: &str = "server";

/// The daemon that runs, and holds the server's key.
pub struct Daemon {
    process: Process,
    counters: PathBuf,
    /// The files of a server that uses it.
    pub identity: Identity,
    /// The settings of the module in that server.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Daemon {
    /// Starts it in a directory of its own, and waits until it offers the key.
    pub fn start(
        keyd: Keyd,
        module: &Path,
        identity: &Identity,
        directory: &Path,
        cpus: Cpus<'_>,
    ) -> Result<Daemon, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format!(
                "cannot write below {}: {error}",
                directory.display()
            ))
        };
        fs::create_dir(directory).map_err(failed)?;
        let counters = counters_in(directory)?;
        let socket = directory.join("keyd.sock");
        let configuration = directory.join("keyd.conf");
        // It stays root if root starts it: the kernel would forget that it is to end with us.
        // Apache's workers are nobody then.
        let users = match geteuid() {
            user if user.is_root() => "root nobody".to_owned(),
            user => user.as_raw().to_string(),
        };
        let text = format!(
            "socket = {}\nuser = root\n\n[key {KEY}]\nfile = {}\nusers = {users}\nuses = sign\n",
            socket.display(),
            identity.key.display()
        );
        fs::write(&configuration, text).map_err(failed)?;

        let program = find(module)?;
        let arguments = [
            "keyd".into(),
            "--config".into(),
            configuration.into_os_string(),
        ];
        let mut command = ended_with_us(&program);
        command
            .args(&arguments)
            .env("LOCKSTEP_STATS_DIR", &counters);
        let mut process = Process::start("lockstep keyd", &mut command, directory, cpus)?;
        let offers = || {
            let mut command = Command::new(&program);
            command.args(&arguments).arg("keys").stdin(Stdio::null());
            let output = command.output();
            output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
        };
        process.wait_until(offers)?;

        let (identity, keys) = match keyd {
            Keyd::Reference => {
                let mut command = Command::new(&program);
                command.args(&arguments).args(["export-reference", KEY]);
                let output = command.output().map_err(failed)?;
                if !output.status.success() {
                    let why = String::from_utf8_lossy(&output.stderr).into_owned();
                    return Err(Failure::new(format!("there is no reference: {why}")));
                }
                let references = Some(("LOCKSTEP_REFERENCES", "yes".into()));
                (identity.with_key(&output.stdout, directory)?, references)
            }
            _ => (
                identity.clone(),
                Some(("LOCKSTEP_KEYS", keyd.name().into())),
            ),
        };
        let environment = [("LOCKSTEP_KEYD_SOCKET", socket.into_os_string())];
        Ok(Daemon {
            process,
            counters,
            identity,
            environment: environment.into_iter().chain(keys).collect(),
        })
    }

    /// CPU time that it has used so far.
    pub fn cpu_time(&self) -> Duration {
        self.process.cpu_time()
    }

    /// Its counters so far.
    pub fn counters(&self, kind: Kind) -> Result<Counters, Failure> {
        Counters::read(&self.counters, kind.shape())
    }

    /// Fails if it has ended.
    pub fn insist_on_running(&self) -> Result<(), Failure> {
        self.process.insist_on_running("")
    }
}

/// The program `lockstep`: the one beside the module, or else the one beside this program, or else
/// the installed one.
fn find(module: &Path) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|directory| directory.join("lockstep"));
    [Some(module.with_file_name("lockstep")), beside("lockstep")]
        .into_iter()
        .flatten()
        .chain(installed)
        .find(|program| program.is_file())
        .ok_or_else(|| {
            Failure::new("there is no program `lockstep`, which is the key daemon")
                .remedy("put it beside this program, or into a directory of PATH")
        })
}
