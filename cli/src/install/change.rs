//! What `install` and `uninstall` do to files, step by step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One step. The path is the one to use, under the root.
pub enum Change {
    Write { path: PathBuf, text: String },
    Unchanged { path: PathBuf },
    Remove { path: PathBuf },
    Absent { path: PathBuf },
}

impl Change {
    pub fn is_nothing(&self) -> bool {
        matches!(self, Change::Unchanged { .. } | Change::Absent { .. })
    }

    pub fn words(&self) -> String {
        match self {
            Change::Write { path, .. } => format!("write {}", path.display()),
            Change::Unchanged { path } => format!("keep {}, as it is", path.display()),
            Change::Remove { path } => format!("remove {}", path.display()),
            Change::Absent { path } => format!("leave {}, which is not there", path.display()),
        }
    }

    pub fn announcement(&self) -> String {
        let mut lines = format!("{}\n", self.words());
        if let Change::Write { text, .. } = self {
            lines.extend(text.lines().map(|line| format!("    {line}\n")));
        }
        lines
    }

    pub fn make(&self) -> io::Result<()> {
        match self {
            Change::Unchanged { .. } | Change::Absent { .. } => Ok(()),
            Change::Write { path, text } => {
                let directory = path.parent().unwrap_or(Path::new("/"));
                fs::create_dir_all(directory)?;
                // In one step: a server that reads it meanwhile must not find half a file.
                let fresh = path.with_extension("lockstep-new");
                fs::write(&fresh, text)?;
                fs::rename(&fresh, path)
            }
            Change::Remove { path } => {
                fs::remove_file(path)?;
                // A directory of drop-ins or of Lockstep goes with the last of its files.
                if let Some(directory) = path.parent().filter(|d| goes_with_its_files(d)) {
                    let _ = fs::remove_dir(directory);
                }
                Ok(())
            }
        }
    }
}

fn goes_with_its_files(directory: &Path) -> bool {
    let name = directory.to_string_lossy();
    name.ends_with(".service.d") || name.ends_with("/lockstep")
}
