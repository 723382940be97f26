//! Programs that run while clients put load on a server: the server, and the programs that serve
//! it.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockstep_common::Failure;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::servers::{Server, Setup};
use super::{loaded, processes};
use crate::files::on;
use crate::measure::keep_to;

/// How long a program may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The CPUs of servers, and the CPUs of this process.
pub type Cpus<'a> = (&'a [usize], &'a [usize]);

/// A program in the background; ended when dropped.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program on the CPUs of servers, with a directory in which it logs, and works if the
    /// command names no other.
    pub fn start(
        name: &'static str,
        command: &mut Command,
        directory: &Path,
        (server_cpus, own_cpus): Cpus<'_>,
    ) -> Result<Process, Failure> {
        let log = directory.join("output.log");
        let output = File::create(&log).map_err(on(&log, "write"))?;
        let errors = output.try_clone().map_err(on(&log, "write"))?;
        if command.get_current_dir().is_none() {
            command.current_dir(directory);
        }
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        // A process starts where its parent's thread is.
        keep_to(server_cpus);
        let child = command.spawn();
        keep_to(own_cpus);
        let child = child.map_err(|error| Failure::new(format!("cannot start {name}: {error}")))?;
        Ok(Process { name, child, log })
    }

    /// Waits until it serves.
    pub fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        while !is_ready() {
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || start.elapsed() > PATIENCE {
                let (name, output) = (self.name, self.last_output());
                return Err(Failure::new(format!("{name} did not start: {output}")));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The last lines of its standard output, its standard error and its log.
    pub fn last_output(&self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let text = read(&self.log) + &read(&self.log.with_file_name("error.log"));
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => "it printed nothing".to_owned(),
            lines => lines[lines.len().saturating_sub(6)..].join("\n"),
        }
    }

    /// Fails if it has ended. `what` is added to its name.
    pub fn insist_on_running(&self, what: &str) -> Result<(), Failure> {
        if processes::is_running(self.child.id()) {
            return Ok(());
        }
        let (name, output) = (self.name, self.last_output());
        Err(Failure::new(format!(
            "{name}{what} ended under load. Its last output:\n{output}"
        )))
    }

    /// The numbers of it and of all below it.
    pub fn ids(&self) -> Vec<u32> {
        processes::ids(self.child.id())
    }

    /// CPU time that it and all below it have used so far.
    pub fn cpu_time(&self) -> Duration {
        processes::cpu_time(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let id = self.child.id();
        let signal = |signal| {
            let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
            // It may have ended by itself.
            pid.map(|pid| kill_process(pid, signal))
        };
        signal(Signal::TERM);
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if start.elapsed() > PATIENCE {
                processes::signal_descendants(id, Signal::KILL);
                signal(Signal::KILL);
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// A server that runs; ended when dropped.
pub struct Running {
    pub process: Process,
    pub address: SocketAddr,
    /// Where the module's counters are, with lockstep.
    pub counters: Option<PathBuf>,
}

impl Running {
    /// Starts a server, and waits until it accepts connections. `configuration` is the value of
    /// `OPENSSL_CONF`; without one the server has OpenSSL alone.
    pub fn start(
        server: &Server,
        setup: &Setup<'_>,
        configuration: Option<&Path>,
        cpus: Cpus<'_>,
    ) -> Result<Running, Failure> {
        fs::create_dir(&setup.directory).map_err(on(&setup.directory, "write"))?;
        let arguments = (server.prepare)(setup)?;
        let mut command = ended_with_us(setup.program);
        command.args(arguments).envs(setup.environment.clone());
        let address = (Ipv4Addr::LOCALHOST, setup.port).into();
        let place = (address, setup.directory.as_path());
        Running::launch(server.name, &mut command, place, configuration, cpus)
    }

    /// The same of any command: where it serves, and a directory for its log and its counters.
    pub fn launch(
        name: &'static str,
        command: &mut Command,
        (address, directory): (SocketAddr, &Path),
        configuration: Option<&Path>,
        cpus: Cpus<'_>,
    ) -> Result<Running, Failure> {
        command.env_remove("OPENSSL_CONF");
        let mut counters = None;
        if let Some(path) = configuration {
            let directory = counters_in(directory)?;
            command
                .env("OPENSSL_CONF", path)
                .env("LOCKSTEP_STATS_DIR", &directory)
                .env("LOCKSTEP_STATS_KEEP", "yes");
            counters = Some(directory);
        }
        let mut process = Process::start(name, command, directory, cpus)?;
        process.wait_until(|| TcpStream::connect(address).is_ok())?;
        Ok(Running {
            process,
            address,
            counters,
        })
    }

    /// The OpenSSL that it or a process below it has loaded, in OpenSSL's words.
    pub fn openssl(&self) -> Option<String> {
        self.process.ids().into_iter().find_map(loaded::openssl)
    }
}

/// Makes the directory in which a program publishes its counters.
pub fn counters_in(directory: &Path) -> Result<PathBuf, Failure> {
    let counters = directory.join("counters");
    fs::create_dir(&counters).map_err(on(&counters, "write"))?;
    // Programs that root starts may serve as somebody else.
    if geteuid().is_root() {
        let everybody = Permissions::from_mode(0o1777);
        fs::set_permissions(&counters, everybody).map_err(on(&counters, "write"))?;
    }
    Ok(counters)
}

/// A command that the kernel ends should we be killed before we can end it.
pub fn ended_with_us(program: &Path) -> Command {
    const WRAPPER: &str = "/usr/bin/setpriv";
    if !Path::new(WRAPPER).is_file() {
        return Command::new(program);
    }
    let mut command = Command::new(WRAPPER);
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// Reserves a port for a server that sets `SO_REUSEADDR`, as servers do.
///
/// A connection to the port stays in `TIME_WAIT` for a minute. Meanwhile the kernel gives the port
/// to nobody who asks for any port, be it another server of a test or a client.
pub fn free_port() -> Result<u16, Failure> {
    let reserve = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let client = TcpStream::connect(address)?;
        // The end that closes first has the `TIME_WAIT`.
        drop(listener.accept()?);
        drop(client);
        Ok(address.port())
    };
    reserve()
        .map_err(|error: io::Error| Failure::new(format!("no free port on 127.0.0.1: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_gives_a_reserved_port_to_nobody_else() {
        let reserved: Vec<u16> = (0..100).map(|_| free_port().unwrap()).collect();
        // As many as there are ports for all.
        for _ in 0..30_000 {
            let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert!(!reserved.contains(&other.local_addr().unwrap().port()));
        }
        TcpListener::bind((Ipv4Addr::LOCALHOST, reserved[0])).unwrap();
    }
}
