//! The records of speed and handshakes in docs/benchmarks/record.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::costs::{self, Cost};
use super::loads::{self, Load};
use crate::command::{Failure, Outcome, on, root};

/// Where all records are.
pub fn directory() -> PathBuf {
    root().join("docs/benchmarks/record")
}

/// What was measured on one day on one machine.
#[derive(Debug, Default)]
pub struct Record {
    /// Of its directory: DATE-CPU.
    pub name: String,
    /// As the system names it, with family and model.
    pub cpu: String,
    pub cpus: u64,
    pub clock_ghz: f64,
    pub backend: String,
    pub openssl: String,
    /// How many CPUs other programs kept busy before the first measurement.
    pub load: f64,
    pub speed: Vec<Speed>,
    /// With this system's OpenSSL and X25519.
    pub handshakes: Vec<Handshakes>,
    /// With other groups, or another OpenSSL.
    pub others: Vec<Handshakes>,
    /// With the key daemon.
    pub daemons: Vec<Daemon>,
    /// Below their limit.
    pub paced: Vec<Paced>,
    pub transactions: Vec<Transactions>,
    pub ciphers: Vec<Cipher>,
    /// Each load of the runs that have several; older records have none.
    pub loads: Vec<Load>,
    /// What gains nothing; older records have none.
    pub costs: Vec<Cost>,
}

/// One figure of `speed --json`.
#[derive(Debug)]
pub struct Speed {
    pub operation: String,
    /// `None` for OpenSSL alone.
    pub fill: Option<u64>,
    pub per_second: f64,
    pub by_stock: bool,
    pub quiet_slices: u64,
}

/// One figure of a cipher in `speed --json`.
#[derive(Debug)]
pub struct Cipher {
    pub name: String,
    pub bytes: u64,
    pub is_stock: bool,
    pub gb_per_s: f64,
    pub cycles_per_byte: f64,
}

/// Handshakes with a page after them: one run of `handshakes --transfer --json`.
#[derive(Debug)]
pub struct Transactions {
    pub server: String,
    pub key: String,
    /// Bytes of the page.
    pub page: u64,
    pub clients: u64,
    pub stock: Transaction,
    pub lockstep: Transaction,
    /// Server CPU for a transaction, Lockstep over OpenSSL, by turns that follow each other.
    pub ratio: f64,
}

/// Server CPU in milliseconds.
#[derive(Debug)]
pub struct Transaction {
    pub handshake: f64,
    pub whole: f64,
}

/// One run of `handshakes --json`, with the most clients that it had.
#[derive(Debug)]
pub struct Handshakes {
    pub server: String,
    /// As the server calls itself.
    pub version: Option<String>,
    pub key: String,
    pub group: String,
    /// The group of the server without lockstep, where that is another one.
    pub stock_group: Option<String>,
    pub openssl: String,
    pub clients: u64,
    /// Server CPU for a handshake, in milliseconds.
    pub stock: f64,
    pub lockstep: f64,
    /// Of both, by turns that follow each other.
    pub ratio: f64,
    /// The median latency in milliseconds, of OpenSSL alone and with lockstep.
    pub median: Option<[f64; 2]>,
    /// Lockstep's latency over OpenSSL's, where enough handshakes were timed.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    /// The same of a lone client.
    pub p50_alone: Option<f64>,
    pub fill: Option<f64>,
}

/// One run of `handshakes --keyd --json`, with one number of clients.
#[derive(Debug)]
pub struct Daemon {
    pub server: String,
    pub key: String,
    /// What the daemon has to do with the key, as the command line has it.
    pub keyd: String,
    pub workers: Option<u64>,
    pub clients: u64,
    /// CPU for a handshake, of the server and the daemon, in milliseconds.
    pub stock: f64,
    pub lockstep: f64,
    /// The daemon's share of the latter.
    pub share: f64,
    /// Of the CPU, of handshakes a second and of the median latency, by turns that follow each
    /// other.
    pub cpu: f64,
    pub per_second: Option<f64>,
    pub p50: Option<f64>,
}

