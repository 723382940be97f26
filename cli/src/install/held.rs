//! Keys of a server that the key daemon is to hold: their sections in its configuration, and the
//! references in their places.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use lockstep_common::{Failure, Manual};
use lockstep_keyd::key::Key;
use lockstep_keyd::keyd_conf::Configuration;
use lockstep_keyd::reference_file::{self, contents, public_text};
use lockstep_keyd::secrets::Secrets;
use lockstep_remote::{DEFAULT_SOCKET, LONGEST_NAME, Reference};

use super::sections::{Section, Sections};
use crate::keyd::unpublished;
use crate::servers::Server;
use crate::servers::site::{Site, System};
use crate::trust::is_plain;

/// A key of the server, or a directory that has only keys of this server and certificates.
pub struct Held {
    pub section: Section,
    /// Files of the keys, with links resolved.
    pub keys: Vec<PathBuf>,
    /// The directory, and the directories that links in it lead to; empty for a single key.
    pub directories: Vec<PathBuf>,
    /// Names and texts of the files that the server finds there.
    pub shown: Vec<(OsString, String)>,
    /// Whether the running server has references to some of the keys under another name.
    pub is_renamed: bool,
}

impl Held {
    /// Pairs of a path of references that the daemon keeps, and the path at which the service sees
    /// them.
    pub fn binds(&self) -> Vec<(PathBuf, PathBuf)> {
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

    /// Describes each key: the path of its reference, and the path by which the server names the
    /// key.
    pub fn named(&self) -> Vec<String> {
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
    /// The directory, and the directories that links in it lead to.
    directories: Vec<PathBuf>,
    /// Its certificates, by their names.
    public: Vec<(OsString, String)>,
}

/// Path of a key as the server's configuration names it, and the path with links resolved.
type Named = (PathBuf, PathBuf);

/// Decides which section of the daemon's configuration holds each key, and makes the references.
pub fn hold(
    server: &Server,
    system: &System<'_>,
    site: &Site,
    configuration: Option<&str>,
) -> Result<(Sections, Vec<Held>), Failure> {
    let mut sections = Sections::parse(configuration);
    let (keys, mut own) = keys(server, system, site, &sections)?;
    let before: Vec<Section> = sections.of(server.name).cloned().collect();
    sections.retain(server.name, &[]);
    let others = Configuration::parse(&sections.text().unwrap_or_default());
    let mut names: Vec<String> = others.keys.iter().map(|key| key.name.clone()).collect();
    names.extend(own.iter().chain(&before).map(|own| own.name.clone()));
    // The administrator may have changed a section, or written one for this key.
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
            // The running server knows its keys by their previous names.
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
    let mut sections = Sections::parse(configuration);
    sections.retain(server.name, &own);
    own.iter().for_each(|section| sections.add(section));
    Ok((sections, held))
}

/// Finds the keys of the server, by the names in its configuration and with links resolved, and the
/// sections of references that its configuration names.
fn keys(
    server: &Server,
    system: &System<'_>,
    site: &Site,
    sections: &Sections,
) -> Result<(Vec<Named>, Vec<Section>), Failure> {
    let (mut keys, mut own) = (Vec::<Named>::new(), Vec::new());
    for named in &site.keys {
        let file = resolved(system, named)?;
        if contents(&system.at(&file)).reference {
            // The server's configuration names the reference. If the daemon keeps it for the
            // server, its section is needed.
            let mine = sections.of(server.name);
            own.extend(
                mine.filter(|own| named.starts_with(own.references()))
                    .cloned(),
            );
        } else if keys.iter().all(|(_, known)| *known != file) {
            keys.push((without_parents(named), file));
        }
    }
    Ok((keys, own))
}

/// Previous sections that had keys of a group: sections for the same file or directory, for a file
/// in the directory, or for the directory of the file.
fn earlier<'a>(before: &'a [Section], path: &Path, group: &[&Named]) -> Vec<&'a Section> {
    let has_key = |own: &&Section| {
        let mut named = group.iter().map(|(named, _)| named.as_path());
        own.file == path || named.any(|key| own.file == key || Some(&*own.file) == key.parent())
    };
    before.iter().filter(has_key).collect()
}

/// Makes the text of the reference in the place of a key's file.
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

/// The path that a section is for, with its keys: a directory, or a single key.
type Group<'a> = (&'a Path, Option<Whole>, Vec<&'a Named>);

/// Groups the keys of the server, given by name and with links resolved: keys in a directory that
/// has no other files form a group, and each other key is alone.
fn grouped<'a>(system: &System<'_>, keys: &'a [Named]) -> Vec<Group<'a>> {
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

/// Describes a directory if it has only keys of the server and certificates, and if the directories
/// that its links lead to have no files of other kinds.
fn whole(directory: &Path, keys: &[Named]) -> Option<Whole> {
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
            // If a link leads to a key in another directory, references take the place of that
            // directory, too.
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

/// Files in a directory; `None` if there is something else, or a file that is too long for a key or
/// a certificate.
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

/// Text of a file that has only certificates and DH parameters.
fn public_in(file: &Path) -> Option<String> {
    Some(public_text(&fs::read(file).ok()?)?.0)
}

/// Returns the file that a path leads to. A renewed certificate may come with a key in another
/// file; the reference stays bound to the file that is found now.
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

/// Returns a path without `..`: behind a link, systemd and the kernel resolve `..` differently.
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

/// Finds a free name for the key in a file or for the keys in a directory: the server's name, and
/// the last two parts of the path.
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
