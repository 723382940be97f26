//! The entrance of the engine: it decides whether lanes or OpenSSL serve an operation, and on which
//! thread.
//!
//! - An operation of a thread with a low priority is declined: the thread would hold up others.
//! - A key pair comes from the pool, if that has one.
//! - A short operation is computed at once on the calling thread, past the queue: to wait for
//!   company takes longer than a batch saves. If OpenSSL is faster with a lone operation, the
//!   engine declines it. A job whose thread is in company waits
//!   ([`Company`](crate::policy::Company)), and so does RSA. An operation that waits shares
//!   batches:
//! - If a thread blocks, an operation that would run alone is declined if OpenSSL is faster.
//!   Otherwise the thread joins the [queue](crate::queue).
//! - A job posts its request and pauses. When it is resumed, it leads the requests that its thread
//!   has posted.
//! - A job with a callback submits its request to a worker and pauses until the worker has served
//!   it. A job that must not pause goes the way of a thread that blocks.

use lockstep_counters::Unpaused;
use lockstep_ops::operation::Operation;
use lockstep_ops::{Failed, GuardedRequest, Response, Shape};

use crate::caller::{Caller, Job, ThreadId};
use crate::completion::{Notify, Ticket};
use crate::declined::Declined;
use crate::engine::Engine;
use crate::executor::{Answer, Executor};
use crate::pause::{Manner, Server, serve_job};
use crate::policy::Sharing;
use crate::queue::state::Queue;
use crate::sync::Arc;

#[cfg(test)]
mod fake;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

/// The outcome of an operation.
#[derive(Debug)]
pub enum Outcome<T> {
    /// The lanes have served it.
    Done(T),
    /// The lanes did not serve it. The reason is counted, and OpenSSL serves it instead. Keep the
    /// reason until OpenSSL has computed: while it lives, the engine counts the thread as busy.
    Declined(Declined),
    /// The operation has no input that lanes can take, so nothing was asked or counted.
    NotAsked,
}

impl<T> Outcome<T> {
    /// Converts the result of the lanes by `make`.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Done(done) => Outcome::Done(make(done)),
            Outcome::Declined(declined) => Outcome::Declined(declined),
            Outcome::NotAsked => Outcome::NotAsked,
        }
    }

    /// Returns the result of the lanes, or without one the result of `stock`. The reason of a
    /// decline lives until `stock` returns.
    pub fn or_else(self, stock: impl FnOnce() -> T) -> T {
        match self {
            Outcome::Done(done) => done,
            _declined => stock(),
        }
    }
}

impl Engine {
    /// Serves an operation. `input` makes its input, which takes time. `input` is not called if the
    /// operation is served or declined without an input.
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
        if let Some(response) = self.in_advance(shape) {
            return self.outcome::<O>(Ok(response));
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
        if let Some(declined) = route.declines(queue, shape, caller.thread()) {
            return Outcome::Declined(declined);
        }
        let Some(input) = input() else {
            return Outcome::NotAsked;
        };
        let request = GuardedRequest::from(operation.request(input));
        self.outcome::<O>(route.serve(queue, caller, shape, request))
    }

    /// Serves an operation that [`serve`](Self::serve) has declined and OpenSSL lacks: on the
    /// calling thread, without waiting for another.
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
        let request = GuardedRequest::from(operation.request(input));
        self.outcome::<O>(serve_at_once(queue, caller, shape, request))
    }

    fn outcome<O: Operation>(&self, answer: Result<Response, Declined>) -> Outcome<O::Output> {
        match answer.map(O::output) {
            Ok(Some(output)) => Outcome::Done(output),
            // The executor has given an answer of another kind.
            Ok(None) => Outcome::Declined(self.declined(Declined::Failed(Failed::Internal))),
            Err(declined) => Outcome::Declined(declined),
        }
    }

    /// Takes a response that the executor has made in advance.
    pub(crate) fn in_advance(&self, shape: Shape) -> Option<Response> {
        let response = self.queue().executor.in_advance(shape)?;
        self.queue().counters.pool_hit(shape.index());
        Some(response)
    }
}

