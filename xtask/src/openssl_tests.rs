//! OpenSSL's own tests, with the module loaded and every possible operation on lanes, compared with
//! the same tests without the module.
//!
//! The programs use a libcrypto of their own build, which has the internal functions that some of
//! them call; the other programs run with the installed libcrypto too.
//!
//! A test that ends otherwise with the module is a finding, and so is a program in which no lane
//! ran, unless [`programs`] says why not. A defect that the module with fault points plants must be
//! found first.

mod outcome;
mod programs;
mod source;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{Failure, Outcome, ends_within, on, quietly, target_directory};
use crate::cpu;
use crate::dist::{self, Dist, Flavour};
use crate::work::{Ran, Share, Work};
use outcome::{Ended, differences, read_tests};
use programs::{Argument, Context, Environment, Run, needs_lanes, runs};
use source::{Build, Wanted};
pub use source::{archive_of, cache};

/// A program may take this long; then it is ended, which is a difference.
const LIMIT: Duration = Duration::from_secs(600);

/// Starts of the runs of the short form.
const QUICK: [&str; 3] = [
    "evp_test evppkey_",
    "evp_test evpciph_aes_common",
    "evp_test evpmac_common",
];

/// A defect that the module with fault points plants, and the tests that must find it.
const PLANTED: (&str, &str) = ("padding-byte", "evp_test evppkey_rsa_common.txt");

/// The libraries that a program and the module use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Libraries {
    /// Of the same build as the program.
    Built,
    /// The system's.
    Installed,
}

impl Libraries {
    fn name(self) -> &'static str {
        match self {
            Libraries::Built => "built",
            Libraries::Installed => "installed",
        }
    }
}

/// The module that is loaded, and on which lanes it computes.
struct Loaded<'a> {
    module: &'a Path,
    backend: &'static str,
    planted: Option<&'static str>,
}

/// The tests, the command of the release, and a directory for output.
struct Bench {
    build: Build,
    release: Dist,
    directory: PathBuf,
}

impl Bench {
    /// Runs a program without the module, or with it.
    fn run(&self, run: &Run, libraries: Libraries, loaded: Option<&Loaded>) -> Outcome<Ended> {
        let side = loaded.map_or("openssl", |loaded| loaded.backend);
        let directory = self.directory.join(run.name.replace(' ', "-"));
        let directory = directory.join(libraries.name()).join(side);
        let _ = fs::remove_dir_all(&directory);
        let counters = directory.join("counters");
        fs::create_dir_all(&counters).map_err(on(&counters, "create"))?;
        let test = self.build.directory.join("test");
        let mut configuration = test.join(run.configuration);
        if let Some(loaded) = loaded {
            configuration = self.configuration(&configuration, loaded.module, &directory)?;
        }

        let fill = |argument: &String| {
            argument
                .replace("{test}", &test.to_string_lossy())
                .replace("{configuration}", &configuration.to_string_lossy())
                .replace("{scratch}", &directory.join("scratch").to_string_lossy())
        };
        let mut command = Command::new(test.join(&run.program));
        command.args(run.arguments.iter().map(fill));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("LOCKSTEP_") || name.starts_with("OPENSSL_") {
                command.env_remove(name);
            }
        }
        if libraries == Libraries::Built {
            command
                .env("LD_LIBRARY_PATH", &self.build.directory)
                .env("OPENSSL_MODULES", self.build.directory.join("providers"))
                .env("OPENSSL_ENGINES", self.build.directory.join("engines"));
        }
        command
            .env("CTLOG_FILE", test.join("ct/log_list.cnf"))
            .env("TEST_CERTS_DIR", test.join("certs"))
            .env("OPENSSL_CONF", "/dev/null");
        match run.configured {
            Argument => {}
            Environment => drop(command.env("OPENSSL_CONF", &configuration)),
            Context => drop(command.env("CONTEXT_CONFIGURATION", &configuration)),
        }
        if let Some(loaded) = loaded {
            command
                .env("LOCKSTEP_LONE", "lanes")
                .env("LOCKSTEP_BACKEND", loaded.backend)
                .env("LOCKSTEP_CHECK_EVERY", "16")
                .env("LOCKSTEP_STATS_DIR", &counters)
                .env("LOCKSTEP_STATS_KEEP", "yes");
            if let Some(defect) = loaded.planted {
                command.env("LOCKSTEP_PLANT", defect);
            }
        }
        let (stdout, stderr) = (directory.join("stdout"), directory.join("stderr"));
        let output = |path: &Path| File::create(path).map_err(on(path, "create"));
        command
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(output(&stdout)?)
            .stderr(output(&stderr)?);
        let status = ends_within(LIMIT, &mut command)?;
        let read = |path: &Path| -> Outcome<String> {
            let bytes = fs::read(path).map_err(on(path, "read"))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let mut ended = read_tests(&read(&stdout)?, &read(&stderr)?);
        ended.status = status.map_or_else(
            || format!("ended after {} s", LIMIT.as_secs()),
            |status| status.to_string(),
        );
        if loaded.is_some() {
            for name in ["operations", "derivations", "ciphers"] {
                ended.accelerated += self.release.total(name, &counters)?;
            }
        }
        Ok(ended)
    }

