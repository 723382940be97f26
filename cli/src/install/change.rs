//! The steps of `install` and `uninstall`, and how a step is undone when a later one fails.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_common::{Failure, program};
use lockstep_keyd::keyd_conf::Configuration;
use lockstep_keyd::trusted::open_any;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

use crate::command;
use crate::keyd::written;
use crate::servers::drop_in::REFERENCES;
use crate::unit::Planned;

/// What `install` or `uninstall` is about to do.
#[derive(Default)]
pub struct Plan {
    pub changes: Vec<Change>,
    /// What the administrator is told when it is done.
    pub notes: Vec<String>,
    /// What has the key daemon as it was, should a change fail and all be undone.
    pub recovery: Vec<Change>,
    /// What is not undone, because somebody else has changed it.
    pub left: Vec<Failure>,
    /// Servers that have something until their restart, which a second `uninstall` takes away.
    pub until_restart: Vec<&'static str>,
}

impl Plan {
    /// Goes on with another plan.
    pub fn add(&mut self, other: Plan) {
        self.changes.extend(other.changes);
        self.notes.extend(other.notes);
        self.recovery.extend(other.recovery);
        self.left.extend(other.left);
        self.until_restart.extend(other.until_restart);
    }

    /// Adds what undoes something, or the failure where that is left alone.
    pub fn undo(&mut self, change: Result<impl IntoIterator<Item = Change>, Failure>) {
        match change {
            Ok(changes) => self.changes.extend(changes),
            Err(failure) => self.left.push(failure),
        }
    }

    /// What is left, with what to do about it.
    pub fn remainder(self) -> Result<(), Failure> {
        let mut remedies: Vec<String> = Vec::new();
        let mut status = 1;
        let all = self.left.into_iter().map(|failure| {
            let Failure { what, remedy, .. } = failure;
            status = failure.status.max(status);
            remedies.extend(remedy.filter(|remedy| !remedies.contains(remedy)));
            what
        });
        let all = all.collect::<Vec<_>>().join("\n");
        match all.is_empty() {
            true => Ok(()),
            false => {
                let failure = Failure::new(all).remedy(remedies.join("; "));
                Err(Failure { status, ..failure })
            }
        }
    }

    /// Makes all changes, or none.
    pub fn carry_out(&self) -> Result<(), Failure> {
        let mut made: Vec<Made<'_>> = Vec::new();
        for change in &self.changes {
            match change.make() {
                Ok(one) => made.push(one),
                Err(error) => {
                    let has_run =
                        change.is_command() || made.iter().any(|made| made.change.is_command());
                    made.into_iter().rev().for_each(Made::undo);
                    for change in self.recovery.iter().filter(|_| has_run) {
                        let _ = change.make();
                    }
                    let remedy = match (change.is_command(), error.kind()) {
                        (true, _) => "see why, and try again: journalctl --unit lockstep-keyd",
                        (_, StorageFull | QuotaExceeded) => "make room there, then run this again",
                        (_, ReadOnlyFilesystem) => "have it writable, then run this again",
                        _ => "run this as root, or look at --root",
                    };
                    let what = format!(
                        "cannot {}: {error}; what was done before was undone",
                        change.words()
                    );
                    return Err(Failure::new(what).remedy(remedy));
                }
            }
        }
        Ok(())
    }
}

/// One step. The path is the one to use, under the root.
pub enum Change {
    Write {
        path: PathBuf,
        text: String,
    },
    Unchanged {
        path: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    Absent {
        path: PathBuf,
    },
    /// A command, in words, and the one that undoes it.
    Run {
        command: String,
        undo: Option<String>,
    },
    /// Waits until the key daemon has written its references, with the keys of this configuration.
    Wait {
        configuration: Box<Configuration>,
    },
}

/// How long the daemon may take. It writes them before it tells systemd that it has started.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A step that was made.
struct Made<'a> {
    change: &'a Change,
    /// What was in its file, and the file's mode.
    before: Option<(Vec<u8>, u32)>,
}

/// Whether a file is about to be removed.
pub fn is_gone(changes: &[Change]) -> impl Fn(&Path) -> bool {
    |path| {
        let mut changes = changes.iter();
        changes.any(|change| matches!(change, Change::Remove { path: gone } if gone == path))
    }
}

