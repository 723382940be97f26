//! The steps of `install` and `uninstall`: either all are made or none, and the next `uninstall`
//! undoes a killed command.
//!
//! A server has a mark, an empty file, from before its first change until after the last one. Each
//! text is first written to a file beside its place, which takes all the room on the disk that is
//! needed. Then files are renamed, and a replaced file stays beside its place until all steps are
//! made. So undoing needs no room, and a reader finds either the old or the new file.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::ErrorKind::{
    NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull,
};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_common::{Failure, program};
use lockstep_keyd::is_kept;
use lockstep_keyd::keyd_conf::Configuration;
use lockstep_keyd::trusted::open_any;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::umask;

use crate::command;
use crate::keyd::written;
use crate::servers::drop_in::REFERENCES;
use crate::servers::named::{NEW, OLD};
use crate::unit::Planned;

/// A plan of `install` or `uninstall`.
#[derive(Default)]
pub struct Plan {
    /// The marks of the servers whose files change.
    pub marks: Vec<PathBuf>,
    pub changes: Vec<Change>,
    /// Notes for the administrator, printed after the changes.
    pub notes: Vec<String>,
    /// Steps that restore the key daemon if a change fails and all are undone.
    pub recovery: Vec<Change>,
    /// Reasons why files stay that somebody else has changed.
    pub left: Vec<Failure>,
    /// Servers that keep files until their restart. A second `uninstall` removes these files.
    pub until_restart: Vec<&'static str>,
}

impl Plan {
    /// Appends another plan.
    pub fn add(&mut self, other: Plan) {
        self.marks.extend(other.marks);
        self.changes.extend(other.changes);
        self.notes.extend(other.notes);
        self.recovery.extend(other.recovery);
        self.left.extend(other.left);
        self.until_restart.extend(other.until_restart);
    }

    /// Adds a change that undoes something, or the reason why a file is left alone.
    pub fn undo(&mut self, change: Result<Change, Failure>) {
        match change {
            Ok(change) => self.changes.push(change),
            Err(failure) => self.left.push(failure),
        }
    }

    /// Whether the plan changes nothing, and no killed command left a mark.
    pub fn is_nothing(&self) -> bool {
        self.changes.iter().all(Change::is_nothing) && !self.marks.iter().any(|mark| mark.exists())
    }

    /// Fails if files stay, with the remedies for all of them.
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
            false => Err(Failure::new(all).remedy(remedies.join("; ")).status(status)),
        }
    }

    /// Makes all changes, or none.
    pub fn carry_out(&self) -> Result<(), Failure> {
        // Other users must be able to read the files, with any umask of the caller.
        umask(Mode::from_raw_mode(0o022));
        if self.is_nothing() {
            self.changes.iter().for_each(|own| drop(own.clear()));
            return Ok(());
        }
        // An error here is ignored. If there is no room for a mark, there is none for a text
        // either, and a removal needs a mark only if it is killed.
        let begin = |mark: &&PathBuf| {
            let begun = begin(mark);
            begun.inspect_err(|_| remove_directories(mark)).is_ok()
        };
        let fresh: Vec<&PathBuf> = self.marks.iter().filter(begin).collect();
        let mut made = Vec::new();
        if let Err((change, error)) = self.make(&mut made) {
            let is_undone = self.take_back(&made, change);
            if is_undone {
                fresh.into_iter().for_each(|mark| drop(forget(mark)));
            }
            return Err(failure(change, &error, is_undone));
        }
        for change in &self.changes {
            let finished = change.finish();
            finished.map_err(|error| failure(change, &error, false))?;
        }
        self.marks.iter().for_each(|mark| drop(forget(mark)));
        Ok(())
    }

    /// Makes all changes. Fails with the first change that cannot be made.
    fn make<'a>(&'a self, made: &mut Vec<&'a Change>) -> Result<(), (&'a Change, io::Error)> {
        for change in &self.changes {
            change.stage().map_err(|why| (change, why))?;
        }
        for change in &self.changes {
            change.make().map_err(|why| (change, why))?;
            made.push(change);
        }
        Ok(())
    }

    /// Undoes the changes that were made before one failed. Returns whether all of them are undone.
    fn take_back(&self, made: &[&Change], failed: &Change) -> bool {
        let kept = made.iter().rev().filter(|change| change.undo().is_err());
        let is_undone = kept.count() == 0;
        if failed.is_command() || made.iter().any(|change| change.is_command()) {
            for change in &self.recovery {
                let _ = change.make().and_then(|()| change.finish());
            }
        }
        self.changes.iter().for_each(|own| drop(own.clear()));
        is_undone
    }
}

