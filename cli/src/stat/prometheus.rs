//! The counters in the text format that Prometheus scrapes (version 0.0.4).

use std::fmt::{Display, Write as _};

use lockstep_common::fit_for_terminal;
use lockstep_engine::{Fallback, ProcessStats, Shape, Snapshot};

/// All counters of these processes, as one exposition. No two of them have the same number, user
/// and PID namespace, unless one has ended.
pub fn exposition(processes: &[ProcessStats]) -> String {
    let mut out = Exposition {
        text: String::new(),
        processes,
    };
    out.info();
    out.family(
        "operations_total",
        "counter",
        "Requests that a batch took or the pool of key pairs served, by operation.",
        |sample, s| {
            for shape in Shape::ALL {
                sample(&[("operation", shape.name())], s.operations_of(shape));
            }
        },
    );
    out.family(
        "fallbacks_total",
        "counter",
        "Requests and keys that went to OpenSSL's own code, by reason.",
        |sample, s| {
            for &reason in Fallback::ALL {
                sample(&[("reason", reason.name())], s.fallbacks_for(reason));
            }
        },
    );
    out.family(
        "rsa_schedule",
        "gauge",
        "The schedule of RSA that was chosen, by the size of the key.",
        |sample, s| {
            for (size, schedule) in s.schedules() {
                let labels = [
                    ("bits", &*size.bits().to_string()),
                    ("schedule", schedule.name()),
                ];
                sample(&labels, 1);
            }
        },
    );
    for (name, kind, help, value) in PLAIN {
        out.family(name, kind, help, |sample, s| sample(&[], value(s)));
    }
    out.seconds(
        "wait_seconds_total",
        "counter",
        "Time that requests spent in the queue.",
        |s| s.wait_total_ns,
    );
    out.seconds(
        "wait_seconds_max",
        "gauge",
        "The longest time that a request spent in the queue.",
        |s| s.wait_max_ns,
    );
    // The last count of batches stands for all larger ones, so it has no bound of its own.
    out.histogram(
        "batch_requests",
        "Requests in a batch.",
        |s| (s.batch_fill, false),
        |s| s.operations() - s.pool_hits.min(s.operations()),
    );
    out.histogram(
        "pass_requests",
        "Requests in a pass of the lanes.",
        |s| (s.pass_fill, true),
        Snapshot::filled,
    );
    out.text
}

type Plain = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Snapshot) -> u64,
);

const PLAIN: &[Plain] = &[
    (
        "failed_checks_total",
        "counter",
        "Results that did not pass their check.",
        |s| s.failed_checks,
    ),
    (
        "settings_without_effect",
        "gauge",
        "Whether settings have mistakes, and so no effect.",
        |s| u64::from(!s.mistakes.is_empty()),
    ),
    (
        "pool_hits_total",
        "counter",
        "Key pairs that the pool had in advance.",
        |s| s.pool_hits,
    ),
    (
        "pool_refills_total",
        "counter",
        "Batches that made key pairs for the pool.",
        |s| s.pool_refills,
    ),
    (
        "derivations_total",
        "counter",
        "Key derivations of TLS 1.3.",
        |s| s.derivations,
    ),
    (
        "ciphers_total",
        "counter",
        "Contexts of AES-GCM with a key.",
        |s| s.ciphers,
    ),
    (
        "daemon_requests_total",
        "counter",
        "Signatures with ordinary keys for which the key daemon was asked.",
        |s| s.daemon_requests,
    ),
    (
        "daemon_fallbacks_total",
        "counter",
        "Those of them that the process computed itself after all.",
        |s| s.daemon_fallbacks,
    ),
    (
        "async_submitted_total",
        "counter",
        "Requests of async jobs.",
        |s| s.async_submitted,
    ),
    (
        "async_open",
        "gauge",
        "Requests of async jobs that are not answered or not taken.",
        |s| s.paused,
    ),
    (
        "async_open_max",
        "gauge",
        "How many requests of async jobs may be open (max_async).",
        |s| s.max_async,
    ),
    (
        "async_lost_total",
        "counter",
        "Async jobs whose connection ended while they were paused.",
        |s| s.lost,
    ),
    (
        "async_lost_max",
        "gauge",
        "How many async jobs may be lost before none is paused any more (max_lost).",
        |s| s.max_lost,
    ),
    (
        "async_unpaused_total",
        "counter",
        "Async jobs that blocked their thread instead of pausing.",
        |s| s.unpaused,
    ),
    (
        "async_no_descriptor_total",
        "counter",
        "Those of them for which there was no file descriptor.",
        |s| s.no_descriptor,
    ),
    (
        "yields_total",
        "counter",
        "How often a leader yielded its CPU to let requests gather.",
        |s| s.yields,
    ),
    ("key_memory_bytes", "gauge", "Memory for keys.", |s| {
        s.key_memory
    }),
    (
        "key_memory_locked_bytes",
        "gauge",
        "How much of it is locked.",
        |s| s.key_memory_locked,
    ),
    (
        "key_memory_heap_bytes",
        "gauge",
        "Keys on the heap, for want of such memory.",
        |s| s.key_memory_heap,
    ),
    (
        "keys_left_out",
        "gauge",
        "Keys of its configuration that the key daemon cannot serve.",
        |s| s.keys_left_out,
    ),
    ("slots", "gauge", "Batches that may run at a time.", |s| {
        s.slots
    }),
];

