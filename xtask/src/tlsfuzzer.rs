//! The scripts of tlsfuzzer against servers, once without the module and once with it.
//!
//! tlsfuzzer is a client that talks TLS wrongly on purpose: bad paddings, malformed points,
//! messages out of order. A script holds many conversations, and says of each whether the server
//! answered as it should. This check does not judge which of them OpenSSL passes. A conversation
//! that a server passes without the module, and fails with it, is a finding.
//!
//! `rig/tlsfuzzer/setups.txt` has the servers and their scripts. tlsfuzzer itself is not part of
//! this repository: [`CHECKOUT`] names a directory with it. Every run must first find a planted
//! defect, and the module's counters must show that its lanes computed.

mod servers;
mod table;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{
    Failure, Outcome, ending_with_us, on, quietly, root, target_directory, within,
};
use crate::dist::{self, Dist, Flavour};
use crate::work::{Ran, Share, Work};

use servers::{Module, Server};
use table::{Run, Setup};

/// The environment's name for a directory with tlsfuzzer.
const CHECKOUT: &str = "LOCKSTEP_TLSFUZZER";

/// The package from which tlsfuzzer's TLS has ML-KEM, which it does without by itself.
const MLKEM: &str = "kyber-py";

/// A script that has not ended by now never does.
const PATIENCE: Duration = Duration::from_secs(400);

/// The short form is not bounded in time.
const UNLIMITED: Duration = Duration::from_secs(24 * 3600);

/// Runs a script with a seed of its own, so that both servers see the same conversations. Some
/// scripts draw what they send from the system's generator, which gets the seed too.
const SEEDED: &str = "import random, runpy, sys
sys.argv.pop(0)
random.seed(int(sys.argv.pop(0)))
random.SystemRandom = lambda: random
runpy.run_path(sys.argv[0], run_name='__main__')";

/// The ten scripts of the short form, by their set-ups.
const QUICK: &[(&str, &[&str])] = &[
    (
        "rsa2048",
        &[
            "test-bleichenbacher-workaround.py",
            "test-invalid-rsa-key-exchange-messages.py",
            "test-tls13-hrr.py",
            "test-x25519.py",
        ],
    ),
    (
        "client-certificates",
        &[
            "test-certificate-verify.py",
            "test-tls13-ecdsa-in-certificate-verify.py",
        ],
    ),
    (
        "haproxy-p256",
        &[
            "test-tls13-conversation.py",
            "test-conversation.py",
            "test-tls13-ecdhe-curves.py",
            "test-ecdsa-sig-flexibility.py",
        ],
    ),
];

/// What makes a module wrong on purpose (see the provider's `fault`), and the set-up and the script
/// that must notice.
const PLANTED: (&str, &str, &str) = ("padding-byte", "rsa2048", "test-conversation.py");

/// The nightly check: from the run where the last night stopped, at most once through all of them.
pub fn night(share: &Share) -> Outcome<Ran> {
    let Some(rig) = Rig::prepare()? else {
        return Ok(Ran::Skipped(missing()));
    };
    let setups = table::read()?;
    rig.proves_itself(&setups)?;
    let total: u64 = setups.iter().map(|setup| setup.runs.len() as u64).sum();
    let deadline = Instant::now() + share.time;
    let mut sum = Sum::new(share.next);
    let mut start = share.next % total;
    // The set-up in which the last night stopped comes again at the end, with its first runs.
    for setup in setups.iter().chain(&setups) {
        let runs = setup.runs.len() as u64;
        if start >= runs {
            start -= runs;
            continue;
        }
        let left = total - (sum.next - share.next);
        let chosen = &setup.runs[start as usize..];
        let chosen = &chosen[..chosen.len().min(left as usize)];
        if chosen.is_empty() || Instant::now() > deadline {
            break;
        }
        rig.follow(setup, chosen, deadline, &mut sum)?;
        start = 0;
    }
    sum.finish()
}

/// The short form.
pub fn quick() -> Outcome<Ran> {
    let Some(rig) = Rig::prepare()? else {
        return Ok(Ran::Skipped(missing()));
    };
    let setups = table::read()?;
    rig.proves_itself(&setups)?;
    let mut sum = Sum::new(0);
    for (name, scripts) in QUICK {
        let setup = find(&setups, name)?;
        let runs: Vec<Run> = scripts
            .iter()
            .map(|script| setup.first(script))
            .collect::<Outcome<_>>()?;
        rig.follow(setup, &runs, Instant::now() + UNLIMITED, &mut sum)?;
    }
    sum.finish()?
        .or_fail("tlsfuzzer found a difference between the module and OpenSSL alone, see above")
}

