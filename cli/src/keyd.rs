//! `lockstep keyd`: the daemon that holds keys, and its administrator's commands.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use lockstep_common::{Failure, Manual, Outcome, out, outln};
use lockstep_engine::{Config, Engine};
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE};
use lockstep_keyd::memory::{self, Shortage};
use lockstep_keyd::{Keys, trusted};
use lockstep_remote::protocol::Verdict;
use lockstep_remote::{Connection, DEFAULT_SOCKET, Failure as Refused, Reference};
use serde::{Deserialize, Serialize};

use crate::unit::{Unit, systemd_runs};
use crate::words::{joined, json};

/// Holds keys for servers, which sign with them and never see them
///
/// Without a command it is the daemon, and runs until it is stopped.
#[derive(Args)]
#[command(after_help = NOTES)]
pub struct Options {
    /// The configuration of the daemon
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE, global = true)]
    config: PathBuf,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Reads the configuration and the keys, and says what is wrong with them
    Check,
    /// Writes the file that stands for a key in a server's configuration
    ExportReference(ExportOptions),
    /// Asks the daemon that runs which keys this user may use
    Keys(KeysOptions),
    /// Waits until the daemon has written the references to renewed keys, for a hook
    ///
    /// Reload the servers then. The daemon serves the key before for `grace`; a restart of the
    /// daemon drops it.
    Wait,
    /// Is the process that opens files for the daemon, which starts it
    #[command(hide = true)]
    Reader { user: u32, group: u32 },
}

#[derive(Args)]
struct ExportOptions {
    /// The key, by its name in the configuration
    name: String,
    /// The file to write [default: print it]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct KeysOptions {
    /// Where the daemon listens [default: as the configuration says, if that can be read]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print one JSON document, with the public half of each key
    #[arg(long)]
    json: bool,
}

/// A key that the daemon lets somebody use, as `keys --json` prints it.
#[derive(Serialize, Deserialize)]
pub struct Offer {
    pub name: String,
    pub uses: String,
    /// A SubjectPublicKeyInfo, in hexadecimal.
    pub public: String,
}

/// Returns the keys that the daemon at a socket offers this user.
pub fn offers(socket: &Path) -> Result<Vec<Offer>, Refused> {
    let connection = Connection::open(socket)?;
    let offers = connection.keys().iter().map(|key| Offer {
        name: key.name.clone(),
        uses: key.uses.to_string(),
        public: hex(&key.public),
    });
    Ok(offers.collect())
}

/// Reason why a reference cannot be used.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unusable {
    /// The daemon has the name with other public halves only.
    OtherKey,
    /// The daemon lacks the key, or does not let this user use it.
    NoKey,
    /// There is no such socket; with the message of the failure.
    NoSocket(String),
    /// The daemon gives no list of keys, for this reason.
    NoAnswer(String),
}

/// Returns the uses of a reference's key that the daemon at a socket allows this user. The name and
/// the public half identify the key. The module finds it by the same function, `Connection::key`.
pub fn uses(socket: &Path, name: &str, public: &[u8]) -> Result<String, Unusable> {
    let connection = Connection::open(socket);
    let found = connection.and_then(|own| Ok(own.key(name, public)?.uses.to_string()));
    found.map_err(|failure| match failure {
        Refused::OtherKey => Unusable::OtherKey,
        Refused::NoKey | Refused::Rejected(Verdict::Stranger) => Unusable::NoKey,
        other if !socket.exists() => Unusable::NoSocket(other.to_string()),
        other => Unusable::NoAnswer(other.to_string()),
    })
}

/// Bytes in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const NOTES: &str = "\
The configuration is described in keyd.md, which packages have in /usr/share/doc/lockstep, and the
sources in docs/user. The packaged service is lockstep-keyd.

Examples:
  lockstep keyd check
  lockstep keyd export-reference site --out site.ref

Files:
  /etc/lockstep/keyd.conf       the configuration
  /etc/lockstep/references      references to keys, in a directory for each server
  /run/lockstep-keyd.sock       the socket that servers connect to";

