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

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use lockstep_remote::DEFAULT_SOCKET;
use lockstep_remote::protocol::Uses;
use lockstep_remote::reference::{is_name, is_socket};

/// Where the configuration lies unless the command line says otherwise.
pub const DEFAULT_FILE: &str = "/etc/lockstep/keyd.conf";

/// What the daemon does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Where it listens, unless systemd passes it a socket.
    pub socket: PathBuf,
    /// Whom it runs as once it has read the keys, if it starts as root.
    pub user: String,
    /// How many processes may have requests at a time: how many rings there may be.
    pub max_clients: usize,
    /// How many of them one user may have.
    pub max_clients_per_user: usize,
    /// How many requests of a client may wait.
    pub queue: usize,
    /// How many requests a second it serves for one user; zero for any number.
    pub rate: u32,
    /// Its keys, in the order of the file.
    pub keys: Vec<KeySection>,
}

/// A key, and who may use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySection {
    /// What references call it.
    pub name: String,
    /// The PEM file of the private key.
    pub file: PathBuf,
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names or numbers of groups.
    pub groups: Vec<String>,
    /// For what.
    pub uses: Uses,
}

/// What is wrong with a configuration, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Wrong {}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            socket: PathBuf::from(DEFAULT_SOCKET),
            user: "lockstep-keyd".to_owned(),
            max_clients: 1024,
            max_clients_per_user: 512,
            queue: 64,
            rate: 0,
            keys: Vec::new(),
        }
    }
}

impl Configuration {
    /// The most clients: each has 135 KiB of memory by default.
    const MOST_CLIENTS: usize = 4096;

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Configuration, Wrong> {
        let text = fs::read_to_string(path).map_err(|error| Wrong {
            line: None,
            what: error.to_string(),
        })?;
        Configuration::parse(&text)
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Configuration, Wrong> {
        let mut configuration = Configuration::default();
        // The settings that stand in the section so far.
        let mut names: Vec<&str> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let name = line.split('=').next().map_or(line, str::trim);
            let read = match line.starts_with('[') {
                true => {
                    names.clear();
                    configuration.section(&line[1..])
                }
                false if names.contains(&name) => Err(format!("{name} is set above, too")),
                false => {
                    names.push(name);
                    configuration.line(line)
                }
            };
            read.map_err(|what| Wrong {
                line: Some(index + 1),
                what,
            })?;
        }
        configuration.complete()
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line
            .split_once('=')
            .ok_or("this is neither a section nor `name = value`")?;
        let (name, value) = (name.trim(), value.trim());
        match self.keys.last_mut() {
            Some(key) => key.set(name, value),
            None => self.set(name, value),
        }
    }

    fn section(&mut self, header: &str) -> Result<(), String> {
        let name = header
            .strip_suffix(']')
            .and_then(|header| header.trim().strip_prefix("key "))
            .map(str::trim)
            .ok_or("a section is `[key NAME]`")?;
        if !is_name(name) {
            return Err(format!(
                "`{name}` cannot name a key: take up to {} letters, digits, dots, dashes and \
                 underscores",
                lockstep_remote::LONGEST_NAME
            ));
        }
        if self.keys.iter().any(|key| key.name == name) {
            return Err(format!("there is another key `{name}` above"));
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
            _ => return Err(format!("there is no setting `{name}` of the daemon")),
        }
        Ok(())
    }

    fn complete(self) -> Result<Configuration, Wrong> {
        for key in &self.keys {
            let wrong = |what: &str| Wrong {
                line: None,
                what: format!("key {}: {what}", key.name),
            };
            if !key.file.is_absolute() {
                return Err(wrong("file must be the absolute path of a PEM file"));
            }
            if key.users.is_empty() && key.groups.is_empty() {
                return Err(wrong("name the users or groups that may use it"));
            }
            if !key.uses.any() {
                return Err(wrong("say what it may be used for: uses = sign"));
            }
        }
        Ok(self)
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
            "file" => self.file = PathBuf::from(value),
            "users" => self.users = words().map(str::to_owned).collect(),
            "groups" => self.groups = words().map(str::to_owned).collect(),
            "uses" => {
                self.uses = Uses::default();
                for word in words() {
                    match word {
                        "sign" => self.uses.sign = true,
                        "decrypt" => self.uses.decrypt = true,
                        _ => return Err("uses takes sign, decrypt, or both".into()),
                    }
                }
            }
            _ => {
                return Err(format!(
                    "there is no setting `{name}` of a key; those of the daemon stand above all keys"
                ));
            }
        }
        Ok(())
    }
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
        let text = "# The daemon.\nuser = x\nrate=5\nqueue = 16\n\n[key a.b]\nfile = /a b.pem\n\
                    users = u, 7\ngroups = g\nuses = sign decrypt\n[key c]\nfile = /c\n\
                    users = u\nuses = sign\n";
        let read = Configuration::parse(text).expect("a configuration");
        assert_eq!(read.user, "x");
        assert_eq!((read.rate, read.queue, read.max_clients), (5, 16, 1024));
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
        let wrong = |text: &str| Configuration::parse(text).expect_err(text).to_string();
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
            (&KEY.replace("nobody", ""), "key a: name the users"),
            (&KEY.replace("sign", ""), "key a: say what"),
        ] {
            assert!(wrong(text).starts_with(expected), "{text}: {}", wrong(text));
        }
        assert!(Configuration::parse(KEY).is_ok());
    }
}
