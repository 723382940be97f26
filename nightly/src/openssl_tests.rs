//! OpenSSL's own tests, with the module loaded and every possible operation on lanes, compared with
//! the same tests without the module.
//!
//! The programs use a libcrypto of their own build, which has the internal functions that some of
//! them call; the other programs run with the installed libcrypto too.
//!
//! A test that ends otherwise with the module is a finding, and so is a program in which no lane
//! ran, unless [`programs`] says why not. A defect that the module with fault points plants must be
//! found first.

mod programs;
mod source;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xtask::command::{Failure, Outcome, emptied, ends_within, on, quietly, target_directory};
use xtask::dist::{self, Dist};
use xtask::work::{Ran, Share, Work};

use crate::beside::{self, Module, Results, find_planted, results, without_settings};
use crate::cpu;
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

/// The nightly check: all programs, on all lanes that this CPU has.
pub fn night(share: &Share) -> Outcome<Ran> {
    let end = Instant::now() + share.time;
    let build = match source::prepare(&Wanted::installed()?)? {
        Ok(build) => build,
        Err(reason) => return Ok(Ran::Skipped(reason)),
    };
    let bench = Bench::new(build, share.directory.clone())?;
    let (all, backends) = (bench.runs.len(), beside::backends());
    let mut work = Work::default();
    let mut next = share.next as usize % all.max(1);
    let (mut done, mut installed, mut accelerated) = (0, 0, 0);
    while done < all && (done == 0 || Instant::now() < end) {
        let run = &bench.runs[next];
        accelerated += bench.compare(run, Libraries::Built, &backends, &mut work)?;
        if bench.runs_installed(run) {
            let best = &backends[..1];
            accelerated += bench.compare(run, Libraries::Installed, best, &mut work)?;
            installed += 1;
        }
        next = (next + 1) % all;
        done += 1;
    }
    work.next = next as u64;
    work.note = format!(
        "{done} of {all} programs of OpenSSL {}, {installed} with the installed libcrypto too; \
         {accelerated} operations, derivations and ciphers by the module",
        bench.build.version
    );
    Ok(Ran::Worked(work))
}

