//! The servers: `openssl s_server`, HAProxy and nginx, each in one process in the foreground.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::command::{
    Failure, Outcome, cannot_run, ending_with_us, free_port, on, openssl, quietly,
};

use super::table::{Kind, Setup};

const PATIENCE: Duration = Duration::from_secs(30);

/// The groups that OpenSSL 3.0 to 3.4 offer by themselves, in their order.
const GROUPS: &str = "X25519:P-256:X448:P-521:P-384:ffdhe2048:ffdhe3072:ffdhe4096:ffdhe6144:\
                      ffdhe8192";

/// Keys, as `openssl req` makes them.
const KEYS: &[(&str, &[&str])] = &[
    ("rsa1024", &["-newkey", "rsa:1024"]),
    ("rsa2048", &["-newkey", "rsa:2048"]),
    ("rsa3072", &["-newkey", "rsa:3072"]),
    ("rsa4096", &["-newkey", "rsa:4096"]),
    (
        "rsapss2048",
        &["-newkey", "rsa-pss", "-pkeyopt", "rsa_keygen_bits:2048"],
    ),
    (
        "p256",
        &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    ),
    (
        "p384",
        &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
    ),
    (
        "p521",
        &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
    ),
    ("ed25519", &["-newkey", "ed25519"]),
    ("ed448", &["-newkey", "ed448"]),
];

/// The module that a server loads.
pub struct Module {
    /// As the dist step writes it.
    pub configuration: PathBuf,
    pub planted: Option<&'static str>,
}

/// A key and its certificate.
pub struct Identity {
    pub key: PathBuf,
    pub certificate: PathBuf,
    /// Both in one file.
    both: PathBuf,
}

/// The identity with this key, which is made once.
pub fn identity(directory: &Path, name: &str) -> Outcome<Identity> {
    let (_, options) = KEYS
        .iter()
        .find(|(key, _)| *key == name)
        .ok_or_else(|| Failure::new(format!("there is no key `{name}`")))?;
    let directory = directory.join("keys");
    let path = |end| directory.join(format!("{name}.{end}"));
    let identity = Identity {
        key: path("key"),
        certificate: path("crt"),
        both: path("pem"),
    };
    if !identity.both.exists() {
        fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
        let mut request = openssl(["req", "-x509", "-nodes", "-days", "3650"]);
        request
            .args(*options)
            .args(["-subj", "/CN=localhost"])
            .args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
            .arg(&identity.key)
            .arg("-out")
            .arg(&identity.certificate);
        quietly(&mut request)?;
        let read = |path: &Path| fs::read_to_string(path).map_err(on(path, "read"));
        let both = read(&identity.certificate)? + &read(&identity.key)?;
        fs::write(&identity.both, both).map_err(on(&identity.both, "write"))?;
    }
    Ok(identity)
}

/// The certificates of all clients, which servers trust.
fn clients(directory: &Path) -> Outcome<PathBuf> {
    let mut all = String::new();
    for (name, _) in KEYS {
        let certificate = identity(directory, name)?.certificate;
        all += &fs::read_to_string(&certificate).map_err(on(&certificate, "read"))?;
    }
    let path = directory.join("keys/clients.pem");
    fs::write(&path, all).map_err(on(&path, "write"))?;
    Ok(path)
}

/// A running server, ended when dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    module: Option<Module>,
    log: PathBuf,
    /// Where the module counts.
    pub counters: PathBuf,
}

impl Server {
    /// Starts it, and waits until it accepts connections.
    pub fn start(directory: &Path, setup: &Setup, module: Option<Module>) -> Outcome<Server> {
        let side = side(module.as_ref());
        let counters = directory.join(format!("counters-{side}-{}", setup.name));
        let log = directory.join(format!("{side}-{}.log", setup.name));
        if module.is_some() {
            // Only what this server counts.
            match fs::remove_dir_all(&counters) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(on(&counters, "empty")(error));
                }
                _ => {}
            }
        }
        let (child, port) = launch(directory, setup, module.as_ref(), &counters, &log)?;
        let mut server = Server {
            child,
            port,
            module,
            log,
            counters,
        };
        server.wait_until_open()?;
        Ok(server)
    }

    /// Starts it anew if it has ended.
    pub fn revive(&mut self, directory: &Path, setup: &Setup) -> Outcome {
        if !self.has_ended() {
            return Ok(());
        }
        let module = self.module.as_ref();
        (self.child, self.port) = launch(directory, setup, module, &self.counters, &self.log)?;
        self.wait_until_open()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().ok().flatten().is_some()
    }

    /// Which of the two it is.
    pub fn side(&self) -> &'static str {
        side(self.module.as_ref())
    }

    fn wait_until_open(&mut self) -> Outcome {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if self.has_ended() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                return Err(Failure::new(format!("a server did not start:\n{log}")));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn side(module: Option<&Module>) -> &'static str {
    match module {
        None => "stock",
        Some(Module { planted: None, .. }) => "module",
        Some(_) => "planted",
    }
}

