//! `cargo xtask figures`: renders docs/benchmarks/README.md, and the figures of README.md and of
//! docs/user/servers/README.md, from the records in docs/benchmarks/record, so that nobody types
//! one.
//!
//! A record is a directory DATE-CPU with the output of `--json`, unedited: `speed.json`,
//! `handshakes.json` (an array with a document for each run), `costs.json`, and `run.json`, which
//! says where, when and of which commit. The newest record of each CPU counts. `ledger.json` has
//! the findings of [`mod@ledger`], or figures of other documents for a CPU that is not at hand.

pub mod costs;
mod jobs;
mod ledger;
mod measure;
mod operations;
pub mod record;
mod servers;
mod text;

use std::fs;
use std::path::PathBuf;

use crate::command::{Failure, Outcome, on, root};
pub use jobs::measure as jobs;
pub use ledger::run as ledger;
pub use measure::{Extent, measure, measure_further};
use operations::Price;
use record::Record;
use text::wrapped;

const BEGIN: &str = "<!-- begin: rendered by `cargo xtask figures` -->\n";
const END: &str = "<!-- end -->\n";

const INTRODUCTION: &str = "\
# Benchmarks

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->

The newest record of each CPU. [Method](method.md) says what is measured, how, and what it does not
show; [against others](against-others.md) compares with other libraries; [the lab](../lab) holds
older figures and what did not pay. `cargo xtask figures --measure` makes a record of your machine.

![Bars: the server's CPU time for one handshake with Lockstep, by OpenSSL's alone](handshakes.svg)
";

fn readme() -> PathBuf {
    root().join("README.md")
}

fn guide() -> PathBuf {
    root().join("docs/user/servers/README.md")
}

fn picture() -> PathBuf {
    root().join("docs/benchmarks/handshakes.svg")
}

/// The picture of the figures of README.md.
fn chart(records: &[Record]) -> String {
    let on_ifma = records.iter().find(|record| record.has_ifma());
    on_ifma.map_or(String::new(), servers::chart)
}

fn page() -> PathBuf {
    root().join("docs/benchmarks/README.md")
}

/// Renders all pages from the records in the repository.
pub fn write() -> Outcome {
    let records = record::newest()?;
    let path = page();
    fs::write(&path, benchmarks(&records, &operations::prices()?)?).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    let path = picture();
    fs::write(&path, chart(&records)).map_err(on(&path, "write"))?;
    for (path, figures) in [
        (readme(), of_readme(&records)?),
        (guide(), servers::of_guide(&records)),
    ] {
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        fs::write(&path, with_figures(&text, &figures)?).map_err(on(&path, "write"))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The figures of README.md.
fn of_readme(records: &[Record]) -> Outcome<String> {
    // The lanes that the README asks for.
    let on_ifma = records.iter().find(|record| record.has_ifma());
    let figures = on_ifma.map_or(String::new(), servers::of_readme);
    let coverage = wrapped(&ledger::coverage()?);
    Ok(format!("{figures}\n{coverage}"))
}

/// A page with these figures between its two marks.
fn with_figures(text: &str, figures: &str) -> Outcome<String> {
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        return Err(
            Failure::new("a page has no place for the figures").remedy(format!(
                "write the lines {} and {}",
                BEGIN.trim(),
                END.trim()
            )),
        );
    };
    Ok(format!("{before}{BEGIN}{figures}{END}{after}"))
}

/// The page of all records.
fn benchmarks(records: &[Record], prices: &[Price]) -> Outcome<String> {
    let mut out = INTRODUCTION.to_owned();
    for record in records {
        let (name, machine) = (&record.name, &record.speed.machine);
        out += &format!("\n## {}\n\n", record.short_name());
        out += &wrapped(&format!(
            "{}. {} CPUs at {:.1} GHz, lanes: {}, {}. Record: [{name}](record/{name}).",
            record.about.cpu, machine.cpus, machine.clock_ghz, machine.backend, machine.openssl,
        ));
        if record.was_busy() {
            out += "\n";
            out += &wrapped(&format!(
                "**Other programs kept the machine busy** ({:.1} of {} CPUs): these figures are \
                 low, and their ratios rough.",
                record.about.load, machine.cpus
            ));
        }
        // A user finds what is lost before what is gained.
        for losses in [costs::in_words(&record.costs), servers::losses(record)] {
            if !losses.is_empty() {
                out += "\n";
                out += &losses;
            }
        }
        out += &servers::sections(record);
        out += &operations::ciphers(record);
        out += &costs::section(&record.costs);
        out += &operations::rates(record);
        out += &jobs::section(record.short())?;
        out += &operations::per_dollar(record, prices);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_what_the_records_render() {
        let records = record::newest().unwrap();
        let stale = "is stale: run `cargo xtask figures`";
        let committed = fs::read_to_string(page()).unwrap();
        assert!(
            committed == benchmarks(&records, &operations::prices().unwrap()).unwrap(),
            "{} {stale}",
            page().display()
        );
        let committed = fs::read_to_string(picture()).unwrap();
        assert!(
            committed == chart(&records),
            "{} {stale}",
            picture().display()
        );
        for (path, figures) in [
            (readme(), of_readme(&records).unwrap()),
            (guide(), servers::of_guide(&records)),
        ] {
            let committed = fs::read_to_string(&path).unwrap();
            let rendered = with_figures(&committed, &figures).unwrap();
            assert!(committed == rendered, "{} {stale}", path.display());
        }
    }

    #[test]
    fn the_readme_shows_the_lanes_that_it_asks_for() {
        let record = |name: &str, backend: &str| {
            let mut record = Record {
                name: name.to_owned(),
                ..Record::default()
            };
            record.speed.machine.backend = backend.to_owned();
            record
        };
        let (newer, older) = (
            record("2026-11-25-zen3", "avx2"),
            record("2026-11-24-zen5", "avx512ifma"),
        );
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let figures = of_readme(&[newer, older]).unwrap();
        let rendered = with_figures(&text, &figures).unwrap();
        let shown = "latency of 64 clients, on AMD EPYC (Zen 5)\n([more]";
        assert!(rendered.contains(shown), "{rendered}");
        assert!(with_figures("no marks", "").is_err());
    }
}
