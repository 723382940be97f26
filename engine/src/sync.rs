//! The synchronisation of the queue and of the tickets.
//!
//! Under `cfg(loom)` the same names come from loom, so that the models run the shipped code.
//! Counters and identities stay on `std` atomics, as no thread waits on them.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, yield_now},
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, yield_now},
};

use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Locks, whether or not a thread panicked while it held the lock: every critical section of this
/// crate leaves its data whole before anything in it can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time. In a model it stands still, so that the same choices lead to the same run.
pub(crate) fn now() -> Instant {
    #[cfg(not(loom))]
    return Instant::now();
    #[cfg(loom)]
    {
        static NOW: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *NOW.get_or_init(Instant::now)
    }
}

/// Returns the CPU time that the calling thread has used. In a model it is zero.
pub(crate) fn cpu_time() -> Duration {
    #[cfg(not(loom))]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }
    #[cfg(loom)]
    Duration::ZERO
}

/// Returns the CPU time that all threads of the process have used. `None` in a model, and where a
/// filter of system calls refuses it.
pub(crate) fn process_time() -> Option<Duration> {
    #[cfg(not(loom))]
    {
        use rustix::time::{ClockId, DynamicClockId, clock_gettime_dynamic};
        let time = clock_gettime_dynamic(DynamicClockId::Known(ClockId::ProcessCPUTime));
        time.ok()?.try_into().ok()
    }
    #[cfg(loom)]
    None
}

/// Sleeps on `condition` until it is notified.
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition
        .wait(guard)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps on `condition` while `asleep` returns true, but no longer than `most`. In a model the
/// time is over at once, since loom tries the earlier steps of other threads anyway.
pub(crate) fn wait_while_within<'a, T>(
    condition: &Condvar,
    mut guard: MutexGuard<'a, T>,
    most: Option<Duration>,
    mut asleep: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    let Some(most) = most else {
        return wait_while(condition, guard, asleep);
    };
    #[cfg(loom)]
    let _ = (condition, most, asleep(&mut guard));
    #[cfg(not(loom))]
    {
        // The wait has two halves, as a whole process may stand still: in a container that has used
        // up its share of CPU time, for example. Then the first half ends for all threads at once,
        // and in the second half the thread that computes for the others goes on.
        for _ in 0..2 {
            let mut timed_out = false;
            // After a spurious wake-up, which is rare, the thread waits anew.
            while asleep(&mut guard) && !timed_out {
                (guard, timed_out) = wait_at_most(condition, guard, most / 2);
            }
        }
    }
    guard
}

/// Sleeps on `condition` until it is notified, but no longer than `most`. Returns whether that time
/// was over.
#[cfg(not(loom))]
pub(crate) fn wait_at_most<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    most: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, waited) = condition
        .wait_timeout(guard, most)
        .unwrap_or_else(PoisonError::into_inner);
    (guard, waited.timed_out())
}

/// Sleeps on `condition` while `asleep` returns true.
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    mut guard: MutexGuard<'a, T>,
    mut asleep: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while asleep(&mut guard) {
        guard = wait(condition, guard);
    }
    guard
}
