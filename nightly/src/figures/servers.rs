//! Servers under load: the tables of what `handshakes --json` printed.

pub mod guide;

use super::record::{Demand, Level, Record, Row, Run};
use super::text::{
    curve_name, gain, key_name, milliseconds, optional, section, server_name, table, thousands,
    wrapped,
};

/// The servers and keys that README.md shows, besides those that gain least.
const SERVERS: [&str; 4] = ["haproxy", "apache", "nginx", "stunnel"];
const KEYS: [&str; 3] = ["rsa2048", "rsa4096", "p256"];

/// A median latency that is longer by no more than this is none that anybody notices.
const WITHIN: f64 = 0.02;

impl Run {
    fn is(&self, server: &str, key: &str) -> bool {
        self.of.server == server && self.of.key == key
    }

    fn name(&self) -> String {
        name(&self.of.server, &self.of.key)
    }

    /// The group of the server without lockstep in words, where that is another one.
    fn alone(&self) -> String {
        let stock = self.of.stock_group.as_deref();
        stock.map_or(String::new(), |group| {
            format!(" (alone: {})", curve_name(group))
        })
    }
}

impl Level {
    fn ratio(&self, quantity: &str) -> Option<f64> {
        self.ratios.of(quantity)
    }

    /// CPU time of OpenSSL alone and with Lockstep, in milliseconds, and the change.
    fn costs(&self, ratio: f64) -> [String; 3] {
        let [stock, lockstep] = [&self.stock, &self.lockstep].map(|row| format!("{:.2}", row.cost));
        [stock, lockstep, gain(ratio)]
    }

    fn clients(&self) -> String {
        self.demand.number().to_string()
    }

    fn demand_in_words(&self) -> String {
        match self.demand {
            Demand::Clients(1) => "1 client".to_owned(),
            Demand::Clients(clients) => format!("{clients} clients"),
            Demand::Rate(rate) => format!("{} begin a second", thousands(rate as f64)),
        }
    }
}

/// All loads of some runs.
fn levels<'a>(runs: impl Iterator<Item = &'a Run>) -> impl Iterator<Item = (&'a Run, &'a Level)> {
    runs.flat_map(|run| run.levels.iter().map(move |level| (run, level)))
}

/// The figures of README.md: the gain of each server and key on each CPU. A column says of which
/// day it is, and whether its kernels are those with this hash, today's.
pub fn of_readme(records: &[Record], kernels: &str) -> String {
    let columns = by_gain(records);
    let with_ifma = columns.iter().copied().filter(|record| record.has_ifma());
    let on_ifma: Vec<&Record> = with_ifma.collect();
    let Some(least) = on_ifma.first() else {
        return String::new();
    };
    let factor = |run: &Run| format!("{:.1} ×", 1.0 / run.of.cpu_ratio);
    let row = |(server, key): &(&str, &str)| {
        let cell = |record: &&Record| find(record, server, key).map_or("-".to_owned(), factor);
        let cells = columns.iter().map(cell);
        [name(server, key)]
            .into_iter()
            .chain(cells)
            .collect::<Vec<_>>()
    };
    let head = |record: &&Record| {
        let note = match (std::ptr::eq(*record, *least), record.has_ifma()) {
            (true, _) => ": gains least",
            (false, true) => "",
            (false, false) => ": no AVX-512",
        };
        let busy = if record.was_busy() { ", busy" } else { "" };
        format!("{}{note}{busy}", record.short_name())
    };
    let age = |record: &&Record| {
        let is_today = record.about.kernels.as_deref() == Some(kernels);
        let age = if is_today { "today's" } else { "older" };
        format!("{}, {age} kernels", record.date())
    };
    let line = |first: &str, cells: Vec<String>| [vec![first.to_owned()], cells].concat();
    let heads = line("server, key", columns.iter().map(head).collect()).join(" | ");
    let ages = line("*measured*", columns.iter().map(age).collect());
    let rows = rows_of_readme(&on_ifma);
    let mut out = wrapped(&format!(
        "{}The table has the CPU time of the server for one handshake, with 64 clients, of OpenSSL \
         alone divided by that with Lockstep: 2.0 × is half the CPU time \
         ([more](docs/benchmarks/README.md)).",
        in_words(&on_ifma).unwrap_or_default()
    ));
    out += "\n";
    out += &table(&heads, rows.iter().map(row).chain([ages]));
    out += "\n";
    out += &wrapped(&format!(
        "{} {}",
        latencies(&on_ifma),
        below_the_limit(least).unwrap_or_default()
    ));
    out
}

