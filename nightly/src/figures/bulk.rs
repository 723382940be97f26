//! `cargo xtask bulk`: the library for arrays beside other libraries, measured by `lockstep-bench
//! bulk`; and the page of its records.
//!
//! The program is built for itself, with the other libraries, and for the instructions that
//! `ed25519-simd` insists on where the CPU has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::{Value, json};
use xtask::command::{Failure, Outcome, cargo, loudly, quietly, root, target_directory};

use super::measure::busy_cpus;
use super::text::{curve_name, section, thousands, wrapped};
use super::{ledger, record};
use crate::cpu;
use crate::record::Machine;

/// The name of the file in a record's directory.
const FILE: &str = "bulk.json";

/// What `lockstep-bench` is called with.
const LINE: &str = "bulk --json";

/// Instructions that `ed25519-simd` must be compiled for.
const SIMD: [&str; 4] = ["avx512f", "avx512bw", "avx512dq", "avx512ifma"];

/// The sides that each row has beside the fastest of the others.
const LOCKSTEP: &str = "lockstep";
const OPENSSL: &str = "OpenSSL";

const INTRODUCTION: &str = "\
# The library for arrays beside others

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->
";

/// A record: the document of `lockstep-bench bulk --json`, and where it is from.
#[derive(Deserialize)]
pub struct Bulk {
    /// Of its directory: DATE-CPU.
    #[serde(skip)]
    name: String,
    cpu: String,
    kernels: String,
    /// How many CPUs other programs kept busy before.
    load: f64,
    command: String,
    machine: record::Machine,
    message_bytes: u64,
    libraries: BTreeMap<String, String>,
    rows: Vec<Row>,
    skipped: Vec<Skipped>,
}

/// One library with one operation.
#[derive(Deserialize)]
struct Row {
    op: String,
    #[serde(rename = "impl")]
    name: String,
    threads: u64,
    items: u64,
    ops_per_s: f64,
    /// Operations a second of Lockstep by those of this library: the median of the rounds.
    ratio: f64,
    ratio_quartiles: [f64; 2],
    slices_kept: u64,
}

#[derive(Deserialize)]
struct Skipped {
    op: String,
    #[serde(rename = "impl")]
    name: String,
    why: String,
}

/// Measures this machine into docs/benchmarks/record/DATE-CPU, with `crypto_mb` from this file.
pub fn measure(crypto_mb: Option<&Path>) -> Outcome {
    let machine = Machine::here()?;
    let directory = target_directory().join("peers");
    let mut build = cargo([
        "build",
        "--locked",
        "--release",
        "--package",
        "lockstep-bench",
    ]);
    build
        .args(["--features", "peers", "--target-dir"])
        .arg(&directory);
    if SIMD.iter().all(|flag| cpu::has(flag)) {
        let flags = SIMD.map(|flag| format!("+{flag}")).join(",");
        // Cargo adds these to the flags of its configuration; RUSTFLAGS would replace those.
        build.arg("--config");
        build.arg(format!("build.rustflags=[\"-Ctarget-feature={flags}\"]"));
    } else {
        println!("without ed25519-simd: this CPU does not have its instructions");
    }
    loudly(&mut build)?;
    let load = busy_cpus()?;
    let mut line = format!("lockstep-bench {LINE}");
    let mut command = Command::new(directory.join("release/lockstep-bench"));
    command.args(LINE.split(' '));
    if let Some(file) = crypto_mb {
        command.arg("--crypto-mb").arg(file);
        // Where the file is does not matter.
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        line += &format!(" --crypto-mb {name}");
    }
    println!("{line}");
    let printed = quietly(&mut command)?;
    let document = document(&machine, &ledger::kernels()?, load, &line, &printed)?;
    record::store(&machine, FILE, &format!("{document:#}"))
}

/// The record of what `lockstep-bench` has printed.
fn document(
    machine: &Machine,
    kernels: &str,
    load: f64,
    line: &str,
    printed: &str,
) -> Outcome<Value> {
    let mut document: Value = serde_json::from_str(printed)
        .map_err(|error| Failure::new(format!("lockstep-bench printed no document: {error}")))?;
    document["date"] = json!(machine.date);
    document["commit"] = json!(machine.commit);
    document["kernels"] = json!(kernels);
    document["cpu"] = json!(machine.cpu);
    document["load"] = json!(load);
    document["command"] = json!(line);
    Ok(document)
}

/// The newest record of each CPU that has one, the newest of all first.
pub fn newest() -> Outcome<Vec<Bulk>> {
    let mut records: Vec<Bulk> = Vec::new();
    for name in record::names()? {
        let path = record::directory().join(&name).join(FILE);
        let is_newer = records.iter().any(|newer| newer.short() == name.get(11..));
        if path.exists() && !is_newer {
            let own = record::read::<Bulk>(&path)?;
            records.push(Bulk { name, ..own });
        }
    }
    Ok(records)
}

