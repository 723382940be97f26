//! Temporary directories.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A new directory, which is removed with its contents when it is dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes an empty directory, whose name contains `purpose`.
    ///
    /// # Panics
    ///
    /// If it cannot be created.
    pub fn new(purpose: &str) -> TempDir {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockstep-{purpose}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Removes the directory of an earlier process with the same number, which was killed.
        let _ = fs::remove_dir_all(&path);
        // Fails if another user has made it meanwhile.
        fs::create_dir(&path).expect("a temporary directory");
        TempDir(path)
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A directory that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_its_own_and_goes_with_its_owner() {
        let (one, other) = (TempDir::new("twice"), TempDir::new("twice"));
        assert_ne!(&*one, &*other);
        let path = one.to_path_buf();
        fs::write(one.join("file"), "").unwrap();
        drop(one);
        assert!(!path.exists() && other.exists());
    }
}
