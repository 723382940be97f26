//! Servers at each load: Lockstep over OpenSSL alone, with the spread of the rounds.

use std::fmt::Write as _;

use serde_json::Value;

use super::text::{curve_name, key_name, server_name, thousands, wrapped};

/// The quantities of the columns, as the document has them.
const QUANTITIES: [&str; 6] = ["per_s", "cpu", "mean", "p50", "p90", "p99"];

/// A median latency that is longer by no more than this is none that anybody notices.
const WITHIN: f64 = 0.02;

/// One load of a run of `handshakes`.
#[derive(Debug)]
pub struct Load {
    pub server: String,
    pub key: String,
    /// The group and the version of TLS, where they are not X25519 and TLS 1.3, and the key daemon.
    pub others: String,
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
    let mut others = String::new();
    if let Some(group) = text("group").filter(|group| group != "x25519") {
        let _ = write!(others, ", {}", curve_name(&group));
        if let Some(stock) = text("stock_group") {
            let _ = write!(others, " (alone: {})", curve_name(&stock));
        }
    }
    if let Some(version) = text("tls").filter(|version| version != "1.3") {
        let _ = write!(others, ", TLS {version}");
    }
    if text("keyd").is_some() {
        others += ", with the key daemon";
    }
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
            others: others.clone(),
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

impl Load {
    /// The median ratio of one of the [`QUANTITIES`].
    fn ratio(&self, quantity: &str) -> f64 {
        let place = QUANTITIES.iter().position(|own| *own == quantity);
        let ratio = place.and_then(|place| self.ratios[place]);
        ratio.map_or(1.0, |[median, _, _]| median)
    }

    /// Whether a user is worse off with lockstep. At a rate as many handshakes are served as begin.
    fn loses(&self) -> bool {
        let serves_fewer = matches!(self.demand, Demand::Clients(_)) && self.ratio("per_s") < 1.0;
        serves_fewer || self.ratio("cpu") > 1.0 || self.ratio("p50") > 1.0 + WITHIN
    }

    fn name(&self) -> String {
        format!(
            "{}, {}{}",
            server_name(&self.server),
            key_name(&self.key),
            self.others
        )
    }

    fn demand(&self) -> String {
        match self.demand {
            Demand::Clients(1) => "1 client".to_owned(),
            Demand::Clients(clients) => format!("{clients} clients"),
            Demand::Rate(rate) => format!("{} begin a second", thousands(rate as f64)),
        }
    }
}

/// The line that stands before what gains; empty without such runs.
pub fn in_words(loads: &[Load]) -> String {
    let losses: Vec<&Load> = loads.iter().filter(|load| load.loses()).collect();
    let p50 = |load: &&&Load| (load.ratio("p50") * 1e4) as i64;
    let Some(worst) = losses.iter().max_by_key(p50) else {
        return match loads.is_empty() {
            true => String::new(),
            false => wrapped(&format!(
                "At none of {} loads did a server do worse than with OpenSSL alone (see below).",
                loads.len()
            )),
        };
    };
    wrapped(&format!(
        "**Not every load gains**: at {} of {} loads a server had fewer handshakes a second than \
         with OpenSSL alone, more CPU time for each, or a median latency that was longer by more \
         than 2 %. The longest of these was {:.2} times OpenSSL's ({}, {}). The table of loads has \
         all.",
        losses.len(),
        loads.len(),
        worst.ratio("p50"),
        worst.name(),
        worst.demand()
    ))
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
            "| {} | {} | {} |",
            load.name(),
            load.demand(),
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
    fn rows_name_groups_and_versions_that_are_not_the_usual_ones() {
        for (fields, words) in [
            (r#""group":"x25519","tls":"1.3""#, ""),
            (r#""group":"x25519","tls":"1.2""#, ", TLS 1.2"),
            (
                r#""group":"x25519mlkem768","stock_group":"x25519","tls":"1.3""#,
                ", X25519MLKEM768 (alone: X25519)",
            ),
            (r#""keyd":"reference""#, ", with the key daemon"),
        ] {
            let run = RUN.replace(r#""key""#, &format!(r#"{fields},"key""#));
            let table = section(&parse(&serde_json::from_str(&run).unwrap()).unwrap());
            let row = format!("| HAProxy, P-256{words} | 1 client |");
            assert!(table.contains(&row), "{table}");
        }
    }

    #[test]
    fn what_a_load_loses_stands_before_what_others_gain() {
        let words = |run: &str| in_words(&parse(&serde_json::from_str(run).unwrap()).unwrap());
        assert_eq!(
            words(RUN),
            "At none of 3 loads did a server do worse than with OpenSSL alone (see below).\n"
        );
        for (from, to, longest) in [
            (r#":1,"per_s":1.1"#, r#":1,"per_s":0.99"#, "0.90"),
            (r#""cpu":0.8,"#, r#""cpu":1.01,"#, "0.90"),
            (r#":0.9,"p50":0.9"#, r#":0.9,"p50":1.03"#, "1.03"),
        ] {
            let words = words(&RUN.replace(from, to));
            let start = "**Not every load gains**: at 1 of 3 loads";
            let worst = format!("of these was {longest} times OpenSSL's (HAProxy, P-256, 1 ");
            let text = words.replace('\n', " ");
            assert!(text.starts_with(start) && text.contains(&worst), "{words}");
        }
        // As many are served as begin.
        let paced = RUN.replace("concurrency", "rate").replace("1.1", "0.99");
        assert!(words(&paced).starts_with("At none of 3"), "{paced}");
        assert_eq!(in_words(&[]), "");
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
