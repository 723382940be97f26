//! The records in docs/benchmarks/record, as their files have them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use xtask::command::{Failure, Outcome, on, root};

use super::costs::{self, Cost};
use crate::record::Machine as Here;

/// Where all records are.
pub fn directory() -> PathBuf {
    root().join("docs/benchmarks/record")
}

/// Reads a document.
pub fn read<T: DeserializeOwned>(path: &Path) -> Outcome<T> {
    let text = fs::read_to_string(path).map_err(on(path, "read"))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(format!("{}: {error}", path.display()))
            .remedy("restore it from git, or measure again")
    })
}

/// The directory of the record of today.
pub fn of_today(machine: &Here) -> PathBuf {
    directory().join(format!("{}-{}", machine.date, short_name(&machine.cpu)))
}

/// Writes a file of it.
pub fn store(machine: &Here, name: &str, text: &str) -> Outcome {
    let directory = of_today(machine);
    fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
    let path = directory.join(name);
    fs::write(&path, format!("{text}\n")).map_err(on(&path, "write"))?;
    println!("{}", path.display());
    Ok(())
}

/// With more busy CPUs than this before a measurement, the page says so.
pub const BUSY: f64 = 0.2;

/// What was measured on one day on one machine.
#[derive(Debug, Default)]
pub struct Record {
    /// Of its directory: DATE-CPU.
    pub name: String,
    pub about: About,
    pub speed: SpeedFile,
    pub runs: Vec<Run>,
    /// What gains nothing; older records have none.
    pub costs: Vec<Cost>,
}

/// What `run.json` says.
#[derive(Debug, Default, Deserialize)]
pub struct About {
    /// As the system names it, with family and model.
    pub cpu: String,
    /// How many CPUs other programs kept busy before the first measurement.
    pub load: f64,
    /// A hash of the kernels' sources; older records have none.
    pub kernels: Option<String>,
}

/// What `speed --json` prints.
#[derive(Debug, Default, Deserialize)]
pub struct SpeedFile {
    pub machine: Machine,
    pub rows: Vec<Speed>,
    #[serde(default)]
    pub ciphers: Vec<Cipher>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Machine {
    pub cpus: u64,
    pub clock_ghz: f64,
    pub backend: String,
    pub openssl: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Stock,
    Lockstep,
}

/// Operations in a second.
#[derive(Debug, Deserialize)]
pub struct Speed {
    pub op: String,
    #[serde(rename = "impl")]
    pub side: Side,
    pub fill: u64,
    pub threads: u64,
    pub ops_per_s: f64,
    pub by_stock: bool,
    pub slices_kept: u64,
}

#[derive(Debug, Deserialize)]
pub struct Cipher {
    pub op: String,
    pub bytes: u64,
    #[serde(rename = "impl")]
    pub side: Side,
    pub gb_per_s: f64,
    pub cycles_per_byte: f64,
}

/// What one run of `handshakes --json` printed.
#[derive(Debug, Deserialize)]
#[serde(try_from = "RunFile")]
pub struct Run {
    pub of: Subject,
    /// In the order of the loads.
    pub levels: Vec<Level>,
}

/// What a run is of.
#[derive(Debug, Deserialize)]
pub struct Subject {
    pub server: String,
    /// As the server calls itself.
    pub server_version: Option<String>,
    pub key: String,
    pub group: String,
    /// The group of the server without lockstep, where that is another one.
    pub stock_group: Option<String>,
    pub openssl: String,
    pub tls: String,
    /// What the key daemon has to do with the key, where it has it.
    pub keyd: Option<String>,
    pub workers: Option<u64>,
    /// Bytes of the page that is fetched after a handshake.
    pub transfer: Option<u64>,
    /// Server CPU for a handshake under the highest load, Lockstep over OpenSSL alone.
    pub cpu_ratio: f64,
}

#[derive(Deserialize)]
struct RunFile {
    #[serde(flatten)]
    of: Subject,
    ratios: Vec<Ratios>,
    rows: Vec<Row>,
}

/// One load.
#[derive(Debug)]
pub struct Level {
    pub demand: Demand,
    /// Server CPU, Lockstep over OpenSSL alone.
    pub cpu: f64,
    pub ratios: Ratios,
    pub stock: Row,
    pub lockstep: Row,
    /// The same of handshakes with the page.
    pub with_page: Option<[Row; 2]>,
}

/// Clients at a time, or handshakes that begin in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    Clients(u64),
    Rate(u64),
}

