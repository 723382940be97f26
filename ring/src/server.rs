//! The daemon's side: takes requests and answers them.

use std::fmt;
#[cfg(not(any(loom, miri)))]
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64 as Counter, AtomicUsize};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::board::{Bell, Board};
use crate::fault::{Defect, is_planted};
#[cfg(not(any(loom, miri)))]
use crate::layout::Answers;
use crate::layout::{
    CLOSED, FOLLOWED, GONE, IDLE, INPUT, LAST_GENERATION, NOTIFY, Slot, WAITING, answered,
    move_out, status,
};
#[cfg(not(any(loom, miri)))]
use crate::memory::AttachError;
use crate::memory::Memory;
use crate::sleep::{Patience, WakeUp, sleep};
use crate::sync::{self, Arc, AtomicU64};

/// The daemon's side of one client's ring. Clones share the ring, and all threads may use it.
#[derive(Clone, Debug)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Memory,
    /// One bit for each slot whose request is taken and not answered.
    in_flight: Box<[AtomicU64]>,
    /// Word of the set at which the next look for requests begins.
    first: AtomicUsize,
    wake_up: WakeUp,
    /// Number of times that the bell has rung since the last valid request.
    idle_rings: AtomicU32,
    /// Number of sleeps of a thread since the last request, while there are too many rings.
    sleeps: AtomicU32,
    beats: AtomicU32,
    malformed: Counter,
    repeated: Counter,
}

/// Reason why the daemon closes a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// No reason.
    Unsaid,
    /// The daemon has given the place of this idle client to another one. The client connects again
    /// with its next request.
    Idle,
    /// The daemon ends, and another one follows it at the same socket.
    Followed,
}

/// Numbers of a client's violations of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Requests with an invalid length, generation or flag, which get [`status::MALFORMED`].
    pub malformed: u64,
    /// Slots that were posted while their request was in flight. They are ignored.
    pub repeated: u64,
}

impl Server {
    /// Number of times that the bell rings without a request before a thread stops listening to it.
    pub(crate) const MOST_IDLE_RINGS: u32 = 64;
    /// Interval at which a thread looks at a ring that it does not listen to.
    pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

    /// Creates a ring with short answers, and the descriptor for its client. `slots` is a power of
    /// two up to [`MOST_SLOTS`](crate::MOST_SLOTS), and the maximum number of requests in flight.
    #[cfg(not(any(loom, miri)))]
    pub fn create(slots: usize) -> Result<(Server, OwnedFd), AttachError> {
        Server::create_for(slots, Answers::Short)
    }

    /// Creates a ring as [`Server::create`] does, with short or long answers. Clients of the
    /// previous release accept short ones only.
    #[cfg(not(any(loom, miri)))]
    pub fn create_for(slots: usize, answers: Answers) -> Result<(Server, OwnedFd), AttachError> {
        let (memory, descriptor) = Memory::create(slots, answers)?;
        Ok((Server::of(memory), descriptor))
    }

    pub(crate) fn of(memory: Memory) -> Server {
        let words = memory.slots().len().div_ceil(64);
        Server(Arc::new(Inner {
            memory,
            in_flight: (0..words).map(|_| AtomicU64::new(0)).collect(),
            first: AtomicUsize::new(0),
            wake_up: WakeUp::new(),
            idle_rings: AtomicU32::new(0),
            sleeps: AtomicU32::new(0),
            beats: AtomicU32::new(0),
            malformed: Counter::new(0),
            repeated: Counter::new(0),
        }))
    }

    /// Takes all posted requests, and passes each to `each`; returns their number.
    pub fn take(&self, each: impl FnMut(Taken)) -> usize {
        self.take_some(usize::MAX, each)
    }

    /// Takes `most` requests if there are as many, and at most 63 more. The others stay in the ring
    /// and come first the next time.
    pub fn take_some(&self, most: usize, mut each: impl FnMut(Taken)) -> usize {
        let mut taken = 0;
        let first = self.0.first.load(Relaxed);
        let next = self
            .requests()
            .take_some(self.slots(), first, most, |slot| {
                if let Some(request) = self.receive(slot) {
                    taken += 1;
                    each(request);
                }
            });
        self.0.first.store(next, Relaxed);
        if taken > 0 {
            self.0.idle_rings.store(0, Relaxed);
            self.0.sleeps.store(0, Relaxed);
        }
        taken
    }

