//! The file of counters, and the slots that processes take in it.
//!
//! A process takes a slot by writing its number in the place of a zero. Then it sets the counters
//! to zero and marks them as valid. To give the slot back, it clears the mark, then the number. A
//! process that is killed leaves its slot as it is. Another process takes that slot when no slot is
//! free.
//!
//! Every process that has mapped the file can write all of it, a server's unprivileged worker too.
//! So a process shows the numbers that it reads there, and relies on none of them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use lockstep_page::{Mapped, Refused};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::process::{Pid, getppid, test_kill_process};

use crate::directory::{self, Place, StatsDir};
use crate::external_event::ExternalEvent;
use crate::layout::{
    AT_FIRST, MAGIC, MOST, OWNERS, SLOT_WORDS, SLOTS, Slot, WORDS, counter, header, is_name, owner,
    words_of,
};
use lockstep_ops::Home;

use crate::process::{Realm, namespace, ticks_since_boot};
use crate::version::version;
use crate::{reader, snapshot};

/// The published counters of this process and of its children.
#[derive(Debug)]
pub struct Page {
    mapped: Mapped,
    place: Where,
    name: String,
    keep: bool,
    /// The process that made the file.
    home: Home,
    /// Whether this process is a child of the one that made the file, as noted at the fork.
    is_of_child: AtomicBool,
    /// The slot of this process, counted from one; zero if it has none.
    own: AtomicUsize,
    /// Number of slots that this process knows to be allocated.
    places: AtomicUsize,
    /// This process's PID namespace; zero if it is unknown.
    namespace: AtomicU64,
    /// Mistakes in the settings of the program that has started this one in its place, by `exec`.
    said_before: Option<Vec<u64>>,
}

/// The directory of a page.
#[derive(Debug)]
enum Where {
    Default(Place),
    Named(PathBuf),
}

impl Where {
    fn open(&self) -> io::Result<OwnedFd> {
        match self {
            Where::Default(place) => place.open(),
            Where::Named(path) => directory::open(path),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Where::Default(place) => place.path(),
            Where::Named(path) => path.clone(),
        }
    }
}

/// Reason why counters are not published. The process then counts in memory of its own.
#[derive(Debug)]
pub struct Unpublished {
    directory: PathBuf,
    reason: Refused,
}

impl fmt::Display for Unpublished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unpublished { directory, reason } = self;
        write!(
            f,
            "no file of counters in {}: {reason}",
            directory.display()
        )
    }
}

impl Unpublished {
    /// Returns whether the place itself is wrong, so that no process of this user can publish
    /// there: it does not exist, is not a directory, or is not writable. Limits, filters of system
    /// calls and full file systems do not count: they concern this process or this moment.
    pub fn is_wrong_place(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
        match &self.reason {
            Refused::FileSystem => true,
            Refused::FileSize(_) => false,
            Refused::System(error) => match error.kind() {
                NotFound | NotADirectory | ReadOnlyFilesystem => true,
                // A sandbox answers EPERM.
                PermissionDenied => error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()),
                _ => false,
            },
        }
    }
}

impl Page {
    /// The length of the file.
    pub const BYTES: u64 = (WORDS * 8) as u64;

    /// Returns whether a file of counters may have this name.
    pub fn is_file_name(name: &str) -> bool {
        is_name(name)
    }

    /// Makes the file, with a slot for this process. `None` if counters are not to be published.
    ///
    /// In the default places it first removes files whose processes have all ended.
    pub fn create(place: &StatsDir, keep: bool) -> Result<Option<Page>, Unpublished> {
        let mut refused = None;
        let candidates = match place {
            StatsDir::Off => return Ok(None),
            StatsDir::At(path) => vec![Where::Named(path.clone())],
            StatsDir::Auto => directory::places()
                .into_iter()
                .map(Where::Default)
                .collect(),
        };
        let realm = Realm::here();
        // A server that reloads by `exec` keeps its process number and loses its slot. The time is
        // taken before the swap, so no other thread of this process takes a slot earlier.
        static MADE: AtomicBool = AtomicBool::new(false);
        let now = ticks_since_boot();
        let first = !MADE.swap(true, Ordering::AcqRel);
        let predecessor = first.then(|| (process::id(), now));
        let mut said_before = None;
        for place in candidates {
            let made = match &place {
                Where::Default(place) => place.make(),
                Where::Named(path) => directory::open(path),
            };
            let made = made.map_err(Refused::System).and_then(|directory| {
                if !keep && realm.is_known() {
                    let kept_too = matches!(place, Where::Default(_));
                    let said = reader::sweep(&directory, realm, kept_too, predecessor);
                    said_before = said.ok().flatten();
                }
                create_in(&directory)
            });
            match made {
                Ok((mapped, name)) => {
                    let page = Page::of(mapped, name, place, keep, realm);
                    return Ok(Some(Page {
                        said_before,
                        ..page
                    }));
                }
                Err(reason) => {
                    let directory = place.path();
                    refused.get_or_insert(Unpublished { directory, reason });
                }
            }
        }
        Err(refused.expect("there is a candidate"))
    }

