//! Ways in which another thread makes an application resume a job.
//!
//! The wait context shares its notifier with other threads, which may use it after the context's
//! end. The memory and the descriptor stay as long as a thread has the notifier. A callback's
//! argument may be freed earlier: libssl passes the connection, which is freed with the context. So
//! callbacks are called through a [`Gate`], which the end of the context closes.

use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::jobs::eventfd::EventFd;

/// Way in which the application learns that a job can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By a descriptor that becomes readable.
    Descriptor,
    /// By the callback that the application has set.
    Callback,
}

/// Means of notification that a wait context shares with the threads that notify.
pub enum Notifier {
    /// A descriptor that the application waits for.
    Descriptor(EventFd),
    /// The right to call the application's callback.
    Callback(Gate),
}

impl Notifier {
    /// Makes a notifier; None if the system gives no descriptor.
    pub fn new(kind: Kind) -> Option<Arc<Notifier>> {
        let notifier = match kind {
            Kind::Descriptor => Notifier::Descriptor(EventFd::new()?),
            Kind::Callback => Notifier::Callback(Gate::default()),
        };
        Some(Arc::new(notifier))
    }

    pub fn kind(&self) -> Kind {
        match self {
            Notifier::Descriptor(_) => Kind::Descriptor,
            Notifier::Callback(_) => Kind::Callback,
        }
    }

    /// Returns the descriptor that the wait context shows. libcrypto notifies only the owner of a
    /// descriptor when a context ends, so callbacks have a descriptor too, which is never readable.
    pub fn shown(&self) -> Option<c_int> {
        match self {
            Notifier::Descriptor(event) => Some(event.number()),
            Notifier::Callback(_) => EventFd::silent(),
        }
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        if let Notifier::Descriptor(event) = self {
            event.signal();
        }
    }

    /// Makes the descriptor unreadable.
    pub fn drain(&self) {
        if let Notifier::Descriptor(event) = self {
            event.drain();
        }
    }
}

/// Gate for the callbacks of one wait context: they can be called until it is closed.
///
/// The invariant: a call runs only while its thread is among `callers`, and none is added once the
/// gate is closed. So when [`close`](Self::close) returns, no other thread is in a call, and none
/// will be. No lock is held during a call, because a callback may resume the job, and the job may
/// pause again, which leads to another call. A callback may also free the connection, which closes
/// the gate from within the call. Then `close` does not wait for calls of its own thread; these
/// calls use nothing of the application after the callback returns.
///
/// A thread that frees a connection must not hold a lock that the connection's callback waits for.
#[derive(Default)]
pub struct Gate {
    state: Mutex<Calls>,
    returned: Condvar,
}

#[derive(Default)]
struct Calls {
    is_closed: bool,
    /// Threads that are in a call, once for each call.
    callers: Vec<ThreadId>,
}

impl Gate {
    /// Runs `callback`, unless the gate is closed.
    pub fn call(&self, callback: impl FnOnce()) {
        let me = thread::current().id();
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.callers.push(me);
        drop(state);
        callback();
        let mut state = self.lock();
        if let Some(place) = state.callers.iter().position(|caller| *caller == me) {
            state.callers.swap_remove(place);
        }
        let is_awaited = state.is_closed;
        drop(state);
        if is_awaited {
            self.returned.notify_all();
        }
    }

    /// Waits until no other thread is in a call, and lets none begin.
    pub fn close(&self) {
        let me = thread::current().id();
        let mut state = self.lock();
        state.is_closed = true;
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
    fn nobody_calls_after_the_end() {
        let gate = Gate::default();
        let calls = AtomicUsize::new(0);
        let call = || {
            gate.call(|| {
                calls.fetch_add(1, Ordering::SeqCst);
            });
        };
        call();
        gate.close();
        call();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_end_waits_for_a_call_in_progress() {
        let (gate, ended) = (Gate::default(), AtomicBool::new(false));
        let (began, begins) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                gate.call(|| {
                    began.send(()).unwrap();
                    thread::sleep(Duration::from_millis(50));
                    ended.store(true, Ordering::SeqCst);
                });
            });
            begins.recv().unwrap();
            gate.close();
            assert!(ended.load(Ordering::SeqCst));
        });
    }

    #[test]
    fn a_call_may_close_its_own_gate() {
        let gate = Gate::default();
        let mut calls = 0;
        gate.call(|| {
            gate.call(|| calls += 1);
            gate.close();
            gate.call(|| calls += 1);
        });
        assert_eq!(calls, 1);
        gate.close();
    }

    #[test]
    fn calls_and_the_end_race() {
        for _ in 0..200 {
            let (gate, alive) = (Gate::default(), AtomicBool::new(true));
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| gate.call(|| assert!(alive.load(Ordering::SeqCst))));
                }
                scope.spawn(|| {
                    gate.close();
                    alive.store(false, Ordering::SeqCst);
                });
            });
        }
    }
}
