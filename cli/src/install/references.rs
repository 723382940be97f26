//! `lockstep install --keyd`: the key daemon holds a server's keys, and the server has references.
//!
//! The server's own files stay as they are. A drop-in for its unit has systemd show the service a
//! reference in the place of each key's file, so that no process of the service sees the key. The
//! daemon gets a section for each key. Before anything is written, the server checks its
//! configuration with the references in place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_common::{Failure, Manual, Scratch, program};
use lockstep_keyd::access::Accounts;
use lockstep_keyd::key::{Key, readable_by_others};
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE, KeySection};
use lockstep_keyd::stand_in::{contents, stand_in};
use lockstep_remote::{DEFAULT_SOCKET, LONGEST_NAME, Reference};

use super::allowance::Allowance;
use super::change::{Change, Plan, foreign, is_gone};
use super::sections::{Section, Sections};
use crate::command::run;
use crate::keyd::unpublished;
use crate::servers::Server;
use crate::servers::drop_in::{
    Missing, drop_in_text, drop_ins, is_drop_in, is_socket, listening, references_of,
    socket_drop_in, socket_text,
};
use crate::servers::hybrid::IS_NEEDED;
use crate::servers::named::{naming, naming_of};
use crate::servers::site::{Site, System, site};
use crate::trust::is_plain;
use crate::unit::Unit;

/// How the key daemon comes in.
#[derive(Args)]
pub struct KeydOptions {
    /// Also have the key daemon hold the server's keys: the server gets references in their place
    #[arg(long)]
    keyd: bool,
    /// A key to hold [default: all that the server's configuration names]
    #[arg(long = "key", value_name = "FILE", requires = "keyd")]
    keys: Vec<PathBuf>,
    /// The user that serves [default: as the server's configuration says]
    #[arg(long, value_name = "NAME", requires = "keyd")]
    user: Option<String>,
    /// Where the file of a reference is missing, have the server start with the key itself
    /// [default: it does not start]
    #[arg(long, requires = "keyd")]
    fallback: bool,
}

/// The units of the daemon, as arguments of systemctl.
const UNITS: &str = "lockstep-keyd.socket lockstep-keyd.service";

/// A key of the server.
struct Held {
    /// Its file, links resolved.
    file: PathBuf,
    /// Its name for the daemon.
    name: String,
    /// What stands in its place.
    stand_in: String,
}

impl KeydOptions {
    /// What the server's configuration is to say about references; None if it is to have none.
    pub fn allowance(&self, root: &Path) -> Result<Option<Allowance>, Failure> {
        if !self.keyd {
            return Ok(None);
        }
        let there = read(&root.join(DEFAULT_FILE.trim_start_matches('/')))?;
        let sections = Sections::parse(there.as_deref());
        let socket = Configuration::parse(&sections.of_administrator()).socket;
        Ok(Some(Allowance { socket }))
    }

    /// What has the daemon hold the keys of a server, if that is asked for. The server is to load
    /// the configuration `conf`, which is going to have this text, unless it is there as it is.
    pub fn plan(
        &self,
        server: &Server,
        root: &Path,
        conf: &Path,
        text: Option<&str>,
    ) -> Result<Plan, Failure> {
        if !self.keyd {
            return Ok(Plan::default());
        }
        let scratch = Scratch::new("install")?;
        let tried = text.map(|text| put(&scratch, "openssl.cnf", text));
        let tried = tried.transpose()?;
        let openssl = tried.as_deref().unwrap_or(conf);
        let system = System { root, openssl };
        let site = site(
            server.name,
            &server.reader,
            &system,
            &self.keys,
            self.user.as_deref(),
        )?;
        let (sections, held) = hold(server, &system, &site)?;
        let text = sections.text().unwrap_or_default();
        let configuration = Configuration::parse(&text);
        if system.is_here() {
            check(&configuration, &held)?;
        }
        if system.runs_systemd() {
            try_out(server, &system, &held, &scratch)?;
        }
        let missing = match self.fallback {
            true => Missing::FallsBack,
            false => Missing::Fails,
        };
        plan(server, &system, &site, &configuration, text, &held, missing)
    }
}

