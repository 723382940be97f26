//! OpenSSL async jobs: a request of a job pauses it until a worker has the answer, or one of its
//! thread's jobs that is resumed leads them all.
//!
//! A job runs on a fibre with a 32 KiB stack, so no kernel ever runs on it, and it may be lost
//! while it is paused, so nothing that anybody else needs lies on it: see
//! [`wait_ctx`](crate::wait_ctx). There is a bound for paused jobs and one for lost ones: beyond
//! them, and without workers, a job blocks its thread instead. The application learns of the end by
//! its callback if it set one, else by an eventfd, one per wait context.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{
    Declined, Engine, Fallback, KeyKind, Keypair, Notify, Request, Response, Shape, Ticket,
    Unpaused,
};

use crate::bell::{Bell, Way};
use crate::ffi::AsyncCallback;
use crate::wait_ctx::{Pending, WaitCtx};
use crate::{memory, process, stack};

/// Has the engine serve the request of this shape that `make` makes: a job pauses meanwhile,
/// another caller blocks. None if there is none to be made. What is declined must live until stock
/// OpenSSL has computed: by it the engine knows that the thread computes outside of a slot.
pub fn compute(
    shape: Shape,
    make: impl FnOnce() -> Option<Request>,
) -> Option<Result<Response, Declined>> {
    #[cfg(feature = "fault-injection")]
    crate::fault::race();
    if memory::is_scarce() {
        return Some(Err(no_memory()));
    }
    let engine = process::engine();
    let job = Job::current().filter(|_| engine.pauses_for(shape));
    if job.is_none()
        && let Some(declined) = engine.declines_alone(shape)
    {
        return Some(Err(declined));
    }
    Some(serve(engine, job, make()?, When::Resumed))
}

/// A new key pair, from the pool if it has one.
pub fn keypair(kind: KeyKind) -> Result<Keypair, Declined> {
    if memory::is_scarce() {
        return Err(no_memory());
    }
    let engine = process::engine();
    if let Some(pair) = engine.pooled_keypair(kind) {
        return Ok(pair);
    }
    // The pool fills the lanes: nothing is gained by waiting for others.
    match serve(engine, Job::current(), Request::Keypair(kind), When::AtOnce)? {
        Response::Keypair(pair) => Ok(pair),
        _ => Err(Declined::Internal),
    }
}

fn serve(
    engine: &'static Engine,
    job: Option<Job>,
    request: Request,
    when: When,
) -> Result<Response, Declined> {
    if let Some(job) = job {
        if engine.admits_jobs() && !job.wait.is_taken() {
            let callback = job.wait.callback();
            if callback.is_none() && engine.jobs_lead() {
                return job.lead(engine, request, when);
            }
            let way = match callback {
                Some(_) => Way::Callback,
                None => Way::Descriptor,
            };
            if engine.lacks_workers() {
                engine.count_unpaused(Unpaused::Bound);
            } else if let Some(bell) = job.wait.bell(way) {
                return job.submit(engine, request, bell, callback);
            } else {
                engine.count_unpaused(Unpaused::Descriptor);
            }
        } else {
            engine.count_unpaused(Unpaused::Bound);
        }
        // A job that must not pause, or that nothing could wake, blocks its thread like any other
        // caller.
    }
    stack::with_room(|| engine.run(request)).unwrap_or_else(|| no_stack(engine))
}

/// The job could not be paused, or it was resumed in another process.
fn not_paused() -> Declined {
    process::engine().count_fallback(Fallback::AsyncUnavailable);
    Declined::ShutDown
}

/// Nothing is begun, nor an engine made, while memory is scarce.
fn no_memory() -> Declined {
    if let Some(engine) = process::engine_if_any() {
        engine.count_fallback(Fallback::NoMemory);
    }
    Declined::NoMemory
}

/// There is neither room for kernels nor memory for it.
fn no_stack<T>(engine: &Engine) -> Result<T, Declined> {
    engine.count_fallback(Fallback::NoStack);
    Err(Declined::NoStack)
}

/// The async job that the calling code runs in.
struct Job {
    wait: WaitCtx,
}

/// When a job leads that leads itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// After its thread had time to start other jobs.
    Resumed,
    AtOnce,
}

impl Job {
    /// The current job; None outside of jobs.
    fn current() -> Option<Job> {
        WaitCtx::current().map(|wait| Job { wait })
    }

    /// Has the application resume this job as soon as it has paused; false if there is no eventfd
    /// for it.
    fn signal(&self, engine: &'static Engine) -> bool {
        self.wait.bell(Way::Descriptor).is_some_and(|bell| {
            bell.signal();
            self.wait.show(engine, &bell)
        })
    }

