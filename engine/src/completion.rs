//! How an answer reaches its caller.
//!
//! A blocking thread sits in a [`Waiter`] until it gets its answer or is asked to lead. An
//! asynchronous job holds a [`Ticket`] and is notified by its [`Notify`] when the answer is there.

use std::time::Duration;

use lockstep_counters::Permit;
use lockstep_ops::{Failed, Response};

use crate::declined::Declined;
use crate::fault::{EARLY_LOOK, LOST_JOB, LOST_THREAD, is_lost, is_planted};
use crate::sync::{Arc, Condvar, Mutex, lock, wait_while_within};
use crate::thread_id::ThreadId;

/// Notifies an asynchronous caller that its ticket is done.
///
/// The engine calls this once, from another thread, after the answer can be taken. It may still be
/// running when the caller, who saw `is_done`, drops the ticket; so it must own whatever it writes
/// to.
pub trait Notify: Send {
    /// Wakes the caller. Must not block for long and must not call the engine.
    fn notify(&self);
}

/// The claim to the answer of one submitted request.
///
/// Dropping it abandons the request: it is skipped if no batch has taken it yet, and its answer is
/// wiped otherwise. Either way nobody is notified any more, save by a call already under way.
pub struct Ticket<A = Result<Response, Declined>> {
    completion: Arc<Completion<A>>,
    taken: bool,
}

impl<A> Ticket<A> {
    /// Whether [`take`](Self::take) would return at once.
    pub fn is_done(&self) -> bool {
        matches!(lock(&self.completion.state).phase, Phase::Done(_))
    }

    /// Has `notify` called when a posted request is done; false, and no call, if it is done
    /// already.
    pub fn notify_by(&self, notify: Box<dyn Notify>) -> bool {
        let mut state = lock(&self.completion.state);
        let waits = state.phase.is_open();
        if waits {
            state.phase = Phase::Open(Some(notify));
        }
        waits
    }

    /// The answer; waits for it if it is not there yet. None, and the request is abandoned, if that
    /// takes longer than `most`. The answer to a posted request comes only when somebody attends to
    /// it.
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

    /// The answer, if it is there already.
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
    /// The answer of the engine; waits for it if it is not there yet.
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

/// The other side of a [`Ticket`], of the thread that has the answer.
pub struct Completion<A> {
    state: Mutex<CompletionState<A>>,
    done: Condvar,
}

struct CompletionState<A> {
    phase: Phase<A>,
    permit: Option<Permit>,
    /// Whether the caller sleeps until it is done.
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
    /// There is no answer yet. Without a notice the caller comes back by itself.
    Open(Option<Box<dyn Notify>>),
    Done(A),
    /// Taken or abandoned: nobody waits.
    Closed,
}

impl<A> Phase<A> {
    /// Whether there is no answer yet, and somebody wants it.
    fn is_open(&self) -> bool {
        matches!(self, Phase::Open(_))
    }
}

impl<A> Completion<A> {
    /// A ticket with its completion; without `notify` the caller comes back by itself.
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

    /// Whether the caller has dropped the ticket: this is the last reference to the completion, and
    /// so to the permit.
    pub fn is_abandoned(completion: &Arc<Self>) -> bool {
        Arc::strong_count(completion) == 1
    }

    /// Delivers the answer, then notifies. One that is abandoned, or comes after another, is
    /// dropped; whether it was not.
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

/// Where a blocking thread waits: for its answer `T`, or to be made leader with `L`.
pub(crate) struct Waiter<T, L> {
    /// The thread.
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

/// What a waiting thread is woken for.
pub(crate) enum Turn<T, L> {
    /// Somebody ran its request.
    Answer(Result<T, Declined>),
    /// It has a slot and runs the next batch.
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

    /// Wakes the thread for its turn. If the thread has left, or has had its turn, this one comes
    /// back: a slot goes to another thread, and an answer to none.
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

    /// Sleeps until called. None if that does not happen in time; the thread may wait on.
    pub(crate) fn wait(&self, most: Option<Duration>) -> Option<Turn<T, L>> {
        self.sleep(most, Place::Waiting)
    }

    /// The same, for the last time: in the end the thread has left.
    pub(crate) fn leave(&self, most: Duration) -> Option<Turn<T, L>> {
        self.sleep(Some(most), Place::Left)
    }

    /// Sleeps until called. `otherwise` is where the thread is if that does not happen in time.
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
