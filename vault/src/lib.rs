//! Memory for secrets that live longer than a request: prepared keys, key pairs made in advance,
//! blinding pairs, and the working memory of batches.
//!
//! Small blocks come from [regions](region), large ones are mappings of their own. Both are left
//! out of core dumps, every block is wiped when it is freed, and regions are locked into memory, up
//! to half of `RLIMIT_MEMLOCK`. [`OnFork`] chooses whether a forked child finds a block's bytes or
//! zeros. Without memory for a region, small blocks come from the heap, where their only protection
//! is the wiping.
//!
//! A process that never forks can have more protection: [`use_secret_memory`]. The types to use are
//! [`Slice`] and [`Boxed`]. The crate has no lock, draws no randomness, and opens no file that has
//! a name.
//!
//! # Guarantees for a fork
//!
//! A process may fork while other threads allocate and free here. Nothing in this crate waits for a
//! lock, so the child never waits for a thread that it does not have. Blocks that other threads
//! held, took or freed at that moment stay in use in the child until its end. They are at most as
//! many as the parent had. A child inherits no locks on memory; [`after_fork`] locks it again.

#![allow(unsafe_code, reason = "memory from the system, in pieces")]

mod region;
mod system;

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use region::{PAGE, Region, UNIT};

pub use system::OnFork;

/// Types that blocks can hold.
///
/// # Safety
/// All bytes zero must be a valid value of the type.
pub unsafe trait Zeroable {}

macro_rules! zeroable {
    ($($integer:ty)*) => {
        $(
            // SAFETY: an integer.
            unsafe impl Zeroable for $integer {}
        )*
    };
}
zeroable!(u8 u16 u32 u64);
// SAFETY: all of its elements may be zero.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

/// Size of the first region in pages. Each further region has twice as many as the region before
/// it.
const FIRST_PAGES: usize = 4;
/// Size of the largest regions in pages.
const MOST_PAGES: usize = 1024;
/// Maximum number of regions of each kind, which together have half a gigabyte.
const REGIONS: usize = 128;

/// The regions of one kind, in the order of their making.
struct Regions {
    on_fork: OnFork,
    regions: [AtomicPtr<Region>; REGIONS],
    /// Index of a region that had room lately.
    hint: AtomicUsize,
}

static KEPT: Regions = Regions::new(OnFork::Keep);
static WIPED: Regions = Regions::new(OnFork::Wipe);

/// Bytes of all regions.
static REGION_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes of blocks that are on the heap.
static HEAP: AtomicUsize = AtomicUsize::new(0);

impl Regions {
    const fn new(on_fork: OnFork) -> Regions {
        Regions {
            on_fork,
            regions: [const { AtomicPtr::new(null_mut()) }; REGIONS],
            hint: AtomicUsize::new(0),
        }
    }

    fn of(on_fork: OnFork) -> &'static Regions {
        match on_fork {
            OnFork::Keep => &KEPT,
            OnFork::Wipe => &WIPED,
        }
    }

    fn get(&self, index: usize) -> Option<&'static Region> {
        // SAFETY: NULL or a region that lives as long as the process.
        unsafe { self.regions[index].load(Ordering::Acquire).as_ref() }
    }

    fn all(&self) -> impl Iterator<Item = &'static Region> {
        (0..REGIONS).map_while(|index| self.get(index))
    }

    fn take(&self, units: usize) -> Option<(NonNull<u8>, &'static Region)> {
        let hint = self.hint.load(Ordering::Relaxed);
        if let Some(region) = self.get(hint)
            && let Some(block) = region.take(units)
        {
            return Some((block, region));
        }
        for index in 0..REGIONS {
            let region = match self.get(index) {
                Some(region) => region,
                None => self.make(index)?,
            };
            if let Some(block) = region.take(units) {
                self.hint.store(index, Ordering::Relaxed);
                return Some((block, region));
            }
        }
        None
    }

    /// Returns the region of this index, and makes it if there is none; `None` without memory.
    fn make(&self, index: usize) -> Option<&'static Region> {
        let pages = (FIRST_PAGES << index.min(16)).min(MOST_PAGES);
        let mut place = Vec::new();
        place.try_reserve_exact(1).ok()?;
        place.push(Region::new(pages, self.on_fork)?);
        let made = Vec::leak(place).as_mut_ptr();
        let lost = self.regions[index]
            .compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire)
            .is_err();
        if lost {
            // SAFETY: another thread was faster: `made` was never shared, and came from a vector of
            // one.
            unsafe { Vec::from_raw_parts(made, 1, 1) }.pop()?.unmap();
        } else {
            REGION_BYTES.fetch_add(pages * PAGE, Ordering::Relaxed);
        }
        self.get(index)
    }
}

