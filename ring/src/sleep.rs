//! How a taker sleeps on a board.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Duration;

use crate::board::{ASLEEP, Bell, Board};
use crate::sync::{self, AtomicBool, Deadline};

/// How long a thread waits, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub(crate) spin: Duration,
    pub(crate) timeout: Duration,
}

impl Patience {
    /// The longest time that a thread may spin.
    pub const MOST_SPIN: Duration = Duration::from_micros(50);

    /// The thread waits for at most `timeout` in all. It first looks again and again, for `spin`,
    /// but at most for [`Patience::MOST_SPIN`]; then it sleeps.
    pub fn new(spin: Duration, timeout: Duration) -> Patience {
        Patience {
            spin: spin.min(Self::MOST_SPIN),
            timeout,
        }
    }
}

/// Another thread of the same process wants a sleeper to wake up.
#[derive(Debug)]
pub(crate) struct WakeUp(AtomicBool);

impl WakeUp {
    pub(crate) fn new() -> WakeUp {
        WakeUp(AtomicBool::new(false))
    }

    /// Makes one. Ring the bell of the sleeper afterwards.
    pub(crate) fn make(&self) {
        self.0.swap(true, AcqRel);
    }

    /// Whether one was made since the last time. A sleeper asks after its announcement: the order
    /// of both swaps decides, as on a board.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, AcqRel)
    }

    /// Whether a look finds one.
    pub(crate) fn seems_made(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// A thread that sleeps on more than one board has a bell of its own, by which the other threads of
/// its process wake it.
#[derive(Debug)]
pub(crate) struct Waker {
    pub(crate) bell: Bell,
    pub(crate) wake_up: WakeUp,
}

impl Waker {
    pub(crate) fn new() -> Waker {
        Waker {
            bell: Bell::new(),
            wake_up: WakeUp::new(),
        }
    }

    /// Ends the thread's sleep, or its next one.
    pub(crate) fn wake(&self) {
        self.wake_up.make();
        self.bell.ring();
    }
}

/// Sleeps until a slot is on the board, a wake-up is made, or the time is over.
pub(crate) fn sleep(board: &Board, slots: usize, wake_up: &WakeUp, patience: Patience) {
    let deadline = Deadline::after(patience.timeout);
    let done = || wake_up.seems_made() || !board.seems_empty(slots);
    if sync::spin(patience.spin, done) {
        wake_up.take();
        return;
    }
    board.bell.announce();
    if !wake_up.take()
        && board.is_empty(slots)
        && let Some(left) = deadline.left()
    {
        sync::wait(board.bell.word(), ASLEEP, left);
    }
    board.bell.settle();
}
