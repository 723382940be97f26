//! Publishing counters: a file of one page for each process, in a directory that only its user reads.
//!
//! Where the setting `stats_dir` names no directory, a process of root uses `/run/lockstep` and any
//! other `/dev/shm/lockstep-UID`; `/tmp/lockstep-UID` serves where that fails. Each is made on demand,
//! mode 0700, and used only if it belongs to the user and nobody else may enter: a directory that somebody
//! else put there is passed over.
//!
//! Servers start as root, load the module, and then fork, drop their privileges and change their root
//! directory; the file is made after that, by the first count. So [`hold`] keeps a descriptor of
//! `/dev/shm` (or of the configured directory) from before. The file of a process that ended without
//! removing it is told by the start of the process whose number it bears, and removed when a program
//! of that user next loads the module.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

use crate::metrics::{DOCUMENT_BYTES, Metrics, Snapshot};

/// Where a process publishes its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatsDir {
    /// Nowhere.
    #[default]
    Off,
    /// In the default place of its user; see the [module](self).
    Auto,
    /// In this directory, which exists.
    At(PathBuf),
}

impl StatsDir {
    /// Keeps the way to the directory open for a process of root, which may yet change its root
    /// directory; and removes what ended processes of this user have left in the default places.
    pub fn prepare(&self, keep: bool) {
        if geteuid().is_root() {
            match self {
                StatsDir::Off => {}
                StatsDir::Auto => hold(Path::new(SHARED_MEMORY)),
                StatsDir::At(directory) => hold(directory),
            }
        }
        // Without `/proc` all would look ended.
        if *self == StatsDir::Auto && !keep && start_of(process::id()).is_some() {
            for place in places(geteuid().as_raw()) {
                let _ = place.open().and_then(|directory| sweep(&directory));
            }
        }
    }

    /// Calls `make` with the directories to try, in order, until it succeeds.
    fn find<T>(&self, mut make: impl FnMut(OwnedFd) -> io::Result<T>) -> io::Result<T> {
        match self {
            StatsDir::Off => Err(io::ErrorKind::Unsupported.into()),
            StatsDir::At(path) => make(directory(path)?),
            StatsDir::Auto => {
                let mut last = Err(io::ErrorKind::NotFound.into());
                for place in places(geteuid().as_raw()) {
                    last = place.make().and_then(&mut make);
                    if last.is_ok() {
                        break;
                    }
                }
                last
            }
        }
    }
}

const SHARED_MEMORY: &str = "/dev/shm";

/// A directory that belongs to one user, in one that belongs to root.
struct Place {
    parent: &'static str,
    name: String,
    user: u32,
}

/// Where a user's processes publish by default, the best place first.
fn places(user: u32) -> Vec<Place> {
    let place = |parent, name| Place { parent, name, user };
    let own = format!("lockstep-{user}");
    let of_root = (user == 0).then(|| place("/run", "lockstep".to_owned()));
    let rest = [SHARED_MEMORY, "/tmp"].map(|parent| place(parent, own.clone()));
    of_root.into_iter().chain(rest).collect()
}

/// The default places of all users that are there, this process's own first; those of others can be
/// read by root only.
fn places_of_all() -> Vec<Place> {
    let own = geteuid().as_raw();
    let mut all = places(own);
    if own != 0 {
        all.extend(places(0));
    }
    for parent in [SHARED_MEMORY, "/tmp"] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let user = name
                .to_str()
                .and_then(|name| name.strip_prefix("lockstep-"));
            match user.and_then(|user| user.parse().ok()) {
                Some(user) if user != own && user != 0 => all.push(Place {
                    parent,
                    name: format!("lockstep-{user}"),
                    user,
                }),
                _ => {}
            }
        }
    }
    all
}

