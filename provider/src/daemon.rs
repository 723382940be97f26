//! The way to the key daemon, for [its keys](crate::daemon_key).
//!
//! A process connects when it first asks for something, and anew when the daemon has ended. So a
//! daemon that is started again is used again, without a restart of the program. A forked child
//! makes a connection of its own.

use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use lockstep_remote::{Connection, Failure};
use once_cell::race::OnceBox;

/// For so long a daemon that does not answer is not asked again: each time, a thread waits.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a process connects before it believes that nobody welcomes it.
const ATTEMPTS: usize = 3;

/// A daemon, by its socket.
pub struct Daemon {
    socket: PathBuf,
    /// NULL until somebody asks, and where a forked child cannot use its parent's.
    link: AtomicPtr<Mutex<Link>>,
    next: OnceBox<Daemon>,
}

/// What a process has of a daemon.
#[derive(Default)]
struct Link {
    connection: Option<Arc<Connection>>,
    /// The daemon did not answer: how it failed, and when.
    silent: Option<(Failure, Instant)>,
}

/// All daemons that this process knows, as a list.
static DAEMONS: OnceBox<Daemon> = OnceBox::new();

fn daemons() -> impl Iterator<Item = &'static Daemon> {
    std::iter::successors(DAEMONS.get(), |daemon| daemon.next.get())
}

impl Daemon {
    /// The daemon that listens at `socket`.
    pub fn at(socket: &Path) -> &'static Daemon {
        let mut place = &DAEMONS;
        loop {
            let daemon = place.get_or_init(|| {
                Box::new(Daemon {
                    socket: socket.to_owned(),
                    link: AtomicPtr::new(null_mut()),
                    next: OnceBox::new(),
                })
            });
            if daemon.socket == socket {
                return daemon;
            }
            place = &daemon.next;
        }
    }

    /// The connection of this process, made if there is none that can be used.
    pub fn connection(&self) -> Result<Arc<Connection>, Failure> {
        let mut link = self.link();
        if let Some(connection) = &link.connection
            && !connection.is_gone()
        {
            return Ok(Arc::clone(connection));
        }
        if let Some((failure, since)) = &link.silent
            && since.elapsed() < PAUSE
        {
            return Err(failure.clone());
        }
        *link = Link::default();
        match self.open() {
            Ok(connection) => Ok(Arc::clone(link.connection.insert(Arc::new(connection)))),
            Err(failure) => {
                if failure == Failure::TimedOut {
                    link.silent = Some((failure.clone(), Instant::now()));
                }
                Err(failure)
            }
        }
    }

    /// Connects. A daemon that ends hangs up on those whom it has not welcomed yet; the next one
    /// listens at the same socket.
    fn open(&self) -> Result<Connection, Failure> {
        let mut attempts = (0..ATTEMPTS).map(|_| Connection::open(&self.socket));
        let decided = attempts.find(|attempt| !matches!(attempt, Err(Failure::Lost)));
        decided.unwrap_or(Err(Failure::Lost))
    }

    fn link(&self) -> MutexGuard<'static, Link> {
        let mut link = self.link.load(Ordering::Acquire);
        if link.is_null() {
            let made = Box::into_raw(Box::default());
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .link
                .compare_exchange(null_mut(), made, success, failure)
            {
                Ok(_) => link = made,
                Err(other) => {
                    link = other;
                    // SAFETY: the box was shared with nobody.
                    drop(unsafe { Box::from_raw(made) });
                }
            }
        }
        // SAFETY: made from a box, here or by another thread, and never freed.
        let link = unsafe { &*link };
        link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In a forked child: a link that another thread of the parent held at the fork stays locked, so
/// the child forgets it. Any other one is used again: its connection says that it is the parent's.
///
/// It waits for no lock and neither allocates nor frees memory.
pub fn after_fork() {
    for daemon in daemons() {
        let link = daemon.link.load(Ordering::Acquire);
        // SAFETY: NULL, or made from a box that is never freed.
        let is_held = unsafe { link.as_ref() }
            .is_some_and(|link| matches!(link.try_lock(), Err(TryLockError::WouldBlock)));
        if is_held {
            daemon.link.store(null_mut(), Ordering::Release);
        }
    }
}