/// Starts the program of a server; returns it and its port.
fn launch(
    directory: &Path,
    setup: &Setup,
    module: Option<&Module>,
    counters: &Path,
    log: &Path,
) -> Outcome<(Child, u16)> {
    let port = free_port()?;
    let mut command = match setup.kind {
        Kind::OpenSsl => s_server(directory, setup, port)?,
        Kind::HaProxy => {
            let file = log.with_extension("cfg");
            let text = haproxy(directory, setup, port)?;
            fs::write(&file, text).map_err(on(&file, "write"))?;
            let mut command = Command::new("haproxy");
            command.arg("-db").arg("-f").arg(file);
            command
        }
        Kind::Nginx => {
            let file = log.with_extension("conf");
            let text = nginx(directory, setup, port)?;
            fs::write(&file, text).map_err(on(&file, "write"))?;
            let mut command = Command::new("nginx");
            command.arg("-p").arg(directory);
            command.args(["-e", "stderr", "-c"]).arg(file);
            command
        }
    };
    command.env_remove("OPENSSL_CONF");
    if let Some(module) = module {
        let file = log.with_extension("cnf");
        fs::create_dir_all(counters).map_err(on(counters, "create"))?;
        let text = configuration(&module.configuration, setup, counters)?;
        fs::write(&file, text).map_err(on(&file, "write"))?;
        command.env("OPENSSL_CONF", file);
        // No configuration turns on what the module adds: the server's own list of groups does.
        if setup.kind == Kind::OpenSsl && !setup.adds.is_empty() {
            let groups = format!("{GROUPS}:{}", setup.adds.join(":"));
            command.args(["-groups", &groups]);
        }
        if let Some(planted) = module.planted {
            command.env("LOCKSTEP_PLANT", planted);
        }
    }
    let mut command = ending_with_us(command);
    let errors = File::create(log).map_err(on(log, "create"))?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors);
    let child = command
        .spawn()
        .map_err(|error| cannot_run(&command, &error))?;
    Ok((child, port))
}

/// OpenSSL's configuration with the settings of the module.
fn configuration(file: &Path, setup: &Setup, counters: &Path) -> Outcome<String> {
    let mut text = String::new();
    // Requests come one at a time, and lanes take them all the same.
    let mut settings = format!(
        "lone = lanes\ncheck_every = 4\nstats_keep = yes\nstats_dir = {}\n",
        counters.display()
    );
    for setting in &setup.settings {
        settings += &setting.replacen('=', " = ", 1);
        settings += "\n";
    }
    for line in fs::read_to_string(file).map_err(on(file, "read"))?.lines() {
        text += line;
        text += "\n";
        if line.starts_with("module = ") {
            text += &settings;
        }
    }
    Ok(text)
}

fn s_server(directory: &Path, setup: &Setup, port: u16) -> Outcome<Command> {
    let mut command = openssl(["s_server", "-www", "-accept"]);
    command.arg(format!("127.0.0.1:{port}"));
    for (index, name) in setup.keys.iter().enumerate() {
        let identity = identity(directory, name)?;
        let (certificate, key) = match index {
            0 => ("-cert", "-key"),
            _ => ("-dcert", "-dkey"),
        };
        command.arg(certificate).arg(&identity.certificate);
        command.arg(key).arg(&identity.key);
    }
    command.arg("-CAfile").arg(clients(directory)?);
    command.args(&setup.options);
    Ok(command)
}

fn haproxy(directory: &Path, setup: &Setup, port: u16) -> Outcome<String> {
    let mut bind = format!("    bind 127.0.0.1:{port} ssl");
    for name in &setup.keys {
        bind += &format!(" crt {}", identity(directory, name)?.both.display());
    }
    if !setup.options.is_empty() {
        let clients = clients(directory)?;
        bind += &format!(" ca-file {} ", clients.display());
        bind += &setup.options.join(" ");
    }
    Ok(format!(
        "global
    ssl-mode-async
    maxconn 200
    maxpipes 100
    nbthread 1
    ssl-default-bind-options ssl-min-ver TLSv1.0
    ssl-default-bind-ciphers ALL:@SECLEVEL=0
defaults
    mode http
    timeout client 10s
    timeout http-request 10s
    timeout connect 5s
    timeout server 10s
frontend site
{bind}
    http-request return status 200 content-type text/plain string hello
"
    ))
}

fn nginx(directory: &Path, setup: &Setup, port: u16) -> Outcome<String> {
    let mut lines = String::new();
    for name in &setup.keys {
        let identity = identity(directory, name)?;
        lines += &format!("ssl_certificate {};\n", identity.certificate.display());
        lines += &format!("ssl_certificate_key {};\n", identity.key.display());
    }
    if !setup.options.is_empty() {
        let clients = clients(directory)?;
        lines += &format!("ssl_client_certificate {};\n", clients.display());
        lines += &setup.options.join(" ");
    }
    let mut temporary = String::new();
    for what in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        temporary += &format!("{what}_temp_path nginx-{what};\n");
    }
    Ok(format!(
        "daemon off;
master_process off;
pid nginx-{port}.pid;
error_log /dev/null;
events {{ }}
http {{
access_log off;
{temporary}
server {{
listen 127.0.0.1:{port} ssl;
ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
ssl_ciphers ALL:@SECLEVEL=0;
ssl_session_cache shared:all:1m;
{lines}
location / {{ return 200 hello; }}
}}
}}
"
    ))
}
