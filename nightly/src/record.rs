//! The record of the nightly checks: one entry for each check and kind of CPU.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::json;
use xtask::command::{Failure, Outcome, on, quietly, root, target_directory};
use xtask::work::Work;

/// The record of this working tree, which the next run goes on from.
pub fn working_file() -> PathBuf {
    target_directory().join("nightly").join("record.json")
}

/// The record in the repository.
pub fn published_file() -> PathBuf {
    root().join("docs/trust/record.json")
}

/// The runs of one check on one kind of CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Over all runs.
    pub cases: u64,
    /// Over all runs.
    pub hours: f64,
    /// In the runs of the newest commit: findings of an older one may be mended.
    pub findings: u64,
    /// Where the next run goes on.
    pub next: u64,
    /// Of the last run.
    pub date: String,
    /// Of the last run; ends in `+` if the working tree differed from it. Empty if it is lost.
    pub commit: String,
    /// Hash of the sources that the last run tried; empty in records before 2026-11-28.
    #[serde(default)]
    pub sources: String,
    /// Of the last run.
    pub note: String,
}

/// An entry as the file has it.
#[derive(Serialize, Deserialize)]
struct Line {
    check: String,
    cpu: String,
    #[serde(flatten)]
    entry: Entry,
}

/// All entries, by check and CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    entries: BTreeMap<(String, String), Entry>,
}

/// The machine and the commit of a run.
pub struct Machine {
    /// Its name, family and model.
    pub cpu: String,
    /// The day, in UTC.
    pub date: String,
    /// The start of its hash; ends in `+` if the working tree differs from it.
    pub commit: String,
}

impl Machine {
    /// This machine today, and the commit of this working tree.
    pub fn here() -> Outcome<Machine> {
        let path = Path::new("/proc/cpuinfo");
        let text = fs::read_to_string(path).map_err(on(path, "read"))?;
        let git =
            |arguments: &[&str]| quietly(Command::new("git").arg("-C").arg(root()).args(arguments));
        // Changes that are not committed belong to the name, except in pages and records.
        let status = [
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            ".",
            ":!docs",
        ];
        let changed = match git(&status)?.is_empty() {
            true => "",
            false => "+",
        };
        let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
        Ok(Machine {
            cpu: cpu(&text),
            date: quietly(Command::new("date").args(["-u", "+%F"]))?
                .trim()
                .to_owned(),
            commit: format!("{}{changed}", commit.trim()),
        })
    }
}

/// The name of the CPU with its family and model: virtual machines often hide the rest.
fn cpu(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map_or("unknown", |(_, value)| value.trim())
    };
    format!(
        "{}, family {} model {}",
        field("model name"),
        field("cpu family"),
        field("model")
    )
}

impl Record {
    /// Reads a record; an absent file is an empty one.
    pub fn load(path: &Path) -> Outcome<Record> {
        if !path.exists() {
            return Ok(Record::default());
        }
        let text = fs::read_to_string(path).map_err(on(path, "read"))?;
        Record::parse(&text).ok_or_else(|| {
            Failure::new(format!(
                "{} is no record of the nightly checks",
                path.display()
            ))
            .remedy("move it away, or restore it from git")
        })
    }

    /// The record that the next run adds to: this working tree's, or in a fresh clone the
    /// repository's.
    pub fn resume() -> Outcome<Record> {
        let working = working_file();
        Record::load(&match working.exists() {
            true => working,
            false => published_file(),
        })
    }

    fn parse(text: &str) -> Option<Record> {
        let lines: Vec<Line> = serde_json::from_str(text).ok()?;
        let entries = lines
            .into_iter()
            .map(|Line { check, cpu, entry }| ((check, cpu), entry));
        let entries = entries.collect();
        Some(Record { entries })
    }

