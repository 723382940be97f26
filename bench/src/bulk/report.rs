//! The figures, as a table and as JSON.

use serde_json::{Value, json};

use super::crypto_mb;
use super::data::MESSAGE;
use super::library;
use super::rounds::Compared;
use super::stock;
use crate::format::thousands;
use crate::json::Decimal;
use crate::speed::Machine;
use crate::table::Table;

/// All versions of the libraries that this program was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// One library with one operation.
pub struct Row {
    pub op: &'static str,
    pub name: &'static str,
    pub threads: usize,
    pub items: usize,
    pub figure: Compared,
}

/// A library that does not have an operation yet.
#[derive(PartialEq)]
pub struct Skipped {
    pub op: &'static str,
    pub name: &'static str,
    pub why: &'static str,
}

/// The results of one run.
pub struct Report {
    pub machine: Machine,
    /// The version of `crypto_mb`, if it is loaded.
    pub crypto_mb: Option<String>,
    pub rows: Vec<Row>,
    pub skipped: Vec<Skipped>,
}

impl Report {
    /// Adds an operation that was skipped, once for all numbers of threads.
    pub fn skip(&mut self, skipped: Skipped) {
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// The document of `--json`: `machine`, the versions of the other `libraries`, `rows` with an
    /// object for each figure, and `skipped`.
    pub fn document(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let Compared {
                figure,
                quartiles: [low, high],
                ratios: [least, ratio, most],
            } = &row.figure;
            json!({
                "op": row.op, "impl": row.name, "threads": row.threads, "items": row.items,
                "ops_per_s": Decimal::<1>(figure.ops_per_s),
                "ops_per_s_quartiles": [Decimal::<1>(*low), Decimal::<1>(*high)],
                "ratio": Decimal::<3>(*ratio),
                "ratio_quartiles": [Decimal::<3>(*least), Decimal::<3>(*most)],
                "slices_kept": figure.kept, "slices": figure.all,
            })
        });
        let skipped = self.skipped.iter();
        let skipped =
            skipped.map(|Skipped { op, name, why }| json!({ "op": op, "impl": name, "why": why }));
        let mut libraries = serde_json::Map::new();
        for row in self.rows.iter().filter(|row| is_peer(row)) {
            if let Some(version) = version(LOCK, package(row.name)) {
                libraries.insert(package(row.name).to_owned(), version.into());
            }
        }
        if let Some(version) = &self.crypto_mb {
            libraries.insert(crypto_mb::NAME.to_owned(), version.as_str().into());
        }
        json!({
            "machine": self.machine, "message_bytes": MESSAGE, "libraries": libraries,
            "rows": rows.collect::<Value>(), "skipped": skipped.collect::<Value>(),
        })
    }

    /// For reading: `lockstep x` is the ratio of lockstep to the library of the line.
    pub fn to_table(&self) -> String {
        let heads = "operation | threads |  | per second | quartiles | lockstep x | quartiles | \
                     quiet slices";
        let mut table = Table::new(3, heads);
        let mut previous = None;
        for row in &self.rows {
            let group = (row.op, row.threads);
            if previous.is_some_and(|previous| previous != group) {
                table.add_gap();
            }
            previous = Some(group);
            let Compared {
                figure,
                quartiles: [low, high],
                ratios: [least, ratio, most],
            } = &row.figure;
            table.add([
                row.op.to_owned(),
                row.threads.to_string(),
                row.name.to_owned(),
                thousands(figure.ops_per_s),
                format!("{} to {}", thousands(*low), thousands(*high)),
                format!("{ratio:.2}"),
                format!("{least:.2} to {most:.2}"),
                figure.slices(),
            ]);
        }
        let mut out = format!("{}\n\n{table}", self.machine.to_line());
        if self.rows.iter().any(|row| !row.figure.figure.is_quiet()) {
            out += "\nWhere fewer than three slices were quiet, others kept the core busy: the figure is \
                    the best quartile of all slices.\n";
        }
        for Skipped { op, name, why } in &self.skipped {
            out += &format!("skipped: {op} by {name}: {why}\n");
        }
        out
    }
}

/// Whether a row is of neither lockstep nor OpenSSL, whose version is that of the machine.
fn is_peer(row: &Row) -> bool {
    row.name != library::NAME && row.name != stock::NAME
}