/// CPUs with AVX-512 IFMA before others, and among them the least gain of HAProxy first.
fn by_gain(records: &[Record]) -> Vec<&Record> {
    let ratio = |record: &Record| {
        find(record, "haproxy", "rsa2048").map_or(f64::MIN, |run| run.of.cpu_ratio)
    };
    let mut columns: Vec<&Record> = records.iter().collect();
    columns.sort_by(|a, b| {
        let ifma = b.has_ifma().cmp(&a.has_ifma());
        ifma.then(ratio(b).total_cmp(&ratio(a)))
    });
    columns
}

/// Servers and keys that any of the records has, and those that gain least in one.
fn rows_of_readme<'a>(records: &[&'a Record]) -> Vec<(&'a str, &'a str)> {
    let all = SERVERS.map(|server| KEYS.map(|key| (server, key))).concat();
    let is_known = |row: &(&str, &str)| records.iter().any(|all| find(all, row.0, row.1).is_some());
    let mut rows: Vec<(&str, &str)> = all.into_iter().filter(is_known).collect();
    for record in records {
        let by_ratio = |a: &&Run, b: &&Run| a.of.cpu_ratio.total_cmp(&b.of.cpu_ratio);
        let least = record.plain(true).max_by(by_ratio);
        let least = least.map(|run| (run.of.server.as_str(), run.of.key.as_str()));
        rows.extend(least.filter(|row| !rows.contains(row)));
    }
    rows
}

/// The longest median latency of each server of README.md.
fn latencies(records: &[&Record]) -> String {
    let worst = |server: &&str| {
        let of = |record: &&Record| {
            let of_key = |key| {
                let run = find(record, server, key)?;
                let place = format!("{}, {}", key_name(key), record.short_name());
                Some((run.busiest().ratio("p50")?, place))
            };
            KEYS.into_iter().filter_map(of_key).collect::<Vec<_>>()
        };
        let all = records.iter().flat_map(of);
        let (ratio, place) = all.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(format!("{ratio:.1} with {} ({place})", server_name(server)))
    };
    let worst: Vec<String> = SERVERS.iter().filter_map(worst).collect();
    format!(
        "The median latency of the clients, divided by that with OpenSSL alone, is at worst {} \
         ([where threads wait](docs/user/servers/stunnel.md#latency)).",
        worst.join(", ")
    )
}