    /// Copies the request of a slot, reading each word once, and checks the copy.
    fn receive(&self, slot: usize) -> Option<Taken> {
        let bit = 1 << (slot % 64);
        let before = self.0.in_flight[slot / 64].fetch_or(bit, AcqRel);
        if before & bit != 0 && !is_planted(Defect::TakenTwice) {
            self.0.repeated.fetch_add(1, Relaxed);
            return None;
        }
        let shared = &self.0.memory.slots()[slot];
        let generation = shared.generation.load(Relaxed);
        let operation = shared.operation.load(Relaxed);
        let length = shared.input_length.load(Relaxed) as usize;
        let key = shared.key.load(Relaxed);
        let flags = operation >> 16;
        let fits = length <= INPUT || is_planted(Defect::UncheckedInput);
        let is_good = fits && generation <= LAST_GENERATION && flags & !NOTIFY == 0;
        let mut request = Taken {
            server: self.clone(),
            slot,
            generation: generation & LAST_GENERATION,
            operation: operation as u16,
            key,
            notify: flags & NOTIFY != 0,
            input: Zeroizing::default(),
            answered: false,
        };
        if !is_good {
            self.0.malformed.fetch_add(1, Relaxed);
            request.answer(status::MALFORMED, &[]);
            return None;
        }
        request.input = move_out(&shared.input, length);
        #[cfg(feature = "fault-injection")]
        if is_planted(Defect::BelievedLength) {
            let believed = shared.output_length.load(Relaxed) as usize;
            crate::memory::read_on(&request.input, believed);
        }
        Some(request)
    }

    /// Sleeps until there are requests, [`Server::wake`] is called, or the time is over. For a
    /// thread that serves one ring only. Only one thread at a time may sleep on a ring.
    pub fn sleep(&self, patience: Patience) {
        sleep(self.requests(), self.slots(), &self.0.wake_up, patience);
    }

    /// Ends the current or next sleep in [`Server::sleep`].
    pub fn wake(&self) {
        self.0.wake_up.make();
        self.bell().ring_anyway();
    }

    /// Tells the client that no more answers come: its threads get
    /// [`Lost::Gone`](crate::Lost::Gone) at once. The daemon may still answer requests that it has
    /// taken.
    pub fn close(&self) {
        self.close_as(Closing::Unsaid);
    }

    /// Closes the ring as [`Server::close`] does, with a reason. The client submits unanswered
    /// requests again elsewhere. Only the first reason counts.
    pub fn close_as(&self, closing: Closing) {
        let closing = match closing {
            Closing::Unsaid => CLOSED,
            Closing::Idle => IDLE,
            Closing::Followed => {
                let time = &self.0.memory.header().answers.note;
                time.store(sync::seconds(), Relaxed);
                FOLLOWED
            }
        };
        close(&self.0.memory, closing);
    }

    /// Shows the client that the daemon works. A waiting client sees no other sign while the daemon
    /// serves other clients.
    pub fn beat(&self) {
        // Counted in private memory, since the client may write anything to the ring.
        let beat = self.0.beats.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        self.requests().note.store(beat, Relaxed);
    }

    /// Returns whether the client waits for an answer.
    pub fn is_awaited(&self) -> bool {
        self.has_requests() || self.in_flight() > 0
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.0.memory.slots().len()
    }

    /// Returns the number of requests that are taken and not answered.
    pub fn in_flight(&self) -> usize {
        let bits = self.0.in_flight.iter();
        bits.map(|word| word.load(Relaxed).count_ones() as usize)
            .sum()
    }

    /// Returns the violations of the protocol.
    pub fn faults(&self) -> Faults {
        Faults {
            malformed: self.0.malformed.load(Relaxed),
            repeated: self.0.repeated.load(Relaxed),
        }
    }

    /// Returns whether requests seem to be posted, for a thread that spins.
    pub fn has_requests(&self) -> bool {
        !self.requests().seems_empty(self.slots())
    }

