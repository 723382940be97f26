//! The room in a ring, and the threads that wait for it.
//!
//! They wait in a queue: the thread that has waited longest looks for room, each time that an
//! answer has made some, and no thread overtakes it. The others sleep until it is their turn. A
//! thread may leave the queue without a word, by `siglongjmp` out of a signal handler. Its place
//! counts until its deadline.

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
    sleepers: VecDeque<Arc<Sleeper>>,
    /// Whether the first one has something to look for.
    may_have_room: bool,
}

/// A thread that waits.
#[derive(Debug)]
struct Sleeper {
    woken: Condvar,
    deadline: Instant,
}

/// The place of a thread in the queue, which it leaves by dropping it.
pub(crate) struct Place<'a> {
    room: &'a Room,
    sleeper: Arc<Sleeper>,
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
        std::mem::forget(self.join(Instant::now() + LOOK_EVERY));
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

    /// The last place in the queue, until then.
    pub(crate) fn join(&self, deadline: Instant) -> Place<'_> {
        let sleeper = Arc::new(Sleeper {
            woken: Condvar::new(),
            deadline,
        });
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

    /// Takes those out of the queue that have left it.
    fn forget(&self, queue: &mut Queue, has_left: impl Fn(&Sleeper) -> bool) {
        let before = queue.sleepers.len();
        queue.sleepers.retain(|sleeper| !has_left(sleeper));
        let forgotten = before - queue.sleepers.len();
        if forgotten > 0 {
            self.waiting.fetch_sub(forgotten, SeqCst);
            // There may be room for the one that is first now.
            queue.tell_first();
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
            first.woken.notify_one();
        }
    }
}

impl Place<'_> {
    /// Waits until the thread is the first one, and there may be room or some milliseconds are
    /// over: also the daemon may have ended. False if the deadline comes before.
    pub(crate) fn is_called(&self) -> bool {
        let mut queue = self.room.lock();
        let mut has_slept = false;
        loop {
            let now = Instant::now();
            if now >= self.sleeper.deadline {
                return false;
            }
            self.room.forget(&mut queue, |other| other.deadline <= now);
            let Some(first) = queue.sleepers.front() else {
                return false;
            };
            let is_first = Arc::ptr_eq(first, &self.sleeper);
            let left = first.deadline.min(self.sleeper.deadline) - now;
            if is_first && (queue.may_have_room || has_slept) {
                queue.may_have_room = false;
                return true;
            }
            let time = match is_first {
                true => left.min(LOOK_EVERY),
                false => left,
            };
            let slept = self.sleeper.woken.wait_timeout(queue, time);
            queue = slept.unwrap_or_else(PoisonError::into_inner).0;
            has_slept = is_first;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.room.lock();
        let own: *const Sleeper = &*self.sleeper;
        self.room
            .forget(&mut queue, |other| std::ptr::eq(other, own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn who_has_found_no_room_looks_again_after_an_answer_or_some_milliseconds() {
        let room = Room::default();
        let place = room.join(soon());
        assert!(place.is_called() && place.is_called());
        while place.is_called() {}
        drop(place);
        let place = room.join(late());
        assert!(place.is_called());
        room.note_answer();
        assert!(place.is_called() && place.is_called());
    }

    /// As by `siglongjmp`, or in a thread that is stopped.
    #[test]
    fn who_has_left_without_a_word_keeps_nobody_out() {
        let room = Room::default();
        let stopped = room.join(soon());
        let place = room.join(late());
        assert!(place.is_called());
        assert_eq!(room.waiting(), 1);
        // It comes back, and has no place any more.
        assert!(!stopped.is_called());
        drop(stopped);
        assert_eq!(room.waiting(), 1);
        assert!(place.is_called());
        drop(place);
        assert_eq!(room.waiting(), 0);
    }
}
