//! The client's side: submits requests, waits for answers.

use std::fmt;
#[cfg(not(any(loom, miri)))]
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::fault::{Defect, is_planted};
use crate::layout::{
    CLOSED, FOLLOWED, GONE, IDLE, INPUT, LAST_GENERATION, NOTIFY, Slot, WAITING, answered, copy_in,
    pending,
};
#[cfg(not(any(loom, miri)))]
use crate::memory::AttachError;
use crate::memory::{Memory, Owner};
use crate::server::{Closing, close};
use crate::sleep::{Patience, WakeUp, sleep};
use crate::sync::{self, Arc, AtomicBool, AtomicU32, AtomicU64, Deadline};

/// The client's side of the ring of this process. Clones are the same ring; all threads may use it.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Memory,
    owner: Owner,
    /// A bit for each slot that no request has.
    free: Box<[AtomicU64]>,
    /// A bit for each slot whose ticket was dropped before the answer: the daemon may still write
    /// to it.
    abandoned: Box<[AtomicU64]>,
    /// The generation of each slot's last request; belongs to the thread that has claimed the slot.
    generations: Box<[AtomicU32]>,
    poisoned: AtomicBool,
    wake_up: WakeUp,
}

/// What is asked of the daemon.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// A number that the ring does not know.
    pub operation: u16,
    /// The handle of a key.
    pub key: u64,
    /// At most [`INPUT`] bytes.
    pub input: &'a [u8],
    /// Whether [`Client::answered`] tells of the answer.
    pub notify: bool,
}

/// An answer.
pub struct Reply {
    /// [`status`](crate::status)`::DONE`, another one of those, or a number of the daemon's.
    pub status: u16,
    /// At most as many bytes as the ring's [`Answers`](crate::Answers) have. They may be wrong: a
    /// hostile daemon can write anything.
    pub output: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("length", &self.output.len())
            .finish()
    }
}

/// Why a request was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// All slots are taken.
    Full,
    /// The input is longer than [`INPUT`].
    TooLong,
    /// The daemon has closed the ring, or somebody has poisoned it. Attach a new one.
    Gone,
    /// The ring belongs to a parent of this process. Attach a new one.
    Forked,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full => "all slots of the ring are taken",
            Refused::TooLong => "the input is too long for the ring",
            Refused::Gone => "the ring is closed",
            Refused::Forked => "the ring belongs to the parent of this process",
        })
    }
}

impl std::error::Error for Refused {}

/// Why there is no answer and will be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The daemon has closed the ring, or somebody has poisoned it.
    Gone,
    /// The daemon broke the protocol. The ring is poisoned now.
    Broken,
    /// The request was submitted by a parent of this process.
    Forked,
    /// The answer was taken before.
    Taken,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::Gone => "the ring was closed before the answer",
            Lost::Broken => "the daemon broke the protocol of the ring",
            Lost::Forked => "the request was submitted by the parent of this process",
            Lost::Taken => "the answer was taken before",
        })
    }
}

impl std::error::Error for Lost {}

impl Client {
    /// Attaches the ring behind a descriptor, which may be closed afterwards. The descriptor may
    /// come from a hostile process.
    #[cfg(not(any(loom, miri)))]
    pub fn attach(descriptor: impl AsFd) -> Result<Client, AttachError> {
        let memory = Memory::open(descriptor.as_fd())?;
        Ok(Client::of(memory, Owner::this_process()?))
    }

    pub(crate) fn of(memory: Memory, owner: Owner) -> Client {
        let slots = memory.slots().len();
        let words = |all: bool| {
            (0..slots.div_ceil(64))
                .map(|_| {
                    AtomicU64::new(if all {
                        u64::MAX >> (64 - slots.min(64))
                    } else {
                        0
                    })
                })
                .collect()
        };
        Client(Arc::new(Inner {
            memory,
            owner,
            free: words(true),
            abandoned: words(false),
            generations: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            poisoned: AtomicBool::new(false),
            wake_up: WakeUp::new(),
        }))
    }