/// The page and its picture, which is empty without a record.
pub fn pages(records: &[Bulk], kernels: &str) -> Vec<(PathBuf, String)> {
    let file = |name: &str| root().join("docs/benchmarks").join(name);
    let mut pages = vec![(file("bulk.md"), page(records, kernels))];
    pages.extend(
        records
            .first()
            .map(|record| (file("bulk.svg"), record.chart())),
    );
    pages
}

fn page(records: &[Bulk], kernels: &str) -> String {
    let mut out = INTRODUCTION.to_owned() + "\n";
    out += &wrapped(
        "`lockstep-bench bulk` gives the crate `lockstep` and other libraries the same keys and \
         messages, in interleaved rounds of one process ([method](method.md#arrays)). `cargo xtask \
         bulk` makes a record of your machine.",
    );
    let Some(newest) = records.first() else {
        return out + "\nThere is no record yet.\n";
    };
    out += &format!(
        "\n![Bars: Lockstep beside the fastest other library, on {}](bulk.svg)\n",
        newest.machine_name()
    );
    for record in records {
        out += &record.section(kernels);
    }
    out
}

impl Bulk {
    /// The part of the name behind the date.
    fn short(&self) -> Option<&str> {
        self.name.get(11..)
    }

    /// The CPU as people call it.
    fn machine_name(&self) -> &str {
        let known = self.short().and_then(record::full_name);
        known.unwrap_or(&self.cpu)
    }

