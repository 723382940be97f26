//! A process that forks, and the CPU time of a process at its end. No safe function does either.

#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, exit};
use std::time::Duration;

/// A process that has ended, and its children with it.
pub struct Ended {
    pub status: ExitStatus,
    /// CPU time, that of the children included for which it has waited.
    pub cpu: Duration,
}

/// Forks this process, has the child work, and waits until it has ended. The child ends by
/// `exit`, as the children of servers do; its status is a failure where the work says so.
///
/// The calling process must not have started a thread.
pub fn in_child(work: impl FnOnce() -> bool) -> io::Result<Ended> {
    // SAFETY: it takes no pointer. The child goes on with a copy of the only thread that this
    // program has started, so it finds none of this program's locks held by another one. glibc and
    // libcrypto look after their own locks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => exit(i32::from(!work())),
        pid => wait(pid),
    }
}

/// Waits until a program has ended that this process has started.
pub fn ended(child: Child) -> io::Result<Ended> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    wait(pid)
}

fn wait(pid: libc::pid_t) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to variables of these types that live until it returns.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(Ended {
        status: ExitStatus::from_raw(status),
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
    })
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec).unwrap_or(0) * 1000,
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_program_has_used_is_known_when_it_has_ended() {
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3";
        let started = Command::new("sh").args(["-c", busy]).spawn().unwrap();
        let ended = ended(started).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert!(ended.cpu > Duration::from_micros(200), "{:?}", ended.cpu);
        assert_eq!(
            duration(libc::timeval {
                tv_sec: 2,
                tv_usec: 500_000
            }),
            Duration::from_millis(2500)
        );
    }
}