/// Decides which section of the daemon's configuration holds each key, and makes what stands in
/// its place.
fn hold(
    server: &Server,
    system: &System<'_>,
    site: &Site,
) -> Result<(Sections, Vec<Held>), Failure> {
    let there = read(&system.at(Path::new(DEFAULT_FILE)))?;
    let mut sections = Sections::parse(there.as_deref());
    sections.retain(server.name, &[]);
    let others = Configuration::parse(&sections.text().unwrap_or_default());
    let mut names: Vec<String> = others.keys.iter().map(|key| key.name.clone()).collect();
    // What the administrator has configured may do for a key as well. What another server has goes
    // when that server leaves.
    let mine = Configuration::parse(&sections.of_administrator());
    let socket = Some(&mine.socket).filter(|own| *own != Path::new(DEFAULT_SOCKET));
    let (mut own, mut held) = (Vec::new(), Vec::<Held>::new());
    for named in &site.keys {
        let file = resolved(system, named)?;
        let path = system.at(&file);
        // A reference there is the administrator's own.
        if held.iter().any(|held| held.file == file) || contents(&path).reference {
            continue;
        }
        let holds = |section: &&KeySection| {
            let its_file = resolved(system, &section.file).is_ok_and(|own| own == file);
            its_file
                && section.unusable.is_none()
                && section.uses.sign
                && section.users.contains(&site.user)
        };
        let name = match mine.keys.iter().find(holds) {
            Some(section) => section.name.clone(),
            None => {
                let name = free_name(server.name, &file, &names);
                names.push(name.clone());
                own.push(Section {
                    server: server.name.to_owned(),
                    name: name.clone(),
                    file: file.clone(),
                    user: site.user.clone(),
                });
                name
            }
        };
        let unusable = |error| {
            Failure::new(format!("{}: {error}", file.display())).remedy(format!(
                "{} says which keys the daemon holds; to leave this one with the server, name the \
                 others by --key",
                Manual::Keyd.name()
            ))
        };
        let key = Key::read(&path, &unpublished()).map_err(unusable)?;
        let reference = Reference {
            name: name.clone(),
            socket: socket.cloned(),
            public: key.public,
        };
        let stand_in = stand_in(&path, &reference).map_err(unusable)?;
        held.push(Held {
            file,
            name,
            stand_in,
        });
    }
    if held.is_empty() {
        return Err(Failure::new(format!(
            "{} names no private key that the daemon could hold",
            server.name
        ))
        .remedy("name its keys by --key"));
    }
    let mut sections = Sections::parse(there.as_deref());
    sections.retain(server.name, &own);
    own.iter().for_each(|section| sections.add(section));
    Ok((sections, held))
}

/// Whether the daemon can serve the keys of the server. Others that it cannot serve are named.
fn check(configuration: &Configuration, held: &[Held]) -> Result<(), Failure> {
    for wrong in &configuration.wrong {
        eprintln!("warning: {DEFAULT_FILE}: {wrong}");
    }
    let keys = lockstep_keyd::read_keys(configuration, &unpublished());
    let concerned = |name: &str| held.iter().any(|held| held.name == name);
    let (own, others): (Vec<_>, Vec<_>) = keys
        .left_out
        .iter()
        .partition(|key| concerned(key.name.as_str()));
    for other in others {
        eprintln!("warning: {other}");
    }
    match own.is_empty() {
        true => Ok(()),
        false => {
            let lines: Vec<String> = own.into_iter().map(ToString::to_string).collect();
            Err(Failure::new(lines.join("\n")).remedy(format!("correct {DEFAULT_FILE}")))
        }
    }
}

/// The file that a path leads to. A certificate that is renewed later may come with a key in
/// another file; the one that is here now goes on to belong to its reference.
fn resolved(system: &System<'_>, named: &Path) -> Result<PathBuf, Failure> {
    let unreadable = |error| {
        Failure::new(format!("cannot read {}: {error}", named.display()))
            .remedy("run this as root, or name the server's keys by --key")
    };
    if !system.is_here() {
        // Links would lead out of the root.
        fs::metadata(system.at(named)).map_err(unreadable)?;
        return Ok(named.to_owned());
    }
    let file = fs::canonicalize(named).map_err(unreadable)?;
    match is_plain(&file.to_string_lossy()) {
        true => Ok(file),
        false => Err(Failure::new(format!(
            "systemd reads the path {} differently than it is written",
            file.display()
        ))
        .remedy("keep the key where the path has only letters, digits and . _ + - /")),
    }
}

