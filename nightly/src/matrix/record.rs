//! The table of versions and checks: its record, its page, and its form for a terminal.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;
use xtask::command::{Outcome, on, root};
use xtask::work::{Ran, Work};

use super::compare::Cell;
use super::releases::{self, Releases};
use crate::figures;

/// The column of OpenSSL's own vectors.
pub const VECTORS: &str = "evp_test";

/// The column of operations without a gain.
pub const COSTS: &str = "costs";

/// The columns: the parts of `rig/matrix/checks.sh`, the vectors, and operations without a gain.
pub const COLUMNS: [&str; 8] = [
    "lists",
    "commands",
    "handshakes",
    "references",
    "async",
    "server",
    VECTORS,
    COSTS,
];

/// The record in the repository.
pub fn file() -> PathBuf {
    root().join("docs/user/matrix.json")
}

fn page() -> PathBuf {
    root().join("docs/user/matrix.md")
}

/// The results of one OpenSSL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// As the command takes it.
    pub name: String,
    /// The version that it has.
    pub openssl: String,
    pub source: String,
    pub date: String,
    pub commit: String,
    pub cpu: String,
    pub cells: Vec<Named>,
}

/// The result of one of its checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    pub check: String,
    #[serde(flatten)]
    pub cell: Cell,
}

impl Row {
    pub fn add(&mut self, check: &str, cell: Cell) {
        let check = check.to_owned();
        self.cells.push(Named { check, cell });
    }

    fn cell(&self, column: &str) -> Option<&Cell> {
        let found = self.cells.iter().find(|named| named.check == column);
        found.map(|named| &named.cell)
    }

    /// The numbers of its version, by which rows are sorted.
    fn order(&self) -> Vec<u32> {
        let numbers = self.openssl.split(|c: char| !c.is_ascii_digit());
        numbers.map_while(|number| number.parse().ok()).collect()
    }
}

/// Whether there are differences, in a word.
pub fn short(cell: &Cell) -> String {
    match cell {
        Cell::Missing { .. } => "-".to_owned(),
        Cell::Compared { differences, .. } if differences.is_empty() => "same".to_owned(),
        Cell::Compared { differences, .. } => differences.len().to_string(),
    }
}

/// All versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// Reads the record; an absent file is an empty one.
    pub fn load(path: &Path) -> Outcome<Table> {
        match path.exists() {
            true => figures::record::read(path),
            false => Ok(Table::default()),
        }
    }

    fn render(&self) -> String {
        format!("{:#}\n", json!(self))
    }

    /// Writes the record and the page.
    pub fn store(&self) -> Outcome {
        let path = file();
        fs::write(&path, self.render()).map_err(on(&path, "write"))?;
        self.write_page()
    }

    /// Writes the page.
    pub fn write_page(&self) -> Outcome {
        let path = page();
        fs::write(&path, self.page(&Releases::load()?)).map_err(on(&path, "write"))
    }

    /// Adds a row in the place of one of the same name.
    pub fn add(&mut self, row: Row) {
        self.rows.retain(|there| there.name != row.name);
        self.rows.push(row);
        self.rows.sort_by_key(Row::order);
    }

    /// Takes the rows of another table over its own.
    pub fn merge(&mut self, newer: Table) {
        newer.rows.into_iter().for_each(|row| self.add(row));
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        let rows = self.rows.iter();
        rows.flat_map(|row| row.cells.iter().map(|named| &named.cell))
    }

    /// How many results were compared.
    fn results(&self) -> u64 {
        let results = self.cells().map(|cell| match cell {
            Cell::Compared { results, .. } => *results,
            Cell::Missing { .. } => 0,
        });
        results.sum()
    }

    pub fn differences(&self) -> u64 {
        let differences = self.cells().map(|cell| match cell {
            Cell::Compared { differences, .. } => differences.len() as u64,
            Cell::Missing { .. } => 0,
        });
        differences.sum()
    }

    /// The counts of a check that made the table.
    pub fn ran(&self) -> Ran {
        Ran::Worked(Work {
            cases: self.results(),
            findings: self.differences(),
            note: self.versions().join(", "),
            ..Work::default()
        })
    }

    /// The versions of OpenSSL.
    fn versions(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.openssl.as_str()).collect()
    }

    /// The table for a terminal, with the names of differences and of missing parts below it.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.rows(), self.notes().join("\n"))
    }

    /// The differences, and the reasons for which something was not tried.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for row in &self.rows {
            for Named { check, cell } in &row.cells {
                let about = format!("{} of {}, {check}", row.openssl, row.source);
                match cell {
                    Cell::Missing { missing } => {
                        notes.push(format!("{about}: not tried, {missing}"))
                    }
                    Cell::Compared { differences, .. } => {
                        notes.extend(differences.iter().map(|line| format!("{about}: {line}")));
                    }
                }
            }
        }
        notes
    }

    /// A row of results for each version.
    fn rows(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "| OpenSSL | from | {} | run |", COLUMNS.join(" | "));
        let _ = writeln!(out, "|---|---|{}---|", "---|".repeat(COLUMNS.len()));
        for row in &self.rows {
            let _ = write!(out, "| {} | {} |", row.openssl, row.source);
            for column in COLUMNS {
                let cell = match row.cell(column) {
                    None => "-".to_owned(),
                    Some(cell @ Cell::Compared { results, .. }) => {
                        format!("{} ({results})", short(cell))
                    }
                    Some(cell) => short(cell),
                };
                let _ = write!(out, " {cell} |");
            }
            let _ = writeln!(out, " {}, {}, {} |", row.date, row.commit, row.cpu);
        }
        out
    }

    fn page(&self, releases: &Releases) -> String {
        let tried = self
            .rows
            .iter()
            .map(|row| (row.openssl.clone(), row.date.clone()));
        let released = releases::introduction() + &releases.table(&tried.collect::<Vec<_>>());
        let mut out = format!("{INTRODUCTION}\n{}{released}", self.rows());
        let notes = self.notes();
        if !notes.is_empty() {
            out.push_str("\n## What differs, and what was not tried\n\n| |\n|---|\n");
            for note in notes {
                let _ = writeln!(out, "| {} |", note.replace('|', "\\|").replace('\n', " "));
            }
        }
        out
    }
}

