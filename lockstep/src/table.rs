//! Tables of the multiples of public keys.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use lockstep_ops::PreparedKey;
use once_cell::race::OnceBox;

/// Number of checks after which a key gets its table. A table costs as much time as 8 to 23 checks,
/// and saves more than half of each later one.
const FREQUENT: u32 = 64;

/// Maximum number of bytes of all tables that keys get by themselves.
const MOST_BYTES: usize = 64 << 20;

/// Number of bytes of the largest table.
const LARGEST_BYTES: usize = 118_272;

/// Number of bytes of all tables, and of the room for tables that are being made.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Room for a table, reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Room(());

impl Room {
    /// Reserves room for this number of tables that keys get by themselves, or for fewer if
    /// [`MOST_BYTES`] does not permit all.
    pub(crate) fn reserve(wanted: usize) -> Vec<Room> {
        let mut granted = 0;
        let _ = BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
            granted = wanted.min(MOST_BYTES.saturating_sub(bytes) / LARGEST_BYTES);
            Some(bytes + granted * LARGEST_BYTES)
        });
        (0..granted).map(|_| Room(())).collect()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        BYTES.fetch_sub(LARGEST_BYTES, Ordering::Relaxed);
    }
}

/// The table of a public key, once it has one.
#[derive(Default)]
pub(crate) struct Table {
    /// Number of checks with the key.
    checks: AtomicU32,
    /// A cell that no thread waits for: a forked child inherits none half made.
    prepared: OnceBox<Option<PreparedKey>>,
}

impl Table {
    /// Counts a check; returns whether the key is frequent from this one on, and has no table.
    pub(crate) fn is_due(&self) -> bool {
        self.prepared.get().is_none() && self.checks.fetch_add(1, Ordering::Relaxed) == FREQUENT
    }

    /// Makes the table, unless there is one. A key that is not a point gets none.
    pub(crate) fn make(&self, prepare: impl FnOnce() -> Option<PreparedKey>) {
        if self.prepared.get().is_some() {
            return;
        }
        let prepared = prepare();
        let bytes = prepared.as_ref().map_or(0, PreparedKey::table_bytes);
        debug_assert!(bytes <= LARGEST_BYTES);
        // Another thread may have made it meanwhile.
        if self.prepared.set(Box::new(prepared)).is_ok() {
            BYTES.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Option<&PreparedKey> {
        self.prepared.get()?.as_ref()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let bytes = self.get().map_or(0, PreparedKey::table_bytes);
        BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({:?})", self.get())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn calls_at_once_have_one_bound() {
        const CALLS: usize = 8;
        let most = MOST_BYTES / LARGEST_BYTES;
        let barrier = Barrier::new(CALLS);
        let reserved = thread::scope(|scope| {
            let call = || {
                barrier.wait();
                Room::reserve(most / 2)
            };
            let calls: Vec<_> = (0..CALLS).map(|_| scope.spawn(call)).collect();
            let rooms = calls.into_iter().map(|call| call.join().unwrap());
            rooms.collect::<Vec<_>>()
        });
        // Other tests of this program may have tables meanwhile.
        let all = reserved.iter().map(Vec::len).sum::<usize>();
        assert!(all > most / 2 && all <= most, "{all} of {most}");
        drop(reserved);
        assert!(Room::reserve(usize::MAX).len() > most / 2);
    }

    #[test]
    fn a_key_is_due_once() {
        let table = Table::default();
        let due = (0..1000).filter(|_| table.is_due()).count();
        assert_eq!(due, 1);
        table.make(|| None);
        table.checks.store(FREQUENT, Ordering::Relaxed);
        assert!(!table.is_due() && table.get().is_none());
    }
}
