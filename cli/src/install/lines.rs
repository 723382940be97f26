//! The lines that HAProxy needs, in a file of Lockstep's, and the drop-in that has it read them.

use std::fs;
use std::path::{Path, PathBuf};

use lockstep_common::{Failure, Scratch};

use super::change::{Change, foreign, is_gone};
use crate::servers::Server;
use crate::servers::global::{DROP_IN, EMPTIED, Lines, is_own, is_own_drop_in, missing};
use crate::servers::named::naming;
use crate::servers::site::{HAPROXY_GLOBAL, System};
use crate::servers::starter::Starter;

/// What gives a server its lines, and what remains to be done or known. The server is to load the
/// configuration `conf` of OpenSSL, which is going to have this text, unless it is there as it is.
pub fn plan(
    server: &Server,
    root: &Path,
    starter: &Starter,
    conf: &str,
    text: Option<&str>,
) -> Result<(Vec<Change>, Lines), Failure> {
    if !server.has_lines {
        return Ok((Vec::new(), Lines::default()));
    }
    let scratch = Scratch::new("install-lines")?;
    let mut openssl = PathBuf::from(conf);
    if let Some(text) = text {
        openssl = scratch.path().join("openssl.cnf");
        fs::write(&openssl, text).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", openssl.display()))
        })?;
    }
    let system = System {
        root,
        openssl: &openssl,
    };
    let mut lines = missing(&system, starter);
    if lines.is_unknown {
        return Ok((Vec::new(), lines));
    }
    let (path, drop_in) = (system.at(Path::new(HAPROXY_GLOBAL)), root.join(DROP_IN));
    let is_there = there(&path, is_own)?;
    let has_drop_in = there(&drop_in, is_own_drop_in)?;
    // The file is there before it is named, and goes after that.
    let mut changes = Vec::new();
    if let Some(text) = lines.text.take() {
        changes.push(Change::to(path.clone(), text));
    }
    match lines.drop_in.take() {
        Some(text) => changes.push(Change::to(drop_in, text)),
        None if has_drop_in => changes.push(Change::Remove { path: drop_in }),
        None => {}
    }
    if is_there && !changes.iter().any(|change| change.is_about(&path)) {
        changes.extend(removal(&system, &changes));
    }
    Ok((changes, lines))
}

/// What takes the lines away again, and what is left.
pub fn plan_removal(server: &Server, root: &Path) -> Vec<Result<Vec<Change>, Failure>> {
    if !server.has_lines {
        return Vec::new();
    }
    let openssl = Path::new("");
    let system = System { root, openssl };
    let drop_in = root.join(DROP_IN);
    let of_drop_in = there(&drop_in, is_own_drop_in).map(|is_there| match is_there {
        true => vec![Change::Remove { path: drop_in }],
        false => Vec::new(),
    });
    let done = of_drop_in.as_deref().unwrap_or_default();
    let path = system.at(Path::new(HAPROXY_GLOBAL));
    let of_file = there(&path, is_own).map(|is_there| match is_there {
        true => removal(&system, done),
        false => Vec::new(),
    });
    vec![of_drop_in, of_file]
}

/// What takes the file away when these changes are made. HAProxy does not start without a file that
/// it is told to read, and reads it when it reloads. So the file stays, without lines, where
/// something else names it or a process was started with it; and systemd is told first that no unit
/// names it, maybe for an `uninstall` that was killed.
fn removal(system: &System<'_>, changes: &[Change]) -> Vec<Change> {
    let path = system.at(Path::new(HAPROXY_GLOBAL));
    if naming(system.root, is_gone(changes), HAPROXY_GLOBAL).is_some() {
        return vec![Change::to(path, EMPTIED.to_owned())];
    }
    let step = match system.is_here() && is_running() {
        true => Change::to(path, EMPTIED.to_owned()),
        false => Change::Remove { path },
    };
    let reload = Change::Run {
        command: "systemctl daemon-reload".to_owned(),
        undo: None,
    };
    let is_told = system.runs_systemd() && !step.is_nothing();
    is_told
        .then_some(reload)
        .into_iter()
        .chain([step])
        .collect()
}

/// Whether a process was started with the file.
fn is_running() -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let words = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let mut words = words.map(|words| String::from_utf8_lossy(&words).into_owned());
    words.any(|words| words.split('\0').any(|word| word == HAPROXY_GLOBAL))
}

/// Whether a file of `install` is there. Fails where somebody else has written it.
fn there(path: &Path, is_own: impl Fn(&str) -> bool) -> Result<bool, Failure> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(false),
        Ok(about) if about.is_file() => match fs::read_to_string(path) {
            Ok(text) if is_own(&text) => Ok(true),
            _ => Err(foreign(path)),
        },
        Ok(_) => Err(foreign(path)),
    }
}