/// A name for a key in a file: the server's, and the last two parts of the path.
fn free_name(server: &str, file: &Path, taken: &[String]) -> String {
    let above = file.parent().and_then(Path::file_name).unwrap_or_default();
    let stem = file.file_stem().unwrap_or_default();
    let name = format!("{server}-{}-{}", above.display(), stem.display());
    let mut name = name.replace(['+', '@'], "_");
    name.truncate(LONGEST_NAME - 4);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    let free = names.find(|name| !taken.contains(name));
    free.unwrap_or_default()
}

/// Has the server check its configuration with the references where its keys are, in a mount
/// namespace of its own: nothing else sees them there.
fn try_out(
    server: &Server,
    system: &System<'_>,
    held: &[Held],
    scratch: &Scratch,
) -> Result<(), Failure> {
    const SCRIPT: &str = "while [ \"$1\" != -- ]; do mount --bind \"$1\" \"$2\" || exit; shift 2; \
                          done; shift; exec \"$@\"";
    let Some(check) = server.reader.check else {
        return Ok(());
    };
    let check = check(system);
    let shown = check.join(" ".as_ref());
    let mut trial = system.program("unshare");
    trial.args(["--mount", "sh", "-c", SCRIPT, "sh"]);
    for (number, held) in held.iter().enumerate() {
        let stand_in = put(scratch, &format!("{number}.pem"), &held.stand_in)?;
        trial.arg(stand_in).arg(&held.file);
    }
    trial.arg("--").args(check);
    run(&mut trial).map(drop).map_err(|failure| {
        Failure::new(format!(
            "{} refuses its configuration with references in place of its keys; nothing was \
             changed: {}",
            server.name, failure.what
        ))
        .remedy(format!(
            "see whether it starts without them: {}",
            shown.display()
        ))
    })
}

fn put(scratch: &Scratch, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let path = scratch.path().join(name);
    fs::write(&path, text)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    Ok(path)
}

fn plan(
    server: &Server,
    system: &System<'_>,
    site: &Site,
    configuration: &Configuration,
    text: String,
    held: &[Held],
    missing: Missing,
) -> Result<Plan, Failure> {
    let root = system.root;
    let mut changes = vec![Change::to(system.at(Path::new(DEFAULT_FILE)), text)];
    let place = |held: &Held| format!("{}/{}.pem", references_of(server), held.name);
    for held in held {
        let path = system.at(Path::new(&place(held)));
        changes.push(Change::to(path, held.stand_in.clone()));
    }
    for unused in references(server, root)? {
        let mut used = held.iter().map(|held| system.at(Path::new(&place(held))));
        if used.all(|used| used != unused) {
            changes.push(Change::Remove { path: unused });
        }
    }
    let socket = site.root.as_ref().map(|directory| {
        let inside = configuration.socket.strip_prefix("/");
        let listen = directory.join(inside.unwrap_or(&configuration.socket));
        socket_text(server, &listen.display().to_string())
    });
    let path = root.join(socket_drop_in(server));
    let socket = own(path, |there| is_socket(server, there), socket)?;
    let has_new_socket = socket.as_ref().is_some_and(|change| !change.is_nothing());
    changes.extend(socket);
    let is_new = !changes.iter().all(Change::is_nothing);
    let mut notes = Vec::new();
    let mut recovery = Vec::new();
    if !system.runs_systemd() {
        notes.push(format!(
            "systemd does not run here. So the server did not check its configuration, the key \
             daemon was not started, and its user {} was not created. Without systemd the server \
             still finds its keys; name these files in its configuration instead: {}",
            configuration.user,
            held.iter().map(place).collect::<Vec<_>>().join(" ")
        ));
    } else if !has_unit(root) {
        return Err(Failure::new(
            "systemd has no unit lockstep-keyd.service, and nothing was changed",
        )
        .remedy(
            "install lockstep's package, or copy packaging/systemd of its sources to \
             /etc/systemd/system",
        ));
    } else {
        let before = State::now();
        changes.extend(user(&configuration.user));
        if is_new || !before.is_enabled || !before.is_active {
            changes.extend(start(has_new_socket));
            recovery = recover(before);
        }
    }
    // The last step is the one that changes what the server sees.
    for path in drop_ins(server, root) {
        let pairs = held.iter().map(|held| (held.name.as_str(), &*held.file));
        let text = drop_in_text(server, pairs, missing);
        changes.extend(own(path, |there| is_drop_in(server, there), Some(text))?);
    }
    for held in held {
        if let Some(mode) = readable_by_others(&system.at(&held.file)) {
            let shown = held.file.display();
            notes.push(format!(
                "{shown} can still be read by others than root (mode {mode:o}), and so perhaps by \
                 {0}. If no other program needs that: chmod 600 {shown}",
                server.name
            ));
        }
    }
    notes.push(format!(
        "whenever a certificate or key of {0} is renewed, run `lockstep install --server {0} \
         --keyd` again, and restart {0}",
        server.name
    ));
    Ok(Plan {
        changes,
        notes,
        recovery,
        ..Plan::default()
    })
}

