//! The keys that the daemon holds, and their changes at run time.
//!
//! The [reader] reports the files. A key is held while a file of its section has it, and for the
//! grace period after that, since some servers still use the old key. A file that cannot be used
//! changes nothing, since it may be half written.

pub mod report;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::time::{Duration, Instant};

use lockstep_engine::Engine;
use lockstep_remote::protocol::{LONGEST_LIST, listed_bytes};
use lockstep_remote::{DEFAULT_SOCKET, Reference};
use zeroize::Zeroizing;

use crate::keyd_conf::{Configuration, KeySection};
use crate::keys::access::Access;
use crate::keys::files::{Pattern, Place, in_a_line};
use crate::keys::key::{self, Key};
use crate::keys::offers::ServedKey;
use crate::keys::reader::{self, Message};
use crate::keys::reference_file::{make_from, public_text};
use crate::keys::secrets::{Secrets, parts_of};
use crate::keys::workers::Workers;
use crate::system::accounts::Accounts;

/// Maximum number of held keys, including those in their grace period. The list of all keys fits
/// into a message.
const MOST_KEYS: usize = 6000;
/// Distance between the parts of a key that are searched for in public texts. Each scalar of 32
/// bytes contains a whole part.
const STEP: usize = 8;
/// Maximum number of remembered parts of removed keys: those of 900 keys of RSA-4096, or of 40,000
/// of P-256.
const MOST_REMOVED: usize = 1 << 18;
/// Why a file or a section keeps its state.
const UNANSWERED: &str = "its file system does not answer, so no new key there is seen; when it \
                          answers, the key is served";

/// The state of all sections.
pub struct Keyring {
    sections: Vec<Section>,
    files: BTreeMap<Name, Known>,
    workers: Workers<Opened, Read>,
    /// Files whose reading is late, with the numbers of their tasks.
    late: BTreeMap<Name, usize>,
    /// Files that are not read until fewer tasks are late.
    unread: BTreeMap<Name, Opened>,
    /// Number of the last task.
    last: usize,
    /// Held keys in the order of their sections, and in a section the newest first.
    entries: Vec<Entry>,
    /// Parts of keys since the last call of `fresh_secrets`.
    fresh: Vec<u64>,
    /// Parts of removed keys, the oldest first.
    past: Vec<u64>,
    /// Whether a key was removed since the last call of `expire`.
    has_removed: bool,
    /// Hashes texts, with a secret of this process.
    hasher: RandomState,
    grace: Duration,
    /// Socket of the daemon, unless it is the default one.
    socket: Option<PathBuf>,
    /// New texts for the directories of references; `None` for a file that is gone.
    pub texts: BTreeMap<Name, Option<Text>>,
    /// Events for the log.
    pub lines: Vec<String>,
}

/// Section and path of a file.
type Name = (usize, PathBuf);

/// A file to be read.
struct Opened {
    number: usize,
    name: Name,
    place: Place,
    file: File,
}

/// A read file, its mode, and its text.
type Read = (Opened, u32, Result<Zeroizing<Vec<u8>>, String>);

struct Section {
    name: String,
    pattern: Pattern,
    /// The users of its keys, or why there are none.
    access: Result<Access, String>,
    unknown: Vec<String>,
    must_decrypt: bool,
    has_references: bool,
    is_full: bool,
    /// Path whose file system does not answer.
    held_up: Option<PathBuf>,
}

/// A file that the reader has reported.
#[derive(Default)]
struct Known {
    /// Public half of its key, as last read.
    public: Option<Vec<u8>>,
    /// Hash of the text with this key.
    hash: Option<u64>,
    /// Why the file cannot be used now.
    why: Option<String>,
    /// Mode of the file, if it has a key and others than its owner can read it.
    open_mode: Option<u32>,
}

/// A held key.
struct Entry {
    section: usize,
    served: Arc<ServedKey>,
    /// Time since which no file has it.
    gone_since: Option<Instant>,
    /// Every [`STEP`]th part of the key, to search for it in public texts.
    parts: Vec<u64>,
}

impl Entry {
    fn listed_bytes(&self) -> usize {
        listed_bytes(&self.served.name, &self.served.key.public)
    }
}

/// The text of a file in a directory of references.
pub struct Text {
    /// The text.
    pub text: String,
    /// Public half of the key, or of the first certificate.
    pub public: Vec<u8>,
    /// Whether this is a reference, and not a certificate.
    pub is_key: bool,
}

