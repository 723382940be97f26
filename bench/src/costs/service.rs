//! Servers that are installed, and whose processes serve one connection, or few.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockstep_common::{Failure, is_root, search_path};

use super::cases::Service;
use super::work::{Sample, use_configuration};
use crate::handshakes::{
    Client, Identity, Kind, Process, ended_with_us, free_port, version_line, write_private,
};
use crate::measure::allowed_cpus;

/// Who runs a server that root must not run.
const NOBODY: u32 = 65534;

/// The directory of the user who runs a server, in that of the server.
const OWN: &str = "own";

/// Seconds of CPU time that a connection takes, about.
const CONNECTION: f64 = 0.003;

/// What the kernel says of the CPU time of children that have ended is cut to 10 ms: a figure has
/// so many times the time of the others.
const TIMES: f64 = 4.0;

/// After the last connection, until its process has ended.
const AFTERWARDS: Duration = Duration::from_millis(50);

/// A server that runs; ended when dropped.
pub struct Running {
    process: Process,
    address: SocketAddr,
    visitor: Visitor,
}

/// Who connects.
enum Visitor {
    /// A client of PostgreSQL, with the password.
    Postgresql(Client, String),
    /// `ssh-keyscan`, which asks for a key of this type.
    Keyscan(&'static str),
    /// A client of Postfix, which sends no mail.
    Postfix(Client),
}

impl Service {
    /// What keeps it from being measured with this configuration and this module, if anything does.
    pub fn missing(self, files: [&Path; 2]) -> Option<String> {
        if let Err(why) = self.find() {
            return Some(why);
        }
        if self == Service::Postfix && !is_root() {
            return Some("only root can start Postfix".to_owned());
        }
        let is_readable = |file: &&&Path| {
            let mut test = as_nobody(Command::new("test"));
            let status = test.arg("-r").arg(file).status();
            status.is_ok_and(|status| status.success())
        };
        let unreadable = files.iter().find(|file| !is_readable(file))?;
        Some(format!(
            "its user, who is not root, cannot read {}",
            unreadable.display()
        ))
    }

    /// The directory of its programs, or what is missing.
    fn find(self) -> Result<PathBuf, String> {
        let mut places: Vec<PathBuf> = std::env::split_paths(&search_path()).collect();
        places.push("/usr/sbin".into());
        let (programs, missing): (&[&str], _) = match self {
            Service::Postgresql => {
                let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
                let versions = versions.flatten().map(|version| version.path().join("bin"));
                let mut versions: Vec<PathBuf> = versions.collect();
                versions.sort();
                versions.reverse();
                places.splice(0..0, versions);
                let missing = "PostgreSQL is not installed (apt install postgresql)";
                (&["postgres", "initdb"], missing)
            }
            Service::Sshd => {
                let missing = "sshd is not installed (apt install openssh-server)";
                (&["sshd"], missing)
            }
            Service::Postfix => {
                let missing = "Postfix is not installed (apt install postfix)";
                (&["postconf"], missing)
            }
        };
        let has = |place: &PathBuf| programs.iter().all(|name| place.join(name).is_file());
        places
            .into_iter()
            .find(has)
            .ok_or_else(|| missing.to_owned())
    }

    /// What it says of its version.
    pub fn version(self) -> Option<String> {
        let (name, options): (_, &[&str]) = match self {
            Service::Postgresql => ("postgres", &["--version"]),
            Service::Sshd => ("sshd", &["-V"]),
            Service::Postfix => ("postconf", &["-d", "mail_version"]),
        };
        let mut command = Command::new(self.find().ok()?.join(name));
        command.args(options).env_remove("OPENSSL_CONF");
        let output = command.stdin(Stdio::null()).output().ok()?;
        version_line(&[output.stdout, output.stderr].concat())
    }

