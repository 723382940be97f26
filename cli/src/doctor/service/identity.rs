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

use super::process::{Process, Status};

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    /// The capabilities that root keeps, as bits.
    capabilities: u64,
}

/// What lets a process read files of others.
const READING: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// The most memory, in bytes, and CPU time, in seconds, that looking at files may take.
const MEMORY: u64 = 1 << 30;
const SECONDS: u64 = 10;

impl Identity {
    /// That of a process, as it is now. `None` if it is unknown: the process has ended, or is one
    /// of root whose caller, who need not be root, has chosen its environment.
    ///
    /// Ask when all else is read: a process of root may become that of another user, which then
    /// changes what was read of it.
    pub fn of(process: &Process) -> Option<Identity> {
        let status = process.status_now()?;
        let identity = Identity::from(
            &status,
            process.is_secure() != Some(false),
            process.shares("user"),
        );
        // Otherwise that is who another process is.
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
        // A program may be set-group-ID.
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

    /// Takes it on, for good. The caller has one thread.
    pub fn assume(&self) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        set_no_new_privs(true)?;
        match set_thread_groups(&groups) {
            // In a container, root may lack the right to. Its groups give it nothing.
            Err(_) if self.user == 0 => {}
            changed => changed?,
        }
        set_thread_res_gid(group, group, group)?;
        // The kernel takes all capabilities away from who is not root any more.
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

/// Sets bounds to what files of others can have the caller do.
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
        // Root of a container, in other names than ours.
        assert_eq!(of(root, root, false, false), Some((0, 0, 1, false)));
        // Each has been the other, or may be it again.
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
}
