//! The process that opens files, which the daemon itself may not open.
//!
//! The daemon starts it before it gives up root's rights ([`start`]): the same program once more,
//! with a socket as its standard input ([`run`]). It searches the files of all sections, opens
//! them, and sends the open descriptors to the daemon. It reads no file and has no clients. The
//! daemon sends it the sections before the first client comes, and nothing else. The process keeps
//! one of root's rights: to read any file. If the daemon does not run as root, the process has the
//! rights of the daemon's user.
//!
//! The kernel reports changes of the names that lead to the files (inotify). Some file systems
//! report none, so the process also searches at intervals.
//!
//! One thread searches, and another one waits for it. A file system that does not answer holds up
//! only the searching thread: the daemon gets a message, and the next thread searches the other
//! sections. The first thread continues once the file system answers.

mod message;
mod watches;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockstep_ring::receive;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, geteuid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::keys::files::{Names, Pattern, Place, Visitor};
use crate::keys::workers::{LONG, SHORT, Workers};
use crate::system::privileges;
use crate::system::trusted::Untrusted;
use message::{LONGEST, tell};
pub use message::{Message, next};
use watches::{EVENTS, Watches};

/// Interval of searches without an event.
const EVERY: Duration = Duration::from_secs(30);
/// Age below which a file may change again without a new time of change.
const RECENT: Duration = Duration::from_secs(1);
/// Minimum pause after a search. The pause is [`REST_FOR_EACH`] times the time of the search if
/// that is longer, so files that change all the time take a tenth of one CPU.
const REST: Duration = Duration::from_millis(20);
const REST_FOR_EACH: u32 = 9;
/// Maximum number of opened files that wait to be read, if one process searches and reads.
const MOST_OPEN: usize = 16;
/// The files of a section, and whether the other files in their directories are opened, too.
pub type Section = (Pattern, bool);

/// Starts the process, with the rights of this user and group if the daemon is root.
pub fn start(sections: &[Section], user: Option<(u32, u32)>) -> io::Result<(Child, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (own, other) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    let (user, group) = user.unwrap_or_default();
    let child = Command::new("/proc/self/exe")
        .arg0("lockstep")
        .args(["keyd", "reader", &user.to_string(), &group.to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(other))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    for (pattern, beside) in sections {
        let path = pattern.path().as_os_str().as_bytes();
        let message = [&[1, u8::from(*beside)], path].concat();
        rustix::net::send(&own, &message, SendFlags::NOSIGNAL)?;
    }
    rustix::net::send(&own, &[0], SendFlags::NOSIGNAL)?;
    Ok((child, own))
}

/// Does the work of this process until the daemon ends.
pub fn run(user: u32, group: u32) -> io::Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let own = geteuid().as_raw();
    privileges::keep_reading((user, group))?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // These signals do not end the process. It ends with the daemon, which first answers its
    // clients' requests.
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut sections = Vec::new();
    let mut bytes = [0; LONGEST];
    loop {
        let received = receive(&socket, &mut bytes)?;
        match bytes[..received.length].split_first_chunk() {
            Some(([1, beside], path)) => {
                let pattern = Pattern::new(Path::new(OsStr::from_bytes(path)));
                sections.push((pattern, *beside == 1));
            }
            _ if received.length == 1 => break,
            _ => return Ok(()),
        }
    }
    let daemon = socket.try_clone()?;
    let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
    let inotify = inotify::init(flags);
    let mut reader = Reader::new(sections, own, SHORT, inotify, move |message| {
        tell(&daemon, &message)
    });
    reader.look_at_all()?;
    while reader.wait(&socket)? {
        reader.look_at_due()?;
    }
    Ok(())
}

