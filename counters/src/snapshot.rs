//! The counters of an engine at one moment.
//!
//! As a JSON document the counters have these keys, all numbers but `version`, `backend` and
//! `mistakes`:
//!
//! | key | meaning |
//! |---|---|
//! | `version`, `backend` | of the engine; `backend` is `none` without lanes |
//! | `mistakes` | settings that have no effect, and why; empty without any |
//! | `pid`, `started` | the process, and when it took its place in the file, in clock ticks since boot |
//! | `slots` | batches that may run at a time |
//! | `operations.SHAPE` | requests that a batch took or the pool served, by [`Shape::name`] |
//! | `batches`, `passes` | batches, and passes of the lanes in them |
//! | `batch_fill.N`, `pass_fill.N` | batches and passes with N requests; for batches, 8 stands for 8 or more |
//! | `pool_hits`, `pool_refills` | key pairs that were there in advance, and batches that made some |
//! | `wait_total_ns`, `wait_max_ns` | time in the queue, before a batch took the request; for jobs that lead themselves, since the first of the consecutive requests of their thread |
//! | `waits.N` | requests that waited at most N µs, and longer than the next smaller N; `more` has the requests that waited longer |
//! | `yields` | number of times that a leader yielded to let requests gather |
//! | `derivations` | key derivations of TLS 1.3 that the module did itself |
//! | `ciphers` | contexts of AES-GCM with a key, with which the module worked itself |
//! | `daemon_requests` | signatures with ordinary keys for which the key daemon was asked |
//! | `daemon_fallbacks` | signatures of the row above that the process computed itself after all |
//! | `async_submitted`, `paused` | submitted requests, and submitted requests whose answer was not taken yet when a request was last counted |
//! | `lost` | jobs whose connection ended while they were paused: libcrypto never frees their stacks |
//! | `unpaused` | jobs that blocked their thread instead of pausing, because a bound was reached |
//! | `no_descriptor` | jobs of the row above for which there was no file descriptor |
//! | `max_async`, `max_lost` | the bounds of `paused` and `lost`, as configured |
//! | `key_memory`, `key_memory_locked`, `key_memory_heap` | bytes of the process's memory for keys when a request was last counted, locked bytes among them, and bytes on the heap for want of such memory; see [`lockstep_vault::Usage`] |
//! | `keys_left_out` | keys of its configuration that the key daemon cannot serve |
//! | `schedule_rsa1024`, `schedule_rsa2048` | the [`Schedule`] of a size: its place in [`Schedule::ALL`], counted from one; 0 before the first batch |
//! | `fallbacks.REASON` | requests and keys that went to OpenSSL's own implementation, by [`Fallback::name`] |
//! | `failed_checks` | results that did not pass their check; equals `fallbacks.check_failed` |

use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};

use lockstep_ops::{Schedule, Size};

use crate::layout::{
    FILLS, REASONS, RSA_SIZES, SHAPES, SLOT_WORDS, WAIT_BOUNDS, WAITS, counter, line_of,
};
use lockstep_ops::Shape;

use crate::fallback::Fallback;

/// The counters of one engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The [version](crate::version()) of the build.
    pub version: String,
    /// The lanes in use, or `none`.
    pub backend: String,
    /// Settings that have no effect, with the reasons: one line of plain text, empty if there are
    /// none.
    pub mistakes: String,
    /// The process.
    pub pid: u64,
    /// Time at which it took its slot in the file, in clock ticks since boot, by which it differs
    /// from a later process with the same pid. Zero if it publishes nothing.
    pub started: u64,
    /// Batches that may run at a time.
    pub slots: u64,
    /// Requests that a batch took or the pool served, in the order of [`Shape::ALL`].
    pub by_shape: ByShape,
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
    /// The longest time that a request spent in the queue, in nanoseconds.
    pub wait_max_ns: u64,
    /// Requests by the time that they waited: at most the first of
    /// [`wait_bounds`](Self::wait_bounds), and so on. The last count is of all longer waits.
    pub by_wait: [u64; WAITS],
    /// Number of times that a leader yielded its CPU to let requests gather.
    pub yields: u64,
    /// Key pairs that the pool had.
    pub pool_hits: u64,
    /// Batches that made key pairs for the pool.
    pub pool_refills: u64,
    /// Key derivations of TLS 1.3 that the module did itself.
    pub derivations: u64,
    /// Contexts of AES-GCM with a key, with which the module worked itself.
    pub ciphers: u64,
    /// Signatures with ordinary keys for which the key daemon was asked.
    pub daemon_requests: u64,
    /// Signatures among these that the process computed itself after all.
    pub daemon_fallbacks: u64,
    /// Submitted requests.
    pub async_submitted: u64,
    /// Submitted requests whose answer was not taken yet when a request was last counted.
    pub paused: u64,
    /// Jobs whose connection ended while they were paused.
    pub lost: u64,
    /// Jobs that blocked their thread instead of pausing, because a bound was reached.
    pub unpaused: u64,
    /// Jobs among these for which there was no file descriptor.
    pub no_descriptor: u64,
    /// The bound of [`paused`](Self::paused).
    pub max_async: u64,
    /// The bound of [`lost`](Self::lost).
    pub max_lost: u64,
    /// Bytes of the process's memory for keys, when a request was last counted.
    pub key_memory: u64,
    /// Bytes among these that are locked.
    pub key_memory_locked: u64,
    /// Bytes of keys on the heap, where there was no such memory.
    pub key_memory_heap: u64,
    /// Keys of its configuration that the key daemon cannot serve.
    pub keys_left_out: u64,
    /// The schedules of RSA in use, as the file of counters has them: see
    /// [`schedules`](Self::schedules).
    pub schedule_of: [u64; RSA_SIZES.len()],
    /// Requests and keys that went to OpenSSL's own implementation, in the order of
    /// [`Fallback::ALL`].
    pub by_reason: [u64; REASONS],
    /// Results that did not pass their check.
    pub failed_checks: u64,
}

