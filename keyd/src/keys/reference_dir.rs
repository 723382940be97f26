//! A directory of references, which the daemon keeps equal to the files of its keys.
//!
//! Each file of a section has a reference at the same place below the directory, and beside it
//! copies of the certificates beside the key. Only the daemon and root write there. The directory
//! holds no secret: [`reference_file`](crate::keys::reference_file) makes its texts.
//!
//! A server may read the directory at any moment, and needs a key and a certificate that match.
//! Programs that renew both write one file after the other. So a matching pair is replaced
//! together, once the new files match.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::ops::{Bound, Deref};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, syncfs, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, getegid, geteuid, getgid};
use rustix::thread::set_thread_res_gid;

use crate::keys::files::{Pattern, in_a_line};
use crate::keys::keyring::Text;
use crate::keys::secrets::Secrets;
use crate::system::trusted::{Reached, Way};

/// Time after which a change is written even if key and certificate do not match.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Time after which a removed file counts as gone. Programs remove a file for a moment to replace
/// it, and create files that they rename.
const AWAY: Duration = Duration::from_secs(1);
/// Pause before a failed write is repeated.
const RETRY: Duration = Duration::from_secs(30);
/// Maximum length of a file that the daemon has written.
const LONGEST_FILE: u64 = 1 << 20;

/// Why a file is not written.
const LEAKS: &str = "a certificate in it has a part of a private key; have a new key and certificate \
                     made";

/// First words of a file that the daemon has copied.
const COPIED: &str = "Copied by the key daemon from ";
/// First words of a reference.
const REFERENCE: &str = "Reference to the key ";
/// Name of the file that is being written, in the directory of references. There is only one name,
/// so that the next daemon finds a file that a killed one has left.
const TEMPORARY: &str = ".new";

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory of references.
pub struct ReferenceDir {
    path: PathBuf,
    pattern: Pattern,
    grace: Duration,
    /// Files in the directory, by their relative paths.
    shown: BTreeMap<PathBuf, Shown>,
    /// Changes that are to be written.
    waiting: BTreeMap<PathBuf, Waiting>,
    /// Refused texts, which have a part of a key. Such a file is not written until its text
    /// changes: a removed key is still secret.
    refused: BTreeMap<PathBuf, Vec<u8>>,
    /// Whether some written data may not be on the disk.
    is_unsynced: bool,
}

/// A change that is to be written.
struct Waiting {
    /// `None` for a removal.
    text: Option<Text>,
    since: Instant,
    /// Time of the last failure. Only the first failure is reported.
    failed: Option<Instant>,
}

/// A file in the directory.
struct Shown {
    public: Vec<u8>,
    is_key: bool,
    /// Whether it is a certificate that matches a key in the same directory.
    fits: bool,
}

/// Returns the line for the log about a failure.
fn cannot_write(path: &Path, error: impl fmt::Display) -> String {
    let path = in_a_line(&path.to_string_lossy());
    format!("cannot write {path}: {error}")
}

