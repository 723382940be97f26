//! Temporary directories.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::Failure;
use crate::guard::Guard;
use crate::trust::{is_root, others_can_change};

/// Place of root's directories if the environment names a directory that others can change.
const TEMPORARY: &str = "/tmp";
/// Maximum number of names to try.
const TRIES: usize = 100;

/// A directory, for example for a key, that no other user can read. It is removed when the value is
/// dropped, and when this process ends in any way.
pub struct Scratch(
    PathBuf,
    #[expect(dead_code, reason = "it acts when dropped")] Guard,
);

impl Scratch {
    /// Makes a directory. `purpose` distinguishes it from the directories of other commands. Nobody
    /// can know its name in advance, so nobody can prevent its creation.
    pub fn new(purpose: &str) -> Result<Scratch, Failure> {
        let above = place(env::temp_dir())?;
        let failed = |error: io::Error| {
            Failure::new(format!(
                "cannot create a directory in {}: {error}",
                above.display()
            ))
        };
        for _ in 0..TRIES {
            let number = random().map_err(failed)?;
            let path = above.join(format!("lockstep-{purpose}-{number:016x}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let guard = Guard::of(&path);
                    return Ok(Scratch(path, guard));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Writes a file in it, and returns the path of the file.
    pub fn write(&self, name: impl AsRef<Path>, text: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        fs::write(&path, text)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Returns the directory for temporary files: the named one, or for root [`TEMPORARY`] if others
/// could replace files in the named one.
fn place(named: PathBuf) -> Result<PathBuf, Failure> {
    let is_safe = |path: &Path| matches!(others_can_change(path), Ok(None));
    if !is_root() || is_safe(&named) {
        return Ok(named);
    }
    let usual = PathBuf::from(TEMPORARY);
    match is_safe(&usual) {
        true => Ok(usual),
        false => Err(Failure::new(format!(
            "others than root can replace files of root in {TEMPORARY}"
        ))
        .remedy(format!(
            "chown root:root {TEMPORARY} && chmod 1777 {TEMPORARY}"
        ))),
    }
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        8 => Ok(u64::from_ne_bytes(bytes)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    use lockstep_testkit::TempDir;

    use super::*;

    #[test]
    fn nobody_knows_its_name_before() {
        let (one, other) = (
            Scratch::new("twice").unwrap(),
            Scratch::new("twice").unwrap(),
        );
        assert_ne!(one.path(), other.path());
        let name = one.path().to_string_lossy().into_owned();
        let number = std::process::id().to_string();
        assert!(!name.ends_with(&format!("-{number}")), "{name}");
        let about = fs::metadata(one.path()).unwrap();
        assert_eq!(about.mode() & 0o777, 0o700);
        drop(one);
        assert!(!Path::new(&name).exists());
    }

    #[test]
    fn root_makes_none_where_others_could_replace_it() {
        if !is_root() {
            println!("skipped: the tests do not run as root");
            return;
        }
        let theirs = TempDir::new("theirs");
        assert_eq!(place(theirs.to_path_buf()).unwrap(), *theirs);
        chown(&*theirs, Some(65534), None).unwrap();
        assert_eq!(place(theirs.to_path_buf()).unwrap(), Path::new(TEMPORARY));
        chown(&*theirs, Some(0), None).unwrap();
        fs::set_permissions(&*theirs, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(place(theirs.to_path_buf()).unwrap(), Path::new(TEMPORARY));
    }
}