/// What to do about tlsfuzzer that is not there.
fn missing() -> String {
    format!(
        "tlsfuzzer is not here: clone the git repository of the project (tlsfuzzer/tlsfuzzer on \
         GitHub) and set {CHECKOUT} to its directory"
    )
}

fn find<'a>(setups: &'a [Setup], name: &str) -> Outcome<&'a Setup> {
    let found = setups.iter().find(|setup| setup.name == name);
    found.ok_or_else(|| Failure::new(format!("there is no set-up `{name}`")))
}

/// What the runs of a night add up to.
struct Sum {
    work: Work,
    next: u64,
    conversations: u64,
    on_lanes: u64,
}

impl Sum {
    fn new(next: u64) -> Sum {
        Sum {
            work: Work::default(),
            next,
            conversations: 0,
            on_lanes: 0,
        }
    }

    fn finish(mut self) -> Outcome<Ran> {
        if self.work.cases > 0 && self.on_lanes == 0 {
            return Err(Failure::new(
                "no operation ran on lanes, so the comparison shows nothing",
            ));
        }
        self.work.next = self.next;
        self.work.note = format!(
            "{} conversations, {} operations on lanes",
            self.conversations, self.on_lanes
        );
        Ok(Ran::Worked(self.work))
    }
}

/// Everything that runs need.
struct Rig {
    dist: Dist,
    checkout: PathBuf,
    python: PathBuf,
    directory: PathBuf,
}

