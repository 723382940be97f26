//! The files of a section, whose path may have `*` and `?` in its names, or name a directory.
//!
//! A search follows the path as [`crate::system::trusted`] does: only root and a trusted user can
//! change the files that the search finds, or a directory on the way to them. The search also tells
//! its [`Visitor`] the relevant names in each directory, so that the visitor can
//! [watch](crate::keys::reader) them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::system::trusted::{Reached, Untrusted, Way};

/// Maximum number of files in one search, and of matching names in one directory. The daemon
/// reports a section that exceeds one of them.
const MOST_FILES: usize = 6000;
const MOST_NAMES: usize = 20_000;
/// Maximum number of other files in a key's directory that are copied.
const MOST_BESIDE: usize = 100;

/// The path of a section's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    path: PathBuf,
    parts: Vec<OsString>,
}

/// The role of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Place {
    /// Must hold a key.
    Key = 0,
    /// May hold a key.
    MayBeKey = 1,
    /// Is in the directory of a key.
    Beside = 2,
}

/// The relevant names in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Names {
    /// One name.
    One(OsString),
    /// All names that match this pattern; without a pattern, all names that are not hidden.
    Like(Option<OsString>),
}

impl Names {
    /// Returns whether a name is relevant.
    pub fn have(&self, name: &OsStr) -> bool {
        match self {
            Names::One(own) => own == name,
            Names::Like(pattern) => fits(pattern.as_deref(), name),
        }
    }
}

/// The receiver of a search's findings.
pub trait Visitor {
    /// Receives the path of the next step, whose file system may not answer.
    fn steps(&mut self, path: &Path);
    /// Receives the relevant names in a directory.
    fn looks(&mut self, directory: &OwnedFd, names: Names);
    /// Receives a file, or the reason why its use is refused.
    fn found(&mut self, path: &Path, place: Place, file: Result<File, Untrusted>);
    /// Receives a path below which the search could not see. Files there do not count as gone.
    fn unseen(&mut self, path: &Path);
    /// Learns that the search has found more files than its maximum.
    fn too_many(&mut self);
}

impl Pattern {
    /// Parses a path.
    pub fn new(path: &Path) -> Pattern {
        let parts = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        Pattern {
            path: path.to_owned(),
            parts: parts.collect(),
        }
    }

    /// Returns the path as written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the path has no wildcards, and so names one file or directory.
    pub fn is_plain(&self) -> bool {
        !self.parts.iter().any(|part| is_pattern(part))
    }

    /// Returns the lowest directory above all wildcards and the last name.
    pub fn base(&self) -> PathBuf {
        let fixed = self.parts.iter().take_while(|part| !is_pattern(part));
        let last = self.parts.len().saturating_sub(1);
        Path::new("/").join(fixed.take(last).collect::<PathBuf>())
    }

    /// Searches the files that exist now. The user `own` is trusted in addition to root. `beside`
    /// adds the other files in the directories of keys.
    pub fn look(&self, own: u32, beside: bool, visitor: &mut dyn Visitor) {
        let mut look = Look {
            visitor,
            beside,
            is_plain: self.is_plain(),
            count: 0,
        };
        match Way::start(own) {
            Ok(way) => look.descend(&way, Path::new("/"), &self.parts),
            Err(untrusted) => look.visitor.found(&self.path, Place::Key, Err(untrusted)),
        }
    }
}

struct Look<'a> {
    visitor: &'a mut dyn Visitor,
    beside: bool,
    /// Whether the pattern names the next file without a wildcard. Then a socket in its place is an
    /// error.
    is_plain: bool,
    count: usize,
}

