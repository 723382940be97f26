//! A thread, as its caller names it.

/// A thread, distinct from all others that run. (A thread-local variable could not be had without
/// memory.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(pub u64);
