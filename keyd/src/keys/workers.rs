//! Threads for work that a file system may hold up for good.
//!
//! A thread does one task after another, and the caller waits for each. A task that takes too
//! long holds up its thread alone: the next one is for another thread. The late result comes once
//! the file system answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a task may take for a command while no other is late, and for the daemon, which has
/// clients that wait for other keys.
pub const LONG: Duration = Duration::from_secs(5);
pub const SHORT: Duration = Duration::from_millis(500);
/// How long it may take at least, however many are late.
const LEAST: Duration = Duration::from_millis(2);
/// How many tasks may be late: each has a thread.
pub const MOST_LATE: usize = 1024;
/// Of such a thread, which computes nothing.
const STACK: usize = 256 << 10;

/// The threads, and the results of late tasks.
pub struct Workers<I, O> {
    work: Arc<dyn Fn(I) -> O + Send + Sync>,
    /// Gives the thread that is free a task, with its number.
    give: Sender<(usize, I)>,
    /// All threads give their results back by this.
    taken: Receiver<(usize, O)>,
    back: Sender<(usize, O)>,
    patience: Duration,
    /// The number of the last task.
    last: usize,
    late: usize,
    finished: VecDeque<O>,
}

impl<I: Send + 'static, O: Send + 'static> Workers<I, O> {
    pub fn new(patience: Duration, work: impl Fn(I) -> O + Send + Sync + 'static) -> Workers<I, O> {
        // Nobody receives yet.
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

    /// Has a thread do a task; `None` if it is late. While it gives a sign of life, it has more
    /// time. Where no thread can be had, the caller does the task.
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
        // The next task is for another thread.
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

    /// How many tasks are late.
    pub fn late(&self) -> usize {
        self.late
    }

    /// Whether another task may become late.
    pub fn has_room(&self) -> bool {
        self.late < MOST_LATE
    }

    /// As if so many were late.
    #[cfg(test)]
    pub fn suppose_late(&mut self, late: usize) {
        self.late = late;
    }

    /// The result of a task that was late.
    pub fn next_late(&mut self) -> Option<O> {
        while let Ok((_, result)) = self.taken.try_recv() {
            self.keep(result);
        }
        self.finished.pop_front()
    }
}

/// How long a task may take while so many are late, perhaps by the same file system. The daemon
/// serves once it has looked at all files, and a client waits for that for three seconds.
fn patience(first: Duration, late: usize) -> Duration {
    let more = u32::try_from(late).unwrap_or(u32::MAX);
    (first / more.saturating_mul(10).saturating_add(1)).max(LEAST)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Clients wait for the keys that are not late.
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
        assert_eq!(workers.run(7, || false), Some(7));
        // So the test does not take long.
        workers.suppose_late(100);
        // It gives one sign of life, and no more.
        let mut signs = 1..;
        assert_eq!(workers.run(0, || signs.next() == Some(1)), None);
        assert_eq!(signs, 3..);
        assert_eq!((workers.late(), workers.next_late()), (101, None));
        assert_eq!(workers.run(8, || false), Some(8));
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
