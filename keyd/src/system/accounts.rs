//! The accounts of this system.

use std::fs;
use std::path::Path;

/// The users and groups of `/etc/passwd` and `/etc/group`.
pub struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Reads the accounts. Those of directory services are missing, but their numbers can be used.
    pub fn of_system() -> Accounts {
        Accounts::of(Path::new("/etc"))
    }

    fn of(directory: &Path) -> Accounts {
        // A line may have any bytes, as in the name of a person.
        let bytes = |name| fs::read(directory.join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&bytes(name)).into_owned();
        Accounts {
            passwd: text("passwd"),
            group: text("group"),
        }
    }

    /// Returns the number of a user, given by name or number.
    pub fn user(&self, name: &str) -> Option<u32> {
        number(&self.passwd, name)
    }

    /// Returns the primary group of a user.
    pub fn group_of(&self, user: u32) -> Option<u32> {
        let line = lines_with(&self.passwd, 2, user.to_string()).next()?;
        line.get(3)?.parse().ok()
    }

    /// Returns the number of a group, given by name or number.
    pub fn group(&self, name: &str) -> Option<u32> {
        number(&self.group, name)
    }

    /// Returns the users with this primary group.
    pub fn primary_users(&self, group: u32) -> impl Iterator<Item = u32> {
        let lines = lines_with(&self.passwd, 3, group.to_string());
        lines.filter_map(|fields| fields.get(2)?.parse().ok())
    }

    /// Returns the users that `/etc/group` lists for a group.
    pub fn members(&self, group: u32) -> Vec<u32> {
        let groups = lines_with(&self.group, 2, group.to_string());
        let names = groups.filter_map(|fields| fields.get(3).copied());
        let names = names.flat_map(|names| names.split(','));
        names.filter_map(|name| self.user(name)).collect()
    }
}

/// Returns the fields of each line that has this value in the field `place`, counted from 0.
fn lines_with(lines: &str, place: usize, value: String) -> impl Iterator<Item = Vec<&str>> {
    let lines = lines.lines().map(|line| Vec::from_iter(line.split(':')));
    lines.filter(move |fields| fields.get(place) == Some(&value.as_str()))
}

/// Returns the number for a name; a number stands for itself.
fn number(lines: &str, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let line = lines_with(lines, 0, name.to_owned()).find(|_| !name.is_empty())?;
    line.get(2)?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/:\nhap:x:101:102::/:\n".into(),
            group: "root:x:0:\nwww:x:33:\nkeys:x:500:www,ghost\nhap:x:102:\n".into(),
        }
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_account() {
        let place = lockstep_testkit::TempDir::new("accounts");
        let passwd = b"a:x:7:7:J\xf6rg:/:\nwww:x:33:33::/:\n";
        fs::write(place.join("passwd"), passwd).expect("a file");
        fs::write(place.join("group"), b"\xff:x:7:\nkeys:x:500:www\n").expect("a file");
        let accounts = Accounts::of(&place);
        assert_eq!(
            (accounts.user("www"), accounts.group("keys")),
            (Some(33), Some(500))
        );
    }

    #[test]
    fn a_user_has_a_group() {
        assert_eq!(accounts().group_of(101), Some(102));
        assert_eq!(accounts().group_of(5), None);
    }
}