    /// Writes it, in whole or not at all.
    pub fn store(&self, path: &Path) -> Outcome {
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).map_err(on(directory, "create"))?;
        let fresh = path.with_extension("new");
        fs::write(&fresh, self.render()).map_err(on(&fresh, "write"))?;
        fs::rename(&fresh, path).map_err(on(path, "replace"))
    }

    fn render(&self) -> String {
        let lines = self.entries.iter().map(|((check, cpu), entry)| Line {
            check: check.clone(),
            cpu: cpu.clone(),
            entry: Entry {
                hours: (entry.hours * 1e4).round() / 1e4,
                ..entry.clone()
            },
        });
        let lines: Vec<Line> = lines.collect();
        format!("{:#}\n", json!(lines))
    }

    /// The entry of a check on a kind of CPU.
    pub fn entry(&self, check: &str, cpu: &str) -> Option<&Entry> {
        self.entries.get(&(check.to_owned(), cpu.to_owned()))
    }

    /// The entries of a check, with their CPUs.
    pub fn of(&self, check: &str) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries
            .iter()
            .filter(move |((name, _), _)| name == check)
            .map(|((_, cpu), entry)| (cpu.as_str(), entry))
    }

    /// Adds a run on sources of this hash.
    pub fn add(&mut self, check: &str, machine: &Machine, sources: &str, work: &Work, hours: f64) {
        let key = (check.to_owned(), machine.cpu.clone());
        let entry = self.entries.entry(key).or_default();
        if entry.commit != machine.commit {
            entry.findings = 0;
        }
        entry.cases += work.cases;
        entry.findings += work.findings;
        entry.hours += hours;
        entry.next = work.next;
        entry.date.clone_from(&machine.date);
        entry.commit.clone_from(&machine.commit);
        sources.clone_into(&mut entry.sources);
        entry.note.clone_from(&work.note);
    }

    /// The checks whose last run tried sources that were not committed.
    pub fn of_changed_trees(&self) -> impl Iterator<Item = &str> {
        let changed = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.commit.ends_with('+'));
        changed.map(|((check, _), _)| check.as_str())
    }

    /// Takes the entries of another record over its own.
    pub fn merge(&mut self, newer: Record) {
        self.entries.extend(newer.entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cpu: &str, commit: &str) -> Machine {
        Machine {
            cpu: cpu.to_owned(),
            date: "2026-11-22".to_owned(),
            commit: commit.to_owned(),
        }
    }

    fn work(cases: u64, findings: u64, next: u64) -> Work {
        Work {
            cases,
            findings,
            next,
            note: "a \"note\"".to_owned(),
            ..Work::default()
        }
    }

    #[test]
    fn runs_add_up_and_findings_belong_to_a_commit() {
        let mut record = Record::default();
        record.add("one", &machine("a", "1"), "", &work(10, 2, 10), 0.5);
        record.add("one", &machine("a", "1"), "", &work(10, 1, 20), 0.5);
        record.add("one", &machine("b", "1"), "", &work(3, 0, 3), 0.1);
        let entry = record.entry("one", "a").unwrap().clone();
        assert_eq!((entry.cases, entry.findings, entry.next), (20, 3, 20));
        record.add("one", &machine("a", "2"), "", &work(1, 0, 21), 0.5);
        let entry = record.entry("one", "a").unwrap().clone();
        assert_eq!((entry.cases, entry.findings, entry.hours), (21, 0, 1.5));
        assert_eq!(record.of("one").count(), 2);
    }

    #[test]
    fn a_record_survives_its_file() {
        let mut record = Record::default();
        record.add("one", &machine("a", "1"), "", &work(10, 2, 10), 0.25);
        record.add("two", &machine("a", "1"), "", &work(1, 0, 0), 2.0);
        assert_eq!(Record::parse(&record.render()), Some(record));
        assert_eq!(Record::parse("[{\"check\": \"one\"}]"), None);
    }

    #[test]
    fn a_newer_record_replaces_only_its_own_entries() {
        let (mut old, mut new) = (Record::default(), Record::default());
        old.add("one", &machine("a", "1"), "", &work(10, 0, 10), 0.25);
        old.add("one", &machine("b", "1"), "", &work(5, 0, 5), 0.25);
        new.add("one", &machine("a", "2"), "", &work(12, 0, 12), 0.25);
        old.merge(new);
        assert_eq!(old.entry("one", "a").unwrap().cases, 12);
        assert_eq!(old.entry("one", "b").unwrap().cases, 5);
    }

    #[test]
    fn a_cpu_is_named_with_family_and_model() {
        let text = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu(text), "AMD EPYC, family 25 model 17");
    }
}
