//! Ways to files, for a caller that goes name by name and looks at each step before the next one.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, readlinkat, statx};
use rustix::io::{Errno, Result};

/// Largest number of links on a way, the same as the kernel's.
pub const MOST_LINKS: usize = 40;

/// Names that lead to the end of a path.
pub struct Names {
    /// Remaining names, the last one first.
    pub left: Vec<OsString>,
    /// Number of links among the names before.
    links: usize,
}

impl Names {
    /// Returns the names of a path.
    pub fn of(path: &Path) -> Names {
        let names = path.components().rev().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        let left = names.collect();
        Names { left, links: 0 }
    }

    /// Puts the target of a link before the names that are left. Returns whether the target starts
    /// at the root directory.
    pub fn follow(&mut self, link: &OwnedFd) -> Result<bool> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(link, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        self.left.extend(Names::of(target).left);
        Ok(target.is_absolute())
    }
}

/// Returns the number of the mount whose root this is, unless its file system is on a disk. It asks
/// nothing of a program that serves the file system (FUSE).
pub fn mount_at(found: &OwnedFd) -> Result<Option<u64>> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let about = statx(found, c"", flags, StatxFlags::empty())?;
    // File systems on disks have other numbers.
    let is_root = about.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok((is_root && about.stx_dev_major == 0).then_some(about.stx_mnt_id))
}