impl Demand {
    pub fn number(self) -> u64 {
        match self {
            Demand::Clients(number) | Demand::Rate(number) => number,
        }
    }

    fn of(clients: Option<u64>, rate: Option<u64>) -> Option<Demand> {
        clients.map(Demand::Clients).or(rate.map(Demand::Rate))
    }
}

/// Lockstep over OpenSSL alone, by quantity; `null` where too little was timed.
#[derive(Debug, Deserialize)]
pub struct Ratios {
    concurrency: Option<u64>,
    rate: Option<u64>,
    /// Older runs have none.
    rounds: Option<Vec<BTreeMap<String, Option<f64>>>>,
    #[serde(flatten)]
    medians: BTreeMap<String, Option<f64>>,
}

impl Ratios {
    pub fn of(&self, quantity: &str) -> Option<f64> {
        *self.medians.get(quantity)?
    }

    /// The median, the least and the greatest ratio of a quantity.
    pub fn spread(&self, quantity: &str) -> Option<[f64; 3]> {
        let rounds = self.rounds.iter().flatten();
        let all: Vec<f64> = rounds.filter_map(|round| *round.get(quantity)?).collect();
        let end = |end: fn(f64, f64) -> f64| all.iter().copied().reduce(end);
        Some([self.of(quantity)?, end(f64::min)?, end(f64::max)?])
    }
}

/// One side of a load.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    #[serde(rename = "impl")]
    side: Side,
    load: String,
    concurrency: Option<u64>,
    rate: Option<u64>,
    pub per_s: f64,
    /// Server CPU for a handshake, in milliseconds.
    #[serde(rename = "server_cpu_s_per_1000")]
    pub cost: f64,
    #[serde(rename = "server_cpu_s_per_1000_rounds")]
    pub costs: Vec<Option<f64>>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub fill: Option<f64>,
    pub keyd_cpu_share: Option<f64>,
}

impl TryFrom<RunFile> for Run {
    type Error = String;

    fn try_from(file: RunFile) -> Result<Run, String> {
        let RunFile { of, ratios, rows } = file;
        let level = |ratios: Ratios| {
            let demand = Demand::of(ratios.concurrency, ratios.rate)?;
            let row = |load, side| {
                let is_it = |row: &&Row| {
                    (&*row.load, row.side) == (load, side)
                        && Demand::of(row.concurrency, row.rate) == Some(demand)
                };
                rows.iter().find(is_it).cloned()
            };
            let both = |load| Some([row(load, Side::Stock)?, row(load, Side::Lockstep)?]);
            let [stock, lockstep] = both("handshake")?;
            let with_page = both("transaction");
            let is_whole = of.transfer.is_none() || with_page.is_some();
            let is_whole = is_whole && (of.keyd.is_none() || lockstep.keyd_cpu_share.is_some());
            let level = Level {
                demand,
                cpu: ratios.of("cpu")?,
                ratios,
                stock,
                lockstep,
                with_page,
            };
            is_whole.then_some(level)
        };
        let levels: Option<Vec<Level>> = ratios.into_iter().map(level).collect();
        let levels = levels.filter(|levels| !levels.is_empty());
        let levels = levels.ok_or("a run of handshakes has no figures for a load")?;
        Ok(Run { of, levels })
    }
}

impl Run {
    /// The one with the highest load.
    pub fn busiest(&self) -> &Level {
        let highest = self.levels.iter().max_by_key(|level| level.demand.number());
        highest.expect("a run has a load")
    }

    pub fn is_paced(&self) -> bool {
        matches!(self.levels[0].demand, Demand::Rate(_))
    }

