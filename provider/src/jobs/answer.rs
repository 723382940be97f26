//! Where an async job finds the answer of the key daemon.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lockstep_engine::{Notify, Permit};
use lockstep_remote::watch::Asker;
use lockstep_remote::{Begun, Connection, Failure};
use zeroize::Zeroizing;

/// What an operation of the daemon gives.
pub type Result = std::result::Result<Zeroizing<Vec<u8>>, Failure>;

/// What a job waits for. Dropping it abandons the request.
pub enum Pending {
    /// The thread that watches has the request.
    Watched(Arc<Answer>),
    /// It is in the ring of a connection.
    Begun(Arc<Connection>, Begun, Permit),
}

/// The place of an answer, which the job and the watching thread share.
pub struct Answer {
    result: Mutex<Option<Result>>,
    is_there: Condvar,
    /// Given back once neither has the place any more.
    _permit: Permit,
}

impl Answer {
    /// The place of an answer that is not there yet.
    pub fn expected(permit: Permit) -> Arc<Answer> {
        Arc::new(Answer {
            result: Mutex::new(None),
            is_there: Condvar::new(),
            _permit: permit,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result; waits for it if it is not there yet.
    pub fn take(&self) -> Result {
        let mut result = self.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            let waited = self.is_there.wait(result);
            result = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What the watching thread has of a job.
pub struct Waiter {
    pub answer: Arc<Answer>,
    pub waker: Box<dyn Notify>,
}

impl Asker for Waiter {
    fn is_waiting(&self) -> bool {
        Arc::strong_count(&self.answer) > 1
    }

    fn answer(self: Box<Self>, result: Result) {
        if !self.is_waiting() {
            return;
        }
        *self.answer.lock() = Some(result);
        self.answer.is_there.notify_one();
        self.waker.notify();
    }
}
