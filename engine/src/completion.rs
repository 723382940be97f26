//! Delivery of answers to their callers.
//!
//! A blocking thread sleeps in a [`Waiter`] until it gets its answer or is to lead. An asynchronous
//! job holds a [`Ticket`] and is notified by its [`Notify`] when the answer is there.

use std::time::Duration;

use lockstep_counters::Permit;
use lockstep_ops::{Failed, Response};

use crate::declined::Declined;
use crate::fault::{EARLY_LOOK, LOST_JOB, LOST_THREAD, is_lost, is_planted};
use crate::sync::{Arc, Condvar, Mutex, lock, wait_while_within};
use crate::thread_id::ThreadId;

/// Notifies an asynchronous caller that its ticket is done.
///
/// The engine calls this once, from another thread, when the answer can be taken. The call may
/// still run when the caller has seen `is_done` and drops the ticket; so the `Notify` must own the
/// memory that it writes.
pub trait Notify: Send {
    /// Wakes the caller. Must not block for long and must not call the engine.
    fn notify(&self);
}

/// The claim to the answer to one submitted request.
///
/// Dropping the ticket abandons the request: the request is skipped if no batch has taken it yet,
/// and its answer is wiped otherwise. After the drop no call of [`Notify::notify`] begins; an
/// earlier one may still run.
pub struct Ticket<A = Result<Response, Declined>> {
    completion: Arc<Completion<A>>,
    taken: bool,
}

impl<A> Ticket<A> {
    /// Returns whether [`take`](Self::take) would return at once.
    pub fn is_done(&self) -> bool {
        matches!(lock(&self.completion.state).phase, Phase::Done(_))
    }

    /// Has `notify` called when a posted request is done. Returns false, without a call, if it is
    /// done already.
    pub fn notify_by(&self, notify: Box<dyn Notify>) -> bool {
        let mut state = lock(&self.completion.state);
        let waits = state.phase.is_open();
        if waits {
            state.phase = Phase::Open(Some(notify));
        }
        waits
    }

    /// Waits for the answer and returns it. If that takes longer than `most`, abandons the request
    /// and returns `None`. A posted request is answered only when a thread attends to it.
    pub fn take_within(mut self, most: Option<Duration>) -> Option<A> {
        let mut state = lock(&self.completion.state);
        if state.phase.is_open() {
            state.asleep = true;
            let is_open = |state: &mut CompletionState<A>| state.phase.is_open();
            state = wait_while_within(&self.completion.done, state, most, is_open);
        }
        let answer = state.answer();
        drop(state);
        self.taken = answer.is_some();
        answer
    }

    /// Returns the answer, if it is there already.
    pub fn try_take(mut self) -> Result<A, Self> {
        let answer = lock(&self.completion.state).answer();
        match answer {
            Some(answer) => {
                self.taken = true;
                Ok(answer)
            }
            None => Err(self),
        }
    }

    pub(crate) fn completion(&self) -> &Arc<Completion<A>> {
        &self.completion
    }
}

impl<T> Ticket<Result<T, Declined>> {
    /// Waits for the answer of the engine and returns it.
    pub fn take(self) -> Result<T, Declined> {
        self.take_within(None)
            .unwrap_or(Err(Declined::Failed(Failed::Internal)))
    }
}

impl<A> Drop for Ticket<A> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = lock(&self.completion.state);
        let phase = std::mem::replace(&mut state.phase, Phase::Closed);
        // A request that is still in the engine keeps its permit, so that abandoned requests cannot
        // pile up beyond the bound.
        if matches!(phase, Phase::Done(_)) {
            state.permit = None;
        }
        drop(state);
        drop(phase);
    }
}

/// The other side of a [`Ticket`], for the thread that has the answer.
pub struct Completion<A> {
    state: Mutex<CompletionState<A>>,
    done: Condvar,
}

struct CompletionState<A> {
    phase: Phase<A>,
    permit: Option<Permit>,
    /// Whether the caller sleeps in [`Ticket::take_within`].
    asleep: bool,
}

impl<A> CompletionState<A> {
    /// Takes the answer, if it is there.
    fn answer(&mut self) -> Option<A> {
        if !matches!(self.phase, Phase::Done(_)) {
            return None;
        }
        self.permit = None;
        match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Done(answer) => Some(answer),
            Phase::Open(_) | Phase::Closed => None,
        }
    }
}

enum Phase<A> {
    /// There is no answer yet. Without a `Notify` the caller sleeps or looks at the ticket again.
    Open(Option<Box<dyn Notify>>),
    Done(A),
    /// The answer was taken, or the request abandoned.
    Closed,
}