    /// Whether it has several loads, each with the ratios of its rounds. Older runs have none.
    pub fn has_several(&self) -> bool {
        self.levels.len() > 2
            && self
                .levels
                .iter()
                .all(|level| level.ratios.rounds.is_some())
    }

    /// Whether it is one of many clients, a handshake each, without the key daemon.
    fn is_plain(&self) -> bool {
        let is_other = self.of.transfer.is_some() || self.of.keyd.is_some();
        !is_other && !self.is_paced() && !self.has_several()
    }
}

impl Record {
    /// The CPU as people call it.
    pub fn short_name(&self) -> String {
        full_name(self.short())
            .unwrap_or(&self.about.cpu)
            .to_owned()
    }

    pub fn date(&self) -> &str {
        self.name.get(..10).unwrap_or_default()
    }

    /// The part of the name behind the date.
    pub fn short(&self) -> &str {
        self.name.get(11..).unwrap_or_default()
    }

    /// Whether all operations have lanes there.
    pub fn has_ifma(&self) -> bool {
        self.speed.machine.backend.starts_with("avx512ifma")
    }

    /// Whether other programs kept a CPU busy when it began.
    pub fn was_busy(&self) -> bool {
        self.about.load > BUSY
    }

    /// The operations in the order of the record.
    pub fn operations(&self) -> Vec<&str> {
        let rows = self.speed.rows.iter();
        let mut names: Vec<&str> = rows.map(|row| row.op.as_str()).collect();
        names.dedup();
        names
    }

    /// With so many requests at once on one thread, or by OpenSSL alone.
    pub fn speed_of(&self, operation: &str, fill: Option<u64>) -> Option<&Speed> {
        self.speed.rows.iter().find(|row| {
            row.op == operation
                && row.threads == 1
                && fill == (row.side == Side::Lockstep).then_some(row.fill)
        })
    }

    /// Runs with many clients: with this system's OpenSSL and X25519, or with others.
    pub fn plain(&self, is_usual: bool) -> impl Iterator<Item = &Run> {
        let openssl = &self.speed.machine.openssl;
        let runs = self.runs.iter().filter(|run| run.is_plain());
        runs.filter(move |run| is_usual == (run.of.openssl == *openssl && run.of.group == "x25519"))
    }

    fn load(directory: &Path) -> Outcome<Record> {
        let costs = directory.join(costs::FILE);
        Ok(Record {
            name: directory
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            about: read(&directory.join("run.json"))?,
            speed: read(&directory.join("speed.json"))?,
            runs: read(&directory.join("handshakes.json"))?,
            costs: match costs.exists() {
                true => read::<costs::File>(&costs)?.rows,
                false => Vec::new(),
            },
        })
    }
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
            let document: Value = read(&path)?;
            let found = part.map_or(Some(&document), |part| document.get(part));
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
    // Both have this model, and the same vector units.
    (
        ("Intel", 6, 85..=85),
        "cascade-lake",
        "Intel Xeon (Skylake, Cascade Lake)",
    ),
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
    use serde_json::json;

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
    fn what_speed_prints_is_read() {
        let row = |side: &str, fill: u64, threads: u64| {
            json!({
                "op": "rsa2048-sign", "impl": side, "fill": fill, "threads": threads,
                "ops_per_s": 935.7, "by_stock": false, "slices_kept": 0, "slices": 14,
            })
        };
        let mut document = json!({
            "machine": {"cpus": 2, "clock_ghz": 3.6, "backend": "b", "openssl": "O"},
            "rows": [row("stock", 1, 1), row("lockstep", 4, 2)],
        });
        let read = |document: &Value| {
            let speed = SpeedFile::deserialize(document).unwrap();
            Record {
                speed,
                ..Record::default()
            }
        };
        let record = read(&document);
        assert_eq!(record.operations(), ["rsa2048-sign"]);
        assert!(record.speed_of("rsa2048-sign", None).is_some());
        assert!(record.speed_of("rsa2048-sign", Some(4)).is_none());
        assert!(record.speed.ciphers.is_empty() && !record.was_busy());
        document["ciphers"] = json!([{
            "op": "aes-128-gcm", "bytes": 16, "impl": "stock", "gb_per_s": 0.5,
            "cycles_per_byte": 7.5,
        }]);
        assert_eq!(read(&document).speed.ciphers[0].side, Side::Stock);
    }

