//! Keys of the key daemon, and questions to it: a thread waits for the answer, an async job pauses.
//!
//! A job posts its request and pauses. One thread of the process watches for the answers
//! ([`lockstep_remote::watch`]), and wakes the jobs. So the requests of all jobs of a thread are at
//! the daemon at once, and share its batches. A lost job never continues: its request is answered
//! nevertheless, and the answer is dropped.
//!
//! Some processes may not start a thread, for example HAProxy's unless they run as root. There a
//! job lets its thread start other jobs, which also post requests. Then the thread waits for all
//! answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockstep_engine::{
    Completion, Engine, ExternalEvent, Manner, Notify, Permit, STACK_BYTES, Server, ThreadId,
    Ticket, Unpaused, serve_job,
};
use lockstep_remote::connection::ANSWER;
use lockstep_remote::watch::Asker;
use lockstep_remote::{Begun, Connection, Failure, Reference};
use zeroize::Zeroizing;

use crate::daemon::clock;
use crate::daemon::connection::Daemon;
use crate::ffi::raise;
use crate::host::c_library::Uncancelled;
use crate::jobs::async_job::AsyncJob;
use crate::process;
use crate::route;

pub use lockstep_remote::Operation;

/// Result of an operation of the daemon.
type Result = std::result::Result<Zeroizing<Vec<u8>>, Failure>;

/// Number of times that a request is repeated after the daemon that had it ended. The request may
/// be the cause, and must not end all daemons.
const LOSSES: u32 = 3;
/// Pause before the third attempt. The pause doubles with each attempt, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Minimum time before the daemon is asked again for a key that it did not have. The time doubles
/// with each question, up to [`LONGEST_LOOK`], so a reference to a missing key costs very little.
const SHORTEST_LOOK: Duration = Duration::from_millis(200);
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// A key of the daemon.
pub struct Key {
    reference: Reference,
    daemon: &'static Daemon,
    looks: Looks,
}

/// Schedule of the questions to the daemon about a missing key.
#[derive(Default)]
struct Looks {
    /// Time of the next question, by the system's clock.
    next: AtomicU64,
    pause: AtomicU64,
}

impl Looks {
    /// Returns whether the daemon may be asked now, and then sets the time of the next question.
    fn is_due(&self, now: u64) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        let (shortest, longest) = (SHORTEST_LOOK.as_nanos(), LONGEST_LOOK.as_nanos());
        let (shortest, longest) = (shortest as u64, longest as u64);
        // If the last question was long ago, the daemon may have had the key since: the pause
        // begins anew.
        let before = match now.saturating_sub(next) < longest {
            true => self.pause.load(Ordering::Relaxed),
            false => 0,
        };
        let pause = (2 * before).clamp(shortest, longest);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_due = now >= next
            && self
                .next
                .compare_exchange(next, now + pause, success, failure)
                .is_ok();
        if is_due {
            self.pause.store(pause, Ordering::Relaxed);
        }
        is_due
    }
}

impl Key {
    /// Returns a key of the daemon that listens at this socket.
    pub fn new(reference: Reference, socket: &Path) -> Arc<Key> {
        let daemon = Daemon::at(socket);
        let looks = Looks::default();
        #[rustfmt::skip]
        let key = Key { reference, daemon, looks };
        Arc::new(key)
    }

    /// Asks for an operation whose result has `length` bytes; None with an error set.
    pub fn ask(
        &self,
        operation: Operation,
        input: &[u8],
        length: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let question = Question {
            key: &self.reference,
            looks: &self.looks,
            operation,
            input,
            length,
            deadline: Instant::now() + ANSWER,
        };
        question
            .ask(self.daemon)
            .inspect_err(|failure| {
                if matches!(failure, Failure::Silent | Failure::TimedOut) {
                    self.daemon.gives_no_answer(failure);
                }
                self.refuse(&failure.to_string());
            })
            .ok()
    }

    /// Puts the reason of a refusal into the queue of errors.
    pub fn refuse(&self, reason: &str) {
        raise(format_args!("key {}: {reason}", self.reference.name));
    }
}

