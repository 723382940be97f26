//! The scripts of tlsfuzzer against servers, once without the module and once with it.
//!
//! tlsfuzzer is a client that talks TLS wrongly on purpose: bad paddings, malformed points,
//! messages out of order. A script holds many conversations, and says of each whether the server
//! answered as it should. This check does not judge which of them OpenSSL passes. A conversation
//! that a server passes without the module, and fails with it, is a finding.
//!
//! `rig/tlsfuzzer/setups.json` has the servers and their scripts, in the manner of tlsfuzzer's own
//! lists. tlsfuzzer itself is not part of this repository: [`CHECKOUT`] names a directory with it.

mod table;
mod verdict;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use xtask::command::{
    Failure, Outcome, emptied, ending_with_us, free_port, on, openssl, quietly, root, succeeds,
    target_directory, within,
};
use xtask::dist::{self, Dist};
use xtask::work::{Ran, Share, Work};

use crate::beside::{Module, Server, find_planted, idle};
use table::{Setup, Table, words};
use verdict::{Pair, Verdict};

/// The environment's name for a directory with tlsfuzzer.
const CHECKOUT: &str = "LOCKSTEP_TLSFUZZER";

/// The package from which tlsfuzzer's TLS has ML-KEM, which it does without by itself.
const MLKEM: &str = "kyber-py";

/// A script that has not ended by now never does.
const PATIENCE: Duration = Duration::from_secs(400);

/// Runs a script with a seed of its own, so that both servers see the same conversations. Some
/// scripts draw their messages from the system's generator, which gets the seed too.
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

/// A defect of a module with fault points, and the set-up and the script that must notice.
const PLANTED: (&str, &str, &str) = ("padding-byte", "rsa2048", "test-conversation.py");

/// The nightly check: from the run where the last night stopped, at most once through all of them.
pub fn night(share: &Share) -> Outcome<Ran> {
    let table = Table::read()?;
    let mut runs = Vec::new();
    for setup in &table.setups {
        runs.extend(table.runs(setup)?.into_iter().map(|run| (setup, run)));
    }
    let first = share.next as usize % runs.len();
    runs.rotate_left(first);
    follow(&table, &runs, share.next, Some(share.time))
}

/// The short form.
pub fn quick() -> Outcome<Ran> {
    let table = Table::read()?;
    let mut runs = Vec::new();
    for (name, scripts) in QUICK {
        let setup = table.setup(name)?;
        for script in *scripts {
            runs.push((setup, table.first(setup, script)?));
        }
    }
    follow(&table, &runs, 0, None)?
        .or_fail("tlsfuzzer found a difference between the module and OpenSSL alone, see above")
}

/// Runs of set-ups, each against a server without the module and one with it.
fn follow(
    table: &Table,
    runs: &[(&Setup, String)],
    next: u64,
    time: Option<Duration>,
) -> Outcome<Ran> {
    let Some(rig) = Rig::prepare(table)? else {
        return Ok(Ran::Skipped(missing()));
    };
    rig.proves_itself()?;
    let mut sum = Sum {
        end: time.map(|time| Instant::now() + time),
        work: Work {
            next,
            ..Work::default()
        },
        conversations: 0,
        on_lanes: 0,
    };
    for runs in runs.chunk_by(|(one, _), (other, _)| one.name == other.name) {
        if !sum.is_over() {
            rig.follow(runs, &mut sum)?;
        }
    }
    if sum.work.cases > 0 && sum.on_lanes == 0 {
        return Err(Failure::new(
            "no operation ran on lanes, so the comparison shows nothing",
        ));
    }
    sum.work.note = format!(
        "{} conversations, {} operations on lanes",
        sum.conversations, sum.on_lanes
    );
    Ok(Ran::Worked(sum.work))
}

/// The remedy for a missing tlsfuzzer.
fn missing() -> String {
    format!(
        "tlsfuzzer is not here: clone the git repository of the project (tlsfuzzer/tlsfuzzer on \
         GitHub) and set {CHECKOUT} to its directory"
    )
}

/// Sums over the runs of a night.
struct Sum {
    end: Option<Instant>,
    work: Work,
    conversations: u64,
    on_lanes: u64,
}