    /// Submits a request, and wakes the daemon if it sleeps. It never waits.
    pub fn submit(&self, call: &Call<'_>) -> Result<Sent, Refused> {
        let inner = &*self.0;
        if !inner.owner.is_this_process() {
            return Err(Refused::Forked);
        }
        if call.input.len() > INPUT {
            return Err(Refused::TooLong);
        }
        let Some(slot) = inner.claim() else {
            return Err(if inner.is_gone() {
                Refused::Gone
            } else {
                Refused::Full
            });
        };
        let last = inner.generations[slot].load(Relaxed);
        let generation = (last + 1) & LAST_GENERATION;
        inner.generations[slot].store(generation, Relaxed);
        let shared = &inner.memory.slots()[slot];
        // One step with a look at what was there: either this thread sees below that the ring is
        // closed, or the one that closes it marks this request.
        shared.state.swap(pending(generation), AcqRel);
        if inner.is_gone() {
            put(&inner.free, slot);
            return Err(Refused::Gone);
        }
        let flags = if call.notify { NOTIFY } else { 0 };
        shared.generation.store(generation, Relaxed);
        shared
            .operation
            .store(u32::from(call.operation) | flags << 16, Relaxed);
        shared.key.store(call.key, Relaxed);
        shared.input_length.store(call.input.len() as u32, Relaxed);
        copy_in(&shared.input, call.input);
        inner.memory.header().requests.post(slot);
        Ok(Sent {
            client: self.clone(),
            slot,
            generation,
            taken: false,
        })
    }

    /// Sleeps until a request with [`Call::notify`] is answered, somebody calls [`Client::wake`],
    /// the ring is gone, or the time is over; then gives `each` the slots of such requests. They
    /// are hints: the answer to a ticket with that slot is there, or was taken before, or the
    /// daemon lies. One thread at a time may call it.
    pub fn answered(&self, patience: Patience, mut each: impl FnMut(usize)) -> Result<(), Refused> {
        let inner = &*self.0;
        if !inner.owner.is_this_process() {
            return Err(Refused::Forked);
        }
        let slots = inner.memory.slots().len();
        let answers = &inner.memory.header().answers;
        if !inner.is_gone() {
            sleep(answers, slots, &inner.wake_up, patience);
        }
        answers.take(slots, &mut each);
        if inner.is_gone() {
            return Err(Refused::Gone);
        }
        Ok(())
    }

    /// Ends the sleep of the thread in [`Client::answered`], or its next one.
    pub fn wake(&self) {
        if self.0.owner.is_this_process() {
            self.0.wake_up.make();
            self.0.memory.header().answers.bell.ring_anyway();
        }
    }

    /// Gives the ring up, as after the daemon's death: all threads that wait for an answer get
    /// [`Lost::Gone`] at once, and nothing more can be submitted.
    pub fn poison(&self) {
        self.0.poison();
    }

    /// Whether nothing more can be submitted: the ring is closed or poisoned.
    pub fn is_gone(&self) -> bool {
        !self.0.owner.is_this_process() || self.0.is_gone()
    }

    /// Why the daemon has closed the ring, if it has, and how long ago it ended if another one is
    /// to follow it.
    pub fn closing(&self) -> Option<(Closing, Duration)> {
        if !self.0.owner.is_this_process() {
            return None;
        }
        let header = self.0.memory.header();
        let closing = match header.closed.load(Acquire) {
            0 => return None,
            IDLE => Closing::Idle,
            FOLLOWED => Closing::Followed,
            _ => Closing::Unsaid,
        };
        let seconds = sync::seconds().wrapping_sub(header.answers.note.load(Relaxed));
        Some((closing, Duration::from_secs(seconds.into())))
    }

    /// A number that changes while the daemon works and this client waits; None from a daemon that
    /// does not say so.
    pub fn beat(&self) -> Option<u32> {
        if !self.0.owner.is_this_process() {
            return None;
        }
        let beat = self.0.memory.header().requests.note.load(Relaxed);
        (beat != 0).then_some(beat)
    }

    /// How many slots the ring has: the most requests in flight.
    pub fn slots(&self) -> usize {
        self.0.generations.len()
    }
}

impl Inner {
    fn is_gone(&self) -> bool {
        self.poisoned.load(Acquire) || self.memory.header().closed.load(Relaxed) != 0
    }

    fn poison(&self) {
        if self.owner.is_this_process() {
            self.poisoned.store(true, Release);
            close(&self.memory, CLOSED);
        }
    }

    /// A slot for this thread alone.
    fn claim(&self) -> Option<usize> {
        pick(&self.free).or_else(|| self.reclaim())
    }

    /// A slot whose ticket was dropped, and whose answer is there by now.
    fn reclaim(&self) -> Option<usize> {
        for slot in 0..self.generations.len() {
            if !pick_one(&self.abandoned, slot) {
                continue;
            }
            let shared = &self.memory.slots()[slot];
            let generation = self.generations[slot].load(Relaxed);
            if is_answered(shared.state.load(Acquire), generation) {
                self.memory.output(slot).wipe();
                return Some(slot);
            }
            put(&self.abandoned, slot);
        }
        None
    }
}