impl Look<'_> {
    /// Follows the rest of a pattern from a directory. `path` is the directory's path as the
    /// pattern has it.
    fn descend(&mut self, way: &Way, path: &Path, parts: &[OsString]) {
        let Some((part, rest)) = parts.split_first() else {
            return;
        };
        let has_key = if is_pattern(part) {
            let names = self.list(way, path, Some(part), None);
            self.step_all(way, path, names, rest, Place::MayBeKey)
        } else {
            self.step(way, &path.join(part), part, rest, Place::Key)
        };
        if has_key && self.beside && rest.is_empty() {
            let mut others = self.list(way, path, None, Some(part));
            if others.len() > MOST_BESIDE {
                others.truncate(MOST_BESIDE);
                let why = format!("only the first {MOST_BESIDE} other files count");
                let why = Untrusted::System(path.join("*"), io::Error::other(why));
                self.visitor.found(path, Place::Beside, Err(why));
            }
            self.is_plain = false;
            self.step_all(way, path, others, rest, Place::Beside);
        }
    }

    /// Follows listed names of a directory.
    fn step_all(
        &mut self,
        way: &Way,
        path: &Path,
        names: Vec<OsString>,
        rest: &[OsString],
        place: Place,
    ) -> bool {
        let mut has_key = false;
        for name in names {
            has_key |= self.step(way, &path.join(&name), &name, rest, place);
            if self.is_full() {
                break;
            }
        }
        has_key
    }

    /// Follows one name. Returns whether it leads to a file at the end of the pattern, usable or
    /// not.
    fn step(
        &mut self,
        way: &Way,
        path: &Path,
        name: &OsStr,
        rest: &[OsString],
        place: Place,
    ) -> bool {
        self.visitor.steps(path);
        match self.walk(way, name, place != Place::Key) {
            Ok(Reached::Directory(way)) if !rest.is_empty() => self.descend(&way, path, rest),
            // The path names a directory without wildcards: its files are searched, and not its
            // subdirectories.
            Ok(Reached::Directory(way)) if std::mem::take(&mut self.is_plain) => {
                let names = self.list(&way, path, None, None);
                self.step_all(&way, path, names, rest, Place::MayBeKey);
            }
            Ok(Reached::Directory(_)) => {}
            Ok(Reached::File(found)) if rest.is_empty() => {
                self.give(path, place, found.open());
                return true;
            }
            Ok(Reached::File(_)) => {}
            // A wildcard may match a socket.
            Err(Untrusted::NotAFile(_)) if !self.is_plain => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => {
                self.visitor.unseen(path);
                self.give(path, place, Err(error));
                return rest.is_empty();
            }
        }
        false
    }

    fn give(&mut self, path: &Path, place: Place, file: Result<File, Untrusted>) {
        self.count += 1;
        match self.is_full() {
            false => self.visitor.found(path, place, file),
            true => self.end(Path::new("/")),
        }
    }

    fn is_full(&self) -> bool {
        self.count > MOST_FILES
    }

    /// Reports that there are too many files below a path. New files never displace known ones.
    fn end(&mut self, path: &Path) {
        self.visitor.unseen(path);
        self.visitor.too_many();
    }

    /// Follows a name. The visitor already knows listed names.
    fn walk(&mut self, way: &Way, name: &OsStr, was_listed: bool) -> Result<Reached, Untrusted> {
        let (visitor, mut is_known) = (&mut *self.visitor, was_listed);
        way.clone()
            .walk(Path::new(name), &mut |directory, name: &OsStr| {
                if !std::mem::take(&mut is_known) {
                    visitor.looks(directory, Names::One(name.to_owned()));
                }
            })
    }

    /// Returns the sorted names in a directory that match `pattern` and do not match `beside`. With
    /// `beside`, leaves out the last names of a very long list.
    fn list(
        &mut self,
        way: &Way,
        path: &Path,
        pattern: Option<&OsStr>,
        beside: Option<&OsStr>,
    ) -> Vec<OsString> {
        let (directory, _) = way.here();
        let names = Names::Like(pattern.map(OsStr::to_owned));
        self.visitor.looks(directory, names);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(directory, ".", flags, Mode::empty());
        let mut names = Vec::new();
        let read = || -> rustix::io::Result<()> {
            for entry in Dir::read_from(opened?)? {
                let entry = entry?;
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if fits(pattern, name) && !beside.is_some_and(|own| fits(Some(own), name)) {
                    names.push(name.to_owned());
                }
                if names.len() > MOST_NAMES {
                    if beside.is_none() {
                        break;
                    }
                    names.sort_unstable();
                    names.truncate(MOST_BESIDE + 1);
                }
            }
            Ok(())
        };
        if read().is_err_and(|error| error != Errno::NOENT) {
            self.visitor.unseen(path);
        }
        if names.len() > MOST_NAMES {
            self.end(path);
        }
        names.sort_unstable();
        names
    }
}

