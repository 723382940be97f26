//! The layout of the ring. All of it is atomics, since the other process may change it at any time.

use std::mem::size_of;
use std::sync::atomic::Ordering::Relaxed;

use zeroize::Zeroizing;

use crate::board::{Board, WORDS};
use crate::sync::{AtomicU32, AtomicU64};

/// Maximum length of an input in bytes: that of RSA-8192.
pub const INPUT: usize = 8 * INPUT_WORDS;
/// Maximum length of a [short](Answers::Short) answer in bytes.
pub const OUTPUT: usize = 8 * OUTPUT_WORDS;
/// Maximum length of a [long](Answers::Long) answer in bytes: a signature of ML-DSA-87 has 4,627.
pub const LONG_OUTPUT: usize = 8 * (OUTPUT_WORDS + REST_WORDS);

#[cfg(not(loom))]
const INPUT_WORDS: usize = 128;
#[cfg(not(loom))]
const OUTPUT_WORDS: usize = 128;
#[cfg(not(loom))]
const REST_WORDS: usize = 456;
#[cfg(loom)]
const INPUT_WORDS: usize = 1;
#[cfg(loom)]
const OUTPUT_WORDS: usize = 1;
#[cfg(loom)]
const REST_WORDS: usize = 1;

/// Maximum length of the answers in a ring. The size of the ring implies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// [`OUTPUT`] bytes.
    Short,
    /// [`LONG_OUTPUT`] bytes. The bytes that do not fit into a slot follow behind all slots.
    Long,
}

impl Answers {
    /// Both lengths.
    pub const ALL: [Answers; 2] = [Answers::Short, Answers::Long];

    /// Returns the maximum length of an answer in bytes.
    pub const fn bytes(self) -> usize {
        OUTPUT + 8 * self.rest()
    }

    /// Returns the number of an answer's words behind the slots.
    pub(crate) const fn rest(self) -> usize {
        match self {
            Answers::Short => 0,
            Answers::Long => REST_WORDS,
        }
    }
}

/// Maximum number of slots. The number of slots of a ring is a power of two.
pub const MOST_SLOTS: usize = 64 * WORDS;

/// Statuses that the ring itself gives. The daemon chooses all others.
pub mod status {
    /// By convention: the operation is done, and the answer has its result.
    pub const DONE: u16 = 0;
    /// The request violates the format of the ring; the daemon has not seen it.
    pub const MALFORMED: u16 = 0xFFFF;
    /// The daemon has dropped the request without an answer.
    pub const DROPPED: u16 = 0xFFFE;
    /// The daemon's answer was longer than the answers of this ring can be.
    pub const TOO_LONG: u16 = 0xFFFD;
}

/// "lockstep" in ASCII.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"lockstep");
/// Version of the layout.
pub(crate) const VERSION: u32 = 2;

/// The first part of a ring.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) slots: AtomicU32,
    pub(crate) slot_size: AtomicU32,
    /// Nonzero if there will be no more answers: [`CLOSED`], [`IDLE`] or [`FOLLOWED`].
    pub(crate) closed: AtomicU32,
    /// Slots that the client has posted.
    pub(crate) requests: Board,
    /// Answered slots whose requests asked for a notification.
    pub(crate) answers: Board,
}

/// A request and its answer.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// A generation and the bits [`ANSWERED`], [`WAITING`] and [`GONE`]; used as a futex.
    pub(crate) state: AtomicU32,
    pub(crate) generation: AtomicU32,
    /// The operation in the lower half, flags in the upper one.
    pub(crate) operation: AtomicU32,
    pub(crate) input_length: AtomicU32,
    pub(crate) key: AtomicU64,
    pub(crate) status: AtomicU32,
    pub(crate) output_length: AtomicU32,
    _unused: [AtomicU32; 8],
    pub(crate) input: [AtomicU64; INPUT_WORDS],
    pub(crate) output: [AtomicU64; OUTPUT_WORDS],
}

pub(crate) const HEADER_SIZE: usize = size_of::<Header>();
pub(crate) const SLOT_SIZE: usize = size_of::<Slot>();

/// Returns the size of a ring in bytes. Its memory is whole pages.
pub const fn ring_bytes(slots: usize, answers: Answers) -> usize {
    HEADER_SIZE + slots * slot_bytes(answers)
}

/// Returns the number of bytes of a slot, including its bytes behind all slots.
const fn slot_bytes(answers: Answers) -> usize {
    SLOT_SIZE + 8 * answers.rest()
}

/// Returns the number of slots and the kind of answers of a ring of `bytes` bytes.
#[cfg(not(any(loom, miri)))]
pub(crate) fn shape(bytes: usize) -> Option<(usize, Answers)> {
    let slots = |answers| {
        bytes
            .checked_sub(HEADER_SIZE)
            .map(|all| all / slot_bytes(answers))
    };
    let shapes = Answers::ALL.map(|answers| (slots(answers).unwrap_or(0), answers));
    shapes.into_iter().find(|&(slots, answers)| {
        let fits = slots.is_power_of_two() && slots <= MOST_SLOTS;
        fits && ring_bytes(slots, answers) == bytes
    })
}