/// Runs the command.
pub fn run(options: &Options) -> Outcome {
    match &options.action {
        None => serve(&options.config),
        Some(Action::Check) => check(&options.config),
        Some(Action::ExportReference(export)) => export_reference(&options.config, export),
        Some(Action::Keys(keys)) => list(&options.config, keys),
        Some(Action::Wait) => wait(&options.config),
        Some(Action::Reader { user, group }) => read(*user, *group),
    }
}

fn configuration(path: &Path) -> Result<Configuration, Failure> {
    Configuration::read(path).map_err(|wrong| {
        Failure::new(format!("{}: {wrong}", path.display())).remedy(format!(
            "correct the configuration, which is described in {}",
            Manual::Keyd.name()
        ))
    })
}

/// Makes an engine that publishes no counters.
pub fn unpublished() -> Engine {
    lockstep_keyd::engine(Config::default())
}

/// The unit of the daemon.
const UNIT: &str = "lockstep-keyd.service";

/// Command that has the daemon read its configuration again.
pub fn restart() -> &'static str {
    match systemd_runs() {
        true => "systemctl restart lockstep-keyd",
        false => "restart the key daemon",
    }
}

/// Name of the daemon in lists of processes.
pub const PROCESS: &str = "lockstep-keyd";
/// Name of the process that opens files for the daemon.
pub const READER: &str = "lockstep-reader";

