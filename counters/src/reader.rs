//! Reads the counters of other processes, which are not trusted.
//!
//! Root reads the files of all users. So files are read, never mapped. Only files with the name,
//! the length and the header of this version are read. Their number is bounded for each user and
//! for all users together ([`Budget`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::process::geteuid;

use crate::directory::{self, places_of_all};
use crate::layout::{
    MAGIC, MOST, OWNERS, SLOT_WORDS, SLOTS, WORDS, header, is_name, line_of, owner,
};
use crate::process::{self, Realm, belongs_to, booted, is_alive, is_within, name_of};
use crate::snapshot::{self, Snapshot};

/// Maximum number of entries that are read of a directory, and of a default place of another user.
const MOST_ENTRIES: usize = 1 << 14;
const MOST_ENTRIES_OF_ONE: usize = 1 << 10;
/// Maximum that is read of root's files and of the caller's, together.
const MOST_OF_TRUSTED: Amount = Amount {
    files: 1 << 10,
    processes: 1 << 12,
    idle: 1 << 12,
};
/// Maximum that is read of all other users' files together, and of each user's.
const MOST_OF_OTHERS: Amount = Amount {
    files: 1 << 10,
    processes: 1 << 10,
    idle: 1 << 12,
};
const MOST_OF_ONE: Amount = Amount {
    files: 1 << 8,
    processes: 1 << 8,
    idle: 1 << 10,
};
/// Maximum number of processes of a system (`PID_MAX_LIMIT` of Linux). A file may claim any number
/// of processes without a slot.
const MOST_MISSED: u64 = 1 << 22;
/// Maximum number of entries and files that are read when a program loads the module and tidies up,
/// which must be quick.
const MOST_ENTRIES_SWEPT: usize = 1 << 10;
const MOST_FILES_SWEPT: usize = 64;
/// Maximum time that a process takes to make its file, and a forked child to take a slot.
const MAKING: Duration = Duration::from_secs(60);

/// The published counters of one process or engine.
#[derive(Clone, Debug)]
pub struct ProcessStats {
    /// The number of the process in its own PID namespace.
    pub pid: u32,
    /// The name of the file, which the processes that its program has forked share.
    pub file: String,
    /// The kernel's name of the process, in which `\xNN` stands for a byte that is not UTF-8;
    /// `None` if it has ended, or if the name is unknown.
    pub name: Option<String>,
    /// The user who owns the file. The process had this user when it loaded the module, and may
    /// have another one now.
    pub user: u32,
    /// Whether it still runs; false if that is unknown. The counters of a killed process stay in
    /// the directory.
    pub alive: bool,
    /// The inode of the PID namespace of the process, if that is not the reader's (zero if it is
    /// unknown). Whether such a process runs is unknown.
    pub elsewhere: Option<u64>,
    /// Its counters.
    pub snapshot: Snapshot,
}

/// Counters that processes publish.
#[derive(Debug, Default)]
pub struct Published {
    /// Processes that have counted something and whose files this user may read, by pid.
    pub processes: Vec<ProcessStats>,
    /// Processes that have counted nothing yet and are not known to have ended. Their number is
    /// bounded.
    pub idle: Vec<ProcessStats>,
    /// Directories of other users that this user may not read.
    pub unreadable: Vec<PathBuf>,
    /// Number of processes that found no free slot in their file, so that their counters are not
    /// shown.
    pub missed: u64,
    /// Number of files of other versions of this program, which were not read.
    pub other_versions: usize,
    /// Whether a bound ended the reading.
    pub cut_off: bool,
    /// The users whose counters are not all shown, for one of the three reasons above or because of
    /// the bound on idle processes.
    pub incomplete: BTreeSet<u32>,
}

/// Reads the counters that processes publish in `directory`.
pub fn read_published(directory: &Path) -> io::Result<Published> {
    read_within(Budget::of_this_user(), directory)
}

pub(super) fn read_within(budget: Budget, directory: &Path) -> io::Result<Published> {
    let mut reader = Reader::new(budget);
    reader.read(&directory::open(directory)?, MOST_ENTRIES)?;
    Ok(reader.finish())
}

/// Reads the counters of processes that have counted something in `directory`, by pid.
pub fn read_stats(directory: &Path) -> io::Result<Vec<ProcessStats>> {
    Ok(read_published(directory)?.processes)
}

/// Reads the counters that processes publish in the default places. Root reads all users' places.
pub fn read_default_stats() -> Published {
    let (places, complete) = places_of_all(MOST_ENTRIES);
    let mut reader = Reader::new(Budget::of_this_user());
    reader.found.cut_off = !complete;
    for place in places {
        let most = match reader.budget.trusts(place.user()) {
            true => MOST_ENTRIES,
            false => MOST_ENTRIES_OF_ONE,
        };
        let read = place
            .open()
            .and_then(|directory| reader.read(&directory, most));
        if read.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            reader.found.unreadable.push(place.path());
        }
    }
    reader.finish()
}