/// The short form: the vectors of public-key operations, if the tests have been built before.
pub fn quick() -> Outcome<Ran> {
    let Some(build) = source::at_hand(&Wanted::installed()?)? else {
        return Ok(Ran::Skipped(
            "OpenSSL's tests are not built here (`cargo xtask nightly openssl-tests`)".to_owned(),
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
    let bench = Bench::new(build, directory)?;
    let mut work = Work::default();
    let is_quick = |run: &&Run| QUICK.iter().any(|start| run.name.starts_with(start));
    for run in bench.runs.iter().filter(is_quick) {
        bench.compare(run, Libraries::Built, &beside::backends()[..1], &mut work)?;
    }
    Ran::Worked(work).or_fail("OpenSSL's tests end otherwise with the module, see above")
}

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

/// The report of a program, and its counters.
struct Ended {
    /// By the names of tests, and the program's status.
    results: Results,
    cases: u64,
    /// Operations on lanes, and key derivations and contexts of AES-GCM by the module.
    accelerated: u64,
}

/// The tests, the command of the release, and a directory for output.
struct Bench {
    build: Build,
    runs: Vec<Run>,
    release: Dist,
    directory: PathBuf,
}

impl Bench {
    /// A bench that has found a planted defect.
    fn new(build: Build, directory: PathBuf) -> Outcome<Bench> {
        let bench = Bench {
            runs: runs(&build.directory)?,
            build,
            release: dist::build()?,
            directory,
        };
        let (defect, name) = PLANTED;
        let run = bench.runs.iter().find(|run| run.name == name);
        let run = run.ok_or_else(|| Failure::new(format!("OpenSSL's tests have no {name}")))?;
        let stock = bench.run(run, Libraries::Built, None)?;
        let module = &dist::faulty()?.module();
        find_planted(defect, |planted| {
            let loaded = Loaded {
                module,
                backend: beside::backends()[0],
                planted,
            };
            let with = bench.run(run, Libraries::Built, Some(&loaded))?;
            Ok(differences(&stock.results, &with.results))
        })?;
        Ok(bench)
    }

    /// Runs a program without the module, or with it.
    fn run(&self, run: &Run, libraries: Libraries, loaded: Option<&Loaded>) -> Outcome<Ended> {
        let side = loaded.map_or("openssl", |loaded| loaded.backend);
        let directory = self.directory.join(run.name.replace(' ', "-"));
        let directory = directory.join(libraries.name()).join(side);
        emptied(&directory)?;
        let counters = directory.join("counters");
        emptied(&counters)?;
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
        without_settings(&mut command);
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
            let module = Module {
                backend: Some(loaded.backend),
                counters: &counters,
                planted: loaded.planted,
            };
            module.set(&mut command);
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
        let status = status.map_or_else(
            || format!("ended after {} s", LIMIT.as_secs()),
            |status| status.to_string(),
        );
        ended.results.insert("the program".to_owned(), status);
        if loaded.is_some() {
            for name in ["operations", "derivations", "ciphers"] {
                ended.accelerated += self.release.total(name, &counters)?;
            }
        }
        Ok(ended)
    }

    /// Adds the module to a configuration. Root reads a copy: others may be allowed to change the
    /// files of the sources, and the command does not take such a file.
    fn configuration(&self, from: &Path, module: &Path, directory: &Path) -> Outcome<PathBuf> {
        let (path, copy) = (directory.join("openssl.cnf"), directory.join("stock.cnf"));
        let text = fs::read(from).map_err(on(from, "read"))?;
        fs::write(&copy, text).map_err(on(&copy, "write"))?;
        let mut command = Command::new(self.release.command());
        command.args(["configuration", "--module"]).arg(module);
        let text = quietly(command.arg("--from").arg(&copy))?;
        fs::write(&path, text).map_err(on(&path, "write"))?;
        Ok(path)
    }

    /// Whether the module has AES-GCM for this OpenSSL, on this CPU and these lanes.
    fn has_gcm(&self, backend: &str) -> bool {
        let is_fast = cpu::has("vaes") && cpu::has("vpclmulqdq");
        self.build.version.lacks_gcm() && (is_fast || backend == "portable")
    }

    /// Compares one run on these lanes, and prints the differences; returns the number of the
    /// module's operations.
    fn compare(
        &self,
        run: &Run,
        libraries: Libraries,
        backends: &[&'static str],
        work: &mut Work,
    ) -> Outcome<u64> {
        const MOST: usize = 10;
        let stock = self.run(run, libraries, None)?;
        let (mut findings, mut accelerated) = (Vec::new(), 0);
        if stock.cases == 0 {
            findings.push(format!(
                "no test ran without the module: {:?}",
                stock.results
            ));
        }
        let module = &self.release.module();
        for backend in backends {
            let loaded = Loaded {
                module,
                backend,
                planted: None,
            };
            let with = self.run(run, libraries, Some(&loaded))?;
            let mut found = differences(&stock.results, &with.results);
            found.truncate(MOST);
            if with.accelerated == 0 && needs_lanes(&run.name, backend, self.has_gcm(backend)) {
                found.push("no lane ran".to_owned());
            }
            findings.extend(found.iter().map(|line| format!("{backend}: {line}")));
            work.cases += stock.cases;
            accelerated += with.accelerated;
        }
        if !findings.is_empty() {
            println!("{} with the {} libcrypto:", run.name, libraries.name());
            findings.iter().for_each(|line| println!("  {line}"));
            println!("  the outputs are in {}", self.directory.display());
        }
        work.findings += findings.len() as u64;
        Ok(accelerated)
    }

    /// Whether the system's libraries have all functions that a program calls: they lack internal
    /// ones.
    fn runs_installed(&self, run: &Run) -> bool {
        let mut command = Command::new(self.build.directory.join("test").join(&run.program));
        command
            .arg("-help")
            .env("LD_BIND_NOW", "1")
            .env_remove("LD_LIBRARY_PATH")
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        /// The exit status by which the dynamic linker ends a program.
        const NOT_LINKED: i32 = 127;
        command
            .output()
            .is_ok_and(|output| output.status.code() != Some(NOT_LINKED))
    }
}

/// Reads the tests in the output of a program. They stand on lines of their own, indented by depth;
/// an older program says `PASS` alone. `evp_test` counts the tests of a file on its standard error.
///
/// Iterations stand before their test, with a number within it and another one that counts the
/// iterations of all tests. Here they have the name of their test and the first number.
fn read_tests(stdout: &str, stderr: &str) -> Ended {
    let (mut tests, mut iterations) = (Vec::new(), Vec::new());
    for line in stdout.lines().map(str::trim_end) {
        let (rest, result) = match line.trim_start() {
            "PASS" => ("", "PASS"),
            line => match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
                (Some(rest), _) => (rest, "ok"),
                (_, Some(rest)) => (rest, "not ok"),
                _ => continue,
            },
        };
        if let Some((_, iteration)) = rest.split_once(" - iteration ") {
            iterations.push((iteration, result));
            continue;
        }
        for (iteration, result) in iterations.drain(..) {
            tests.push((format!("{rest}, iteration {iteration}"), result.to_owned()));
        }
        let depth = line.len() - line.trim_start().len();
        tests.push((format!("{rest}, depth {depth}"), result.to_owned()));
    }
    for (iteration, result) in iterations {
        tests.push((format!("iteration {iteration}"), result.to_owned()));
    }
    let mut cases = tests.len() as u64;
    for line in stderr.lines() {
        // `Completed 77 tests with 0 errors and 0 skipped`
        let line = line.trim_start_matches([' ', '#']);
        let count = line
            .strip_prefix("Completed ")
            .and_then(|rest| rest.split_once(' '));
        if let Some((Ok(count), rest)) = count.map(|(count, rest)| (count.parse::<u64>(), rest)) {
            cases += count;
            tests.push(("completed".to_owned(), format!("{count} {rest}")));
        }
    }
    Ended {
        results: results(tests.into_iter()),
        cases,
        accelerated: 0,
    }
}

/// Tests with an iteration for each implementation of a cipher.
const OF_ALL_CIPHERS: &[&str] = &["test_cipher_reinit", "test_cipher_reinit_partialupdate"];

/// Implementations of ciphers that the module adds: AES-GCM with three lengths of keys.
const OWN_CIPHERS: usize = 3;

/// The differences in words. The module may add iterations of its ciphers, if these are good.
fn differences(stock: &Results, with: &Results) -> Vec<String> {
    let is_of = |name: &str, test: &str| {
        let test = format!(" - {test}, iteration ");
        name.contains(&test)
    };
    let is_added = |test: &&&str| {
        let new = with.iter().filter(|(name, _)| !stock.contains_key(*name));
        let new: Vec<_> = new.filter(|(name, _)| is_of(name, test)).collect();
        new.len() == OWN_CIPHERS && new.iter().all(|(_, result)| *result == "ok")
    };
    let added: Vec<&&str> = OF_ALL_CIPHERS.iter().filter(is_added).collect();
    beside::differences(stock, with, |name, stock, _| {
        stock.is_none() && added.iter().any(|test| is_of(name, test))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_that_the_module_adds_are_no_difference_if_they_are_good() {
        let run = |first: usize, ciphers: usize, last: &str| {
            let mut stdout = String::new();
            let mut number = 0;
            let names = ["one", OF_ALL_CIPHERS[0], OF_ALL_CIPHERS[1]];
            for (index, name) in names.iter().enumerate() {
                let count = if index == 0 { first } else { ciphers };
                for iteration in 1..=count {
                    number += 1;
                    let outcome = if iteration == count { last } else { "ok" };
                    stdout += &format!("    {outcome} {number} - iteration {iteration}\n");
                }
                stdout += &format!("ok {} - {name}\n", index + 1);
            }
            read_tests(&stdout, "").results
        };
        let stock = run(5, 5, "ok");
        assert!(differences(&stock, &run(5, 5, "ok")).is_empty());
        // The first test has no reason to have more of them.
        assert!(!differences(&stock, &run(8, 5, "ok")).is_empty());
        assert!(differences(&stock, &run(5, 8, "ok")).is_empty());
        for different in [
            run(5, 8, "not ok"),
            run(5, 7, "ok"),
            run(5, 9, "ok"),
            run(5, 4, "ok"),
        ] {
            assert!(!differences(&stock, &different).is_empty());
        }
    }

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
        let stock = read_tests(STDOUT, STDERR);
        assert_eq!(stock.cases, 4 + 77);
        let with = read_tests(
            &STDOUT.replace("=1795371940", "=1795371941"),
            &STDERR.replace("77 tests with 1", "77 tests with 2"),
        );
        let found = differences(&stock.results, &with.results);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("2 errors"));
        for (from, to) in [
            ("not ok 2 - it", "ok 2 - it"),
            ("ok 2 - one", "not ok 2 - one"),
            ("ok 2 - one", "ok 3 - one"),
            ("ok 2 - one # skipped\n", ""),
        ] {
            assert!(STDOUT.contains(from), "{from}");
            let other = read_tests(&STDOUT.replace(from, to), STDERR);
            assert!(
                !differences(&stock.results, &other.results).is_empty(),
                "{from}"
            );
        }
        // The rest is missing.
        let cut = read_tests(STDOUT.split_once("not ok 1").unwrap().0, "");
        assert!(differences(&stock.results, &cut.results).len() > 4);
        assert!(differences(&stock.results, &stock.results).is_empty());
        assert_eq!(
            read_tests("PASS\nPASS\n", "").results[", depth 0"],
            "PASS; PASS"
        );
    }
}
