//! A set of slots that one process adds to and the other one takes from, with a bell for a taker
//! that sleeps.
//!
//! A taker that is about to sleep first says so by the bell, and then looks at the set once more; a
//! process that adds first changes the set, and then looks at the bell. Both change the word of the
//! set by one atomic operation, and such operations have an order: either the taker's comes later
//! and sees the bit, or the other comes later and sees that the taker sleeps. No fence is needed.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::fault::{Defect, is_planted};
use crate::sync::{self, AtomicU32, AtomicU64};

/// The words of the set.
#[cfg(not(loom))]
pub(crate) const WORDS: usize = 16;
#[cfg(loom)]
pub(crate) const WORDS: usize = 1;

/// The taker does not sleep.
const AWAKE: u32 = 0;
/// The taker sleeps, or is about to.
pub(crate) const ASLEEP: u32 = 1;

/// A word that a thread sleeps on.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(AtomicU32::new(AWAKE))
    }

    /// Says that the thread is about to sleep. Afterwards it must look once more at what it waits
    /// for, by an operation that changes it.
    pub(crate) fn announce(&self) {
        self.0.swap(ASLEEP, AcqRel);
    }

    /// Says that the thread is awake; returns whether somebody had rung.
    pub(crate) fn settle(&self) -> bool {
        self.0.swap(AWAKE, AcqRel) != ASLEEP
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn ring(&self) {
        if self.0.load(Relaxed) == ASLEEP && self.0.swap(AWAKE, AcqRel) == ASLEEP {
            sync::wake(&self.0);
        }
    }

    /// Wakes a thread of this process that sleeps on the bell of a board. The other process may
    /// write to that bell, so its value is not asked.
    pub(crate) fn ring_anyway(&self) {
        self.0.swap(AWAKE, AcqRel);
        sync::wake(&self.0);
    }

    /// Where the thread sleeps, while the value is [`ASLEEP`].
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// The set. The bell is beside its first words, in one line of the cache.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) bell: Bell,
    /// A number of the daemon's: in the board of requests its beat, in that of answers the time
    /// when it ended. Zero where an older daemon made the ring.
    pub(crate) note: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl Board {
    /// Adds a slot, and wakes the taker if it sleeps.
    pub(crate) fn post(&self, slot: usize) {
        if is_planted(Defect::BellBeforeBit) {
            self.bell.ring();
            self.add(slot);
            return;
        }
        self.add(slot);
        if !is_planted(Defect::SilentBell) {
            self.bell.ring();
        }
    }

    fn add(&self, slot: usize) {
        self.words[slot / 64].fetch_or(1 << (slot % 64), AcqRel);
    }

    /// Takes all of the first `slots` slots that are in the set.
    pub(crate) fn take(&self, slots: usize, each: impl FnMut(usize)) {
        self.take_some(slots, 0, usize::MAX, each);
    }

    /// Takes of the first `slots` slots those that are in the set, a word of it after the other
    /// from the word `first` on, until there are `most`. Returns the word that comes next.
    pub(crate) fn take_some(
        &self,
        slots: usize,
        first: usize,
        most: usize,
        mut each: impl FnMut(usize),
    ) -> usize {
        let words = &self.words[..slots.div_ceil(64)];
        let mut taken = 0;
        for place in first..first + words.len() {
            let index = place % words.len();
            if taken >= most {
                return index;
            }
            let word = &words[index];
            // A look costs less than the exclusive use of the line.
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, AcqRel);
            while bits != 0 {
                let slot = 64 * index + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if slot < slots || is_planted(Defect::UncheckedSlot) {
                    taken += 1;
                    each(slot);
                }
            }
        }
        first
    }

    /// All words, for a test that writes anything.
    #[cfg(test)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Whether a look finds nothing.
    pub(crate) fn seems_empty(&self, slots: usize) -> bool {
        let words = &self.words[..slots.div_ceil(64)];
        words.iter().all(|word| word.load(Relaxed) == 0)
    }

    /// Whether nothing is in the set, for a taker that has announced its sleep.
    pub(crate) fn is_empty(&self, slots: usize) -> bool {
        if is_planted(Defect::CarelessLook) {
            return self.seems_empty(slots);
        }
        let words = &self.words[..slots.div_ceil(64)];
        words.iter().all(|word| word.fetch_or(0, AcqRel) == 0)
    }
}

#[cfg(any(loom, miri))]
mod heap {
    use super::*;

    impl Board {
        pub(crate) fn new() -> Board {
            Board {
                bell: Bell::new(),
                note: AtomicU32::new(0),
                words: std::array::from_fn(|_| AtomicU64::new(0)),
            }
        }
    }
}