    #[test]
    fn each_run_is_in_its_place_and_none_lacks_a_figure() {
        let usual = examples::run("nginx", "p256", "concurrency", &[1, 64]);
        let with = |name: &str, value: Value| {
            let mut run = usual.clone();
            run[name] = value;
            run
        };
        let place = |run: &Value| {
            let record = examples::record(std::slice::from_ref(run));
            [record.plain(true).count(), record.plain(false).count()]
        };
        assert_eq!(place(&usual), [1, 0]);
        assert_eq!(place(&with("openssl", "OpenSSL 3.5".into())), [0, 1]);
        assert_eq!(place(&with("group", "p256".into())), [0, 1]);
        assert_eq!(place(&with("keyd", "reference".into())), [0, 0]);
        let several = examples::run("nginx", "p256", "concurrency", &[1, 8, 64]);
        assert_eq!(place(&several), [0, 0]);
        let paced = examples::run("nginx", "p256", "rate", &[8]);
        assert_eq!(place(&paced), [0, 0]);
        let run = Run::deserialize(&usual).unwrap();
        assert_eq!(run.busiest().demand, Demand::Clients(64));
        // Without the page's rows, the daemon's share, a load, or any load.
        let mut lacking = [
            with("transfer", 40.into()),
            with("keyd", "reference".into()),
            usual.clone(),
            with("ratios", json!([])),
        ];
        lacking[1]["rows"][1]["keyd_cpu_share"] = Value::Null;
        lacking[2]["rows"][3]["load"] = "transaction".into();
        for run in lacking {
            assert!(Run::deserialize(&run).is_err(), "{run}");
        }
    }
}

/// Documents as the commands print them, with round numbers.
#[cfg(test)]
pub mod examples {
    use serde_json::json;

    use super::*;

    /// A run of X25519 and TLS 1.3 under loads of `concurrency` or `rate`; Lockstep takes half of
    /// the CPU time and 0.9 of the other quantities.
    pub fn run(server: &str, key: &str, demand: &str, loads: &[u64]) -> Value {
        let ratios = |load: &u64| {
            let quantities = json!({
                "cpu": 0.5, "per_s": 1.1, "mean": 0.9, "p50": 0.9, "p90": 0.9, "p99": null,
            });
            let mut ratios = quantities.clone();
            ratios[demand] = (*load).into();
            ratios["rounds"] = json!([quantities, quantities]);
            ratios
        };
        let rows = loads.iter().flat_map(|load| {
            [("stock", 1.0), ("lockstep", 0.5)].map(|(side, cost)| {
                json!({
                    "impl": side, "load": "handshake", demand: load, "per_s": 1000.0,
                    "server_cpu_s_per_1000": cost, "server_cpu_s_per_1000_rounds": [cost, cost],
                    "p50_ms": 20.0 * cost, "p99_ms": 40.0 * cost, "fill": 5.5,
                    "keyd_cpu_share": 0.75,
                })
            })
        });
        json!({
            "server": server, "server_version": "Server version 1.2", "key": key,
            "group": "x25519", "openssl": "OpenSSL 3.0.19", "tls": "1.3", "transfer": null,
            "cpu_ratio": 0.5, "ratios": loads.iter().map(ratios).collect::<Value>(),
            "rows": rows.collect::<Value>(),
        })
    }

    /// A record of these runs.
    pub fn record(runs: &[Value]) -> Record {
        let runs = runs
            .iter()
            .map(|run| Run::deserialize(run).unwrap())
            .collect();
        let mut record = Record {
            runs,
            ..Record::default()
        };
        record.speed.machine.openssl = "OpenSSL 3.0.19".to_owned();
        record
    }
}
