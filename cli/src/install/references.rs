//! `lockstep install --keyd`: the key daemon holds a server's keys, and the server has references.
//!
//! The server's own files stay as they are. The daemon gets a section for each key, and keeps a
//! directory of references for it. A drop-in for the server's unit has systemd show the service
//! those in the places of the keys, so that no process of the service sees a key. Before anything
//! is written, the server checks its configuration with references in place.
//!
//! Where a directory holds nothing but keys of this server and certificates, as certbot's do, the
//! daemon's directory takes its place as a whole. Each file that is replaced there is a new one for
//! the service, too, so a reload is all that a renewal takes. Elsewhere a file takes the place of a
//! file, and the service sees that one until it is restarted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_common::{Failure, Scratch};
use lockstep_keyd::key::readable_by_others;
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE};

use super::allowance::Allowance;
use super::change::{self, Change, Plan, is_gone, own};
use super::daemon::{State, UNITS, has_unit, recover, start, user, written};
use super::held::{Held, hold};
use super::processes::is_shown;
use super::sections::Sections;
use crate::files::entries;
use crate::keyd::unpublished;
use crate::servers::Server;
use crate::servers::drop_in::{
    BIND, BIND_IF_THERE, REFERENCES, drop_in_text, drop_ins, is_drop_in, is_socket, listening,
    references_of, socket_drop_in, socket_text,
};
use crate::servers::hybrid::IS_NEEDED;
use crate::servers::named::{naming, naming_of};
use crate::servers::site::{Site, System, site};
use crate::words::joined;

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

    /// What has the daemon hold the keys of a server, if that is asked for.
    pub fn plan(&self, server: &Server, system: &System<'_>) -> Result<Plan, Failure> {
        if !self.keyd {
            return Ok(Plan::default());
        }
        let said = (server.reader.read)(system);
        let site = site(server.name, said, &self.keys, self.user.as_deref())?;
        let (sections, held) = hold(server, system, &site)?;
        let text = sections.text().unwrap_or_default();
        let configuration = Configuration::parse(&text);
        if system.is_here() {
            check(&configuration, &held)?;
        }
        if system.runs_systemd() {
            try_out(server, system, &held)?;
        }
        let bind = match self.fallback {
            true => BIND_IF_THERE,
            false => BIND,
        };
        plan(server, system, &site, &configuration, text, &held, bind)
    }
}

/// Whether the daemon can serve the keys of the server. Others that it cannot serve are named.
fn check(configuration: &Configuration, held: &[Held]) -> Result<(), Failure> {
    for wrong in &configuration.wrong {
        eprintln!("warning: {DEFAULT_FILE}: {wrong}");
    }
    let keys = lockstep_keyd::read_keys(configuration, &unpublished());
    let concerned = |name: &str| held.iter().any(|held| held.section.name == name);
    let (own, others): (Vec<_>, Vec<_>) = keys
        .left_out
        .iter()
        .partition(|key| concerned(key.name.as_str()));
    for other in others {
        eprintln!("warning: {other}");
    }
    match own.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(joined(own, "\n")).remedy(format!("correct {DEFAULT_FILE}"))),
    }
}

/// Has the server check its configuration with the references where its keys are.
fn try_out(server: &Server, system: &System<'_>, held: &[Held]) -> Result<(), Failure> {
    let scratch = Scratch::new("install")?;
    let mut pairs = Vec::new();
    for (number, held) in held.iter().enumerate() {
        let place = scratch.path().join(number.to_string());
        fs::create_dir(&place)
            .map_err(|error| Failure::new(format!("cannot make {}: {error}", place.display())))?;
        for (name, text) in &held.shown {
            scratch.write(place.join(name), text)?;
        }
        for (kept, covered) in held.binds() {
            // What the daemon is going to keep is still elsewhere.
            let kept = kept.strip_prefix(held.section.references());
            pairs.push([place.join(kept.unwrap_or(Path::new(""))), covered]);
        }
    }
    let checked = system.check(&server.reader, &pairs, None);
    checked.map_err(|why| {
        let name = server.name;
        Failure::new(format!(
            "{name} refuses its configuration with references in place of its keys; nothing was \
             changed: {why}"
        ))
        .remedy("see whether it takes its configuration as it is; if so, install without --keyd")
    })
}

