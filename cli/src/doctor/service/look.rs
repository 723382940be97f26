//! A separate program that looks at files of a process as the process's user and in its root
//! directory: it sees exactly the files that the process can see. It may be killed: a path that a
//! process names can be a pipe, a device, or a file that never ends.

use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lockstep_common::{Configuration, Effective, Failure, Outcome, damage, insist_on_own, out};

use super::identity::set_bounds;
use super::sight::{Configured, Module, Question, Seen, Task, Wanted};
use super::{groups, haproxy, keys};
use crate::doctor::comparison::outdated;
use crate::keyd::uses;
use crate::words::json;

/// Name of the hidden command.
pub const COMMAND: &str = "look-at-files";

/// The longest question, in bytes.
const LONGEST_QUESTION: u64 = 16 << 20;
/// The longest configuration of OpenSSL.
const LONGEST_CONFIGURATION: u64 = 1 << 20;

/// Answers one question, which is read from the standard input.
pub fn run() -> Outcome {
    let mut text = String::new();
    let failed = |what: &str, error: io::Error| Failure::new(format!("{what}: {error}"));
    let read = io::stdin()
        .lock()
        .take(LONGEST_QUESTION)
        .read_to_string(&mut text);
    read.map_err(|error| failed("no question", error))?;
    let question: Question =
        serde_json::from_str(&text).map_err(|error| Failure::new(error.to_string()))?;
    // Loads the libcrypto of this system now, not one below the root of the process later.
    let _ = lockstep_conf::installed();
    confine(&question).map_err(|error| failed("cannot look in its name", error))?;
    let answer = match &question.task {
        Task::Files(wanted) => json(&files(wanted, &question.below)),
        Task::Uses {
            socket,
            name,
            public,
        } => json(&uses(socket, name, public)),
    };
    out!("{}", answer?);
    Ok(ExitCode::SUCCESS)
}

fn confine(question: &Question) -> io::Result<()> {
    set_bounds()?;
    if let Some(directory) = &question.directory {
        // The process may have removed its directory. Relative paths lead nowhere then.
        if env::set_current_dir(directory).is_err() {
            env::set_current_dir("/")?;
        }
    }
    if let Some(root) = &question.root {
        rustix::process::chroot(root)?;
    }
    match &question.identity {
        Some(identity) => identity.assume(),
        None => Ok(()),
    }
}

fn files(wanted: &Wanted, below: &Path) -> Seen {
    let at = |path: &Path| below.join(path.strip_prefix("/").unwrap_or(path));
    let configuration = wanted.configuration.as_deref();
    let configuration = configuration.map(|path| configured(path, wanted, &at));
    let here = env::current_dir().unwrap_or_default();
    let words = wanted.words.iter().map(|word| match word.starts_with('/') {
        true => at(Path::new(word)),
        false => here.join(word),
    });
    let directories = wanted.directories.iter().map(|path| at(path)).collect();
    let files = groups::files_of_server(words.collect(), directories);
    let mut seen = Seen {
        configuration,
        lists: groups::of_server(&files),
        excludes_async: haproxy::excludes_async(&files),
        ..Seen::default()
    };
    keys::look(&files, &wanted.covered, below, &mut seen);
    seen
}

fn configured(path: &Path, wanted: &Wanted, at: &dyn Fn(&Path) -> PathBuf) -> Configured {
    let place = at(path);
    let unreadable = |failure: Failure| Configured::Unreadable((failure.what, failure.remedy));
    if !place.exists() {
        return Configured::Absent;
    }
    if wanted.only_roots
        && let Err(failure) = insist_on_own(&place)
    {
        return unreadable(failure);
    }
    if let Err(error) = insist_on_small_file(&place, LONGEST_CONFIGURATION) {
        let what = format!("OpenSSL cannot read {}: {error}", path.display());
        let remedy = "put a configuration there, or name another one with OPENSSL_CONF";
        return unreadable(Failure::new(what).remedy(remedy));
    }
    let mut effective = match Effective::read(&place) {
        Ok(effective) => effective,
        Err(failure) => return unreadable(failure),
    };
    effective.path = path.to_owned();
    let configuration = Configuration {
        effective,
        in_use: true,
    };
    let provider = configuration.provider();
    let module = provider.and_then(|provider| provider.module).map(|path| {
        let place = at(&path);
        let is_there = place.exists();
        let usual = || insist_on_small_file(&place, u64::MAX).err();
        let damage = is_there.then(|| match usual() {
            Some(error) => Some(format!("cannot be read: {error}")),
            None => damage(&place),
        });
        Module {
            path,
            is_there,
            damage: damage.flatten(),
        }
    });
    let outdated = wanted.is_here.then(|| outdated(&configuration)).flatten();
    let sections = configuration.effective.file().sections().iter();
    let sections = sections.map(|(name, lines)| {
        let pairs = lines
            .iter()
            .map(|own| (own.name.clone(), own.value.clone()));
        (name.clone(), pairs.collect())
    });
    let sections = sections.collect();
    Configured::Read {
        outdated: outdated.map(|failure| (failure.what, failure.remedy)),
        sections,
        module,
    }
}

/// Fails unless this is a file with at most this number of bytes.
fn insist_on_small_file(path: &Path, most: u64) -> io::Result<()> {
    let about = fs::metadata(path)?;
    match (about.is_file(), about.len() <= most) {
        (false, _) => Err(io::Error::other("it is not a file")),
        (_, false) => Err(io::Error::other("it is too long")),
        _ => Ok(()),
    }
}
