//! The counters of servers in the text format that Prometheus scrapes (version 0.0.4).
//!
//! A series has the labels of its server, and no label names a process: the number of series
//! depends on the servers, and not on their reloads. Users write the counts of their own processes.
//! So other users have three series in all, which no alert and no sum over servers reads, and a
//! text of a file becomes a label only if it is a known one.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use lockstep_engine::{Backend, Fallback, ProcessStats, Shape, Snapshot, version};

use super::servers::{Counted, Ledger, OTHERS, Server};

/// Makes the exposition of all servers.
pub fn exposition(ledger: &Ledger) -> String {
    let mut out = Exposition {
        text: String::new(),
        servers: ledger.servers(),
    };
    out.family(
        "info",
        "gauge",
        "Processes that use lockstep, by its version and its lanes.",
        |sample, of| {
            let (own, lanes) = (version(), [&["none"][..], &Backend::NAMES].concat());
            let mut processes = BTreeMap::new();
            for ProcessStats { snapshot, .. } in &of.running {
                let version = ("version", label(&snapshot.version, &[&own]));
                let backend = ("backend", label(&snapshot.backend, &lanes));
                *processes.entry([version, backend]).or_insert(0) += 1;
            }
            for (labels, count) in processes {
                sample(&labels, &count);
            }
        },
    );
    out.family(
        "operations_total",
        "counter",
        "Requests that a batch took or the pool of key pairs served, by operation.",
        |sample, of| {
            for shape in Shape::ALL {
                let operations = of.total.operations_of(shape);
                sample(&[("operation", shape.name())], &operations);
            }
        },
    );
    out.family(
        "fallbacks_total",
        "counter",
        "Requests and keys that went to OpenSSL's own code, by reason.",
        |sample, of| {
            for &reason in Fallback::ALL {
                sample(
                    &[("reason", reason.name())],
                    &of.total.fallbacks_for(reason),
                );
            }
        },
    );
    for (name, help, value) in COUNTERS {
        out.family(name, "counter", help, |sample, of| {
            sample(&[], &value(&of.total));
        });
    }
    for (name, help, value) in GAUGES {
        out.family(name, "gauge", help, |sample, of| sample(&[], &value(of)));
    }
    // The last count of batches stands for all larger ones, so it has no bound of its own.
    out.histogram(
        "batch_requests",
        "Requests in a batch.",
        |s| (s.batch_fill.to_vec(), (1..8).map(f64::from).collect()),
        |s| (s.operations() - s.pool_hits.min(s.operations())) as f64,
    );
    out.histogram(
        "pass_requests",
        "Requests in a pass of the lanes.",
        |s| (s.pass_fill.to_vec(), (1..9).map(f64::from).collect()),
        |s| s.filled() as f64,
    );
    out.histogram(
        "wait_seconds",
        "Time that requests spent in the queue.",
        |s| {
            let bounds = Snapshot::wait_bounds().iter().map(|bound| seconds(*bound));
            (s.by_wait.to_vec(), bounds.collect())
        },
        |s| seconds(s.wait_total_ns),
    );
    out.others(ledger);
    out.text
}

/// Makes a label of a text from a file.
fn label<'a>(text: &'a str, known: &[&str]) -> &'a str {
    match known.contains(&text) {
        true => text,
        false => "other",
    }
}

type Counter = (&'static str, &'static str, fn(&Snapshot) -> u64);

#[rustfmt::skip]
const COUNTERS: &[Counter] = &[
    ("failed_checks_total", "Results that did not pass their check.", |s| s.failed_checks),
    ("pool_hits_total", "Key pairs that the pool had in advance.", |s| s.pool_hits),
    ("derivations_total", "Key derivations of TLS 1.3.", |s| s.derivations),
    ("ciphers_total", "Contexts of AES-GCM with a key.", |s| s.ciphers),
    ("daemon_requests_total", "Signatures with ordinary keys for which the key daemon was asked.",
        |s| s.daemon_requests),
    ("daemon_fallbacks_total", "Those of them that the process computed itself after all.",
        |s| s.daemon_fallbacks),
    ("async_submitted_total", "Requests of async jobs.", |s| s.async_submitted),
    ("async_lost_total", "Async jobs whose connection ended while they were paused.", |s| s.lost),
    ("async_unpaused_total", "Async jobs that blocked their thread instead of pausing.",
        |s| s.unpaused),
];

type Gauge = (&'static str, &'static str, fn(&Counted) -> f64);

