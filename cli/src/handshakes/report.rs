//! The figures, as a table and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use super::cores::Division;
use super::counters::Counters;
use super::figures::{Figures, Level, Pair};
use super::{Options, Side};
use crate::speed::report::{cpu_model, thousands};
use crate::{json, stock};

/// What to know when reading the figures.
pub const MAIN_FIGURE: &str = "The main figure is server CPU time per handshake: clients and server \
    disturb each other's throughput and latency less when they are pinned apart, but they still share \
    memory, caches and the clients' speed.";

/// All that one run found out.
pub struct Report {
    pub server: &'static str,
    pub key: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub resumption: f64,
    pub page: Option<u64>,
    pub turn: Duration,
    pub warm_up: Duration,
    pub cpu: String,
    pub server_cpus: Vec<usize>,
    pub client_cpus: Vec<usize>,
    pub caveat: Option<&'static str>,
    pub levels: Vec<Level>,
}

/// One line of the table.
pub struct Row<'a> {
    pub concurrency: usize,
    /// Whether the page was fetched, too.
    pub is_transaction: bool,
    pub side: Side,
    pub figures: &'a Figures,
    pub pair: &'a Pair,
    /// The share of the handshake in the server's CPU time for a transaction.
    pub handshake_share: Option<f64>,
}

impl Report {
    pub fn new(options: &Options, division: &Division, levels: Vec<Level>) -> Report {
        Report {
            server: options.server.name(),
            key: options.key.name(),
            group: options.group.name(),
            version: options.version.name(),
            resumption: options.resumption,
            page: options.page,
            turn: options.turn,
            warm_up: options.warm_up(),
            cpu: cpu_model(),
            server_cpus: division.server.clone(),
            client_cpus: division.clients.clone(),
            caveat: division.caveat,
            levels,
        }
    }

    pub fn failures(&self) -> u64 {
        let pairs = self.levels.iter().flat_map(Level::pairs);
        pairs.map(Pair::failures).sum()
    }

    /// The level with the most clients; of equal ones the first.
    pub fn busiest(&self) -> Option<&Level> {
        self.levels
            .iter()
            .rev()
            .max_by_key(|level| level.concurrency)
    }

    /// Server CPU per handshake, lockstep over stock, with the most clients.
    pub fn cpu_ratio(&self) -> Option<f64> {
        self.busiest().map(|level| level.handshakes.cpu_ratio())
    }

    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.levels.iter().flat_map(|level| {
            level.pairs().enumerate().flat_map(move |(index, pair)| {
                let handshakes = &level.handshakes;
                [
                    (Side::Stock, &pair.stock, &handshakes.stock),
                    (Side::Lockstep, &pair.lockstep, &handshakes.lockstep),
                ]
                .map(|(side, figures, alone)| Row {
                    concurrency: level.concurrency,
                    is_transaction: index > 0,
                    side,
                    figures,
                    pair,
                    handshake_share: (index > 0).then(|| alone.cost() / figures.cost()),
                })
            })
        })
    }

    /// What was measured, in one line.
    pub fn title(&self) -> String {
        let Report {
            server,
            key,
            group,
            version,
            ..
        } = self;
        let mut title = format!("{server}, {key}, {group}, TLS {version}");
        if self.resumption > 0.0 {
            let _ = write!(title, ", {:.0} % offer a session", self.resumption * 100.0);
        }
        title
    }

    /// Where it was measured, in one line.
    pub fn place(&self) -> String {
        format!(
            "{}; server on CPU {}, clients on CPU {}; stock: {}",
            self.cpu,
            list(&self.server_cpus),
            list(&self.client_cpus),
            stock::version()
        )
    }

    /// One document: what was measured, `cpu_ratio`, `failures`, and `rows` with an object for each
    /// server and load.
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = self.rows().map(|row| row.to_json()).collect();
        let ratios: Vec<String> = self
            .levels
            .iter()
            .map(|level| {
                let pair = &level.handshakes;
                format!(
                    r#"{{"concurrency":{},"cpu":{},"p50":{},"p90":{},"p99":{}}}"#,
                    level.concurrency,
                    json::number(Some(pair.cpu_ratio()), 4),
                    json::number(Some(pair.latency_ratio(0.5)), 4),
                    json::number(Some(pair.latency_ratio(0.9)), 4),
                    json::number(Some(pair.latency_ratio(0.99)), 4),
                )
            })
            .collect();
        format!(
            r#"{{"cpu_ratio":{},"cpu_ratio_concurrency":{},"failures":{},"server":"{}","key":"{}","group":"{}","tls":"{}","resumption":{},"transfer":{},"seconds":{},"warm_up":{},"cpu":{},"server_cpus":[{}],"client_cpus":[{}],"caveat":{},"openssl":{},"ratios":[{}],"rows":[{}]}}"#,
            json::number(self.cpu_ratio(), 4),
            self.busiest().map_or(0, |level| level.concurrency),
            self.failures(),
            self.server,
            self.key,
            self.group,
            self.version,
            self.resumption,
            self.page.map_or("null".to_owned(), |page| page.to_string()),
            self.turn.as_secs_f64(),
            self.warm_up.as_secs_f64(),
            json::string(&self.cpu),
            list(&self.server_cpus),
            list(&self.client_cpus),
            self.caveat.map_or("null".to_owned(), json::string),
            json::string(stock::version()),
            ratios.join(","),
            rows.join(","),
        )
    }

    /// For reading.
    pub fn to_table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "{}\n{}\n\n{:>7}  {:<22} {:>9} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
            self.title(),
            self.place(),
            "clients",
            "",
            "per s",
            "CPU s/1000",
            "x stock",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "failures",
            "on lanes",
            "fill",
        );
        let mut previous = None;
        for row in self.rows() {
            let first = previous != Some(row.concurrency);
            if first && previous.is_some() {
                out.push('\n');
            }
            previous = Some(row.concurrency);
            let clients = match first {
                true => row.concurrency.to_string(),
                false => String::new(),
            };
            let _ = writeln!(out, "{clients:>7}  {}", row.to_line());
        }
        let shares: Vec<String> = self
            .rows()
            .filter_map(|row| {
                let share = row.handshake_share? * 100.0;
                let (side, clients) = (row.side.name(), row.concurrency);
                Some(format!("{side} with {clients} clients {share:.0} %"))
            })
            .collect();
        if let (false, Some(page)) = (shares.is_empty(), self.page) {
            let _ = writeln!(
                out,
                "\nThe handshake's share of the server's CPU time for a handshake and a page of {page} \
                 bytes: {}.",
                shares.join(", ")
            );
        }
        let _ = writeln!(out, "\n{MAIN_FIGURE}");
        if let Some(caveat) = self.caveat {
            let _ = writeln!(out, "Note: {caveat}.");
        }
        for example in self.examples() {
            let _ = writeln!(out, "Failed: {example}");
        }
        out
    }

    /// Some of the failures in words, each once.
    pub fn examples(&self) -> Vec<&str> {
        let mut examples: Vec<&str> = self.rows().flat_map(|row| row.figures.examples()).collect();
        examples.sort_unstable();
        examples.dedup();
        examples
    }
}

