//! The servers: how each is configured and started, without any privilege, in the foreground.
//!
//! Their configurations hold what is needed for one certificate on a loopback port, and for
//! lockstep the directives that `docs/user/servers` recommends; all else is as the server has it by
//! default.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockstep_common::Failure;
use lockstep_engine::Setting;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::client::insist_on;
use super::identity::Identity;
use super::parameters::{Group, Side, Version};
use super::{embedded, loaded, origin, processes};
use crate::measure::keep_to;

/// How long a server may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every server, in the order of the help.
pub const ALL: [&dyn Server; 5] = [&Embedded, &Haproxy, &Apache, &Nginx, &Stunnel];

/// A kind of server that can be put under load.
pub trait Server: Sync {
    /// As the command line has it.
    fn name(&self) -> &'static str;

    /// What its program may be called, and the Debian package it comes in; without a name it is
    /// this program.
    fn program(&self) -> (&'static [&'static str], &'static str);

    /// What has its program print its version.
    fn version_option(&self) -> &'static str;

    /// Whether pages come from a server behind it.
    fn is_proxy(&self) -> bool;

    /// Writes what it needs into its directory; returns the arguments to start it with.
    fn prepare(&self, setup: &Setup<'_>) -> Result<Vec<OsString>, Failure>;
}

/// What a server is to be like.
pub struct Setup<'a> {
    pub program: &'a Path,
    /// A directory of its own.
    pub directory: PathBuf,
    pub port: u16,
    pub identity: &'a Identity,
    pub version: Version,
    pub group: &'a Group,
    pub side: Side,
    /// How many CPUs it may use.
    pub cpus: usize,
    /// How many clients come at a time.
    pub clients: usize,
    /// The length of the page.
    pub page: u64,
    /// Where a proxy finds it.
    pub origin: Option<SocketAddr>,
}

impl Setup<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes the configuration file; returns its path.
    fn write(&self, text: &str) -> Result<PathBuf, Failure> {
        let path = self.at("server.conf");
        fs::write(&path, text).map_err(on(&path))?;
        Ok(path)
    }

    /// Writes the page into a directory that holds nothing else; returns that.
    fn write_page(&self) -> Result<PathBuf, Failure> {
        let root = self.at("pages");
        let path = root.join(origin::PATH.trim_start_matches('/'));
        let page: Vec<u8> = origin::page(self.page).collect();
        fs::create_dir(&root)
            .and_then(|()| fs::write(&path, page))
            .map_err(on(&path))?;
        Ok(root)
    }

    fn origin(&self) -> Result<SocketAddr, Failure> {
        self.origin
            .ok_or_else(|| Failure::new("there is no server behind the proxy"))
    }
}

fn on(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::new(format!("cannot write {}: {error}", path.display()))
}

/// The server in this program.
struct Embedded;

impl Server for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn program(&self) -> (&'static [&'static str], &'static str) {
        (&[], "")
    }

    fn version_option(&self) -> &'static str {
        "--version"
    }

    fn is_proxy(&self) -> bool {
        false
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
        let Setup {
            port,
            clients,
            page,
            version,
            group,
            identity,
            side,
            ..
        } = setup;
        if *side == Side::Stock {
            insist_on(group)?;
        }
        let arguments = embedded::arguments(*port, *clients, *page, *version, group);
        let files = [&identity.certificate, &identity.key].map(OsString::from);
        Ok(arguments
            .map(OsString::from)
            .into_iter()
            .chain(files)
            .collect())
    }
}

/// HAProxy. With lockstep its handshakes are async jobs; with OpenSSL alone it has its defaults.
struct Haproxy;

impl Server for Haproxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn program(&self) -> (&'static [&'static str], &'static str) {
        (&["haproxy"], "haproxy")
    }

    fn version_option(&self) -> &'static str {
        "-v"
    }

    fn is_proxy(&self) -> bool {
        true
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
        let (port, cpus) = (setup.port, setup.cpus);
        let (certificate, origin) = (setup.identity.both.display(), setup.origin()?);
        let version = setup.version.of_servers();
        let curve = setup.group.of_openssl();
        let asynchronous = match setup.side {
            Side::Stock => "",
            Side::Lockstep => "    ssl-mode-async\n",
        };
        let path = setup.write(&format!(
            "global
    nbthread {cpus}
    maxconn 8192
{asynchronous}
defaults
    mode http
    option http-ignore-probes
    timeout connect 10s
    timeout client 30s
    timeout server 30s

frontend tls
    bind 127.0.0.1:{port} ssl crt {certificate} ssl-min-ver {version} ssl-max-ver {version} curves {curve}
    default_backend origin

backend origin
    server origin {origin}
"
        ))?;
        Ok(vec!["-db".into(), "-q".into(), "-f".into(), path.into()])
    }
}

