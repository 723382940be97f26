//! Fuzzing: the harnesses in `rig/fuzz` against the module, with coverage counters in the provider
//! and the engine, under AddressSanitizer or without it.
//!
//! The module is the one with fault points, so that the kernels, which are not instrumented, are
//! built once for both. A defect that the environment plants must be found in every run: without
//! that, no finding would mean nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xtask::command::{Failure, Outcome, cannot_run, emptied, on, quietly, root, target_directory};
use xtask::dist;
use xtask::work::{Ran, Share, Work};

use crate::roots;

/// The watcher of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// The oracle alone: two to three times as many cases.
    Oracle,
    /// AddressSanitizer too.
    Addresses,
}

impl Watch {
    fn name(self) -> &'static str {
        match self {
            Watch::Oracle => "oracle",
            Watch::Addresses => "addresses",
        }
    }
}

/// A harness with its files.
pub struct Target {
    /// Of its source in `rig/fuzz`, without `.c`.
    name: &'static str,
    /// The directory of the inputs that the repository keeps.
    corpus: &'static str,
    /// Planted defects by their names in the environment, and the watchers that must find each.
    planted: &'static [(&'static str, &'static [Watch])],
    /// Whether it runs with an OpenSSL that has ML-KEM and ML-DSA, and not with this system's.
    needs_lattices: bool,
}

/// RSA, curves and key derivation.
pub const TABLES: Target = Target {
    name: "tables",
    corpus: "rig/fuzz/corpus.tar",
    planted: &[
        ("short-buffer", &[Watch::Addresses]),
        ("padding-byte", &[Watch::Oracle, Watch::Addresses]),
    ],
    needs_lattices: false,
};

/// ML-KEM and its hybrids.
pub const KEMS: Target = Target {
    name: "kems",
    corpus: "rig/fuzz/corpus-kems.tar",
    planted: &[("wrong-secret", &[Watch::Oracle, Watch::Addresses])],
    needs_lattices: true,
};

/// ML-DSA.
pub const LATTICES: Target = Target {
    name: "lattices",
    corpus: "rig/fuzz/corpus-lattices.tar",
    planted: &[("lost-context", &[Watch::Oracle, Watch::Addresses])],
    needs_lattices: true,
};

impl Target {
    /// The OpenSSL to run it with, if not this system's. It is not built here.
    fn library(&self) -> Outcome<Result<Option<PathBuf>, String>> {
        if !self.needs_lattices {
            return Ok(Ok(None));
        }
        Ok(match roots::with_mlkem_at_hand()? {
            Some(library) => Ok(Some(library)),
            None => Err(
                "no OpenSSL with ML-KEM and ML-DSA is here: `cargo xtask nightly fuzz-kems` \
                 builds it, once"
                    .to_owned(),
            ),
        })
    }

    /// A directory with the inputs that the repository keeps in an archive, and nothing else.
    pub fn seeds(&self) -> Outcome<PathBuf> {
        let directory = target_directory().join("fuzz/seeds").join(self.name);
        emptied(&directory)?;
        let mut tar = Command::new("tar");
        tar.arg("--extract")
            .arg("--file")
            .arg(root().join(self.corpus));
        quietly(tar.arg("--directory").arg(&directory))?;
        Ok(directory)
    }

    /// New inputs of short runs.
    fn fresh(&self) -> PathBuf {
        target_directory().join("fuzz/fresh").join(self.name)
    }
}

/// Flags that put coverage counters into a crate, for libFuzzer.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];
const ADDRESSES: &[&str] = &[
    "-Zsanitizer=address",
    "-Cunsafe-allow-abi-mismatch=sanitizer",
];

/// The longest input, in bytes. An operation takes about six.
const LONGEST: &str = "-max_len=384";
/// An input takes some milliseconds; one that takes as many seconds hangs.
const HANG: &str = "-timeout=60";
/// A fuzzer, built and ready.
struct Fuzzer {
    target: &'static Target,
    program: PathBuf,
    modules: PathBuf,
    /// Where it leaves inputs that are findings.
    findings: PathBuf,
    /// Where the module counts its lines, if it does.
    counters: Option<PathBuf>,
}

/// Why this machine cannot fuzz, if it cannot.
pub fn missing() -> Option<String> {
    let compiles = || -> Outcome {
        let directory = target_directory().join("fuzz");
        fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
        let source = directory.join("empty.c");
        let text = "int LLVMFuzzerTestOneInput(const char *a, long b) { return a && b; }\n";
        fs::write(&source, text).map_err(on(&source, "write"))?;
        let mut clang = Command::new("clang");
        clang.args(["-fsanitize=fuzzer,address", "-o"]);
        quietly(clang.arg(directory.join("empty")).arg(&source)).map(drop)
    };
    compiles().err().map(|_| {
        "clang with libFuzzer is missing (on Debian: apt-get install clang libclang-rt-14-dev)"
            .to_owned()
    })
}

