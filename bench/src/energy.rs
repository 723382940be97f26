//! The energy that the CPUs take, by the counters of the kernel (`/sys/class/powercap`).
//!
//! A counter is of a whole package: of all its cores, and of all programs that run on them. It
//! changes about once in a millisecond.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where the kernel has its counters.
pub const DIRECTORY: &str = "/sys/class/powercap";

/// The counters of all packages.
pub struct Meter(Vec<Package>);

struct Package {
    counter: PathBuf,
    /// The largest value; the next one is zero.
    largest: u64,
}

/// The state of all counters at some time.
pub struct Reading {
    microjoules: Vec<u64>,
    time: Instant,
}

impl Meter {
    /// The counters in `directory`; otherwise why there are none.
    pub fn open(directory: &Path) -> Result<Meter, String> {
        let mut packages = Vec::new();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let zone = entry.path();
            let name = fs::read_to_string(zone.join("name")).unwrap_or_default();
            // Other zones are parts of a package, or count it a second time.
            let is_package = entry
                .file_name()
                .to_string_lossy()
                .starts_with("intel-rapl:");
            if !is_package || !name.starts_with("package-") {
                continue;
            }
            packages.push(Package {
                counter: zone.join("energy_uj"),
                largest: number(&zone.join("max_energy_range_uj"))?,
            });
        }
        if packages.is_empty() {
            return Err(format!("no CPU package in {}", directory.display()));
        }
        let meter = Meter(packages);
        meter.read().map(|_| meter)
    }

    pub fn read(&self) -> Result<Reading, String> {
        let counters = self.0.iter().map(|package| number(&package.counter));
        Ok(Reading {
            microjoules: counters.collect::<Result<_, _>>()?,
            time: Instant::now(),
        })
    }

    /// The power since a reading; NaN if a counter has gone.
    pub fn watts_since(&self, start: &Reading) -> f64 {
        let Ok(end) = self.read() else {
            return f64::NAN;
        };
        let packages = self
            .0
            .iter()
            .zip(start.microjoules.iter().zip(&end.microjoules));
        let microjoules: u64 = packages
            .map(|(package, (&start, &end))| match end >= start {
                true => end - start,
                false => package.largest - start + end + 1,
            })
            .sum();
        microjoules as f64 / 1e6 / (end.time - start.time).as_secs_f64()
    }
}

fn number(path: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let number = text.trim().parse();
    number.map_err(|_| format!("{} holds no number", path.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockstep_testkit::TempDir;

    use super::*;

    fn zone(directory: &Path, zone: &str, name: &str, microjoules: u64) -> PathBuf {
        let zone = directory.join(zone);
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), format!("{name}\n")).unwrap();
        fs::write(zone.join("max_energy_range_uj"), "999999\n").unwrap();
        fs::write(zone.join("energy_uj"), format!("{microjoules}\n")).unwrap();
        zone
    }

    #[test]
    fn packages_are_added_up_and_their_counters_wrap_around() {
        let directory = TempDir::new("powercap");
        let first = zone(&directory, "intel-rapl:0", "package-0", 100_000);
        let second = zone(&directory, "intel-rapl:1", "package-1", 900_000);
        // A part of the first package, the platform, and the first package once more.
        zone(&directory, "intel-rapl:0:0", "core", 1);
        zone(&directory, "intel-rapl:2", "psys", 1);
        zone(&directory, "intel-rapl-mmio:0", "package-0", 1);
        let meter = Meter::open(&directory).unwrap();
        assert_eq!(meter.0.len(), 2);
        let mut start = meter.read().unwrap();
        start.time -= Duration::from_secs(1);
        fs::write(first.join("energy_uj"), "300000").unwrap();
        fs::write(second.join("energy_uj"), "99999").unwrap();
        // 0.2 J, and 0.1 J up to the end of the range and again from its start.
        let joules = meter.watts_since(&start) * start.time.elapsed().as_secs_f64();
        assert!((0.39..0.41).contains(&joules), "{joules}");
        fs::remove_file(first.join("energy_uj")).unwrap();
        assert!(meter.watts_since(&start).is_nan());
    }

    #[test]
    fn it_says_why_there_is_no_counter() {
        let directory = TempDir::new("powercap");
        let reason = |directory: &Path| Meter::open(directory).err().expect("no counter");
        assert!(reason(&directory).contains("no CPU package in"));
        let zone = zone(&directory, "intel-rapl:0", "package-0", 0);
        fs::write(zone.join("energy_uj"), "soon").unwrap();
        assert!(reason(&directory).contains("energy_uj holds no number"));
    }
}
