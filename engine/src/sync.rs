//! The synchronisation that the queue and the tickets are built from.
//!
//! Under `cfg(loom)` the same names come from loom, so that the model tests run the very code that
//! ships. Counters and identities stay on `std` atomics: nothing waits on them.

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

/// Locks, whether or not a thread panicked while it held the lock: every critical section of this
/// crate leaves its data whole before anything in it can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps on `condition` while `asleep` returns true.
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    mut guard: MutexGuard<'a, T>,
    mut asleep: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while asleep(&mut guard) {
        guard = condition
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner);
    }
    guard
}
