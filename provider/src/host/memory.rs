//! The module's allocator: without memory, the module leaves work to OpenSSL and does not end the
//! program.
//!
//! Rust's collections end the process when an allocation fails. So the allocator keeps a reserve:
//! static memory, which takes no physical memory until it is written. If the system refuses an
//! allocation, the block comes from the reserve, and a flag is set. While the flag is set, the
//! module begins no request and prepares no key: both are left to OpenSSL, which reports its own
//! failed allocations. These requests are counted as `no_memory`. Contexts are small, and come from
//! the reserve until half of it is in use; then a new context fails. The flag is cleared when the
//! system gives memory again and at most a quarter of the reserve is in use.
//!
//! # Why the reserve is large enough
//!
//! Only work that began before the flag was set uses the reserve. Each thread has one request, key
//! or context, with at most some 8 KiB of small blocks. Each running batch has the memory of its
//! lanes, under 64 KiB for 64 requests of a curve. The large blocks, for the working memory of RSA
//! batches and the stacks of kernels, are mapped instead, and a batch without them is declined. So
//! [`BYTES`] lasts for 32 batches and 256 threads at once. Beyond that, the process ends, as in any
//! program in Rust.
//!
//! No caller can end the process by the size of a block. Either the size has a bound, as for the
//! parts of an RSA key and for digests, or the copy may fail, as for messages and property queries.
//!
//! # Fork
//!
//! Taking and giving back are atomic operations on single words, without a lock, so a child can
//! always allocate. Blocks of the reserve that its parent's other threads held stay in use in the
//! child.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// Size of the reserve.
pub const BYTES: usize = 4 << 20;
/// Granularity and alignment of blocks.
const UNIT: usize = 64;
/// Size of a page of the reserve: one word has a bit for each unit of the page.
const PAGE: usize = 64 * UNIT;
const PAGES: usize = BYTES / PAGE;
/// Size of the allocation that shows, if it succeeds, that the system has memory again.
const PROBE: usize = 64 * 1024;

/// The reserve. Its pages are zero and shared until they are written.
#[repr(C, align(4096))]
struct Reserve {
    /// The bytes of a block belong to the owner of its units.
    bytes: [AtomicU8; BYTES],
    units: Units,
}

/// Record of the units of the reserve that are in use.
struct Units {
    /// Bits of used units, by page.
    used: [AtomicU64; PAGES],
    /// Number of used units.
    count: AtomicUsize,
}

static RESERVE: Reserve = Reserve {
    bytes: [const { AtomicU8::new(0) }; BYTES],
    units: Units {
        used: [const { AtomicU64::new(0) }; PAGES],
        count: AtomicUsize::new(0),
    },
};

#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

/// The flag: the system has refused memory lately.
static SCARCE: AtomicBool = AtomicBool::new(false);

/// Returns whether the system has refused memory lately, so that no request should begin here.
pub fn is_scarce() -> bool {
    SCARCE.load(Ordering::Relaxed) && !recovers()
}

/// Returns whether more than half of the reserve is in use, so that not even contexts, which are
/// small, may use more of it.
pub fn is_nearly_gone() -> bool {
    RESERVE.units.count.load(Ordering::Relaxed) > BYTES / UNIT / 2
}

/// Clears the flag if the system has memory again, and returns whether it has.
#[cold]
fn recovers() -> bool {
    if RESERVE.units.count.load(Ordering::Relaxed) > BYTES / UNIT / 4 {
        return false;
    }
    let Ok(layout) = Layout::from_size_align(PROBE, UNIT) else {
        return false;
    };
    // SAFETY: the size is not zero, and the block is freed with the layout of its allocation.
    unsafe {
        let probe = System.alloc(layout);
        if probe.is_null() {
            return false;
        }
        System.dealloc(probe, layout);
    }
    SCARCE.store(false, Ordering::Relaxed);
    true
}

impl Reserve {
    /// Takes a block of arbitrary content; NULL if there is no room.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        SCARCE.store(true, Ordering::Relaxed);
        if layout.align() > UNIT {
            return null_mut();
        }
        let Some(first) = self.units.take(units_of(layout)) else {
            return null_mut();
        };
        // Atomic bytes may be written behind a shared reference.
        let start = self.bytes.as_ptr().cast_mut().cast::<u8>();
        start.wrapping_add(first * UNIT)
    }

    fn contains(&self, block: *mut u8) -> bool {
        self.offset(block) < BYTES
    }

    /// Returns the offset of a block in the reserve.
    fn offset(&self, block: *mut u8) -> usize {
        block.addr().wrapping_sub(self.bytes.as_ptr().addr())
    }

    /// Takes a block back.
    #[cold]
    fn give_back(&self, block: *mut u8, layout: Layout) {
        let first = self.offset(block) / UNIT;
        self.units.give_back(first, units_of(layout));
    }
}

/// Returns the number of units of a block.
fn units_of(layout: Layout) -> usize {
    layout.size().div_ceil(UNIT)
}

/// Returns the position of the first `count` ones in a row.
fn first_run(ones: u64, count: usize) -> Option<usize> {
    // A one in `runs` stands for a run of `known` ones.
    let (mut runs, mut known) = (ones, 1);
    while known < count {
        let more = known.min(count - known);
        runs &= runs >> more;
        known += more;
    }
    (runs != 0).then_some(runs.trailing_zeros() as usize)
}

impl Units {
    /// Takes free units in a row; returns the first one.
    fn take(&self, units: usize) -> Option<usize> {
        let first = match units {
            1..=64 => self.take_within_page(units),
            _ => self.take_pages(units.div_ceil(64)),
        }?;
        self.count.fetch_add(units, Ordering::Relaxed);
        Some(first)
    }