/// Origin of a block.
#[derive(Clone, Copy)]
enum Origin {
    Region(&'static Region),
    Mapping,
    Heap,
}

/// Takes a block of zeros, aligned to 64 bytes; `None` without memory.
#[inline(never)]
fn take(bytes: usize, on_fork: OnFork) -> Option<(NonNull<u8>, Origin)> {
    debug_assert!(bytes > 0);
    let block = if bytes <= PAGE {
        let found = Regions::of(on_fork).take(bytes.div_ceil(UNIT));
        found.map(|(block, region)| (block, Origin::Region(region)))
    } else {
        let mapping = system::map(bytes, on_fork).map(|(block, _)| (block, Origin::Mapping));
        if !cfg!(miri) {
            return mapping;
        }
        mapping
    };
    block.or_else(|| {
        let layout = heap_layout(bytes)?;
        // SAFETY: at least one byte.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        HEAP.fetch_add(bytes, Ordering::Relaxed);
        Some((block, Origin::Heap))
    })
}

fn heap_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, UNIT).ok()
}

/// Wipes a block and gives it back.
///
/// # Safety
/// `take` returned it with these bytes and this origin, and it is not used any more.
#[inline(never)]
unsafe fn give_back(block: NonNull<u8>, bytes: usize, origin: Origin) {
    // SAFETY: the block is the caller's, and its bytes may be anything by now.
    unsafe {
        wipe(block, bytes);
        match origin {
            Origin::Region(region) => region.give_back(block, bytes.div_ceil(UNIT)),
            Origin::Mapping => system::unmap(block, bytes),
            Origin::Heap => {
                if let Some(layout) = heap_layout(bytes) {
                    dealloc(block.as_ptr(), layout);
                }
                HEAP.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }
}

/// Overwrites bytes with zeros; the optimiser may not leave this out.
///
/// # Safety
/// The bytes belong to the caller alone, and may be zero.
unsafe fn wipe(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by contract.
    unsafe {
        start.write_bytes(0, bytes);
        zeroize::optimization_barrier(core::slice::from_raw_parts(start.as_ptr(), bytes));
    }
}

/// A slice in memory for keys, aligned to 64 bytes. Wiped when it is dropped, never printed.
pub struct Slice<T: Zeroable + Copy> {
    start: NonNull<T>,
    count: usize,
    /// `None` if there are no bytes.
    origin: Option<Origin>,
    on_fork: OnFork,
}

// SAFETY: it owns its elements, as a box does.
unsafe impl<T: Zeroable + Copy + Send> Send for Slice<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroable + Copy + Sync> Sync for Slice<T> {}

impl<T: Zeroable + Copy> Slice<T> {
    /// Makes a slice of `count` zeros. Without memory the process ends, as for every collection.
    pub fn zeroed(count: usize, on_fork: OnFork) -> Self {
        Self::try_zeroed(count, on_fork).unwrap_or_else(|| no_memory::<T>(count))
    }

    /// Makes a slice of `count` zeros; `None` without memory.
    pub fn try_zeroed(count: usize, on_fork: OnFork) -> Option<Self> {
        const { assert!(align_of::<T>() <= UNIT) };
        let bytes = count.checked_mul(size_of::<T>())?;
        if bytes == 0 {
            return Some(Self {
                start: NonNull::dangling(),
                count,
                origin: None,
                on_fork,
            });
        }
        let (block, origin) = take(bytes, on_fork)?;
        Some(Self {
            start: block.cast(),
            count,
            origin: Some(origin),
            on_fork,
        })
    }

    /// Copies `values`, which the caller wipes.
    pub fn copy_of(values: &[T], on_fork: OnFork) -> Self {
        let mut copy = Self::zeroed(values.len(), on_fork);
        copy.copy_from_slice(values);
        copy
    }
}

impl<T: Zeroable + Copy> Deref for Slice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block has `count` elements, zero at first, and lives as long as `self`.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T: Zeroable + Copy> DerefMut for Slice<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the block has no other owner.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.count) }
    }
}

