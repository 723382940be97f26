//! How an answer finds the one who asked.
//!
//! A blocking thread sits in a [`Seat`] until it gets its answer or is asked to lead. An
//! asynchronous job holds a [`Ticket`] and is told by its [`Notify`] when the answer is there.

use crate::declined::Declined;
use crate::fault::{Defect, is_lost, is_planted};
use crate::permit::Permit;
use crate::request::Response;
use crate::sync::{Arc, Condvar, Mutex, lock, wait_while};

/// Tells an asynchronous caller that its ticket is done.
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
pub struct Ticket<T = Response> {
    booth: Arc<Booth<T>>,
    taken: bool,
}

impl<T> Ticket<T> {
    /// Whether [`take`](Self::take) would return at once.
    pub fn is_done(&self) -> bool {
        matches!(lock(&self.booth.claim).stage, Stage::Done(_))
    }

    /// Has `notify` called when a posted request is done; false, and no call, if it is done
    /// already.
    pub fn notify_by(&self, notify: Box<dyn Notify>) -> bool {
        let mut claim = lock(&self.booth.claim);
        let waits = claim.stage.is_open();
        if waits {
            claim.stage = Stage::Open(Some(notify));
        }
        waits
    }

    /// The answer; waits for it if it is not there yet. That of a posted request comes only when
    /// somebody attends to it.
    pub fn take(mut self) -> Result<T, Declined> {
        let mut claim = lock(&self.booth.claim);
        if claim.stage.is_open() {
            claim.asleep = true;
            claim = wait_while(&self.booth.done, claim, |claim| claim.stage.is_open());
        }
        let answer = claim.answer();
        drop(claim);
        self.taken = true;
        answer.unwrap_or(Err(Declined::Internal))
    }

    /// The answer, if it is there already.
    pub fn try_take(mut self) -> Result<Result<T, Declined>, Self> {
        let answer = lock(&self.booth.claim).answer();
        match answer {
            Some(answer) => {
                self.taken = true;
                Ok(answer)
            }
            None => Err(self),
        }
    }

    pub(crate) fn booth(&self) -> &Arc<Booth<T>> {
        &self.booth
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut claim = lock(&self.booth.claim);
        let stage = std::mem::replace(&mut claim.stage, Stage::Closed);
        // A request that is still in the engine keeps its permit, so that abandoned requests cannot
        // pile up beyond the bound.
        if matches!(stage, Stage::Done(_)) {
            claim.permit = None;
        }
        drop(claim);
        drop(stage);
    }
}

/// The engine's side of a [`Ticket`].
pub(crate) struct Booth<T> {
    claim: Mutex<Claim<T>>,
    done: Condvar,
}

struct Claim<T> {
    stage: Stage<T>,
    permit: Option<Permit>,
    /// Whether the caller sleeps until it is done.
    asleep: bool,
}

impl<T> Claim<T> {
    /// Takes the answer, if it is there.
    fn answer(&mut self) -> Option<Result<T, Declined>> {
        if !matches!(self.stage, Stage::Done(_)) {
            return None;
        }
        self.permit = None;
        match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Done(answer) => Some(answer),
            Stage::Open(_) | Stage::Closed => None,
        }
    }
}

enum Stage<T> {
    /// There is no answer yet. Without a notice the caller comes back by itself.
    Open(Option<Box<dyn Notify>>),
    Done(Result<T, Declined>),
    /// Taken or abandoned: nobody waits.
    Closed,
}

impl<T> Stage<T> {
    /// Whether there is no answer yet, and somebody wants it.
    fn is_open(&self) -> bool {
        matches!(self, Stage::Open(_))
    }
}

impl<T> Booth<T> {
    /// A new pair of claim and counter; without `notify` nobody is told.
    pub(crate) fn open(
        notify: Option<Box<dyn Notify>>,
        permit: Permit,
    ) -> (Ticket<T>, Arc<Booth<T>>) {
        let claim = Claim {
            stage: Stage::Open(notify),
            permit: Some(permit),
            asleep: false,
        };
        let booth = Arc::new(Booth {
            claim: Mutex::new(claim),
            done: Condvar::new(),
        });
        (
            Ticket {
                booth: booth.clone(),
                taken: false,
            },
            booth,
        )
    }

    /// Whether the caller has dropped the ticket: the engine's is the last reference to the booth,
    /// and so to the permit.
    pub(crate) fn is_abandoned(booth: &Arc<Self>) -> bool {
        Arc::strong_count(booth) == 1
    }

    /// Delivers the answer, then notifies; an abandoned answer is dropped.
    pub(crate) fn deliver(&self, answer: Result<T, Declined>) {
        let early = is_planted(Defect::EarlyLook).then(|| lock(&self.claim).asleep);
        let mut claim = lock(&self.claim);
        let notify = match &mut claim.stage {
            Stage::Open(notify) => notify.take(),
            Stage::Done(_) | Stage::Closed => {
                claim.permit = None;
                return;
            }
        };
        claim.stage = Stage::Done(answer);
        let asleep = early.unwrap_or(claim.asleep);
        drop(claim);
        if asleep {
            self.done.notify_all();
        }
        if let Some(notify) = notify
            && !is_lost(Defect::LostJob)
        {
            notify.notify();
        }
    }
}

/// Where a blocking thread waits: for its answer `T`, or to be made leader with `L`.
pub(crate) struct Seat<T, L> {
    turn: Mutex<Option<Turn<T, L>>>,
    called: Condvar,
}

/// What a seated thread is woken for.
pub(crate) enum Turn<T, L> {
    /// Somebody ran its request.
    Answer(Result<T, Declined>),
    /// It has a slot and runs the next batch.
    Lead(L),
}

impl<T, L> Seat<T, L> {
    pub(crate) fn new() -> Arc<Seat<T, L>> {
        Arc::new(Seat {
            turn: Mutex::new(None),
            called: Condvar::new(),
        })
    }

    /// Gives the seated thread its turn. Called once for each seat.
    pub(crate) fn call(&self, turn: Turn<T, L>) {
        *lock(&self.turn) = Some(turn);
        if !is_lost(Defect::LostThread) {
            self.called.notify_one();
        }
    }

    /// Sleeps until called.
    pub(crate) fn wait(&self) -> Turn<T, L> {
        let mut turn = wait_while(&self.called, lock(&self.turn), |turn| turn.is_none());
        turn.take().expect("wait_while saw a turn")
    }
}
