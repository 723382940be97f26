//! The entrance of the engine: it decides whether lanes or OpenSSL serve an operation, and on which
//! thread.
//!
//! - An operation of a thread with a low priority is declined: it would hold up others.
//! - A key pair comes from the pool, if that has one.
//! - A short operation is computed at once on the thread that asks, past the queue: to wait for
//!   company takes longer than a batch saves ([`Batch`](crate::policy::Batch)). Where OpenSSL is
//!   faster with one, it is declined. The others may share batches:
//! - For a thread that blocks, an operation that would run alone is declined where OpenSSL is
//!   faster. Otherwise the thread joins the [queue](crate::queue).
//! - A job posts its request and pauses. When it is resumed, it leads the requests that its thread
//!   has posted.
//! - A job with a callback submits its request to a worker and pauses until the worker has served
//!   it. So do all jobs where jobs do not lead. A job that must not pause goes the way of a thread
//!   that blocks.

use crate::caller::{Caller, Job, Paused, Pending};
use crate::completion::Ticket;
use crate::declined::Declined;
use crate::engine::Engine;
use crate::executor::Executor;
use crate::operation::{CpuRequest, Operation, Response};
use crate::queue::state::{Answer, Queue};
use crate::shape::Shape;
use crate::stats::counters::Unpaused;
use crate::sync::Arc;

#[cfg(test)]
mod fake;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

/// How the engine has dealt with an operation.
#[derive(Debug)]
pub enum Outcome<T> {
    /// The lanes have served it.
    Done(T),
    /// The lanes did not serve it. The reason is counted, and OpenSSL serves it instead. Keep the
    /// reason until that has computed: by it the engine knows that the thread is busy.
    Declined(Declined),
    /// The operation has no input that lanes can take, so nothing was asked or counted.
    NotAsked,
}

impl Engine {
    /// Serves an operation. `input` makes its input, which takes time, and is not called if the
    /// operation is served or declined without.
    pub fn serve<O: Operation>(
        &self,
        operation: O,
        input: impl FnOnce() -> Option<O::Input>,
        caller: &impl Caller,
    ) -> Outcome<O::Output> {
        if caller.is_low() {
            return Outcome::Declined(self.declined(Declined::LowPriority));
        }
        let shape = operation.shape();
        if let Shape::Keypair(kind) = shape
            && let Some(pair) = self.pooled_keypair(kind)
        {
            return outcome::<O>(Ok(Response::Keypair(pair)));
        }
        let queue = match self.lanes_for(shape) {
            Ok(queue) => queue,
            Err(reason) => {
                return match input() {
                    Some(_) => Outcome::Declined(self.declined(reason)),
                    None => Outcome::NotAsked,
                };
            }
        };
        let route = Route::of(queue, caller, shape);
        if let Some(declined) = route.declines(queue, shape) {
            return Outcome::Declined(declined);
        }
        let Some(input) = input() else {
            return Outcome::NotAsked;
        };
        let request = CpuRequest::from(operation.request(input));
        outcome::<O>(route.serve(queue, caller, shape, request))
    }
}

impl Engine {
    /// Serves what [`serve`](Self::serve) has declined, where nobody else can: on the calling
    /// thread, for which it waits for no other.
    pub fn serve_at_once<O: Operation>(
        &self,
        operation: O,
        input: impl FnOnce() -> Option<O::Input>,
        caller: &impl Caller,
    ) -> Outcome<O::Output> {
        let shape = operation.shape();
        let queue = match self.lanes_for(shape) {
            Ok(queue) => queue,
            Err(reason) => return Outcome::Declined(self.declined(reason)),
        };
        let Some(input) = input() else {
            return Outcome::NotAsked;
        };
        let request = CpuRequest::from(operation.request(input));
        outcome::<O>(serve_at_once(queue, caller, shape, request))
    }
}

fn outcome<O: Operation>(answer: Result<Response, Declined>) -> Outcome<O::Output> {
    match answer.map(O::output) {
        Ok(Some(output)) => Outcome::Done(output),
        Ok(None) => Outcome::Declined(Declined::Internal),
        Err(declined) => Outcome::Declined(declined),
    }
}

impl Pending {
    /// Gives up what a lost job waited for, and counts the job. No thread will resume it.
    pub fn lost(self, engine: &Engine) {
        engine.give_up(self);
    }
}

/// What a paused job of this executor waits for.
type PendingOf<E> = Pending<<E as Executor>::Shape, <E as Executor>::Response>;

/// How a request is served.
enum Route<J> {
    /// The thread computes it, alone.
    AtOnce,
    /// The thread blocks until it is served.
    Block,
    /// The job pauses until it is served.
    Pause(J),
}

impl<J> Route<J> {
    fn of<E: Executor, C: Caller<PendingOf<E>, Job = J>>(
        queue: &Queue<E>,
        caller: &C,
        shape: E::Shape,
    ) -> Route<J> {
        match caller.job() {
            _ if !queue.executor.shares_batches(shape) => Route::AtOnce,
            None => Route::Block,
            Some(job) => Route::Pause(job),
        }
    }