/// Gauges of the processes that run.
#[rustfmt::skip]
const GAUGES: &[Gauge] = &[
    ("processes", "Processes that have loaded the module.",
        |of| (of.running.len() + of.idle) as f64),
    ("processes_with_failed_checks", "Processes in which a result has failed its check.",
        |of| sum(of, |s| u64::from(s.failed_checks > 0))),
    ("processes_with_mistakes", "Processes whose settings have mistakes, and so no effect.",
        |of| sum(of, |s| u64::from(!s.mistakes.is_empty()))),
    ("wait_seconds_max", "The longest time that a request of such a process spent in the queue.",
        |of| most(of, |s| seconds(s.wait_max_ns))),
    ("async_open", "Requests of async jobs that are not answered or not taken.",
        |of| sum(of, |s| s.paused)),
    ("async_open_ratio", "The same by max_async, of the process that is nearest to it.",
        |of| most(of, |s| ratio(s.paused, s.max_async))),
    ("async_lost_ratio", "Lost async jobs by their bound, of the process that is nearest to it.",
        |of| most(of, |s| ratio(s.lost, s.max_lost))),
    ("key_memory_bytes", "Memory for keys.", |of| sum(of, |s| s.key_memory)),
    ("key_memory_locked_bytes", "How much of it is locked.", |of| sum(of, |s| s.key_memory_locked)),
    ("key_memory_heap_bytes", "Keys on the heap, for want of such memory.",
        |of| sum(of, |s| s.key_memory_heap)),
    ("keys_left_out", "Keys of its configuration that the key daemon cannot serve.",
        |of| sum(of, |s| s.keys_left_out)),
];

fn sum(of: &Counted, value: fn(&Snapshot) -> u64) -> f64 {
    let values = of.running.iter().map(|process| value(&process.snapshot));
    values.fold(0, u64::saturating_add) as f64
}

fn most(of: &Counted, value: fn(&Snapshot) -> f64) -> f64 {
    let values = of.running.iter().map(|process| value(&process.snapshot));
    values.fold(0.0, f64::max)
}

fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The servers except [`OTHERS`].
fn named(servers: &BTreeMap<Server, Counted>) -> impl Iterator<Item = (&Server, &Counted)> {
    servers.iter().filter(|(server, _)| server.user.is_some())
}

struct Exposition<'a> {
    text: String,
    servers: &'a BTreeMap<Server, Counted>,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition<'_> {
    /// Writes a family with any number of samples for each server.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Fn(&mut dyn FnMut(Labels<'_>, &dyn Display), &Counted),
    ) {
        self.head(name, kind, help);
        for (server, counted) in named(self.servers) {
            let mut sample = |labels: Labels<'_>, value: &dyn Display| {
                self.sample(name, server, labels, value);
            };
            samples(&mut sample, counted);
        }
    }

    /// Writes the sums over processes without series of their own, and the limits of this page.
    fn others(&mut self, ledger: &Ledger) {
        let none = Counted::default();
        let others = ledger.servers().get(&OTHERS).unwrap_or(&none);
        #[rustfmt::skip]
        let single = [
            ("files_of_other_versions", ledger.other_versions as u64,
                "Files of counters that another version wrote, and that were not read."),
            ("cut_off", u64::from(ledger.cut_off),
                "Whether there are more processes, files or servers than are looked at."),
            ("other_users_processes", others.running.len() as u64,
                "Processes that have no series of their own; any user can write these numbers."),
            ("other_users_operations_total", others.total.operations(),
                "Requests that these processes say a batch took or the pool served."),
            ("other_users_failed_checks_total", others.total.failed_checks,
                "Results that these processes say did not pass their check."),
        ];
        for (name, value, help) in single {
            let kind = match name.ends_with("_total") {
                true => "counter",
                false => "gauge",
            };
            self.head(name, kind, help);
            let _ = writeln!(self.text, "lockstep_{name} {value}");
        }
    }

    /// `counts` returns the counts and their upper bounds. A count without a bound is the number of
    /// all larger values.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        counts: fn(&Snapshot) -> (Vec<u64>, Vec<f64>),
        sum: fn(&Snapshot) -> f64,
    ) {
        self.head(name, "histogram", help);
        let (bucket, total) = (format!("{name}_bucket"), format!("{name}_count"));
        let summed = format!("{name}_sum");
        for (server, counted) in named(self.servers) {
            let (counts, bounds) = counts(&counted.total);
            let mut below: u64 = 0;
            for (bound, count) in bounds.iter().zip(&counts) {
                below = below.saturating_add(*count);
                self.sample(&bucket, server, &[("le", &bound.to_string())], &below);
            }
            let all = counts.into_iter().fold(0, u64::saturating_add);
            self.sample(&bucket, server, &[("le", "+Inf")], &all);
            self.sample(&summed, server, &[], &sum(&counted.total));
            self.sample(&total, server, &[], &all);
        }
    }

    // Writing to a String cannot fail, here and below.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP lockstep_{name} {help}");
        let _ = writeln!(self.text, "# TYPE lockstep_{name} {kind}");
    }

    fn sample(&mut self, name: &str, server: &Server, labels: Labels<'_>, value: &dyn Display) {
        let (called, user) = (escaped(&server.process), server.user.unwrap_or_default());
        let _ = write!(
            self.text,
            r#"lockstep_{name}{{process="{called}",user="{user}""#
        );
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
mod tests;