    /// Writes the header, and takes a slot.
    fn of(mapped: Mapped, name: String, place: Where, keep: bool, realm: Realm) -> Page {
        let set = |at: usize, value: u64| mapped.words[at].store(value, Ordering::Relaxed);
        set(header::LAYOUT, snapshot::layout());
        set(header::WORDS, WORDS as u64);
        set(header::KEEP, u64::from(keep));
        set(header::BOOT, realm.boot[0]);
        set(header::BOOT + 1, realm.boot[1]);
        set(header::NAMESPACE, realm.namespace);
        let version: [u64; header::VERSION_WORDS] = words_of(&version());
        for (at, word) in (header::VERSION..).zip(version) {
            set(at, word);
        }
        let places = (mapped.allocated - SLOTS) / SLOT_WORDS;
        let page = Page {
            mapped,
            place,
            name,
            keep,
            home: Home::of_caller(),
            is_of_child: AtomicBool::new(false),
            own: AtomicUsize::new(0),
            places: AtomicUsize::new(places),
            namespace: AtomicU64::new(realm.namespace),
            said_before: None,
        };
        page.claim();
        page.mapped.words[header::MAGIC].store(MAGIC, Ordering::Release);
        page
    }

    /// Shows readers the mistakes in the settings. Returns false if the program that started this
    /// one by `exec` has shown the same.
    pub fn note_mistakes(&self, mistakes: &str) -> bool {
        let text: [u64; header::MISTAKES_WORDS] = words_of(mistakes);
        for (at, word) in (header::MISTAKES..).zip(text) {
            self.mapped.words[at].store(word, Ordering::Relaxed);
        }
        self.said_before.as_deref() != Some(&text[..])
    }

    /// Returns the directory of the file.
    pub fn directory(&self) -> PathBuf {
        self.place.path()
    }

