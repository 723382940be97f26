//! The keys that the daemon holds, and how they change while it runs.
//!
//! The [reader] tells which files there are. A key is held for as long as a file of
//! its section has it. Then it stays for a while, since servers use it that have not read the new
//! one yet. A file that cannot be used changes nothing: it may be half written.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
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

use crate::clients::client::Held;
use crate::keyd_conf::{Configuration, KeySection};
use crate::keys::access::{Access, Accounts};
use crate::keys::files::{Pattern, Place, in_a_line};
use crate::keys::helpers::Helpers;
use crate::keys::key::{self, Key};
use crate::keys::reader::{self, News};
use crate::keys::stand_in::{Secrets, from_text, parts_of, public_text};

/// How many keys the daemon holds, those that leave included. The list of all fits into a message.
const MOST_KEYS: usize = 6000;
/// Each such part of a key is looked for in texts that everybody may read: no scalar of 32 bytes is
/// without one.
const EACH: usize = 8;
/// How many parts of keys that have left are remembered: those of 900 keys of RSA-4096, or 40,000
/// of P-256.
const MOST_LEFT: usize = 1 << 18;
/// Why a file or a section stays as it was.
const UNANSWERED: &str = "its file system does not answer, so no new key there is seen; when it \
                          answers, the key is served";

/// What the sections of a configuration give at this moment.
pub struct Keyring {
    sections: Vec<Section>,
    files: BTreeMap<Name, Known>,
    helpers: Helpers<Opened, Read>,
    /// Files whose reading is late, with the number of that.
    late: BTreeMap<Name, usize>,
    /// Files that wait until less is late.
    unread: BTreeMap<Name, Opened>,
    /// The number of the last reading.
    last: usize,
    /// In the order of their sections; of each, the newest first.
    held: Vec<Entry>,
    /// The parts of keys that nobody has asked for yet.
    fresh: Vec<u64>,
    /// The parts of keys that have left, the first ones first.
    past: Vec<u64>,
    /// One has left since somebody asked.
    has_parted: bool,
    /// Of texts, with a secret of this process.
    hasher: RandomState,
    grace: Duration,
    /// Where the daemon listens, if not where all expect it.
    socket: Option<PathBuf>,
    /// What is there to write where references are wanted: `None` for a file that is gone.
    pub texts: BTreeMap<Name, Option<Text>>,
    /// What happened, for the log.
    pub lines: Vec<String>,
}

/// A file of a section.
type Name = (usize, PathBuf);

/// A file that is to be read.
struct Opened {
    number: usize,
    name: Name,
    place: Place,
    file: File,
}

/// One that was read: its mode, and its text.
type Read = (Opened, u32, Result<Zeroizing<Vec<u8>>, String>);

struct Section {
    name: String,
    pattern: Pattern,
    /// Who may use its keys, or why nobody may.
    access: Result<Access, String>,
    unknown: Vec<String>,
    must_decrypt: bool,
    has_references: bool,
    is_full: bool,
    /// The path that does not answer.
    held_up: Option<PathBuf>,
}

/// A file that was told of.
#[derive(Default)]
struct Known {
    /// The public half of the key that it is known to hold.
    public: Option<Vec<u8>>,
    /// Of the text that had this key.
    hash: Option<u64>,
    /// Why it cannot be used as it is now.
    why: Option<String>,
    /// Its mode, if it has a key and not only its owner can read it.
    open_mode: Option<u32>,
}

/// A key.
struct Entry {
    section: usize,
    held: Arc<Held>,
    /// Since when no file has it.
    left: Option<Instant>,
    /// Some of its [`Secrets`].
    parts: Vec<u64>,
}

impl Entry {
    fn listed_bytes(&self) -> usize {
        listed_bytes(&self.held.name, &self.held.key.public)
    }
}

/// What stands in a directory of references for a file.
pub struct Text {
    /// The contents.
    pub text: String,
    /// The public half of the key, or of the first certificate.
    pub public: Vec<u8>,
    /// Whether it is that of a key.
    pub is_key: bool,
}

