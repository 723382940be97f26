//! Search for programs. Root starts none from a directory that others can change.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::trust::{is_root, others_can_change};

/// Search path of root, if it has none of its own. An empty path would stand for the working
/// directory.
const USUAL: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Finds a program by its name.
#[must_use]
pub fn program(name: &str) -> Command {
    let path = search_path();
    let mut candidates = env::split_paths(&path).map(|directory| directory.join(name));
    let found = candidates.find(|path| path.is_file() && is_safe(path));
    let mut command = Command::new(found.unwrap_or_else(|| PathBuf::from(name)));
    command.env("PATH", path);
    command
}

/// Directories in which programs are searched.
#[must_use]
pub fn search_path() -> OsString {
    let named = env::var_os("PATH").unwrap_or_default();
    match is_root() {
        true => safe(&named),
        false => named,
    }
}

/// The part of a path that root may use.
fn safe(path: &OsStr) -> OsString {
    let own = env::split_paths(path).filter(|path| path.is_absolute() && is_safe(path));
    let own = env::join_paths(own).unwrap_or_default();
    match own.is_empty() {
        true => USUAL.into(),
        false => own,
    }
}

/// Returns whether this program may start a file, or a file in this directory.
fn is_safe(path: &Path) -> bool {
    !is_root() || matches!(others_can_change(path), Ok(None))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn root_finds_no_program_where_others_put_some() {
        if !is_root() {
            println!("skipped: the tests do not run as root");
            return;
        }
        let place = lockstep_testkit::TempDir::new("programs");
        let shown = place.display().to_string();
        let of = |path: &str| safe(OsStr::new(path));
        assert_eq!(
            of(&format!("{shown}:/usr/bin")),
            *format!("{shown}:/usr/bin")
        );
        chown(&*place, Some(65534), None).unwrap();
        assert_eq!(of(&format!("{shown}::.:bin:/usr/bin")), *"/usr/bin");
        for none in ["", ":", &shown] {
            assert_eq!(of(none), USUAL);
        }
        assert!(Path::new(program("sh").get_program()).is_absolute());
    }
}
