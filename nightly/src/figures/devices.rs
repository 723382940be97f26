//! The page of devices of OpenCL, docs/benchmarks/devices.md, from records that `opencl/day.py`
//! makes.

use std::path::PathBuf;

use serde::Deserialize;
use xtask::command::{Outcome, root};

use super::record;
use super::text::{operation_name, optional, section, thousands, wrapped};

/// The name of the file in a record's directory.
const FILE: &str = "device.json";

const INTRODUCTION: &str = "\
# Devices

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->

Rates of the library's operations on [a device of OpenCL](../bulk/devices.md): on one of its units,
on all, for a joule and for a dollar, beside all threads of the CPU. A GPU's units are its
multiprocessors. [The lab](../lab/gpu.md) has the bounds that the machine code of the kernels sets.

```
python opencl/day.py --price 2.5
```

makes a record of your machine, which costs 2.5 US dollars an hour. `cargo xtask figures` renders it
here.
";

/// A record.
#[derive(Deserialize)]
pub struct Day {
    /// Of its directory: DATE-DEVICE.
    #[serde(skip)]
    name: String,
    /// It was a trial of the program.
    short: bool,
    machine: Machine,
    product: String,
    platform: String,
    driver: String,
    units: u64,
    tests: u64,
    idle_watts: Option<f64>,
    price_per_hour: Option<f64>,
    rates: Vec<Rate>,
    calls: Vec<Call>,
    peers: Vec<Peer>,
}

#[derive(Deserialize)]
struct Machine {
    cpu: String,
    cpus: u64,
    backend: String,
}

/// Operations a second with as many items as fill the device.
#[derive(Deserialize)]
struct Rate {
    op: String,
    device: f64,
    threads: f64,
    pays_from: String,
}

/// The library with all threads, and with the device beside them.
#[derive(Deserialize)]
struct Call {
    op: String,
    items: f64,
    watts: Option<f64>,
    threads: f64,
    both: f64,
}

/// Another program.
#[derive(Deserialize)]
struct Peer {
    name: String,
    failed: bool,
}

/// All records, the newest first.
pub fn all() -> Outcome<Vec<Day>> {
    let mut records = Vec::new();
    for name in record::names()? {
        let path = record::directory().join(&name).join(FILE);
        if path.exists() {
            let own = record::read::<Day>(&path)?;
            records.push(Day { name, ..own });
        }
    }
    Ok(records)
}

/// The page.
pub fn page(records: &[Day]) -> (PathBuf, String) {
    let mut out = INTRODUCTION.to_owned();
    let mut records = records.iter().filter(|record| !record.short).peekable();
    if records.peek().is_none() {
        out += "\n**It is not measured on a device yet.**\n";
    }
    records.for_each(|record| out += &record.section());
    (root().join("docs/benchmarks/devices.md"), out)
}

impl Day {
    fn section(&self) -> String {
        let Machine { cpu, cpus, backend } = &self.machine;
        let (name, units) = (&self.name, self.units);
        let mut out = format!("\n## {}\n\n", self.product);
        out += &wrapped(&format!(
            "{units} units, {}, driver {}; {cpu}, {cpus} CPUs, lanes: {backend}. {} tests passed on \
             the device. Idle, it takes {} W; an hour costs {} dollars. Record: \
             [{name}](record/{name}).",
            self.platform,
            self.driver,
            self.tests,
            optional(self.idle_watts, 0),
            optional(self.price_per_hour, 2),
        ));
        let rates = self.rates.iter().map(|rate| {
            let Rate {
                op,
                device,
                threads,
                pays_from,
            } = rate;
            let calls = self.calls.iter().filter(|call| call.op == *op);
            let watts = calls.filter_map(|call| call.watts).reduce(f64::max);
            let of_dollar = self.price_per_hour.map(|price| device * 3600.0 / price);
            vec![
                operation_name(op),
                thousands(device / units as f64),
                thousands(*device),
                optional(watts.map(|watts| device / watts), 0),
                of_dollar.map_or("-".to_owned(), thousands),
                thousands(*threads),
                format!("{:.2} ×", device / threads),
                pays_from.clone(),
            ]
        });
        out += &section(
            "Operations",
            "In a second on one unit, on all and on all threads of the CPU; for a joule of the \
             device, and for a dollar. The ratio is that of all units to all threads. From this \
             number of items on, a call of the device takes less time than one of the threads.",
            "operation | a unit | all units | a joule | a dollar | threads | ratio | pays from",
            rates,
        );
        let calls = self.calls.iter().map(|call| {
            let time = |rate| format!("{:.2}", 1e3 * call.items / rate);
            vec![
                operation_name(&call.op),
                thousands(call.items),
                time(call.threads),
                time(call.both),
                thousands(call.both),
                optional(call.watts, 0),
            ]
        });
        out += &section(
            "Calls of the library",
            "Milliseconds of a call on all threads, and on the threads and the device, with the \
             checks of its results.",
            "operation | items | threads, ms | both, ms | both, 1/s | W",
            calls,
        );
        for Peer { name, failed } in &self.peers {
            let what = ["ran, too: the record has its output", "could not run"];
            out += &format!("\n{name} {}.\n", what[usize::from(*failed)]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn planted(short: bool) -> Day {
        let record = json!({
            "short": short, "machine": {"cpu": "C", "cpus": 2, "backend": "avx2"},
            "product": "NVIDIA H100", "platform": "P", "driver": "1", "units": 100,
            "tests": 30, "idle_watts": 70.0, "price_per_hour": 2.5,
            "rates": [{"op": "rsa2048-sign", "device": 1_000_000, "threads": 2000,
                "pays_from": "64"}],
            "calls": [{"op": "rsa2048-sign", "items": 10_000, "watts": 500.0, "threads": 2000,
                "both": 800_000}],
            "peers": [{"name": "CGBN", "failed": true}],
        });
        let record = Day::deserialize(record).unwrap();
        let name = "2026-11-30-nvidia-h100".to_owned();
        Day { name, ..record }
    }

    #[test]
    fn a_device_has_rates_costs_and_times() {
        let (_, page) = page(&[planted(false)]);
        for line in [
            "## NVIDIA H100\n",
            "| RSA-2048 signature | 10,000 | 1,000,000 | 2000 | 1,440,000,000 | 2,000 | 500.00 × \
             | 64 |\n",
            "| RSA-2048 signature | 10,000 | 5000.00 | 12.50 | 800,000 | 500 |\n",
            "\nCGBN could not run.\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(!page.contains("not measured"));
    }

    #[test]
    fn without_a_record_of_a_device_the_page_says_so() {
        for records in [vec![], vec![planted(true)]] {
            assert!(
                page(&records)
                    .1
                    .ends_with("not measured on a device yet.**\n")
            );
        }
    }
}
