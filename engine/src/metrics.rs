//! Counters: lock-free to count, one JSON document to read, and a file for other processes.
//!
//! The document has these keys, all numbers but `version` and `backend`:
//!
//! | key | meaning |
//! |---|---|
//! | `sequence`, `sequence_end` | equal, unless the file was read while it was written |
//! | `version`, `backend` | of the engine; `backend` is `none` without lanes |
//! | `pid`, `started` | the process, and its start in clock ticks since boot |
//! | `slots` | batches that may run at a time |
//! | `operations.SHAPE` | requests that a batch took or the pool served, by [`Shape::name`] |
//! | `batches`, `passes` | batches, and passes of the lanes in them |
//! | `batch_fill.N`, `pass_fill.N` | how many of them had N requests; of batches, 8 is 8 or more |
//! | `pool_hits`, `pool_refills` | key pairs that were there in advance, and batches that made some |
//! | `wait_total_ns`, `wait_max_ns` | time in the queue, before a batch took the request; of jobs that lead themselves it counts from the first that their thread posted in one go |
//! | `yields` | how often a leader yielded to let requests gather |
//! | `derivations` | key derivations of TLS 1.3 that the module did itself |
//! | `async_submitted`, `paused` | submitted requests, and those not taken now |
//! | `lost` | jobs whose connection ended while they were paused: libcrypto never frees their stacks |
//! | `unpaused` | jobs that blocked their thread instead of pausing, because a bound was reached |
//! | `max_async`, `max_lost` | the bounds of `paused` and `lost`, as configured |
//! | `fallbacks.REASON` | requests and keys that went to stock OpenSSL, by [`Fallback::name`] |
//! | `failed_checks` | results that did not pass their check; equals `fallbacks.check_failed` |
//! | `write_errors` | failed attempts to write the file |
//!
//! The file comes with the first count. It is written before an answer is delivered, so it counts whatever a caller has seen
//! (`derivations` come with the next answer). Under
//! sustained load (thousands of batches without a pause) it may lag by a few milliseconds.

use std::fmt::Write as _;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::queue::Waits;
use crate::request::Fallback;
use crate::shape::Shape;
use crate::stats::{Publisher, StatsDir};
use crate::ticket::Permits;

const SHAPES: usize = Shape::ALL.len();
const REASONS: usize = Fallback::ALL.len();
/// The most requests in a batch or a pass that the histograms tell apart.
const FILLS: usize = 8;
/// The length of the file: one page, so that most reads meet no write.
pub(crate) const DOCUMENT_BYTES: usize = 4096;