    fn section(&self, kernels: &str) -> String {
        let Bulk { name, machine, .. } = self;
        let libraries = self
            .libraries
            .iter()
            .map(|(name, version)| format!("{name} {version}"));
        let libraries: Vec<String> = libraries.collect();
        let age = match self.kernels == kernels {
            true => "today's",
            false => "older",
        };
        let mut out = format!("\n## {}\n\n", self.machine_name());
        out += &wrapped(&format!(
            "{}. {} CPUs at {:.1} GHz, lanes: {}. {}, {}. Messages of {} bytes. `{}`. Record: \
             [{name}](record/{name}), of {age} kernels.",
            self.cpu,
            machine.cpus,
            machine.clock_ghz,
            machine.backend,
            machine.openssl,
            libraries.join(", "),
            self.message_bytes,
            self.command,
        ));
        if self.load > record::BUSY {
            out += "\n";
            out += &wrapped(&format!(
                "**Other programs kept the machine busy** ({:.1} of {} CPUs): these figures are \
                 low, and their ratios rough.",
                self.load, machine.cpus
            ));
        }
        let mut threads: Vec<u64> = self.rows.iter().map(|row| row.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        for threads in threads {
            out += &self.table(threads);
        }
        out += &self.all_libraries();
        for Skipped { op, name, why } in &self.skipped {
            out += "\n";
            out += &wrapped(&format!("Skipped: {} by {name}: {why}.", name_of(op)));
        }
        out
    }

    fn table(&self, threads: u64) -> String {
        let title = match threads {
            1 => "On one thread".to_owned(),
            many => format!("On {many} threads"),
        };
        let row = |lockstep: &Row| {
            let beside = |row: Option<&Row>| {
                row.map_or(["-".to_owned(), "-".to_owned()], |row| {
                    let [least, most] = row.ratio_quartiles;
                    let ratio = format!("{:.1} × ({least:.1} to {most:.1})", row.ratio);
                    [rate(row), ratio]
                })
            };
            let best = self.best_beside(lockstep);
            let best_name = best.map_or("-".to_owned(), |row| row.name.clone());
            let [stock, stock_ratio] = beside(self.find(lockstep, OPENSSL));
            let [best, best_ratio] = beside(best);
            vec![
                name_of(&lockstep.op),
                thousands(lockstep.items as f64),
                rate(lockstep),
                stock,
                stock_ratio,
                best_name,
                best,
                best_ratio,
            ]
        };
        section(
            &title,
            "Operations per second. The ratios are Lockstep's rate by that of OpenSSL and by that of \
             the fastest other library, each the median of the rounds with its quartiles. In italics: \
             figures with fewer than three undisturbed slices.",
            "operation | items | Lockstep | OpenSSL | ratio | fastest other | its rate | ratio",
            self.of_lockstep(threads).map(row),
        )
    }

    /// Rates of all libraries on one thread.
    fn all_libraries(&self) -> String {
        let rows = self.rows.iter().filter(|row| row.threads == 1);
        let mut names: Vec<&str> = Vec::new();
        for row in rows {
            if row.name != LOCKSTEP && !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        let row = |lockstep: &Row| {
            let cell = |name: &&str| {
                let row = self.find(lockstep, name);
                row.map_or(String::new(), |row| {
                    format!("{} ({:.1} ×)", rate(row), row.ratio)
                })
            };
            let own = [name_of(&lockstep.op), rate(lockstep)];
            own.into_iter().chain(names.iter().map(cell)).collect()
        };
        section(
            "All libraries",
            "Operations per second on one thread, and Lockstep's rate by that of the library.",
            &format!("operation | Lockstep | {}", names.join(" | ")),
            self.of_lockstep(1).map(row),
        )
    }

    fn of_lockstep(&self, threads: u64) -> impl Iterator<Item = &Row> {
        let is_own = move |row: &&Row| row.name == LOCKSTEP && row.threads == threads;
        self.rows.iter().filter(is_own)
    }

    /// The rows of the other libraries with the same operation.
    fn beside<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = &'a Row> {
        let is_beside = move |other: &&Row| {
            other.name != LOCKSTEP && (&other.op, other.threads) == (&row.op, row.threads)
        };
        self.rows.iter().filter(is_beside)
    }

    fn find<'a>(&'a self, row: &'a Row, name: &str) -> Option<&'a Row> {
        self.beside(row).find(|other| other.name == name)
    }

    fn best_beside<'a>(&'a self, row: &'a Row) -> Option<&'a Row> {
        let by_rate = |a: &&Row, b: &&Row| a.ops_per_s.total_cmp(&b.ops_per_s);
        self.beside(row).max_by(by_rate)
    }

    /// A picture of Lockstep and the fastest other library on one thread, as SVG.
    fn chart(&self) -> String {
        let rows = self.of_lockstep(1);
        let rows = rows.filter_map(|row| Some((row, self.best_beside(row)?)));
        let rows: Vec<(&Row, &Row)> = rows.collect();
        let (row, left, whole, top) = (34, 240, 330.0, 64);
        let height = top + row * rows.len() + 8;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" width=\"860\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
             <rect width=\"860\" height=\"{height}\" fill=\"#ffffff\"/>\n\
             <text x=\"12\" y=\"24\" font-weight=\"bold\">Operations per second on one thread of {}</text>\n\
             <rect x=\"{left}\" y=\"38\" width=\"12\" height=\"12\" fill=\"#b0b6be\"/>\n\
             <text x=\"{}\" y=\"49\">the fastest other library</text>\n\
             <rect x=\"440\" y=\"38\" width=\"12\" height=\"12\" fill=\"#1f6fb2\"/>\n\
             <text x=\"458\" y=\"49\">Lockstep</text>\n",
            self.machine_name(),
            left + 18,
        );
        for (place, (own, best)) in rows.iter().enumerate() {
            let y = top + row * place;
            let bar = |y: usize, part: f64, colour: &str| {
                let width = whole * part;
                format!(
                    "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"12\" \
                     fill=\"{colour}\"/>\n"
                )
            };
            // Where Lockstep is slower it has the shorter bar.
            let most = best.ratio.max(1.0);
            out += &format!(
                "<text x=\"12\" y=\"{}\">{}</text>\n",
                y + 17,
                name_of(&own.op)
            );
            out += &bar(y, 1.0 / most, "#b0b6be");
            out += &bar(y + 13, best.ratio / most, "#1f6fb2");
            out += &format!(
                "<text x=\"{}\" y=\"{}\">{:.1} ×: {}, not {} ({})</text>\n",
                left + whole as usize + 12,
                y + 17,
                best.ratio,
                thousands(own.ops_per_s),
                thousands(best.ops_per_s),
                best.name,
            );
        }
        out + "</svg>\n"
    }
}

/// A rate; in italics if it rests on few slices.
fn rate(row: &Row) -> String {
    let text = thousands(row.ops_per_s);
    match row.slices_kept {
        ..3 => format!("*{text}*"),
        _ => text,
    }
}

