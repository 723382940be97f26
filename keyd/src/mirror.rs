//! A directory of references, which the daemon keeps as the files of its keys are.
//!
//! For each file of a section a reference is in the same place below the directory, and beside it
//! the certificates that are beside the key. Only the daemon and root write there. It holds no
//! secret: its texts are made by [`stand_in`](crate::stand_in).
//!
//! A server may read the directory at any moment, and wants a key and a certificate that fit.
//! Programs that renew both write one file after the other. So what has fitted changes together,
//! once it fits again.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, getegid, geteuid, getgid};
use rustix::thread::set_thread_res_gid;

use crate::files::Pattern;
use crate::keyring::Text;
use crate::trusted::{Reached, Way};

/// After so long a change is shown that does not fit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How much text may wait to be shown.
const MOST_TEXT: usize = 32 << 20;
/// The longest file that the daemon has written.
const LONGEST_FILE: u64 = 1 << 20;

/// What the first line says of a file that the daemon has copied.
const COPIED: &str = "Copied by the key daemon from ";
/// And of a reference.
const REFERENCE: &str = "Reference to the key ";

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory of references.
pub struct Mirror {
    path: PathBuf,
    pattern: Pattern,
    grace: Duration,
    /// What is in the directory, by its place there.
    shown: BTreeMap<PathBuf, Shown>,
    /// What is to be there, and since when it waits.
    waiting: BTreeMap<PathBuf, (Option<Text>, Instant)>,
}

/// A file in the directory.
struct Shown {
    public: Vec<u8>,
    is_key: bool,
    /// It is a certificate of a key in the same place.
    fits: bool,
}

/// What could not be done, for the log.
pub struct Failed(PathBuf, io::Error);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.0.display(), self.1)
    }
}

