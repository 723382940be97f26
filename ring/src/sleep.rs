//! The sleep of a taker on a board.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::Duration;

use crate::board::{ASLEEP, Bell, Board};
use crate::sync::{self, AtomicBool, Deadline};

/// Duration and manner of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub(crate) spin: Duration,
    pub(crate) timeout: Duration,
}

impl Patience {
    /// Maximum time of spinning.
    pub const MOST_SPIN: Duration = Duration::from_micros(50);

    /// Creates a wait of at most `timeout`. The thread first spins for `spin`, at most
    /// [`Patience::MOST_SPIN`], and then sleeps.
    pub fn new(spin: Duration, timeout: Duration) -> Patience {
        Patience {
            spin: spin.min(Self::MOST_SPIN),
            timeout,
        }
    }
}

/// A flag by which another thread of this process asks a sleeper to wake up.
#[derive(Debug)]
pub(crate) struct WakeUp(AtomicBool);

impl WakeUp {
    pub(crate) fn new() -> WakeUp {
        WakeUp(AtomicBool::new(false))
    }

    /// Sets the flag. The caller must ring the sleeper's bell afterwards.
    pub(crate) fn make(&self) {
        self.0.swap(true, AcqRel);
    }

    /// Clears the flag; returns whether it was set. A sleeper must announce its sleep before this
    /// call. As on a board, either the sleeper sees the flag, or the other thread sees the bell.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, AcqRel)
    }

    /// Returns whether a relaxed read finds the flag set.
    pub(crate) fn seems_made(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// The bell of a thread that sleeps on more than one board. Other threads of its process ring it.
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

    /// Ends the current or next sleep of the thread.
    pub(crate) fn wake(&self) {
        self.wake_up.make();
        self.bell.ring();
    }
}

/// Sleeps until a slot is on the board, a wake-up is requested, or the time is over.
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
