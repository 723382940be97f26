//! The wait of an asynchronous job for an answer. The lanes of this process compute it, or another
//! process does.
//!
//! If a job attends to its request itself, the job posts the request and pauses. Its thread starts
//! other jobs, which post theirs, and then resumes the job. Otherwise another thread has the answer
//! and wakes the job. A job that must not pause, or that no thread could wake, blocks its thread.

use lockstep_counters::Unpaused;

use crate::caller::{Job, Paused, Pending, ThreadId};
use crate::completion::Notify;

/// Serves requests, also those of jobs.
///
/// A job's stack is lost with the job. So a server on that stack owns nothing while the job is
/// paused: its state moves into the claim.
pub trait Server {
    /// Type of a request.
    type Request;
    /// Type of the answer.
    type Answer;
    /// The claim to an answer. Dropping it abandons the request.
    type Claim: Send + 'static;

    /// Returns whether one more job may pause.
    fn admits(&mut self) -> bool;

    /// Returns the manner in which a job waits. `has_callback`: the application has set a callback
    /// for the moment when the job can go on.
    fn manner(&mut self, has_callback: bool) -> Manner;

    /// Takes the request of a job of this thread, which will attend to it.
    fn post(
        &mut self,
        request: Self::Request,
        thread: ThreadId,
    ) -> Result<Self::Claim, Self::Answer>;

    /// Takes a request to which other threads attend. `waker` is notified once it is served.
    fn submit(
        &mut self,
        request: Self::Request,
        waker: Box<dyn Notify>,
    ) -> Result<Self::Claim, Self::Answer>;

    /// Notes that a job has paused and was resumed, before it attends to its request.
    fn resumed(&mut self) {}

    /// Serves a posted request. Returns the claim if another thread serves it already.
    fn attend(&mut self, claim: Self::Claim) -> Result<Self::Answer, Self::Claim>;

    /// Has `waker` notified once a posted request is served by another thread. False if it is
    /// served already.
    fn is_awaited(&mut self, claim: &Self::Claim, waker: Box<dyn Notify>) -> bool;

    /// Returns the answer. Blocks the thread if it is not there yet.
    fn take(&mut self, claim: Self::Claim) -> Self::Answer;

    /// Serves a request while the thread blocks.
    fn block(&mut self, request: Self::Request) -> Self::Answer;

    /// Returns the answer for a job that could not be paused, or goes on in another process.
    fn gone(&mut self) -> Self::Answer;

    /// Counts a job that does not pause.
    fn count(&mut self, reason: Unpaused);
}

/// The manner in which a job waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Its thread attends to the request when it has started other jobs.
    Attend,
    /// Another thread wakes it.
    Sleep,
    /// It blocks its thread.
    Block,
}

/// Serves the request of an asynchronous job.
pub fn serve_job<S: Server>(server: &mut S, mut job: impl Job, request: S::Request) -> S::Answer {
    if !job.can_pause() || !server.admits() {
        server.count(Unpaused::Bound);
        return server.block(request);
    }
    match server.manner(job.has_callback()) {
        Manner::Attend => attend(server, &job, request),
        Manner::Sleep => match job.waker() {
            Some((waker, wake)) => match server.submit(request, waker) {
                Ok(claim) => wait(server, &job, wake, claim),
                Err(answer) => answer,
            },
            None => {
                server.count(Unpaused::Descriptor);
                server.block(request)
            }
        },
        Manner::Block => {
            server.count(Unpaused::Bound);
            server.block(request)
        }
    }
}

/// Posts the request, and pauses the job while its thread starts others.
fn attend<S: Server>(server: &mut S, job: &impl Job, request: S::Request) -> S::Answer {
    let claim = match server.post(request, job.thread()) {
        Ok(claim) => claim,
        Err(answer) => return answer,
    };
    let pending = match job.give_way(Box::new(claim)) {
        Paused::Resumed(pending) => {
            server.resumed();
            pending
        }
        Paused::Unwakeable(pending) => {
            server.count(Unpaused::Descriptor);
            pending
        }
        Paused::Failed => return server.gone(),
    };
    let Some(claim) = claim_of::<S>(pending) else {
        return server.gone();
    };
    match server.attend(claim) {
        Ok(answer) => answer,
        Err(claim) => wait_for_another(server, job, claim),
    }
}

/// Waits for the answer to a posted request that another thread serves.
pub(crate) fn wait_for_another<S: Server>(
    server: &mut S,
    job: &impl Job,
    claim: S::Claim,
) -> S::Answer {
    if let Some((waker, wake)) = job.waker()
        && server.is_awaited(&claim, waker)
    {
        return wait(server, job, wake, claim);
    }
    server.take(claim)
}

/// Pauses the job until another thread has the answer.
fn wait<S: Server, J: Job>(server: &mut S, job: &J, wake: J::Wake, claim: S::Claim) -> S::Answer {
    match job.wait(wake, Box::new(claim)) {
        Paused::Resumed(pending) | Paused::Unwakeable(pending) => match claim_of::<S>(pending) {
            Some(claim) => server.take(claim),
            None => server.gone(),
        },
        Paused::Failed => server.gone(),
    }
}

/// Returns the claim that a job has left in its pause.
fn claim_of<S: Server>(pending: Pending) -> Option<S::Claim> {
    pending.downcast().ok().map(|claim| *claim)
}