/// Numbers of files, of processes with counts, and of processes without.
#[derive(Clone, Copy)]
struct Amount {
    files: usize,
    processes: usize,
    idle: usize,
}

type Part = fn(&mut Amount) -> &mut usize;
const FILE: Part = |amount| &mut amount.files;
const PROCESS: Part = |amount| &mut amount.processes;
const IDLE: Part = |amount| &mut amount.idle;

/// The amounts that may still be read. Other users' files take nothing from the amounts of root and
/// of the caller, and the files of one user take little from another.
pub(super) struct Budget {
    trusted: [u32; 2],
    of_trusted: Amount,
    of_others: Amount,
    of_each: BTreeMap<u32, Amount>,
}

impl Budget {
    fn of_this_user() -> Budget {
        Budget::of([0, geteuid().as_raw()])
    }

    /// Makes a budget with two trusted users.
    pub(super) fn of(trusted: [u32; 2]) -> Budget {
        Budget {
            trusted,
            of_trusted: MOST_OF_TRUSTED,
            of_others: MOST_OF_OTHERS,
            of_each: BTreeMap::new(),
        }
    }

    fn trusts(&self, user: u32) -> bool {
        self.trusted.contains(&user)
    }

    /// Takes one file or process of this user; false if the budget is spent.
    fn take(&mut self, user: u32, part: Part) -> bool {
        if self.trusts(user) {
            return take_one([part(&mut self.of_trusted)]);
        }
        let of_one = self.of_each.entry(user).or_insert(MOST_OF_ONE);
        take_one([part(of_one), part(&mut self.of_others)])
    }
}

/// Takes one from all of these, unless one of them is spent.
fn take_one<const N: usize>(mut from: [&mut usize; N]) -> bool {
    let enough = from.iter().all(|rest| **rest > 0);
    if enough {
        from.iter_mut().for_each(|rest| **rest -= 1);
    }
    enough
}

/// The state of reading several directories.
struct Reader {
    here: Realm,
    budget: Budget,
    found: Published,
}

impl Reader {
    fn new(budget: Budget) -> Reader {
        Reader {
            here: Realm::here(),
            budget,
            found: Published::default(),
        }
    }

    fn finish(mut self) -> Published {
        self.found.processes.sort_by_key(|stats| stats.pid);
        self.found
    }

