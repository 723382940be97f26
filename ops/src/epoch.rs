//! The lanes and the process that own state which must not be used twice.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use lockstep_vault::Mark;

/// The lanes and the process that own blinding pairs, and key pairs made in advance. A forked child
/// makes lanes of its own, so it never uses state that its parent uses too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pid: u32,
    lanes: u32,
}

impl Epoch {
    /// Makes an epoch that differs from all others of this process and of its ancestors.
    pub(crate) fn new() -> Epoch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Epoch {
            pid: process::id(),
            lanes: COUNT.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// The process in which lanes or a file of counters were made.
#[derive(Debug)]
pub struct Home {
    epoch: Epoch,
    /// `None` without memory for it.
    mark: Option<Mark>,
}

impl Home {
    /// Returns the calling process, with an epoch of its own.
    pub fn of_caller() -> Home {
        Home {
            epoch: Epoch::new(),
            mark: Mark::new(),
        }
    }

    /// Returns the epoch of these lanes in the calling process: another one in a forked child.
    ///
    /// A child has another process number, unless it is in another PID namespace. Where no handler
    /// of `fork` was called, it still has these lanes. Their secrets are zeros there, and so is the
    /// mark. Then each call returns an epoch of its own, so that nothing is kept.
    pub(crate) fn here(&self) -> Epoch {
        match self.is_wiped() {
            true => Epoch::new(),
            false => Epoch {
                pid: process::id(),
                ..self.epoch
            },
        }
    }

    /// Returns whether the caller is a forked child of that process, even one with the same number.
    pub fn is_left(&self) -> bool {
        self.is_wiped() || self.epoch.pid != process::id()
    }

    /// Returns whether the mark shows a forked child. There may have been no memory for a mark.
    pub fn is_wiped(&self) -> bool {
        self.mark.as_ref().is_some_and(Mark::is_wiped)
    }

    /// Wipes the mark, as a fork does in the child: for tests, also those of the counters.
    #[doc(hidden)]
    pub fn wipe(&mut self) {
        self.mark.as_mut().expect("memory").wipe();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_stays_until_the_mark_is_gone() {
        let mut home = Home::of_caller();
        assert_eq!(home.here(), home.here());
        assert_ne!(home.here(), Home::of_caller().here());
        assert!(!home.is_left());
        home.wipe();
        assert_ne!(home.here(), home.here());
        assert!(home.is_left());
    }
}
