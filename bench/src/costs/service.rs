//! Servers that are installed, and that have a process for each connection.

use std::ffi::OsStr;
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

use super::bed::Bed;
use super::cases::{Case, Service, Way};
use super::client::Client;
use super::work::{Sample, is_mapped};
use crate::handshakes::{Kind, Process, Side, ended_with_us, free_port, version_line};
use crate::measure::allowed_cpus;

/// Who runs a server that root must not run.
const NOBODY: u32 = 65534;

/// Seconds of CPU time that a connection takes, about.
const CONNECTION: f64 = 0.003;

/// What the kernel says of the CPU time of children that have ended is cut to 10 ms: a figure has so
/// many times the time of the others.
const TIMES: f64 = 4.0;

/// After the last connection, until its process has ended.
const AFTERWARDS: Duration = Duration::from_millis(50);

/// A server that runs; ended when dropped.
pub struct Running {
    process: Process,
    address: SocketAddr,
}

impl Service {
    /// The directory of its programs, or what is missing.
    pub fn find(self) -> Result<PathBuf, String> {
        let Service::Postgresql = self;
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut places: Vec<PathBuf> = versions
            .flatten()
            .map(|version| version.path().join("bin"))
            .collect();
        places.sort();
        places.extend(std::env::split_paths(&search_path()));
        let has = |place: &&PathBuf| {
            ["postgres", "initdb"]
                .iter()
                .all(|name| place.join(name).is_file())
        };
        places
            .iter()
            .rev()
            .find(has)
            .cloned()
            .ok_or_else(|| "PostgreSQL is not installed (apt install postgresql)".to_owned())
    }

    /// What it says of its version.
    pub fn version(self) -> Option<String> {
        let mut command = Command::new(self.find().ok()?.join("postgres"));
        command.arg("--version").env_remove("OPENSSL_CONF");
        let output = command.stdin(Stdio::null()).output().ok()?;
        version_line(&output.stdout)
    }
}

impl Bed<'_> {
    /// Starts a server, and insists that it has the module or has not.
    pub fn start_service(&self, case: &Case, side: Side) -> Result<(), Failure> {
        let Way::Service(service, kind) = case.way else {
            return Ok(());
        };
        let running = self.start_postgresql(service, kind, side, case.name())?;
        let pid = running.process.id().to_string();
        self.insist(side, is_mapped(self.module, &pid), case.name())?;
        let mut services = self.services.borrow_mut();
        services.entry(case.name()).or_default().push(running);
        Ok(())
    }

    /// Connections one after the other, and what each has taken.
    pub fn visit(&self, case: &Case, side: Side) -> Result<Vec<Sample>, Failure> {
        let Way::Service(_, kind) = case.way else {
            return Ok(Vec::new());
        };
        let services = self.services.borrow();
        let server = services
            .get(case.name())
            .and_then(|both| both.get(side as usize));
        let server = server.ok_or_else(|| Failure::new(format!("{} does not run", case.name())))?;
        // Servers before PostgreSQL 18 offer one group.
        let client = self.client(kind, "p256")?;
        let count = (TIMES * self.time.as_secs_f64() / CONNECTION).max(4.0) as usize;
        let visits = |count: usize| -> Result<(), Failure> {
            for _ in 0..count {
                visit(&client, server.address).map_err(|why| {
                    let (name, side) = (case.name(), side.name());
                    let output = server.process.last_output();
                    Failure::new(format!(
                        "{name} ({side}): {why}. Its last output:\n{output}"
                    ))
                })?;
            }
            sleep(AFTERWARDS);
            Ok(())
        };
        visits(1)?;
        let (cpu, start) = (server.process.cpu_time(), Instant::now());
        visits(count)?;
        let wall = start.elapsed().saturating_sub(AFTERWARDS);
        server.process.insist_on_running(side.name())?;
        let cpu = server.process.cpu_time().saturating_sub(cpu);
        let each = |time: Duration| time.as_secs_f64() / count as f64;
        Ok(vec![Sample {
            value: each(cpu),
            wall: Some(each(wall)),
        }])
    }

    fn start_postgresql(
        &self,
        service: Service,
        kind: Kind,
        side: Side,
        name: &'static str,
    ) -> Result<Running, Failure> {
        let programs = service.find().map_err(Failure::new)?;
        let place = self.scratch.join(format!("{name}-{}", side.name()));
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", place.display()));
        fs::create_dir(&place).map_err(failed)?;
        own(&place, 0o700).map_err(failed)?;
        let identity = self.material.identity(kind);
        let identity = identity.ok_or_else(|| Failure::new("there is no such key"))?;
        let [key, certificate] = [
            (&identity.key, "key"),
            (&identity.certificate, "certificate"),
        ]
        .map(|(from, name)| {
            let to = place.join(name);
            fs::copy(from, &to)
                .and_then(|_| own(&to, 0o600))
                .map(|()| to)
        });
        let (key, certificate) = (key.map_err(failed)?, certificate.map_err(failed)?);
        let data = place.join("data");
        let mut make = as_nobody(Command::new(programs.join("initdb")));
        make.arg("-D").arg(&data).current_dir(&place);
        make.args("--auth=trust --username=bench --no-sync --encoding=UTF8 --locale=C".split(' '));
        make.env_remove("OPENSSL_CONF").stdin(Stdio::null());
        let made = make.output().map_err(failed)?;
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            return Err(Failure::new(format!("initdb failed: {why}")));
        }
        let port = free_port()?;
        let mut command = as_nobody(ended_with_us(&programs.join("postgres")));
        command.arg("-D").arg(&data);
        let setting = |name: &str, value: &OsStr| {
            let mut setting = std::ffi::OsString::from(format!("{name}="));
            setting.push(value);
            ["-c".into(), setting]
        };
        for (name, value) in [
            ("port", OsStr::new(&port.to_string())),
            ("listen_addresses", OsStr::new("127.0.0.1")),
            ("unix_socket_directories", OsStr::new("")),
            ("ssl", OsStr::new("on")),
            ("ssl_cert_file", certificate.as_os_str()),
            ("ssl_key_file", key.as_os_str()),
            ("fsync", OsStr::new("off")),
            ("autovacuum", OsStr::new("off")),
        ] {
            command.args(setting(name, value));
        }
        self.environment(&mut command, side);
        let cpus = allowed_cpus();
        let mut process = Process::start(name, &mut command, &place, (&cpus, &cpus))?;
        let address = (Ipv4Addr::LOCALHOST, port).into();
        process.wait_until(|| TcpStream::connect(address).is_ok())?;
        Ok(Running { process, address })
    }
}

/// Gives a file to whoever runs the server.
fn own(path: &Path, mode: u32) -> std::io::Result<()> {
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

/// One connection to PostgreSQL, and one query.
fn visit(client: &Client, address: SocketAddr) -> Result<(), String> {
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
    /// No message of these is longer.
    const LONGEST: usize = 1 << 16;
    loop {
        let mut head = [0; 5];
        stream
            .read_exact(&mut head)
            .map_err(|error| error.to_string())?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let length = length.checked_sub(4).filter(|length| *length < LONGEST);
        let mut message = vec![0; length.ok_or("its answer is no message")?];
        stream
            .read_exact(&mut message)
            .map_err(|error| error.to_string())?;
        match head[0] {
            b'Z' => return Ok(()),
            b'E' => return Err(String::from_utf8_lossy(&message).replace('\0', " ")),
            _ => {}
        }
    }
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
