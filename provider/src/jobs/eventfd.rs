//! Eventfds: descriptors that an event loop waits for, and that another thread makes readable.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::jobs::descriptors;

/// A non-blocking eventfd.
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes one; None if the system gives none, or the module must leave it to the server.
    pub fn new() -> Option<EventFd> {
        descriptors::eventfd().map(EventFd)
    }

    /// Returns the process's one descriptor that is valid and never readable; None if the system
    /// gives none.
    pub fn silent() -> Option<c_int> {
        // No cell that blocks while another thread initialises it: after a fork that thread is
        // missing.
        static SILENT: AtomicI32 = AtomicI32::new(-1);
        let known = SILENT.load(Ordering::Acquire);
        if known >= 0 {
            return Some(known);
        }
        let made = EventFd(descriptors::open()?);
        let fd = made.number();
        match SILENT.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                // It stays open until the process ends.
                std::mem::forget(made);
                Some(fd)
            }
            Err(other) => Some(other),
        }
    }

    /// Returns the descriptor.
    pub fn number(&self) -> c_int {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // The write can fail only when the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn drain(&self) {
        // The read fails with EAGAIN if the counter is empty, which does no harm.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}