/// A question to the daemon.
struct Question<'a> {
    key: &'a Reference,
    looks: &'a Looks,
    operation: Operation,
    input: &'a [u8],
    /// Length of the result.
    length: usize,
    /// Time at which the caller stops waiting, after any number of attempts.
    deadline: Instant,
}

impl Question<'_> {
    /// Asks a daemon, and its successors if it ends. Only a question that was in a ring counts as
    /// a loss, since no other question can have ended a daemon.
    fn ask(&self, daemon: &Daemon) -> Result {
        let mut losses = 0;
        let mut pause = Duration::ZERO;
        loop {
            let connection = daemon.connection(self.deadline)?;
            let since = connection.since();
            let failure = match self.ask_over(connection) {
                Err(failure @ (Failure::Lost | Failure::Gone)) => failure,
                // The list of keys is as old as the connection.
                Err(Failure::NoKey | Failure::OtherKey)
                    if Instant::now() < self.deadline
                        && daemon.refresh(since, || self.looks.is_due(clock::system())) =>
                {
                    continue;
                }
                result => return result,
            };
            losses += u32::from(failure == Failure::Lost);
            if losses > LOSSES || Instant::now() >= self.deadline {
                return Err(failure);
            }
            rest(pause);
            pause = (2 * pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        }
    }

    /// Asks over a connection: a job pauses until the answer, another caller blocks.
    fn ask_over(&self, connection: Arc<Connection>) -> Result {
        route::with_job(|wait| match wait {
            Some(wait) => {
                let engine = process::engine();
                let mut asking = Asking {
                    question: self,
                    engine,
                    connection: Some(connection),
                    permit: None,
                };
                serve_job(&mut asking, AsyncJob::new(wait, engine), ())
            }
            None => self.block(&connection, None),
        })
    }

    /// Blocks the thread until the answer. `begun` is the request if it is in the ring already.
    fn block(&self, connection: &Connection, begun: Option<Begun>) -> Result {
        // A thread that is cancelled would lose its place in the ring.
        let _uncancelled = Uncancelled::begin();
        let offered = connection.key(&self.key.name, &self.key.public)?;
        let (operation, input, length) = (self.operation, self.input, self.length);
        connection.finish(begun, operation, offered, input, length, self.deadline)
    }
}

/// Result of a step. The error is the answer to the question.
type Step<T> = std::result::Result<T, Result>;

/// The question of a job, on its way to the daemon.
struct Asking<'a> {
    question: &'a Question<'a>,
    engine: &'static Engine,
    /// None once the question is posted: a lost job would keep the connection open.
    connection: Option<Arc<Connection>>,
    permit: Option<Permit>,
}

/// The claim of a job to an answer.
enum Claim {
    /// The thread that watches has the request.
    Watched(Ticket<Result>),
    /// The request is in the ring of a connection.
    Begun {
        connection: Arc<Connection>,
        begun: Begun,
        /// The permit to pause, which ends with the claim.
        _permit: Permit,
    },
}

/// A waiting job, to which the thread that watches gives the answer.
struct WaitingJob {
    completion: Arc<Completion<Result>>,
    /// Stays open until the answer, even if another thread connects anew for a newer list of keys.
    _connection: Arc<Connection>,
}

impl Asker for WaitingJob {
    fn is_waiting(&self) -> bool {
        !Completion::is_abandoned(&self.completion)
    }

    fn answer(self: Box<Self>, result: Result) {
        self.completion.deliver(result);
    }
}

impl Asking<'_> {
    /// Takes the connection and the permit, so that a lost job keeps nothing.
    fn taken(&mut self) -> Step<(Arc<Connection>, Permit)> {
        let taken = self.connection.take().zip(self.permit.take());
        taken.ok_or(Err(Failure::Lost))
    }
}

