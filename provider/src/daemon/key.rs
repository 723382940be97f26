//! Keys of the key daemon, and how it is asked: a thread waits for the answer, an async job pauses.
//!
//! A job posts its request and pauses. One thread of the process watches for the answers
//! ([`lockstep_remote::watch`]), and wakes the jobs. So the requests of all jobs of a thread are at
//! the daemon at once, and share its batches. The request of a lost job is answered nevertheless,
//! and nobody looks at the answer.
//!
//! A process may not be allowed to start a thread: HAProxy's are not, unless they run as root. A
//! job then lets its thread start others, which ask too, before the thread waits for the answers.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockstep_engine::{Elsewhere, Engine, Job, Paused, Permit, STACK_BYTES, Unpaused};
use lockstep_remote::connection::ANSWER;
use lockstep_remote::{Begun, Connection, Failure, Reference};
use zeroize::Zeroizing;

use crate::daemon::connection::Daemon;
use crate::ffi::raise;
use crate::host::c_library::Uncancelled;
use crate::jobs::answer::{Answer, Pending, Result, Waiter};
use crate::jobs::async_job::AsyncJob;
use crate::jobs::wait_ctx::WaitCtx;
use crate::process;

pub use lockstep_remote::Operation;

/// How often an operation is asked again that was lost with a daemon. It may be what ends daemons,
/// and must not end them all.
const LOSSES: u32 = 3;
/// How long a thread waits before it asks for the third time, and then twice as long each time, up
/// to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A key of the daemon.
pub struct Key {
    reference: Reference,
    daemon: &'static Daemon,
}

impl Key {
    /// A key of the daemon that listens at this socket.
    pub fn new(reference: Reference, socket: &Path) -> Arc<Key> {
        let daemon = Daemon::at(socket);
        Arc::new(Key { reference, daemon })
    }

    /// Asks for an operation whose result has `length` bytes. None with an error set.
    pub fn ask(
        &self,
        operation: Operation,
        input: &[u8],
        length: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let question = Question {
            key: &self.reference,
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

    /// Says why nothing is asked.
    pub fn refuse(&self, reason: &str) {
        raise(format_args!("key {}: {reason}", self.reference.name));
    }
}

/// What is asked of the daemon.
struct Question<'a> {
    key: &'a Reference,
    operation: Operation,
    input: &'a [u8],
    /// How long the result is.
    length: usize,
    /// When nobody waits for it any more, however often it is asked.
    deadline: Instant,
}

impl Question<'_> {
    /// Asks a daemon, and those that follow it if it ends. What was never in a ring can have ended
    /// none.
    fn ask(&self, daemon: &Daemon) -> Result {
        let mut losses = 0;
        let mut pause = Duration::ZERO;
        loop {
            let failure = match self.ask_over(daemon.connection(self.deadline)?) {
                Err(failure @ (Failure::Lost | Failure::Gone)) => failure,
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
        WaitCtx::with_current(|wait| match wait {
            Some(wait) => self.ask_in_job(connection, wait),
            None => self.block(&connection, None),
        })
    }

    fn ask_in_job(&self, connection: Arc<Connection>, wait: WaitCtx<'_>) -> Result {
        let engine = process::engine();
        let mut job = AsyncJob::new(wait, engine);
        let can_pause = Job::<Pending>::can_pause(&job);
        let has_callback = Job::<Pending>::has_callback(&mut job);
        let Some(permit) = can_pause.then(|| engine.admit_job()).flatten() else {
            return self.block_job(&connection, engine, Unpaused::Bound);
        };
        if connection.is_watched(start) {
            self.pause(connection, &job, engine, permit)
        } else if has_callback {
            self.block_job(&connection, engine, Unpaused::Bound)
        } else {
            self.give_way(connection, &job, engine, permit)
        }
    }

    /// Blocks the thread until the answer, for a request that may have begun.
    fn block(&self, connection: &Connection, begun: Option<Begun>) -> Result {
        // A place in the ring would be lost with the thread.
        let _uncancelled = Uncancelled::begin();
        let offered = connection.key(&self.key.name, &self.key.public)?;
        let (operation, input, length) = (self.operation, self.input, self.length);
        connection.finish(begun, operation, offered, input, length, self.deadline)
    }

    fn block_job(&self, connection: &Connection, engine: &Engine, reason: Unpaused) -> Result {
        engine.count(Elsewhere::Unpaused(reason));
        self.block(connection, None)
    }

    /// Posts the request, and pauses the job until the thread that watches wakes it.
    fn pause(
        &self,
        connection: Arc<Connection>,
        job: &AsyncJob<'_>,
        engine: &Engine,
        permit: Permit,
    ) -> Result {
        let Some((waker, wake)) = Job::<Pending>::waker(job) else {
            return self.block_job(&connection, engine, Unpaused::Descriptor);
        };
        let answer = Answer::expected(permit);
        let asker = Box::new(Waiter {
            answer: Arc::clone(&answer),
            waker,
        });
        let offered = connection.key(&self.key.name, &self.key.public)?;
        let (operation, input, length) = (self.operation, self.input, self.length);
        connection.post(operation, offered, input, length, asker, self.deadline)?;
        engine.count(Elsewhere::Submitted);
        // What a job holds while it is paused is lost with it.
        drop(connection);
        match job.wait(wake, Pending::Watched(answer)) {
            Paused::Resumed(pending) | Paused::Unwakeable(pending) => self.take(pending),
            Paused::Failed => Err(Failure::Lost),
        }
    }

    /// Posts the request, and lets the thread start other jobs before it waits for the answer.
    fn give_way(
        &self,
        connection: Arc<Connection>,
        job: &AsyncJob<'_>,
        engine: &Engine,
        permit: Permit,
    ) -> Result {
        let offered = connection.key(&self.key.name, &self.key.public)?;
        let Some(begun) = connection.begin(self.operation, offered, self.input) else {
            return self.block_job(&connection, engine, Unpaused::Bound);
        };
        engine.count(Elsewhere::Submitted);
        match job.give_way(Pending::Begun(connection, begun, permit)) {
            Paused::Resumed(pending) => self.take(pending),
            Paused::Unwakeable(pending) => {
                engine.count(Elsewhere::Unpaused(Unpaused::Descriptor));
                self.take(pending)
            }
            Paused::Failed => Err(Failure::Lost),
        }
    }

    /// The result of a request that was posted; waits for it if it is not there yet.
    fn take(&self, pending: Pending) -> Result {
        match pending {
            Pending::Watched(answer) => answer.take(),
            Pending::Begun(connection, begun, _) => self.block(&connection, Some(begun)),
        }
    }
}

/// Does nothing for some time.
fn rest(time: Duration) {
    let _uncancelled = Uncancelled::begin();
    thread::sleep(time);
}

/// Starts the thread that watches; false if that fails. An application's callback may run on it.
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