/// Apache httpd with the event MPM: one process, a thread for each client.
struct Apache;

impl Server for Apache {
    fn name(&self) -> &'static str {
        "apache"
    }

    fn program(&self) -> (&'static [&'static str], &'static str) {
        (&["apache2", "httpd"], "apache2")
    }

    fn version_option(&self) -> &'static str {
        "-v"
    }

    fn is_proxy(&self) -> bool {
        false
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
        let mut text = String::new();
        let modules = modules(setup.program)?;
        for module in ["mpm_event", "authz_core", "unixd", "ssl"] {
            let path = modules.join(format!("mod_{module}.so"));
            // Some are part of the program.
            if path.is_file() {
                let path = path.display();
                let _ = writeln!(text, "LoadModule {module}_module {path}");
            }
        }
        if geteuid().is_root() {
            // It refuses to serve as root.
            text.push_str("User nobody\nGroup nogroup\n");
        }
        let directory = setup.directory.display();
        let port = setup.port;
        let threads = setup.clients.max(25);
        let (certificate, key) = (
            setup.identity.certificate.display(),
            setup.identity.key.display(),
        );
        let version = setup.version.of_servers();
        let curve = setup.group.of_openssl();
        let pages = setup.write_page()?;
        let pages = pages.display();
        let _ = write!(
            text,
            "ServerRoot {directory}
DefaultRuntimeDir {directory}
PidFile {directory}/pid
ErrorLog {directory}/error.log
LogLevel warn
ServerName localhost
Listen 127.0.0.1:{port}
StartServers 1
ServerLimit 1
ThreadLimit {threads}
ThreadsPerChild {threads}
MinSpareThreads {threads}
MaxSpareThreads {threads}
MaxRequestWorkers {threads}
DocumentRoot {pages}
SSLEngine on
SSLCertificateFile {certificate}
SSLCertificateKeyFile {key}
SSLProtocol {version}
SSLOpenSSLConfCmd Groups {curve}
"
        );
        let path = setup.write(&text)?;
        Ok(vec![
            "-D".into(),
            "FOREGROUND".into(),
            "-f".into(),
            path.into(),
        ])
    }
}

/// The modules of the same installation of Apache as this program.
fn modules(program: &Path) -> Result<PathBuf, Failure> {
    // Debian and Fedora have them below `lib`, Apache's own installation beside `bin`.
    let prefix = program.parent().and_then(Path::parent);
    let places = ["lib/apache2/modules", "lib64/httpd/modules", "modules"];
    prefix
        .into_iter()
        .flat_map(|prefix| places.map(|place| prefix.join(place)))
        .find(|modules| modules.is_dir())
        .ok_or_else(|| {
            let program = program.display();
            Failure::new(format!(
                "the modules of {program} are not where Apache has them"
            ))
            .remedy("apt install apache2, or name the program of a whole installation")
        })
}

/// nginx, a worker for each CPU.
struct Nginx;

impl Server for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn program(&self) -> (&'static [&'static str], &'static str) {
        (&["nginx"], "nginx-light")
    }

    fn version_option(&self) -> &'static str {
        "-v"
    }

    fn is_proxy(&self) -> bool {
        false
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
        let (directory, port, cpus) = (setup.directory.display(), setup.port, setup.cpus);
        let (certificate, key) = (
            setup.identity.certificate.display(),
            setup.identity.key.display(),
        );
        let version = setup.version.of_servers();
        let curve = setup.group.of_openssl();
        // Its master may be root, and then its workers are another user unless configured.
        let user = match geteuid().is_root() {
            true => "user root;\n",
            false => "",
        };
        // nginx cleans the environment of its workers.
        let environment: String = Setting::ALL
            .iter()
            .map(|setting| format!("env LOCKSTEP_{};\n", setting.name.to_uppercase()))
            .collect();
        let pages = setup.write_page()?;
        let pages = pages.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("    {kind}_temp_path {directory}/{kind};\n"))
            .collect();
        let path = setup.write(&format!(
            "{user}daemon off;
worker_processes {cpus};
pid {directory}/pid;
error_log {directory}/error.log warn;
env OPENSSL_CONF;
{environment}
events {{
    worker_connections 8192;
}}

http {{
    access_log off;
{temporary}
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols {version};
        ssl_ecdh_curve {curve};
        root {pages};
    }}
}}
"
        ))?;
        Ok(vec![
            "-e".into(),
            setup.at("error.log").into(),
            "-c".into(),
            path.into(),
        ])
    }
}

