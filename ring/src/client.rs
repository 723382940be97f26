//! The client's side: submits requests and waits for answers.

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

/// The client's side of the ring of this process. Clones share the ring, and all threads may use
/// it.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Memory,
    owner: Owner,
    /// One bit for each slot without a request.
    free: Box<[AtomicU64]>,
    /// One bit for each slot whose ticket was dropped before the answer. The daemon may still write
    /// to it.
    abandoned: Box<[AtomicU64]>,
    /// Generation of each slot's last request; owned by the thread that has claimed the slot.
    generations: Box<[AtomicU32]>,
    poisoned: AtomicBool,
    wake_up: WakeUp,
}

/// A request to the daemon.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The operation, whose meaning the ring does not know.
    pub operation: u16,
    /// The handle of a key.
    pub key: u64,
    /// The input, at most [`INPUT`] bytes.
    pub input: &'a [u8],
    /// Whether [`Client::answered`] reports the answer.
    pub notify: bool,
}

/// An answer.
pub struct Reply {
    /// [`status`](crate::status)`::DONE`, another status of the ring, or one of the daemon.
    pub status: u16,
    /// The result, at most as long as the ring's [`Answers`](crate::Answers). It may be wrong: a
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

/// Reason why a request was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// All slots are in use.
    Full,
    /// The input is longer than [`INPUT`].
    TooLong,
    /// The ring is closed or poisoned. Attach a new one.
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

/// Reason why there will be no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The ring is closed or poisoned.
    Gone,
    /// The daemon violated the protocol. The ring is poisoned now.
    Broken,
    /// A parent of this process submitted the request.
    Forked,
    /// The answer was already taken.
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
        // A swap: either this thread sees below that the ring is closed, or the thread that closes
        // it marks this request.
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

    /// Sleeps until a request with [`Call::notify`] is answered, [`Client::wake`] is called, the
    /// ring is closed, or the time is over. Then passes the slots of the answered requests to
    /// `each`. A slot is a hint: the answer is there, or was already taken, or a hostile daemon has
    /// named the slot without an answer. Only one thread at a time may call this function.
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

    /// Ends the current or next sleep in [`Client::answered`].
    pub fn wake(&self) {
        if self.0.owner.is_this_process() {
            self.0.wake_up.make();
            self.0.memory.header().answers.bell.ring_anyway();
        }
    }

    /// Gives the ring up, as after the daemon's death: all waiting threads get [`Lost::Gone`] at
    /// once, and no more requests can be submitted.
    pub fn poison(&self) {
        self.0.poison();
    }

    /// Returns whether the ring is closed or poisoned, so that no request can be submitted.
    pub fn is_gone(&self) -> bool {
        !self.0.owner.is_this_process() || self.0.is_gone()
    }

    /// Returns the daemon's reason for closing the ring; `None` while the ring is open, and in a
    /// forked child. The duration since then is valid for [`Closing::Followed`] only.
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

    /// Returns a number that changes while the daemon works and this client waits; `None` if the
    /// daemon does not support it.
    pub fn beat(&self) -> Option<u32> {
        if !self.0.owner.is_this_process() {
            return None;
        }
        let beat = self.0.memory.header().requests.note.load(Relaxed);
        (beat != 0).then_some(beat)
    }

    /// Returns the number of slots, which is the maximum number of requests in flight.
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

    /// Claims a free slot for this thread.
    fn claim(&self) -> Option<usize> {
        pick(&self.free).or_else(|| self.reclaim())
    }

    /// Claims a slot whose ticket was dropped and whose answer has come.
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

/// Returns whether the request is answered. The ring may be open or closed.
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

/// Takes a slot of a set, if it is in the set.
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

/// The ticket of a submitted request. If it is dropped early, its slot stays in use until the
/// daemon has answered.
#[derive(Debug)]
pub struct Sent {
    client: Client,
    slot: usize,
    generation: u32,
    taken: bool,
}

impl Sent {
    /// Returns the slot, as [`Client::answered`] reports it.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the answer, if it is there.
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

    /// Waits for the answer; returns `None` at the end of the time. The caller may check then
    /// whether the daemon lives, and wait again.
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
        // The flag of an earlier wait may still be set.
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

    /// Takes the answer out of the slot, and frees the slot.
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
