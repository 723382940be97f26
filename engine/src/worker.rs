//! Threads that serve asynchronous requests.
//!
//! They start when the first request is submitted, at most one for each slot, and obey the same
//! slots and the same rule as blocking threads. A worker is either idle (it sleeps, or is about to
//! look for work) or has an assignment.

use crate::executor::Executor;
use crate::queue::{Guard, Queue};
use crate::sync::{Arc, thread};

/// What a batch may take of the stack, the making of a table on first use and a build without
/// optimisation included.
pub const ROOM_BYTES: usize = 448 * 1024;

/// A stack with such room, as the workers have it.
pub const STACK_BYTES: usize = ROOM_BYTES + 64 * 1024;

/// Starts a thread by calling what it is given. Around that call, the engine's owner can arrange
/// what the new thread inherits.
pub type StartThread = fn(&mut dyn FnMut());

/// The workers of one queue.
pub(crate) struct Workers {
    /// Workers without an assignment.
    pub(crate) idle: usize,
    /// Workers that run or are being started.
    alive: usize,
    most: usize,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn new(most: usize) -> Workers {
        Workers {
            idle: 0,
            alive: 0,
            most,
            threads: Vec::new(),
        }
    }

    /// Whether a submitted request would find all workers busy though there may be more of them.
    pub(crate) fn wanted(&self) -> bool {
        self.idle == 0 && self.alive < self.most
    }
}

/// Starts one more worker; `None` if that fails and there is no other.
pub(crate) fn start<'a, E: Executor>(
    queue: &'a Arc<Queue<E>>,
    mut state: Guard<'a, E>,
) -> Option<Guard<'a, E>> {
    state.workers.alive += 1;
    drop(state);
    let mut started = None;
    (queue.start_thread)(&mut || {
        let queue = queue.clone();
        let thread = thread::Builder::new()
            .name("lockstep-worker".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || queue.work());
        started = thread.ok();
    });
    let mut state = queue.lock();
    match started {
        Some(thread) => {
            state.workers.idle += 1;
            state.workers.threads.push(thread);
        }
        None => state.workers.alive -= 1,
    }
    (!state.workers.threads.is_empty()).then_some(state)
}

/// Closes the queue and waits for its workers. Only for the process that started them.
pub(crate) fn stop<E: Executor>(queue: &Queue<E>) {
    queue.close();
    let threads = std::mem::take(&mut queue.lock().workers.threads);
    for thread in threads {
        // The last owner of the engine may be a worker's own callback.
        if thread.thread().id() != thread::current().id() {
            // A worker does not panic; if one did, there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}