    /// Adds the files among the first `most` entries of a directory.
    fn read(&mut self, directory: &OwnedFd, most: usize) -> io::Result<()> {
        let mut files = Vec::new();
        let all = directory::entries(directory, most, |name| {
            let user = || directory::owner(directory, name);
            if let Some(user) = is_name(name).then(user).flatten() {
                files.push((user, name.to_owned()));
            }
            true
        })?;
        self.found.cut_off |= !all;
        if !all {
            let about = rustix::fs::fstat(directory)?;
            self.found.incomplete.insert(about.st_uid);
        }
        // Files of root and of the caller come first, then others by ascending user numbers.
        files.sort_by_key(|(user, _)| (!self.budget.trusts(*user), *user));
        for (user, name) in files {
            if !self.budget.take(user, FILE) {
                self.found.cut_off = true;
                self.found.incomplete.insert(user);
                continue;
            }
            match Contents::open(directory, &name, directory::open_unmounted) {
                Ok(contents) => self.add(&name, &contents),
                Err(Unread::OtherVersion { .. }) => {
                    self.found.other_versions += 1;
                    self.found.incomplete.insert(user);
                }
                Err(Unread::Foreign | Unread::Unfinished(_)) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &str, contents: &Contents) {
        let missed = contents.header[header::MISSED];
        self.found.missed = self.found.missed.saturating_add(missed).min(MOST_MISSED);
        if missed > 0 {
            self.found.incomplete.insert(contents.user);
        }
        let of_earlier_boot = contents.is_of_earlier_boot(self.here);
        for (slot, owner) in contents.owners() {
            let Some(snapshot) = contents.snapshot(slot, &owner) else {
                continue;
            };
            let is_idle = !snapshot.has_counted() && snapshot.mistakes.is_empty();
            if is_idle && !self.budget.take(contents.user, IDLE) {
                self.found.incomplete.insert(contents.user);
                continue;
            }
            if !is_idle && !self.budget.take(contents.user, PROCESS) {
                self.found.cut_off = true;
                self.found.incomplete.insert(contents.user);
                return;
            }
            let judged = of_earlier_boot || owner.is_of(self.here, contents.boot());
            let alive = judged && !of_earlier_boot && is_alive(owner.pid, owner.started);
            if alive && !belongs_to(owner.pid, contents.user) {
                continue;
            }
            if is_idle && judged && !alive {
                continue;
            }
            let found = match is_idle {
                true => &mut self.found.idle,
                false => &mut self.found.processes,
            };
            found.push(ProcessStats {
                pid: owner.pid,
                file: file.to_owned(),
                name: alive.then(|| name_of(owner.pid)).flatten(),
                user: contents.user,
                alive,
                elsewhere: (!judged).then_some(owner.namespace),
                snapshot,
            });
        }
    }
}

/// Removes the files of this realm, and of earlier starts of this system, whose processes have all
/// ended; with `kept_too` also files that are kept for readers. A file of another version is of an
/// earlier start if its last change is older than this start. A file whose process has forked stays
/// for a minute, as the child may not have taken its slot yet. The process `ended`, a number and a
/// time, counts as ended although another program runs under its number. If the process has started
/// that program by `exec`, returns the mistakes that the file of the process shows.
pub(super) fn sweep(
    directory: &OwnedFd,
    here: Realm,
    kept_too: bool,
    ended: Option<(u32, u64)>,
) -> io::Result<Option<Vec<u64>>> {
    let is_before =
        |owner: &Owner| ended.is_some_and(|(pid, at)| owner.pid == pid && owner.started < at);
    let runs = |owner: &Owner| !process::has_ended(owner.pid, owner.started);
    let (mut files, mut unused, mut said) = (0, Vec::new(), None);
    directory::entries(directory, MOST_ENTRIES_SWEPT, |name| {
        if is_name(name) {
            files += 1;
            let openat = |directory: &OwnedFd, name: &str, flags| {
                rustix::fs::openat(directory, name, flags, Mode::empty())
            };
            let goes = match Contents::open(directory, name, openat) {
                Ok(contents) => {
                    let is_own = |owner: &Owner| owner.is_of(here, here.boot);
                    let mut own = contents.owners().filter(|(_, owner)| is_own(owner));
                    if own.any(|(_, owner)| is_before(&owner) && runs(&owner)) {
                        said = Some(contents.mistakes().to_vec());
                    }
                    let ended = |(_, owner): (usize, Owner)| {
                        is_own(&owner) && (is_before(&owner) || !runs(&owner))
                    };
                    let all_ended = || {
                        contents.realm() == here
                            && !contents.awaits_child()
                            && contents.owners().all(ended)
                    };
                    (kept_too || contents.header[header::KEEP] == 0)
                        && (contents.is_of_earlier_boot(here) || all_ended())
                }
                // Its maker was killed, unless the file is new.
                Err(Unread::Unfinished(changed)) => is_older(changed, Some(SystemTime::now())),
                // The place of the system's start in the header of that version is unknown.
                Err(Unread::OtherVersion { changed, keep }) => {
                    (kept_too || !keep) && is_older(changed, booted())
                }
                Err(Unread::Foreign) => false,
            };
            if goes {
                unused.push(name.to_owned());
            }
        }
        files < MOST_FILES_SWEPT
    })?;
    for name in unused {
        let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
    }
    Ok(said)
}

/// Returns whether a file was last changed well before this time.
fn is_older(changed: Option<SystemTime>, time: Option<SystemTime>) -> bool {
    let age = || time?.duration_since(changed?).ok();
    age().is_some_and(|age| age > MAKING)
}

/// The header and the owners of an opened file of counters.
struct Contents {
    file: OwnedFd,
    user: u32,
    changed: Option<SystemTime>,
    header: Vec<u64>,
    owners: Vec<u64>,
}

/// Reason why a file was not read.
enum Unread {
    /// It is not a file of counters, or is gone.
    Foreign,
    /// It has no header yet. The time is that of its last change.
    Unfinished(Option<SystemTime>),
    /// It has the header of another version. `changed` is the time of its last change, `keep`
    /// whether it stays when its processes have ended.
    OtherVersion {
        changed: Option<SystemTime>,
        keep: bool,
    },
}

/// The owner of a slot, by the words of the file.
#[derive(PartialEq, Eq)]
struct Owner {
    pid: u32,
    started: u64,
    namespace: u64,
}

impl Owner {
    /// Reads an owner; `None` for a free slot.
    fn of(words: &[u64]) -> Option<Owner> {
        let pid = u32::try_from(words[owner::PID])
            .ok()
            .filter(|pid| *pid != 0)?;
        (words[owner::VALID] == 1).then_some(Owner {
            pid,
            started: words[owner::STARTED],
            namespace: words[owner::NAMESPACE],
        })
    }

    /// Returns whether the owner, whose system started with `boot`, and this process have the same
    /// realm.
    fn is_of(&self, here: Realm, boot: [u64; 2]) -> bool {
        let namespace = self.namespace;
        here.is_known() && here == Realm { boot, namespace }
    }
}

impl Contents {
    /// Opens a file by `open`, and reads its header.
    fn open(
        directory: &OwnedFd,
        name: &str,
        open: impl FnOnce(&OwnedFd, &str, OFlags) -> rustix::io::Result<OwnedFd>,
    ) -> Result<Contents, Unread> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(directory, name, flags).map_err(|_| Unread::Foreign)?;
        let about = rustix::fs::fstat(&file).map_err(|_| Unread::Foreign)?;
        if !FileType::from_raw_mode(about.st_mode).is_file() {
            return Err(Unread::Foreign);
        }
        let changed = changed(&about);
        if about.st_size < (SLOTS * 8) as i64 {
            return Err(Unread::Unfinished(changed));
        }
        let mut header = read(&file, 0, SLOTS).ok_or(Unread::Foreign)?;
        match header[header::MAGIC] {
            0 => return Err(Unread::Unfinished(changed)),
            MAGIC => {}
            // The last byte is the version.
            other if other << 8 == MAGIC << 8 => {
                // Its header is unknown.
                let keep = true;
                return Err(Unread::OtherVersion { changed, keep });
            }
            _ => return Err(Unread::Foreign),
        }
        let known = header[header::LAYOUT] == snapshot::layout()
            && header[header::WORDS] == WORDS as u64
            && about.st_size == (WORDS * 8) as i64;
        if !known {
            let keep = header[header::KEEP] != 0;
            return Err(Unread::OtherVersion { changed, keep });
        }
        Ok(Contents {
            file,
            user: about.st_uid,
            changed,
            owners: header.split_off(OWNERS),
            header,
        })
    }

    fn boot(&self) -> [u64; 2] {
        [self.header[header::BOOT], self.header[header::BOOT + 1]]
    }

    fn realm(&self) -> Realm {
        Realm {
            boot: self.boot(),
            namespace: self.header[header::NAMESPACE],
        }
    }

    /// Returns whether the file is of an earlier start of this system. Containers and virtual
    /// machines may share the directory and have other starts, so the time decides as well.
    fn is_of_earlier_boot(&self, here: Realm) -> bool {
        let (boot, unknown) = (self.boot(), [0; 2]);
        let earlier = || Some(self.changed? < booted()?);
        boot != here.boot && ![boot, here.boot].contains(&unknown) && earlier() == Some(true)
    }

    /// Returns whether a forked child may be about to take a slot. A child that was killed before
    /// takes none.
    fn awaits_child(&self) -> bool {
        self.header[header::FORKING] != 0 && is_within(MAKING, self.header[header::FORKED])
    }

    /// Returns the taken slots with their owners.
    fn owners(&self) -> impl Iterator<Item = (usize, Owner)> {
        let owners = self.owners.chunks_exact(owner::WORDS).map(Owner::of);
        owners
            .take(MOST)
            .enumerate()
            .filter_map(|(slot, owner)| Some((slot, owner?)))
    }

    /// Reads the counters in a slot, if they belong to this owner.
    fn snapshot(&self, slot: usize, owner: &Owner) -> Option<Snapshot> {
        let words = read(&self.file, SLOTS + slot * SLOT_WORDS, SLOT_WORDS)?;
        let now = read(&self.file, OWNERS + slot * owner::WORDS, owner::WORDS)?;
        if Owner::of(&now).as_ref() != Some(owner) {
            return None;
        }
        let mut snapshot = Snapshot::of_slot(words.first_chunk()?);
        snapshot.version = line_of(&self.header[header::VERSION..][..header::VERSION_WORDS]);
        snapshot.pid = owner.pid.into();
        snapshot.started = owner.started;
        snapshot.mistakes = line_of(self.mistakes());
        Some(snapshot)
    }

    fn mistakes(&self) -> &[u64] {
        &self.header[header::MISTAKES..][..header::MISTAKES_WORDS]
    }
}

fn changed(about: &Stat) -> Option<SystemTime> {
    let seconds = u64::try_from(about.st_mtime).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Reads words of a file; `None` if it is shorter.
fn read(file: &OwnedFd, at: usize, count: usize) -> Option<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    let mut read = 0;
    while read < bytes.len() {
        match rustix::io::pread(file, &mut bytes[read..], (at * 8 + read) as u64) {
            Ok(0) => return None,
            Ok(length) => read += length,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    Some(bytes.chunks_exact(8).map(word).collect())
}
