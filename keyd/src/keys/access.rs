//! Rights on keys: the users and groups that may use a key, and the operations.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::Path;

use lockstep_remote::protocol::Uses;
use lockstep_ring::Credentials;

use crate::keyd_conf::KeySection;

/// In whose name a process is served. Limits hold for all processes of an account together.
///
/// A user may have tens of thousands of numbers beside its own (subuid(5)), and run processes under
/// them that are still in its own group. So a number counts by itself only where the configuration
/// or the system's accounts know that it may use a key; all others in a group count as the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// A user that is known to have access.
    User(u32),
    /// Everybody else in a group that has access.
    Group(u32),
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Account::User(user) => write!(f, "user {user}"),
            Account::Group(group) => write!(f, "group {group}"),
        }
    }
}

/// The users and groups of this system, from `/etc/passwd` and `/etc/group`.
pub struct Accounts {
    passwd: String,
    group: String,
}

impl Accounts {
    /// Those of this system. Accounts of directory services are not among them; their numbers can
    /// be used.
    pub fn of_system() -> Accounts {
        Accounts::of(Path::new("/etc"))
    }

    fn of(directory: &Path) -> Accounts {
        // A line may hold any bytes, as in the name of a person.
        let bytes = |name| fs::read(directory.join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&bytes(name)).into_owned();
        Accounts {
            passwd: text("passwd"),
            group: text("group"),
        }
    }

    /// The number of a user, by name or as a number.
    pub fn user(&self, name: &str) -> Option<u32> {
        number(&self.passwd, name)
    }

    /// The number of a user's group.
    pub fn group_of(&self, user: u32) -> Option<u32> {
        let line = lines_with(&self.passwd, 2, user.to_string()).next()?;
        line.get(3)?.parse().ok()
    }

    fn group(&self, name: &str) -> Option<u32> {
        number(&self.group, name)
    }

    /// The users that have a group as their own.
    fn natives(&self, group: u32) -> impl Iterator<Item = u32> {
        let lines = lines_with(&self.passwd, 3, group.to_string());
        lines.filter_map(|fields| fields.get(2)?.parse().ok())
    }

    /// The users that `/etc/group` lists for a group.
    fn members(&self, group: u32) -> Vec<u32> {
        let groups = lines_with(&self.group, 2, group.to_string());
        let names = groups.filter_map(|fields| fields.get(3).copied());
        let names = names.flat_map(|names| names.split(','));
        names.filter_map(|name| self.user(name)).collect()
    }
}

/// The fields of each line that has this value in a field, which is counted from 0.
fn lines_with(lines: &str, place: usize, value: String) -> impl Iterator<Item = Vec<&str>> {
    let lines = lines.lines().map(|line| Vec::from_iter(line.split(':')));
    lines.filter(move |fields| fields.get(place) == Some(&value.as_str()))
}

/// The number in the line of a name; a number is one itself.
fn number(lines: &str, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let line = lines_with(lines, 0, name.to_owned()).find(|_| !name.is_empty())?;
    line.get(2)?.parse().ok()
}

/// Who may use a key, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    users: HashSet<u32>,
    groups: HashSet<u32>,
    /// Users that have one of the groups as their own.
    natives: HashSet<u32>,
    uses: Uses,
}

impl Access {
    /// What a section of the configuration grants, and the accounts in it that are unknown: they
    /// are granted nothing.
    pub fn new(section: &KeySection, accounts: &Accounts) -> (Access, Vec<String>) {
        let mut access = Access {
            uses: section.uses,
            ..Access::default()
        };
        let mut unknown = Vec::new();
        for name in &section.users {
            match accounts.user(name) {
                Some(user) => _ = access.users.insert(user),
                None => unknown.push(format!("there is no user `{name}` in /etc/passwd")),
            }
        }
        for name in &section.groups {
            let Some(group) = accounts.group(name) else {
                unknown.push(format!("there is no group `{name}` in /etc/group"));
                continue;
            };
            access.groups.insert(group);
            access.users.extend(accounts.members(group));
            access.natives.extend(accounts.natives(group));
        }
        (access, unknown)
    }

    /// Whether nobody has access.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// What a process may do with the key.
    pub fn uses_of(&self, peer: Credentials) -> Uses {
        let may = self.users.contains(&peer.user) || self.groups.contains(&peer.group);
        match may {
            true => self.uses,
            false => Uses::default(),
        }
    }

