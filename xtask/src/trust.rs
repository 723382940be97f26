//! `cargo xtask trust`: renders the record in docs/trust.md. The claims there are written by hand;
//! each names nightly checks that exist.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::command::{Failure, Outcome, on, root};
use crate::nightly::CHECKS;
use crate::record::{self, Record};
use crate::sources;

/// The text below is rendered.
const HEADING: &str = "\n## The record\n";

const ABOUT: &str = "
Cases and hours are sums over all runs; a fuzzer's hours are CPU time. Findings are those of
the commit that is named. The column `sources` compares the sources that the last run tried with
the sources of this page: a row that says `earlier` ran on sources that have changed since, and its
date says how old it is. A check has a row for each CPU, and the first says what it does.

| check | what it does | cases | findings | hours | last run | sources | CPU | commit |
|---|---|---|---|---|---|---|---|---|
";

/// The page, whose claims are kept.
fn render(page: &str, record: &Record) -> Outcome<String> {
    let (claims, _) = page
        .split_once(HEADING)
        .ok_or_else(|| Failure::new(format!("docs/trust.md has no {:?}", HEADING.trim())))?;
    let mut page = [claims, HEADING, ABOUT].concat();
    for check in CHECKS {
        let (name, about) = (check.name, check.about);
        let today = sources::hash(check.sources)?;
        if record.of(name).next().is_none() {
            let _ = writeln!(
                page,
                "| `{name}` | {about} | | | | no run is recorded | | | |"
            );
        }
        for (index, (cpu, entry)) in record.of(name).enumerate() {
            let about = if index == 0 { about } else { "" };
            let age = match entry.sources == today {
                true => "as they are",
                false => "earlier",
            };
            let commit = match entry.commit.as_str() {
                "" => "lost",
                commit => commit,
            };
            let _ = writeln!(
                page,
                "| `{name}` | {about} | {} | {} | {:.1} | {} | {age} | {cpu} | {commit} |",
                entry.cases, entry.findings, entry.hours, entry.date,
            );
        }
    }
    Ok(page)
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
    use crate::command::quietly;

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
