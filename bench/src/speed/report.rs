//! The figures, as a table and as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use super::cipher;
use super::comparison::Candidate;
use crate::format::{cpu_model, cycles, thousands};
use crate::json::Decimal;
use crate::measure::{Figure, Units, quantile};
use crate::table::Table;

/// Where it was measured.
#[derive(Serialize)]
pub struct Machine {
    cpu: String,
    cpus: usize,
    clock_ghz: Decimal<3>,
    backend: &'static str,
    openssl: &'static str,
}

impl Machine {
    /// `cpus` is the number of CPUs that the process may use.
    pub fn describe(cpus: usize, backend: &'static str) -> Machine {
        let mut clocks: Vec<f64> = (0..50).map(|_| Units::Lanes.clock()).collect();
        Machine {
            cpu: cpu_model(),
            cpus,
            clock_ghz: Decimal(quantile(&mut clocks, 0.5) / 1e9),
            backend,
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
        } = self;
        format!("{cpu}, {cpus} CPUs, {clock:.2} GHz; lanes: {backend}; stock: {openssl}")
    }
}

/// One figure, and its subject.
pub struct Row {
    pub op: String,
    pub candidate: Candidate,
    /// Lockstep's policy left the request to OpenSSL's own implementation.
    pub by_stock: bool,
    pub threads: usize,
    pub figure: Figure,
}

/// The results of one run.
pub struct Report {
    pub machine: Machine,
    pub rows: Vec<Row>,
    pub ciphers: Vec<cipher::Row>,
}

impl Report {
    /// The document of `--json`: `machine`, and `rows` with an object for each figure.
    pub fn document(&self) -> Value {
        let row = |row: &Row| {
            let (side, fill) = match row.candidate {
                Candidate::Stock => ("stock", 1),
                Candidate::Lockstep { fill } => ("lockstep", fill),
            };
            let figure = &row.figure;
            json!({
                "op": row.op, "impl": side, "fill": fill, "threads": row.threads,
                "ops_per_s": Decimal::<1>(figure.ops_per_s),
                "cycles_per_op": Decimal::<0>(figure.cycles_per_op),
                "by_stock": row.by_stock, "slices_kept": figure.kept, "slices": figure.all,
            })
        };
        let rows: Value = self.rows.iter().map(row).collect();
        let mut document = json!({ "machine": self.machine, "rows": rows });
        if !self.ciphers.is_empty() {
            document["ciphers"] = self.ciphers.iter().map(cipher::Row::document).collect();
        }
        document
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
        let heads = "operation | threads |  | per second | cycles | x stock | quiet slices";
        let mut table = Table::new(3, heads);
        let mut previous = None;
        for row in &self.rows {
            let group = (&row.op, row.threads);
            if previous.is_some_and(|previous| previous != group) {
                table.add_gap();
            }
            previous = Some(group);
            table.add([
                row.op.clone(),
                row.threads.to_string(),
                label(row),
                thousands(row.figure.ops_per_s),
                cycles(row.figure.cycles_per_op),
                times(self.ratio(row)),
                row.figure.slices(),
            ]);
        }
        let mut out = format!("\n{table}");
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

    /// How many times as many in a second as OpenSSL alone.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let is_its_stock = |other: &&Row| {
            other.candidate == Candidate::Stock
                && other.op == row.op
                && other.threads == row.threads
        };
        let stock = self.rows.iter().find(is_its_stock)?;
        Some(row.figure.ops_per_s / stock.figure.ops_per_s)
    }
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
