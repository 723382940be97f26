//! The figures, as a table and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use lockstep_common::Failure;
use lockstep_engine::Fallback;
use serde::{Serialize, Serializer};

use super::cores::Division;
use super::counters::Counters;
use super::figures::{Figures, Level, Pair};
use super::options::Options;
use super::parameters::Side;
use crate::format::{cpu_model, thousands};
use crate::json::{self, Decimal};

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

    /// Server CPU per handshake, lockstep over OpenSSL alone, with the most clients.
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
            openssl::version::version()
        )
    }

    /// One document: what was measured, `cpu_ratio`, `failures`, and `rows` with an object for each
    /// server and load.
    pub fn to_json(&self) -> Result<String, Failure> {
        let ratios = self.levels.iter().map(|level| {
            let pair = &level.handshakes;
            RatiosDocument {
                concurrency: level.concurrency,
                cpu: Decimal(pair.cpu_ratio()),
                p50: Decimal(pair.latency_ratio(0.5)),
                p90: Decimal(pair.latency_ratio(0.9)),
                p99: Decimal(pair.latency_ratio(0.99)),
            }
        });
        json::text(&Document {
            cpu_ratio: self.cpu_ratio().map(Decimal),
            cpu_ratio_concurrency: self.busiest().map_or(0, |level| level.concurrency),
            failures: self.failures(),
            server: self.server,
            key: self.key,
            group: self.group,
            tls: self.version,
            resumption: self.resumption,
            transfer: self.page,
            seconds: self.turn.as_secs_f64(),
            warm_up: self.warm_up.as_secs_f64(),
            cpu: &self.cpu,
            server_cpus: &self.server_cpus,
            client_cpus: &self.client_cpus,
            caveat: self.caveat,
            openssl: openssl::version::version(),
            ratios: ratios.collect(),
            rows: self.rows().map(|row| row.document()).collect(),
        })
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

    /// Lockstep over OpenSSL alone.
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

    fn document(&self) -> RowDocument {
        let figures = self.figures;
        let counters = figures.counters();
        let costs = figures.costs().into_iter();
        let counted = |value: fn(&Counters) -> u64| counters.as_ref().map(value);
        RowDocument {
            implementation: self.side.name(),
            load: match self.is_transaction {
                true => "transaction",
                false => "handshake",
            },
            concurrency: self.concurrency,
            count: figures.count(),
            early: figures.early(),
            failures: figures.failures(),
            resumed: figures.resumed(),
            per_s: Decimal(figures.per_second()),
            server_cpu_s_per_1000: Decimal(figures.cost() * 1e3),
            server_cpu_s_per_1000_rounds: costs.map(|cost| Decimal(cost * 1e3)).collect(),
            handshake_share: self.handshake_share.map(Decimal),
            p50_ms: Decimal(figures.latency(0.5) * 1e3),
            p90_ms: Decimal(figures.latency(0.9) * 1e3),
            p99_ms: Decimal(figures.latency(0.99) * 1e3),
            server_load: Decimal(figures.server_load()),
            client_load: Decimal(figures.client_load()),
            lane_operations: counted(Counters::operations),
            lane_signatures: counted(Counters::signatures),
            failed_checks: counted(Counters::failed_checks),
            fill: self.fill().map(Decimal),
            fallbacks: counters.iter().flat_map(Counters::fallbacks).collect(),
        }
    }
}

/// A report as a JSON document.
#[derive(Serialize)]
struct Document<'a> {
    cpu_ratio: Option<Decimal<4>>,
    cpu_ratio_concurrency: usize,
    failures: u64,
    server: &'static str,
    key: &'static str,
    group: &'static str,
    tls: &'static str,
    resumption: f64,
    transfer: Option<u64>,
    seconds: f64,
    warm_up: f64,
    cpu: &'a str,
    server_cpus: &'a [usize],
    client_cpus: &'a [usize],
    caveat: Option<&'static str>,
    openssl: &'static str,
    ratios: Vec<RatiosDocument>,
    rows: Vec<RowDocument>,
}

/// Lockstep over OpenSSL alone, with so many clients.
#[derive(Serialize)]
struct RatiosDocument {
    concurrency: usize,
    cpu: Decimal<4>,
    p50: Decimal<4>,
    p90: Decimal<4>,
    p99: Decimal<4>,
}

#[derive(Serialize)]
struct RowDocument {
    #[serde(rename = "impl")]
    implementation: &'static str,
    load: &'static str,
    concurrency: usize,
    count: u64,
    early: usize,
    failures: u64,
    resumed: u64,
    per_s: Decimal<1>,
    server_cpu_s_per_1000: Decimal<5>,
    server_cpu_s_per_1000_rounds: Vec<Decimal<5>>,
    handshake_share: Option<Decimal<4>>,
    p50_ms: Decimal<4>,
    p90_ms: Decimal<4>,
    p99_ms: Decimal<4>,
    server_load: Decimal<3>,
    client_load: Decimal<3>,
    lane_operations: Option<u64>,
    lane_signatures: Option<u64>,
    failed_checks: Option<u64>,
    fill: Option<Decimal<3>>,
    #[serde(serialize_with = "by_name")]
    fallbacks: Vec<(Fallback, u64)>,
}

/// An object with the count of each reason.
fn by_name<S: Serializer>(fallbacks: &[(Fallback, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        fallbacks
            .iter()
            .map(|(reason, count)| (reason.name(), count)),
    )
}

fn list(cpus: &[usize]) -> String {
    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
    cpus.join(",")
}
