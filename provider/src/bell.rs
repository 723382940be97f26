//! How another thread has an application resume a job.
//!
//! The wait context shares its bell with other threads, which may ring it after the context's end.
//! The memory and the descriptor stay for as long as either has the bell. A callback's argument
//! does not: libssl passes the connection, which is freed with the context. So callbacks are called
//! through a [`Line`], which the end of the context cuts.

use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::eventfd::EventFd;

/// How the application learns that a job can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a descriptor that becomes readable.
    Descriptor,
    /// By the callback that it has set.
    Callback,
}

/// What a wait context shares with the threads that ring.
pub enum Bell {
    /// A descriptor that the application waits for.
    Event(EventFd),
    /// The right to call the application's callback.
    Line(Line),
}

impl Bell {
    /// None if the system gives no descriptor.
    pub fn new(way: Way) -> Option<Arc<Bell>> {
        let bell = match way {
            Way::Descriptor => Bell::Event(EventFd::new()?),
            Way::Callback => Bell::Line(Line::default()),
        };
        Some(Arc::new(bell))
    }

    /// The way in which it rings.
    pub fn way(&self) -> Way {
        match self {
            Bell::Event(_) => Way::Descriptor,
            Bell::Line(_) => Way::Callback,
        }
    }

    /// The descriptor for the wait context to show. libcrypto notifies only the owner of a
    /// descriptor when a context ends, so there is one for callbacks, too: it is never readable.
    pub fn shown(&self) -> Option<c_int> {
        match self {
            Bell::Event(event) => Some(event.number()),
            Bell::Line(_) => EventFd::silent(),
        }
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        if let Bell::Event(event) = self {
            event.signal();
        }
    }

    /// Makes the descriptor unreadable.
    pub fn drain(&self) {
        if let Bell::Event(event) = self {
            event.drain();
        }
    }
}

/// Lets callbacks of one wait context be called until it is cut.
///
/// The invariant: a call runs only while its thread is among `callers`, and none is added once the
/// line is cut. So when [`cut`](Self::cut) returns, no other thread is in a call, and none will be.
/// No lock is held during a call: a callback may resume the job, which may pause with another call
/// to come, and may free the connection, which cuts the line from within the call. Then the calls
/// of the thread that cuts are not waited for; they touch nothing of the application's any more
/// when the callback returns.
///
/// A thread that frees a connection must hold nothing that its callback waits for.
#[derive(Default)]
pub struct Line {
    state: Mutex<Calls>,
    returned: Condvar,
}

#[derive(Default)]
struct Calls {
    is_cut: bool,
    /// The threads that are in a call, once for each call.
    callers: Vec<ThreadId>,
}

impl Line {
    /// Runs `callback`, unless the line is cut.
    pub fn call(&self, callback: impl FnOnce()) {
        let me = thread::current().id();
        let mut state = self.lock();
        if state.is_cut {
            return;
        }
        state.callers.push(me);
        drop(state);
        callback();
        let mut state = self.lock();
        if let Some(place) = state.callers.iter().position(|caller| *caller == me) {
            state.callers.swap_remove(place);
        }
        let is_awaited = state.is_cut;
        drop(state);
        if is_awaited {
            self.returned.notify_all();
        }
    }

    /// Waits until no other thread is in a call, and lets none begin.
    pub fn cut(&self) {
        let me = thread::current().id();
        let mut state = self.lock();
        state.is_cut = true;
        while state.callers.iter().any(|caller| *caller != me) {
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn nobody_calls_after_the_cut() {
        let line = Line::default();
        let calls = AtomicUsize::new(0);
        let call = || {
            line.call(|| {
                calls.fetch_add(1, Ordering::SeqCst);
            });
        };
        call();
        line.cut();
        call();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_cut_waits_for_a_call_in_progress() {
        let (line, ended) = (Line::default(), AtomicBool::new(false));
        let (began, begins) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                line.call(|| {
                    began.send(()).unwrap();
                    thread::sleep(Duration::from_millis(50));
                    ended.store(true, Ordering::SeqCst);
                });
            });
            begins.recv().unwrap();
            line.cut();
            assert!(ended.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_call_may_cut_its_own_line() {
        let line = Line::default();
        let mut calls = 0;
        line.call(|| {
            line.call(|| calls += 1);
            line.cut();
            line.call(|| calls += 1);
        });
        assert_eq!(calls, 1);
        line.cut();
    }

    #[test]
    fn calls_and_cuts_race() {
        for _ in 0..200 {
            let (line, alive) = (Line::default(), AtomicBool::new(true));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| line.call(|| assert!(alive.load(Ordering::SeqCst))));
                }
                scope.spawn(|| {
                    line.cut();
                    alive.store(false, Ordering::SeqCst);
                });
            });
        }
    }
}
