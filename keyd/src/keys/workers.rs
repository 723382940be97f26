//! Threads for work in file systems that may never answer.
//!
//! A thread does one task after another, and the caller waits for each. A task that takes too long
//! holds up its own thread only: the next task goes to another thread. The late result arrives once
//! the file system answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Maximum time of a task while no other is late: [`LONG`] for a command, and [`SHORT`] for the
/// daemon, whose clients wait for their keys.
pub const LONG: Duration = Duration::from_secs(5);
pub const SHORT: Duration = Duration::from_millis(500);
/// Minimum of a task's maximum time, however many other tasks are late.
const LEAST: Duration = Duration::from_millis(2);
/// Maximum number of late tasks, each with a thread.
pub const MOST_LATE: usize = 1024;
/// Stack of a thread, which computes nothing.
const STACK: usize = 256 << 10;

/// The threads, and the results of late tasks.
pub struct Workers<I, O> {
    work: Arc<dyn Fn(I) -> O + Send + Sync>,
    /// Channel to the free thread, for tasks with their numbers.
    give: Sender<(usize, I)>,
    /// Channel for the results of all threads.
    taken: Receiver<(usize, O)>,
    back: Sender<(usize, O)>,
    patience: Duration,
    /// Number of the last task.
    last: usize,
    late: usize,
    finished: VecDeque<O>,
}

impl<I: Send + 'static, O: Send + 'static> Workers<I, O> {
    pub fn new(patience: Duration, work: impl Fn(I) -> O + Send + Sync + 'static) -> Workers<I, O> {
        // There is no thread yet.
        let (give, _) = channel();
        let (back, taken) = channel();
        Workers {
            work: Arc::new(work),
            give,
            taken,
            back,
            patience,
            last: 0,
            late: 0,
            finished: VecDeque::new(),
        }
    }

    /// Runs a task on a thread; returns `None` if it is late. A task that makes progress gets more
    /// time. If no thread can be started, the caller runs the task.
    pub fn run(&mut self, task: I, mut progresses: impl FnMut() -> bool) -> Option<O> {
        self.last += 1;
        if let Err((_, task)) = self.hand_over((self.last, task)) {
            return Some((self.work)(task));
        }
        loop {
            match self.taken.recv_timeout(patience(self.patience, self.late)) {
                Ok((number, result)) if number == self.last => return Some(result),
                Ok((_, result)) => self.keep(result),
                Err(_) if progresses() => {}
                Err(_) => break,
            }
        }
        self.late += 1;
        // Another thread gets the next task.
        self.give = channel().0;
        None
    }

    fn hand_over(&mut self, task: (usize, I)) -> Result<(), (usize, I)> {
        let Err(refused) = self.give.send(task) else {
            return Ok(());
        };
        let (give, given) = channel::<(usize, I)>();
        let (work, back) = (Arc::clone(&self.work), self.back.clone());
        let thread = thread::Builder::new().stack_size(STACK);
        let started = thread.spawn(move || {
            for (number, task) in given {
                if back.send((number, work(task))).is_err() {
                    return;
                }
            }
        });
        if started.is_err() {
            return Err(refused.0);
        }
        self.give = give;
        self.give.send(refused.0).map_err(|refused| refused.0)
    }

    fn keep(&mut self, result: O) {
        self.late -= 1;
        self.finished.push_back(result);
    }

    /// Returns the number of late tasks.
    pub fn late(&self) -> usize {
        self.late
    }

    /// Returns whether another task may become late.
    pub fn has_room(&self) -> bool {
        self.late < MOST_LATE
    }

    /// Pretends that this number of tasks is late.
    #[cfg(test)]
    pub fn suppose_late(&mut self, late: usize) {
        self.late = late;
    }

    /// Returns the result of a late task.
    pub fn next_late(&mut self) -> Option<O> {
        while let Ok((_, result)) = self.taken.try_recv() {
            self.keep(result);
        }
        self.finished.pop_front()
    }
}

/// Returns the maximum time of a task while `late` others are late, perhaps in the same file
/// system. The daemon serves only after the first search of all files, and a client waits three
/// seconds for the daemon, so all these times together are shorter.
fn patience(first: Duration, late: usize) -> Duration {
    let more = u32::try_from(late).unwrap_or(u32::MAX);
    (first / more.saturating_mul(10).saturating_add(1)).max(LEAST)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A client waits three seconds for the daemon.
    #[test]
    fn the_daemon_serves_in_time_however_many_are_late() {
        let longest: Duration = (0..MOST_LATE).map(|late| patience(SHORT, late)).sum();
        assert!(longest < Duration::from_secs(3), "{longest:?}");
        assert_eq!(patience(LONG, 0), LONG);
    }

    #[test]
    fn a_late_piece_holds_up_no_other_and_its_result_comes() {
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let mut workers = Workers::new(SHORT, move |number: usize| {
            if number == 0 {
                let _ = held.lock().expect("one thread").recv();
            }
            number
        });
        assert_eq!(workers.run(7, || true), Some(7));
        // Shortens the test.
        workers.suppose_late(100);
        // It reports progress once.
        let mut signs = 1..;
        assert_eq!(workers.run(0, || signs.next() == Some(1)), None);
        assert_eq!(signs, 3..);
        assert_eq!((workers.late(), workers.next_late()), (101, None));
        assert_eq!(workers.run(8, || true), Some(8));
        drop(release);
        let late = loop {
            match workers.next_late() {
                Some(late) => break late,
                None => thread::yield_now(),
            }
        };
        assert_eq!((late, workers.late()), (0, 100));
        workers.suppose_late(MOST_LATE);
        assert!(!workers.has_room());
    }
}
