//! `cargo xtask nightly coverage`: which lines of the provider the fuzzer's kept inputs and the
//! provider's tests run, counted by the module itself.
//!
//! The module is the one with fault points, with LLVM's counters for lines in the provider. It
//! keeps its counters in a file that is mapped, so that processes count too that are killed or
//! leave by `_exit`. Code that the compiler left out (unit tests, other CPUs) does not count.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;
use xtask::command::{
    Failure, Outcome, cannot_run, cargo_workspace, emptied, on, quietly, root, target_directory,
};
use xtask::dist;
use xtask::tally::{Count, counts};
use xtask::work::{Ran, Work};

use crate::fuzz;

/// How many of a hundred lines must have run.
const BOUND: u64 = 90;

/// Flags of the compiler: counters for lines, at an address that is found at run time, so that the
/// file can be mapped over them.
const FLAGS: &[&str] = &[
    "-Cinstrument-coverage",
    "-Cllvm-args=-runtime-counter-relocation",
];

/// LLVM's programs that read the output of rustc's LLVM.
struct Tools {
    profdata: PathBuf,
    cov: PathBuf,
}

/// Lines that ran, and all lines, as llvm-cov counts them.
#[derive(Deserialize)]
struct Lines {
    #[serde(rename = "covered")]
    ran: u64,
    #[serde(rename = "count")]
    all: u64,
}

impl Lines {
    fn hundredths(&self) -> f64 {
        self.ran as f64 * 100.0 / self.all.max(1) as f64
    }

    fn enough(&self) -> bool {
        self.all > 0 && self.ran * 100 >= self.all * BOUND
    }
}

impl Tools {
    /// Finds the programs of the toolchain, or of the system for the same version of LLVM.
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

    /// One of their reports on the lines of the provider, as counted so far.
    fn report(&self, place: &Place, kind: &[&str]) -> Outcome<String> {
        let profile = place.directory.join("all.profdata");
        let mut merge = Command::new(&self.profdata);
        merge.args(["merge", "-sparse", "-o"]).arg(&profile);
        quietly(merge.arg(&place.counters))?;
        let mut report = Command::new(&self.cov);
        report.args(kind).arg("--instr-profile").arg(&profile);
        report.arg(place.module()).arg(root().join("provider/src"));
        quietly(&mut report)
    }

    fn count(&self, place: &Place) -> Outcome<Lines> {
        let text = self.report(place, &["export", "--summary-only"])?;
        lines_in(&text).ok_or_else(|| Failure::new(format!("llvm-cov printed no sums:\n{text}")))
    }
}

/// The sum of the lines in a summary.
fn lines_in(summary: &str) -> Option<Lines> {
    let mut summary: Value = serde_json::from_str(summary).ok()?;
    let lines = summary.pointer_mut("/data/0/totals/lines")?.take();
    Lines::deserialize(lines).ok()
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
        emptied(&directory)?;
        emptied(&counters)?;
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

/// Runs everything, counts, prints the lines of each file, and says whether they are enough.
pub fn check() -> Outcome<Ran> {
    let tools = match Tools::find()? {
        Ok(tools) => tools,
        Err(missing) => return Ok(Ran::Skipped(missing)),
    };
    if let Some(missing) = fuzz::missing() {
        return Ok(Ran::Skipped(missing));
    }
    let place = Place::build()?;
    let dist = place.directory.join("dist");
    // A count that is enough before anything ran would count nothing.
    let none = place.directory.join("none");
    fs::create_dir_all(&none).map_err(on(&none, "create"))?;
    fuzz::replay(&dist, &[&none], &place.variable())?;
    let loaded = tools.count(&place)?;
    if loaded.enough() {
        return Err(Failure::new(format!(
            "{} of {} lines count as run where only the module was loaded",
            loaded.ran, loaded.all
        )));
    }
    fuzz::replay(&dist, &[&none, &fuzz::TABLES.seeds()?], &place.variable())?;
    let replayed = tools.count(&place)?;
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
    let Count { passed, failed, .. } = counts(&text);
    if passed == 0 {
        return Err(Failure::new(format!(
            "no test of the provider ran:\n{text}"
        )));
    }
    // Verdicts are for `cargo xtask test`: here the module is slower, and writes a file.
    text.lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("FAILED"))
        .for_each(|line| println!("with counters: {line}"));
    println!("{}", tools.report(&place, &["report"])?);
    let total = tools.count(&place)?;
    let mut note = format!(
        "{} of these lines ran: {:.1} %",
        total.ran,
        total.hundredths()
    );
    if failed > 0 {
        note += &format!("; {failed} tests failed with counters");
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
    fn the_sum_of_a_summary_is_read() {
        let of = |covered: u64, count: u64| {
            lines_in(&format!(
                "{{\"data\":[{{\"files\":[],\"totals\":{{\"branches\":{{\"count\":1}},\
                 \"lines\":{{\"count\":{count},\"covered\":{covered},\"percent\":1.5}}}}}}]}}"
            ))
        };
        assert!(of(18, 20).is_some_and(|lines| lines.enough()));
        assert!(of(17, 20).is_some_and(|lines| !lines.enough()));
        assert!(of(0, 0).is_some_and(|lines| !lines.enough()));
        assert!(lines_in("{\"data\":[]}").is_none());
    }
}