impl<A> Phase<A> {
    /// Returns whether there is no answer yet and the request is not abandoned.
    fn is_open(&self) -> bool {
        matches!(self, Phase::Open(_))
    }
}

impl<A> Completion<A> {
    /// Makes a ticket and its completion. Without `notify` the caller sleeps or looks at the ticket
    /// again.
    pub fn open(
        notify: Option<Box<dyn Notify>>,
        permit: Permit,
    ) -> (Ticket<A>, Arc<Completion<A>>) {
        let state = CompletionState {
            phase: Phase::Open(notify),
            permit: Some(permit),
            asleep: false,
        };
        let completion = Arc::new(Completion {
            state: Mutex::new(state),
            done: Condvar::new(),
        });
        (
            Ticket {
                completion: completion.clone(),
                taken: false,
            },
            completion,
        )
    }

    /// Returns whether the caller has dropped the ticket: then this is the last reference to the
    /// completion, and so to the permit.
    pub fn is_abandoned(completion: &Arc<Self>) -> bool {
        Arc::strong_count(completion) == 1
    }

    /// Delivers the answer, then notifies. An answer to an abandoned request, or a second one, is
    /// dropped. Returns whether it was delivered.
    pub fn deliver(&self, answer: A) -> bool {
        let early = is_planted(EARLY_LOOK).then(|| lock(&self.state).asleep);
        let mut state = lock(&self.state);
        let notify = match &mut state.phase {
            Phase::Open(notify) => notify.take(),
            Phase::Done(_) | Phase::Closed => {
                state.permit = None;
                return false;
            }
        };
        state.phase = Phase::Done(answer);
        let asleep = early.unwrap_or(state.asleep);
        drop(state);
        if asleep {
            self.done.notify_all();
        }
        if let Some(notify) = notify
            && !is_lost(LOST_JOB)
        {
            notify.notify();
        }
        true
    }
}

/// The place where a blocking thread waits for its answer `T`, or to become leader with `L`.
pub(crate) struct Waiter<T, L> {
    /// The thread that waits.
    pub(crate) thread: ThreadId,
    place: Mutex<Place<T, L>>,
    woken: Condvar,
}

enum Place<T, L> {
    Waiting,
    Called(Turn<T, L>),
    /// The thread has left.
    Left,
}

/// The turn for which a waiting thread is woken.
pub(crate) enum Turn<T, L> {
    /// Another thread has served or declined its request.
    Answer(Result<T, Declined>),
    /// The woken thread has a slot and runs the next batch.
    Lead(L),
}

impl<T, L> Waiter<T, L> {
    pub(crate) fn new(thread: ThreadId) -> Arc<Waiter<T, L>> {
        Arc::new(Waiter {
            thread,
            place: Mutex::new(Place::Waiting),
            woken: Condvar::new(),
        })
    }

    /// Wakes the thread for its turn. If the thread has left, or has had its turn, the turn comes
    /// back as the error: a slot goes to another thread then, and an answer is dropped.
    pub(crate) fn wake(&self, turn: Turn<T, L>) -> Result<(), Turn<T, L>> {
        let mut place = lock(&self.place);
        match *place {
            Place::Called(_) | Place::Left => return Err(turn),
            Place::Waiting => *place = Place::Called(turn),
        }
        drop(place);
        if !is_lost(LOST_THREAD) {
            self.woken.notify_one();
        }
        Ok(())
    }

    /// Sleeps until the thread is woken. `None` if that does not happen in time; the thread may
    /// wait again.
    pub(crate) fn wait(&self, most: Option<Duration>) -> Option<Turn<T, L>> {
        self.sleep(most, Place::Waiting)
    }

    /// Sleeps as [`wait`](Self::wait) does. Afterwards the thread has left, woken or not.
    pub(crate) fn leave(&self, most: Duration) -> Option<Turn<T, L>> {
        self.sleep(Some(most), Place::Left)
    }

    /// Sleeps until the thread is woken. `otherwise` is the state of the thread if that does not
    /// happen in time.
    fn sleep(&self, most: Option<Duration>, otherwise: Place<T, L>) -> Option<Turn<T, L>> {
        let is_waiting = |place: &mut Place<T, L>| matches!(place, Place::Waiting);
        let mut place = wait_while_within(&self.woken, lock(&self.place), most, is_waiting);
        match std::mem::replace(&mut *place, Place::Left) {
            Place::Called(turn) => Some(turn),
            Place::Waiting | Place::Left => {
                *place = otherwise;
                None
            }
        }
    }
}