/// Describes the failure of a change, and says whether the changes before it were undone.
fn failure(change: &Change, error: &io::Error, is_undone: bool) -> Failure {
    let remedy = match (change.is_command(), error.kind()) {
        _ if !is_undone => "see why, then run lockstep uninstall",
        (true, _) => "see why, and try again: journalctl --unit lockstep-keyd",
        (_, StorageFull | QuotaExceeded) => "make room there, then run this again",
        (_, ReadOnlyFilesystem) => "remount that file system writable, then run this again",
        (_, PermissionDenied) => {
            "run this as root; with --root, name a directory that you can write"
        }
        _ => "see why, then run this again",
    };
    let undone = match is_undone {
        true => "what was done before was undone",
        false => "what was done before is not, or not all, undone",
    };
    let what = format!("cannot {}: {error}; {undone}", change.words());
    Failure::new(what).remedy(remedy)
}

/// One step of a plan. A path includes the root directory.
#[derive(Clone)]
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
    /// Removes a file of the key daemon or an empty directory, after all steps that can fail. The
    /// daemon's user may have created a file beside it, with which a rename would collide.
    Forget {
        path: PathBuf,
    },
    /// Leaves a file as it is, or absent, and prints nothing.
    Leave {
        path: PathBuf,
    },
    /// A command line, and the command line that undoes it.
    Run {
        command: String,
        undo: Option<String>,
    },
    /// Waits until the key daemon has written the references of this configuration.
    Wait {
        configuration: Box<Configuration>,
    },
}

/// Maximum time that the daemon may take. It writes the references before it tells systemd that it
/// has started.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Returns a function that tells whether these changes remove a file.
pub fn is_gone(changes: &[&[Change]]) -> impl Fn(&Path) -> bool {
    |path| {
        let mut changes = changes.iter().copied().flatten();
        changes.any(|change| matches!(change, Change::Remove { path: gone } if gone == path))
    }
}

impl Change {
    /// Makes a command that is not undone.
    pub fn step(command: impl Into<String>) -> Change {
        Change::Run {
            command: command.into(),
            undo: None,
        }
    }

    pub fn is_nothing(&self) -> bool {
        matches!(self, Change::Unchanged { .. } | Change::Leave { .. })
    }

    /// File that the step is about, if it is about one.
    fn path(&self) -> Option<&Path> {
        match self {
            Change::Write { path, .. }
            | Change::Unchanged { path }
            | Change::Remove { path }
            | Change::Forget { path }
            | Change::Leave { path } => Some(path),
            Change::Run { .. } | Change::Wait { .. } => None,
        }
    }

    /// Text that the file will have after this step, if the step changes a file.
    pub fn planned(&self) -> Option<Planned> {
        match self {
            Change::Write { path, text } => Some((path.clone(), Some(text.clone()))),
            Change::Remove { path } => Some((path.clone(), None)),
            _ => None,
        }
    }

    fn is_command(&self) -> bool {
        self.path().is_none()
    }

    fn words(&self) -> String {
        match self {
            Change::Write { path, .. } => format!("write {}", path.display()),
            Change::Unchanged { path } | Change::Leave { path } => {
                format!("keep {}, as it is", path.display())
            }
            Change::Remove { path } | Change::Forget { path } => {
                format!("remove {}", path.display())
            }
            Change::Run { command, .. } => format!("run {command}"),
            Change::Wait { .. } => "wait for the references of the key daemon".to_owned(),
        }
    }

    pub fn announcement(&self) -> String {
        let mut lines = match self {
            Change::Leave { .. } => String::new(),
            _ => format!("{}\n", self.words()),
        };
        if let Change::Write { text, .. } = self {
            lines.extend(text.lines().map(|line| format!("    {line}\n")));
        }
        lines
    }

    /// Writes a text to a file beside the final one. Other users can read it only once it has its
    /// final mode.
    fn stage(&self) -> io::Result<()> {
        let Change::Write { path, text } = self else {
            return Ok(());
        };
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let fresh = beside(path, NEW);
        // A killed command may have left one.
        let _ = fs::remove_file(&fresh);
        let mut open = OpenOptions::new();
        let mut file = open.write(true).create_new(true).mode(0o600).open(fresh)?;
        file.write_all(text.as_bytes())?;
        let there = fs::metadata(path).ok();
        if let Some(about) = &there {
            fchown(&file, Some(about.uid()), Some(about.gid()))?;
        }
        let mode = there.map_or(READABLE, |about| about.mode());
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()
    }

    fn make(&self) -> io::Result<()> {
        match self {
            Change::Unchanged { .. } | Change::Forget { .. } | Change::Leave { .. } => Ok(()),
            Change::Write { path, .. } => {
                let old = free(path);
                let copied = |_| fs::copy(path, &old).map(drop);
                if_there(fs::hard_link(path, &old).or_else(copied))?;
                fs::rename(beside(path, NEW), path)
            }
            Change::Remove { path } => fs::rename(path, free(path)),
            Change::Run { command, .. } => run(command),
            Change::Wait { configuration } => {
                let waited = written(configuration, LONGEST_WAIT);
                waited.map_err(|failure| io::Error::other(failure.what))
            }
        }
    }