#[cfg(not(loom))]
const _: () = assert!(HEADER_SIZE == 448 && SLOT_SIZE == 64 + INPUT + OUTPUT);
/// No size of a ring fits both kinds of answers: a slot's size is a power of two times 33, or
/// times 45.
#[cfg(not(loom))]
const _: () =
    assert!(slot_bytes(Answers::Short) == 33 << 6 && slot_bytes(Answers::Long) == 45 << 7);

/// The ring is closed without a reason.
pub(crate) const CLOSED: u32 = 1;
/// The daemon has given the client's place to another client.
pub(crate) const IDLE: u32 = 2;
/// The daemon ends, and another one follows.
pub(crate) const FOLLOWED: u32 = 3;

/// The daemon has answered.
const ANSWERED: u32 = 1;
/// A thread of the client may sleep on the state.
pub(crate) const WAITING: u32 = 2;
/// There will be no answer.
pub(crate) const GONE: u32 = 4;
const STATE_BITS: u32 = 3;
/// The largest generation.
pub(crate) const LAST_GENERATION: u32 = u32::MAX >> STATE_BITS;

/// Returns the state of a request without an answer and without a sleeping thread.
pub(crate) const fn pending(generation: u32) -> u32 {
    generation << STATE_BITS
}

/// Returns the state of an answered request.
pub(crate) const fn answered(generation: u32) -> u32 {
    pending(generation) | ANSWERED
}

/// Flag of a request: the board of answers notifies the client.
pub(crate) const NOTIFY: u32 = 1;

/// The words of an answer: in its slot, and behind all slots.
pub(crate) struct Output<'a>(pub(crate) [&'a [AtomicU64]; 2]);

impl Output<'_> {
    /// Returns the maximum length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|words| 8 * words.len()).sum()
    }

    /// Copies `bytes` to the beginning. They must fit.
    pub(crate) fn copy_in(&self, bytes: &[u8]) {
        let [slot, rest] = self.0;
        let (first, more) = bytes.split_at(bytes.len().min(8 * slot.len()));
        copy_in(slot, first);
        copy_in(rest, more);
    }

    /// Copies `length` bytes from the beginning, and overwrites the originals.
    pub(crate) fn move_out(&self, length: usize) -> Zeroizing<Vec<u8>> {
        debug_assert!(length <= self.bytes(), "the caller has checked it");
        let mut bytes = Zeroizing::new(vec![0; length]);
        let [slot, rest] = self.0;
        let (first, more) = bytes.split_at_mut(length.min(8 * slot.len()));
        take_out(slot, first);
        take_out(rest, more);
        bytes
    }

    /// Overwrites all words.
    pub(crate) fn wipe(&self) {
        let words = self.0.iter().copied().flatten();
        words.for_each(|word| word.store(0, Relaxed));
    }
}

/// Copies `bytes` to the beginning of `words`. They must fit.
pub(crate) fn copy_in(words: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_ne_bytes(last), Relaxed);
    }
}

/// Copies `length` bytes from the beginning of `words`, and overwrites the originals.
pub(crate) fn move_out(words: &[AtomicU64], length: usize) -> Zeroizing<Vec<u8>> {
    debug_assert!(length <= 8 * words.len(), "the caller has checked it");
    let mut bytes = Zeroizing::new(vec![0; length]);
    take_out(words, &mut bytes);
    bytes
}

/// Fills `bytes` from the beginning of `words`, which are at least as long, and overwrites the
/// originals.
fn take_out(words: &[AtomicU64], bytes: &mut [u8]) {
    let take = |word: &AtomicU64| {
        let value = word.load(Relaxed).to_ne_bytes();
        word.store(0, Relaxed);
        value
    };
    let (whole, rest) = bytes.as_chunks_mut();
    for (word, bytes) in words.iter().zip(&mut *whole) {
        *bytes = take(word);
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&take(&words[whole.len()])[..rest.len()]);
    }
}

#[cfg(any(loom, miri))]
mod heap {
    use std::array::from_fn;

    use super::*;

    impl Header {
        pub(crate) fn new() -> Header {
            Header {
                magic: AtomicU64::new(0),
                version: AtomicU32::new(0),
                slots: AtomicU32::new(0),
                slot_size: AtomicU32::new(0),
                closed: AtomicU32::new(0),
                requests: Board::new(),
                answers: Board::new(),
            }
        }
    }

    impl Slot {
        pub(crate) fn new() -> Slot {
            Slot {
                state: AtomicU32::new(0),
                generation: AtomicU32::new(0),
                operation: AtomicU32::new(0),
                input_length: AtomicU32::new(0),
                key: AtomicU64::new(0),
                status: AtomicU32::new(0),
                output_length: AtomicU32::new(0),
                _unused: from_fn(|_| AtomicU32::new(0)),
                input: from_fn(|_| AtomicU64::new(0)),
                output: from_fn(|_| AtomicU64::new(0)),
            }
        }
    }
}
