//! What the processes of a service have counted, read from the files that they have mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lockstep_engine::{Snapshot, read_published};

use super::mapped::Mapped;
use super::view::View;

/// The counters of a service's processes, those that it starts and ends meanwhile included: all
/// that a program forks count in one file.
pub struct Tally {
    /// The directories that hold the files, for the reader, and the names of the files.
    directories: BTreeMap<PathBuf, BTreeSet<String>>,
}

/// Why counters could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// They are of another version of the module.
    OtherVersion,
    /// The reader may not, or they are gone.
    Unreadable,
}

impl Tally {
    /// That of the processes that have these files mapped; `None` if no file holds counters.
    pub fn of<'a>(mapped: impl IntoIterator<Item = &'a Mapped>, view: &View) -> Option<Tally> {
        let mut directories: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
        for (place, name) in mapped.into_iter().filter_map(Mapped::counters) {
            let names = directories.entry(view.at(place)).or_default();
            names.insert(name.to_owned());
        }
        (!directories.is_empty()).then_some(Tally { directories })
    }

    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.keys().map(PathBuf::as_path)
    }

    /// All that they have counted until now, added up.
    pub fn read(&self) -> Result<Snapshot, Unread> {
        let mut sum = Snapshot::default();
        for (directory, names) in &self.directories {
            let found = read_published(directory).map_err(|_| Unread::Unreadable)?;
            // A process that has counted nothing yet is not among them.
            if found.processes.is_empty() && found.other_versions > 0 {
                return Err(Unread::OtherVersion);
            }
            for process in found.processes {
                if names.contains(&process.file) {
                    sum.backend.clone_from(&process.snapshot.backend);
                    sum.absorb(&process.snapshot);
                }
            }
        }
        Ok(sum)
    }
}