impl Place {
    /// The directory, made if it is not there.
    fn make(&self) -> io::Result<OwnedFd> {
        let parent = directory(Path::new(self.parent))?;
        match rustix::fs::mkdirat(&parent, &self.name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => self.open_in(&parent),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory, if it is there.
    fn open(&self) -> io::Result<OwnedFd> {
        self.open_in(&directory(Path::new(self.parent))?)
    }

    /// The directory, if it is one that only its user can have made and can enter.
    fn open_in(&self, parent: &OwnedFd) -> io::Result<OwnedFd> {
        let about = rustix::fs::fstat(parent)?;
        let sticky = about.st_mode & 0o1000 != 0;
        if about.st_uid != 0 || (about.st_mode & 0o022 != 0 && !sticky) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(parent, &self.name, flags, Mode::empty())?;
        let about = rustix::fs::fstat(&found)?;
        if about.st_uid != self.user || about.st_mode & 0o077 != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(found)
    }
}

/// A directory that was opened while its path still led to it.
struct Held {
    path: PathBuf,
    descriptor: OwnedFd,
    identity: (u64, u64),
}

static HELD: OnceLock<Option<Held>> = OnceLock::new();

fn hold(path: &Path) {
    HELD.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        Some(Held {
            path: path.to_owned(),
            identity: identity(&rustix::fs::fstat(&descriptor).ok()?),
            descriptor,
        })
    });
}