    /// In whose name a process may use the key; `None` if it may not.
    pub fn account_of(&self, peer: Credentials) -> Option<Account> {
        let is_known = self.users.contains(&peer.user) || self.natives.contains(&peer.user);
        self.uses_of(peer).any().then_some(match is_known {
            true => Account::User(peer.user),
            false => Account::Group(peer.group),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SIGN: Uses = Uses {
        sign: true,
        decrypt: false,
    };

    /// A process of this user and group.
    pub(crate) fn peer(user: u32, group: u32) -> Credentials {
        let process = 7;
        #[rustfmt::skip]
        let peer = Credentials { process, user, group };
        peer
    }

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nwww:x:33:33::/:\nhap:x:101:102::/:\n".into(),
            group: "root:x:0:\nwww:x:33:\nkeys:x:500:www,ghost\nhap:x:102:\n".into(),
        }
    }

    fn granted(users: &[&str], groups: &[&str]) -> (Access, Vec<String>) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let section = KeySection {
            users: owned(users),
            groups: owned(groups),
            uses: SIGN,
            ..KeySection::default()
        };
        Access::new(&section, &accounts())
    }

    fn access(users: &[&str], groups: &[&str]) -> Access {
        let (access, unknown) = granted(users, groups);
        assert_eq!(unknown, Vec::<String>::new());
        access
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
    fn the_table_of_permissions_holds_row_by_row() {
        let (root, www, hap) = ((0, 0), (33, 33), (101, 102));
        for (users, groups, process, may) in [
            (&["www"][..], &[][..], www, true),
            (&["www"], &[], hap, false),
            // The administrator names root too, if root is to sign.
            (&["www"], &[], root, false),
            (&["root", "www"], &[], root, true),
            // By number, with an account or without.
            (&["101"], &[], hap, true),
            (&["4711"], &[], (4711, 33), true),
            (&["4711"], &[], www, false),
            // By the group of the process.
            (&[], &["hap"], hap, true),
            (&[], &["hap"], (7, 102), true),
            (&[], &["hap"], (101, 7), false),
            // By membership.
            (&[], &["keys"], www, true),
            (&[], &["keys"], (7, 500), true),
            (&[], &["keys"], hap, false),
            (&[], &["500"], www, true),
            (&["hap"], &["keys"], hap, true),
            // A user's number is no group's.
            (&["33"], &[], (7, 33), false),
        ] {
            let access = access(users, groups);
            let (user, group) = process;
            let uses = access.uses_of(peer(user, group));
            assert_eq!(uses.sign, may, "{users:?} {groups:?} {process:?}");
            assert!(!uses.decrypt);
        }
    }

    #[test]
    fn numbers_that_nobody_knows_count_as_their_group() {
        let account = |users: &[&str], groups: &[&str], (user, group)| {
            let access = access(users, groups);
            access.account_of(peer(user, group))
        };
        let (user, group) = (
            |number| Some(Account::User(number)),
            Some(Account::Group(102)),
        );
        assert_eq!(account(&["4711"], &[], (4711, 102)), user(4711));
        assert_eq!(account(&[], &["keys"], (33, 33)), user(33));
        // The group is its own in /etc/passwd.
        assert_eq!(account(&[], &["hap"], (101, 102)), user(101));
        assert_eq!(account(&[], &["hap"], (100_001, 102)), group);
        assert_eq!(account(&[], &["hap"], (100_002, 102)), group);
        assert_eq!(
            account(&["100001"], &["hap"], (100_001, 102)),
            user(100_001)
        );
        // The journal names both.
        let names = [Account::User(7), Account::Group(8)].map(|account| account.to_string());
        assert_eq!(names, ["user 7", "group 8"]);
        // That does not give access without the group.
        assert_eq!(account(&[], &["hap"], (101, 7)), None);
        assert_eq!(account(&["www"], &[], (100_001, 102)), None);
    }

    #[test]
    fn unknown_accounts_are_named() {
        for (users, groups) in [(&["nobody-there"][..], &[][..]), (&[], &["www-group"])] {
            let (access, unknown) = granted(users, groups);
            let name = users.iter().chain(groups).next().expect("one");
            assert!(
                access.is_empty() && unknown[0].contains(name),
                "{unknown:?}"
            );
        }
        // The others have what they are granted.
        let (access, unknown) = granted(&["nobody-there", "www"], &["www-group", "hap"]);
        assert_eq!(unknown.len(), 2);
        for (user, group, may) in [(33, 33, true), (101, 102, true), (7, 7, false)] {
            assert_eq!(access.uses_of(peer(user, group)).any(), may);
        }
        assert_eq!(accounts().group_of(101), Some(102));
        assert_eq!(accounts().group_of(5), None);
    }
}
