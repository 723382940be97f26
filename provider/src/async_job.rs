//! OpenSSL async jobs: a request of a job pauses it until a worker has the answer, or one of its
//! thread's jobs that is resumed leads them all.
//!
//! A job runs on a fibre with a 32 KiB stack, so no kernel ever runs on it, and it may be abandoned
//! while paused, so nothing the worker touches belongs to the fibre. libssl never frees an abandoned
//! job, so there is a bound: beyond it, and without workers, a job blocks its thread instead. The
//! application learns of the end by its callback if it set one, else by an eventfd, one per wait context.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{
    Declined, Engine, Fallback, KeyKind, Keypair, Notify, Request, Response, Shape, Ticket,
};

use crate::ffi::{self, AsyncCallback, AsyncWaitCtx};
use crate::{process, stack};

/// Has the engine serve the request of this shape that `make` makes: a job pauses meanwhile, another caller blocks.
/// None if there is none to be made. What is declined must live until stock OpenSSL has computed: by it the engine
/// knows that the thread computes outside of a slot.
pub fn compute(
    shape: Shape,
    make: impl FnOnce() -> Option<Request>,
) -> Option<Result<Response, Declined>> {
    let engine = process::engine();
    let job = current();
    if job.is_none()
        && let Some(declined) = engine.declines_alone(shape)
    {
        return Some(Err(declined));
    }
    Some(serve(engine, job, make()?, When::Resumed))
}

/// A new key pair, from the pool if it has one.
pub fn keypair(kind: KeyKind) -> Result<Keypair, Declined> {
    let engine = process::engine();
    if let Some(pair) = engine.pooled_keypair(kind) {
        return Ok(pair);
    }
    // The pool fills the lanes: nothing is gained by waiting for others.
    match serve(engine, current(), Request::Keypair(kind), When::AtOnce)? {
        Response::Keypair(pair) => Ok(pair),
        _ => Err(Declined::Internal),
    }
}

fn serve(
    engine: &Engine,
    job: Option<Job>,
    request: Request,
    when: When,
) -> Result<Response, Declined> {
    if let Some(job) = job.filter(|_| engine.admits_jobs()) {
        let callback = job.callback();
        if callback.is_none() && engine.jobs_lead() {
            return job.lead(engine, request, when);
        }
        if !engine.lacks_workers()
            && let Some(wake) = callback.or_else(|| job.event().map(Wake::EventFd))
        {
            return job.submit(engine, request, wake);
        }
    }
    // Where a job must not pause, or nothing could wake it, its thread blocks like any other.
    stack::with_room(|| engine.run(request)).unwrap_or_else(|| no_stack(engine))
}

/// The job could not be paused, or it was resumed in another process.
fn not_paused() -> Declined {
    process::engine().count_fallback(Fallback::AsyncUnavailable);
    Declined::ShutDown
}

/// There is neither room for kernels nor memory for it.
fn no_stack<T>(engine: &Engine) -> Result<T, Declined> {
    engine.count_fallback(Fallback::NoStack);
    Err(Declined::NoStack)
}

/// The async job that the calling code runs in.
struct Job {
    wait: *mut AsyncWaitCtx,
}

/// When a job leads that leads itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// After its thread had time to start other jobs.
    Resumed,
    AtOnce,
}

/// The current job; None outside of jobs.
fn current() -> Option<Job> {
    // SAFETY: no preconditions; NULL outside of a job.
    let job = unsafe { ffi::ASYNC_get_current_job() };
    if job.is_null() {
        return None;
    }
    // SAFETY: `job` is the running job.
    let wait = unsafe { ffi::ASYNC_get_wait_ctx(job) };
    (!wait.is_null()).then_some(Job { wait })
}

impl Job {
    /// The application's own way to be told of this job, if it has one.
    fn callback(&self) -> Option<Wake> {
        let mut callback = None;
        let mut arg = null_mut();
        // SAFETY: `wait` belongs to the running job.
        let found = unsafe { ffi::ASYNC_WAIT_CTX_get_callback(self.wait, &mut callback, &mut arg) };
        let function = callback.filter(|_| found == 1)?;
        // SAFETY: as above.
        unsafe { ffi::ASYNC_WAIT_CTX_set_status(self.wait, ffi::ASYNC_STATUS_OK) };
        Some(Wake::Callback { function, arg })
    }