/// One run of `handshakes --rate --json`, with one rate.
#[derive(Debug)]
pub struct Paced {
    pub server: String,
    pub key: String,
    /// Whether the key daemon has the key, with lockstep.
    pub has_daemon: bool,
    /// Handshakes that begin in a second.
    pub rate: u64,
    /// Server CPU for a handshake, in milliseconds.
    pub stock: f64,
    pub lockstep: f64,
    /// Of both, by turns that follow each other.
    pub cpu: f64,
    /// Milliseconds, of OpenSSL alone and with lockstep.
    pub p50: [f64; 2],
    pub p99: [f64; 2],
}

impl Record {
    /// The CPU as people call it.
    pub fn short_name(&self) -> String {
        full_name(self.short()).unwrap_or(&self.cpu).to_owned()
    }

    /// The part of the name behind the date.
    pub fn short(&self) -> &str {
        self.name.get(11..).unwrap_or_default()
    }

    /// Whether all operations have lanes there.
    pub fn has_ifma(&self) -> bool {
        self.backend.starts_with("avx512ifma")
    }

    /// Whether other programs kept a CPU busy when it began.
    pub fn was_busy(&self) -> bool {
        self.load > 0.2
    }

    /// The operations in the order of the record.
    pub fn operations(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .speed
            .iter()
            .map(|row| row.operation.as_str())
            .collect();
        names.dedup();
        names
    }

    pub fn speed_of(&self, operation: &str, fill: Option<u64>) -> Option<&Speed> {
        self.speed
            .iter()
            .find(|row| row.operation == operation && row.fill == fill)
    }

    fn load(directory: &Path) -> Outcome<Record> {
        let read = |name: &str| -> Outcome<Value> {
            let path = directory.join(name);
            let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
            serde_json::from_str(&text)
                .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
        };
        let (run, speed, handshakes) = (
            read("run.json")?,
            read("speed.json")?,
            read("handshakes.json")?,
        );
        let costs = match directory.join(costs::FILE).exists() {
            true => costs::parse(&read(costs::FILE)?),
            false => Some(Vec::new()),
        };
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let record = Record::parse(&name, &run, &speed, &handshakes);
        let record = record.zip(costs);
        record
            .map(|(record, costs)| Record { costs, ..record })
            .ok_or_else(|| {
                Failure::new(format!("{} is no record of speed", directory.display()))
                    .remedy("restore it from git, or measure again: cargo xtask figures --measure")
            })
    }

    fn parse(name: &str, run: &Value, speed: &Value, handshakes: &Value) -> Option<Record> {
        let machine = speed.get("machine")?;
        let openssl = text(machine, "openssl")?;
        let runs = handshakes.as_array()?;
        let has_page = |run: &&Value| run.get("transfer").is_some_and(Value::is_u64);
        let transactions = runs.iter().filter(has_page).map(Transactions::parse);
        let transactions = transactions.collect::<Option<_>>()?;
        let several = runs.iter().filter(|run| loads::has_several(run));
        let loads = several.map(loads::parse).collect::<Option<Vec<_>>>()?;
        let (paced, runs): (Vec<_>, Vec<_>) = runs.iter().partition(|run| is_paced(run));
        let paced = paced.into_iter().map(Paced::parse);
        let paced = paced.collect::<Option<Vec<_>>>()?.into_iter().flatten();
        let has_daemon = |run: &&Value| run.get("keyd").is_some();
        let daemons = runs.iter().copied().filter(has_daemon).map(Daemon::parse);
        let daemons = daemons.collect::<Option<Vec<_>>>()?.into_iter().flatten();
        let runs = runs.into_iter();
        let has_row = |run: &&Value| !has_page(run) && !has_daemon(run) && !loads::has_several(run);
        let runs = runs.filter(has_row);
        let runs = runs.map(Handshakes::parse);
        let (handshakes, others) = runs
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .partition(|run| run.openssl == openssl && run.group == "x25519");
        Some(Record {
            name: name.to_owned(),
            cpu: text(run, "cpu")?,
            load: run.get("load")?.as_f64()?,
            cpus: machine.get("cpus")?.as_u64()?,
            clock_ghz: machine.get("clock_ghz")?.as_f64()?,
            backend: text(machine, "backend")?,
            openssl,
            speed: speed
                .get("rows")?
                .as_array()?
                .iter()
                .filter(|row| row.get("threads").and_then(Value::as_u64) == Some(1))
                .map(Speed::parse)
                .collect::<Option<_>>()?,
            handshakes,
            others,
            daemons: daemons.collect(),
            paced: paced.collect(),
            transactions,
            ciphers: match speed.get("ciphers") {
                None => Vec::new(),
                Some(rows) => {
                    let rows = rows.as_array()?.iter().map(Cipher::parse);
                    rows.collect::<Option<_>>()?
                }
            },
            loads: loads.into_iter().flatten().collect(),
            costs: Vec::new(),
        })
    }
}

