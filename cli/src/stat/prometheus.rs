//! The counters of servers in the text format that Prometheus scrapes (version 0.0.4).
//!
//! A series has the labels of its server, and none that names a process: how many series there are
//! depends on the servers, and not on how often they are reloaded. Users write what their processes
//! count. So strangers have three series in all, which no alert and no sum over servers reads, and
//! a text of a file is no label unless it is a known one.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use lockstep_engine::{Backend, Fallback, ProcessStats, Shape, Snapshot, version};

use super::servers::{Counted, Ledger, OTHERS, Server};

/// What servers have counted, as one exposition.
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
    let none = Counted::default();
    let others = ledger.servers().get(&OTHERS).unwrap_or(&none);
    let single = [
        (
            "files_of_other_versions",
            "Files of counters that another version wrote, and that were not read.",
            ledger.other_versions as u64,
        ),
        (
            "cut_off",
            "Whether there are more processes, files or servers than are looked at.",
            u64::from(ledger.cut_off),
        ),
        (
            "other_users_processes",
            "Processes that have no series of their own; any user can write these numbers.",
            others.running.len() as u64,
        ),
        (
            "other_users_operations_total",
            "Requests that these processes say a batch took or the pool served.",
            others.total.operations(),
        ),
        (
            "other_users_failed_checks_total",
            "Results that these processes say did not pass their check.",
            others.total.failed_checks,
        ),
    ];
    for (name, help, value) in single {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        out.head(name, kind, help);
        let _ = writeln!(out.text, "lockstep_{name} {value}");
    }
    out.text
}

/// A text of a file as a label.
fn label<'a>(text: &'a str, known: &[&str]) -> &'a str {
    match known.contains(&text) {
        true => text,
        false => "other",
    }
}

type Counter = (&'static str, &'static str, fn(&Snapshot) -> u64);

const COUNTERS: &[Counter] = &[
    (
        "failed_checks_total",
        "Results that did not pass their check.",
        |s| s.failed_checks,
    ),
    (
        "pool_hits_total",
        "Key pairs that the pool had in advance.",
        |s| s.pool_hits,
    ),
    ("derivations_total", "Key derivations of TLS 1.3.", |s| {
        s.derivations
    }),
    ("ciphers_total", "Contexts of AES-GCM with a key.", |s| {
        s.ciphers
    }),
    (
        "daemon_requests_total",
        "Signatures with ordinary keys for which the key daemon was asked.",
        |s| s.daemon_requests,
    ),
    (
        "daemon_fallbacks_total",
        "Those of them that the process computed itself after all.",
        |s| s.daemon_fallbacks,
    ),
    ("async_submitted_total", "Requests of async jobs.", |s| {
        s.async_submitted
    }),
    (
        "async_lost_total",
        "Async jobs whose connection ended while they were paused.",
        |s| s.lost,
    ),
    (
        "async_unpaused_total",
        "Async jobs that blocked their thread instead of pausing.",
        |s| s.unpaused,
    ),
];

type Gauge = (&'static str, &'static str, fn(&Counted) -> f64);

