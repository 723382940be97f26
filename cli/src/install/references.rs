//! `lockstep install --keyd`: the key daemon holds a server's keys, and the server has references.
//!
//! The server's own files stay as they are. The daemon gets a section for each key, and keeps a
//! directory of references for it. With a drop-in for the server's unit, systemd shows the service
//! the references in the places of the keys, so that no process of the service sees a key. Before
//! anything is written, the server checks its configuration with references in place.
//!
//! Where a directory has only keys of this server and certificates, as certbot's directories do,
//! the daemon's directory takes its place as a whole. The service then sees each file that is
//! replaced there, and a reload is enough after a renewal. Elsewhere a file takes the place of a
//! file, and the service sees the old file until a restart.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use lockstep_common::{Failure, Scratch};
use lockstep_keyd::key::readable_by_others;
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE};

use super::allowance::Allowance;
use super::change::{self, Change, Plan, is_gone};
use super::daemon::{State, UNITS, create, has_unit, written};
use super::found::Found;
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

/// Options for the key daemon.
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
    /// Returns the lines that allow references, for the server's configuration; `None` without the
    /// key daemon.
    pub fn allowance(&self, daemon: &Found) -> Result<Option<Allowance>, Failure> {
        if !self.keyd {
            return Ok(None);
        }
        let sections = Sections::parse(daemon.text()?);
        let socket = Configuration::parse(&sections.of_administrator()).socket;
        Ok(Some(Allowance { socket }))
    }

    /// Finds the keys of a server, if the daemon is to hold them, and tries references in their
    /// places. `found` is the configuration of the daemon.
    pub fn keys(
        &self,
        server: &Server,
        system: &System<'_>,
        found: Found,
    ) -> Result<Option<Keys>, Failure> {
        if !self.keyd {
            return Ok(None);
        }
        let said = (server.reader.read)(system);
        let site = site(server.name, said, &self.keys, self.user.as_deref())?;
        let (sections, held) = hold(server, system, &site, found.text()?)?;
        let text = sections.text().unwrap_or_default();
        let configuration = Configuration::parse(&text);
        if system.is_here() {
            check(&configuration, &held)?;
        }
        if system.runs_systemd() {
            try_out(server, system, &held)?;
        }
        let files = held.iter().flat_map(|held| held.keys.iter().cloned());
        let open = files.filter_map(|file| Some((readable_by_others(&system.at(&file))?, file)));
        let references = held.iter().flat_map(|held| {
            let kept = system.at(&held.section.references());
            held.shown.iter().map(move |(name, _)| kept.join(name))
        });
        let drop_ins = drop_ins(server, system.root).into_iter().map(Found::at);
        let state = || State::now(system.root, &configuration.user);
        Ok(Some(Keys {
            open: open.collect(),
            fresh: references.filter(|path| !path.exists()).collect(),
            daemon: system.runs_systemd().then(state),
            socket: Found::at(system.root.join(socket_drop_in(server))),
            drop_ins: drop_ins.collect(),
            bind: match self.fallback {
                true => BIND_IF_THERE,
                false => BIND,
            },
            found,
            site,
            held,
            text,
            configuration,
        }))
    }
}

/// The keys of a server that the daemon is to hold.
pub struct Keys {
    site: Site,
    held: Vec<Held>,
    /// The configuration of the daemon now, and its text after the changes.
    found: Found,
    text: String,
    configuration: Configuration,
    /// The drop-in that has the daemon listen below the server's root directory.
    socket: Found,
    /// The drop-ins that show the service the references, and the beginning of their lines.
    drop_ins: Vec<Found>,
    bind: &'static str,
    /// The files of keys that others than root can read, with their modes.
    open: Vec<(u32, PathBuf)>,
    /// The references that are not there yet.
    fresh: Vec<PathBuf>,
    /// The state of the daemon; `None` where systemd does not run.
    daemon: Option<State>,
}

impl Keys {
    /// Plans the steps after which the daemon holds the keys, and the server has references.
    pub fn plan(&self, server: &Server) -> Result<Plan, Failure> {
        let socket = self.site.root.as_ref().map(|directory| {
            let inside = self.configuration.socket.strip_prefix("/");
            let listen = directory.join(inside.unwrap_or(&self.configuration.socket));
            socket_text(server, &listen.display().to_string())
        });
        let socket = self.socket.own(|there| is_socket(server, there), socket)?;
        let has_new_socket = !socket.is_nothing();
        let mut changes = vec![self.found.to(self.text.clone()), socket];
        let has_some = |steps: &[Change]| !steps.iter().all(Change::is_nothing);
        let is_new = has_some(&changes);
        let mut recovery = Vec::new();
        if let Some(daemon) = self.daemon {
            if !daemon.has_unit {
                return Err(Failure::new(
                    "systemd has no unit lockstep-keyd.service, and nothing was changed",
                )
                .remedy(
                    "install lockstep's package, or copy packaging/systemd of its sources to \
                     /etc/systemd/system",
                ));
            }
            let user = &self.configuration.user;
            changes.extend(daemon.lacks_user.then(|| create(user)));
            if is_new || !daemon.is_enabled || !daemon.is_active {
                changes.extend(daemon.start(has_new_socket));
                recovery = daemon.recover(&self.fresh);
            }
        }
        let binds: Vec<(PathBuf, PathBuf)> = self.held.iter().flat_map(Held::binds).collect();
        let mut of_server = Vec::new();
        for drop_in in &self.drop_ins {
            let pairs = binds.iter();
            let pairs = pairs.map(|(kept, covered)| (kept.display(), covered.display()));
            let text = drop_in_text(server, pairs, self.bind);
            of_server.push(drop_in.own(|there| is_drop_in(server, there), Some(text))?);
        }
        // The drop-ins come last, because they change the files that the server sees. The server
        // would not start without its references, and the daemon may fail to write them.
        if self.daemon.is_some() && (has_some(&changes) || has_some(&of_server)) {
            changes.push(written(server, &self.configuration));
        }
        changes.extend(of_server);
        Ok(Plan {
            changes,
            notes: self.notes(server),
            recovery,
            ..Plan::default()
        })
    }