    /// The eventfd that the wait context has shown the application: the context's own reference, not to be held
    /// while the job pauses.
    fn kept(&self) -> Option<ManuallyDrop<Arc<EventFd>>> {
        let mut fd = -1;
        let mut data = null_mut();
        // SAFETY: `wait` belongs to the running job.
        if unsafe { ffi::ASYNC_WAIT_CTX_get_fd(self.wait, wait_key(), &mut fd, &mut data) } != 1 {
            return None;
        }
        // SAFETY: under our key lies the reference that `show` has stored. The context gives it back when it is freed or
        // cleared, which nobody does under a running job; ours is never dropped.
        Some(ManuallyDrop::new(unsafe {
            Arc::from_raw(data.cast_const().cast())
        }))
    }

    /// An eventfd to wake this job by: one that the application knows already, or a new one.
    fn event(&self) -> Option<Arc<EventFd>> {
        match self.kept() {
            Some(kept) => Some(Arc::clone(&kept)),
            None => EventFd::new().map(Arc::new),
        }
    }

    /// Has the application resume this job as soon as it has paused; false if there is no eventfd for it.
    fn signal(&self) -> bool {
        if let Some(kept) = self.kept() {
            kept.signal();
            return true;
        }
        EventFd::new().is_some_and(|event| {
            event.signal();
            self.show(&Arc::new(event))
        })
    }

    /// Takes [`signal`](Self::signal) back, once the job is resumed.
    fn drain(&self) {
        if let Some(kept) = self.kept() {
            kept.drain();
        }
    }

    /// Has the wait context show the eventfd to the application, and keep it until it is freed. Only a job
    /// that is about to pause does: HAProxy takes down, at the end of a connection, every descriptor
    /// that the context has, and aborts over one that no pause made it aware of.
    fn show(&self, event: &Arc<EventFd>) -> bool {
        if self.kept().is_some() {
            return true;
        }
        let kept = Arc::into_raw(Arc::clone(event));
        // SAFETY: the context takes over the reference `kept`; `forget` gives it back.
        let set = unsafe {
            ffi::ASYNC_WAIT_CTX_set_wait_fd(
                self.wait,
                wait_key(),
                event.0.as_raw_fd(),
                kept.cast_mut().cast(),
                Some(forget),
            )
        };
        if set != 1 {
            // SAFETY: the context did not take the reference.
            drop(unsafe { Arc::from_raw(kept) });
        }
        set == 1
    }

    /// Submits `request` to a worker and pauses the job until it is answered.
    fn submit(&self, engine: &Engine, request: Request, wake: Wake) -> Result<Response, Declined> {
        let event = match &wake {
            Wake::EventFd(event) => Some(Arc::clone(event)),
            Wake::Callback { .. } => None,
        };
        let (waker, sent) = Waker::new(wake);
        let ticket = engine.submit(request, waker)?;
        self.answer(engine, ticket, &sent, event)
    }

    /// Posts `request` and pauses the job as ready to go on: when it is resumed, its thread has
    /// started other jobs too, and it leads them all as one batch.
    fn lead(&self, engine: &Engine, request: Request, when: When) -> Result<Response, Declined> {
        let post = engine.post(request)?;
        if when == When::Resumed && self.signal() {
            pause_job()?;
            if !process::is_current(engine) {
                return forked(post);
            }
            self.drain();
        }
        let post = match post.try_take() {
            Ok(answer) => return answer,
            Err(post) => post,
        };
        let Some(attended) = stack::with_room(|| engine.attend(post)) else {
            return no_stack(engine);
        };
        attended.unwrap_or_else(|ticket| {
            // Another thread has the request, and tells us if there is a way to.
            let Some(event) = self.event() else {
                return ticket.take();
            };
            let (waker, sent) = Waker::new(Wake::EventFd(Arc::clone(&event)));
            if !ticket.notify_by(waker) {
                return ticket.take();
            }
            self.answer(engine, ticket, &sent, Some(event))
        })
    }

