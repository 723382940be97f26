//! Counters: words of a slot in a mapped file, where they are published, or of memory.
//!
//! To count is one atomic addition. A reader of the file sees it at once, so it counts whatever a
//! caller has seen. As a JSON document the counters have these keys, all numbers but `version` and
//! `backend`:
//!
//! | key | meaning |
//! |---|---|
//! | `version`, `backend` | of the engine; `backend` is `none` without lanes |
//! | `pid`, `started` | the process, and when it took its place in the file, in clock ticks since boot |
//! | `slots` | batches that may run at a time |
//! | `operations.SHAPE` | requests that a batch took or the pool served, by [`Shape::name`] |
//! | `batches`, `passes` | batches, and passes of the lanes in them |
//! | `batch_fill.N`, `pass_fill.N` | how many of them had N requests; of batches, 8 is 8 or more |
//! | `pool_hits`, `pool_refills` | key pairs that were there in advance, and batches that made some |
//! | `wait_total_ns`, `wait_max_ns` | time in the queue, before a batch took the request; of jobs that lead themselves it counts from the first that their thread posted in one go |
//! | `yields` | how often a leader yielded to let requests gather |
//! | `derivations` | key derivations of TLS 1.3 that the module did itself |
//! | `async_submitted`, `paused` | submitted requests, and those not taken when the last was counted |
//! | `lost` | jobs whose connection ended while they were paused: libcrypto never frees their stacks |
//! | `unpaused` | jobs that blocked their thread instead of pausing, because a bound was reached |
//! | `no_descriptor` | those of them for which there was no file descriptor |
//! | `max_async`, `max_lost` | the bounds of `paused` and `lost`, as configured |
//! | `key_memory`, `key_memory_locked`, `key_memory_heap` | bytes of the process's memory for keys when a request was last counted, how many of them are locked, and bytes on the heap for want of such memory; see [`lockstep_vault::Usage`] |
//! | `fallbacks.REASON` | requests and keys that went to stock OpenSSL, by [`Fallback::name`] |
//! | `failed_checks` | results that did not pass their check; equals `fallbacks.check_failed` |

use std::fmt::Write as _;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::declined::Fallback;
use crate::permit::{Permit, Permits};
use crate::queue::Waits;
use crate::shape::Shape;
use crate::stats::{Page, SLOT_WORDS, Slot, text_of, words_of};
use crate::syslog::{Event, Log, Syslog};

const SHAPES: usize = Shape::ALL.len();
const REASONS: usize = Fallback::ALL.len();
/// The most requests in a batch or a pass that the histograms tell apart.
const FILLS: usize = 8;

/// The places of the counters in a slot. What is added gets a place of its own before
/// [`END`](place::END).
mod place {
    use super::{FILLS, REASONS, SHAPES, SLOT_WORDS};

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
    pub const ASYNC_SUBMITTED: usize = DERIVATIONS + 1;
    pub const PAUSED: usize = ASYNC_SUBMITTED + 1;
    pub const LOST: usize = PAUSED + 1;
    pub const UNPAUSED: usize = LOST + 1;
    pub const NO_DESCRIPTOR: usize = UNPAUSED + 1;
    pub const MAX_ASYNC: usize = NO_DESCRIPTOR + 1;
    pub const MAX_LOST: usize = MAX_ASYNC + 1;
    pub const KEY_MEMORY: usize = MAX_LOST + 1;
    pub const KEY_MEMORY_LOCKED: usize = KEY_MEMORY + 1;
    pub const KEY_MEMORY_HEAP: usize = KEY_MEMORY_LOCKED + 1;
    /// In the order of `Shape::ALL`.
    pub const BY_SHAPE: usize = KEY_MEMORY_HEAP + 1;
    pub const BATCH_FILL: usize = BY_SHAPE + SHAPES;
    pub const PASS_FILL: usize = BATCH_FILL + FILLS;
    /// In the order of `Fallback::ALL`.
    pub const BY_REASON: usize = PASS_FILL + FILLS;
    pub const END: usize = BY_REASON + REASONS;

    const _: () = assert!(END <= SLOT_WORDS);
}

