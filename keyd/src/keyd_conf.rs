//! The daemon's configuration file.
//!
//! ```text
//! # Of the daemon.
//! user = lockstep-keyd
//! rate = 5000
//!
//! [key www]
//! file = /etc/ssl/private/www.pem
//! users = www-data haproxy
//! uses = sign
//! ```
//!
//! In the place of a path, `credential:NAME` is the file of this name among the service's
//! credentials, which systemd has decrypted and keeps in memory.
//!
//! A mistake affects only its own key. An invalid line has no effect, and the key of an incomplete
//! section is not served. The daemon reports each mistake.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockstep_remote::DEFAULT_SOCKET;
use lockstep_remote::protocol::Uses;
use lockstep_remote::reference::{is_name, is_socket};

pub use crate::system::privileges::DEFAULT_USER;
use crate::system::trusted;

/// Path of the configuration, unless the command line names another one.
pub const DEFAULT_FILE: &str = "/etc/lockstep/keyd.conf";

/// Maximum length of the file, which may have thousands of sections.
const LONGEST_FILE: u64 = 16 << 20;

/// Maximum length of a key's path in bytes, as in the kernel.
const LONGEST_PATH: usize = 4095;

/// The settings of the daemon, and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Socket at which it listens, unless systemd passes it one.
    pub socket: PathBuf,
    /// User that it becomes before it serves, if it starts as root.
    pub user: String,
    /// Maximum number of processes that have places at the same time, each with a ring.
    pub max_clients: usize,
    /// Maximum number of places of one user.
    pub max_clients_per_user: usize,
    /// Number of requests of a client that may be in flight.
    pub queue: usize,
    /// Maximum number of requests per second of one user; zero for no limit.
    pub rate: u32,
    /// Time for which a key is still served after its file has gone.
    pub grace: Duration,
    /// The keys, in the order of the file.
    pub keys: Vec<KeySection>,
    /// Messages about settings that have no effect, with the numbers of their lines if known.
    pub wrong: Vec<String>,
}

/// A key, or the keys of a pattern, with their users and permitted operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySection {
    /// Name of the key in references.
    pub name: String,
    /// The PEM file of the private key, or a pattern or directory of such files.
    pub file: PathBuf,
    /// The directory for references to the keys.
    pub references: Option<PathBuf>,
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names or numbers of groups.
    pub groups: Vec<String>,
    /// The permitted operations.
    pub uses: Uses,
    /// Why this section cannot serve a key.
    pub unusable: Option<String>,
}

/// Position of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Daemon,
    /// In the section of the last key.
    Key,
    /// In an unknown section.
    Nowhere,
    /// Behind a commented header of a key: the lines may belong to that key.
    Comment,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            socket: PathBuf::from(DEFAULT_SOCKET),
            user: DEFAULT_USER.to_owned(),
            max_clients: 1024,
            max_clients_per_user: 512,
            queue: 64,
            rate: 0,
            grace: Duration::from_secs(86_400),
            keys: Vec::new(),
            wrong: Vec::new(),
        }
    }
}

impl Configuration {
    /// Maximum of `max_clients`. A client takes 133 KiB of memory by default, or 361 KiB if it may
    /// use a key of ML-DSA.
    const MOST_CLIENTS: usize = 4096;
    /// Maximum of `grace`, in seconds.
    const LONGEST_GRACE: usize = 90 * 86_400;

    /// Reads a file that nobody but root can change. An error means that the file cannot be read.
    pub fn read(path: &Path) -> Result<Configuration, String> {
        let file = trusted::open(path).map_err(|error| error.to_string())?;
        let mut text = Vec::new();
        let read = file.take(LONGEST_FILE + 1).read_to_end(&mut text);
        read.map_err(|error| error.to_string())?;
        match text.len() as u64 <= LONGEST_FILE {
            // Bytes that are not UTF-8 invalidate their own line only.
            true => Ok(Configuration::parse(&String::from_utf8_lossy(&text))),
            false => Err("the file is too long".to_owned()),
        }
    }