/// The name of the package of a library that is measured in several ways.
fn package(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// The version of a package that this program depends on, by the text of `Cargo.lock`.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let entry = |name: &str| {
        let head = format!("[[package]]\nname = \"{name}\"\n");
        let mut entries = lock.split(&head as &str).skip(1).collect::<Vec<_>>();
        let last = entries.pop();
        entries.is_empty().then_some(last).flatten()
    };
    let field = |entry: &'a str| {
        let line = entry.lines().next()?.strip_prefix("version = \"")?;
        line.strip_suffix('"')
    };
    // Of several versions, the program's own dependency has its behind its name.
    let own = entry(env!("CARGO_PKG_NAME"))?.split("\n]").next()?;
    let several = own.lines().find_map(|line| {
        let dependency = line.trim().strip_prefix('"')?.strip_suffix("\",")?;
        dependency.strip_prefix(package)?.strip_prefix(' ')
    });
    several.or_else(|| field(entry(package)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Figure;

    fn row(op: &'static str, name: &'static str, ops_per_s: f64) -> Row {
        let figure = Figure {
            ops_per_s,
            cycles_per_op: 1.0,
            kept: 3,
            all: 4,
        };
        Row {
            op,
            name,
            threads: 1,
            items: 10_000,
            figure: Compared {
                figure,
                quartiles: [0.5 * ops_per_s, 1.5 * ops_per_s],
                ratios: [0.9, 1.0, 1.1].map(|part| part * 200_000.0 / ops_per_s),
            },
        }
    }

    fn report() -> Report {
        let mut report = Report {
            machine: Machine::describe(2, "portable"),
            crypto_mb: Some("1.1.0".to_owned()),
            rows: vec![
                row("p256-verify", library::NAME, 200_000.0),
                row("p256-verify", stock::NAME, 10_000.0),
                row("ed25519-verify", "ed25519-dalek, batch", 50_000.0),
            ],
            skipped: Vec::new(),
        };
        for _ in 0..2 {
            report.skip(Skipped {
                op: "rsa2048-verify-few",
                name: library::NAME,
                why: "a defect",
            });
        }
        report
    }

    #[test]
    fn each_line_of_the_table_has_its_ratio() {
        let table = report().to_table();
        let lines: Vec<String> = table
            .lines()
            .skip(2)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "operation threads per second quartiles lockstep x quartiles quiet slices",
                "p256-verify 1 lockstep 200,000 100,000 to 300,000 1.00 0.90 to 1.10 3/4",
                "p256-verify 1 OpenSSL 10,000 5,000 to 15,000 20.00 18.00 to 22.00 3/4",
                "",
                "ed25519-verify 1 ed25519-dalek, batch 50,000 25,000 to 75,000 4.00 3.60 to 4.40 3/4",
                "skipped: rsa2048-verify-few by lockstep: a defect",
            ]
        );
    }

    #[test]
    fn the_document_has_all_that_a_record_needs() {
        let document = report().document();
        assert_eq!(
            document["rows"][1],
            json!({
                "op": "p256-verify", "impl": "OpenSSL", "threads": 1, "items": 10_000,
                "ops_per_s": 10_000.0, "ops_per_s_quartiles": [5_000.0, 15_000.0],
                "ratio": 20.0, "ratio_quartiles": [18.0, 22.0],
                "slices_kept": 3, "slices": 4,
            })
        );
        let skipped = json!([{
            "op": "rsa2048-verify-few", "impl": "lockstep", "why": "a defect",
        }]);
        assert_eq!(document["skipped"], skipped);
        assert_eq!(document["message_bytes"], 64);
        assert_eq!(document["machine"]["backend"], "portable");
        assert_eq!(
            document["libraries"].as_object().map(|all| all.len()),
            Some(2)
        );
        assert_eq!(document["libraries"]["crypto_mb"], "1.1.0");
        assert!(document["libraries"]["ed25519-dalek"].is_string());
    }

    #[test]
    fn versions_are_those_of_this_program() {
        let lock = "[[package]]\nname = \"ring\"\nversion = \"0.17.0\"\n\n\
                    [[package]]\nname = \"p256\"\nversion = \"0.13.0\"\n\n\
                    [[package]]\nname = \"p256\"\nversion = \"0.14.0\"\n\n\
                    [[package]]\nname = \"lockstep-bench\"\nversion = \"1.0.0\"\n\
                    dependencies = [\n \"p256 0.14.0\",\n \"ring\",\n]\n\n\
                    [[package]]\nname = \"other\"\nversion = \"2.0.0\"\n\
                    dependencies = [\n \"p256 0.13.0\",\n]\n";
        assert_eq!(version(lock, "ring"), Some("0.17.0"));
        assert_eq!(version(lock, "p256"), Some("0.14.0"));
        assert_eq!(version(lock, "absent"), None);
        for package in [
            "aws-lc-rs",
            "ed25519-dalek",
            "ed25519-simd",
            "p256",
            "p384",
            "ring",
        ] {
            assert!(version(LOCK, package).is_some(), "{package}");
        }
    }
}
