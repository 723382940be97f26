//! The servers: how each is configured and started, without any privilege, in the foreground.
//!
//! Their configurations hold the lines for one certificate on a loopback port, and for lockstep the
//! directives that `docs/user/servers` recommends; everything else is the server's default.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use lockstep_common::Failure;
use lockstep_engine::Setting;
use rustix::process::geteuid;

use super::identity::Identity;
use super::origin;
use super::parameters::{Group, Side, Version};
use crate::files::on;

/// Every server, in the order of the help.
pub static ALL: [Server; 14] = [
    Server {
        name: "embedded",
        programs: &[],
        package: "",
        version_option: "--version",
        is_proxy: false,
        has_workers: false,
        prepare: embedded,
    },
    Server {
        name: "haproxy",
        programs: &["haproxy"],
        package: "haproxy",
        version_option: "-v",
        is_proxy: true,
        has_workers: true,
        prepare: haproxy,
    },
    Server {
        name: "apache",
        programs: &["apache2", "httpd"],
        package: "apache2",
        version_option: "-v",
        is_proxy: false,
        has_workers: false,
        prepare: apache,
    },
    Server {
        name: "nginx",
        programs: &["nginx"],
        package: "nginx-light",
        version_option: "-v",
        is_proxy: false,
        has_workers: true,
        prepare: nginx,
    },
    Server {
        name: "stunnel",
        programs: &["stunnel", "stunnel4"],
        package: "stunnel4",
        version_option: "-version",
        is_proxy: true,
        has_workers: false,
        prepare: stunnel,
    },
    Server {
        name: "trafficserver",
        programs: &["traffic_server"],
        package: "trafficserver",
        version_option: "--version",
        is_proxy: true,
        has_workers: true,
        prepare: traffic_server,
    },
    Server {
        name: "dnsdist",
        programs: &["dnsdist"],
        package: "dnsdist",
        version_option: "--version",
        is_proxy: false,
        has_workers: false,
        prepare: |setup| setup.by_template(DNSDIST, &["--supervised", "-C", "@CONF@"]),
    },
    Server {
        name: "hitch",
        programs: &["hitch"],
        package: "hitch",
        version_option: "--version",
        is_proxy: true,
        has_workers: true,
        prepare: |setup| {
            // It refuses to serve as root.
            let user = match geteuid().is_root() {
                true => "user = \"nobody\"\n",
                false => "",
            };
            setup.by_template(&format!("{HITCH}{user}"), &["--config=@CONF@"])
        },
    },
    Server {
        name: "lighttpd",
        programs: &["lighttpd"],
        package: "lighttpd lighttpd-mod-openssl",
        version_option: "-v",
        is_proxy: false,
        has_workers: false,
        prepare: |setup| {
            setup.write_page()?;
            setup.by_template(LIGHTTPD, &["-D", "-f", "@CONF@"])
        },
    },
    Server {
        name: "mosquitto",
        programs: &["mosquitto"],
        package: "mosquitto",
        version_option: "-h",
        is_proxy: false,
        has_workers: false,
        prepare: |setup| setup.by_template(MOSQUITTO, &["-c", "@CONF@"]),
    },
    Server {
        name: "redis",
        programs: &["redis-server"],
        package: "redis-server",
        version_option: "--version",
        is_proxy: false,
        has_workers: false,
        prepare: |setup| setup.by_template(REDIS, &["@CONF@"]),
    },
    Server {
        name: "mariadb",
        programs: &["mariadbd"],
        package: "mariadb-server-core",
        version_option: "--version",
        is_proxy: false,
        has_workers: false,
        prepare: |setup| {
            let user = match geteuid().is_root() {
                true => "user = root\n",
                false => "",
            };
            let conf = "--defaults-file=@CONF@";
            setup.by_template(&format!("{MARIADB}{user}"), &[conf])
        },
    },
    Server {
        name: "dovecot",
        programs: &["dovecot"],
        package: "dovecot-imapd",
        version_option: "--version",
        is_proxy: false,
        has_workers: true,
        prepare: |setup| setup.by_template(DOVECOT, &["-F", "-c", "@CONF@"]),
    },
    Server {
        name: "kamailio",
        programs: &["kamailio"],
        package: "kamailio kamailio-tls-modules",
        version_option: "-v",
        is_proxy: false,
        has_workers: true,
        prepare: kamailio,
    },
];