    /// Starts it, and waits until it serves.
    pub fn start(self, start: &Start<'_>) -> Result<Running, Failure> {
        match self {
            Service::Postgresql => Running::postgresql(start),
            Service::Sshd => Running::sshd(start),
            Service::Postfix => Running::postfix(start),
        }
    }
}

/// What a server is started with.
pub struct Start<'a> {
    /// The name of its case.
    pub name: &'static str,
    pub identity: &'a Identity,
    /// That of its key.
    pub kind: Kind,
    /// A directory that is not there yet.
    pub place: PathBuf,
    /// What loads lockstep, with lockstep.
    pub configuration: Option<&'a Path>,
}

impl Running {
    /// The numbers of its processes.
    pub fn processes(&self) -> Vec<u32> {
        self.process.ids()
    }

    /// Connections one after the other, and what each has taken.
    pub fn connections(&self, time: Duration) -> Result<Sample, String> {
        let count = (TIMES * time.as_secs_f64() / CONNECTION).max(4.0) as usize;
        let visits = |count: usize| -> Result<(), String> {
            for _ in 0..count {
                self.visitor
                    .visit(self.address)
                    .map_err(|why| format!("{why}. Its output: {}", self.process.last_output()))?;
            }
            sleep(AFTERWARDS);
            Ok(())
        };
        visits(1)?;
        let (cpu, start) = (self.process.cpu_time(), Instant::now());
        visits(count)?;
        let wall = start.elapsed().saturating_sub(AFTERWARDS);
        let cpu = self.process.cpu_time().saturating_sub(cpu);
        let each = |time: Duration| time.as_secs_f64() / count as f64;
        Ok(Sample {
            value: each(cpu),
            wall: Some(each(wall)),
        })
    }

    fn postgresql(start: &Start<'_>) -> Result<Running, Failure> {
        let programs = Service::Postgresql.find().map_err(Failure::new)?;
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", start.name));
        // Others on this machine must not get in. The password goes in plain text, but within TLS:
        // what takes its time is not to be measured.
        let password = password()?;
        let inner = start.give_files(&[
            ("password", password.as_bytes()),
            ("rules", b"hostssl all all 127.0.0.1/32 password\n"),
        ])?;
        let at = |name: &str| inner.join(name);
        let mut make = as_nobody(Command::new(programs.join("initdb")));
        make.args("--auth=md5 --username=bench --no-sync --encoding=UTF8 --locale=C".split(' '));
        make.arg("--pwfile")
            .arg(at("password"))
            .arg("-D")
            .arg(at("data"));
        make.current_dir(&inner).env_remove("OPENSSL_CONF");
        let made = make.stdin(Stdio::null()).output().map_err(failed)?;
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            return Err(Failure::new(format!("initdb failed: {why}")));
        }
        let port = free_port()?;
        let mut command = as_nobody(ended_with_us(&programs.join("postgres")));
        command.arg("-D").arg(at("data")).current_dir(&inner);
        for (name, value) in [
            ("hba_file", at("rules").as_os_str()),
            ("port", OsStr::new(&port.to_string())),
            ("listen_addresses", OsStr::new("127.0.0.1")),
            ("unix_socket_directories", OsStr::new("")),
            ("ssl", OsStr::new("on")),
            ("ssl_cert_file", at("certificate").as_os_str()),
            ("ssl_key_file", at("key").as_os_str()),
            ("fsync", OsStr::new("off")),
            ("autovacuum", OsStr::new("off")),
        ] {
            let mut setting = OsString::from(format!("{name}="));
            setting.push(value);
            command.arg("-c").arg(setting);
        }
        // PostgreSQL before 18 has one group.
        let client = start.identity.client("p256")?;
        start.run(command, port, Visitor::Postgresql(client, password))
    }

    fn sshd(start: &Start<'_>) -> Result<Running, Failure> {
        let program = Service::Sshd.find().map_err(Failure::new)?.join("sshd");
        let port = free_port()?;
        let key = start.place.join(OWN).join("key");
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nUsePAM no\n\
             MaxStartups 1000\n",
            key.display()
        );
        let inner = start.give_files(&[("configuration", configuration.as_bytes())])?;
        let mut command = as_nobody(ended_with_us(&program));
        command
            .args(["-D", "-e", "-f"])
            .arg(inner.join("configuration"));
        command.current_dir(&inner);
        let kind = match start.kind {
            Kind::Rsa(_) => "rsa",
            Kind::Ecdsa(_) => "ecdsa",
            Kind::Ed25519 => "ed25519",
        };
        start.run(command, port, Visitor::Keyscan(kind))
    }
}

