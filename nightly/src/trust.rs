//! `cargo xtask trust`: renders the record in docs/trust.md. The claims there are written by hand;
//! each names nightly checks that exist.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use xtask::command::{Failure, Outcome, on, root};

use crate::checks::CHECKS;
use crate::figures::record::{full_name, short_name};
use crate::record::{self, Entry, Record};

/// The text below is rendered.
const HEADING: &str = "\n## The record\n";

const ABOUT: &str = "
Cases and hours are sums over all runs; a fuzzer's hours are CPU time. The last column has the day
and the commit of the last run on each CPU. A run tried the sources of its commit, not later ones.
[record.json](trust/record.json) has the sums of each CPU.

| check | what it does | cases | findings | hours | last runs |
|---|---|---|---|---|---|
";

/// The page, whose claims are kept.
fn render(page: &str, record: &Record) -> Outcome<String> {
    let (claims, _) = page
        .split_once(HEADING)
        .ok_or_else(|| Failure::new(format!("docs/trust.md has no {:?}", HEADING.trim())))?;
    let mut page = [claims, HEADING, ABOUT].concat();
    for check in CHECKS {
        let entries: Vec<_> = record.of(check.name).collect();
        let sums = match entries.is_empty() {
            true => "| |".to_owned(),
            false => {
                let cases: u64 = entries.iter().map(|(_, entry)| entry.cases).sum();
                let findings: u64 = entries.iter().map(|(_, entry)| entry.findings).sum();
                let hours: f64 = entries.iter().map(|(_, entry)| entry.hours).sum();
                format!("{cases} | {findings} | {hours:.1}")
            }
        };
        let runs: Vec<String> = entries
            .iter()
            .map(|(cpu, entry)| last_run(cpu, entry))
            .collect();
        let runs = match runs.is_empty() {
            true => "no run is recorded".to_owned(),
            false => runs.join("; "),
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {sums} | {runs} |",
            check.name, check.about
        );
    }
    Ok(page)
}

/// The CPU as people call it, or else as the system does, the day and the commit.
fn last_run(cpu: &str, entry: &Entry) -> String {
    let cpu = full_name(&short_name(cpu)).unwrap_or(cpu);
    let commit = match entry.commit.as_str() {
        "" => "a lost commit",
        commit => commit,
    };
    format!("{cpu} {} {commit}", entry.date)
}

fn page() -> PathBuf {
    root().join("docs/trust.md")
}

/// Renders the page from the record in the repository.
pub fn write() -> Outcome {
    let path = page();
    let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
    let text = render(&text, &Record::load(&record::published_file())?)?;
    fs::write(&path, text).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    Ok(())
}

/// Copies the sums of this working tree's runs into the repository and renders the page.
///
/// Entries of other CPUs that are there already stay.
pub fn publish() -> Outcome {
    let mut published = Record::load(&record::published_file())?;
    let working = Record::load(&record::working_file())?;
    if let Some(check) = working.of_changed_trees().next() {
        return Err(Failure::new(format!(
            "the last run of `{check}` was of sources that were not committed"
        ))
        .remedy(format!("commit them, then: cargo xtask nightly {check}")));
    }
    published.merge(working);
    published.store(&record::published_file())?;
    println!("{}", record::published_file().display());
    write()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use xtask::command::quietly;

    #[test]
    fn the_page_is_what_the_record_renders() {
        let page = fs::read_to_string(page()).unwrap();
        let rendered = render(&page, &Record::load(&record::published_file()).unwrap());
        assert!(
            page == rendered.unwrap(),
            "docs/trust.md is stale: run `cargo xtask trust`"
        );
        assert!(render("no heading", &Record::default()).is_err());
    }

    #[test]
    fn a_run_has_its_cpu_its_day_and_its_commit() {
        let mut entry = Entry {
            date: "2026-11-22".to_owned(),
            commit: "f980bf850f".to_owned(),
            ..Entry::default()
        };
        let zen4 = "AMD EPYC, family 25 model 17";
        let of = last_run(zen4, &entry);
        assert_eq!(of, "AMD EPYC (Zen 4) 2026-11-22 f980bf850f");
        entry.commit.clear();
        let of = last_run("Intel Xeon, family 6 model 1", &entry);
        assert_eq!(of, "Intel Xeon, family 6 model 1 2026-11-22 a lost commit");
    }

    /// A commit that nobody has stands for no code.
    #[test]
    fn the_record_names_commits_that_exist() {
        let record = Record::load(&record::published_file()).unwrap();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            quietly(git.arg("-C").arg(root()).args(arguments))
        };
        if !git(&["rev-parse", "--is-shallow-repository"]).is_ok_and(|is| is.trim() == "false") {
            println!("skipped: this clone has no history");
            return;
        }
        for commit in CHECKS.iter().flat_map(|check| record.of(check.name)) {
            let commit = commit.1.commit.as_str();
            let object = format!("{commit}^{{commit}}");
            let is_there = git(&["cat-file", "-e", &object]).is_ok();
            assert!(commit.is_empty() || is_there, "no commit {commit}");
        }
        assert!(
            git(&["cat-file", "-e", "75a5616711^{commit}"]).is_err(),
            "finds all"
        );
    }

    /// Checks that show a claim stand first in its second column, each in code type.
    #[test]
    fn claims_name_checks_that_ran() {
        let page = fs::read_to_string(page()).unwrap();
        let record = Record::load(&record::published_file()).unwrap();
        let (claims, _) = page.split_once(HEADING).unwrap();
        let mut named = 0;
        for row in claims.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let shown = row.split(" | ").nth(1).unwrap();
            let names = shown
                .split(", ")
                .map_while(|part| part.strip_prefix('`')?.strip_suffix('`'));
            for name in names {
                assert!(CHECKS.iter().any(|check| check.name == name), "{name}");
                assert!(record.of(name).count() > 0, "no run of {name} is recorded");
                named += 1;
            }
        }
        assert!(named >= 15, "{named}");
    }
}