    fn notes(&self, server: &Server) -> Vec<String> {
        let runs_systemd = self.daemon.is_some();
        // Keys whose renewal the service sees only by a restart, or under another name.
        let alone = self.held.iter();
        let alone = alone.filter(|held| held.directories.is_empty() || !runs_systemd);
        let named = joined(alone.flat_map(Held::named), ", ");
        let mut notes = Vec::new();
        if !runs_systemd {
            notes.push(format!(
                "systemd does not run here. So the server did not check its configuration, the key \
                 daemon was not started, and its user {} was not created. Without systemd the \
                 server still finds its keys; once the daemon runs, have its configuration name \
                 instead: {named}",
                self.configuration.user
            ));
        }
        for (mode, file) in &self.open {
            let shown = file.display();
            notes.push(format!(
                "{shown} can still be read by others than root (mode {mode:o}), and so perhaps by \
                 {0}. If no other program needs that: chmod 600 {shown}",
                server.name
            ));
        }
        let directories = self.held.iter().filter(|held| !held.directories.is_empty());
        notes.extend(directories.map(|held| {
            format!(
                "the daemon also takes keys that come into {} later, and lets {} sign with them",
                held.section.file.display(),
                self.site.user
            )
        }));
        let renamed = self.held.iter().filter(|held| held.is_renamed);
        let renamed = renamed.flat_map(|held| &held.keys);
        let renamed = joined(renamed.map(|key| key.display()), " ");
        if !renamed.is_empty() && runs_systemd {
            notes.push(format!(
                "restart {} now: until then handshakes fail with these keys, which have other \
                 names in {DEFAULT_FILE} than before: {renamed}",
                server.name
            ));
        }
        let then = match named.is_empty() || !runs_systemd {
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
        notes
    }
}

/// Fails if the daemon cannot serve the keys of the server. Warns of other keys that it cannot
/// serve.
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
            // The daemon has not written its files yet, so the scratch directory has them.
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

/// Whether a server has references.
pub fn has_references(server: &Server, root: &Path) -> bool {
    !in_references(server, root).is_empty()
}

/// Returns a failure if something still names a server's references once these changes are made.
/// Then all of the server's part stays: the server does not start without its references, nor
/// without the module and the daemon behind them.
pub fn needed(server: &Server, root: &Path, changes: &[&[Change]]) -> Option<Failure> {
    if !has_references(server, root) {
        return None;
    }
    // A configuration may name each file, or the directory.
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

/// Plans the removal of the references of servers, of their sections and their sockets. The
/// drop-ins of the servers are removed elsewhere.
pub fn plan_removal(leaving: &[&Server], root: &Path) -> Result<Plan, Failure> {
    let openssl = Path::new("");
    let system = System { root, openssl };
    let mut plan = Plan::default();
    let (mut sockets, mut shown) = (Vec::new(), Vec::new());
    for &server in leaving {
        let socket = Found::at(root.join(socket_drop_in(server)));
        let listening = socket.text()?.and_then(listening);
        sockets.extend(listening.map(str::to_owned));
        plan.undo(socket.own(|there| is_socket(server, there), None));
        let kept = in_references(server, root);
        if !kept.is_empty() && system.is_here() && is_shown(server) {
            shown.push(server.name);
            continue;
        }
        kept.into_iter()
            .for_each(|path| plan.undo(change::kept(path)));
        // A killed command may have left the empty directory.
        let path = system.at(Path::new(&references_of(server)));
        plan.changes.push(Change::Leave { path });
    }
    plan.notes.extend(shown.iter().map(|name| {
        format!("{name} has the references in {REFERENCES}/{name} until its restart, so they stay")
    }));
    plan.until_restart = shown;
    let found = Found::at(system.at(Path::new(DEFAULT_FILE)));
    let there = found.text()?;
    let mut sections = Sections::parse(there);
    leaving
        .iter()
        .for_each(|server| sections.retain(server.name, &[]));
    let text = sections.text();
    let path = found.path.clone();
    if text.as_deref() == there {
        plan.changes.push(Change::Leave { path });
        return Ok(plan);
    }
    let left = Configuration::parse(text.as_deref().unwrap_or_default());
    // A line that the daemon does not understand may be meant to hold a key.
    let holds_more = !left.keys.is_empty() || !left.wrong.is_empty();
    if system.runs_systemd() && has_unit(root) && !holds_more {
        // The daemon is disabled before its sections are removed: the next `uninstall` knows by the
        // sections that the daemon is to be disabled.
        plan.changes.push(Change::Run {
            command: format!("systemctl disable {UNITS}"),
            undo: Some(format!("systemctl enable {UNITS}")),
        });
    }
    plan.changes.push(match text {
        Some(text) => Change::Write { path, text },
        None => Change::Remove { path },
    });
    // Without systemd, no socket unit removes the daemon's own socket.
    if !holds_more && !system.runs_systemd() {
        let there = Configuration::parse(there.unwrap_or_default());
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

/// Finds the files in the directory of a server's references, and the empty directories.
fn in_references(server: &Server, root: &Path) -> Vec<PathBuf> {
    let directory = references_of(server);
    let mut waiting = vec![root.join(directory.trim_start_matches('/'))];
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        // Links are not followed.
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