/// The route of a request.
enum Route<J> {
    /// The thread computes it, alone.
    AtOnce,
    /// The thread blocks until it is served.
    Block,
    /// The job pauses until it is served.
    Pause(J),
}

impl<J: Job> Route<J> {
    fn of<E: Executor, C: Caller<Job = J>>(
        queue: &Queue<E>,
        caller: &C,
        shape: E::Shape,
    ) -> Route<J> {
        let in_company = |thread| queue.company.is_certain(thread, E::index(shape));
        match queue.executor.sharing(shape) {
            Sharing::Always => caller.job().map_or(Route::Block, Route::Pause),
            Sharing::InCompany => {
                let can_pause = |job: &J| job.can_pause() && queue.admits();
                let job = caller
                    .job()
                    .filter(|job| in_company(job.thread()) && can_pause(job));
                // A worker would have to serve a job with a callback.
                let job = job.and_then(|mut job| (!job.has_callback()).then_some(job));
                job.map_or(Route::AtOnce, Route::Pause)
            }
            Sharing::Never => Route::AtOnce,
        }
    }

    /// Declines a request, before it is made, if it would run alone and OpenSSL is faster.
    fn declines<E: Executor>(
        &self,
        queue: &Queue<E>,
        shape: E::Shape,
        thread: ThreadId,
    ) -> Option<Declined> {
        match self {
            Route::AtOnce => queue.declines_lone(shape, thread),
            Route::Block => queue.declines_alone(shape, thread),
            Route::Pause(_) => None,
        }
    }

    fn serve<E: Executor, C: Caller>(
        self,
        queue: &Arc<Queue<E>>,
        caller: &C,
        shape: E::Shape,
        request: E::Request,
    ) -> Answer<E> {
        let mut line = Entrance {
            queue,
            caller,
            shape,
        };
        match self {
            Route::AtOnce => serve_at_once(queue, caller, shape, request),
            Route::Block => line.block(request),
            Route::Pause(job) => serve_job(&mut line, job, request),
        }
    }
}

/// Computes a request on the calling thread, past the queue.
fn serve_at_once<E: Executor, C: Caller>(
    queue: &Queue<E>,
    caller: &C,
    shape: E::Shape,
    request: E::Request,
) -> Answer<E> {
    let served = caller.with_room(|| queue.compute(shape, request));
    served.unwrap_or_else(|| Err(queue.declined(Declined::NoStack)))
}

/// The queue, for requests of one shape.
struct Entrance<'a, E: Executor, C> {
    queue: &'a Arc<Queue<E>>,
    caller: &'a C,
    shape: E::Shape,
}

/// The claim of a job to the answer to a request in the queue.
struct Claim<E: Executor> {
    queue: Arc<Queue<E>>,
    shape: E::Shape,
    /// `None` once it is taken out.
    ticket: Option<Ticket<Answer<E>>>,
    /// Whether the job's own thread serves the request when it resumes the job.
    is_posted: bool,
}

impl<E: Executor> Claim<E> {
    /// Returns the answer, if it is there already.
    fn try_take(mut self) -> Result<Answer<E>, Claim<E>> {
        match self.ticket.take().map(Ticket::try_take) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(ticket)) => {
                self.ticket = Some(ticket);
                Err(self)
            }
            None => Ok(Err(Declined::Failed(Failed::Internal))),
        }
    }
}

impl<E: Executor> Drop for Claim<E> {
    /// Takes a posted request back: the thread of a lost job does not serve it.
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take().filter(|_| self.is_posted) {
            self.queue.abandon(self.shape, ticket);
        }
    }
}

