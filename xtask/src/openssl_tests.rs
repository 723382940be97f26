//! OpenSSL's own tests, with the module loaded and all that can run on lanes sent there, compared
//! with the same tests without the module.
//!
//! The programs use a libcrypto of their own build, which has the internal functions that some of
//! them call; those that need none run with the installed libcrypto too.
//!
//! A test that ends otherwise with the module is a finding, and so is a program in which no lane
//! ran, unless [`WITHOUT_LANES`] says why not. A defect that the module with fault points plants
//! must be found first.

mod source;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Failure, Outcome, cannot_run, on, quietly, target_directory};
use crate::dist::{self, Dist, Flavour};
use crate::work::{Ran, Share, Work};
use source::Build;

/// A program may take this long; then it is ended, which is a difference.
const LIMIT: Duration = Duration::from_secs(600);

/// How a program comes to its configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Configured {
    /// By the argument `{configuration}`, for a library context of its own.
    Argument,
    /// By `OPENSSL_CONF`.
    Environment,
    /// By a variable that [`source`] has the program read, for a library context of its own.
    Context,
}
use Configured::{Argument, Context, Environment};

/// A program, its arguments, and how it is configured. `{test}` is OpenSSL's directory of tests,
/// `{scratch}` a file.
const PROGRAMS: &[(&str, Configured)] = &[
    ("evp_extra_test", Environment),
    ("evp_extra_test -context", Context),
    ("evp_extra_test2", Environment),
    ("evp_libctx_test -config {configuration}", Argument),
    (
        "evp_pkey_provided_test {test}/recipes/30-test_evp_pkey_provided",
        Environment,
    ),
    ("provider_pkey_test", Environment),
    (
        "endecode_test -rsa {test}/certs/ee-key.pem -pss {test}/certs/ca-pss-key.pem -context \
         -config {configuration} -provider default",
        Argument,
    ),
    ("rsa_test", Environment),
    ("rsa_mp_test", Environment),
    ("rsa_sp800_56b_test", Environment),
    ("ectest", Environment),
    ("ec_internal_test", Environment),
    ("ecdsatest", Environment),
    ("ecstresstest -num 2000", Environment),
    ("asynctest", Environment),
    (
        "asynciotest {test}/../apps/server.pem {test}/../apps/server.pem",
        Environment,
    ),
    (
        "threadstest -config {configuration} {test}/recipes/90-test_threads_data",
        Argument,
    ),
    (
        "dtlstest {test}/certs/servercert.pem {test}/certs/serverkey.pem",
        Environment,
    ),
    (
        "sslcorrupttest {test}/certs/servercert.pem {test}/certs/serverkey.pem",
        Environment,
    ),
    (
        "tls13ccstest {test}/certs/servercert.pem {test}/certs/serverkey.pem",
        Environment,
    ),
    (
        "sslapitest {test}/certs {test}/recipes/90-test_sslapi_data/passwd.txt {scratch} default \
         {configuration} {test}/recipes/90-test_sslapi_data/dhparams.pem",
        Argument,
    ),
];

/// Why no lane works in the runs whose names start like this.
const WITHOUT_LANES: &[(&str, &str)] = &[
    ("evp_test evpciph_", "no key pairs"),
    ("evp_test evpencod", "no key pairs"),
    ("evp_test evpkdf_hkdf", "no key pairs"),
    ("evp_test evpkdf_krb5", "no key pairs"),
    ("evp_test evpkdf_pbkdf", "no key pairs"),
    ("evp_test evpkdf_s", "no key pairs"),
    ("evp_test evpkdf_tls1_", "no key pairs"),
    ("evp_test evpkdf_tls11", "no key pairs"),
    ("evp_test evpkdf_tls12", "no key pairs"),
    ("evp_test evpkdf_x", "no key pairs"),
    ("evp_test evpmac_", "no key pairs"),
    ("evp_test evpmd_", "no key pairs"),
    ("evp_test evppbe_", "no key pairs"),
    ("evp_test evprand", "no key pairs"),
    ("evp_test evppkey_brainpool", "curves without lanes"),
    ("evp_test evppkey_dh", "no lanes for Diffie-Hellman"),
    ("evp_test evppkey_dsa", "no lanes for DSA"),
    ("evp_test evppkey_ffdhe", "no lanes for Diffie-Hellman"),
    ("evp_test evppkey_kdf_", "no key pairs"),
    ("evp_test evppkey_mismatch", "keys are compared, not used"),
    ("evp_test evppkey_sm2", "no lanes for SM2"),
    ("evp_extra_test2", "keys are read and written, not used"),
    ("evp_libctx_test", "no lanes for key encapsulation"),
    ("provider_pkey_test", "providers of its own"),
    ("rsa_test", "RSA below the providers"),
    ("rsa_mp_test", "RSA below the providers"),
    ("rsa_sp800_56b_test", "RSA below the providers"),
    ("ec_internal_test", "curves below the providers"),
    ("ecstresstest", "curves below the providers"),
    ("asynctest", "jobs without keys"),
    ("ssl_test 29-", "needs SCTP, which this build lacks"),
];