/// DNS over TLS: a pool of threads, each with an event loop. Nobody asks it anything.
const DNSDIST: &str = "\
setSecurityPollSuffix('')
setLocal('127.0.0.2:@PORT@')
addTLSLocal('127.0.0.1:@PORT@', '@CERTIFICATE@', '@KEY@', {provider='openssl'})
addAction(AllRule(), RCodeAction(DNSRCode.REFUSED))
";

const HITCH: &str = "\
frontend = \"[127.0.0.1]:@PORT@\"
backend = \"[127.0.0.1]:@ORIGIN@\"
pem-file = \"@BOTH@\"
workers = @WORKERS@
daemon = off
";

const LIGHTTPD: &str = "\
server.modules = (\"mod_openssl\")
server.bind = \"127.0.0.1\"
server.port = @PORT@
server.document-root = \"@DIRECTORY@/pages\"
ssl.engine = \"enable\"
ssl.pemfile = \"@CERTIFICATE@\"
ssl.privkey = \"@KEY@\"
";

const MOSQUITTO: &str = "\
listener @PORT@ 127.0.0.1
certfile @CERTIFICATE@
keyfile @KEY@
allow_anonymous true
user root
";

const REDIS: &str = "\
bind 127.0.0.1
port 0
tls-port @PORT@
tls-cert-file @CERTIFICATE@
tls-key-file @KEY@
tls-auth-clients no
dir @DIRECTORY@
save \"\"
";

/// A thread for each connection. It needs no tables for one that never logs in.
const MARIADB: &str = "\
[mysqld]
bind-address = 127.0.0.1
port = @PORT@
socket = @DIRECTORY@/socket
datadir = @DIRECTORY@
tmpdir = @DIRECTORY@
ssl_cert = @CERTIFICATE@
ssl_key = @KEY@
skip-grant-tables
skip-networking = OFF
skip-name-resolve
innodb = OFF
default-storage-engine = Aria
max_connections = 2000
log_warnings = 1
";

/// IMAP over TLS, as busy sites have it: by default a login process serves one connection.
const DOVECOT: &str = "\
base_dir = @DIRECTORY@/run
log_path = /dev/stderr
protocols = imap
ssl = required
ssl_cert = <@CERTIFICATE@
ssl_key = <@KEY@
import_environment = PATH OPENSSL_CONF LOCKSTEP_STATS_DIR LOCKSTEP_STATS_KEEP
passdb {
  driver = static
  args = nopassword=y
}
service imap-login {
  chroot =
  service_count = 0
  process_min_avail = @WORKERS@
  process_limit = @WORKERS@
  inet_listener imap {
    port = 0
  }
  inet_listener imaps {
    address = 127.0.0.1
    port = @PORT@
    ssl = yes
  }
}
";