/// An operation in words.
fn name_of(op: &str) -> String {
    let (key, what) = op.split_once('-').unwrap_or((op, ""));
    let key = match key.strip_prefix("rsa").or(key.strip_prefix("mldsa")) {
        Some(size) if key.starts_with("rsa") => format!("RSA-{size}"),
        Some(set) => format!("ML-DSA-{set}"),
        None => curve_name(key),
    };
    match what {
        "verify" => format!("{key} verification"),
        "verify-few" => format!("{key} verification, 16 keys"),
        "sign" => format!("{key} signature"),
        _ => format!("{key} agreement"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(op: &str, name: &str, threads: u64, ops_per_s: f64, ratio: f64) -> Value {
        json!({
            "op": op, "impl": name, "threads": threads, "items": 10_000, "ops_per_s": ops_per_s,
            "ops_per_s_quartiles": [ops_per_s, ops_per_s], "ratio": ratio,
            "ratio_quartiles": [0.9 * ratio, 1.1 * ratio], "slices_kept": 9, "slices": 10,
        })
    }

    fn record() -> Bulk {
        let mut italic = row("x25519", LOCKSTEP, 1, 200_000.0, 1.0);
        italic["slices_kept"] = 2.into();
        let printed = json!({
            "machine": {"cpu": "C", "cpus": 2, "clock_ghz": 3.0, "backend": "b", "openssl": "OpenSSL 3"},
            "message_bytes": 64,
            "libraries": {"ring": "0.17.14"},
            "rows": [
                row("p256-verify", LOCKSTEP, 1, 160_000.0, 1.0),
                row("p256-verify", OPENSSL, 1, 10_000.0, 16.0),
                row("p256-verify", "ring", 1, 20_000.0, 8.0),
                row("p256-verify", LOCKSTEP, 2, 300_000.0, 1.0),
                row("p256-verify", OPENSSL, 2, 20_000.0, 15.0),
                italic,
                row("x25519", "slow", 1, 400_000.0, 0.5),
            ],
            "skipped": [{"op": "rsa2048-verify-few", "impl": LOCKSTEP, "why": "a defect"}],
        });
        let machine = Machine {
            cpu: "Intel, family 6 model 207".to_owned(),
            date: "2026-11-29".to_owned(),
            commit: "0123456789".to_owned(),
        };
        let document = document(&machine, "k", 0.0, "a line", &printed.to_string()).unwrap();
        let record = Bulk::deserialize(document).unwrap();
        Bulk {
            name: "2026-11-29-emerald-rapids".to_owned(),
            ..record
        }
    }

    #[test]
    fn each_row_has_openssl_and_the_fastest_other() {
        let page = page(&[record()], "k");
        for line in [
            "## Intel Xeon (Emerald Rapids)\n",
            "### On one thread\n",
            "| P-256 verification | 10,000 | 160,000 | 10,000 | 16.0 × (14.4 to 17.6) | ring | 20,000 \
             | 8.0 × (7.2 to 8.8) |\n",
            "| X25519 agreement | 10,000 | *200,000* | - | - | slow | 400,000 | 0.5 × (0.5 to 0.6) |\n",
            "### On 2 threads\n",
            "| P-256 verification | 10,000 | 300,000 | 20,000 | 15.0 × (13.5 to 16.5) | OpenSSL \
             | 20,000 | 15.0 × (13.5 to 16.5) |\n",
            "| operation | Lockstep | OpenSSL | ring | slow |\n",
            "| P-256 verification | 160,000 | 10,000 (16.0 ×) | 20,000 (8.0 ×) |  |\n",
            "\nSkipped: RSA-2048 verification, 16 keys by lockstep: a defect.\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        let words = page.replace('\n', " ");
        assert!(
            words.contains("OpenSSL 3, ring 0.17.14. Messages of 64 bytes."),
            "{words}"
        );
        let place =
            "`a line`. Record: [2026-11-29-emerald-rapids](record/2026-11-29-emerald-rapids)";
        assert!(
            words.contains(&format!("{place}, of today's kernels.")),
            "{words}"
        );
        assert!(!page.contains("kept the machine busy"));
        let busy = Bulk {
            load: 1.0,
            ..record()
        };
        let page = super::page(&[busy], "other");
        assert!(page.contains("kept the machine busy") && page.contains("of older"));
    }

    #[test]
    fn the_picture_has_a_bar_for_both() {
        let chart = record().chart();
        for bar in [
            "y=\"64\" width=\"41.2\"",
            "y=\"77\" width=\"330.0\"",
            "y=\"98\" width=\"330.0\"",
            "y=\"111\" width=\"165.0\"",
            "8.0 ×: 160,000, not 20,000 (ring)",
            "0.5 ×: 200,000, not 400,000 (slow)",
        ] {
            assert!(chart.contains(bar), "{bar}\n{chart}");
        }
    }

    #[test]
    fn without_a_record_there_is_a_page_without_figures() {
        assert!(page(&[], "k").ends_with("There is no record yet.\n"));
        assert_eq!(pages(&[], "k").len(), 1);
        let here = Machine {
            cpu: String::new(),
            date: String::new(),
            commit: String::new(),
        };
        assert!(document(&here, "k", 0.0, "a line", "no document").is_err());
    }

    #[test]
    fn operations_have_names() {
        for (op, name) in [
            ("p384-sign", "P-384 signature"),
            ("ed25519-verify-few", "Ed25519 verification, 16 keys"),
            ("mldsa44-verify", "ML-DSA-44 verification"),
            ("rsa4096-sign", "RSA-4096 signature"),
            ("x25519", "X25519 agreement"),
        ] {
            assert_eq!(name_of(op), name);
        }
    }
}