/// The counters of one engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The version of the engine.
    pub version: String,
    /// The lanes in use, or `none`.
    pub backend: String,
    /// The process.
    pub pid: u64,
    /// When it took its place in the file, in clock ticks since boot: tells it from a later process
    /// with the same pid. Zero if it publishes nothing.
    pub started: u64,
    /// Batches that may run at a time.
    pub slots: u64,
    /// Requests that a batch took or the pool served, in the order of [`Shape::ALL`].
    pub by_shape: [u64; SHAPES],
    /// Batches.
    pub batches: u64,
    /// Passes of the lanes.
    pub passes: u64,
    /// Batches by their number of requests, from one; the last counts larger ones too.
    pub batch_fill: [u64; FILLS],
    /// Passes by their number of requests, from one, with those for the pool of key pairs.
    pub pass_fill: [u64; FILLS],
    /// Time that requests spent in the queue, in nanoseconds.
    pub wait_total_ns: u64,
    /// The longest such time.
    pub wait_max_ns: u64,
    /// How often a leader yielded its CPU to let requests gather.
    pub yields: u64,
    /// Key pairs that the pool had.
    pub pool_hits: u64,
    /// Batches that made key pairs for the pool.
    pub pool_refills: u64,
    /// Key derivations of TLS 1.3 that the module did itself.
    pub derivations: u64,
    /// Submitted requests.
    pub async_submitted: u64,
    /// Submitted requests whose answer was not taken yet when a request was last counted.
    pub paused: u64,
    /// Jobs whose connection ended while they were paused.
    pub lost: u64,
    /// Jobs that blocked their thread instead of pausing, because a bound was reached.
    pub unpaused: u64,
    /// Those of them for which there was no file descriptor.
    pub no_descriptor: u64,
    /// The bound of [`paused`](Self::paused).
    pub max_async: u64,
    /// The bound of [`lost`](Self::lost).
    pub max_lost: u64,
    /// Bytes of the process's memory for keys, when a request was last counted.
    pub key_memory: u64,
    /// How many of them are locked.
    pub key_memory_locked: u64,
    /// Bytes of keys on the heap, for want of such memory.
    pub key_memory_heap: u64,
    /// Requests and keys that went to stock OpenSSL, in the order of [`Fallback::ALL`].
    pub by_reason: [u64; REASONS],
    /// Results that did not pass their check.
    pub failed_checks: u64,
}

impl Snapshot {
    /// Requests that a batch took or the pool served.
    pub fn operations(&self) -> u64 {
        self.by_shape.iter().sum()
    }

    /// Requests and keys that went to stock OpenSSL.
    pub fn fallbacks(&self) -> u64 {
        self.by_reason.iter().sum()
    }

    /// Requests of one shape that a batch took or the pool served.
    pub fn operations_of(&self, shape: Shape) -> u64 {
        self.by_shape[shape.index()]
    }

    /// Requests or keys that went to stock OpenSSL for one reason.
    pub fn fallbacks_for(&self, reason: Fallback) -> u64 {
        self.by_reason[reason as usize]
    }

    /// Requests per pass on average; zero before the first.
    pub fn average_fill(&self) -> f64 {
        self.filled() as f64 / self.passes.max(1) as f64
    }

    /// Requests in all passes together.
    pub fn filled(&self) -> u64 {
        let filled = (1..).zip(self.pass_fill);
        filled.map(|(fill, passes)| fill * passes).sum()
    }

    /// Adds what another engine or process counted.
    pub fn absorb(&mut self, other: &Snapshot) {
        self.combine(other, |key, own, their| match key {
            "pid" | "started" => own,
            "slots" | "wait_max_ns" | "max_async" | "max_lost" => their.max(own),
            "key_memory" | "key_memory_locked" | "key_memory_heap" => their.max(own),
            _ => own.saturating_add(their),
        });
    }

    /// What the same process, or the same processes, counted since an earlier look at them. Of what
    /// is no sum, as the longest wait and the open jobs, it is the later value.
    pub fn since(mut self, earlier: &Snapshot) -> Snapshot {
        self.combine(earlier, |key, own, their| match key {
            "pid" | "started" | "slots" | "wait_max_ns" | "paused" | "max_async" | "max_lost" => {
                own
            }
            "key_memory" | "key_memory_locked" | "key_memory_heap" => own,
            _ => own.saturating_sub(their),
        });
        self
    }

