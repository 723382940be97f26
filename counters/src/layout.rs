//! The layout of the file of counters, which its writers and its readers share.
//!
//! | words | hold |
//! |---|---|
//! | 0 to 511 | the header ([`header`]): the process that made the file, its namespace, and the layout |
//! | 512 to 1535 | the owners: [`MOST`] times four words, the [`owner`] of each slot |
//! | from 1536 | the slots: [`MOST`] times [`SLOT_WORDS`] words, which [`counter`] lays out |
//!
//! A word is a number of 64 bits in the order of the machine.

use std::sync::atomic::AtomicU64;

use lockstep_ops::Shape;
use lockstep_ops::Size;

use crate::fallback::Fallback;
use crate::plain::is_plain;

/// Words of a slot, which are more than there are counters.
pub(super) const SLOT_WORDS: usize = 128;
/// The counters of one engine, as they are in memory.
pub(super) type Slot = [AtomicU64; SLOT_WORDS];

/// Maximum number of processes that have a slot at a time.
pub(super) const MOST: usize = 256;
/// Number of slots that have memory at first. Programs that fork get more.
pub(super) const AT_FIRST: usize = 4;

/// Places in the header.
pub(super) mod header {
    /// [`MAGIC`](super::MAGIC): written last.
    pub const MAGIC: usize = 0;
    /// A hash of the names of all counters, in their order.
    pub const LAYOUT: usize = 1;
    /// The number of words in the file.
    pub const WORDS: usize = 2;
    /// Whether the file stays when its processes have ended.
    pub const KEEP: usize = 3;
    /// The start of the system (two words) and the PID namespace of the process that made the file.
    pub const BOOT: usize = 4;
    pub const NAMESPACE: usize = 6;
    /// Number of processes that found no free slot.
    pub const MISSED: usize = 7;
    /// The version of the build: four words of text.
    pub const VERSION: usize = 8;
    pub const VERSION_WORDS: usize = 4;
    /// Number of forks whose child has not taken a slot yet.
    pub const FORKING: usize = 12;
    /// Time of the last fork, in clock ticks since boot.
    pub const FORKED: usize = 13;
    /// Mistakes in the settings: one line of text, or zeros.
    pub const MISTAKES: usize = 64;
    pub const MISTAKES_WORDS: usize = 128;

    const _: () = assert!(MISTAKES + MISTAKES_WORDS <= super::OWNERS);
}

/// Places in an owner's words.
pub(super) mod owner {
    /// The number of the process in its own PID namespace; zero in a free slot.
    pub const PID: usize = 0;
    /// 1 if the counters belong to this process.
    pub const VALID: usize = 1;
    /// Time at which the process took the slot, in clock ticks since boot.
    pub const STARTED: usize = 2;
    /// The inode of its PID namespace; zero if it was unknown.
    pub const NAMESPACE: usize = 3;
    pub const WORDS: usize = 4;
}

/// `lockstp` and the version of this layout.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"lockstp\x03");
pub(super) const OWNERS: usize = 512;
pub(super) const SLOTS: usize = OWNERS + MOST * owner::WORDS;
/// The length of the file: 268 KiB.
pub(super) const WORDS: usize = SLOTS + MOST * SLOT_WORDS;

pub(super) const SHAPES: usize = Shape::ALL.len();
pub(super) const REASONS: usize = Fallback::ALL.len();
/// The sizes of RSA that have more than one schedule.
pub(super) const RSA_SIZES: [Size; 2] = [Size::Rsa1024, Size::Rsa2048];
/// Number of fills of a batch or a pass that the histograms distinguish.
pub(super) const FILLS: usize = 8;

/// Bounds of the histogram of waits, in nanoseconds. The histogram ends with the count of longer
/// waits.
pub(super) const WAIT_BOUNDS: [u64; 10] = [
    10_000,
    100_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];
pub(super) const WAITS: usize = WAIT_BOUNDS.len() + 1;