/// Makes a directory of references, which this group may write to, if it is missing.
pub fn prepare(path: &Path, group: Option<u32>) -> io::Result<()> {
    let (above, name) = last(path)?;
    let directory = walk(above)?;
    let (own, wanted) = (getgid(), group.map_or(getegid(), Gid::from_raw));
    // A directory belongs to the group of the thread that makes it.
    set_thread_res_gid(own, wanted, own)?;
    let made = mkdirat(&directory, name, Mode::from_raw_mode(0o755));
    set_thread_res_gid(own, own, own)?;
    match made {
        Ok(()) => {
            let made = openat(&directory, name, DIRECTORY, Mode::empty())?;
            Ok(fchmod(&made, Mode::from_raw_mode(0o775))?)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn last(path: &Path) -> io::Result<(&Path, &OsStr)> {
    path.parent()
        .zip(path.file_name())
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A directory that nobody can change but root and this user.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let way = Way::start(geteuid().as_raw()).map_err(io::Error::other)?;
    match way.walk(path, &mut |_, _| {}).map_err(io::Error::other)? {
        Reached::Directory(way) => Ok(way.here().0.try_clone()?),
        Reached::File(_) => Err(Errno::NOTDIR.into()),
    }
}

impl Mirror {
    /// The directory at this path for the files of a pattern. A file stays for so long after the
    /// one that it stands for has gone.
    pub fn new(path: PathBuf, pattern: Pattern, grace: Duration) -> Mirror {
        Mirror {
            path,
            pattern,
            grace,
            shown: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Has a file changed, or taken away, when it is time.
    pub fn note(&mut self, file: &Path, text: Option<Text>, now: Instant) {
        let below = file.strip_prefix(self.pattern.path());
        let below = below.ok().filter(|place| !place.as_os_str().is_empty());
        let Some(place) = below.or_else(|| file.strip_prefix(self.pattern.base()).ok()) else {
            return;
        };
        let place = place.to_owned();
        let is_known = self.shown.contains_key(&place) || self.waiting.contains_key(&place);
        let text = text.map(|text| match text.is_key {
            true => text,
            false => Text {
                text: format!("{COPIED}{}.\n{}", file.display(), text.text),
                ..text
            },
        });
        let size = |waiting: &(Option<Text>, Instant)| {
            waiting.0.as_ref().map_or(0, |text| text.text.len())
        };
        let waiting: usize = self.waiting.values().map(size).sum();
        if (text.is_some() || is_known) && waiting < MOST_TEXT {
            self.waiting.insert(place, (text, now));
        }
    }

    /// Shows all that fits, or has waited for too long.
    pub fn show(&mut self, now: Instant) -> Vec<Failed> {
        let mut failed = Vec::new();
        let places = self.waiting.keys().map(|place| above(place).to_owned());
        let places: HashSet<PathBuf> = places.collect();
        for place in places {
            let waits = |(own, (_, since)): (&PathBuf, &(Option<Text>, Instant))| {
                (above(own) == place).then_some(*since)
            };
            let since = self.waiting.iter().filter_map(waits).min();
            let is_late = since.is_some_and(|since| now >= since + LONGEST_WAIT);
            if !is_late && !self.will_fit(&place, now) {
                continue;
            }
            let own = self.waiting.keys().filter(|own| above(own) == place);
            for file in own.cloned().collect::<Vec<_>>() {
                if let Err(error) = self.show_file(&file, now) {
                    failed.push(Failed(self.path.join(&file), error));
                }
            }
            self.note_fits(&place);
        }
        failed
    }

    /// When something has to be shown that waits now.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let times = self.waiting.values().flat_map(|(text, since)| match text {
            Some(_) => vec![*since + LONGEST_WAIT],
            None => vec![*since + LONGEST_WAIT, *since + self.grace],
        });
        let later = times.map(|time| time.max(now + Duration::from_secs(1)));
        later.min()
    }

    /// Whether each certificate in a place that has fitted a key fits one after the change.
    fn will_fit(&self, place: &Path, now: Instant) -> bool {
        let keys = self.publics(place);
        let mut fitted = self.shown.iter();
        fitted.all(|(file, shown)| {
            let after = match self.waiting.get(file) {
                Some((Some(text), _)) => &text.public,
                // It may come back at once.
                Some((None, since)) => return now >= *since + LONGEST_WAIT,
                None => &shown.public,
            };
            above(file) != place || !shown.fits || keys.contains(&after[..])
        })
    }

    /// The public halves of the keys in a place, after the change.
    fn publics(&self, place: &Path) -> HashSet<&[u8]> {
        let waiting = self.waiting.iter();
        let after = waiting.filter_map(|(file, (text, _))| {
            let text = text.as_ref().filter(|text| text.is_key)?;
            Some((file, &text.public[..]))
        });
        let before = self.shown.iter().filter(|(file, shown)| {
            let is_changed = matches!(self.waiting.get(*file), Some((Some(_), _)));
            shown.is_key && !is_changed
        });
        let before = before.map(|(file, shown)| (file, &shown.public[..]));
        let all = after.chain(before).filter(|(file, _)| above(file) == place);
        all.map(|(_, public)| public).collect()
    }

    fn note_fits(&mut self, place: &Path) {
        let keys = self.publics(place);
        let keys: HashSet<Vec<u8>> = keys.into_iter().map(<[u8]>::to_vec).collect();
        for (_, shown) in self
            .shown
            .iter_mut()
            .filter(|(file, _)| above(file) == place)
        {
            shown.fits = !shown.is_key && keys.contains(&shown.public);
        }
    }

    fn show_file(&mut self, file: &Path, now: Instant) -> io::Result<()> {
        let Some((text, since)) = self.waiting.get(file) else {
            return Ok(());
        };
        match text {
            None if now < *since + self.grace => return Ok(()),
            None => {
                self.shown.remove(file);
                self.waiting.remove(file);
                let (directory, name) = self.directory_of(file, false)?;
                return match is_own(&directory, &name)? {
                    Some(_) => Ok(unlinkat(&directory, &name, AtFlags::empty())?),
                    None => Ok(()),
                };
            }
            Some(_) => {}
        }
        let Some((Some(text), _)) = self.waiting.remove(file) else {
            return Ok(());
        };
        let (directory, name) = self.directory_of(file, true)?;
        if is_own(&directory, &name)?.as_deref() != Some(text.text.as_bytes()) {
            write(&directory, &name, &text.text)?;
        }
        let shown = Shown {
            public: text.public,
            is_key: text.is_key,
            fits: false,
        };
        self.shown.insert(file.to_owned(), shown);
        Ok(())
    }

    /// The directory of a file, and its name there.
    fn directory_of(&self, file: &Path, makes: bool) -> io::Result<(OwnedFd, OsString)> {
        let (above, name) = last(&self.path)?;
        let mut directory = openat(walk(above)?, name, DIRECTORY, Mode::empty())?;
        check(&directory)?;
        let (above, name) = last(file)?;
        for part in above.components() {
            let part = part.as_os_str();
            if makes {
                match mkdirat(&directory, part, Mode::from_raw_mode(0o755)) {
                    Err(Errno::EXIST) => {}
                    made => {
                        made?;
                        let made = openat(&directory, part, DIRECTORY, Mode::empty())?;
                        fchmod(&made, Mode::from_raw_mode(0o755))?;
                    }
                }
            }
            directory = openat(&directory, part, DIRECTORY, Mode::empty())?;
            check(&directory)?;
        }
        Ok((directory, name.to_owned()))
    }
}

fn above(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// Whether only root and the daemon's user and group can write to a directory.
fn check(directory: &OwnedFd) -> io::Result<()> {
    let about = fstat(directory)?;
    let is_own = [0, geteuid().as_raw()].contains(&about.st_uid);
    let is_closed = about.st_mode & 0o020 == 0 || about.st_gid == getegid().as_raw();
    match is_own && is_closed && about.st_mode & 0o002 == 0 {
        true => Ok(()),
        false => Err(io::Error::other("others can write to its directory")),
    }
}

/// The contents of a file that the daemon has written; `None` if there is no file. An error where
/// somebody else has written one: it could be a key.
fn is_own(directory: &OwnedFd, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = Vec::new();
    if FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile {
        File::from(file).take(LONGEST_FILE).read_to_end(&mut text)?;
    }
    let is_own = [COPIED, REFERENCE]
        .iter()
        .any(|first| text.starts_with(first.as_bytes()));
    match is_own {
        true => Ok(Some(text)),
        false => Err(io::Error::other(
            "there is a file that the daemon has not written",
        )),
    }
}

/// Puts a file in the place of another one, in one step.
fn write(directory: &OwnedFd, name: &OsStr, text: &str) -> io::Result<()> {
    let fresh = OsString::from_vec([b".", name.as_bytes(), b".new"].concat());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Of a daemon that was killed.
    let _ = unlinkat(directory, &fresh, AtFlags::empty());
    let file = openat(directory, &fresh, flags, Mode::from_raw_mode(0o644))?;
    fchmod(&file, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(text.as_bytes())?;
    Ok(renameat(directory, &fresh, directory, name)?)
}

/// Whether the files in a directory that a section keeps are those of its keys now.
pub fn is_current(path: &Path, pattern: &Pattern, file: &Path, public: &[u8]) -> bool {
    let below = file.strip_prefix(pattern.path()).ok();
    let below = below.filter(|place| !place.as_os_str().is_empty());
    let place = below.or_else(|| file.strip_prefix(pattern.base()).ok());
    let text = place.and_then(|place| fs::read_to_string(path.join(place)).ok());
    let reference = text.and_then(|text| lockstep_remote::Reference::in_text(&text).ok());
    reference.is_some_and(|reference| reference.public == public)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use lockstep_testkit::TempDir;

    use super::*;

    const GRACE: Duration = Duration::from_secs(1000);

    struct Fixture {
        place: TempDir,
        mirror: Mirror,
        start: Instant,
    }

    impl Fixture {
        fn new() -> Fixture {
            let place = TempDir::new("mirror");
            prepare(&place.join("refs"), None).expect("a directory");
            let pattern = Pattern::new("/live/*/key.pem".as_ref());
            let mirror = Mirror::new(place.join("refs"), pattern, GRACE);
            let start = Instant::now();
            #[rustfmt::skip]
            let fixture = Fixture { place, mirror, start };
            fixture
        }

        /// Has a file changed so many seconds after the start.
        fn note(&mut self, name: &str, text: Option<(&str, u8)>, later: u64) {
            let is_key = name.ends_with("key.pem");
            let text = text.map(|(text, public)| Text {
                text: match is_key {
                    true => format!("{REFERENCE}{text}"),
                    false => text.to_owned(),
                },
                public: vec![public],
                is_key,
            });
            let now = self.start + Duration::from_secs(later);
            self.mirror.note(&Path::new("/live").join(name), text, now);
        }

        fn show(&mut self, later: u64) -> Vec<String> {
            let failed = self.mirror.show(self.start + Duration::from_secs(later));
            failed.iter().map(Failed::to_string).collect()
        }

        fn read(&self, name: &str) -> Option<String> {
            let text = fs::read_to_string(self.place.join("refs").join(name)).ok()?;
            let last = text.lines().last().expect("a line");
            Some(last.strip_prefix(REFERENCE).unwrap_or(last).to_owned())
        }
    }

    #[test]
    fn key_and_certificate_change_together() {
        let mut own = Fixture::new();
        own.note("a/key.pem", Some(("key 1", 1)), 0);
        own.note("a/cert.pem", Some(("cert 1", 1)), 0);
        own.note("a/chain.pem", Some(("chain 1", 9)), 0);
        assert_eq!(own.show(0), Vec::<String>::new());
        let shown = |own: &Fixture| ["key", "cert"].map(|name| own.read(&format!("a/{name}.pem")));
        let version = |number| [format!("key {number}"), format!("cert {number}")].map(Some);
        assert_eq!(shown(&own), version(1));
        // Whichever comes first waits for the other. Another place does not wait.
        for (number, first, second) in [(2, "key", "cert"), (3, "cert", "key")] {
            let text = |what: &str| format!("{what} {number}");
            own.note(&format!("a/{first}.pem"), Some((&text(first), number)), 10);
            own.note("b/key.pem", Some((&text("b"), number)), 10);
            assert_eq!(own.show(10), Vec::<String>::new());
            assert_eq!(shown(&own), version(number - 1));
            assert_eq!(own.read("b/key.pem"), Some(text("b")));
            own.note(
                &format!("a/{second}.pem"),
                Some((&text(second), number)),
                11,
            );
            assert_eq!(own.show(11), Vec::<String>::new());
            assert_eq!(shown(&own), version(number));
        }
        // A certificate that is taken away for a moment, as certbot does.
        own.note("a/cert.pem", None, 20);
        own.note("a/key.pem", Some(("key 4", 4)), 20);
        own.show(20);
        assert_eq!(shown(&own), version(3));
        own.note("a/cert.pem", Some(("cert 4", 4)), 20);
        own.show(20);
        assert_eq!(shown(&own), version(4));
        // What does not fit for long is shown all the same.
        own.note("a/key.pem", Some(("key 5", 5)), 30);
        own.show(89);
        assert_eq!(shown(&own), version(4));
        own.show(90);
        assert_eq!(shown(&own), [Some("key 5".into()), Some("cert 4".into())]);
        // What is gone stays as long as its key.
        own.note("a/key.pem", None, 100);
        own.show(1099);
        assert!(own.read("a/key.pem").is_some());
        own.show(1100);
        assert!(own.read("a/key.pem").is_none() && own.read("a/chain.pem").is_some());
    }

    #[test]
    fn what_others_have_written_stays_and_no_link_is_followed() {
        let mut own = Fixture::new();
        fs::create_dir(own.place.join("refs/a")).expect("a directory");
        let key = "-----BEGIN PRIVATE KEY-----\n";
        fs::write(own.place.join("refs/a/key.pem"), key).expect("a file");
        own.note("a/key.pem", Some(("key", 1)), 0);
        let failed = own.show(0).join(" ");
        assert!(failed.contains("has not written"), "{failed}");
        assert_eq!(own.read("a/key.pem").as_deref(), Some(key.trim()));
        fs::write(own.place.join("target"), key).expect("a file");
        fs::create_dir(own.place.join("other")).expect("a directory");
        for (link, target, name) in [
            ("refs/c", "../other", "c/key.pem"),
            ("refs/a/cert.pem", "../../target", "a/cert.pem"),
        ] {
            symlink(target, own.place.join(link)).expect("a link");
            own.note(name, Some(("text", 1)), 1);
            assert!(!own.show(1).is_empty(), "{name}");
        }
        assert_eq!(
            fs::read_to_string(own.place.join("target")).expect("a file"),
            key
        );
        assert!(!own.place.join("other/key.pem").exists());
        // Where others can write, nothing is written.
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(own.place.join("refs"), open).expect("its own");
        own.note("d/key.pem", Some(("key", 1)), 2);
        assert!(own.show(2).join(" ").contains("others can write"));
    }
}