impl Running {
    /// Its master keeps nothing of its usual environment but the names in `import_environment`.
    fn postfix(start: &Start<'_>) -> Result<Running, Failure> {
        let programs = Service::Postfix.find().map_err(Failure::new)?;
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", start.name));
        let default = |name: &str| -> Result<String, Failure> {
            let mut ask = Command::new(programs.join("postconf"));
            ask.args(["-d", "-h", name]).env_remove("OPENSSL_CONF");
            let output = ask.stdin(Stdio::null()).output().map_err(failed)?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let port = free_port()?;
        let master = format!(
            "127.0.0.1:{port} inet n - n - - smtpd\n\
             rewrite unix - - n - - trivial-rewrite\n\
             tlsmgr unix - - n 1000? 1 tlsmgr\n\
             anvil unix - - n - 1 anvil\n\
             proxymap unix - - n - - proxymap\n"
        );
        let inner = start.place.join(OWN);
        let at = |name: &str| inner.join(name).display().to_string();
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {}\ndata_directory = {}\n\
             import_environment = OPENSSL_CONF MAIL_CONFIG\nexport_environment = OPENSSL_CONF\n\
             myhostname = bench.invalid\nmydestination =\ninet_protocols = ipv4\n\
             smtpd_tls_security_level = may\nsmtpd_tls_key_file = {}\n\
             smtpd_tls_cert_file = {}\nsmtpd_client_connection_rate_limit = 0\n",
            at("queue"),
            at("data"),
            at("key"),
            at("certificate")
        );
        start.give_files(&[
            ("main.cf", main.as_bytes()),
            ("master.cf", master.as_bytes()),
        ])?;
        // Postfix gives up where its directories and files belong to others.
        let user = id_of(&default("mail_owner")?).map_err(failed)?;
        let give = |path: &Path, user, mode| -> Result<(), Failure> {
            chown(path, Some(user), Some(0)).map_err(failed)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)
        };
        for name in ["main.cf", "master.cf"] {
            give(&inner.join(name), 0, 0o644)?;
        }
        give(&inner.join("key"), 0, 0o600)?;
        give(&inner.join("certificate"), 0, 0o644)?;
        for (name, user, mode) in [
            ("data", user, 0o700),
            ("queue", 0, 0o755),
            ("queue/pid", 0, 0o755),
            ("queue/private", user, 0o700),
            ("queue/public", user, 0o710),
        ] {
            fs::create_dir(inner.join(name)).map_err(failed)?;
            give(&inner.join(name), user, mode)?;
        }
        give(&inner, 0, 0o755)?;
        let master = Path::new(&default("daemon_directory")?).join("master");
        let mut command = ended_with_us(&master);
        command.arg("-c").arg(&inner).arg("-d").current_dir(&inner);
        let client = start.identity.client("x25519")?;
        let running = start.run(command, port, Visitor::Postfix(client))?;
        // The first process that serves is started for the first connection.
        running.visitor.visit(running.address).map_err(|why| {
            Failure::new(format!(
                "{why}. Its output: {}",
                running.process.last_output()
            ))
        })?;
        Ok(running)
    }
}