    /// Undoes this step.
    fn undo(&self) -> io::Result<()> {
        match self {
            Change::Write { path, .. } => match fs::rename(beside(path, OLD), path) {
                // The file did not exist before.
                Err(error) if error.kind() == NotFound => fs::remove_file(path),
                renamed => renamed,
            },
            Change::Remove { path } => fs::rename(beside(path, OLD), path),
            Change::Run { undo, .. } => undo.as_deref().map_or(Ok(()), run),
            _ => Ok(()),
        }
    }

    /// Ends this step once all steps are made. It cannot be undone after that.
    fn finish(&self) -> io::Result<()> {
        self.clear()?;
        match self {
            Change::Forget { path } => forget(path),
            _ => Ok(()),
        }
    }

    /// Removes the files beside a file, and its directories if they are empty.
    fn clear(&self) -> io::Result<()> {
        let Some(path) = self.path() else {
            return Ok(());
        };
        if !matches!(self, Change::Forget { .. }) {
            let mut all = [NEW, OLD].into_iter();
            all.try_for_each(|end| if_there(fs::remove_file(beside(path, end))))?;
        }
        remove_directories(path);
        Ok(())
    }
}

/// Ignores the error for a file that does not exist.
fn if_there(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == NotFound => Ok(()),
        result => result,
    }
}

/// Returns the removal of a file of the key daemon. Fails where somebody else has written it.
pub fn kept(path: PathBuf) -> Result<Change, Failure> {
    let is_directory = fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir());
    match is_directory || bytes(&path).is_ok_and(|text| is_kept(&text)) {
        true => Ok(Change::Forget { path }),
        false => Err(foreign(&path)),
    }
}

/// Mode of a new file: servers read these files as users of their own.
const READABLE: u32 = 0o644;

/// Reads a file. The daemon's user may have put a pipe or a device in its place, which has no end
/// or never answers.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    const LONGEST: u64 = 16 << 20;
    let mut bytes = Vec::new();
    open_any(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Path of the file beside another one, with this ending.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".");
    beside.push(end);
    beside.into()
}

/// Returns the path at which the old version of a file is kept. A killed command may have left a
/// link to the file there, and a rename to a link of the same file does nothing.
fn free(path: &Path) -> PathBuf {
    let old = beside(path, OLD);
    let _ = fs::remove_file(&old);
    old
}

/// Opens the directory of a file, and returns the name of the file. The daemon's user can change
/// everything below the directory of all references, so this follows no link from there on.
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

/// Makes the mark of a server. Fails if there is one.
fn begin(mark: &Path) -> io::Result<()> {
    fs::create_dir_all(mark.parent().unwrap_or(Path::new("/")))?;
    File::create_new(mark)?.sync_all()
}

/// Removes a file, or a directory that is empty; and its directories if they are empty.
fn forget(path: &Path) -> io::Result<()> {
    let remove =
        |(directory, name): (OwnedFd, &OsStr)| match unlinkat(&directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlinkat(&directory, name, AtFlags::REMOVEDIR),
            removed => removed,
        };
    let removed = place(path).and_then(|place| Ok(remove(place)?));
    remove_directories(path);
    if_there(removed)
}

/// Removes directories of drop-ins and of Lockstep that are empty now.
fn remove_directories(path: &Path) {
    let above = path.ancestors().skip(1);
    for directory in above.take_while(|directory| goes_with_its_files(directory)) {
        if let Ok((above, name)) = place(directory) {
            let _ = unlinkat(above, name, AtFlags::REMOVEDIR);
        }
    }
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

/// Returns the failure for a file that somebody else has written, or changed.
pub fn foreign(path: &Path) -> Failure {
    Failure::new(format!(
        "{} is not as `lockstep install` writes it, and is left alone",
        path.display()
    ))
    .remedy("if nobody needs it, move it away and run this again")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use lockstep_testkit::TempDir;

    use super::*;

    /// The daemon's user can create a pipe there.
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

    /// The daemon's user can create a link there after `uninstall` has looked.
    #[test]
    fn no_link_leads_out_of_the_references() {
        let system = TempDir::new("links");
        let references = system.join("var/lib/lockstep-keyd/nginx/a");
        fs::create_dir_all(&references).expect("a directory");
        fs::create_dir_all(system.join("other/empty")).expect("a directory");
        fs::write(system.join("other/file"), "text").expect("a file");
        symlink(system.join("other"), references.join("b")).expect("a link");
        let path = references.join("b/file");
        let forgotten = |path: PathBuf| Change::Forget { path }.finish();
        assert!(forgotten(path).is_err());
        assert!(forgotten(references.join("b/empty/file")).is_err());
        let left = fs::read_dir(system.join("other")).expect("a directory");
        assert_eq!(left.count(), 2);
        // A link above the directory of references belongs to the administrator, and is followed.
        fs::create_dir(references.join("c")).expect("a directory");
        fs::write(references.join("c/file"), "text").expect("a file");
        symlink(&*system, system.join("link")).expect("a link");
        let path = system.join("link/var/lib/lockstep-keyd/nginx/a/c/file");
        assert!(forgotten(path).is_ok());
        assert!(!references.join("c").exists());
    }
}