/// Builds the module with counters, and the fuzzer.
fn build(target: &'static Target, library: Option<&Path>, watch: Watch) -> Outcome<Fuzzer> {
    let mut flags = COVERAGE.to_vec();
    if watch == Watch::Addresses {
        flags.extend(ADDRESSES);
    }
    let quoted: Vec<String> = flags.iter().map(|flag| format!("{flag:?}")).collect();
    let mut build = dist::instrumented_module();
    // Flags for one crate only are not stable yet; no release depends on them.
    for package in ["ops", "counters", "engine"] {
        let flags = quoted.join(",");
        build.arg("--config").arg(format!(
            "profile.release.package.lockstep-{package}.rustflags=[{flags}]"
        ));
    }
    build
        .arg("-Zprofile-rustflags")
        .env("RUSTC_BOOTSTRAP", "1")
        // To the provider itself, and not to its build script.
        .arg("--")
        .args(&flags);
    quietly(&mut build)?;

    let directory = target_directory().join("fuzz").join(watch.name());
    let directory = directory.join(target.name);
    let (modules, findings) = (directory.join("modules"), directory.join("findings"));
    for directory in [&modules, &findings, &keys(), &target.fresh()] {
        fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    }
    let built = dist::instrumented();
    fs::copy(&built, modules.join("lockstep.so")).map_err(on(&built, "copy"))?;
    let program = directory.join(target.name);
    compile(target, library, watch, &program)?;
    Ok(Fuzzer {
        target,
        program,
        modules,
        findings,
        counters: None,
    })
}

/// Compiles the harness, for this system's OpenSSL or the one in `library`.
fn compile(target: &Target, library: Option<&Path>, watch: Watch, program: &Path) -> Outcome {
    let mut clang = Command::new("clang");
    clang.args(["-g", "-O1", "-Wall", "-Werror"]);
    clang.arg(match watch {
        Watch::Oracle => "-fsanitize=fuzzer",
        Watch::Addresses => "-fsanitize=fuzzer,address",
    });
    let sources = root().join("rig/fuzz");
    clang.arg(sources.join(target.name).with_extension("c"));
    match library {
        None => clang.arg("-lcrypto"),
        // The module is bound to the program's own.
        Some(library) => {
            clang.arg("-I").arg(library.join("include"));
            clang.args(["-ldl", "-pthread", "-Wl,--whole-archive"]);
            clang.arg(library.join("libcrypto.a"));
            clang.arg("-Wl,--no-whole-archive")
        }
    };
    // The module's counters report to the program.
    quietly(clang.args(["-rdynamic", "-o"]).arg(program)).map(drop)
}

/// Tries the inputs of `corpora`, and no new ones, with a module that counts its lines into
/// `counters`.
pub fn replay(modules: &Path, corpora: &[&Path], counters: &Path) -> Outcome {
    let directory = modules.join("fuzz");
    for directory in [&directory, &keys()] {
        fs::create_dir_all(directory).map_err(on(directory, "create"))?;
    }
    let program = directory.join("tables");
    compile(&TABLES, None, Watch::Oracle, &program)?;
    let fuzzer = Fuzzer {
        target: &TABLES,
        program,
        modules: modules.to_path_buf(),
        findings: directory,
        counters: Some(counters.to_path_buf()),
    };
    match fuzzer.run(corpora, Duration::ZERO, None)?.finding {
        Some(finding) => Err(Failure::new(finding)),
        None => Ok(()),
    }
}

/// Keys are made once for each machine.
fn keys() -> PathBuf {
    target_directory().join("fuzz/keys")
}

/// The result of a run.
struct Ended {
    /// Inputs that were tried.
    cases: u64,
    /// The last lines, if it found something.
    finding: Option<String>,
    /// How many operations the lanes served.
    on_lanes: u64,
    /// CPU time of the fuzzer.
    cpu_time: Duration,
}