/// A picture of the CPU times where the gain is least, as SVG.
pub fn chart(records: &[Record]) -> String {
    let Some(record) = by_gain(records)
        .into_iter()
        .find(|record| record.has_ifma())
    else {
        return String::new();
    };
    let shown = rows_of_readme(&[record]).into_iter();
    let shown = shown.filter_map(|(server, key)| find(record, server, key));
    let mut rows: Vec<&Run> = shown.collect();
    rows.sort_by(|a, b| a.of.cpu_ratio.total_cmp(&b.of.cpu_ratio));
    let (row, left, whole, top) = (34, 170, 400.0, 64);
    let height = top + row * rows.len() + 8;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 {height}\" width=\"800\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"800\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-weight=\"bold\">The server's CPU time for one handshake, with 64 \
         clients, on {}</text>\n\
         <rect x=\"{left}\" y=\"38\" width=\"12\" height=\"12\" fill=\"#b0b6be\"/>\n\
         <text x=\"{}\" y=\"49\">OpenSSL alone: 100 %</text>\n\
         <rect x=\"370\" y=\"38\" width=\"12\" height=\"12\" fill=\"#1f6fb2\"/>\n\
         <text x=\"388\" y=\"49\">with Lockstep</text>\n",
        record.short_name(),
        left + 18,
    );
    // A server that gets slower has the longer bar.
    let most = rows.iter().map(|run| run.of.cpu_ratio).fold(1.0, f64::max);
    for (place, run) in rows.iter().enumerate() {
        let (y, level) = (top + row * place, run.busiest());
        let bar = |y: usize, part: f64, colour: &str| {
            let width = whole * part / most;
            format!(
                "<rect x=\"{left}\" y=\"{y}\" width=\"{width:.1}\" height=\"12\" fill=\"{colour}\"/>\n"
            )
        };
        out += &format!("<text x=\"12\" y=\"{}\">{}</text>\n", y + 17, run.name());
        out += &bar(y, 1.0, "#b0b6be");
        out += &bar(y + 13, run.of.cpu_ratio, "#1f6fb2");
        out += &format!(
            "<text x=\"{}\" y=\"{}\">{:.0} %: {}, not {}</text>\n",
            left + whole as usize + 12,
            y + 17,
            100.0 * run.of.cpu_ratio,
            milliseconds(level.lockstep.cost),
            milliseconds(level.stock.cost),
        );
    }
    out + "</svg>\n"
}

fn find<'a>(record: &'a Record, server: &str, key: &str) -> Option<&'a Run> {
    record.plain(true).find(|run| run.is(server, key))
}

fn name(server: &str, key: &str) -> String {
    format!("{}, {}", server_name(server), key_name(key))
}