/// A key that is not served, or a file that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeftOut {
    /// What references call it.
    pub name: String,
    /// Why.
    pub why: String,
    /// The key is served that the file had before.
    pub is_kept: bool,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut { name, why, is_kept } = self;
        match is_kept {
            true => write!(f, "the key {name} is served as it was before: {why}"),
            false => write!(f, "the key {name} is left out: {why}"),
        }
    }
}

/// A file with a key that can be served.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What references call the key.
    pub name: String,
    /// What kind of key it is, for people.
    pub kind: String,
    /// Its public half.
    pub public: Vec<u8>,
    /// The file.
    pub file: PathBuf,
    /// The mode of the file, if not only its owner can read it.
    pub open_mode: Option<u32>,
}

impl Keyring {
    /// Of a configuration, without any file yet. A file may take so long to be read.
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
            helpers: Helpers::new(patience, read),
            late: BTreeMap::new(),
            unread: BTreeMap::new(),
            last: 0,
            held: Vec::new(),
            fresh: Vec::new(),
            past: Vec::new(),
            has_parted: false,
            hasher: RandomState::new(),
            grace: configuration.grace,
            socket: socket.filter(|own| own != Path::new(DEFAULT_SOCKET)),
            texts: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// The files that the reader has to look for. A section that nobody may use has none.
    pub fn wanted(&self) -> Vec<reader::Section> {
        let wanted = self.sections.iter().map(|section| match section.access {
            Ok(_) => (section.pattern.clone(), section.has_references),
            Err(_) => (Pattern::new(Path::new("/")), false),
        });
        wanted.collect()
    }

