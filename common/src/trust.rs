//! Files from which root may take code: only root can change them.
//!
//! A program that loads a configuration of OpenSSL runs the modules that the configuration names. A
//! command that root runs asks here before it starts such a program. A user who can change the
//! file, a file that it includes, a module, a link on the way or a directory above them chooses the
//! code that root runs.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use crate::effective::Effective;
use crate::failure::Failure;
use crate::terminal::word_for_shell;

/// Maximum number of links on the way to a file, as in Linux.
const MOST_LINKS: usize = 40;
/// Maximum number of files that one configuration includes.
const MOST_FILES: usize = 256;

/// Returns whether root runs this program. Root of a user namespace that knows only one user, as
/// `unshare --map-root-user` makes it, does not count: it is that user, and files of all others
/// belong to nobody.
#[must_use]
pub fn is_root() -> bool {
    static OTHERS: OnceLock<bool> = OnceLock::new();
    let map = || fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && *OTHERS.get_or_init(|| knows_others(&map()))
}

/// Returns whether a map of users (user_namespaces(7)) has more than one user.
fn knows_others(map: &str) -> bool {
    let counts = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    let all: u64 = counts.filter_map(|count| count.parse::<u64>().ok()).sum();
    all != 1
}

/// Returns the first part of the way to a file that others than root and the user of this program
/// can change; `None` if there is none. Links are followed, and are parts of the way. A missing
/// file counts if others can create it.
///
/// # Errors
/// A part of the way cannot be examined.
pub fn others_can_change(path: &Path) -> io::Result<Option<PathBuf>> {
    let path = std::path::absolute(path)?;
    let mut left: VecDeque<OsString> = parts(&path).collect();
    let mut here = PathBuf::from("/");
    let mut about = fs::symlink_metadata(&here)?;
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if is_others(&about) {
            return Ok(Some(here));
        }
        let next = match part == ".." {
            true => here.parent().unwrap_or(Path::new("/")).to_owned(),
            false => here.join(&part),
        };
        let found = match fs::symlink_metadata(&next) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((about.mode() & 0o022 != 0).then_some(next));
            }
            Err(error) => return Err(error),
        };
        if !found.is_symlink() {
            (here, about) = (next, found);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many links"));
        }
        // In a directory like /tmp, anybody can make a link.
        if is_others(&found) {
            return Ok(Some(next));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            here = PathBuf::from("/");
            about = fs::symlink_metadata(&here)?;
        }
        parts(&target).rev().for_each(|part| left.push_front(part));
    }
    Ok(is_others(&about).then_some(here))
}

fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Returns whether other users than root and the user of this program can change a file, or the
/// files in a directory. In a directory like /tmp, others can create files, but not replace those
/// of root.
fn is_others(about: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let is_sticky = about.is_dir() && about.mode() & 0o1000 != 0;
    let is_open = !about.is_symlink() && !is_sticky && about.mode() & 0o022 != 0;
    is_open || (about.uid() != 0 && about.uid() != user)
}

/// Fails if root runs this program and others can change this configuration, a file that it
/// includes, or a library that it names. A file is read only if it is root's.
///
/// # Errors
/// Others can change one of them. The failure names the part of its path.
pub fn insist_on_own(configuration: &Path) -> Result<(), Failure> {
    // /dev/null never changes.
    if !is_root() || configuration == Path::new("/dev/null") {
        return Ok(());
    }
    let shown = configuration.display();
    let mut left = VecDeque::from([configuration.to_owned()]);
    let mut seen = Vec::new();
    while let Some(file) = left.pop_front() {
        if seen.contains(&file) {
            continue;
        }
        if seen.len() == MOST_FILES {
            let what = format!("{shown} includes more than {MOST_FILES} files");
            return Err(Failure::new(what).remedy("name a configuration with fewer files"));
        }
        insist_on(&file, configuration)?;
        left.extend(included(&file, configuration)?);
        seen.push(file);
    }
    if !configuration.exists() {
        return Ok(());
    }
    let libraries = Effective::read(configuration)?.libraries();
    libraries
        .iter()
        .try_for_each(|library| insist_on(library, configuration))
}

/// Fails if root runs this program and others can change a file that is not a configuration, such
/// as a module.
///
/// # Errors
/// Others than root can change the file.
pub fn insist_on_own_file(file: &Path) -> Result<(), Failure> {
    match is_root() {
        true => insist_on(file, file),
        false => Ok(()),
    }
}

/// Fails if others can change a file that a configuration names.
fn insist_on(file: &Path, configuration: &Path) -> Result<(), Failure> {
    let (shown, named) = (configuration.display(), file.display());
    let by = match file == configuration {
        true => String::new(),
        false => format!(", which {shown} names"),
    };
    let what = match others_can_change(file) {
        Ok(None) => return Ok(()),
        Ok(Some(part)) if part == file => format!("others than root can change {named}{by}"),
        Ok(Some(part)) => format!(
            "others than root can change {}, and so replace {named}{by}",
            part.display()
        ),
        Err(error) => format!("it is unknown who can change {named}{by}: {error}"),
    };
    Err(Failure::new(format!(
        "{what}. They choose which code a program runs that loads it, so root does not load it"
    ))
    .remedy(format!(
        "run this as the user whose configuration it is, with OPENSSL_CONF={}; or let it name \
         only files that root alone can change",
        word_for_shell(configuration)
    )))
}