impl Server for Asking<'_> {
    type Request = ();
    type Answer = Result;
    type Claim = Claim;

    fn admits(&mut self) -> bool {
        self.permit = self.engine.admit_job();
        self.permit.is_some()
    }

    fn manner(&mut self, has_callback: bool) -> Manner {
        let connection = self.connection.as_ref();
        if connection.is_some_and(|connection| connection.is_watched(start)) {
            Manner::Sleep
        } else if has_callback {
            Manner::Block
        } else {
            Manner::Attend
        }
    }

    fn post(&mut self, (): (), _: ThreadId) -> Step<Claim> {
        let (connection, permit) = self.taken()?;
        let Question {
            operation,
            input,
            key,
            ..
        } = *self.question;
        let offered = connection.key(&key.name, &key.public);
        let begun = connection.begin(operation, offered.map_err(Err)?, input);
        let Some(begun) = begun else {
            self.count(Unpaused::Bound);
            return Err(self.question.block(&connection, None));
        };
        self.engine.count(ExternalEvent::Submitted);
        Ok(Claim::Begun {
            connection,
            begun,
            _permit: permit,
        })
    }

    fn submit(&mut self, (): (), waker: Box<dyn Notify>) -> Step<Claim> {
        let (connection, permit) = self.taken()?;
        let (ticket, completion) = Completion::open(Some(waker), permit);
        let Question {
            operation,
            input,
            length,
            deadline,
            key,
            ..
        } = *self.question;
        let offered = connection.key(&key.name, &key.public).map_err(Err)?;
        let asker = Box::new(WaitingJob {
            completion,
            _connection: Arc::clone(&connection),
        });
        let posted = connection.post(operation, offered, input, length, asker, deadline);
        posted.map_err(Err)?;
        self.engine.count(ExternalEvent::Submitted);
        Ok(Claim::Watched(ticket))
    }

    fn attend(&mut self, claim: Claim) -> std::result::Result<Result, Claim> {
        Ok(self.take(claim))
    }

    /// No other thread attends to a request in a ring.
    fn is_awaited(&mut self, _: &Claim, _: Box<dyn Notify>) -> bool {
        false
    }

    fn take(&mut self, claim: Claim) -> Result {
        match claim {
            Claim::Watched(ticket) => ticket.take_within(None).unwrap_or(Err(Failure::Lost)),
            Claim::Begun {
                connection, begun, ..
            } => self.question.block(&connection, Some(begun)),
        }
    }

    fn block(&mut self, (): ()) -> Result {
        self.permit = None;
        match self.connection.take() {
            Some(connection) => self.question.block(&connection, None),
            None => Err(Failure::Lost),
        }
    }

    fn gone(&mut self) -> Result {
        Err(Failure::Lost)
    }

    fn count(&mut self, reason: Unpaused) {
        self.engine.count(ExternalEvent::Unpaused(reason));
    }
}

/// Sleeps for `time`, and is not cancelled meanwhile.
fn rest(time: Duration) {
    let _uncancelled = Uncancelled::begin();
    thread::sleep(time);
}

/// Starts the thread that watches; returns false if that fails. The thread may run an application's
/// callback.
fn start(watch: Box<dyn FnOnce() + Send>) -> bool {
    let mut watch = Some(watch);
    let mut is_started = false;
    process::start_thread(&mut || {
        let Some(watch) = watch.take() else { return };
        let thread = thread::Builder::new()
            .name("lockstep-keyd".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(watch);
        is_started = thread.is_ok();
    });
    is_started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_missing_is_looked_for_less_and_less_often() {
        let looks = Looks::default();
        let [shortest, longest] = [SHORTEST_LOOK, LONGEST_LOOK].map(|time| time.as_nanos() as u64);
        let (mut now, mut pause) = (longest * 7, shortest);
        for _ in 0..12 {
            assert!(looks.is_due(now) && !looks.is_due(now + pause - 1));
            now += pause;
            pause = (2 * pause).min(longest);
        }
        assert_eq!(pause, longest);
        // After a long time without a question the pause begins anew.
        now += 2 * longest;
        assert!(looks.is_due(now) && !looks.is_due(now + shortest - 1));
        assert!(looks.is_due(now + shortest));
    }
}
