//! `cargo xtask figures`: renders docs/benchmarks/README.md and the figures of README.md from the
//! records in docs/benchmarks/record, so that nobody types one.
//!
//! A record is a directory DATE-CPU with the output of `--json`, unedited: `speed.json`,
//! `handshakes.json` (an array with a document for each run), `costs.json`, and `run.json`, which
//! says where, when and of which commit. The newest record of each CPU counts. `ledger.json` has
//! the findings of [`mod@ledger`], or figures of other documents for a CPU that is not at hand. The
//! operations that a dollar buys come from [`prices`].

pub mod costs;
mod jobs;
mod keyd;
mod ledger;
mod loads;
mod measure;
mod prices;
mod rates;
mod record;
mod text;
mod transfer;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::command::{Failure, Outcome, on, root};
pub use jobs::measure as jobs;
pub use ledger::run as ledger;
pub use measure::{Extent, measure};
use prices::Price;
use record::{Handshakes, Record, Speed};
use text::{
    curve_name, gain, key_name, milliseconds, operation_name, server_name, thousands, wrapped,
};

/// What README.md shows of servers, besides the run that gains least.
const SHOWN: &[(&str, &str)] = &[
    ("haproxy", "rsa2048"),
    ("haproxy", "rsa4096"),
    ("haproxy", "p256"),
    ("apache", "rsa2048"),
    ("stunnel", "rsa2048"),
    ("nginx", "rsa2048"),
];

const BEGIN: &str = "<!-- begin: rendered by `cargo xtask figures` -->\n";
const END: &str = "<!-- end -->\n";

const INTRODUCTION: &str = "\
# Benchmarks

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->

The newest record of each CPU. [Method](method.md) says what is measured, how, and what it does not
show; [against others](against-others.md) compares with other libraries; [the lab](../lab) holds
older figures and what did not pay. `cargo xtask figures --measure` makes a record of your machine.
";

fn readme() -> PathBuf {
    root().join("README.md")
}

fn page() -> PathBuf {
    root().join("docs/benchmarks/README.md")
}

/// Renders both pages from the records in the repository.
pub fn write() -> Outcome {
    let records = record::newest()?;
    let path = page();
    fs::write(&path, benchmarks(&records, &prices::load()?)?).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    let path = readme();
    let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
    fs::write(&path, with_figures(&text, &records)?).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    Ok(())
}

/// README.md with what stands between its two marks rendered anew.
fn with_figures(text: &str, records: &[Record]) -> Outcome<String> {
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else {
        return Err(
            Failure::new("README.md has no place for the figures").remedy(format!(
                "write the lines {} and {}",
                BEGIN.trim(),
                END.trim()
            )),
        );
    };
    // The lanes that the README asks for.
    let on_ifma = records.iter().find(|record| record.has_ifma());
    let figures = on_ifma.map_or(String::new(), servers);
    let coverage = wrapped(&ledger::coverage()?);
    Ok(format!("{before}{BEGIN}{figures}\n{coverage}{END}{after}"))
}

/// The table of README.md: servers, and what a handshake costs them.
fn servers(record: &Record) -> String {
    let least = record
        .handshakes
        .iter()
        .max_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let mut rows: Vec<&Handshakes> = SHOWN
        .iter()
        .filter_map(|(server, key)| {
            let is_it = |run: &&Handshakes| run.server == *server && run.key == *key;
            record.handshakes.iter().find(is_it)
        })
        .collect();
    if let Some(least) = least
        && !rows.iter().any(|run| std::ptr::eq(*run, least))
    {
        rows.push(least);
    }
    rows.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let mut out = wrapped(&format!(
        "{}The server's CPU time for one handshake, and the median latency of 64 clients, on {}{} \
         ([more](docs/benchmarks/README.md)):",
        in_words(record).unwrap_or_default(),
        record.short_name(),
        match record.was_busy() {
            true => ", beside other programs",
            false => "",
        }
    ));
    out += "\n";
    out += "| server, key | CPU time: OpenSSL alone | with Lockstep | factor \
            | median latency: OpenSSL alone | with Lockstep | factor |\n|---|---|---|---|---|---|---|\n";
    for run in rows {
        let factor = |ratio: f64| format!("{:.1} ×", 1.0 / ratio);
        let median = |side: usize| {
            let value = run.median.map(|both| both[side]);
            value.map_or("-".to_owned(), |value| format!("{value:.1} ms"))
        };
        let _ = writeln!(
            out,
            "| {}, {} | {} ms | {} ms | {} | {} | {} | {} |",
            server_name(&run.server),
            key_name(&run.key),
            milliseconds(run.stock),
            milliseconds(run.lockstep),
            factor(run.ratio),
            median(0),
            median(1),
            run.p50.map_or("-".to_owned(), factor),
        );
    }
    if let Some(words) = rates::in_words(&record.paced) {
        out += "\n";
        out += &wrapped(&words);
    }
    out
}

