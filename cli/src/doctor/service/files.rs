//! Files as a process sees them: under its own root directory, in its own mount namespace.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::process::Process;

/// Where the files of a process are, for the reader.
pub struct View {
    root: PathBuf,
    /// What is mounted in its namespace.
    mounts: Vec<Mount>,
    /// What is mounted in the reader's, if that is another one.
    others: Option<BTreeSet<Mount>>,
}

/// A line of `/proc/PID/mountinfo`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mount {
    at: PathBuf,
    device: String,
    /// The directory of the device that is mounted.
    directory: String,
    kind: String,
}

impl View {
    /// What this process sees. A process that has changed its root directory since is taken to have
    /// seen what its namespace holds.
    pub fn of(process: &Process) -> View {
        let is_ours = process.shares("mnt");
        let own = || {
            let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
            mounts(&String::from_utf8_lossy(&table))
        };
        View {
            root: match is_ours {
                true => PathBuf::from("/"),
                false => process.about("root"),
            },
            // One that has changed its root directory sees few of them in its own table.
            mounts: match is_ours {
                true => own(),
                false => mounts(&process.mounts()),
            },
            others: (!is_ours).then(|| own().into_iter().collect()),
        }
    }

    /// What a service that does not run would see.
    pub fn under(root: &Path) -> View {
        View {
            root: root.to_owned(),
            mounts: Vec::new(),
            others: None,
        }
    }

    /// Where the reader finds a file that the process knows by this path.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The directory on the way to this file in whose place the process has another one than the
    /// reader. The mount tables tell this: the files may be those of a user who has them answer
    /// never.
    pub fn hides(&self, path: &Path) -> Option<&Path> {
        let mount = self.above(path)?;
        let others = self.others.as_ref()?;
        (!others.contains(mount)).then_some(&mount.at)
    }

    /// Whether the kernel itself has the file system of this path. Behind another one (FUSE) is a
    /// program of some user, which may keep a reader waiting for ever.
    pub fn is_of_kernel(&self, path: &Path) -> bool {
        let mut above = self
            .mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.at));
        !above.any(|mount| mount.kind.starts_with("fuse"))
    }

    fn above(&self, path: &Path) -> Option<&Mount> {
        let above = self
            .mounts
            .iter()
            .filter(|mount| path.starts_with(&mount.at));
        // The last one at a place covers the others.
        above.max_by_key(|mount| mount.at.as_os_str().len())
    }
}

/// The lines of a table. Odd characters stand there as octal numbers.
fn mounts(table: &str) -> Vec<Mount> {
    let lines = table.lines().filter_map(|line| {
        let (place, about) = line.split_once(" - ")?;
        let words: Vec<&str> = place.split(' ').collect();
        Some(Mount {
            at: PathBuf::from(words.get(4)?.replace("\\040", " ")),
            device: (*words.get(2)?).to_owned(),
            directory: (*words.get(3)?).to_owned(),
            kind: about.split(' ').next()?.to_owned(),
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "1 2 0:1 / / rw - ext4 x rw\n5 1 0:9 / /run rw - tmpfs x rw\n";

    #[test]
    fn a_file_is_hidden_by_the_deepest_mount_above_it() {
        let table = "9 2 0:1 / / rw - ext4 x rw\n5 1 0:9 / /run rw - tmpfs x rw\n\
                     3 1 0:2 /private /tmp rw,shared:1 - tmpfs x rw\n\
                     4 1 0:3 / /a\\040b rw - fuse.x x rw\n";
        let mut view = View {
            root: PathBuf::from("/"),
            mounts: mounts(table),
            others: Some(mounts(OWN).into_iter().collect()),
        };
        let hides = |view: &View, path: &str| view.hides(Path::new(path)).map(Path::to_owned);
        for (path, by) in [
            ("/tmp/x/openssl.cnf", Some("/tmp")),
            ("/a b/c", Some("/a b")),
            ("/etc/x", None),
            ("/run/x", None),
            ("/tmpx", None),
        ] {
            assert_eq!(hides(&view, path).as_deref(), by.map(Path::new), "{path}");
        }
        assert!(!view.is_of_kernel(Path::new("/a b/c/d")));
        assert!(view.is_of_kernel(Path::new("/a")) && view.is_of_kernel(Path::new("/tmp/x")));
        view.others = None;
        assert_eq!(hides(&view, "/tmp/x"), None);
        // A container, with another root.
        view.others = Some(BTreeSet::new());
        assert_eq!(hides(&view, "/etc/x"), Some(PathBuf::from("/")));
    }
}
