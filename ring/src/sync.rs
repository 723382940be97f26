//! The atomics, futexes and clocks of the ring.
//!
//! Under `cfg(loom)` the same names come from loom, so that the models run the code that ships.
//! Loom and Miri have no futex between processes: there a lock and a condition variable replace the
//! kernel's queues of sleeping threads, and no wait ends by time.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

#[cfg(not(any(loom, miri)))]
pub(crate) use kernel::{Deadline, pause, seconds, spawn, spin, wait, wait_any, wake};
#[cfg(any(loom, miri))]
pub(crate) use model::{Deadline, pause, seconds, spawn, spin, wait, wait_any, wake};

#[cfg(not(any(loom, miri)))]
mod kernel {
    use std::hint::spin_loop;
    use std::io;
    use std::sync::atomic::AtomicU32;
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
    use rustix::time::{ClockId, Timespec, clock_gettime};

    /// The moment at which a wait ends.
    #[derive(Clone, Copy)]
    pub(crate) struct Deadline(Option<Instant>);

    impl Deadline {
        pub(crate) fn after(timeout: Duration) -> Deadline {
            Deadline(Instant::now().checked_add(timeout))
        }

        /// Returns the time left; `None` if there is none.
        pub(crate) fn left(self) -> Option<Duration> {
            let Some(end) = self.0 else {
                return Some(Duration::from_secs(3600));
            };
            let left = end.saturating_duration_since(Instant::now());
            (!left.is_zero()).then_some(left)
        }
    }

    /// Checks `done` until it is true, for at most `time`. A clock is the limit, not a number of
    /// pause instructions, since each of them takes from 10 to 140 cycles.
    pub(crate) fn spin(time: Duration, done: impl Fn() -> bool) -> bool {
        if done() {
            return true;
        }
        if time.is_zero() {
            return false;
        }
        let start = Instant::now();
        loop {
            for _ in 0..8 {
                spin_loop();
                if done() {
                    return true;
                }
            }
            if start.elapsed() >= time {
                return false;
            }
        }
    }

    /// Starts a thread with a small stack.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let thread = thread::Builder::new().name(name.to_owned());
        thread.stack_size(128 << 10).spawn(work)
    }

    /// Pauses the thread.
    pub(crate) fn pause(time: Duration) {
        thread::sleep(time);
    }

    /// Returns the time in seconds, by a clock that all processes of the machine share.
    pub(crate) fn seconds() -> u32 {
        clock_gettime(ClockId::Monotonic).tv_sec as u32
    }

    /// Sleeps while `word` is `expected`, for at most `timeout`; may return early.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
        // After a changed word, a signal or the end of the time, the caller checks again.
        let _ = futex::wait(word, Flags::empty(), expected, Some(&timespec(timeout)));
    }

    /// Wakes one thread that sleeps on `word`. A hostile process could have any number of threads
    /// sleep there, and waking them takes time.
    pub(crate) fn wake(word: &AtomicU32) {
        let _ = futex::wake(word, Flags::empty(), 1);
    }

    /// Sleeps while all words are `expected`, for at most `timeout`; may return early. Returns the
    /// index of the word that woke the thread, if one did.
    pub(crate) fn wait_any(
        words: &[&AtomicU32],
        expected: u32,
        timeout: Duration,
    ) -> io::Result<Option<usize>> {
        let waits: Vec<Wait> = words
            .iter()
            .map(|word| {
                let mut wait = Wait::new();
                wait.val = u64::from(expected);
                wait.uaddr = WaitPtr::new(word.as_ptr().cast());
                wait.flags = WaitFlags::SIZE_U32;
                wait
            })
            .collect();
        let now = clock_gettime(ClockId::Monotonic);
        let end = now + timespec(timeout);
        match futex::waitv(&waits, WaitvFlags::empty(), Some(&end), ClockId::Monotonic) {
            Ok(index) => Ok(Some(index)),
            Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(None),
            // The kernel lacks the call, or a filter of system calls does not know it.
            Err(Errno::NOSYS | Errno::PERM) => Err(io::ErrorKind::Unsupported.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Maximum wait in seconds, about thirty years, which overflows no clock of the kernel.
    const LONGEST: u64 = 1 << 30;

    fn timespec(time: Duration) -> Timespec {
        Timespec {
            tv_sec: time.as_secs().min(LONGEST) as i64,
            tv_nsec: time.subsec_nanos().into(),
        }
    }
}

/// One lock replaces the kernel's queues: reading a word and falling asleep are one step.
#[cfg(any(loom, miri))]
mod model {
    use std::io;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    #[cfg(loom)]
    use loom::{
        sync::{Condvar, Mutex},
        thread,
    };
    #[cfg(not(loom))]
    use std::{
        sync::{Condvar, Mutex},
        thread,
    };

    use super::AtomicU32;

    struct Queues {
        lock: Mutex<()>,
        woken: Condvar,
    }

    impl Queues {
        fn new() -> Queues {
            Queues {
                lock: Mutex::new(()),
                woken: Condvar::new(),
            }
        }
    }

    #[cfg(loom)]
    loom::lazy_static! {
        static ref QUEUES: Queues = Queues::new();
    }
    #[cfg(not(loom))]
    static QUEUES: std::sync::LazyLock<Queues> = std::sync::LazyLock::new(Queues::new);

    #[derive(Clone, Copy)]
    pub(crate) struct Deadline;

    impl Deadline {
        pub(crate) fn after(_: Duration) -> Deadline {
            Deadline
        }

        pub(crate) fn left(self) -> Option<Duration> {
            Some(Duration::MAX)
        }
    }

    pub(crate) fn spin(_: Duration, done: impl Fn() -> bool) -> bool {
        done()
    }

    pub(crate) fn spawn(
        _: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        Ok(thread::spawn(work))
    }

    pub(crate) fn pause(_: Duration) {
        thread::yield_now();
    }

    pub(crate) fn seconds() -> u32 {
        0
    }

    pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
        let _ = wait_any(&[word], expected, timeout);
    }

    pub(crate) fn wake(_: &AtomicU32) {
        let _guard = QUEUES.lock.lock().unwrap();
        QUEUES.woken.notify_all();
    }

    pub(crate) fn wait_any(
        words: &[&AtomicU32],
        expected: u32,
        _: Duration,
    ) -> io::Result<Option<usize>> {
        let guard = QUEUES.lock.lock().unwrap();
        if words.iter().all(|word| word.load(Relaxed) == expected) {
            drop(QUEUES.woken.wait(guard).unwrap());
        }
        Ok(None)
    }
}