/// Searches all sections once, in the process of the caller.
pub fn look_once(sections: Vec<Section>, mut take: impl FnMut(Message)) {
    let own = geteuid().as_raw();
    let (tell, told) = sync_channel(MOST_OPEN);
    thread::spawn(move || {
        let tell = move |message| tell.send(message).map_err(io::Error::other);
        // Without inotify.
        let mut reader = Reader::new(sections, own, LONG, Err(Errno::NOSYS), tell);
        let _ = reader.look_at_all();
    });
    while let Ok(message) = told.recv() {
        match message {
            Message::Done => break,
            message => take(message),
        }
    }
}

/// Identity and state of a file: device, inode, size, times of changes.
type State = (u64, u64, u64, i64, i64, i64, i64);

/// The last report about a path.
#[derive(Clone, PartialEq, Eq)]
enum Told {
    File(Place, State),
    Bad(String),
}

/// The state of a section.
struct Known {
    section: Section,
    told: BTreeMap<PathBuf, Told>,
    is_full: bool,
    /// Time of the next search.
    due: Instant,
}

/// Searcher of all sections. It passes its messages to a function.
struct Reader<T> {
    /// `None` while a thread is held up in this section.
    known: Vec<Option<Known>>,
    /// Sections that were reported as held up.
    held_up: BTreeSet<usize>,
    shared: Arc<Shared<T>>,
    workers: Workers<(usize, Known), Looked>,
}

/// A searched section.
type Looked = (usize, Known, io::Result<()>);

/// State that the threads share.
struct Shared<T> {
    own: u32,
    tell: Mutex<T>,
    /// Counter of progress: one more at the start and at the end of each message, two more for each
    /// other step. It is odd while a message is sent.
    steps: AtomicUsize,
    /// Paths of the current steps, by section.
    at: Mutex<BTreeMap<usize, PathBuf>>,
    watches: Mutex<Watches>,
}