/// The number of a user.
fn id_of(user: &str) -> std::io::Result<u32> {
    let output = Command::new("id").args(["-u", user]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.trim().parse();
    number.map_err(|_| std::io::Error::other(format!("there is no user {user}")))
}

impl Start<'_> {
    /// Makes a directory with the key, the certificate and these files, and gives it to the user
    /// who runs the server. From then on this program writes nothing there.
    fn give_files(&self, files: &[(&str, &[u8])]) -> Result<PathBuf, Failure> {
        let (place, inner) = (&self.place, self.place.join(OWN));
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", place.display()));
        let read = |path: &Path| fs::read(path).map_err(failed);
        let [key, certificate] = [&self.identity.key, &self.identity.certificate];
        let (key, certificate) = (read(key)?, read(certificate)?);
        fs::create_dir(place).map_err(failed)?;
        fs::set_permissions(place, fs::Permissions::from_mode(0o711)).map_err(failed)?;
        fs::create_dir(&inner).map_err(failed)?;
        let both: [(&str, &[u8]); 2] = [("key", &key), ("certificate", &certificate)];
        for (name, text) in both.iter().chain(files) {
            let path = inner.join(name);
            write_private(&path, text)?;
            give_away(&path, 0o600).map_err(failed)?;
        }
        give_away(&inner, 0o700).map_err(failed)?;
        Ok(inner)
    }

    /// Starts the server of a command, and waits until it serves.
    fn run(&self, mut command: Command, port: u16, visitor: Visitor) -> Result<Running, Failure> {
        use_configuration(&mut command, self.configuration);
        let cpus = allowed_cpus();
        let mut process = Process::start(self.name, &mut command, &self.place, (&cpus, &cpus))?;
        let address = (Ipv4Addr::LOCALHOST, port).into();
        process.wait_until(|| TcpStream::connect(address).is_ok())?;
        Ok(Running {
            process,
            address,
            visitor,
        })
    }
}

impl Visitor {
    fn visit(&self, address: SocketAddr) -> Result<(), String> {
        match self {
            Visitor::Postgresql(client, password) => query(client, address, password),
            Visitor::Keyscan(kind) => scan(address, kind),
            Visitor::Postfix(client) => start_tls(client, address),
        }
    }
}

/// Gives a file to the user who runs the server.
fn give_away(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    match is_root() {
        true => chown(path, Some(NOBODY), Some(NOBODY)),
        false => Ok(()),
    }
}