fn plan(
    server: &Server,
    system: &System<'_>,
    site: &Site,
    configuration: &Configuration,
    text: String,
    held: &[Held],
    bind: &str,
) -> Result<Plan, Failure> {
    let root = system.root;
    let mut changes = vec![Change::to(system.at(Path::new(DEFAULT_FILE)), text)];
    let binds: Vec<(PathBuf, PathBuf)> = held.iter().flat_map(Held::binds).collect();
    // Those whose renewal the service sees by a restart alone, or by another name.
    let alone = held
        .iter()
        .filter(|held| held.directories.is_empty() || !system.runs_systemd());
    let named = joined(alone.flat_map(Held::named), ", ");
    let socket = site.root.as_ref().map(|directory| {
        let inside = configuration.socket.strip_prefix("/");
        let listen = directory.join(inside.unwrap_or(&configuration.socket));
        socket_text(server, &listen.display().to_string())
    });
    let path = root.join(socket_drop_in(server));
    let socket = own(path, |there| is_socket(server, there), socket)?;
    let has_new_socket = !socket.is_nothing();
    changes.push(socket);
    let is_new = !changes.iter().all(Change::is_nothing);
    let mut notes = Vec::new();
    let mut recovery = Vec::new();
    if !system.runs_systemd() {
        notes.push(format!(
            "systemd does not run here. So the server did not check its configuration, the key \
             daemon was not started, and its user {} was not created. Without systemd the server \
             still finds its keys; once the daemon runs, have its configuration name instead: \
             {named}",
            configuration.user
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
            changes.extend(start(has_new_socket, before));
            recovery = recover(before, system, held);
        }
    }
    let mut of_server = Vec::new();
    for path in drop_ins(server, root) {
        let pairs = binds.iter();
        let pairs = pairs.map(|(kept, covered)| (kept.display(), covered.display()));
        let text = drop_in_text(server, pairs, bind);
        of_server.push(own(path, |there| is_drop_in(server, there), Some(text))?);
    }
    // The last steps are those that change what the server sees: it would not start without its
    // references, which the daemon cannot write everywhere.
    let has_some = |steps: &[Change]| !steps.iter().all(Change::is_nothing);
    if system.runs_systemd() && (has_some(&changes) || has_some(&of_server)) {
        changes.push(written(server, configuration));
    }
    changes.extend(of_server);
    for file in held.iter().flat_map(|held| &held.keys) {
        if let Some(mode) = readable_by_others(&system.at(file)) {
            let shown = file.display();
            notes.push(format!(
                "{shown} can still be read by others than root (mode {mode:o}), and so perhaps by \
                 {0}. If no other program needs that: chmod 600 {shown}",
                server.name
            ));
        }
    }
    for held in held.iter().filter(|held| !held.directories.is_empty()) {
        notes.push(format!(
            "the daemon also takes keys that come into {} later, and lets {} sign with them",
            held.section.file.display(),
            site.user
        ));
    }
    let renamed = held.iter().filter(|held| held.is_renamed);
    let renamed = renamed.flat_map(|held| &held.keys);
    let renamed = joined(renamed.map(|key| key.display()), " ");
    if !renamed.is_empty() && system.runs_systemd() {
        notes.push(format!(
            "restart {} now: until then handshakes fail with these keys, which have other names in \
             {DEFAULT_FILE} than before: {renamed}",
            server.name
        ));
    }
    let then = match named.is_empty() || !system.runs_systemd() {
        true => "lockstep keyd wait, and then a reload of it, is all that is needed".to_owned(),
        false => format!(
            "run lockstep keyd wait and restart it. A reload is enough where its configuration \
             names the files that the daemon keeps, and the certificates beside them: {named}"
        ),
    };
    notes.push(format!(
        "whenever a certificate or key of {} is renewed, {then}",
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
pub fn needed(server: &Server, root: &Path, changes: &[&[Change]]) -> Option<Failure> {
    if !has_references(server, root) {
        return None;
    }
    // Each may be named, or the directory of all.
    let directory = references_of(server) + "/";
    let own = || naming_of(server, root, |line| line.contains(&directory));
    let file = naming(root, is_gone(changes), &directory).or_else(own)?;
    let what = format!(
        "{} names references in {directory}, so all stays that {} has of lockstep: it would not \
         start without",
        file.display(),
        server.name
    );
    let remedy = format!(
        "name the keys themselves there ({DEFAULT_FILE} says where they are), or remove those \
         lines; restart {}; then run this again",
        server.name
    );
    Some(Failure::new(what).status(IS_NEEDED).remedy(remedy))
}

/// What undoes it for servers, but for their drop-ins.
pub fn plan_removal(leaving: &[&Server], root: &Path) -> Result<Plan, Failure> {
    let openssl = Path::new("");
    let system = System { root, openssl };
    let mut plan = Plan::default();
    let (mut sockets, mut shown) = (Vec::new(), Vec::new());
    for &server in leaving {
        let socket = root.join(socket_drop_in(server));
        sockets.extend(
            read(&socket)?
                .as_deref()
                .and_then(listening)
                .map(str::to_owned),
        );
        plan.undo(own(socket, |there| is_socket(server, there), None));
        let kept = in_references(server, root);
        if !kept.is_empty() && system.is_here() && is_shown(server) {
            shown.push(server.name);
            continue;
        }
        kept.into_iter()
            .for_each(|path| plan.undo(change::kept(path)));
        // A killed command may have left the directory of all.
        let path = system.at(Path::new(&references_of(server)));
        plan.changes.push(Change::Leave { path });
    }
    plan.notes.extend(shown.iter().map(|name| {
        format!("{name} has the references in {REFERENCES}/{name} until its restart, so they stay")
    }));
    plan.until_restart = shown;
    let path = system.at(Path::new(DEFAULT_FILE));
    let there = read(&path)?;
    let mut sections = Sections::parse(there.as_deref());
    leaving
        .iter()
        .for_each(|server| sections.retain(server.name, &[]));
    let text = sections.text();
    if text == there {
        plan.changes.push(Change::Leave { path });
        return Ok(plan);
    }
    let left = Configuration::parse(text.as_deref().unwrap_or_default());
    // What nobody understands may be meant to hold a key.
    let holds_more = !left.keys.is_empty() || !left.wrong.is_empty();
    if system.runs_systemd() && has_unit(root) && !holds_more {
        // Before the sections go, by which the next `uninstall` knows that this is to be done.
        plan.changes.push(Change::Run {
            command: format!("systemctl disable {UNITS}"),
            undo: Some(format!("systemctl enable {UNITS}")),
        });
    }
    plan.changes.push(match text {
        Some(text) => Change::Write { path, text },
        None => Change::Remove { path },
    });
    // What systemd knows nothing of any more, and what no socket unit takes away.
    if !holds_more && !system.runs_systemd() {
        let there = Configuration::parse(there.as_deref().unwrap_or_default());
        sockets.push(there.socket.display().to_string());
    }
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

/// The files in the directory of a server's references, and the directories that are empty.
fn in_references(server: &Server, root: &Path) -> Vec<PathBuf> {
    let directory = references_of(server);
    let mut waiting = vec![root.join(directory.trim_start_matches('/'))];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        // No link is followed.
        let Ok(about) = fs::symlink_metadata(&path) else {
            continue;
        };
        let below = about.is_dir().then(|| entries(&path));
        let before = waiting.len();
        waiting.extend(below.into_iter().flatten());
        if waiting.len() == before {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text of a file, if there is one.
pub fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(
            Failure::new(format!("cannot read {}: {error}", path.display()))
                .remedy("run this as root"),
        ),
    }
}