/// The ring may have been closed since.
fn is_answered(state: u32, generation: u32) -> bool {
    state & !GONE == answered(generation)
}

/// Takes any slot of a set.
fn pick(set: &[AtomicU64]) -> Option<usize> {
    for (index, word) in set.iter().enumerate() {
        let mut bits = word.load(Relaxed);
        while bits != 0 {
            let slot = 64 * index + bits.trailing_zeros() as usize;
            if pick_one(set, slot) {
                return Some(slot);
            }
            bits = word.load(Relaxed);
        }
    }
    None
}

/// Takes this slot of a set, if it is there.
fn pick_one(set: &[AtomicU64], slot: usize) -> bool {
    let (word, bit) = (&set[slot / 64], 1 << (slot % 64));
    let seems_there = word.load(Relaxed) & bit != 0;
    if is_planted(Defect::ClaimedTwice) {
        return seems_there;
    }
    seems_there && word.fetch_and(!bit, AcqRel) & bit != 0
}

fn put(set: &[AtomicU64], slot: usize) {
    set[slot / 64].fetch_or(1 << (slot % 64), AcqRel);
}

/// A request that is submitted. One that is dropped before its answer keeps its slot until the
/// daemon has answered.
#[derive(Debug)]
pub struct Sent {
    client: Client,
    slot: usize,
    generation: u32,
    taken: bool,
}

impl Sent {
    /// The slot, by which [`Client::answered`] names it.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The answer, if it is there.
    pub fn poll(&mut self) -> Result<Option<Reply>, Lost> {
        if self.taken {
            return Err(Lost::Taken);
        }
        if !self.client.0.owner.is_this_process() {
            return Err(Lost::Forked);
        }
        let state = self.shared().state.load(Acquire);
        if is_answered(state, self.generation) {
            self.collect().map(Some)
        } else if state & !WAITING == pending(self.generation) {
            Ok(None)
        } else if state & !WAITING == pending(self.generation) | GONE {
            Err(Lost::Gone)
        } else {
            self.client.0.poison();
            Err(Lost::Broken)
        }
    }

    /// Waits for the answer; None if it is not there when the time is over. Then the caller may
    /// look whether the daemon lives, and wait again.
    pub fn wait(&mut self, patience: Patience) -> Result<Option<Reply>, Lost> {
        if self.taken {
            return Err(Lost::Taken);
        }
        if !self.client.0.owner.is_this_process() {
            return Err(Lost::Forked);
        }
        let pending = pending(self.generation);
        let waiting = pending | WAITING;
        let state = &self.client.0.memory.slots()[self.slot].state;
        let deadline = Deadline::after(patience.timeout);
        // It may say already that a thread waits, of a wait before this one.
        sync::spin(patience.spin, || state.load(Relaxed) & !WAITING != pending);
        loop {
            if let Some(answer) = self.poll()? {
                return Ok(Some(answer));
            }
            let Some(left) = deadline.left() else {
                return Ok(None);
            };
            let state = &self.shared().state;
            let marked = state.compare_exchange(pending, waiting, AcqRel, Acquire);
            if marked.is_ok() || marked == Err(waiting) {
                sync::wait(state, waiting, left.min(Duration::from_secs(60)));
            }
        }
    }

    /// Takes the answer out of the slot, and frees it.
    fn collect(&mut self) -> Result<Reply, Lost> {
        let shared = self.shared();
        let status = shared.status.load(Relaxed);
        let length = shared.output_length.load(Relaxed) as usize;
        let shared = self.client.0.memory.output(self.slot);
        let fits = length <= shared.bytes() || is_planted(Defect::UncheckedOutput);
        let (Ok(status), true) = (u16::try_from(status), fits) else {
            self.client.0.poison();
            return Err(Lost::Broken);
        };
        let output = shared.move_out(length);
        self.taken = true;
        put(&self.client.0.free, self.slot);
        Ok(Reply { status, output })
    }

    fn shared(&self) -> &Slot {
        &self.client.0.memory.slots()[self.slot]
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if self.taken || !self.client.0.owner.is_this_process() {
            return;
        }
        let set = match is_planted(Defect::EarlyFree) {
            true => &self.client.0.free,
            false => &self.client.0.abandoned,
        };
        put(set, self.slot);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.owner.is_this_process() {
            self.memory.disown();
        }
    }
}
