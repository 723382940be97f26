//! `cargo xtask figures`: renders docs/benchmarks/README.md, and the figures of README.md and of
//! pages in docs/, from the records in docs/benchmarks/record, so that nobody types one.
//!
//! A record is a directory DATE-CPU with the output of `--json`, unedited: `speed.json`,
//! `handshakes.json` (an array with a document for each run), `costs.json`, and `run.json`, which
//! says where, when and of which commit. The newest record of each CPU counts. `ledger.json` has
//! the findings of [`mod@ledger`], or figures of other documents for a CPU that is not at hand.

mod bulk;
pub mod costs;
mod devices;
mod jobs;
mod ledger;
mod measure;
mod operations;
pub mod record;
mod scaling;
mod servers;
mod text;

use std::fs;
use std::path::PathBuf;

use xtask::command::{Outcome, on, root};
use xtask::rendered::with_part;

pub use bulk::measure as bulk;
pub use jobs::measure as jobs;
pub use ledger::run as ledger;
pub use measure::{Extent, measure, measure_further};
use record::Record;
use text::wrapped;

const INTRODUCTION: &str = "\
# Benchmarks

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->

The newest record of each CPU. The first CPU has all of its tables; [the others](#other-cpus) stand
side by side, and their records have the rest. [Method](method.md) says how figures are measured,
and what they do not show. [Arrays](bulk.md) has the library for arrays, [against
others](against-others.md) a further library, and [the lab](../lab) trials that did not pay. `cargo
xtask figures --measure` makes a record of your machine.

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
        (
            "docs/user/servers/README.md",
            servers::guide::of_guide(records),
        ),
        (
            "docs/user/servers/stunnel.md",
            servers::guide::of_stunnel(records),
        ),
    ] {
        let path = root().join(name);
        let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
        pages.push((path, with_part(&text, "cargo xtask figures", &figures)?));
    }
    pages.extend(bulk::pages(&bulk::newest()?, &kernels));
    pages.push(scaling::page(&scaling::newest()?));
    pages.push(devices::page(&devices::all()?));
    Ok(pages)
}

/// The page of all records: the newest of them with all tables, the others side by side. The
/// kernels of today are those with this hash.
fn benchmarks(records: &[Record], kernels: &str) -> String {
    let mut out = INTRODUCTION.to_owned();
    let Some((first, others)) = records.split_first() else {
        return out;
    };
    out += &format!("\n## {}\n\n", first.short_name());
    out += &about(first, kernels);
    out += &servers::sections(first);
    out += &operations::ciphers(first);
    out += &costs::section(&first.costs);
    out += &operations::rates(first);
    if !others.is_empty() {
        out += "\n## Other CPUs\n";
    }
    for record in others {
        out += &format!("\n### {}\n\n", record.short_name());
        out += &about(record, kernels);
    }
    out += &servers::side_by_side(others);
    out += &operations::side_by_side(others);
    out
}

/// The machine and the record, and what a reader should know before the figures.
fn about(record: &Record, kernels: &str) -> String {
    let (name, machine) = (&record.name, &record.speed.machine);
    let age = match record.about.kernels.as_deref() == Some(kernels) {
        true => "today's",
        false => "older",
    };
    let mut out = wrapped(&format!(
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
    out
}

#[cfg(test)]
mod tests {
    use super::record::examples::{record, run};
    use super::*;

    #[test]
    fn the_newest_record_has_all_tables_and_the_others_stand_side_by_side() {
        let of = |name: &str, server: &str| {
            let mut record = record(&[run(server, "p256", "concurrency", &[64])]);
            record.name = name.to_owned();
            record.about.load = 1.0;
            record
        };
        let records = [
            of("2026-11-26-zen5", "nginx"),
            of("2026-11-25-zen4", "apache"),
            of("2026-11-24-zen3", "nginx"),
        ];
        let page = benchmarks(&records, "");
        let places = [
            "## AMD EPYC (Zen 5)",
            "| nginx, P-256 | 1.00 | 0.50 | 50 % less | 0.90 |",
            "## Other CPUs",
            "### AMD EPYC (Zen 4)",
            "[2026-11-25-zen4](record/2026-11-25-zen4)",
            "### AMD EPYC (Zen 3)",
            "| server, key | AMD EPYC (Zen 4) | AMD EPYC (Zen 3) |",
            "| Apache, P-256 | 50 % less, 0.90 | - |",
            "| nginx, P-256 | - | 50 % less, 0.90 |",
        ]
        .map(|line| page.find(line).unwrap_or_else(|| panic!("{line}: {page}")));
        assert!(places.is_sorted(), "{page}");
        assert_eq!(page.matches("kept the machine busy").count(), 3);
        assert!(!benchmarks(&records[..1], "").contains("Other CPUs"));
        assert_eq!(benchmarks(&[], ""), INTRODUCTION);
    }

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
}
