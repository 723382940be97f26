//! Directories for a moment.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::guard::Guard;

/// A directory for a key that nobody else may read; it goes away with its owner, and with this
/// process, however that ends.
pub struct Scratch(
    PathBuf,
    #[expect(dead_code, reason = "it acts when dropped")] Guard,
);

impl Scratch {
    /// `purpose` distinguishes it from those that other commands make.
    pub fn new(purpose: &str) -> Result<Scratch, Failure> {
        let name = format!("lockstep-{purpose}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| Failure::new(format!("cannot create {}: {error}", path.display())))?;
        let guard = Guard::of(&path);
        Ok(Scratch(path, guard))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it being gone.
        let _ = fs::remove_dir_all(&self.0);
    }
}
