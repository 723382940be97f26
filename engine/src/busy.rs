//! Counts of threads that compute outside of the slots.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::thread_id::ThreadId;

/// Counts busy threads. A thread is counted once: if it comes again, it has left its work by
/// `siglongjmp` out of a signal handler.
#[derive(Debug, Default)]
pub(crate) struct Threads(Arc<Mutex<Vec<ThreadId>>>);

/// A guard: its thread is counted until the guard is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    threads: Threads,
    thread: ThreadId,
}

impl Threads {
    /// Returns the number of counted threads.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Counts a thread.
    pub(crate) fn note(&self, thread: ThreadId) -> Busy {
        self.forget(thread);
        self.lock().push(thread);
        let threads = Threads(Arc::clone(&self.0));
        Busy { threads, thread }
    }

    /// Stops counting a thread.
    pub(crate) fn forget(&self, thread: ThreadId) {
        let mut threads = self.lock();
        if let Some(place) = threads.iter().position(|counted| *counted == thread) {
            threads.swap_remove(place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.threads.forget(self.thread);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_comes_again_is_counted_once() {
        let threads = Threads::default();
        let other = threads.note(ThreadId(2));
        for _ in 0..1000 {
            // `siglongjmp` does not drop the guard either.
            std::mem::forget(threads.note(ThreadId(1)));
        }
        assert_eq!(threads.count(), 2);
        let nested = [threads.note(ThreadId(1)), threads.note(ThreadId(1))];
        assert_eq!(threads.count(), 2);
        drop((nested, other));
        assert_eq!(threads.count(), 0);
    }
}
