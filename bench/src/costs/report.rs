//! The figures, as a table and as JSON.

use serde::Serialize;
use serde_json::json;

use super::cases::{Row, Unit};
use super::figures::Figures;
use crate::handshakes::Side;
use crate::json::Decimal;
use crate::table::Table;

/// The results of one run.
#[derive(Serialize)]
pub struct Report {
    pub program: &'static str,
    pub date: String,
    pub command: String,
    pub cpu: String,
    /// Of the libcrypto that this program and its processes have.
    pub openssl: String,
    /// The version that the `openssl` command prints.
    pub openssl_command: Option<String>,
    /// The versions that the measured servers print.
    pub servers: Vec<String>,
    pub bundle: String,
    pub hosts: usize,
    pub rounds: usize,
    pub seconds: f64,
    /// Requests that the module has counted before the first round, in processes without it and
    /// with it.
    pub counted: [u64; 2],
    #[serde(skip)]
    pub rows: Vec<(&'static Row, Figures)>,
    pub left_out: Vec<LeftOut>,
}

/// A case that was not measured.
#[derive(Serialize)]
pub struct LeftOut {
    pub name: &'static str,
    pub why: String,
}

impl Unit {
    /// As the document has it.
    fn name(self) -> &'static str {
        match self {
            Unit::Cpu => "ms",
            Unit::Memory => "KiB",
        }
    }

    /// A figure in that unit.
    fn scaled(self, value: f64) -> f64 {
        match self {
            Unit::Cpu => value * 1e3,
            Unit::Memory => value / 1024.0,
        }
    }
}

impl Report {
    pub fn to_json(&self) -> String {
        let row = |(row, figures): &(&Row, Figures)| {
            let [least, most] = figures.spread().map(Decimal::<4>);
            let value = |side| Decimal::<5>(row.unit.scaled(figures.value(side)));
            let ratios: Vec<_> = figures.ratios().into_iter().map(Decimal::<4>).collect();
            let mut document = json!({
                "name": row.name, "title": row.title, "unit": row.unit.name(),
                "stock": value(Side::Stock), "lockstep": value(Side::Lockstep),
                "ratio": Decimal::<4>(figures.ratio()), "least": least, "most": most,
                "ratios": ratios,
            });
            if let Some(ratio) = figures.wall_ratio() {
                document["wall_ratio"] = json!(Decimal::<4>(ratio));
            }
            document
        };
        let mut document = json!(self);
        document["rows"] = self.rows.iter().map(row).collect();
        document.to_string()
    }

    /// For reading.
    pub fn to_table(&self) -> String {
        let heads = " |  | OpenSSL alone | with lockstep | ratio | in rounds | in time";
        let mut table = Table::new(2, heads);
        for (row, figures) in &self.rows {
            let value = |side| {
                let value = row.unit.scaled(figures.value(side));
                format!("{value:.3} {}", row.unit.name())
            };
            let [least, most] = figures.spread();
            let wall = figures.wall_ratio();
            table.add([
                row.name.to_owned(),
                row.title.to_owned(),
                value(Side::Stock),
                value(Side::Lockstep),
                format!("{:.3}", figures.ratio()),
                format!("{least:.2} to {most:.2}"),
                wall.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            ]);
        }
        let Report {
            openssl,
            cpu,
            date,
            program,
            command,
            bundle,
            ..
        } = self;
        let mut out = format!("{openssl}, {cpu}\n{date}, {program}: {command}\n\n{table}");
        out += &format!("\n{MEANING} The bundle: {bundle}.\n");
        for LeftOut { name, why } in &self.left_out {
            out += &format!("{name} left out: {why}\n");
        }
        out
    }
}

/// Notes for readers of the figures.
const MEANING: &str = "The figures are CPU time, or memory, those of the round with the median \
    ratio; `in time` is the ratio of the time that passed. A ratio above 1 says that lockstep \
    costs something.";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const CPU: Row = Row {
        name: "start",
        title: "a program that starts",
        unit: Unit::Cpu,
    };
    const MEMORY: Row = Row {
        name: "hosts-memory",
        title: "memory of a host",
        unit: Unit::Memory,
    };

    fn report() -> Report {
        Report {
            program: crate::format::PROGRAM,
            date: "2026-11-26T17:00:00Z".to_owned(),
            command: "lockstep-bench costs".to_owned(),
            cpu: "a CPU".to_owned(),
            openssl: "OpenSSL 3.0.19".to_owned(),
            openssl_command: None,
            servers: Vec::new(),
            bundle: "144 certificates, made".to_owned(),
            hosts: 1000,
            rounds: 3,
            seconds: 0.1,
            counted: [0, 3],
            rows: vec![
                (
                    &CPU,
                    Figures::of(&[(0.002, 0.0025), (0.002, 0.003), (0.002, 0.0022)]),
                ),
                (&MEMORY, Figures::of(&[(20480.0, 40960.0)])),
            ],
            left_out: vec![LeftOut {
                name: "postgresql-p256",
                why: "it is not installed".to_owned(),
            }],
        }
    }

    #[test]
    fn each_row_has_its_figures_their_ratio_and_its_spread() {
        let table = report().to_table();
        let row = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(name));
            let words = line.unwrap().split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            row("start "),
            "start a program that starts 2.000 ms 2.500 ms 1.250 1.10 to 1.50 1.25"
        );
        assert!(row("hosts-memory").contains("20.000 KiB 40.000 KiB 2.000 2.00 to 2.00"));
        assert!(
            table.ends_with("postgresql-p256 left out: it is not installed\n"),
            "{table}"
        );
    }

    #[test]
    fn the_document_has_the_same() {
        let document: Value = serde_json::from_str(&report().to_json()).unwrap();
        let row = &document["rows"][0];
        for (name, value) in [
            ("stock", 2.0),
            ("lockstep", 2.5),
            ("ratio", 1.25),
            ("least", 1.1),
            ("most", 1.5),
            ("wall_ratio", 1.25),
        ] {
            assert_eq!(row[name], value, "{name}: {row}");
        }
        assert_eq!(
            (&row["name"], &row["unit"]),
            (&"start".into(), &"ms".into())
        );
        assert_eq!(row["ratios"].as_array().unwrap().len(), 3);
        assert_eq!(document["rows"][1]["unit"], "KiB");
        assert_eq!(document["counted"], serde_json::json!([0, 3]));
        assert_eq!(document["left_out"][0]["name"], "postgresql-p256");
    }
}
