//! Identities of threads.

/// Identity of a thread, which differs from that of all other running threads. No thread-local
/// variable holds it, as such a variable may need memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(pub u64);