impl Rig {
    /// `None` if there is no tlsfuzzer.
    fn prepare() -> Outcome<Option<Rig>> {
        let Some(checkout) = std::env::var_os(CHECKOUT).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let checkout = root().join(checkout);
        let requirements = checkout.join("requirements.txt");
        if !checkout.join("scripts/test-conversation.py").exists() || !requirements.exists() {
            return Err(Failure::new(format!(
                "{CHECKOUT} names {}, which has no tlsfuzzer in it",
                checkout.display()
            ))
            .remedy(missing()));
        }
        let directory = target_directory().join("tlsfuzzer");
        let venv = directory.join("venv");
        let ready = venv.join("ready-with-ml-kem");
        if !ready.exists() {
            fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
            quietly(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let mut pip = Command::new(venv.join("bin/pip"));
            pip.args(["install", "--quiet", "--requirement"]);
            quietly(pip.arg(&requirements).arg(MLKEM))
                .map_err(|failure| failure.remedy(format!("unset {CHECKOUT}, or help pip")))?;
            File::create(&ready).map_err(on(&ready, "create"))?;
        }
        Ok(Some(Rig {
            dist: dist::build()?,
            checkout,
            python: venv.join("bin/python"),
            directory,
        }))
    }

    /// Whether a module with a planted defect is found out.
    fn proves_itself(&self, setups: &[Setup]) -> Outcome {
        let (defect, setup, script) = PLANTED;
        let faulty = target_directory().join("dist-faults");
        let faulty = dist::build_into(&faulty, Flavour::FaultInjection)?;
        let setup = find(setups, setup)?;
        let run = setup.first(script)?;
        let module = Module {
            configuration: faulty.configuration(),
            planted: Some(defect),
        };
        let mut servers = Servers::start(self, setup, module)?;
        let pairs = servers.serve(self, setup, &[run], 0)?;
        match pairs.iter().any(|pair| !pair.lost().is_empty()) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{script} did not find the planted defect `{defect}`"
            ))),
        }
    }

    /// Runs scripts of a set-up against both servers.
    fn follow(&self, setup: &Setup, runs: &[Run], deadline: Instant, sum: &mut Sum) -> Outcome {
        if let Some(missing) = setup.kind.missing() {
            println!("{}: skipped, {missing} is not installed", setup.name);
            sum.next += runs.len() as u64;
            return Ok(());
        }
        let module = Module {
            configuration: self.dist.configuration(),
            planted: None,
        };
        let mut servers = Servers::start(self, setup, module)?;
        let start = Instant::now();
        let mut done = 0;
        for together in runs.chunks(setup.kind.together()) {
            if Instant::now() > deadline {
                break;
            }
            self.compare(setup, &mut servers, together, sum)?;
            done += together.len();
            sum.next += together.len() as u64;
        }
        sum.on_lanes += self.dist.total("operations", &servers.ours.counters)?;
        println!(
            "{:<28} {done} runs in {:.0} s",
            setup.name,
            start.elapsed().as_secs_f64()
        );
        if done == setup.runs.len() {
            for shape in &setup.lanes {
                if self.dist.total(shape, &servers.ours.counters)? == 0 {
                    sum.work.findings += 1;
                    println!("{}: no {shape} ran on lanes", setup.name);
                }
            }
        }
        Ok(())
    }

    /// Runs scripts at the same time against both servers, and all once more if one differs.
    fn compare(
        &self,
        setup: &Setup,
        servers: &mut Servers,
        runs: &[Run],
        sum: &mut Sum,
    ) -> Outcome {
        let seed = sum.next;
        let about = |run: &Run| format!("{}: {}", setup.name, run.line());
        let first = servers.serve(self, setup, runs, seed)?;
        for (run, pair) in runs.iter().zip(&first) {
            let measure = match setup.adds[..] {
                [] => &pair.stock,
                _ => &pair.ours,
            };
            if measure.passed == 0 && setup.adds.is_empty() {
                // It shows nothing.
                println!("{}: OpenSSL alone passes nothing", about(run));
                continue;
            }
            sum.work.cases += 1;
            sum.conversations += measure.passed;
        }
        let lost = |pair: &Pair| match setup.adds[..] {
            [] => pair.lost(),
            _ => pair.ours.lacks(),
        };
        if first.iter().all(|pair| lost(pair).is_empty()) {
            return Ok(());
        }
        // A stopwatch decides in some scripts, and the machine may be busy.
        let second = servers.serve(self, setup, runs, seed)?;
        for (run, (first, second)) in runs.iter().zip(first.iter().zip(&second)) {
            match (&lost(first)[..], &lost(second)[..]) {
                ([], _) => {}
                (once, []) => println!("{}: differed once, and not again: {once:?}", about(run)),
                (_, lost) => {
                    sum.work.findings += 1;
                    println!(
                        "{}: {}: {lost:?}\nseed {seed}, {}",
                        about(run),
                        match setup.adds[..] {
                            [] => "OpenSSL alone passes, and the module fails",
                            _ => "the module fails",
                        },
                        second.ours.log.display()
                    );
                }
            }
        }
        Ok(())
    }

    /// Runs a script against one server.
    fn script(&self, setup: &Setup, run: &Run, seed: u64, server: &Server) -> Outcome<Verdict> {
        let log = self.directory.join(format!(
            "{}-{}.log",
            server.side(),
            run.file_name(&setup.name)
        ));
        let mut command = Command::new(&self.python);
        command.args(["-c", SEEDED, &seed.to_string()]);
        command.arg(self.checkout.join("scripts").join(&run.script));
        command.args(["-h", "127.0.0.1", "-p", &server.port.to_string()]);
        command.args(self.arguments(run)?);
        command
            .env("PYTHONPATH", &self.checkout)
            // The same order of sets on both sides.
            .env("PYTHONHASHSEED", "0")
            .env("PYTHONPYCACHEPREFIX", self.directory.join("cache"))
            .current_dir(&self.directory);
        let mut command = ending_with_us(command);
        let (status, text) = within(PATIENCE, &log, &mut command)?;
        let mut verdict = Verdict::read(&text, log);
        if !status.is_some_and(|status| status.success()) && verdict.failed.is_empty() {
            verdict.ended = false;
        }
        Ok(verdict)
    }

    /// A script's arguments, as the table has them.
    fn arguments(&self, run: &Run) -> Outcome<Vec<OsString>> {
        let mut arguments = Vec::new();
        if let Some(most) = run.most() {
            arguments.extend(["-n".into(), most.into()]);
        }
        for word in run.words() {
            match word
                .strip_prefix('{')
                .and_then(|word| word.strip_suffix('}'))
            {
                None => arguments.push(word.replace('~', " ").into()),
                Some(key) => {
                    let identity = servers::identity(&self.directory, key)?;
                    arguments.extend(["-k".into(), identity.key.into_os_string()]);
                    arguments.extend(["-c".into(), identity.certificate.into_os_string()]);
                }
            }
        }
        Ok(arguments)
    }
}

/// The same server twice.
struct Servers {
    stock: Server,
    ours: Server,
}

impl Servers {
    fn start(rig: &Rig, setup: &Setup, module: Module) -> Outcome<Servers> {
        Ok(Servers {
            stock: Server::start(&rig.directory, setup, None)?,
            ours: Server::start(&rig.directory, setup, Some(module))?,
        })
    }