    /// Declines a request that would run alone, where OpenSSL is faster: before it is made.
    fn declines<E: Executor>(&self, queue: &Queue<E>, shape: E::Shape) -> Option<Declined> {
        match self {
            Route::AtOnce => queue.declines_lone(shape),
            Route::Block => queue.declines_alone(shape),
            Route::Pause(_) => None,
        }
    }

    fn serve<E: Executor, C: Caller<PendingOf<E>, Job = J>>(
        self,
        queue: &Arc<Queue<E>>,
        caller: &C,
        shape: E::Shape,
        request: E::Request,
    ) -> Answer<E>
    where
        J: Job<PendingOf<E>>,
    {
        match self {
            Route::AtOnce => serve_at_once(queue, caller, shape, request),
            Route::Block => serve_thread(queue, caller, shape, request),
            Route::Pause(job) => serve_job(queue, caller, job, shape, request),
        }
    }
}

/// Computes a request on the calling thread, past the queue.
fn serve_at_once<E: Executor, C: Caller<PendingOf<E>>>(
    queue: &Queue<E>,
    caller: &C,
    shape: E::Shape,
    request: E::Request,
) -> Answer<E> {
    let served = caller.with_room(|| queue.execute_at_once(shape, [request]).pop());
    let answer = served.unwrap_or_else(|| Some(Err(queue.declined(Declined::NoStack))));
    answer.unwrap_or(Err(Declined::Internal))
}

/// Serves the request of a thread that blocks.
fn serve_thread<E: Executor, C: Caller<PendingOf<E>>>(
    queue: &Queue<E>,
    caller: &C,
    shape: E::Shape,
    request: E::Request,
) -> Answer<E> {
    let served = caller.with_room(|| queue.enqueue(shape, request));
    served.unwrap_or_else(|| Err(queue.declined(Declined::NoStack)))
}

/// Serves the request of an asynchronous job, which pauses if it may and something can wake it.
fn serve_job<E: Executor, C: Caller<PendingOf<E>>>(
    queue: &Arc<Queue<E>>,
    caller: &C,
    mut job: C::Job,
    shape: E::Shape,
    request: E::Request,
) -> Answer<E> {
    if !queue.admits() || !job.can_pause() {
        queue.counters.unpaused(Unpaused::Bound);
    } else if !job.has_callback() && queue.jobs_lead() {
        return post_and_lead(queue, caller, &job, shape, request);
    } else if queue.lacks_workers() {
        queue.counters.unpaused(Unpaused::Bound);
    } else if let Some((waker, wake)) = job.waker() {
        let ticket = Queue::submit(queue, shape, request, waker)?;
        return wait(queue, &job, wake, shape, ticket);
    } else {
        queue.counters.unpaused(Unpaused::Descriptor);
    }
    // A job that must not pause, or that nothing could wake, blocks its thread.
    serve_thread(queue, caller, shape, request)
}

/// Posts the request, and pauses the job while its thread starts others. The first of them that is
/// resumed serves what all have posted.
fn post_and_lead<E: Executor, C: Caller<PendingOf<E>>>(
    queue: &Arc<Queue<E>>,
    caller: &C,
    job: &C::Job,
    shape: E::Shape,
    request: E::Request,
) -> Answer<E> {
    let ticket = queue.post(shape, request, job.thread())?;
    let posted = Some(shape);
    let pending = match job.give_way(Pending { ticket, posted }) {
        Paused::Resumed(pending) => pending,
        Paused::Unwakeable(pending) => {
            queue.counters.unpaused(Unpaused::Descriptor);
            pending
        }
        Paused::Failed => return Err(Declined::ShutDown),
    };
    let ticket = match pending.ticket.try_take() {
        Ok(answer) => return answer,
        Err(ticket) => ticket,
    };
    let help = queue.executor.wants_help(shape);
    match caller.with_room(|| Queue::attend(queue, shape, ticket, help)) {
        Some(Ok(answer)) => answer,
        Some(Err(ticket)) => wait_for_another(queue, job, shape, ticket),
        None => Err(queue.declined(Declined::NoStack)),
    }
}

/// The answer to a posted request that another thread serves; declined if that thread does not end
/// in time.
fn wait_for_another<E: Executor, J: Job<PendingOf<E>>>(
    queue: &Arc<Queue<E>>,
    job: &J,
    shape: E::Shape,
    ticket: Ticket<E::Response>,
) -> Answer<E> {
    let Some((waker, wake)) = job.waker() else {
        return queue.take_in_time(shape, ticket);
    };
    if !ticket.notify_by(waker) {
        return ticket.take();
    }
    Queue::watch(queue, shape, &ticket);
    wait(queue, job, wake, shape, ticket)
}

/// Pauses the job until another thread has the answer.
fn wait<E: Executor, J: Job<PendingOf<E>>>(
    queue: &Queue<E>,
    job: &J,
    wake: J::Wake,
    shape: E::Shape,
    ticket: Ticket<E::Response>,
) -> Answer<E> {
    let posted = None;
    match job.wait(wake, Pending { ticket, posted }) {
        Paused::Resumed(pending) => pending.ticket.take(),
        Paused::Unwakeable(pending) => queue.take_in_time(shape, pending.ticket),
        Paused::Failed => Err(Declined::ShutDown),
    }
}
