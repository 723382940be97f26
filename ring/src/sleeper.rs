//! The sleep of one thread on the boards of many rings.

use std::io;
use std::time::Duration;

use crate::board::ASLEEP;
use crate::server::Server;
use crate::sleep::{Patience, Waker};
use crate::sync::{self, Arc, Deadline, Mutex};
use crate::watcher::Watchers;

/// Interval at which a thread looks at rings that it cannot listen to because there are too many.
const LOOK_AT_MANY_EVERY: Duration = Duration::from_millis(1);

/// A sleep until any of several rings has requests, by `futex_waitv` (Linux 5.16). On older
/// kernels, each ring has a thread that [watches](crate::watcher) it.
///
/// A client that rings repeatedly without a request would keep the thread awake. The thread stops
/// listening to such a client's bell, and looks at that ring at intervals until there is a request.
/// The kernel limits the number of bells on which a thread can sleep. The thread listens to the
/// rings with the most recent requests, and looks at all others every millisecond.
#[derive(Debug)]
pub struct Sleeper {
    waker: Arc<Waker>,
    /// `None` unless `futex_waitv` has turned out to be missing.
    watchers: Mutex<Option<Watchers>>,
}

impl Sleeper {
    /// Maximum number of rings to which one thread listens.
    pub const MOST_RINGS: usize = 127;

    /// Creates a sleeper for one thread.
    #[expect(clippy::new_without_default, reason = "it is made once, by name")]
    pub fn new() -> Sleeper {
        Sleeper {
            waker: Arc::new(Waker::new()),
            watchers: Mutex::new(None),
        }
    }

    /// Creates a sleeper for a kernel without `futex_waitv`.
    #[cfg(test)]
    pub(crate) fn with_watchers() -> Sleeper {
        Sleeper {
            waker: Arc::new(Waker::new()),
            watchers: Mutex::new(Some(Watchers::default())),
        }
    }

    /// Ends the current or next sleep of the thread. Any thread may call it.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Sleeps until one of `rings` has requests, [`Sleeper::wake`] is called, or the time is over.
    /// May return early. Only one thread at a time may sleep on a ring.
    pub fn sleep(&self, rings: &[Server], patience: Patience) -> io::Result<()> {
        let deadline = Deadline::after(patience.timeout);
        let done = || self.waker.wake_up.seems_made() || rings.iter().any(Server::has_requests);
        if sync::spin(patience.spin, done) {
            self.waker.wake_up.take();
            return Ok(());
        }
        // Only the sleeping thread takes this lock.
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

    /// Sleeps on its own bell, which the watchers ring.
    fn sleep_with(&self, watchers: &mut Watchers, rings: &[Server], deadline: Deadline) {
        // Always the first rings: another choice would start other threads.
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

    /// Returns the time to sleep, after the announcement; `None` if there is work.
    fn time_to_sleep(&self, rings: &[Server], deadline: Deadline) -> Option<Duration> {
        match !self.waker.wake_up.take() && rings.iter().all(Server::is_idle) {
            true => deadline.left(),
            false => None,
        }
    }

    /// Returns the index of the bell that woke the thread, if one did; index 0 is its own bell.
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

/// Returns the rings that a thread listens to: if there are too many, those with the most recent
/// requests.
fn heard(rings: &[Server]) -> Vec<&Server> {
    let mut heard: Vec<&Server> = rings.iter().filter(|ring| ring.is_heard()).collect();
    if rings.len() > Sleeper::MOST_RINGS {
        rings.iter().for_each(Server::count_sleep);
        // A stable sort: rings with equal numbers keep their order, so that the choice does not
        // change.
        heard.sort_by_cached_key(|ring| ring.sleeps());
        heard.truncate(Sleeper::MOST_RINGS);
    }
    heard
}

/// Returns the time of a sleep that hears `heard` rings of `all`.
fn time_for(heard: usize, all: usize, left: Duration) -> Duration {
    match heard == all {
        true => left,
        false if all > Sleeper::MOST_RINGS => left.min(LOOK_AT_MANY_EVERY),
        false => left.min(Server::LOOK_EVERY),
    }
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use super::*;
    use crate::tests::{call, pair, serve_reversed};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn of_too_many_rings_those_are_heard_that_had_requests_last() {
        let pairs: Vec<_> = (0..Sleeper::MOST_RINGS + 3).map(|_| pair(1)).collect();
        let rings: Vec<Server> = pairs.iter().map(|(server, _)| server.clone()).collect();
        let heard_places = |rings: &[Server]| -> Vec<usize> {
            let place = |ring: &Server| rings.iter().position(|own| own.is_same(ring));
            let places = heard(rings)
                .into_iter()
                .map(|ring| place(ring).expect("one of them"));
            places.collect()
        };
        let all: Vec<usize> = (0..Sleeper::MOST_RINGS).collect();
        // One call can wait for all of them, so none is left out.
        assert_eq!(heard_places(&rings[..Sleeper::MOST_RINGS]), all);
        assert_eq!(rings[0].sleeps(), 0);
        assert_eq!(heard_places(&rings), all);
        assert!(rings.iter().all(|ring| ring.sleeps() == 1));
        let last = rings.len() - 1;
        let _ticket = pairs[last].1.submit(&call(b"")).unwrap();
        assert_eq!(serve_reversed(&rings[last]), 1);
        let chosen = heard_places(&rings);
        assert_eq!((chosen[0], &chosen[1..]), (last, &all[..all.len() - 1]));
    }

    #[test]
    fn a_thread_looks_now_and_then_at_rings_that_it_does_not_hear() {
        let most = Sleeper::MOST_RINGS;
        for (heard, all, time) in [
            (0, 0, LONG),
            (3, 3, LONG),
            (most, most, LONG),
            (2, 3, Server::LOOK_EVERY),
            (most - 1, most, Server::LOOK_EVERY),
            (most, most + 1, LOOK_AT_MANY_EVERY),
        ] {
            assert_eq!(time_for(heard, all, LONG), time, "{heard} of {all}");
        }
        assert_eq!(time_for(2, 3, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn who_has_something_to_do_does_not_sleep() {
        let sleeper = Sleeper::new();
        let (ring, client) = pair(1);
        let rings = [ring];
        let sleeps = || {
            sleeper
                .time_to_sleep(&rings, Deadline::after(LONG))
                .is_some()
        };
        assert!(sleeps());
        sleeper.wake();
        assert!(!sleeps() && sleeps());
        let _ticket = client.submit(&call(b"")).unwrap();
        assert!(!sleeps());
        let over = sleeper.time_to_sleep(&[], Deadline::after(Duration::ZERO));
        assert_eq!(over, None);
    }
}