    /// Parses the text of a file.
    pub fn parse(text: &str) -> Configuration {
        let mut configuration = Configuration::default();
        let mut place = Place::Daemon;
        // Names of the settings in this section so far.
        let mut names: Vec<&str> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                let comment = line.trim_start_matches(['#', ';', ' ', '\t']);
                if place == Place::Key && comment.starts_with("[key ") && comment.ends_with(']') {
                    place = Place::Comment;
                }
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let name = line.split('=').next().map_or(line, str::trim);
            let read = match line.starts_with('[') {
                true => {
                    names.clear();
                    let section = configuration.section(&line[1..]);
                    place = section.as_ref().map_or(Place::Nowhere, |()| Place::Key);
                    section
                }
                false if place == Place::Nowhere => Ok(()),
                false if place == Place::Comment => {
                    Err("the header above is a comment, so this belongs to no key".to_owned())
                }
                false if names.contains(&name) => {
                    configuration.doubt(place, index + 1);
                    Err(format!("{name} is set above, too"))
                }
                false => {
                    if !line.contains('=') {
                        configuration.doubt(place, index + 1);
                    }
                    names.push(name);
                    configuration.line(place, line)
                }
            };
            if let Err(what) = read {
                let line = index + 1;
                configuration.wrong.push(format!("line {line}: {what}"));
            }
        }
        configuration.complete();
        configuration
    }

    /// Leaves out the key of the section because of this line: it repeats a setting, or has no `=`.
    /// Such a line appears where the header of another key was lost. The lines behind a lost header
    /// would otherwise give other users access to this key.
    fn doubt(&mut self, place: Place, line: usize) {
        if let Some(key) = self.keys.last_mut().filter(|_| place == Place::Key) {
            key.unusable = Some(format!(
                "line {line} makes its section doubtful, as if the header of another key were \
                 missing above it"
            ));
        }
    }

    fn line(&mut self, place: Place, line: &str) -> Result<(), String> {
        let (name, value) = line
            .split_once('=')
            .ok_or("this is neither a section nor `name = value`")?;
        let (name, value) = (name.trim(), value.trim());
        match self.keys.last_mut().filter(|_| place == Place::Key) {
            Some(key) => key.set(name, value),
            None => self.set(name, value),
        }
    }

    fn section(&mut self, header: &str) -> Result<(), String> {
        let name = header
            .strip_suffix(']')
            .and_then(|header| header.trim().strip_prefix("key "))
            .map(str::trim)
            .ok_or("a section is `[key NAME]`; this section is left out")?;
        if !is_name(name) {
            return Err(format!(
                "`{name}` cannot name a key: take up to {} letters, digits, dots, dashes and \
                 underscores; this section is left out",
                lockstep_remote::LONGEST_NAME
            ));
        }
        if self.keys.iter().any(|key| key.name == name) {
            return Err(format!(
                "there is another key `{name}` above; this section is left out"
            ));
        }
        self.keys.push(KeySection {
            name: name.to_owned(),
            ..KeySection::default()
        });
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "socket" if is_socket(value) => self.socket = PathBuf::from(value),
            "socket" => return Err("socket takes an absolute path of at most 107 bytes".into()),
            "user" => self.user = value.to_owned(),
            "max_clients" => self.max_clients = number(name, value, 1, Self::MOST_CLIENTS)?,
            "max_clients_per_user" => {
                self.max_clients_per_user = number(name, value, 1, Self::MOST_CLIENTS)?;
            }
            "queue" => {
                self.queue = number(name, value, 4, lockstep_ring::MOST_SLOTS)?;
                if !self.queue.is_power_of_two() {
                    return Err("queue takes a power of two".into());
                }
            }
            "rate" => self.rate = number(name, value, 0, 10_000_000)? as u32,
            "grace" => {
                let seconds = number(name, value, 0, Self::LONGEST_GRACE)?;
                self.grace = Duration::from_secs(seconds as u64);
            }
            _ => return Err(format!("there is no setting `{name}` of the daemon")),
        }
        Ok(())
    }

    fn complete(&mut self) {
        for key in &mut self.keys {
            let missing = if key.file.starts_with(NO_CREDENTIALS) {
                Some(
                    "its file is a credential of the service lockstep-keyd, and systemd shows this \
                     process none; a command sees it by `systemd-run --pipe --property \
                     LoadCredentialEncrypted=NAME:FILE`",
                )
            } else if !key.file.is_absolute() {
                Some("file must be the absolute path of a PEM file, or credential:NAME")
            } else if key.file.as_os_str().len() > LONGEST_PATH {
                Some("the path of its file is too long")
            } else if key.users.is_empty() && key.groups.is_empty() {
                Some("name the users or groups that may use it")
            } else if !key.uses.any() {
                Some("say what it may be used for: uses = sign")
            } else {
                None
            };
            key.unusable = key.unusable.take().or(missing.map(str::to_owned));
        }
        // Sections whose directories overlap would write the same files.
        for place in 1..self.keys.len() {
            let (before, from) = self.keys.split_at_mut(place);
            let taken = |own: &PathBuf| {
                let mut others = before.iter().filter_map(|key| key.references.as_ref());
                others.any(|other| own.starts_with(other) || other.starts_with(own))
            };
            if from[0].references.take_if(|own| taken(own)).is_some() {
                self.wrong.push(format!(
                    "the references of the key {} need a directory of their own",
                    from[0].name
                ));
            }
        }
    }
}

