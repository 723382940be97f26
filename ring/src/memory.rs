//! The memory of a ring: created, sealed, checked and mapped.

#![allow(unsafe_code, reason = "a mapping, seen as atomics")]

use std::fmt;
use std::io;

use crate::layout::VERSION;

#[cfg(any(loom, miri))]
pub(crate) use heap::{Memory, Owner};
#[cfg(not(any(loom, miri)))]
pub(crate) use mapped::{Memory, Owner};

/// Reason why a descriptor is not accepted as a ring.
#[derive(Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// The descriptor is not a ring, or not a safe one, for this reason.
    NotARing(&'static str),
    /// The other side has this version of the layout.
    Version(u32),
    /// A system call failed.
    System(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::NotARing(reason) => write!(f, "the descriptor is not a ring: {reason}"),
            AttachError::Version(version) => write!(
                f,
                "the ring has version {version}, and this program knows version {VERSION}; the \
                 module and the daemon must be of neighbouring releases"
            ),
            AttachError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<rustix::io::Errno> for AttachError {
    fn from(error: rustix::io::Errno) -> AttachError {
        AttachError::System(error.into())
    }
}

#[cfg(not(any(loom, miri)))]
mod mapped {
    use std::ffi::c_void;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::ptr::{NonNull, null_mut};
    use std::slice;
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
    use rustix::io::Errno;
    use rustix::mm::{Advice, MapFlags, ProtFlags};

    use super::AttachError;
    use crate::layout::{
        Answers, HEADER_SIZE, Header, MAGIC, MOST_SLOTS, Output, SLOT_SIZE, Slot, VERSION,
        ring_bytes, shape,
    };
    use crate::sync::{AtomicU32, AtomicU64};

    /// Without these seals a process could kill another one by truncating the file.
    const SEALS: SealFlags = SealFlags::SHRINK
        .union(SealFlags::GROW)
        .union(SealFlags::SEAL);

    /// A mapped ring.
    #[derive(Debug)]
    pub(crate) struct Memory {
        start: NonNull<c_void>,
        slots: usize,
        answers: Answers,
    }

    // SAFETY: the mapping is bound to no thread, and all of it is atomics.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Creates a ring of `slots` slots, a power of two, and the descriptor for its client.
        pub(crate) fn create(
            slots: usize,
            answers: Answers,
        ) -> Result<(Memory, OwnedFd), AttachError> {
            if !slots.is_power_of_two() || slots > MOST_SLOTS {
                return Err(AttachError::NotARing(
                    "the number of slots is not a power of two, or too large",
                ));
            }
            let file = file()?;
            let bytes = ring_bytes(slots, answers) as u64;
            rustix::fs::ftruncate(&file, bytes)?;
            // Without memory for a page, a later access would end the process.
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            rustix::fs::fcntl_add_seals(&file, SEALS)?;
            let memory = Memory::map(file.as_fd(), slots, answers)?;
            memory.lock();
            let header = memory.header();
            header.magic.store(MAGIC, Relaxed);
            header.version.store(VERSION, Relaxed);
            header.slots.store(slots as u32, Relaxed);
            header.slot_size.store(SLOT_SIZE as u32, Relaxed);
            Ok((memory, file))
        }

        /// Maps a ring that another process has created. The number of its slots and the length of
        /// its answers follow from the size of the file, which the kernel reports and keeps. The
        /// header must agree.
        pub(crate) fn open(file: BorrowedFd<'_>) -> Result<Memory, AttachError> {
            let seals = rustix::fs::fcntl_get_seals(file)
                .map_err(|_| AttachError::NotARing("the file cannot be sealed"))?;
            if !seals.contains(SEALS) {
                return Err(AttachError::NotARing("its size is not sealed"));
            }
            let size = rustix::fs::fstat(file)?.st_size;
            let Some((slots, answers)) = usize::try_from(size).ok().and_then(shape) else {
                return Err(AttachError::NotARing("its size is not that of a ring"));
            };
            let memory = Memory::map(file, slots, answers)?;
            let header = memory.header();
            if header.magic.load(Relaxed) != MAGIC {
                return Err(AttachError::NotARing("its header is not that of a ring"));
            }
            match header.version.load(Relaxed) {
                VERSION => {}
                version => return Err(AttachError::Version(version)),
            }
            let (claimed, size) = (&header.slots, &header.slot_size);
            if claimed.load(Relaxed) as usize != slots || size.load(Relaxed) as usize != SLOT_SIZE {
                return Err(AttachError::NotARing("its header contradicts its size"));
            }
            Ok(memory)
        }

        /// Maps a sealed file with `slots` slots. Core dumps and forked children do not get the
        /// mapping.
        fn map(
            file: BorrowedFd<'_>,
            slots: usize,
            answers: Answers,
        ) -> Result<Memory, AttachError> {
            let bytes = ring_bytes(slots, answers);
            let protection = ProtFlags::READ.union(ProtFlags::WRITE);
            let flags = MapFlags::SHARED.union(MapFlags::POPULATE);
            // SAFETY: the kernel chooses the address, so no other mapping is replaced.
            let start = unsafe { rustix::mm::mmap(null_mut(), bytes, protection, flags, file, 0)? };
            let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
            let memory = Memory {
                start,
                slots,
                answers,
            };
            for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
                // SAFETY: the mapping is ours, and neither advice changes its contents.
                unsafe { rustix::mm::madvise(start.as_ptr(), bytes, advice)? };
            }
            Ok(memory)
        }

        /// Keeps the header and the slots out of the swap space, since answers may be secret. The
        /// memory behind the slots only holds signatures. The daemon does this for both sides,
        /// within its own limit; a library must not use the limits of its server. If the limit is
        /// too low, the ring can be swapped out.
        pub(crate) fn lock(&self) {
            let bytes = ring_bytes(self.slots, Answers::Short);
            // SAFETY: the mapping is ours, and at least as long.
            let _ = unsafe { rustix::mm::mlock(self.start.as_ptr(), bytes) };
        }

        pub(crate) fn header(&self) -> &Header {
            // SAFETY: the mapping begins on a page, lives as long as `self`, and is longer than a
            // header. A header consists of atomics, for which any bits are valid, and every process
            // that has mapped the file may write it at any time, but only as atomics.
            unsafe { self.start.cast().as_ref() }
        }

        pub(crate) fn slots(&self) -> &[Slot] {
            // SAFETY: as above; `slots` slots follow the header, whose size is a multiple of their
            // alignment. Their unused words are never read.
            unsafe {
                let first = self.start.byte_add(HEADER_SIZE).cast::<Slot>();
                slice::from_raw_parts(first.as_ptr(), self.slots)
            }
        }

        /// Returns the words of a slot's answer.
        pub(crate) fn output(&self, slot: usize) -> Output<'_> {
            // SAFETY: as above; behind the slots there are `rest` words for each slot.
            let rest = unsafe {
                let behind = HEADER_SIZE + self.slots * SLOT_SIZE;
                let first = self.start.byte_add(behind).cast::<AtomicU64>();
                slice::from_raw_parts(first.as_ptr(), self.slots * self.answers.rest())
            };
            let words = self.answers.rest();
            Output([&self.slots()[slot].output, &rest[slot * words..][..words]])
        }

        fn bytes(&self) -> usize {
            ring_bytes(self.slots, self.answers)
        }

        /// Drops the memory without unmapping it. A forked child never had the mapping, and may
        /// have another one there.
        pub(crate) fn disown(&mut self) {
            self.slots = 0;
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            if self.slots != 0 {
                // SAFETY: the mapping is ours, and nobody borrows it any more.
                let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.bytes()) };
            }
        }
    }

    /// Creates a file in memory. From Linux 6.3 on, nobody can execute the file.
    fn file() -> Result<OwnedFd, Errno> {
        let flags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
        let create = |flags| rustix::fs::memfd_create("lockstep-ring", flags);
        match create(flags.union(MemfdFlags::NOEXEC_SEAL)) {
            Err(Errno::INVAL) => create(flags),
            file => file,
        }
    }

    /// Detects a fork: the page of a forked child is zeros (`MADV_WIPEONFORK`, Linux 4.14).
    /// `getpid` would be a system call per request.
    #[derive(Debug)]
    pub(crate) struct Owner(NonNull<c_void>);

    // SAFETY: the page is bound to no thread, and all of it is an atomic.
    unsafe impl Send for Owner {}
    // SAFETY: as above.
    unsafe impl Sync for Owner {}

    impl Owner {
        const PAGE: usize = 4096;

        pub(crate) fn this_process() -> Result<Owner, AttachError> {
            let protection = ProtFlags::READ.union(ProtFlags::WRITE);
            // SAFETY: the kernel chooses the address, so no other mapping is replaced.
            let start = unsafe {
                rustix::mm::mmap_anonymous(null_mut(), Self::PAGE, protection, MapFlags::PRIVATE)?
            };
            let owner = Owner(NonNull::new(start).ok_or(Errno::NOMEM)?);
            // SAFETY: the page is ours, and is still empty.
            unsafe { rustix::mm::madvise(start, Self::PAGE, Advice::LinuxWipeOnFork)? };
            owner.word().store(1, Relaxed);
            Ok(owner)
        }

        pub(crate) fn is_this_process(&self) -> bool {
            self.word().load(Relaxed) == 1
        }

        fn word(&self) -> &AtomicU32 {
            // SAFETY: the page is mapped while `self` lives, also in a forked child, and any bits
            // are a valid atomic.
            unsafe { self.0.cast().as_ref() }
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            // SAFETY: the page is ours, and nobody borrows it any more.
            let _ = unsafe { rustix::mm::munmap(self.0.as_ptr(), Self::PAGE) };
        }
    }
}

