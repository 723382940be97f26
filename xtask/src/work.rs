//! The task of a long check, and its answer.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{Failure, Outcome, cannot_run};

/// The task of a check.
pub struct Share {
    /// How long it may work.
    pub time: Duration,
    /// Where it stopped the last time on this kind of CPU: an index, a seed, as the check likes.
    pub next: u64,
    /// A directory of its own that outlives the run, for a corpus or scratch files.
    pub directory: PathBuf,
}

/// The result of a check.
pub enum Ran {
    /// It ran.
    Worked(Work),
    /// This machine lacks something: the missing thing, and its remedy.
    Skipped(String),
}

impl Ran {
    /// The same, for a test: findings, which were printed, are a failure.
    pub fn or_fail(self, how: &str) -> Outcome<Ran> {
        match self {
            Ran::Worked(Work { findings: 1.., .. }) => Err(Failure::new(how)),
            ran => Ok(ran),
        }
    }

    /// The line that [`reported`] reads.
    pub fn report(&self) -> String {
        match self {
            Ran::Skipped(reason) => format!("{REPORT}skipped {reason}"),
            Ran::Worked(work) => format!(
                "{REPORT}cases {} findings {} next {} note {}",
                work.cases, work.findings, work.next, work.note
            ),
        }
    }
}

/// The counts of one run of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Cases that were tried.
    pub cases: u64,
    /// Cases that failed, and other defects that were found.
    pub findings: u64,
    /// Where the next run goes on.
    pub next: u64,
    /// The time that counts, if that is less than has gone by: a fuzzer that shares its cores does
    /// less in an hour.
    pub time: Option<Duration>,
    /// A note beside the counts, in a few words.
    pub note: String,
}

/// Runs a program that is a check, and reads its counts.
///
/// It finds its share in `NIGHTLY_SECONDS`, `NIGHTLY_NEXT` and `NIGHTLY_DIRECTORY`, and reports as
/// [`reported`] says.
pub fn program(command: &mut Command, share: &Share) -> Outcome<Ran> {
    command
        .env("NIGHTLY_SECONDS", share.time.as_secs().to_string())
        .env("NIGHTLY_NEXT", share.next.to_string())
        .env("NIGHTLY_DIRECTORY", &share.directory);
    reported(command)
}

/// Runs a program, and reads the counts that it reports.
///
/// The last line of its output that begins with `nightly:` is its report: `nightly: cases 100
/// findings 0 next 100 note anything`, or `nightly: skipped anything`. All other lines go to the
/// terminal, as they come.
pub fn reported(command: &mut Command) -> Outcome<Ran> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| cannot_run(command, &error))?;
    let mut report = None;
    let stdout = child.stdout.take().into_iter();
    for line in stdout.flat_map(|stdout| BufReader::new(stdout).split(b'\n').map_while(Result::ok))
    {
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix(REPORT) {
            Some(line) => report = Some(line.to_owned()),
            None => println!("{line}"),
        }
    }
    let status = child.wait().map_err(|error| cannot_run(command, &error))?;
    let ended = |how: &str| {
        let program = command.get_program();
        Failure::new(format!("{program:?} ended ({status}) {how}"))
    };
    match report.as_deref().map(parse_report).transpose()? {
        None => Err(ended("without a report")),
        // It may have crashed, or a sanitizer may have found something at its end.
        Some(Ran::Worked(Work { findings: 0, .. })) if !status.success() => {
            Err(ended("after a report without findings"))
        }
        Some(ran) => Ok(ran),
    }
}

/// The start of a report.
const REPORT: &str = "nightly: ";

fn parse_report(line: &str) -> Outcome<Ran> {
    if let Some(reason) = line.strip_prefix("skipped ") {
        return Ok(Ran::Skipped(reason.to_owned()));
    }
    let (counts, note) = line.split_once(" note ").unwrap_or((line, ""));
    let mut work = Work {
        note: note.to_owned(),
        ..Work::default()
    };
    let words: Vec<&str> = counts.split_whitespace().collect();
    let bad = || Failure::new(format!("a check reported {line:?}, which cannot be read"));
    for pair in words.chunks(2) {
        let [name, value] = pair else {
            return Err(bad());
        };
        let value = value.parse().map_err(|_| bad())?;
        match *name {
            "cases" => work.cases = value,
            "findings" => work.findings = value,
            "next" => work.next = value,
            _ => return Err(bad()),
        }
    }
    Ok(Ran::Worked(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_after_its_report_does_not_pass() {
        let ran = |script: &str| {
            let share = Share {
                time: Duration::from_secs(1),
                next: 0,
                directory: PathBuf::new(),
            };
            program(Command::new("sh").args(["-c", script]), &share)
        };
        let report = "echo nightly: cases 1 findings";
        assert!(ran(&format!("{report} 0")).is_ok());
        assert!(ran(&format!("{report} 1; exit 1")).is_ok());
        assert!(ran("echo nightly: skipped no fuel; exit 1").is_ok());
        assert!(ran(&format!("{report} 0; kill -ABRT $$")).is_err());
        assert!(ran("true").is_err());
    }

    #[test]
    fn a_report_is_read() {
        let Ok(Ran::Worked(work)) = parse_report("cases 12 findings 1 next 40 note a note of it")
        else {
            panic!("not read");
        };
        assert_eq!((work.cases, work.findings, work.next), (12, 1, 40));
        assert_eq!(work.note, "a note of it");
        assert!(
            matches!(parse_report("skipped no fuel"), Ok(Ran::Skipped(why)) if why == "no fuel")
        );
        let written = Ran::Worked(work.clone()).report();
        let line = written.strip_prefix(REPORT).unwrap();
        assert!(matches!(parse_report(line), Ok(Ran::Worked(read)) if read == work));
        assert!(parse_report("cases twelve").is_err());
        assert!(parse_report("cases").is_err());
        assert!(parse_report("cheeses 1").is_err());
    }
}