    /// The answer to `ticket`: pauses the job until the waker that sets `sent` has told it to go on, by `event` or a
    /// callback.
    fn answer(
        &self,
        engine: &Engine,
        ticket: Ticket,
        sent: &AtomicBool,
        mut event: Option<Arc<EventFd>>,
    ) -> Result<Response, Declined> {
        // A job can be resumed for other reasons than ours, so look before believing. `sent` rather
        // than the ticket's state: by then the wake-up is written, and draining cannot miss it.
        while !sent.load(Ordering::Acquire) {
            if event.as_ref().is_some_and(|event| !self.show(event)) {
                // Nobody would know when to resume the job: the ticket waits.
                break;
            }
            event = match event {
                Some(event) => Some(pause(event)?),
                None => {
                    pause_job()?;
                    None
                }
            };
            if !process::is_current(engine) {
                return forked(ticket);
            }
            if !sent.load(Ordering::Acquire) {
                // Where pausing is blocked, ASYNC_pause_job returns at once: do not burn the CPU.
                std::thread::yield_now();
            }
        }
        if let Some(event) = event {
            event.drain();
        }
        ticket.take()
    }
}

/// What a job gets that is resumed after a fork, in the child: nobody there has its request, and its eventfd wakes
/// the parent's job.
fn forked<T>(request: T) -> Result<Response, Declined> {
    // The locks of the parent's engine may be held for ever.
    std::mem::forget(request);
    Err(not_paused())
}

/// Pauses the running job, and gives its eventfd back. Meanwhile the job does not hold it: what an abandoned
/// job holds is never dropped, and the descriptor must close with the wait context and the last waker.
fn pause(event: Arc<EventFd>) -> Result<Arc<EventFd>, Declined> {
    let held = Arc::downgrade(&event);
    drop(event);
    pause_job()?;
    held.upgrade().ok_or_else(not_paused)
}

fn pause_job() -> Result<(), Declined> {
    // SAFETY: our callers are in a job, and hold no lock or borrow of thread-local state.
    match unsafe { ffi::ASYNC_pause_job() } {
        1 => Ok(()),
        _ => Err(not_paused()),
    }
}

/// Starts a worker with all signals blocked: it inherits that, so the server's signals stay with the
/// server's threads.
pub fn start_thread(start: &mut dyn FnMut()) {
    // SAFETY: plain calls on signal sets of ours; the mask of this thread is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}

/// Our key in every wait context.
fn wait_key() -> *const c_void {
    static KEY: u8 = 0;
    (&raw const KEY).cast()
}

/// Drops the wait context's reference to its eventfd. The descriptor closes when the last worker
/// that may still write to it is done, so a late wake-up never hits a descriptor used anew.
unsafe extern "C" fn forget(
    _wait: *mut AsyncWaitCtx,
    _key: *const c_void,
    _fd: c_int,
    data: *mut c_void,
) {
    // SAFETY: `data` is the reference that `show` stored, released once.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<EventFd>()) });
}

/// A way to tell the application that a job can go on.
enum Wake {
    Callback {
        function: AsyncCallback,
        arg: *mut c_void,
    },
    EventFd(Arc<EventFd>),
}

/// What another thread holds to wake a job.
struct Waker {
    wake: Wake,
    sent: Arc<AtomicBool>,
}

impl Waker {
    /// A waker, and what it sets when it has told the job.
    fn new(wake: Wake) -> (Box<Waker>, Arc<AtomicBool>) {
        let sent = Arc::new(AtomicBool::new(false));
        let waker = Waker {
            wake,
            sent: Arc::clone(&sent),
        };
        (Box::new(waker), sent)
    }
}

// SAFETY: the application gave its callback to be called from other threads
// (ASYNC_WAIT_CTX_set_callback(3)); the rest is `Send`.
unsafe impl Send for Waker {}

impl Notify for Waker {
    fn notify(&self) {
        match &self.wake {
            Wake::EventFd(fd) => {
                fd.signal();
                self.sent.store(true, Ordering::Release);
            }
            Wake::Callback { function, arg } => {
                // The callback may resume the job at once, on another thread: it must find `sent`.
                self.sent.store(true, Ordering::Release);
                // SAFETY: the application's callback with its own argument.
                unsafe { function(*arg) };
            }
        }
    }
}

/// A non-blocking eventfd.
struct EventFd(OwnedFd);

impl EventFd {
    fn new() -> Option<EventFd> {
        // SAFETY: plain system call; the descriptor is ours.
        unsafe {
            let fd = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
            (fd >= 0).then(|| EventFd(OwnedFd::from_raw_fd(fd)))
        }
    }

    fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. It can fail only when the counter is full: readable anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes. An empty counter reads as EAGAIN, which is fine.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