impl Row<'_> {
    /// Whose signatures were made on lanes, as a share of the full handshakes.
    pub fn on_lanes(&self) -> Option<f64> {
        let counters = self.figures.counters()?;
        let full = self.figures.count().saturating_sub(self.figures.resumed());
        (full > 0).then(|| counters.signatures() as f64 / full as f64)
    }

    pub fn fill(&self) -> Option<f64> {
        self.figures.counters()?.fill()
    }

    /// Lockstep over stock.
    pub fn cpu_ratio(&self) -> Option<f64> {
        (self.side == Side::Lockstep).then(|| self.pair.cpu_ratio())
    }

    fn to_line(&self) -> String {
        let optional = |value: Option<String>| value.unwrap_or("-".to_owned());
        let milliseconds = |share| format!("{:.2}", self.figures.latency(share) * 1e3);
        let label = match self.is_transaction {
            true => format!("{}, with page", self.side.name()),
            false => self.side.name().to_owned(),
        };
        format!(
            "{label:<22} {:>9} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
            thousands(self.figures.per_second()),
            format!("{:.4}", self.figures.cost() * 1e3),
            optional(self.cpu_ratio().map(|ratio| format!("{ratio:.2}"))),
            milliseconds(0.5),
            milliseconds(0.9),
            milliseconds(0.99),
            self.figures.failures(),
            optional(
                self.on_lanes()
                    .map(|share| format!("{:.0} %", share * 100.0))
            ),
            optional(self.fill().map(|fill| format!("{fill:.2}"))),
        )
    }

    fn to_json(&self) -> String {
        let number = |value: f64, decimals| json::number(Some(value), decimals);
        let figures = self.figures;
        let counters = figures.counters();
        let costs: Vec<String> = figures
            .costs()
            .into_iter()
            .map(|cost| number(cost * 1e3, 5))
            .collect();
        let fallbacks: Vec<String> = counters
            .iter()
            .flat_map(|counters| counters.fallbacks())
            .map(|(reason, count)| format!(r#""{}":{count}"#, reason.name()))
            .collect();
        let counted = |value: fn(&Counters) -> u64| {
            let counted = counters.as_ref().map(value);
            counted.map_or("null".to_owned(), |count| count.to_string())
        };
        format!(
            r#"{{"impl":"{}","load":"{}","concurrency":{},"count":{},"early":{},"failures":{},"resumed":{},"per_s":{},"server_cpu_s_per_1000":{},"server_cpu_s_per_1000_rounds":[{}],"handshake_share":{},"p50_ms":{},"p90_ms":{},"p99_ms":{},"server_load":{},"client_load":{},"lane_operations":{},"lane_signatures":{},"failed_checks":{},"fill":{},"fallbacks":{{{}}}}}"#,
            self.side.name(),
            if self.is_transaction {
                "transaction"
            } else {
                "handshake"
            },
            self.concurrency,
            figures.count(),
            figures.early(),
            figures.failures(),
            figures.resumed(),
            number(figures.per_second(), 1),
            number(figures.cost() * 1e3, 5),
            costs.join(","),
            json::number(self.handshake_share, 4),
            number(figures.latency(0.5) * 1e3, 4),
            number(figures.latency(0.9) * 1e3, 4),
            number(figures.latency(0.99) * 1e3, 4),
            number(figures.server_load(), 3),
            number(figures.client_load(), 3),
            counted(Counters::operations),
            counted(Counters::signatures),
            counted(Counters::failed_checks),
            json::number(self.fill(), 3),
            fallbacks.join(","),
        )
    }
}

fn list(cpus: &[usize]) -> String {
    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
    cpus.join(",")
}
