//! The figures, as a table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::cores::Division;
use super::counters::Counters;
use super::demand::Demand;
use super::figures::{Figures, Level, Pair, Quantity};
use super::identity::Kind;
use super::options::Options;
use super::parameters::Side;
use crate::format::{PROGRAM, thousands};
use crate::json::Decimal;
use crate::measure::ends;
use crate::table::Table;

/// Notes for readers of the figures.
const MAIN_FIGURE: &str = "The main figure is server CPU time per handshake: clients and server \
    disturb each other's throughput and latency less when they are pinned apart, but they still share \
    memory, caches and the clients' speed. It is that of the round with the median ratio (x stock), and so \
    are the CPU seconds; all else in a row is of all rounds.";

/// The results of one run.
pub struct Report<'a> {
    pub options: &'a Options,
    pub division: &'a Division,
    pub key: Kind,
    pub date: String,
    /// The whole command line.
    pub command: String,
    pub cpu: String,
    /// The version that the server prints.
    pub server_version: Option<String>,
    /// Of the server, if it was found there.
    pub openssl: Option<String>,
    pub levels: Vec<Level>,
}

/// The library of the clients' connections.
const CLIENTS: &str = "rustls with ring";

/// One line of the table.
struct Row<'a> {
    demand: Demand,
    /// Whether the page was fetched, too.
    is_transaction: bool,
    side: Side,
    figures: &'a Figures,
    pair: &'a Pair,
    /// The share of the handshake in the server's CPU time for a transaction.
    handshake_share: Option<f64>,
}

