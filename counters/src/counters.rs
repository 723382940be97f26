//! Counters: words of a slot in a mapped file if they are published, and otherwise words of memory.
//!
//! To count is one atomic addition, which a reader of the file sees at once.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockstep_ops::Schedule;

use crate::external_event::{ExternalEvent, Unpaused};
use crate::fallback::Fallback;
use crate::layout::{FILLS, RSA_SIZES, SLOT_WORDS, Slot, WAIT_BOUNDS, WAITS, counter, words_of};
use crate::page::Page;
use crate::permit::{Permit, Permits};
use crate::snapshot::Snapshot;
use crate::syslog::{Event, Log, Syslog};
use crate::version::version;

/// The live counters.
pub struct Counters {
    words: Words,
    started: u64,
    paused: Permits,
    /// The counter of lost jobs, in memory that no other process can change: a bound depends on it.
    lost: AtomicU64,
    /// The bounds of paused and of lost jobs; zero without jobs.
    bounds: [u64; 2],
    log: Log,
}

/// Place of the counters.
enum Words {
    /// In the slot of this process.
    Published(&'static Slot),
    Private(Box<Slot>),
}

impl Counters {
    /// Returns counters in the slot that this process has in a page, or else new ones in memory of
    /// their own.
    pub fn new(backend: &'static str, slots: usize, page: Option<&Page>) -> Counters {
        let published = page.and_then(|page| Some((page.own()?, page.started())));
        let (words, started) = match published {
            Some((slot, started)) => (Words::Published(slot), started),
            None => {
                let private = Box::new([const { AtomicU64::new(0) }; SLOT_WORDS]);
                (Words::Private(private), 0)
            }
        };
        let counters = Counters {
            words,
            started,
            paused: Permits::default(),
            lost: AtomicU64::new(0),
            bounds: [0; 2],
            log: Log::new(Syslog::Off),
        };
        let backend: [u64; counter::BACKEND_WORDS] = words_of(backend);
        for (at, word) in (counter::BACKEND..).zip(backend) {
            counters.words()[at].store(word, Ordering::Relaxed);
        }
        counters.words()[counter::SLOTS].store(slots as u64, Ordering::Relaxed);
        counters.note_key_memory();
        counters
    }

    /// Has these counters send a line to a log when one of them needs attention.
    pub fn warning(self, to: Syslog) -> Counters {
        let log = Log::new(to);
        Counters { log, ..self }
    }

    /// Sets the bounds of asynchronous jobs, which readers see too.
    pub fn note_bounds(&mut self, max_async: usize, max_lost: usize) {
        self.bounds = [max_async as u64, max_lost as u64];
        for (place, bound) in [counter::MAX_ASYNC, counter::MAX_LOST]
            .iter()
            .zip(self.bounds)
        {
            self.words()[*place].store(bound, Ordering::Relaxed);
        }
    }

    /// Takes a permit to pause one more job, unless too many are paused.
    pub fn pause(&self) -> Option<Permit> {
        let [most, _] = self.bounds;
        let permit = self.paused.take_of(most as usize)?;
        let now = self.paused.count() as u64;
        if is_near(now, most) {
            self.log.warn(Event::Paused { now, most });
        }
        Some(permit)
    }

    /// Returns the number of paused jobs.
    pub fn paused(&self) -> usize {
        self.paused.count()
    }

    fn words(&self) -> &Slot {
        match &self.words {
            Words::Published(slot) => slot,
            Words::Private(slot) => slot,
        }
    }

    /// Counts a batch of `requests` of the shape with this index. The lanes ran `ran` operations
    /// for the batch, which are more than the requests if it made key pairs for the pool. A full
    /// pass has `pass` operations.
    pub fn batch(&self, shape: usize, requests: usize, ran: usize, pass: usize) {
        let words = self.words();
        add(&words[counter::BY_SHAPE + shape], requests as u64);
        add(&words[counter::BATCHES], 1);
        add(&words[counter::POOL_REFILLS], u64::from(ran > requests));
        count_fill(words, counter::BATCH_FILL, requests, 1);
        let (full, rest) = (ran / pass, ran % pass);
        count_fill(words, counter::PASS_FILL, pass, full as u64);
        count_fill(words, counter::PASS_FILL, rest, u64::from(rest > 0));
        self.note_paused();
        self.note_key_memory();
        self.note_schedules();
    }

