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

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use lockstep_common::{Failure, Manual, Scratch, program};
use lockstep_keyd::accounts::Accounts;
use lockstep_keyd::key::{Key, readable_by_others};
use lockstep_keyd::keyd_conf::{Configuration, DEFAULT_FILE};
use lockstep_keyd::reference_file::{self, contents, public_text};
use lockstep_keyd::secrets::Secrets;
use lockstep_remote::{DEFAULT_SOCKET, LONGEST_NAME, Reference};

use super::allowance::Allowance;
use super::change::{self, Change, Plan, is_gone, own};
use super::sections::{Section, Sections};
use crate::command::run;
use crate::files::{entries, text_of};
use crate::keyd::unpublished;
use crate::servers::Server;
use crate::servers::drop_in::{
    BIND, BIND_IF_THERE, REFERENCES, drop_in_text, drop_ins, is_drop_in, is_socket, listening,
    references_of, socket_drop_in, socket_text,
};
use crate::servers::hybrid::IS_NEEDED;
use crate::servers::named::{naming, naming_of};
use crate::servers::site::{Site, System, site};
use crate::trust::is_plain;
use crate::unit::{Unit, template, unit_of_groups};
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

/// The units of the daemon, as arguments of systemctl.
const UNITS: &str = "lockstep-keyd.socket lockstep-keyd.service";

/// A key of the server, or a directory that has nothing but keys of it and certificates.
struct Held {
    section: Section,
    /// The files of the keys, links resolved.
    keys: Vec<PathBuf>,
    /// The directory, and those where links from it lead; nothing for a key alone.
    directories: Vec<PathBuf>,
    /// The files that the server finds there, by their names.
    shown: Vec<(OsString, String)>,
    /// Whether a server that runs has references to some of the keys by another name.
    is_renamed: bool,
}

impl Held {
    /// What of the daemon's stands in the place of what, for the service.
    fn binds(&self) -> Vec<(PathBuf, PathBuf)> {
        let kept = self.section.references();
        let file = &self.section.file;
        match self.directories.is_empty() {
            true => vec![(kept.join(&self.shown[0].0), file.clone())],
            false => {
                let directories = self.directories.iter();
                directories.map(|own| (kept.clone(), own.clone())).collect()
            }
        }
    }

    /// Each key as the server names it, and where the daemon keeps the reference to it.
    fn named(&self) -> Vec<String> {
        let kept = self.section.references();
        let directory = self.directories.first().map(PathBuf::as_path);
        let directory = directory.or_else(|| self.section.file.parent());
        let keys = self.shown.iter().take(self.keys.len());
        let line = |(name, _): &(OsString, String)| {
            let key = directory.unwrap_or(Path::new("/")).join(name);
            let kept = kept.join(name);
            format!("{} in the place of {}", kept.display(), key.display())
        };
        keys.map(line).collect()
    }
}

