//! The rights that the daemon gives up before it serves.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, getrlimit, getuid, set_dumpable_behavior,
    setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::system::accounts::Accounts;

/// User that the daemon becomes, unless the configuration names another one. The package creates
/// it.
pub const DEFAULT_USER: &str = "lockstep-keyd";

/// Maximum time until an ended thread disappears from the kernel's list.
const PATIENCE: Duration = Duration::from_secs(2);

/// Becomes an unprivileged user for good, if the daemon runs as root. Hides its memory from all but
/// root.
pub fn give_up(name: &str, accounts: &Accounts) -> io::Result<()> {
    if let Some((user, group)) = user(name, accounts)? {
        become_user(user, group)?;
    }
    set_no_new_privs(true)?;
    hide_memory()
}

/// Becomes this user and group, and keeps only root's right to read any file. A process that is not
/// root keeps its rights.
pub fn keep_reading((user, group): (u32, u32)) -> io::Result<()> {
    if getuid().is_root() {
        set_keep_capabilities(true)?;
        become_user(user, group)?;
        let read = CapabilitySet::DAC_READ_SEARCH;
        let sets = CapabilitySets {
            effective: read,
            permitted: read,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets)?;
        set_keep_capabilities(false)?;
    }
    set_no_new_privs(true)?;
    hide_memory()
}

/// Disables core dumps, and access to this process by other processes of the same user.
pub fn hide_memory() -> io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Returns the numbers of the user that the daemon becomes and of its group; `None` unless the
/// process is root.
pub fn user(name: &str, accounts: &Accounts) -> io::Result<Option<(u32, u32)>> {
    if !getuid().is_root() {
        return Ok(None);
    }
    let wrong = |what: &str| io::Error::other(format!("user {name}: {what}"));
    let user = accounts.user(name).ok_or_else(|| {
        wrong("there is none in /etc/passwd; create it, or name another one by `user`")
    })?;
    let group = accounts.group_of(user);
    let group = group.ok_or_else(|| wrong("it has no group"))?;
    Ok(Some((user, group)))
}

/// Raises the limit of open files to `count`, if permitted; returns the limit.
pub fn allow_descriptors(count: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // `None` is no limit.
    let [now, most] = [limit.current, limit.maximum].map(|own| own.unwrap_or(u64::MAX));
    let wanted = Rlimit {
        current: Some(count.min(most)),
        maximum: limit.maximum,
    };
    match now < count && setrlimit(Resource::Nofile, wanted).is_ok() {
        true => count.min(most),
        false => now,
    }
}

/// Returns the user that the daemon becomes: the configured one, or the package's if only that one
/// exists.
pub fn known_user<'a>(name: &'a str, accounts: &Accounts) -> &'a str {
    match accounts.user(name).is_none() && accounts.user(DEFAULT_USER).is_some() {
        true => DEFAULT_USER,
        false => name,
    }
}

fn become_user(user: u32, group: u32) -> io::Result<()> {
    // The system calls change the calling thread only. A joined thread may stay in the list for a
    // moment.
    let end = Instant::now() + PATIENCE;
    while fs::read_dir("/proc/self/task")?.count() != 1 {
        if Instant::now() > end {
            return Err(io::Error::other("there are threads already"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&[group])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    match set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT) {
        Err(_) => Ok(()),
        Ok(()) if user.is_root() => Ok(()),
        Ok(()) => Err(io::Error::other("root's rights came back")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_whose_user_is_unknown_becomes_the_usual_one() {
        let accounts = Accounts::of_system();
        assert_eq!(known_user("root", &accounts), "root");
        assert_eq!(known_user("0", &accounts), "0");
        let expected = match accounts.user(DEFAULT_USER) {
            Some(_) => DEFAULT_USER,
            None => "nobody-there",
        };
        assert_eq!(known_user("nobody-there", &accounts), expected);
    }
}
