//! The module's own part of a job's wait context.
//!
//! libssl frees a connection and its wait context even while a job of it is paused, and never frees
//! that job: everything on its stack is lost. So a job holds nothing while it is paused. The answer
//! that it waits for lies in the wait context, and goes with it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockstep_engine::{Elsewhere, Engine, Pending};

use crate::ffi::{self, AsyncCallback, AsyncWaitCtx, WaitFdCleanup};
use crate::jobs::notifier::{Kind, Notifier};
use crate::process;

/// The wait context of the running job.
#[derive(Clone, Copy)]
pub struct WaitCtx<'a>(&'a AsyncWaitCtx);

/// What a paused job waits for.
pub struct Waiting {
    pub awaited: Pending,
    /// Set when the application was notified that the job can go on; None if that happens at once.
    pub sent: Option<Arc<AtomicBool>>,
}

/// What we keep, from the first pause of a job until the context is freed.
struct Kept {
    /// The engine of the process that made it. A forked child has another one, or none.
    engine: *const Engine,
    notifier: Arc<Notifier>,
    /// What the paused job waits for.
    waiting: Option<Waiting>,
}

/// Our keys in every wait context, one for each [`Kind`].
static KEYS: [u8; 2] = [0; 2];

fn key(kind: Kind) -> *const c_void {
    (&raw const KEYS[kind as usize]).cast()
}

impl<'a> WaitCtx<'a> {
    /// The context of the running job.
    pub fn new(wait: &'a AsyncWaitCtx) -> WaitCtx<'a> {
        WaitCtx(wait)
    }

    /// The application's callback with its argument, if it has set one.
    pub fn callback(self) -> Option<(AsyncCallback, *mut c_void)> {
        let mut callback = None;
        let mut arg = null_mut();
        let found = ffi::ASYNC_WAIT_CTX_get_callback(self.0, &mut callback, &mut arg);
        let function = callback.filter(|_| found == 1)?;
        ffi::ASYNC_WAIT_CTX_set_status(self.0, ffi::ASYNC_STATUS_OK);
        Some((function, arg))
    }

    /// What we keep in the context; None before the first pause in this process.
    fn kept(&mut self, kind: Kind) -> Option<&mut Kept> {
        let mut fd = -1;
        let mut data = null_mut();
        if ffi::ASYNC_WAIT_CTX_get_fd(self.0, key(kind), &mut fd, &mut data) != 1 {
            return None;
        }
        // SAFETY: under our key lies the box that `show` has stored. The context gives it back when
        // it is freed, which nobody does under a running job, and only the thread that runs the job
        // uses it.
        let kept = unsafe { &mut *data.cast::<Kept>() };
        if process::is_current(kept.engine) {
            return Some(kept);
        }
        // The parent's, which its threads use: the child must not use it, nor free it. See
        // `forget`.
        ffi::ASYNC_WAIT_CTX_clear_fd(self.0, key(kind));
        None
    }

    /// Whether another job is paused with this context; then this one must not be.
    pub fn is_taken(mut self) -> bool {
        [Kind::Descriptor, Kind::Callback]
            .into_iter()
            .any(|kind| self.kept(kind).is_some_and(|kept| kept.waiting.is_some()))
    }

    /// The notifier of this kind that the context has, or else a new one. None if the system gives
    /// no descriptor.
    pub fn notifier(self, kind: Kind) -> Option<Arc<Notifier>> {
        self.kept_notifier(kind).or_else(|| Notifier::new(kind))
    }

    /// The notifier of this kind that the context has.
    pub fn kept_notifier(mut self, kind: Kind) -> Option<Arc<Notifier>> {
        self.kept(kind).map(|kept| Arc::clone(&kept.notifier))
    }

    /// Has the context keep a notifier and show its descriptor to the application, until the
    /// context is freed. Only a job that is about to pause does: HAProxy takes down, at the end of
    /// a connection, every descriptor that the context has, and aborts over one that no pause made
    /// it aware of. A notifier that the context has stays as it is. False if there is no memory, or
    /// no descriptor.
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
        // SAFETY: the context takes over the box, and `forget` gets it back; or it stays ours.
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

    /// Pauses the running job, which [`show`](Self::show) has prepared, and gives back what it
    /// waits for once it is resumed. Nothing that a lost job would keep may lie on its stack
    /// meanwhile. None if it could not be paused, or was resumed in another process.
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

/// The end of a wait context. From here on the application's callback is not called. A job that is
/// paused now is lost: nobody can resume it. The descriptor closes when the last worker that may
/// still write to it is done, so a late wake-up never hits a descriptor used anew.
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
        process::count(Elsewhere::LostJob);
    }
}