/// A directory that has nothing but keys of the server and certificates.
#[derive(Default)]
struct Whole {
    /// It, and those where links from it lead.
    directories: Vec<PathBuf>,
    /// Its certificates, by their names.
    public: Vec<(OsString, String)>,
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

/// Decides which section of the daemon's configuration holds each key, and makes what stands in
/// its place.
fn hold(
    server: &Server,
    system: &System<'_>,
    site: &Site,
) -> Result<(Sections, Vec<Held>), Failure> {
    let there = read(&system.at(Path::new(DEFAULT_FILE)))?;
    let mut sections = Sections::parse(there.as_deref());
    let (mut own, mut keys) = (Vec::new(), Vec::<(PathBuf, PathBuf)>::new());
    for named in &site.keys {
        let file = resolved(system, named)?;
        if contents(&system.at(&file)).reference {
            // The server names it itself. One that the daemon keeps for it is needed.
            let mine = sections.of(server.name);
            own.extend(
                mine.filter(|own| named.starts_with(own.references()))
                    .cloned(),
            );
        } else if keys.iter().all(|(_, known)| *known != file) {
            keys.push((without_parents(named), file));
        }
    }
    let before: Vec<Section> = sections.of(server.name).cloned().collect();
    sections.retain(server.name, &[]);
    let others = Configuration::parse(&sections.text().unwrap_or_default());
    let mut names: Vec<String> = others.keys.iter().map(|key| key.name.clone()).collect();
    names.extend(own.iter().chain(&before).map(|own| own.name.clone()));
    // A section that the administrator has changed, or written for this.
    let mine = Configuration::parse(&sections.of_administrator());
    let socket = Some(&mine.socket).filter(|own| *own != Path::new(DEFAULT_SOCKET));
    let mut held = Vec::<Held>::new();
    for (path, whole, group) in grouped(system, &keys) {
        let mut section = Section {
            server: server.name.to_owned(),
            name: String::new(),
            file: path.to_owned(),
            user: site.user.clone(),
        };
        let is_there = mine.keys.iter().any(|key| {
            section.name.clone_from(&key.name);
            key.unusable.is_none()
                && key.uses.sign
                && key.users.contains(&site.user)
                && key.file == path
                && key.references == Some(section.references())
        });
        if !is_there {
            // The server that runs knows its keys by the names from before.
            let mut known = earlier(&before, path, &group);
            known.sort_by_key(|own| own.file != path);
            let is_free = |name: &String| own.iter().all(|own: &Section| own.name != *name);
            let mut known = known.into_iter().map(|own| own.name.clone());
            section.name = match known.find(is_free) {
                Some(name) => name,
                None => free_name(server.name, path, whole.is_some(), &names),
            };
            names.push(section.name.clone());
            own.push(section.clone());
        }
        let mut known = earlier(&before, path, &group).into_iter();
        let is_renamed = known.any(|own| own.name != section.name);
        let mut shown = Vec::new();
        for (named, file) in &group {
            let text = reference(system, file, &section.name, socket.cloned())?;
            shown.push((named.file_name().unwrap_or_default().to_owned(), text));
        }
        let keys = group.into_iter().map(|(_, file)| file.clone()).collect();
        let whole = whole.unwrap_or_default();
        shown.extend(whole.public);
        let directories = whole.directories;
        #[rustfmt::skip]
        held.push(Held { section, keys, directories, shown, is_renamed });
    }
    if held.is_empty() && own.is_empty() {
        return Err(Failure::new(format!(
            "the configuration of {} names no private key",
            server.name
        ))
        .remedy("name its keys by --key"));
    }
    let mut sections = Sections::parse(there.as_deref());
    sections.retain(server.name, &own);
    own.iter().for_each(|section| sections.add(section));
    Ok((sections, held))
}

/// The sections from before that had keys of a group: the same file or directory, a file in the
/// directory, or the directory of the file.
fn earlier<'a>(
    before: &'a [Section],
    path: &Path,
    group: &[&(PathBuf, PathBuf)],
) -> Vec<&'a Section> {
    let has_key = |own: &&Section| {
        let mut named = group.iter().map(|(named, _)| named.as_path());
        own.file == path || named.any(|key| own.file == key || Some(&*own.file) == key.parent())
    };
    before.iter().filter(has_key).collect()
}

/// What stands in the place of a file with a key.
fn reference(
    system: &System<'_>,
    file: &Path,
    name: &str,
    socket: Option<PathBuf>,
) -> Result<String, Failure> {
    let unusable = |error| {
        Failure::new(format!("{}: {error}", file.display())).remedy(format!(
            "{} says which keys the daemon holds; to leave this one with the server, name the \
             others by --key",
            Manual::Keyd.name()
        ))
    };
    let path = system.at(file);
    let key = Key::read(&path, &unpublished()).map_err(unusable)?;
    let reference = Reference {
        name: name.to_owned(),
        socket,
        public: key.public,
    };
    reference_file::make(&path, &reference).map_err(unusable)
}

/// The place that a section is for, with its keys: a directory, or a key alone.
type Group<'a> = (&'a Path, Option<Whole>, Vec<&'a (PathBuf, PathBuf)>);