impl Cipher {
    fn parse(row: &Value) -> Option<Cipher> {
        Some(Cipher {
            name: text(row, "op")?,
            bytes: row.get("bytes")?.as_u64()?,
            is_stock: row.get("impl")?.as_str()? == "stock",
            gb_per_s: row.get("gb_per_s")?.as_f64()?,
            cycles_per_byte: row.get("cycles_per_byte")?.as_f64()?,
        })
    }
}

impl Transactions {
    fn parse(run: &Value) -> Option<Transactions> {
        let clients = run.get("cpu_ratio_concurrency")?.as_u64()?;
        let row = |side, load| row_of(run, side, load, clients);
        let cost = |side, load| row(side, load)?.get("server_cpu_s_per_1000")?.as_f64();
        let transaction = |side| {
            Some(Transaction {
                handshake: cost(side, "handshake")?,
                whole: cost(side, "transaction")?,
            })
        };
        let rounds = |side| {
            let rounds = row(side, "transaction")?.get("server_cpu_s_per_1000_rounds")?;
            let rounds = rounds.as_array()?.iter().map(Value::as_f64);
            rounds.collect::<Option<Vec<f64>>>()
        };
        let (stock, lockstep) = (rounds("stock")?, rounds("lockstep")?);
        let ratios = stock.iter().zip(&lockstep);
        let mut ratios: Vec<f64> = ratios.map(|(stock, lockstep)| lockstep / stock).collect();
        ratios.sort_by(f64::total_cmp);
        Some(Transactions {
            server: text(run, "server")?,
            key: text(run, "key")?,
            page: run.get("transfer")?.as_u64()?,
            clients,
            stock: transaction("stock")?,
            lockstep: transaction("lockstep")?,
            ratio: *ratios.get(ratios.len() / 2)?,
        })
    }
}

impl Speed {
    pub fn parse(row: &Value) -> Option<Speed> {
        let is_stock = row.get("impl")?.as_str()? == "stock";
        let fill = row.get("fill")?.as_u64()?;
        Some(Speed {
            operation: row.get("op")?.as_str()?.to_owned(),
            fill: (!is_stock).then_some(fill),
            per_second: row.get("ops_per_s")?.as_f64()?,
            by_stock: row.get("by_stock")?.as_bool()?,
            quiet_slices: row.get("slices_kept")?.as_u64()?,
        })
    }
}

impl Handshakes {
    fn parse(run: &Value) -> Option<Handshakes> {
        let clients = run.get("cpu_ratio_concurrency")?.as_u64()?;
        let row = |side| row_of(run, side, "handshake", clients);
        let cost = |side| row(side)?.get("server_cpu_s_per_1000")?.as_f64();
        let ratios = |clients| {
            let mut all = run.get("ratios")?.as_array()?.iter();
            all.find(|ratios| ratios.get("concurrency").and_then(Value::as_u64) == Some(clients))
        };
        let latency = |share| ratios(clients)?.get(share)?.as_f64();
        let median = |side| row(side)?.get("p50_ms")?.as_f64();
        Some(Handshakes {
            server: text(run, "server")?,
            version: text(run, "server_version"),
            key: text(run, "key")?,
            group: text(run, "group")?,
            stock_group: text(run, "stock_group"),
            openssl: text(run, "openssl")?,
            clients,
            stock: cost("stock")?,
            lockstep: cost("lockstep")?,
            ratio: run.get("cpu_ratio")?.as_f64()?,
            median: median("stock").zip(median("lockstep")).map(Into::into),
            p50: latency("p50"),
            p99: latency("p99"),
            p50_alone: ratios(1).and_then(|ratios| ratios.get("p50")?.as_f64()),
            fill: row("lockstep")?.get("fill")?.as_f64(),
        })
    }
}