    /// Adds the module to a configuration.
    fn configuration(&self, from: &Path, module: &Path, directory: &Path) -> Outcome<PathBuf> {
        let path = directory.join("openssl.cnf");
        let mut command = Command::new(self.release.command());
        command.args(["configuration", "--module"]).arg(module);
        let text = quietly(command.arg("--from").arg(from))?;
        fs::write(&path, text).map_err(on(&path, "write"))?;
        Ok(path)
    }

    /// Whether the module has AES-GCM for this OpenSSL, on this CPU and these lanes.
    fn has_gcm(&self, backend: &str) -> bool {
        let is_fast = cpu::has("vaes") && cpu::has("vpclmulqdq");
        self.build.version.lacks_gcm() && (is_fast || backend == "portable")
    }

    /// Whether what is planted is found.
    fn proves_itself(&self, runs: &[Run]) -> Outcome {
        let (defect, name) = PLANTED;
        let Some(run) = runs.iter().find(|run| run.name == name) else {
            return Err(Failure::new(format!("OpenSSL's tests have no {name}")));
        };
        let faulty = target_directory().join("dist-faults");
        let module = dist::build_into(&faulty, Flavour::FaultInjection)?
            .directory
            .join("lockstep.so");
        let stock = self.run(run, Libraries::Built, None)?;
        for (planted, found) in [(None, false), (Some(defect), true)] {
            let loaded = Loaded {
                module: &module,
                backend: backends()[0],
                planted,
            };
            let with = self.run(run, Libraries::Built, Some(&loaded))?;
            if differences(&stock, &with).is_empty() == found {
                return Err(Failure::new(match planted {
                    Some(defect) => format!("the planted defect `{defect}` was not found"),
                    None => format!("{name} differs with the module that has fault points"),
                }));
            }
        }
        Ok(())
    }

    /// Compares one run on these lanes, and prints what is found.
    fn compare(
        &self,
        run: &Run,
        libraries: Libraries,
        backends: &[&'static str],
        tally: &mut Tally,
    ) -> Outcome {
        let stock = self.run(run, libraries, None)?;
        let mut findings = Vec::new();
        if stock.cases == 0 {
            findings.push(format!("no test ran without the module ({})", stock.status));
        }
        for backend in backends {
            let loaded = Loaded {
                module: &self.release.directory.join("lockstep.so"),
                backend,
                planted: None,
            };
            let with = self.run(run, libraries, Some(&loaded))?;
            let mut found = differences(&stock, &with);
            if with.accelerated == 0 && needs_lanes(&run.name, backend, self.has_gcm(backend)) {
                found.push("no lane ran".to_owned());
            }
            findings.extend(found.iter().map(|line| format!("{backend}: {line}")));
            tally.cases += stock.cases;
            tally.accelerated += with.accelerated;
        }
        if !findings.is_empty() {
            println!("{} with the {} libcrypto:", run.name, libraries.name());
            findings.iter().for_each(|line| println!("  {line}"));
            println!("  the outputs are in {}", self.directory.display());
        }
        tally.findings += findings.len() as u64;
        Ok(())
    }

    /// Whether the system's libraries have all that a program calls: internal functions they lack.
    fn runs_installed(&self, run: &Run) -> bool {
        let mut command = Command::new(self.build.directory.join("test").join(&run.program));
        command
            .arg("-help")
            .env("LD_BIND_NOW", "1")
            .env_remove("LD_LIBRARY_PATH")
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        /// What the dynamic linker ends a program with.
        const NOT_LINKED: i32 = 127;
        command
            .output()
            .is_ok_and(|output| output.status.code() != Some(NOT_LINKED))
    }
}

/// The sums of all runs.
#[derive(Default)]
struct Tally {
    cases: u64,
    findings: u64,
    accelerated: u64,
}

/// The lanes that this CPU has, the best first.
fn backends() -> Vec<&'static str> {
    let mut backends = Vec::new();
    if cpu::has_ifma() {
        backends.extend(["avx512ifma", "avx512ifma256"]);
    }
    if cpu::has("avx2") {
        backends.push("avx2");
    }
    backends.push("portable");
    backends
}

