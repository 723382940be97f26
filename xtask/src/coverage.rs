//! `cargo xtask nightly coverage`: which lines of the provider the fuzzer's kept inputs and the
//! provider's tests run, counted by the module itself.
//!
//! The module is the one with fault points, with LLVM's counters for lines in the provider. It
//! keeps its counters in a file that is mapped, so that processes count too that are killed or
//! leave by `_exit`. Code that the compiler left out (unit tests, other CPUs) does not count.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{
    Failure, Outcome, cannot_run, cargo_workspace, on, quietly, root, target_directory,
};
use crate::work::{Ran, Work};
use crate::{dist, fuzz, tally};

/// How many of a hundred lines must have run.
const BOUND: u64 = 90;

/// Flags of the compiler: counters for lines, at an address that is found at run time, so that the
/// file can be mapped over them.
const FLAGS: &[&str] = &[
    "-Cinstrument-coverage",
    "-Cllvm-args=-runtime-counter-relocation",
];

/// LLVM's programs that read what rustc's LLVM wrote.
struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

/// Lines that ran, and all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    ran: u64,
    all: u64,
}

impl Lines {
    fn hundredths(self) -> f64 {
        self.ran as f64 * 100.0 / self.all.max(1) as f64
    }

    fn enough(self) -> bool {
        self.all > 0 && self.ran * 100 >= self.all * BOUND
    }
}

impl Tools {
    /// Those of the toolchain, or of the system for the same version of LLVM.
    fn find() -> Outcome<Result<Tools, String>> {
        let rustc = |arguments: &[&str]| quietly(Command::new("rustc").args(arguments));
        let about = rustc(&["-vV"])?;
        let after = |name: &str| about.lines().find_map(|line| line.strip_prefix(name));
        let (Some(llvm), Some(host)) = (after("LLVM version: "), after("host: ")) else {
            return Err(Failure::new("rustc does not report its version of LLVM"));
        };
        let llvm = llvm.split('.').next().unwrap_or(llvm);
        let own = Path::new(rustc(&["--print", "sysroot"])?.trim())
            .join("lib/rustlib")
            .join(host)
            .join("bin");
        let system = PathBuf::from(format!("/usr/lib/llvm-{llvm}/bin"));
        let found = [own, system].into_iter().find_map(|directory| {
            let (profdata, cov) = (directory.join("llvm-profdata"), directory.join("llvm-cov"));
            (profdata.exists() && cov.exists()).then_some(Tools { profdata, cov })
        });
        Ok(found.ok_or_else(|| {
            format!(
                "llvm-cov of LLVM {llvm} is missing (rustup component add llvm-tools, or on Debian: \
                 apt-get install llvm-{llvm})"
            )
        }))
    }

    /// The lines of each file of the provider, as counted so far.
    fn count(&self, place: &Place) -> Outcome<BTreeMap<String, Lines>> {
        let profile = place.directory.join("all.profdata");
        let mut merge = Command::new(&self.profdata);
        merge.args(["merge", "-sparse", "-o"]).arg(&profile);
        quietly(merge.arg(&place.counters))?;
        let mut export = Command::new(&self.cov);
        export.args(["export", "--format=lcov", "--instr-profile"]);
        let text = quietly(export.arg(&profile).arg(place.module()))?;
        let file = place.directory.join("lines.lcov");
        fs::write(&file, &text).map_err(on(&file, "write"))?;
        Ok(lines_of(&text, &root().join("provider/src")))
    }
}

/// Reads the sums of the files under a directory.
fn lines_of(lcov: &str, directory: &Path) -> BTreeMap<String, Lines> {
    let mut files = BTreeMap::new();
    let (mut name, mut lines) = (None, Lines::default());
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let within = Path::new(path).strip_prefix(directory).ok();
            name = within.map(|path| path.display().to_string());
            lines = Lines::default();
        } else if let Some(all) = line.strip_prefix("LF:") {
            lines.all = all.parse().unwrap_or(0);
        } else if let Some(ran) = line.strip_prefix("LH:") {
            lines.ran = ran.parse().unwrap_or(0);
        } else if line == "end_of_record"
            && let Some(name) = name.take()
        {
            files.insert(name, lines);
        }
    }
    files
}

fn sum(files: &BTreeMap<String, Lines>) -> Lines {
    files.values().fold(Lines::default(), |sum, lines| Lines {
        ran: sum.ran + lines.ran,
        all: sum.all + lines.all,
    })
}

/// Where the module lies, and its counters.
struct Place {
    directory: PathBuf,
    counters: PathBuf,
}

impl Place {
    fn module(&self) -> PathBuf {
        self.directory.join("dist/lockstep.so")
    }

    /// Builds the module into a fresh directory.
    fn build() -> Outcome<Place> {
        let directory = target_directory().join("coverage");
        let counters = directory.join("counters");
        if directory.exists() {
            fs::remove_dir_all(&directory).map_err(on(&directory, "remove"))?;
        }
        fs::create_dir_all(&counters).map_err(on(&counters, "create"))?;
        quietly(dist::instrumented_module().arg("--").args(FLAGS))?;
        let place = Place {
            directory,
            counters,
        };
        dist::place_module(&dist::instrumented(), &place.directory.join("dist"))?;
        Ok(place)
    }