impl Report<'_> {
    pub fn failures(&self) -> u64 {
        let pairs = self.levels.iter().flat_map(Level::pairs);
        pairs.map(Pair::failures).sum()
    }

    /// The unit of the loads' numbers.
    fn unit(&self) -> &'static str {
        let first = self.levels.first();
        first.map_or("clients", |level| level.demand.unit())
    }

    /// The level with the highest load; of equal ones the first.
    fn busiest(&self) -> Option<&Level> {
        self.levels
            .iter()
            .rev()
            .max_by_key(|level| level.demand.number())
    }

    /// Server CPU per handshake, lockstep over OpenSSL alone, under the highest load.
    fn cpu_ratio(&self) -> Option<f64> {
        self.busiest().map(|level| level.handshakes.cpu_ratio())
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.levels.iter().flat_map(|level| {
            level.pairs().enumerate().flat_map(move |(index, pair)| {
                let handshakes = &level.handshakes;
                [(Side::Stock, &pair.stock), (Side::Lockstep, &pair.lockstep)].map(
                    |(side, figures)| Row {
                        demand: level.demand,
                        is_transaction: index > 0,
                        side,
                        figures,
                        pair,
                        handshake_share: (index > 0)
                            .then(|| handshakes.cost(side) / pair.cost(side)),
                    },
                )
            })
        })
    }

    /// The group of the side without lockstep, if it is another.
    fn stock_group(&self) -> Option<&'static str> {
        let stock = self.options.group(Side::Stock).name;
        Some(stock).filter(|stock| *stock != self.options.group.name)
    }

    /// Threads of the server, or processes, where it has such workers.
    fn workers(&self) -> Option<usize> {
        self.options.workers(self.division.server.len())
    }

    /// The measurement, in one line.
    fn title(&self) -> String {
        let options = self.options;
        let (server, key, group) = (
            options.server.server.name,
            self.key.name(),
            options.group.name,
        );
        let mut title = format!("{server}, {key}, {group}, TLS {}", options.version.name());
        if let Some(config) = &options.config {
            let _ = write!(title, ", as {} has it", config.display());
        }
        if let Some(stock) = self.stock_group() {
            let _ = write!(title, ", stock with {stock}");
        }
        if let Some(keyd) = options.keyd {
            let _ = write!(title, ", lockstep with the key daemon ({})", keyd.name());
        }
        title
    }

    /// The main figure in words; `None` if no handshake succeeded.
    fn headline(&self) -> Option<Headline> {
        let level = self.busiest()?;
        let pair = &level.handshakes;
        let milliseconds = |side| format!("{:.4} ms", pair.cost(side) * 1e3);
        Some(Headline {
            gain: gain(pair.cpu_ratio())?,
            detail: format!(
                "{}: {} with lockstep, {} with OpenSSL alone, {}",
                match level.demand {
                    Demand::Clients(_) => level.demand.words() + " at a time",
                    Demand::Rate(_) => level.demand.words(),
                },
                milliseconds(Side::Lockstep),
                milliseconds(Side::Stock),
                match pair.cpu_ratios().len() {
                    1 => "in the only round".to_owned(),
                    rounds => format!(
                        "in the median of {rounds} rounds, whose ratios are {}",
                        spread(pair).unwrap_or_default()
                    ),
                }
            ),
        })
    }

    /// The place, the time and the means of the measurement, a line each.
    fn provenance(&self) -> [String; 3] {
        let Report {
            cpu,
            date,
            command,
            division,
            ..
        } = self;
        let version = self.server_version.as_deref();
        let version = version.unwrap_or(self.options.server.server.name);
        let openssl = self
            .openssl
            .as_ref()
            .map(|openssl| format!(", on {openssl}"));
        let workers = match self.workers() {
            None => String::new(),
            Some(1) => " (1 worker)".to_owned(),
            Some(count) => format!(" ({count} workers)"),
        };
        let (server, clients) = (list(&division.server), list(&division.clients));
        [
            format!("{version}{}", openssl.unwrap_or_default()),
            format!("{cpu}; server{workers} on CPU {server}, clients ({CLIENTS}) on CPU {clients}"),
            format!("{date}, {PROGRAM}: {command}"),
        ]
    }

    /// One document: the measurement, `cpu_ratio`, `failures`, `ratios` of each load, and `rows`
    /// with an object for each server and load.
    pub fn to_json(&self) -> String {
        let (options, division) = (self.options, self.division);
        let mut document = json!({
            "headline": self.headline().map(|headline| headline.gain), "program": PROGRAM,
            "date": self.date, "command": self.command, "server_version": self.server_version,
            "openssl": self.openssl, "clients": CLIENTS,
            "cpu_ratio": self.cpu_ratio().map(Decimal::<4>), "failures": self.failures(),
            "server": options.server.server.name, "key": self.key.name(),
            "group": options.group.name, "tls": options.version.name(),
            "transfer": options.page, "seconds": options.turn.as_secs_f64(),
            "warm_up": options.warm_up().as_secs_f64(), "cpu": self.cpu,
            "server_cpus": division.server, "client_cpus": division.clients,
            "caveat": division.caveat, "ratios": self.levels.iter().map(ratios).collect::<Value>(),
            "rows": self.rows().map(|row| row.document()).collect::<Value>(),
        });
        if let Some(level) = self.busiest() {
            let name = format!("cpu_ratio_{}", level.demand.name());
            document[name] = level.demand.number().into();
        }
        for (name, value) in [
            ("config", options.config.as_ref().map(|path| json!(path))),
            ("stock_group", self.stock_group().map(Value::from)),
            ("keyd", options.keyd.map(|keyd| keyd.name().into())),
            ("workers", self.workers().map(Value::from)),
        ] {
            if let Some(value) = value {
                document[name] = value;
            }
        }
        document.to_string()
    }

    /// For reading.
    pub fn to_table(&self) -> String {
        let mut out = self.title() + "\n";
        if let Some(Headline { gain, detail }) = self.headline() {
            out += &format!("{gain} ({detail})\n");
        }
        out += &format!("\n{}\n\n", self.provenance().join("\n"));
        let columns = self.columns();
        let heads: Vec<&str> = columns.iter().map(|column| column.head).collect();
        let mut table = Table::new(2, &format!("{} | | {}", self.unit(), heads.join("|")));
        let mut previous = None;
        for row in self.rows() {
            let first = previous != Some(row.demand);
            if first && previous.is_some() {
                table.add_gap();
            }
            previous = Some(row.demand);
            let load = first.then(|| row.demand.number().to_string());
            let cells = columns.iter().map(|column| (column.cell)(&row));
            let cells = cells.map(|cell| cell.unwrap_or("-".to_owned()));
            table.add(
                [load.unwrap_or_default(), row.label()]
                    .into_iter()
                    .chain(cells),
            );
        }
        out += &format!("{table}{}\n{MAIN_FIGURE}\n", self.comparison());
        if let Some(caveat) = self.division.caveat {
            out += &format!("Note: {caveat}.\n");
        }
        for example in self.examples() {
            out += &format!("Failed: {example}\n");
        }
        out
    }

    /// Lockstep over OpenSSL alone under each load, with the spread of the rounds.
    fn comparison(&self) -> String {
        let first = self.levels.first();
        let rounds = first.map_or(0, |level| level.handshakes.cpu_ratios().len());
        let rounds = match rounds {
            1 => "in the only round".to_owned(),
            rounds => format!("the medians of {rounds} rounds"),
        };
        let heads = Quantity::ALL.map(Quantity::name).join("|");
        let mut table = Table::new(1, &format!("{} | {heads}", self.unit()));
        for level in &self.levels {
            let pair = &level.handshakes;
            let cells = Quantity::ALL.map(|quantity| {
                let ratio = number(pair.ratio(quantity), 2).unwrap_or("-".to_owned());
                match spread_of(pair, quantity) {
                    Some(spread) => format!("{ratio} ({spread})"),
                    None => ratio,
                }
            });
            table.add([level.demand.number().to_string()].into_iter().chain(cells));
        }
        format!("\nHandshakes, lockstep over OpenSSL alone, {rounds}:\n\n{table}")
    }

    /// The columns of the table in which a row has a figure.
    fn columns(&self) -> Vec<&'static Column> {
        let has_figure = |column: &&Column| self.rows().any(|row| (column.cell)(&row).is_some());
        COLUMNS.iter().filter(has_figure).collect()
    }

    /// Some of the failures in words, each once.
    fn examples(&self) -> Vec<&str> {
        let mut examples: Vec<&str> = self.rows().flat_map(|row| row.figures.examples()).collect();
        examples.sort_unstable();
        examples.dedup();
        examples
    }
}

