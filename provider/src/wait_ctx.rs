//! What the module keeps in the wait context of a job.
//!
//! libssl frees a connection and its wait context even while a job of it is paused, and never frees that job: what lies
//! on its stack is lost. So a job holds nothing while it is paused. What it waits for lies in the wait
//! context, and goes with it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lockstep_engine::{Claim, Engine, Post, Ticket};

use crate::eventfd::EventFd;
use crate::ffi::{self, AsyncCallback, AsyncWaitCtx};
use crate::process;

/// The wait context of the running job.
#[derive(Clone, Copy)]
pub struct WaitCtx(*mut AsyncWaitCtx);

/// How the application learns that a job can go on.
#[derive(Clone, Copy)]
pub enum Way {
    /// By a descriptor that becomes readable.
    Descriptor,
    /// By the callback that it has set.
    Callback,
}

/// What a paused job waits for.
pub enum Pending {
    /// Its turn to serve what its thread has posted.
    Posted(Post),
    /// An answer, and the flag that says that the application was told of it.
    Submitted(Ticket, Arc<AtomicBool>),
}

/// What we keep, from the first pause of a job until the context is freed.
struct Kept {
    /// The descriptor that the application sees; None where it has a callback.
    event: Option<Arc<EventFd>>,
    /// What the paused job waits for, and the engine that has it.
    pending: Option<(*const Engine, Pending)>,
}

/// Our keys in every wait context, one for each [`Way`].
static KEYS: [u8; 2] = [0; 2];

fn key(way: Way) -> *const c_void {
    (&raw const KEYS[way as usize]).cast()
}

impl WaitCtx {
    /// The context of the running job; None outside of jobs.
    pub fn current() -> Option<WaitCtx> {
        // SAFETY: no preconditions; NULL outside of a job.
        let job = unsafe { ffi::ASYNC_get_current_job() };
        if job.is_null() {
            return None;
        }
        // SAFETY: `job` is the running job.
        let wait = unsafe { ffi::ASYNC_get_wait_ctx(job) };
        (!wait.is_null()).then_some(WaitCtx(wait))
    }

    /// The application's callback with its argument, if it has set one.
    pub fn callback(self) -> Option<(AsyncCallback, *mut c_void)> {
        let mut callback = None;
        let mut arg = null_mut();
        // SAFETY: the context belongs to the running job.
        let found = unsafe { ffi::ASYNC_WAIT_CTX_get_callback(self.0, &mut callback, &mut arg) };
        let function = callback.filter(|_| found == 1)?;
        // SAFETY: as above.
        unsafe { ffi::ASYNC_WAIT_CTX_set_status(self.0, ffi::ASYNC_STATUS_OK) };
        Some((function, arg))
    }

    /// What we keep in the context; None before the first pause.
    fn kept(&mut self, way: Way) -> Option<&mut Kept> {
        let mut fd = -1;
        let mut data = null_mut();
        // SAFETY: the context belongs to the running job. Under our key lies the box that `keep` has stored. The
        // context gives it back when it is freed, which nobody does under a running job, and only the
        // thread that runs the job uses it.
        unsafe {
            let found = ffi::ASYNC_WAIT_CTX_get_fd(self.0, key(way), &mut fd, &mut data) == 1;
            found.then(|| &mut *data.cast::<Kept>())
        }
    }

    /// Whether another job is paused with this context; then this one must not be.
    pub fn is_taken(mut self) -> bool {
        [Way::Descriptor, Way::Callback]
            .into_iter()
            .any(|way| self.kept(way).is_some_and(|kept| kept.pending.is_some()))
    }

    /// The descriptor that the application knows already.
    pub fn event(mut self) -> Option<Arc<EventFd>> {
        self.kept(Way::Descriptor)?.event.clone()
    }

    /// Shows the application a descriptor, and keeps it, until the context is freed. Only a job that is about to pause
    /// does: HAProxy takes down, at the end of a connection, every descriptor that the context has, and aborts over one
    /// that no pause made it aware of. One that it knows stays as it is. False if there is no memory.
    pub fn show(mut self, event: &Arc<EventFd>) -> bool {
        self.kept(Way::Descriptor).is_some()
            || self.keep(Way::Descriptor, event.number(), Some(Arc::clone(event)))
    }

    /// Has us told when the context is freed, where the application uses callbacks: it sees a descriptor
    /// that is never readable. False if there is no memory, or no descriptor.
    pub fn attach(mut self) -> bool {
        self.kept(Way::Callback).is_some()
            || EventFd::silent().is_some_and(|fd| self.keep(Way::Callback, fd, None))
    }

    fn keep(self, way: Way, fd: c_int, event: Option<Arc<EventFd>>) -> bool {
        let kept = Kept {
            event,
            pending: None,
        };
        let kept: *mut Kept = Box::into_raw(Box::new(kept));
        // SAFETY: the context takes over the box; `forget` gets it back.
        let set = unsafe {
            ffi::ASYNC_WAIT_CTX_set_wait_fd(self.0, key(way), fd, kept.cast(), Some(forget))
        };
        if set != 1 {
            // SAFETY: the context did not take the box.
            drop(unsafe { Box::from_raw(kept) });
        }
        set == 1
    }

    /// Pauses the running job, which [`show`](Self::show) or [`attach`](Self::attach) has prepared, and gives back
    /// what it waits for once it is resumed. Nothing that a lost job would keep may lie on its stack
    /// meanwhile. None if it could not be paused, or was resumed in another process.
    pub fn pause(mut self, way: Way, engine: &'static Engine, pending: Pending) -> Option<Pending> {
        self.kept(way)?.pending = Some((engine, pending));
        // SAFETY: our callers are in a job, and hold no lock or borrow of thread-local state.
        let paused = unsafe { ffi::ASYNC_pause_job() } == 1;
        let (_, pending) = self.kept(way)?.pending.take()?;
        if !process::is_current(engine) {
            // The locks of the parent's engine may be held for ever.
            std::mem::forget(pending);
            return None;
        }
        paused.then_some(pending)
    }
}

/// The end of a wait context. A job that is paused now is lost: nobody can resume it. The descriptor closes when the last
/// worker that may still write to it is done, so a late wake-up never hits a descriptor used anew.
unsafe extern "C" fn forget(
    _wait: *mut AsyncWaitCtx,
    _key: *const c_void,
    _fd: c_int,
    data: *mut c_void,
) {
    // SAFETY: `data` is the box that `keep` stored, given back once.
    let kept = unsafe { Box::from_raw(data.cast::<Kept>()) };
    let Some((engine, pending)) = kept.pending else {
        return;
    };
    if !process::is_current(engine) {
        // The locks of the parent's engine may be held for ever.
        std::mem::forget(pending);
        return;
    }
    process::engine().lose(match pending {
        Pending::Posted(post) => Claim::Posted(post),
        Pending::Submitted(ticket, _) => Claim::Submitted(ticket),
    });
}