impl Sum {
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() > end)
    }
}

/// The means of all runs.
struct Rig<'a> {
    table: &'a Table,
    dist: Dist,
    checkout: PathBuf,
    python: PathBuf,
    directory: PathBuf,
}

impl<'a> Rig<'a> {
    /// `None` if there is no tlsfuzzer.
    fn prepare(table: &'a Table) -> Outcome<Option<Rig<'a>>> {
        let Some(checkout) = std::env::var_os(CHECKOUT).filter(|path| !path.is_empty()) else {
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
        let rig = Rig {
            table,
            dist: dist::build()?,
            checkout,
            python: venv.join("bin/python"),
            directory,
        };
        rig.make_keys()?;
        Ok(Some(rig))
    }

    /// Makes the keys and certificates that are not there yet.
    fn make_keys(&self) -> Outcome {
        let directory = self.directory.join("keys");
        fs::create_dir_all(&directory).map_err(on(&directory, "create"))?;
        let read = |path: &Path| fs::read_to_string(path).map_err(on(path, "read"));
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(on(&path, "write"))
        };
        let mut clients = String::new();
        for (name, kind) in &self.table.keys {
            let [key, certificate] =
                ["key", "crt"].map(|end| directory.join(format!("{name}.{end}")));
            if !certificate.exists() {
                let mut request = openssl(["req", "-x509", "-nodes", "-days", "3650", "-newkey"]);
                request
                    .args(kind.split(' '))
                    .args(["-subj", "/CN=localhost"])
                    .args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
                    .arg(&key)
                    .arg("-out")
                    .arg(&certificate);
                quietly(&mut request)?;
            }
            let text = read(&certificate)?;
            write(&format!("{name}.pem"), &(text.clone() + &read(&key)?))?;
            clients += &text;
        }
        // Servers trust all of them.
        write("clients.pem", &clients)
    }

    /// A text with files of keys put in.
    fn filled(&self, text: &str) -> String {
        let directory = self.directory.join("keys");
        let mut text = text.to_owned();
        for name in self
            .table
            .keys
            .keys()
            .map(String::as_str)
            .chain(["clients"])
        {
            for end in ["key", "crt", "pem"] {
                let file = format!("{name}.{end}");
                let path = directory.join(&file).display().to_string();
                text = text.replace(&format!("{{{file}}}"), &path);
            }
        }
        text
    }

    /// Whether a module with a planted defect is found out.
    fn proves_itself(&self) -> Outcome {
        let (defect, setup, script) = PLANTED;
        let setup = self.table.setup(setup)?;
        let run = (setup, self.table.first(setup, script)?);
        let faulty = dist::faulty()?;
        find_planted(defect, |planted| {
            let mut both = Both::start(self, setup, &faulty, planted)?;
            let pairs = both.serve(std::slice::from_ref(&run), 0)?;
            Ok(pairs.iter().flat_map(Pair::lost).collect())
        })
    }

    /// Runs scripts of a set-up against both servers.
    fn follow(&self, runs: &[(&Setup, String)], sum: &mut Sum) -> Outcome {
        let setup = runs[0].0;
        let kind = self.table.kind(setup)?;
        let program = kind.command.split(' ').next().unwrap_or_default();
        if !["version", "-v"]
            .iter()
            .any(|about| succeeds(program, &[about]))
        {
            println!("{}: skipped, {program} is not installed", setup.name);
            sum.work.next += runs.len() as u64;
            return Ok(());
        }
        let mut both = Both::start(self, setup, &self.dist, None)?;
        let start = Instant::now();
        let mut done = 0;
        for together in runs.chunks(kind.together) {
            if sum.is_over() {
                break;
            }
            both.compare(together, sum)?;
            done += together.len();
            sum.work.next += together.len() as u64;
        }
        let counters = &both.sides[1].counters;
        sum.on_lanes += self.dist.total("operations", counters)?;
        let (name, seconds) = (&setup.name, start.elapsed().as_secs_f64());
        println!("{name:<28} {done} runs in {seconds:.0} s");
        if done == self.table.runs(setup)?.len() {
            let lanes = setup.lanes.iter().map(String::as_str);
            for idle in idle(&self.dist, counters, lanes)? {
                sum.work.findings += 1;
                println!("{name}: {idle}");
            }
        }
        Ok(())
    }
}

/// One of the two servers.
struct Side {
    /// Start of the names of its files.
    name: String,
    server: Server,
    counters: PathBuf,
}

/// The server of a set-up without the module, and with it.
struct Both<'a> {
    rig: &'a Rig<'a>,
    setup: &'a Setup,
    /// With the module, and with which defect.
    module: &'a Dist,
    planted: Option<&'static str>,
    sides: [Side; 2],
}