impl Row<'_> {
    /// Whose signatures were made on lanes, as a share of the handshakes.
    fn on_lanes(&self) -> Option<f64> {
        self.share(self.figures.counters()?.signatures())
    }

    fn fill(&self) -> Option<f64> {
        self.figures.counters()?.fill()
    }

    /// Whose signatures the key daemon made, as a share of the handshakes.
    fn by_daemon(&self) -> Option<f64> {
        self.share(self.figures.daemon_signatures()?)
    }

    /// Signatures, for each handshake.
    fn share(&self, signatures: u64) -> Option<f64> {
        let count = self.figures.count();
        (count > 0).then(|| signatures as f64 / count as f64)
    }

    /// Server CPU seconds for each, in the round with the median ratio.
    fn cost(&self) -> f64 {
        self.pair.cost(self.side)
    }

    /// Lockstep over OpenSSL alone.
    fn cpu_ratio(&self) -> Option<f64> {
        (self.side == Side::Lockstep).then(|| self.pair.cpu_ratio())
    }

    /// Whose figures these are.
    fn label(&self) -> String {
        let with_page = if self.is_transaction {
            ", with page"
        } else {
            ""
        };
        format!("{}{with_page}", self.side.name())
    }

    fn milliseconds(&self, share: f64) -> Option<String> {
        number(self.figures.latency(share) * 1e3, 2)
    }

    fn document(&self) -> Value {
        let figures = self.figures;
        let counters = figures.counters();
        let counted = |value: fn(&Counters) -> u64| counters.as_ref().map(value);
        let fallbacks = counters.iter().flat_map(Counters::fallbacks);
        let costs = figures.costs().into_iter();
        let mut row = json!({
            "impl": self.side.name(),
            "load": if self.is_transaction { "transaction" } else { "handshake" },
            "count": figures.count(), "early": figures.early(), "failures": figures.failures(),
            "per_s": Decimal::<1>(figures.per_second()),
            "server_cpu_s_per_1000": Decimal::<5>(self.cost() * 1e3),
            "server_cpu_s_per_1000_rounds":
                costs.map(|cost| Decimal::<5>(cost * 1e3)).collect::<Vec<_>>(),
            "handshake_share": self.handshake_share.map(Decimal::<4>),
            "mean_ms": Decimal::<4>(figures.mean_latency() * 1e3),
            "p50_ms": Decimal::<4>(figures.latency(0.5) * 1e3),
            "p90_ms": Decimal::<4>(figures.latency(0.9) * 1e3),
            "p99_ms": Decimal::<4>(figures.latency(0.99) * 1e3),
            "server_load": Decimal::<3>(figures.server_load()),
            "client_load": Decimal::<3>(figures.client_load()),
            "lane_operations": counted(Counters::operations),
            "lane_signatures": counted(Counters::signatures),
            "failed_checks": counted(Counters::failed_checks),
            "fill": self.fill().map(Decimal::<3>),
            "fallbacks": fallbacks
                .map(|(reason, count)| (reason.name().to_owned(), Value::from(count)))
                .collect::<serde_json::Map<_, _>>(),
        });
        row[self.demand.name()] = self.demand.number().into();
        if let Some(signatures) = figures.daemon_signatures() {
            row["keyd_signatures"] = signatures.into();
            row["keyd_cpu_share"] = json!(figures.daemon_share().map(Decimal::<4>));
        }
        row
    }
}

