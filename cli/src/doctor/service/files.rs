//! Files as a process sees them: under its own root directory, in its own mount namespace.

use std::path::{Path, PathBuf};

use super::process::Process;

/// Where the files of a process are, for the reader.
pub struct View {
    root: PathBuf,
    /// What is mounted where in its namespace, if that is not the reader's.
    mounts: Option<Vec<PathBuf>>,
}

impl View {
    /// What this process sees. A process that has changed its root directory since is taken to have
    /// seen what its namespace holds.
    pub fn of(process: &Process) -> View {
        let is_ours = process.shares("mnt");
        View {
            root: match is_ours {
                true => PathBuf::from("/"),
                false => process.about("root"),
            },
            mounts: (!is_ours).then(|| mount_points(&process.mounts())),
        }
    }

    /// What a service that does not run would see.
    pub fn under(root: &Path) -> View {
        View {
            root: root.to_owned(),
            mounts: None,
        }
    }

    /// Where the reader finds a file that the process knows by this path.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The directory on the way to this file in whose place the process has another one, if the
    /// reader sees the file and the process does not.
    pub fn hides(&self, path: &Path) -> Option<PathBuf> {
        let mounts = self.mounts.as_ref()?;
        if !path.exists() || self.at(path).exists() {
            return None;
        }
        let above = |mount: &&PathBuf| path.starts_with(mount);
        let deepest = mounts
            .iter()
            .filter(above)
            .max_by_key(|mount| mount.as_os_str().len());
        Some(deepest.cloned().unwrap_or_else(|| PathBuf::from("/")))
    }
}

/// The fifth word of each line of `/proc/PID/mountinfo`, in which odd characters stand as octal
/// numbers.
fn mount_points(table: &str) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_hidden_by_the_deepest_mount_above_it() {
        let place = lockstep_testkit::TempDir::new("view");
        let file = place.join("openssl.cnf");
        fs::write(&file, "").unwrap();
        let table = "1 2 0:1 / / rw - ext4 x rw\n3 1 0:2 / /tmp rw - tmpfs x rw\n\
                     4 1 0:3 / /a\\040b rw - tmpfs x rw\n";
        let mut view = View {
            root: place.join("root"),
            mounts: Some(mount_points(table)),
        };
        assert_eq!(view.mounts.as_ref().unwrap()[2], Path::new("/a b"));
        let by = view.hides(&file);
        let expected = if file.starts_with("/tmp") {
            "/tmp"
        } else {
            "/"
        };
        assert_eq!(by.as_deref(), Some(Path::new(expected)));
        // Nobody sees it, or both do.
        assert_eq!(view.hides(Path::new("/nowhere")), None);
        view.root = PathBuf::from("/");
        assert_eq!(view.hides(&file), None);
    }
}
