//! What the processes of a service have counted, read from the files that they have mapped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lockstep_engine::{Snapshot, read_published};

use super::mapped::Mapped;
use super::process::Process;
use super::view::View;

/// The counters of a service's processes.
pub struct Tally {
    /// The directories that hold them, for the reader.
    directories: BTreeSet<PathBuf>,
    /// The processes, as they are called in their own PID namespace.
    pids: BTreeSet<u32>,
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
    /// That of these processes; `None` if none of them publishes counters.
    pub fn of<'a>(
        processes: impl IntoIterator<Item = (&'a Process, &'a [Mapped])>,
        view: &View,
    ) -> Option<Tally> {
        let (mut directories, mut pids) = (BTreeSet::new(), BTreeSet::new());
        for (process, files) in processes {
            pids.insert(process.status.inner_pid);
            let places = files.iter().filter_map(Mapped::counters);
            directories.extend(places.map(|place| view.at(place)));
        }
        (!directories.is_empty()).then_some(Tally { directories, pids })
    }

    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(PathBuf::as_path)
    }

    /// All that they have counted until now, added up.
    pub fn read(&self) -> Result<Snapshot, Unread> {
        let mut sum = Snapshot::default();
        for directory in &self.directories {
            let found = read_published(directory).map_err(|_| Unread::Unreadable)?;
            // A process that has counted nothing yet is not among them.
            if found.processes.is_empty() && found.other_versions > 0 {
                return Err(Unread::OtherVersion);
            }
            for process in found.processes {
                if self.pids.contains(&process.pid) {
                    sum.backend.clone_from(&process.snapshot.backend);
                    sum.absorb(&process.snapshot);
                }
            }
        }
        Ok(sum)
    }
}
