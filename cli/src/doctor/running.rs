//! Doctor's findings in the counters of the processes that run.

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_common::Failure;
use lockstep_engine::{ProcessStats, Published, read_default_stats, read_published, version};

use super::finding::{Finding, Verdict, advice};
use crate::stat::printable;
use crate::warnings::{About, Warning, warnings};

/// Maximum number of findings about processes of root and of the asking user, and of findings about
/// all other users' processes.
const MOST: usize = 10;
/// Maximum number of findings about processes of one other user.
const MOST_OF_ONE: usize = 2;

/// Owner of a process's counters, in the order of trust.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// Root, or the user who asks.
    Trusted,
    /// Another user, whose process this program sees running.
    Seen,
    /// Another user, for a process in another PID namespace. Any user can write counters of
    /// processes that do not exist.
    Unseen,
}

impl Source {
    fn of(process: &ProcessStats, asker: u32) -> Source {
        match process.user {
            user if user == 0 || user == asker => Source::Trusted,
            _ if process.alive => Source::Seen,
            _ => Source::Unseen,
        }
    }
}

/// Reads the counters in the default places and in these directories.
pub fn published<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Published {
    let mut found = read_default_stats();
    // Another check reports problems with a directory.
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

/// Removes duplicates: a directory may have been read twice. Any user can write a file about any
/// process of another PID namespace, so entries of two users never belong to one process.
fn keep_one_of_each(processes: &mut Vec<ProcessStats>) {
    let key = |process: &ProcessStats| {
        let started = process.snapshot.started;
        (process.pid, process.user, process.elsewhere, started)
    };
    processes.sort_by_key(key);
    processes.dedup_by_key(|process| key(process));
}

/// Findings that need attention, for this user; failed checks and settings without effect come
/// first.
///
/// No entry of one user displaces entries of another user. Only processes of root and of the asking
/// user can make doctor fail.
pub fn findings(found: &Published, asker: u32) -> Vec<Finding> {
    let all = found.processes.iter().flat_map(|process| {
        let all = warnings(&process.snapshot).into_iter();
        all.map(move |warning| (process, warning))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(process, warning)| {
        let source = Source::of(process, asker);
        let is_check = warning.about == About::Checks;
        let is_setting = warning.about == About::Settings;
        (!is_check, !is_setting, source, !process.alive, process.user)
    });
    let (mut of_trusted, mut of_others, mut of_each) = (0, 0, BTreeMap::new());
    let (mut shown, mut left_out) = (Vec::new(), 0);
    for (process, warning) in all {
        let source = Source::of(process, asker);
        let fits = match source {
            Source::Trusted => take_one([(&mut of_trusted, MOST)]),
            Source::Seen | Source::Unseen => {
                let of_one = of_each.entry(process.user).or_insert(0);
                take_one([(of_one, MOST_OF_ONE), (&mut of_others, MOST)])
            }
        };
        match fits {
            true => shown.push(finding(process, source, warning)),
            false => left_out += 1,
        }
    }
    let mut findings = Vec::new();
    let is_failed_check =
        |own: &Finding| own.check == About::Checks.name() && own.verdict == Verdict::Failed;
    if !shown.iter().any(is_failed_check) {
        findings.push(no_failed_check(found, asker));
    }
    findings.append(&mut shown);
    findings.extend(other_builds(found, &version()));
    if left_out > 0 {
        let what = format!("there are {left_out} more such findings about running processes");
        let remedy = "lockstep stat shows all of them";
        findings.push(advice("processes", what, remedy));
    }
    findings
}

/// Counts one more, unless one of these counts is at its bound.
fn take_one<const N: usize>(mut counts: [(&mut usize, usize); N]) -> bool {
    let fits = counts.iter().all(|(count, most)| **count < *most);
    if fits {
        counts.iter_mut().for_each(|(count, _)| **count += 1);
    }
    fits
}

fn finding(process: &ProcessStats, source: Source, warning: Warning) -> Finding {
    let ProcessStats { pid, user, .. } = process;
    let Warning {
        about,
        mut what,
        mut remedy,
    } = warning;
    let verdict = match about {
        About::Checks | About::Settings | About::Keys if source == Source::Trusted => {
            Verdict::Failed
        }
        About::Checks | About::Settings | About::Jobs | About::Memory | About::Keys => {
            Verdict::Warning
        }
    };
    let of_user = match source {
        Source::Seen => format!(" of user {user}"),
        // Root and the asking user are not named, and the name of an unseen process has its user.
        Source::Trusted | Source::Unseen => String::new(),
    };
    if source == Source::Unseen {
        what.push_str(&format!(
            ". Only a file of user {user} says so, and its process is not seen here"
        ));
        remedy = format!(
            "run `lockstep doctor` in that PID namespace, as that user; if it finds the same, \
             {remedy}"
        );
    }
    let what = format!("{} (process {pid}{of_user}): {what}", printable(process));
    Finding::of(about.name(), verdict, Failure::new(what).remedy(remedy))
}

/// Names processes that have another build than this program, whose build is `own`.
fn other_builds(found: &Published, own: &str) -> Option<Finding> {
    let seen = found.processes.iter().filter(|process| process.alive);
    let others = seen.filter(|process| process.snapshot.version != own);
    let others: Vec<String> = others
        .map(|other| {
            format!(
                "{} ({}): {}",
                printable(other),
                other.pid,
                other.snapshot.version
            )
        })
        .collect();
    // A build from source has no number to compare.
    (!others.is_empty() && !own.ends_with("+source")).then(|| {
        let what = format!(
            "{} of the running processes have another build of lockstep than this program ({own}): \
             {}",
            others.len(),
            others[..others.len().min(MOST)].join(", ")
        );
        let remedy = "reload HAProxy, restart other servers and the key daemon";
        advice("builds", what, remedy)
    })
}

/// Describes the running processes, if none of root or of the asking user reports a failed check.
/// Processes of other users that report one are not counted.
fn no_failed_check(found: &Published, asker: u32) -> Finding {
    let is_alleged = |process: &&ProcessStats| {
        process.snapshot.failed_checks > 0 && Source::of(process, asker) != Source::Trusted
    };
    let alleged = found.processes.iter().filter(is_alleged).count();
    let good = found.processes.len() - alleged;
    let mut what = match good {
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
    let verdict = match good {
        1.. if all_read => Verdict::Good,
        _ => Verdict::Note,
    };
    Finding::with(About::Checks.name(), verdict, (what, remedy))
}

#[cfg(test)]
mod tests {
    use lockstep_engine::Snapshot;

    use super::*;

    const ASKER: u32 = 1000;

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

    #[test]
    fn processes_of_another_build_are_named() {
        let of = |version: &str| {
            let version = version.to_owned();
            process(
                7,
                Snapshot {
                    version,
                    ..Snapshot::default()
                },
            )
        };
        let processes = vec![of("0.2.0+a.20261128"), of("0.2.0+b.20261129")];
        let found = Published {
            processes,
            ..Published::default()
        };
        let said = other_builds(&found, "0.2.0+b.20261129").unwrap();
        let what = "1 of the running processes have another build of lockstep than this program \
                    (0.2.0+b.20261129): ng?inx (7): 0.2.0+a.20261128";
        assert_eq!((said.what.as_str(), said.verdict), (what, Verdict::Note));
        assert!(other_builds(&found, "0.2.0+source").is_none());
    }

    fn found(processes: Vec<ProcessStats>) -> Vec<(&'static str, Verdict, String)> {
        let published = Published {
            processes,
            ..Published::default()
        };
        let findings = findings(&published, ASKER).into_iter();
        findings
            .map(|own| (own.check, own.verdict, own.what))
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

    /// A report by another user alone is a warning.
    #[test]
    fn a_setting_without_effect_is_a_failure() {
        let mistaken = Snapshot {
            mistakes: "slots is 'many'".to_owned(),
            ..Snapshot::default()
        };
        let of_stranger = ProcessStats {
            snapshot: mistaken.clone(),
            ..there(8, 999, 0)
        };
        let all = found(vec![process(7, mistaken), of_stranger]);
        let seen: Vec<_> = all
            .iter()
            .map(|(check, verdict, _)| (*check, *verdict))
            .collect();
        let expected = [
            ("checks", Verdict::Good),
            ("settings", Verdict::Failed),
            ("settings", Verdict::Warning),
        ];
        assert_eq!(seen, expected, "{all:?}");
        assert!(
            all[1].2.contains("process 7): settings with mistakes"),
            "{all:?}"
        );
        assert!(all[1].2.ends_with(": slots is 'many'"), "{all:?}");
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
        let first = |published| findings(published, ASKER).remove(0);
        let Finding {
            verdict,
            what,
            remedy,
            ..
        } = first(&cut_off);
        assert!(verdict == Verdict::Note && remedy.is_some());
        assert!(what.contains("more files of counters"), "{what}");
        let Finding {
            verdict,
            what,
            remedy,
            ..
        } = first(&published);
        assert!(verdict == Verdict::Note && remedy.is_some());
        for part in [
            "processes of other users",
            "2 files of counters are of another",
        ] {
            assert!(what.contains(part), "{what}");
        }
    }

    fn failing(failed_checks: u64) -> Snapshot {
        Snapshot {
            failed_checks,
            ..Snapshot::default()
        }
    }

    /// A process of this user in another PID namespace.
    fn there(pid: u32, user: u32, failed_checks: u64) -> ProcessStats {
        ProcessStats {
            user,
            name: None,
            alive: false,
            elsewhere: Some(4_026_531_836),
            ..process(pid, failing(failed_checks))
        }
    }

    #[test]
    fn no_entry_of_a_user_hides_a_failed_check_of_another() {
        let mut all = vec![
            there(7, 999, 0),
            there(7, ASKER, 3),
            there(7, 1001, 0),
            there(7, ASKER, 3),
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
    fn many_entries_of_a_user_displace_those_of_no_other() {
        let seen = ProcessStats {
            user: 33,
            ..process(5000, failing(1))
        };
        let mut all: Vec<_> = (1..100).map(|pid| there(pid, 999, 1)).collect();
        all.extend([there(4000, 1002, 1), seen, process(6000, failing(1))]);
        let findings = found(all);
        let starts = [
            "ng?inx (process 6000): 1 result",
            "ng?inx (process 5000 of user 33): 1 result",
            "(of user 999 in another PID namespace, may have ended) (process 1): 1",
            "(of user 999 in another PID namespace, may have ended) (process 2): 1",
            "(of user 1002 in another PID namespace, may have ended) (process 4000): 1",
            "there are 97 more",
        ];
        assert_eq!(findings.len(), starts.len(), "{findings:?}");
        for (finding, start) in findings.iter().zip(starts) {
            assert!(finding.2.starts_with(start), "{findings:?}");
        }
    }

    #[test]
    fn the_word_of_a_stranger_alone_is_no_failure() {
        let good = ProcessStats {
            user: 33,
            ..process(7, Snapshot::default())
        };
        let findings = found(vec![there(1, 999, 1), good.clone()]);
        let verdicts: Vec<_> = findings.iter().map(|finding| finding.1).collect();
        assert_eq!(verdicts, [Verdict::Good, Verdict::Warning], "{findings:?}");
        let starts = ["one running process uses", "(of user 999 in another"];
        assert!(findings[0].2.starts_with(starts[0]), "{findings:?}");
        assert!(findings[1].2.starts_with(starts[1]), "{findings:?}");
        assert!(findings[1].2.contains("Only a file of user 999 says so"));
        // Any user can also write such counters for a running process.
        let failing = ProcessStats {
            snapshot: failing(1),
            ..good
        };
        let findings = found(vec![failing]);
        let verdicts: Vec<_> = findings.iter().map(|finding| finding.1).collect();
        assert_eq!(verdicts, [Verdict::Note, Verdict::Warning], "{findings:?}");
    }

    #[test]
    fn there_is_an_end_to_the_findings() {
        let all = found((0..100).map(|pid| process(pid, failing(1))).collect());
        assert_eq!(all.len(), MOST + 1);
        assert!(all[MOST].2.starts_with("there are 90 more"), "{all:?}");
        let of_strangers = found((1..100).map(|user| there(7, 2000 + user, 1)).collect());
        assert_eq!(of_strangers.len(), 1 + MOST + 1, "{of_strangers:?}");
    }
}