impl Keyring {
    /// Creates the keyring of a configuration, without files. Reading a file may take `patience`.
    pub fn new(configuration: &Configuration, accounts: &Accounts, patience: Duration) -> Keyring {
        let section = |section: &KeySection| {
            let (access, unknown) = Access::new(section, accounts);
            let access = match &section.unusable {
                Some(why) => Err(why.clone()),
                None if access.is_empty() => Err(unknown.join(", ")),
                None => Ok(access),
            };
            Section {
                name: section.name.clone(),
                pattern: Pattern::new(&section.file),
                access,
                unknown,
                must_decrypt: section.uses.decrypt,
                has_references: section.references.is_some(),
                is_full: false,
                held_up: None,
            }
        };
        let socket = Some(configuration.socket.clone());
        Keyring {
            sections: configuration.keys.iter().map(section).collect(),
            files: BTreeMap::new(),
            workers: Workers::new(patience, read),
            late: BTreeMap::new(),
            unread: BTreeMap::new(),
            last: 0,
            entries: Vec::new(),
            fresh: Vec::new(),
            past: Vec::new(),
            has_removed: false,
            hasher: RandomState::new(),
            grace: configuration.grace,
            socket: socket.filter(|own| own != Path::new(DEFAULT_SOCKET)),
            texts: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// Returns the files that the reader has to search. A section without users has none.
    pub fn wanted(&self) -> Vec<reader::Section> {
        let wanted = self.sections.iter().map(|section| match section.access {
            Ok(_) => (section.pattern.clone(), section.has_references),
            Err(_) => (Pattern::new(Path::new("/")), false),
        });
        wanted.collect()
    }

    /// Processes a message of the reader; returns whether there is a new key.
    pub fn take(&mut self, message: Message, engine: &Engine, now: Instant) -> bool {
        match message {
            Message::File(section, path, place, file) if self.is_usable(section) => {
                self.last += 1;
                let (number, name) = (self.last, (section, path));
                #[rustfmt::skip]
                let opened = Opened { number, name, place, file };
                return self.read(opened, engine, now);
            }
            Message::Bad(section, path, place, why) if self.is_usable(section) => {
                let name = (section, path);
                self.forget_late(&name);
                match place {
                    Place::Beside => self.lines.push(in_a_line(&format!(
                        "warning: not copied beside a reference: {why}"
                    ))),
                    _ => self.note_bad(name, why),
                }
            }
            Message::Gone(section, path) => {
                let name = (section, path);
                let keeps = |own: &Section| own.has_references;
                if self.sections.get(section).is_some_and(keeps) {
                    self.texts.insert(name.clone(), None);
                }
                self.forget_late(&name);
                let gone = self.files.remove(&name);
                if gone.is_some_and(|known| known.public.is_some()) {
                    self.note_leaving(now);
                }
            }
            Message::TooMany(section, is_so) => {
                if let Some(own) = self.sections.get_mut(section) {
                    own.is_full = is_so;
                }
            }
            Message::HeldUp(section, at) => {
                if let Some(own) = self.sections.get_mut(section) {
                    let is_named = |at: &PathBuf| !at.as_os_str().is_empty();
                    let whole = own.pattern.path();
                    own.held_up = at.map(|at| Some(at).filter(is_named).unwrap_or(whole.into()));
                }
            }
            _ => {}
        }
        false
    }

    fn is_usable(&self, section: usize) -> bool {
        let section = self.sections.get(section);
        section.is_some_and(|section| section.access.is_ok())
    }

    fn read(&mut self, opened: Opened, engine: &Engine, now: Instant) -> bool {
        let (number, name) = (opened.number, opened.name.clone());
        self.forget_late(&name);
        let read = match self.workers.has_room() {
            true => self.workers.run(opened, || false),
            false => {
                self.unread.insert(name.clone(), opened);
                None
            }
        };
        match read {
            Some(read) => self.take_text(read, engine, now),
            None => {
                self.late.insert(name.clone(), number);
                self.note_bad(name, UNANSWERED.to_owned());
                false
            }
        }
    }

    /// Processes files whose reading was late; returns whether there is a new key.
    pub fn take_late(&mut self, engine: &Engine, now: Instant) -> bool {
        let mut is_new = false;
        while let Some(read) = self.workers.next_late() {
            // The reader may have reported a newer file at this path meanwhile.
            let Opened { name, number, .. } = &read.0;
            if self.late.get(name) == Some(number) {
                self.forget_late(name);
                is_new |= self.take_text(read, engine, now);
            }
        }
        while self.workers.has_room()
            && let Some((_, opened)) = self.unread.pop_first()
        {
            is_new |= self.read(opened, engine, now);
        }
        is_new
    }

    /// Returns whether the reading of a file is late.
    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    fn forget_late(&mut self, name: &Name) {
        self.unread.remove(name);
        if self.late.remove(name).is_some()
            && let Some(known) = self.files.get_mut(name)
        {
            known.why = None;
            if known.public.is_none() {
                self.files.remove(name);
            }
        }
    }

    fn take_text(&mut self, (opened, mode, text): Read, engine: &Engine, now: Instant) -> bool {
        let Opened {
            name: file, place, ..
        } = opened;
        let had_key = self
            .files
            .get(&file)
            .is_some_and(|own| own.public.is_some());
        let text = match text {
            Ok(text) => text,
            Err(_) if place != Place::Key && !had_key => return false,
            Err(why) => {
                self.note_bad(file, why);
                return false;
            }
        };
        if place == Place::Beside || place == Place::MayBeKey && !had_key && !key::is_in(&text) {
            self.note_beside(file, &text);
            return false;
        }
        // The reader may report a recently changed file more than once.
        let hash = self.hasher.hash_one(&text[..]);
        let known = self.files.get(&file);
        if known.is_some_and(|known| known.hash == Some(hash) && known.why.is_none()) {
            return false;
        }
        let section = &self.sections[file.0];
        let key = Key::from_pem(&text, engine).and_then(|key| {
            match section.must_decrypt && !key.can_decrypt() {
                true => Err(format!("{} is for signatures alone", key.kind())),
                false => Ok(key),
            }
        });
        match key {
            Ok(key) => {
                let is_new = self.hold(file.clone(), key, mode, &text, now);
                if let Some(known) = self.files.get_mut(&file) {
                    known.hash = Some(hash);
                }
                is_new
            }
            Err(why) => {
                self.note_bad(file, why);
                false
            }
        }
    }

    /// Notes that a file cannot be used. Its previous key stays.
    fn note_bad(&mut self, file: Name, why: String) {
        self.files.entry(file).or_default().why = Some(in_a_line(&why));
    }

    fn note_beside(&mut self, file: Name, text: &[u8]) {
        if self.sections[file.0].has_references
            && let Some((text, public)) = public_text(text)
        {
            #[rustfmt::skip]
            let text = Text { text, public, is_key: false };
            self.texts.insert(file, Some(text));
        }
    }

    /// Holds the key of a file; returns whether it is a new one.
    fn hold(&mut self, file: Name, key: Key, mode: u32, text: &[u8], now: Instant) -> bool {
        let section = file.0;
        let public = key.public.clone();
        let kind = key.kind();
        let shown = in_a_line(&file.1.to_string_lossy());
        let is_same = |entry: &Entry| entry.section == section && entry.served.key.public == public;
        let entry = match self.entries.iter().position(is_same) {
            Some(place) if self.entries[place].gone_since.is_none() => None,
            // A key that comes back is the newest again.
            Some(place) => Some(Entry {
                gone_since: None,
                ..self.entries.remove(place)
            }),
            None => {
                let Ok(access) = self.sections[section].access.clone() else {
                    return false;
                };
                let name = self.sections[section].name.clone();
                if !self.has_room(listed_bytes(&name, &public)) {
                    let count = self.entries.len();
                    let why = format!(
                        "the daemon holds {count} keys, and no more: their list has {MOST_KEYS} \
                         keys and {} MiB at most",
                        LONGEST_LIST >> 20
                    );
                    self.note_bad(file, why);
                    return false;
                }
                let parts = parts_of(text, &public, &self.hasher);
                let parts: Vec<u64> = parts.into_iter().step_by(STEP).collect();
                self.fresh.extend(&parts);
                let (is_removed, gone_since) = (AtomicBool::new(false), None);
                #[rustfmt::skip]
                let served = Arc::new(ServedKey { name, key, access, is_removed });
                #[rustfmt::skip]
                let entry = Entry { section, served, gone_since, parts };
                Some(entry)
            }
        };
        let is_new = entry.is_some();
        if let Some(entry) = entry {
            let first = self.entries.iter().position(|own| own.section >= section);
            self.entries
                .insert(first.unwrap_or(self.entries.len()), entry);
        }
        let name = self.sections[section].name.clone();
        if self.sections[section].has_references {
            match self.reference(section, &public, text) {
                Ok(reference) => _ = self.texts.insert(file.clone(), Some(reference)),
                Err(why) => {
                    let line = format!("warning: {shown} has no reference: {why}");
                    self.lines.push(line);
                }
            }
        }
        let known = self.files.entry(file).or_default();
        known.why = None;
        known.open_mode = (mode & 0o044 != 0).then_some(mode);
        let before = known.public.replace(public.clone());
        match before {
            Some(before) if before != public => {
                self.lines.push(format!(
                    "the key {name} is renewed: {kind}, in {shown}; the one before stays for {} \
                     seconds",
                    self.grace.as_secs()
                ));
                self.note_leaving(now);
            }
            Some(_) => {}
            None => self
                .lines
                .push(format!("holds the key {name}, {kind}, in {shown}")),
        }
        is_new
    }

    fn reference(&self, section: usize, public: &[u8], text: &[u8]) -> Result<Text, String> {
        let reference = Reference {
            name: self.sections[section].name.clone(),
            socket: self.socket.clone(),
            public: public.to_vec(),
        };
        let text = make_from(text, &reference)?;
        #[rustfmt::skip]
        let text = Text { text, public: public.to_vec(), is_key: true };
        Ok(text)
    }

    /// Returns whether the list has room for one more key of `bytes` bytes. If necessary and
    /// sufficient, removes keys in their grace period, the longest gone first.
    fn has_room(&mut self, bytes: usize) -> bool {
        let stay = self.entries.iter().filter(|own| own.gone_since.is_none());
        let is_possible = fits(stay, bytes);
        while is_possible && !fits(self.entries.iter(), bytes) {
            let places = 0..self.entries.len();
            let leaving = places.filter_map(|place| Some((self.entries[place].gone_since?, place)));
            let Some((_, first)) = leaving.min() else {
                return false;
            };
            self.remove(first);
        }
        is_possible
    }

    fn remove(&mut self, place: usize) {
        let entry = self.entries.remove(place);
        entry.served.is_removed.store(true, Release);
        // A certificate may still have a part of it.
        self.past.extend(entry.parts);
        let excess = self.past.len().saturating_sub(MOST_REMOVED);
        self.past.drain(..excess);
        self.has_removed = true;
        self.lines.push(format!(
            "the key {}, {}, leaves: no file has it any more",
            entry.served.name,
            entry.served.key.kind()
        ));
    }

    /// Notes the keys that no file has any more.
    fn note_leaving(&mut self, now: Instant) {
        let files = self.files.iter();
        let there: HashSet<(usize, &[u8])> = files
            .filter_map(|((section, _), known)| Some((*section, known.public.as_deref()?)))
            .collect();
        for entry in &mut self.entries {
            let is_there = there.contains(&(entry.section, &entry.served.key.public[..]));
            entry.gone_since = match is_there {
                true => None,
                false => entry.gone_since.or(Some(now)),
            };
        }
    }

    /// Removes the keys whose grace period is over. Returns whether any key was removed since the
    /// last call.
    pub fn expire(&mut self, now: Instant) -> bool {
        // Backwards, since a removal changes the later indices.
        for place in (0..self.entries.len()).rev() {
            let left = self.entries[place].gone_since;
            if left.is_some_and(|left| now.saturating_duration_since(left) >= self.grace) {
                self.remove(place);
            }
        }
        std::mem::take(&mut self.has_removed)
    }

    /// Returns the end of the first grace period.
    pub fn next_expiry(&self) -> Option<Instant> {
        let left = self.entries.iter().filter_map(|entry| entry.gone_since);
        left.min().map(|left| left + self.grace)
    }

    /// Returns the parts of all held and removed keys.
    pub fn secrets(&self) -> Secrets {
        let parts = self.entries.iter().flat_map(|own| own.parts.iter());
        Secrets::of(parts.chain(&self.past).copied(), &self.hasher)
    }

    /// Returns the parts of new keys since the last call.
    pub fn fresh_secrets(&mut self) -> Secrets {
        Secrets::of(std::mem::take(&mut self.fresh).into_iter(), &self.hasher)
    }

    /// Returns the held keys.
    pub fn keys(&self) -> Vec<Arc<ServedKey>> {
        self.entries
            .iter()
            .map(|entry| Arc::clone(&entry.served))
            .collect()
    }
}

/// Returns whether a list of these keys has room for one more of `bytes` bytes.
fn fits<'a>(keys: impl Iterator<Item = &'a Entry>, bytes: usize) -> bool {
    let lengths: Vec<usize> = keys.map(Entry::listed_bytes).collect();
    lengths.len() < MOST_KEYS && bytes + lengths.iter().sum::<usize>() <= LONGEST_LIST
}

/// Reads a file, on a worker thread.
fn read(opened: Opened) -> Read {
    let about = opened.file.metadata();
    let mode = about.map_or(0, |about| about.mode() & 0o777);
    let text = key::text_of(&opened.file);
    (opened, mode, text)
}

#[cfg(test)]
mod tests;