/// The keys of the server, named and with links resolved: those of a directory that is theirs
/// together, each other one alone.
fn grouped<'a>(system: &System<'_>, keys: &'a [(PathBuf, PathBuf)]) -> Vec<Group<'a>> {
    let mut places = Vec::new();
    let mut known = BTreeSet::new();
    for key in keys {
        let directory = key.0.parent().unwrap_or(Path::new("/"));
        let all = keys.iter().filter(|key| key.0.parent() == Some(directory));
        if known.insert(directory) {
            match system.is_here().then(|| whole(directory, keys)).flatten() {
                Some(whole) => places.push((directory, Some(whole), all.collect())),
                None => places.extend(all.map(|key| (&*key.0, None, vec![key]))),
            }
        }
    }
    places
}

/// A directory, if it has nothing but keys of the server and certificates, and the directories
/// where links from it lead have no other kinds of files.
fn whole(directory: &Path, keys: &[(PathBuf, PathBuf)]) -> Option<Whole> {
    let real = fs::canonicalize(directory).ok()?;
    let (mut directories, mut public) = (vec![directory.to_owned()], Vec::new());
    let (mut has_certificate, mut secrets) = (false, Secrets::default());
    for path in files(directory)? {
        let found = contents(&path);
        let name = path.file_name()?;
        has_certificate |= found.certificate;
        if found.key {
            let file = fs::canonicalize(&path).ok()?;
            let above = file.parent()?.to_owned();
            let is_far = !above.starts_with(&real) && !directories.contains(&above);
            let is_known = keys.iter().any(|(_, known)| *known == file);
            let is_alike = |file: &PathBuf| contents(file).key || public_in(file).is_some();
            if !is_known || is_far && !files(&above)?.iter().all(is_alike) {
                return None;
            }
            directories.extend(Some(above).filter(|_| is_far));
            secrets.add(&file, &unpublished());
        } else if name != "README" {
            public.push((name.to_owned(), public_in(&path)?));
        }
    }
    let is_plain = |path: &PathBuf| is_plain(&path.to_string_lossy());
    #[rustfmt::skip]
    let whole = Whole { directories, public };
    let has_secrets = |(_, text): &(OsString, String)| secrets.are_in(text.as_bytes());
    let is_whole = has_certificate && !whole.public.iter().any(has_secrets);
    (is_whole && whole.directories.iter().all(is_plain)).then_some(whole)
}

/// The files in a directory; nothing if there is something else, or a file that is too long for a
/// key or a certificate.
fn files(directory: &Path) -> Option<Vec<PathBuf>> {
    const LONGEST_FILE: u64 = 1 << 20;
    let entries = fs::read_dir(directory).ok()?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().ok()?;
    let is_file = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= LONGEST_FILE)
    };
    paths.iter().all(is_file).then_some(paths)
}