/// Runs that only use NIST's curves, for which AVX2 has no lanes.
const NIST_CURVES: &[&str] = &[
    "evp_test evppkey_ecc",
    "evp_test evppkey_ecdh",
    "evp_test evppkey_ecdsa",
    "evp_test evppkey_kas",
    "evp_pkey_provided_test",
    "endecode_test",
    "ectest",
    "ecdsatest",
];

/// Whether lanes must work in this run.
fn needs_lanes(run: &str, backend: &str) -> bool {
    !(WITHOUT_LANES
        .iter()
        .any(|(start, _)| run.starts_with(start))
        || backend == "avx2" && NIST_CURVES.iter().any(|start| run.starts_with(start)))
}

/// Starts of the runs of the short form.
const QUICK: &str = "evp_test evppkey_";
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

/// One way to run a program.
#[derive(Clone)]
struct Run {
    /// What it is called in reports.
    name: String,
    program: String,
    arguments: Vec<String>,
    configured: Configured,
    /// The configuration in OpenSSL's directory of tests that it begins with.
    configuration: &'static str,
}

/// All that is run, in order.
fn runs(build: &Build) -> Outcome<Vec<Run>> {
    let test = build.directory.join("test");
    let mut runs = Vec::new();
    for file in listed(&test.join("recipes/30-test_evp_data"), ".txt")? {
        runs.push(Run {
            name: format!("evp_test {file}"),
            program: "evp_test".to_owned(),
            arguments: [
                "-config",
                "{configuration}",
                &format!("{{test}}/recipes/30-test_evp_data/{file}"),
            ]
            .map(str::to_owned)
            .to_vec(),
            configured: Argument,
            configuration: "default-and-legacy.cnf",
        });
    }
    for &(words, configured) in PROGRAMS {
        let mut words = words.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        let name = match configured {
            Context => format!("{program} -context"),
            _ => program.clone(),
        };
        runs.push(Run {
            name,
            program,
            arguments: words.collect(),
            configured,
            configuration: "default.cnf",
        });
    }
    for file in listed(&test.join("ssl-tests"), ".cnf")? {
        runs.push(Run {
            name: format!("ssl_test {file}"),
            program: "ssl_test".to_owned(),
            arguments: vec![format!("{{test}}/ssl-tests/{file}"), "none".to_owned()],
            configured: Environment,
            configuration: "default.cnf",
        });
    }
    Ok(runs)
}

