//! The cost of pages after handshakes, and the cipher that they are sent with.

use std::fmt::Write as _;

use super::record::{Cipher, Record, Transaction, Transactions};
use super::text::{gain, key_name, milliseconds, server_name, thousands, wrapped};

/// The tables of both, where the record has them.
pub fn section(record: &Record) -> String {
    let mut out = transactions(&record.transactions);
    out += &ciphers(&record.ciphers);
    out
}

fn transactions(runs: &[Transactions]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut out = "\n### Transactions\n\n".to_owned();
    out += &wrapped(
        "A handshake, and a page that is fetched on the same connection: the CPU time of the \
         server, and in brackets what of it the handshake and the transfer take.",
    );
    out += "\n\
            | server, key | page | clients | OpenSSL alone | with Lockstep | CPU per transaction |\n\
            |---|---|---|---|---|---|\n";
    for run in runs {
        let _ = writeln!(
            out,
            "| {}, {} | {} | {} | {} | {} | {} |",
            server_name(&run.server),
            key_name(&run.key),
            size(run.page),
            run.clients,
            parts(&run.stock),
            parts(&run.lockstep),
            gain(run.ratio),
        );
    }
    out
}

/// As in `0.98 ms (0.61 + 0.37)`.
fn parts(transaction: &Transaction) -> String {
    let transfer = transaction.whole - transaction.handshake;
    format!(
        "{} ms ({} + {})",
        milliseconds(transaction.whole),
        milliseconds(transaction.handshake),
        milliseconds(transfer)
    )
}

fn ciphers(rows: &[Cipher]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = "\n### AES-GCM\n\n".to_owned();
    out += &wrapped(
        "Messages encrypted by EVP on one core, with the calls of libssl for a record, and the \
         cycles of a byte.",
    );
    out += "\n\
            | cipher | bytes | OpenSSL alone | with Lockstep | factor |\n\
            |---|---|---|---|---|\n";
    for stock in rows.iter().filter(|row| row.is_stock) {
        let is_its =
            |row: &&Cipher| !row.is_stock && (&row.name, row.bytes) == (&stock.name, stock.bytes);
        let lockstep = rows.iter().find(is_its);
        let speed = |row: &Cipher| format!("{:.2} GB/s ({:.2})", row.gb_per_s, row.cycles_per_byte);
        let factor = lockstep.map(|row| row.gb_per_s / stock.gb_per_s);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            stock.name.to_uppercase(),
            thousands(stock.bytes as f64),
            speed(stock),
            lockstep.map_or("as OpenSSL".to_owned(), speed),
            factor.map_or("-".to_owned(), |factor| format!("{factor:.1} ×")),
        );
    }
    out
}

/// As in 230 KiB.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_has_two_parts() {
        let transaction = |handshake, whole| Transaction { handshake, whole };
        let run = Transactions {
            server: "haproxy".to_owned(),
            key: "rsa2048".to_owned(),
            page: 230 << 10,
            clients: 16,
            stock: transaction(0.61, 0.98),
            lockstep: transaction(0.24, 0.54),
            ratio: 0.55,
        };
        let table = transactions(&[run]);
        let row = "| HAProxy, RSA-2048 | 230 KiB | 16 | 0.98 ms (0.61 + 0.37) | 0.54 ms (0.24 + 0.30) \
                   | 45 % less |\n";
        assert!(table.ends_with(row), "{table}");
        assert_eq!(transactions(&[]), "");
        assert_eq!((size(10 << 20), size(16)), ("10 MiB".into(), "16 B".into()));
    }

    #[test]
    fn a_cipher_stands_beside_its_stock() {
        let row = |is_stock, gb_per_s| Cipher {
            name: "aes-128-gcm".to_owned(),
            bytes: 1350,
            is_stock,
            gb_per_s,
            cycles_per_byte: 3.7 / gb_per_s,
        };
        let table = ciphers(&[row(true, 2.0), row(false, 4.0)]);
        let line = "| AES-128-GCM | 1,350 | 2.00 GB/s (1.85) | 4.00 GB/s (0.93) | 2.0 × |\n";
        assert!(table.ends_with(line), "{table}");
        assert!(ciphers(&[row(true, 2.0)]).contains("as OpenSSL"));
    }
}