    /// What scripts that run at the same time say about them. A server that a script has ended is
    /// started anew before the next.
    fn serve(&mut self, rig: &Rig, setup: &Setup, runs: &[Run], seed: u64) -> Outcome<Vec<Pair>> {
        self.stock.revive(&rig.directory, setup)?;
        self.ours.revive(&rig.directory, setup)?;
        let (stock, ours) = (&self.stock, &self.ours);
        let pairs: Vec<Outcome<Pair>> = thread::scope(|scope| {
            let begin = |server| {
                let begin = |run| scope.spawn(move || rig.script(setup, run, seed, server));
                runs.iter().map(begin).collect::<Vec<_>>()
            };
            let (stock, ours) = (begin(stock), begin(ours));
            let pairs = stock.into_iter().zip(ours);
            let end = |script: thread::ScopedJoinHandle<'_, Outcome<Verdict>>| {
                script.join().expect("a script does not panic")
            };
            let both = |(stock, ours)| {
                let (stock, ours) = (end(stock), end(ours));
                Ok(Pair {
                    stock: stock?,
                    ours: ours?,
                })
            };
            pairs.map(both).collect()
        });
        let mut pairs = pairs.into_iter().collect::<Outcome<Vec<_>>>()?;
        if self.ours.has_ended() && !self.stock.has_ended() {
            for pair in &mut pairs {
                pair.ours.failed.insert("the server ended".to_owned());
            }
        }
        Ok(pairs)
    }
}

/// What a script says about the server without the module and the one with it.
struct Pair {
    stock: Verdict,
    ours: Verdict,
}

impl Pair {
    /// What only the server without the module passed.
    fn lost(&self) -> Vec<String> {
        self.stock.passed_but_not(&self.ours)
    }
}

/// What a script says about a server.
struct Verdict {
    /// Whether it came to its end.
    ended: bool,
    passed: u64,
    /// Conversations that failed.
    failed: BTreeSet<String>,
    log: PathBuf,
}

impl Verdict {
    /// What it did not pass.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::from_iter(self.failed.iter().cloned());
        if !self.ended || self.passed == 0 {
            lacks.push("the script did not come to its end".to_owned());
        }
        lacks
    }

    /// Reads the summary at the end of its output.
    fn read(text: &str, log: PathBuf) -> Verdict {
        let mut verdict = Verdict {
            ended: false,
            passed: 0,
            failed: BTreeSet::new(),
            log,
        };
        let mut among_failed = false;
        for line in text.lines() {
            match line.strip_prefix('\t') {
                Some(name) if among_failed => {
                    verdict.failed.insert(name.to_owned());
                    continue;
                }
                _ => among_failed = verdict.ended && line.starts_with("FAILED:"),
            }
            if line.starts_with("Test end") {
                verdict.ended = true;
            } else if let Some(count) = line.strip_prefix("PASS: ").filter(|_| verdict.ended) {
                verdict.passed = count.trim().parse().unwrap_or(0);
            }
        }
        verdict
    }

    /// What passed with this server, and not with another one. If nothing passed here, nothing can.
    fn passed_but_not(&self, other: &Verdict) -> Vec<String> {
        if self.passed == 0 {
            return Vec::new();
        }
        let mut names: Vec<String> = other.failed.difference(&self.failed).cloned().collect();
        if self.ended && !other.ended {
            names.push("the script did not come to its end".to_owned());
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "sanity ...\nOK\n\nTest end\n====\nTOTAL: 3\nPASS: 3\nFAIL: 0\n====\n";
    const BAD: &str = "sanity ...\nTest end\n====\nTOTAL: 3\nPASS: 1\nFAIL: 2\n====\nFAILED:\n\
                       \t'one'\n\t'two'\n";

    fn read(text: &str) -> Verdict {
        Verdict::read(text, PathBuf::new())
    }

    #[test]
    fn a_summary_is_read() {
        let verdict = read(BAD);
        assert!(verdict.ended);
        assert_eq!(verdict.passed, 1);
        assert_eq!(Vec::from_iter(verdict.failed), ["'one'", "'two'"]);
        assert!(!read("sanity ...\nTraceback\n").ended);
    }

    #[test]
    fn only_what_the_module_loses_is_a_finding() {
        assert!(read(BAD).passed_but_not(&read(GOOD)).is_empty());
        assert!(read(BAD).passed_but_not(&read(BAD)).is_empty());
        assert_eq!(read(GOOD).passed_but_not(&read(BAD)).len(), 2);
        assert_eq!(read(GOOD).passed_but_not(&read("sanity ...\n")).len(), 1);
        let nothing = read("Test end\nPASS: 0\nFAILED:\n\t'three'\n");
        assert!(nothing.passed_but_not(&read(BAD)).is_empty());
    }

    #[test]
    fn the_short_form_has_ten_scripts_of_the_table() {
        let setups = table::read().unwrap();
        let mut scripts = 0;
        for (name, names) in QUICK {
            let setup = find(&setups, name).unwrap();
            for script in *names {
                assert!(setup.first(script).is_ok(), "{script}");
                scripts += 1;
            }
        }
        assert_eq!(scripts, 10);
        assert!(find(&setups, PLANTED.1).unwrap().first(PLANTED.2).is_ok());
    }
}
