//! Servers that are installed, and whose processes serve one connection, or few.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockstep_common::{Failure, is_root, program, search_path};

use super::cases::Service;
use super::work::{Sample, use_configuration};
use crate::files::{open_to_others, write_private};
use crate::handshakes::{HOST, Identity, Kind, Process, ended_with_us, free_port, version_line};
use crate::measure::allowed_cpus;

/// The user for a server that root must not run.
const NOBODY: u32 = 65534;

/// The directory of the user who runs a server, in that of the server.
const OWN: &str = "own";

/// Seconds of CPU time that a connection takes, about.
const CONNECTION: f64 = 0.003;

/// Factor on the time of the others for a figure. The kernel rounds the CPU time of ended children
/// down to 10 ms.
const TIMES: f64 = 4.0;

/// After the last connection, until its process has ended.
const AFTERWARDS: Duration = Duration::from_millis(50);

/// A server that runs; ended when dropped.
pub struct Running {
    process: Process,
    visitor: Visitor,
}

/// A program that connects once, without lockstep.
struct Visitor {
    program: PathBuf,
    arguments: Vec<String>,
    /// For PostgreSQL.
    password: Option<String>,
    input: &'static [u8],
    /// The output that it must print.
    expected: &'static str,
}

impl Service {
    /// Its programs, the message if they are missing, and the arguments by which the first one
    /// prints its version.
    fn about(
        self,
    ) -> (
        &'static [&'static str],
        &'static str,
        &'static [&'static str],
    ) {
        match self {
            Service::Postgresql => (
                &["postgres", "initdb", "psql"],
                "PostgreSQL is not installed (apt install postgresql)",
                &["--version"],
            ),
            Service::Sshd => (
                &["sshd"],
                "sshd is not installed (apt install openssh-server)",
                &["-V"],
            ),
            Service::Postfix => (
                &["postconf"],
                "Postfix is not installed (apt install postfix)",
                &["-d", "mail_version"],
            ),
        }
    }

    /// The reason why it cannot be measured with this configuration and this module, if there is
    /// one.
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
        let unreadable = unreadable.display();
        Some(format!(
            "its user, who is not root, cannot read {unreadable}"
        ))
    }

    /// The directory of its programs, or the missing program.
    fn find(self) -> Result<PathBuf, String> {
        let (programs, missing, _) = self.about();
        let mut places: Vec<PathBuf> = std::env::split_paths(&search_path()).collect();
        places.push("/usr/sbin".into());
        if self == Service::Postgresql {
            let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
            let versions = versions.flatten().map(|version| version.path().join("bin"));
            let mut versions: Vec<PathBuf> = versions.collect();
            versions.sort();
            versions.reverse();
            places.splice(0..0, versions);
        }
        let has = |place: &PathBuf| programs.iter().all(|name| place.join(name).is_file());
        let found = places.into_iter().find(has);
        found.ok_or_else(|| missing.to_owned())
    }

    /// The version that it prints.
    pub fn version(self) -> Option<String> {
        let (programs, _, options) = self.about();
        let mut command = Command::new(self.find().ok()?.join(programs[0]));
        command.args(options).env_remove("OPENSSL_CONF");
        let output = command.stdin(Stdio::null()).output().ok()?;
        version_line(&[output.stdout, output.stderr].concat())
    }

    /// Starts it, and waits until it serves.
    pub fn start(self, start: &Start<'_>) -> Result<Running, Failure> {
        let programs = self.find().map_err(Failure::new)?;
        let port = free_port()?;
        let (command, visitor) = match self {
            Service::Postgresql => start.postgresql(&programs, port),
            Service::Sshd => start.sshd(&programs, port),
            Service::Postfix => start.postfix(&programs, port),
        }?;
        start.run(command, visitor)
    }
}

/// Arguments of a server's start.
pub struct Start<'a> {
    /// The name of its case.
    pub name: &'static str,
    pub identity: &'a Identity,
    /// That of its key.
    pub kind: Kind,
    /// A directory that is not there yet.
    pub place: PathBuf,
    /// The configuration that loads lockstep, on that side.
    pub configuration: Option<&'a Path>,
}

impl Running {
    /// The numbers of its processes.
    pub fn processes(&self) -> Vec<u32> {
        self.process.ids()
    }