    /// Takes a slot for this process, if it has none.
    pub fn claim(&self) {
        if self.own.load(Ordering::Acquire) == 0 {
            let mut found = self.take_free();
            while found.is_none() && self.allocate_more() {
                found = self.take_free();
            }
            let found = found.or_else(|| self.take_abandoned());
            match found {
                Some(slot) => self.own.store(slot + 1, Ordering::Release),
                None => {
                    self.mapped.words[header::MISSED].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Prepares a fork: the file stays until the child has a slot, even if this process ends first,
    /// as when it starts a daemon, or runs another program, as HAProxy's master does. It may run in
    /// a handler of `pthread_atfork`.
    pub fn forking(&self) {
        if self.own.load(Ordering::Acquire) != 0 {
            // Children inherit the number of slots that their parent knows. They do not tell each
            // other of more.
            if !(0..self.places()).any(|slot| self.is_free(slot)) {
                self.allocate_more();
            }
            self.mapped.words[header::FORKED].store(ticks_since_boot(), Ordering::Relaxed);
            self.mapped.words[header::FORKING].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Completes a fork in the child: leaves the parent's slot to the parent, and takes one. It
    /// waits for no lock and allocates no memory, so it may run in a handler of `pthread_atfork`.
    pub fn forked(&self) {
        let Some(slot) = self.own.load(Ordering::Acquire).checked_sub(1) else {
            return;
        };
        // The handler may have been installed twice.
        if !self.has(slot) {
            self.is_of_child.store(true, Ordering::Relaxed);
            self.own.store(0, Ordering::Release);
            self.take_own();
        }
        self.mapped.words[header::FORKING].fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether a slot that this process or a parent has taken belongs to this process. A
    /// child in another PID namespace may have the number of its parent.
    fn has(&self, slot: usize) -> bool {
        let is_parents = self.home.is_wiped() && !self.is_of_child.load(Ordering::Relaxed);
        let pid = self.owner(slot)[owner::PID].load(Ordering::Relaxed);
        !is_parents && pid == u64::from(process::id())
    }

    fn take_own(&self) {
        // The first process of a new PID namespace does not see its parent.
        if getppid().is_none() {
            self.namespace.store(namespace(), Ordering::Relaxed);
        }
        self.claim();
    }

    /// Returns the number of allocated slots.
    fn places(&self) -> usize {
        self.places.load(Ordering::Relaxed)
    }

    /// Doubles the number of allocated slots. False if there are no more, or no memory for them.
    fn allocate_more(&self) -> bool {
        let (places, end) = (self.places(), |places| SLOTS + places * SLOT_WORDS);
        let more = (2 * places).min(MOST);
        let is_done = more > places && self.mapped.allocate(end(places), end(more));
        if is_done {
            self.places.fetch_max(more, Ordering::Relaxed);
        }
        is_done
    }

    fn is_free(&self, slot: usize) -> bool {
        self.owner(slot)[owner::PID].load(Ordering::Relaxed) == 0
    }

    fn take_free(&self) -> Option<usize> {
        let pid = u64::from(process::id());
        (0..self.places()).find(|&slot| {
            let free = &self.owner(slot)[owner::PID];
            self.is_free(slot)
                && free
                    .compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
                && self.begin(slot)
        })
    }

    /// Takes the slot of a process that ended without giving it back, unless counters are to be
    /// kept.
    fn take_abandoned(&self) -> Option<usize> {
        if self.keep {
            return None;
        }
        (0..self.places()).find(|&slot| {
            let pid = self.owner(slot)[owner::PID].load(Ordering::Acquire);
            self.has_ended(slot) && self.take_over(slot, pid)
        })
    }

    /// Takes a slot whose process, with the number `ended`, has ended. Of several processes that
    /// try, the first finds the slot valid and takes it. A later one, after the `begin` of the
    /// first, finds the slot valid again and leaves it to the new owner.
    pub(super) fn take_over(&self, slot: usize, ended: u64) -> bool {
        let words = self.owner(slot);
        if words[owner::VALID].swap(0, Ordering::AcqRel) != 1 {
            return false;
        }
        if words[owner::PID].load(Ordering::Acquire) != ended {
            words[owner::VALID].store(1, Ordering::Release);
            return false;
        }
        words[owner::PID].store(u64::from(process::id()), Ordering::Release);
        self.begin(slot)
    }

    /// Sets the counters of a slot that this process has just taken to zero. Returns true.
    fn begin(&self, slot: usize) -> bool {
        for word in self.slot(slot) {
            word.store(0, Ordering::Relaxed);
        }
        let words = self.owner(slot);
        words[owner::STARTED].store(ticks_since_boot(), Ordering::Relaxed);
        let namespace = self.namespace.load(Ordering::Relaxed);
        words[owner::NAMESPACE].store(namespace, Ordering::Relaxed);
        words[owner::VALID].store(1, Ordering::Release);
        true
    }

    /// Returns the slot of this process, if it has one.
    pub(crate) fn own(&self) -> Option<&'static Slot> {
        let slot = self.own.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.slot(slot))
    }

    /// Counts an event of a process that has no engine; `backend` names its lanes. Events that
    /// follow from a request have an engine, and are not counted here. It may run in a handler of
    /// `pthread_atfork`.
    pub fn count(&self, done: ExternalEvent, backend: &'static str) {
        let Some(slot) = self.own() else { return };
        let place = match done {
            ExternalEvent::Fallback(reason) => counter::BY_REASON + reason as usize,
            ExternalEvent::Derivation => counter::DERIVATIONS,
            ExternalEvent::Cipher => counter::CIPHERS,
            _ => return,
        };
        let backend: [u64; counter::BACKEND_WORDS] = words_of(backend);
        for (word, text) in slot[counter::BACKEND..].iter().zip(backend) {
            word.store(text, Ordering::Relaxed);
        }
        slot[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Wipes the mark, as a fork does in the child.
    #[cfg(test)]
    pub(super) fn wipe(&mut self) {
        self.home.wipe();
    }

    /// Writes the owner of a slot, as another process would.
    #[cfg(test)]
    pub(super) fn write_owner(&self, slot: usize, words: [u64; owner::WORDS]) {
        for (word, value) in self.owner(slot).iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the words of the owner of a slot.
    #[cfg(test)]
    pub(super) fn read_owner(&self, slot: usize) -> [u64; owner::WORDS] {
        self.owner(slot)
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed))
    }

    /// Returns the time at which this process took its slot, in clock ticks since boot.
    pub(crate) fn started(&self) -> u64 {
        let slot = self.own.load(Ordering::Acquire).checked_sub(1);
        slot.map_or(0, |slot| {
            self.owner(slot)[owner::STARTED].load(Ordering::Relaxed)
        })
    }

    /// Gives the slot of this process back, unless counters are to be kept.
    pub(crate) fn release(&self) {
        if self.keep {
            return;
        }
        let Some(slot) = self.own.swap(0, Ordering::AcqRel).checked_sub(1) else {
            return;
        };
        // A child that was made without the handlers of `fork` must not give back its parent's.
        if self.has(slot) {
            let words = self.owner(slot);
            words[owner::VALID].store(0, Ordering::Release);
            words[owner::PID].store(0, Ordering::Release);
        }
    }

    /// Ends the use by this process: gives its slot back and removes the file, unless other
    /// processes have slots in it. Only the removal makes system calls, so a server's worker makes
    /// none. A process that has changed its user or its root directory may fail to remove the file.
    /// Such a file is removed when a program of its user next loads the module.
    pub fn withdraw(&self) {
        self.release();
        let forking = self.mapped.words[header::FORKING].load(Ordering::Acquire) != 0;
        if !self.keep && !forking && !(0..MOST).any(|slot| self.is_in_use(slot)) {
            let _ = self.remove();
        }
    }

    /// Returns whether another process has this slot. The process that made the file checks whether
    /// a child was killed; children do not check.
    fn is_in_use(&self, slot: usize) -> bool {
        let pid = self.owner(slot)[owner::PID].load(Ordering::Acquire);
        pid != 0 && (self.home.is_left() || !self.has_ended(slot))
    }

    /// Returns whether the process that has this slot is seen to have ended. False if its number
    /// means nothing in this PID namespace.
    fn has_ended(&self, slot: usize) -> bool {
        let words = self.owner(slot);
        let own = self.namespace.load(Ordering::Relaxed);
        let pid = words[owner::PID].load(Ordering::Acquire);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        own != 0
            && words[owner::NAMESPACE].load(Ordering::Relaxed) == own
            && pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }

    fn remove(&self) -> io::Result<()> {
        let directory = self.place.open()?;
        let found = rustix::fs::statat(&directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if (found.st_dev, found.st_ino) == self.mapped.identity {
            rustix::fs::unlinkat(&directory, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }

    fn owner(&self, slot: usize) -> &'static [AtomicU64; owner::WORDS] {
        part(self.mapped.words, OWNERS + slot * owner::WORDS)
    }

    fn slot(&self, slot: usize) -> &'static Slot {
        part(self.mapped.words, SLOTS + slot * SLOT_WORDS)
    }
}

/// Returns `N` words from this place on.
fn part<const N: usize>(words: &'static [AtomicU64], at: usize) -> &'static [AtomicU64; N] {
    words[at..].first_chunk().expect("a page has all its words")
}

/// Makes a file that no other process has made, and maps it.
fn create_in(directory: &OwnedFd) -> Result<(Mapped, String), Refused> {
    let (pid, now) = (process::id(), ticks_since_boot());
    let at_first = SLOTS + AT_FIRST * SLOT_WORDS;
    // A process of another PID namespace may have the same number.
    for number in 0..64 {
        let name = format!("{pid}-{now}-{number}.counters");
        match lockstep_page::create(directory.as_fd(), Path::new(&name), WORDS, at_first) {
            Err(Refused::System(error)) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|mapped| (mapped, name)),
        }
    }
    Err(Refused::System(io::ErrorKind::AlreadyExists.into()))
}
