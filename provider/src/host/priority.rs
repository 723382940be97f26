//! Whether the calling thread has a lower priority than is usual in its process.
//!
//! Such a thread gets a CPU when no other thread wants it. If it led a batch, all threads with
//! requests in that batch would wait for as long, and so would the threads that wait for its slot.
//! The usual priority is the first thread's: the others inherit it unless the program changes
//! theirs.
//!
//! A thread looks at its priority at its first request. Before each further look it makes [`EVERY`]
//! requests without one: programs rarely change priorities. If the system gives no priority, as
//! behind a filter of system calls, no thread has a low one.

use std::ffi::c_int;

use once_cell::race::OnceBox;
use rustix::process::{Pid, getpid, getpriority_process};
use rustix::thread::gettid;

use crate::host::c_library::{ThreadKey, sched_getscheduler};

/// Number of requests that a thread makes between two looks.
const EVERY: usize = 64;

/// Key of a thread's note: its finding, and the number of requests for which that holds. The note
/// is zero before the first look.
static KEY: OnceBox<ThreadKey> = OnceBox::new();

/// Bit of a note: the priority is low. The other bits count requests.
const LOW: usize = 1;
const ONE_REQUEST: usize = 2;

/// Makes the key, when the module is loaded. Without a key, no thread has a low priority. If two
/// threads come at the same time, both may make a key, and one of them is not used.
pub fn prepare() {
    if KEY.get().is_none()
        && let Some(key) = ThreadKey::new()
    {
        let _ = KEY.set(Box::new(key));
    }
}

/// Returns whether the priority of the calling thread is lower than usual.
pub fn is_low() -> bool {
    let Some(key) = KEY.get() else { return false };
    let noted = key.get();
    let note = match noted.checked_sub(ONE_REQUEST) {
        Some(note) => note,
        None => EVERY * ONE_REQUEST + usize::from(is_lower_than_usual()) * LOW,
    };
    key.set(note);
    note & LOW != 0
}

/// Asks the system whether the priority is lower than usual.
fn is_lower_than_usual() -> bool {
    let first = getpid();
    if gettid() == first {
        return false;
    }
    let both = Priority::of(None).zip(Priority::of(Some(first)));
    both.is_some_and(|(own, usual)| own < usual.min(Priority::NORMAL))
}

/// Priority by which the system chooses among threads: first by the class, then by the nice value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Priority {
    class: Class,
    /// The lower value is preferred.
    nice: std::cmp::Reverse<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Idle,
    Batch,
    Other,
}

impl Priority {
    /// The highest priority that counts as usual: a first thread with a higher priority does not
    /// make the priority of other threads low.
    const NORMAL: Priority = Priority {
        class: Class::Other,
        nice: std::cmp::Reverse(0),
    };

    /// Returns the priority of a thread, or of the calling one; None if the system does not tell.
    fn of(thread: Option<Pid>) -> Option<Priority> {
        let number = Pid::as_raw(thread);
        let policy = sched_getscheduler(number);
        let nice = getpriority_process(thread).ok()?;
        Priority::from(policy, nice)
    }

    fn from(policy: c_int, nice: i32) -> Option<Priority> {
        /// A flag beside the policy (sched_setscheduler(2)).
        const RESET_ON_FORK: c_int = 0x4000_0000;
        let class = match policy & !RESET_ON_FORK {
            _ if policy < 0 => return None,
            libc::SCHED_IDLE => Class::Idle,
            libc::SCHED_BATCH => Class::Batch,
            libc::SCHED_OTHER => Class::Other,
            // Policies for real time come before all others.
            _ => return Some(Priority::NORMAL),
        };
        let nice = std::cmp::Reverse(nice);
        Some(Priority { class, nice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(policy: c_int, nice: i32) -> Priority {
        Priority::from(policy, nice).expect("a priority")
    }

    #[test]
    fn classes_come_before_nice_values() {
        let other = libc::SCHED_OTHER;
        assert!(priority(libc::SCHED_IDLE, -5) < priority(libc::SCHED_BATCH, 19));
        assert!(priority(libc::SCHED_BATCH, -5) < priority(other, 19));
        assert!(priority(other, 19) < priority(other, 0));
        assert!(priority(other, 0) == Priority::NORMAL && priority(other, -1) > Priority::NORMAL);
        assert_eq!(priority(libc::SCHED_FIFO, 0), Priority::NORMAL);
        assert_eq!(priority(other | 0x4000_0000, 3), priority(other, 3));
        assert_eq!(Priority::from(-1, 0), None);
    }

    #[test]
    fn a_thread_that_is_made_nice_is_low_and_its_process_is_not() {
        prepare();
        let ask = || {
            let before = is_low();
            rustix::process::nice(5).expect("more is always allowed");
            // At most EVERY requests come before the one that notices the change.
            let noticed = (0..=EVERY).position(|_| is_low());
            (before, noticed)
        };
        let (before, noticed) = std::thread::spawn(ask).join().expect("it does not panic");
        assert!(!before);
        assert_eq!(noticed, Some(EVERY));
        assert!(
            !std::thread::spawn(is_low)
                .join()
                .expect("it does not panic")
        );
    }
}
