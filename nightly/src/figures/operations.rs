//! Operations: the tables of what `speed --json` printed.

use super::record::{Cipher, Record, Side, Speed};
use super::text::{operation_name, section, thousands};

/// An operation of a record: by OpenSSL alone, one request, and as many at once as fill the lanes.
fn sides<'a>(record: &'a Record, operation: &str) -> [Option<&'a Speed>; 3] {
    let of = |fill| record.speed_of(operation, Some(fill));
    [
        record.speed_of(operation, None),
        of(1),
        of(64).or_else(|| of(8)),
    ]
}

/// Of many requests at once, over OpenSSL alone.
fn factor([stock, _, many]: [Option<&Speed>; 3]) -> Option<String> {
    let factor = many?.ops_per_s / stock?.ops_per_s;
    let decimals = usize::from(factor < 10.0);
    Some(format!("{factor:.decimals$} ×"))
}

/// Operations a second.
pub fn rates(record: &Record) -> String {
    let row = |operation: &str| {
        let sides = sides(record, operation);
        let factor = factor(sides).unwrap_or_else(|| "-".to_owned());
        [operation_name(operation)]
            .into_iter()
            .chain(sides.map(rate))
            .chain([factor])
            .collect::<Vec<_>>()
    };
    section(
        "Operations",
        "Operations per second on one core, checks included: one request alone, and many at once, \
         64 or 8 of RSA. The factor is that of many over OpenSSL alone. In brackets: computed by \
         OpenSSL's own code. In italics: figures with fewer than three undisturbed slices.",
        "operation | OpenSSL alone | one | many | factor",
        record.operations().into_iter().map(row),
    )
}

/// The same with a column for each CPU, without the rates of OpenSSL.
pub fn side_by_side(records: &[Record]) -> String {
    let mut operations: Vec<&str> = Vec::new();
    for operation in records.iter().flat_map(Record::operations) {
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    let row = |operation: &str| {
        let cell = |record| {
            let sides @ [_, one, many] = sides(record, operation);
            let factor = factor(sides).map_or(String::new(), |factor| format!(", {factor}"));
            match (one, many) {
                (None, None) => "-".to_owned(),
                _ => format!("{} / {}{factor}", rate(one), rate(many)),
            }
        };
        [operation_name(operation)]
            .into_iter()
            .chain(records.iter().map(cell))
            .collect::<Vec<_>>()
    };
    section(
        "Operations, side by side",
        "Operations per second on one core, as above: one request alone / many at once, and how \
         many times OpenSSL's rate the latter is.",
        &super::servers::heads("operation", records),
        operations.into_iter().map(row),
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
        text = format!("({text})");
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
        let speed = |row: &Cipher| format!("{:.2} ({:.2})", row.gb_per_s, row.cycles_per_byte);
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
        "Messages encrypted by EVP on one core, with the calls of libssl for a record, in GB/s, and \
         the cycles of a byte.",
        "cipher | bytes | OpenSSL alone | with Lockstep | factor",
        rows.iter().filter(|row| row.side == Side::Stock).map(row),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
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
        let mut record = Record::default();
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
        let record = record();
        let row = "| X25519 agreement | 10,000 | (10,000) | 300,000 | 30 × |\n";
        assert!(rates(&record).ends_with(row), "{}", rates(&record));
        let rows = "| AES-128-GCM | 1,350 | 2.00 (1.85) | 4.00 (0.93) | 2.0 × |\n\
                    | AES-128-GCM | 16 | 2.00 (1.85) | as OpenSSL | - |\n";
        let row = "| X25519 agreement | (10,000) / 300,000, 30 × | - |\n";
        let both = side_by_side(&[record, Record::default()]);
        assert!(both.ends_with(row), "{both}");
        let record = self::record();
        assert!(ciphers(&record).ends_with(rows), "{}", ciphers(&record));
        assert_eq!(ciphers(&Record::default()), "");
    }
}
