//! What doctor finds in the counters of the processes that run.

use std::path::Path;

use lockstep_engine::{ProcessStats, Published, read_default_stats, read_published};

use super::finding::{Finding, Verdict};
use crate::stat::printable;
use crate::warnings::{About, warnings};

/// The most findings about processes: enough for a start.
const MOST: usize = 10;

/// What processes publish in the default places and in these directories.
pub fn published<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Published {
    let mut found = read_default_stats();
    // Another check reports what is wrong with a directory.
    for more in directories
        .into_iter()
        .filter_map(|d| read_published(d).ok())
    {
        found.processes.extend(more.processes);
        found.other_versions += more.other_versions;
        found.cut_off |= more.cut_off;
    }
    let is_there = |process: &ProcessStats| process.alive || process.elsewhere.is_some();
    found.processes.retain(is_there);
    keep_one_of_each(&mut found.processes);
    found
}

/// A directory may have been read twice. Any user can name any process of another PID namespace, so
/// the entries of two users are never those of one process.
fn keep_one_of_each(processes: &mut Vec<ProcessStats>) {
    let key = |process: &ProcessStats| {
        let started = process.snapshot.started;
        (process.pid, process.user, process.elsewhere, started)
    };
    processes.sort_by_key(key);
    processes.dedup_by_key(|process| key(process));
}