/// stunnel: a thread for each connection.
struct Stunnel;

impl Server for Stunnel {
    fn name(&self) -> &'static str {
        "stunnel"
    }

    fn program(&self) -> (&'static [&'static str], &'static str) {
        (&["stunnel", "stunnel4"], "stunnel4")
    }

    fn version_option(&self) -> &'static str {
        "-version"
    }

    fn is_proxy(&self) -> bool {
        true
    }

    fn prepare(&self, setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
        let (port, origin) = (setup.port, setup.origin()?);
        let (certificate, key) = (
            setup.identity.certificate.display(),
            setup.identity.key.display(),
        );
        let version = setup.version.of_servers();
        let curve = setup.group.of_openssl();
        let path = setup.write(&format!(
            "foreground = yes
pid =
syslog = no
debug = warning

[tls]
accept = 127.0.0.1:{port}
connect = {origin}
cert = {certificate}
key = {key}
sslVersion = {version}
curves = {curve}
"
        ))?;
        Ok(vec![path.into()])
    }
}

/// A server that runs; ended when dropped.
pub struct Running {
    child: Child,
    pub address: SocketAddr,
    /// Where the module's counters are, with lockstep.
    pub counters: Option<PathBuf>,
    log: PathBuf,
}

impl Running {
    /// Starts a server on these CPUs, and waits until it accepts connections. `configuration` is
    /// what `OPENSSL_CONF` is to name; without one the server has OpenSSL alone.
    pub fn start(
        server: &dyn Server,
        setup: &Setup<'_>,
        configuration: Option<&Path>,
        (server_cpus, own_cpus): (&[usize], &[usize]),
    ) -> Result<Running, Failure> {
        fs::create_dir(&setup.directory).map_err(on(&setup.directory))?;
        let arguments = server.prepare(setup)?;
        let log = setup.at("output.log");
        let output = File::create(&log).map_err(on(&log))?;
        let errors = output.try_clone().map_err(on(&log))?;

        let mut command = ended_with_us(setup.program);
        command.args(arguments).current_dir(&setup.directory);
        command.env_remove("OPENSSL_CONF");
        let counters = configuration.map(|_| setup.at("counters"));
        if let (Some(path), Some(counters)) = (configuration, &counters) {
            fs::create_dir(counters).map_err(on(counters))?;
            // Servers that root starts may serve as somebody else.
            if geteuid().is_root() {
                let everybody = Permissions::from_mode(0o1777);
                fs::set_permissions(counters, everybody).map_err(on(counters))?;
            }
            command
                .env("OPENSSL_CONF", path)
                .env("LOCKSTEP_STATS_DIR", counters)
                .env("LOCKSTEP_STATS_KEEP", "yes");
        }
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        // A process starts where its parent's thread is.
        keep_to(server_cpus);
        let child = command.spawn();
        keep_to(own_cpus);
        let child = child
            .map_err(|error| Failure::new(format!("cannot start {}: {error}", server.name())))?;
        let mut running = Running {
            child,
            address: (Ipv4Addr::LOCALHOST, setup.port).into(),
            counters,
            log,
        };
        running.wait_until_ready(server.name())?;
        Ok(running)
    }

    fn wait_until_ready(&mut self, name: &str) -> Result<(), Failure> {
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || start.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "{name} did not start: {}",
                    self.last_output()
                )));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The last lines of what the server wrote to standard output and error, and to its log.
    pub fn last_output(&self) -> String {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let text = read(&self.log) + &read(&self.log.with_file_name("error.log"));
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => "it printed nothing".to_owned(),
            lines => lines[lines.len().saturating_sub(6)..].join("\n"),
        }
    }

    /// The OpenSSL that it has loaded, in OpenSSL's words.
    pub fn openssl(&self) -> Option<String> {
        loaded::openssl(self.child.id())
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        processes::is_running(self.child.id())
    }

    /// CPU time that it has used so far.
    pub fn cpu_time(&self) -> Duration {
        processes::cpu_time(self.child.id())
    }
}

impl Drop for Running {
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

/// A command that the kernel ends should we be killed before we can end it.
fn ended_with_us(program: &Path) -> Command {
    const WRAPPER: &str = "/usr/bin/setpriv";
    if !Path::new(WRAPPER).is_file() {
        return Command::new(program);
    }
    let mut command = Command::new(WRAPPER);
    command.args(["--pdeathsig", "TERM"]).arg(program);
    command
}

/// A port on which nobody listens now.
pub fn free_port() -> Result<u16, Failure> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Failure::new(format!("no free port on 127.0.0.1: {error}")))
}