impl<E: Executor, C: Caller> Entrance<'_, E, C> {
    fn claim(&self, ticket: Ticket<Answer<E>>, is_posted: bool) -> Claim<E> {
        Claim {
            queue: Arc::clone(self.queue),
            shape: self.shape,
            ticket: Some(ticket),
            is_posted,
        }
    }
}

impl<E: Executor, C: Caller> Server for Entrance<'_, E, C> {
    type Request = E::Request;
    type Answer = Answer<E>;
    type Claim = Claim<E>;

    fn admits(&mut self) -> bool {
        self.queue.admits()
    }

    fn manner(&mut self, has_callback: bool) -> Manner {
        if !has_callback {
            Manner::Attend
        } else if self.queue.lacks_workers() {
            Manner::Block
        } else {
            Manner::Sleep
        }
    }

    fn post(&mut self, request: E::Request, thread: ThreadId) -> Result<Claim<E>, Answer<E>> {
        match self.queue.post(self.shape, request, thread) {
            Ok(ticket) => Ok(self.claim(ticket, true)),
            Err(declined) => Err(Err(declined)),
        }
    }

    fn submit(
        &mut self,
        request: E::Request,
        waker: Box<dyn Notify>,
    ) -> Result<Claim<E>, Answer<E>> {
        match Queue::submit(self.queue, self.shape, request, waker) {
            Ok(ticket) => Ok(self.claim(ticket, false)),
            Err(declined) => Err(Err(declined)),
        }
    }

    fn resumed(&mut self) {
        if self.queue.executor.sharing(self.shape) == Sharing::Always {
            self.queue.company.paused_long(self.caller.thread());
        }
    }

    /// Serves the posted requests of all jobs of the thread, if this job is resumed first.
    fn attend(&mut self, claim: Claim<E>) -> Result<Answer<E>, Claim<E>> {
        let mut claim = match claim.try_take() {
            Ok(answer) => return Ok(answer),
            Err(claim) => claim,
        };
        let (queue, shape) = (self.queue, self.shape);
        let help = queue.executor.wants_help(shape);
        // Without room the claim is dropped, and takes the request back.
        let attend = || match claim.ticket.take() {
            Some(ticket) => Queue::attend(queue, shape, ticket, help),
            None => Ok(Err(Declined::Failed(Failed::Internal))),
        };
        match self.caller.with_room(attend) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(ticket)) => Err(self.claim(ticket, false)),
            None => Ok(Err(queue.declined(Declined::NoStack))),
        }
    }

    fn is_awaited(&mut self, claim: &Claim<E>, waker: Box<dyn Notify>) -> bool {
        let ticket = claim.ticket.as_ref();
        let Some(ticket) = ticket.filter(|ticket| ticket.notify_by(waker)) else {
            return false;
        };
        Queue::watch(self.queue, self.shape, ticket);
        true
    }

    /// Declines the request if the thread that serves it does not end in time.
    fn take(&mut self, claim: Claim<E>) -> Answer<E> {
        match claim.try_take() {
            Ok(answer) => answer,
            Err(mut claim) => match claim.ticket.take() {
                Some(ticket) => self.queue.take_in_time(self.shape, ticket),
                None => Err(Declined::Failed(Failed::Internal)),
            },
        }
    }

    fn block(&mut self, request: E::Request) -> Answer<E> {
        let (queue, shape) = (self.queue, self.shape);
        let thread = self.caller.thread();
        if queue.executor.sharing(shape) != Sharing::Always {
            return serve_at_once(queue, self.caller, shape, request);
        }
        let served = self
            .caller
            .with_room(|| queue.enqueue(shape, request, thread));
        served.unwrap_or_else(|| Err(queue.declined(Declined::NoStack)))
    }

    fn gone(&mut self) -> Answer<E> {
        Err(Declined::ShutDown)
    }

    fn count(&mut self, reason: Unpaused) {
        self.queue.counters.unpaused(reason);
    }
}
