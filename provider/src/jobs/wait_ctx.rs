//! The module's own part of a job's wait context.
//!
//! libssl frees a connection and its wait context even while a job of it is paused, and never frees
//! that job: everything on its stack is lost. So a job holds nothing while it is paused. The wait
//! context holds the claim to the answer, and frees it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockstep_engine::{Engine, ExternalEvent, Pending};

use crate::ffi::{self, AsyncCallback, AsyncWaitCtx, WaitFdCleanup};
use crate::jobs::notifier::{Kind, Notifier};
use crate::process;

/// The wait context of the running job.
#[derive(Clone, Copy)]
pub struct WaitCtx<'a>(&'a AsyncWaitCtx);

/// A paused job's wait.
pub struct Waiting {
    pub awaited: Pending,
    /// Set when the application was notified that the job can go on; None if it was notified before
    /// the pause.
    pub sent: Option<Arc<AtomicBool>>,
}

/// The module's data in a context, from the first pause of a job until the context is freed.
struct Kept {
    /// The engine of the process that made the data. A forked child has another one, or none.
    engine: *const Engine,
    notifier: Arc<Notifier>,
    /// The wait of the paused job, if one is paused.
    waiting: Option<Waiting>,
}

/// The module's keys in every wait context, one for each [`Kind`].
static KEYS: [u8; 2] = [0; 2];

fn key(kind: Kind) -> *const c_void {
    (&raw const KEYS[kind as usize]).cast()
}

impl<'a> WaitCtx<'a> {
    /// Wraps the wait context of the running job.
    pub fn new(wait: &'a AsyncWaitCtx) -> WaitCtx<'a> {
        WaitCtx(wait)
    }

    /// Returns the application's callback with its argument, if it has set one.
    pub fn callback(self) -> Option<(AsyncCallback, *mut c_void)> {
        let mut callback = None;
        let mut arg = null_mut();
        let found = ffi::ASYNC_WAIT_CTX_get_callback(self.0, &mut callback, &mut arg);
        let function = callback.filter(|_| found == 1)?;
        ffi::ASYNC_WAIT_CTX_set_status(self.0, ffi::ASYNC_STATUS_OK);
        Some((function, arg))
    }

    /// Returns the module's data in the context; None before the first pause in this process.
    fn kept(&mut self, kind: Kind) -> Option<&mut Kept> {
        let mut fd = -1;
        let mut data = null_mut();
        if ffi::ASYNC_WAIT_CTX_get_fd(self.0, key(kind), &mut fd, &mut data) != 1 {
            return None;
        }
        // SAFETY: under our key lies the box that `show` has stored. The context gives it back when
        // it is freed, which does not happen under a running job, and only the thread that runs the
        // job uses it.
        let kept = unsafe { &mut *data.cast::<Kept>() };
        if process::is_current(kept.engine) {
            return Some(kept);
        }
        // It is the parent's data, which the parent's threads use: the child must neither use nor
        // free it. See `forget`.
        ffi::ASYNC_WAIT_CTX_clear_fd(self.0, key(kind));
        None
    }

    /// Returns whether another job is paused with this context; then this one must not pause.
    pub fn is_taken(mut self) -> bool {
        [Kind::Descriptor, Kind::Callback]
            .into_iter()
            .any(|kind| self.kept(kind).is_some_and(|kept| kept.waiting.is_some()))
    }

    /// Returns the context's notifier of this kind, or a new one; None if the system gives no
    /// descriptor.
    pub fn notifier(self, kind: Kind) -> Option<Arc<Notifier>> {
        self.kept_notifier(kind).or_else(|| Notifier::new(kind))
    }

    /// Returns the context's notifier of this kind.
    pub fn kept_notifier(mut self, kind: Kind) -> Option<Arc<Notifier>> {
        self.kept(kind).map(|kept| Arc::clone(&kept.notifier))
    }

    /// Has the context keep a notifier and show its descriptor to the application, until the
    /// context is freed. Only a job that is about to pause calls this: at the end of a connection
    /// HAProxy removes every descriptor that the context has, and it aborts at a descriptor that no
    /// pause has shown to it. If the context has a notifier of this kind already, it keeps that
    /// one. Returns false if there is no memory or no descriptor.
    pub fn show(mut self, engine: &'static Engine, notifier: &Arc<Notifier>) -> bool {
        let kind = notifier.kind();
        if self.kept(kind).is_some() {
            return true;
        }
        let Some(fd) = notifier.shown() else {
            return false;
        };
        let kept = Kept {
            engine,
            notifier: Arc::clone(notifier),
            waiting: None,
        };
        let kept: *mut Kept = Box::into_raw(Box::new(kept));
        // SAFETY: the context takes over the box, and `forget` gets it back; if libcrypto refuses
        // the box, it stays ours.
        unsafe {
            let forget = Some(forget as WaitFdCleanup);
            let is_set =
                ffi::ASYNC_WAIT_CTX_set_wait_fd(self.0, key(kind), fd, kept.cast(), forget) == 1;
            if !is_set {
                drop(Box::from_raw(kept));
            }
            is_set
        }
    }

    /// Pauses the running job, which [`show`](Self::show) has prepared, and returns its wait when
    /// it is resumed. During the pause the job's stack must hold nothing that needs to be dropped,
    /// because the job may be lost. Returns None if the job could not be paused, or was resumed in
    /// another process.
    pub fn pause(
        mut self,
        kind: Kind,
        engine: &'static Engine,
        waiting: Waiting,
    ) -> Option<Waiting> {
        self.kept(kind)?.waiting = Some(waiting);
        // SAFETY: our callers are in a job, and hold no lock or borrow of thread-local state.
        let paused = unsafe { ffi::ASYNC_pause_job() } == 1;
        let waiting = self.kept(kind)?.waiting.take()?;
        if !process::is_current(engine) {
            // The locks of the parent's engine may be held for ever.
            std::mem::forget(waiting);
            return None;
        }
        paused.then_some(waiting)
    }
}

/// Ends the module's part of a wait context. From here on the application's callback is not called.
/// A job that is paused now is lost: it cannot be resumed. The descriptor closes when the last
/// worker that may still write to it is done, so a late wake-up never hits another descriptor with
/// the same number.
unsafe extern "C" fn forget(
    _wait: *mut AsyncWaitCtx,
    _key: *const c_void,
    _fd: c_int,
    data: *mut c_void,
) {
    // SAFETY: `data` is the box that `show` stored, given back once.
    let kept = unsafe { Box::from_raw(data.cast::<Kept>()) };
    if !process::is_current(kept.engine) {
        // In a forked child the locks of the parent's engine, and of its notifiers, may be held for
        // ever. Without an engine nobody is notified any more.
        std::mem::forget(kept);
        return;
    }
    if let Notifier::Callback(gate) = &*kept.notifier {
        gate.close();
    }
    if let Some(waiting) = kept.waiting {
        drop(waiting.awaited);
        process::count(ExternalEvent::LostJob);
    }
}