/// Returns a text in one line. It may contain any file name.
pub fn in_a_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Returns whether the file does not exist. All other errors need a correction.
fn is_missing(error: &Untrusted) -> bool {
    matches!(error, Untrusted::System(_, error) if error.kind() == io::ErrorKind::NotFound)
}

fn is_pattern(part: &OsStr) -> bool {
    part.as_bytes().iter().any(|byte| b"*?".contains(byte))
}

/// Returns whether a pattern matches a name. Without a pattern, every name matches that is not
/// hidden. As in a shell, a wildcard does not match a dot at the start, so temporary files of other
/// programs are ignored.
fn fits(pattern: Option<&OsStr>, name: &OsStr) -> bool {
    let (pattern, name) = (pattern.unwrap_or("*".as_ref()), name.as_bytes());
    let pattern = pattern.as_bytes();
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    // `star` has the last star, and the end of the part that it matches.
    let (mut at, mut next, mut star) = (0, 0, None);
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[next] => {
                at += 1;
                next += 1;
            }
            _ => match star {
                Some((place, end)) => {
                    star = Some((place, end + 1));
                    at = place + 1;
                    next = end + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at.min(pattern.len())..]
        .iter()
        .all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use lockstep_testkit::TempDir;

    use super::*;

    #[test]
    fn a_pattern_fits_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("a*", "a", true),
            ("*.pem", "a.pem", true),
            ("*.pem", ".pem", false),
            ("*.pem", "a.pem.bak", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
            ("k?y", "key", true),
            ("k?y", "ky", false),
            ("?", "", false),
            ("**", "ab", true),
            ("key", "key", true),
            ("key", "keys", false),
        ] {
            let fits = fits(Some(pattern.as_ref()), name.as_ref());
            assert_eq!(fits, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_varies_is_below_the_base() {
        for (path, base) in [
            (
                "/etc/letsencrypt/live/*/privkey.pem",
                "/etc/letsencrypt/live",
            ),
            ("/etc/ssl/www.pem", "/etc/ssl"),
            ("/etc/haproxy/certs", "/etc/haproxy"),
            ("/*", "/"),
        ] {
            assert_eq!(Pattern::new(path.as_ref()).base(), Path::new(base));
        }
    }

    #[derive(Default)]
    struct Seen {
        files: Vec<(String, Place, Result<String, String>)>,
        names: Vec<Names>,
        is_full: bool,
    }

    impl Visitor for Seen {
        fn looks(&mut self, _: &OwnedFd, names: Names) {
            self.names.push(names);
        }

        fn unseen(&mut self, _: &Path) {}

        fn steps(&mut self, _: &Path) {}

        fn found(&mut self, path: &Path, place: Place, file: Result<File, Untrusted>) {
            let text = file.map_err(|error| error.to_string()).map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).expect("a file");
                text
            });
            let above = path.parent().and_then(Path::file_name).expect("a name");
            let name = Path::new(above).join(path.file_name().expect("a name"));
            self.files.push((name.display().to_string(), place, text));
        }

        fn too_many(&mut self) {
            self.is_full = true;
        }
    }

    fn look(path: &Path, beside: bool) -> Seen {
        let own = fs::metadata("/proc/self").expect("/proc").uid();
        let mut seen = Seen::default();
        Pattern::new(path).look(own, beside, &mut seen);
        seen
    }

    fn texts(seen: &Seen) -> Vec<(&str, Place, &str)> {
        let text = |(name, place, text): &'_ (String, Place, Result<String, String>)| {
            let text = text.as_deref().unwrap_or("bad").to_owned();
            (name.clone(), *place, text)
        };
        let texts: Vec<_> = seen.files.iter().map(text).collect();
        texts
            .into_iter()
            .map(|(name, place, text)| (&*name.leak(), place, &*text.leak()))
            .collect()
    }

    #[test]
    fn files_are_found_by_pattern_directory_and_link_and_a_bad_one_hurts_no_other() {
        let place = TempDir::new("files");
        for site in ["a", "b", "c"] {
            fs::create_dir_all(place.join("archive").join(site)).expect("a directory");
            fs::create_dir_all(place.join("live").join(site)).expect("a directory");
            fs::write(place.join("archive").join(site).join("1.pem"), site).expect("a file");
            let link = place.join("live").join(site).join("privkey.pem");
            symlink(format!("../../archive/{site}/1.pem"), link).expect("a link");
        }
        fs::write(place.join("live/README"), "x").expect("a file");
        fs::write(place.join("live/a/cert.pem"), "cert").expect("a file");
        fs::write(place.join("live/a/.hidden.pem"), "x").expect("a file");
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(place.join("archive/b/1.pem"), open).expect("its own");
        let seen = look(&place.join("live/*/privkey.pem"), true);
        assert_eq!(
            texts(&seen),
            [
                ("a/privkey.pem", Place::Key, "a"),
                ("a/cert.pem", Place::Beside, "cert"),
                ("b/privkey.pem", Place::Key, "bad"),
                ("c/privkey.pem", Place::Key, "c"),
            ]
        );
        let why = seen.files[2].2.as_ref().expect_err("bad");
        assert!(why.contains("can write to"), "{why}");
        // The names on the way, links included.
        for name in ["live", "privkey.pem", "archive", "a", "1.pem"] {
            assert!(seen.names.contains(&Names::One(name.into())), "{name}");
        }
        assert!(seen.names.contains(&Names::Like(Some("*".into()))));
        // A directory as cert-manager writes it, and one that does not exist.
        let secret = place.join("secret");
        fs::create_dir_all(secret.join("..2026")).expect("a directory");
        fs::write(secret.join("..2026/tls.key"), "key").expect("a file");
        symlink("..2026", secret.join("..data")).expect("a link");
        symlink("..data/tls.key", secret.join("tls.key")).expect("a link");
        let seen = look(&secret, false);
        assert_eq!(texts(&seen), [("secret/tls.key", Place::MayBeKey, "key")]);
        let seen = look(&place.join("later/*/key"), false);
        assert!(seen.files.is_empty() && seen.names.contains(&Names::One("later".into())));
    }

    #[test]
    fn a_full_directory_is_taken_in_part_and_that_is_told() {
        let place = TempDir::new("many");
        for number in 0..=MOST_FILES {
            fs::write(place.join(number.to_string()), "").expect("a file");
        }
        let seen = look(&place, false);
        assert!(seen.files.len() == MOST_FILES && seen.is_full);
        // One entry of `names` covers all files.
        assert!(seen.names.len() < 20, "{}", seen.names.len());
        fs::remove_file(place.join("0")).expect("a file");
        assert!(!look(&place, false).is_full);
        // Names that do not match do not count.
        fs::write(place.join("site.pem"), "key").expect("a file");
        for number in 0..MOST_NAMES {
            fs::write(place.join(format!("{number}.crt")), "").expect("a file");
        }
        let seen = look(&place.join("*.pem"), false);
        assert!(seen.files.len() == 1 && !seen.is_full);
        // Files beside a key do not count, either: the first 100 are found, the rest is reported.
        let seen = look(&place.join("site.pem"), true);
        assert!(seen.files.len() == 2 + MOST_BESIDE && !seen.is_full);
        let told = seen.files[1].2.as_ref().expect_err("more than count");
        assert!(told.contains("only the first 100"), "{told}");
    }
}