/// Counts by shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByShape([u64; SHAPES]);

impl Default for ByShape {
    fn default() -> Self {
        Self([0; SHAPES])
    }
}

impl Deref for ByShape {
    type Target = [u64; SHAPES];

    fn deref(&self) -> &[u64; SHAPES] {
        &self.0
    }
}

impl DerefMut for ByShape {
    fn deref_mut(&mut self) -> &mut [u64; SHAPES] {
        &mut self.0
    }
}

impl Snapshot {
    /// Returns the number of requests that a batch took or the pool served.
    pub fn operations(&self) -> u64 {
        sum(&self.by_shape.0)
    }

    /// Returns the number of requests and keys that went to OpenSSL's own implementation.
    pub fn fallbacks(&self) -> u64 {
        sum(&self.by_reason)
    }

    /// Returns the number of requests of one shape that a batch took or the pool served.
    pub fn operations_of(&self, shape: Shape) -> u64 {
        self.by_shape[shape.index()]
    }

    /// Returns the number of requests and keys that went to OpenSSL's own implementation for one
    /// reason.
    pub fn fallbacks_for(&self, reason: Fallback) -> u64 {
        self.by_reason[reason as usize]
    }

    /// Returns the schedule of each size of RSA that has several and was used.
    pub fn schedules(&self) -> impl Iterator<Item = (Size, Schedule)> {
        let named = |number: u64| Schedule::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?);
        let all = RSA_SIZES.into_iter().zip(self.schedule_of);
        all.filter_map(move |(size, number)| Some((size, *named(number)?)))
    }

    /// Returns the average number of requests in a pass; zero before the first pass.
    pub fn average_fill(&self) -> f64 {
        self.filled() as f64 / self.passes.max(1) as f64
    }

    /// Returns the number of requests in all passes together.
    pub fn filled(&self) -> u64 {
        let filled = (1..).zip(self.pass_fill);
        filled.fold(0, |sum: u64, (fill, passes): (u64, u64)| {
            sum.saturating_add(fill.saturating_mul(passes))
        })
    }

    /// Returns the bounds of the histogram of waits, in nanoseconds.
    pub fn wait_bounds() -> &'static [u64] {
        &WAIT_BOUNDS
    }

    /// Adds the counters of another engine or process.
    pub fn absorb(&mut self, other: &Snapshot) {
        if self.mistakes.is_empty() {
            self.mistakes.clone_from(&other.mistakes);
        }
        self.combine(other, |key, own, their| match key {
            "pid" | "started" => own,
            "slots" | "wait_max_ns" | "max_async" | "max_lost" => their.max(own),
            "key_memory" | "key_memory_locked" | "key_memory_heap" => their.max(own),
            "schedule_rsa1024" | "schedule_rsa2048" => their.max(own),
            _ => own.saturating_add(their),
        });
    }

    /// Returns the counts since an earlier snapshot of the same process or processes. Values that
    /// are no sums, like the longest wait and the paused jobs, keep the later value.
    pub fn since(mut self, earlier: &Snapshot) -> Snapshot {
        self.combine(earlier, |key, own, their| match key {
            "pid" | "started" | "slots" | "wait_max_ns" | "paused" | "max_async" | "max_lost" => {
                own
            }
            "key_memory" | "key_memory_locked" | "key_memory_heap" | "keys_left_out" => own,
            "schedule_rsa1024" | "schedule_rsa2048" => own,
            _ => own.saturating_sub(their),
        });
        self
    }

    /// Replaces each number by the result of `combine` for its key, the number, and its counterpart
    /// in `other`.
    fn combine(&mut self, other: &Snapshot, combine: impl Fn(&str, u64, u64) -> u64) {
        let mut theirs = Vec::new();
        other.clone().fields(|_, _, field| theirs.push(*field));
        let mut theirs = theirs.into_iter();
        self.fields(|_, key, field| *field = combine(key, *field, theirs.next().unwrap_or(0)));
    }

    /// Reads the counters of a slot.
    pub(super) fn of_slot(words: &[u64; SLOT_WORDS]) -> Snapshot {
        fn part<const N: usize>(words: &[u64; SLOT_WORDS], at: usize) -> [u64; N] {
            *words[at..].first_chunk().expect("a slot has all counters")
        }
        let pass_fill: [u64; FILLS] = part(words, counter::PASS_FILL);
        let by_reason: [u64; REASONS] = part(words, counter::BY_REASON);
        Snapshot {
            mistakes: String::new(),
            version: String::new(),
            backend: line_of(&words[counter::BACKEND..][..counter::BACKEND_WORDS]),
            pid: 0,
            started: 0,
            slots: words[counter::SLOTS],
            by_shape: ByShape(part(words, counter::BY_SHAPE)),
            batches: words[counter::BATCHES],
            passes: sum(&pass_fill),
            batch_fill: part(words, counter::BATCH_FILL),
            pass_fill,
            wait_total_ns: words[counter::WAIT_TOTAL_NS],
            wait_max_ns: words[counter::WAIT_MAX_NS],
            by_wait: part(words, counter::BY_WAIT),
            yields: words[counter::YIELDS],
            pool_hits: words[counter::POOL_HITS],
            pool_refills: words[counter::POOL_REFILLS],
            derivations: words[counter::DERIVATIONS],
            ciphers: words[counter::CIPHERS],
            daemon_requests: words[counter::DAEMON_REQUESTS],
            daemon_fallbacks: words[counter::DAEMON_FALLBACKS],
            async_submitted: words[counter::ASYNC_SUBMITTED],
            paused: words[counter::PAUSED],
            lost: words[counter::LOST],
            unpaused: words[counter::UNPAUSED],
            no_descriptor: words[counter::NO_DESCRIPTOR],
            max_async: words[counter::MAX_ASYNC],
            max_lost: words[counter::MAX_LOST],
            key_memory: words[counter::KEY_MEMORY],
            key_memory_locked: words[counter::KEY_MEMORY_LOCKED],
            key_memory_heap: words[counter::KEY_MEMORY_HEAP],
            keys_left_out: words[counter::KEYS_LEFT_OUT],
            schedule_of: part(words, counter::SCHEDULES),
            failed_checks: by_reason[Fallback::CheckFailed as usize],
            by_reason,
        }
    }

    /// Returns whether any number is not zero, except the process, settings, schedules and sizes of
    /// memory.
    pub fn has_counted(&self) -> bool {
        let mut counted = false;
        self.clone().fields(|_, key, field| {
            let settings = ["pid", "started", "slots", "max_async", "max_lost"];
            let is_state = key.starts_with("key_memory") || key.starts_with("schedule");
            let is_count = !settings.contains(&key) && !is_state;
            counted |= *field != 0 && is_count;
        });
        counted
    }

    /// Returns a JSON document with the keys of the [module](self), in one line.
    pub fn to_json(&self) -> String {
        let Snapshot {
            version,
            backend,
            mistakes,
            ..
        } = self;
        let mut out =
            format!(r#"{{"version":"{version}","backend":"{backend}","mistakes":"{mistakes}""#);
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

    /// Reads a document that [`to_json`](Self::to_json) of this version or another wrote; `None` if
    /// it is no such document. Counters that it does not name are zero.
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
        snapshot.mistakes = text("mistakes").unwrap_or_default();
        snapshot.fields(|group, key, field| *field = number(group, key).unwrap_or(0));
        Some(snapshot)
    }

    /// Visits every number with its group and key, in the order of the document.
    fn fields(&mut self, mut visit: impl FnMut(&'static str, &'static str, &mut u64)) {
        const SCHEDULES: [&str; RSA_SIZES.len()] = ["schedule_rsa1024", "schedule_rsa2048"];
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
        visit("", "ciphers", &mut self.ciphers);
        visit("", "daemon_requests", &mut self.daemon_requests);
        visit("", "daemon_fallbacks", &mut self.daemon_fallbacks);
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
        visit("", "keys_left_out", &mut self.keys_left_out);
        for (key, field) in SCHEDULES.iter().zip(&mut self.schedule_of) {
            visit("", key, field);
        }
        visit("", "failed_checks", &mut self.failed_checks);
        for (shape, field) in Shape::ALL.iter().zip(&mut self.by_shape.0) {
            visit("operations", shape.name(), field);
        }
        for (count, field) in COUNTS.iter().zip(&mut self.batch_fill) {
            visit("batch_fill", count, field);
        }
        for (count, field) in COUNTS.iter().zip(&mut self.pass_fill) {
            visit("pass_fill", count, field);
        }
        for (bound, field) in WAIT_NAMES.iter().zip(&mut self.by_wait) {
            visit("waits", bound, field);
        }
        for (reason, field) in Fallback::ALL.iter().zip(&mut self.by_reason) {
            visit("fallbacks", reason.name(), field);
        }
    }
}

