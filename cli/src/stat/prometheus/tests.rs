//! Tests of the exposition, as a scraper reads it.

use std::collections::BTreeSet;

use lockstep_engine::Published;

use super::*;

/// Parses an exposition as a scraper does: the value of each series. Fails where the format is
/// violated: help and type come before the samples, samples of one family stand together, no series
/// comes twice.
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

/// Makes an exposition after a first look without processes, and a second look with these.
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
    let rules = include_str!("../../../../packaging/prometheus/lockstep.rules.yml");
    let panels = include_str!("../../../../packaging/prometheus/grafana.json");
    let manual = include_str!("../../../../docs/user/monitoring.md");
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

/// 32 clients can share a page of the maximum number of servers.
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