/// Creates a directory of references and its missing parents. `group` may write to the directory.
pub fn prepare(path: &Path, group: Option<u32>) -> io::Result<()> {
    let (above, name) = last(path)?;
    if !above.exists() {
        prepare(above, None)?;
    }
    let directory = walk(above)?;
    let (own, wanted) = (getgid(), group.map_or(getegid(), Gid::from_raw));
    let mode = if group.is_some() { 0o775 } else { 0o755 };
    // The thread's group becomes that of the directory. The directory has its final group and mode
    // at once, since the daemon may be killed at any moment.
    set_thread_res_gid(own, wanted, own)?;
    let made = mkdirat(&directory, name, Mode::from_raw_mode(mode));
    set_thread_res_gid(own, own, own)?;
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn last(path: &Path) -> io::Result<(&Path, &OsStr)> {
    path.parent()
        .zip(path.file_name())
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Opens a directory that only root and this user can change.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let way = Way::start(geteuid().as_raw()).map_err(io::Error::other)?;
    match way.walk(path, &mut |_, _| {}).map_err(io::Error::other)? {
        Reached::Directory(way) => Ok(way.here().0.try_clone()?),
        Reached::File(_) => Err(Errno::NOTDIR.into()),
    }
}

impl ReferenceDir {
    /// Creates the state of the directory at this path, for the files of a pattern. A reference
    /// stays for `grace` after its key's file has gone.
    pub fn new(path: PathBuf, pattern: Pattern, grace: Duration) -> ReferenceDir {
        ReferenceDir {
            path,
            pattern,
            grace,
            shown: BTreeMap::new(),
            waiting: BTreeMap::new(),
            refused: BTreeMap::new(),
            is_unsynced: false,
        }
    }

    /// Removes the file that a killed daemon was writing.
    pub fn tidy(&self) {
        let root = self.root().and_then(|root| check(&root).map(|()| root));
        let _ = root.map(|root| unlinkat(root, TEMPORARY, AtFlags::empty()));
    }

    /// Notes that a file has changed or is gone.
    pub fn note(&mut self, file: &Path, text: Option<Text>, now: Instant) {
        let below = file.strip_prefix(self.pattern.path());
        let below = below.ok().filter(|place| !place.as_os_str().is_empty());
        let Some(place) = below.or_else(|| file.strip_prefix(self.pattern.base()).ok()) else {
            return;
        };
        let place = place.to_owned();
        let is_known = self.shown.contains_key(&place) || self.waiting.contains_key(&place);
        let from = in_a_line(&file.to_string_lossy());
        let text = text.map(|text| match text.is_key {
            true => text,
            false => Text {
                text: format!("{COPIED}{from}.\n{}", text.text),
                ..text
            },
        });
        let wanted = text.as_ref().map(|own| own.text.as_bytes());
        let refused = self.refused.get(&place).map(Vec::as_slice);
        if wanted.is_some() && wanted == refused {
            return;
        }
        self.refused.remove(&place);
        if text.is_some() || is_known {
            let waiting = Waiting {
                text,
                since: now,
                failed: None,
            };
            self.waiting.insert(place, waiting);
        }
    }

    /// Returns the files that are not written yet. The caller may be any user.
    pub fn missing(&self, secrets: &Secrets) -> Vec<PathBuf> {
        let texts = self.waiting.iter();
        let texts = texts.filter_map(|(place, waiting)| Some((place, waiting.text.as_ref()?)));
        let files = texts.map(|(place, text)| (place, &text.text));
        let missing = files.filter(|(place, text)| {
            let there = self.directory_of(place, false, false);
            let there = there.and_then(|(directory, name)| is_own(&directory, &name));
            there.ok().flatten().as_deref() != Some(text.as_bytes())
        });
        let missing = missing.filter(|(_, text)| !secrets.are_in(text.as_bytes()));
        missing.map(|(place, _)| self.path.join(place)).collect()
    }

    /// Writes all changes that match or have waited too long. A text with a part of a key is
    /// refused.
    pub fn show(&mut self, now: Instant, secrets: &dyn Deref<Target = Secrets>) -> Vec<String> {
        let mut failed = Vec::new();
        let places = self.waiting.keys().map(|place| above(place).to_owned());
        let places: HashSet<PathBuf> = places.collect();
        for place in places {
            let waits = of(&self.waiting, &place).filter(|(_, own)| own.text.is_some());
            let since = waits.map(|(_, own)| own.since).min();
            let is_late = since.is_some_and(|since| now >= since + LONGEST_WAIT);
            if !is_late && !self.will_fit(&place, now) {
                continue;
            }
            let own = of(&self.waiting, &place);
            let is_key = |text: &Option<Text>| text.as_ref().is_some_and(|text| text.is_key);
            let own = own.map(|(file, waiting)| (is_key(&waiting.text), file.clone()));
            let own: BTreeSet<_> = own.collect();
            // Certificates come first, so that they are there when a reference appears.
            for (_, file) in own {
                let shown = self.show_file(&file, now, secrets);
                let waiting = self.waiting.get_mut(&file);
                // The next call tries a failed change again, at the latest after [`RETRY`].
                if let Err(error) = shown
                    && waiting.is_none_or(|own| own.failed.replace(now).is_none())
                {
                    failed.push(cannot_write(&self.path.join(&file), error));
                }
            }
            self.note_fits(&place);
        }
        failed
    }

    /// Removes files with a part of a new key.
    pub fn withdraw(&mut self, fresh: &Secrets) -> Vec<String> {
        let mut failed = Vec::new();
        if fresh.is_empty() {
            return failed;
        }
        for file in self.shown.keys().cloned().collect::<Vec<PathBuf>>() {
            let Ok((directory, name)) = self.directory_of(&file, false, true) else {
                continue;
            };
            let text = is_own(&directory, &name).ok().flatten().unwrap_or_default();
            if fresh.are_in(&text) {
                let _ = unlinkat(&directory, &name, AtFlags::empty());
                self.shown.remove(&file);
                failed.push(cannot_write(&self.path.join(&file), LEAKS));
                if !self.waiting.contains_key(&file) {
                    self.refused.insert(file, text);
                }
            }
        }
        failed
    }

    /// Waits until the disk has everything. One wait for all files costs less than one for each.
    pub fn sync(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.is_unsynced) {
            return None;
        }
        let directory = openat(CWD, &self.path, DIRECTORY, Mode::empty());
        let failed = |error| cannot_write(&self.path, io::Error::from(error));
        directory.and_then(syncfs).err().map(failed)
    }

    /// Returns a file that cannot be written, if there is one.
    pub fn failed(&self) -> Option<PathBuf> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|(_, waiting)| waiting.failed.is_some());
        let mut failed = self.refused.keys().chain(waiting.map(|(file, _)| file));
        Some(self.path.join(failed.next()?))
    }

    /// Returns the time at which the next waiting change is due.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let times =
            self.waiting
                .iter()
                .flat_map(|(file, waiting)| match (waiting.failed, &waiting.text) {
                    (Some(failed), _) => [failed + RETRY; 2],
                    (None, Some(_)) => [waiting.since + LONGEST_WAIT; 2],
                    (None, None) => [AWAY, self.stays(file)].map(|time| waiting.since + time),
                });
        times.filter(|time| *time > now).min()
    }

    /// Returns the time that a file stays after its original is gone.
    fn stays(&self, file: &Path) -> Duration {
        let is_key = self.shown.get(file).is_some_and(|shown| shown.is_key);
        match is_key {
            true => self.grace.max(LONGEST_WAIT),
            false => LONGEST_WAIT,
        }
    }

    /// Returns whether each certificate that matches a key now also matches one after the change.
    fn will_fit(&self, place: &Path, now: Instant) -> bool {
        let keys = self.publics(place);
        of(&self.shown, place).all(|(file, shown)| {
            let after = match self.waiting.get(file) {
                Some(Waiting {
                    text: Some(text), ..
                }) => Some(&text.public),
                Some(Waiting { since, .. }) if now < *since + AWAY => None,
                Some(_) => return true,
                None => Some(&shown.public),
            };
            !shown.fits || after.is_some_and(|after| keys.contains(&after[..]))
        })
    }

    /// Returns the public halves of the keys in a directory after the change.
    fn publics<'a>(&'a self, place: &'a Path) -> HashSet<&'a [u8]> {
        let after = of(&self.waiting, place).filter_map(|(_, waiting)| {
            let text = waiting.text.as_ref().filter(|text| text.is_key)?;
            Some(&text.public[..])
        });
        let before = of(&self.shown, place).filter(|(file, shown)| {
            let waiting = self.waiting.get(*file);
            let is_changed = waiting.is_some_and(|waiting| waiting.text.is_some());
            shown.is_key && !is_changed
        });
        let before = before.map(|(_, shown)| &shown.public[..]);
        after.chain(before).collect()
    }

    fn note_fits(&mut self, place: &Path) {
        let keys = self.publics(place);
        let keys: HashSet<Vec<u8>> = keys.into_iter().map(<[u8]>::to_vec).collect();
        let files: Vec<PathBuf> = of(&self.shown, place)
            .map(|(file, _)| file.clone())
            .collect();
        for file in files {
            if let Some(shown) = self.shown.get_mut(&file) {
                shown.fits = !shown.is_key && keys.contains(&shown.public);
            }
        }
    }

    fn show_file(&mut self, file: &Path, now: Instant, secrets: &Secrets) -> io::Result<()> {
        let Some(Waiting { text, since, .. }) = self.waiting.get(file) else {
            return Ok(());
        };
        let Some(Text {
            text,
            public,
            is_key,
        }) = text
        else {
            if now >= *since + self.stays(file) {
                let (directory, name) = self.directory_of(file, false, true)?;
                if is_own(&directory, &name)?.is_some() {
                    unlinkat(&directory, &name, AtFlags::empty())?;
                }
                self.shown.remove(file);
                self.waiting.remove(file);
            }
            return Ok(());
        };
        let (directory, name) = self.directory_of(file, true, true)?;
        let there = is_own(&directory, &name)?;
        if secrets.are_in(text.as_bytes()) {
            // An earlier release may have written a text with a part of a key.
            if there.is_some_and(|there| secrets.are_in(&there)) {
                unlinkat(&directory, &name, AtFlags::empty())?;
            }
            let text = text.clone().into_bytes();
            self.waiting.remove(file);
            self.refused.insert(file.to_owned(), text);
            return Err(io::Error::other(LEAKS));
        }
        if there.as_deref() != Some(text.as_bytes()) {
            write(&self.root()?, (&directory, &name), text)?;
            self.is_unsynced = true;
        }
        let shown = Shown {
            public: public.clone(),
            is_key: *is_key,
            fits: false,
        };
        self.shown.insert(file.to_owned(), shown);
        self.waiting.remove(file);
        Ok(())
    }

    fn root(&self) -> io::Result<OwnedFd> {
        let (above, name) = last(&self.path)?;
        Ok(openat(walk(above)?, name, DIRECTORY, Mode::empty())?)
    }

    /// Opens the directory of a file; returns its name there, too. A caller that only reads needs
    /// no checks.
    fn directory_of(
        &self,
        file: &Path,
        makes: bool,
        checks: bool,
    ) -> io::Result<(OwnedFd, OsString)> {
        let check = |directory: &OwnedFd| match checks {
            true => check(directory),
            false => Ok(()),
        };
        let mut directory = self.root()?;
        check(&directory)?;
        let (above, name) = last(file)?;
        for part in above.components() {
            let part = part.as_os_str();
            if makes {
                match mkdirat(&directory, part, Mode::from_raw_mode(0o755)) {
                    Err(Errno::EXIST) => {}
                    made => made?,
                }
            }
            directory = openat(&directory, part, DIRECTORY, Mode::empty())?;
            check(&directory)?;
        }
        Ok((directory, name.to_owned()))
    }
}