impl KeySection {
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let words = || {
            value
                .split([' ', '\t', ','])
                .filter(|word| !word.is_empty())
        };
        match name {
            "file" => {
                let directory = std::env::var_os("CREDENTIALS_DIRECTORY");
                self.file = match value.strip_prefix("credential:") {
                    Some(name) => credential(name, directory)?,
                    None => PathBuf::from(value),
                };
            }
            "references" if value.starts_with('/') => {
                self.references = Some(PathBuf::from(value));
            }
            "references" => return Err("references takes the path of a directory".into()),
            "users" => self.users = words().map(str::to_owned).collect(),
            "groups" => self.groups = words().map(str::to_owned).collect(),
            "uses" => {
                self.uses.sign = words().any(|word| word == "sign");
                self.uses.decrypt = words().any(|word| word == "decrypt");
                if words().any(|word| !["sign", "decrypt"].contains(&word)) {
                    return Err("uses takes sign, decrypt, or both".into());
                }
            }
            _ => {
                return Err(format!(
                    "there is no setting `{name}` of a key; settings of the daemon stand above all \
                     keys"
                ));
            }
        }
        Ok(())
    }
}

/// Stands for the directory of credentials if systemd shows none to this process.
const NO_CREDENTIALS: &str = "credential:";

/// Returns the path of a credential.
fn credential(name: &str, directory: Option<OsString>) -> Result<PathBuf, String> {
    if !is_name(name) || name.starts_with('.') {
        return Err(format!("`{name}` cannot name a credential"));
    }
    let directory = directory.unwrap_or_else(|| NO_CREDENTIALS.into());
    Ok(Path::new(&directory).join(name))
}