impl<T: FnMut(Message) -> io::Result<()> + Send + 'static> Reader<T> {
    fn new(
        sections: Vec<Section>,
        own: u32,
        patience: Duration,
        inotify: Result<OwnedFd, Errno>,
        tell: T,
    ) -> Reader<T> {
        let due = Instant::now();
        let known = sections.into_iter().map(|section| {
            Some(Known {
                section,
                told: BTreeMap::new(),
                is_full: false,
                due,
            })
        });
        let watches = Watches {
            inotify: inotify.map(Arc::new),
            names: HashMap::new(),
        };
        let shared = Arc::new(Shared {
            own,
            tell: Mutex::new(tell),
            steps: AtomicUsize::new(0),
            at: Mutex::new(BTreeMap::new()),
            watches: Mutex::new(watches),
        });
        let looks = Arc::clone(&shared);
        Reader {
            known: known.collect(),
            held_up: BTreeSet::new(),
            shared,
            workers: Workers::new(patience, move |(section, mut known): (usize, Known)| {
                let result = looks.look(section, &mut known);
                (section, known, result)
            }),
        }
    }

    fn look_at_all(&mut self) -> io::Result<()> {
        self.look_at((0..self.known.len()).collect())
    }

    /// Searches the sections that are due, and then pauses.
    fn look_at_due(&mut self) -> io::Result<()> {
        let start = Instant::now();
        let known = self.known.iter().enumerate();
        let due = known.filter(|(_, known)| known.as_ref().is_some_and(|own| own.due <= start));
        let due: Vec<usize> = due.map(|(section, _)| section).collect();
        if due.is_empty() {
            return Ok(());
        }
        self.look_at(due)?;
        thread::sleep(REST.max(REST_FOR_EACH * start.elapsed()).min(EVERY));
        Ok(())
    }

    fn look_at(&mut self, sections: Vec<usize>) -> io::Result<()> {
        let mut late = BTreeSet::new();
        for &section in &sections {
            if !self.look_at_one(section)? {
                late.insert(section);
            }
        }
        // Some file systems have answered during the other searches.
        for section in self.take_late()? {
            late.remove(&section);
        }
        for section in sections {
            let is_late = late.contains(&section);
            let is_new = match is_late {
                true => self.held_up.insert(section),
                false => self.held_up.remove(&section),
            };
            if is_new {
                let at = self.shared.at().get(&section).cloned();
                let at = is_late.then(|| at.unwrap_or_default());
                self.shared.tell(Message::HeldUp(section, at))?;
            }
        }
        self.shared.tell(Message::Done)
    }

    /// Searches a section; returns false if it is held up, or if too many others are.
    fn look_at_one(&mut self, section: usize) -> io::Result<bool> {
        if !self.workers.has_room() {
            if let Some(known) = &mut self.known[section] {
                known.due = Instant::now() + EVERY;
            }
            return Ok(false);
        }
        let Some(known) = self.known[section].take() else {
            return Ok(false);
        };
        let shared = Arc::clone(&self.shared);
        let mut before = shared.steps.load(Relaxed);
        // A thread that sends a message waits for the daemon, not for a file system.
        let progresses = move || {
            let now = shared.steps.load(Relaxed);
            std::mem::replace(&mut before, now) != now || now % 2 == 1
        };
        match self.workers.run((section, known), progresses) {
            Some((section, known, result)) => {
                self.known[section] = Some(known);
                result.map(|()| true)
            }
            None => Ok(false),
        }
    }

    /// Takes late results; returns their sections.
    fn take_late(&mut self) -> io::Result<Vec<usize>> {
        let mut sections = Vec::new();
        while let Some((section, known, result)) = self.workers.next_late() {
            self.known[section] = Some(known);
            result?;
            sections.push(section);
        }
        if !sections.is_empty() {
            // These sections may have missed an event or may have waited for a free thread.
            for section in &self.held_up {
                if let Some(known) = &mut self.known[*section] {
                    known.due = Instant::now();
                }
            }
        }
        Ok(sections)
    }

    /// Waits until a search is due; returns false once the daemon has ended.
    fn wait(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        self.take_late()?;
        let now = Instant::now();
        let longest = if self.workers.late() == 0 {
            EVERY
        } else {
            RECENT
        };
        let due = self.known.iter().flatten().map(|known| known.due).min();
        let time = due.map_or(EVERY, |due| due.saturating_duration_since(now));
        let time = Timespec::try_from(time.min(longest)).unwrap_or_default();
        // This clone keeps the descriptor open without the lock.
        let inotify = self.shared.watches().inotify.clone().ok();
        let mut polled = vec![PollFd::new(socket, PollFlags::IN)];
        let watched = inotify.iter();
        polled.extend(watched.map(|own| PollFd::new(own, PollFlags::IN)));
        let _ = poll(&mut polled, Some(&time));
        if !polled[0].revents().is_empty() {
            return Ok(false);
        }
        let changed = self.shared.watches().changed(self.known.len());
        for section in changed {
            if let Some(Some(known)) = self.known.get_mut(section) {
                known.due = now;
            }
        }
        Ok(true)
    }
}

impl<T: FnMut(Message) -> io::Result<()>> Shared<T> {
    fn tell(&self, message: Message) -> io::Result<()> {
        let mut tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        self.steps.fetch_add(1, Relaxed);
        let told = tell(message);
        self.steps.fetch_add(1, Relaxed);
        told
    }

    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self) -> MutexGuard<'_, BTreeMap<usize, PathBuf>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, section: usize, known: &mut Known) -> io::Result<()> {
        self.watches().forget(section);
        let start = Instant::now();
        let mut visit = Visit {
            section,
            before: std::mem::take(&mut known.told),
            told: &mut known.told,
            unseen: BTreeSet::new(),
            is_recent: false,
            is_full: false,
            shared: self,
            result: Ok(()),
        };
        let (pattern, beside) = &known.section;
        pattern.look(self.own, *beside, &mut visit);
        self.at().remove(&section);
        visit.result?;
        for (path, state) in visit.before {
            if visit.told.contains_key(&path) {
                continue;
            }
            match path.ancestors().any(|above| visit.unseen.contains(above)) {
                true => _ = visit.told.insert(path, state),
                false => self.tell(Message::Gone(section, path))?,
            }
        }
        if std::mem::replace(&mut known.is_full, visit.is_full) != visit.is_full {
            self.tell(Message::TooMany(section, visit.is_full))?;
        }
        // A slow file system is searched less often.
        let pause = if visit.is_recent { RECENT } else { EVERY };
        known.due = Instant::now() + pause.max(REST_FOR_EACH * start.elapsed());
        self.watches().tidy();
        Ok(())
    }
}