impl Daemon {
    /// A figure for each number of clients.
    pub fn parse(run: &Value) -> Option<Vec<Daemon>> {
        let ratios = run.get("ratios")?.as_array()?.iter();
        let levels = ratios.map(|ratios| {
            let clients = ratios.get("concurrency")?.as_u64()?;
            let row = |side| row_of(run, side, "handshake", clients);
            let cost = |side| row(side)?.get("server_cpu_s_per_1000")?.as_f64();
            Some(Daemon {
                server: text(run, "server")?,
                key: text(run, "key")?,
                keyd: text(run, "keyd")?,
                workers: run.get("workers").and_then(Value::as_u64),
                clients,
                stock: cost("stock")?,
                lockstep: cost("lockstep")?,
                share: row("lockstep")?.get("keyd_cpu_share")?.as_f64()?,
                cpu: ratios.get("cpu")?.as_f64()?,
                per_second: ratios.get("per_s")?.as_f64(),
                p50: ratios.get("p50")?.as_f64(),
            })
        });
        levels.collect()
    }
}

impl Paced {
    /// A figure for each rate.
    pub fn parse(run: &Value) -> Option<Vec<Paced>> {
        let ratios = run.get("ratios")?.as_array()?.iter();
        let levels = ratios.map(|ratios| {
            let rate = ratios.get("rate")?.as_u64()?;
            let figure = |side, name| {
                let row = row_at(run, side, "handshake", ("rate", rate))?;
                row.get(name)?.as_f64()
            };
            let both = |name| Some([figure("stock", name)?, figure("lockstep", name)?]);
            let [stock, lockstep] = both("server_cpu_s_per_1000")?;
            Some(Paced {
                server: text(run, "server")?,
                key: text(run, "key")?,
                has_daemon: run.get("keyd").is_some(),
                rate,
                stock,
                lockstep,
                cpu: ratios.get("cpu")?.as_f64()?,
                p50: both("p50_ms")?,
                p99: both("p99_ms")?,
            })
        });
        levels.collect()
    }
}

/// Whether handshakes began at a rate in a run of `handshakes`.
fn is_paced(run: &Value) -> bool {
    let first = run.get("ratios").and_then(|ratios| ratios.get(0));
    first.is_some_and(|ratios| ratios.get("rate").is_some())
}

/// How many handshakes a server does in a second with OpenSSL alone and the most clients, by what
/// `handshakes --json` printed.
pub fn limit_of(run: &str) -> Option<f64> {
    let run: Value = serde_json::from_str(run).ok()?;
    let clients = run.get("cpu_ratio_concurrency")?.as_u64()?;
    let row = row_of(&run, "stock", "handshake", clients)?;
    row.get("per_s")?.as_f64()
}

/// What one side of a run of `handshakes` did under a load with so many clients.
fn row_of<'a>(run: &'a Value, side: &str, load: &str, clients: u64) -> Option<&'a Value> {
    row_at(run, side, load, ("concurrency", clients))
}

/// The same where this number is so great.
fn row_at<'a>(
    run: &'a Value,
    side: &str,
    load: &str,
    (name, number): (&str, u64),
) -> Option<&'a Value> {
    let is = |row: &Value, name, value| row.get(name).and_then(Value::as_str) == Some(value);
    let is_at = |row: &Value| row.get(name).and_then(Value::as_u64) == Some(number);
    let mut rows = run.get("rows")?.as_array()?.iter();
    rows.find(|row| is(row, "impl", side) && is(row, "load", load) && is_at(row))
}

/// A string in an object.
fn text(value: &Value, name: &str) -> Option<String> {
    Some(value.get(name)?.as_str()?.to_owned())
}