fn number(name: &str, value: &str, least: usize, most: usize) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{name} takes a number from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "[key a]\nfile = /a.pem\nusers = nobody\nuses = sign\n";

    #[test]
    fn a_file_is_read() {
        let text = "# The daemon.\nuser = x\nrate=5\nqueue = 16\nsocket = /run/x\n\
                    max_clients = 4096\nmax_clients_per_user = 1\n\n[key a.b]\nfile = /a b.pem\n\
                    users = u, 7\ngroups = g\nuses = sign decrypt\n[key c]\nfile = /c\n\
                    users = u\nuses = sign\n";
        let read = Configuration::parse(text);
        assert!(read.wrong.is_empty(), "{:?}", read.wrong);
        assert_eq!(read.user, "x");
        assert_eq!((read.rate, read.queue), (5, 16));
        assert_eq!((read.max_clients, read.max_clients_per_user), (4096, 1));
        assert_eq!(read.socket, PathBuf::from("/run/x"));
        let first = &read.keys[0];
        assert_eq!(
            (first.name.as_str(), &first.file),
            ("a.b", &PathBuf::from("/a b.pem"))
        );
        assert_eq!(
            (first.users.as_slice(), first.groups.as_slice()),
            (&["u".into(), "7".into()][..], &["g".into()][..])
        );
        assert!(first.uses.sign && first.uses.decrypt);
        assert!(read.keys[1].uses.sign && !read.keys[1].uses.decrypt);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = |text: &str| {
            let read = Configuration::parse(text);
            let lines = read.wrong.into_iter();
            let unusable = |key: KeySection| Some(format!("key {}: {}", key.name, key.unusable?));
            lines
                .chain(read.keys.into_iter().filter_map(unusable))
                .collect::<Vec<_>>()
                .join("\n")
        };
        for (text, expected) in [
            ("x", "line 1: this is neither"),
            ("\ncolour = 5", "line 2: there is no setting `colour`"),
            ("rate = -1", "line 1: rate takes a number"),
            ("max_clients = 4097", "line 1: max_clients takes"),
            ("queue = 48", "line 1: queue takes a power"),
            ("socket = run", "line 1: socket takes"),
            ("[keys]", "line 1: a section is"),
            ("[key a b]", "line 1: `a b` cannot name"),
            (&format!("{KEY}[key a]"), "line 5: there is another key `a`"),
            ("rate = 1\nrate=2", "line 2: rate is set above"),
            (&format!("{KEY}users = u"), "line 5: users is set above"),
            (
                &format!("{KEY}rate = 1"),
                "line 5: there is no setting `rate` of a key;",
            ),
            (&KEY.replace("sign", "sing"), "line 4: uses takes"),
            (&KEY.replace("/a", "a"), "key a: file must be"),
            (&KEY.replace("/a", &"/a".repeat(2048)), "key a: the path of"),
            (&format!("{KEY}references = x"), "line 5: references takes"),
            (
                &format!(
                    "{KEY}references = /x\n{}references = /x/y",
                    KEY.replace("key a", "key b")
                ),
                "the references of the key b need",
            ),
            ("grace = -1", "line 1: grace takes a number"),
            (&KEY.replace("nobody", ""), "key a: name the users"),
            (&KEY.replace("sign", ""), "key a: say what"),
        ] {
            assert!(wrong(text).starts_with(expected), "{text}: {}", wrong(text));
        }
        assert_eq!(wrong(KEY), "");
    }

    #[test]
    fn a_mistake_concerns_its_own_line_or_section() {
        let text = "colour = 5\nrate = x\nqueue = 16\nthis\n[key a]\nfile = /a\nusers = u\n\
                    uses = sign sing\nuses = decrypt\n[keys]\nfile = /k\n[key a]\nfile = /b\n\
                    users = v\n[key b c]\nfile = /c\n[key d]\nfile = /d\nusers = u\n\
                    mode = 7\nuses = sign\n[key e]\nusers = u\nuses = sign\n";
        let read = Configuration::parse(text);
        let expected = [1, 2, 4, 8, 9, 10, 12, 15, 20].map(|line| format!("line {line}: "));
        assert_eq!(read.wrong.len(), expected.len());
        for (wrong, expected) in read.wrong.iter().zip(expected) {
            assert!(wrong.starts_with(&expected), "{wrong}");
        }
        assert_eq!((read.queue, read.rate), (16, 0));
        let keys = read.keys.iter().map(|key| {
            let file = key.file.to_string_lossy().into_owned();
            (key.name.as_str(), file, key.uses.sign, key.uses.decrypt)
        });
        // Lines of a section that is left out belong to no other section.
        let expected = [("a", "/a"), ("d", "/d"), ("e", "")];
        let expected = expected.map(|(name, file)| (name, file.to_owned(), true, false));
        assert_eq!(keys.collect::<Vec<_>>(), expected);
        let unusable = read.keys.iter().map(|key| key.unusable.is_some());
        // Two values for `uses` contradict each other.
        assert_eq!(unusable.collect::<Vec<_>>(), [true, false, true]);
    }

    /// Lines below a lost header give nobody access to the key above.
    #[test]
    fn a_lost_header_gives_no_access_to_the_key_before() {
        let next = "file = /b\ngroups = www\nuses = sign\n";
        let last_first = "groups = www\nfile = /b\nuses = sign\n";
        // Lines behind a commented header never belong to the key before it.
        let (both, last) = (&["a", "c"][..], &["c"][..]);
        for (header, rest, served) in [
            ("#[key b]", next, both),
            ("# [key b]", last_first, both),
            (";[key b]", "groups = www\n", both),
            ("key b]", next, last),
            ("key b]", "groups = www\n", last),
            ("", last_first, last),
        ] {
            let text = format!("{KEY}{header}\n{rest}[key c]\nfile = /c\nusers = u\nuses = sign\n");
            let read = Configuration::parse(&text);
            let usable = read.keys.iter().filter(|key| key.unusable.is_none());
            let names = usable.map(|key| key.name.as_str());
            assert_eq!(names.collect::<Vec<_>>(), served, "{text}");
            let www = |key: &KeySection| key.groups.contains(&"www".to_owned());
            let key = &read.keys[0];
            assert!(!www(key) || key.unusable.is_some(), "{text}");
            assert!(!read.wrong.is_empty(), "{text}");
        }
        // Other comments, and a commented header above all keys, hide no line.
        let text = format!("# [key x]\nuser = x\n{KEY}");
        let text = text.replace("users", "# [key x\n# y]\n# other\nusers");
        let read = Configuration::parse(&text);
        assert_eq!((&*read.user, read.wrong.as_slice()), ("x", &[][..]));
        assert!(read.keys[0].unusable.is_none(), "{text}");
        // Lines below such a header are not settings of the daemon, either.
        let read = Configuration::parse(&format!("{KEY}#[key b]\nqueue = 8\n"));
        assert_eq!((read.queue, read.wrong.len()), (64, 1));
        // The message names the line.
        for (rest, expected) in [("key b]", "line 5 makes"), ("\nusers = v", "line 6 makes")] {
            let read = Configuration::parse(&format!("{KEY}{rest}\n"));
            let why = read.keys[0].unusable.as_deref();
            assert!(why.is_some_and(|why| why.starts_with(expected)), "{why:?}");
        }
    }

    #[test]
    fn a_credential_is_a_file_in_the_directory_that_systemd_shows() {
        let shown = || Some("/run/credentials/lockstep-keyd.service".into());
        let file = Path::new("/run/credentials/lockstep-keyd.service/www.key");
        assert_eq!(credential("www.key", shown()).as_deref(), Ok(file));
        for bad in ["", ".", "..", "../a", "a/b", "a b", ".a"] {
            assert!(credential(bad, shown()).is_err(), "{bad}");
        }
        let unseen = credential("www", None).expect("a name");
        let mut configuration = Configuration::default();
        configuration.keys.push(KeySection {
            file: unseen,
            ..KeySection::default()
        });
        configuration.complete();
        let why = configuration.keys[0].unusable.as_deref();
        assert!(why.is_some_and(|why| why.contains("credential")), "{why:?}");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read_in_part() {
        let place = lockstep_testkit::TempDir::new("too-long");
        let path = place.join("keyd.conf");
        // The section is at the end.
        let comment = LONGEST_FILE as usize - KEY.len() - 1;
        let text = format!("{}\n{KEY}", "#".repeat(comment));
        std::fs::write(&path, &text).expect("a file");
        let read = Configuration::read(&path).expect("as long as a file may be");
        assert_eq!((read.keys.len(), read.wrong.len()), (1, 0));
        std::fs::write(&path, format!("#{text}")).expect("a file");
        let unreadable = Configuration::read(&path).expect_err("a byte too long");
        assert!(unreadable.to_string().contains("too long"), "{unreadable}");
    }

    #[test]
    fn what_is_not_text_concerns_its_own_line() {
        let place = lockstep_testkit::TempDir::new("latin");
        let path = place.join("keyd.conf");
        let text = [b"# M\xfcller\n", KEY.as_bytes(), b"x\xff = 1\n"].concat();
        std::fs::write(&path, text).expect("a file");
        let read = Configuration::read(&path).expect("a file that can be read");
        assert_eq!((read.keys.len(), read.wrong.len()), (1, 1));
        let unreadable = Configuration::read(&place.join("none")).expect_err("no file");
        assert!(
            unreadable.to_string().contains("No such file"),
            "{unreadable}"
        );
    }
}