/// Places of the counters in a slot. A new counter gets a place of its own before
/// [`END`](counter::END).
pub(super) mod counter {
    use super::{FILLS, REASONS, RSA_SIZES, SHAPES, SLOT_WORDS, WAITS};

    /// Two words of text.
    pub const BACKEND: usize = 0;
    pub const BACKEND_WORDS: usize = 2;
    pub const SLOTS: usize = BACKEND + BACKEND_WORDS;
    pub const BATCHES: usize = SLOTS + 1;
    pub const WAIT_TOTAL_NS: usize = BATCHES + 1;
    pub const WAIT_MAX_NS: usize = WAIT_TOTAL_NS + 1;
    pub const YIELDS: usize = WAIT_MAX_NS + 1;
    pub const POOL_HITS: usize = YIELDS + 1;
    pub const POOL_REFILLS: usize = POOL_HITS + 1;
    pub const DERIVATIONS: usize = POOL_REFILLS + 1;
    pub const CIPHERS: usize = DERIVATIONS + 1;
    pub const DAEMON_REQUESTS: usize = CIPHERS + 1;
    pub const DAEMON_FALLBACKS: usize = DAEMON_REQUESTS + 1;
    pub const ASYNC_SUBMITTED: usize = DAEMON_FALLBACKS + 1;
    pub const PAUSED: usize = ASYNC_SUBMITTED + 1;
    pub const LOST: usize = PAUSED + 1;
    pub const UNPAUSED: usize = LOST + 1;
    pub const NO_DESCRIPTOR: usize = UNPAUSED + 1;
    pub const MAX_ASYNC: usize = NO_DESCRIPTOR + 1;
    pub const MAX_LOST: usize = MAX_ASYNC + 1;
    pub const KEY_MEMORY: usize = MAX_LOST + 1;
    pub const KEY_MEMORY_LOCKED: usize = KEY_MEMORY + 1;
    pub const KEY_MEMORY_HEAP: usize = KEY_MEMORY_LOCKED + 1;
    pub const KEYS_LEFT_OUT: usize = KEY_MEMORY_HEAP + 1;
    /// In the order of [`RSA_SIZES`]: zero, or one more than the place of a
    /// schedule in `Schedule::ALL`.
    pub const SCHEDULES: usize = KEYS_LEFT_OUT + 1;
    /// In the order of `Shape::ALL`.
    pub const BY_SHAPE: usize = SCHEDULES + RSA_SIZES.len();
    pub const BATCH_FILL: usize = BY_SHAPE + SHAPES;
    pub const PASS_FILL: usize = BATCH_FILL + FILLS;
    pub const BY_WAIT: usize = PASS_FILL + FILLS;
    /// In the order of `Fallback::ALL`.
    pub const BY_REASON: usize = BY_WAIT + WAITS;
    pub const END: usize = BY_REASON + REASONS;

    const _: () = assert!(END <= SLOT_WORDS);
}

/// Returns whether this is the name of a file of counters.
pub(super) fn is_name(name: &str) -> bool {
    let numbers = name.strip_suffix(".counters").unwrap_or_default();
    let number = |text: &str| {
        (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    numbers.split('-').count() == 3 && numbers.split('-').all(number)
}

/// Packs a short text into words, cut off where it is too long.
pub(super) fn words_of<const N: usize>(text: &str) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    words
}

/// Unpacks a line of text. Another user may have written it, so a question mark replaces each
/// character that would change the rest of a printed line or of a JSON document.
pub(super) fn line_of(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes = bytes.take_while(|byte| *byte != 0).map(char::from);
    bytes.map(|c| if is_plain(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use lockstep_ops::Schedule;

    use super::*;

    #[test]
    fn the_schedule_of_each_size_that_has_several_is_counted() {
        for size in Size::ALL {
            let has_several = Schedule::of(size).len() > 1;
            assert_eq!(RSA_SIZES.contains(&size), has_several, "{size:?}");
        }
    }
}
