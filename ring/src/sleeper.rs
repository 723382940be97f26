//! How one thread sleeps on the boards of many rings.

use std::io;
use std::time::Duration;

use crate::board::ASLEEP;
use crate::server::Server;
use crate::sleep::{Patience, Waker};
use crate::sync::{self, Arc, Deadline, Mutex};
use crate::watcher::Watchers;

/// How often a thread looks at rings that it cannot listen to because there are too many.
const LOOK_AT_MANY_EVERY: Duration = Duration::from_millis(1);

/// A thread that sleeps until any of several rings has requests, by `futex_waitv` (Linux 5.16).
/// Where that is missing, each ring has a thread that [watches](crate::watcher) it.
///
/// A client that rings again and again without a request would keep the thread awake. The thread no
/// longer listens to its bell then, and looks at the ring now and then, until there is a request.
/// The kernel bounds on how many bells a thread can sleep. The thread listens to those that had
/// requests last, and looks at all others every millisecond.
#[derive(Debug)]
pub struct Sleeper {
    waker: Arc<Waker>,
    /// None where one thread can sleep on all rings.
    watchers: Mutex<Option<Watchers>>,
}

impl Sleeper {
    /// The most rings to which one thread listens.
    pub const MOST_RINGS: usize = 127;

    /// A sleeper for one thread.
    #[expect(clippy::new_without_default, reason = "it is made once, by name")]
    pub fn new() -> Sleeper {
        Sleeper {
            waker: Arc::new(Waker::new()),
            watchers: Mutex::new(None),
        }
    }

    /// A sleeper as it is without `futex_waitv`.
    #[cfg(test)]
    pub(crate) fn with_watchers() -> Sleeper {
        Sleeper {
            waker: Arc::new(Waker::new()),
            watchers: Mutex::new(Some(Watchers::default())),
        }
    }

    /// Ends the sleep of the thread, or its next one. Any thread may call it.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Sleeps until one of `rings` has requests, somebody calls [`Sleeper::wake`], or the time is
    /// over; may return early. One thread at a time may sleep on a ring.
    pub fn sleep(&self, rings: &[Server], patience: Patience) -> io::Result<()> {
        let deadline = Deadline::after(patience.timeout);
        let done = || self.waker.wake_up.seems_made() || rings.iter().any(Server::has_requests);
        if sync::spin(patience.spin, done) {
            self.waker.wake_up.take();
            return Ok(());
        }
        // Only the thread that sleeps takes this lock.
        let mut watchers = match self.watchers.lock() {
            Ok(watchers) => watchers,
            Err(poisoned) => poisoned.into_inner(),
        };
        if watchers.is_none() {
            match self.sleep_on_all(rings, deadline) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
                slept => return slept,
            }
        }
        self.sleep_with(watchers.get_or_insert_default(), rings, deadline);
        Ok(())
    }

    /// Sleeps on the bells of all rings.
    fn sleep_on_all(&self, rings: &[Server], deadline: Deadline) -> io::Result<()> {
        let heard = heard(rings);
        self.waker.bell.announce();
        heard.iter().for_each(|ring| ring.bell().announce());
        let mut woken_by = Ok(None);
        if let Some(left) = self.time_to_sleep(rings, deadline) {
            woken_by = self.wait(&heard, time_for(heard.len(), rings.len(), left));
        }
        self.waker.bell.settle();
        for (index, ring) in heard.iter().enumerate() {
            if ring.bell().settle() || matches!(woken_by, Ok(Some(woken)) if woken == index + 1) {
                ring.count_idle_ring();
            }
        }
        woken_by.map(drop)
    }

    /// Sleeps on the bell of its own, which the watchers ring.
    fn sleep_with(&self, watchers: &mut Watchers, rings: &[Server], deadline: Deadline) {
        // Always the same ones: each has a thread.
        let watched = &rings[..rings.len().min(Self::MOST_RINGS)];
        let count = match watchers.watch(watched, &self.waker) {
            Ok(()) => watched.len(),
            Err(_) => 0,
        };
        self.waker.bell.announce();
        watchers.open();
        if let Some(left) = self.time_to_sleep(rings, deadline) {
            let time = time_for(count, rings.len(), left);
            sync::wait(self.waker.bell.word(), ASLEEP, time);
        }
        self.waker.bell.settle();
    }

    /// How long to sleep, after the announcement; None if there is something to do.
    fn time_to_sleep(&self, rings: &[Server], deadline: Deadline) -> Option<Duration> {
        match !self.waker.wake_up.take() && rings.iter().all(Server::is_idle) {
            true => deadline.left(),
            false => None,
        }
    }

    /// Returns which bell woke the thread, if one did: its own is the first.
    fn wait(&self, rings: &[&Server], time: Duration) -> io::Result<Option<usize>> {
        if rings.is_empty() {
            sync::wait(self.waker.bell.word(), ASLEEP, time);
            return Ok(None);
        }
        let bells = rings.iter().map(|ring| ring.bell().word());
        let words: Vec<_> = [self.waker.bell.word()].into_iter().chain(bells).collect();
        sync::wait_any(&words, ASLEEP, time)
    }
}

/// The rings that a thread listens to: of too many, those that had requests last.
fn heard(rings: &[Server]) -> Vec<&Server> {
    let mut heard: Vec<&Server> = rings.iter().filter(|ring| ring.is_heard()).collect();
    if rings.len() > Sleeper::MOST_RINGS {
        rings.iter().for_each(Server::count_sleep);
        // In the order of the list where that is the same, so that the choice does not change.
        heard.sort_by_cached_key(|ring| ring.sleeps());
        heard.truncate(Sleeper::MOST_RINGS);
    }
    heard
}

/// How long a thread sleeps that hears of the requests of so many rings, out of so many.
fn time_for(heard: usize, all: usize, left: Duration) -> Duration {
    match heard == all {
        true => left,
        false if all > Sleeper::MOST_RINGS => left.min(LOOK_AT_MANY_EVERY),
        false => left.min(Server::LOOK_EVERY),
    }
}
