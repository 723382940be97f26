//! Servers at each load: Lockstep over OpenSSL alone, with the spread of the rounds.

use std::fmt::Write as _;

use serde_json::Value;

use super::text::{key_name, server_name, thousands, wrapped};

/// The quantities of the columns, as the document has them.
const QUANTITIES: [&str; 6] = ["per_s", "cpu", "mean", "p50", "p90", "p99"];

/// One load of a run of `handshakes`.
#[derive(Debug)]
pub struct Load {
    pub server: String,
    pub key: String,
    /// Clients at a time, or handshakes that begin in a second.
    pub demand: Demand,
    /// How many handshakes OpenSSL alone served in a second.
    pub per_second: f64,
    /// The median, the least and the greatest ratio of each quantity.
    pub ratios: [Option<[f64; 3]>; 6],
}

#[derive(Debug, PartialEq, Eq)]
pub enum Demand {
    Clients(u64),
    Rate(u64),
}

/// Whether a run has several loads, each with the ratios of its rounds. Older runs have none.
pub fn has_several(run: &Value) -> bool {
    let ratios = run.get("ratios").and_then(Value::as_array);
    ratios.is_some_and(|ratios| {
        ratios.len() > 2 && ratios.iter().all(|load| load.get("rounds").is_some())
    })
}

/// A figure for each load of a run.
pub fn parse(run: &Value) -> Option<Vec<Load>> {
    let text = |name: &str| Some(run.get(name)?.as_str()?.to_owned());
    let (server, key) = (text("server")?, text("key")?);
    let mut loads = Vec::new();
    for ratios in run.get("ratios")?.as_array()? {
        let number = |name: &str| ratios.get(name)?.as_u64();
        let (name, demand) = match (number("concurrency"), number("rate")) {
            (Some(clients), _) => ("concurrency", Demand::Clients(clients)),
            (None, Some(rate)) => ("rate", Demand::Rate(rate)),
            (None, None) => return None,
        };
        let is_stock = |row: &&Value| {
            row.get("impl").and_then(Value::as_str) == Some("stock")
                && row.get("load").and_then(Value::as_str) == Some("handshake")
                && row.get(name) == ratios.get(name)
        };
        let row = run.get("rows")?.as_array()?.iter().find(is_stock)?;
        let rounds = ratios.get("rounds")?.as_array()?;
        loads.push(Load {
            server: server.clone(),
            key: key.clone(),
            demand,
            per_second: row.get("per_s")?.as_f64()?,
            ratios: QUANTITIES.map(|quantity| {
                let rounds = rounds
                    .iter()
                    .filter_map(|round| round.get(quantity)?.as_f64());
                let rounds: Vec<f64> = rounds.collect();
                let end = |end: fn(f64, f64) -> f64| rounds.iter().copied().reduce(end);
                let median = ratios.get(quantity)?.as_f64()?;
                Some([median, end(f64::min)?, end(f64::max)?])
            }),
        });
    }
    Some(loads)
}

/// The table, where there are such runs.
pub fn section(loads: &[Load]) -> String {
    if loads.is_empty() {
        return String::new();
    }
    let mut out = "\n### Servers at each load\n\n".to_owned();
    out += &wrapped(
        "Lockstep over OpenSSL alone: handshakes a second, the server's CPU time for each, and the \
         clients' latencies. Each is the median of the rounds; behind it are the least and the \
         greatest. Handshakes a second of OpenSSL alone stand before them.",
    );
    out += "\n| server, key | load | OpenSSL alone | a second | CPU | mean | p50 | p90 | p99 |\n\
            |---|---|---|---|---|---|---|---|---|\n";
    for load in loads {
        let _ = write!(
            out,
            "| {}, {} | {} | {} |",
            server_name(&load.server),
            key_name(&load.key),
            match load.demand {
                Demand::Clients(1) => "1 client".to_owned(),
                Demand::Clients(clients) => format!("{clients} clients"),
                Demand::Rate(rate) => format!("{} begin a second", thousands(rate as f64)),
            },
            thousands(load.per_second),
        );
        for ratio in load.ratios {
            let cell = ratio.map_or("-".to_owned(), |[median, least, most]| {
                format!("{median:.2} ({least:.2} to {most:.2})")
            });
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"server":"haproxy","key":"p256","ratios":[
        {"concurrency":1,"per_s":1.1,"cpu":0.8,"mean":0.9,"p50":0.9,"p90":0.9,"p99":null,
         "rounds":[{"per_s":1.0,"cpu":0.7,"mean":0.8,"p50":0.85,"p90":0.9,"p99":null},
                   {"per_s":1.2,"cpu":0.9,"mean":1.0,"p50":0.95,"p90":0.9,"p99":null}]},
        {"concurrency":8,"per_s":1.1,"rounds":[]},{"concurrency":64,"per_s":1.1,"rounds":[]}],
        "rows":[
        {"impl":"lockstep","load":"handshake","concurrency":1,"per_s":1100.0},
        {"impl":"stock","load":"handshake","concurrency":1,"per_s":1000.0},
        {"impl":"stock","load":"handshake","concurrency":8,"per_s":2000.0},
        {"impl":"stock","load":"handshake","concurrency":64,"per_s":2000.0}]}"#;

    #[test]
    fn each_load_has_a_row_with_its_spread() {
        let run: Value = serde_json::from_str(RUN).unwrap();
        assert!(has_several(&run));
        let table = section(&parse(&run).unwrap());
        let row = "| HAProxy, P-256 | 1 client | 1,000 | 1.10 (1.00 to 1.20) | 0.80 (0.70 to 0.90) \
                   | 0.90 (0.80 to 1.00) | 0.90 (0.85 to 0.95) | 0.90 (0.90 to 0.90) | - |\n";
        assert!(table.contains(row), "{table}");
        let paced = RUN.replace("concurrency", "rate");
        let table = section(&parse(&serde_json::from_str(&paced).unwrap()).unwrap());
        assert!(
            table.contains("| HAProxy, P-256 | 64 begin a second | 2,000 | -"),
            "{table}"
        );
    }

    #[test]
    fn older_runs_and_those_of_one_load_have_none() {
        for text in [
            RUN.replace("rounds", "turns"),
            r#"{"ratios":[{"concurrency":64,"rounds":[]}]}"#.to_owned(),
            "{}".to_owned(),
        ] {
            assert!(
                !has_several(&serde_json::from_str(&text).unwrap()),
                "{text}"
            );
        }
        assert!(parse(&Value::Null).is_none());
        assert_eq!(section(&[]), "");
    }
}
