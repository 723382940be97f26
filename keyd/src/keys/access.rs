//! Rights on keys: users, groups, and permitted operations.

use std::collections::HashSet;
use std::fmt;

use lockstep_remote::protocol::Uses;
use lockstep_ring::Credentials;

use crate::keyd_conf::KeySection;
use crate::system::accounts::Accounts;

/// The account of a process. All processes of an account share its limits.
///
/// A user may have tens of thousands of subordinate user IDs (subuid(5)), and run processes under
/// them that are still in the user's group. So a user ID is an account of its own only if the
/// configuration, /etc/group or /etc/passwd gives it access. All other user IDs in a group share
/// the group's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// A user with access of its own.
    User(u32),
    /// All other users in a group with access.
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

/// The rights on a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    users: HashSet<u32>,
    groups: HashSet<u32>,
    /// Users whose primary group is one of the groups.
    primary_users: HashSet<u32>,
    uses: Uses,
}

impl Access {
    /// Returns the rights that a section grants, and messages about its unknown accounts, which get
    /// no rights.
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
            access.primary_users.extend(accounts.primary_users(group));
        }
        (access, unknown)
    }

    /// Returns whether nobody has access.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns the operations that a process may use.
    pub fn uses_of(&self, peer: Credentials) -> Uses {
        let may = self.users.contains(&peer.user) || self.groups.contains(&peer.group);
        match may {
            true => self.uses,
            false => Uses::default(),
        }
    }

    /// Returns the account of a process; `None` if it has no access.
    pub fn account_of(&self, peer: Credentials) -> Option<Account> {
        let is_known = self.users.contains(&peer.user) || self.primary_users.contains(&peer.user);
        self.uses_of(peer).any().then_some(match is_known {
            true => Account::User(peer.user),
            false => Account::Group(peer.group),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::system::accounts::tests::accounts;

    const SIGN: Uses = Uses {
        sign: true,
        decrypt: false,
    };

    /// Returns the credentials of a process.
    pub(crate) fn peer(user: u32, group: u32) -> Credentials {
        let process = 7;
        #[rustfmt::skip]
        let peer = Credentials { process, user, group };
        peer
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
    fn the_table_of_permissions_holds_row_by_row() {
        let (root, www, hap) = ((0, 0), (33, 33), (101, 102));
        for (users, groups, process, may) in [
            (&["www"][..], &[][..], www, true),
            (&["www"], &[], hap, false),
            // Root has access only if the configuration names it.
            (&["www"], &[], root, false),
            (&["root", "www"], &[], root, true),
            // By number, with and without a line in /etc/passwd.
            (&["101"], &[], hap, true),
            (&["4711"], &[], (4711, 33), true),
            (&["4711"], &[], www, false),
            // By the group of the process.
            (&[], &["hap"], hap, true),
            (&[], &["hap"], (7, 102), true),
            (&[], &["hap"], (101, 7), false),
            // By membership in /etc/group.
            (&[], &["keys"], www, true),
            (&[], &["keys"], (7, 500), true),
            (&[], &["keys"], hap, false),
            (&[], &["500"], www, true),
            (&["hap"], &["keys"], hap, true),
            // The number of a user is not that of a group.
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
        // The primary group in /etc/passwd.
        assert_eq!(account(&[], &["hap"], (101, 102)), user(101));
        assert_eq!(account(&[], &["hap"], (100_001, 102)), group);
        assert_eq!(account(&[], &["hap"], (100_002, 102)), group);
        assert_eq!(
            account(&["100001"], &["hap"], (100_001, 102)),
            user(100_001)
        );
        // The log names both kinds.
        let names = [Account::User(7), Account::Group(8)].map(|account| account.to_string());
        assert_eq!(names, ["user 7", "group 8"]);
        // The primary group alone gives no access to a process in another group.
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
        // The known accounts keep their rights.
        let (access, unknown) = granted(&["nobody-there", "www"], &["www-group", "hap"]);
        assert_eq!(unknown.len(), 2);
        for (user, group, may) in [(33, 33, true), (101, 102, true), (7, 7, false)] {
            assert_eq!(access.uses_of(peer(user, group)).any(), may);
        }
    }
}