/// A search of one section.
struct Visit<'a, T> {
    section: usize,
    /// Reports of the previous search.
    before: BTreeMap<PathBuf, Told>,
    told: &'a mut BTreeMap<PathBuf, Told>,
    /// Paths that could not be searched.
    unseen: BTreeSet<PathBuf>,
    is_recent: bool,
    is_full: bool,
    shared: &'a Shared<T>,
    result: io::Result<()>,
}

impl<T: FnMut(Message) -> io::Result<()>> Visitor for Visit<'_, T> {
    fn steps(&mut self, path: &Path) {
        self.shared.at().insert(self.section, path.to_owned());
    }

    fn looks(&mut self, directory: &OwnedFd, names: Names) {
        self.shared.steps.fetch_add(2, Relaxed);
        // Without the lock, since this call may wait for the file system.
        let inotify = self.shared.watches().inotify.clone();
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let number = inotify.and_then(|own| inotify::add_watch(own, place, EVENTS));
        // The search of the files comes after this, so that no change is missed. Directories
        // without a watch are searched at intervals.
        if let Ok(number) = number {
            let mut watches = self.shared.watches();
            let known = watches.names.entry(number).or_default();
            known.insert((self.section, names));
        }
    }

    fn found(&mut self, path: &Path, place: Place, file: Result<File, Untrusted>) {
        self.shared.steps.fetch_add(2, Relaxed);
        let file = file.map_err(|why| why.to_string());
        let state = file.as_ref().map(state);
        let (told, is_recent) = match state {
            Ok(Some((state, is_recent))) => (Told::File(place, state), is_recent),
            Ok(None) => return,
            Err(why) => (Told::Bad(why.clone()), false),
        };
        let is_known = self.before.get(path) == Some(&told);
        self.is_recent |= is_recent;
        self.told.insert(path.to_owned(), told);
        if is_known && !is_recent {
            return;
        }
        let (section, path) = (self.section, path.to_owned());
        let message = match file {
            Ok(file) => Message::File(section, path, place, file),
            Err(why) => Message::Bad(section, path, place, why),
        };
        if self.result.is_ok() {
            self.result = self.shared.tell(message);
        }
    }

    fn unseen(&mut self, path: &Path) {
        self.unseen.insert(path.to_owned());
    }

    fn too_many(&mut self) {
        self.is_full = true;
    }
}

