//! The command line, and the requests of a nightly run.

use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::operations::OPERATIONS;

const HELP: &str = "\
Compares what the module executes for different secrets, instruction by instruction.

Usage: lockstep-trace [OPTION...] [OPERATION...]

  --list           the operations
  --quick          the short form: fewer operations, smaller keys, four secrets each
  --pairs N        secrets to compare with the first, for each operation (default: 32)
  --backend NAME   only on these lanes
  --schedule NAME  only with this schedule of RSA
  --dist DIR       the module and openssl.cnf to look at (default: LOCKSTEP_DIST, or dist/)
  --libraries DIR  the loader and the libraries of a system with OpenSSL 3.5 or later, for ML-DSA
  --keep-going     do not stop an operation at its first difference
  --again          compare the two secrets that the last difference was found with

In NIGHTLY_SECONDS, NIGHTLY_NEXT and NIGHTLY_DIRECTORY it finds its share of a nightly run, and in
TRACE_EXECUTED a file for the names of all functions that a whole round ran.
";

/// Settings of the command line and the environment.
pub struct Settings {
    pub quick: bool,
    pub keep_going: bool,
    pub again: bool,
    pub pairs: usize,
    pub backend: Option<String>,
    pub schedule: Option<String>,
    pub dist: PathBuf,
    pub libraries: Option<PathBuf>,
    pub names: Vec<String>,
    pub deadline: Option<Instant>,
    pub next: u64,
    pub directory: PathBuf,
}

impl Settings {
    /// Whether a run is whole: no option leaves a part of it out.
    pub fn is_whole(&self) -> bool {
        let chosen = self.backend.is_some() || self.schedule.is_some();
        !(chosen || self.again) && self.names.is_empty()
    }
}

pub fn settings() -> Result<Option<Settings>, String> {
    let rig = Path::new(env!("CARGO_MANIFEST_DIR"));
    let number = |name: &str| {
        env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let seconds = number("NIGHTLY_SECONDS").map(Duration::from_secs);
    let mut settings = Settings {
        quick: false,
        keep_going: false,
        again: false,
        pairs: 0,
        backend: None,
        schedule: None,
        dist: env::var_os("LOCKSTEP_DIST").map_or_else(|| rig.join("../dist"), PathBuf::from),
        libraries: None,
        names: Vec::new(),
        deadline: seconds.map(|seconds| Instant::now() + seconds),
        next: number("NIGHTLY_NEXT").unwrap_or(0),
        directory: env::var_os("NIGHTLY_DIRECTORY")
            .map_or_else(|| rig.join("../target/rig"), PathBuf::from),
    };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(None);
            }
            "--list" => {
                OPERATIONS
                    .iter()
                    .for_each(|operation| println!("{}", operation.name));
                return Ok(None);
            }
            "--quick" => settings.quick = true,
            "--keep-going" => settings.keep_going = true,
            "--again" => settings.again = true,
            "--backend" => settings.backend = Some(value()?),
            "--schedule" => settings.schedule = Some(value()?),
            "--dist" => settings.dist = value()?.into(),
            "--libraries" => settings.libraries = Some(value()?.into()),
            "--pairs" => {
                let pairs = value()?;
                settings.pairs = pairs.parse().map_err(|_| format!("{pairs} is no number"))?;
            }
            name if OPERATIONS.iter().any(|operation| operation.name == name) => {
                settings.names.push(argument);
            }
            _ => return Err(format!("there is no operation {argument}; see --list")),
        }
    }
    if settings.pairs == 0 {
        settings.pairs = match (settings.again, settings.quick) {
            (true, _) => 1,
            (false, true) => 4,
            (false, false) => 32,
        };
    }
    let on = |path: &Path| format!("cannot find {}: run `cargo xtask dist`", path.display());
    settings.dist = settings
        .dist
        .canonicalize()
        .map_err(|_| on(&settings.dist))?;
    Ok(Some(settings))
}