    /// Takes free units in a row within one page; returns the first one.
    fn take_within_page(&self, units: usize) -> Option<usize> {
        let ones = u64::MAX >> (64 - units);
        for (page, word) in self.used.iter().enumerate() {
            let mut used = word.load(Ordering::Relaxed);
            while let Some(unit) = first_run(!used, units) {
                let taken = used | ones << unit;
                match word.compare_exchange(used, taken, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(64 * page + unit),
                    Err(now) => used = now,
                }
            }
        }
        None
    }

    /// Takes free pages in a row; returns their first unit.
    fn take_pages(&self, pages: usize) -> Option<usize> {
        let mut first = 0;
        let mut next = 0;
        while next < PAGES {
            let word = &self.used[next];
            let is_free = word
                .compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
            next += 1;
            if !is_free {
                self.give_back_pages(first, next - 1);
                first = next;
            } else if next - first == pages {
                return Some(64 * first);
            }
        }
        self.give_back_pages(first, next);
        None
    }

    fn give_back_pages(&self, first: usize, end: usize) {
        for word in &self.used[first..end] {
            word.store(0, Ordering::Release);
        }
    }

    /// Takes back units that [`take`](Self::take) gave.
    fn give_back(&self, first: usize, units: usize) {
        let page = first / 64;
        match units {
            1..=64 => {
                let ones = (u64::MAX >> (64 - units)) << (first % 64);
                self.used[page].fetch_and(!ones, Ordering::Release);
            }
            _ => self.give_back_pages(page, page + units.div_ceil(64)),
        }
        self.count.fetch_sub(units, Ordering::Relaxed);
    }
}

/// The system's allocator, and the reserve where that fails.
pub struct WithReserve;

// SAFETY: a block comes from the system's allocator, which fulfils the contract, or from the
// reserve: aligned to 64 bytes, as long as asked for, and used by nobody else until it is given
// back. Neither allocator unwinds.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() {
            return RESERVE.take(layout);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by contract; a block of the reserve has `layout.size()` bytes.
        unsafe {
            let block = System.alloc_zeroed(layout);
            if !block.is_null() {
                return block;
            }
            let block = RESERVE.take(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if RESERVE.contains(block) {
            RESERVE.give_back(block, layout);
        } else {
            // SAFETY: by contract; a block outside of the reserve came from the system.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by contract; the new block is another one, and both have the bytes that are
        // copied.
        unsafe {
            if !RESERVE.contains(block) {
                let moved = System.realloc(block, layout, size);
                if !moved.is_null() {
                    return moved;
                }
            }
            let new = Layout::from_size_align_unchecked(size, layout.align());
            let moved = self.alloc(new);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 16).unwrap()
    }

    /// The bytes of a block of the reserve.
    fn bytes(block: *mut u8, size: usize) -> &'static [AtomicU8] {
        &RESERVE.bytes[RESERVE.offset(block)..][..size]
    }

    fn fill(block: *mut u8, size: usize, value: u8) {
        let bytes = bytes(block, size).iter();
        bytes.for_each(|byte| byte.store(value, Ordering::Relaxed));
    }

    #[test]
    fn the_first_run_of_ones_is_found() {
        for count in 1..=64_usize {
            let ones = u64::MAX >> (64 - count);
            for start in 0..=64 - count {
                assert_eq!(first_run(ones << start, count), Some(start));
                // A run in front that is one unit too short does not count.
                assert_eq!(first_run((ones << start) & !(1 << start), count), None);
            }
        }
        assert_eq!(first_run(0b1110_1101, 3), Some(5));
        assert_eq!(first_run(0, 1), None);
    }

    /// One test has all cases: they share the reserve, and each expects all units to be free.
    #[test]
    fn the_reserve_serves_until_it_is_used_up_and_is_whole_again() {
        let sizes = [1, 64, 65, 100, 4096, 4097, 70_000];
        for size in sizes {
            let layout = layout(size);
            let mut blocks = Vec::new();
            loop {
                let block = RESERVE.take(layout);
                if block.is_null() {
                    break;
                }
                assert!(block.addr().is_multiple_of(UNIT));
                fill(block, size, blocks.len() as u8);
                blocks.push(block);
            }
            let room = size.div_ceil(UNIT) * UNIT;
            let room = if room > PAGE {
                room.div_ceil(PAGE) * PAGE
            } else {
                PAGE / (PAGE / room)
            };
            assert_eq!(blocks.len(), BYTES / room, "{size}");
            assert!(is_scarce());
            for (number, block) in blocks.iter().enumerate() {
                let mut bytes = bytes(*block, size).iter();
                assert!(bytes.all(|byte| byte.load(Ordering::Relaxed) == number as u8));
                RESERVE.give_back(*block, layout);
            }
            assert_eq!(RESERVE.units.count.load(Ordering::Relaxed), 0);
            assert!(
                RESERVE
                    .units
                    .used
                    .iter()
                    .all(|word| word.load(Ordering::Relaxed) == 0)
            );
            assert!(!is_scarce(), "the system has memory");
        }
        // A block that grows moves out of the reserve.
        let block = RESERVE.take(layout(100));
        fill(block, 100, 7);
        // SAFETY: layouts as taken; the bytes have been moved.
        unsafe {
            let moved = WithReserve.realloc(block, layout(100), 300);
            assert!(!RESERVE.contains(moved));
            assert_eq!(std::slice::from_raw_parts(moved, 100), [7; 100]);
            WithReserve.dealloc(moved, layout(300));
        }
        assert_eq!(RESERVE.units.count.load(Ordering::Relaxed), 0);
    }
}