const INTRODUCTION: &str = "\
# Versions of OpenSSL

<!-- Rendered by `cargo xtask matrix` from matrix.json and releases.json. -->

One module was tried with each of these versions, beside the same version without the module. `same`
means that both gave the same results, whose number is in parentheses. A number in its place counts
the results that differ, and `-` says that something was not tried: the list at the end has the
reasons, unless the check is newer than the run. A row holds for the commit under `run`; a `+` says
that the tree had changes that were not committed.

| check | what is compared |
|---|---|
| lists | providers, algorithms, encoders and TLS groups that `openssl list` names, and what a TLS client offers |
| commands | keys of all kinds made, written, read, used to sign, verify, decrypt and derive by the `openssl` command, and messages enciphered, each result checked by OpenSSL alone and the reverse |
| handshakes | TLS 1.2 and 1.3, servers with the module and clients without it and the reverse, with each kind of certificate and group; protocol, cipher, group and signature must be the same, and so must the alerts for key shares that are bad |
| references | keys that the key daemon holds, each kind of them: the `openssl` command signs and serves TLS with the references, also in async jobs; without the module the same is done with the keys |
| async | `openssl speed -async_jobs 64` |
| server | HAProxy with async jobs, with keys and with a reference, under clients; Debian has none for OpenSSL 4.0, there it is one of HAProxy's sources |
| evp_test | OpenSSL's own vectors for public keys and ML-KEM, with a libcrypto that is built from sources of the same series |
| costs | `lockstep-bench costs`, for a moment; it differs only where it fails. [The benchmarks](../benchmarks/README.md#what-gains-nothing) have the figures |

The counters must also show that lanes computed in commands, handshakes, jobs and servers, that jobs
shared batches in the last two, that the key daemon signed for references, and that the module
enciphered AES-GCM with OpenSSL 3.0 and with no later version.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, openssl: &str, cells: Vec<(String, Cell)>) -> Row {
        Row {
            name: name.to_owned(),
            openssl: openssl.to_owned(),
            source: "somewhere".to_owned(),
            date: "2026-11-23".to_owned(),
            commit: "1".to_owned(),
            cpu: "a".to_owned(),
            cells: Vec::from_iter(cells.into_iter().map(|(check, cell)| Named { check, cell })),
        }
    }

    fn table() -> Table {
        let same = Cell::Compared {
            results: 3,
            differences: Vec::new(),
        };
        let differs = Cell::Compared {
            results: 4,
            differences: vec!["one: a | b".to_owned(), "two".to_owned()],
        };
        let missing = Cell::Missing {
            missing: "nothing there".to_owned(),
        };
        let mut table = Table::default();
        table.add(row("b", "3.5.7", vec![("lists".to_owned(), differs)]));
        table.add(row(
            "a",
            "3.0.19",
            vec![("lists".to_owned(), same), ("server".to_owned(), missing)],
        ));
        table
    }

    fn parse(text: &str) -> Option<Table> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn a_record_survives_its_file() {
        assert_eq!(parse(&table().render()), Some(table()));
        assert_eq!(parse("[{\"name\": \"a\"}]"), None);
    }

    #[test]
    fn rows_are_replaced_by_name_and_sorted_by_version() {
        let mut all = table();
        assert_eq!(all.versions(), ["3.0.19", "3.5.7"]);
        all.add(row("b", "3.0.2", Vec::new()));
        assert_eq!(all.versions(), ["3.0.2", "3.0.19"]);
        assert_eq!((table().results(), table().differences()), (7, 2));
    }

    #[test]
    fn differences_and_reasons_are_named() {
        let (text, page) = (table().text(), table().page(&Releases::default()));
        for line in ["3.5.7 of somewhere, lists: two", "not tried, nothing there"] {
            assert!(text.contains(line), "{text}");
            assert!(page.contains(line), "{page}");
        }
        assert!(page.contains("| 3.5.7 | somewhere | 2 (4) | - |"), "{page}");
        assert!(
            page.contains("| 3.0.19 | somewhere | same (3) | - |"),
            "{page}"
        );
    }

    #[test]
    fn the_page_is_what_the_record_renders() {
        let releases = Releases::load().unwrap();
        let rendered = Table::load(&file()).unwrap().page(&releases);
        assert!(
            fs::read_to_string(page()).unwrap() == rendered,
            "docs/user/matrix.md is stale: run `cargo xtask matrix --render`"
        );
    }
}