    /// Counts a key pair, of the shape with this index, that was made in advance.
    pub fn pool_hit(&self, shape: usize) {
        add(&self.words()[counter::BY_SHAPE + shape], 1);
        add(&self.words()[counter::POOL_HITS], 1);
    }

    /// Counts the waits of a batch.
    pub fn waited(&self, waits: Waits) {
        add(&self.words()[counter::WAIT_TOTAL_NS], waits.total_ns);
        let longest = &self.words()[counter::WAIT_MAX_NS];
        // Most waits are shorter: a load costs less than an exchange.
        if longest.load(Ordering::Relaxed) < waits.max_ns {
            longest.fetch_max(waits.max_ns, Ordering::Relaxed);
        }
        // The requests of a batch came at nearly the same time: few of these counts are not zero.
        for (at, count) in (counter::BY_WAIT..).zip(waits.by_length) {
            if count > 0 {
                add(&self.words()[at], count.into());
            }
        }
    }

    /// Counts a leader that yields its CPU, so that other requests may come.
    pub fn yielded(&self) {
        add(&self.words()[counter::YIELDS], 1);
    }

    /// Counts a request for which a job pauses.
    pub fn submitted(&self) {
        add(&self.words()[counter::ASYNC_SUBMITTED], 1);
        self.note_paused();
    }

    /// Counts a job whose connection ended while it was paused.
    pub fn lost(&self) {
        let so_far = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        let [_, most] = self.bounds;
        if is_near(so_far, most) {
            self.log.warn(Event::Lost { so_far, most });
        }
        add(&self.words()[counter::LOST], 1);
        self.note_paused();
    }