    /// Takes [`signal`](Self::signal) back, once the job is resumed.
    fn drain(&self) {
        if let Some(bell) = self.wait.kept_bell(Way::Descriptor) {
            bell.drain();
        }
    }

    /// Submits `request` to a worker and pauses the job until it is answered.
    fn submit(
        &self,
        engine: &'static Engine,
        request: Request,
        bell: Arc<Bell>,
        callback: Option<Callback>,
    ) -> Result<Response, Declined> {
        let (waker, sent) = Waker::new(&bell, callback);
        let ticket = engine.submit(request, waker)?;
        self.answer(engine, ticket, sent, bell)
    }

    /// Posts `request` and pauses the job as ready to go on: when it is resumed, its thread has
    /// started other jobs too, and it leads them all as one batch.
    fn lead(
        &self,
        engine: &'static Engine,
        request: Request,
        when: When,
    ) -> Result<Response, Declined> {
        let mut post = engine.post(request, this_thread())?;
        if when == When::Resumed {
            if self.signal(engine) {
                let pending = Pending::Posted(post);
                let resumed = self.wait.pause(Way::Descriptor, engine, pending);
                let Some(Pending::Posted(resumed)) = resumed else {
                    return Err(not_paused());
                };
                post = resumed;
                self.drain();
            } else {
                engine.count_unpaused(Unpaused::Descriptor);
            }
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
            let Some(bell) = self.wait.bell(Way::Descriptor) else {
                return ticket.take();
            };
            let (waker, sent) = Waker::new(&bell, None);
            if !ticket.notify_by(waker) {
                return ticket.take();
            }
            self.answer(engine, ticket, sent, bell)
        })
    }

    /// The answer to `ticket`: pauses the job until the waker that sets `sent` has rung `bell`.
    fn answer(
        &self,
        engine: &'static Engine,
        mut ticket: Ticket,
        mut sent: Arc<AtomicBool>,
        bell: Arc<Bell>,
    ) -> Result<Response, Declined> {
        let way = bell.way();
        let mut bell = Some(bell);
        // A job can be resumed for other reasons than ours, so look before believing. `sent` rather
        // than the ticket's state: by then the wake-up is written, and draining cannot miss it.
        while !sent.load(Ordering::Acquire) {
            // From here on the context holds the bell. What a lost job holds is never dropped.
            if bell
                .take()
                .is_some_and(|bell| !self.wait.show(engine, &bell))
            {
                // Nobody would know when to resume the job: the ticket waits.
                break;
            }
            let pending = Pending::Submitted(ticket, sent);
            let resumed = self.wait.pause(way, engine, pending);
            let Some(Pending::Submitted(resumed, told)) = resumed else {
                return Err(not_paused());
            };
            (ticket, sent) = (resumed, told);
            if !sent.load(Ordering::Acquire) {
                // Where pausing is blocked, ASYNC_pause_job returns at once: do not burn the CPU.
                std::thread::yield_now();
            }
        }
        if way == Way::Descriptor {
            self.drain();
        }
        ticket.take()
    }
}

/// What tells the calling thread from all others that run.
fn this_thread() -> u64 {
    // SAFETY: plain query.
    unsafe { libc::pthread_self() }
}

/// Starts a worker with all signals blocked: it inherits that, so the server's signals stay with
/// the server's threads.
pub fn start_thread(start: &mut dyn FnMut()) {
    // SAFETY: plain calls on the module's signal sets; the mask of this thread is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}

/// The application's own way to be told of a job: its function, and what to call it with.
type Callback = (AsyncCallback, *mut c_void);

/// What another thread holds to wake a job.
struct Waker {
    bell: Arc<Bell>,
    /// With a [`Bell::Line`].
    callback: Option<Callback>,
    sent: Arc<AtomicBool>,
}

impl Waker {
    /// A waker, and what it sets when it has told the job.
    fn new(bell: &Arc<Bell>, callback: Option<Callback>) -> (Box<Waker>, Arc<AtomicBool>) {
        let sent = Arc::new(AtomicBool::new(false));
        let waker = Waker {
            bell: Arc::clone(bell),
            callback,
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
        match (&*self.bell, self.callback) {
            (Bell::Line(line), Some((function, arg))) => line.call(|| {
                // The callback may have the job resumed at once, by another thread: it must find
                // `sent`.
                self.sent.store(true, Ordering::Release);
                // SAFETY: the application's callback with its own argument. The line is not cut, so
                // the wait context that they belong to exists until the callback returns.
                unsafe { function(arg) };
            }),
            (bell, _) => {
                bell.signal();
                self.sent.store(true, Ordering::Release);
            }
        }
    }
}
