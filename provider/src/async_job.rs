//! OpenSSL async jobs: a request of a job pauses it until a worker has the answer, or one of its
//! thread's jobs that is resumed leads them all.
//!
//! A job runs on a fibre with a 32 KiB stack, so no kernel ever runs on it, and it may be lost while it is
//! paused, so nothing that anybody else needs lies on it: see [`wait_ctx`](crate::wait_ctx). There is a bound for paused
//! jobs and one for lost ones: beyond them, and without workers, a job blocks its thread instead. The
//! application learns of the end by its callback if it set one, else by an eventfd, one per wait context.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_engine::{
    Declined, Engine, Fallback, KeyKind, Keypair, Notify, Request, Response, Shape, Ticket,
    is_worth_a_pause,
};

use crate::eventfd::EventFd;
use crate::ffi::AsyncCallback;
use crate::wait_ctx::{Pending, WaitCtx, Way};
use crate::{process, stack};

/// Has the engine serve the request of this shape that `make` makes: a job pauses meanwhile, another caller blocks.
/// None if there is none to be made. What is declined must live until stock OpenSSL has computed: by it the engine
/// knows that the thread computes outside of a slot.
pub fn compute(
    shape: Shape,
    make: impl FnOnce() -> Option<Request>,
) -> Option<Result<Response, Declined>> {
    let engine = process::engine();
    let job = Job::current().filter(|_| is_worth_a_pause(shape));
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
            if !engine.lacks_workers()
                && let Some(wake) = job.wake(callback)
            {
                return job.submit(engine, request, wake);
            }
        }
        // A job that must not pause, or that nothing could wake, blocks its thread like any other caller.
        engine.count_unpaused();
    }
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

    /// How a worker wakes this job: by the application's callback if it has set one, else by an eventfd.
    fn wake(&self, callback: Option<(AsyncCallback, *mut c_void)>) -> Option<Wake> {
        match callback {
            Some((function, arg)) => Some(Wake::Callback { function, arg }),
            None => self.event().map(Wake::EventFd),
        }
    }

    /// An eventfd to wake this job by: one that the application knows already, or a new one.
    fn event(&self) -> Option<Arc<EventFd>> {
        self.wait.event().or_else(|| EventFd::new().map(Arc::new))
    }

    /// Has the application resume this job as soon as it has paused; false if there is no eventfd for it.
    fn signal(&self) -> bool {
        self.event().is_some_and(|event| {
            event.signal();
            self.wait.show(&event)
        })
    }

    /// Takes [`signal`](Self::signal) back, once the job is resumed.
    fn drain(&self) {
        if let Some(event) = self.wait.event() {
            event.drain();
        }
    }

    /// Submits `request` to a worker and pauses the job until it is answered.
    fn submit(
        &self,
        engine: &'static Engine,
        request: Request,
        wake: Wake,
    ) -> Result<Response, Declined> {
        let event = match &wake {
            Wake::EventFd(event) => Some(Arc::clone(event)),
            Wake::Callback { .. } => None,
        };
        let (waker, sent) = Waker::new(wake);
        let ticket = engine.submit(request, waker)?;
        self.answer(engine, ticket, sent, event)
    }

    /// Posts `request` and pauses the job as ready to go on: when it is resumed, its thread has
    /// started other jobs too, and it leads them all as one batch.
    fn lead(
        &self,
        engine: &'static Engine,
        request: Request,
        when: When,
    ) -> Result<Response, Declined> {
        let mut post = engine.post(request)?;
        if when == When::Resumed {
            if self.signal() {
                let pending = Pending::Posted(post);
                let resumed = self.wait.pause(Way::Descriptor, engine, pending);
                let Some(Pending::Posted(resumed)) = resumed else {
                    return Err(not_paused());
                };
                post = resumed;
                self.drain();
            } else {
                engine.count_unpaused();
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
            let Some(event) = self.event() else {
                return ticket.take();
            };
            let (waker, sent) = Waker::new(Wake::EventFd(Arc::clone(&event)));
            if !ticket.notify_by(waker) {
                return ticket.take();
            }
            self.answer(engine, ticket, sent, Some(event))
        })
    }

    /// The answer to `ticket`: pauses the job until the waker that sets `sent` has told it to go on, by `event` or,
    /// without one, by a callback.
    fn answer(
        &self,
        engine: &'static Engine,
        mut ticket: Ticket,
        mut sent: Arc<AtomicBool>,
        mut event: Option<Arc<EventFd>>,
    ) -> Result<Response, Declined> {
        let way = match event {
            Some(_) => Way::Descriptor,
            None => Way::Callback,
        };
        // A job can be resumed for other reasons than ours, so look before believing. `sent` rather
        // than the ticket's state: by then the wake-up is written, and draining cannot miss it.
        while !sent.load(Ordering::Acquire) {
            // From here on the context holds the eventfd. What an abandoned job holds is never dropped.
            let ready = match (way, event.take()) {
                (Way::Descriptor, Some(event)) => self.wait.show(&event),
                (Way::Descriptor, None) => true,
                (Way::Callback, _) => self.wait.attach(),
            };
            if !ready {
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
        if matches!(way, Way::Descriptor) {
            self.drain();
        }
        ticket.take()
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
