//! The free slots of a ring, and the threads that wait for one.
//!
//! The threads wait in a queue. After each answer, the thread that has waited longest looks for a
//! free slot, and no thread overtakes it. The others sleep until they are first. A thread may leave
//! the queue without notice, by `siglongjmp` out of a signal handler. Then its place in the queue
//! counts until its deadline.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which a waiting thread checks that the daemon is still there.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(4);

/// The state of the queue.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Number of answers to all threads.
    answers: AtomicU64,
    /// Number of threads in the queue.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    sleepers: VecDeque<Arc<Sleeper>>,
    /// Whether the first thread should look for a free slot.
    may_have_room: bool,
}

/// A waiting thread.
#[derive(Debug)]
struct Sleeper {
    woken: Condvar,
    deadline: Instant,
}

/// The place of a thread in the queue. Dropping it leaves the queue.
pub(crate) struct Place<'a> {
    room: &'a Room,
    sleeper: Arc<Sleeper>,
}

impl Room {
    /// Returns the number of answers.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Relaxed)
    }

    /// Returns whether threads are in the queue.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) != 0
    }

    /// Returns the number of threads in the queue.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Leaves a waiting thread in the queue, and the queue locked, as in a child that was forked at
    /// that moment.
    #[cfg(test)]
    pub(crate) fn leave_locked(&self) {
        std::mem::forget(self.join(Instant::now() + LOOK_EVERY));
        std::mem::forget(self.lock());
    }

    /// Notes an answer, which has freed a slot. Either a thread that joins the queue sees the free
    /// slot, or this call sees that thread.
    pub(crate) fn note_answer(&self) {
        self.answers.fetch_add(1, Relaxed);
        if self.is_awaited() {
            self.lock().tell_first();
        }
    }

    /// Joins the queue at its end, with a deadline.
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

    /// Removes threads that have left the queue.
    fn forget(&self, queue: &mut Queue, has_left: impl Fn(&Sleeper) -> bool) {
        let before = queue.sleepers.len();
        queue.sleepers.retain(|sleeper| !has_left(sleeper));
        let forgotten = before - queue.sleepers.len();
        if forgotten > 0 {
            self.waiting.fetch_sub(forgotten, SeqCst);
            // There may be a free slot for the new first thread.
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
    /// Waits until the thread is first and there may be a free slot, or until a few milliseconds
    /// are over, so that the caller can check the daemon. Returns false if the deadline comes
    /// first.
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

    /// By `siglongjmp`, or because the thread is stopped.
    #[test]
    fn who_has_left_without_a_word_keeps_nobody_out() {
        let room = Room::default();
        let stopped = room.join(soon());
        let place = room.join(late());
        assert!(place.is_called());
        assert_eq!(room.waiting(), 1);
        // It comes back, but has lost its place.
        assert!(!stopped.is_called());
        drop(stopped);
        assert_eq!(room.waiting(), 1);
        assert!(place.is_called());
        drop(place);
        assert_eq!(room.waiting(), 0);
    }
}