#[cfg(feature = "fault-injection")]
pub(crate) use environment::read_on;

#[cfg(feature = "fault-injection")]
mod environment {
    /// Reads beyond the end of `bytes`, for [`BelievedLength`](crate::fault::Defect).
    pub(crate) fn read_on(bytes: &[u8], length: usize) {
        for at in 0..length {
            // SAFETY: there is none. This is the defect.
            unsafe { bytes.as_ptr().wrapping_add(at).read_volatile() };
        }
    }
}

/// Memory of one process, for models and Miri.
#[cfg(any(loom, miri))]
mod heap {
    use std::fmt;

    use crate::layout::{Header, Output, Slot};
    use crate::sync::Arc;

    #[derive(Clone)]
    pub(crate) struct Memory(Arc<(Header, Vec<Slot>)>);

    impl fmt::Debug for Memory {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Memory")
        }
    }

    impl Memory {
        pub(crate) fn new(slots: usize) -> Memory {
            let all = (0..slots).map(|_| Slot::new()).collect();
            Memory(Arc::new((Header::new(), all)))
        }

        pub(crate) fn header(&self) -> &Header {
            &self.0.0
        }

        pub(crate) fn slots(&self) -> &[Slot] {
            &self.0.1
        }

        /// Returns the words of a slot's answer, which is always short.
        pub(crate) fn output(&self, slot: usize) -> Output<'_> {
            Output([&self.slots()[slot].output, &[]])
        }

        pub(crate) fn disown(&mut self) {}
    }

    #[derive(Debug, Default)]
    pub(crate) struct Owner;

    impl Owner {
        pub(crate) fn is_this_process(&self) -> bool {
            true
        }
    }
}