    /// Each number becomes what `combine` makes of its key, itself and that of `other`.
    fn combine(&mut self, other: &Snapshot, combine: impl Fn(&str, u64, u64) -> u64) {
        let mut theirs = Vec::new();
        other.clone().fields(|_, _, field| theirs.push(*field));
        let mut theirs = theirs.into_iter();
        self.fields(|_, key, field| *field = combine(key, *field, theirs.next().unwrap_or(0)));
    }

    /// The counters in a slot; `None` if it holds a text that this version cannot have written.
    pub(crate) fn of_slot(words: &[u64; SLOT_WORDS]) -> Option<Snapshot> {
        fn part<const N: usize>(words: &[u64; SLOT_WORDS], at: usize) -> [u64; N] {
            *words[at..].first_chunk().expect("a slot has all counters")
        }
        let pass_fill: [u64; FILLS] = part(words, place::PASS_FILL);
        let by_reason: [u64; REASONS] = part(words, place::BY_REASON);
        Some(Snapshot {
            version: String::new(),
            backend: text_of(&words[place::BACKEND..][..place::BACKEND_WORDS])?,
            pid: 0,
            started: 0,
            slots: words[place::SLOTS],
            by_shape: part(words, place::BY_SHAPE),
            batches: words[place::BATCHES],
            passes: pass_fill
                .iter()
                .fold(0, |sum, fill| sum.saturating_add(*fill)),
            batch_fill: part(words, place::BATCH_FILL),
            pass_fill,
            wait_total_ns: words[place::WAIT_TOTAL_NS],
            wait_max_ns: words[place::WAIT_MAX_NS],
            yields: words[place::YIELDS],
            pool_hits: words[place::POOL_HITS],
            pool_refills: words[place::POOL_REFILLS],
            derivations: words[place::DERIVATIONS],
            async_submitted: words[place::ASYNC_SUBMITTED],
            paused: words[place::PAUSED],
            lost: words[place::LOST],
            unpaused: words[place::UNPAUSED],
            no_descriptor: words[place::NO_DESCRIPTOR],
            max_async: words[place::MAX_ASYNC],
            max_lost: words[place::MAX_LOST],
            key_memory: words[place::KEY_MEMORY],
            key_memory_locked: words[place::KEY_MEMORY_LOCKED],
            key_memory_heap: words[place::KEY_MEMORY_HEAP],
            failed_checks: by_reason[Fallback::CheckFailed as usize],
            by_reason,
        })
    }

    /// Whether anything was counted at all.
    pub(crate) fn has_counted(&self) -> bool {
        let mut counted = false;
        self.clone().fields(|_, key, field| {
            let settings = ["pid", "started", "slots", "max_async", "max_lost"];
            let is_count = !settings.contains(&key) && !key.starts_with("key_memory");
            counted |= *field != 0 && is_count;
        });
        counted
    }

