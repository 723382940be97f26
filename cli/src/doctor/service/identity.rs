//! The identity under which doctor looks at the files of a process: its user, with its groups, and
//! without any right that the process lacks. Root would read files that this user may not read, and
//! show them.

use std::io;

use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};

use crate::process::{Process, Status};

/// The identity of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    /// The capabilities that root keeps, as bits.
    capabilities: u64,
}

/// Capabilities to read files of other users.
const READING: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// Maximum memory in bytes and CPU time in seconds for looking at files.
const MEMORY: u64 = 1 << 30;
const SECONDS: u64 = 10;

impl Identity {
    /// Returns the identity of a process now. `None` if it is unknown: the process has ended, or
    /// runs as root with an environment that its caller, who need not be root, has chosen.
    ///
    /// Ask for it last: a process of root may change to another user, who can then change the facts
    /// that were read before.
    pub fn of(process: &Process) -> Option<Identity> {
        let status = process.status_now()?;
        let identity = Identity::from(
            &status,
            process.is_secure() != Some(false),
            process.shares("user"),
        );
        // The number may belong to another process by now.
        identity.filter(|_| process.is_there())
    }

    fn from(status: &Status, is_secure: bool, shares_users: bool) -> Option<Identity> {
        let user = match status.user {
            0 => status.users.iter().copied().find(|user| *user != 0),
            user => Some(user),
        };
        let user = user.unwrap_or(0);
        if user == 0 && is_secure {
            return None;
        }
        // The effective group, or the real group of a program that may be set-group-ID.
        let at = usize::from(!is_secure);
        let capabilities = match user == 0 && shares_users {
            true => status.capabilities & READING.bits(),
            false => 0,
        };
        Some(Identity {
            user,
            group: *status.own_groups.get(at)?,
            groups: match is_secure {
                true => Vec::new(),
                false => status.groups.clone(),
            },
            capabilities,
        })
    }

    /// Assumes the identity for good. The caller has one thread.
    pub fn assume(&self) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        set_no_new_privs(true)?;
        match set_thread_groups(&groups) {
            // In a container, root may not be allowed to do this. Its groups grant it nothing.
            Err(_) if self.user == 0 => {}
            changed => changed?,
        }
        set_thread_res_gid(group, group, group)?;
        // The kernel removes all capabilities when the user is no longer root.
        set_thread_res_uid(user, user, user)?;
        let kept = match self.user {
            0 => CapabilitySet::from_bits_truncate(self.capabilities),
            _ => CapabilitySet::empty(),
        };
        let sets = CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        };
        Ok(set_capabilities(None, sets)?)
    }
}

/// Limits the memory, the time and the files of this process, because other users chose the files
/// that it reads.
pub fn set_bounds() -> io::Result<()> {
    let bounds = [
        (Resource::As, MEMORY),
        (Resource::Cpu, SECONDS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in bounds {
        let bound = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, bound)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Processes;

    #[test]
    fn nobody_is_more_than_the_process() {
        let of = |users: [u32; 4], groups: [u32; 4], is_secure, shares_users| {
            let status = Status {
                user: users[1],
                users: users.to_vec(),
                own_groups: groups.to_vec(),
                groups: vec![7],
                capabilities: u64::MAX,
                ..Status::default()
            };
            Identity::from(&status, is_secure, shares_users)
                .map(|own| (own.user, own.group, own.groups.len(), own.capabilities != 0))
        };
        let (root, web) = ([0; 4], [33; 4]);
        assert_eq!(of(web, web, false, true), Some((33, 33, 1, false)));
        assert_eq!(of(root, root, false, true), Some((0, 0, 1, true)));
        // Root of a container with another user namespace.
        assert_eq!(of(root, root, false, false), Some((0, 0, 1, false)));
        // Such a process has been user 33, or can become user 33 again.
        assert_eq!(
            of([0, 33, 0, 33], root, false, true),
            Some((33, 0, 1, false))
        );
        assert_eq!(of([33, 0, 0, 0], web, true, true), Some((33, 33, 0, false)));
        // `sudo` with an environment of its caller, and a set-group-ID program.
        assert_eq!(of(root, root, true, true), None);
        assert_eq!(
            of(web, [33, 42, 42, 42], true, true),
            Some((33, 33, 0, false))
        );
    }

    #[test]
    fn nobody_is_a_later_process_with_the_same_number() {
        let place = lockstep_testkit::TempDir::new("identity");
        let about = place.join("9");
        std::fs::create_dir(&about).unwrap();
        let write = |name: &str, text: &str| std::fs::write(about.join(name), text).unwrap();
        let stat = |start| format!("9 (x) S 1 9 9 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 {start} 2 3\n");
        let status = "Name:\tx\nPid:\t9\nPPid:\t1\nUid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\n";
        write("status", status);
        write("stat", &stat(4711));
        let directory = place.to_path_buf();
        let process = Processes { directory }.get(9).unwrap();
        assert!(Identity::of(&process).is_some());
        // A later process of another user, with the same number and name.
        write("status", &status.replace('7', "8"));
        write("stat", &stat(4712));
        assert!(Identity::of(&process).is_none());
        std::fs::remove_dir_all(&about).unwrap();
        assert!(Identity::of(&process).is_none());
    }
}