    /// Lets everybody write the counters: servers of the tests run as somebody else.
    fn open(&self) -> Outcome {
        let allow = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(on(path, "change"))
        };
        allow(&self.counters, 0o777)?;
        let files = fs::read_dir(&self.counters).map_err(on(&self.counters, "read"))?;
        for file in files.flatten() {
            allow(&file.path(), 0o666)?;
        }
        Ok(())
    }

    /// Takes the counters of programs that tests start without a variable: each leaves a file where
    /// it runs.
    fn take_strays(&self) -> Outcome {
        let package = root().join("provider");
        let files = fs::read_dir(&package).map_err(on(&package, "read"))?;
        for file in files.flatten() {
            let (path, name) = (file.path(), file.file_name());
            if path.extension().is_some_and(|own| own == "profraw") {
                fs::copy(&path, self.counters.join(name)).map_err(on(&path, "copy"))?;
                fs::remove_file(&path).map_err(on(&path, "remove"))?;
            }
        }
        Ok(())
    }

    /// The variable that names the file of counters: mapped, and one for all processes.
    fn variable(&self) -> PathBuf {
        self.counters.join("%c%m.profraw")
    }
}

/// What a run gave.
struct Counted {
    files: BTreeMap<String, Lines>,
    failed: u64,
}

/// Runs everything and counts.
fn count() -> Outcome<Result<Counted, String>> {
    let tools = match Tools::find()? {
        Ok(tools) => tools,
        Err(missing) => return Ok(Err(missing)),
    };
    if let Some(missing) = fuzz::missing() {
        return Ok(Err(missing));
    }
    let place = Place::build()?;
    let dist = place.directory.join("dist");
    // A count that is enough before anything ran would count nothing.
    let none = place.directory.join("none");
    fs::create_dir_all(&none).map_err(on(&none, "create"))?;
    fuzz::replay(&dist, &[&none], &place.variable())?;
    let loaded = sum(&tools.count(&place)?);
    if loaded.enough() {
        return Err(Failure::new(format!(
            "{} of {} lines count as run where only the module was loaded",
            loaded.ran, loaded.all
        )));
    }
    fuzz::replay(&dist, &[&none, &fuzz::TABLES.seeds()?], &place.variable())?;
    let replayed = sum(&tools.count(&place)?);
    println!(
        "{} lines ran with the module loaded, {} with the kept inputs of the fuzzer",
        loaded.ran, replayed.ran
    );
    place.open()?;
    let mut tests = cargo_workspace("test");
    tests
        .args(["--test", "provider", "--test", "servers", "--no-fail-fast"])
        .env("LOCKSTEP_DIST", &dist)
        .env("LOCKSTEP_FAULT_DIST", &dist)
        .env("LLVM_PROFILE_FILE", place.variable());
    let output = tests
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| cannot_run(&tests, &error))?;
    place.take_strays()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (passed, failed) = tally::passed_and_failed_of(&text);
    if passed == 0 {
        return Err(Failure::new(format!(
            "no test of the provider ran:\n{text}"
        )));
    }
    // Verdicts are for `cargo xtask test`: here the module is slower, and writes a file.
    text.lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("FAILED"))
        .for_each(|line| println!("with counters: {line}"));
    Ok(Ok(Counted {
        files: tools.count(&place)?,
        failed,
    }))
}

/// Counts, prints the lines of each file, and says whether they are enough.
pub fn check() -> Outcome<Ran> {
    let counted = match count()? {
        Ok(counted) => counted,
        Err(missing) => return Ok(Ran::Skipped(missing)),
    };
    let total = sum(&counted.files);
    for (name, lines) in &counted.files {
        println!(
            "{name:<20} {:>5} of {:>5} lines {:>6.2} %",
            lines.ran,
            lines.all,
            lines.hundredths()
        );
    }
    println!(
        "{:<20} {:>5} of {:>5} lines {:>6.2} %",
        "provider/src",
        total.ran,
        total.all,
        total.hundredths()
    );
    let mut note = format!(
        "{} of these lines ran: {:.1} %",
        total.ran,
        total.hundredths()
    );
    if counted.failed > 0 {
        note += &format!("; {} tests failed with counters", counted.failed);
    }
    Ok(Ran::Worked(Work {
        cases: total.all,
        findings: u64::from(!total.enough()),
        note,
        ..Work::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_files_are_read() {
        let text = "SF:/w/provider/src/a.rs\nDA:1,1\nLF:10\nLH:9\nend_of_record\n\
                    SF:/w/engine/src/b.rs\nLF:5\nLH:5\nend_of_record\n\
                    SF:/w/provider/src/c.rs\nLF:10\nLH:8\nend_of_record\n";
        let files = lines_of(text, Path::new("/w/provider/src"));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a.rs", "c.rs"]);
        let total = sum(&files);
        assert_eq!(total, Lines { ran: 17, all: 20 });
        assert!(!total.enough());
        assert!(sum(&lines_of(text, Path::new("/w/engine/src"))).enough());
        assert!(!Lines::default().enough());
    }
}
