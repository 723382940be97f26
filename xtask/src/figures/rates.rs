//! Servers below their limit.

use std::fmt::Write as _;

use super::record::Paced;
use super::text::{gain, key_name, milliseconds, server_name, thousands, wrapped};

/// The table, where there are such runs.
pub fn section(runs: &[Paced]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut out = "\n### Servers below their limit\n\n".to_owned();
    out += &wrapped(
        "Handshakes that begin at random moments, at a tenth, three tenths and six tenths of what \
         the server does a second with OpenSSL alone and 64 clients at a time. Latencies are those \
         of OpenSSL alone and, behind the arrow, with Lockstep.",
    );
    out += "\n\
            | server, key | handshakes a second | OpenSSL alone | with Lockstep | CPU per handshake \
            | p50 | p99 |\n\
            |---|---|---|---|---|---|---|\n";
    for run in runs {
        let latency = |of: [f64; 2]| format!("{:.2} → {:.2} ms", of[0], of[1]);
        let _ = writeln!(
            out,
            "| {}, {}{} | {} | {} ms | {} ms | {} | {} | {} |",
            server_name(&run.server),
            key_name(&run.key),
            match run.has_daemon {
                true => ", with the key daemon",
                false => "",
            },
            thousands(run.rate as f64),
            milliseconds(run.stock),
            milliseconds(run.lockstep),
            gain(run.cpu),
            latency(run.p50),
            latency(run.p99),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_rate_has_a_row() {
        let run = r#"{"server":"nginx","key":"rsa2048","keyd":"reference",
            "ratios":[{"rate":1200,"cpu":0.75}],
            "rows":[{"impl":"stock","load":"handshake","rate":1200,"server_cpu_s_per_1000":0.56,
             "p50_ms":1.5,"p99_ms":4.0},
            {"impl":"lockstep","load":"handshake","rate":1200,"server_cpu_s_per_1000":0.42,
             "p50_ms":1.25,"p99_ms":2.875}]}"#;
        let mut run: Value = serde_json::from_str(run).unwrap();
        let table = section(&Paced::parse(&run).unwrap());
        let row = "| nginx, RSA-2048, with the key daemon | 1,200 | 0.56 ms | 0.42 ms | 25 % less | \
                   1.50 → 1.25 ms | 4.00 → 2.88 ms |\n";
        assert!(table.ends_with(row), "{table}");
        run.as_object_mut().unwrap().remove("keyd");
        let table = section(&Paced::parse(&run).unwrap());
        assert!(table.contains("| nginx, RSA-2048 | 1,200 |"), "{table}");
        assert_eq!(section(&[]), "");
        assert!(Paced::parse(&Value::Null).is_none());
    }
}