/// What needs attention, and whether any result failed its check.
pub fn findings(found: &Published) -> Vec<Finding> {
    let of = |process: &ProcessStats| {
        let named = format!("{} (process {})", printable(process), process.pid);
        let all = warnings(&process.snapshot).into_iter();
        all.map(move |warning| (named.clone(), warning))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<_> = found.processes.iter().flat_map(of).collect();
    all.sort_by_key(|(_, warning)| warning.about != About::Checks);
    let failed = all
        .first()
        .is_some_and(|(_, warning)| warning.about == About::Checks);
    let mut findings = Vec::new();
    if !failed {
        findings.push(no_failed_check(found));
    }
    let left_out = all.len().saturating_sub(MOST);
    for (named, warning) in all.into_iter().take(MOST) {
        findings.push(Finding {
            check: warning.about.name(),
            verdict: match warning.about {
                About::Checks => Verdict::Failed,
                About::Jobs | About::Memory => Verdict::Warning,
            },
            what: format!("{named}: {}", warning.what),
            remedy: Some(warning.remedy),
        });
    }
    if left_out > 0 {
        findings.push(Finding {
            check: "processes",
            verdict: Verdict::Note,
            what: format!("there are {left_out} more such findings about running processes"),
            remedy: Some("lockstep stat shows all of them".to_owned()),
        });
    }
    findings
}

fn no_failed_check(found: &Published) -> Finding {
    let mut what = match found.processes.len() {
        0 => "no running process has used lockstep".to_owned(),
        1 => "one running process uses lockstep, and no result of it failed its check".to_owned(),
        many => {
            format!("{many} running processes use lockstep, and no result of them failed its check")
        }
    };
    if !found.unreadable.is_empty() {
        what.push_str("; the processes of other users are shown to root only");
    }
    let mut remedy = None;
    if found.other_versions > 0 {
        let files = match found.other_versions {
            1 => "1 file of counters is".to_owned(),
            many => format!("{many} files of counters are"),
        };
        what.push_str(&format!(
            "; {files} of another version of lockstep, and cannot be read"
        ));
        remedy = Some("restart the servers, or use their version of this command".to_owned());
    }
    if found.cut_off {
        what.push_str("; there are more files of counters, or processes, than are looked at");
        let look = "see who makes so many: ls -ld /dev/shm/lockstep-* /tmp/lockstep-*";
        remedy.get_or_insert(look.to_owned());
    }
    let all_read = found.other_versions == 0 && !found.cut_off;
    let verdict = match found.processes.len() {
        1.. if all_read => Verdict::Good,
        _ => Verdict::Note,
    };
    Finding {
        check: About::Checks.name(),
        verdict,
        what,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Snapshot;

    use super::*;

    fn process(pid: u32, snapshot: Snapshot) -> ProcessStats {
        ProcessStats {
            pid,
            file: String::new(),
            name: Some("ng\x1binx".to_owned()),
            user: 0,
            alive: true,
            elsewhere: None,
            snapshot,
        }
    }

    fn found(processes: Vec<ProcessStats>) -> Vec<(&'static str, Verdict, String)> {
        let published = Published {
            processes,
            ..Published::default()
        };
        let findings = findings(&published).into_iter();
        findings
            .map(|finding| (finding.check, finding.verdict, finding.what))
            .collect()
    }

    #[test]
    fn failed_checks_fail_and_jobs_warn() {
        let busy = Snapshot {
            paused: 9,
            max_async: 10,
            ..Snapshot::default()
        };
        let faulty = Snapshot {
            failed_checks: 3,
            ..busy.clone()
        };
        let all = found(vec![process(1, busy.clone()), process(2, faulty)]);
        let seen: Vec<_> = all
            .iter()
            .map(|(check, verdict, _)| (*check, *verdict))
            .collect();
        let jobs = ("jobs", Verdict::Warning);
        assert!(seen == [("checks", Verdict::Failed), jobs, jobs], "{all:?}");
        assert!(
            all[0].2.starts_with("ng?inx (process 2): 3 results failed"),
            "{all:?}"
        );
        assert!(
            all[1].2.starts_with("ng?inx (process 1): 9 of at most 10"),
            "{all:?}"
        );

        let all = found(vec![process(1, busy)]);
        assert!(all[0].0 == "checks" && all[0].1 == Verdict::Good, "{all:?}");
        assert!(all[1].0 == "jobs", "{all:?}");
        let all = found(Vec::new());
        assert!(all.len() == 1 && all[0].1 == Verdict::Note, "{all:?}");
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let published = Published {
            processes: vec![process(1, Snapshot::default())],
            other_versions: 2,
            unreadable: vec!["/dev/shm/lockstep-7".into()],
            ..Published::default()
        };
        let cut_off = Published {
            processes: vec![process(1, Snapshot::default())],
            cut_off: true,
            ..Published::default()
        };
        let found = &findings(&cut_off)[0];
        assert!(found.verdict == Verdict::Note && found.remedy.is_some());
        assert!(
            found.what.contains("more files of counters"),
            "{}",
            found.what
        );
        let found = &findings(&published)[0];
        assert!(found.verdict == Verdict::Note && found.remedy.is_some());
        for part in [
            "processes of other users",
            "2 files of counters are of another",
        ] {
            assert!(found.what.contains(part), "{}", found.what);
        }
    }

    #[test]
    fn no_entry_of_a_user_hides_a_failed_check_of_another() {
        let there = |user, failed_checks| {
            let counters = Snapshot {
                failed_checks,
                ..Snapshot::default()
            };
            ProcessStats {
                user,
                name: None,
                alive: false,
                elsewhere: Some(4_026_531_836),
                ..process(7, counters)
            }
        };
        let mut all = vec![
            there(999, 0),
            there(1000, 3),
            there(1001, 0),
            there(1000, 3),
        ];
        keep_one_of_each(&mut all);
        assert_eq!(all.len(), 3);
        let findings = found(all);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].1, Verdict::Failed);
        assert!(
            findings[0].2.contains("of user 1000 in another"),
            "{findings:?}"
        );
    }

    #[test]
    fn there_is_an_end_to_the_findings() {
        let faulty = Snapshot {
            failed_checks: 1,
            ..Snapshot::default()
        };
        let all = found((0..100).map(|pid| process(pid, faulty.clone())).collect());
        assert_eq!(all.len(), MOST + 1);
        assert!(all[MOST].2.starts_with("there are 90 more"), "{all:?}");
    }
}
