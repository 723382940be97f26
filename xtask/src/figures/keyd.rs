//! Servers whose keys are in the key daemon.

use std::fmt::Write as _;

use super::record::Daemon;
use super::text::{gain, key_name, milliseconds, server_name, wrapped};

/// The table, where there are such runs.
pub fn section(runs: &[Daemon]) -> String {
    // Records of earlier versions have a setting that is gone.
    let known = |run: &&Daemon| matches!(run.keyd.as_str(), "reference" | "daemon");
    let runs: Vec<&Daemon> = runs.iter().filter(known).collect();
    if runs.is_empty() {
        return String::new();
    }
    let mut out = "\n### The key daemon\n\n".to_owned();
    out += &wrapped(
        "Keys in [a process of their own](../user/keyd.md): servers with references, and servers \
         with ordinary keys that have the daemon sign (`keys = daemon`). Server, daemon and clients \
         share all CPUs. The times are those of \
         server and daemon together; beside the second one is the daemon's share. The last two \
         columns compare with OpenSSL alone.",
    );
    out += "\n\
            | server, key | the server has | workers | clients | OpenSSL alone | with the daemon | \
            CPU per handshake | handshakes a second | p50 |\n\
            |---|---|---|---|---|---|---|---|---|\n";
    for run in runs {
        let _ = writeln!(
            out,
            "| {}, {} | {} | {} | {} | {} ms | {} ms ({:.0} %) | {} | {} | {} |",
            server_name(&run.server),
            key_name(&run.key),
            match run.keyd.as_str() {
                "reference" => "a reference".to_owned(),
                _ => "the key, `keys = daemon`".to_owned(),
            },
            run.workers
                .map_or("-".to_owned(), |count| count.to_string()),
            run.clients,
            milliseconds(run.stock),
            milliseconds(run.lockstep),
            run.share * 100.0,
            gain(run.cpu),
            ratio(run.per_second),
            ratio(run.p50),
        );
    }
    out
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_number_of_clients_has_a_row() {
        let run = r#"{"server":"nginx","key":"rsa4096","keyd":"reference","workers":4,
            "ratios":[{"concurrency":1,"cpu":0.5,"per_s":0.991,"p50":1.012},
            {"concurrency":64,"cpu":0.3,"per_s":null,"p50":0.4}],
            "rows":[{"impl":"stock","load":"handshake","concurrency":1,"server_cpu_s_per_1000":4.4},
            {"impl":"lockstep","load":"handshake","concurrency":1,"server_cpu_s_per_1000":2.2,
             "keyd_cpu_share":0.75},
            {"impl":"stock","load":"handshake","concurrency":64,"server_cpu_s_per_1000":4.0},
            {"impl":"lockstep","load":"handshake","concurrency":64,"server_cpu_s_per_1000":1.2,
             "keyd_cpu_share":0.8}]}"#;
        let run: Value = serde_json::from_str(run).unwrap();
        let table = section(&Daemon::parse(&run).unwrap());
        for row in [
            "| nginx, RSA-4096 | a reference | 4 | 1 | 4.40 ms | 2.20 ms (75 %) | 50 % less | \
             0.991 | 1.012 |\n",
            "| nginx, RSA-4096 | a reference | 4 | 64 | 4.00 ms | 1.20 ms (80 %) | 70 % less | - | \
             0.400 |\n",
        ] {
            assert!(table.contains(row), "{table}");
        }
        assert_eq!(section(&[]), "");
        let with = |setting: &str| {
            let mut ordinary = run.clone();
            ordinary["keyd"] = Value::String(setting.to_owned());
            section(&Daemon::parse(&ordinary).unwrap())
        };
        assert!(with("daemon").contains("| the key, `keys = daemon` |"));
        assert_eq!(with("daemon-if-faster"), "");
        assert!(Daemon::parse(&Value::Null).is_none());
    }
}