    /// Returns the number of jobs that were lost so far.
    pub fn lost_so_far(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts a job that blocks its thread instead of pausing.
    pub fn unpaused(&self, reason: Unpaused) {
        add(&self.words()[counter::UNPAUSED], 1);
        let without = u64::from(reason == Unpaused::Descriptor);
        add(&self.words()[counter::NO_DESCRIPTOR], without);
    }

    /// Counts an event outside of the engine.
    pub fn count(&self, done: ExternalEvent) {
        let words = self.words();
        match done {
            ExternalEvent::Fallback(reason) => self.fallback(reason),
            ExternalEvent::Derivation => {
                add(&words[counter::DERIVATIONS], 1);
                // A handshake ends with derivations, after the answers to its requests were taken.
                self.note_paused();
            }
            ExternalEvent::Cipher => add(&words[counter::CIPHERS], 1),
            ExternalEvent::Submitted => self.submitted(),
            ExternalEvent::Unpaused(reason) => self.unpaused(reason),
            ExternalEvent::LostJob => self.lost(),
            ExternalEvent::Daemon { served } => {
                add(&words[counter::DAEMON_REQUESTS], 1);
                add(&words[counter::DAEMON_FALLBACKS], u64::from(!served));
            }
            ExternalEvent::LeftOut(keys) => self.note(counter::KEYS_LEFT_OUT, keys as u64),
        }
    }

    /// Counts a request or a key that goes to OpenSSL's own implementation, and the reason.
    pub fn fallback(&self, reason: Fallback) {
        let counter = &self.words()[counter::BY_REASON + reason as usize];
        let before = counter.fetch_add(1, Ordering::Relaxed);
        self.note_key_memory();
        if reason == Fallback::CheckFailed {
            let so_far = before.saturating_add(1);
            self.log.warn(Event::FailedCheck { so_far });
        }
    }

    /// Shows readers the number of paused jobs.
    fn note_paused(&self) {
        let paused = self.paused.count() as u64;
        self.words()[counter::PAUSED].store(paused, Ordering::Relaxed);
    }

    /// Shows readers the size of the memory for keys, and how much of it is locked.
    fn note_key_memory(&self) {
        let usage = lockstep_vault::usage();
        for (place, bytes) in [
            (counter::KEY_MEMORY, usage.regions),
            (counter::KEY_MEMORY_LOCKED, usage.locked),
            (counter::KEY_MEMORY_HEAP, usage.heap),
        ] {
            self.note(place, bytes as u64);
        }
    }

    /// Shows readers the schedules of RSA.
    fn note_schedules(&self) {
        for (place, size) in (counter::SCHEDULES..).zip(RSA_SIZES) {
            if let Some(schedule) = Schedule::chosen(size) {
                self.note(place, schedule as u64 + 1);
            }
        }
    }

    /// Stores a value that rarely changes: a load costs less than a store that other CPUs must see.
    fn note(&self, place: usize, value: u64) {
        let word = &self.words()[place];
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the counters at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let words = self
            .words()
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        Snapshot {
            version: version(),
            pid: u64::from(process::id()),
            started: self.started,
            paused: self.paused.count() as u64,
            ..Snapshot::of_slot(&words)
        }
    }
}

/// Counts `times` occurrences of `fill` requests in a histogram. A larger fill counts as its last.
fn count_fill(words: &Slot, histogram: usize, fill: usize, times: u64) {
    if times > 0 {
        add(&words[histogram + fill.clamp(1, FILLS) - 1], times);
    }
}

/// Returns whether nine tenths of a bound are reached.
fn is_near(count: u64, most: u64) -> bool {
    count >= most - most / 10
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Times that the requests of a batch waited in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waits {
    total_ns: u64,
    max_ns: u64,
    by_length: [u32; WAITS],
}

impl Waits {
    /// Adds the wait of one request.
    pub fn add(&mut self, waited: Duration) {
        let waited = waited.as_nanos() as u64;
        self.total_ns += waited;
        self.max_ns = self.max_ns.max(waited);
        let length = WAIT_BOUNDS.iter().filter(|bound| waited > **bound).count();
        self.by_length[length] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(counters: &Counters) {
        counters.batch(1, 7, 7, 4);
        counters.batch(4, 1, 1, 4);
        let mut waits = Waits {
            total_ns: u64::MAX / 4,
            ..Waits::default()
        };
        waits.add(Duration::from_nanos(17));
        counters.waited(waits);
        counters.fallback(Fallback::CheckFailed);
        counters.fallback(Fallback::MultiPrime);
        counters.yielded();
        counters.submitted();
    }

    #[test]
    fn json_keeps_every_number() {
        let counters = Counters::new("portable", 2, None);
        busy(&counters);
        let snapshot = counters.snapshot();
        assert_eq!(
            (snapshot.operations(), snapshot.batches, snapshot.passes),
            (8, 2, 3)
        );
        assert_eq!(snapshot.pass_fill, [1, 0, 1, 1, 0, 0, 0, 0]);
        assert_eq!((snapshot.fallbacks(), snapshot.failed_checks), (2, 1));
        let json = snapshot.to_json();
        assert!(
            json.contains(r#""operations":{"rsa1024":0,"rsa2048":7,"#),
            "{json}"
        );
        assert!(json.contains(r#""wait_max_ns":17,"#), "{json}");
        assert_eq!(Snapshot::from_json(&json), Some(snapshot));
    }

    #[test]
    fn a_wait_counts_by_its_length() {
        let counters = Counters::new("portable", 1, None);
        for nanoseconds in [0, 10_000, 10_001, 100_000_000, 100_000_001, u64::MAX / 8] {
            let mut waits = Waits::default();
            waits.add(Duration::from_nanos(nanoseconds));
            counters.waited(waits);
        }
        let by_wait = counters.snapshot().by_wait;
        assert_eq!(by_wait, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn engines_of_one_process_add_up() {
        let counters = Counters::new("portable", 2, None);
        busy(&counters);
        let once = counters.snapshot();
        let mut twice = once.clone();
        twice.absorb(&once);
        assert_eq!(
            (twice.pid, twice.slots, twice.wait_max_ns),
            (once.pid, 2, 17)
        );
        assert_eq!((twice.operations(), twice.passes), (16, 6));
        assert_eq!(twice.pass_fill, [2, 0, 2, 2, 0, 0, 0, 0]);
        assert_eq!((twice.fallbacks(), twice.failed_checks), (4, 2));
        assert_eq!(twice.filled(), 2 + 2 * 3 + 2 * 4);
        assert_eq!(twice.clone().since(&once), once);
        assert_eq!(once.since(&twice).operations(), 0, "never below zero");
    }
}
