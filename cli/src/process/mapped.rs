//! The files that a process has mapped: the module, libcrypto, files of counters.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lockstep_engine::Page;

/// A file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Path of the file; if the file was deleted, its former path.
    pub path: PathBuf,
    /// Whether that path leads to another file by now, or to none.
    pub is_deleted: bool,
    device: String,
    inode: u64,
}

impl Mapped {
    fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    pub fn is_module(&self) -> bool {
        self.name() == "lockstep.so"
    }

    /// Whether it is a libcrypto, going by its name.
    pub fn is_libcrypto(&self) -> bool {
        self.name().starts_with("libcrypto") && self.name().contains(".so")
    }

    /// Directory and name of the file, if it holds counters and was not deleted. Any user may have
    /// put another directory in the place of one that was deleted.
    pub fn counters(&self) -> Option<(&Path, &str)> {
        let directory = self.path.parent()?;
        (!self.is_deleted && Page::is_file_name(self.name())).then(|| (directory, self.name()))
    }

    /// Describes the file in messages.
    pub fn shown(&self) -> String {
        match self.is_deleted {
            true => format!("{} (replaced or removed since)", self.path.display()),
            false => self.path.display().to_string(),
        }
    }
}

/// The files of a list of mappings, as `/proc/PID/maps` has it, each of them once.
pub fn mapped(maps: &[u8]) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    for file in maps.split(|byte| *byte == b'\n').filter_map(line) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

/// Parses a line: addresses, permissions, offset, device, inode, path.
fn line(line: &[u8]) -> Option<Mapped> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
        rest = behind.trim_ascii_start();
        str::from_utf8(word).ok()
    };
    let (_, _, _, device) = (word()?, word()?, word()?, word()?);
    let inode = word()?.parse().ok().filter(|inode| *inode != 0)?;
    let (path, is_deleted) = match rest.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (rest, false),
    };
    Some(Mapped {
        path: PathBuf::from(OsStr::from_bytes(path)),
        is_deleted,
        device: device.to_owned(),
        inode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55e0-55e1 r--p 00000000 fe:00 131  /usr/sbin/haproxy
7f00-7f01 r--p 00000000 fe:00 200  /usr/lib/x86_64-linux-gnu/libcrypto.so.3
7f01-7f02 r-xp 00001000 fe:00 200  /usr/lib/x86_64-linux-gnu/libcrypto.so.3
7f02-7f03 r-xp 00000000 fe:00 201  /opt/own lib\xdf/libcrypto.so.3 (deleted)
7f03-7f04 r-xp 00000000 fe:00 300  /opt/lockstep/lockstep.so
7f04-7f05 rw-s 00000000 00:1a 44  /run/lockstep/811-1234-0.counters
7f05-7f06 rw-s 00000000 00:1a 45  /run/gone/811-1234-0.counters (deleted)
7f05-7f06 rw-p 00000000 00:00 0
7ffc-7ffd rw-p 00000000 00:00 0  [stack]
";

    #[test]
    fn each_file_is_found_once() {
        let files = mapped(MAPS);
        assert_eq!(files.len(), 6);
        let libraries: Vec<_> = files.iter().filter(|file| file.is_libcrypto()).collect();
        let [system, own] = &libraries[..] else {
            panic!("{libraries:?}");
        };
        assert_eq!(system.shown(), "/usr/lib/x86_64-linux-gnu/libcrypto.so.3");
        assert!(own.is_deleted);
        let path = OsStr::from_bytes(b"/opt/own lib\xdf/libcrypto.so.3");
        assert_eq!(own.path, Path::new(path));
        assert_eq!(files.iter().filter(|file| file.is_module()).count(), 1);
        let counters: Vec<_> = files.iter().filter_map(Mapped::counters).collect();
        assert_eq!(
            counters,
            [(Path::new("/run/lockstep"), "811-1234-0.counters")]
        );
    }
}