    /// One JSON document, with the keys of the [module](self), in one line.
    pub fn to_json(&self) -> String {
        let (version, backend) = (&self.version, &self.backend);
        let mut out = format!(r#"{{"version":"{version}","backend":"{backend}""#);
        let mut open = "";
        self.clone().fields(|group, key, field| {
            let mut separator = ",";
            if group != open {
                let end = if open.is_empty() { "" } else { "}" };
                let _ = write!(out, r#"{end},"{group}":{{"#);
                (open, separator) = (group, "");
            }
            // Writing to a String cannot fail.
            let _ = write!(out, r#"{separator}"{key}":{field}"#);
        });
        out + "}}"
    }

    /// Reads what [`to_json`](Self::to_json) of this version or another wrote; `None` if it is
    /// anything else. Counters that it does not name are zero.
    pub fn from_json(document: &str) -> Option<Snapshot> {
        let mut snapshot = Snapshot::default();
        let number = |group: &str, key: &str| -> Option<u64> {
            let rest = value(document, group, key)?;
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            rest[..end].parse().ok()
        };
        let text = |key: &str| -> Option<String> {
            let text = value(document, "", key)?.strip_prefix('"')?;
            Some(text.split_once('"')?.0.to_owned())
        };
        snapshot.version = text("version")?;
        snapshot.backend = text("backend")?;
        snapshot.fields(|group, key, field| *field = number(group, key).unwrap_or(0));
        Some(snapshot)
    }

    /// Visits every number with its group and key, in the order of the document.
    fn fields(&mut self, mut visit: impl FnMut(&'static str, &'static str, &mut u64)) {
        const COUNTS: [&str; FILLS] = ["1", "2", "3", "4", "5", "6", "7", "8"];
        visit("", "pid", &mut self.pid);
        visit("", "started", &mut self.started);
        visit("", "slots", &mut self.slots);
        visit("", "batches", &mut self.batches);
        visit("", "passes", &mut self.passes);
        visit("", "wait_total_ns", &mut self.wait_total_ns);
        visit("", "wait_max_ns", &mut self.wait_max_ns);
        visit("", "yields", &mut self.yields);
        visit("", "pool_hits", &mut self.pool_hits);
        visit("", "pool_refills", &mut self.pool_refills);
        visit("", "derivations", &mut self.derivations);
        visit("", "async_submitted", &mut self.async_submitted);
        visit("", "paused", &mut self.paused);
        visit("", "lost", &mut self.lost);
        visit("", "unpaused", &mut self.unpaused);
        visit("", "no_descriptor", &mut self.no_descriptor);
        visit("", "max_async", &mut self.max_async);
        visit("", "max_lost", &mut self.max_lost);
        visit("", "key_memory", &mut self.key_memory);
        visit("", "key_memory_locked", &mut self.key_memory_locked);
        visit("", "key_memory_heap", &mut self.key_memory_heap);
        visit("", "failed_checks", &mut self.failed_checks);
        for (shape, field) in Shape::ALL.iter().zip(&mut self.by_shape) {
            visit("operations", shape.name(), field);
        }
        for (count, field) in COUNTS.iter().zip(&mut self.batch_fill) {
            visit("batch_fill", count, field);
        }
        for (count, field) in COUNTS.iter().zip(&mut self.pass_fill) {
            visit("pass_fill", count, field);
        }
        for (reason, field) in Fallback::ALL.iter().zip(&mut self.by_reason) {
            visit("fallbacks", reason.name(), field);
        }
    }
}

/// A hash of the names of all counters in their order: readers of the file that were built with
/// others must not read it.
pub(crate) fn layout() -> u64 {
    // FNV-1a.
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    Snapshot::default().fields(|group, key, _| {
        for byte in group.bytes().chain([0]).chain(key.bytes()).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    });
    hash
}

/// What follows `key` of `group` in a document of ours, where all groups come last.
fn value<'a>(document: &'a str, group: &str, key: &str) -> Option<&'a str> {
    let scope = match group {
        "" => document,
        group => document.split_once(&format!(r#""{group}":{{"#))?.1,
    };
    Some(scope.split_once(&format!(r#""{key}":"#))?.1)
}

/// Why a job blocks its thread instead of pausing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpaused {
    /// A bound of the engine is reached, or there are no workers.
    Bound,
    /// There is no file descriptor to wake it by.
    Descriptor,
}

/// The live counters.
pub(crate) struct Metrics {
    counters: Counters,
    started: u64,
    pub(crate) paused: Permits,
    /// The counter of lost jobs, where no other process can change it: there is a bound.
    lost: AtomicU64,
    /// The bounds of paused and of lost jobs; zero without jobs.
    bounds: [u64; 2],
    log: Log,
}

/// Where they are.
enum Counters {
    /// In the slot of this process.
    Published(&'static Slot),
    Private(Box<Slot>),
}

impl Metrics {
    /// Counters in the slot that this process has in a page, or else at zero in memory of their
    /// own.
    pub(crate) fn new(backend: &'static str, slots: usize, page: Option<&Page>) -> Metrics {
        let published = page.and_then(|page| Some((page.own()?, page.started())));
        let (counters, started) = match published {
            Some((slot, started)) => (Counters::Published(slot), started),
            None => {
                let private = Box::new([const { AtomicU64::new(0) }; SLOT_WORDS]);
                (Counters::Private(private), 0)
            }
        };
        let metrics = Metrics {
            counters,
            started,
            paused: Permits::default(),
            lost: AtomicU64::new(0),
            bounds: [0; 2],
            log: Log::new(Syslog::Off),
        };
        let backend: [u64; place::BACKEND_WORDS] = words_of(backend);
        for (at, word) in (place::BACKEND..).zip(backend) {
            metrics.words()[at].store(word, Ordering::Relaxed);
        }
        metrics.words()[place::SLOTS].store(slots as u64, Ordering::Relaxed);
        metrics.note_key_memory();
        metrics
    }

    /// These counters, which send a line to a log when one of them needs attention.
    pub(crate) fn warning(self, to: Syslog) -> Metrics {
        let log = Log::new(to);
        Metrics { log, ..self }
    }

    /// Notes the bounds of asynchronous jobs, for readers too.
    pub(crate) fn note_bounds(&mut self, max_async: usize, max_lost: usize) {
        self.bounds = [max_async as u64, max_lost as u64];
        for (place, bound) in [place::MAX_ASYNC, place::MAX_LOST].iter().zip(self.bounds) {
            self.words()[*place].store(bound, Ordering::Relaxed);
        }
    }

    /// A permit to pause one more job, unless too many are paused.
    pub(crate) fn pause(&self) -> Option<Permit> {
        let [most, _] = self.bounds;
        let permit = self.paused.take_of(most as usize)?;
        let now = self.paused.count() as u64;
        if is_near(now, most) {
            self.log.warn(Event::Paused { now, most });
        }
        Some(permit)
    }

    fn words(&self) -> &Slot {
        match &self.counters {
            Counters::Published(slot) => slot,
            Counters::Private(slot) => slot,
        }
    }

    /// A batch of `requests`, for which the lanes ran `ran` operations: more where it made key
    /// pairs for the pool.
    pub(crate) fn batch(&self, shape: usize, requests: usize, ran: usize, pass: usize) {
        let words = self.words();
        add(&words[place::BY_SHAPE + shape], requests as u64);
        add(&words[place::BATCHES], 1);
        add(&words[place::POOL_REFILLS], u64::from(ran > requests));
        count_fill(words, place::BATCH_FILL, requests, 1);
        let (full, rest) = (ran / pass, ran % pass);
        count_fill(words, place::PASS_FILL, pass, full as u64);
        count_fill(words, place::PASS_FILL, rest, u64::from(rest > 0));
        self.note_paused();
        self.note_key_memory();
    }

    /// A key pair that was there in advance.
    pub(crate) fn pool_hit(&self, shape: usize) {
        add(&self.words()[place::BY_SHAPE + shape], 1);
        add(&self.words()[place::POOL_HITS], 1);
    }

    pub(crate) fn waited(&self, waits: Waits) {
        add(&self.words()[place::WAIT_TOTAL_NS], waits.total_ns);
        let longest = &self.words()[place::WAIT_MAX_NS];
        // Most waits are shorter: a load costs less than an exchange.
        if longest.load(Ordering::Relaxed) < waits.max_ns {
            longest.fetch_max(waits.max_ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn yielded(&self) {
        add(&self.words()[place::YIELDS], 1);
    }

    pub(crate) fn submitted(&self) {
        add(&self.words()[place::ASYNC_SUBMITTED], 1);
        self.note_paused();
    }

    /// A job whose connection ended while it was paused.
    pub(crate) fn lost(&self) {
        let so_far = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        let [_, most] = self.bounds;
        if is_near(so_far, most) {
            self.log.warn(Event::Lost { so_far, most });
        }
        add(&self.words()[place::LOST], 1);
        self.note_paused();
    }

    /// How many jobs were lost so far.
    pub(crate) fn lost_so_far(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// A job that blocks its thread instead of pausing.
    pub(crate) fn unpaused(&self, reason: Unpaused) {
        add(&self.words()[place::UNPAUSED], 1);
        let without = u64::from(reason == Unpaused::Descriptor);
        add(&self.words()[place::NO_DESCRIPTOR], without);
    }

    pub(crate) fn derived(&self) {
        add(&self.words()[place::DERIVATIONS], 1);
        // A handshake ends with derivations, after the answers to its requests were taken.
        self.note_paused();
    }

    pub(crate) fn fallback(&self, reason: Fallback) {
        let counter = &self.words()[place::BY_REASON + reason as usize];
        let before = counter.fetch_add(1, Ordering::Relaxed);
        self.note_key_memory();
        if reason == Fallback::CheckFailed {
            let so_far = before.saturating_add(1);
            self.log.warn(Event::FailedCheck { so_far });
        }
    }

    /// Lets readers see how many submitted requests are open.
    fn note_paused(&self) {
        let paused = self.paused.count() as u64;
        self.words()[place::PAUSED].store(paused, Ordering::Relaxed);
    }

    /// Lets readers see how much memory for keys there is, and how much of it is locked.
    fn note_key_memory(&self) {
        let usage = lockstep_vault::usage();
        for (place, bytes) in [
            (place::KEY_MEMORY, usage.regions),
            (place::KEY_MEMORY_LOCKED, usage.locked),
            (place::KEY_MEMORY_HEAP, usage.heap),
        ] {
            let (word, bytes) = (&self.words()[place], bytes as u64);
            // It rarely changes: a load costs less than a store that other CPUs must see.
            if word.load(Ordering::Relaxed) != bytes {
                word.store(bytes, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let words = self
            .words()
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: u64::from(process::id()),
            started: self.started,
            paused: self.paused.count() as u64,
            ..Snapshot::of_slot(&words).unwrap_or_default()
        }
    }
}

/// Counts `times` occurrences of `fill` requests in a histogram; fills beyond it count as its last.
fn count_fill(words: &Slot, histogram: usize, fill: usize, times: u64) {
    if times > 0 {
        add(&words[histogram + fill.clamp(1, FILLS) - 1], times);
    }
}

/// Whether nine tenths of a bound are reached.
fn is_near(count: u64, most: u64) -> bool {
    count >= most - most / 10
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn busy(metrics: &Metrics) {
        metrics.batch(1, 7, 7, 4);
        metrics.batch(4, 1, 1, 4);
        metrics.waited(Waits {
            total_ns: u64::MAX / 2,
            max_ns: 17,
        });
        metrics.fallback(Fallback::CheckFailed);
        metrics.fallback(Fallback::MultiPrime);
        metrics.yielded();
        metrics.submitted();
    }

    #[test]
    fn json_keeps_every_number() {
        let metrics = Metrics::new("portable", 2, None);
        busy(&metrics);
        let snapshot = metrics.snapshot();
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
    fn engines_of_one_process_add_up() {
        let metrics = Metrics::new("portable", 2, None);
        busy(&metrics);
        let once = metrics.snapshot();
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

    #[test]
    fn every_field_survives() {
        let mut number = 0;
        let mut snapshot = Snapshot {
            backend: "none".into(),
            ..Snapshot::default()
        };
        snapshot.fields(|_, _, field| {
            number += 0x1234_5678_9abc;
            *field = number;
        });
        assert_eq!(
            Snapshot::from_json(&snapshot.to_json()),
            Some(snapshot.clone())
        );
        // Documents of other versions name fewer counters, or more.
        let json = snapshot.to_json().replace(r#""batches":"#, r#""bundles":"#);
        let batches = 0;
        let expected = Snapshot {
            batches,
            ..snapshot
        };
        assert_eq!(Snapshot::from_json(&json), Some(expected));
        assert_eq!(Snapshot::from_json(""), None);
        assert_eq!(Snapshot::from_json("{}"), None);
    }

    #[test]
    fn every_counter_has_a_place_of_its_own() {
        let mut words = [0; SLOT_WORDS];
        for (number, word) in (1..).zip(&mut words[place::SLOTS..place::END]) {
            *word = number << 32;
        }
        let mut snapshot = Snapshot::of_slot(&words).unwrap();
        let mut seen = Vec::new();
        let derived = ["pid", "started", "passes", "failed_checks"];
        snapshot.fields(|_, key, field| {
            if !derived.contains(&key) {
                seen.push(*field);
            }
        });
        seen.sort();
        assert_eq!(seen, words[place::SLOTS..place::END]);
        assert_eq!(snapshot.passes, snapshot.pass_fill.iter().sum());
        assert!(snapshot.has_counted());
        assert!(!Snapshot::of_slot(&[0; SLOT_WORDS]).unwrap().has_counted());
        let mut foreign = [0; SLOT_WORDS];
        foreign[place::BACKEND] = u64::from_le_bytes(*b"a\x1b[2Jbcd");
        assert_eq!(Snapshot::of_slot(&foreign), None);
    }
}