    /// Makes connections one after the other; returns the cost of each.
    pub fn connections(&self, time: Duration) -> Result<Sample, String> {
        let count = (TIMES * time.as_secs_f64() / CONNECTION).max(4.0) as usize;
        let visits = |count: usize| -> Result<(), String> {
            for _ in 0..count {
                let said = |why| format!("{why}. Its output: {}", self.process.last_output());
                self.visitor.visit().map_err(said)?;
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
}

impl Visitor {
    fn visit(&self) -> Result<(), String> {
        let said = |error: std::io::Error| error.to_string();
        let mut command = program("timeout");
        command.arg("20").arg(&self.program).args(&self.arguments);
        // Nothing of the user's own environment changes the figures.
        command.env_clear().env("OPENSSL_CONF", "/dev/null");
        command.envs(
            self.password
                .iter()
                .map(|password| ("PGPASSWORD", password)),
        );
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().map_err(said)?;
        let sent = child
            .stdin
            .take()
            .map(|mut input| input.write_all(self.input));
        let output = child.wait_with_output().map_err(said)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let is_served = output.status.success() && printed.contains(self.expected);
        match sent {
            Some(Ok(())) if is_served => Ok(()),
            _ => {
                let why = String::from_utf8_lossy(&output.stderr);
                Err(format!("{} says: {}", self.program.display(), why.trim()))
            }
        }
    }
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
        open_to_others(place)?;
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
    fn run(&self, mut command: Command, visitor: Visitor) -> Result<Running, Failure> {
        use_configuration(&mut command, self.configuration);
        let cpus = allowed_cpus();
        let mut process = Process::start(self.name, &mut command, &self.place, (&cpus, &cpus))?;
        let mut why = String::new();
        let is_served = || match visitor.visit() {
            Ok(()) => true,
            Err(said) => {
                why = said;
                false
            }
        };
        let served = process.wait_until(is_served);
        served.map_err(|failure| Failure::new(format!("{} ({why})", failure.what)))?;
        Ok(Running { process, visitor })
    }

    fn postgresql(&self, programs: &Path, port: u16) -> Result<(Command, Visitor), Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", self.name));
        // Others on this machine must not get in. The password goes in plain text, but within TLS:
        // a slow check of passwords is not to be measured.
        let password = password()?;
        let inner = self.give_files(&[
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
        let mut command = as_nobody(ended_with_us(&programs.join("postgres")));
        command.arg("-D").arg(at("data")).current_dir(&inner);
        let at = |name: &str| at(name).display().to_string();
        for setting in [
            format!("hba_file={}", at("rules")),
            format!("port={port}"),
            "listen_addresses=127.0.0.1".to_owned(),
            "unix_socket_directories=".to_owned(),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", at("certificate")),
            format!("ssl_key_file={}", at("key")),
            "fsync=off".to_owned(),
            "autovacuum=off".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        let authority = self.identity.authority_file.display();
        let place = format!(
            "host={HOST} hostaddr=127.0.0.1 port={port} user=bench dbname=postgres \
             gssencmode=disable sslmode=verify-full sslrootcert={authority}"
        );
        let arguments = ["-X", "-A", "-t", "-c", "select 1", &place];
        let visitor = Visitor {
            program: programs.join("psql"),
            arguments: arguments.map(str::to_owned).to_vec(),
            password: Some(password),
            input: b"",
            expected: "1\n",
        };
        Ok((command, visitor))
    }

    fn sshd(&self, programs: &Path, port: u16) -> Result<(Command, Visitor), Failure> {
        let key = self.place.join(OWN).join("key");
        let configuration = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nUsePAM no\n\
             MaxStartups 1000\n",
            key.display()
        );
        let inner = self.give_files(&[("configuration", configuration.as_bytes())])?;
        let mut command = as_nobody(ended_with_us(&programs.join("sshd")));
        command
            .args(["-D", "-e", "-f"])
            .arg(inner.join("configuration"));
        command.current_dir(&inner);
        let kind = match self.kind {
            Kind::Rsa(_) => "rsa",
            Kind::Ecdsa(_) => "ecdsa",
            Kind::Ed25519 => "ed25519",
            Kind::MlDsa(_) => return Err(Failure::new("sshd has no keys of ML-DSA")),
        };
        let port = port.to_string();
        let arguments = ["-t", kind, "-p", &port, "127.0.0.1"];
        let visitor = Visitor {
            program: program("ssh-keyscan").get_program().into(),
            arguments: arguments.map(str::to_owned).to_vec(),
            password: None,
            input: b"",
            expected: "127.0.0.1",
        };
        Ok((command, visitor))
    }

    /// Its master keeps nothing of its usual environment but the names in `import_environment`.
    fn postfix(&self, programs: &Path, port: u16) -> Result<(Command, Visitor), Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", self.name));
        let default = |name: &str| -> Result<String, Failure> {
            let mut ask = Command::new(programs.join("postconf"));
            ask.args(["-d", "-h", name]).env_remove("OPENSSL_CONF");
            let output = ask.stdin(Stdio::null()).output().map_err(failed)?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let master = format!(
            "127.0.0.1:{port} inet n - n - - smtpd\n\
             rewrite unix - - n - - trivial-rewrite\n\
             tlsmgr unix - - n 1000? 1 tlsmgr\n\
             anvil unix - - n - 1 anvil\n\
             proxymap unix - - n - - proxymap\n"
        );
        let inner = self.place.join(OWN);
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
        self.give_files(&[
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
        let words = format!(
            "s_client -quiet -verify_return_error -verify_hostname {HOST} -starttls smtp -connect \
             127.0.0.1:{port} -CAfile"
        );
        let mut arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
        arguments.push(self.identity.authority_file.display().to_string());
        let visitor = Visitor {
            program: program("openssl").get_program().into(),
            arguments,
            password: None,
            input: b"QUIT\r\n",
            expected: "221 ",
        };
        Ok((command, visitor))
    }
}

/// The number of a user.
fn id_of(user: &str) -> std::io::Result<u32> {
    let output = Command::new("id").args(["-u", user]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.trim().parse();
    number.map_err(|_| std::io::Error::other(format!("there is no user {user}")))
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