/// The names of all records, the newest first.
pub fn names() -> Outcome<Vec<String>> {
    let path = directory();
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(on(&path, "list"))? {
        let entry = entry.map_err(on(&path, "list"))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// What gains nothing, by the newest record of a kind of CPU that has it, and that record's name.
pub fn costs_of(cpu: &str) -> Outcome<Option<(String, Vec<Cost>)>> {
    for name in names()? {
        if name.get(11..) != Some(cpu) {
            continue;
        }
        let place = directory().join(&name);
        // The ledger's own are of a later commit than those of the record beside it.
        for (file, part) in [("ledger.json", Some("costs")), (costs::FILE, None)] {
            let path = place.join(file);
            if !path.exists() {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(on(&path, "read"))?;
            let document: Option<Value> = serde_json::from_str(&text).ok();
            let document = document.as_ref();
            let found = document.and_then(|all| part.map_or(Some(all), |part| all.get(part)));
            if let Some(costs) = found.and_then(costs::parse) {
                return Ok(Some((name, costs)));
            }
        }
    }
    Ok(None)
}

/// The newest record of each CPU that has figures to show, the newest of all first.
pub fn newest() -> Outcome<Vec<Record>> {
    let path = directory();
    let mut names = names()?;
    names.retain(|name| path.join(name).join("run.json").exists());
    let mut seen: Vec<String> = Vec::new();
    let mut records = Vec::new();
    for name in names {
        let cpu = name.get(11..).unwrap_or_default().to_owned();
        if !seen.contains(&cpu) {
            seen.push(cpu);
            records.push(Record::load(&path.join(&name))?);
        }
    }
    Ok(records)
}

/// Vendor, family and first to last model; what a record's name has; what people say.
type Known = (
    (&'static str, u32, std::ops::RangeInclusive<u32>),
    &'static str,
    &'static str,
);

const KNOWN: &[Known] = &[
    (("AMD", 25, 0..=0x0f), "zen3", "AMD EPYC (Zen 3)"),
    (("AMD", 25, 0x10..=0x1f), "zen4", "AMD EPYC (Zen 4)"),
    (("AMD", 25, 0xa0..=0xaf), "zen4c", "AMD EPYC (Zen 4c)"),
    (("AMD", 26, 0..=0x1f), "zen5", "AMD EPYC (Zen 5)"),
    (("Intel", 6, 106..=106), "ice-lake", "Intel Xeon (Ice Lake)"),
    (
        ("Intel", 6, 143..=143),
        "sapphire-rapids",
        "Intel Xeon (Sapphire Rapids)",
    ),
    (
        ("Intel", 6, 207..=207),
        "emerald-rapids",
        "Intel Xeon (Emerald Rapids)",
    ),
    (
        ("Intel", 6, 173..=173),
        "granite-rapids",
        "Intel Xeon (Granite Rapids)",
    ),
    // What a hypervisor makes of the same core: the model is that of Rocket Lake, which has neither
    // AMX nor so large a cache, and the name has lost its number.
    (
        ("Intel(R) Xeon(R) Processor,", 6, 167..=167),
        "granite-rapids",
        "Intel Xeon (Granite Rapids)",
    ),
];

/// What people call the CPU with a short name, if that is known.
pub fn full_name(short: &str) -> Option<&'static str> {
    let known = KNOWN.iter().find(|(_, known, _)| *known == short)?;
    Some(known.2)
}

/// The short name for a CPU like `AMD EPYC, family 25 model 17`.
pub fn short_name(cpu: &str) -> String {
    let number = |after: &str| -> Option<u32> {
        let rest = cpu.split_once(after)?.1;
        rest.split(' ').next()?.parse().ok()
    };
    let (family, model) = (number("family "), number("model "));
    KNOWN
        .iter()
        .find(|((vendor, of, models), ..)| {
            cpu.starts_with(vendor)
                && family == Some(*of)
                && model.is_some_and(|model| models.contains(&model))
        })
        .map_or_else(
            || format!("family{}-model{}", family.unwrap_or(0), model.unwrap_or(0)),
            |(_, short, _)| (*short).to_owned(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_a_short_name() {
        assert_eq!(short_name("AMD EPYC, family 25 model 17"), "zen4");
        assert_eq!(short_name("AMD EPYC, family 26 model 2"), "zen5");
        let sapphire = "Intel(R) Xeon(R) Processor, family 6 model 143";
        assert_eq!(short_name(sapphire), "sapphire-rapids");
        let granite = "Intel(R) Xeon(R) Processor, family 6 model 167";
        assert_eq!(short_name(granite), "granite-rapids");
        let rocket = "Intel(R) Xeon(R) E-2388G CPU @ 3.20GHz, family 6 model 167";
        assert_eq!(short_name(rocket), "family6-model167");
        assert_eq!(short_name("Intel Xeon, family 6 model 1"), "family6-model1");
    }

    #[test]
    fn what_the_commands_print_is_read() {
        let speed = r#"{"machine":{"cpu":"C","cpus":2,"clock_ghz":3.6,"backend":"b","lane_multiplies_per_cycle":1.00,"openssl":"O"},
            "rows":[{"op":"rsa2048-sign","impl":"stock","fill":1,"threads":1,"ops_per_s":935.7,"cycles_per_op":1,"limit_cycles":2,"by_stock":false,"slices_kept":0,"slices":14},
            {"op":"rsa2048-sign","impl":"lockstep","fill":4,"threads":2,"ops_per_s":5,"cycles_per_op":1,"limit_cycles":2,"by_stock":false,"slices_kept":7,"slices":14}]}"#;
        let run_text = r#"{"cpu":"C, family 1 model 2","load":0.1}"#;
        let handshakes = r#"[{"cpu_ratio":0.7,"cpu_ratio_concurrency":8,"server":"nginx","key":"p256",
            "group":"x25519","openssl":"O",
            "ratios":[{"concurrency":1,"cpu":1.0,"p50":0.9,"p90":0.9,"p99":0.9},
            {"concurrency":8,"cpu":0.7,"p50":1.0,"p90":0.9,"p99":0.8}],
            "rows":[{"impl":"stock","load":"handshake","concurrency":8,"server_cpu_s_per_1000":0.6,"fill":null},
            {"impl":"lockstep","load":"handshake","concurrency":8,"server_cpu_s_per_1000":0.4,"fill":5.5}]}]"#;
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let record = Record::parse(
            "2026-11-22-zen4",
            &value(run_text),
            &value(speed),
            &value(handshakes),
        );
        let record = record.unwrap();
        assert_eq!(record.short_name(), "AMD EPYC (Zen 4)");
        assert_eq!(record.operations(), ["rsa2048-sign"]);
        assert!(record.speed_of("rsa2048-sign", None).is_some());
        assert!(record.speed_of("rsa2048-sign", Some(4)).is_none());
        let run = &record.handshakes[0];
        assert_eq!((run.clients, run.stock, run.lockstep), (8, 0.6, 0.4));
        assert_eq!((run.p99, run.fill), (Some(0.8), Some(5.5)));
        assert_eq!((run.p50, run.p50_alone), (Some(1.0), Some(0.9)));
        let another_openssl = handshakes.replace(r#""openssl":"O""#, r#""openssl":"P""#);
        let another_group = handshakes.replace("x25519", "x25519mlkem768");
        for text in [another_openssl, another_group] {
            let name = "2026-11-22-zen4";
            let other = Record::parse(name, &value(run_text), &value(speed), &value(&text));
            let other = other.unwrap();
            assert_eq!((other.handshakes.len(), other.others.len()), (0, 1));
        }
        assert!(record.transactions.is_empty() && record.ciphers.is_empty());
        let pages = r#"[{"cpu_ratio":0.6,"cpu_ratio_concurrency":16,"server":"haproxy","key":"rsa2048",
            "transfer":235520,"rows":[
            {"impl":"stock","load":"handshake","concurrency":16,"server_cpu_s_per_1000":0.6},
            {"impl":"lockstep","load":"handshake","concurrency":16,"server_cpu_s_per_1000":0.3},
            {"impl":"stock","load":"transaction","concurrency":16,"server_cpu_s_per_1000":1.0,
             "server_cpu_s_per_1000_rounds":[1.0,1.0,2.0]},
            {"impl":"lockstep","load":"transaction","concurrency":16,"server_cpu_s_per_1000":0.55,
             "server_cpu_s_per_1000_rounds":[0.5,0.6,1.1]}]}]"#;
        let ciphers = speed.replacen(
            "{",
            r#"{"ciphers":[{"op":"aes-128-gcm","bytes":16,"impl":"stock","gb_per_s":0.5,"cycles_per_byte":7.5}],"#,
            1,
        );
        let name = "2026-11-24-zen4";
        let with = Record::parse(name, &value(run_text), &value(&ciphers), &value(pages)).unwrap();
        let run = &with.transactions[0];
        assert_eq!((run.page, run.clients, run.ratio), (235_520, 16, 0.55));
        assert_eq!((run.stock.handshake, run.lockstep.whole), (0.6, 0.55));
        assert!(with.handshakes.is_empty() && with.others.is_empty());
        let cipher = &with.ciphers[0];
        assert!(cipher.is_stock && cipher.bytes == 16 && cipher.cycles_per_byte == 7.5);
        assert!(!record.was_busy());
        let busy = Record {
            load: 0.5,
            ..record
        };
        assert!(busy.was_busy());
    }
}