/// Of the processes that run.
const GAUGES: &[Gauge] = &[
    (
        "processes",
        "Processes that have loaded the module.",
        |of| (of.running.len() + of.idle) as f64,
    ),
    (
        "processes_with_failed_checks",
        "Processes in which a result has failed its check.",
        |of| sum(of, |s| u64::from(s.failed_checks > 0)),
    ),
    (
        "processes_with_mistakes",
        "Processes whose settings have mistakes, and so no effect.",
        |of| sum(of, |s| u64::from(!s.mistakes.is_empty())),
    ),
    (
        "wait_seconds_max",
        "The longest time that a request of such a process spent in the queue.",
        |of| most(of, |s| seconds(s.wait_max_ns)),
    ),
    (
        "async_open",
        "Requests of async jobs that are not answered or not taken.",
        |of| sum(of, |s| s.paused),
    ),
    (
        "async_open_ratio",
        "The same by max_async, of the process that is nearest to it.",
        |of| most(of, |s| ratio(s.paused, s.max_async)),
    ),
    (
        "async_lost_ratio",
        "Lost async jobs by their bound, of the process that is nearest to it.",
        |of| most(of, |s| ratio(s.lost, s.max_lost)),
    ),
    ("key_memory_bytes", "Memory for keys.", |of| {
        sum(of, |s| s.key_memory)
    }),
    (
        "key_memory_locked_bytes",
        "How much of it is locked.",
        |of| sum(of, |s| s.key_memory_locked),
    ),
    (
        "key_memory_heap_bytes",
        "Keys on the heap, for want of such memory.",
        |of| sum(of, |s| s.key_memory_heap),
    ),
    (
        "keys_left_out",
        "Keys of its configuration that the key daemon cannot serve.",
        |of| sum(of, |s| s.keys_left_out),
    ),
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

/// The servers but for [`OTHERS`].
fn named(servers: &BTreeMap<Server, Counted>) -> impl Iterator<Item = (&Server, &Counted)> {
    servers.iter().filter(|(server, _)| server.user.is_some())
}

struct Exposition<'a> {
    text: String,
    servers: &'a BTreeMap<Server, Counted>,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition<'_> {
    /// Any number of samples for each server.
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

    /// `counts` gives how many are at most the first bound, the second and so on, and the bounds.
    /// A count without a bound stands for all that is larger.
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
mod tests {
    use std::collections::BTreeSet;

    use lockstep_engine::Published;

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
            let (name, labels) = match labelled.split_once('{') {
                Some((name, labels)) => (name, Some(labels.strip_suffix('}').unwrap())),
                None => (labelled, None),
            };
            let suffix = name.strip_prefix(family.0).unwrap();
            let suffixes: &[_] = match family.1 {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line}");
            let is_of_server =
                |labels: &str| labels.starts_with(r#"process=""#) && labels.contains(r#",user=""#);
            assert!(labels.is_none_or(is_of_server) && !line.contains("pid"));
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
            version: version(),
            backend: "portable".to_owned(),
            slots: 2,
            wait_total_ns: 1_500_000_000,
            wait_max_ns: u64::from(pid) * 1_000_000_000,
            batch_fill: [1, 0, 0, 0, 0, 0, 0, 2],
            pass_fill: [1, 0, 0, 6, 0, 0, 0, 1],
            by_wait: [2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1],
            failed_checks: 1,
            paused: 100 * u64::from(pid),
            max_async: 1000,
            mistakes: "slots is 'many'".to_owned(),
            ..Snapshot::default()
        };
        snapshot.by_shape[1] = 33;
        snapshot.by_reason[0] = 4;
        ProcessStats {
            pid,
            file: format!("{pid}-1-0.counters"),
            name: Some(name.to_owned()),
            user: 0,
            alive: true,
            elsewhere: None,
            snapshot,
        }
    }

    /// What has been looked at: first nothing, and then these.
    fn shown(processes: &[ProcessStats]) -> String {
        let mut ledger = Ledger::default();
        ledger.look(&Published::default(), |_| false);
        let found = Published {
            processes: processes.to_vec(),
            other_versions: 3,
            ..Published::default()
        };
        ledger.look(&found, |_| false);
        exposition(&ledger)
    }

    #[test]
    fn a_scraper_understands_it() {
        let series = scrape(&shown(&[process(7, "nginx"), process(8, "nginx")]));
        let of = |name: &str, more: &str| {
            let labels = format!(r#"process="nginx",user="0"{more}"#);
            series[&format!("lockstep_{name}{{{labels}}}")]
        };
        let shape = Shape::ALL[1].name();
        assert_eq!(
            of("operations_total", &format!(r#",operation="{shape}""#)),
            66.0
        );
        let reason = Fallback::ALL[0].name();
        assert_eq!(
            of("fallbacks_total", &format!(r#",reason="{reason}""#)),
            8.0
        );
        let info = format!(r#",version="{}",backend="portable""#, version());
        assert_eq!(of("info", &info), 2.0);
        for (le, batches, passes) in [("1", 2.0, 2.0), ("7", 2.0, 14.0), ("+Inf", 6.0, 16.0)] {
            let le = format!(r#",le="{le}""#);
            assert_eq!(of("batch_requests_bucket", &le), batches);
            assert_eq!(of("pass_requests_bucket", &le), passes);
        }
        for (le, waits) in [
            ("0.00001", 4.0),
            ("0.0005", 4.0),
            ("0.001", 10.0),
            ("0.1", 10.0),
        ] {
            assert_eq!(of("wait_seconds_bucket", &format!(r#",le="{le}""#)), waits);
        }
        for (histogram, sum, count) in [
            ("batch_requests", 66.0, 6.0),
            ("pass_requests", 66.0, 16.0),
            ("wait_seconds", 3.0, 12.0),
        ] {
            assert_eq!(of(&format!("{histogram}_sum"), ""), sum);
            assert_eq!(of(&format!("{histogram}_count"), ""), count);
        }
        let largest = r#"lockstep_batch_requests_bucket{process="nginx",user="0",le="8"}"#;
        assert!(!series.contains_key(largest), "8 stands for more");
        for (gauge, value) in [
            ("processes", 2.0),
            ("processes_with_failed_checks", 2.0),
            ("processes_with_mistakes", 2.0),
            ("wait_seconds_max", 8.0),
            ("async_open", 1500.0),
            ("async_open_ratio", 0.8),
            ("async_lost_ratio", 0.0),
        ] {
            assert_eq!(of(gauge, ""), value, "{gauge}");
        }
        assert_eq!(series["lockstep_files_of_other_versions"], 3.0);
    }

    /// The names of metrics that a text uses.
    fn named(text: &str) -> BTreeSet<&str> {
        let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_in_name(c));
        words.filter(|word| word.starts_with("lockstep_")).collect()
    }

    #[test]
    fn alerts_and_panels_are_about_what_is_exposed() {
        let rules = include_str!("../../../packaging/prometheus/lockstep.rules.yml");
        let panels = include_str!("../../../packaging/prometheus/grafana.json");
        let manual = include_str!("../../../docs/user/monitoring.md");
        let text = shown(&[process(7, "nginx")]) + "lockstep_service_loaded{";
        for (source, least) in [(rules, 8), (panels, 8), (manual, 8)] {
            let named = named(source);
            assert!(named.len() >= least, "{named:?}");
            for name in named {
                let known = [" ", "{"].map(|end| text.contains(&format!("{name}{end}")));
                assert!(known != [false, false], "{name}");
            }
        }
        let mut summaries = rules.lines().filter(|line| line.contains("summary:"));
        assert!(summaries.all(|summary| summary.contains("$labels.instance")));
        let daemon = format!(r#"{{process="{}"}}"#, crate::keyd::PROCESS);
        assert!(rules.contains(&daemon), "{daemon}");
        let (_, reasons) = rules.split_once("reason!~\"").unwrap();
        let (reasons, _) = reasons.split_once('"').unwrap();
        for reason in reasons.split('|') {
            let known = Fallback::ALL.iter().any(|known| known.name() == reason);
            assert!(known, "{reason}");
        }
    }

    /// Whatever texts root's workers and other users write, and whatever they count.
    #[test]
    fn no_text_of_a_file_and_no_stranger_makes_a_series() {
        let mut processes = vec![process(7, "nginx")];
        let before: Vec<String> = scrape(&shown(&processes)).into_keys().collect();
        for pid in 100..400 {
            let mut forged = process(pid, &format!("a{pid}"));
            forged.user = 70_000 + pid;
            forged.snapshot.version = format!("9.9.{pid}");
            forged.snapshot.backend = format!("b{pid}");
            processes.push(forged);
        }
        let text = shown(&processes);
        let series = scrape(&text);
        assert_eq!(series.keys().cloned().collect::<Vec<_>>(), before);
        assert_eq!(series["lockstep_other_users_processes"], 300.0);
        assert_eq!(
            series["lockstep_other_users_operations_total"],
            300.0 * 33.0
        );
        assert_eq!(series["lockstep_other_users_failed_checks_total"], 300.0);

        for process in &mut processes {
            process.user = 0;
            process.name = Some("nginx".to_owned());
        }
        processes[1].snapshot.version = version() + " (a1b2c3d4e5 2026-11-28)";
        processes[2].snapshot.backend = String::new();
        let series = scrape(&shown(&processes));
        let info = series
            .keys()
            .filter(|name| name.starts_with("lockstep_info{"));
        let labels = |name: &String| name.split_once("version=").unwrap().1.to_owned();
        let own = format!(r#""{}",backend="portable"}}"#, version());
        let expected = [own, r#""other",backend="other"}"#.to_owned()];
        assert_eq!(info.map(labels).collect::<Vec<_>>(), expected);
        assert_eq!(series.len(), before.len() + 1);
    }

    /// A page of all servers that there may be is what 32 clients share.
    #[test]
    fn a_server_has_few_kilobytes() {
        let text = shown(&[process(7, &"\\xff".repeat(15))]);
        let series = scrape(&text).len() - scrape(&shown(&[])).len();
        let bytes = text.len() - shown(&[]).len();
        assert!(
            series < 200 && bytes < 1 << 15,
            "{series} series, {bytes} bytes"
        );
    }

    #[test]
    fn names_cannot_break_out_of_their_label() {
        let text = shown(&[process(7, "a\"b\\c\nd\x1be\u{202e}f")]);
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
        let series = scrape(&shown(&[hostile]));
        for (name, le) in [("count", ""), ("sum", ""), ("bucket", r#",le="2""#)] {
            let labels = format!(r#"process="nginx",user="0"{le}"#);
            let series = series[&format!("lockstep_pass_requests_{name}{{{labels}}}")];
            assert_eq!(series, u64::MAX as f64);
        }
    }

    #[test]
    fn without_processes_it_is_empty_but_whole() {
        let unlabelled = |name: &String| !name.contains('{');
        assert!(scrape(&shown(&[])).keys().all(unlabelled));
    }
}
