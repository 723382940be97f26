//! OpenSSL async jobs, as the engine's [`Job`]: how they pause, and how they are resumed.
//!
//! A job runs on a fibre with a 32 KiB stack, so no kernel ever runs on that stack. A job may be
//! lost while it is paused, so anything that other threads need lies outside of its stack: see
//! [`wait_ctx`](crate::jobs::wait_ctx). The application's callback, if it has set one, tells it
//! that a job can go on; otherwise an eventfd does, one per wait context. The engine decides in
//! `engine/src/serve.rs` which jobs pause, and for which operations.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{Engine, Fallback, Job, Notify, Paused, Pending, ThreadId};

use crate::ffi::AsyncCallback;
use crate::host::c_library;
use crate::jobs::notifier::{Kind, Notifier};
use crate::jobs::wait_ctx::{WaitCtx, Waiting};
use crate::process;

/// The async job that the calling code runs in.
pub struct AsyncJob<'a> {
    wait: WaitCtx<'a>,
    engine: &'static Engine,
    /// The application's callback, once the engine has asked for it.
    callback: Option<Callback>,
}

/// A job's side of a [`Waker`].
pub struct Wake {
    notifier: Arc<Notifier>,
    sent: Arc<AtomicBool>,
}

impl<'a> AsyncJob<'a> {
    /// Returns the job that has this context.
    pub fn new(wait: WaitCtx<'a>, engine: &'static Engine) -> AsyncJob<'a> {
        let callback = None;
        AsyncJob {
            wait,
            engine,
            callback,
        }
    }
}

/// A job keeps the claim to its answer in its [context](crate::jobs::wait_ctx).
impl Job for AsyncJob<'_> {
    type Wake = Wake;

    fn can_pause(&self) -> bool {
        !self.wait.is_taken()
    }

    fn has_callback(&mut self) -> bool {
        self.callback = self.wait.callback();
        self.callback.is_some()
    }

    fn thread(&self) -> ThreadId {
        ThreadId(c_library::pthread_self())
    }

    /// The application resumes the job as soon as it sees the signalled descriptor.
    fn give_way(&self, awaited: Pending) -> Paused {
        let shown = self
            .wait
            .notifier(Kind::Descriptor)
            .is_some_and(|notifier| {
                notifier.signal();
                self.wait.show(self.engine, &notifier)
            });
        if !shown {
            return Paused::Unwakeable(awaited);
        }
        let waiting = Waiting {
            awaited,
            sent: None,
        };
        match self.wait.pause(Kind::Descriptor, self.engine, waiting) {
            Some(waiting) => {
                self.drain();
                Paused::Resumed(waiting.awaited)
            }
            None => not_paused(),
        }
    }

    fn waker(&self) -> Option<(Box<dyn Notify>, Wake)> {
        let kind = match self.callback {
            Some(_) => Kind::Callback,
            None => Kind::Descriptor,
        };
        let notifier = self.wait.notifier(kind)?;
        let sent = Arc::new(AtomicBool::new(false));
        let waker = Waker {
            notifier: Arc::clone(&notifier),
            callback: self.callback,
            sent: Arc::clone(&sent),
        };
        Some((Box::new(waker), Wake { notifier, sent }))
    }

    fn wait(&self, Wake { notifier, mut sent }: Wake, mut awaited: Pending) -> Paused {
        let kind = notifier.kind();
        let mut notifier = Some(notifier);
        let mut shown = true;
        // A job can be resumed for other reasons than its waker. The loop checks `sent` rather than
        // the state of `awaited`: once `sent` is set, the wake-up is written, and draining cannot
        // miss it.
        while !sent.load(Ordering::Acquire) {
            // From here on the context holds the notifier, because a lost job never drops anything.
            if let Some(notifier) = notifier.take() {
                shown = self.wait.show(self.engine, &notifier);
            }
            if !shown {
                // Nothing would wake the job.
                break;
            }
            let waiting = Waiting {
                awaited,
                sent: Some(sent),
            };
            let resumed = self.wait.pause(kind, self.engine, waiting);
            let resumed = resumed.and_then(|waiting| Some((waiting.awaited, waiting.sent?)));
            let Some(resumed) = resumed else {
                return not_paused();
            };
            (awaited, sent) = resumed;
            if !sent.load(Ordering::Acquire) {
                // ASYNC_pause_job returns at once if pausing is blocked: this loop must not keep
                // the CPU busy.
                std::thread::yield_now();
            }
        }
        if kind == Kind::Descriptor {
            self.drain();
        }
        match shown {
            true => Paused::Resumed(awaited),
            false => Paused::Unwakeable(awaited),
        }
    }
}

impl AsyncJob<'_> {
    /// Makes the job's descriptor unreadable again.
    fn drain(&self) {
        if let Some(notifier) = self.wait.kept_notifier(Kind::Descriptor) {
            notifier.drain();
        }
    }
}

/// Counts a job that could not be paused, or that was resumed in another process. The engine of the
/// process that runs now counts it.
fn not_paused() -> Paused {
    process::engine().count(Fallback::AsyncUnavailable);
    Paused::Failed
}

/// The application's callback for a job: the function, and its argument.
type Callback = (AsyncCallback, *mut c_void);

/// Another thread's side: it wakes the job.
struct Waker {
    notifier: Arc<Notifier>,
    /// Present with a [`Notifier::Callback`].
    callback: Option<Callback>,
    /// Set when the job was notified.
    sent: Arc<AtomicBool>,
}

// SAFETY: the application gave its callback to be called from other threads
// (ASYNC_WAIT_CTX_set_callback(3)); the rest is `Send`.
unsafe impl Send for Waker {}

impl Notify for Waker {
    fn notify(&self) {
        match (&*self.notifier, self.callback) {
            (Notifier::Callback(gate), Some((function, arg))) => gate.call(|| {
                // The callback may have the job resumed at once, by another thread: it must find
                // `sent`.
                self.sent.store(true, Ordering::Release);
                // SAFETY: the application's callback with its own argument. The gate is open, so
                // the wait context that they belong to exists until the callback returns.
                unsafe { function(arg) };
            }),
            (notifier, _) => {
                notifier.signal();
                self.sent.store(true, Ordering::Release);
            }
        }
    }
}