    /// Returns whether no request is posted, for a thread that has announced its sleep.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests().is_empty(self.slots())
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.requests().bell
    }

    fn requests(&self) -> &Board {
        &self.0.memory.header().requests
    }

    /// Returns the number of times that the bell has rung without a request.
    pub(crate) fn idle_rings(&self) -> u32 {
        self.0.idle_rings.load(Relaxed)
    }

    /// Returns whether a sleeping thread listens to this ring's bell.
    pub(crate) fn is_heard(&self) -> bool {
        self.idle_rings() < Self::MOST_IDLE_RINGS
    }

    /// Returns the number of sleeps since the last request.
    pub(crate) fn sleeps(&self) -> u32 {
        self.0.sleeps.load(Relaxed)
    }

    pub(crate) fn count_sleep(&self) {
        let sleeps = self.sleeps().saturating_add(1);
        self.0.sleeps.store(sleeps, Relaxed);
    }

    /// Returns the number of clones.
    #[cfg(all(test, not(any(loom, miri))))]
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns whether both are the same ring.
    pub(crate) fn is_same(&self, other: &Server) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn count_idle_ring(&self) {
        self.0.idle_rings.fetch_add(1, Relaxed);
    }
}

/// Marks a ring as closed, and wakes the threads that wait for answers.
pub(crate) fn close(memory: &Memory, closing: u32) {
    let header = memory.header();
    // Only the first reason is stored.
    let _ = header.closed.compare_exchange(0, closing, Release, Relaxed);
    for slot in memory.slots() {
        if slot.state.fetch_or(GONE, AcqRel) & WAITING != 0 {
            sync::wake(&slot.state);
        }
    }
    // Any slot will do: the thread that takes answers checks the ring after it wakes.
    header.answers.post(0);
}

/// A request, copied into private memory. If it is dropped, the client gets [`status::DROPPED`].
pub struct Taken {
    server: Server,
    slot: usize,
    generation: u32,
    operation: u16,
    key: u64,
    notify: bool,
    input: Zeroizing<Vec<u8>>,
    answered: bool,
}

impl Taken {
    /// Returns the operation, whose meaning the ring does not know.
    pub fn operation(&self) -> u16 {
        self.operation
    }

    /// Returns the client's handle of a key, which may be any number.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the input, at most [`INPUT`] bytes.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// Answers the request. Any thread may do so.
    pub fn answer(mut self, status: u16, output: &[u8]) {
        self.deliver(status, output);
    }

    fn deliver(&mut self, mut status: u16, mut output: &[u8]) {
        self.answered = true;
        let memory = &self.server.0.memory;
        let room = memory.output(self.slot);
        if output.len() > room.bytes() {
            (status, output) = (status::TOO_LONG, &[]);
        }
        room.copy_in(output);
        let shared = &memory.slots()[self.slot];
        shared.output_length.store(output.len() as u32, Relaxed);
        shared.status.store(status.into(), Relaxed);
        // The client may post the slot again as soon as it sees the answer.
        if !is_planted(Defect::LateForgetting) {
            self.forget();
        }
        if publish(shared, self.generation) {
            sync::wake(&shared.state);
        }
        if is_planted(Defect::LateForgetting) {
            self.forget();
        }
        if self.notify {
            self.server.0.memory.header().answers.post(self.slot);
        }
    }

    fn forget(&self) {
        let word = &self.server.0.in_flight[self.slot / 64];
        word.fetch_and(!(1 << (self.slot % 64)), Release);
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken")
            .field("slot", &self.slot)
            .field("operation", &self.operation)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Publishes an answer; returns whether a thread of the client may sleep until the answer comes.
fn publish(slot: &Slot, generation: u32) -> bool {
    let answered = answered(generation);
    let before = match is_planted(Defect::BlindAnswer) {
        true => {
            let before = slot.state.load(Relaxed);
            slot.state.store(answered, Release);
            before
        }
        false => slot.state.swap(answered, AcqRel),
    };
    match is_planted(Defect::SilentAnswer) {
        true => false,
        false => before & WAITING != 0,
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.answered {
            self.deliver(status::DROPPED, &[]);
        }
    }
}