impl Change {
    /// What gives a file this text.
    pub fn to(path: PathBuf, text: String) -> Change {
        match fs::read_to_string(&path) {
            Ok(there) if there == text => Change::Unchanged { path },
            _ => Change::Write { path, text },
        }
    }

    pub fn is_nothing(&self) -> bool {
        matches!(self, Change::Unchanged { .. } | Change::Absent { .. })
    }

    /// Whether it is about this file.
    pub fn is_about(&self, file: &Path) -> bool {
        match self {
            Change::Write { path, .. }
            | Change::Unchanged { path }
            | Change::Remove { path }
            | Change::Absent { path } => path == file,
            Change::Run { .. } | Change::Wait { .. } => false,
        }
    }

    /// What its file is going to hold, if it changes one.
    pub fn planned(&self) -> Option<Planned> {
        match self {
            Change::Write { path, text } => Some((path.clone(), Some(text.clone()))),
            Change::Remove { path } => Some((path.clone(), None)),
            _ => None,
        }
    }

    fn is_command(&self) -> bool {
        matches!(self, Change::Run { .. } | Change::Wait { .. })
    }

    fn words(&self) -> String {
        match self {
            Change::Write { path, .. } => format!("write {}", path.display()),
            Change::Unchanged { path } => format!("keep {}, as it is", path.display()),
            Change::Remove { path } => format!("remove {}", path.display()),
            Change::Absent { path } => format!("leave {}, which is not there", path.display()),
            Change::Run { command, .. } => format!("run {command}"),
            Change::Wait { .. } => "find the references that the key daemon writes".to_owned(),
        }
    }

    pub fn announcement(&self) -> String {
        let mut lines = format!("{}\n", self.words());
        if let Change::Write { text, .. } = self {
            lines.extend(text.lines().map(|line| format!("    {line}\n")));
        }
        lines
    }

    fn make(&self) -> io::Result<Made<'_>> {
        let mut before = None;
        match self {
            Change::Unchanged { .. } | Change::Absent { .. } => {}
            Change::Write { path, text } => {
                before = there(path);
                let mode = before.as_ref().map_or(READABLE, |(_, mode)| *mode);
                write(path, text.as_bytes(), mode)?;
            }
            Change::Remove { path } => {
                before = there(path);
                remove(path)?;
            }
            Change::Run { command, .. } => run(command)?,
            Change::Wait { configuration } => {
                let waited = written(configuration, LONGEST_WAIT);
                waited.map_err(|failure| io::Error::other(failure.what))?;
            }
        }
        Ok(Made {
            change: self,
            before,
        })
    }
}

impl Made<'_> {
    /// Has everything as it was before this step, as far as that is possible.
    fn undo(self) {
        let _ = match (self.change, self.before) {
            (Change::Write { path, .. } | Change::Remove { path }, Some((before, mode))) => {
                write(path, &before, mode)
            }
            (Change::Write { path, .. }, None) => remove(path),
            (Change::Run { undo, .. }, _) => undo.as_deref().map_or(Ok(()), run),
            _ => Ok(()),
        };
    }
}

/// A file that somebody else has written, or changed.
pub fn foreign(path: &Path) -> Failure {
    Failure::new(format!(
        "{} is not as `lockstep install` writes it, and is left alone",
        path.display()
    ))
    .remedy("look at it, and move it away if it is not needed")
}

/// The mode of a file that is new: servers read these as users of their own.
const READABLE: u32 = 0o644;

/// What is in a file, and its mode.
fn there(path: &Path) -> Option<(Vec<u8>, u32)> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    Some((bytes(path).ok()?, mode))
}

