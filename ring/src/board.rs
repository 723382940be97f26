//! A set of slots: one process adds slots, the other one takes them, and a bell wakes a taker that
//! sleeps.
//!
//! Before a taker sleeps, it first announces this by the bell, and then looks at the set again. A
//! process that adds a slot first changes the set, and then looks at the bell. Both change the word
//! of the set by one atomic operation, and these operations have an order. If the taker's operation
//! comes later, the taker sees the bit. Otherwise the other process sees that the taker sleeps. No
//! fence is needed.

use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::fault::{Defect, is_planted};
use crate::sync::{self, AtomicU32, AtomicU64};

/// Number of words in the set.
#[cfg(not(loom))]
pub(crate) const WORDS: usize = 16;
#[cfg(loom)]
pub(crate) const WORDS: usize = 1;

/// The taker is awake.
const AWAKE: u32 = 0;
/// The taker sleeps, or is about to.
pub(crate) const ASLEEP: u32 = 1;

/// A word on which a thread sleeps.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(AtomicU32::new(AWAKE))
    }

    /// Announces that the thread is about to sleep. The thread must then look at the set again, by
    /// an operation that also writes ([`Board::is_empty`]).
    pub(crate) fn announce(&self) {
        self.0.swap(ASLEEP, AcqRel);
    }

    /// Notes that the thread is awake; returns whether the bell was rung.
    pub(crate) fn settle(&self) -> bool {
        self.0.swap(AWAKE, AcqRel) != ASLEEP
    }

    /// Wakes the thread if it sleeps.
    pub(crate) fn ring(&self) {
        if self.0.load(Relaxed) == ASLEEP && self.0.swap(AWAKE, AcqRel) == ASLEEP {
            sync::wake(&self.0);
        }
    }

    /// Wakes a thread of this process for any value of the bell, since the other process may have
    /// changed the value.
    pub(crate) fn ring_anyway(&self) {
        self.0.swap(AWAKE, AcqRel);
        sync::wake(&self.0);
    }

    /// Returns the futex on which the thread sleeps while its value is [`ASLEEP`].
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

/// The set. The bell shares a cache line with its first words.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) bell: Bell,
    /// Number that the daemon writes: its beat in the board of requests, the time of its end in the
    /// board of answers. Zero in rings of older daemons.
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

    /// Takes all members of the set below `slots`.
    pub(crate) fn take(&self, slots: usize, each: impl FnMut(usize)) {
        self.take_some(slots, 0, usize::MAX, each);
    }

    /// Takes whole words of the set, from the word `first` on, until `most` members or more are
    /// taken. Ignores members from `slots` on. Returns the word at which the next call begins.
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
            // A read costs less than exclusive access to the cache line.
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

    /// Returns all words, for a test that overwrites them.
    #[cfg(test)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Returns whether relaxed reads find no member.
    pub(crate) fn seems_empty(&self, slots: usize) -> bool {
        let words = &self.words[..slots.div_ceil(64)];
        words.iter().all(|word| word.load(Relaxed) == 0)
    }

    /// Returns whether the set is empty, for a taker that has announced its sleep.
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
