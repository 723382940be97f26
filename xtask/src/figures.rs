//! `cargo xtask figures`: renders docs/benchmarks/README.md, and the figures of README.md and of
//! pages in docs/, from the records in docs/benchmarks/record, so that nobody types one.
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
use record::Record;
use text::wrapped;

const BEGIN: &str = "<!-- begin: rendered by `cargo xtask figures` -->\n";
const END: &str = "<!-- end -->\n";

const INTRODUCTION: &str = "\
# Benchmarks

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->

The newest record of each CPU: all tables of the newest one, and the servers and operations of the
others, whose directories have the rest. [Method](method.md) says what is measured, how, and what it
does not show; [against others](against-others.md) compares with other libraries; [the lab](../lab)
holds older figures and what did not pay. `cargo xtask figures --measure` makes a record of your
machine.

![Bars: the server's CPU time for one handshake with Lockstep, by OpenSSL's alone](handshakes.svg)
";

fn picture() -> PathBuf {
    root().join("docs/benchmarks/handshakes.svg")
}

fn page() -> PathBuf {
    root().join("docs/benchmarks/README.md")
}

/// Renders all pages from the records in the repository.
pub fn write() -> Outcome {
    for (path, text) in pages(&record::newest()?)? {
        fs::write(&path, text).map_err(on(&path, "write"))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// All pages and the picture, as the records render them.
fn pages(records: &[Record]) -> Outcome<Vec<(PathBuf, String)>> {
    let kernels = ledger::kernels()?;
    let mut pages = vec![
        (page(), benchmarks(records, &kernels)),
        (picture(), servers::chart(records)),
    ];
    for (name, figures) in [
        ("README.md", servers::of_readme(records, &kernels)),
        ("docs/user/servers/README.md", servers::of_guide(records)),
        ("docs/user/servers/stunnel.md", servers::of_stunnel(records)),
    ] {
        let path = root().join(name);
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        pages.push((path, with_figures(&text, &figures)?));
    }
    Ok(pages)
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

/// The page of all records, the newest of which has all tables. The kernels of today are those
/// with this hash.
fn benchmarks(records: &[Record], kernels: &str) -> String {
    let mut out = INTRODUCTION.to_owned();
    for (place, record) in records.iter().enumerate() {
        let (name, machine) = (&record.name, &record.speed.machine);
        out += &format!("\n## {}\n\n", record.short_name());
        let age = match record.about.kernels.as_deref() == Some(kernels) {
            true => "today's",
            false => "older",
        };
        out += &wrapped(&format!(
            "{}. {} CPUs at {:.1} GHz, lanes: {}, {}. Record: [{name}](record/{name}), of {age} \
             kernels.",
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
        for losses in [
            costs::in_words(&record.costs),
            servers::losses_in_words(record),
        ] {
            if !losses.is_empty() {
                out += "\n";
                out += &losses;
            }
        }
        if place == 0 {
            out += &servers::sections(record);
            out += &operations::ciphers(record);
            out += &costs::section(&record.costs);
        } else {
            out += &servers::many_clients(record);
        }
        out += &operations::rates(record);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_what_the_records_render() {
        for (path, rendered) in pages(&record::newest().unwrap()).unwrap() {
            let committed = fs::read_to_string(&path).unwrap();
            assert!(
                committed == rendered,
                "{} is stale: run `cargo xtask figures`",
                path.display()
            );
        }
    }

    #[test]
    fn figures_stand_between_their_marks() {
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let rendered = with_figures(&text, "new\n").unwrap();
        assert_eq!(rendered, format!("before\n{BEGIN}new\n{END}after\n"));
        assert!(with_figures("no marks", "").is_err());
    }
}