/// The nightly check: all programs, on all lanes that this CPU has.
pub fn night(share: &Share) -> Outcome<Ran> {
    let end = Instant::now() + share.time;
    let build = match source::prepare(&Wanted::installed()?)? {
        Ok(build) => build,
        Err(reason) => return Ok(Ran::Skipped(reason)),
    };
    let runs = runs(&build)?;
    let bench = Bench {
        build,
        release: dist::build()?,
        directory: share.directory.clone(),
    };
    bench.proves_itself(&runs)?;
    let mut tally = Tally::default();
    let mut next = share.next as usize % runs.len().max(1);
    let mut done = 0;
    let mut installed = 0;
    while done < runs.len() && (done == 0 || Instant::now() < end) {
        let run = &runs[next];
        bench.compare(run, Libraries::Built, &backends(), &mut tally)?;
        if bench.runs_installed(run) {
            bench.compare(run, Libraries::Installed, &backends()[..1], &mut tally)?;
            installed += 1;
        }
        next = (next + 1) % runs.len();
        done += 1;
    }
    Ok(Ran::Worked(Work {
        cases: tally.cases,
        findings: tally.findings,
        next: next as u64,
        note: format!(
            "{done} of {} programs of OpenSSL {}, {installed} with the installed libcrypto too; \
             {} operations, derivations and ciphers by the module",
            runs.len(),
            bench.build.version,
            tally.accelerated
        ),
        ..Work::default()
    }))
}

/// The short form: the vectors of public-key operations, if the tests have been built before.
pub fn quick() -> Outcome<Ran> {
    let Some(build) = source::at_hand(&Wanted::installed()?)? else {
        return Ok(Ran::Skipped(
            "OpenSSL's tests are not at hand: `cargo xtask nightly openssl-tests` builds them, once"
                .to_owned(),
        ));
    };
    try_vectors(build, target_directory().join("openssl-tests"))
}

/// The same with the tests of a release of Debian in this root directory, or of an archive in the
/// cache, built if need be.
pub fn vectors(version: &str, release: &str, root: Option<&Path>) -> Outcome<Ran> {
    let Some(wanted) = Wanted::vectors(version, root.map(|root| (release, root))) else {
        return Err(Failure::new(format!("{version} is no version of OpenSSL")));
    };
    match source::prepare(&wanted)? {
        Ok(build) => try_vectors(
            build,
            target_directory().join(format!("openssl-tests-{release}")),
        ),
        Err(reason) => Ok(Ran::Skipped(reason)),
    }
}

fn try_vectors(build: Build, directory: PathBuf) -> Outcome<Ran> {
    let runs = runs(&build)?;
    let bench = Bench {
        build,
        release: dist::build()?,
        directory,
    };
    bench.proves_itself(&runs)?;
    let mut tally = Tally::default();
    let is_quick = |run: &&Run| QUICK.iter().any(|start| run.name.starts_with(start));
    for run in runs.iter().filter(is_quick) {
        bench.compare(run, Libraries::Built, &backends()[..1], &mut tally)?;
    }
    let work = Work {
        cases: tally.cases,
        findings: tally.findings,
        ..Work::default()
    };
    Ran::Worked(work).or_fail("OpenSSL's tests end otherwise with the module, see above")
}