impl<'a> Both<'a> {
    fn start(
        rig: &'a Rig<'a>,
        setup: &'a Setup,
        module: &'a Dist,
        planted: Option<&'static str>,
    ) -> Outcome<Both<'a>> {
        let side = |kind: &str, module: Option<&Dist>| {
            let name = format!("{kind}-{}", setup.name);
            let counters = rig.directory.join(format!("counters-{name}"));
            emptied(&counters)?;
            let server = launch(rig, setup, (&name, &counters), module, planted)?;
            Ok(Side {
                name,
                server,
                counters,
            })
        };
        Ok(Both {
            rig,
            setup,
            module,
            planted,
            sides: [side("stock", None)?, side("module", Some(module))?],
        })
    }

    /// Starts a server anew that a script has ended.
    fn revive(&mut self) -> Outcome {
        for (side, module) in self.sides.iter_mut().zip([None, Some(self.module)]) {
            if side.server.has_ended() {
                let files = (side.name.as_str(), side.counters.as_path());
                side.server = launch(self.rig, self.setup, files, module, self.planted)?;
            }
        }
        Ok(())
    }

    /// Runs scripts at the same time against both servers, and all once more if one differs.
    fn compare(&mut self, runs: &[(&Setup, String)], sum: &mut Sum) -> Outcome {
        let seed = sum.work.next;
        let about = |run: &str| format!("{}: {run}", self.setup.name);
        let abouts: Vec<String> = runs.iter().map(|(_, run)| about(run)).collect();
        let first = self.serve(runs, seed)?;
        for (about, pair) in abouts.iter().zip(&first) {
            let passed = pair.measure().passed;
            if passed == 0 && !pair.is_added {
                // It shows nothing.
                println!("{about}: OpenSSL alone passes nothing");
                continue;
            }
            sum.work.cases += 1;
            sum.conversations += passed;
        }
        if first.iter().all(|pair| pair.lost().is_empty()) {
            return Ok(());
        }
        // A stopwatch decides in some scripts, and the machine may be busy.
        let second = self.serve(runs, seed)?;
        for (about, (first, second)) in abouts.iter().zip(first.iter().zip(&second)) {
            match (&first.lost()[..], &second.lost()[..]) {
                ([], _) => {}
                (once, []) => println!("{about}: differed once, and not again: {once:?}"),
                (_, lost) => {
                    sum.work.findings += 1;
                    let log = second.sides[1].log.display();
                    println!("{about}: {lost:?}\nseed {seed}, {log}");
                }
            }
        }
        Ok(())
    }

    /// The verdicts of scripts that run at the same time about both servers.
    fn serve(&mut self, runs: &[(&Setup, String)], seed: u64) -> Outcome<Vec<Pair>> {
        self.revive()?;
        let (rig, setup) = (self.rig, self.setup);
        let verdicts: Vec<Outcome<Verdict>> = thread::scope(|scope| {
            let begin = |side| {
                let begin = move |(_, run): &(&Setup, String)| {
                    let run = run.clone();
                    scope.spawn(move || script(rig, &run, seed, side))
                };
                runs.iter().map(begin).collect::<Vec<_>>()
            };
            let begun: Vec<_> = self.sides.iter().flat_map(begin).collect();
            let ended = begun.into_iter().map(thread::ScopedJoinHandle::join);
            ended
                .map(|ended| ended.expect("a script does not panic"))
                .collect()
        });
        let mut stock = verdicts.into_iter().collect::<Outcome<Vec<_>>>()?;
        let mut with = stock.split_off(runs.len());
        let [stock_ended, ended] = self.sides.each_mut().map(|side| side.server.has_ended());
        if ended && !stock_ended {
            for verdict in &mut with {
                verdict
                    .results
                    .insert("the server".to_owned(), "ended".to_owned());
            }
        }
        let pairs = stock.into_iter().zip(with).map(|(stock, with)| Pair {
            sides: [stock, with],
            is_added: !setup.adds.is_empty(),
        });
        Ok(pairs.collect())
    }
}