/// A file with certificates and DH parameters alone.
fn public_in(file: &Path) -> Option<String> {
    Some(public_text(&fs::read(file).ok()?)?.0)
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

/// A path without `..`, which is another place for systemd than for the kernel behind a link.
fn without_parents(named: &Path) -> PathBuf {
    let above = named
        .parent()
        .filter(|_| named.components().any(|part| part == Component::ParentDir));
    let real = above.and_then(|above| fs::canonicalize(above).ok());
    match (real, named.file_name()) {
        (Some(above), Some(name)) => above.join(name),
        _ => named.to_owned(),
    }
}

/// A name for a key in a file, or for those of a directory: the server's, and the last two parts of
/// the path.
fn free_name(server: &str, file: &Path, is_directory: bool, taken: &[String]) -> String {
    let above = file.parent().and_then(Path::file_name).unwrap_or_default();
    let stem = match is_directory {
        true => file.file_name(),
        false => file.file_stem(),
    };
    let stem = stem.unwrap_or_default();
    let name = format!("{server}-{}-{}", above.display(), stem.display());
    let mut name = name.replace(['+', '@'], "_");
    name.truncate(LONGEST_NAME - 4);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    let free = names.find(|name| !taken.contains(name));
    free.unwrap_or_default()
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

/// Whether systemd knows the daemon.
fn has_unit(root: &Path) -> bool {
    Unit::read(root, "lockstep-keyd.service").is_some()
}

/// Waits until the daemon has written the references of a server.
fn written(server: &Server, configuration: &Configuration) -> Change {
    let directory = references_of(server);
    let mut configuration = configuration.clone();
    configuration.keys.retain(|key| {
        let kept = key.references.as_ref();
        kept.is_some_and(|kept| kept.starts_with(&directory))
    });
    Change::Wait {
        configuration: Box::new(configuration),
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
/// does not run. What enabled it is undone before the sections are, by which `uninstall` knows that
/// it may be enabled.
fn start(has_new_socket: bool, before: State) -> Vec<Change> {
    let mut steps = vec![Change::step("systemctl daemon-reload")];
    if has_new_socket {
        steps.push(Change::step(format!("systemctl stop {UNITS}")));
    }
    steps.push(Change::Run {
        command: format!("systemctl enable {UNITS}"),
        undo: (!before.is_enabled).then(|| format!("systemctl disable {UNITS}")),
    });
    steps.push(Change::step("systemctl restart lockstep-keyd.service"));
    steps
}

/// What has the daemon as it was, when the files are as they were. References that were not there
/// before go.
fn recover(before: State, system: &System<'_>, held: &[Held]) -> Vec<Change> {
    let reload = Change::step("systemctl daemon-reload");
    let stop = Change::step(format!("systemctl stop {UNITS}"));
    let start = Change::step(format!("systemctl start {UNITS}"));
    let fresh = held.iter().flat_map(|held| {
        let kept = system.at(&held.section.references());
        held.shown.iter().map(move |(name, _)| kept.join(name))
    });
    let fresh = fresh.filter(|path| !path.exists());
    let fresh = fresh.map(|path| Change::Forget { path });
    let stopped = [reload, stop].into_iter().chain(fresh);
    stopped.chain(before.is_active.then_some(start)).collect()
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

/// Whether a process sees references of a server in the places of keys.
fn is_shown(server: &Server) -> bool {
    // In the file system that has it.
    let part = format!("/lockstep-keyd/{}/", server.name);
    let mut mounts = processes_of(server).filter_map(|own| text_of(&own.join("mountinfo")).ok());
    let is_it = |line: &str| {
        line.split(' ')
            .nth(3)
            .is_some_and(|own| own.contains(&part))
    };
    mounts.any(|mounts| mounts.lines().any(is_it))
}

/// The processes that may be a server's, by their directories in /proc: those of root, and those of
/// its units. Another user can give a process all that is to be seen of one.
pub fn processes_of(server: &Server) -> impl Iterator<Item = PathBuf> {
    entries(Path::new("/proc")).filter(|process| {
        let about = |name| text_of(&process.join(name)).unwrap_or_default();
        is_of_root(&about("status")) || is_of_unit(server, &about("cgroup"))
    })
}

/// By the real user, whom no program changes by its mode.
fn is_of_root(status: &str) -> bool {
    let mut lines = status.lines();
    let users = lines.find_map(|line| line.strip_prefix("Uid:"));
    users.and_then(|users| users.split_whitespace().next()) == Some("0")
}

fn is_of_unit(server: &Server, groups: &str) -> bool {
    let unit = unit_of_groups(groups).unwrap_or_default();
    server
        .units()
        .any(|own| own == unit || own == template(unit))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::SERVERS;

    #[test]
    fn processes_of_other_users_are_not_those_of_a_server() {
        assert!(is_of_root("Name:\tx\nUid:\t0\t33\t33\t33\n"));
        for status in [
            "Uid:\t1000\t0\t0\t0\n",
            "Uid:\t1000\t1000\t1000\t1000\n",
            "",
        ] {
            assert!(!is_of_root(status), "{status}");
        }
        let of = |name: &str, group: &str| {
            let server = SERVERS.iter().find(|server| server.name == name);
            is_of_unit(server.expect("a server"), group)
        };
        assert!(of("nginx", "0::/system.slice/nginx.service\n"));
        assert!(of(
            "nginx",
            "1:cpu:/\n0::/web.slice/nginx.service/workers\n"
        ));
        let slice = "0::/system.slice/system-stunnel.slice/stunnel@web.service";
        assert!(of("stunnel", slice) && !of("nginx", slice));
        for group in [
            "0::/user.slice/user-1000.slice/user@1000.service/nginx.service\n",
            "0::/user.slice/user-1000.slice/session-1.scope/nginx.service\n",
            "0::/system.slice/nginx.service.d\n",
            "0::/\n",
        ] {
            assert!(!of("nginx", group), "{group}");
        }
    }
}
