//! The records of speed and handshakes in docs/benchmarks/record.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

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
    pub handshakes: Vec<Handshakes>,
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

/// One run of `handshakes --json`, with the most clients that it had.
#[derive(Debug)]
pub struct Handshakes {
    pub server: String,
    pub key: String,
    pub clients: u64,
    /// Server CPU for a handshake, in milliseconds.
    pub stock: f64,
    pub lockstep: f64,
    /// Of both, by turns that follow each other.
    pub ratio: f64,
    /// Lockstep's latency over OpenSSL's, where enough handshakes were timed.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub fill: Option<f64>,
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
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        Record::parse(&name, &run, &speed, &handshakes).ok_or_else(|| {
            Failure::new(format!("{} is no record of speed", directory.display()))
                .remedy("restore it from git, or measure again: cargo xtask figures --measure")
        })
    }

    fn parse(name: &str, run: &Value, speed: &Value, handshakes: &Value) -> Option<Record> {
        let machine = speed.get("machine")?;
        let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
        Some(Record {
            name: name.to_owned(),
            cpu: text(run, "cpu")?,
            load: run.get("load")?.as_f64()?,
            cpus: machine.get("cpus")?.as_u64()?,
            clock_ghz: machine.get("clock_ghz")?.as_f64()?,
            backend: text(machine, "backend")?,
            openssl: text(machine, "openssl")?,
            speed: speed
                .get("rows")?
                .as_array()?
                .iter()
                .filter(|row| row.get("threads").and_then(Value::as_u64) == Some(1))
                .map(Speed::parse)
                .collect::<Option<_>>()?,
            handshakes: handshakes
                .as_array()?
                .iter()
                .map(Handshakes::parse)
                .collect::<Option<_>>()?,
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
        let with = |list: &'static str| {
            let rows = run.get(list)?.as_array()?;
            let of_all =
                |row: &&Value| row.get("concurrency").and_then(Value::as_u64) == Some(clients);
            Some(rows.iter().filter(of_all))
        };
        let row = |side: &str| {
            with("rows")?.find(|row| {
                row.get("impl").and_then(Value::as_str) == Some(side)
                    && row.get("load").and_then(Value::as_str) == Some("handshake")
            })
        };
        let cost = |side| row(side)?.get("server_cpu_s_per_1000")?.as_f64();
        let latency = |share| with("ratios")?.next()?.get(share)?.as_f64();
        Some(Handshakes {
            server: run.get("server")?.as_str()?.to_owned(),
            key: run.get("key")?.as_str()?.to_owned(),
            clients,
            stock: cost("stock")?,
            lockstep: cost("lockstep")?,
            ratio: run.get("cpu_ratio")?.as_f64()?,
            p50: latency("p50"),
            p99: latency("p99"),
            fill: row("lockstep")?.get("fill")?.as_f64(),
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
        assert_eq!(short_name("Intel Xeon, family 6 model 1"), "family6-model1");
    }

    #[test]
    fn what_the_commands_print_is_read() {
        let speed = r#"{"machine":{"cpu":"C","cpus":2,"clock_ghz":3.6,"backend":"b","lane_multiplies_per_cycle":1.00,"openssl":"O"},
            "rows":[{"op":"rsa2048-sign","impl":"stock","fill":1,"threads":1,"ops_per_s":935.7,"cycles_per_op":1,"limit_cycles":2,"by_stock":false,"slices_kept":0,"slices":14},
            {"op":"rsa2048-sign","impl":"lockstep","fill":4,"threads":2,"ops_per_s":5,"cycles_per_op":1,"limit_cycles":2,"by_stock":false,"slices_kept":7,"slices":14}]}"#;
        let run = r#"{"cpu":"C, family 1 model 2","load":0.1}"#;
        let handshakes = r#"[{"cpu_ratio":0.7,"cpu_ratio_concurrency":8,"server":"nginx","key":"p256",
            "ratios":[{"concurrency":8,"cpu":0.7,"p50":1.0,"p90":0.9,"p99":0.8}],
            "rows":[{"impl":"stock","load":"handshake","concurrency":8,"server_cpu_s_per_1000":0.6,"fill":null},
            {"impl":"lockstep","load":"handshake","concurrency":8,"server_cpu_s_per_1000":0.4,"fill":5.5}]}]"#;
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let record = Record::parse(
            "2026-11-22-zen4",
            &value(run),
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
        assert!(!record.was_busy());
        let busy = Record {
            load: 0.5,
            ..record
        };
        assert!(busy.was_busy());
    }
}
