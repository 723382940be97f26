//! The figures, as a table and as JSON.

use std::fmt::Write as _;

use lockstep_engine::Backend;
use serde::Serialize;

use super::cipher;
use super::comparison::Candidate;
use super::limit::Rates;
use crate::format::{cpu_model, cycles, thousands};
use crate::json::Decimal;
use crate::measure::Figure;

/// Where it was measured.
#[derive(Serialize)]
pub struct Machine {
    cpu: String,
    cpus: usize,
    clock_ghz: Decimal<3>,
    backend: &'static str,
    lane_multiplies_per_cycle: Option<Decimal<2>>,
    openssl: &'static str,
}

impl Machine {
    /// `cpus` are those that the process may use.
    pub fn describe(cpus: usize, backend: Backend, rates: &Rates) -> Machine {
        Machine {
            cpu: cpu_model(),
            cpus,
            clock_ghz: Decimal(rates.clock / 1e9),
            backend: backend.name(),
            lane_multiplies_per_cycle: rates.multiplies.map(Decimal),
            openssl: openssl::version::version(),
        }
    }

    /// One line for the head of a table.
    pub fn to_line(&self) -> String {
        let Machine {
            cpu,
            cpus,
            clock_ghz: Decimal(clock),
            backend,
            openssl,
            ..
        } = self;
        format!("{cpu}, {cpus} CPUs, {clock:.2} GHz; lanes: {backend}; stock: {openssl}")
    }
}

/// One figure, and what it is of.
pub struct Row {
    pub op: String,
    pub candidate: Candidate,
    /// Lockstep's policy left the request to OpenSSL's own implementation.
    pub by_stock: bool,
    pub threads: usize,
    pub figure: Figure,
    /// Of the operation, with all lanes full.
    pub limit_cycles: Option<f64>,
}

impl Row {
    fn fill(&self) -> usize {
        match self.candidate {
            Candidate::Stock => 1,
            Candidate::Lockstep { fill } => fill,
        }
    }
}

/// All that one run found out.
pub struct Report {
    pub machine: Machine,
    pub rows: Vec<Row>,
    pub ciphers: Vec<cipher::Row>,
}

impl Report {
    /// What `--json` prints: `machine`, and `rows` with an object for each figure.
    pub fn document(&self) -> Document<'_> {
        let rows = self.rows.iter().map(|row| RowDocument {
            op: &row.op,
            implementation: match row.candidate {
                Candidate::Stock => "stock",
                Candidate::Lockstep { .. } => "lockstep",
            },
            fill: row.fill(),
            threads: row.threads,
            ops_per_s: Decimal(row.figure.ops_per_s),
            cycles_per_op: Decimal(row.figure.cycles_per_op),
            limit_cycles: row.limit_cycles.map(Decimal),
            by_stock: row.by_stock,
            slices_kept: row.figure.kept,
            slices: row.figure.slices,
            ops_per_joule: row.figure.ops_per_joule.map(Decimal),
        });
        Document {
            machine: &self.machine,
            rows: rows.collect(),
            ciphers: &self.ciphers,
        }
    }

    /// For reading.
    pub fn to_table(&self) -> String {
        let mut out = self.machine.to_line() + "\n";
        if !self.rows.is_empty() {
            out += &self.operations();
        }
        if !self.ciphers.is_empty() {
            out += "\n";
            out += &cipher::to_table(&self.ciphers);
        }
        out
    }

    /// The table of operations. Ratios compare with OpenSSL on as many threads.
    fn operations(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "\n\
             {:<24} {:>7}  {:<22} {:>10} {:>10} {:>8} {:>9}  {:>12}{}",
            "operation",
            "threads",
            "",
            "per second",
            "cycles",
            "x stock",
            "of limit",
            "quiet slices",
            match self.has_energy() {
                true => format!("  {:>10} {:>8}", "per joule", "x stock"),
                false => String::new(),
            }
        );
        let mut previous = None;
        for row in &self.rows {
            let group = (&row.op, row.threads);
            if previous.is_some_and(|previous| previous != group) {
                out.push('\n');
            }
            previous = Some(group);
            let _ = writeln!(
                out,
                "{:<24} {:>7}  {:<22} {:>10} {:>10} {:>8} {:>9}  {:>12}{}",
                row.op,
                row.threads,
                label(row),
                thousands(row.figure.ops_per_s),
                cycles(row.figure.cycles_per_op),
                times(self.ratio(row, |figure| Some(figure.ops_per_s))),
                of_limit(row).map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
                format!("{}/{}", row.figure.kept, row.figure.slices),
                row.figure.ops_per_joule.map_or(String::new(), |per_joule| {
                    let ratio = times(self.ratio(row, |figure| figure.ops_per_joule));
                    format!("  {:>10} {ratio:>8}", thousands(per_joule))
                }),
            );
        }
        if self.rows.iter().any(|row| !row.figure.is_quiet()) {
            out.push_str(
                "
Where fewer than three slices were quiet, others kept the core busy: the figure is the best \
                 quartile of all slices.
",
            );
        }
        out
    }

    fn has_energy(&self) -> bool {
        self.rows
            .iter()
            .any(|row| row.figure.ops_per_joule.is_some())
    }

    /// How many times as much of something as OpenSSL alone.
    fn ratio(&self, row: &Row, of: impl Fn(&Figure) -> Option<f64>) -> Option<f64> {
        let is_its_stock = |other: &&Row| {
            other.candidate == Candidate::Stock
                && other.op == row.op
                && other.threads == row.threads
        };
        let stock = self.rows.iter().find(is_its_stock)?;
        Some(of(&row.figure)? / of(&stock.figure)?)
    }
}

/// A report as a JSON document.
#[derive(Serialize)]
pub struct Document<'a> {
    machine: &'a Machine,
    rows: Vec<RowDocument<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ciphers: &'a [cipher::Row],
}

#[derive(Serialize)]
struct RowDocument<'a> {
    op: &'a str,
    #[serde(rename = "impl")]
    implementation: &'static str,
    fill: usize,
    threads: usize,
    ops_per_s: Decimal<1>,
    cycles_per_op: Decimal<0>,
    limit_cycles: Option<Decimal<0>>,
    by_stock: bool,
    slices_kept: usize,
    slices: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_per_joule: Option<Decimal<2>>,
}

/// How close to the limit; only full lanes can reach it.
fn of_limit(row: &Row) -> Option<f64> {
    let full = matches!(row.candidate, Candidate::Lockstep { fill } if fill % 4 == 0);
    row.limit_cycles
        .filter(|_| full)
        .map(|limit| limit / row.figure.cycles_per_op)
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn label(row: &Row) -> String {
    match row.candidate {
        Candidate::Stock => "stock".to_owned(),
        Candidate::Lockstep { fill } if row.by_stock => format!("lockstep {fill} (by stock)"),
        Candidate::Lockstep { fill } => format!("lockstep {fill} at once"),
    }
}