const KAMAILIO: &str = "\
#!KAMAILIO
children=1
tcp_children=@WORKERS@
tcp_max_connections=4096
tls_max_connections=4096
enable_tls=yes
listen=tls:127.0.0.1:@PORT@
mpath=\"/usr/lib/x86_64-linux-gnu/kamailio/modules/\"
loadmodule \"tls.so\"
loadmodule \"sl.so\"
modparam(\"tls\", \"config\", \"@DIRECTORY@/tls.cfg\")
request_route {
    sl_send_reply(\"200\", \"OK\");
}
";

/// A kind of server that can be put under load.
pub struct Server {
    /// As the command line has it.
    pub name: &'static str,
    /// Possible names of its program; without a name it is this program.
    pub programs: &'static [&'static str],
    /// The Debian package that it comes in.
    pub package: &'static str,
    /// The option by which its program prints its version.
    pub version_option: &'static str,
    /// Whether pages come from a server behind it.
    pub is_proxy: bool,
    /// Whether it has a number of workers that does not follow from that of its clients.
    pub has_workers: bool,
    /// Writes its files into its directory; returns the arguments to start it with.
    pub prepare: fn(&Setup<'_>) -> Result<Vec<OsString>, Failure>,
}

/// Properties that a server should have.
pub struct Setup<'a> {
    pub program: &'a Path,
    /// A directory of its own.
    pub directory: PathBuf,
    pub port: u16,
    pub identity: &'a Identity,
    pub version: Version,
    pub group: Group,
    pub side: Side,
    /// How many threads or processes of it serve, where it has workers.
    pub workers: usize,
    /// How many clients come at a time.
    pub clients: usize,
    /// The length of the page.
    pub page: u64,
    /// Where a proxy finds it.
    pub origin: Option<SocketAddr>,
    /// Variables that it is started with.
    pub environment: Vec<(&'static str, OsString)>,
}

impl Server {
    /// A client's answer to the server's greeting, before TLS begins.
    pub fn upgrade(&self) -> Option<&'static [u8]> {
        // MariaDB: 32 bytes and number 1; protocol of version 4.1, with TLS; the longest packet;
        // UTF-8. The rest is reserved.
        const REQUEST: &[u8; 36] =
            b"\x20\0\0\x01\0\x8a\0\0\0\0\0\x01\x21\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        (self.name == "mariadb").then_some(REQUEST)
    }

    /// Whether the module leaves everything to OpenSSL there, because processes share memory.
    pub fn is_left_alone(&self) -> bool {
        self.name == "kamailio"
    }
}

impl Setup<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes the configuration file; returns its path.
    fn write(&self, text: &str) -> Result<PathBuf, Failure> {
        let path = self.at("server.conf");
        fs::write(&path, text).map_err(on(&path, "write"))?;
        Ok(path)
    }

    /// Writes a configuration by a template, and returns arguments by these ones.
    fn by_template(&self, template: &str, arguments: &[&str]) -> Result<Vec<OsString>, Failure> {
        let [certificate, key, _, _] = self.words();
        let origin = self.origin.map_or(0, |origin| origin.port());
        let filled = |text: &str| {
            text.replace("@PORT@", &self.port.to_string())
                .replace("@ORIGIN@", &origin.to_string())
                .replace("@DIRECTORY@", &self.directory.display().to_string())
                .replace("@CERTIFICATE@", &certificate)
                .replace("@KEY@", &key)
                .replace("@BOTH@", &self.identity.both.display().to_string())
                .replace("@WORKERS@", &self.workers.to_string())
        };
        let path = self.write(&filled(template))?.display().to_string();
        let arguments = arguments.iter();
        Ok(arguments
            .map(|word| word.replace("@CONF@", &path).into())
            .collect())
    }

    /// Writes the page into a directory that holds nothing else; returns that.
    fn write_page(&self) -> Result<PathBuf, Failure> {
        let root = self.at("pages");
        let path = root.join(origin::PATH.trim_start_matches('/'));
        let page: Vec<u8> = origin::page(self.page).collect();
        fs::create_dir(&root)
            .and_then(|()| fs::write(&path, page))
            .map_err(on(&path, "write"))?;
        Ok(root)
    }

    /// Certificate, key, version and group, as configuration files have them.
    fn words(&self) -> [String; 4] {
        let [certificate, key] =
            [&self.identity.certificate, &self.identity.key].map(|path| path.display().to_string());
        let version = self.version.of_servers().to_owned();
        [certificate, key, version, self.group.of_openssl.to_owned()]
    }

    fn origin(&self) -> Result<SocketAddr, Failure> {
        self.origin
            .ok_or_else(|| Failure::new("there is no server behind the proxy"))
    }
}

/// The server in this program.
fn embedded(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
    if setup.side == Side::Stock {
        super::embedded::insist_on(setup.group)?;
    }
    let words = [
        super::embedded::COMMAND.to_owned(),
        setup.port.to_string(),
        setup.clients.to_string(),
        setup.page.to_string(),
        setup.version.name().to_owned(),
        setup.group.of_openssl.to_owned(),
    ];
    let files = [&setup.identity.certificate, &setup.identity.key].map(OsString::from);
    Ok(words.map(OsString::from).into_iter().chain(files).collect())
}