/// Returns the files of one directory.
fn of<'a, T>(
    files: &'a BTreeMap<PathBuf, T>,
    place: &'a Path,
) -> impl Iterator<Item = (&'a PathBuf, &'a T)> {
    let from = (Bound::Excluded(place), Bound::Unbounded);
    let below = files.range::<Path, _>(from);
    let below = below.take_while(move |(file, _)| file.starts_with(place));
    below.filter(move |(file, _)| above(file) == place)
}

fn above(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// Checks that only root and the daemon's user and group can write to a directory.
fn check(directory: &OwnedFd) -> io::Result<()> {
    let about = fstat(directory)?;
    let is_own = [0, geteuid().as_raw()].contains(&about.st_uid);
    // Root has created the directory for the daemon's group.
    let is_of_group = about.st_uid == 0 && about.st_gid == getegid().as_raw();
    let is_closed = about.st_mode & 0o020 == 0 || is_of_group;
    match is_own && is_closed && about.st_mode & 0o002 == 0 {
        true => Ok(()),
        false => Err(io::Error::other("others can write to its directory")),
    }
}

/// Reads a file that the daemon has written; `None` if there is no file. Any other file is an
/// error: it could be a key.
fn is_own(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
    let mut text = Vec::new();
    if is_file {
        File::from(file).take(LONGEST_FILE).read_to_end(&mut text)?;
    }
    match is_file && is_kept(&text) {
        true => Ok(Some(text)),
        false => Err(io::Error::other(
            "there is a file that the daemon has not written; move it away",
        )),
    }
}

/// Returns whether the daemon has written a text into a directory of references.
pub fn is_kept(text: &[u8]) -> bool {
    // A power failure, a full disk or a kill leaves the first bytes of a text.
    let first = [COPIED, REFERENCE].map(str::as_bytes);
    first
        .iter()
        .any(|first| text.starts_with(first) || first.starts_with(text))
}

/// Replaces a file in one step.
fn write(root: &OwnedFd, (directory, name): (&OwnedFd, &OsStr), text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let _ = unlinkat(root, TEMPORARY, AtFlags::empty());
    let filled = || {
        let file = openat(root, TEMPORARY, flags, Mode::from_raw_mode(0o644))?;
        File::from(file).write_all(text.as_bytes())?;
        Ok(renameat(root, TEMPORARY, directory, name)?)
    };
    let filled = filled();
    if filled.is_err() {
        // The disk may be full.
        let _ = unlinkat(root, TEMPORARY, AtFlags::empty());
    }
    filled
}

#[cfg(test)]
mod tests;