impl Fuzzer {
    /// Tries the inputs of `corpora`, and new ones for so long; new inputs that reach new code go
    /// to the first corpus.
    fn run(&self, corpora: &[&Path], time: Duration, planted: Option<&str>) -> Outcome<Ended> {
        // The end for one that hangs where its own watch cannot see it. The kept inputs come first.
        let end = 2 * time + Duration::from_secs(900);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &end.as_secs().to_string()]);
        command.arg(&self.program).args(corpora).args([
            LONGEST,
            HANG,
            "-len_control=0",
            "-print_final_stats=1",
            "-print_funcs=0",
            "-verbosity=1",
            "-rss_limit_mb=4096",
        ]);
        match time.as_secs() {
            // The kept inputs only.
            0 => command.arg("-runs=0"),
            seconds => command.arg(format!("-max_total_time={seconds}")),
        };
        command.arg(format!("-artifact_prefix={}/", self.findings.display()));
        command
            .env("FUZZ_MODULES", &self.modules)
            .env("FUZZ_KEYS", keys())
            .env("FUZZ_FINDINGS", &self.findings)
            .env("LOCKSTEP_LONE", "lanes")
            .env("LOCKSTEP_STATS_DIR", "no")
            .env("LOCKSTEP_SYSLOG", "no")
            .env("LOCKSTEP_CHECK_EVERY", "16")
            // Abandoned jobs and libcrypto's own leaks are not looked for.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env_remove("OPENSSL_CONF")
            .stdin(Stdio::null());
        if let Some(counters) = &self.counters {
            command.env("LLVM_PROFILE_FILE", counters);
        }
        if let Some(planted) = planted {
            command.env("LOCKSTEP_PLANT", planted);
        }
        let before = cpu_time_of_children()?;
        let output = command
            .output()
            .map_err(|error| cannot_run(&command, &error))?;
        let cpu_time = cpu_time_of_children()?.saturating_sub(before);
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(3) {
            return Err(Failure::new(format!("the fuzzer could not start:\n{text}")));
        }
        let number = |line: &str| line.split_whitespace().find_map(|word| word.parse().ok());
        let after = |start: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(start));
            line.and_then(number).unwrap_or(0)
        };
        let tail = || -> String {
            let is_shown = |line: &&str| {
                !line.contains("NEW") && !line.contains("REDUCE") && !line.starts_with("INFO")
            };
            let lines: Vec<&str> = text.lines().filter(is_shown).take(60).collect();
            lines.join("\n")
        };
        Ok(Ended {
            cases: after("stat::number_of_executed_units:"),
            on_lanes: after("lanes served"),
            finding: (!output.status.success()).then(tail),
            cpu_time,
        })
    }

    /// Plants defects, which must be found.
    fn proves_itself(&self, watch: Watch) -> Outcome {
        let target = self.target;
        let corpora = [&*target.fresh(), &target.seeds()?];
        let all = target.planted.iter();
        for (defect, _) in all.filter(|(_, by)| by.contains(&watch)) {
            let ended = self.run(&corpora, Duration::from_secs(60), Some(defect))?;
            if ended.finding.is_none() {
                return Err(Failure::new(format!(
                    "the planted defect `{defect}` was not found in {} cases",
                    ended.cases
                )));
            }
        }
        let left = || -> std::io::Result<()> {
            for entry in fs::read_dir(&self.findings)? {
                fs::remove_file(entry?.path())?;
            }
            Ok(())
        };
        left().map_err(on(&self.findings, "empty"))
    }
}

/// The CPU time of this program's children that have ended, and of theirs.
fn cpu_time_of_children() -> Outcome<Duration> {
    let path = Path::new("/proc/self/stat");
    let text = fs::read_to_string(path).map_err(on(path, "read"))?;
    cpu_time_in(&text).ok_or_else(|| Failure::new(format!("{} is unreadable", path.display())))
}

/// `cutime` and `cstime` of `stat`: the 16th and 17th field, counted in hundredths of a second. The
/// second is a name in parentheses, which may contain anything.
fn cpu_time_in(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}

/// The nightly check: new inputs for as long as it is given.
pub fn night(target: &'static Target, watch: Watch, share: &Share) -> Outcome<Ran> {
    if target.needs_lattices
        && missing().is_none()
        && let Err(missing) = roots::with_mlkem()?
    {
        return Ok(Ran::Skipped(missing));
    }
    let corpus = share.directory.join("corpus");
    fs::create_dir_all(&corpus).map_err(on(&corpus, "create"))?;
    fuzz(target, watch, &corpus, share.time)
}

/// The short form: every kept input, and new ones for some seconds, under AddressSanitizer.
pub fn quick(target: &'static Target, time: Duration) -> Outcome<Ran> {
    fuzz(target, Watch::Addresses, &target.fresh(), time)?.or_fail("the fuzzer found the above")
}

/// Tries the kept inputs, and new ones for so long.
fn fuzz(target: &'static Target, watch: Watch, corpus: &Path, time: Duration) -> Outcome<Ran> {
    if let Some(missing) = missing() {
        return Ok(Ran::Skipped(missing));
    }
    let library = match target.library()? {
        Ok(library) => library,
        Err(missing) => return Ok(Ran::Skipped(missing)),
    };
    let fuzzer = build(target, library.as_deref(), watch)?;
    fuzzer.proves_itself(watch)?;
    let ended = fuzzer.run(&[corpus, &target.seeds()?], time, None)?;
    if let Some(finding) = &ended.finding {
        println!("{finding}\nthe input is in {}", fuzzer.findings.display());
    } else if ended.on_lanes == 0 {
        return Err(Failure::new("no operation ran on lanes: nothing was shown"));
    }
    Ok(Ran::Worked(Work {
        cases: ended.cases,
        findings: u64::from(ended.finding.is_some()),
        time: Some(ended.cpu_time),
        note: format!("{} operations on lanes", ended.on_lanes),
        ..Work::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_children_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 200 0 0 5 6 150 25 20 0 1 0 99 1000 100\n";
        assert_eq!(cpu_time_in(stat), Some(Duration::from_millis(1750)));
        assert_eq!(cpu_time_in("7 (a) S 1 2"), None);
    }
}
