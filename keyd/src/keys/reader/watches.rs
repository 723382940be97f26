//! Directories that inotify watches.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::keys::files::Names;

/// Events in a watched directory.
pub const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Directories that inotify watches.
pub struct Watches {
    /// The descriptor of inotify, or why there is none.
    pub inotify: Result<Arc<OwnedFd>, Errno>,
    /// The relevant names and their sections, by the number of the watch.
    pub names: HashMap<i32, HashSet<(usize, Names)>>,
}

impl Watches {
    /// Removes a section from all watches.
    pub fn forget(&mut self, section: usize) {
        for names in self.names.values_mut() {
            names.retain(|(own, _)| *own != section);
        }
    }

    /// Removes the watches without a section.
    pub fn tidy(&mut self) {
        let Ok(inotify) = &self.inotify else { return };
        self.names.retain(|number, names| {
            if names.is_empty() {
                let _ = inotify::remove_watch(inotify, *number);
            }
            !names.is_empty()
        });
    }

    /// Returns the sections with events in their directories. If events were lost, returns all
    /// sections; `all` is their number.
    pub fn changed(&self, all: usize) -> Vec<usize> {
        let mut changed = Vec::new();
        let Ok(inotify) = &self.inotify else {
            return changed;
        };
        let mut room = [MaybeUninit::uninit(); 8192];
        let mut events = inotify::Reader::new(inotify, &mut room);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                return (0..all).collect();
            }
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let names = self.names.get(&event.wd()).into_iter().flatten();
            let concerned = names.filter(|(_, names)| name.is_none_or(|name| names.have(name)));
            changed.extend(concerned.map(|(section, _)| *section));
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}
