//! Operations: the tables of what `speed --json` printed, and what a dollar buys by
//! docs/benchmarks/prices.json.
//!
//! That file is an array of [`Price`]s. They come from public lists, never from memory.

use serde::Deserialize;

use super::record::{self, Cipher, Record, Side, Speed};
use super::text::{operation_name, section, table, thousands, wrapped};
use crate::command::{Failure, Outcome, root};

/// Operations a second.
pub fn rates(record: &Record) -> String {
    let row = |operation: &str| {
        let of = |fill| record.speed_of(operation, Some(fill));
        let stock = record.speed_of(operation, None);
        let factor = of(64)
            .or(of(8))
            .zip(stock)
            .map(|(most, stock)| most.ops_per_s / stock.ops_per_s);
        vec![
            operation_name(operation),
            rate(stock),
            rate(of(1)),
            rate(of(4)),
            rate(of(8)),
            rate(of(64)),
            match factor {
                None => "-".to_owned(),
                Some(factor) if factor < 10.0 => format!("{factor:.1} ×"),
                Some(factor) => format!("{factor:.0} ×"),
            },
        ]
    };
    section(
        "Operations",
        "Operations per second on one core, checks included, by how many requests there are at \
         once. The factor has the most at once. In italics: figures with fewer than three \
         undisturbed slices.",
        "operation | OpenSSL alone | alone | 4 at once | 8 at once | 64 at once | factor",
        record.operations().into_iter().map(row),
    )
}

fn rate(speed: Option<&Speed>) -> String {
    let Some(speed) = speed else {
        return String::new();
    };
    let mut text = thousands(speed.ops_per_s);
    if speed.slices_kept < 3 {
        text = format!("*{text}*");
    }
    if speed.by_stock {
        text += " (by OpenSSL)";
    }
    text
}

/// The cipher that pages are sent with.
pub fn ciphers(record: &Record) -> String {
    let rows = &record.speed.ciphers;
    let row = |stock: &Cipher| {
        let is_its = |row: &&Cipher| {
            row.side == Side::Lockstep && (&row.op, row.bytes) == (&stock.op, stock.bytes)
        };
        let lockstep = rows.iter().find(is_its);
        let speed = |row: &Cipher| format!("{:.2} GB/s ({:.2})", row.gb_per_s, row.cycles_per_byte);
        let factor = lockstep.map(|row| row.gb_per_s / stock.gb_per_s);
        vec![
            stock.op.to_uppercase(),
            thousands(stock.bytes as f64),
            speed(stock),
            lockstep.map_or("as OpenSSL".to_owned(), speed),
            factor.map_or("-".to_owned(), |factor| format!("{factor:.1} ×")),
        ]
    };
    section(
        "AES-GCM",
        "Messages encrypted by EVP on one core, with the calls of libssl for a record, and the \
         cycles of a byte.",
        "cipher | bytes | OpenSSL alone | with Lockstep | factor",
        rows.iter().filter(|row| row.side == Side::Stock).map(row),
    )
}

/// The list price of a machine.
#[derive(Debug, Deserialize)]
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

/// All prices on file.
pub fn prices() -> Outcome<Vec<Price>> {
    let path = root().join("docs/benchmarks/prices.json");
    let prices: Vec<Price> = record::read(&path)?;
    match prices.iter().find(|price| !price.is_whole()) {
        None => Ok(prices),
        Some(price) => Err(Failure::new(format!(
            "{} lacks a number, a date or a source: {}",
            path.display(),
            price.machine
        ))),
    }
}

impl Price {
    fn is_whole(&self) -> bool {
        let has_texts = self.date.len() == "2026-01-31".len() && !self.source.is_empty();
        has_texts && self.cores > 0 && self.dollars_per_hour > 0.0
    }

    /// Operations for a dollar, at so many per second on one core.
    fn buys(&self, per_second: f64) -> f64 {
        per_second * self.cores as f64 * 3600.0 / self.dollars_per_hour
    }
}