/// A command of a server that refuses to run as root.
fn as_nobody(mut command: Command) -> Command {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A password that nobody can guess.
fn password() -> Result<String, Failure> {
    let random = || getrandom::u64().map_err(|error| Failure::new(error.to_string()));
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

/// One connection to sshd: the key exchange, in which the server signs.
fn scan(address: SocketAddr, kind: &str) -> Result<(), String> {
    let mut scan = Command::new("ssh-keyscan");
    scan.args(["-T", "20", "-t", kind, "-p", &address.port().to_string()]);
    scan.arg(address.ip().to_string())
        .env("OPENSSL_CONF", "/dev/null");
    let output = scan.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start ssh-keyscan: {error}"))?;
    match output.status.success() && !output.stdout.is_empty() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// One connection to Postfix: STARTTLS, and goodbye.
fn start_tls(client: &Client, address: SocketAddr) -> Result<(), String> {
    let said = |error: std::io::Error| error.to_string();
    let mut socket = Client::connect(address).map_err(said)?;
    reply(&mut socket, "220")?;
    socket.write_all(b"EHLO client.invalid\r\n").map_err(said)?;
    reply(&mut socket, "250")?;
    socket.write_all(b"STARTTLS\r\n").map_err(said)?;
    reply(&mut socket, "220")?;
    let mut stream = client.handshake(socket)?;
    stream.write_all(b"QUIT\r\n").map_err(said)?;
    reply(&mut stream, "221")?;
    Client::leave(stream)
}

/// Reads a reply of SMTP to its last line, which must have this code.
fn reply(stream: &mut impl Read, code: &str) -> Result<(), String> {
    let mut line = String::new();
    loop {
        let mut byte = [0];
        stream
            .read_exact(&mut byte)
            .map_err(|error| error.to_string())?;
        line.push(char::from(byte[0]));
        if byte[0] != b'\n' {
            continue;
        }
        match line.strip_prefix(code) {
            Some(rest) if rest.starts_with('-') => line.clear(),
            Some(_) => return Ok(()),
            None => return Err(format!("it answers {}", line.trim())),
        }
    }
}

/// One connection to PostgreSQL, and one query.
fn query(client: &Client, address: SocketAddr, password: &str) -> Result<(), String> {
    const ASK_FOR_TLS: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    let said = |error: std::io::Error| error.to_string();
    let mut socket = Client::connect(address).map_err(said)?;
    socket.write_all(&ASK_FOR_TLS).map_err(said)?;
    let mut answer = [0];
    socket.read_exact(&mut answer).map_err(said)?;
    if answer != *b"S" {
        return Err("it offers no TLS".to_owned());
    }
    let mut stream = client.handshake(socket)?;
    let start = b"\0\x03\0\0user\0bench\0database\0postgres\0\0";
    stream.write_all(&with_length(start)).map_err(said)?;
    if message(&mut stream)? != (b'R', b"\0\0\0\x03".to_vec()) {
        return Err("it asks for no password".to_owned());
    }
    let answer = [password.as_bytes(), b"\0"].concat();
    stream
        .write_all(&[b"p", &with_length(&answer)[..]].concat())
        .map_err(said)?;
    until_ready(&mut stream)?;
    let query = [b"Q", &with_length(b"select 1\0")[..]].concat();
    stream.write_all(&query).map_err(said)?;
    until_ready(&mut stream)?;
    stream
        .write_all(&[b"X", &with_length(b"")[..]].concat())
        .map_err(said)?;
    Client::leave(stream)
}

/// A message behind its length, which counts itself.
fn with_length(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len() + 4).unwrap_or(u32::MAX);
    [&length.to_be_bytes(), message].concat()
}

/// Reads messages until the server waits for the next query.
fn until_ready(stream: &mut impl Read) -> Result<(), String> {
    loop {
        match message(stream)? {
            (b'Z', _) => return Ok(()),
            (b'E', text) => return Err(String::from_utf8_lossy(&text).replace('\0', " ")),
            _ => {}
        }
    }
}

/// Reads a message: its kind, and its text.
fn message(stream: &mut impl Read) -> Result<(u8, Vec<u8>), String> {
    /// No message of these is longer.
    const LONGEST: usize = 1 << 16;
    let said = |error: std::io::Error| error.to_string();
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(said)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let length = length.checked_sub(4).filter(|length| *length < LONGEST);
    let mut text = vec![0; length.ok_or("its answer is no message")?];
    stream.read_exact(&mut text).map_err(said)?;
    Ok((head[0], text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_until_the_server_is_ready() {
        let message = |kind: u8, text: &[u8]| [&[kind], &with_length(text)[..]].concat();
        assert_eq!(with_length(b"ab"), [0, 0, 0, 6, b'a', b'b']);
        let ready = [
            message(b'R', &[0; 4]),
            message(b'Z', b"I"),
            message(b'E', b"late"),
        ]
        .concat();
        assert_eq!(until_ready(&mut &ready[..]), Ok(()));
        let wrong = message(b'E', b"SFATAL\0Mno such user\0");
        assert_eq!(
            until_ready(&mut &wrong[..]),
            Err("SFATAL Mno such user ".to_owned())
        );
        assert!(until_ready(&mut &[b'Z', 0, 0, 0, 1][..]).is_err());
        assert!(until_ready(&mut &[b'D', 0xff, 0, 0, 0][..]).is_err());
        assert!(until_ready(&mut &b""[..]).is_err());
    }
}
