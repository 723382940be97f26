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
            | server, key | handshakes a second | OpenSSL alone | with Lockstep | \
            CPU per handshake | p50 | p99 |\n\
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

/// What HAProxy with an RSA-2048 key does at the lowest and at the highest of these rates.
pub fn in_words(runs: &[Paced]) -> Option<String> {
    let is_it = |run: &&Paced| (&*run.server, &*run.key) == ("haproxy", "rsa2048");
    let mut runs = runs.iter().filter(is_it);
    let (first, last) = (runs.next()?, runs.next_back()?);
    let words = |run: &Paced| {
        let ([stock, lockstep], rate) = (run.p50, thousands(run.rate as f64));
        format!(
            "at {rate} handshakes a second it takes {} CPU, and the median handshake \
             {lockstep:.2} ms instead of {stock:.2}",
            gain(run.cpu)
        )
    };
    Some(format!(
        "That is with 64 clients, at the server's limit. Below it few requests meet: with HAProxy \
         and RSA-2048, {}; {}.",
        words(first),
        words(last)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_lowest_and_the_highest_rate_are_told_in_words() {
        let run = |rate, cpu, p50| Paced {
            server: "haproxy".to_owned(),
            key: "rsa2048".to_owned(),
            has_daemon: false,
            rate,
            stock: 0.6,
            lockstep: 0.5,
            cpu,
            p50,
            p99: p50,
        };
        let runs = [
            run(180, 0.95, [1.28, 1.24]),
            run(550, 0.84, [1.26, 1.2]),
            run(1100, 0.74, [1.48, 1.25]),
        ];
        let words = in_words(&runs).unwrap();
        let [first, last] = [
            "at 180 handshakes a second it takes 5 % less CPU, and the median handshake 1.24 ms \
             instead of 1.28; at",
            "at 1,100 handshakes a second it takes 26 % less CPU, and the median handshake 1.25 ms \
             instead of 1.48.",
        ];
        assert!(words.contains(first) && words.ends_with(last), "{words}");
        assert_eq!(in_words(&runs[..1]), None);
    }

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
        let row = "| nginx, RSA-2048, with the key daemon | 1,200 | 0.56 ms | 0.42 ms | \
                   25 % less | 1.50 → 1.25 ms | 4.00 → 2.88 ms |\n";
        assert!(table.ends_with(row), "{table}");
        run.as_object_mut().unwrap().remove("keyd");
        let table = section(&Paced::parse(&run).unwrap());
        assert!(table.contains("| nginx, RSA-2048 | 1,200 |"), "{table}");
        assert_eq!((section(&[]), in_words(&[])), (String::new(), None));
        assert!(Paced::parse(&Value::Null).is_none());
    }
}