/// HAProxy. With lockstep its handshakes are async jobs; with OpenSSL alone it has its defaults.
fn haproxy(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
    let (port, workers) = (setup.port, setup.workers);
    let (certificate, origin) = (setup.identity.both.display(), setup.origin()?);
    let version = setup.version.of_servers();
    let curve = setup.group.of_openssl;
    let asynchronous = match setup.side {
        Side::Stock => "",
        Side::Lockstep => "    ssl-mode-async\n",
    };
    let path = setup.write(&format!(
        "global
    nbthread {workers}
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

/// Apache httpd with the event MPM: one process, a thread for each client.
fn apache(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
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
    let [certificate, key, version, curve] = setup.words();
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

/// nginx.
fn nginx(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
    let (directory, port, workers) = (setup.directory.display(), setup.port, setup.workers);
    let [certificate, key, version, curve] = setup.words();
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
worker_processes {workers};
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

/// stunnel: a thread for each connection.
fn stunnel(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
    let (port, origin) = (setup.port, setup.origin()?);
    let [certificate, key, version, curve] = setup.words();
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

/// Traffic Server without its manager. With lockstep its handshakes are async jobs.
fn traffic_server(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
    let (directory, port, workers) = (setup.directory.display(), setup.port, setup.workers);
    let [certificate, key, _, curve] = setup.words();
    let asynchronous = u8::from(setup.side == Side::Lockstep);
    let origin = setup.origin()?;
    // All of its directories; without these options it takes the system's.
    let runroot = [
        "prefix",
        "sysconfdir",
        "localstatedir",
        "runtimedir",
        "logdir",
        "cachedir",
    ];
    let runroot = runroot
        .map(|name| format!("{name}: {directory}\n"))
        .concat();
    for (name, text) in [
        (
            "records.config",
            format!(
                "CONFIG proxy.config.http.server_ports STRING {port}:ssl
CONFIG proxy.config.ssl.async.handshake.enabled INT {asynchronous}
CONFIG proxy.config.ssl.server.groups_list STRING {curve}
CONFIG proxy.config.exec_thread.autoconfig.enabled INT 0
CONFIG proxy.config.exec_thread.limit INT {workers}
CONFIG proxy.config.local_state_dir STRING {directory}
CONFIG proxy.config.log.logfile_dir STRING {directory}
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.http.cache.http INT 0
CONFIG proxy.config.http.insert_response_via_str INT 0
"
            ),
        ),
        (
            "ssl_multicert.config",
            format!("dest_ip=* ssl_cert_name={certificate} ssl_key_name={key}\n"),
        ),
        ("remap.config", format!("map / http://{origin}/\n")),
        (
            "ip_allow.yaml",
            "ip_allow:\n  - {apply: in, ip_addrs: 127.0.0.1, action: allow, methods: ALL}\n"
                .to_owned(),
        ),
        ("storage.config", format!("{directory} 16M\n")),
        ("runroot.yaml", runroot),
    ] {
        let path = setup.at(name);
        fs::write(&path, text).map_err(on(&path, "write"))?;
    }
    let run_root = format!("--run-root={directory}");
    Ok(vec![run_root.into()])
}

/// Kamailio, whose processes share OpenSSL's memory.
fn kamailio(setup: &Setup<'_>) -> Result<Vec<OsString>, Failure> {
    const TLS: &str = "[server:default]\nmethod = TLSv1.2+\n";
    let [certificate, key, _, _] = setup.words();
    let path = setup.at("tls.cfg");
    let tls = format!("{TLS}certificate = {certificate}\nprivate_key = {key}\n[client:default]\n");
    fs::write(&path, tls).map_err(on(&path, "write"))?;
    let directory = setup.directory.display().to_string();
    let words = ["-DD", "-E", "-m", "256", "-M", "8", "-f", "@CONF@"];
    let mut arguments = setup.by_template(KAMAILIO, &words)?;
    let places = ["-w", &directory, "-Y", &directory];
    arguments.extend(places.map(OsString::from));
    Ok(arguments)
}