fn serve(path: &Path) -> Outcome {
    // The name distinguishes the daemon from other commands of this program.
    let _ = rustix::thread::set_name(&CString::new(PROCESS).unwrap_or_default());
    let failure =
        |error: std::io::Error| Failure::new(error.to_string()).remedy("lockstep keyd check");
    // The engine logs a mistake in the environment, and the daemon works all the same.
    let settings = Config::from_pairs::<&str>([]).with_env();
    lockstep_keyd::run(path, settings).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// Maximum time for the daemon to write references, and the interval of the looks here. The daemon
/// searches every 30 seconds where the kernel reports no change.
const LONGEST_WAIT: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn wait(path: &Path) -> Outcome {
    let configuration = configuration(path)?;
    written(&configuration, LONGEST_WAIT)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until the daemon has written the references to all keys as they are now.
pub fn written(configuration: &Configuration, longest: Duration) -> Result<(), Failure> {
    let end = Instant::now() + longest;
    let engine = unpublished();
    loop {
        let keys = lockstep_keyd::read_keys(configuration, &engine);
        let what = match (keys.outdated.first(), keys.unanswered.first()) {
            (None, None) => return Ok(()),
            (Some(_), _) if Instant::now() < end => {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            (Some(first), _) => format!("the key daemon has not written {}", first.display()),
            (None, Some(first)) => format!(
                "the file system of {} does not answer, so nobody knows whether a key is renewed \
                 there",
                first.display()
            ),
        };
        return Err(Failure::new(what).remedy("see the log of the key daemon, and lockstep doctor"));
    }
}

fn read(user: u32, group: u32) -> Outcome {
    let _ = rustix::thread::set_name(&CString::new(READER).unwrap_or_default());
    let failure = |error: std::io::Error| Failure::new(error.to_string());
    lockstep_keyd::reader::run(user, group).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path) -> Outcome {
    let configuration = configuration(path)?;
    let keys = lockstep_keyd::read_keys(&configuration, &unpublished());
    let loaded = &keys.loaded;
    let lines = configuration.wrong.iter();
    let mut wrong: Vec<String> = lines
        .map(|wrong| format!("{}: {wrong}", path.display()))
        .collect();
    if let Err(error) = lockstep_keyd::check_user(&configuration) {
        wrong.push(error.to_string());
    }
    wrong.extend(keys.wrong());
    if loaded.is_empty() && wrong.is_empty() {
        return Err(Failure::new(format!("{}: it names no key", path.display()))
            .remedy("add a section [key NAME]"));
    }
    for section in &configuration.keys {
        for own in loaded.iter().filter(|loaded| loaded.name == section.name) {
            outln!(
                "{}: {}, to {} by {}, in {}",
                section.name,
                own.kind,
                section.uses,
                [&section.users[..], &section.groups[..]].concat().join(" "),
                own.file.display()
            );
            if let Some(mode) = own.open_mode {
                outln!(
                    "  warning: {} can be read by others than root (mode {mode:o}), and so \
                     perhaps by the server: chmod 600",
                    own.file.display()
                );
            }
        }
    }
    if let Some(Shortage { what, remedy }) = shortage(&configuration, &keys) {
        outln!("warning: {what}\n  remedy: {remedy}");
    }
    match wrong.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        // The daemon serves the keys that are listed above.
        false => Err(Failure::new(wrong.join("\n"))
            .remedy("correct the configuration, or the files it names")),
    }
}

/// Returns the shortage if the unit of the daemon allows less memory than this configuration needs,
/// with the keys that were read.
pub fn shortage(configuration: &Configuration, keys: &Keys) -> Option<Shortage> {
    let unit = Unit::read(Path::new("/"), UNIT).filter(Unit::is_in_force)?;
    let limit = memory::limit_of_unit(unit.get("MemoryMax")?)?;
    memory::shortage(configuration, keys.answers(), limit)
}

fn export_reference(path: &Path, options: &ExportOptions) -> Outcome {
    let configuration = configuration(path)?;
    let mut keys = configuration.keys.iter();
    let section = keys.find(|key| key.name == options.name).ok_or_else(|| {
        let names = joined(configuration.keys.iter().map(|key| &key.name), ", ");
        Failure::usage(format!(
            "there is no key {} in {}",
            options.name,
            path.display()
        ))
        .remedy(format!("one of: {names}"))
    })?;
    let mut keys = lockstep_keyd::read_keys(&configuration, &unpublished());
    keys.loaded.retain(|loaded| loaded.name == section.name);
    keys.loaded
        .dedup_by(|one, other| one.public == other.public);
    let [key] = &keys.loaded[..] else {
        let left_out = keys.left_out.iter().find(|key| key.name == section.name);
        return Err(match (left_out, keys.loaded.len()) {
            (Some(why), 0) => Failure::new(why.why.clone()).remedy("lockstep keyd check"),
            (_, many) => Failure::new(format!("the section {} has {many} keys", section.name))
                .remedy("have the daemon keep a reference to each: `references` in the section"),
        });
    };
    let socket = configuration.socket;
    let reference = Reference {
        name: section.name.clone(),
        socket: (socket != Path::new(DEFAULT_SOCKET)).then_some(socket),
        public: key.public.clone(),
    };
    let text = reference
        .to_file()
        .ok_or_else(|| Failure::new("the key cannot be written as a reference"))?;
    match &options.out {
        None => out!("{text}"),
        Some(file) => write_new(file, &text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a new file. Fails if the file exists, which could be the key, or if another user can
/// change its directory.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let failure = |what: String| {
        Failure::new(what).remedy("name another file, or remove this one if it is a reference")
    };
    let mut file = trusted::create_new(path).map_err(|error| failure(error.to_string()))?;
    file.write_all(text.as_bytes()).map_err(|error| {
        let _ = fs::remove_file(path);
        failure(format!("{}: {error}", path.display()))
    })
}

fn list(path: &Path, options: &KeysOptions) -> Outcome {
    let configured = || Configuration::read(path).map(|configuration| configuration.socket);
    let socket = match &options.socket {
        Some(socket) => socket.clone(),
        None => configured().unwrap_or_else(|_| PathBuf::from(DEFAULT_SOCKET)),
    };
    let failure = |refused: Refused| Failure::new(refused.to_string());
    let offers = offers(&socket).map_err(failure)?;
    if options.json {
        outln!("{}", json(&offers)?);
    } else {
        offers
            .iter()
            .for_each(|key| outln!("{}: {}", key.name, key.uses));
    }
    Ok(ExitCode::SUCCESS)
}