struct Exposition<'a> {
    text: String,
    processes: &'a [ProcessStats],
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition<'_> {
    fn info(&mut self) {
        self.head("info", "gauge", "Processes that use lockstep.");
        for process in self.processes {
            let Snapshot {
                version, backend, ..
            } = &process.snapshot;
            let labels = [("version", version.as_str()), ("backend", backend.as_str())];
            self.sample("info", process, &labels, 1);
        }
    }

    /// Any number of samples for each process.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&mut dyn FnMut(Labels<'_>, u64), &Snapshot),
    ) {
        self.head(name, kind, help);
        for process in self.processes {
            let mut sample = |labels: Labels<'_>, value| self.sample(name, process, labels, value);
            samples(&mut sample, &process.snapshot);
        }
    }

    fn seconds(&mut self, name: &str, kind: &str, help: &str, value: fn(&Snapshot) -> u64) {
        self.head(name, kind, help);
        for process in self.processes {
            let seconds = value(&process.snapshot) as f64 / 1e9;
            self.sample(name, process, &[], format_args!("{seconds:.9}"));
        }
    }

    /// `counts` gives how many had one request, two and so on, and whether the last count is of
    /// exactly so many.
    fn histogram<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        counts: fn(&Snapshot) -> ([u64; N], bool),
        sum: fn(&Snapshot) -> u64,
    ) {
        self.head(name, "histogram", help);
        let (bucket, total) = (format!("{name}_bucket"), format!("{name}_count"));
        let summed = format!("{name}_sum");
        for process in self.processes {
            let (counts, exact) = counts(&process.snapshot);
            let bounded = if exact { N } else { N - 1 };
            let mut below: u64 = 0;
            for (bound, count) in (1..).zip(&counts[..bounded]) {
                below = below.saturating_add(*count);
                let bound = format!("{bound}");
                self.sample(&bucket, process, &[("le", &bound)], below);
            }
            let all = counts.into_iter().fold(0, u64::saturating_add);
            self.sample(&bucket, process, &[("le", "+Inf")], all);
            self.sample(&summed, process, &[], sum(&process.snapshot));
            self.sample(&total, process, &[], all);
        }
    }

    // Writing to a String cannot fail, here and below.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP lockstep_{name} {help}");
        let _ = writeln!(self.text, "# TYPE lockstep_{name} {kind}");
    }

    fn sample(
        &mut self,
        name: &str,
        process: &ProcessStats,
        labels: Labels<'_>,
        value: impl Display,
    ) {
        // An administrator may read it on a terminal.
        let called = process.name.as_deref().unwrap_or_default();
        let called = escaped(&fit_for_terminal(called));
        let _ = write!(
            self.text,
            r#"lockstep_{name}{{pid="{}",process="{called}",user="{}""#,
            process.pid, process.user
        );
        // There, another process may have the same number, and an ended one may have it here. A
        // series that occurs twice would invalidate the whole exposition.
        if !process.alive && process.elsewhere.is_none() {
            let _ = write!(self.text, r#",ended="true""#);
        }
        if let Some(namespace) = process.elsewhere {
            let _ = write!(self.text, r#",pid_namespace="{namespace}""#);
        }
        for (label, text) in labels {
            let _ = write!(self.text, r#",{label}="{}""#, escaped(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', r"\\")
        .replace('"', r#"\""#)
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// What a scraper makes of an exposition: the value of each series. It insists on what the
    /// format demands: help and type before the samples, samples of one family together, no series
    /// twice.
    fn scrape(text: &str) -> BTreeMap<String, f64> {
        let mut series = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut family = ("", "");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, words) = help.split_once(' ').unwrap();
                assert!(!words.is_empty() && seen.insert(name), "{name} twice");
                let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap();
                let (typed, kind) = kind.split_once(' ').unwrap();
                assert_eq!(typed, name);
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
                family = (name, kind);
                continue;
            }
            let (labelled, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = labelled.split_once('{').unwrap();
            let labels = labels.strip_suffix('}').unwrap();
            let suffix = name.strip_prefix(family.0).unwrap();
            let suffixes: &[_] = match family.1 {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line}");
            assert!(labels.starts_with(r#"pid=""#) && labels.contains(r#",process=""#));
            let value: f64 = value.parse().unwrap();
            assert!(
                series.insert(labelled.to_owned(), value).is_none(),
                "{line}"
            );
        }
        series
    }

    fn process(pid: u32, name: &str) -> ProcessStats {
        let mut snapshot = Snapshot {
            version: "1.2.3".to_owned(),
            backend: "portable".to_owned(),
            slots: 2,
            wait_total_ns: 1_500_000_000,
            batch_fill: [1, 0, 0, 0, 0, 0, 0, 2],
            pass_fill: [1, 0, 0, 6, 0, 0, 0, 1],
            ..Snapshot::default()
        };
        snapshot.by_shape[1] = 33;
        snapshot.by_reason[0] = 4;
        ProcessStats {
            pid,
            file: String::new(),
            name: Some(name.to_owned()),
            user: 0,
            alive: true,
            elsewhere: None,
            snapshot,
        }
    }

    #[test]
    fn a_scraper_understands_it() {
        let series = scrape(&exposition(&[process(7, "nginx"), process(8, "nginx")]));
        let of = |name: &str, more: &str| {
            let labels = format!(r#"pid="7",process="nginx",user="0"{more}"#);
            series[&format!("lockstep_{name}{{{labels}}}")]
        };
        let shape = Shape::ALL[1].name();
        assert_eq!(
            of("operations_total", &format!(r#",operation="{shape}""#)),
            33.0
        );
        let reason = Fallback::ALL[0].name();
        assert_eq!(
            of("fallbacks_total", &format!(r#",reason="{reason}""#)),
            4.0
        );
        assert_eq!(of("info", r#",version="1.2.3",backend="portable""#), 1.0);
        assert_eq!(of("wait_seconds_total", ""), 1.5);
        for (le, batches, passes) in [("1", 1.0, 1.0), ("7", 1.0, 7.0), ("+Inf", 3.0, 8.0)] {
            let le = format!(r#",le="{le}""#);
            assert_eq!(of("batch_requests_bucket", &le), batches);
            assert_eq!(of("pass_requests_bucket", &le), passes);
        }
        assert_eq!(
            (of("batch_requests_sum", ""), of("batch_requests_count", "")),
            (33.0, 3.0)
        );
        assert_eq!(
            (of("pass_requests_sum", ""), of("pass_requests_count", "")),
            (33.0, 8.0)
        );
        let largest = r#"lockstep_batch_requests_bucket{pid="7",process="nginx",user="0",le="8"}"#;
        assert!(!series.contains_key(largest), "8 stands for more");
    }

    #[test]
    fn alerts_are_about_what_is_exposed() {
        let rules = include_str!("../../../packaging/prometheus/lockstep.rules.yml");
        let series = exposition(&[process(7, "nginx")]);
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = rules.split(|c| !is_in_name(c));
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("lockstep_")).collect();
        assert!(named.len() >= 8, "{named:?}");
        for name in named {
            assert!(series.contains(&format!("\n{name}{{pid=\"7\"")), "{name}");
        }
        let (_, reasons) = rules.split_once("reason!~\"").unwrap();
        let (reasons, _) = reasons.split_once('"').unwrap();
        for reason in reasons.split('|') {
            let known = Fallback::ALL.iter().any(|known| known.name() == reason);
            assert!(known, "{reason}");
        }
    }

    #[test]
    fn processes_of_two_pid_namespaces_or_users_may_have_one_number() {
        let mut there = process(7, "");
        (there.name, there.alive, there.elsewhere) = (None, false, Some(4_026_531_836));
        let of_another = ProcessStats {
            user: 1000,
            ..there.clone()
        };
        let ended = ProcessStats {
            elsewhere: None,
            ..there.clone()
        };
        let series = scrape(&exposition(&[process(7, ""), there, of_another, ended]));
        for more in [
            r#"user="0""#,
            r#"user="0",pid_namespace="4026531836""#,
            r#"user="1000",pid_namespace="4026531836""#,
            r#"user="0",ended="true""#,
        ] {
            let slots = format!(r#"lockstep_slots{{pid="7",process="",{more}}}"#);
            assert_eq!(series[&slots], 2.0);
        }
    }

    #[test]
    fn names_cannot_break_out_of_their_label() {
        let text = exposition(&[process(7, "a\"b\\c\nd\x1be\u{202e}f")]);
        assert!(text.contains(r#"process="a\"b\\c?d?e?f""#), "{text}");
        scrape(&text);
    }

    #[test]
    fn counters_of_any_size_are_a_histogram() {
        let mut hostile = process(7, "nginx");
        hostile.snapshot.batch_fill = [u64::MAX; 8];
        hostile.snapshot.pass_fill = [u64::MAX; 8];
        hostile.snapshot.by_shape.fill(u64::MAX);
        hostile.snapshot.by_reason.fill(u64::MAX);
        let series = scrape(&exposition(&[hostile]));
        for (name, le) in [("count", ""), ("sum", ""), ("bucket", r#",le="2""#)] {
            let labels = format!(r#"pid="7",process="nginx",user="0"{le}"#);
            let series = series[&format!("lockstep_pass_requests_{name}{{{labels}}}")];
            assert_eq!(series, u64::MAX as f64);
        }
    }

    #[test]
    fn without_processes_it_is_empty_but_whole() {
        assert!(scrape(&exposition(&[])).is_empty());
    }
}