/// Whether a server has references.
pub fn has_references(server: &Server, root: &Path) -> bool {
    !in_references(server, root).is_empty()
}

/// Why all of a server's part stays once these changes are made: something still names its
/// references. The server does not start without them, nor without the module that reads them and
/// the daemon's part.
pub fn needed(server: &Server, root: &Path, changes: &[&[Change]]) -> Vec<Failure> {
    let mut left = Vec::new();
    if !has_references(server, root) {
        return left;
    }
    let changes = changes.iter().copied().flatten();
    let mut done: Vec<Change> = changes.filter_map(removal).collect();
    for path in drop_ins(server, root) {
        match own(path, |there| is_drop_in(server, there), None) {
            Ok(change) => done.extend(change),
            Err(failure) => left.push(failure),
        }
    }
    // Each may be named, or the directory of all.
    let directory = references_of(server);
    let own = || naming_of(server, root, |line| line.contains(&directory));
    let Some(file) = naming(root, is_gone(&done), &directory).or_else(own) else {
        return Vec::new();
    };
    let what = format!(
        "{} names references in {directory}, so all stays that {} has of lockstep: it would not \
         start without",
        file.display(),
        server.name
    );
    let failure = Failure {
        status: IS_NEEDED,
        ..Failure::new(what)
    };
    left.push(failure.remedy(format!(
        "name the keys themselves there ({DEFAULT_FILE} says where they are), or remove those \
         lines; restart {}; then run this again",
        server.name
    )));
    left
}

/// What undoes it for servers.
pub fn plan_removal(leaving: &[&Server], root: &Path) -> Result<Plan, Failure> {
    let openssl = Path::new("");
    let system = System { root, openssl };
    let mut plan = Plan::default();
    let mut gone: Vec<&Server> = Vec::new();
    let mut sockets = Vec::new();
    for &server in leaving {
        for path in drop_ins(server, root) {
            plan.undo(own(path, |there| is_drop_in(server, there), None));
        }
        gone.push(server);
        let socket = root.join(socket_drop_in(server));
        sockets.extend(
            read(&socket)?
                .as_deref()
                .and_then(listening)
                .map(str::to_owned),
        );
        plan.undo(own(socket, |there| is_socket(server, there), None));
        for path in in_references(server, root) {
            plan.undo(match contents(&path).reference {
                true => Ok([Change::Remove { path }]),
                false => Err(foreign(&path)),
            });
        }
    }
    let path = system.at(Path::new(DEFAULT_FILE));
    let Some(there) = read(&path)? else {
        return Ok(plan);
    };
    let mut sections = Sections::parse(Some(&there));
    gone.iter()
        .for_each(|server| sections.retain(server.name, &[]));
    let text = sections.text();
    if text.as_deref() == Some(&there) {
        return Ok(plan);
    }
    let left = Configuration::parse(text.as_deref().unwrap_or_default());
    // What nobody understands may be meant to hold a key.
    let holds_more = !left.keys.is_empty() || !left.wrong.is_empty();
    plan.changes.push(match text {
        Some(text) => Change::Write { path, text },
        None => Change::Remove { path },
    });
    if system.runs_systemd() && has_unit(root) && !holds_more {
        plan.changes
            .push(step(format!("systemctl disable {UNITS}")));
    }
    // What systemd knows nothing of any more, and what no socket unit takes away.
    let own_socket = (!holds_more && !system.runs_systemd()).then(|| {
        let there = Configuration::parse(&there);
        there.socket.display().to_string()
    });
    let sockets: Vec<&str> = sockets
        .iter()
        .chain(&own_socket)
        .map(String::as_str)
        .collect();
    let sockets = sockets.join(" ");
    let then = match (holds_more, system.runs_systemd()) {
        (true, true) => "run: systemctl restart lockstep-keyd.service".to_owned(),
        (false, true) => format!("run: systemctl stop {UNITS}"),
        (true, false) => "restart the key daemon".to_owned(),
        (false, false) => "end the key daemon (SIGTERM)".to_owned(),
    };
    let then = match (sockets.is_empty(), system.runs_systemd()) {
        (true, _) => then,
        (false, true) => format!("{then} && rm -f {sockets}"),
        (false, false) => format!("{then}, then: rm -f {sockets}"),
    };
    plan.notes.push(format!(
        "a server uses the key daemon until its restart; after the restart, {then}"
    ));
    Ok(plan)
}

