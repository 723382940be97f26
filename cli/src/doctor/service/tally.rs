//! Counters of a service's processes, from the files that they have mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_engine::{Snapshot, read_published};

use super::files::View;
use crate::process::mapped::Mapped;
use crate::process::{Processes, within};

/// Counters of a service's processes, including processes that start and end meanwhile: a program
/// and its children count in one file.
pub struct Tally {
    /// The directories that hold the files, by their paths for this program, and the files' names.
    directories: BTreeMap<PathBuf, BTreeSet<String>>,
}

/// Maximum time for reading a directory of counters, which a service may have anywhere.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reason why counters cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// They are of another version of the module.
    OtherVersion,
    /// This program may not read them, or they are gone.
    Unreadable,
}

impl Tally {
    /// Returns the tally of the processes with these mapped files; `None` if no file has counters.
    pub fn of<'a>(mapped: impl IntoIterator<Item = &'a Mapped>, view: &View) -> Option<Tally> {
        let mut directories: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
        let files = mapped.into_iter().filter_map(Mapped::counters);
        for (place, name) in files {
            let names = directories.entry(view.at(place)).or_default();
            names.insert(name.to_owned());
        }
        (!directories.is_empty()).then_some(Tally { directories })
    }

    /// Adds all processes of a name and of these users; other users can give a process this name.
    /// Processes whose counters cannot be read are left out.
    pub fn add_process(&mut self, name: &str, users: &[u32]) {
        for process in Processes::here().all() {
            if process.status.name == name && users.contains(&process.status.user) {
                let mapped = process.mapped().unwrap_or_default();
                let own = Tally::of(&mapped, &View::of(&process));
                if let Some(own) = own.filter(|own| own.read().is_ok()) {
                    self.add(own);
                }
            }
        }
    }

    /// Adds another tally. Its files may lie in the same directory.
    fn add(&mut self, other: Tally) {
        for (directory, names) in other.directories {
            self.directories.entry(directory).or_default().extend(names);
        }
    }

    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directories.keys().map(PathBuf::as_path)
    }

    /// Reads the counters in all files.
    pub fn read(&self) -> Result<Counted, Unread> {
        let mut counted = Counted::default();
        for (directory, names) in &self.directories {
            let directory = directory.clone();
            let found = within(PATIENCE, move || read_published(&directory));
            let found = found.and_then(Result::ok).ok_or(Unread::Unreadable)?;
            // Other services may count in the same directory.
            let mut known = found.processes.iter().chain(&found.idle);
            if found.other_versions > 0 && !known.any(|own| names.contains(&own.file)) {
                return Err(Unread::OtherVersion);
            }
            let ours = found.processes.into_iter();
            let ours = ours.filter(|process| names.contains(&process.file));
            counted.0.extend(ours.map(|process| process.snapshot));
        }
        Ok(counted)
    }
}

/// Counters of a service's processes at one time.
#[derive(Default)]
pub struct Counted(Vec<Snapshot>);

impl Counted {
    /// Returns the difference from an earlier time. Processes may have started since, and a process
    /// that has ended is not counted.
    pub fn since(&self, earlier: &Counted) -> Snapshot {
        let identity = |process: &Snapshot| (process.pid, process.started);
        let earlier: BTreeMap<_, _> = earlier.0.iter().map(|p| (identity(p), p)).collect();
        sum(self.0.iter().map(|now| {
            let before = earlier.get(&identity(now));
            before.map_or_else(|| now.clone(), |before| now.clone().since(before))
        }))
    }
}

/// Adds up the snapshots of several processes.
pub fn sum(processes: impl IntoIterator<Item = Snapshot>) -> Snapshot {
    let mut sum = Snapshot::default();
    for process in processes {
        sum.backend.clone_from(&process.backend);
        sum.absorb(&process);
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::fs;

    use lockstep_engine::{Page, StatsDir};

    use super::*;

    fn process(pid: u64, started: u64, passes: u64) -> Snapshot {
        Snapshot {
            pid,
            started,
            passes,
            ..Snapshot::default()
        }
    }

    #[test]
    fn files_of_two_tallies_in_one_directory_all_count() {
        let tally = |names: &[(&str, &str)]| {
            let mut directories: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
            for (directory, name) in names {
                let names = directories.entry(directory.into()).or_default();
                names.insert((*name).to_owned());
            }
            Tally { directories }
        };
        let mut both = tally(&[("/run/a", "server")]);
        both.add(tally(&[("/run/a", "daemon"), ("/run/b", "daemon")]));
        let expected = [
            ("/run/a", "server"),
            ("/run/a", "daemon"),
            ("/run/b", "daemon"),
        ];
        assert_eq!(both.directories, tally(&expected).directories);
    }

    /// Other services may count in the same directory, with another module.
    #[test]
    fn counters_of_another_module_are_told_from_those_of_others() {
        let place = lockstep_testkit::TempDir::new("versions");
        let directory = StatsDir::At(place.to_path_buf());
        let page = Page::create(&directory, false).unwrap().unwrap();
        let files = || fs::read_dir(&place).unwrap().map(|entry| entry.unwrap());
        let own = files().next().unwrap().file_name().into_string().unwrap();
        let mut bytes = fs::read(place.join(&own)).unwrap();
        // The last byte of the first word is the version.
        bytes[7] = bytes[7].wrapping_add(1);
        fs::write(place.join("1-1-0.counters"), bytes).unwrap();
        let read = |name: &str| {
            let names = BTreeSet::from([name.to_owned()]);
            let directories = BTreeMap::from([(place.to_path_buf(), names)]);
            Tally { directories }.read().map(|_| ())
        };
        assert_eq!(read("1-1-0.counters"), Err(Unread::OtherVersion));
        assert_eq!(read(&own), Ok(()));
        drop(page);
    }

    #[test]
    fn processes_may_start_and_end_between_two_looks() {
        let before = Counted(vec![process(7, 1, 100), process(8, 1, 1000)]);
        let after = Counted(vec![
            process(7, 1, 104),
            process(8, 2, 20),
            process(9, 2, 300),
        ]);
        assert_eq!(after.since(&before).passes, 324);
    }
}