/// What it brings, in one sentence.
fn in_words(record: &Record) -> Option<String> {
    let gain = |key| {
        let is_it = |run: &&Handshakes| run.server == "haproxy" && run.key == key;
        let run = record.handshakes.iter().find(is_it)?;
        Some(gain(run.ratio))
    };
    Some(format!(
        "With HAProxy and an RSA-2048 key, Lockstep takes {} CPU per handshake than OpenSSL alone, \
         and {} with an RSA-4096 key. ",
        gain("rsa2048")?,
        gain("rsa4096")?
    ))
}

/// The page of all records.
fn benchmarks(records: &[Record], prices: &[Price]) -> Outcome<String> {
    let mut out = INTRODUCTION.to_owned();
    for record in records {
        let _ = writeln!(out, "\n## {}\n", record.short_name());
        let name = &record.name;
        out += &wrapped(&format!(
            "{}. {} CPUs at {:.1} GHz, lanes: {}, {}. Record: [{name}](record/{name}).",
            record.cpu, record.cpus, record.clock_ghz, record.backend, record.openssl,
        ));
        if record.was_busy() {
            out += "\n";
            out += &wrapped(&format!(
                "**Other programs kept the machine busy** ({:.1} of {} CPUs): these figures are \
                 low, and their ratios rough.",
                record.load, record.cpus
            ));
        }
        // A user finds what is lost before what is gained.
        for losses in [
            costs::in_words(&record.costs),
            loads::in_words(&record.loads),
        ] {
            if !losses.is_empty() {
                out += "\n";
                out += &losses;
            }
        }
        out += "\n### Servers\n\n";
        out += &wrapped(&format!(
            "{}The columns are the CPU time of the server for one handshake, what Lockstep changes \
             in it, and Lockstep's latency over OpenSSL's (p50, p99). The change is the median \
             over pairs of turns, so the two times beside it may differ by another percentage.",
            in_words(record).unwrap_or_default()
        ));
        out += "\n";
        out += "| server, key | clients | OpenSSL alone | with Lockstep | CPU per handshake | p50 | \
                p99 | requests per pass |\n|---|---|---|---|---|---|---|---|\n";
        for run in &record.handshakes {
            let _ = writeln!(
                out,
                "| {}, {} | {} | {} ms | {} ms | {} | {} | {} | {} |",
                server_name(&run.server),
                key_name(&run.key),
                run.clients,
                milliseconds(run.stock),
                milliseconds(run.lockstep),
                gain(run.ratio),
                optional(run.p50, 2),
                optional(run.p99, 2),
                optional(run.fill, 1),
            );
        }
        out += &rates::section(&record.paced);
        out += &loads::section(&record.loads);
        out += &elsewhere(&record.others);
        out += &keyd::section(&record.daemons);
        out += &transfer::section(record);
        out += &costs::section(&record.costs);
        out += "\n### Operations\n\n";
        out += &wrapped(
            "Operations per second on one core, checks included, by how many requests there are at \
             once. The factor has the most at once. In italics: figures with fewer than three \
             undisturbed slices.",
        );
        out += "\n";
        out += "| operation | OpenSSL alone | alone | 4 at once | 8 at once | 64 at once | factor |\n\
                |---|---|---|---|---|---|---|\n";
        for operation in record.operations() {
            let of = |fill| record.speed_of(operation, Some(fill));
            let stock = record.speed_of(operation, None);
            let most = of(64).or(of(8));
            let factor = most.zip(stock).map_or("-".to_owned(), |(most, stock)| {
                let factor = most.per_second / stock.per_second;
                match factor < 10.0 {
                    true => format!("{factor:.1} ×"),
                    false => format!("{factor:.0} ×"),
                }
            });
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {factor} |",
                operation_name(operation),
                rate(stock),
                rate(of(1)),
                rate(of(4)),
                rate(of(8)),
                rate(of(64)),
            );
        }
        out += &jobs::section(record.short())?;
        out += &prices::section(record, prices);
    }
    Ok(out)
}

/// The table of servers with other groups, or another OpenSSL.
fn elsewhere(runs: &[Handshakes]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut out = "\n### Servers with other versions of OpenSSL and other groups\n\n".to_owned();
    out += &wrapped(
        "The last column but one is the latency of a lone client, with Lockstep over OpenSSL's.",
    );
    out += "\n\
            | OpenSSL, server | key, group | clients | OpenSSL alone | with Lockstep | CPU per \
            handshake | p50 | p50, one client | requests per pass |\n\
            |---|---|---|---|---|---|---|---|---|\n";
    for run in runs {
        let word = |text: &str, place| text.split_whitespace().nth(place).map(str::to_owned);
        let openssl = word(&run.openssl, 1).unwrap_or_default();
        let version = run.version.as_deref().and_then(|version| word(version, 2));
        let stock = run.stock_group.as_deref();
        let stock = stock.map(|group| format!(" (alone: {})", curve_name(group)));
        let _ = writeln!(
            out,
            "| {openssl}, {} {} | {}, {}{} | {} | {} ms | {} ms | {} | {} | {} | {} |",
            server_name(&run.server),
            version.unwrap_or_default(),
            key_name(&run.key),
            curve_name(&run.group),
            stock.unwrap_or_default(),
            run.clients,
            milliseconds(run.stock),
            milliseconds(run.lockstep),
            gain(run.ratio),
            optional(run.p50, 2),
            optional(run.p50_alone, 2),
            optional(run.fill, 1),
        );
    }
    out
}

fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn rate(speed: Option<&Speed>) -> String {
    let Some(speed) = speed else {
        return String::new();
    };
    let mut text = thousands(speed.per_second);
    if speed.quiet_slices < 3 {
        text = format!("*{text}*");
    }
    if speed.by_stock {
        text += " (by OpenSSL)";
    }
    text
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
            committed == benchmarks(&records, &prices::load().unwrap()).unwrap(),
            "{} {stale}",
            page().display()
        );
        let committed = fs::read_to_string(readme()).unwrap();
        let rendered = with_figures(&committed, &records).unwrap();
        assert!(committed == rendered, "{} {stale}", readme().display());
    }

    #[test]
    fn the_readme_shows_the_lanes_that_it_asks_for() {
        let record = |name: &str, backend: &str| Record {
            name: name.to_owned(),
            backend: backend.to_owned(),
            ..Record::default()
        };
        let (newer, older) = (
            record("2026-11-25-zen3", "avx2"),
            record("2026-11-24-zen5", "avx512ifma"),
        );
        let text = format!("before\n{BEGIN}old\n{END}after\n");
        let rendered = with_figures(&text, &[newer, older]).unwrap();
        let shown = "latency of 64 clients, on AMD EPYC (Zen 5)\n([more]";
        assert!(rendered.contains(shown), "{rendered}");
        assert!(with_figures("no marks", &[]).is_err());
    }

    #[test]
    fn names_are_written_out() {
        assert_eq!(operation_name("rsa2048-sign"), "RSA-2048 signature");
        assert_eq!(operation_name("x25519"), "X25519 agreement");
        assert_eq!(operation_name("x25519-keygen"), "X25519 key pair");
        assert_eq!(operation_name("p256-ecdh"), "P-256 ECDH");
        assert_eq!(operation_name("p384-verify"), "P-384 verification");
        for (name, words) in [
            ("mlkem768-keygen", "ML-KEM-768 key pair"),
            ("mlkem768-encaps", "ML-KEM-768 encapsulation"),
            ("mlkem768-decaps", "ML-KEM-768 decapsulation"),
            ("x25519mlkem768-server", "X25519MLKEM768, a server's share"),
            (
                "secp256r1mlkem768-client",
                "SecP256r1MLKEM768, the client's end",
            ),
        ] {
            assert_eq!(operation_name(name), words);
        }
        assert_eq!(key_name("rsa4096"), "RSA-4096");
        assert_eq!(key_name("p256"), "P-256");
        assert_eq!(thousands(1234567.4), "1,234,567");
        assert_eq!(thousands(312.0), "312");
        for (ratio, words) in [(0.58, "42 % less"), (1.05, "5 % more"), (0.998, "0 % less")] {
            assert_eq!(gain(ratio), words);
        }
    }

    #[test]
    fn the_least_gain_is_in_the_table() {
        let run = |server: &str, key: &str, ratio| Handshakes {
            server: server.to_owned(),
            version: None,
            key: key.to_owned(),
            group: "x25519".to_owned(),
            stock_group: None,
            openssl: "OpenSSL 3.0.19 27 Jan 2026".to_owned(),
            clients: 64,
            stock: 1.0,
            lockstep: ratio,
            ratio,
            median: Some([20.0, 10.0]),
            p50: Some(0.5),
            p99: None,
            p50_alone: None,
            fill: None,
        };
        let record = Record {
            handshakes: vec![
                run("nginx", "ed25519", 1.25),
                run("haproxy", "rsa2048", 0.5),
                run("apache", "ed25519", 0.8),
            ],
            ..Record::default()
        };
        let table = servers(&record);
        let rows: Vec<&str> = table.lines().filter(|line| line.contains(" ms ")).collect();
        assert_eq!(rows.len(), 2, "{table}");
        assert!(
            rows[0].starts_with("| HAProxy, RSA-2048 |")
                && rows[0].ends_with("| 2.0 × | 20.0 ms | 10.0 ms | 2.0 × |")
        );
        assert!(
            rows[1].starts_with("| nginx, Ed25519 |") && rows[1].contains("| 0.8 × | 20.0 ms |")
        );
    }
}
