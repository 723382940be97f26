//! A process's way to a daemon: the connection, the failures, and whose turn it is to connect.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use libc::pthread_t;
use lockstep_remote::connection::CONNECT;
use lockstep_remote::{Connection, Failure, Opening};

use crate::host::c_library::pthread_self;

/// Time for which a daemon is not asked again after it has first rejected this process. The time
/// doubles with each further rejection for the same reason, up to `LONGEST_PAUSE`.
pub const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Number of times in a row that a new list of keys may be asked for because a list lacks a key;
/// after that, once in each `BETWEEN`. So 50 keys can be renewed together without a failure, and
/// requests for keys that the daemon never has do not keep the daemon busy.
pub const LISTS: u32 = 50;
pub const BETWEEN: Duration = Duration::from_millis(200);

/// A process's link to a daemon, and the turn to connect.
#[derive(Default)]
pub struct Way {
    /// No thread waits while it holds this lock.
    link: RwLock<Link>,
    pub turn: Turn,
}

/// One thread at a time connects. The others wait for it, each until its own deadline.
#[derive(Default)]
pub struct Turn {
    taker: Mutex<Option<Taker>>,
    is_over: Condvar,
}

/// The thread that connects, until its deadline. It may leave by `siglongjmp` out of a signal
/// handler without a release; then it may take the turn again before the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Taker {
    thread: pthread_t,
    deadline: Instant,
}

/// The turn of this thread.
pub struct Taken<'a> {
    turn: &'a Turn,
    taker: Taker,
}

/// A process's link to a daemon.
#[derive(Default)]
pub struct Link {
    pub connection: Option<Arc<Connection>>,
    /// A greeting that the daemon has not answered yet.
    pub opening: Option<Opening>,
    pub failed: Option<Failed>,
    /// Time from which the full number of lists may be asked for again.
    rested: Option<Instant>,
}

/// Why there is no connection.
#[derive(Clone)]
pub struct Failed {
    pub why: Failure,
    /// No thread tries again before this time.
    pub until: Instant,
    pause: Duration,
}

impl Way {
    pub fn read<T>(&self, look: impl FnOnce(&Link) -> T) -> T {
        look(&self.link.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn write<T>(&self, change: impl FnOnce(&mut Link) -> T) -> T {
        change(&mut self.link.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the connection, if there is a usable one.
    pub fn present(&self) -> Option<Arc<Connection>> {
        self.read(Link::present)
    }

    /// Forgets the work of the parent's threads, in a forked child; returns false if one of them
    /// held a lock at the fork.
    pub fn forget_others(&self) -> bool {
        let link = match self.link.try_write() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(link)) => Some(link.into_inner()),
            Ok(link) => Some(link),
        };
        let taker = match self.turn.taker.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(taker)) => Some(taker.into_inner()),
            Ok(taker) => Some(taker),
        };
        let (Some(mut link), Some(mut taker)) = (link, taker) else {
            return false;
        };
        link.failed = None;
        *taker = None;
        true
    }
}

impl Turn {
    /// Takes the turn, which ends by `deadline`. Waits until `until` while another thread has the
    /// turn, and then returns None.
    pub fn take_by(&self, until: Instant, deadline: Instant) -> Option<Taken<'_>> {
        let own = Taker {
            thread: pthread_self(),
            deadline,
        };
        let mut taker = self.lock();
        while let Some(other) = *taker {
            let now = Instant::now();
            if other.thread == own.thread || other.deadline <= now {
                break;
            }
            if until <= now {
                return None;
            }
            let left = until.min(other.deadline) - now;
            let waited = self.is_over.wait_timeout(taker, left);
            taker = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taker = Some(own);
        Some(Taken {
            turn: self,
            taker: own,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Taker>> {
        self.taker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // If this thread was late, another one has the turn.
        self.turn.lock().take_if(|taker| *taker == self.taker);
        // Waiting threads need no turn if there is a connection now.
        self.turn.is_over.notify_all();
    }
}

impl Link {
    /// Returns whether one more list may be asked for now, and counts the list if so. Calls
    /// `is_due` only if the number of lists allows one more.
    pub fn may_refresh(&mut self, now: Instant, is_due: impl FnOnce() -> bool) -> bool {
        let rested = self.rested.map_or(now, |rested| rested.max(now));
        let may = rested - now <= BETWEEN * (LISTS - 1) && is_due();
        if may {
            self.rested = Some(rested + BETWEEN);
        }
        may
    }

    /// Notes a new connection, in place of one that cannot be used any more.
    pub fn connect(&mut self, opened: Connection) -> Arc<Connection> {
        self.failed = None;
        Arc::clone(self.connection.insert(Arc::new(opened)))
    }

    /// Returns the time that a thread waits for a daemon that shows no sign of life: none if a
    /// thread has waited before. After that time, a server that has only references fails
    /// handshakes. So the time is longer than a daemon waits for a CPU on a machine with many more
    /// threads than CPUs.
    pub fn patience(&self) -> Duration {
        let silent = |failed: &Failed| failed.why == Failure::Silent;
        match self.failed.as_ref().is_some_and(silent) {
            true => Duration::ZERO,
            false => CONNECT,
        }
    }

    /// Notes the reason why there is no connection. The next request looks again at once for a
    /// missing listener, or for the answer to an earlier greeting, since that takes no time.
    pub fn fail(&mut self, why: &Failure) {
        // Several daemons have ended before they accepted a client, so no thread waits for the next
        // one.
        let why = match why {
            Failure::Lost => &Failure::Silent,
            why => why,
        };
        let before = self.failed.take().filter(|failed| failed.why == *why);
        let pause = match (why, before) {
            (Failure::Unreachable(..), _) => return,
            (Failure::Silent, _) => Duration::ZERO,
            (_, Some(before)) => (2 * before.pause).min(LONGEST_PAUSE),
            (_, None) => SHORTEST_PAUSE,
        };
        self.failed = Some(Failed {
            why: why.clone(),
            until: Instant::now() + pause,
            pause,
        });
    }

    /// Returns the connection, if it can be used.
    pub fn present(&self) -> Option<Arc<Connection>> {
        let connection = self.connection.as_ref()?;
        (!connection.is_gone()).then(|| Arc::clone(connection))
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Time from the start of a turn to its deadline.
    const LIMIT: Duration = Duration::from_millis(50);

    /// A thread leaves by `siglongjmp` out of a signal handler, because the program has waited long
    /// enough.
    #[test]
    fn a_thread_that_has_left_without_a_word_keeps_nobody_from_connecting() {
        let turn = Turn::default();
        let take = |time| {
            let now = Instant::now();
            turn.take_by(now + 4 * time, now + time)
        };
        let leave = |time| take(time).map(std::mem::forget);
        assert!(leave(CONNECT).is_some());
        // The same thread takes the turn again.
        assert!(leave(LIMIT).is_some());
        thread::scope(|scope| {
            // Another one waits until the deadline.
            scope.spawn(|| {
                let late = take(LIMIT);
                assert!(late.is_some());
                let own = turn.lock().map(|taker| taker.thread);
                assert!(own == Some(pthread_self()));
                // A slow thread does not give back the turn of another one.
                thread::scope(|scope| assert!(scope.spawn(|| take(LIMIT)).join().is_ok()));
                assert!(leave(CONNECT).is_some());
                drop(late);
                assert!(turn.lock().is_some());
            });
        });
    }
}
