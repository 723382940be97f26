//! A mapping that is divided into blocks.
//!
//! One word says which of the 64 units of a page are in use, and a block lies within one page. So
//! to take or to give back a block is one atomic operation on one word. There is no lock, and
//! whenever a process forks, the child finds words that are whole. If another thread was about to
//! take or free a block at that moment, the block stays in use in the child.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::system::{self, OnFork};

/// Unit of the size and of the alignment of blocks: a cache line.
pub(crate) const UNIT: usize = 64;
/// Number of bytes that one word describes, and length of the longest block.
pub(crate) const PAGE: usize = 64 * UNIT;

/// One mapping. It is never unmapped.
pub(crate) struct Region {
    start: NonNull<u8>,
    /// The units in use, a word for each page. It lies in ordinary memory, so that a child that
    /// finds the pages wiped still has it.
    used: Vec<AtomicU64>,
    /// Index of a page that had room lately.
    hint: AtomicUsize,
    /// Smallest size, in units, that has found no room since a block was given back; `usize::MAX`
    /// if there is none.
    refused: AtomicUsize,
    locked: AtomicBool,
}

// SAFETY: atomic operations divide the memory behind the pointer into blocks, each of which has one
// owner.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region; `None` without memory for it.
    pub(crate) fn new(pages: usize, on_fork: OnFork) -> Option<Region> {
        let mut used = Vec::new();
        used.try_reserve_exact(pages).ok()?;
        used.resize_with(pages, || AtomicU64::new(0));
        let (start, is_locked) = system::map(pages * PAGE, on_fork)?;
        let region = Region {
            start,
            used,
            hint: AtomicUsize::new(0),
            refused: AtomicUsize::new(usize::MAX),
            locked: AtomicBool::new(is_locked),
        };
        match is_locked {
            true => system::locked(region.bytes()),
            false => region.lock(),
        }
        Some(region)
    }

    /// Returns its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.used.len() * PAGE
    }

    fn lock(&self) {
        let locked = system::lock(self.start, self.bytes());
        self.locked.store(locked, Ordering::Relaxed);
    }

    /// Locks the region again in a child, which inherits no locks.
    pub(crate) fn relock(&self) {
        if self.locked.load(Ordering::Relaxed) {
            system::unlocked(self.bytes());
            self.lock();
        }
    }

    /// Unmaps a region that no other thread has seen.
    pub(crate) fn unmap(self) {
        if self.locked.load(Ordering::Relaxed) {
            system::unlocked(self.bytes());
        }
        // SAFETY: the mapping of this region, no block of which was ever taken.
        unsafe { system::unmap(self.start, self.bytes()) };
    }

    /// Takes a block of `units` units, at most 64, all zero; `None` if there is no room.
    pub(crate) fn take(&self, units: usize) -> Option<NonNull<u8>> {
        if units >= self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let first = self.hint.load(Ordering::Relaxed);
        for page in (first..self.used.len()).chain(0..first) {
            let word = &self.used[page];
            let mut used = word.load(Ordering::Relaxed);
            while let Some(unit) = run(!used, units) {
                let taken = used | mask(unit, units);
                // Acquire: the thread that gave units back had wiped them before.
                match word.compare_exchange(used, taken, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        if page != first {
                            self.hint.store(page, Ordering::Relaxed);
                        }
                        // SAFETY: within the mapping.
                        return Some(unsafe { self.start.add(page * PAGE + unit * UNIT) });
                    }
                    Err(now) => used = now,
                }
            }
        }
        // This may overlook a block that is given back meanwhile. Then another region serves, until
        // the next block is given back.
        self.refused.store(units, Ordering::Relaxed);
        None
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// [`take`](Self::take) returned it for as many units, its owner has wiped it, and it is not
    /// used any more.
    pub(crate) unsafe fn give_back(&self, block: NonNull<u8>, units: usize) {
        // Both point into this region.
        let unit = (block.addr().get() - self.start.addr().get()) / UNIT;
        let (page, unit) = (unit / 64, unit % 64);
        self.used[page].fetch_and(!mask(unit, units), Ordering::Release);
        if self.refused.load(Ordering::Relaxed) != usize::MAX {
            self.refused.store(usize::MAX, Ordering::Relaxed);
            self.hint.store(page, Ordering::Relaxed);
        }
    }
}

/// Returns the bits of `units` units from `unit` on.
fn mask(unit: usize, units: usize) -> u64 {
    debug_assert!((1..=64).contains(&units) && unit + units <= 64);
    (u64::MAX >> (64 - units)) << unit
}

/// Returns the place of the first of `units` ones in a row.
fn run(mut ones: u64, units: usize) -> Option<usize> {
    let mut known = 1;
    while known < units && ones != 0 {
        let step = known.min(units - known);
        ones &= ones >> step;
        known += step;
    }
    (ones != 0).then(|| ones.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_where_they_are() {
        for units in 1..=64_usize {
            for unit in 0..=64 - units {
                let ones = mask(unit, units);
                assert_eq!(ones.count_ones() as usize, units);
                assert_eq!(run(ones, units), Some(unit));
                assert_eq!(run(ones, units + 1), None);
            }
        }
        assert_eq!(run(0b1011_0111, 3), Some(0));
        assert_eq!(run(0b1011_0110, 3), None);
        assert_eq!(run(0, 1), None);
    }

    #[test]
    fn a_full_region_has_room_again_for_what_was_given_back() {
        let Some(region) = Region::new(2, OnFork::Keep) else {
            return;
        };
        let blocks: Vec<_> = std::iter::from_fn(|| region.take(5)).collect();
        assert_eq!(blocks.len(), 2 * 12, "twelve of 320 bytes in a page");
        assert!(region.take(4).is_some(), "what is left of a page");
        // SAFETY: taken above, unused since.
        unsafe { region.give_back(blocks[7], 5) };
        assert_eq!(region.take(5), Some(blocks[7]));
        assert_eq!(region.take(5), None);
    }
}
