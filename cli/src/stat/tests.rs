//! Tests of the text and the JSON that `lockstep stat` prints.

use lockstep_common::is_unfit_for_terminal;

use super::*;

fn process(operations: u64, wait_total_ns: u64) -> ProcessStats {
    let mut snapshot = Snapshot {
        started: 5,
        passes: operations / 4,
        pass_fill: [0, 0, 0, operations / 4, 0, 0, 0, 0],
        wait_total_ns,
        failed_checks: 1,
        ..Snapshot::default()
    };
    snapshot.by_shape[1] = operations;
    ProcessStats {
        pid: 7,
        file: String::new(),
        name: Some("ng\x1b[2Jinx".to_owned()),
        user: 0,
        alive: true,
        elsewhere: None,
        snapshot,
    }
}

#[test]
fn a_process_that_has_used_no_lanes_has_no_gap_in_its_line() {
    let mut waits = process(0, 0);
    waits.snapshot.backend = String::new();
    waits.snapshot.mistakes = "slots is 'many'".to_owned();
    let line = describe(&waits).lines().next().unwrap().to_owned();
    assert!(line.ends_with(", lanes: none chosen yet"), "{line}");
}

#[test]
fn what_needs_attention_is_said() {
    let text = describe(&process(400, 1000));
    let line = text.lines().find(|line| line.starts_with("  warning: "));
    let line = line.unwrap_or_else(|| panic!("no warning: {text}"));
    assert!(line.contains("1 result failed its check"), "{line}");
    assert!(line.contains(". Remedy: look for"), "{line}");
}

#[test]
fn what_is_left_out_is_counted() {
    let left_out = |missed, other_versions| {
        left_out(&Published {
            missed,
            other_versions,
            ..Published::default()
        })
    };
    assert_eq!(left_out(0, 0), "");
    let (one, two) = (left_out(1, 1), left_out(2, 2));
    for part in [
        "1 more process is not",
        "\n1 file of counters is of another",
    ] {
        assert!(one.contains(part), "{one}");
    }
    for part in [
        "2 more processes are",
        "\n2 files of counters are of another",
    ] {
        assert!(two.contains(part), "{two}");
    }
}

#[test]
fn what_one_user_writes_changes_no_process_of_another() {
    let there = |user, operations| ProcessStats {
        user,
        name: None,
        alive: false,
        elsewhere: Some(4_026_531_836),
        ..process(operations, 0)
    };
    let mut all = vec![there(1000, 4), there(1001, 400), there(1000, 8)];
    merge(&mut all);
    let seen: Vec<_> = all.iter().map(|p| (p.user, p.snapshot.passes)).collect();
    assert_eq!(seen, [(1000, 3), (1001, 100)]);
    let text: String = all.iter().map(describe).collect();
    for user in ["(of user 1000 in another", "(of user 1001 in another"] {
        assert!(text.contains(user), "{text}");
    }
}

#[test]
fn no_name_changes_what_a_terminal_shows_beside_it() {
    let shown = |name: &str| {
        printable(&ProcessStats {
            name: Some(name.to_owned()),
            ..process(4, 0)
        })
    };
    for control in "\x1b\n\u{9b}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
        assert_eq!(shown(&format!("a{control}b")), "a?b", "{control:?}");
    }
    assert_eq!(shown("für\u{5d0}"), "für\u{5d0}");
}

#[test]
fn the_name_in_json_is_whole_and_changes_no_terminal() {
    let called = "a\"\\\x1b\n\x7f\u{9b}\u{61c}\u{202e}\u{2069}für\u{5d0}";
    let text = document(&ProcessStats {
        name: Some(called.to_owned()),
        ..process(4, 0)
    });
    assert!(!text.contains(is_unfit_for_terminal), "{text}");
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["process"], called);
    let text = document(&ProcessStats {
        name: None,
        ..process(4, 0)
    });
    assert!(text.starts_with(r#"{"process":null,"#), "{text}");
}

#[test]
fn rates_are_of_the_interval() {
    let found = |process| Published {
        processes: vec![process],
        ..Published::default()
    };
    let rates_of = |first, second| {
        let mut ledger = Ledger::default();
        ledger.look(&found(first), |_| true);
        let before = ledger.servers().clone();
        ledger.look(&found(second), |_| true);
        let table = rates(&before, &ledger, Duration::from_secs(2));
        let words = table.lines().nth(1).unwrap().split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut later = process(1200, 1_601_000);
    later.snapshot.by_reason[0] = 200;
    assert_eq!(
        rates_of(process(400, 1000), later),
        [
            "ng?[2Jinx",
            "0",
            "1",
            "400",
            "80",
            "%",
            "4.00",
            "2.0",
            "100",
            "0",
            "1"
        ]
    );
    // Another process with the same number starts from nothing.
    let mut earlier = process(400, 1000);
    earlier.snapshot.started = 4;
    assert_eq!(rates_of(earlier, process(1200, 0))[3], "600");
    let idle = rates_of(process(4, 0), process(4, 0));
    assert_eq!(idle[3..5], ["0", "-"]);
}