/// The gain of HAProxy on these CPUs, in one sentence.
fn in_words(records: &[&Record]) -> Option<String> {
    let gains = |key| {
        let runs = records
            .iter()
            .filter_map(|record| find(record, "haproxy", key));
        let mut ratios: Vec<f64> = runs.map(|run| run.of.cpu_ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let (most, least) = (gain(*ratios.first()?), gain(*ratios.last()?));
        let number = least.strip_suffix(" less").unwrap_or(&least);
        let is_range = least != most;
        Some(if is_range {
            format!("{number} to {most}")
        } else {
            most
        })
    };
    Some(format!(
        "With HAProxy and an RSA-2048 key, Lockstep takes {} CPU per handshake than OpenSSL alone, \
         and {} with an RSA-4096 key. ",
        gains("rsa2048")?,
        gains("rsa4096")?
    ))
}

/// What HAProxy with an RSA-2048 key does at the lowest and at the highest of the rates.
fn below_the_limit(record: &Record) -> Option<String> {
    let runs = record
        .runs
        .iter()
        .filter(|run| run.is_paced() && run.is("haproxy", "rsa2048"));
    let mut levels = levels(runs).map(|(_, level)| level);
    let first = levels.next()?;
    let last = levels.last()?;
    let words = |level: &Level| {
        let [stock, lockstep] = [level.stock.p50_ms?, level.lockstep.p50_ms?];
        Some(format!(
            "at {} handshakes a second it takes {} CPU, and the median handshake \
             {lockstep:.2} ms instead of {stock:.2}",
            thousands(level.demand.number() as f64),
            gain(level.cpu)
        ))
    };
    Some(format!(
        "All of that is at the server's limit. Below it few requests meet: with HAProxy and \
         RSA-2048 on {}, {}; {}.",
        record.short_name(),
        words(first)?,
        words(last)?
    ))
}

/// All tables of a record.
pub fn sections(record: &Record) -> String {
    [
        many_clients,
        paced,
        lost_loads,
        elsewhere,
        key_daemon,
        transactions,
    ]
    .map(|section| section(record))
    .concat()
}

/// The change that each server and key sees with 64 clients, with a column for each CPU.
pub fn side_by_side(records: &[Record]) -> String {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for run in records.iter().flat_map(|record| record.plain(true)) {
        let name = (run.of.server.as_str(), run.of.key.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let row = |(server, key): (&str, &str)| {
        let cell = |record| {
            let run = find(record, server, key)?;
            let p50 = optional(run.busiest().ratio("p50"), 2);
            Some(format!("{}, {p50}", gain(run.of.cpu_ratio)))
        };
        let cells = records
            .iter()
            .map(|record| cell(record).unwrap_or_else(|| "-".to_owned()));
        [name(server, key)]
            .into_iter()
            .chain(cells)
            .collect::<Vec<_>>()
    };
    section(
        "Servers, side by side",
        "CPU time of the server for one handshake with 64 clients, in comparison with OpenSSL \
         alone, and Lockstep's median latency over OpenSSL's. The records have the times.",
        &heads("server, key", records),
        names.into_iter().map(row),
    )
}

/// The heads of a table with a column for each CPU.
pub fn heads(first: &str, records: &[Record]) -> String {
    let cpus = records.iter().map(Record::short_name);
    let heads: Vec<String> = [first.to_owned()].into_iter().chain(cpus).collect();
    heads.join(" | ")
}

/// The table of the servers and keys with 64 clients.
fn many_clients(record: &Record) -> String {
    let row = |run: &Run| {
        let level = run.busiest();
        let mut row = vec![run.name()];
        row.extend(level.costs(run.of.cpu_ratio));
        row.push(optional(level.ratio("p50"), 2));
        row
    };
    let words = format!(
        "{}CPU time of the server for one handshake with 64 clients, in milliseconds; the change \
         of it; and Lockstep's median latency over OpenSSL's. The change is the median over pairs \
         of turns, so the two times beside it may differ by another percentage.",
        in_words(&[record]).unwrap_or_default()
    );
    let heads = "server, key | OpenSSL alone | with Lockstep | CPU | p50";
    section("Servers", &words, heads, record.plain(true).map(row))
}

fn paced(record: &Record) -> String {
    let row = |(run, level): (&Run, &Level)| {
        let latency = |of: fn(&Row) -> Option<f64>| {
            let [stock, lockstep] = [&level.stock, &level.lockstep].map(|row| optional(of(row), 2));
            format!("{stock} → {lockstep}")
        };
        let daemon = match run.of.keyd {
            Some(_) => ", with the key daemon",
            None => "",
        };
        let mut row = vec![run.name() + daemon, thousands(level.demand.number() as f64)];
        row.extend(level.costs(level.cpu));
        row.extend([latency(|row| row.p50_ms), latency(|row| row.p99_ms)]);
        row
    };
    section(
        "Servers below their limit",
        "Handshakes that begin at random moments, at a tenth, three tenths and six tenths of what \
         the server does a second with OpenSSL alone and 64 clients at a time. CPU time and \
         latencies are in milliseconds; an arrow leads from OpenSSL alone to Lockstep.",
        "server, key | handshakes a second | OpenSSL alone | with Lockstep | CPU | p50 | p99",
        levels(record.runs.iter().filter(|run| run.is_paced())).map(row),
    )
}

/// The loads of the runs that have several.
fn loads(record: &Record) -> Vec<(&Run, &Level)> {
    levels(record.runs.iter().filter(|run| run.has_several())).collect()
}

/// The server and the key, and what else is not the usual.
fn load_name(run: &Run) -> String {
    let mut name = run.name();
    if run.of.group != "x25519" {
        name += &format!(", {}{}", curve_name(&run.of.group), run.alone());
    }
    if run.of.tls != "1.3" {
        name += &format!(", TLS {}", run.of.tls);
    }
    if run.of.keyd.is_some() {
        name += ", with the key daemon";
    }
    name
}

/// The loads at which a server does worse than with OpenSSL alone.
fn losses(record: &Record) -> Vec<(&Run, &Level)> {
    // At a rate as many handshakes are served as begin.
    let loses = |(_, level): &(&Run, &Level)| {
        let ratio = |quantity| level.ratio(quantity).unwrap_or(1.0);
        let serves_fewer = matches!(level.demand, Demand::Clients(_)) && ratio("per_s") < 1.0;
        serves_fewer || level.cpu > 1.0 || ratio("p50") > 1.0 + WITHIN
    };
    loads(record).into_iter().filter(loses).collect()
}

/// The line that stands before what gains; empty without runs of several loads.
pub fn losses_in_words(record: &Record) -> String {
    let (loads, losses) = (loads(record), losses(record));
    let p50 = |level: &Level| level.ratio("p50").unwrap_or(1.0);
    let worst = losses
        .iter()
        .max_by_key(|(_, level)| (p50(level) * 1e4) as i64);
    let Some((run, level)) = worst else {
        return match loads.len() {
            0 => String::new(),
            all => wrapped(&format!(
                "At none of {all} loads did a server do worse than with OpenSSL alone."
            )),
        };
    };
    wrapped(&format!(
        "**Not every load gains**: at {} of {} loads a server had fewer handshakes a second than \
         with OpenSSL alone, more CPU time for each, or a median latency that was longer by more \
         than 2 %. The longest of these was {:.2} times OpenSSL's ({}, {}).",
        losses.len(),
        loads.len(),
        p50(level),
        load_name(run),
        level.demand_in_words()
    ))
}

fn lost_loads(record: &Record) -> String {
    let row = |(run, level): (&Run, &Level)| {
        let mut row = vec![
            load_name(run),
            level.demand_in_words(),
            thousands(level.stock.per_s),
        ];
        row.extend(["per_s", "cpu", "mean", "p50", "p99"].map(|quantity| {
            let spread = level.ratios.spread(quantity);
            spread.map_or("-".to_owned(), |[median, least, most]| {
                format!("{median:.2} ({least:.2}–{most:.2})")
            })
        }));
        row
    };
    section(
        "Loads that lose",
        "Handshakes a second of OpenSSL alone; then Lockstep over OpenSSL alone: handshakes a \
         second, the server's CPU time for each, and the clients' latencies. Each is the median of \
         the rounds, with the least and the greatest.",
        "server, key | load | OpenSSL alone | a second | CPU | mean | p50 | p99",
        losses(record).into_iter().map(row),
    )
}

/// Servers with other groups, or another OpenSSL.
fn elsewhere(record: &Record) -> String {
    let row = |run: &Run| {
        let level = run.busiest();
        let word = |text: &str, place| text.split_whitespace().nth(place).map(str::to_owned);
        let version = run.of.server_version.as_deref();
        let alone = run
            .levels
            .iter()
            .find(|level| level.demand == Demand::Clients(1));
        let mut row = vec![
            format!(
                "{}, {} {}",
                word(&run.of.openssl, 1).unwrap_or_default(),
                server_name(&run.of.server),
                version
                    .and_then(|version| word(version, 2))
                    .unwrap_or_default()
            ),
            format!(
                "{}, {}{}",
                key_name(&run.of.key),
                curve_name(&run.of.group),
                run.alone()
            ),
            level.clients(),
        ];
        row.extend(level.costs(run.of.cpu_ratio));
        row.push(optional(level.ratio("p50"), 2));
        row.push(optional(alone.and_then(|level| level.ratio("p50")), 2));
        row.push(optional(level.lockstep.fill, 1));
        row
    };
    section(
        "Servers with other versions of OpenSSL and other groups",
        "CPU time for a handshake in milliseconds. The last column but one is the latency of a lone \
         client, with Lockstep over OpenSSL's.",
        "OpenSSL, server | key, group | clients | OpenSSL alone | with Lockstep | CPU | p50 | p50, \
         one client | requests per pass",
        record.plain(false).map(row),
    )
}

fn key_daemon(record: &Record) -> String {
    // Records of earlier versions have a setting that is gone.
    let is_known = |run: &&Run| matches!(run.of.keyd.as_deref(), Some("reference" | "daemon"));
    let runs = record.runs.iter().filter(|run| !run.is_paced());
    let row = |(run, level): (&Run, &Level)| {
        let [stock, lockstep, gain] = level.costs(level.cpu);
        let share = level.lockstep.keyd_cpu_share.unwrap_or(f64::NAN);
        let workers = run.of.workers;
        vec![
            run.name(),
            match run.of.keyd.as_deref() {
                Some("reference") => "a reference".to_owned(),
                _ => "the key, `keys = daemon`".to_owned(),
            },
            workers.map_or("-".to_owned(), |count| count.to_string()),
            level.clients(),
            stock,
            format!("{lockstep} ({:.0} %)", share * 100.0),
            gain,
            optional(level.ratio("per_s"), 3),
            optional(level.ratio("p50"), 3),
        ]
    };
    section(
        "The key daemon",
        "Keys in [a process of their own](../user/keyd.md). Server, daemon and clients share all \
         CPUs. CPU times are those of server and daemon together, in milliseconds, with the \
         daemon's share in brackets. The last two columns are ratios to OpenSSL alone.",
        "server, key | the server has | workers | clients | OpenSSL alone | with the daemon | \
         CPU per handshake | handshakes a second | p50",
        levels(runs.filter(is_known)).map(row),
    )
}

/// What pages cost after handshakes.
fn transactions(record: &Record) -> String {
    let row = |run: &Run| {
        let level = run.busiest();
        let [stock, lockstep] = level.with_page.as_ref()?;
        // As in `0.98 ms (0.61 + 0.37)`.
        let parts = |whole: &Row, handshake: &Row| {
            let transfer = whole.cost - handshake.cost;
            format!(
                "{} ({:.2} + {transfer:.2})",
                milliseconds(whole.cost),
                handshake.cost
            )
        };
        let rounds = stock.costs.iter().zip(&lockstep.costs);
        let ratios = rounds.filter_map(|(stock, lockstep)| Some((*lockstep)? / (*stock)?));
        Some(vec![
            run.name(),
            size(run.of.transfer?),
            level.clients(),
            parts(stock, &level.stock),
            parts(lockstep, &level.lockstep),
            gain(super::ledger::median(ratios)),
        ])
    };
    section(
        "Transactions",
        "A handshake, and a page that is fetched on the same connection: the CPU time of the \
         server, and in brackets the parts of the handshake and of the transfer.",
        "server, key | page | clients | OpenSSL alone | with Lockstep | CPU per transaction",
        record.runs.iter().filter_map(row),
    )
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
    use serde_json::{Value, json};

    use super::super::record::examples::{record, run};
    use super::guide::*;
    use super::*;

    fn words(record: &Record) -> String {
        losses_in_words(record).replace('\n', " ")
    }

    /// A record with lanes of this name, these kernels, and runs with these ratios.
    fn of_day(name: &str, backend: &str, kernels: &str, runs: &[(&str, &str, f64)]) -> Record {
        let runs = runs.iter().map(|(server, key, ratio)| {
            let mut run = run(server, key, "concurrency", &[64]);
            run["cpu_ratio"] = (*ratio).into();
            run
        });
        let mut record = record(&runs.collect::<Vec<_>>());
        record.name = name.to_owned();
        record.about.kernels = Some(kernels.to_owned());
        record.speed.machine.backend = backend.to_owned();
        record
    }

    #[test]
    fn each_cpu_has_a_column_and_the_least_gain_is_first() {
        let records = [
            of_day(
                "2026-11-25-zen3",
                "avx2",
                "new",
                &[("haproxy", "rsa2048", 0.9)],
            ),
            of_day(
                "2026-11-26-zen5",
                "avx512ifma",
                "old",
                &[
                    ("haproxy", "rsa2048", 0.5),
                    ("haproxy", "rsa4096", 0.25),
                    ("nginx", "ed25519", 1.25),
                ],
            ),
            of_day(
                "2026-11-24-zen4",
                "avx512ifma",
                "new",
                &[
                    ("haproxy", "rsa2048", 0.625),
                    ("haproxy", "rsa4096", 0.25),
                    ("apache", "ed25519", 0.1),
                ],
            ),
        ];
        let page = of_readme(&records, "new");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        let expected = [
            "| server, key | AMD EPYC (Zen 4): gains least | AMD EPYC (Zen 5) | AMD EPYC (Zen 3): no \
             AVX-512 |",
            "| HAProxy, RSA-2048 | 1.6 × | 2.0 × | 1.1 × |",
            "| HAProxy, RSA-4096 | 4.0 × | 4.0 × | - |",
            "| nginx, Ed25519 | - | 0.8 × | - |",
            "| *measured* | 2026-11-24, today's kernels | 2026-11-26, older kernels | 2026-11-25, \
             today's kernels |",
        ];
        assert_eq!(rows, expected);
        let page = page.replace('\n', " ");
        for words in [
            "takes 38 % to 50 % less CPU per handshake than OpenSSL alone, and 75 % less with",
            "at worst 0.9 with HAProxy (RSA-",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert_eq!(of_readme(&records[..1], "new"), "");
        assert!(chart(&records).contains("on AMD EPYC (Zen 4)"));
        assert_eq!(chart(&records[..1]), "");
    }

    #[test]
    fn the_clients_of_stunnel_are_told_for_each_cpu_with_lanes_for_rsa() {
        let runs = [("stunnel", "p256", 1.0)];
        let records = [
            of_day("2026-11-25-zen3", "avx2", "", &runs),
            of_day("2026-11-24-zen4", "avx512ifma", "", &runs),
        ];
        let table = of_stunnel(&records);
        let row =
            "| AMD EPYC (Zen 4) | P-256 | 1,000 → 1,000 | 20.0 → 10.0 ms | 40.0 → 20.0 ms |\n";
        assert!(
            table.ends_with(row) && table.lines().count() == 3,
            "{table}"
        );
    }

    #[test]
    fn the_lowest_and_the_highest_rate_are_told_in_words() {
        let mut run = run("haproxy", "rsa2048", "rate", &[180, 550, 1100]);
        for (place, cpu) in [(0, 0.95), (2, 0.74)] {
            run["ratios"][place]["cpu"] = cpu.into();
        }
        let one = record(&[super::super::record::examples::run(
            "haproxy",
            "rsa2048",
            "rate",
            &[1],
        )]);
        assert_eq!(below_the_limit(&one), None);
        let words = below_the_limit(&record(&[run])).unwrap();
        let [first, last] = [
            "at 180 handshakes a second it takes 5 % less CPU, and the median handshake 10.00 ms \
             instead of 20.00; at",
            "at 1,100 handshakes a second it takes 26 % less CPU, and the median handshake 10.00 \
             ms instead of 20.00.",
        ];
        assert!(words.contains(first) && words.ends_with(last), "{words}");
    }

    #[test]
    fn each_section_has_its_rows_and_none_without() {
        let mut page = run("haproxy", "rsa2048", "concurrency", &[16]);
        page["transfer"] = (230 << 10).into();
        let rows = page["rows"].as_array_mut().unwrap();
        for (side, whole, rounds) in [
            ("stock", 1.5, [1.0, 1.0, 2.0]),
            ("lockstep", 0.75, [0.5, 0.6, 1.1]),
        ] {
            let mut row = rows[0].clone();
            row["impl"] = side.into();
            row["load"] = "transaction".into();
            row["server_cpu_s_per_1000"] = whole.into();
            row["server_cpu_s_per_1000_rounds"] = json!(rounds);
            rows.push(row);
        }
        let with = |mut run: Value, name: &str, value: &str| {
            run[name] = value.into();
            run
        };
        let plain = run("nginx", "p256", "concurrency", &[1, 64]);
        let record = record(&[
            plain.clone(),
            run("nginx", "p256", "rate", &[1200]),
            with(run("nginx", "p256", "rate", &[1300]), "keyd", "reference"),
            with(plain.clone(), "group", "x25519mlkem768"),
            with(plain.clone(), "keyd", "reference"),
            with(plain.clone(), "keyd", "daemon"),
            with(plain, "keyd", "daemon-if-faster"),
            page,
        ]);
        let page = sections(&record);
        for row in [
            "| nginx, P-256 | 1.00 | 0.50 | 50 % less | 0.90 |",
            "| nginx, P-256 | 1,200 | 1.00 | 0.50 | 50 % less | 20.00 → 10.00 | 40.00 → 20.00 |",
            "| nginx, P-256, with the key daemon | 1,300 | 1.00 | 0.50 | 50 % less | 20.00 → 10.00 | \
             40.00 → 20.00 |",
            "| 3.0.19, nginx 1.2 | P-256, X25519MLKEM768 | 64 | 1.00 | 0.50 | 50 % less | 0.90 | \
             0.90 | 5.5 |",
            "| nginx, P-256 | a reference | - | 1 | 1.00 | 0.50 (75 %) | 50 % less | 1.100 | 0.900 |",
            "| nginx, P-256 | the key, `keys = daemon` | - | 64 | 1.00 | 0.50 (75 %) | 50 % less | \
             1.100 | 0.900 |",
            "| HAProxy, RSA-2048 | 230 KiB | 16 | 1.50 ms (1.00 + 0.50) | 0.75 ms (0.50 + 0.25) | \
             45 % less |",
        ] {
            assert!(page.contains(row), "{row}: {page}");
        }
        assert_eq!(page.matches("keys = daemon` |").count(), 2, "{page}");
        assert_eq!(sections(&Record::default()), "");
        assert_eq!((size(10 << 20), size(16)), ("10 MiB".into(), "16 B".into()));
    }

    #[test]
    fn a_load_that_loses_has_a_row_with_its_spread() {
        let mut run = run("haproxy", "p256", "concurrency", &[1, 8, 64]);
        assert_eq!(lost_loads(&record(&[run.clone()])), "");
        run["ratios"][0]["p50"] = 1.03.into();
        run["ratios"][0]["rounds"][0]["cpu"] = 0.4.into();
        run["ratios"][0]["rounds"][1]["cpu"] = 0.7.into();
        let row = "| 1 client | 1,000 | 1.10 (1.10–1.10) | 0.50 (0.40–0.70) | 0.90 (0.90–0.90) | \
                   1.03 (0.90–0.90) | - |\n";
        for (name, value, words) in [
            ("tls", "1.3", ""),
            ("tls", "1.2", ", TLS 1.2"),
            ("group", "x25519mlkem768", ", X25519MLKEM768"),
            ("keyd", "reference", ", with the key daemon"),
        ] {
            let mut run = run.clone();
            run[name] = value.into();
            let table = lost_loads(&record(&[run]));
            let row = format!("| HAProxy, P-256{words} {row}");
            assert!(table.ends_with(&row), "{row}: {table}");
        }
        run["group"] = "x25519mlkem768".into();
        run["stock_group"] = "x25519".into();
        let table = lost_loads(&record(&[run.clone()]));
        assert!(
            table.contains("X25519MLKEM768 (alone: X25519) | 1 client |"),
            "{table}"
        );
        for ratios in run["ratios"].as_array_mut().unwrap() {
            ratios.as_object_mut().unwrap().remove("rounds");
        }
        assert_eq!(lost_loads(&record(&[run])), "");
    }

    #[test]
    fn what_a_load_loses_stands_before_what_others_gain() {
        let none = "At none of 3 loads did a server do worse than with OpenSSL alone. ";
        for (demand, quantity, ratio, longest) in [
            ("concurrency", "p50", 1.02, None),
            ("concurrency", "per_s", 0.99, Some("0.90")),
            ("concurrency", "cpu", 1.01, Some("0.90")),
            ("concurrency", "p50", 1.03, Some("1.03")),
            // As many are served as begin.
            ("rate", "per_s", 0.99, None),
        ] {
            let mut run = run("haproxy", "p256", demand, &[1, 8, 64]);
            run["ratios"][0][quantity] = ratio.into();
            let words = words(&record(&[run]));
            let Some(longest) = longest else {
                assert_eq!(words, none, "{quantity}");
                continue;
            };
            let start = "**Not every load gains**: at 1 of 3 loads";
            let worst =
                format!("of these was {longest} times OpenSSL's (HAProxy, P-256, 1 client)");
            assert!(
                words.starts_with(start) && words.contains(&worst),
                "{words}"
            );
        }
        assert_eq!(words(&Record::default()), "");
    }
}
