//! The figures, as a table and as JSON.

use std::fmt::Write as _;
use std::fs;

use lockstep_engine::Backend;

use super::contest::Contestant;
use super::limit::Rates;
use super::measure::Figure;
use crate::{json, stock};

/// Where it was measured.
pub struct Machine {
    cpu: String,
    cpus: usize,
    clock: f64,
    backend: &'static str,
    lane_multiplies: Option<f64>,
}

impl Machine {
    /// `cpus` are those that the process may use.
    pub fn describe(cpus: usize, backend: Backend, rates: &Rates) -> Machine {
        Machine {
            cpu: cpu_model(),
            cpus,
            clock: rates.clock,
            backend: backend.name(),
            lane_multiplies: rates.multiplies,
        }
    }

    pub fn to_json(&self) -> String {
        format!(
            r#"{{"cpu":{},"cpus":{},"clock_ghz":{},"backend":"{}","lane_multiplies_per_cycle":{},"openssl":{}}}"#,
            json::string(&self.cpu),
            self.cpus,
            json::number(Some(self.clock / 1e9), 3),
            self.backend,
            json::number(self.lane_multiplies, 2),
            json::string(stock::version()),
        )
    }

    /// One line for the head of a table.
    pub fn to_line(&self) -> String {
        let Machine {
            cpu,
            cpus,
            clock,
            backend,
            ..
        } = self;
        let stock = stock::version();
        format!(
            "{cpu}, {cpus} CPUs, {:.2} GHz; lanes: {backend}; stock: {stock}",
            clock / 1e9
        )
    }
}

/// One figure, and what it is of.
pub struct Row {
    pub op: String,
    pub contestant: Contestant,
    /// Lockstep's policy gave the request to stock libcrypto.
    pub by_stock: bool,
    pub threads: usize,
    pub figure: Figure,
    /// Of the operation, with all lanes full.
    pub limit_cycles: Option<f64>,
}

impl Row {
    fn fill(&self) -> usize {
        match self.contestant {
            Contestant::Stock => 1,
            Contestant::Lockstep { fill } => fill,
        }
    }
}

/// All that one run found out.
pub struct Report {
    pub machine: Machine,
    pub rows: Vec<Row>,
}

impl Report {
    /// One document: `machine`, and `rows` with an object for each figure.
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = self
            .rows
            .iter()
            .map(|row| {
                let implementation = match row.contestant {
                    Contestant::Stock => "stock",
                    Contestant::Lockstep { .. } => "lockstep",
                };
                format!(
                    r#"{{"op":{},"impl":"{implementation}","fill":{},"threads":{},"ops_per_s":{},"cycles_per_op":{},"limit_cycles":{},"by_stock":{},"slices_kept":{},"slices":{}}}"#,
                    json::string(&row.op),
                    row.fill(),
                    row.threads,
                    json::number(Some(row.figure.ops_per_s), 1),
                    json::number(Some(row.figure.cycles_per_op), 0),
                    json::number(row.limit_cycles, 0),
                    row.by_stock,
                    row.figure.kept,
                    row.figure.slices,
                )
            })
            .collect();
        format!(
            r#"{{"machine":{},"rows":[{}]}}"#,
            self.machine.to_json(),
            rows.join(",")
        )
    }

    /// For reading. Ratios compare with stock on as many threads.
    pub fn to_table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "{}\n\n\
             {:<14} {:>7}  {:<22} {:>10} {:>10} {:>8} {:>9}  {:>12}",
            self.machine.to_line(),
            "operation",
            "threads",
            "",
            "per second",
            "cycles",
            "x stock",
            "of limit",
            "quiet slices"
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
                "{:<14} {:>7}  {:<22} {:>10} {:>10} {:>8} {:>9}  {:>12}",
                row.op,
                row.threads,
                label(row),
                thousands(row.figure.ops_per_s),
                cycles(row.figure.cycles_per_op),
                self.ratio(row)
                    .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                of_limit(row).map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
                format!("{}/{}", row.figure.kept, row.figure.slices),
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

    /// How many times as fast as stock.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let is_its_stock = |other: &&Row| {
            other.contestant == Contestant::Stock
                && other.op == row.op
                && other.threads == row.threads
        };
        let stock = self.rows.iter().find(is_its_stock)?;
        Some(row.figure.ops_per_s / stock.figure.ops_per_s)
    }
}

/// How close to the limit; only full lanes can reach it.
fn of_limit(row: &Row) -> Option<f64> {
    let full = matches!(row.contestant, Contestant::Lockstep { fill } if fill % 4 == 0);
    row.limit_cycles
        .filter(|_| full)
        .map(|limit| limit / row.figure.cycles_per_op)
}

fn label(row: &Row) -> String {
    match row.contestant {
        Contestant::Stock => "stock".to_owned(),
        Contestant::Lockstep { fill: 1 } if row.by_stock => "lockstep 1 (by stock)".to_owned(),
        Contestant::Lockstep { fill } => format!("lockstep {fill} at once"),
    }
}

/// As 1,234; below 100 with a decimal.
pub fn thousands(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Cycles, or any other count, to three digits or so.
pub fn cycles(value: f64) -> String {
    match value {
        ..1e4 => thousands(value),
        ..1e6 => format!("{:.1} K", value / 1e3),
        _ => format!("{:.2} M", value / 1e6),
    }
}

/// As the system calls it.
pub fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or("unknown CPU".to_owned(), |(_, model)| {
        model.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(987.0), "987");
        assert_eq!(thousands(12.34), "12.3");
        assert_eq!(cycles(410_200.0), "410.2 K");
        assert_eq!(cycles(1_361_000.0), "1.36 M");
        assert_eq!(cycles(961.0), "961");
    }
}
