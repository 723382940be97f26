//! Identities of threads.

/// Identity of a thread, which differs from that of all other running threads. It is not a
/// thread-local variable, as such a variable may need memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(pub u64);
