//! Files as a process sees them: under its own root directory, in its own mount namespace.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use crate::process::Process;

/// A process's view of its files, for the reader: this program.
pub struct View {
    root: PathBuf,
    /// Mounts in its namespace.
    mounts: Vec<Mount>,
    /// Mounts in the reader's namespace, if it is another one.
    others: Option<Vec<Mount>>,
}

/// A line of `/proc/PID/mountinfo`.
struct Mount {
    at: PathBuf,
    device: String,
    /// The directory of the device that is mounted.
    directory: PathBuf,
}

impl View {
    /// Returns the view of a process. A process in the reader's namespace that has changed its root
    /// directory is assumed to have opened its files before the change.
    pub fn of(process: &Process) -> View {
        let is_ours = process.shares("mnt");
        let own = || mounts(&fs::read("/proc/self/mountinfo").unwrap_or_default());
        View {
            root: match is_ours {
                true => PathBuf::from("/"),
                false => process.about("root"),
            },
            // The table of a process in a changed root directory has few mounts.
            mounts: match is_ours {
                true => own(),
                false => mounts(&process.mounts()),
            },
            others: (!is_ours).then(own),
        }
    }

    /// Returns the view of a service that does not run.
    pub fn under(root: &Path) -> View {
        View {
            root: root.to_owned(),
            mounts: Vec::new(),
            others: None,
        }
    }

    /// Returns the path by which the reader finds a file that has this path for the process.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the mount point above this file, if the process has another directory there than the
    /// reader. Only the mount tables are read: a user may have mounted files that never answer.
    pub fn hides(&self, path: &Path) -> Option<&Path> {
        let others = self.others.as_ref()?;
        let mount = above(&self.mounts, path)?;
        let is_same = above(others, path).is_some_and(|other| other.file(path) == mount.file(path));
        (!is_same).then_some(&mount.at)
    }
}

impl Mount {
    /// The device of a path below the mount point, and the path on that device.
    fn file(&self, path: &Path) -> (&str, PathBuf) {
        let rest = path.strip_prefix(&self.at).unwrap_or(path);
        (&self.device, self.directory.join(rest))
    }
}

fn above<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.at));
    // The last mount at a place covers the earlier ones, and `max_by_key` returns the last.
    above.max_by_key(|mount| mount.at.as_os_str().len())
}

/// Parses the lines of a table of mounts.
fn mounts(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        Some(Mount {
            at: unescaped(words.get(4)?),
            device: String::from_utf8_lossy(words.get(2)?).into_owned(),
            directory: unescaped(words.get(3)?),
        })
    });
    lines.collect()
}

/// A path of a table, where odd characters stand as octal numbers.
fn unescaped(path: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), path);
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = byte.map_or(behind, |_| &behind[3..]);
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "1 2 0:1 / / rw - ext4 x rw\n5 1 0:9 / /run rw - tmpfs x rw\n";

    #[test]
    fn a_file_is_hidden_by_the_deepest_mount_above_it() {
        let table = "9 2 0:1 / / rw - ext4 x rw\n5 1 0:9 / /run rw - tmpfs x rw\n\
                     3 1 0:2 /private /tmp rw,shared:1 - tmpfs x rw\n\
                     4 1 0:3 / /a\\040\\011\\134b rw - fuse.x x rw\n\
                     6 1 0:1 /etc /etc ro - ext4 x rw\n";
        let mut view = View {
            root: PathBuf::from("/"),
            mounts: mounts(table.as_bytes()),
            others: Some(mounts(OWN.as_bytes())),
        };
        let hides = |view: &View, path: &str| view.hides(Path::new(path)).map(Path::to_owned);
        for (path, by) in [
            ("/tmp/x/openssl.cnf", Some("/tmp")),
            ("/a \t\\b/c", Some("/a \t\\b")),
            ("/etc/x", None),
            ("/run/x", None),
            ("/tmpx", None),
        ] {
            assert_eq!(hides(&view, path).as_deref(), by.map(Path::new), "{path}");
        }
        view.others = None;
        assert_eq!(hides(&view, "/tmp/x"), None);
        // A container, with another root.
        view.others = Some(Vec::new());
        assert_eq!(hides(&view, "/usr/x"), Some(PathBuf::from("/")));
    }
}