/// The files that a file of a configuration includes (config(5)). A name that depends on a variable
/// is unknown.
fn included(file: &Path, configuration: &Path) -> Result<Vec<PathBuf>, Failure> {
    let Ok(text) = fs::read(file) else {
        // If the file is needed, the parser reports the reason.
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    let text = String::from_utf8_lossy(&text);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let Some(rest) = line.trim_start().strip_prefix(".include") else {
            continue;
        };
        if !rest.starts_with(|c: char| c.is_whitespace() || c == '=') {
            continue;
        }
        let rest = rest.trim_start();
        let name = rest.strip_prefix('=').unwrap_or(rest);
        let name = name.split('#').next().unwrap_or_default().trim();
        let name = name.trim_matches(['"', '\'']);
        if name.contains(['$', '\\', '\u{fffd}']) || !name.starts_with('/') {
            return Err(Failure::new(format!(
                "root does not load {}: which file the line `{}` of {} includes depends on where \
                 and how a program is started",
                configuration.display(),
                line.trim(),
                file.display()
            ))
            .remedy("write the absolute path of the file there"));
        }
        let path = PathBuf::from(name);
        if path.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            let is_read = |path: &PathBuf| {
                let end = path.extension().and_then(|end| end.to_str());
                end.is_some_and(|end| ["cnf", "conf"].contains(&end))
            };
            files.extend(paths.filter(is_read));
        }
        files.push(path);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use lockstep_testkit::TempDir;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn root_of_a_namespace_with_one_user_is_that_user() {
        assert!(knows_others("         0          0 4294967295\n"));
        assert!(knows_others("0 100000 65536\n"));
        assert!(knows_others("0 1000 1\n1 100000 65536\n"));
        assert!(!knows_others("         0       1000          1\n"));
        // The file may be missing.
        assert!(knows_others(""));
        assert!(insist_on_own(Path::new("/dev/null")).is_ok());
    }

    #[test]
    fn every_part_of_the_way_counts() {
        let place = TempDir::new("trust");
        let (file, open) = (place.join("a/b/file"), place.join("open"));
        write(&file, "");
        write(&open.join("file"), "");
        let by = |path: &Path| others_can_change(path).unwrap();
        assert_eq!(by(&file), None);
        assert_eq!(by(&place.join("a/none")), None);
        set_mode(&open, 0o777);
        assert_eq!(by(&open.join("file")), Some(open.clone()));
        assert_eq!(by(&open.join("none/x")), Some(open.clone()));
        // By way of links, and of the directory that a link lies in.
        let (in_open, to_open) = (open.join("link"), place.join("link"));
        symlink(&file, &in_open).unwrap();
        symlink("open/../open/file", &to_open).unwrap();
        assert_eq!(by(&in_open), Some(open.clone()));
        assert_eq!(by(&to_open), Some(open.clone()));
        set_mode(&open, 0o1777);
        assert_eq!(by(&to_open), None);
        // In such a directory anybody can create a file that is missing.
        assert_eq!(by(&open.join("none")), Some(open.join("none")));
        set_mode(&file, 0o666);
        assert_eq!(by(&file), Some(file.clone()));
        let circle = place.join("circle");
        symlink(&circle, &circle).unwrap();
        assert!(others_can_change(&circle).is_err());
        if is_root() {
            set_mode(&file, 0o600);
            chown(&file, Some(65534), None).unwrap();
            assert_eq!(by(&in_open), Some(file.clone()));
        }
    }

    #[test]
    fn root_loads_its_own_configurations_only() {
        if !is_root() {
            println!("skipped: the tests do not run as root");
            return;
        }
        let place = TempDir::new("own");
        let at = |name: &str| place.join(name);
        let module = at("dist/lockstep.so");
        write(&module, "");
        write(&at("more/a.cnf"), "");
        write(&at("other.cnf"), "");
        let text = format!(
            "openssl_conf = i\n.include {}\n[i]\nproviders = p\n[p]\nl = s\n[s]\nmodule = {}\n\
             activate = 1\n",
            at("other.cnf").display(),
            module.display()
        );
        let own = at("openssl.cnf");
        // A byte order mark, and a comment that is not UTF-8, hide no line.
        let first = format!("\u{feff}.include = {}\n# caf", at("more").display());
        let whole = [first.as_bytes(), b"\xe9\n", text.as_bytes()].concat();
        fs::write(&own, whole).unwrap();
        let refused = || insist_on_own(&own).map_err(|failure| failure.what);
        assert_eq!(refused(), Ok(()));
        for part in [
            "openssl.cnf",
            "more",
            "more/a.cnf",
            "other.cnf",
            "dist",
            "dist/lockstep.so",
        ] {
            let path = at(part);
            chown(&path, Some(65534), None).unwrap();
            let what = refused().unwrap_err();
            assert!(what.contains(&path.display().to_string()), "{what}");
            chown(&path, Some(0), None).unwrap();
            assert_eq!(refused(), Ok(()), "{part}");
        }
        for line in [".include = $ENV::X", ".include x.cnf"] {
            write(&own, &format!("{line}\n{text}"));
            assert!(refused().unwrap_err().contains(line), "{line}");
        }
        // An engine's library, and a library of a provider's own.
        let theirs = at("theirs.so");
        write(&theirs, "");
        chown(&theirs, Some(65534), None).unwrap();
        let theirs = theirs.display();
        for more in [
            format!("[s]\npkcs11-module-path = {theirs}\n"),
            format!("[i]\nengines = e\n[e]\nx = y\n[y]\ndynamic_path = {theirs}\n"),
        ] {
            write(&own, &format!("{text}{more}"));
            assert!(refused().unwrap_err().contains("theirs.so"), "{more}");
        }
    }
}