/// What is in a file. The daemon's user may have put another kind of file where it is, which has no
/// end, or never answers.
pub fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    const LONGEST: u64 = 16 << 20;
    let mut bytes = Vec::new();
    open_any(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The directory of a file, and its name there. The daemon's user can change what is below the
/// directory of all references, so no link leads elsewhere from there.
fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (above, name) = path
        .parent()
        .zip(path.file_name())
        .ok_or(io::ErrorKind::InvalidInput)?;
    let is_root_of_all = |above: &&Path| above.ends_with(REFERENCES.trim_start_matches('/'));
    let start = above.ancestors().filter(is_root_of_all).last();
    let start = start.unwrap_or(above);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open(start, flags, Mode::empty())?;
    for part in above.strip_prefix(start).into_iter().flatten() {
        directory = openat(&directory, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok((directory, name))
}

/// In one step: a server that reads the file meanwhile must not find half of it. Nobody else can
/// read it before it has its mode.
fn write(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    make_directories(path.parent().unwrap_or(Path::new("/")))?;
    let (directory, name) = place(path)?;
    let fresh = path.with_extension("lockstep-new");
    let fresh = fresh.file_name().unwrap_or_default();
    // One that was left by an end in between.
    let _ = unlinkat(&directory, fresh, AtFlags::empty());
    let filled = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&directory, fresh, flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(file);
        file.write_all(text)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        Ok(renameat(&directory, fresh, &directory, name)?)
    };
    let written = filled();
    if written.is_err() {
        let _ = unlinkat(&directory, fresh, AtFlags::empty());
    }
    written
}

/// Makes the directories that are missing, for all to read, whatever the caller's umask is.
fn make_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(above) = directory.parent() {
        make_directories(above)?;
    }
    fs::create_dir(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

fn remove(path: &Path) -> io::Result<()> {
    let (directory, name) = place(path)?;
    unlinkat(directory, name, AtFlags::empty())?;
    // Directories of drop-ins or of Lockstep go with the last of their files.
    let above = path.ancestors().skip(1);
    for directory in above.take_while(|directory| goes_with_its_files(directory)) {
        if let Ok((above, name)) = place(directory) {
            let _ = unlinkat(above, name, AtFlags::REMOVEDIR);
        }
    }
    Ok(())
}

fn goes_with_its_files(directory: &Path) -> bool {
    let name = directory.to_string_lossy();
    [".service.d", ".socket.d", "/lockstep"]
        .iter()
        .any(|end| name.ends_with(end))
        || name.contains(REFERENCES)
}

fn run(words: &str) -> io::Result<()> {
    let mut words = words.split(' ');
    let mut command = program(words.next().unwrap_or_default());
    let ran = command::run(command.args(words));
    ran.map(drop)
        .map_err(|failure| io::Error::other(failure.what))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use lockstep_testkit::TempDir;

    use super::*;

    /// The daemon's user can put one there.
    #[test]
    fn no_device_or_pipe_is_opened_among_the_references() {
        let system = TempDir::new("pipes");
        let (pipe, link) = (system.join("pipe"), system.join("link"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).expect("a pipe");
        symlink(&pipe, &link).expect("a link");
        for path in [&pipe, &link, Path::new("/dev/null")] {
            assert!(bytes(path).is_err(), "{}", path.display());
        }
    }

    /// The daemon's user can put a link there once `uninstall` has looked.
    #[test]
    fn no_link_leads_out_of_the_references() {
        let system = TempDir::new("links");
        let references = system.join("var/lib/lockstep-keyd/nginx/a");
        fs::create_dir_all(&references).expect("a directory");
        fs::create_dir_all(system.join("other/empty")).expect("a directory");
        fs::write(system.join("other/file"), "text").expect("a file");
        symlink(system.join("other"), references.join("b")).expect("a link");
        let path = references.join("b/file");
        assert!(Change::Remove { path: path.clone() }.make().is_err());
        let before = Some((b"text".to_vec(), READABLE));
        for path in [&path, &references.join("b/more")] {
            let change = &Change::Remove { path: path.clone() };
            let before = before.clone();
            Made { change, before }.undo();
        }
        let empty = references.join("b/empty/file");
        assert!(remove(&empty).is_err());
        let left = fs::read_dir(system.join("other")).expect("a directory");
        assert_eq!(left.count(), 2);
        // As elsewhere, a link above them is the administrator's.
        fs::create_dir(references.join("c")).expect("a directory");
        fs::write(references.join("c/file"), "text").expect("a file");
        symlink(&*system, system.join("link")).expect("a link");
        let path = system.join("link/var/lib/lockstep-keyd/nginx/a/c/file");
        assert!(Change::Remove { path }.make().is_ok());
        assert!(!references.join("c").exists());
    }
}
