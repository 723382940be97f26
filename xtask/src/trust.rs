//! `cargo xtask trust`: renders the record in docs/trust.md. The claims there are written by hand;
//! each names nightly checks that exist.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::command::{Failure, Outcome, on, root};
use crate::nightly::CHECKS;
use crate::record::{self, Record};

/// What follows this is rendered.
const HEADING: &str = "\n## The record\n";

const ABOUT: &str = "
Cases and hours are sums over all runs; a fuzzer's hours are CPU time. Findings are those of
the commit that is named.

| check | what it does | cases | findings | hours | last run | CPU | commit |
|---|---|---|---|---|---|---|---|
";

/// The page, whose claims are kept.
fn render(page: &str, record: &Record) -> Outcome<String> {
    let (claims, _) = page
        .split_once(HEADING)
        .ok_or_else(|| Failure::new(format!("docs/trust.md has no {:?}", HEADING.trim())))?;
    let mut page = [claims, HEADING, ABOUT].concat();
    for check in CHECKS {
        let (name, about) = (check.name, check.about);
        let mut seen = false;
        for (cpu, entry) in record.of(name) {
            seen = true;
            let _ = writeln!(
                page,
                "| `{name}` | {about} | {} | {} | {:.1} | {} | {cpu} | {} |",
                entry.cases, entry.findings, entry.hours, entry.date, entry.commit,
            );
        }
        if !seen {
            let _ = writeln!(page, "| `{name}` | {about} | | | | not recorded yet | | |");
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
    published.merge(Record::load(&record::working_file())?);
    published.store(&record::published_file())?;
    println!("{}", record::published_file().display());
    write()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Checks that show a claim stand first in its second column, each in code type.
    #[test]
    fn claims_name_checks_that_exist() {
        let page = fs::read_to_string(page()).unwrap();
        let (claims, _) = page.split_once(HEADING).unwrap();
        let mut named = 0;
        for row in claims.lines().filter(|line| line.starts_with("| ")).skip(1) {
            let shown = row.split(" | ").nth(1).unwrap();
            let names = shown
                .split(", ")
                .map_while(|part| part.strip_prefix('`')?.strip_suffix('`'));
            for name in names {
                assert!(CHECKS.iter().any(|check| check.name == name), "{name}");
                named += 1;
            }
        }
        assert!(named >= 15, "{named}");
    }
}