/// Names of the counts of waits: their bounds in microseconds.
const WAIT_NAMES: [&str; WAITS] = [
    "10", "100", "500", "1000", "2000", "5000", "10000", "20000", "50000", "100000", "more",
];

/// Returns the sum, or `u64::MAX` if the sum is greater. Other users may have written the counts,
/// which may have any value.
fn sum(counts: &[u64]) -> u64 {
    counts.iter().copied().fold(0, u64::saturating_add)
}

/// Returns a hash of the names of all counters, in their order. A reader that was built with other
/// counters must not read the file.
pub(super) fn layout() -> u64 {
    // FNV-1a.
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    Snapshot::default().fields(|group, key, _| {
        for byte in group.bytes().chain([0]).chain(key.bytes()).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    });
    hash
}

/// Returns the text behind `key` of `group` in a document of counters, where all groups come last.
fn value<'a>(document: &'a str, group: &str, key: &str) -> Option<&'a str> {
    let scope = match group {
        "" => document,
        group => document.split_once(&format!(r#""{group}":{{"#))?.1,
    };
    Some(scope.split_once(&format!(r#""{key}":"#))?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives() {
        let mut number = 0;
        let mut snapshot = Snapshot {
            backend: "none".into(),
            mistakes: "slots is 'many'; batches: 3".into(),
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
    fn counters_of_any_size_can_be_added_up() {
        let mut snapshot = Snapshot::of_slot(&std::array::from_fn(|at| match at {
            0..counter::SLOTS => 0,
            _ => u64::MAX,
        }));
        snapshot.absorb(&snapshot.clone());
        let sums = [
            snapshot.operations(),
            snapshot.fallbacks(),
            snapshot.filled(),
            snapshot.passes,
        ];
        assert_eq!(sums, [u64::MAX; 4]);
        assert_eq!(snapshot.average_fill(), 1.0);
    }

    #[test]
    fn waits_are_named_by_their_bounds() {
        for (name, bound) in WAIT_NAMES.iter().zip(WAIT_BOUNDS) {
            assert_eq!(name.parse(), Ok(bound / 1000));
        }
        assert!(WAIT_BOUNDS.is_sorted());
    }

    #[test]
    fn every_counter_has_a_place_of_its_own() {
        let mut words = [0; SLOT_WORDS];
        for (number, word) in (1..).zip(&mut words[counter::SLOTS..counter::END]) {
            *word = number << 32;
        }
        let mut snapshot = Snapshot::of_slot(&words);
        let mut seen = Vec::new();
        let derived = ["pid", "started", "passes", "failed_checks"];
        snapshot.fields(|_, key, field| {
            if !derived.contains(&key) {
                seen.push(*field);
            }
        });
        seen.sort();
        assert_eq!(seen, words[counter::SLOTS..counter::END]);
        assert_eq!(snapshot.passes, snapshot.pass_fill.iter().sum());
        assert!(snapshot.has_counted());
        assert!(!Snapshot::of_slot(&[0; SLOT_WORDS]).has_counted());
        let mut foreign = [0; SLOT_WORDS];
        foreign[counter::BACKEND] = u64::from_le_bytes(*b"a\x1b[2Jbcd");
        assert_eq!(Snapshot::of_slot(&foreign).backend, "a?[2Jbcd");
    }
}
