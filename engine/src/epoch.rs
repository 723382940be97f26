//! The engine and the process that own state which must not be used twice.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The engine and process that blinding state and key pairs made in advance belong to. A forked
/// child makes an engine of its own, so it never uses state that its parent uses too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pid: u32,
    engine: u32,
}

impl Epoch {
    /// One that no other engine of this process or of its ancestors has.
    pub(crate) fn new() -> Epoch {
        static ENGINES: AtomicU32 = AtomicU32::new(0);
        Epoch {
            pid: process::id(),
            engine: ENGINES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// This engine in the process that asks: another epoch in a forked child.
    pub(crate) fn here(self) -> Epoch {
        Epoch {
            pid: process::id(),
            ..self
        }
    }
}
