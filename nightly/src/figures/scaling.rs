//! The page of Ray's workers, docs/bulk/scaling.md, from records that
//! `python/benchmarks/scaling.py` makes.

use std::path::PathBuf;

use serde::Deserialize;
use xtask::command::{Outcome, root};

use super::record;
use super::text::{section, thousands, wrapped};

/// The name of the file in a record's directory.
const FILE: &str = "ray.json";

const INTRODUCTION: &str = "\
# Ray: throughput over workers

<!-- Rendered by `cargo xtask figures` from docs/benchmarks/record. -->

`python/benchmarks/scaling.py` makes a Parquet table of Ed25519 signatures with a key in each row.
It verifies the table by `lockstep_crypto.ray.Verify`, with one CPU for each worker. Each row must
get one answer, and the right one: some signatures are wrong. The package cryptography gives its own
verdicts on a sample. The time begins before the workers start, and ends when the driver has all
answers. The row without Ray is one thread of one process that reads the files and verifies.

```
cargo xtask python
target/python/demo/bin/pip install 'ray[data]' cryptography
target/python/demo/bin/python python/benchmarks/scaling.py --workers 1,2,4,8 --json ray.json
```

makes a record of your machine. In a directory `docs/benchmarks/record/DATE-CPU`, `cargo xtask
figures` renders it here.
";

/// A record.
#[derive(Deserialize)]
pub struct Scaling {
    /// Of its directory: DATE-CPU.
    #[serde(skip)]
    name: String,
    machine: Machine,
    rows: u64,
    files: u64,
    keys: u64,
    batch: u64,
    message_bytes: u64,
    checked_by_cryptography: u64,
    command: String,
    measured: Vec<Measured>,
}

#[derive(Deserialize)]
struct Machine {
    cpu: String,
    cpus: u64,
    lanes: String,
    python: String,
    ray: String,
}

/// The whole table, verified by a number of workers.
#[derive(Deserialize)]
struct Measured {
    /// 0 without Ray.
    workers: u64,
    seconds: f64,
    rows_per_s: f64,
}

/// The newest record of each CPU that has one, the newest of all first.
pub fn newest() -> Outcome<Vec<Scaling>> {
    let mut records: Vec<Scaling> = Vec::new();
    for name in record::names()? {
        let path = record::directory().join(&name).join(FILE);
        let is_newer = records
            .iter()
            .any(|newer| newer.name.get(11..) == name.get(11..));
        if path.exists() && !is_newer {
            let own = record::read::<Scaling>(&path)?;
            records.push(Scaling { name, ..own });
        }
    }
    Ok(records)
}

/// The page.
pub fn page(records: &[Scaling]) -> (PathBuf, String) {
    let mut out = INTRODUCTION.to_owned();
    if records.is_empty() {
        out += "\nThere is no record yet.\n";
    }
    for record in records {
        out += &record.section();
    }
    (root().join("docs/bulk/scaling.md"), out)
}

impl Scaling {
    fn section(&self) -> String {
        let Scaling { name, machine, .. } = self;
        let known = name.get(11..).and_then(record::full_name);
        let mut out = format!("\n## {}\n\n", known.unwrap_or(&machine.cpu));
        out += &wrapped(&format!(
            "{}. {} CPUs, lanes: {}. Ray {}, Python {}. {} rows in {} files, {} keys, messages of \
             {} bytes, batches of {} rows; cryptography checked {} rows. `{}`. Record: \
             [{name}](../benchmarks/record/{name}).",
            machine.cpu,
            machine.cpus,
            machine.lanes,
            machine.ray,
            machine.python,
            thousands(self.rows as f64),
            self.files,
            thousands(self.keys as f64),
            self.message_bytes,
            thousands(self.batch as f64),
            self.checked_by_cryptography,
            self.command,
        ));
        let one = self.rate_of(1);
        let row = |run: &Measured| {
            let workers = match run.workers {
                0 => "without Ray".to_owned(),
                workers => workers.to_string(),
            };
            let ratio = one.map_or("-".to_owned(), |one| {
                format!("{:.2} ×", run.rows_per_s / one)
            });
            let seconds = format!("{:.1}", run.seconds);
            vec![workers, seconds, thousands(run.rows_per_s), ratio]
        };
        out += &section(
            "Throughput",
            "The ratio is the rate by that of one worker.",
            "workers | seconds | rows a second | ratio",
            self.measured.iter().map(row),
        );
        if let (Some(alone), Some(one)) = (self.rate_of(0), one) {
            let percent = 100.0 * one / alone;
            out += "\n";
            out += &wrapped(&format!(
                "One worker verifies {percent:.0} % of the rows that a thread verifies without \
                 Ray in the same time: Ray also starts the worker, and moves rows and answers \
                 between processes. This machine has {} CPUs, which the reading tasks and the \
                 driver share with the workers, so the record says nothing about more workers.",
                machine.cpus
            ));
        }
        out
    }

    fn rate_of(&self, workers: u64) -> Option<f64> {
        let run = self.measured.iter().find(|run| run.workers == workers)?;
        Some(run.rows_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_number_of_workers_has_a_row() {
        let run = |workers, seconds, rate| json!({ "workers": workers, "seconds": seconds, "rows_per_s": rate });
        let record = json!({
            "machine": {"cpu": "C", "cpus": 2, "lanes": "avx2", "python": "3", "ray": "2"},
            "rows": 1_000_000, "files": 4, "keys": 1000, "batch": 50_000, "message_bytes": 64,
            "checked_by_cryptography": 200, "command": "python scaling.py",
            "measured": [run(0, 20.0, 50_000), run(1, 25.0, 40_000), run(2, 12.5, 80_000)],
        });
        let record = Scaling::deserialize(record).unwrap();
        let name = "2026-11-29-unheard-of".to_owned();
        let (_, page) = page(&[Scaling { name, ..record }]);
        for line in [
            "## C\n",
            "| without Ray | 20.0 | 50,000 | 1.25 × |\n",
            "| 1 | 25.0 | 40,000 | 1.00 × |\n",
            "| 2 | 12.5 | 80,000 | 2.00 × |\n",
            "One worker verifies 80 % of the rows",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(super::page(&[]).1.ends_with("There is no record yet.\n"));
    }
}