fn listed(directory: &Path, ending: &str) -> Outcome<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .map_err(on(directory, "read"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    Ok(names)
}

/// What a program said and did.
#[derive(Default)]
struct Ended {
    /// Every test in order, as `ok 3 - name`, and the counts that `evp_test` gives of its own.
    tests: Vec<String>,
    cases: u64,
    status: String,
    /// Operations on lanes, and key derivations by the module.
    accelerated: u64,
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
        let status = finish(&mut command)?;
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
            ended.accelerated =
                self.count(&counters, "operations")? + self.count(&counters, "derivations")?;
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

    fn count(&self, counters: &Path, name: &str) -> Outcome<u64> {
        let mut command = Command::new(self.release.command());
        command.args(["stat", "--ended", "--total", name, "--dir"]);
        let text = quietly(command.arg(counters))?;
        text.trim()
            .parse()
            .map_err(|_| Failure::new(format!("`lockstep stat` printed {text:?}")))
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
            if with.accelerated == 0 && needs_lanes(&run.name, backend) {
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

/// Waits for a program; `None` if it took too long.
fn finish(command: &mut Command) -> Outcome<Option<ExitStatus>> {
    let mut child = command
        .spawn()
        .map_err(|error| cannot_run(command, &error))?;
    let end = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
            Err(error) => return Err(cannot_run(command, &error)),
        }
    }
}

/// The tests in the output of a program. They stand on lines of their own, indented by depth; an
/// older program says `PASS` alone. `evp_test` counts what a file holds on its standard error.
fn read_tests(stdout: &str, stderr: &str) -> Ended {
    let is_test = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("ok ") || line.starts_with("not ok ") || line == "PASS"
    };
    let mut tests: Vec<String> = stdout
        .lines()
        .filter(is_test)
        .map(|line| line.trim_end().to_owned())
        .collect();
    let mut cases = tests.len() as u64;
    for line in stderr.lines() {
        let line = line.trim_start_matches([' ', '#']);
        // `Completed 77 tests with 0 errors and 0 skipped`
        let count = line
            .strip_prefix("Completed ")
            .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        if let Some(count) = count {
            cases += count;
            tests.push(line.to_owned());
        }
    }
    Ended {
        tests,
        cases,
        ..Ended::default()
    }
}

/// What differs between a run without the module and one with it, in words.
fn differences(stock: &Ended, with: &Ended) -> Vec<String> {
    const MOST: usize = 10;
    let mut found = Vec::new();
    if stock.status != with.status {
        found.push(format!(
            "the program ends with {}, without the module with {}",
            with.status, stock.status
        ));
    }
    for index in 0..stock.tests.len().max(with.tests.len()) {
        let of = |ended: &Ended| ended.tests.get(index).cloned().unwrap_or_default();
        let (stock, with) = (of(stock), of(with));
        if stock != with {
            found.push(format!("{with:?}, without the module {stock:?}"));
        }
    }
    found.truncate(MOST);
    found
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
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    let mut backends = Vec::new();
    if has("avx512ifma") && has("avx512vl") {
        backends.extend(["avx512ifma", "avx512ifma256"]);
    }
    if has("avx2") {
        backends.push("avx2");
    }
    backends.push("portable");
    backends
}

/// The nightly check: all programs, on all lanes that this CPU has.
pub fn night(share: &Share) -> Outcome<Ran> {
    let end = Instant::now() + share.time;
    let build = match source::prepare()? {
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
            "{done} of {} programs of OpenSSL {}, {installed} with the installed libcrypto too; {} operations and derivations by the module",
            runs.len(),
            bench.build.version,
            tally.accelerated
        ),
        ..Work::default()
    }))
}

/// The short form: the vectors of public-key operations, if the tests have been built before.
pub fn quick() -> Outcome<Ran> {
    let Some(build) = source::at_hand()? else {
        return Ok(Ran::Skipped(
            "OpenSSL's tests are not at hand: `cargo xtask nightly openssl-tests` builds them, once"
                .to_owned(),
        ));
    };
    let runs = runs(&build)?;
    let bench = Bench {
        build,
        release: dist::build()?,
        directory: target_directory().join("openssl-tests"),
    };
    bench.proves_itself(&runs)?;
    let mut tally = Tally::default();
    for run in runs.iter().filter(|run| run.name.starts_with(QUICK)) {
        bench.compare(run, Libraries::Built, &backends()[..1], &mut tally)?;
    }
    match tally.findings {
        0 => Ok(Ran::Worked(Work {
            cases: tally.cases,
            ..Work::default()
        })),
        _ => Err(Failure::new(
            "OpenSSL's tests end otherwise with the module, see above",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STDOUT: &str = "1..2
    # Subtest: many
    1..2
    ok 1 - iteration 1
    not ok 2 - iteration 2
    # OPENSSL_TEST_RAND_ORDER=1795371940
not ok 1 - many
ok 2 - one # skipped
";
    const STDERR: &str = "    # INFO:  @ test/testutil/stanza.c:32
    # Completed 77 tests with 1 errors and 2 skipped
";

    #[test]
    fn tests_are_read_and_compared() {
        let mut stock = read_tests(STDOUT, STDERR);
        stock.status = "exit status: 1".to_owned();
        assert_eq!(stock.cases, 4 + 77);
        let mut with = read_tests(
            &STDOUT.replace("=1795371940", "=1795371941"),
            &STDERR.replace("77 tests with 1", "77 tests with 2"),
        );
        with.status = "signal: 11".to_owned();
        let found = differences(&stock, &with);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("signal: 11"));
        assert!(found[1].contains("2 errors"));
        // The rest is missing.
        let cut = read_tests(STDOUT.split_once("not ok 1").unwrap().0, "");
        assert_eq!(differences(&stock, &cut).len(), 4);
        assert!(differences(&stock, &stock).is_empty());
    }
}