    /// Takes what the reader tells; whether other keys are held than before.
    pub fn take(&mut self, news: News, engine: &Engine, now: Instant) -> bool {
        match news {
            News::File(section, path, place, file) if self.is_usable(section) => {
                self.last += 1;
                let (number, name) = (self.last, (section, path));
                #[rustfmt::skip]
                let opened = Opened { number, name, place, file };
                return self.read(opened, engine, now);
            }
            News::Bad(section, path, place, why) if self.is_usable(section) => {
                let name = (section, path);
                self.forget_late(&name);
                match place {
                    Place::Beside => self.lines.push(in_a_line(&format!(
                        "warning: not copied beside a reference: {why}"
                    ))),
                    _ => self.note_bad(name, why),
                }
            }
            News::Gone(section, path) => {
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
            News::TooMany(section, is_so) => {
                if let Some(own) = self.sections.get_mut(section) {
                    own.is_full = is_so;
                }
            }
            News::HeldUp(section, at) => {
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
        let read = match self.helpers.has_room() {
            true => self.helpers.run(opened, || false),
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

    /// Takes files whose reading was late; whether other keys are held than before.
    pub fn take_late(&mut self, engine: &Engine, now: Instant) -> bool {
        let mut is_new = false;
        while let Some(read) = self.helpers.next_late() {
            // Another file may have come in its place.
            let Opened { name, number, .. } = &read.0;
            if self.late.get(name) == Some(number) {
                self.forget_late(name);
                is_new |= self.take_text(read, engine, now);
            }
        }
        while self.helpers.has_room()
            && let Some((_, opened)) = self.unread.pop_first()
        {
            is_new |= self.read(opened, engine, now);
        }
        is_new
    }

    /// Whether the reading of a file is late.
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
        // A file is read again that has changed a moment ago.
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

    /// Notes that a file cannot be used. A key that it had before stays.
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

    /// Holds the key of a file; whether it was not held before.
    fn hold(&mut self, file: Name, key: Key, mode: u32, text: &[u8], now: Instant) -> bool {
        let section = file.0;
        let public = key.public.clone();
        let kind = key.kind();
        let shown = in_a_line(&file.1.to_string_lossy());
        let is_same = |entry: &Entry| entry.section == section && entry.held.key.public == public;
        let entry = match self.held.iter().position(is_same) {
            Some(place) if self.held[place].left.is_none() => None,
            // A key that comes back is the newest again.
            Some(place) => Some(Entry {
                left: None,
                ..self.held.remove(place)
            }),
            None => {
                let Ok(access) = self.sections[section].access.clone() else {
                    return false;
                };
                let name = self.sections[section].name.clone();
                if !self.has_room(listed_bytes(&name, &public)) {
                    let count = self.held.len();
                    let why = format!(
                        "the daemon holds {count} keys, and no more: their list has {MOST_KEYS} \
                         keys and {} MiB at most",
                        LONGEST_LIST >> 20
                    );
                    self.note_bad(file, why);
                    return false;
                }
                let parts = parts_of(text, &public, &self.hasher);
                let parts: Vec<u64> = parts.into_iter().step_by(EACH).collect();
                self.fresh.extend(&parts);
                let (has_left, left) = (AtomicBool::new(false), None);
                #[rustfmt::skip]
                let held = Arc::new(Held { name, key, access, has_left });
                #[rustfmt::skip]
                let entry = Entry { section, held, left, parts };
                Some(entry)
            }
        };
        let is_new = entry.is_some();
        if let Some(entry) = entry {
            let first = self.held.iter().position(|own| own.section >= section);
            self.held.insert(first.unwrap_or(self.held.len()), entry);
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
        let text = from_text(text, &reference)?;
        #[rustfmt::skip]
        let text = Text { text, public: public.to_vec(), is_key: true };
        Ok(text)
    }

    /// Whether there is room for one more key, which takes so many bytes of a list. Those that have
    /// left first make it, if that is enough.
    fn has_room(&mut self, bytes: usize) -> bool {
        let stay = self.held.iter().filter(|own| own.left.is_none());
        let is_possible = fits(stay, bytes);
        while is_possible && !fits(self.held.iter(), bytes) {
            let places = 0..self.held.len();
            let leaving = places.filter_map(|place| Some((self.held[place].left?, place)));
            let Some((_, first)) = leaving.min() else {
                return false;
            };
            self.part_with(first);
        }
        is_possible
    }

    fn part_with(&mut self, place: usize) {
        let entry = self.held.remove(place);
        entry.held.has_left.store(true, Release);
        // A certificate may still have a part of it.
        self.past.extend(entry.parts);
        let excess = self.past.len().saturating_sub(MOST_LEFT);
        self.past.drain(..excess);
        self.has_parted = true;
        self.lines.push(format!(
            "the key {}, {}, leaves: no file has it any more",
            entry.held.name,
            entry.held.key.kind()
        ));
    }

    /// Notes which keys no file has any more.
    fn note_leaving(&mut self, now: Instant) {
        let files = self.files.iter();
        let there: HashSet<(usize, &[u8])> = files
            .filter_map(|((section, _), known)| Some((*section, known.public.as_deref()?)))
            .collect();
        for entry in &mut self.held {
            let is_there = there.contains(&(entry.section, &entry.held.key.public[..]));
            entry.left = match is_there {
                true => None,
                false => entry.left.or(Some(now)),
            };
        }
    }

    /// Parts with the keys whose time is over; whether there were any, or one has made room.
    pub fn expire(&mut self, now: Instant) -> bool {
        // From the end, as places behind change.
        for place in (0..self.held.len()).rev() {
            let left = self.held[place].left;
            if left.is_some_and(|left| now.saturating_duration_since(left) >= self.grace) {
                self.part_with(place);
            }
        }
        std::mem::take(&mut self.has_parted)
    }

    /// When the time of the next key is over.
    pub fn next_end(&self) -> Option<Instant> {
        let left = self.held.iter().filter_map(|entry| entry.left);
        left.min().map(|left| left + self.grace)
    }

    /// The parts of all keys that are held, and of those that have left.
    pub fn secrets(&self) -> Secrets {
        let parts = self.held.iter().flat_map(|own| own.parts.iter());
        Secrets::of(parts.chain(&self.past).copied(), &self.hasher)
    }

    /// The parts of the keys that have come since somebody asked.
    pub fn fresh_secrets(&mut self) -> Secrets {
        Secrets::of(std::mem::take(&mut self.fresh).into_iter(), &self.hasher)
    }

    /// The keys that are held.
    pub fn keys(&self) -> Vec<Arc<Held>> {
        self.held
            .iter()
            .map(|entry| Arc::clone(&entry.held))
            .collect()
    }

    /// The keys that files have, in the order of their sections.
    pub fn served(&self) -> Vec<Loaded> {
        let files = self.files.iter().filter_map(|((section, path), known)| {
            let public = known.public.as_ref()?;
            let mut held = self.held.iter();
            let own = held.find(|own| own.section == *section && own.held.key.public == *public)?;
            Some(Loaded {
                name: own.held.name.clone(),
                kind: own.held.key.kind(),
                public: public.clone(),
                file: path.clone(),
                open_mode: known.open_mode,
            })
        });
        files.collect()
    }

    /// All that cannot be served, in the order of the sections.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let mut left_out = Vec::new();
        for (number, section) in self.sections.iter().enumerate() {
            let mut note = |why, is_kept| {
                let name = section.name.clone();
                #[rustfmt::skip]
                left_out.push(LeftOut { name, why, is_kept });
            };
            let path = section.pattern.path().display();
            if let Err(why) = &section.access {
                note(why.clone(), false);
                continue;
            }
            let start = (number, PathBuf::new());
            let files = self.files.range(start..);
            let mut files = files.take_while(|((own, _), _)| *own == number).peekable();
            if files.peek().is_none() && section.held_up.is_none() {
                let why = "No such file with a private key";
                note(format!("{path}: {why}"), false);
            }
            let (mut has_key, mut is_kept) = (false, false);
            for ((_, path), known) in files {
                has_key |= known.public.is_some();
                // One that is held up before its first look is not served.
                let at = section.held_up.as_deref();
                let is_there = at.is_some_and(|at| path.starts_with(at));
                is_kept |= known.public.is_some() && is_there;
                if let Some(why) = &known.why {
                    let path = in_a_line(&path.to_string_lossy());
                    note(format!("{path}: {why}"), known.public.is_some());
                }
            }
            if section.is_full {
                let why = "it has more than 6000 files or 20000 names, and some are not looked at";
                note(format!("{path}: {why}"), has_key);
            }
            if let Some(at) = &section.held_up {
                let at = in_a_line(&at.to_string_lossy());
                let why = "; files of the section that come after it wait for it";
                note(format!("{at}: {UNANSWERED}{why}"), is_kept);
            }
        }
        left_out
    }

    /// Paths that cannot be looked at, or read.
    pub fn unanswered(&self) -> Vec<PathBuf> {
        let sections = self.sections.iter();
        let sections = sections.filter_map(|section| section.held_up.clone());
        let files = self.late.keys().map(|(_, path)| path.clone());
        sections.chain(files).collect()
    }

    /// Returns what is unknown of the accounts that may use keys, in a line each.
    pub fn unknown(&self) -> Vec<String> {
        let usable = self.sections.iter().filter(|own| own.access.is_ok());
        let unknown = usable.flat_map(|own| own.unknown.iter().map(|what| (&own.name, what)));
        let lines = unknown.map(|(name, what)| format!("the key {name} is served, but {what}"));
        lines.collect()
    }
}

/// Whether a list may have these keys, and one more that takes so many bytes.
fn fits<'a>(keys: impl Iterator<Item = &'a Entry>, bytes: usize) -> bool {
    let lengths: Vec<usize> = keys.map(Entry::listed_bytes).collect();
    lengths.len() < MOST_KEYS && bytes + lengths.iter().sum::<usize>() <= LONGEST_LIST
}

/// Reads a file, in a thread of its own.
fn read(opened: Opened) -> Read {
    let about = opened.file.metadata();
    let mode = about.map_or(0, |about| about.mode() & 0o777);
    let text = key::text_of(&opened.file);
    (opened, mode, text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering::Acquire;
    use std::sync::mpsc::channel;

    use lockstep_engine::Config;
    use lockstep_testkit::{TempDir, command};

    use super::*;
    use crate::keys::helpers::SHORT;

    struct Fixture {
        place: TempDir,
        engine: Engine,
        keyring: Keyring,
        start: Instant,
    }

    impl Fixture {
        /// A section for all keys in a directory, and its settings.
        fn new(settings: &str) -> Fixture {
            let place = TempDir::new("keyring");
            let text = format!(
                "grace = 100\n[key own]\nfile = {}\nusers = 7\nuses = sign\n{settings}",
                place.display()
            );
            let configuration = Configuration::parse(&text);
            assert!(configuration.wrong.is_empty(), "{:?}", configuration.wrong);
            Fixture {
                keyring: Keyring::new(&configuration, &Accounts::of_system(), SHORT),
                place,
                engine: crate::engine(Config::default()),
                start: Instant::now(),
            }
        }

        fn make(&self, name: &str) -> String {
            let file = self.place.join(name);
            let words = ["genpkey", "-algorithm", "ed25519", "-out"];
            let made = command("openssl", &words).arg(&file).output();
            assert!(made.is_ok_and(|made| made.status.success()));
            fs::read_to_string(file).expect("a file")
        }

        /// Tells of a file as it is now, so many seconds after the start.
        fn tell(&mut self, name: &str, later: u64) -> bool {
            let path = self.place.join(name);
            let now = self.start + Duration::from_secs(later);
            let news = match File::open(&path) {
                Ok(file) => News::File(0, path, Place::MayBeKey, file),
                Err(_) => News::Gone(0, path),
            };
            self.keyring.take(news, &self.engine, now)
        }

        /// How many keys are held, and what is left out.
        fn state(&self) -> (usize, Vec<String>) {
            let left_out = self.keyring.left_out();
            let left_out = left_out.iter().map(LeftOut::to_string);
            (self.keyring.keys().len(), left_out.collect())
        }
    }

    #[test]
    fn a_renewed_key_and_the_one_before_are_held_side_by_side_for_a_while() {
        let mut fixture = Fixture::new("");
        let old = fixture.make("key");
        assert!(fixture.tell("key", 0) && !fixture.tell("key", 1));
        fixture.make("key");
        assert!(fixture.tell("key", 10));
        let newest = fixture.keyring.keys();
        assert_eq!((newest.len(), fixture.state()), (2, (2, vec![])));
        // The one that was there before has not left at once, and leaves after its time.
        let at = |later| fixture.start + Duration::from_secs(later);
        assert_eq!(fixture.keyring.next_end(), Some(at(110)));
        let ends = at(110);
        assert!(!fixture.keyring.expire(ends - Duration::from_nanos(1)));
        // It comes back meanwhile.
        fs::write(fixture.place.join("copy"), &old).expect("a file");
        // It is offered as the newest.
        assert!(fixture.tell("copy", 50));
        assert_eq!(fixture.keyring.keys()[1].key.public, newest[0].key.public);
        assert!(!fixture.keyring.expire(ends) && fixture.keyring.next_end().is_none());
        fs::remove_file(fixture.place.join("copy")).expect("a file");
        assert!(!fixture.tell("copy", 200));
        let ends = fixture.start + Duration::from_secs(300);
        assert!(fixture.keyring.expire(ends));
        assert_eq!(fixture.state(), (1, vec![]));
        assert!(newest[1].has_left.load(Acquire) || newest[0].has_left.load(Acquire));
        // It stays secret.
        let leak = old.replace("PRIVATE KEY", "CERTIFICATE");
        assert!(fixture.keyring.secrets().are_in(leak.as_bytes()));
        let lines = fixture.keyring.lines.join("\n");
        for line in ["holds the key own, Ed25519", "is renewed", "leaves"] {
            assert!(lines.contains(line), "{lines}");
        }
        assert!(!lines.contains("PRIVATE"), "{lines}");
    }

    /// As while somebody writes it.
    #[test]
    fn a_bad_file_changes_nothing_and_is_named() {
        let mut fixture = Fixture::new("");
        let text = fixture.make("key");
        fixture.make("other");
        assert!(fixture.tell("key", 0) && fixture.tell("other", 0));
        for (length, why) in [
            (0, "there is no private key"),
            (20, "there is no private key"),
            (60, "has no end"),
        ] {
            fs::write(fixture.place.join("key"), &text[..length]).expect("a file");
            assert!(!fixture.tell("key", 1));
            let (count, left_out) = fixture.state();
            assert!(count == 2 && left_out.len() == 1, "{left_out:?}");
            let words = ["own is served as it was before", why];
            assert!(
                words.iter().all(|word| left_out[0].contains(word)),
                "{left_out:?}"
            );
        }
        assert!(fixture.keyring.next_end().is_none());
        let path = fixture.place.join("key");
        let untrusted = News::Bad(0, path.clone(), Place::MayBeKey, "others can".to_owned());
        assert!(
            !fixture
                .keyring
                .take(untrusted, &fixture.engine, fixture.start)
        );
        assert!(fixture.state().1[0].ends_with("key: others can"));
        fs::write(path, &text).expect("a file");
        assert!(!fixture.tell("key", 2));
        assert_eq!(fixture.state(), (2, vec![]));
        // One that never was a key, in a directory, is no mistake; in the place of one it is.
        fs::write(fixture.place.join("README"), "x").expect("a file");
        assert!(!fixture.tell("README", 3));
        assert_eq!(fixture.state(), (2, vec![]));
    }

    /// A file system may open a file and not read it.
    #[test]
    fn a_file_that_is_not_read_in_time_holds_up_no_other_and_comes_later() {
        let mut fixture = Fixture::new("");
        fixture.make("key");
        fixture.make("other");
        assert!(fixture.tell("key", 0));
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        fixture.keyring.helpers = Helpers::new(SHORT, move |opened: Opened| {
            if opened.name.1.ends_with("key") {
                let _ = held.lock().expect("one thread").recv();
            }
            read(opened)
        });
        fixture.make("key");
        assert!(!fixture.tell("key", 1) && fixture.keyring.has_late());
        assert!(fixture.tell("other", 1));
        let (count, left_out) = fixture.state();
        let told = left_out.join(" ");
        assert!(
            count == 2 && told.contains("is served as it was before"),
            "{told}"
        );
        assert!(told.ends_with(UNANSWERED), "{told}");
        let path = fixture.place.join("key");
        assert_eq!(fixture.keyring.unanswered(), [path]);
        drop(release);
        while !fixture.keyring.take_late(&fixture.engine, fixture.start) {
            std::thread::yield_now();
        }
        assert_eq!(fixture.state(), (3, vec![]));
        assert!(!fixture.keyring.has_late());
    }

    #[test]
    fn the_key_that_left_first_makes_room() {
        let mut fixture = Fixture::new("");
        for number in 0..3 {
            fixture.make("key");
            assert!(fixture.tell("key", number));
        }
        let most = |fixture: &mut Fixture| {
            let held = fixture.keyring.keys();
            while fixture.keyring.held.len() < MOST_KEYS {
                fixture.keyring.held.push(Entry {
                    section: 1,
                    held: Arc::clone(&held[0]),
                    left: None,
                    parts: Vec::new(),
                });
            }
        };
        most(&mut fixture);
        let first = fixture.keyring.keys().remove(2);
        fixture.make("key");
        assert!(fixture.tell("key", 5));
        assert!(first.has_left.load(Acquire));
        assert_eq!(fixture.keyring.held.len(), MOST_KEYS);
        // Where none leaves, one that comes is left out.
        fixture
            .keyring
            .held
            .iter_mut()
            .for_each(|entry| entry.left = None);
        fixture.make("more");
        assert!(!fixture.tell("more", 6));
        assert!(fixture.state().1[0].contains("6000 keys, and no more"));
    }

    /// Those of ML-DSA-87 have public halves of 2,614 bytes.
    #[test]
    fn the_list_of_all_keys_fits_into_a_message() {
        let mut fixture = Fixture::new("");
        fixture.make("key");
        assert!(fixture.tell("key", 0));
        let own = listed_bytes("own", &fixture.keyring.keys()[0].key.public);
        let access = fixture.keyring.keys()[0].access.clone();
        let mut hold = |length: usize| {
            let held = Held {
                name: "own".to_owned(),
                key: Key {
                    public: vec![7; length],
                    ..crate::clients::client::tests::ed25519()
                },
                access: access.clone(),
                has_left: AtomicBool::new(false),
            };
            fixture.keyring.held.push(Entry {
                section: 0,
                held: Arc::new(held),
                left: None,
                parts: Vec::new(),
            });
            fixture.keyring.held.iter().map(Entry::listed_bytes).sum()
        };
        let mut filled: usize = 0;
        while filled + own + 15 + 2 * 2629 < LONGEST_LIST {
            filled = hold(2614);
        }
        // A byte too much for one more.
        let filled = hold(LONGEST_LIST - filled - own - 14);
        assert_eq!(filled, LONGEST_LIST - own + 1);
        fixture.make("more");
        assert!(!fixture.tell("more", 1));
        let why = &fixture.state().1[0];
        assert!(
            why.contains("keys, and no more") && why.ends_with("4 MiB at most"),
            "{why}"
        );
        // Two that are leaving make room, the first one first, and no more of them than needed.
        let held = &mut fixture.keyring.held;
        for (place, later) in [(3, 2), (8, 1), (5, 3)] {
            held[place].left = Some(fixture.start + Duration::from_secs(later));
        }
        let count = held.len();
        let gone = [3, 8].map(|place| Arc::clone(&held[place].held));
        assert!(fixture.keyring.has_room(2629 + own));
        assert!(gone.iter().all(|own| own.has_left.load(Acquire)));
        assert_eq!(fixture.keyring.held.len(), count - 2);
        assert!(fixture.tell("more", 2));
        let mut offers = crate::clients::client::Offers::new(fixture.keyring.keys());
        let peer = crate::keys::access::tests::peer(7, 7);
        let offer = offers.of(peer, lockstep_remote::protocol::VERSION);
        assert_eq!(offer.map(|offer| offer.count()), Ok(count - 1));
        // Where they would not be enough, they stay.
        assert!(!fixture.keyring.has_room(LONGEST_LIST));
        assert_eq!(fixture.keyring.held.len(), count - 1);
    }

    #[test]
    fn what_is_to_be_written_holds_no_key() {
        let mut fixture = Fixture::new("references = /nowhere/else\n");
        let text = fixture.make("key");
        let make = "req -x509 -key key -subj /CN=x -out cert".split(' ');
        let mut openssl = command("openssl", &make.collect::<Vec<_>>());
        let made = openssl.current_dir(&*fixture.place).output();
        assert!(made.is_ok_and(|made| made.status.success()));
        for name in ["key", "cert"] {
            fixture.tell(name, 0);
        }
        let texts: Vec<_> = fixture.keyring.texts.values().flatten().collect();
        let [cert, key] = &texts[..] else {
            panic!("two texts");
        };
        assert!(key.is_key && !cert.is_key && key.public == cert.public);
        let line = text.lines().nth(1).expect("the key");
        assert!(!key.text.contains(line) && key.text.contains("LOCKSTEP KEY REFERENCE"));
        assert!(cert.text.starts_with("-----BEGIN CERTIFICATE"));
    }
}