/// Lockstep over OpenSSL alone, under one load: the medians of the rounds, and each round.
fn ratios(level: &Level) -> Value {
    let pair = &level.handshakes;
    let object = |of: &dyn Fn(Quantity) -> f64| -> Value {
        let ratio =
            |quantity: Quantity| (quantity.key().to_owned(), json!(Decimal::<4>(of(quantity))));
        Value::Object(Quantity::ALL.map(ratio).into_iter().collect())
    };
    let rounds = (0..pair.cpu_ratios().len())
        .map(|number| object(&|quantity| pair.ratios(quantity)[number]));
    let rounds: Value = rounds.collect();
    let mut document = object(&|quantity| match quantity {
        // That of the figures in the rows.
        Quantity::Cpu => pair.cpu_ratio(),
        other => pair.ratio(other),
    });
    document["rounds"] = rounds;
    document[level.demand.name()] = level.demand.number().into();
    document
}

/// The main figure in words.
struct Headline {
    /// As in `44 % less CPU per handshake`.
    gain: String,
    /// Its load and its subject.
    detail: String,
}

/// The gain by lockstep, from its CPU time over OpenSSL's; `None` without a ratio.
fn gain(ratio: f64) -> Option<String> {
    if !ratio.is_finite() {
        return None;
    }
    let percent = ((1.0 - ratio) * 100.0).round();
    Some(match percent {
        0.0 => "as much CPU per handshake as OpenSSL alone".to_owned(),
        1.0.. => format!("{percent:.0} % less CPU per handshake"),
        _ => format!("{:.0} % more CPU per handshake", -percent),
    })
}