impl<T: Zeroable + Copy> Clone for Slice<T> {
    fn clone(&self) -> Self {
        Self::copy_of(self, self.on_fork)
    }
}

impl<T: Zeroable + Copy> fmt::Debug for Slice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T: Zeroable + Copy> Drop for Slice<T> {
    fn drop(&mut self) {
        if let Some(origin) = self.origin {
            // SAFETY: the block that `try_zeroed` took.
            unsafe { give_back(self.start.cast(), self.count * size_of::<T>(), origin) };
        }
    }
}

/// A value in memory for keys: a [`Slice`] of one.
///
/// It begins as zeros and is filled in place, so that no copy stays behind on a stack.
#[derive(Clone)]
pub struct Boxed<T: Zeroable + Copy>(Slice<T>);

impl<T: Zeroable + Copy> Boxed<T> {
    /// Makes a value of zeros. Without memory the process ends, as for every collection.
    pub fn zeroed(on_fork: OnFork) -> Self {
        Self(Slice::zeroed(1, on_fork))
    }

    /// Makes a value of zeros; `None` without memory.
    pub fn try_zeroed(on_fork: OnFork) -> Option<Self> {
        Slice::try_zeroed(1, on_fork).map(Self)
    }

    /// Sets all bytes to zero.
    pub fn wipe(&mut self) {
        // SAFETY: all bytes of the value, which may be zero.
        unsafe { wipe(self.0.start.cast(), size_of::<T>()) };
    }

    /// Copies a value, which the caller wipes.
    pub fn copy_of(value: &T, on_fork: OnFork) -> Self {
        Self(Slice::copy_of(core::slice::from_ref(value), on_fork))
    }
}

impl<T: Zeroable + Copy> Deref for Boxed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T: Zeroable + Copy> DerefMut for Boxed<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0[0]
    }
}

impl<T: Zeroable + Copy> fmt::Debug for Boxed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cold]
fn no_memory<T>(count: usize) -> ! {
    handle_alloc_error(Layout::array::<T>(count).unwrap_or(Layout::new::<T>()))
}

/// A word that is zero in a forked child and nowhere else. It is no secret, so it is not locked.
pub struct Mark(NonNull<AtomicUsize>);

// SAFETY: an atomic in a mapping of its own, which lives as long as the value.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

impl Mark {
    /// Makes a mark; `None` without memory for it.
    pub fn new() -> Option<Mark> {
        // A child would not have memory of `memfd_secret`.
        let (start, _) = system::map_ordinary(PAGE, OnFork::Wipe)?;
        let mark = Mark(start.cast());
        mark.word().store(1, Ordering::Relaxed);
        Some(mark)
    }

    /// Returns whether this process is a forked child of the process that made the mark.
    pub fn is_wiped(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 0
    }

    /// Sets the word to zero, as a fork does in the child.
    pub fn wipe(&self) {
        self.word().store(0, Ordering::Relaxed);
    }

    fn word(&self) -> &AtomicUsize {
        // SAFETY: the mapping is there, aligned to a page, and zeros are a value of the word.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mark")
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, to which there is no reference.
        unsafe { system::unmap(self.0.cast(), PAGE) };
    }
}

/// Takes new memory from `memfd_secret` (Linux 5.14) from now on. Returns false if the kernel does
/// not have this call or does not allow it. No other process can read such memory, neither by the
/// rights of root nor through most defects of the kernel. It is locked, and its size counts towards
/// the limit of locked memory; beyond that limit, memory comes as before.
///
/// It is for a process that never forks: a child does not have this memory, regardless of
/// [`OnFork`].
pub fn use_secret_memory() -> bool {
    system::use_secret()
}

/// Locks the regions in a child, which inherits no locks on memory. It allocates nothing and waits
/// for nothing, so it may run in a handler of `pthread_atfork`.
pub fn after_fork() {
    for region in KEPT.all().chain(WIPED.all()) {
        region.relock();
    }
}

/// Sizes of this process's memory for keys, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All regions.
    pub regions: usize,
    /// Locked regions; the others are beyond half of `RLIMIT_MEMLOCK`.
    pub locked: usize,
    /// Blocks on the heap, where there was no memory to map.
    pub heap: usize,
}

/// Returns the sizes of this process's memory for keys, by three loads.
pub fn usage() -> Usage {
    Usage {
        regions: REGION_BYTES.load(Ordering::Relaxed),
        locked: system::locked_bytes(),
        heap: HEAP.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests;
