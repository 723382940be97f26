//! The system calls: mapping, advice and locking. A call that fails leaves memory less protected,
//! never unusable.

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};

/// Contents of a parent's blocks in a forked child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFork {
    /// The parent's bytes: for keys that a server prepares before it forks its workers.
    Keep,
    /// Zeros (`MADV_WIPEONFORK`, Linux 4.14): for secrets that two processes must not both use. A
    /// caller must not use such a block in a child, where zeros look like a secret. Blocks on the
    /// heap are not wiped.
    Wipe,
}

/// Bytes of all regions that are locked in this process.
static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// Whether new memory comes from `memfd_secret`.
static SECRET: AtomicBool = AtomicBool::new(false);

/// Takes new memory from `memfd_secret` from now on, if the kernel gives some.
pub(crate) fn use_secret() -> bool {
    let Some(probe) = map_secret(1) else {
        return false;
    };
    // SAFETY: made above, and not used.
    unsafe { unmap(probe, 1) };
    SECRET.store(true, Ordering::Relaxed);
    true
}

/// Maps zeroed memory that the kernel removes from its own map of memory, so that only this process
/// can read it. It is locked, and in no core dump. A forked child does not have it.
fn map_secret(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: the call takes one number, and returns a descriptor that has no other owner.
    let file = unsafe {
        let number = libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC);
        OwnedFd::from_raw_fd(number.try_into().ok().filter(|&number| number >= 0)?)
    };
    let length = bytes.try_into().ok()?;
    // SAFETY: the descriptor belongs to this function.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
        return None;
    }
    // SAFETY: a new mapping at an address of the kernel's choice; the advice is about this mapping
    // alone. The file keeps its size, as no one else has it.
    unsafe {
        let access = ProtFlags::READ.union(ProtFlags::WRITE);
        let start = rustix::mm::mmap(null_mut(), bytes, access, MapFlags::SHARED, &file, 0).ok()?;
        // Otherwise a child would share it with its parent.
        let kept = rustix::mm::madvise(start, bytes, Advice::LinuxDontFork);
        let start = NonNull::new(start.cast())?;
        if kept.is_err() {
            unmap(start, bytes);
            return None;
        }
        Some(start)
    }
}

/// Maps zeroed memory that no core dump holds, and returns whether it is locked already; `None` if
/// the system has no memory.
pub(crate) fn map(bytes: usize, on_fork: OnFork) -> Option<(NonNull<u8>, bool)> {
    // Miri knows neither the advice nor the locks.
    if cfg!(miri) {
        return None;
    }
    // Each mapping counts towards the limit of locked memory; beyond it, ordinary memory serves.
    if SECRET.load(Ordering::Relaxed)
        && let Some(start) = map_secret(bytes)
    {
        return Some((start, true));
    }
    map_ordinary(bytes, on_fork)
}

/// Maps memory as [`map`] does, but never from `memfd_secret`.
pub(crate) fn map_ordinary(bytes: usize, on_fork: OnFork) -> Option<(NonNull<u8>, bool)> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: a new mapping at an address of the kernel's choice; the advice is about this mapping
    // alone.
    unsafe {
        let access = ProtFlags::READ.union(ProtFlags::WRITE);
        let start =
            rustix::mm::mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE).ok()?;
        // Old kernels may lack an advice: then the memory is in dumps, or copied to children.
        let _ = rustix::mm::madvise(start, bytes, Advice::LinuxDontDump);
        if on_fork == OnFork::Wipe {
            let _ = rustix::mm::madvise(start, bytes, Advice::LinuxWipeOnFork);
        }
        NonNull::new(start.cast()).map(|start| (start, false))
    }
}

/// Gives a mapping back.
///
/// # Safety
/// `map` made it, with as many bytes, and it is not used any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by contract. It fails only for arguments that are not a mapping.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
}

/// Locks each page of a mapping when it is first used, and returns whether that succeeded.
///
/// Half of the process's limit is left to the program, whose own locks must not fail because of
/// this one.
pub(crate) fn lock(start: NonNull<u8>, bytes: usize) -> bool {
    let locked = LOCKED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    let allowed = limit().is_some_and(|limit| locked as u64 <= limit / 2);
    let start: *mut c_void = start.as_ptr().cast();
    // SAFETY: the mapping belongs to the caller, and the call does not change its contents.
    let done =
        allowed && unsafe { rustix::mm::mlock_with(start, bytes, MlockFlags::ONFAULT).is_ok() };
    if !done {
        unlocked(bytes);
    }
    done
}

/// Returns the number of bytes that this process may lock; `None` if the system does not report it.
fn limit() -> Option<u64> {
    // Initialised, since a filter of system calls may make the call fail.
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    known.then_some(limit.rlim_cur)
}

/// Counts memory that the kernel has locked by itself.
pub(crate) fn locked(bytes: usize) {
    LOCKED.fetch_add(bytes, Ordering::Relaxed);
}

/// Counts memory that is not locked any more.
pub(crate) fn unlocked(bytes: usize) {
    LOCKED.fetch_sub(bytes, Ordering::Relaxed);
}

/// Returns the number of locked bytes.
pub(crate) fn locked_bytes() -> usize {
    LOCKED.load(Ordering::Relaxed)
}