/// A column of the table.
struct Column {
    head: &'static str,
    /// The figure, if a row has one.
    cell: fn(&Row<'_>) -> Option<String>,
}

macro_rules! columns {
    ($($head:literal $row:ident $cell:expr;)*) => {
        [$(Column { head: $head, cell: |$row| $cell }),*]
    };
}

const COLUMNS: [Column; 14] = columns! {
    "per s" row Some(row.figures.per_second()).filter(|n| *n > 0.0).map(thousands);
    "CPU s/1000" row number(row.cost() * 1e3, 4);
    "x stock" row number(row.cpu_ratio()?, 2);
    "in rounds" row spread(row.pair).filter(|_| row.side == Side::Lockstep);
    "mean ms" row number(row.figures.mean_latency() * 1e3, 2);
    "p50 ms" row row.milliseconds(0.5);
    "p90 ms" row row.milliseconds(0.9);
    "p99 ms" row row.milliseconds(0.99);
    "failures" row Some(row.figures.failures().to_string());
    "on lanes" row row.on_lanes().map(percent);
    "by keyd" row row.by_daemon().map(percent);
    "keyd's CPU" row row.figures.daemon_share().map(percent);
    "fill" row number(row.fill()?, 2);
    "handshake's share" row row.handshake_share.filter(|share| share.is_finite()).map(percent);
};

/// The least and the greatest ratio of CPU time; `None` with fewer than two rounds.
fn spread(pair: &Pair) -> Option<String> {
    spread_of(pair, Quantity::Cpu)
}

/// The same of any quantity.
fn spread_of(pair: &Pair, quantity: Quantity) -> Option<String> {
    let ratios = pair.ratios(quantity);
    let [least, most] = ends(&ratios);
    let is_one = ratios.len() > 1 && least.is_finite() && most.is_finite();
    is_one.then(|| format!("{least:.2} to {most:.2}"))
}

/// A number with so many decimals, if it is one.
fn number(value: f64, decimals: usize) -> Option<String> {
    value.is_finite().then(|| format!("{value:.decimals$}"))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn list(cpus: &[usize]) -> String {
    let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
    cpus.join(",")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// A run with 1 and with 64 clients, without counters; lockstep took 56 % of the CPU time.
    fn example() -> Report<'static> {
        let level = |clients, stock, lockstep| Level {
            demand: Demand::Clients(clients),
            handshakes: Pair {
                stock: Figures::of_rounds(&[(0.5, stock)]),
                lockstep: Figures::of_rounds(&[(0.28, lockstep)]),
            },
            transactions: None,
        };
        let line = Line::parse_from(["handshakes", "--server", "stunnel"]);
        Report {
            options: &Box::leak(Box::new(line)).options,
            division: Box::leak(Box::new(Division {
                server: vec![1],
                clients: vec![0],
                caveat: None,
            })),
            key: Kind::Rsa(lockstep_engine::Size::Rsa2048),
            date: "2026-11-23T08:41:07Z".to_owned(),
            command: "lockstep-bench handshakes --server stunnel".to_owned(),
            cpu: "a CPU".to_owned(),
            server_version: Some("stunnel 5.68".to_owned()),
            openssl: Some("OpenSSL 3.0.19".to_owned()),
            levels: vec![level(1, 500, 500), level(64, 1000, 1000)],
        }
    }

    #[test]
    fn what_lockstep_brings_is_said_in_words() {
        for (ratio, words) in [
            (0.56, Some("44 % less CPU per handshake")),
            (0.194, Some("81 % less CPU per handshake")),
            (0.988, Some("1 % less CPU per handshake")),
            (0.997, Some("as much CPU per handshake as OpenSSL alone")),
            (1.003, Some("as much CPU per handshake as OpenSSL alone")),
            (1.05, Some("5 % more CPU per handshake")),
            (2.0, Some("100 % more CPU per handshake")),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(gain(ratio).as_deref(), words, "{ratio}");
        }
    }

    #[test]
    fn the_table_begins_with_the_headline_and_where_it_is_from() {
        let table = example().to_table();
        let lines: Vec<&str> = table.lines().take(6).collect();
        let headline = "44 % less CPU per handshake (64 clients at a time: 0.2800 ms with \
                        lockstep, 0.5000 ms with OpenSSL alone, in the only round)";
        let made = format!(
            "2026-11-23T08:41:07Z, lockstep-bench {}: lockstep-bench handshakes --server stunnel",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(
            lines,
            [
                "stunnel, rsa2048, x25519, TLS 1.3",
                headline,
                "",
                "stunnel 5.68, on OpenSSL 3.0.19",
                "a CPU; server on CPU 1, clients (rustls with ring) on CPU 0",
                &made,
            ]
        );
    }

    #[test]
    fn the_headline_can_be_computed_again_and_has_the_spread() {
        let mut report = example();
        report.levels[1].handshakes = Pair {
            stock: Figures::of_rounds(&[(0.44, 1000), (0.4355, 1000), (0.4, 1000)]),
            lockstep: Figures::of_rounds(&[(0.3365, 1000), (0.37, 1000), (0.38, 1000)]),
        };
        let table = report.to_table();
        let headline = "15 % less CPU per handshake (64 clients at a time: 0.3700 ms with \
                        lockstep, 0.4355 ms with OpenSSL alone, in the median of 3 rounds, whose \
                        ratios are 0.76 to 0.95)";
        assert_eq!(table.lines().nth(1), Some(headline), "{table}");
        assert!(table.contains(" 0.85  0.76 to 0.95 "), "{table}");
        assert!(table.contains(" 0.3700 "), "{table}");
    }

    #[test]
    fn each_load_has_its_ratios_and_their_spread() {
        let mut report = example();
        report.levels[1].handshakes = Pair {
            stock: Figures::of_rounds(&[(0.4, 1000), (0.4, 1000), (0.4, 1000)]),
            lockstep: Figures::of_rounds(&[(0.3, 1100), (0.3, 1200), (0.3, 900)]),
        };
        let table = report.to_table();
        let line = |clients: &str| {
            let start = table.find("Handshakes, lockstep over").unwrap();
            let mut lines = table[start..].lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with(clients)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("clients"), "clients CPU per s mean p50 p90 p99");
        assert_eq!(line("1 "), "1 0.56 1.00 1.00 1.00 1.00 1.00");
        let expected = "64 0.68 (0.62 to 0.83) 1.10 (0.90 to 1.20) 1.10 (0.90 to 1.20) ";
        assert!(line("64 ").starts_with(expected), "{table}");
        let document: Value = serde_json::from_str(&report.to_json()).unwrap();
        let ratios = &document["ratios"][1];
        assert_eq!(
            (&ratios["concurrency"], &ratios["per_s"]),
            (&64.into(), &1.1.into())
        );
        let rounds = ratios["rounds"].as_array().unwrap();
        let per_s: Vec<f64> = rounds
            .iter()
            .map(|round| round["per_s"].as_f64().unwrap())
            .collect();
        assert_eq!(per_s, [1.1, 1.2, 0.9]);
        // The quotient of the two shown figures, but for rounding.
        let cost = |side: usize| {
            document["rows"][2 + side]["server_cpu_s_per_1000"]
                .as_f64()
                .unwrap()
        };
        assert!((cost(1) / cost(0) - ratios["cpu"].as_f64().unwrap()).abs() < 1e-3);
    }

    #[test]
    fn a_column_without_a_figure_is_left_out() {
        let heads = |report: &Report| -> Vec<&str> {
            let columns = report.columns().into_iter();
            columns.map(|column| column.head).collect()
        };
        let mut report = example();
        let common = [
            "per s",
            "CPU s/1000",
            "x stock",
            "mean ms",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "failures",
        ];
        assert_eq!(heads(&report), common);
        let table = report.to_table();
        assert!(
            !table.contains("fill") && !table.contains("on lanes"),
            "{table}"
        );
        report.levels[1].transactions = Some(Pair {
            stock: Figures::of_rounds(&[(1.0, 1000)]),
            lockstep: Figures::of_rounds(&[(1.0, 1000)]),
        });
        let with_page = [&common[..], &["handshake's share"]].concat();
        assert_eq!(heads(&report), with_page);
        assert!(
            report.to_table().contains("50 %"),
            "stock: half of its time"
        );
        report.levels.clear();
        assert!(heads(&report).is_empty());
        assert!(report.headline().is_none());
    }

    #[test]
    fn the_document_says_where_it_is_from() {
        let document: Value = serde_json::from_str(&example().to_json()).unwrap();
        for (name, value) in [
            ("headline", "44 % less CPU per handshake"),
            ("date", "2026-11-23T08:41:07Z"),
            ("command", "lockstep-bench handshakes --server stunnel"),
            ("server", "stunnel"),
            ("server_version", "stunnel 5.68"),
            ("openssl", "OpenSSL 3.0.19"),
            ("clients", "rustls with ring"),
        ] {
            assert_eq!(document[name], value, "{name}: {document}");
        }
        assert_eq!(document["program"], PROGRAM);
        assert_eq!(document["cpu_ratio"], 0.56);
    }
}