/// Returns the state of a file, and whether it changed recently.
fn state(file: &File) -> Option<(State, bool)> {
    let about = file.metadata().ok()?;
    let state = (
        about.dev(),
        about.ino(),
        about.size(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
    );
    let changed = UNIX_EPOCH + Duration::from_secs(about.ctime().try_into().unwrap_or(0));
    let age = SystemTime::now().duration_since(changed);
    // The clock of file times is coarse, and this time is rounded to seconds.
    Some((state, age.is_ok_and(|age| age < 2 * RECENT)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use std::sync::mpsc::channel;

    use lockstep_testkit::TempDir;

    use super::*;
    use crate::keys::workers::MOST_LATE;

    /// The section's own file system might not answer, either.
    #[test]
    fn a_section_behind_many_that_are_held_up_is_named_and_looked_at_later() {
        let place = TempDir::new("behind");
        fs::write(place.join("key.pem"), "key").expect("a file");
        let (give, told) = channel();
        let tell = move |message: Message| {
            let _ = give.send(match message {
                Message::File(..) => "file",
                Message::HeldUp(0, Some(_)) => "held up",
                Message::HeldUp(0, None) => "not held up",
                _ => "",
            });
            Ok(())
        };
        let section = (Pattern::new(&place.join("key.pem")), false);
        let own = geteuid().as_raw();
        let mut reader = Reader::new(vec![section], own, LONG, Err(Errno::NOSYS), tell);
        let mut look = |late| {
            reader.workers.suppose_late(late);
            reader.look_at_all().expect("nothing fails");
            let due = reader.known[0].as_ref().expect("known").due;
            assert!(due > Instant::now(), "it looks all the time");
            let told: Vec<&str> = told.try_iter().filter(|told| !told.is_empty()).collect();
            told
        };
        assert_eq!(look(MOST_LATE), ["held up"]);
        assert!(look(MOST_LATE).is_empty());
        assert_eq!(look(0), ["file", "not held up"]);
    }

    /// A slow file system must not be taken for one that never answers.
    #[test]
    fn each_file_is_a_sign_of_life() {
        let place = TempDir::new("signs");
        for number in 0..9 {
            fs::write(place.join(number.to_string()), "").expect("a file");
        }
        let section = (Pattern::new(&place), false);
        let own = geteuid().as_raw();
        let count = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&count);
        let tell = move |_| {
            told.fetch_add(1, Relaxed);
            Ok(())
        };
        let mut reader = Reader::new(vec![section], own, LONG, Err(Errno::NOSYS), tell);
        reader.look_at_all().expect("nothing fails");
        let signs = reader.shared.steps.load(Relaxed) / 2 - count.load(Relaxed);
        assert!(signs >= 9, "{signs}");
    }

    /// If such a file were reported as gone, the daemon would remove the certificates beside a key,
    /// and the key after its grace period.
    #[test]
    fn what_cannot_be_seen_for_a_while_is_not_gone() {
        let place = TempDir::new("unseen");
        for site in ["a", "b"] {
            fs::create_dir_all(place.join(site)).expect("a directory");
            fs::write(place.join(site).join("key.pem"), site).expect("a file");
            fs::write(place.join(site).join("cert.pem"), site).expect("a file");
        }
        let pattern = Pattern::new(&place.join("*/key.pem"));
        let (give, told) = channel();
        let tell = move |message: Message| {
            let _ = give.send(match message {
                Message::File(_, path, ..) => format!("file {}", path.display()),
                Message::Bad(_, path, ..) => format!("bad {}", path.display()),
                Message::Gone(_, path) => format!("gone {}", path.display()),
                _ => String::new(),
            });
            Ok(())
        };
        let own = geteuid().as_raw();
        let mut reader = Reader::new(vec![(pattern, true)], own, LONG, Err(Errno::NOSYS), tell);
        let mode = |name: &str, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(place.join(name), mode).expect("its own");
        };
        for (name, bad, good) in [("a/key.pem", 0o666, 0o600), ("b", 0o777, 0o755)] {
            reader.look_at_all().expect("nothing fails");
            mode(name, bad);
            reader.look_at_all().expect("nothing fails");
            mode(name, good);
        }
        fs::remove_file(place.join("a/cert.pem")).expect("a file");
        reader.look_at_all().expect("nothing fails");
        let told: Vec<String> = told.try_iter().collect();
        let of = |kind: &str| -> Vec<&str> {
            let told = told.iter().filter_map(|line| line.strip_prefix(kind));
            told.map(|path| path.trim_start_matches(place.to_str().expect("text")))
                .collect()
        };
        assert_eq!(of("bad "), ["/a/key.pem", "/b"]);
        // This ends the report about the directory `/b`, which can be read again.
        assert_eq!(of("gone "), ["/a/cert.pem", "/b"]);
    }
}
