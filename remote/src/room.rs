//! The room in a ring, and the threads that wait for it.
//!
//! They wait in a queue: the one that has waited longest looks for room, each time that an answer
//! has made some, and nobody overtakes it. The others sleep until it is their turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting thread looks whether the daemon is still there.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(4);

/// The room in the ring of a connection.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// How many answers have come, to all threads.
    answers: AtomicU64,
    /// How many threads are in the queue.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// On what each thread sleeps.
    sleepers: VecDeque<Arc<Condvar>>,
    /// Whether the first one has something to look for.
    may_have_room: bool,
}

/// The place of a thread in the queue, which it leaves by dropping it.
pub(crate) struct Place<'a> {
    room: &'a Room,
    sleeper: Arc<Condvar>,
}

impl Room {
    /// How many answers have come.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Relaxed)
    }

    /// Whether threads are in the queue.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) != 0
    }

    /// How many threads are in the queue.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Leaves a waiting thread in the queue, and the queue locked: as a child finds it that was
    /// forked at that moment.
    #[cfg(test)]
    pub(crate) fn leave_locked(&self) {
        std::mem::forget(self.join());
        std::mem::forget(self.lock());
    }

    /// An answer has come and made room. It is seen by a thread that joins the queue and then looks
    /// for room, or that thread is seen here.
    pub(crate) fn note_answer(&self) {
        self.answers.fetch_add(1, Relaxed);
        if self.is_awaited() {
            self.lock().tell_first();
        }
    }

    /// The last place in the queue.
    pub(crate) fn join(&self) -> Place<'_> {
        let sleeper = Arc::new(Condvar::new());
        let mut queue = self.lock();
        self.waiting.fetch_add(1, SeqCst);
        queue.sleepers.push_back(Arc::clone(&sleeper));
        if queue.sleepers.len() == 1 {
            queue.may_have_room = true;
        }
        Place {
            room: self,
            sleeper,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn tell_first(&mut self) {
        if let Some(first) = self.sleepers.front() {
            self.may_have_room = true;
            first.notify_one();
        }
    }
}

impl Place<'_> {
    /// Waits until the thread is the first one, and there may be room or some milliseconds are
    /// over: also the daemon may have ended. False if the deadline comes before.
    pub(crate) fn is_called_by(&self, deadline: Instant) -> bool {
        let mut queue = self.room.lock();
        let mut has_slept = false;
        loop {
            let first = queue.sleepers.front();
            let is_first = first.is_some_and(|first| Arc::ptr_eq(first, &self.sleeper));
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if is_first && (queue.may_have_room || has_slept) {
                queue.may_have_room = false;
                return true;
            }
            let time = match is_first {
                true => left.min(LOOK_EVERY),
                false => left,
            };
            let slept = self.sleeper.wait_timeout(queue, time);
            queue = slept.unwrap_or_else(PoisonError::into_inner).0;
            has_slept = is_first;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.room.lock();
        let own = |sleeper: &Arc<Condvar>| Arc::ptr_eq(sleeper, &self.sleeper);
        if let Some(place) = queue.sleepers.iter().position(own) {
            queue.sleepers.remove(place);
        }
        self.room.waiting.fetch_sub(1, SeqCst);
        // There may be room for more than one.
        queue.tell_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_found_no_room_looks_again_after_an_answer_or_some_milliseconds() {
        let room = Room::default();
        let place = room.join();
        let is_called_within = |time: Duration| place.is_called_by(Instant::now() + time);
        assert!(is_called_within(Duration::from_millis(1)));
        assert!(!is_called_within(Duration::from_millis(1)));
        room.note_answer();
        assert!(is_called_within(Duration::from_millis(1)));
        assert!(is_called_within(Duration::from_secs(60)));
    }
}
