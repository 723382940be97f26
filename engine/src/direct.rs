//! Requests without an operation type, for programs that measure batches and for tests. Some go
//! past [`Engine::serve`].

use lockstep_ops::{Failed, GuardedRequest, KeyKind, Keypair, Request, Response, Shape};

use crate::caller::Thread;
use crate::completion::{Notify, Ticket};
use crate::declined::Declined;
use crate::engine::Engine;
use crate::executor::Executor as _;
use crate::queue::state::Queue;
use crate::serve::Outcome;

/// Serves a request while the calling thread blocks, as [`Engine::serve`] does. The thread needs
/// [`ROOM_BYTES`](crate::ROOM_BYTES) of stack.
pub fn blocking(engine: &Engine, request: Request) -> Result<Response, Declined> {
    match engine.serve(request.shape(), || Some(request), &Thread) {
        Outcome::Done(response) => Ok(response),
        Outcome::Declined(reason) => Err(reason),
        Outcome::NotAsked => Err(Declined::Failed(Failed::Internal)),
    }
}

/// Makes a key pair, or takes one of the pool.
pub fn keypair(engine: &Engine, kind: KeyKind) -> Result<Keypair, Declined> {
    match blocking(engine, Request::Keypair(kind))? {
        Response::Keypair(pair) => Ok(pair),
        _ => Err(Declined::Failed(Failed::Internal)),
    }
}

/// Takes a key pair of the pool, if that has one.
pub fn pooled_keypair(engine: &Engine, kind: KeyKind) -> Option<Keypair> {
    match engine.in_advance(Shape::Keypair(kind))? {
        Response::Keypair(pair) => Some(pair),
        _ => None,
    }
}

/// Has a worker serve a request, and returns at once. `notify` is called when the ticket is done.
pub fn submit(
    engine: &Engine,
    request: Request,
    notify: Box<dyn Notify>,
) -> Result<Ticket, Declined> {
    let shape = request.shape();
    let queue = engine.lanes_for(shape);
    let queue = queue.map_err(|reason| engine.declined(reason))?;
    Queue::submit(queue, shape, GuardedRequest::from(request), notify)
}

/// Runs requests as one batch on the calling thread, past the queue and its slots.
///
/// # Panics
///
/// If there is no request, if there are more than a batch takes, or if their shapes differ.
pub fn batch(engine: &Engine, requests: Vec<Request>) -> Vec<Result<Response, Declined>> {
    let shape = requests.first().expect("a batch has a request").shape();
    let queue = engine.queue();
    if let Some(reason) = queue.executor.lacks(shape) {
        let declined = |_: &Request| Err(engine.declined(reason()));
        return requests.iter().map(declined).collect();
    }
    assert!(
        requests.len() <= queue.executor.batch(shape),
        "too many requests for a batch"
    );
    assert!(
        requests.iter().all(|request| request.shape() == shape),
        "one shape in a batch"
    );
    queue.execute_at_once(shape, requests.into_iter().map(GuardedRequest::from))
}