/// The formula, and a table for each machine with the CPU of a record.
pub fn per_dollar(record: &Record, prices: &[Price]) -> String {
    let mut out = "\n### Operations per dollar\n\n".to_owned();
    out += &wrapped(
        "Millions of operations: the rate on one core × cores × 3600 ÷ the list price of an hour, in \
         dollars; with Lockstep at the most requests at once.",
    );
    let mut machines = prices
        .iter()
        .filter(|price| price.cpu == record.short())
        .peekable();
    if machines.peek().is_none() {
        out += "\n";
        out += &wrapped(
            "[prices.json](prices.json) has no list price of a machine with this CPU yet.",
        );
    }
    for price in machines {
        out += "\n";
        let dollars = price.dollars_per_hour;
        out += &wrapped(&format!(
            "{}, {} cores, ${dollars} an hour on {} ({}):",
            price.machine, price.cores, price.date, price.source
        ));
        out += "\n";
        let row = |operation: &str| {
            let bought = |fill| {
                let per_second = record.speed_of(operation, fill)?.ops_per_s;
                Some(thousands(price.buys(per_second) / 1e6))
            };
            let most = bought(Some(64)).or_else(|| bought(Some(8)));
            vec![
                operation_name(operation),
                bought(None).unwrap_or_default(),
                most.unwrap_or_default(),
            ]
        };
        let rows = record.operations().into_iter().map(row);
        out += &table("operation | OpenSSL alone | with Lockstep", rows);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> Record {
        let speed = |side, fill, ops_per_s, by_stock, slices_kept| Speed {
            op: "x25519".to_owned(),
            side,
            fill,
            threads: 1,
            ops_per_s,
            by_stock,
            slices_kept,
        };
        let cipher = |side, gb_per_s, bytes| Cipher {
            op: "aes-128-gcm".to_owned(),
            bytes,
            side,
            gb_per_s,
            cycles_per_byte: 3.7 / gb_per_s,
        };
        let mut record = Record {
            name: name.to_owned(),
            ..Record::default()
        };
        record.speed.rows = vec![
            speed(Side::Stock, 1, 1e4, false, 9),
            speed(Side::Lockstep, 1, 1e4, true, 9),
            speed(Side::Lockstep, 8, 2e4, false, 2),
            speed(Side::Lockstep, 64, 3e5, false, 9),
        ];
        record.speed.ciphers = vec![
            cipher(Side::Stock, 2.0, 1350),
            cipher(Side::Lockstep, 4.0, 1350),
            cipher(Side::Stock, 2.0, 16),
        ];
        record
    }

    #[test]
    fn rows_stand_beside_their_stock() {
        let record = record("2026-02-01-zen4");
        let row = "| X25519 agreement | 10,000 | 10,000 (by OpenSSL) |  | *20,000* | 300,000 | \
                   30 × |\n";
        assert!(rates(&record).ends_with(row), "{}", rates(&record));
        let rows = "| AES-128-GCM | 1,350 | 2.00 GB/s (1.85) | 4.00 GB/s (0.93) | 2.0 × |\n\
                    | AES-128-GCM | 16 | 2.00 GB/s (1.85) | as OpenSSL | - |\n";
        assert!(ciphers(&record).ends_with(rows), "{}", ciphers(&record));
        assert_eq!(ciphers(&Record::default()), "");
    }

    #[test]
    fn a_dollar_buys_what_the_formula_says() {
        let price = |date: &str, source: &str, cores| Price {
            machine: "Two cores".to_owned(),
            cpu: "zen4".to_owned(),
            cores,
            dollars_per_hour: 0.5,
            date: date.to_owned(),
            source: source.to_owned(),
        };
        let good = price("2026-01-31", "a list", 2);
        assert!(good.is_whole());
        for bad in [
            price("", "a list", 2),
            price("2026-01-31", "", 2),
            price("2026-01-31", "a list", 0),
        ] {
            assert!(!bad.is_whole(), "{bad:?}");
        }
        let prices = [good];
        let text = per_dollar(&record("2026-02-01-zen4"), &prices);
        let head = "Two cores, 2 cores, $0.5 an hour on 2026-01-31 (a list):";
        assert!(text.contains(head), "{text}");
        assert!(
            text.contains("| X25519 agreement | 144 | 4,320 |\n"),
            "{text}"
        );
        let text = per_dollar(&record("2026-02-01-zen5"), &prices);
        assert!(
            !text.contains('|') && text.contains("no list price"),
            "{text}"
        );
    }
}