/// The same removal of a file.
fn removal(change: &Change) -> Option<Change> {
    match change {
        Change::Remove { path } => Some(Change::Remove { path: path.clone() }),
        _ => None,
    }
}

/// Whether systemd knows the daemon.
fn has_unit(root: &Path) -> bool {
    Unit::read(root, "lockstep-keyd.service").is_some()
}

fn step(command: String) -> Change {
    Change::Run {
        command,
        undo: None,
    }
}

/// Creates the daemon's user, if it is missing.
fn user(name: &str) -> Option<Change> {
    let options = "--system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin";
    let is_missing = Accounts::of_system().user(name).is_none();
    is_missing.then(|| Change::Run {
        command: format!("useradd {options} {name}"),
        undo: Some(format!("userdel {name}")),
    })
}

/// Starts the daemon, or has it read its configuration anew. It takes another socket only while it
/// does not run.
fn start(has_new_socket: bool) -> Vec<Change> {
    let reload = "systemctl daemon-reload".to_owned();
    let stop = has_new_socket.then(|| format!("systemctl stop {UNITS}"));
    let enable = format!("systemctl enable {UNITS}");
    let restart = "systemctl restart lockstep-keyd.service".to_owned();
    let commands = [Some(reload), stop, Some(enable), Some(restart)];
    commands.into_iter().flatten().map(step).collect()
}

/// What has the daemon as it was, when the files are as they were.
fn recover(before: State) -> Vec<Change> {
    let reload = "systemctl daemon-reload".to_owned();
    let stop = format!("systemctl stop {UNITS}");
    let disable = (!before.is_enabled).then(|| format!("systemctl disable {UNITS}"));
    let start = before.is_active.then(|| format!("systemctl start {UNITS}"));
    let commands = [Some(reload), Some(stop), disable, start];
    commands.into_iter().flatten().map(step).collect()
}

/// How systemd has the daemon's socket.
#[derive(Clone, Copy)]
struct State {
    is_enabled: bool,
    is_active: bool,
}

impl State {
    fn now() -> State {
        let ask = |about: &str| {
            let mut command = program("systemctl");
            run(command.args([about, "--quiet", "lockstep-keyd.socket"])).is_ok()
        };
        State {
            is_enabled: ask("is-enabled"),
            is_active: ask("is-active"),
        }
    }
}

/// A server's references that are there.
fn references(server: &Server, root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let files = in_references(server, root);
    match files.iter().find(|file| !contents(file).reference) {
        Some(other) => Err(foreign(other)),
        None => Ok(files),
    }
}

/// What is in the directory of a server's references.
fn in_references(server: &Server, root: &Path) -> Vec<PathBuf> {
    let directory = references_of(server);
    let entries = fs::read_dir(root.join(directory.trim_start_matches('/')));
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

/// What gives a file of `install` this text, or removes it; `None` if there is nothing to remove.
/// Fails where somebody else has written the file.
fn own(
    path: PathBuf,
    is_own: impl Fn(&str) -> bool,
    text: Option<String>,
) -> Result<Option<Change>, Failure> {
    match (read(&path)?, text) {
        (Some(there), _) if !is_own(&there) => Err(foreign(&path)),
        (_, Some(text)) => Ok(Some(Change::to(path, text))),
        (Some(_), None) => Ok(Some(Change::Remove { path })),
        (None, None) => Ok(None),
    }
}

/// The text of a file, if there is one.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(
            Failure::new(format!("cannot read {}: {error}", path.display()))
                .remedy("run this as root"),
        ),
    }
}