/// Starts the server of a set-up, given the name of its files and the directory of its counters.
fn launch(
    rig: &Rig,
    setup: &Setup,
    (name, counters): (&str, &Path),
    module: Option<&Dist>,
    planted: Option<&str>,
) -> Outcome<Server> {
    let (kind, port) = (rig.table.kind(setup)?, free_port()?);
    let how = |at: usize| kind.keys.get(at).or(kind.keys.last());
    let keys = setup.keys.iter().enumerate();
    let keys = keys.filter_map(|(at, key)| Some(how(at)?.replace("KEY", key)));
    let keys = keys.collect::<Vec<_>>().join(" ");
    let put_in = |text: &str| {
        text.replace("{port}", &port.to_string())
            .replace("{keys}", &keys)
            .replace("{options}", &setup.options)
    };
    let configuration = rig.directory.join(format!("{name}.conf"));
    if let Some(template) = &kind.configuration {
        let template = root().join("rig/tlsfuzzer").join(template);
        let text = fs::read_to_string(&template).map_err(on(&template, "read"))?;
        let text = rig.filled(&put_in(&text));
        fs::write(&configuration, text).map_err(on(&configuration, "write"))?;
    }
    let line = put_in(&kind.command);
    let mut words = line.split_whitespace().map(|word| match word {
        "{directory}" => rig.directory.clone(),
        "{configuration}" => configuration.clone(),
        word => rig.filled(word).into(),
    });
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env_remove("OPENSSL_CONF");
    if let Some(module) = module {
        let module_of = Module {
            backend: None,
            counters,
            planted,
        };
        module_of.set(&mut command);
        command.envs(&setup.settings);
        command.env("OPENSSL_CONF", module.configuration());
        command.args(setup.adds.split_whitespace());
    }
    Server::start(command, port, &rig.directory.join(format!("{name}.log")))
}

/// Runs a script against one server.
fn script(rig: &Rig, run: &str, seed: u64, side: &Side) -> Outcome<Verdict> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name = format!("{}-{run}", side.name);
    let name: String = name.chars().map(plain).take(120).collect();
    let log = rig.directory.join(name + ".log");
    let mut words = words(run).into_iter();
    let script = words.next().unwrap_or_default();
    let mut command = Command::new(&rig.python);
    command.args(["-c", SEEDED, &seed.to_string()]);
    command.arg(rig.checkout.join("scripts").join(script));
    command.args(["-h", "127.0.0.1", "-p", &side.server.port.to_string()]);
    command.args(words.map(|word| rig.filled(&word)));
    command
        .env("PYTHONPATH", &rig.checkout)
        // The same order of sets on both sides.
        .env("PYTHONHASHSEED", "0")
        .env("PYTHONPYCACHEPREFIX", rig.directory.join("cache"))
        .current_dir(&rig.directory);
    let (status, text) = within(PATIENCE, &log, &mut ending_with_us(command))?;
    let succeeded = status.is_some_and(|status| status.success());
    Ok(Verdict::read(&text, succeeded, log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_has_ten_scripts_of_the_table() {
        let table = Table::read().unwrap();
        let mut scripts = 0;
        for (name, names) in QUICK {
            let setup = table.setup(name).unwrap();
            for script in *names {
                assert!(table.first(setup, script).is_ok(), "{script}");
                scripts += 1;
            }
        }
        assert_eq!(scripts, 10);
        assert!(
            table
                .first(table.setup(PLANTED.1).unwrap(), PLANTED.2)
                .is_ok()
        );
    }
}