/// The counters of one engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The version of the engine.
    pub version: String,
    /// The lanes in use, or `none`.
    pub backend: String,
    /// The process.
    pub pid: u64,
    /// When it started, in clock ticks since boot: tells it from a later process with the same pid.
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
    /// Submitted requests whose answer is not taken yet.
    pub paused: u64,
    /// Jobs whose connection ended while they were paused.
    pub lost: u64,
    /// Jobs that blocked their thread instead of pausing, because a bound was reached.
    pub unpaused: u64,
    /// The bound of [`paused`](Self::paused).
    pub max_async: u64,
    /// The bound of [`lost`](Self::lost).
    pub max_lost: u64,
    /// Requests and keys that went to stock OpenSSL, in the order of [`Fallback::ALL`].
    pub by_reason: [u64; REASONS],
    /// Results that did not pass their check.
    pub failed_checks: u64,
    /// Failed attempts to write the statistics file.
    pub write_errors: u64,
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
            _ => own.saturating_add(their),
        });
    }

    /// What the same process, or the same processes, counted since an earlier look at them. Of what is no sum, as
    /// the longest wait and the open jobs, it is the later value.
    pub fn since(mut self, earlier: &Snapshot) -> Snapshot {
        self.combine(earlier, |key, own, their| match key {
            "pid" | "started" | "slots" | "wait_max_ns" | "paused" | "max_async" | "max_lost" => {
                own
            }
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

    /// One JSON document, with the keys of the [module](self), in one line.
    pub fn to_json(&self) -> String {
        self.document(0, 0)
    }

    /// Reads what [`to_json`](Self::to_json) or the statistics file holds; `None` if it is anything
    /// else, or was torn.
    pub fn from_json(document: &str) -> Option<Snapshot> {
        let mut snapshot = Snapshot::default();
        let number = |group: &str, key: &str| -> Option<u64> {
            let rest = value(document, group, key)?;
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            rest[..end].parse().ok()
        };
        let text = |key: &str| -> Option<String> {
            let text = value(document, "", key)?
                .strip_prefix('"')?
                .split_once('"')?
                .0;
            // Another user may have written it, to a reader who prints it.
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-+_".contains(c);
            text.chars().all(plain).then(|| text.to_owned())
        };
        if number("", "sequence")? != number("", "sequence_end")? {
            return None;
        }
        snapshot.version = text("version")?;
        snapshot.backend = text("backend")?;
        let mut whole = true;
        snapshot.fields(|group, key, field| match number(group, key) {
            Some(number) => *field = number,
            None => whole = false,
        });
        whole.then_some(snapshot)
    }

    /// The document, padded with spaces to `length`.
    pub(crate) fn document(&self, sequence: u64, length: usize) -> String {
        let mut out = String::with_capacity(DOCUMENT_BYTES);
        let (version, backend) = (&self.version, &self.backend);
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            out,
            r#"{{"sequence":{sequence},"version":"{version}","backend":"{backend}""#
        );
        // Without formatting, which would take most of the time of a write.
        let mut open = "";
        self.clone().fields(|group, key, field| {
            // Each group's name is one literal.
            if !group.is_empty() && !std::ptr::eq(group, open) {
                out.push_str(if open.is_empty() { ",\"" } else { "},\"" });
                out.push_str(group);
                out.push_str("\":{\"");
                open = group;
            } else {
                out.push_str(",\"");
            }
            out.push_str(key);
            out.push_str("\":");
            push_decimal(&mut out, *field);
        });
        let end = format!(r#"}},"sequence_end":{sequence}}}"#);
        let padding = length.saturating_sub(out.len() + end.len());
        // A String takes spaces from an iterator byte by byte, which is most of the work.
        out + &" ".repeat(padding) + &end
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
        visit("", "max_async", &mut self.max_async);
        visit("", "max_lost", &mut self.max_lost);
        visit("", "failed_checks", &mut self.failed_checks);
        visit("", "write_errors", &mut self.write_errors);
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

/// Appends a number.
fn push_decimal(out: &mut String, number: u64) {
    let mut digits = [0; 20];
    let (mut left, mut first) = (number, digits.len());
    loop {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend(digits[first..].iter().map(|&digit| char::from(digit)));
}

/// What follows `key` of `group` in a document of ours, where all groups come last.
fn value<'a>(document: &'a str, group: &str, key: &str) -> Option<&'a str> {
    let scope = match group {
        "" => document,
        group => document.split_once(&format!(r#""{group}":{{"#))?.1,
    };
    Some(scope.split_once(&format!(r#""{key}":"#))?.1)
}

/// The live counters.
pub(crate) struct Metrics {
    backend: &'static str,
    slots: usize,
    by_shape: [AtomicU64; SHAPES],
    batches: AtomicU64,
    batch_fill: [AtomicU64; FILLS],
    pass_fill: [AtomicU64; FILLS],
    wait_total_ns: AtomicU64,
    wait_max_ns: AtomicU64,
    yields: AtomicU64,
    pool_hits: AtomicU64,
    pool_refills: AtomicU64,
    derivations: AtomicU64,
    async_submitted: AtomicU64,
    pub(crate) paused: Permits,
    lost: AtomicU64,
    unpaused: AtomicU64,
    /// The bounds of `paused` and `lost`.
    pub(crate) max_async: u64,
    pub(crate) max_lost: u64,
    by_reason: [AtomicU64; REASONS],
    write_errors: AtomicU64,
    /// Where the file goes, and whether it stays.
    directory: StatsDir,
    keep: bool,
    /// Made by the first count, so that an engine nobody used leaves no file.
    pub(crate) publisher: OnceLock<Option<Publisher>>,
}

impl Metrics {
    /// Counters at zero, to be published in a directory.
    pub(crate) fn new(
        backend: &'static str,
        slots: usize,
        directory: StatsDir,
        keep: bool,
    ) -> Metrics {
        Metrics {
            backend,
            slots,
            by_shape: [const { AtomicU64::new(0) }; SHAPES],
            batches: AtomicU64::new(0),
            batch_fill: [const { AtomicU64::new(0) }; FILLS],
            pass_fill: [const { AtomicU64::new(0) }; FILLS],
            wait_total_ns: AtomicU64::new(0),
            wait_max_ns: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            pool_hits: AtomicU64::new(0),
            pool_refills: AtomicU64::new(0),
            derivations: AtomicU64::new(0),
            async_submitted: AtomicU64::new(0),
            paused: Permits::default(),
            lost: AtomicU64::new(0),
            unpaused: AtomicU64::new(0),
            max_async: 0,
            max_lost: 0,
            by_reason: [const { AtomicU64::new(0) }; REASONS],
            write_errors: AtomicU64::new(0),
            directory,
            keep,
            publisher: OnceLock::new(),
        }
    }

    /// A batch of `requests`, for which the lanes ran `ran` operations: more where it made key pairs
    /// for the pool.
    pub(crate) fn batch(&self, shape: usize, requests: usize, ran: usize, pass: usize) {
        add(&self.by_shape[shape], requests as u64);
        add(&self.batches, 1);
        add(&self.pool_refills, u64::from(ran > requests));
        count_fill(&self.batch_fill, requests, 1);
        let (full, rest) = (ran / pass, ran % pass);
        count_fill(&self.pass_fill, pass, full as u64);
        count_fill(&self.pass_fill, rest, u64::from(rest > 0));
    }

    /// A key pair that was there in advance.
    pub(crate) fn pool_hit(&self, shape: usize) {
        add(&self.by_shape[shape], 1);
        add(&self.pool_hits, 1);
    }

    pub(crate) fn waited(&self, waits: Waits) {
        add(&self.wait_total_ns, waits.total_ns);
        self.wait_max_ns.fetch_max(waits.max_ns, Ordering::Relaxed);
    }

    pub(crate) fn yielded(&self) {
        add(&self.yields, 1);
    }

    pub(crate) fn submitted(&self) {
        add(&self.async_submitted, 1);
        self.publish_first();
    }

    /// A job whose connection ended while it was paused.
    pub(crate) fn lost(&self) {
        add(&self.lost, 1);
        self.publish();
    }

    /// How many jobs were lost so far.
    pub(crate) fn lost_so_far(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// A job that blocks its thread instead of pausing.
    pub(crate) fn unpaused(&self) {
        add(&self.unpaused, 1);
    }

    pub(crate) fn derived(&self) {
        add(&self.derivations, 1);
        self.publish_first();
    }

    /// Makes the file, if this is the first count.
    fn publish_first(&self) {
        if self.publisher.get().is_none() {
            self.publish();
        }
    }

    pub(crate) fn fallback(&self, reason: Fallback) {
        add(&self.by_reason[reason as usize], 1);
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pass_fill = self.pass_fill.each_ref().map(load);
        let by_reason = self.by_reason.each_ref().map(load);
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            backend: self.backend.to_owned(),
            pid: u64::from(process::id()),
            started: self
                .publisher
                .get()
                .and_then(Option::as_ref)
                .map_or(0, |publisher| publisher.started),
            slots: self.slots as u64,
            by_shape: self.by_shape.each_ref().map(load),
            batches: load(&self.batches),
            passes: pass_fill.iter().sum(),
            batch_fill: self.batch_fill.each_ref().map(load),
            pass_fill,
            wait_total_ns: load(&self.wait_total_ns),
            wait_max_ns: load(&self.wait_max_ns),
            yields: load(&self.yields),
            pool_hits: load(&self.pool_hits),
            pool_refills: load(&self.pool_refills),
            derivations: load(&self.derivations),
            async_submitted: load(&self.async_submitted),
            paused: self.paused.count() as u64,
            lost: load(&self.lost),
            unpaused: load(&self.unpaused),
            max_async: self.max_async,
            max_lost: self.max_lost,
            failed_checks: by_reason[Fallback::CheckFailed as usize],
            by_reason,
            write_errors: load(&self.write_errors),
        }
    }

    /// Brings the file up to date, if there is to be one.
    pub(crate) fn publish(&self) {
        if self.directory == StatsDir::Off {
            return;
        }
        let publisher =
            self.publisher
                .get_or_init(|| match Publisher::create(&self.directory, self.keep) {
                    Ok(publisher) => Some(publisher),
                    Err(_) => {
                        self.write_failed();
                        None
                    }
                });
        if let Some(publisher) = publisher {
            publisher.publish(self, false);
        }
    }

    /// Removes the file, or leaves it with the last counts if it is to be kept.
    pub(crate) fn unpublish(&self) {
        if let Some(Some(publisher)) = self.publisher.get() {
            publisher.finish(self);
        }
    }

    pub(crate) fn write_failed(&self) {
        add(&self.write_errors, 1);
    }
}

/// Counts `times` occurrences of `fill` requests; fills beyond the histogram count as its last.
fn count_fill(histogram: &[AtomicU64; FILLS], fill: usize, times: u64) {
    if times > 0 {
        add(&histogram[fill.clamp(1, FILLS) - 1], times);
    }
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
        let metrics = Metrics::new("portable", 2, StatsDir::Off, false);
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
        let metrics = Metrics::new("portable", 2, StatsDir::Off, false);
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
        snapshot.fields(|_, _, field| *field = u64::MAX);
        assert_eq!(
            snapshot.document(u64::MAX, DOCUMENT_BYTES).len(),
            DOCUMENT_BYTES
        );
    }

    #[test]
    fn torn_and_foreign_documents_are_refused() {
        let old = Snapshot::default().document(8, DOCUMENT_BYTES);
        let new = Snapshot::default().document(9, DOCUMENT_BYTES);
        for cut in [20, 1000, 4000] {
            assert_eq!(
                Snapshot::from_json(&(new[..cut].to_owned() + &old[cut..])),
                None
            );
        }
        assert_eq!(Snapshot::from_json(""), None);
        assert_eq!(
            Snapshot::from_json(r#"{"sequence":1,"sequence_end":1}"#),
            None
        );
    }
}
