//! Prices of machines: docs/benchmarks/prices.json, and the operations that a dollar buys.
//!
//! The file is an array of objects with `machine`, `cpu` (as in the names of records), `cores`,
//! `dollars_per_hour`, `date` and `source`. Prices come from public lists, never from memory.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::record::Record;
use super::text::{operation_name, thousands, wrapped};
use crate::command::{Failure, Outcome, on, root};

/// The list price of a machine.
#[derive(Debug)]
pub struct Price {
    machine: String,
    /// The part of a record's name behind the date.
    cpu: String,
    /// Physical ones: rates are of a core that nobody shares.
    cores: u64,
    dollars_per_hour: f64,
    /// When the price was read.
    date: String,
    /// Where.
    source: String,
}

fn file() -> PathBuf {
    root().join("docs/benchmarks/prices.json")
}

/// All prices on file.
pub fn load() -> Outcome<Vec<Price>> {
    let path = file();
    let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
    parse(&text).ok_or_else(|| {
        Failure::new(format!("{} is no list of prices", path.display())).remedy(
            "give each machine, cpu, cores, dollars_per_hour, date and source; xtask/src/figures/\
             prices.rs explains them",
        )
    })
}

fn parse(text: &str) -> Option<Vec<Price>> {
    let entries: Value = serde_json::from_str(text).ok()?;
    let price = |entry: &Value| {
        let text = |name: &str| Some(entry.get(name)?.as_str()?.to_owned());
        let price = Price {
            machine: text("machine")?,
            cpu: text("cpu")?,
            cores: entry.get("cores")?.as_u64()?,
            dollars_per_hour: entry.get("dollars_per_hour")?.as_f64()?,
            date: text("date").filter(|date| date.len() == "2026-01-31".len())?,
            source: text("source").filter(|source| !source.is_empty())?,
        };
        (price.cores > 0 && price.dollars_per_hour > 0.0).then_some(price)
    };
    entries.as_array()?.iter().map(price).collect()
}

impl Price {
    /// Operations for a dollar, at so many per second on one core.
    fn buys(&self, per_second: f64) -> f64 {
        per_second * self.cores as f64 * 3600.0 / self.dollars_per_hour
    }
}

/// The section of a record: the formula, and a table for each machine with its CPU.
pub fn section(record: &Record, prices: &[Price]) -> String {
    let mut out = "\n### Operations per dollar\n\n".to_owned();
    out += &wrapped(
        "Millions of operations: the rate on one core × cores × 3600 ÷ the list price of an hour, in \
         dollars; with Lockstep at the most requests at once.",
    );
    let mut machines = prices.iter().filter(|price| price.cpu == record.short());
    let mut any = false;
    for price in machines.by_ref() {
        any = true;
        out += "\n";
        let dollars = price.dollars_per_hour;
        out += &wrapped(&format!(
            "{}, {} cores, ${dollars} an hour on {} ({}):",
            price.machine, price.cores, price.date, price.source
        ));
        out += "\n| operation | OpenSSL alone | with Lockstep |\n|---|---|---|\n";
        for operation in record.operations() {
            let bought = |fill| {
                let per_second = record.speed_of(operation, fill)?.per_second;
                Some(thousands(price.buys(per_second) / 1e6))
            };
            let most = bought(Some(64)).or_else(|| bought(Some(8)));
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "| {} | {} | {} |",
                operation_name(operation),
                bought(None).unwrap_or_default(),
                most.unwrap_or_default(),
            );
        }
    }
    if !any {
        out += "\n";
        out += &wrapped(
            "[prices.json](prices.json) has no list price of a machine with this CPU yet.",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::record::Speed;
    use super::*;

    #[test]
    fn a_dollar_buys_what_the_formula_says() {
        let prices = parse(
            r#"[{"machine": "Two cores", "cpu": "zen4", "cores": 2, "dollars_per_hour": 0.5,
                 "date": "2026-01-31", "source": "a list"}]"#,
        )
        .unwrap();
        let speed = |fill, per_second| Speed {
            operation: "x25519".to_owned(),
            fill,
            per_second,
            by_stock: false,
            quiet_slices: 9,
        };
        let record = |name: &str| Record {
            name: name.to_owned(),
            speed: vec![speed(None, 1e4), speed(Some(8), 2e4), speed(Some(64), 3e5)],
            ..Record::default()
        };
        let text = section(&record("2026-02-01-zen4"), &prices);
        assert!(
            text.contains("Two cores, 2 cores, $0.5 an hour on 2026-01-31 (a list):"),
            "{text}"
        );
        assert!(
            text.contains("| X25519 agreement | 144 | 4,320 |\n"),
            "{text}"
        );
        let text = section(&record("2026-02-01-zen5"), &prices);
        assert!(
            !text.contains('|') && text.contains("no list price"),
            "{text}"
        );
    }

    #[test]
    fn a_price_without_date_or_source_is_none() {
        let good = r#"[{"machine": "M", "cpu": "zen4", "cores": 2, "dollars_per_hour": 0.5,
                        "date": "2026-01-31", "source": "a list"}]"#;
        assert!(parse(good).is_some());
        for (part, other) in [
            ("2026-01-31", ""),
            ("a list", ""),
            ("\"cores\": 2", "\"cores\": 0"),
            ("0.5", "0"),
            ("source", "sauce"),
        ] {
            assert!(parse(&good.replace(part, other)).is_none(), "{part}");
        }
    }
}