/// Opens a directory: by what was held, unless the program has closed that behind our back.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    if let Some(Some(held)) = HELD.get()
        && held.path == path
        && rustix::fs::fstat(&held.descriptor).is_ok_and(|now| identity(&now) == held.identity)
    {
        return held.descriptor.try_clone();
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// What tells a file from all others.
fn identity(about: &Stat) -> (u64, u64) {
    (about.st_dev, about.st_ino)
}

/// Writes the counters to a file of their own, over and over at the same place and length.
pub(crate) struct Publisher {
    file: File,
    identity: (u64, u64),
    directory: OwnedFd,
    name: String,
    keep: bool,
    pub(crate) started: u64,
    /// Set by those who have counted something, cleared by the one who writes it.
    stale: AtomicBool,
    /// Held by the one who writes. Only ever tried.
    writing: Mutex<Writing>,
}

/// A write takes one to two microseconds, up to ten where the directory is on a disk, against thirty for the
/// shortest batch. So many are free, which keeps the file exact for all but sustained load; from then on there is
/// one in so many milliseconds, at most a fifth of a percent of one CPU.
const FREE_WRITES: u32 = 1024;
const MILLISECONDS_A_WRITE: u128 = 5;

struct Writing {
    sequence: u64,
    /// Free writes used up, and when we last looked how many we regained.
    used: u32,
    since: Instant,
}

impl Writing {
    fn spend(&mut self) -> bool {
        let regained = self.since.elapsed().as_millis() / MILLISECONDS_A_WRITE;
        if regained > 0 {
            self.used = self
                .used
                .saturating_sub(u32::try_from(regained).unwrap_or(u32::MAX));
            self.since = Instant::now();
        }
        let may = self.used < FREE_WRITES;
        self.used += u32::from(may);
        may
    }
}

impl Publisher {
    /// A new file, readable by this user only: `PID.json`, or `PID.N.json` for further engines of
    /// one process.
    pub(crate) fn create(place: &StatsDir, keep: bool) -> io::Result<Publisher> {
        place.find(|directory| Publisher::create_in(directory, keep))
    }

    fn create_in(directory: OwnedFd, keep: bool) -> io::Result<Publisher> {
        let pid = process::id();
        let born = start_of(pid);
        let started = born.unwrap_or_else(ticks_since_boot);
        for number in 0..64 {
            let name = match number {
                0 => format!("{pid}.json"),
                _ => format!("{pid}.{number}.json"),
            };
            // Left behind by an earlier process that had our pid.
            let old = read_file(&directory, OsStr::new(&name));
            if old.is_some_and(|(_, old)| born.is_some_and(|born| old.started < born)) {
                let _ = rustix::fs::unlinkat(&directory, &name, AtFlags::empty());
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    let writing = Writing {
                        sequence: 0,
                        used: 0,
                        since: Instant::now(),
                    };
                    return Ok(Publisher {
                        identity: identity(&rustix::fs::fstat(&file)?),
                        file: File::from(file),
                        directory,
                        name,
                        keep,
                        started,
                        stale: AtomicBool::new(false),
                        writing: Mutex::new(writing),
                    });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Writes, or leaves it to the thread that is writing now: it looks again when it is done. Under
    /// sustained load a later call writes what this one leaves out, unless it is `urgent`.
    pub(crate) fn publish(&self, metrics: &Metrics, urgent: bool) {
        self.stale.store(true, Ordering::SeqCst);
        while self.stale.load(Ordering::SeqCst) {
            let Ok(mut writing) = self.writing.try_lock() else {
                return;
            };
            if !urgent && !writing.spend() {
                return;
            }
            if self.stale.swap(false, Ordering::SeqCst) {
                writing.sequence += 1;
                let document = metrics
                    .snapshot()
                    .document(writing.sequence, DOCUMENT_BYTES);
                if self.write(document.as_bytes()).is_err() {
                    metrics.write_failed();
                }
            }
        }
    }

    /// Writes to our file and no other: a program may have closed all descriptors, and ours may now
    /// be that of something precious.
    fn write(&self, document: &[u8]) -> io::Result<()> {
        if identity(&rustix::fs::fstat(&self.file)?) != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.file.write_all_at(document, 0)
    }

    /// Removes the file, or leaves it with the last counts if it is to be kept.
    pub(crate) fn finish(&self, metrics: &Metrics) {
        if self.keep {
            return self.publish(metrics, true);
        }
        // A process that has dropped its privileges may not remove what it made before. Empty, the file
        // counts as stale; and somebody else may have cleaned up already.
        let ours = rustix::fs::fstat(&self.file).is_ok_and(|now| identity(&now) == self.identity);
        if ours && rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty()).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

/// The published counters of one engine.
#[derive(Clone, Debug)]
pub struct ProcessStats {
    /// The process.
    pub pid: u32,
    /// What the kernel calls it; `None` if it has ended.
    pub name: Option<String>,
    /// The user whose file it is.
    pub user: u32,
    /// Whether it still runs; what a killed process left behind stays in the directory.
    pub alive: bool,
    /// Its counters.
    pub snapshot: Snapshot,
}

/// Reads what engines publish in `directory`, by pid. Files of other kinds are passed over.
pub fn read_stats(directory: &Path) -> io::Result<Vec<ProcessStats>> {
    let mut all = read_directory(&self::directory(directory)?)?;
    all.sort_by_key(|stats| stats.pid);
    Ok(all)
}

/// What processes publish in the default places.
#[derive(Debug, Default)]
pub struct DefaultStats {
    /// Those whose counters this user may read, by pid.
    pub processes: Vec<ProcessStats>,
    /// Directories of other users, which this one may not read.
    pub unreadable: Vec<PathBuf>,
}

/// Reads what processes publish in the default places: root sees those of all users.
pub fn read_default_stats() -> DefaultStats {
    let mut found = DefaultStats::default();
    for place in places_of_all() {
        match place
            .open()
            .and_then(|directory| read_directory(&directory))
        {
            Ok(stats) => found.processes.extend(stats),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found
                    .unreadable
                    .push(Path::new(place.parent).join(place.name));
            }
            Err(_) => {}
        }
    }
    found.processes.sort_by_key(|stats| stats.pid);
    found
}

fn read_directory(directory: &OwnedFd) -> io::Result<Vec<ProcessStats>> {
    let mut all = Vec::new();
    for (name, pid) in files(directory)? {
        let Some((user, snapshot)) = read_file(directory, OsStr::new(&name)) else {
            continue;
        };
        if snapshot.pid != u64::from(pid) {
            continue;
        }
        let alive = is_alive(pid, &snapshot);
        if alive && !belongs_to(pid, user) {
            continue;
        }
        all.push(ProcessStats {
            pid,
            name: alive.then(|| name_of(pid)).flatten(),
            user,
            alive,
            snapshot,
        });
    }
    Ok(all)
}

/// The files of counters in a directory, with the processes that they are named for.
fn files(directory: &OwnedFd) -> io::Result<Vec<(String, u32)>> {
    let mut all = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::openat(directory, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let pid = name.strip_suffix(".json");
        if let Some(pid) = pid.and_then(|pid| pid.split('.').next()?.parse().ok()) {
            all.push((name.to_owned(), pid));
        }
    }
    Ok(all)
}

/// Removes the files of processes that have ended.
fn sweep(directory: &OwnedFd) -> io::Result<()> {
    for (name, pid) in files(directory)? {
        let ended = match read_file(directory, OsStr::new(&name)) {
            Some((_, snapshot)) => !is_alive(pid, &snapshot),
            // Emptied at its end, or not yet written.
            None => start_of(pid).is_none(),
        };
        if ended {
            let _ = rustix::fs::unlinkat(directory, &name, AtFlags::empty());
        }
    }
    Ok(())
}

/// One statistics file and its owner; tries again when it met a write.
fn read_file(directory: &OwnedFd, name: &OsStr) -> Option<(u32, Snapshot)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    (0..8).find_map(|_| {
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
        let about = rustix::fs::fstat(&file).ok()?;
        if !FileType::from_raw_mode(about.st_mode).is_file() {
            return None;
        }
        let mut document = String::new();
        let most = 2 * DOCUMENT_BYTES as u64;
        File::from(file)
            .take(most)
            .read_to_string(&mut document)
            .ok()?;
        Some((about.st_uid, Snapshot::from_json(&document)?))
    })
}

/// Whether the process that wrote these counters still runs. It started no later than it says (where it
/// could not see `/proc`, it tells the time of its first count instead); another one with its number
/// has started later.
fn is_alive(pid: u32, snapshot: &Snapshot) -> bool {
    start_of(pid).is_some_and(|start| start <= snapshot.started)
}

/// Whether a file of this user can be that of this process: users do not get to tell the counters of
/// each other's processes.
fn belongs_to(pid: u32, user: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let mut users = users.unwrap_or_default().split_whitespace();
    user == 0 || users.any(|its| its.parse() == Ok(user))
}

/// When a process started, in clock ticks since boot; `None` if there is no such process, or it has ended and only
/// waits for its parent.
fn start_of(pid: u32) -> Option<u64> {
    start_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The same of what `/proc/PID/stat` holds.
fn start_in(stat: &str) -> Option<u64> {
    // The second field, in parentheses, may hold anything; the third is the state of the first thread, the 20th the number of
    // threads, the 22nd the start.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    (!ended || threads > 1).then_some(start)
}

fn name_of(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// The time, as `/proc` tells it of the start of processes.
fn ticks_since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ticks = rustix::param::clock_ticks_per_second();
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let rest = u64::try_from(now.tv_nsec).unwrap_or(0) * ticks / 1_000_000_000;
    // Rounded up: the file is younger than the process.
    seconds * ticks + rest + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::request::Fallback;

    /// A directory of this test's own, removed at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("lockstep-{name}-{}", process::id()));
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }

        fn metrics(&self, keep: bool) -> Metrics {
            Metrics::new("portable", 2, StatsDir::At(self.0.clone()), keep)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn busy(metrics: &Metrics) {
        metrics.batch(1, 7, 7, 4);
        metrics.batch(4, 1, 1, 4);
        metrics.fallback(Fallback::CheckFailed);
        metrics.fallback(Fallback::MultiPrime);
        metrics.yielded();
        metrics.submitted();
    }

    #[test]
    fn the_file_is_private_current_and_removed() {
        let directory = Directory::new("file");
        let metrics = directory.metrics(false);
        busy(&metrics);
        metrics.publish();
        let path = directory.0.join(format!("{}.json", process::id()));
        let about = fs::metadata(&path).unwrap();
        assert_eq!(
            (about.permissions().mode() & 0o777, about.len()),
            (0o600, 4096)
        );

        let second = directory.metrics(false);
        assert_eq!(read_stats(&directory.0).unwrap().len(), 1, "unused as yet");
        second.publish();
        let stats = read_stats(&directory.0).unwrap();
        assert_eq!(stats.len(), 2, "two engines of one process");
        assert!(
            stats
                .iter()
                .all(|stats| stats.alive && stats.pid == process::id())
        );
        let operations: u64 = stats.iter().map(|stats| stats.snapshot.operations()).sum();
        assert_eq!(operations, 8);

        metrics.unpublish();
        second.unpublish();
        assert_eq!(read_stats(&directory.0).unwrap().len(), 0);
        assert!(!path.exists());
        let kept = directory.metrics(true);
        kept.publish();
        kept.unpublish();
        assert!(path.exists(), "kept on request");
    }

    #[test]
    fn files_of_dead_processes_are_recognised_and_replaced() {
        let directory = Directory::new("stale");
        let leave = |pid: u32, started: u64| {
            let old = Snapshot {
                pid: pid.into(),
                started,
                batches: 5,
                ..Snapshot::default()
            };
            let path = directory.0.join(format!("{pid}.json"));
            fs::write(path, old.document(3, DOCUMENT_BYTES)).unwrap();
        };
        leave(u32::MAX, 1);
        leave(process::id(), 1);
        fs::write(directory.0.join("notes.txt"), "").unwrap();
        fs::write(directory.0.join("12.json"), "{}").unwrap();
        let stats = read_stats(&directory.0).unwrap();
        assert_eq!(stats.len(), 2);
        assert!(stats.iter().all(|stats| !stats.alive));

        let metrics = directory.metrics(false);
        metrics.publish();
        let stats = read_stats(&directory.0).unwrap();
        let ours = stats
            .iter()
            .find(|stats| stats.pid == process::id())
            .unwrap();
        assert!(ours.alive && ours.snapshot.batches == 0);
        metrics.unpublish();
    }

    #[test]
    fn a_missing_directory_is_counted_and_no_more() {
        let metrics = Metrics::new("none", 1, StatsDir::At("/nonexistent".into()), false);
        metrics.publish();
        metrics.unpublish();
        assert_eq!(metrics.snapshot().write_errors, 1);
    }

    #[test]
    fn concurrent_writers_leave_the_latest_state() {
        let directory = Directory::new("race");
        let metrics = directory.metrics(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        metrics.submitted();
                        metrics.publish();
                    }
                });
            }
        });
        let stats = read_stats(&directory.0).unwrap();
        assert_eq!(stats[0].snapshot.async_submitted, 1000);
    }

    #[test]
    fn sustained_load_writes_now_and_then_and_at_the_end() {
        let directory = Directory::new("load");
        let metrics = directory.metrics(true);
        let start = Instant::now();
        for _ in 0..100_000 {
            metrics.submitted();
            metrics.publish();
        }
        let allowed = start.elapsed().as_millis() / MILLISECONDS_A_WRITE;
        let allowed = allowed + u128::from(FREE_WRITES) + 1;
        let writing = metrics
            .publisher
            .get()
            .unwrap()
            .as_ref()
            .unwrap()
            .writing
            .lock()
            .unwrap();
        assert!(u128::from(writing.sequence) <= allowed);
        drop(writing);
        metrics.unpublish();
        let stats = read_stats(&directory.0).unwrap();
        assert_eq!(stats[0].snapshot.async_submitted, 100_000);
    }

    #[test]
    fn only_a_directory_of_the_user_alone_will_do() {
        let directory = Directory::new("place");
        let user = geteuid().as_raw();
        let place = |name: &str| Place {
            parent: "/tmp",
            name: name.to_owned(),
            user,
        };
        let name = |what: &str| format!("lockstep-place-{what}-{}", process::id());
        let (fine, open, link) = (name("fine"), name("open"), name("link"));
        let path = |name: &str| Path::new("/tmp").join(name);
        let refused = |place: Place| place.make().unwrap_err().kind();

        place(&fine).make().unwrap();
        let mode = fs::metadata(path(&fine)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        place(&fine).make().unwrap();
        let mut of_another = place(&fine);
        of_another.user = user + 1;
        assert_eq!(refused(of_another), io::ErrorKind::PermissionDenied);

        fs::create_dir(path(&open)).unwrap();
        fs::set_permissions(path(&open), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(refused(place(&open)), io::ErrorKind::PermissionDenied);
        symlink(&directory.0, path(&link)).unwrap();
        assert_eq!(refused(place(&link)), io::ErrorKind::NotADirectory);

        fs::remove_dir(path(&fine)).unwrap();
        fs::remove_dir(path(&open)).unwrap();
        fs::remove_file(path(&link)).unwrap();
    }

    #[test]
    fn what_ended_processes_left_is_swept() {
        let directory = Directory::new("sweep");
        let metrics = directory.metrics(false);
        metrics.publish();
        for (name, document) in [
            ("1.json", String::new()),
            ("4294967295.json", String::new()),
            (
                "1.1.json",
                Snapshot {
                    pid: 1,
                    ..Snapshot::default()
                }
                .document(3, DOCUMENT_BYTES),
            ),
            ("notes.txt", String::new()),
        ] {
            fs::write(directory.0.join(name), document).unwrap();
        }
        sweep(&super::directory(&directory.0).unwrap()).unwrap();
        let mut left: Vec<_> = fs::read_dir(&directory.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        // Process 1 runs, and might just be about to write its first document; but none that is older.
        let mut expected = vec![
            "1.json".to_owned(),
            "notes.txt".to_owned(),
            format!("{}.json", process::id()),
        ];
        expected.sort();
        assert_eq!(left, expected);
        metrics.unpublish();
    }

    #[test]
    fn a_closed_descriptor_is_never_written_to() {
        let directory = Directory::new("closed");
        let metrics = directory.metrics(false);
        metrics.publish();
        let publisher = metrics.publisher.get().unwrap().as_ref().unwrap();
        let precious = directory.0.join("precious");
        fs::write(&precious, "precious").unwrap();
        // As if a program had closed our file, and opened its own.
        let theirs = File::options().write(true).open(&precious).unwrap();
        let theirs = Publisher {
            file: theirs,
            identity: publisher.identity,
            directory: publisher.directory.try_clone().unwrap(),
            name: "precious".to_owned(),
            keep: false,
            started: 0,
            stale: AtomicBool::new(false),
            writing: Mutex::new(Writing {
                sequence: 0,
                used: 0,
                since: Instant::now(),
            }),
        };
        theirs.publish(&metrics, true);
        theirs.finish(&metrics);
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(metrics.snapshot().write_errors, 1);
        metrics.unpublish();
    }

    #[test]
    fn what_could_deceive_a_reader_is_passed_over() {
        let directory = Directory::new("deceive");
        let document = |snapshot: Snapshot| snapshot.document(3, DOCUMENT_BYTES);
        let mine = document(Snapshot {
            pid: process::id().into(),
            started: u64::MAX,
            ..Snapshot::default()
        });
        fs::write(directory.0.join("precious"), &mine).unwrap();
        let link = directory.0.join(format!("{}.json", process::id()));
        symlink(directory.0.join("precious"), &link).unwrap();
        // Names one process and tells of another; and text that would not stay on its line.
        fs::write(directory.0.join("1.json"), &mine).unwrap();
        let text = document(Snapshot {
            pid: 2,
            version: "1\u{1b}[2J".to_owned(),
            ..Snapshot::default()
        });
        fs::write(directory.0.join("2.json"), text).unwrap();
        assert!(read_stats(&directory.0).unwrap().is_empty());
        fs::remove_file(&link).unwrap();
        fs::write(&link, &mine).unwrap();
        let stats = read_stats(&directory.0).unwrap();
        assert_eq!(stats.len(), 1);
        let name = stats[0].name.as_deref().unwrap();
        assert!(stats[0].alive && !name.is_empty(), "{stats:?}");
    }

    #[test]
    fn what_has_ended_is_not_alive_though_its_parent_has_not_asked() {
        let mut child = process::Command::new("true").spawn().unwrap();
        let start = Instant::now();
        while start_of(child.id()).is_some() {
            assert!(start.elapsed().as_secs() < 20, "`true` does not end");
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_goes_on_when_its_first_thread_has_left() {
        let stat = |name: &str, state: &str, threads: u32| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4711 0 0")
        };
        assert_eq!(start_in(&stat("server", "S", 1)), Some(4711));
        assert_eq!(start_in(&stat("server", "Z", 1)), None);
        assert_eq!(start_in(&stat("server", "Z", 3)), Some(4711));
        assert_eq!(start_in(&stat("a) Z 1 (b", "R", 2)), Some(4711));
        assert_eq!(start_in("7 (server"), None);
    }

    #[test]
    fn the_clock_without_proc_is_that_of_proc() {
        let start = start_of(process::id()).unwrap();
        let now = ticks_since_boot();
        // No test process of ours is an hour old.
        let hour = 3600 * rustix::param::clock_ticks_per_second();
        assert!(start < now && now < start + hour, "{start} {now}");
    }
}
